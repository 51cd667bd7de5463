"""The clients of a drill: they book, repeat themselves, change their mind, and write down what they were told.

Kept here: a key is asked again until it is answered for good, as every client may; what was answered is never forgotten, so
that "nothing acknowledged was lost" can be judged by someone other than us. Prices are unique, so that money cannot be mixed
up unseen.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from uuid import UUID

import httpx2

from ledger import clock
from recovery import clients
from recovery.drills.place import Place

CLIENTS = 6
REPEATED, CANCELLED = 10, 20  # every tenth booking is asked for again, every twentieth is cancelled
ANSWER_SECONDS = 60.0
AGAIN_SECONDS = 0.1
# A burst at first, so that every worker process has work; the rest spread out, so that faults meet all stages.
SPREAD_SECONDS_MIN, PER_SECOND, BURST = 4.0, 25.0, 4


@dataclass(slots=True)
class Told:
    """One booking as its client knows it; `booking` is empty until it was accepted."""

    key: str
    token: str
    body: Mapping[str, Any]
    booking: str = ""
    price_minor: int = 0
    replays: int = 0


@dataclass(slots=True)
class Journal:
    """What all clients were told. `slowest` is the longest time that one answer took."""

    told: dict[str, Told] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    slowest: float = 0.0
    cancelled: int = 0
    wrong: list[str] = field(default_factory=list)


class Load:
    """Books `jobs` stays under keys that begin with `prefix`, in threads of its own."""

    def __init__(self, place: Place, prefix: str, jobs: int) -> None:
        self.journal = Journal()
        self.prefix, self.jobs = prefix, jobs
        self._place = place
        self._stop = threading.Event()
        self._pool = futures.ThreadPoolExecutor(CLIENTS, thread_name_prefix="client")
        self._posting: list[futures.Future[None]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin; the last booking is posted `seconds` later, if the API keeps up."""
        stays, tokens = self._place.stays(self.jobs), self._place.tokens()
        told = [
            Told(f"{self.prefix}{number}", tokens[number % len(tokens)], stay)
            for number, stay in enumerate(stays)
        ]
        self.journal.told.update({one.key: one for one in told})
        begun, pace = clock.monotonic(), self.seconds / max(1, self.jobs - self.jobs // BURST)
        for number, one in enumerate(told):
            at = begun + pace * max(0, number - self.jobs // BURST)
            self._posting.append(self._pool.submit(self._book, number, one, at))

    @property
    def seconds(self) -> float:
        return max(SPREAD_SECONDS_MIN, self.jobs / PER_SECOND)

    def accepted(self) -> list[Told]:
        return [one for one in self.journal.told.values() if one.booking]

    def is_over(self) -> bool:
        return all(one.done() for one in self._posting)

    def stop(self) -> None:
        """No further request; what failed in a thread is raised here."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        for one in self._posting:
            if one.done() and not one.cancelled():
                one.result()

    def book(self, key: str, body: Mapping[str, Any]) -> Told:
        """One more booking, now, in the caller's thread."""
        one = Told(f"{self.prefix}{key}", self._place.tokens()[0], body)
        self.journal.told[one.key] = one
        self._ask(one)
        return one

    def replay(self, one: Told) -> None:
        """The same request again under its key: it must be the same booking."""
        self._ask(one)

    def _book(self, number: int, one: Told, at: float) -> None:
        if self._stop.wait(max(0.0, at - clock.monotonic())):
            return
        self._ask(one)
        if number % REPEATED == 0 and one.booking:
            self._ask(one)
        if number % CANCELLED == CANCELLED - 1 and one.booking:
            self._cancel(one)

    def _cancel(self, one: Told) -> None:
        rows = self._place.sql("SELECT job_id FROM ledger_submission WHERE key = %s", [one.key])
        if rows and self._place.cancel(rows[0][0]):
            with self._lock:
                self.journal.cancelled += 1

    def _ask(self, one: Told) -> None:
        """Post until the answer is one for good."""
        until = clock.monotonic() + ANSWER_SECONDS
        while not self._stop.is_set() and clock.monotonic() < until:
            answer = self._post(one)
            if answer is not None and answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                self._note(one, answer)
                return
            self._stop.wait(AGAIN_SECONDS)

    def _post(self, one: Told) -> clients.Answer | None:
        begun = clock.monotonic()
        try:
            answer = self._place.api.post_once(one.token, one.key, one.body)
        except (httpx2.TransportError, ValueError):
            with self._lock:
                self.journal.unanswered += 1
            return None
        with self._lock:
            self.journal.statuses[answer.status] += 1
            self.journal.slowest = max(self.journal.slowest, clock.monotonic() - begun)
        return answer

    def _note(self, one: Told, answer: clients.Answer) -> None:
        if answer.status != HTTPStatus.ACCEPTED:
            self.journal.wrong.append(f"{one.key}: answered {answer.status} {dict(answer.body)}")
            return
        booking, price = answer.body["id"], answer.body["price"]["amount_minor"]
        is_replay = answer.headers.get("idempotent-replayed") == "true"
        if one.booking and (booking, price, is_replay) != (one.booking, one.price_minor, True):
            self.journal.wrong.append(f"{one.key}: {one.booking} first, then {booking}")
        one.replays += is_replay
        one.booking, one.price_minor = booking, price


def job_of(place: Place, one: Told) -> UUID:
    found: UUID = place.sql("SELECT job_id FROM ledger_submission WHERE key = %s", [one.key])[0][0]
    return found
