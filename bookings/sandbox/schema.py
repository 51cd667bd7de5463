"""The tables of the sandbox's books.

Invariant: nothing here keeps an operation from having two effects; whether one has is what the
books are there to tell.
"""

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    n INTEGER PRIMARY KEY, operation_id TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    fingerprint TEXT NOT NULL, received_at REAL NOT NULL, action TEXT NOT NULL, status INTEGER);
CREATE INDEX IF NOT EXISTS requests_operation ON requests (operation_id);
CREATE INDEX IF NOT EXISTS requests_subject ON requests (subject);
CREATE TABLE IF NOT EXISTS effects (
    n INTEGER PRIMARY KEY, id TEXT NOT NULL, operation_id TEXT NOT NULL, kind TEXT NOT NULL,
    subject TEXT NOT NULL, amount_minor INTEGER, currency TEXT, capture TEXT,
    applied_at REAL NOT NULL, resource TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS effects_id ON effects (id);
CREATE INDEX IF NOT EXISTS effects_operation ON effects (operation_id);
CREATE INDEX IF NOT EXISTS effects_subject ON effects (subject);
CREATE INDEX IF NOT EXISTS effects_capture ON effects (capture) WHERE capture IS NOT NULL;
CREATE TABLE IF NOT EXISTS keys (
    operation_id TEXT PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL, meaning TEXT NOT NULL,
    status INTEGER NOT NULL, answer TEXT NOT NULL, stored_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_stored ON keys (stored_at);
CREATE TABLE IF NOT EXISTS tombstones (
    operation_id TEXT PRIMARY KEY, made_at REAL NOT NULL) WITHOUT ROWID;
"""
REQUEST_COLUMNS = "n, operation_id, kind, subject, fingerprint, received_at, action, status"
EFFECT_COLUMNS = (
    "n, id, operation_id, kind, subject, amount_minor, currency, capture, applied_at, resource"
)
