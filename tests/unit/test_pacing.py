"""Whatever is asked, by whomever: no second holds more permits than the rate, and nobody goes before a provider's word."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import pacing
from ledger.pacing import LATE, WIRE, Heard, Policy, Provider
from ledger.states import JOB_LANES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = Policy(
    throttle_max=600 * SECOND,
    failures_max=3,
    open_for=SECOND,
    open_max=8 * SECOND,
    try_for=5 * SECOND,
)
UNKNOWN, DONE = Heard("unknown"), Heard("confirmed")


def ask(
    provider: Provider,
    jobs: int,
    now: datetime = NOW,
    *,
    lane: str = "forward",
    room: int | None = None,
) -> tuple[list[datetime], list[datetime]]:
    """Permits, and the times of those who were put off."""
    draws = [n / jobs for n in range(jobs)]
    leaves = pacing.share_out(provider, lane, draws, now, room=room, policy=POLICY)
    assert len(leaves) == jobs
    return [x.at for x in leaves if x.is_permit], [x.at for x in leaves if not x.is_permit]


def hear(provider: Provider, *heard: Heard, now: datetime = NOW) -> None:
    pacing.hear(provider, heard, now, POLICY)


def most_in_a_second(calls: Sequence[datetime]) -> int:
    """Over every window of a second that begins with a call."""
    return max((sum(at <= other < at + SECOND for other in calls) for at in calls), default=0)


ASKED = st.lists(
    st.tuples(st.sampled_from(JOB_LANES), st.integers(1, 40), st.floats(0, 3)), max_size=30
)


@given(
    rate=st.integers(1, 50),
    share=st.floats(0.05, 0.95),
    asked=ASKED,
    late=st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_no_second_holds_more_calls_than_the_rate(
    rate: int, share: float, asked: list[tuple[str, int, float]], late: list[float]
) -> None:
    """A call may be seen up to LATE and WIRE after its time. Each lane's part is rounded up: the burst is one call."""
    provider, now = Provider("p", rate=rate, compensation_share=share), NOW
    calls: list[datetime] = []
    for lane, jobs, passed in asked:
        now += timedelta(seconds=passed)
        permits, put_off = ask(provider, jobs, now, lane=lane)
        assert all(now < at <= now + pacing.HORIZON for at in permits)
        assert all(now < at <= now + pacing.WAIT_MAX + SECOND for at in put_off)
        calls += permits
    way = (LATE + WIRE) * 0.999
    seen = [at + way * late[n % len(late)] for n, at in enumerate(calls)]
    assert most_in_a_second(seen) <= math.ceil(rate * share) + math.ceil(rate * (1 - share))


def test_a_rate_is_used_up_to_a_sixth_by_jobs_that_come_back_when_told() -> None:
    provider = Provider("p", rate=10.0)
    due, calls = [NOW] * 60, []
    while due:
        now = min(due)
        back = [at for at in due if at <= now]
        permits, put_off = ask(provider, len(back), now)
        calls += permits
        due = [at for at in due if at > now] + put_off
    took = (max(calls) - min(calls)).total_seconds()
    assert took == pytest.approx(59 * provider.spacing("forward").total_seconds(), rel=0.02)
    assert provider.spacing("forward") == timedelta(seconds=1.2 / 8)


def test_a_storm_in_one_lane_leaves_the_other_its_part() -> None:
    for stormy, other, part in (("forward", "compensation", 2), ("compensation", "forward", 8)):
        provider = Provider("p", rate=10.0)
        ask(provider, 500, lane=stormy)
        permits, _ = ask(provider, 20, NOW + SECOND / 2, lane=other)
        assert permits[0] - NOW < SECOND
        assert part - 1 <= len(permits) <= part + 1


def test_without_limits_everybody_goes_now() -> None:
    assert ask(Provider("p"), 200) == ([NOW] * 200, [])


def test_paused_nobody_goes_and_all_look_again_within_a_bounded_time() -> None:
    permits, put_off = ask(Provider("p", is_paused=True, rate=5.0), 20)
    assert permits == []
    assert NOW + pacing.PAUSED / 2 <= min(put_off) < max(put_off) <= NOW + pacing.PAUSED
    assert len(set(put_off)) == 20


