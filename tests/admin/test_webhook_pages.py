"""Staff see endpoints and what was sent, never a secret, and send again with a permission and a line in the log."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from bookings.webhooks import endpoints, sending
from tests.conftest import Roles
from tests.webhooks import receivers, tenants
from tests.webhooks.conftest import receiver, small, told
from tests.webhooks.tenants import Told

__all__ = ["receiver", "small", "told"]
LIST = "/admin/bookings/webhookdelivery/"


def staff(*codenames: str) -> Client:
    user, _ = User.objects.get_or_create(username="sam", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def replay(client: Client, chosen: int) -> Any:
    return client.post(LIST, {"action": "replay", "_selected_action": str(chosen)}, follow=True)


def test_sent_again_under_the_same_id_with_a_line_in_the_log(told: Told, as_role: Roles) -> None:
    told.park()
    tenants.send()
    client, chosen = staff("view_webhookdelivery", "replay_webhookdelivery"), told.delivery().pk
    with as_role("api"):
        assert "1 of 1 are due again" in replay(client, chosen).content.decode()
    entry = LogEntry.objects.get()
    assert (entry.user.get_username(), entry.object_id) == ("sam", str(told.delivery().pk))
    tenants.send()
    one, two = told.got
    assert (one.id, one.body) == (two.id, two.body)
    assert len(told.delivery().tries) == 2


def test_one_that_was_given_up_gets_a_new_term(told: Told) -> None:
    told.receiver.says["/hook"] = receivers.status(500)
    told.park()
    tenants.send()
    tenants.age(tenants.TERM)
    tenants.make_due()
    endpoint = told.endpoint
    endpoint.succeeded_at = told.delivery().created_at + tenants.TERM
    endpoint.save()
    tenants.send()
    assert told.delivery().given_up_at is not None
    replay(staff("view_webhookdelivery", "replay_webhookdelivery"), told.delivery().pk)
    tenants.make_due()
    tenants.send()
    assert told.delivery().given_up_at is None
    assert told.delivery().due_at is not None


def test_without_the_permission_nothing_happens(told: Told) -> None:
    told.park()
    tenants.send()
    replay(staff("view_webhookdelivery"), told.delivery().pk)
    assert replay(staff(), told.delivery().pk).status_code == 403
    client = staff("view_webhookdelivery", "replay_webhookdelivery")
    client.get(LIST, {"action": "replay", "_selected_action": str(told.delivery().pk)})
    assert told.delivery().due_at is None
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize("case", ["disabled", "out"])
def test_not_of_an_endpoint_that_has_ended_nor_while_it_is_out(told: Told, case: str) -> None:
    told.park()
    sender = sending.Sender()
    if case == "out":
        told.receiver.says["/hook"] = receivers.hang
        sender.run(0.2)
    else:
        tenants.send()
        endpoints.disable(told.endpoint, "gone")
    before = told.delivery()
    answer = replay(staff("view_webhookdelivery", "replay_webhookdelivery"), told.delivery().pk)
    assert "0 of 1 are due again" in answer.content.decode()
    assert told.delivery().due_at == before.due_at
    assert LogEntry.objects.count() == 0
    told.receiver.released.set()
    sender.run(10)


def test_no_page_shows_a_secret(told: Told, as_role: Roles) -> None:
    told.park()
    tenants.send()
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    endpoint, delivery = told.endpoint_id, told.delivery().pk
    with as_role("api"):
        for path in (
            "webhookendpoint/",
            f"webhookendpoint/{endpoint}/change/",
            "webhookdelivery/",
            f"webhookdelivery/{delivery}/change/",
        ):
            page = root.get(f"/admin/bookings/{path}")
            assert page.status_code == 200, path
            assert told.secret.removeprefix("whsec_")[:8] not in page.content.decode()
        assert root.get("/admin/bookings/webhooksecret/").status_code == 404
