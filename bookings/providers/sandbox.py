"""The payment and ticket clients for the sandbox provider: what is asked of it, and what binds an
answer to us.

Invariant: an answer counts only if it names our operation and says what we asked for: amount,
currency, subject, and the capture of a refund. One that says otherwise is unknown, never
confirmed and never refused, since something happened under our id that we did not order. "Key
reused" is of that kind: our id is known there with another request.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bookings.providers import answers, http
from ledger import outcomes, saga

BOUND = ("amount_minor", "currency", "subject", "capture")
REFERENCE = re.compile(r"[!-~]{1,200}\Z")
CODE = re.compile(r"[a-z0-9_.-]{1,64}\Z")
# Codes under which the provider refuses the request, yet says nothing about the operation.
UNDECIDED = frozenset({"in_flight", "key_reused", "idempotency_key_missing", "no_such_path"})
STATUSES: Mapping[str, str] = {"capture": "captured", "refund": "refunded", "ticket": "issued"}
FEE_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SandboxPayments:
    """Payments at `url`."""

    url: str

    def capture(self, call: saga.Call) -> outcomes.Outcome:
        return _post(f"{self.url}/v1/captures", "capture", call)

    def refund(self, call: saga.Call) -> outcomes.Outcome:
        return _post(f"{self.url}/v1/refunds", "refund", call)

    def find(self, call: saga.Call) -> outcomes.Sighted:
        return _find(self.url, _money_kind(call), call)

    def bury(self, call: saga.Call) -> outcomes.Outcome:
        return _bury(self.url, _money_kind(call), call)


@dataclass(frozen=True, slots=True)
class SandboxTickets:
    """Tickets at `url`."""

    url: str

    def issue(self, call: saga.Call) -> outcomes.Outcome:
        return _post(f"{self.url}/v1/tickets", "ticket", call)

    def find(self, call: saga.Call) -> outcomes.Sighted:
        return _find(self.url, "ticket", call)

    def bury(self, call: saga.Call) -> outcomes.Outcome:
        return _bury(self.url, "ticket", call)


def _money_kind(call: saga.Call) -> str:
    return "refund" if "capture" in call.arguments else "capture"


def _post(url: str, kind: str, call: saga.Call) -> outcomes.Outcome:
    reading = _ask(
        http.Request("POST", url, call.timeout_seconds, key=call.operation_id, body=call.arguments)
    )
    if not isinstance(reading, answers.Reading):
        return reading
    if reading.is_done:
        return _confirm(reading, reading.members, kind, call)
    if reading.members.get("operation_id") != call.operation_id:
        return reading.unknown("other_operation")
    return _refuse(reading, reading.members, kind, call)


def _find(url: str, kind: str, call: saga.Call) -> outcomes.Sighted:
    path = f"{url}/v1/operations/{quote(call.operation_id, safe='')}"
    reading = _ask(http.Request("GET", path, call.timeout_seconds))
    if not isinstance(reading, answers.Reading):
        return reading
    if reading.members.get("operation_id") != call.operation_id:
        return reading.unknown("other_operation")
    if reading.answer.status == 404 and reading.text("code") == "no_such_operation":
        return outcomes.NotLanded()
    return _sight(reading, kind, call)


def _bury(url: str, kind: str, call: saga.Call) -> outcomes.Outcome:
    """Only "buried" and "already done" say something; every other answer leaves all as it was before we asked."""
    path = f"{url}/v1/tombstones/{quote(call.operation_id, safe='')}"
    reading = _ask(http.Request("POST", path, call.timeout_seconds))
    if not isinstance(reading, answers.Reading):
        return reading
    if reading.members.get("operation_id") != call.operation_id:
        return reading.unknown("other_operation")
    if reading.is_done and reading.text("status") == "tombstoned":
        return outcomes.Refused("tombstoned", reading.answer.evidence())
    effect = reading.members.get("effect")
    is_done_already = reading.answer.status == 409 and reading.text("code") == "already_done"
    if is_done_already and isinstance(effect, dict) and reading.text("kind") == kind:
        return _confirm(reading, effect, kind, call)
    return reading.unknown("other_answer")


def _sight(reading: answers.Reading, kind: str, call: saga.Call) -> outcomes.Sighted:
    """What a probe saw. A refused *probe* says nothing about the operation."""
    status, members = reading.text("status"), reading.members
    effect, refusal = members.get("effect"), members.get("refusal")
    if not reading.is_done:
        return reading.unknown("probe_refused")
    if status == "done" and isinstance(effect, dict) and members.get("kind") == kind:
        return _confirm(reading, effect, kind, call)
    if status == "refused" and isinstance(refusal, dict) and members.get("kind") in (kind, ""):
        return _refuse(reading, refusal, kind, call)
    return reading.unknown("other_answer")


def _ask(
    request: http.Request,
) -> answers.Reading | outcomes.Throttled | outcomes.NotSent | outcomes.Unknown:
    answer = http.exchange(request)
    return answers.read(answer) if isinstance(answer, answers.Answer) else answer


def _confirm(
    reading: answers.Reading, resource: Mapping[str, Any], kind: str, call: saga.Call
) -> outcomes.Confirmed | outcomes.Unknown:
    if resource.get("operation_id") != call.operation_id:
        return reading.unknown("other_operation")
    other = _difference(resource, call.arguments)
    if other:
        return reading.unknown(f"other_{other}")
    reference = resource.get("id")
    if resource.get("status") != STATUSES[kind] or not _is_reference(reference):
        return reading.unknown("other_answer")
    data = {"status": STATUSES[kind], **_bound_members(call.arguments)}
    if reading.is_replayed:
        data["replayed"] = True
    return outcomes.Confirmed(str(reference), data, cost=_fee(resource, call.arguments))


def _refuse(
    reading: answers.Reading, refusal: Mapping[str, Any], kind: str, call: saga.Call
) -> outcomes.Confirmed | outcomes.Refused | outcomes.Unknown:
    code = refusal.get("code")
    if not isinstance(code, str) or not CODE.match(code):
        return reading.unknown("unreadable_answer")
    if code in UNDECIDED:
        return reading.unknown(code)
    existing = _existing_refund(refusal, call) if kind == "refund" else ""
    if existing:
        return outcomes.Confirmed(existing, {"already": True, **_bound_members(call.arguments)})
    return outcomes.Refused(code, reading.answer.evidence())


def _existing_refund(refusal: Mapping[str, Any], call: saga.Call) -> str:
    """The reference of the refund that is there already, if it is the one that we want, whoever made it."""
    existing = refusal.get("refund")
    if refusal.get("code") != "already_refunded" or not isinstance(existing, dict):
        return ""
    reference = existing.get("id")
    if _difference(existing, call.arguments) or not _is_reference(reference):
        return ""
    return str(reference)


def _difference(resource: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """The first member in which what was done is not what was asked for, by name; a number is not
    its text.
    """
    for name, asked in _bound_members(arguments).items():
        done = resource.get(name)
        if type(done) is not type(asked) or done != asked:
            return name
    return ""


def _bound_members(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in BOUND if name in arguments}


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and REFERENCE.match(value) is not None


def _fee(resource: Mapping[str, Any], arguments: Mapping[str, Any]) -> outcomes.Money | None:
    """The provider's price. One that cannot be read takes nothing from the proof that it
    happened.
    """
    fee = resource.get("fee_minor")
    if type(fee) is not int or not 0 <= fee <= FEE_MAX or "currency" not in arguments:
        return None
    return outcomes.Money(fee, arguments["currency"])
