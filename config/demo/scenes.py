"""The six scenes: what is done to the system, what must then be true, and why that is right.

Each returns what is wrong, nothing if all is well. Kept here: a scene leaves the sandbox honest and
the stack whole, so that the next one starts from the same place.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bookings import hotel_data
from config.demo import facts, records, timeline
from config.demo.facts import CAPTURE
from config.demo.stage import Stage, StageError
from ledger import selectors
from ledger.states import ENDED, JobState
from recovery import clients

SCENE_SECONDS = 30.0
SLOW_SECONDS = 2.5  # less than PROVIDER_CALL_SECONDS of the stage
KILLS_MAX = 3
LOST_SECONDS = 1.0
STAYS = 4  # that the scenes are given
Problems = list[str]


@dataclass(frozen=True, slots=True)
class Scene:
    """`done` says what we do to the system, `why` why its answer is right; both for a reader who knows nothing of it."""

    name: str
    title: str
    done: str
    why: str
    play: Callable[[Stage, hotel_data.Stay], Problems]


class NotAcceptedError(Exception):
    """The API did not take a booking that it should have taken."""

    def __init__(self, answer: clients.Answer) -> None:
        super().__init__(f"the API answered {answer.status}: {dict(answer.body)}")


def perform(stage: Stage, number: int) -> bool:
    """Play a scene, show it, and say whether all was as it should be."""
    scene = SCENES[number]
    stage.screen.open_scene(f"Scene {number + 1} of {len(SCENES)}: {scene.title}", scene.done)
    stay = stage.stays[-STAYS:][
        number % STAYS
    ]  # the fifth scene asks for what the first one booked
    try:
        problems = scene.play(stage, stay)
    except (StageError, NotAcceptedError, clients.NoAnswerError) as error:
        problems = [str(error)]
    finally:
        stage.sandbox.misbehave()
    stage.screen.close_scene(problems, scene.why)
    return not problems


# --- The scenes ----------------------------------------------------------------------------------


def _all_good(stage: Stage, stay: hotel_data.Stay) -> Problems:
    before = facts.rooms_taken(stay)
    found = _follow(stage, stay, _book(stage, "scene-1", stay))
    problems = found.problems("confirmed", [("capture", found.price), ("ticket", None)])
    facts.expect(
        problems,
        holds=facts.rooms_taken(stay) == [taken + 1 for taken in before],
        otherwise="the room is not taken for each night",
    )
    return problems


def _ticket_refused(stage: Stage, stay: hotel_data.Stay) -> Problems:
    stage.sandbox.misbehave({"do": "refuse", "match": "ticket", "times": 1, "code": "sold_out"})
    before = facts.rooms_taken(stay)
    found = _follow(stage, stay, _book(stage, "scene-2", stay))
    price = found.price
    problems = found.problems("compensated", [("capture", price), ("refund", price)])
    facts.expect(
        problems,
        holds=facts.rooms_taken(stay) == before,
        otherwise="the room was not given back for each night",
    )
    return problems


def _lost_reply(stage: Stage, stay: hotel_data.Stay) -> Problems:
    stage.sandbox.misbehave({"do": "drop_after", "match": "capture", "times": 1})
    found = _follow(stage, stay, _book(stage, "scene-3", stay))
    problems = found.problems("confirmed", [("capture", found.price), ("ticket", None)])
    capture = found.forward(CAPTURE)
    facts.expect(
        problems,
        holds=len(capture.attempts) == 1 and _kinds(found).count("capture") == 1,
        otherwise="the capture was sent again instead of asked about",
    )
    facts.expect(
        problems,
        holds="probe" in _kinds(found) and capture.is_confirmed(),
        otherwise="the provider was not asked what became of it",
    )
    return problems


def _worker_killed(stage: Stage, stay: hotel_data.Stay) -> Problems:
    slow = {"do": "delay", "match": "capture", "seconds": SLOW_SECONDS, "times": 1}
    stage.sandbox.misbehave(slow)
    booking = _book(stage, "scene-4", stay)
    _watch(
        stage, booking, "the capture reached the provider", lambda: _is_capturing(stage, booking)
    )
    _kill_its_worker(stage, booking)
    _watch(stage, booking, "the booking ended", lambda: _has_ended(booking))
    # The dead worker's own request is still on its way through the provider.
    _watch(stage, booking, "the request on the wire landed", lambda: _has_landed(stage, booking))
    found = facts.of(stage, stay, booking)
    problems = found.problems("confirmed", [("capture", found.price), ("ticket", None)])
    facts.expect(
        problems, holds=found.leases_lost > 0, otherwise="the worker that was killed was another's"
    )
    return problems


def _same_key(stage: Stage, stay: hotel_data.Stay) -> Problems:
    token, key, body = stage.tokens[stay.tenant], f"{stage.prefix}scene-1", stage.body(stay)
    rows, summary = records.count_rows(), stage.sandbox.summary()
    again = stage.api.book(token, key, body)
    stage.screen.note(f"the same request again: {again.status}, booking {again.body.get('id')}")
    other = stage.api.book(token, key, {**body, "nights": body["nights"] + 1})
    places = [fault["pointer"] for fault in other.body.get("errors", [])]
    stage.screen.note(f"the same key, one more night: {other.status}, differs in {places}")
    problems: Problems = []
    for holds, otherwise in (
        (again.status == 202, f"the same request again got {again.status}, not 202"),
        ([again.body.get("id")] == stage.booked[:1], "the same request again got another booking"),
        (again.headers.get("idempotent-replayed") == "true", "Idempotent-Replayed is missing"),
        (other.status == 422, f"another body under the same key got {other.status}, not 422"),
        (places == ["/nights"], f"the refusal names {places}, not /nights"),
        (records.count_rows() == rows, "a row was written"),
        (stage.sandbox.summary() == summary, "the provider was called"),
    ):
        facts.expect(problems, holds=holds, otherwise=otherwise)
    return problems


def _stale_compensation(stage: Stage, stay: hotel_data.Stay) -> Problems:
    room_type, night = records.read_last_room()
    mine = replace(stay, room_type=room_type, arrival=night, nights=1)
    theirs = replace(mine, tenant=next(t for t in stage.tokens if t != stay.tenant))
    before = facts.rooms_taken(mine)
    first, second = _lose_the_room(stage, mine, theirs)
    stage.sandbox.misbehave()
    late, kept = _follow(stage, mine, first), facts.of(stage, theirs, second)
    price = late.price
    problems = late.problems("compensated", [("capture", price), ("refund", price)])
    problems += kept.problems("confirmed", [("capture", price), ("ticket", None)])
    secured, undone = late.forward("secure_room"), late.backward("reserve_room")
    for holds, otherwise in (
        (secured.is_refused(), "the room that was lost was secured"),
        (facts.is_stale(undone), "the late release is not shown as stale"),
        (kept.forward("secure_room").is_confirmed(), "the second booking has not secured the room"),
        (facts.rooms_taken(mine) == [n + 1 for n in before], "the room is not taken exactly once"),
    ):
        facts.expect(problems, holds=holds, otherwise=otherwise)
    return problems


SCENES = (
    Scene(
        "all_good",
        "all goes well",
        "We book a room through the API and leave everything alone.",
        "One charge, one ticket, one room: each step was written down before the next began.",
        _all_good,
    ),
    Scene(
        "ticket_refused",
        "the last step is refused",
        "The provider refuses the ticket after the guest has already paid.",
        "The money went back and the room is free again: nobody pays for a trip that cannot happen.",
        _ticket_refused,
    ),
    Scene(
        "lost_reply",
        "the payment's answer is lost",
        "The provider charges the card, and its answer never reaches us.",
        "We did not know, so we asked: the charge was there. Charged once, not twice, not given up.",
        _lost_reply,
    ),
    Scene(
        "worker_killed",
        "the worker dies in the middle of the payment",
        "While the payment is under way, we kill the process that waits for it (kill -9).",
        "Another process went on under the same operation id: confirmed, and charged exactly once.",
        _worker_killed,
    ),
    Scene(
        "same_key",
        "the client sends its request again",
        "We send the first booking again under its key, then another stay under that key.",
        "The same booking came back and nothing was done; the other stay was refused, naming the field.",
        _same_key,
    ),
    Scene(
        "stale_compensation",
        "a room is lost while its payment stalls",
        "The provider puts off the payment for the last room until the hold has expired and another guest has it.",
        "The first was paid back, and its late release changed nothing: the room is the second guest's now.",
        _stale_compensation,
    ),
)

# --- Steps of a scene ----------------------------------------------------------------------------


def _book(stage: Stage, key: str, stay: hotel_data.Stay) -> str:
    answer = stage.book(key, stay)
    if answer.status != 202:
        raise NotAcceptedError(answer)
    booking_id: str = answer.body["id"]
    return booking_id


def _follow(stage: Stage, stay: hotel_data.Stay, booking_id: str) -> facts.Facts:
    _watch(stage, booking_id, "the booking ended", lambda: _has_ended(booking_id))
    return facts.of(stage, stay, booking_id)


def _watch(stage: Stage, booking_id: str, what: str, is_true: Callable[[], bool]) -> None:
    """Wait for it, and show the booking's life meanwhile."""
    job_id, _, _ = records.read_job(booking_id)

    def show() -> None:
        entries = selectors.entries(job_id)
        requests, effects = stage.sandbox.requests(booking_id), stage.sandbox.effects(booking_id)
        stage.screen.show(timeline.rows(entries, requests, effects))

    stage.wait(what, is_true, SCENE_SECONDS, show)


