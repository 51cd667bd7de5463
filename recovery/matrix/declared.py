"""What a fault may lead to, other than the undisturbed outcome: declared here, from the promises of the effect alone.

The promise that this keeps honest: an operation whose outcome nobody saw is never repeated where the provider promises
nothing, and is always settled where it promises something. So a case that must park fails when it does not, too.
"""

from ledger import saga
from ledger.saga import Direction
from ledger.states import ParkedReason
from recovery.matrix.faults import Fault
from recovery.matrix.play import Play
from recovery.matrix.witness import Ending

# An attempt is stored, and its call not handed over yet: who stands still there finds its lease too short to send.
NOT_HANDED_OVER = ("settle.after", "local.after")


def disagreement(play: Play, ending: Ending, base: Ending, good: Ending) -> str:
    """Why this ending is not one that the case may have; empty when it is. `good` is the run without any turn."""
    if wrong := _books(ending):
        return wrong
    fault = play.struck[-1]
    stuck = {name for name in play.doubts if _is_undecidable(play, name, fault, ending)}
    if stuck and not (_answers_late(play) or play.script.resolves):
        return (
            ""
            if _is_parked_over(ending, stuck)
            else f"must park over {_all(stuck)}, ended {ending}"
        )
    if ending == base or _is_alternative(play, ending, good, stuck):
        return ""
    return f"ended {ending} {_all(ending.effects)}, undisturbed {base} {_all(base.effects)}"


def flaw(play: Play, base: Ending) -> str:
    """What is wrong with an undisturbed run, with which cases are compared; empty when nothing is."""
    first = play.script.first
    if wrong := _books(base):
        return wrong
    if first is not None and first not in play.struck:
        return "its own fault did not strike"
    if base.state in _ends(play):
        return ""
    stuck = {n for n in play.doubts if first and _is_undecidable(play, n, first, base)}
    return "" if stuck and _is_parked_over(base, stuck) else f"ended {base}, undisturbed"


def _ends(play: Play) -> set[str]:
    """How a script ends when nothing goes wrong beside it."""
    script, definition = play.script, play.stage.definition
    if script.retains:
        return {"removed"}
    if not script.refuses:
        return {"refused", "compensated"} if script.turns_at else {"confirmed"}
    names, pivot = [step.name for step in definition.steps], definition.pivot_index()
    is_past = pivot is not None and names.index(script.refuses.partition(":")[0]) > pivot
    return {"parked"} if is_past else {"refused", "compensated"}


def _books(ending: Ending) -> str:
    """The two witnesses, whatever the outcome."""
    twice = [name for name, count in ending.effects.items() if count > 1]
    if twice:
        return f"took effect more than once: {_all(twice)}"
    if ending.state == "removed":
        return ""
    if unseen := ending.believed - ending.effects.keys():
        return f"confirmed, but never happened: {_all(unseen)}"
    unknown = ending.effects.keys() - ending.believed
    if ending.state != "parked" and unknown:
        return f"happened, and no receipt says so: {_all(unknown)}"
    return ""


def _is_undecidable(play: Play, name: str, fault: Fault, ending: Ending) -> bool:
    """Nothing that the provider promises can tell what became of this operation."""
    step_name, _, direction = name.partition(":")
    step = play.stage.definition.step(step_name)
    assert step is not None, "operations are of the saga's own steps"
    effect = step.effect_of(Direction(direction))
    if isinstance(effect, saga.Local) or _is_settled_by_write(fault):
        return False
    if direction == ending.direction:
        can_send = effect.key_lifetime is not None
    else:
        can_send = effect.resend_to_learn or effect.tombstone is not None
    if can_send or (effect.probe is not None and name in ending.effects):
        return False
    sender_is_gone = play.doubts[name] or fault.kind == "kill" or fault.kind.startswith("lost")
    return effect.probe is None or not (sender_is_gone or effect.late_probe_suffices)


def _answers_late(play: Play) -> bool:
    """Somebody stood still, and may know more than those who acted meanwhile."""
    return any(fault.kind == "pause" for fault in play.struck)


def _is_settled_by_write(fault: Fault) -> bool:
    """A lost write is repeated by the same process, which still knows what its calls brought."""
    return fault.kind.startswith("lost") and not fault.point.startswith("call.")


def _is_parked_over(ending: Ending, names: set[str]) -> bool:
    is_parked = ending.state == "parked" and ending.reason == ParkedReason.UNKNOWN_OUTCOME
    return is_parked and any(name in ending.detail for name in names)


def _is_alternative(play: Play, ending: Ending, good: Ending, stuck: set[str]) -> bool:
    fault = play.struck[-1]
    if not _answers_late(play):
        return False
    if len(play.struck) > 1 and _is_parked_over(ending, set(play.doubts)):
        return True  # whoever stood still met a second fault, and could not say what it knew
    if fault.point in NOT_HANDED_OVER and _is_parked_over(ending, stuck):
        return True
    if fault.point == "turn.before" and ending == good:
        return True  # the job ended while whoever cancelled it stood still: too late
    return bool(play.script.turns_at) and _is_undone(ending)


def _is_undone(ending: Ending) -> bool:
    """A request that was out all the while was refused for good, or landed late, was found, and was undone with the rest."""
    forward = {n.partition(":")[0] for n in ending.effects if n.endswith(Direction.FORWARD)}
    backward = {n.partition(":")[0] for n in ending.effects if n.endswith(Direction.BACKWARD)}
    return ending.state == ("compensated" if forward else "refused") and forward == backward


def _all(names: object) -> str:
    assert isinstance(names, list | set | frozenset | dict), "names of operations"
    return ", ".join(sorted(names))
