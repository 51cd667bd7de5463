"""A saga of another shape than a trip, one step for each kind of promise that a provider may make.

Its handlers stand for providers that nobody has: the matrix puts its scripted outside in their place.
"""

from datetime import timedelta

from ledger import outcomes, saga

DAY = timedelta(days=1)


def outside(call: saga.Call) -> outcomes.Confirmed:
    raise NotImplementedError(f"{call.operation_id}: only the matrix drives this saga")


def asked(call: saga.Call) -> outcomes.Sighted:
    raise NotImplementedError(f"{call.operation_id}: only the matrix asks about this saga")


FULL = saga.Effect(provider="desk", key_lifetime=DAY, probe=asked, tombstone=outside)
ASKABLE = saga.Effect(provider="register", probe=asked)
SILENT = saga.Effect(provider="post")
KEYED = saga.Effect(provider="bank", key_lifetime=DAY, resend_to_learn=True)

errand = saga.Saga(
    "matrix.errand",
    version=1,
    steps=[
        saga.Step("reserve", do=outside, undo=outside, effect=FULL),
        saga.Step("enter", do=outside, undo=outside, effect=ASKABLE),
        saga.Step("post", do=outside, undo=outside, effect=SILENT, undo_effect=KEYED,
                  parks_when_unknown=True),
        saga.Step("pay", do=outside, undo=saga.NotUndoable("paid is paid"), effect=KEYED, pivot=True),
        saga.Step("deliver", do=outside, undo=saga.NotUndoable("after the pivot"), effect=FULL),
    ],
)  # fmt: skip
