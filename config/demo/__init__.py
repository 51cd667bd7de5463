"""`manage.py demo`: six scenes and a replay on a whole stack, judged by books that are not ours.

Reading order: `stage` (what is set up, and the ways to disturb it), `clients` (the API and the
sandbox over HTTP), `scenes` and `facts` (what is done, and what must then be true), `replay` (300
real bookings under faults), `books` (the provider's books against the ledger), `timeline`, `screen`
and `report` (what a reader sees).

Kept here: a verdict is read from the API, the database and the provider's books, never from what
was shown.
"""
