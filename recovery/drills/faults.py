"""The faults that several drills use, each on the real process, and noted with the database's time before it strikes."""

import signal
from collections.abc import Callable

from django.db import Error

from ledger import clock
from recovery.drills import place as names
from recovery.drills.run import Run
from recovery.drills.watch import Fault

KILLS_MAX = 6
CHILD, WORKER = "child killed", "worker killed"
LOST = """
SELECT coalesce(sum(j.leases_lost), 0) FROM ledger_submission s JOIN ledger_job j ON j.id = s.job_id
WHERE starts_with(s.key, %s)
"""


def leases_lost(run: Run) -> int:
    lost: int = run.place.sql(LOST, [run.load.prefix])[0][0]
    return lost


def kill_child(run: Run) -> None:
    """SIGKILL children of the forward workers, one by one, until one of them had jobs in its hands."""
    for number in range(KILLS_MAX):
        pids = run.place.children((names.FIRST, names.SECOND)[number % 2])
        run.wait_running()
        fault = run.watch.fault(CHILD)
        if pids and run.place.signal_child(pids[number // 2 % len(pids)], signal.SIGKILL):
            run.seen["kills"] += 1
        await_recovery(run, fault)
        if fault.lost:
            break
    run.note("kill -9 of a child of a worker, with jobs in its hands")


def kill_worker(run: Run, name: str = names.FIRST) -> None:
    """SIGKILL a whole worker, parent, children and watcher; its leases have to expire. Then start it again."""
    run.wait_running()
    fault = run.watch.fault(WORKER)
    run.place.kill(name, signal.SIGKILL, group=True)
    run.seen["kills"] += 1
    run.note(f"kill -9 of all of {name}; started again")
    run.place.start(name)
    await_recovery(run, fault)


def await_recovery(run: Run, fault: Fault) -> None:
    """Until each job that was held has been claimed again or is at rest: the next fault would be counted to this one."""
    seconds = run.place.periods.lease + 4 * run.place.periods.sweep
    run.place.wait_until(lambda: not fault.waiting(), seconds)


def leave(run: Run, *workers: str) -> None:
    """SIGTERM: they settle what they have, give the rest back, and leave; no job waits for a lease."""
    run.wait_running()
    lost = leases_lost(run)
    run.place.end(*workers)
    run.seen["terms"] += len(workers)
    run.expect(
        holds=leases_lost(run) == lost, otherwise="a worker that was told to leave lost a lease"
    )
    run.note(f"SIGTERM to {' and '.join(workers)}")


def suspend(run: Run, name: str, jobs: int = 3) -> None:
    """SIGSTOP every child of a worker until others have its jobs, then SIGCONT."""
    pids = run.place.children(name)
    run.wait_running(jobs)
    before = leases_lost(run)
    run.watch.fault("children stopped")
    stopped = [pid for pid in pids if run.place.signal_child(pid, signal.SIGSTOP)]
    try:
        seconds = run.place.periods.lease + 4 * run.place.periods.sweep
        run.place.wait_until(lambda: leases_lost(run) > before and not _are_held(run), seconds)
    finally:
        for pid in stopped:
            run.place.signal_child(pid, signal.SIGCONT)
    run.seen["zombies"] += len(stopped)
    run.note(f"SIGSTOP to {len(stopped)} children of {name} beyond the lease, then SIGCONT")


def _are_held(run: Run) -> bool:
    """Some job that was held when the last fault struck is still under that lease."""
    fault = run.watch.faults[-1]
    rows = run.place.sql(
        "SELECT id, fence FROM ledger_job WHERE id = ANY(%s::uuid[]) AND owner IS NOT NULL"
        " AND lease_until < ledger_now()",
        [list(fault.held)],
    )
    return any(fault.held[job][0] == fence for job, fence in rows)


def redeliver(run: Run, lanes: tuple[str, ...] = ("forward", "compensation")) -> None:
    """Every lane's ticket one to five times, at once."""
    for lane in lanes:
        times = run.chance.randint(1, 5)
        run.place.deliver(lane, times)
        run.seen["duplicates"] += times


def flush_broker(run: Run) -> None:
    run.watch.fault("broker emptied")
    run.place.flush_broker()
    run.seen["flushes"] += 1
    run.note("FLUSHALL")


def restart_broker(run: Run, down_seconds: float) -> None:
    """Kill Valkey (SIGKILL); it comes back empty."""
    run.watch.fault("broker killed")
    run.place.halt_server(names.BROKER, signal.SIGKILL)
    run.place.wait_until(lambda: False, down_seconds)
    run.place.start_server(names.BROKER)
    run.seen["broker_restarts"] += 1
    run.note(f"kill -9 of Valkey, {down_seconds:.1f} s down, back empty")


def restart_database(run: Run, down_seconds: float) -> None:
    """An immediate shutdown: every backend dies in the middle of whatever it does, and the log is replayed."""
    run.wait_running()
    run.watch.fault("database stopped")
    begun = clock.monotonic()
    run.place.halt_server(names.DATABASE, signal.SIGQUIT)
    run.place.wait_until(lambda: False, down_seconds)
    run.place.start_server(names.DATABASE)
    down = clock.monotonic() - begun
    run.seen["database_restarts"] += 1
    run.seen["database_down_ms"] += round(1000 * down)
    run.note(f"PostgreSQL stopped in mode immediate; it answered again after {down:.1f} s")


def terminate_backends(run: Run) -> None:
    """Cut the workers' and the API's connections, whatever they are doing."""
    rows = run.place.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN"
        " ('amends-worker', 'amends-api') AND pid <> pg_backend_pid() AND random() < 0.7"
    )
    run.seen["backends_ended"] += len(rows)


def restart_beat(run: Run, name: str = names.BEAT) -> None:
    run.watch.fault("beat killed")
    run.place.kill(name, signal.SIGKILL, group=True)
    run.seen["beats_killed"] += 1
    run.place.start(name)


def safely(fault: Callable[[Run], None], run: Run) -> None:
    """A fault among several: another one may have stopped the database in the middle of it."""
    try:
        fault(run)
    except Error as error:
        run.seen["faults_cut_short"] += 1
        run.place.say(f"    cut short by another fault: {type(error).__name__}")
