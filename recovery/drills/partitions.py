"""The network between processes of ours and their database, broker or provider is bad for some seconds.

Shows that no socket is waited for without end, and that what was lost on the way is made good. Mended by itself, while other
faults strike.
"""

from functools import partial

from recovery.drills.later import Later
from recovery.drills.run import Run
from recovery.drills.surroundings import Surroundings

MODES = ("black_hole", "drop", "half_close", "delay")
SHORTEST, LONGEST = 1.0, 6.0
DELAY_SECONDS = 0.2
ALL = "everybody"


def strike(run: Run, place: Surroundings, later: Later) -> None:
    """One kind of peer, for one group of processes or for all of them."""
    mode, seconds = run.chance.choice(MODES), run.chance.uniform(SHORTEST, LONGEST)
    peer = run.chance.choice(sorted({peer for _, peer in place.lines()}))
    who = run.chance.choice([*(who for who, to in place.lines() if to == peer), ALL])
    bent = [line for line in place.lines() if line[1] == peer and who in (line[0], ALL)]
    run.watch.fault("partition")
    for line in bent:
        place.bend(line, mode, DELAY_SECONDS if mode == "delay" else 0.0)
        later.after(seconds, partial(place.bend, line, "pass"))
    run.seen["partitions"] += 1
    run.seen[f"partition: {mode}"] += 1
    run.seen[f"partition: {peer}"] += 1
    run.note(f"{mode} between {who} and the {peer}")
