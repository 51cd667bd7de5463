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
10. actions: what it can decide on; pure
11. doubt: what to do about an operation whose outcome nobody saw; pure
12. patience: how long to wait before something is tried again; pure
13. operations: the journal folded into operations; pure
14. journal: the guarded write of many jobs in one commit
15. sightings: evidence from whoever has no authority
16. calls: bounded threads, outside any transaction, nothing of the database
17. local_batches: LOCAL steps, many in one transaction, rows locked first
18. turns: an accepted cancel or a passed deadline, decided once
19. reconcile: judges sightings of jobs that nobody owns
20. acts: what a person may do with a parked job; pure
21. resolutions: the guarded write of a person's act
22. evidence: makes whatever came back storable; pure
23. standing: where a job stands, by its journal: the classes of the report; pure
24. selectors: the read side
25. retention: removes ended jobs past their term

And beside the path:

26. saga: a saga as data, and the registry; pure
27. outcomes: what can come of an operation, and the errors; pure
28. states: the states of a job and the moves between them; pure
29. canonical: canonical JSON, fingerprints, differences; pure
30. crashpoints: named gaps where a process can die; pure
31. telemetry: the catalogue of events and metrics
32. sql: one statement at a time, and which errors repeat, reconnect or refuse
33. clock: how much time has passed here, and a wait; pure
34. policy: the engine's patience as settings give it
35. models: the tables and their constraints
36. fleet: tables of no job: providers, shares, what sweeps did and builds can drive
37. guards: the triggers, made from the states
38. metrics: the collector over the read side
39. checks: what `manage.py check` refuses
40. desk: what staff read of a job: a sentence, its operations, its money
41. admin: the pages of staff, and their acts
42. apps: the Django app
"""
