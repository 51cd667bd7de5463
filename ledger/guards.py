"""The database's own guards, in plain SQL: what psql cannot forget either.

job_guard        a state moves only along an edge; an UPDATE states the fence it acts under; fences never shrink; seq
                 grows by one at the most. Made from `states.TRANSITIONS`; a test compares the installed function.
journal_guard    rows of attempts, receipts, checkpoints and resolutions carry the job's current fence and seq. The job is
                 read FOR SHARE: without the lock a claim slips in between the check and the commit.
append_only      no UPDATE, no TRUNCATE, and DELETE only inside the retention function's own role.
events           a job that ends or parks, or comes back from there, leaves an event in the same commit, if its tenant wants
                 any. Nobody else can write one.

pgtrigger is not used for these: any session can tell it to ignore its triggers.
"""

from collections.abc import Iterable

JOURNAL = ("attempt", "receipt", "checkpoint", "resolution")
APPEND_ONLY = (*JOURNAL, "sighting")

LEDGER_NOW = """
CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT clock_timestamp() $$;
"""


def job_guard(edges: Iterable[tuple[str, str]]) -> str:
    """The trigger on ledger_job for exactly these moves."""
    allowed = ", ".join(f"'{a}>{b}'" for a, b in edges)
    return f"""
CREATE OR REPLACE FUNCTION ledger_job_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.acting_fence IS DISTINCT FROM OLD.fence THEN
        RAISE EXCEPTION 'ledger_job %: acting fence % is not the current fence %', OLD.id, NEW.acting_fence, OLD.fence
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_job_acting_fence';
    END IF;
    NEW.acting_fence := NULL;
    IF NEW.fence < OLD.fence OR NEW.seq < OLD.seq OR NEW.seq > OLD.seq + 1 THEN
        RAISE EXCEPTION 'ledger_job %: fence % -> %, seq % -> %', OLD.id, OLD.fence, NEW.fence, OLD.seq, NEW.seq
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_job_counters';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state || '>' || NEW.state) NOT IN ({allowed}) THEN
        RAISE EXCEPTION 'ledger_job %: no way from % to %', OLD.id, OLD.state, NEW.state
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_job_transition';
    END IF;
    IF NEW.id <> OLD.id OR NEW.tenant_id <> OLD.tenant_id OR NEW.saga <> OLD.saga OR NEW.version <> OLD.version
       OR NEW.input IS DISTINCT FROM OLD.input OR NEW.created_at <> OLD.created_at THEN
        RAISE EXCEPTION 'ledger_job %: what was accepted does not change', OLD.id
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_job_accepted';
    END IF;
    RETURN NEW;
END $$;
"""


JOB_TRIGGERS = """
CREATE TRIGGER ledger_job_guard BEFORE UPDATE ON ledger_job FOR EACH ROW EXECUTE FUNCTION ledger_job_guard();
CREATE FUNCTION ledger_only_retention() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user <> 'amends_retention' THEN
        RAISE EXCEPTION '%: % is refused', TG_TABLE_NAME, TG_OP
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_append_only';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_append_only';
END $$;
CREATE TRIGGER ledger_job_delete BEFORE DELETE ON ledger_job
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_only_retention();
CREATE TRIGGER ledger_job_truncate BEFORE TRUNCATE ON ledger_job
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
ALTER TABLE ledger_job SET (fillfactor = 70);
"""

JOURNAL_GUARD = """
CREATE FUNCTION ledger_journal_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE bad record;
BEGIN
    -- A version of the row that this very transaction wrote is locked already; the others must be.
    PERFORM 1 FROM ledger_job WHERE id IN (SELECT job_id FROM new_rows)
        AND xmin <> pg_current_xact_id()::xid ORDER BY id FOR SHARE;
    SELECT r.job_id, r.fence, r.seq, j.fence AS current_fence, j.seq AS current_seq INTO bad
    FROM new_rows r LEFT JOIN ledger_job j ON j.id = r.job_id
    WHERE j.id IS NULL OR j.fence <> r.fence OR j.seq <> r.seq LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: job %: fence % and seq % are not the current ones (%, %)', TG_TABLE_NAME, bad.job_id,
            bad.fence, bad.seq, bad.current_fence, bad.current_seq
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_journal_fence';
    END IF;
    RETURN NULL;
END $$;
"""

