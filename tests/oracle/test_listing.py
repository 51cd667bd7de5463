"""due-work-harness's listing of handoffs: nothing that this project publishes, rings or calls stands inside `atomic()`.

It is lexical: what a called function does is not seen. Rings and calls are no framework's, so they are named to it here.
"""

from pathlib import Path

import pytest
from due_work_harness.coverage.config import CoverageConfig
from due_work_harness.coverage.handoffs import sites_by_function
from due_work_harness.coverage.project import Project
from due_work_harness.coverage.report import Site
from due_work_harness.coverage.sites import CELERY, DJANGO, SiteKind

ROOT = Path(__file__).resolve().parents[2]
LEDGER = frozenset({"ledger"})
KINDS = (
    DJANGO,
    CELERY,
    SiteKind(name="ring", packages=LEDGER, calls=frozenset({"ring"})),
    SiteKind(name="call", packages=LEDGER, calls=frozenset({"place", "outcome_of"})),
)
PLANTED = """
from celery import current_app
from django.db import transaction
from ledger import calls, tickets


def accept(job):
    with transaction.atomic():
        {line}
"""


def listed(root: Path, *packages: str) -> dict[str, list[Site]]:
    config = CoverageConfig(root=root, production_packages=packages, source_roots=(".",))
    return sites_by_function(Project(config), KINDS)


def in_transaction(found: dict[str, list[Site]]) -> dict[str, list[str]]:
    return {
        function: [site.kind for site in sites if site.in_transaction]
        for function, sites in found.items()
        if any(site.in_transaction for site in sites)
    }


def test_nothing_is_handed_off_inside_a_transaction() -> None:
    found = listed(ROOT, "ledger", "bookings", "recovery", "config")
    places = {
        "ledger.submission.submit_beside": "django",
        "ledger.resolutions._tell": "django",
        "ledger.tickets._Bell._send": "celery",
        "recovery.sweeps.reclaim": "ring",
        "ledger.engine.Run._hand_over": "call",
        "ledger.calls.perform": "call",
    }
    assert {function: found[function][0].kind for function in places} == places
    assert in_transaction(found) == {}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("celery", "current_app.send_task('ledger.drive', ('forward',))"),
        ("ring", "tickets.ring('forward')"),
        ("call", "calls.outcome_of(job.handler, job.call)"),
    ],
)
def test_what_is_planted_inside_a_transaction_is_listed(
    kind: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / "planted.py").write_text(PLANTED.format(line=line))
    assert in_transaction(listed(tmp_path, "planted")) == {"planted.accept": [kind]}
