"""The provider answers 429 with Retry-After, to captures, refunds and tickets alike.

Shows that a throttled call did not happen, uses no attempt budget, and is not made again before its time: the sandbox's own
times of requests are compared.
"""

from recovery.drills import judge
from recovery.drills.run import Drill, Run

RETRY_AFTER = 1


def play(run: Run) -> None:
    run.wait("every booking answered", run.load.is_over, 90.0)
    run.wait("the work done", lambda: _throttled(run) > 0)
    run.note(f"three calls in ten answered 429 with Retry-After: {RETRY_AFTER}")
    run.place.wait_until(lambda: run.running() == 0, 2 * RETRY_AFTER)
    subjects = {told.booking for told in run.load.accepted()}
    requests = [one for one in run.place.sandbox.requests() if one["subject"] in subjects]
    run.seen["obeyed"], early = judge.obeyed_waits(requests, float(RETRY_AFTER))
    run.seen["throttled"] = _throttled(run)
    run.violations += early


def _throttled(run: Run) -> int:
    return sum(one["action"] == "throttle" for one in run.place.sandbox.requests())


DRILL = Drill(
    name="provider-throttle",
    done="The provider answers three calls in ten with 429 and Retry-After: 1.",
    faults=play,
    must_see=("throttled", "obeyed"),
    recovers="doubt",
    rules=[
        {"do": "throttle", "match": "capture", "times": 3, "retry_after": RETRY_AFTER},
        *(
            {
                "name": f"throttle-{kind}",
                "do": "throttle",
                "match": kind,
                "probability": 0.3,
                "retry_after": RETRY_AFTER,
            }
            for kind in ("capture", "ticket", "refund")
        ),
    ],
)