# What we order is bound; what we saw never is: a refund's attempt never exceeds the capture of its step that a receipt
# confirms, or that a person states.
MONEY_FUNCTION = """
CREATE OR REPLACE FUNCTION ledger_money_guard() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE bad record;
BEGIN
    SELECT r.job_id, r.step INTO bad FROM new_rows r
    WHERE r.direction = 'backward' AND r.arguments ? 'amount_minor' AND NOT EXISTS (
        SELECT 1 FROM ledger_attempt a
        WHERE a.job_id = r.job_id AND a.step = r.step AND a.direction = 'forward' AND a.n = 1
            AND (r.arguments ->> 'amount_minor')::bigint
                BETWEEN least(1, (a.arguments ->> 'amount_minor')::bigint) AND (a.arguments ->> 'amount_minor')::bigint
            AND a.arguments ->> 'currency' = r.arguments ->> 'currency'
            AND (EXISTS (SELECT 1 FROM ledger_receipt f WHERE f.job_id = r.job_id AND f.step = r.step
                    AND f.direction = 'forward' AND f.outcome = 'confirmed')
                OR EXISTS (SELECT 1 FROM ledger_resolution p WHERE p.job_id = r.job_id AND p.step = r.step
                    AND p.direction = 'forward' AND p.act = 'done'))) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger_attempt: job %: the undo of % is for more than was confirmed', bad.job_id, bad.step
            USING ERRCODE = 'P0001', CONSTRAINT = 'ledger_attempt_money';
    END IF;
    RETURN NULL;
END $$;
"""
MONEY_GUARD = f"""{MONEY_FUNCTION}
CREATE TRIGGER ledger_attempt_money AFTER INSERT ON ledger_attempt REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_money_guard();
"""


def journal_triggers() -> str:
    fenced = "".join(
        f"CREATE TRIGGER ledger_{table}_fence AFTER INSERT ON ledger_{table} REFERENCING NEW TABLE AS new_rows\n"
        "    FOR EACH STATEMENT EXECUTE FUNCTION ledger_journal_guard();\n"
        for table in JOURNAL
    )
    kept = "".join(
        f"CREATE TRIGGER ledger_{table}_update BEFORE UPDATE OR TRUNCATE ON ledger_{table}\n"
        "    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();\n"
        f"CREATE TRIGGER ledger_{table}_delete BEFORE DELETE ON ledger_{table}\n"
        "    FOR EACH STATEMENT EXECUTE FUNCTION ledger_only_retention();\n"
        for table in APPEND_ONLY
    )
    return fenced + kept


# Roles are of the whole cluster: made where they are missing, and the migrating user becomes a member, so that a process
# that has only DATABASE_URL can drop to its role at connection time. Settings that need a superuser are left out
# where the migrating user is none.
ROLES = """
DO $$
DECLARE r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['amends_api', 'amends_worker', 'amends_retention'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', r);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
        BEGIN
            EXECUTE format('GRANT %I TO %I', r, current_user);
        EXCEPTION WHEN OTHERS THEN RAISE NOTICE 'not granted: % to %', r, current_user;
        END;
        BEGIN
            EXECUTE format('ALTER ROLE %I SET deadlock_timeout = ''100ms''', r);
        EXCEPTION WHEN OTHERS THEN RAISE NOTICE 'deadlock_timeout of % is left to the server', r;
        END;
    END LOOP;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO amends_api, amends_worker, amends_retention', current_database());
END $$;
GRANT USAGE ON SCHEMA public TO amends_api, amends_worker, amends_retention;
"""

GRANTS = """
GRANT SELECT ON ledger_tenant, ledger_job, ledger_submission, ledger_attempt, ledger_receipt, ledger_sighting,
    ledger_checkpoint, ledger_resolution, ledger_provider, ledger_laneclock, ledger_share
    TO amends_api, amends_worker, amends_retention;
GRANT INSERT ON ledger_submission, ledger_job, ledger_tenant TO amends_api, amends_worker;
GRANT UPDATE ON ledger_job TO amends_api, amends_worker;
GRANT INSERT ON ledger_attempt, ledger_receipt, ledger_sighting, ledger_checkpoint, ledger_resolution
    TO amends_api, amends_worker;
GRANT INSERT, UPDATE ON ledger_laneclock, ledger_share, ledger_provider TO amends_worker;
GRANT UPDATE ON ledger_submission TO amends_retention;
GRANT UPDATE, DELETE ON ledger_job TO amends_retention;
GRANT DELETE ON ledger_attempt, ledger_receipt, ledger_sighting, ledger_checkpoint, ledger_resolution
    TO amends_retention;
"""

