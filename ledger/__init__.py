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
15. turns: an accepted cancel or a passed deadline, decided once
16. reconcile: judges sightings of jobs that nobody owns
17. evidence: makes whatever came back storable; pure
18. selectors: the read side
19. retention: removes ended jobs past their term

And beside the path:

20. saga: a saga as data, and the registry; pure
21. outcomes: what can come of an operation, and the errors; pure
22. states: the states of a job and the moves between them; pure
23. canonical: canonical JSON, fingerprints, differences; pure
24. crashpoints: named gaps where a process can die; pure
25. telemetry: the catalogue of events and metrics
26. sql: one statement at a time, and which errors repeat, reconnect or refuse
27. models: the tables and their constraints
28. guards: the triggers, made from the states
29. metrics: the collector over the read side
30. checks: what `manage.py check` refuses
31. admin: the read-only pages
32. apps: the Django app
"""
