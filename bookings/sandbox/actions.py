"""What the sandbox does instead of answering honestly, one function an action, chosen by the
rule's `do`.

Invariant: each says by its name whether the request is applied: `before` never, `after` always,
and an action that applies does so through the honest processor, so that keys and tombstones count
for it too. The truth goes into the books; only the answer is bent.
"""

import asyncio
import gzip
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from bookings.sandbox import exchanges, processor, state

HANG_SECONDS = 600.0
HUGE_BYTES = 1024 * 1024
REDIRECT_TO = "/v1/redirected"


Params = Mapping[str, Any]
Action = Callable[[exchanges.Exchange, Params], Awaitable[None]]


def param[T](params: Params, name: str, default: T) -> T:
    """A parameter of the kind that its default is of, else the default: a slip in a rule must not
    end a connection.
    """
    value = params.get(name, default)
    if isinstance(default, float) and type(value) is int:
        return type(default)(value)
    return value if isinstance(value, type(default)) else default


async def refuse(exchange: exchanges.Exchange, params: Params) -> None:
    """A refusal for good, stored under the key: `status` 402, `code` card_declined."""
    code, status = param(params, "code", "card_declined"), param(params, "status", 402)
    reply = processor.problem(status, code, exchange.operation.operation_id)
    await exchange.answer(exchange.settle(reply))


async def throttle(exchange: exchanges.Exchange, params: Params) -> None:
    """429, not applied. `retry_after` as it is (null: no header), or `retry_after_date` seconds
    ahead as a date.
    """
    reply = processor.problem(429, "slow_down", exchange.operation.operation_id)
    after = params.get("retry_after", 1)
    if "retry_after_date" in params:
        after = formatdate(time.time() + param(params, "retry_after_date", 1.0), usegmt=True)
    headers = {} if after is None else {"Retry-After": str(after)}
    await exchange.answer(replace(reply, headers=headers))


async def in_flight(exchange: exchanges.Exchange, _params: Params) -> None:
    """409 as of a provider that is still busy with an earlier request of the same key."""
    await exchange.answer(processor.problem(409, "in_flight", exchange.operation.operation_id))


async def error_before(exchange: exchanges.Exchange, params: Params) -> None:
    await exchange.answer(_error(exchange, params))


async def error_after(exchange: exchanges.Exchange, params: Params) -> None:
    exchange.perform()
    await exchange.answer(_error(exchange, params))


async def stored_500(exchange: exchanges.Exchange, params: Params) -> None:
    """A 500 for good under the key; `applied` says whether it happened all the same."""
    is_new = exchange.state.books.stored_answer(exchange.operation.operation_id) is None
    error = _error(exchange, params)
    if is_new and params.get("applied") is True:
        exchange.perform()
        processor.store(exchange.state.books, exchange.operation, error)
    await exchange.answer(exchange.settle(error))


async def drop_before(exchange: exchanges.Exchange, _params: Params) -> None:
    await exchange.drop()


async def drop_after(exchange: exchanges.Exchange, _params: Params) -> None:
    exchange.perform()
    await exchange.drop()


async def hold(exchange: exchanges.Exchange, params: Params) -> None:
    """Applied `seconds` late, or when released. The line is closed at once, or with `answer`
    answered then.
    """
    if params.get("answer") is not True:
        await exchange.drop()
    held = state.Held()
    exchange.state.held.add(held)
    try:
        async with asyncio.timeout(param(params, "seconds", 1.0)):
            await held.go.wait()
    except TimeoutError:
        pass  # it arrives by itself
    finally:
        exchange.state.held.discard(held)
    reply = exchange.perform()
    await exchange.state.books.committed()
    held.done.set()
    if exchange.line.is_open:
        await exchange.answer(reply)


async def hang(exchange: exchanges.Exchange, params: Params) -> None:
    """No answer and no effect until the client hangs up."""
    await exchange.state.books.committed()
    await exchange.line.peer_gone(param(params, "seconds", HANG_SECONDS))
    exchange.line.close()


async def delay(exchange: exchanges.Exchange, params: Params) -> None:
    """`seconds` late, else as it should be."""
    await asyncio.sleep(param(params, "seconds", 1.0))
    await exchange.answer(exchange.perform())


async def drip(exchange: exchanges.Exchange, params: Params) -> None:
    """Applied and answered right, one byte each `interval`; with `part` body the head comes at
    once.
    """
    data = await exchange.booked(exchange.perform())
    start = data.index(b"\r\n\r\n") + 4 if param(params, "part", "all") == "body" and data else 0
    await exchange.line.write(data[:start])
    for index in range(start, len(data)):
        await asyncio.sleep(param(params, "interval", 0.1))
        await exchange.line.write(data[index : index + 1])


