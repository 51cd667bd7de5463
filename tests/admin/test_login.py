"""Passwords of staff are guessed slowly, from many addresses too, and a right one then tells nothing."""

import secrets
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from bookings.api import rates
from config import staff_login
from tests.api.test_rates import PATIENCE_SECONDS
from tests.api.test_wrong_keys import somewhere

MOST = staff_login.PASSWORDS_PER_MINUTE
PASSWORD = secrets.token_hex(10)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_shared", rates._Shared())
    monkeypatch.setattr(rates, "TIMEOUT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def boss(database: None) -> str:
    name = f"boss-{secrets.token_hex(4)}"
    User.objects.create_superuser(name, password=PASSWORD)
    return name


def log_in(name: str, password: str, address: str) -> Any:
    form = {"username": name, "password": password}
    return Client(REMOTE_ADDR=address).post("/admin/login/?next=/admin/", form)


def test_of_an_account_only_so_many_are_tried_from_wherever(boss: str) -> None:
    assert log_in(boss, PASSWORD, somewhere()).status_code == 302
    for _ in range(MOST):
        assert b"Please enter the correct" in log_in(boss, "wrong", somewhere()).content
    refused = log_in(boss, PASSWORD, somewhere())
    assert refused.status_code == 200
    assert b"Too many wrong passwords" in refused.content
    assert "sessionid" not in refused.cookies


def test_of_an_address_only_so_many_are_tried_for_whomever(boss: str) -> None:
    address = somewhere()
    for _ in range(MOST):
        log_in(secrets.token_hex(4), "wrong", address)
    assert b"Too many wrong passwords" in log_in(boss, PASSWORD, address).content
    assert log_in(boss, PASSWORD, somewhere()).status_code == 302


def test_right_passwords_count_for_nothing(boss: str) -> None:
    address = somewhere()
    statuses = [log_in(boss, PASSWORD, address).status_code for _ in range(MOST + 2)]
    assert set(statuses) == {302}
