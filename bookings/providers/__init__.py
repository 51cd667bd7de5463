"""Clients of providers: one wire request per call, and a judgement of whatever came back.

Reading order: `protocol` (what a client offers), `http` (the one way out of the process),
`deadlines` (why no call lasts longer than it may), `answers` (what an answer says, if anything),
then one module per provider.
"""
