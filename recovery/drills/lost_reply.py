"""The provider does what it was asked and drops the answer; or drops the request before doing anything.

Shows that an unknown outcome is asked about and never guessed: what had landed is found, what had not is sent again under
the same id or refused for good.
"""

from recovery.drills.run import Drill, Run

SEEN = """
SELECT g.outcome, count(*) FROM ledger_submission s JOIN ledger_sighting g ON g.job_id = s.job_id
WHERE starts_with(s.key, %s) AND g.kind = 'probe' GROUP BY 1
"""
UNKNOWN = """
SELECT count(*) FROM ledger_submission s JOIN ledger_receipt r ON r.job_id = s.job_id AND r.outcome = 'unknown'
WHERE starts_with(s.key, %s)
"""


def play(run: Run) -> None:
    run.wait("every booking answered", run.load.is_over, 90.0)
    run.wait("outcomes found by asking", lambda: _asked(run).get("confirmed", 0) > 0)
    run.place.wait_until(lambda: run.running() == 0, run.place.periods.to_rest)
    found = _asked(run)
    run.seen["unknown"] = run.place.sql(UNKNOWN, [run.load.prefix])[0][0]
    run.seen["found_landed"] = found.pop("confirmed", 0)
    run.seen["found_otherwise"] = sum(found.values())
    run.note("three answers in ten were dropped after the effect, one request in ten before it")


def _asked(run: Run) -> dict[str, int]:
    return dict(run.place.sql(SEEN, [run.load.prefix]))


DRILL = Drill(
    name="lost-reply",
    done="The provider applies three calls in ten and drops the reply; one in ten it drops before doing anything.",
    faults=play,
    must_see=("unknown", "found_landed", "found_otherwise"),
    recovers="doubt",
    rules=[
        *({"do": do, "match": "capture", "times": 2} for do in ("drop_before", "drop_after")),
        *(
            {"name": f"{do}-{kind}", "do": do, "match": kind, "probability": chance}
            for kind in ("capture", "ticket", "refund")
            for do, chance in (("drop_after", 0.3), ("drop_before", 0.1))
        ),
    ],
)
