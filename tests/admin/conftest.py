"""Staff in a browser's place, and a compensation that is stuck."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.http.response import HttpResponseBase
from django.test import Client
from pytest_django.fixtures import Settings

from ledger import models, outcomes
from tests import drives, factories, sagas, staff

PRICE = {"amount_minor": 12_345, "currency": "EUR"}


@pytest.fixture(autouse=True)
def no_backoff(settings: Settings) -> None:
    settings.BACKOFF_SECONDS = 0.0


@dataclass
class Desk:
    """One member of staff who is logged in. Forms are sent with their CSRF token, as a browser sends them."""

    client: Client

    def get(self, path: str, status: int = 200) -> str:
        answer = self.client.get(f"/admin/ledger/{path}")
        assert answer.status_code == status
        return answer.content.decode()

    def post(self, job: UUID, fields: dict[str, Any]) -> HttpResponseBase:
        path = f"/admin/ledger/job/{job}/change/"
        self.client.get(path)
        token = self.client.cookies["csrftoken"].value
        whole = {"csrfmiddlewaretoken": token, "_selected_action": str(job), **fields}
        answer: HttpResponseBase = self.client.post(path, whole)
        return answer

    def press(self, job: UUID, act: str, seen: int, **confirmed: str) -> HttpResponseBase:
        """A button on the job's page; with fields, the form that follows it."""
        more = {"confirmed": "yes", "reason": staff.REASON, **confirmed} if confirmed else {}
        heard = models.Sighting.objects.filter(job_id=job).count()
        shown = {"seen": str(seen), "heard": str(heard)}
        return self.post(job, {"CHANGE_FORM-action": act, **shown, **more})

    def told(self, answer: HttpResponseBase) -> str:
        """The page that an act leads to."""
        assert answer.status_code == 302
        return self.client.get(answer["Location"]).content.decode()


def logged_in(name: str, group: str = "supervisor") -> Desk:
    client = Client(enforce_csrf_checks=True)
    client.force_login(staff.member(name, group))
    return Desk(client)


@pytest.fixture
def desk(database: None) -> Desk:
    return logged_in("sam")


@dataclass
class Stuck:
    """A trip without a ticket whose refund could not be sent: the provider is down."""

    job: UUID
    world: sagas.World

    @property
    def row(self) -> models.Job:
        return models.Job.objects.get(id=self.job)


@pytest.fixture
def stuck(database: None) -> Iterator[Stuck]:
    world = sagas.World()
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", *[sagas.raising(outcomes.NotSent("connection_refused"))] * 2)
    with sagas.trip(world, undo_attempts=2) as trip:
        job = factories.submit(trip, PRICE)
        drives.drive_all()
        yield Stuck(job, world)
