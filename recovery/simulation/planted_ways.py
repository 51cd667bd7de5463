"""Seven more planted bugs, about the way of a job: which direction, in what order, whose lease, which arguments, and who is
suspected. As in `planted`, where the database has a guard of its own against the mistake, that is taken away too.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from ledger import actions, doubt, journal, leases, planner, turns
from recovery.simulation.planted import MORE, edit, planted, put


@planted("O6", "steps are undone in the order in which they were done", MORE)
def undo_in_order(undo: ExitStack) -> None:
    def backward(ctx: Any) -> actions.Action:
        turned = replace(ctx.definition, steps=list(reversed(ctx.definition.steps)))
        found: actions.Action = original(replace(ctx, definition=turned))
        return found

    original = put(undo, planner, "_backward", backward)


@planted("O7", "going backward, a forward call in doubt is sent again like any other", MORE)
def forward_whatever(undo: ExitStack) -> None:
    def weigh(asked: doubt.Asked, *args: Any, **known: Any) -> doubt.Doubt:
        found: doubt.Doubt = original(replace(asked, is_wanted=True), *args, **known)
        return found

    original = put(undo, doubt, "weigh", weigh)


@planted("O10", "a cancel does not ask whether the pivot was sent", MORE)
def cancel_past_the_pivot(undo: ExitStack) -> None:
    edit(undo, turns, "TURN", (" AND NOT pivot_sent", ""))


@planted("O11", "a job parks without saying what for", MORE)
def parks_in_silence(undo: ExitStack) -> None:
    edit(undo, journal, "SETTLE", ("THEN g.detail ELSE ''", "THEN '' ELSE ''"))


@planted("R3", "a retry derives its arguments anew, and they differ", MORE)
def other_arguments(undo: ExitStack) -> None:
    def again(*known: Any) -> actions.Action:
        found: actions.Action = original(*known)
        if not isinstance(found, actions.Send):
            return found
        return replace(found, fingerprint=found.fingerprint[::-1])

    original = put(undo, planner, "_again", again)


@planted("L6", "a lease is renewed under whatever fence", MORE)
def renew_what_is_lost(undo: ExitStack) -> None:
    stated = ("acting_fence = g.fence", "acting_fence = j.fence")
    not_locked = (" AND j.fence = g.fence AND j.claim_token = g.token\n", "\n")
    not_kept = (" AND j.fence = g.fence\n", "\n")
    edit(undo, leases, "RENEW", stated, not_locked, not_kept)


@planted("V4", "a receipt clears no suspicion", MORE)
def suspected_for_ever(undo: ExitStack) -> None:
    edit(
        undo,
        journal,
        "SETTLE",
        ("losses = CASE WHEN g.has_receipts THEN 0 ELSE j.losses END", "losses = j.losses"),
        ("strikes = CASE WHEN g.has_receipts THEN 0 ELSE j.strikes END", "strikes = j.strikes"),
    )
