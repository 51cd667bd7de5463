"""Tickets are taken out of their lanes and put back up to three leases later, in another order; copies come after the end.

Shows that a ticket says no more than "there is work": early, late, twice or never, it changes nothing.
"""

from functools import partial

from recovery.drills.later import Later
from recovery.drills.run import Run
from recovery.drills.surroundings import Surroundings, Tickets

JOB_LANES = ("forward", "compensation")
LANES = (*JOB_LANES, "sweeps")
TAKE_SECONDS, PORTIONS, LEASES_MAX, COPIES_MAX = 1.5, 3, 3, 100


def strike(run: Run, place: Surroundings, later: Later) -> Tickets:
    """Returns copies of some that were taken, to be delivered when all is done."""
    held: Tickets = []

    def take() -> bool:
        held.extend(place.take_tickets(LANES))
        return False

    run.watch.fault("tickets held")
    place.wait_until(take, TAKE_SECONDS)
    run.chance.shuffle(held)
    for portion in (held[n::PORTIONS] for n in range(PORTIONS)):
        seconds = run.chance.uniform(0.0, LEASES_MAX * place.periods.lease)
        later.after(seconds, partial(place.put_tickets, portion))
    run.seen["tickets_held"] += sum(lane in JOB_LANES for lane, _ in held)
    run.seen["sweep_tickets_held"] += sum(lane not in JOB_LANES for lane, _ in held)
    run.note("tickets held back, and delivered in another order")
    return held[:COPIES_MAX]
