"""An address that somebody mistyped is no error of ours: what a page of staff cannot be asked is a 400 or a 404."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from ledger import models
from tests import factories, sagas
from tests.api import routes

MODELS = [f"{app}/{model}" for app, models in routes.MODELS.items() for model in models]
QUERIES = [
    "q=%00", "q=a%00b", "state=%00", "state__exact=%00", "lane__exact=%00", "parked_reason=%00", "id__exact=%00",
    "%00=a", "id=xyz", "id=99999999999999999999999", "tenant__id__exact=abc", "p=-1", "p=99999999999999999999999",
    "o=99999999999999999999", "nights=99999999999999999999999", "night__gte=2026-W01-1",
]  # fmt: skip
IDS = ["%00", "a%00b", "xyz", "_00", "-1", "9" * 5_000, "99999999999999999999999", "%F0%9F%8F%A8"]


@pytest.fixture
def client(database: None) -> Client:
    with sagas.trip(sagas.World()) as trip:
        factories.submit(trip)
    found = Client(raise_request_exception=False)
    found.force_login(User.objects.create_superuser("root"))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_a_list_or_a_row_that_cannot_be_is_no_error_of_ours(client: Client, model: str) -> None:
    asked = [f"?{query}" for query in QUERIES]
    asked += [f"{id_}/{page}/" for id_ in IDS for page in ("change", "history", "delete")]
    for path in asked:
        answer = client.get(f"/admin/{model}/{path}")
        assert answer.status_code < 500, path
        if "%00" in path:
            assert answer.status_code == 400, path
    assert models.Job.objects.count() == 1


@pytest.mark.parametrize(
    "path",
    [
        "autocomplete/?term=%00&app_label=ledger&model_name=job&field_name=tenant",
        "r/1/%00/",
        "?%00",
        "%00/",
    ],
)
def test_nor_is_any_other_page(client: Client, path: str) -> None:
    assert client.get(f"/admin/{path}").status_code == 400


def test_a_form_with_a_zero_in_it_is_shown_again(client: Client) -> None:
    for form in ({"username": "a\0b", "password": "x"}, {"username": "root", "password": "\0"}):
        assert Client(raise_request_exception=False).post("/admin/login/", form).status_code == 200
