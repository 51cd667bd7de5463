"""Where providers are is said by the deployment alone: no row, and so no tenant and no page of staff, can say otherwise."""

from django.apps import apps

from tests import hotels
from tests.api.conftest import ApiClient
from tests.api.problems import assert_problem

ADDRESSES = ("url", "uri", "host", "port", "address", "endpoint", "domain")
OF_TENANTS = {"bookings.WebhookEndpoint.url"}  # judged at every try


def test_no_row_holds_an_address_but_a_tenants_own() -> None:
    found = {
        f"{model._meta.label}.{field.name}"
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if not field.is_relation and any(part in field.name.split("_") for part in ADDRESSES)
    }
    assert found == OF_TENANTS


def test_a_booking_names_no_provider(database: None) -> None:
    api, body = ApiClient(), hotels.make().stay()
    for member in ("provider", "provider_url", "payment_url", "callback_url"):
        assert_problem(api.post({**body, member: "http://127.0.0.1:1"}), 400, f"/{member}")
    assert hotels.accepted_rows() == (0, 0, 0)
