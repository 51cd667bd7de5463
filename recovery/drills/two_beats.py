"""Two beats, one of them killed and started again and again; for a while none.

Shows that sweeps are safe to overlap and to miss: tickets are lost meanwhile, and only a sweep can find their jobs.
"""

import signal

from recovery.drills import faults
from recovery.drills import place as names
from recovery.drills.run import Drill, Run

OTHER = "beat.2"
NONE_SECONDS, UNHEARD = 2.0, 6
QUIET_SECONDS = 1.0  # well beyond RING_SECONDS, after which the last ring of a burst is sent
STILL = """
SELECT count(*) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s) AND j.state IN ('waiting', 'queued')
"""


def play(run: Run) -> None:
    run.place.start(OTHER)
    run.note("a second beat beside the first")
    killed = 0
    while not run.load.is_over() or killed < 2:
        faults.restart_beat(run, (names.BEAT, OTHER)[killed % 2])
        killed += 1
        if killed % 3 == 1:
            faults.flush_broker(run)
        run.place.wait_until(run.load.is_over, 1.0)
    run.note("kill -9 of one beat after the other, each started again")
    _without_any(run)


def _without_any(run: Run) -> None:
    """No beat, and nobody who takes tickets; those of new bookings are lost. When workers are back, nothing tells them."""
    for name in (names.BEAT, OTHER):
        run.place.kill(name, signal.SIGKILL, group=True)
    run.wait("the work done", lambda: run.running() == 0)
    for name in (names.FIRST, names.SECOND):
        run.place.kill(name, signal.SIGKILL, group=True)
    run.book_more(UNHEARD)
    run.wait("a broker that stays empty", lambda: _is_emptied(run))
    run.place.start(names.FIRST, names.SECOND)
    run.place.wait_until(lambda: run.running() > 0, NONE_SECONDS)
    run.seen["stood_still"] = run.place.sql(STILL, [run.load.prefix])[0][0]
    run.note("no beat at all, and every ticket of the last bookings lost: they stand still")
    run.watch.fault("beat back")
    run.place.start(names.BEAT)


def _is_emptied(run: Run) -> bool:
    """Empty the broker; false where a ticket came after it. The API sends the last one some time after its answer."""
    faults.flush_broker(run)
    return not run.place.wait_until(lambda: not run.place.is_silent(), QUIET_SECONDS)


DRILL = Drill(
    name="two-beats",
    done="Two beats at once, killed and started again in turn; tickets are lost; then no beat for a while.",
    faults=play,
    must_see=("beats_killed", "flushes", "stood_still"),
    recovers="end",
)