def _lose_the_room(stage: Stage, mine: hotel_data.Stay, theirs: hotel_data.Stay) -> tuple[str, str]:
    """Book the last room, stall its payment, let the hold expire, and let another tenant book it; both booking ids."""
    stall = {"do": "throttle", "match": "capture", "retry_after": 1}
    stage.sandbox.misbehave(stall)
    first = _book(stage, "scene-6-first", mine)
    _watch(stage, first, "the payment is put off", lambda: _is_capturing(stage, first))
    stage.sandbox.misbehave({**stall, "subject": first})
    stage.end_hold(first)
    stage.screen.note("the time of the hold is over; the sweep gives the room back")
    _watch(stage, first, "the room is free again", lambda: facts.hold_of(first) == "expired")
    second = _book(stage, "scene-6-second", theirs)
    stage.screen.note("another guest books the room")
    _watch(stage, first, "the other booking ended", lambda: _has_ended(second))
    return first, second


def _kill_its_worker(stage: Stage, booking_id: str) -> None:
    """Kill the process that waits for the capture. Celery may name one that is just leaving an empty lane: then again."""

    def is_lease_lost() -> bool:
        return records.read_job(booking_id)[2] > 0

    for _ in range(KILLS_MAX):
        if stage.kill_busy_children(most=1):
            stage.screen.note("kill -9 of the worker process, in the middle of the payment")
            if stage.ending.wait_until(is_lease_lost, LOST_SECONDS):
                return


def _has_ended(booking_id: str) -> bool:
    _, state, _ = records.read_job(booking_id)
    return state in ENDED or state == JobState.PARKED


def _is_capturing(stage: Stage, booking_id: str) -> bool:
    return any(one["kind"] == "capture" for one in stage.sandbox.requests(booking_id))


def _has_landed(stage: Stage, booking_id: str) -> bool:
    return all(one["status"] is not None for one in stage.sandbox.requests(booking_id))


def _kinds(found: facts.Facts) -> list[str]:
    return [one["kind"] for one in found.requests]