# The one way out of the journal. It runs as its own role and takes only ended jobs whose finish is older than the term.
RETENTION_FUNCTION = """
CREATE OR REPLACE FUNCTION ledger_retain(job_ids uuid[], term interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
DECLARE taken uuid[];
BEGIN
    IF term < interval '1 day' THEN
        RAISE EXCEPTION 'ledger_retain: a term of % is under a day', term;
    END IF;
    SELECT array_agg(id) INTO taken FROM (
        SELECT id FROM ledger_job WHERE id = ANY(job_ids) AND state IN ('confirmed', 'refused', 'compensated', 'closed')
            AND finished_at < ledger_now() - term ORDER BY id FOR UPDATE) j;
    UPDATE ledger_submission SET job_id = NULL, request = '{}' WHERE job_id = ANY(taken);
    DELETE FROM ledger_attempt WHERE job_id = ANY(taken);
    DELETE FROM ledger_receipt WHERE job_id = ANY(taken);
    DELETE FROM ledger_sighting WHERE job_id = ANY(taken);
    DELETE FROM ledger_checkpoint WHERE job_id = ANY(taken);
    DELETE FROM ledger_resolution WHERE job_id = ANY(taken);
    DELETE FROM ledger_event WHERE job_id = ANY(taken);
    DELETE FROM ledger_job WHERE id = ANY(taken);
    RETURN coalesce(array_length(taken, 1), 0);
END $$;
"""
RETENTION = f"""{RETENTION_FUNCTION}
GRANT CREATE ON SCHEMA public TO amends_retention;
ALTER FUNCTION ledger_retain(uuid[], interval) OWNER TO amends_retention;
REVOKE CREATE ON SCHEMA public FROM amends_retention;
REVOKE ALL ON FUNCTION ledger_retain(uuid[], interval) FROM PUBLIC;
"""

LANES = """
INSERT INTO ledger_laneclock (lane, clock) VALUES ('forward', 0), ('compensation', 0);
"""

# By trigger, so that no writer of a state can forget it; as its owner, so that no role needs the right to write events. Its
# condition is judged without a call: of all that happens to a job, two or three moves come as far as the tenant's row. Every
# name in it is written out: a search_path of its own costs the function twice as much as all that it does.
SETTLED = "('parked', 'confirmed', 'refused', 'compensated', 'closed')"
EVENTS = f"""
CREATE FUNCTION ledger_tell() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF (SELECT announces FROM public.ledger_tenant WHERE id OPERATOR(pg_catalog.=) NEW.tenant_id) THEN
        INSERT INTO public.ledger_event (job_id, tenant_id, state, direction, seq)
        VALUES (NEW.id, NEW.tenant_id, NEW.state, NEW.direction, NEW.seq);
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION ledger_tell() FROM PUBLIC;
CREATE TRIGGER ledger_job_tell AFTER UPDATE OF state ON ledger_job FOR EACH ROW
    WHEN (NEW.state <> OLD.state AND (NEW.state IN {SETTLED} OR OLD.state IN {SETTLED}))
    EXECUTE FUNCTION ledger_tell();
CREATE TRIGGER ledger_event_update BEFORE UPDATE OF id, job_id, tenant_id, state, direction, seq, at ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
CREATE TRIGGER ledger_event_truncate BEFORE TRUNCATE ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse();
CREATE TRIGGER ledger_event_delete BEFORE DELETE ON ledger_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_only_retention();
GRANT SELECT, UPDATE (pending) ON ledger_event TO amends_worker;
GRANT SELECT, DELETE ON ledger_event TO amends_retention;
GRANT UPDATE (announces) ON ledger_tenant TO amends_api;
"""  # noqa: S608  a constant of this module
