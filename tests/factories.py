"""Rows for tests. Jobs come from `ledger.submission`, as everywhere: a job that nobody submitted proves nothing."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from factory.declarations import Sequence
from factory.django import DjangoModelFactory

from ledger import models, saga, submission


class TenantFactory(DjangoModelFactory[models.Tenant]):
    class Meta:
        model = models.Tenant

    name = Sequence(lambda n: f"tenant-{n}")


def submit(
    definition: saga.Saga,
    input_: Mapping[str, Any] | None = None,
    tenant: models.Tenant | None = None,
) -> UUID:
    """One accepted job of this saga."""
    return submission.submit(
        tenant_id=(tenant or TenantFactory.create()).id,
        key=str(uuid4()),
        saga=definition,
        request=input_ or {},
        input=input_ or {},
    ).job_id
