"""`manage.py resolve`: the same acts from a terminal, with one sentence and exit status 1 for what is refused."""

import json
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from ledger import models, outcomes
from tests import claims, drives, factories, sagas, staff

pytestmark = pytest.mark.usefixtures("database")


def run(job: UUID, act: str, *more: str, by: str = "sam", reason: str = staff.REASON) -> str:
    out = StringIO()
    words = [str(job), "--as", act, "--by", by, "--reason", reason, *more]
    call_command("resolve", *words, stdout=out)
    return out.getvalue()


def parked_refund(world: sagas.World, trip: Any) -> UUID:
    staff.member("sam")
    world.says("ticket:forward", sagas.raising(outcomes.Refused("sold_out")))
    world.says("payment:backward", sagas.raising(outcomes.Refused("disputed")))
    job = factories.submit(trip)
    drives.drive_all()
    return job


def test_done_with_json_evidence_ends_a_stuck_compensation() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = parked_refund(world, trip)
        evidence = '{"ref": "re_7", "note": "refunded in their dashboard"}'
        said = run(job, "done", "--operation", "payment:backward", "--evidence", evidence, "--json")
        drives.drive_all()
    found = json.loads(said)
    assert (found.pop("at")[:2], found) == (
        "20",
        {
            "job": str(job),
            "act": "done",
            "operation": "payment:backward",
            "by": "sam",
            "state": "waiting",
        },
    )
    assert drives.state(job) == "compensated"
    assert models.Resolution.objects.get(job_id=job).evidence == json.loads(evidence)


def test_words_are_evidence_and_two_people_close() -> None:
    world = sagas.World()
    with sagas.trip(world) as trip:
        job = parked_refund(world, trip)
        staff.member("kim")
        said = run(job, "close", "--evidence", "settled in cash")
        assert said == f"{job}: close-proposed by sam; the job is parked\n"
        with pytest.raises(CommandError, match="already proposed by sam: a second person closes"):
            run(job, "close")
        assert run(job, "close", by="kim") == f"{job}: close by kim; the job is closed\n"
    noted = models.Resolution.objects.filter(job_id=job).first()
    assert noted is not None
    assert noted.evidence == {"note": "settled in cash"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--by", "nobody"], "there is no user 'nobody'"),
        (["--by", "olga"], "olga may not done: resolve_unknown is needed"),
        (["--reason", "short"], "a reason of at least 10 characters is needed"),
        (["--operation", "payment"], "'payment' is not STEP:forward or STEP:backward"),
        (["--operation", "payment:up"], "'payment:up' is not STEP:forward or STEP:backward"),
        (["--evidence", '{"reference": "x"}'], "a JSON object has ref, data"),
        (["--evidence", '{"data": [1]}'], "a JSON object has ref, data"),
        (["--evidence", " "], "done needs the provider's reference"),
    ],
)
def test_refusals_change_nothing(words: list[str], says: str) -> None:
    world = sagas.World()
    staff.member("olga", "operator")
    with sagas.trip(world) as trip:
        job = parked_refund(world, trip)
        before = claims.snapshot(job)
        with pytest.raises(CommandError, match=says):
            run(job, "done", "--evidence", "by hand", *words)
        assert claims.snapshot(job) == before


def test_an_unknown_job_is_refused() -> None:
    staff.member("sam")
    with pytest.raises(CommandError, match="there is no job"):
        run(uuid4(), "note")