@pytest.mark.parametrize(("seconds", "held"), [(0, 0), (5, 5), (10**6, 600)])
def test_patience_is_the_whole_fleets_bounded_and_spread_after_it(seconds: int, held: int) -> None:
    provider = Provider("p")
    hear(provider, Heard("throttled", timedelta(seconds=seconds)))
    if not held:
        assert ask(provider, 200) == ([NOW] * 200, [])
        return
    until = NOW + timedelta(seconds=held)
    permits, put_off = ask(provider, 200)
    assert permits == []
    assert min(put_off) > until
    assert most_in_a_second(put_off) <= SECOND / pacing.SPREAD
    assert ask(provider, 1, until)[0] == [until]


def test_a_shorter_patience_does_not_cut_a_longer_one() -> None:
    provider = Provider("p")
    hear(provider, Heard("throttled", 9 * SECOND), Heard("throttled", SECOND))
    assert provider.throttled_until == NOW + 9 * SECOND


def test_failures_in_a_row_open_the_circuit_one_call_tries_it_and_an_answer_closes_it() -> None:
    provider = Provider("p")
    hear(provider, UNKNOWN, UNKNOWN, DONE, UNKNOWN, Heard("not_sent"))
    assert ask(provider, 2)[0] == [NOW, NOW]
    hear(provider, UNKNOWN)
    assert ask(provider, 2)[0] == []
    later = NOW + SECOND
    permits, put_off = ask(provider, 5, later)
    assert permits == [later]
    assert all(at > later + pacing.LOOK for at in put_off)
    assert ask(provider, 5, later)[0] == []
    hear(provider, DONE, now=later)
    assert ask(provider, 5, later)[0] == [later] * 5


def test_it_stays_open_twice_as_long_each_time_up_to_a_bound() -> None:
    provider, now = Provider("p", failures=2), NOW
    found = []
    for _ in range(6):
        hear(provider, UNKNOWN, UNKNOWN, UNKNOWN, now=now)  # those in flight do not count again
        found.append((provider.open_until - now).total_seconds())
        now = provider.open_until
        assert ask(provider, 3, now)[0] == [now]
    assert found == [1, 2, 4, 8, 8, 8]


def test_one_call_that_never_comes_back_is_followed_by_another() -> None:
    provider = Provider("p", failures=2)
    hear(provider, UNKNOWN)
    assert ask(provider, 1, NOW + SECOND)[0] != []
    assert ask(provider, 1, NOW + 6 * SECOND - SECOND / 100)[0] == []
    assert ask(provider, 2, NOW + 6 * SECOND)[0] == [NOW + 6 * SECOND]


@pytest.mark.parametrize("outcome", ["confirmed", "refused", "throttled", "not_landed"])
def test_a_definite_answer_is_no_failure(outcome: str) -> None:
    provider = Provider("p", failures=2)
    hear(provider, Heard(outcome))
    assert provider.failures == 0


@pytest.mark.parametrize(
    ("lane", "concurrency", "under_way", "room"),
    [
        ("forward", None, {}, None),
        ("forward", 1, {}, 1),
        ("forward", 1, {"compensation": 1}, 0),
        ("forward", 10, {}, 8),
        ("forward", 10, {"forward": 5, "compensation": 2}, 3),
        ("forward", 10, {"forward": 8}, 0),
        ("compensation", 10, {"forward": 8}, 2),
        ("compensation", 10, {}, 10),
        ("compensation", 2, {"forward": 5}, 0),
    ],
)
def test_room(
    lane: str, concurrency: int | None, under_way: dict[str, int], room: int | None
) -> None:
    assert Provider("p", concurrency=concurrency).room(lane, under_way) == room


def test_no_more_go_than_there_is_room() -> None:
    provider = Provider("p", concurrency=10)
    permits, put_off = ask(provider, 10, room=3)
    assert permits == [NOW] * 3
    assert len(set(put_off)) == 7
