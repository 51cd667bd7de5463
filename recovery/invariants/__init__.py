"""What must hold in the database at any moment, as named queries that must return no row.

named    an invariant: its id, one sentence, the query
jobs     those of submissions, jobs, leases and the order of a journal
effects  those of operations, receipts, money and the way back
check    runs them, each in a read-only transaction of its own
books    asks the providers, through the probes that reconciliation uses, what really became of what is settled
"""
