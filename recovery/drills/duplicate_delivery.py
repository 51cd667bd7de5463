"""Every ticket several times, during the work and after its end; every client repeats itself.

Shows that a message carries no job: a doubled one finds nothing to do. And that a repeated key is the same job without
another publication: publications are counted before and after.
"""

from recovery.drills import faults
from recovery.drills.run import Drill, Run

REPLAYED_MAX = 30


def play(run: Run) -> None:
    run.wait_running()
    run.watch.fault("tickets doubled")
    while not run.load.is_over():
        faults.redeliver(run)
        run.place.wait_until(run.load.is_over, 0.1)
    run.note("each lane's ticket one to five times, ten times a second, while bookings came in")
    run.wait("the work done", lambda: run.running() == 0)
    for _ in range(10):
        faults.redeliver(run)
    run.wait("every duplicate taken", run.place.is_silent)
    run.seen["absorbed"] = run.seen["duplicates"]
    run.note("and again after every job had ended")
    _repeat_keys(run)


def _repeat_keys(run: Run) -> None:
    """The same requests again, once all is done: nothing new may be published for them."""
    published = run.place.api.published()
    for told in run.load.accepted()[:REPLAYED_MAX]:
        run.load.replay(told)
        run.seen["keys_repeated"] += 1
    more = run.place.api.published() - published
    run.expect(holds=more == 0, otherwise=f"repeated keys led to {more} publications")
    run.note("the same keys again after the end; publications counted before and after")


DRILL = Drill(
    name="duplicate-delivery",
    done="Every ticket is delivered one to five times, also at once and after the end; one client in ten repeats itself.",
    faults=play,
    must_see=("absorbed", "replays", "keys_repeated"),
    recovers="end",
)
