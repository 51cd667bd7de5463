"""`docs/api.md` names the scopes, states and statuses that there are."""

import re

from bookings.api import contract
from bookings.models import all_scopes
from ledger.states import ClientState
from tests import documents

PAGE = documents.Page("api.md")


def test_it_names_every_scope_and_every_state() -> None:
    scopes = [documents.quoted(row[0])[0] for row in PAGE.tables("scope", "for")]
    assert scopes == all_scopes()
    states = [documents.quoted(row[0])[0] for row in PAGE.tables("`state`", "")]
    assert states == [str(state) for state in ClientState]


def test_it_says_what_to_do_about_every_error() -> None:
    told = {
        int(n) for row in PAGE.tables("status", "what to do") for n in re.findall(r"\d+", row[0])
    }
    assert told == {status for status in contract.MEANINGS if status >= 400}


def test_every_route_that_it_names_is_there() -> None:
    named = set(re.findall(r"(GET|POST) (/v1/[a-z/{}]+)", PAGE.text))
    known = {(method, re.sub(r"{\w+}", "{id}", path)) for path, method in contract.OPERATIONS}
    assert named
    assert named <= known
