"""The engine: drives any saga so that it ends settled or visible. It knows no travel.

The path of a job, in reading order:

1. submission: a job row, once per tenant and submission key
2. tickets: rings a lane after commit; a message that carries no job
3. tasks: the Celery entry, one line
4. shares: promotion, waiting to queued, ranks in fair order
5. leases: claim, renew, reclaim; where fences are born
6. engine: the loop over all jobs held
7. holding: one held job in memory, and the write it is about to make
8. persist: writes that must go through, whatever the database does
9. planner: (saga, job, journal) to the next action; pure
10. operations: the journal folded into operations; pure
11. journal: the guarded write of many jobs in one commit
12. sightings: evidence from whoever has no authority
13. calls: bounded threads, outside any transaction, nothing of the database
14. local_batches: LOCAL steps, many in one transaction, rows locked first
15. evidence: makes whatever came back storable; pure
16. selectors: the read side
17. retention: removes ended jobs past their term

And beside the path:

18. saga: a saga as data, and the registry; pure
19. outcomes: what can come of an operation, and the errors; pure
20. states: the states of a job and the moves between them; pure
21. canonical: canonical JSON, fingerprints, differences; pure
22. crashpoints: named gaps where a process can die; pure
23. telemetry: the catalogue of events and metrics
24. sql: one statement at a time, and which errors repeat, reconnect or refuse
25. models: the tables and their constraints
26. guards: the triggers, made from the states
27. metrics: the collector over the read side
28. checks: what `manage.py check` refuses
29. admin: the read-only pages
30. apps: the Django app
"""
