"""Two lines to the outside, for demo and drills: our API as a tenant uses it, and the sandbox's control
door and books.

A request to the API that got no answer is made again under the same idempotency key, as every
client may; that is safe, and the only kind of repetition in here. Every request has a time limit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import httpx2

TIMEOUT_SECONDS = 10.0
TRIES = 5
PAGES_MAX = 100
PUBLISHED = re.compile(
    r'^ledger_publications_total\{[^}]*result="published"[^}]*\} (\S+)$', re.MULTILINE
)
PAGE_FULL = 10_000  # rows of the sandbox's books in one answer


class NoAnswerError(Exception):
    """The API gave no usable answer, however often it was asked."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"no answer to the request with key {key} after {TRIES} tries: {what}")


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case) and the JSON body of one response."""

    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class _Connected:
    """A client of one address; closed with its block."""

    def __init__(self, url: str) -> None:
        self._client = _client(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._client.close()


class Api(_Connected):
    """Bookings as a tenant makes and reads them. Safe to share between threads."""

    def book(self, token: str, key: str, body: Mapping[str, Any]) -> Answer:
        """POST under this idempotency key until there is an answer that is not a 503."""
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
        problem = ""
        for _ in range(TRIES):
            try:
                response = self._client.post("/v1/bookings", headers=headers, json=body)
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__} {error}"
                continue
            if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                return _answer(response)
            problem = response.text
        raise NoAnswerError(key, problem)

    def post_once(self, token: str, key: str, body: Mapping[str, Any]) -> Answer:
        """POST once; httpx2.TransportError where there is no answer."""
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
        return _answer(self._client.post("/v1/bookings", headers=headers, json=body))

    def published(self) -> int:
        """How many tickets all processes of the stack have published so far, by their own counters."""
        found = PUBLISHED.findall(self._client.get("/metrics").raise_for_status().text)
        return sum(int(float(value)) for value in found)

    def look(self, token: str, booking_id: str) -> Answer:
        headers = {"Authorization": f"Bearer {token}"}
        problem = ""
        for _ in range(TRIES):
            try:
                return _answer(self._client.get(f"/v1/bookings/{booking_id}", headers=headers))
            except httpx2.TransportError as error:
                problem = f"{type(error).__name__} {error}"
        raise NoAnswerError(booking_id, problem)


class Sandbox(_Connected):
    """The stand-in provider: how it is to behave, and what its books say."""

    def misbehave(self, *rules: Mapping[str, Any], seed: int = 0) -> None:
        """These rules in place of all earlier ones; none makes it honest."""
        self._post("/control/rules", {"rules": list(rules), "seed": seed})

    def set_latency(self, mean_seconds: float, jitter: float) -> None:
        self._post("/control/latency", {"mean_seconds": mean_seconds, "jitter": jitter})

    def release(self) -> None:
        """Let every held request arrive now."""
        self._post("/control/release", {})

    def go_down(self, how: str, seconds: float) -> None:
        """No answer, or errors only (`close`, `error`), to anybody but us."""
        self._post("/control/down", {"how": how, "seconds": seconds})

    def forget_keys_after(self, seconds: float | None) -> None:
        """Honour a key for so long, as it says in its terms; None: for ever."""
        self._post("/control/forget_keys", {"lifetime_seconds": seconds})

    def requests(self, subject: str = "", *, after: int = 0) -> list[dict[str, Any]]:
        """Every request for this subject; a probe counts to whom its operation is for. Those `after` row n only."""
        return self._pages("/books/requests", {"subject": subject}, after)

    def effects(self, subject: str = "", *, after: int = 0) -> list[dict[str, Any]]:
        return self._pages("/books/effects", {"subject": subject}, after)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("/books/summary", {})
        return found

    def _post(self, path: str, body: Mapping[str, Any]) -> None:
        self._client.post(path, json=body).raise_for_status()

    def _get(self, path: str, params: Mapping[str, str]) -> Any:
        return self._client.get(path, params=params).raise_for_status().json()

    def _pages(self, path: str, params: Mapping[str, str], after: int = 0) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for _ in range(PAGES_MAX):
            last = rows[-1]["n"] if rows else after
            page: Sequence[dict[str, Any]] = self._get(path, {**params, "after": str(last)})
            rows += page
            if len(page) < PAGE_FULL:
                return rows
        raise ValueError(f"{path} has more than {PAGES_MAX} pages")


def _client(url: str) -> httpx2.Client:
    # Kept for less than gunicorn keeps an idle connection, so that few requests meet a closing one.
    limits = httpx2.Limits(max_connections=16, keepalive_expiry=1.0)
    return httpx2.Client(base_url=url, trust_env=False, timeout=TIMEOUT_SECONDS, limits=limits)


def _answer(response: httpx2.Response) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, response.json())
