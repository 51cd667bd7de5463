"""The first door as a function: PostgreSQL keeps its plans for a connection, also behind a pooler of transactions, where
planning the same statements in one was half of what a submission cost it.

A build that needs another one adds it under another name, so that the builds before and after it work side by side.
"""

from django.db import migrations

# NULL where the key is known. A conflict on the key waits for whoever is about to use it.
SUBMIT = """
CREATE FUNCTION ledger_submit(
    tenant uuid, key text, fingerprint bytea, request jsonb, saga text, version integer, input jsonb, lane text,
    deadline double precision
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    job uuid;
BEGIN
    INSERT INTO ledger_submission (tenant_id, key, fingerprint, request, job_id)
    VALUES (tenant, key, fingerprint, request, uuidv7())
    ON CONFLICT ON CONSTRAINT ledger_submission_once DO NOTHING RETURNING job_id INTO job;
    IF job IS NOT NULL THEN
        INSERT INTO ledger_job (id, tenant_id, saga, version, input, lane, deadline_at)
        VALUES (job, tenant, saga, version, input, lane, ledger_now() + make_interval(secs => deadline));
    END IF;
    RETURN job;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0008_tenancy")]

    operations = [migrations.RunSQL(SUBMIT, "DROP FUNCTION ledger_submit")]
