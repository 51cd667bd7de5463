"""Drills: experiments on the real processes, each with load, faults, healing, and a judgement by two witnesses.

What would break without them: every promise would have been tried in tests that choose their moment, and none on a whole
stack at work. A drill is a black box: it books through the API, commands and reads the sandbox over HTTP, signals processes
that `Place` started for it, and reads the ledger with SQL. It passes when the provider's books, the ledger and what the
clients were told agree, and when what it is about was really seen (a counter at zero fails it).

In reading order: place (what a drill is given), load (the clients), run (one drill at work), faults, watch (how long
recovery took), events (what the processes logged), judge, runner, report; then one module a drill, in `catalogue`.
The soak stands apart: soak (its windows), surroundings (what it is given besides), its own faults, and totals.
"""
