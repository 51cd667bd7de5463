"""The engine: drives any saga so that it ends settled or visible. It knows no travel.

The path of a job, in reading order:

1. submission: a job row, once per tenant and submission key
2. tickets: rings a lane after commit; a message that carries no job
3. tasks: the Celery entry, one line
4. shares: promotion, waiting to queued, ranks in fair order
5. leases: claim, renew, reclaim; where fences are born
6. engine: the loop over all jobs held
7. holding: one held job in memory, and the write it is about to make
8. permits: a provider's leave to make a call, for the whole fleet
9. persist: writes that must go through, whatever the database does
10. planner: (saga, job, journal) to the next action; pure
11. actions: what it can decide on; pure
12. doubt: what to do about an operation whose outcome nobody saw; pure
13. patience: how long to wait before something is tried again; pure
14. pacing: when a provider may be called: rate, throttle, circuit, pause; pure
15. operations: the journal folded into operations; pure
16. journal: the guarded write of many jobs in one commit
17. sightings: evidence from whoever has no authority
18. calls: bounded threads, outside any transaction, nothing of the database
19. local_batches: LOCAL steps, many in one transaction, rows locked first
20. turns: an accepted cancel or a passed deadline, decided once
21. reconcile: judges sightings of jobs that nobody owns
22. acts: what a person may do with a parked job; pure
23. resolutions: the guarded write of a person's act
24. evidence: makes whatever came back storable; pure
25. standing: where a job stands, by its journal: the classes of the report; pure
26. selectors: the read side
27. retention: removes ended jobs past their term
28. versions: what the builds that run can drive, and the jobs that none of them can
29. watch: when each sweep last succeeded
30. events: what happened to jobs of tenants who asked to be told

And beside the path:

31. saga: a saga as data, and the registry; pure
32. outcomes: what can come of an operation, and the errors; pure
33. states: the states of a job and the moves between them; pure
34. canonical: canonical JSON, fingerprints, differences; pure
35. checkpoints: how far a job has settled, as data: its formats, written and read; pure
36. crashpoints: named gaps where a process can die; pure
37. telemetry: the catalogue of events and metrics
38. sql: one statement at a time, and which errors repeat, reconnect or refuse
39. singly: a batch that one row refuses, done row by row
40. tenancy: whose rows a session sees: the second wall behind the tenant filters
41. clock: how much time has passed here, and a wait; pure
42. policy: the engine's patience as settings give it
43. models: the tables and their constraints
44. fleet: tables of no job: providers, shares, what sweeps did and builds can drive
45. guards: the triggers, made from the states
46. metrics: the collector over the read side
47. checks: what `manage.py check` refuses
48. desk: what staff read of a job: a sentence, its operations, its money
49. client_view: what a client reads of a job: its state, its class, its operations, its journal
50. admin: the pages of staff, and their acts
51. apps: the Django app
"""
