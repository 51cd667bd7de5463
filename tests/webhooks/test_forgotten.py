"""The secrets of an endpoint go when it ends, whoever ends it, under the role of who does."""

from datetime import timedelta
from functools import partial

import pytest

from bookings.models import WebhookSecret
from bookings.webhooks import endpoints
from ledger import tenancy
from tests import psql
from tests.conftest import Roles
from tests.webhooks import tenants
from tests.webhooks.receivers import Receiver, status
from tests.webhooks.tenants import Told

pytestmark = pytest.mark.usefixtures("database")
END = "UPDATE bookings_webhookendpoint SET disabled_at = ledger_now(), disabled_reason = 'by hand' WHERE id = %s"


def secrets_of(told: Told) -> int:
    return WebhookSecret.objects.filter(endpoint_id=told.endpoint_id).count()


@pytest.fixture
def other(told: Told, receiver: Receiver) -> Told:
    """Whose secret stays."""
    return Told(told.small, receiver, "/other")


def test_when_its_tenant_ends_it(told: Told, other: Told, as_role: Roles) -> None:
    endpoints.rotate(told.endpoint)
    assert secrets_of(told) == 2
    with as_role("api"), tenancy.of(told.tenant.id):
        endpoints.disable(told.endpoint, "by its tenant")
    assert (secrets_of(told), secrets_of(other)) == (0, 1)


@pytest.mark.parametrize("reason", ["gone", "failing"])
def test_when_its_server_does(told: Told, other: Told, as_role: Roles, reason: str) -> None:
    told.receiver.says["/hook"] = status(410 if reason == "gone" else 500)
    told.park()
    if reason == "failing":
        tenants.send()
        tenants.age(timedelta(days=3))
        tenants.make_due()
    assert secrets_of(told) == 1
    with as_role("worker"):
        tenants.send()
    assert told.endpoint.disabled_reason == reason
    assert (secrets_of(told), secrets_of(other)) == (0, 1)


def test_when_a_rotation_is_under_way_its_new_one_goes_too(told: Told) -> None:
    with psql.connected(autocommit=False) as rotating, psql.connected() as watching:
        rotating.execute(
            "SELECT FROM bookings_webhookendpoint WHERE id = %s FOR NO KEY UPDATE",
            [told.endpoint_id],
        )
        rotating.execute("UPDATE bookings_webhooksecret SET ends_at = ledger_now()")
        rotating.execute(
            "INSERT INTO bookings_webhooksecret (endpoint_id, secret) VALUES (%s, 'whsec_new')",
            [told.endpoint_id],
        )
        ending = psql.Thread(partial(endpoints.disable, told.endpoint, "by its tenant"))
        psql.await_lock_wait(watching)
        rotating.commit()
        ending.result()
    assert secrets_of(told) == 0
    with pytest.raises(endpoints.Disabled):
        endpoints.rotate(told.endpoint)
    assert secrets_of(told) == 0


def test_when_somebody_does_by_hand(told: Told, other: Told) -> None:
    with psql.connected("worker") as session:
        assert psql.refusal(session, "DELETE FROM bookings_webhooksecret")[0] == "42501"
        session.execute(END, [told.endpoint_id])
    assert (secrets_of(told), secrets_of(other)) == (0, 1)
