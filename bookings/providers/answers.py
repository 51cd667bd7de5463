"""What a provider's answer says, if anything; pure.

Invariant: an answer is read strictly or not at all. It is *throttled* by its status; a JSON
object with a status that decides something is a `Reading`, still to be bound to the operation by
the provider's module; all else is `Unknown`, because a guess in the direction of "refused" would
undo what may be paid for. Unknown keeps what came back, in a form that PostgreSQL can store:
bounded, no NUL, no lone surrogate.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from ledger import outcomes

TEXT_MAX = 2000
DONE = frozenset({200, 201})
# Statuses with which a provider says that it will not do it; 408, 425 and 429 say "not now".
DECIDED = frozenset({400, 402, 403, 404, 409, 410, 422})
THROTTLE_DEFAULT = timedelta(seconds=5)
THROTTLE_MIN = timedelta(seconds=1)
THROTTLE_MAX = timedelta(hours=1)
DIGITS_MAX = 12
INTEGER_DIGITS_MAX = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def evidence(self) -> dict[str, Any]:
        """What can be kept of it."""
        return {
            "status": self.status,
            "sha256": hashlib.sha256(self.body).hexdigest(),
            "text": storable(self.body.decode("utf-8", "replace")),
            "content_type": storable(self.headers.get("content-type", "")),
        }

    def unknown(self, reason: str) -> outcomes.Unknown:
        """In doubt; a server that fails may ask everybody for patience all the same."""
        is_asked = self.status >= 500 and "retry-after" in self.headers
        after = retry_after(self.headers) if is_asked else None
        return outcomes.Unknown(reason, self.evidence(), after)


@dataclass(slots=True)
class Received:
    """An answer while it comes in, for the case that the rest never does."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers

    def add(self, chunk: bytes) -> None:
        self.body += chunk

    def answer(self) -> Answer:
        assert self.status is not None, "an answer has a head"
        return Answer(self.status, self.headers, bytes(self.body))

    def evidence(self) -> dict[str, Any]:
        return {} if self.status is None else self.answer().evidence()


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer that says something: its JSON object, and the evidence for whoever finds that it
    contradicts us.
    """

    answer: Answer
    members: Mapping[str, Any]

    @property
    def is_done(self) -> bool:
        return self.answer.status in DONE

    @property
    def is_replayed(self) -> bool:
        return self.answer.headers.get("idempotent-replayed", "").lower() == "true"

    def text(self, name: str) -> str:
        value = self.members.get(name)
        return value if isinstance(value, str) else ""

    def unknown(self, reason: str) -> outcomes.Unknown:
        return self.answer.unknown(reason)


def read(answer: Answer) -> Reading | outcomes.Throttled | outcomes.Unknown:
    """What the answer says, as far as HTTP and JSON go."""
    if answer.status == 429:
        return outcomes.Throttled(retry_after(answer.headers))
    flaw = _flaw(answer)
    if flaw:
        return answer.unknown(flaw)
    members = _parse(answer.body)
    return Reading(answer, members) if members is not None else answer.unknown("unreadable_answer")


def retry_after(headers: Mapping[str, str]) -> timedelta:
    """How long to be patient: seconds, or a date counted from the answer's own; bounded; nonsense
    is the default.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        seconds = int(text) if len(text) <= DIGITS_MAX else THROTTLE_MAX.total_seconds()
        asked = timedelta(seconds=min(seconds, THROTTLE_MAX.total_seconds()))
    else:
        # The provider's clock at both ends: ours decides nothing.
        until, sent = _date(text), _date(headers.get("date", ""))
        asked = THROTTLE_DEFAULT if until is None or sent is None else until - sent
    return max(THROTTLE_MIN, min(asked, THROTTLE_MAX))


def storable(text: str) -> str:
    """Text that PostgreSQL can hold: bounded, without NUL and lone surrogates."""
    clean = text[:TEXT_MAX].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean.encode("utf-8", "replace").decode("utf-8")


def _flaw(answer: Answer) -> str:
    """Why the body is not worth reading, if it is not."""
    if answer.status not in DONE | DECIDED:
        return f"status_{answer.status}"
    if answer.headers.get("content-encoding", "identity").strip().lower() != "identity":
        return "encoded_answer"  # nobody asked for it, and a small one may unpack to anything
    if not _is_json(answer.headers.get("content-type", "")):
        return "other_content_type"
    return ""


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _parse(body: bytes) -> dict[str, Any] | None:
    """Strict JSON: UTF-8, no member twice (which of the two would be true?), no NaN, no endless number."""
    try:
        found = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_int=_integer,
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member twice")
    return members


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > INTEGER_DIGITS_MAX:
        raise ValueError("a number without end")
    return int(digits)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
