"""How much of something in any WINDOW_SECONDS on end: never more than its limit.

Counted in Valkey, exactly for all processes together: one script, in one round trip and by the server's clock. Where Valkey
is away or slow, one request finds that out within TIMEOUT_SECONDS; for SILENCE_SECONDS then each process counts for itself,
to the same limit. So nothing is ever unlimited, and a count never fails a request.
"""

import hashlib
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
from django.conf import settings
from pyrate_limiter import Decision, InMemoryBucket, Rate, RateItem, RedisBucket
from pyrate_limiter.buckets.redis_bucket import LuaScript
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledger import clock, telemetry

WINDOW_SECONDS = 60
WINDOW_MS = WINDOW_SECONDS * 1000
FAST_MS = 1000  # a step back of the server's clock by less than that forgets nothing
TIMEOUT_SECONDS = 0.2
SILENCE_SECONDS = 3.0
NAMES_MAX = 10_000  # how many names a process counts for itself at a time, each limit apart
KOMBU_SOCKET = "redis+socket"

# The package's script, which counts, decides and takes, between what it leaves to others: what is too old goes, an idle name
# goes by itself, and the answer says how many there are and when the oldest ends. Its caller says that the window is 0 to
# WINDOW_MS; when that is, the server knows. What is no count goes, and so does what a clock that was fast has counted: it
# would keep its place until then.
SCRIPT = f"""
local function put()
{LuaScript.PUT_ITEM}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local start = now - {WINDOW_MS}
ARGV[1], ARGV[5] = now, start
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then redis.call('DEL', KEYS[1]) end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', start - 1)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + {FAST_MS}, '+inf')
local found = put()
if found[2] >= 0 then found[2] = found[2] - start end
redis.call('PEXPIRE', KEYS[1], {WINDOW_MS + 1000})
found[3] = redis.call('ZCARD', KEYS[1])
local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
found[4] = oldest and oldest - start or 0
return found
"""
SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Standing:
    """What came of asking: whether it was taken, what is left, in how many seconds more is, and when to ask again (None:
    never, it is more than the limit).
    """

    is_taken: bool
    limit: int
    left: int
    reset_seconds: int
    retry_seconds: int | None = None


class Limit:
    """One kind of thing that is limited, by name."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._local = _Local()

    def take(self, name: str, limit: int, units: int = 1) -> Standing:
        """So many at once, or none of them."""
        found = _shared.take(self._key(name), limit, units)
        return found or self._local.take(name, limit, units)

    def give_back(self, name: str) -> None:
        """One that was taken: which one makes no difference."""
        if not _shared.give_back(self._key(name)):
            self._local.give_back(name)

    def _key(self, name: str) -> str:
        return f"amends:rate:{self._kind}:{name}"


class _Local:
    """The counts of this process alone. Bounded: the names that were asked for last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, InMemoryBucket] = OrderedDict()

    def take(self, name: str, limit: int, units: int) -> Standing:
        now = int(clock.monotonic() * 1000)
        with self._lock:
            bucket = self._bucket(name, limit)
            bucket.leak(now)
            decision = bucket.put_decision(RateItem(name, now, units))
            oldest = bucket.items[0].timestamp + WINDOW_MS - now if bucket.items else 0
            return _standing(decision, limit, used=len(bucket.items), oldest_ms=oldest)

    def give_back(self, name: str) -> None:
        with self._lock:
            bucket = self._buckets.get(name)
            if bucket is not None and bucket.items:
                bucket.items.pop()

    def _bucket(self, name: str, limit: int) -> InMemoryBucket:
        found = self._buckets.setdefault(name, InMemoryBucket([Rate(limit, WINDOW_MS)]))
        if found.rates[0].limit != limit:
            found.rates = [Rate(limit, WINDOW_MS)]
        self._buckets.move_to_end(name)
        if len(self._buckets) > NAMES_MAX:
            self._buckets.popitem(last=False)
        return found


class _Shared:
    """The counts of all processes, over a connection of our own; None or False while it is not asked."""

    def __init__(self) -> None:
        self._client: Any = None
        self._silent_until = 0.0

    def take(self, key: str, limit: int, units: int) -> Standing | None:
        if (client := self._ask()) is None:
            return None
        wire: Any = _Wire(client)
        bucket = RedisBucket([Rate(limit, WINDOW_MS)], wire, key, SHA)
        try:
            decision = bucket.put_decision(RateItem("", WINDOW_MS, units))
        except (redis.RedisError, OSError) as error:
            self._fall_silent(error)
            return None
        return _standing(decision, limit, used=wire.used, oldest_ms=wire.oldest_ms)

    def give_back(self, key: str) -> bool:
        if (client := self._ask()) is None:
            return False
        try:
            client.zpopmax(key)
        except (redis.RedisError, OSError) as error:
            self._fall_silent(error)
        return True

    def _ask(self) -> Any:
        if clock.monotonic() < self._silent_until:
            return None
        if self._client is None:
            try:
                self._client = _client(settings.RATE_URL)
            except ValueError as error:  # which `manage.py check` refuses
                self._fall_silent(error)
        return self._client

    def _fall_silent(self, error: Exception) -> None:
        self._silent_until = clock.monotonic() + SILENCE_SECONDS
        telemetry.emit("rates.parted", level="warning", error_class=type(error).__name__)


class _Wire:
    """The client as the package's bucket sees it: it sends our script, and keeps what that adds to the answer."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.used = self.oldest_ms = 0

    def evalsha(self, sha: str, *arguments: Any) -> Any:
        try:
            reply = self._client.evalsha(sha, *arguments)
        except redis.exceptions.NoScriptError:  # a server that was started again
            reply = self._client.eval(SCRIPT, *arguments)
        self.used, self.oldest_ms = int(reply[2]), int(reply[3])
        return reply


def _client(url: str) -> Any:
    """Without retries: who is slow is not waited for twice."""
    return redis.Redis.from_url(
        plain_url(url),
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        client_name="amends-rates",
    )


def plain_url(url: str) -> str:
    """An address as redis-py spells it; the broker's may be as kombu spells sockets."""
    found = urlsplit(url)
    if found.scheme != KOMBU_SOCKET:
        return url
    database = parse_qs(found.query).get("virtual_host", ["0"])[0]
    return f"unix://{unquote(found.netloc)}{found.path}?db={database}"


def _standing(decision: Any, limit: int, *, used: int, oldest_ms: int) -> Standing:
    assert isinstance(decision, Decision), "no bucket of ours is asynchronous"
    wait = decision.retry_after_ms
    return Standing(
        is_taken=decision.allowed,
        limit=limit,
        left=max(0, limit - used),
        reset_seconds=math.ceil(oldest_ms / 1000),
        retry_seconds=None if wait is None else max(1, math.ceil(wait / 1000)),
    )


_shared = _Shared()
