"""Invariants of operations, receipts, money and the way back."""

from recovery.invariants.named import STEPS, Invariant, done_of, final_of

# An attempt that may have had an effect: no receipt or an unknown one, and its sender never said that it was unsent.
MAY_BE_SENT = """
coalesce((SELECT r.outcome FROM ledger_receipt r WHERE (r.job_id, r.step, r.direction, r.n) =
        (a.job_id, a.step, a.direction, a.n) ORDER BY r.id DESC LIMIT 1), 'unknown') = 'unknown'
    AND NOT EXISTS (SELECT 1 FROM ledger_sighting s WHERE (s.job_id, s.step, s.direction, s.n) =
        (a.job_id, a.step, a.direction, a.n) AND s.kind = 'late' AND s.outcome IN ('not_sent', 'throttled'))"""

EFFECTS = (
    Invariant("R2", "No outcome is recorded of a call whose attempt was not committed before it.", """
SELECT r.job_id FROM ledger_receipt r WHERE NOT EXISTS (SELECT 1 FROM ledger_attempt a
    WHERE (a.job_id, a.step, a.direction, a.n) = (r.job_id, r.step, r.direction, r.n) AND a.seq <= r.seq)"""),
    Invariant("R3", "All attempts of an operation carry one fingerprint, that of its frozen arguments.", """
SELECT job_id FROM ledger_attempt GROUP BY job_id, step, direction HAVING count(DISTINCT fingerprint) > 1"""),
    Invariant("R7", "The attempts of an operation are numbered 1 to n: a retry keeps the operation.", """
SELECT job_id FROM ledger_attempt GROUP BY job_id, step, direction HAVING count(*) <> max(n) OR min(n) <> 1"""),
    Invariant("R8", "What was settled as refused by a witness has that witness's word, from before.", """
SELECT r.job_id FROM ledger_receipt r WHERE r.outcome = 'refused' AND r.evidence ? 'seen_by'
    AND NOT EXISTS (SELECT 1 FROM ledger_sighting s WHERE (s.job_id, s.step, s.direction) = (r.job_id, r.step, r.direction)
        AND s.at <= r.at AND CASE r.evidence ->> 'seen_by' WHEN 'late_probe' THEN s.kind = 'probe'
            AND s.outcome = 'not_landed' ELSE s.kind = r.evidence ->> 'seen_by' AND s.outcome = 'refused' END)"""),
    Invariant("O1", "A refused job has no effect that stands in its journal, and a compensated one had.", f"""
SELECT j.id FROM ledger_job j WHERE j.state IN ('refused', 'compensated')
    AND (j.state = 'compensated') <> EXISTS {done_of("j.id", "forward")}"""),
    Invariant("O2", "Of a confirmed job every step is confirmed, and none is undone.", f"""
SELECT j.id FROM ledger_job j JOIN ({STEPS}) s ON s.saga = j.saga AND s.version = j.version
WHERE j.state = 'confirmed' AND {final_of("j.id", "s.step", "forward")} IS DISTINCT FROM 'confirmed'
UNION SELECT j.id FROM ledger_job j WHERE j.state = 'confirmed' AND EXISTS {done_of("j.id", "backward")}"""),
    Invariant("O3", "Of a compensated job every confirmed step has a confirmed undo.", f"""
SELECT j.id FROM ledger_job j WHERE j.state = 'compensated' AND EXISTS (SELECT 1 FROM {done_of("j.id", "forward")} d
    WHERE {final_of("j.id", "d.step", "backward")} IS DISTINCT FROM 'confirmed')"""),
    Invariant("O4", "An undo was ordered for some of the money that was ordered forward, no more, in its currency.", """
SELECT b.job_id FROM ledger_attempt b LEFT JOIN ledger_attempt f ON f.job_id = b.job_id AND f.step = b.step
    AND f.direction = 'forward' AND f.n = 1
WHERE b.direction = 'backward' AND b.arguments ? 'amount_minor'
    AND ((b.arguments ->> 'amount_minor')::bigint NOT BETWEEN least(1, (f.arguments ->> 'amount_minor')::bigint)
            AND (f.arguments ->> 'amount_minor')::bigint
        OR b.arguments ->> 'currency' <> f.arguments ->> 'currency' OR f.id IS NULL)"""),
    Invariant("O5", "A job that ended, not by hand, has no operation in doubt, and undid nothing that was never done.", f"""
SELECT j.id FROM ledger_job j JOIN ledger_attempt a ON a.job_id = j.id
WHERE j.state IN ('confirmed', 'refused', 'compensated') AND {MAY_BE_SENT}
    AND {final_of("a.job_id", "a.step", "forward")} IS NULL AND a.direction = 'forward'
UNION SELECT j.id FROM ledger_job j JOIN ledger_attempt a ON a.job_id = j.id
WHERE j.state IN ('confirmed', 'refused', 'compensated') AND {MAY_BE_SENT}
    AND {final_of("a.job_id", "a.step", "backward")} IS NULL AND a.direction = 'backward'
UNION SELECT j.id FROM ledger_job j WHERE j.state IN ('refused', 'compensated')
    AND EXISTS (SELECT 1 FROM {done_of("j.id", "backward")} u
        WHERE {final_of("j.id", "u.step", "forward")} IS DISTINCT FROM 'confirmed')
    AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = j.id)"""),
    Invariant("O6", "Undos are begun in the reverse order of the steps, where no person has ruled.", f"""
SELECT a.job_id FROM ledger_attempt a JOIN ledger_job j ON j.id = a.job_id
JOIN ({STEPS}) s ON s.saga = j.saga AND s.version = j.version AND s.step = a.step
JOIN ({STEPS}) l ON l.saga = j.saga AND l.version = j.version AND l.place > s.place
JOIN ledger_attempt b ON b.job_id = a.job_id AND b.step = l.step AND b.direction = 'backward' AND b.n = 1
WHERE a.direction = 'backward' AND a.n = 1 AND b.id > a.id
    AND NOT EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = a.job_id)"""),
    Invariant("O7", "Once a job goes back nothing is sent forward, but by an effect that declares it, to learn.", f"""
SELECT a.job_id FROM ledger_attempt a JOIN ledger_job j ON j.id = a.job_id
JOIN ({STEPS}) s ON s.saga = j.saga AND s.version = j.version AND s.step = a.step AND NOT s.learns
WHERE a.direction = 'forward' AND j.direction = 'backward'
    AND (a.at > j.turned_at OR EXISTS (SELECT 1 FROM ledger_attempt b WHERE b.job_id = a.job_id
        AND b.direction = 'backward' AND b.seq < a.seq))"""),
    Invariant("O9", "No job ended well over an undo that was refused.", f"""
SELECT j.id FROM ledger_job j JOIN ledger_receipt b ON b.job_id = j.id AND b.direction = 'backward' AND b.outcome = 'refused'
WHERE j.state IN ('confirmed', 'refused', 'compensated') AND {final_of("j.id", "b.step", "backward")} = 'refused'
    AND {final_of("j.id", "b.step", "forward")} = 'confirmed'"""),
    Invariant("O10", "Past its pivot a job goes forward, or to a person.", f"""
SELECT id FROM ledger_job WHERE direction = 'backward' AND pivot_sent
UNION SELECT j.id FROM ledger_job j JOIN ({STEPS}) s ON s.saga = j.saga AND s.version = j.version AND s.pivot
WHERE j.direction = 'backward' AND j.state <> 'parked' AND {final_of("j.id", "s.step", "forward")} = 'confirmed'"""),
)  # fmt: skip
