"""Trips as the cases run them: the real saga or a variant of it, the real engine, and both witnesses' word.

The witnesses are our receipts and the provider's own books. `Trip.agree` compares them: an operation had at most one
effect, it is the one that the receipts name, and every request named an operation of this trip's job.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from bookings import payments, rooms
from bookings import saga as booking
from bookings.models import Reservation
from ledger import calls, models, saga, sql, standing
from ledger import selectors as read
from ledger.saga import Direction
from recovery import sweeps
from tests import claims, drives, factories, hotels, sagas
from tests.providers.conftest import RunningSandbox

CAPTURE = payments.CAPTURE_STEP
FORWARD, BACKWARD = Direction.FORWARD, Direction.BACKWARD
PRICE_MINOR = 20_000
PAID, REFUNDED, TICKETED = ("capture", PRICE_MINOR), ("refund", PRICE_MINOR), ("ticket", None)
SIGNS = {"capture": 1, "refund": -1, "ticket": 0}
WAITS_MAX, WAIT_SECONDS = 1_000, 0.01
_versions = itertools.count(1)


@contextmanager
def variant(
    steps: int = 4, /, *, payment: dict[str, Any] | None = None, **promises: Any
) -> Iterator[saga.Saga]:
    """The first steps of a trip, with another payment: `promises` change its effect, `payment` the step itself."""
    changes = {"effect": replace(payments.EFFECT, **promises), **(payment or {})}
    changed = [replace(s, **changes) if s.name == CAPTURE else s for s in booking.trip.steps]
    definition = saga.Saga(
        "cases.trip", version=next(_versions), input=booking.TripRequest, steps=changed[:steps]
    )
    with sagas.registered(definition):
        yield definition


@dataclass(frozen=True)
class Trip:
    """One trip, and what is known of it here and there."""

    job_id: UUID
    subject: str
    sandbox: RunningSandbox = field(compare=False)

    def operation(self, direction: Direction = FORWARD, step: str = CAPTURE) -> str:
        return saga.operation_id(self.job_id, step, direction)

    def row(self) -> models.Job:
        return models.Job.objects.get(id=self.job_id)

    def state(self) -> str:
        return self.row().state

    def parked(self) -> tuple[str, str]:
        row = self.row()
        return row.state, row.parked_reason

    def outcomes(self, direction: Direction = FORWARD, step: str = CAPTURE) -> list[str]:
        """What our receipts say of one operation, in journal order."""
        return [o for s, d, o in drives.receipts(self.job_id) if (s, d) == (step, direction)]

    def final(self, direction: Direction = FORWARD, step: str = CAPTURE) -> models.Receipt:
        of = models.Receipt.objects.filter(job_id=self.job_id, step=step, direction=direction)
        return of.get(outcome__in=["confirmed", "refused"])

    def requests(self) -> list[str]:
        """The kinds of request that the provider got, in order."""
        return [request["kind"] for request in self._books("requests")]

    def effects(self) -> list[tuple[str, int | None]]:
        """What happened at the provider, in order."""
        return [(e["kind"], e["amount_minor"]) for e in self._books("effects")]

    def net(self) -> int:
        return sum(SIGNS[kind] * (amount or 0) for kind, amount in self.effects())

    def await_request(self, kind: str) -> None:
        """Until the provider has got one of this kind."""
        pause = threading.Event()
        for _ in range(WAITS_MAX):
            if kind in self.requests():
                return
            pause.wait(WAIT_SECONDS)
        raise AssertionError(f"no {kind} has reached the provider, only {self.requests()}")

    def agree(self) -> None:
        """Both witnesses say the same."""
        effects = [(e["operation_id"], e["id"]) for e in self._books("effects")]
        assert len(effects) == len(dict(effects)), f"an operation had two effects: {effects}"
        remote = models.Receipt.objects.filter(job_id=self.job_id, outcome="confirmed")
        believed = {
            self.operation(Direction(r.direction), r.step): r.evidence["ref"]
            for r in remote.exclude(step__in=["reserve_room", "secure_room"])
        }
        assert dict(effects) == believed
        strange = [r for r in self._books("requests") if str(self.job_id) not in r["operation_id"]]
        assert strange == [], "a request under an id that is none of this job's"

    def reservation(self) -> Reservation:
        return hotels.reservation(self.operation(FORWARD, "reserve_room"))

    def an_hour_later(self) -> None:
        """What was waited for is due; the journal is an hour old."""
        drives.age_journal(self.job_id)
        drives.make_due(self.job_id)
        drives.drive_all()

    def lose_owner(self) -> None:
        """Its worker is gone, with its threads: the lease passes, and the sweep gives the job back."""
        calls._pool = None
        drives.expire_lease(self.job_id)
        assert sweeps.reclaim().count == 1

    def _books(self, table: str) -> list[dict[str, Any]]:
        answer = self.sandbox.client.get(f"/books/{table}", params={"subject": self.subject})
        return list(answer.json())


@dataclass(frozen=True)
class Stage:
    """A provider and a hotel."""

    sandbox: RunningSandbox
    small: hotels.SmallHotel

    def book(self, definition: saga.Saga = booking.trip) -> Trip:
        subject = str(uuid4())
        request = booking.TripRequest(
            **self.small.stay(),
            amount_minor=PRICE_MINOR,
            currency="EUR",
            account="agent",
            subject=subject,
            guest="A. Guest",
        )
        job_id = factories.submit(definition, saga.vars_of(request))
        return Trip(job_id, subject, self.sandbox)

    def rules(self, *rules: dict[str, Any]) -> None:
        """How the provider behaves from now on; none: as it should."""
        self.sandbox.control("rules", rules=list(rules))

    def hold(self, kind: str, *rules: dict[str, Any]) -> None:
        """The first request of this kind stays on the wire, with its sender waiting, until `release`."""
        held = {"do": "hold", "match": kind, "times": 1, "answer": True, "seconds": 60.0}
        self.rules(held, *rules)

    def release(self) -> None:
        """What is held on the wire arrives."""
        assert self.sandbox.control("release") == {"released": 1}

    def refuse_tickets(self, *rules: dict[str, Any]) -> None:
        """Trips go back after the payment; more rules say what else happens."""
        self.rules({"do": "refuse", "match": "ticket", "status": 422, "code": "none_left"}, *rules)


def classes() -> dict[str, int]:
    """How many jobs each class of the report has, without the empty ones."""
    found = read.report().lines
    return {str(name): found[name].jobs for name in standing.Standing if found[name].jobs}


def sweep() -> None:
    """One pass of everything that beat starts."""
    sweeps.reclaim()
    sweeps.expire_deadlines()
    sweeps.reconcile()
    sweeps.promote()
    sweeps.ring()
    rooms.expire_holds(1_000)


def snapshot(trip: Trip) -> tuple[Any, ...]:
    """All that a pass with nothing to do must leave alone: the row's very version, the journal, and the provider."""
    job = sql.fetch("SELECT xmin::text, * FROM ledger_job WHERE id = %s", [trip.job_id])
    return job, claims.rows(trip.job_id), trip.requests()
