"""What an honest provider does with a request: captures, refunds, tickets, probes and tombstones.

Invariant: under an honoured key an operation has at most one effect, and its first answer (a
refusal too) is the answer for good. All of it runs between two awaits of the event loop, so no
two requests are ever half-way in here at once. Every answer and every refusal names the operation
that it is about, so that a client can tell whose it is.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bookings.sandbox import storage

AMOUNT_MAX = 10**12
NAME_MAX = 200
FEE_PER_MILLE = 14
FEE_FIXED_MINOR = 25
CURRENCY = re.compile(r"[A-Z]{3}\Z")
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """A request as the provider understands it."""

    kind: str
    operation_id: str
    subject: str
    body: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    @property
    def meaning(self) -> str:
        """What was asked for, whatever the order of members or the white space."""
        text = json.dumps(self.body, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer before it is put on the wire."""

    status: int
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None  # in place of the body, for what is no JSON
    content_type: str = JSON_TYPE

    def payload(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()


class Invalid(Exception):
    """A request that the provider cannot read; says which member is wrong."""


def problem(status: int, code: str, operation_id: str = "", **members: Any) -> Reply:
    body = {"code": code, "status": status, "operation_id": operation_id, **members}
    return Reply(status, body, content_type="application/problem+json")


def read(kind: str, key: str, body: bytes) -> Operation:
    """The operation that a body asks for. ValueError or RecursionError where it is no JSON."""
    given = json.loads(body)
    if not isinstance(given, dict):
        raise Invalid("a JSON object is needed")
    subject = given.get("subject")
    named = subject if isinstance(subject, str) else ""
    return Operation(kind, key, named, given, hashlib.sha256(body).hexdigest())


def check(operation: Operation) -> None:
    """Raise `Invalid` for a body that does not say what is wanted."""
    for name in NAMES[operation.kind]:
        value = operation.body.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX:
            raise Invalid(f"{name}: a text of 1 to {NAME_MAX} characters is needed")
    for name in NUMBERS[operation.kind]:
        value = operation.body.get(name)
        if type(value) is not int or not 0 < value <= AMOUNT_MAX:
            raise Invalid(f"{name}: an integer of 1 to {AMOUNT_MAX} is needed")
    if "currency" in NAMES[operation.kind] and not CURRENCY.match(operation.body["currency"]):
        raise Invalid("currency: three capital letters are needed")


def perform(books: storage.Books, operation: Operation, *, is_keyed: bool = True) -> Reply:
    """Do what is asked, once per key. `is_keyed=False`: as a provider would that ignores keys."""
    identifier = operation.operation_id
    if operation.kind == "probe":
        return probe(books, identifier)
    if operation.kind == "tombstone":
        return bury(books, identifier)
    if books.is_buried(identifier):
        return problem(410, "tombstoned", identifier)
    stored = books.stored_answer(identifier) if is_keyed else None
    if stored is not None:
        return _replay(stored, operation)
    reply = EFFECTS[operation.kind](books, operation)
    store(books, operation, reply)
    return reply


def store(books: storage.Books, operation: Operation, reply: Reply) -> None:
    """Make this the answer for good under the operation's key."""
    answer = storage.StoredAnswer(
        operation.kind, operation.meaning, reply.status, dict(reply.body or {})
    )
    books.store_answer(operation.operation_id, subject=operation.subject, answer=answer)


def probe(books: storage.Books, identifier: str) -> Reply:
    """What became of an operation: done, refused, or nothing known."""
    found = books.effect_of(identifier)
    if found is not None:
        kind, resource = found
        return _sighted(identifier, kind, "done", effect=resource)
    stored = books.stored_answer(identifier)
    if stored is not None and 400 <= stored.status < 500:
        return _sighted(identifier, stored.kind, "refused", refusal=stored.body)
    if books.is_buried(identifier):
        refusal = problem(410, "tombstoned", identifier).body
        return _sighted(identifier, stored.kind if stored else "", "refused", refusal=refusal)
    return problem(404, "no_such_operation", identifier)


def bury(books: storage.Books, identifier: str) -> Reply:
    """Refuse this operation id from now on, unless it has had its effect."""
    found = books.effect_of(identifier)
    if found is not None:
        return problem(409, "already_done", identifier, kind=found[0], effect=found[1])
    books.bury(identifier)
    return Reply(200, {"operation_id": identifier, "status": "tombstoned"})


def _sighted(identifier: str, kind: str, status: str, **members: Any) -> Reply:
    return Reply(200, {"operation_id": identifier, "kind": kind, "status": status, **members})


def _replay(stored: storage.StoredAnswer, operation: Operation) -> Reply:
    if (stored.kind, stored.meaning) != (operation.kind, operation.meaning):
        return problem(422, "key_reused", operation.operation_id)
    content_type = JSON_TYPE if stored.status < 400 else "application/problem+json"
    return Reply(
        stored.status, stored.body, {"Idempotent-Replayed": "true"}, content_type=content_type
    )


def _capture(books: storage.Books, operation: Operation) -> Reply:
    amount = operation.body["amount_minor"]
    resource = {
        "id": _identifier("cap"),
        "operation_id": operation.operation_id,
        "amount_minor": amount,
        "currency": operation.body["currency"],
        "subject": operation.subject,
        "status": "captured",
        "fee_minor": amount * FEE_PER_MILLE // 1000 + FEE_FIXED_MINOR,
    }
    books.apply("capture", resource)
    return Reply(201, resource)


def _refund(books: storage.Books, operation: Operation) -> Reply:
    identifier, body = operation.operation_id, operation.body
    capture = books.capture(body["capture"])
    if capture is None:
        return problem(404, "no_such_capture", identifier)
    if capture["currency"] != body["currency"]:
        return problem(422, "other_currency", identifier, currency=capture["currency"])
    refunds = books.refunds_of(body["capture"])
    left = capture["amount_minor"] - sum(refund["amount_minor"] for refund in refunds)
    if left == 0:
        return problem(409, "already_refunded", identifier, refund=refunds[-1])
    if body["amount_minor"] > left:
        return problem(422, "amount_too_large", identifier, refundable_minor=left)
    resource = {
        "id": _identifier("re"),
        "operation_id": identifier,
        "capture": body["capture"],
        "amount_minor": body["amount_minor"],
        "currency": body["currency"],
        "subject": operation.subject,
        "status": "refunded",
    }
    books.apply("refund", resource)
    return Reply(201, resource)


def _ticket(books: storage.Books, operation: Operation) -> Reply:
    resource = {
        **operation.body,
        "id": _identifier("tkt"),
        "operation_id": operation.operation_id,
        "subject": operation.subject,
        "status": "issued",
    }
    books.apply("ticket", resource)
    return Reply(201, resource)


def _identifier(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(10)}"


EFFECTS: Mapping[str, Callable[[storage.Books, Operation], Reply]] = {
    "capture": _capture,
    "refund": _refund,
    "ticket": _ticket,
}
NAMES: Mapping[str, tuple[str, ...]] = {
    "capture": ("currency", "account", "subject"),
    "refund": ("capture", "currency", "subject"),
    "ticket": ("subject", "hotel", "room_type", "arrival"),
}
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "capture": ("amount_minor",),
    "refund": ("amount_minor",),
    "ticket": ("nights",),
}
