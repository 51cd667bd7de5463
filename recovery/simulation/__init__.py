"""The simulation: drivers of the real engine over a real database, with virtual time and every fault, from one seed.

One thread and one connection: what runs next is drawn from the seed, so that the same seed is the same history, to the
bit. Three witnesses are compared: the database, the provider's own book, and what the client was told.

1. `histories`: one history from its first submission to its judgement; the scheduler
2. `processes`: a worker process: the real `engine.Run`, its stages called one by one
3. `clients`: who submits, asks again, cancels
4. `wires`: virtual threads: calls on their way, answers on their way back
5. `provider`: the outside world and its book
6. `stock`: the rows that LOCAL steps change
7. `shapes`: the sagas that are driven
8. `faults`: what happens at crash points
9. `line`: the connection: virtual time in, lost replies, a look at every commit
10. `mirror`: what is committed, as a second reader sees it
11. `invariants`: what must hold at every commit
12. `at_provider`: what must hold at every request and effect
13. `judgement`: what must hold when all is quiet
14. `chronicle`: the trace of a history, its digest, counts and violations
15. `senders`: who can still send, as the wire really has it
16. `runs`: many histories, ranges of seeds
17. `runfile`: the run file, which resumes and merges
18. `database`: a database of its own
19. `virtual`: virtual time
20. `planted`: mutations of the system, each to be caught by the invariant named for it
"""
