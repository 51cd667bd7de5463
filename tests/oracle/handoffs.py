"""The places that hand work on, each arranged, run by the ledger's own functions, and observed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from due_work_harness import ExternalCall, HandoffHistory

from ledger import (
    crashpoints,
    engine,
    models,
    outcomes,
    resolutions,
    saga,
    sightings,
    sql,
    submission,
    tickets,
)
from ledger.saga import Call, Direction
from ledger.states import JOB_LANES
from tests import factories, hot_rooms, sagas, staff
from tests.oracle import delivery

History = HandoffHistory[Any, Any]
INPUT = {"rooms": ["red"]}


def give_back(call: Call) -> outcomes.Confirmed:
    rooms = call.arguments["rooms"]
    sql.fetch("UPDATE hot_room SET taken = taken - 1 WHERE key = ANY (%s)", [rooms])
    return outcomes.Confirmed()


class Trip:
    """A LOCAL room, a payment, and the pivot ticket, submitted and observed. `lapses`: the payment's key does, at once."""

    def __init__(self, *, lapses: bool = False) -> None:
        self.books = delivery.Books()
        lifetime = timedelta(microseconds=1) if lapses else timedelta(days=1)
        effect = self.books.effect("payment", key_lifetime=lifetime)
        room = saga.Step(
            "room", do=hot_rooms.take, undo=give_back, effect=saga.LOCAL, rows=hot_rooms.LOCKED
        )
        payment = sagas.step(self.books, "payment", effect=effect)
        ticket = sagas.step(self.books, "ticket", pivot=True, undo=saga.NotUndoable("last step"))
        self.definition = saga.Saga("test.oracle", version=1, steps=[room, payment, ticket])

    @contextmanager
    def registered(self) -> Iterator[None]:
        with sagas.registered(self.definition), hot_rooms.hotel():
            yield

    def key(self) -> tuple[UUID, str]:
        """A client that is about to submit, and rooms that are free again."""
        sql.fetch("UPDATE hot_room SET taken = 0")
        return factories.TenantFactory.create().id, uuid4().hex

    def submit(self, client: tuple[UUID, str]) -> UUID:
        tenant, key = client
        done = submission.submit(
            tenant_id=tenant, key=key, saga=self.definition, request=INPUT, input=INPUT
        )
        tickets.flush(delivery.FLUSH_SECONDS)
        return done.job_id

    def accepted(self) -> UUID:
        with unheard():
            return self.submit(self.key())

    def orphan(self) -> UUID:
        """A job whose worker died with an attempt committed and no call made."""
        job = self.accepted()
        with (
            unheard(),
            crashpoints.armed("local.after", die),
            pytest.raises(crashpoints.CrashPointError),
        ):
            engine.drive("forward")
        sql.fetch(delivery.LEASES_END)
        return job

    def parked(self) -> UUID:
        """A job whose payment nobody can tell about."""
        job = self.accepted()
        self.books.says("payment:forward", sagas.raising(TimeoutError()))
        with unheard():
            engine.drive("forward")
        assert models.Job.objects.get(id=job).parked_reason == "unknown_outcome"
        return job

    def seen_late(self) -> UUID:
        job = self.parked()
        heard = {"ref": "late", "data": {}}
        late = ("payment", Direction.FORWARD, 1, "late", "confirmed", heard)
        sightings.record([sightings.NewSighting(job, *late)])
        return job

    def observe(self, job: UUID) -> object:
        found = models.Job.objects.get(id=job)
        return found.state, found.parked_reason, self.books.of(job), hot_rooms.taken()

    def observe_client(self, client: tuple[UUID, str]) -> object:
        return [self.observe(j.id) for j in models.Job.objects.filter(tenant_id=client[0])]

    def history(
        self, name: str, arrange: Callable[[], UUID], do: Callable[[UUID], object]
    ) -> History:
        return HandoffHistory(name=name, arrange=arrange, transition=do, observe=self.observe)


@contextmanager
def unheard() -> Iterator[None]:
    """What rings while a history is arranged is not that history's."""
    with tickets.heard_by(lambda _lane: None):
        yield


def die(point: str) -> None:
    raise crashpoints.CrashPointError(point)


def drive(_job: UUID) -> None:
    """One run per lane, with the real threads."""
    for lane in JOB_LANES:
        engine.drive(lane)
        tickets.flush(delivery.FLUSH_SECONDS)


def submitting(trip: Trip) -> History:
    return HandoffHistory(
        name="submit", arrange=trip.key, transition=trip.submit, observe=trip.observe_client
    )


def settling(trip: Trip) -> History:
    history = trip.history("settle", trip.accepted, drive)
    return history.model_copy(update={"external_calls": (ExternalCall(trip.books, "serve"),)})


def compensating(trip: Trip) -> History:
    trip.books.refuses.add("ticket:forward")
    return settling(trip).model_copy(update={"name": "compensate"})


def sweeping(trip: Trip) -> History:
    return trip.history("sweep", trip.orphan, delivery.sweep)


def judging(trip: Trip) -> History:
    return trip.history("reconcile", trip.seen_late, delivery.sweep)


def resolving(trip: Trip) -> History:
    person = staff.member("sam")

    def resolve(job: UUID) -> None:
        resolutions.act(job, staff.asked("done", person), by=person)
        tickets.flush(delivery.FLUSH_SECONDS)

    return trip.history("resolve", trip.parked, resolve)
