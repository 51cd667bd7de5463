"""The stand-in provider: a separate process with its own storage, its own books, and manners that
can be turned bad.

It shares no code with the engine on purpose: it is the second witness of every test, and a
witness that borrowed the other's memory would prove nothing. Start it with `python -m
bookings.sandbox --store FILE`. Reading order: `processor` (what an honest provider does),
`storage` (the books where it writes that down), `misbehave`, `exchanges` and `actions` (what it does instead
on command), `wire` (HTTP/1.1 over asyncio streams), `control` and `server` (the endpoints).
"""