async def truncate(exchange: exchanges.Exchange, _params: Params) -> None:
    """Applied; half the body comes, then the line is closed."""
    reply = exchange.perform()
    data = await exchange.booked(reply)
    await exchange.line.write(data[: len(data) - len(reply.payload()) // 2])
    exchange.line.close()


async def duplicate(exchange: exchanges.Exchange, _params: Params) -> None:
    """Applied and answered, twice over."""
    await exchange.line.write(2 * await exchange.booked(exchange.perform()))


async def no_idempotency(exchange: exchanges.Exchange, _params: Params) -> None:
    """Applied whatever the key says: the way to a doubled effect."""
    await exchange.answer(exchange.perform(is_keyed=False))


async def stale(exchange: exchanges.Exchange, _params: Params) -> None:
    """A probe's answer from before the operation arrived."""
    identifier = exchange.operation.operation_id
    await exchange.answer(processor.problem(404, "no_such_operation", identifier))


async def redirect(exchange: exchanges.Exchange, params: Params) -> None:
    """Not applied; `status` 302, `location` elsewhere on the same host."""
    where = param(params, "location", REDIRECT_TO)
    await exchange.answer(processor.Reply(param(params, "status", 302), {}, {"Location": where}))


async def garbage(exchange: exchanges.Exchange, params: Params) -> None:
    """Applied; 200 with no JSON in it: `text`, or the bytes of `hex`."""
    text = param(params, "text", "<html>\0 it works </html>").encode("utf-8", "surrogatepass")
    raw = bytes.fromhex(params["hex"]) if isinstance(params.get("hex"), str) else text
    exchange.perform()
    await exchange.answer(processor.Reply(200, raw=raw))


async def wrong_type(exchange: exchanges.Exchange, _params: Params) -> None:
    await exchange.answer(replace(exchange.perform(), content_type="text/html"))


async def huge(exchange: exchanges.Exchange, params: Params) -> None:
    """Applied; the right answer followed by `size` bytes of white space, which is still JSON."""
    reply = exchange.perform()
    padding = b" " * param(params, "size", HUGE_BYTES)
    await exchange.answer(replace(reply, raw=reply.payload() + padding))


async def gzipped(exchange: exchanges.Exchange, params: Params) -> None:
    """Applied; the huge answer, packed small though nobody asked for it."""
    reply = exchange.perform()
    packed = gzip.compress(reply.payload() + b" " * param(params, "size", HUGE_BYTES))
    await exchange.answer(replace(reply, raw=packed, headers={"Content-Encoding": "gzip"}))


async def other_amount(exchange: exchanges.Exchange, params: Params) -> None:
    await _bent(exchange, "amount_minor", param(params, "by", 1))


async def other_currency(exchange: exchanges.Exchange, params: Params) -> None:
    await _bent(exchange, "currency", param(params, "currency", "XTS"))


async def other_subject(exchange: exchanges.Exchange, params: Params) -> None:
    await _bent(exchange, "subject", param(params, "subject", "someone-else"))


async def other_operation(exchange: exchanges.Exchange, params: Params) -> None:
    await _bent(exchange, "operation_id", param(params, "operation_id", "some:other:forward"))


async def _bent(exchange: exchanges.Exchange, name: str, value: int | str) -> None:
    """Applied right; the answer, or the effect that a probe shows, says something else. A number
    is added.
    """
    reply = exchange.perform()
    body = dict(reply.body or {})
    inner = body.get("effect")
    target = dict(inner) if isinstance(inner, Mapping) else body
    if name in target:
        target[name] = target[name] + value if isinstance(value, int) else value
    bent = {**body, "effect": target} if isinstance(inner, Mapping) else target
    await exchange.answer(replace(reply, body=bent))


def _error(exchange: exchanges.Exchange, params: Params) -> processor.Reply:
    identifier = exchange.operation.operation_id
    return processor.problem(param(params, "status", 500), "internal_error", identifier)


ACTIONS: Mapping[str, Action] = {
    action.__name__: action
    for action in (
        *(refuse, throttle, in_flight, error_before, error_after, stored_500),
        *(drop_before, drop_after, hold, hang, delay, drip, truncate, duplicate),
        *(no_idempotency, stale, redirect, garbage, wrong_type, huge, gzipped),
        *(other_amount, other_currency, other_subject, other_operation),
    )
}
