"""The sandbox's own endpoints: manners under /control, the books under /books. None of them is a
provider's.

Invariant: what the books show is committed, so a reader never sees an effect that a crash could
still take back; and a control request that makes no sense changes nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bookings.sandbox import actions, misbehave, processor, state, wire

RELEASE_SECONDS = 10.0
Body = Mapping[str, Any]


async def serve(sandbox: state.State, request: wire.Request) -> processor.Reply:
    """Answer one request for the sandbox itself."""
    url = urlsplit(request.target)
    endpoint = ENDPOINTS.get((request.method, url.path))
    if endpoint is None:
        return processor.problem(404, "no_such_path")
    try:
        given = _read(request.body) if request.body else dict(parse_qsl(url.query))
        return processor.Reply(200, raw=json.dumps(await endpoint(sandbox, given)).encode())
    except (ValueError, misbehave.RuleError) as error:
        return processor.problem(400, "invalid_request", detail=str(error))


async def set_rules(sandbox: state.State, given: Body) -> Any:
    rules = given.get("rules")
    if not isinstance(rules, list):
        raise misbehave.RuleError("rules: a list is needed")
    if type(given.get("seed")) is int:
        sandbox.manners.seed = given["seed"]
    replaces = given.get("replace", True) is not False
    sandbox.manners.set_rules(rules, replaces=replaces, known_actions=actions.ACTIONS)
    return await show_rules(sandbox, given)


async def show_rules(sandbox: state.State, _given: Body) -> Any:
    return {"rules": [rule.shown() for rule in sandbox.manners.rules]}


async def drop_rules(sandbox: state.State, given: Body) -> Any:
    sandbox.manners.rules = []
    return await show_rules(sandbox, given)


async def release(sandbox: state.State, _given: Body) -> Any:
    """Let every held request arrive, and return when they have."""
    held = list(sandbox.held)
    for one in held:
        one.go.set()
    arrivals = [asyncio.create_task(one.done.wait()) for one in held]
    if arrivals:
        _, late = await asyncio.wait(arrivals, timeout=RELEASE_SECONDS)
        for task in late:
            task.cancel()
    return {"released": len(held)}


async def go_down(sandbox: state.State, given: Body) -> Any:
    seconds = None if given.get("seconds") is None else _seconds(given, "seconds", 0.0)
    how = given.get("how", "close")
    sandbox.manners.set_outage(how, seconds)
    if how == "refuse" and seconds is not None:
        await sandbox.door.close(seconds)
    return {"down": True, "how": how, "seconds": seconds}


async def come_up(sandbox: state.State, _given: Body) -> Any:
    sandbox.manners.end_outage()
    await sandbox.door.open()
    return {"down": False}


async def set_latency(sandbox: state.State, given: Body) -> Any:
    mean, jitter = _seconds(given, "mean_seconds", 0.0), _seconds(given, "jitter", 0.0)
    if jitter > 1:
        raise misbehave.RuleError("jitter: a part of the mean, 0 to 1, is needed")
    sandbox.manners.set_latency(mean_seconds=mean, jitter=jitter)
    return {"mean_seconds": mean, "jitter": jitter}


async def forget_keys(sandbox: state.State, given: Body) -> Any:
    """Forget keys now (`older_than_seconds`), from now on (`lifetime_seconds`), or honour none
    (`no_idempotency`).
    """
    forgotten = 0
    if "older_than_seconds" in given:
        forgotten = sandbox.books.forget_keys(_seconds(given, "older_than_seconds", 0.0))
    if "lifetime_seconds" in given:
        lasts = given["lifetime_seconds"]
        sandbox.books.key_lifetime_seconds = (
            None if lasts is None else _seconds(given, "lifetime_seconds", 0.0)
        )
    if "no_idempotency" in given:
        sandbox.manners.honours_keys = given["no_idempotency"] is not True
    return {"forgotten": forgotten}


async def list_requests(sandbox: state.State, given: Body) -> Any:
    operation, subject, after = _filters(given)
    return sandbox.books.requests(operation=operation, subject=subject, after=after)


async def list_effects(sandbox: state.State, given: Body) -> Any:
    operation, subject, after = _filters(given)
    return sandbox.books.effects(operation=operation, subject=subject, after=after)


async def summarise(sandbox: state.State, _given: Body) -> Any:
    return sandbox.books.summary()


def _read(body: bytes) -> Body:
    given = json.loads(body)
    if not isinstance(given, dict):
        raise misbehave.RuleError("a JSON object is needed")
    return given


def _filters(given: Body) -> tuple[str, str, int]:
    """What the caller wants of the books; `after` pages through a long list by its `n`."""
    after = str(given.get("after", "0"))
    if not (after.isascii() and after.isdigit()):
        raise misbehave.RuleError("after: a row number is needed")
    return str(given.get("operation", "")), str(given.get("subject", "")), int(after)


def _seconds(given: Body, name: str, default: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise misbehave.RuleError(f"{name}: a number from 0 is needed")
    return float(value)


Endpoint = Callable[[state.State, Body], Awaitable[Any]]
ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("POST", "/control/rules"): set_rules,
    ("GET", "/control/rules"): show_rules,
    ("DELETE", "/control/rules"): drop_rules,
    ("POST", "/control/release"): release,
    ("POST", "/control/down"): go_down,
    ("POST", "/control/up"): come_up,
    ("POST", "/control/latency"): set_latency,
    ("POST", "/control/forget_keys"): forget_keys,
    ("GET", "/books/requests"): list_requests,
    ("GET", "/books/effects"): list_effects,
    ("GET", "/books/summary"): summarise,
}
