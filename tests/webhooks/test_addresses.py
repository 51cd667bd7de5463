"""Where a webhook may go: every way to name a machine of ours that is known to have worked somewhere is refused."""

import ipaddress
import socket
import threading
import time

import pytest

from bookings.webhooks import addresses, egress
from bookings.webhooks.addresses import Refused, Rules

PUBLIC = Rules(ports=(443,), allows_http=False, networks=())


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://127.0.0.1/", "address"),
        ("https://[::1]/", "address"),
        ("https://169.254.169.254/latest/meta-data", "address"),
        ("https://10.1.2.3/", "address"),
        ("https://172.16.0.1/", "address"),
        ("https://192.168.1.1/", "address"),
        ("https://100.64.0.1/", "address"),
        ("https://0.0.0.0/", "address"),
        ("https://224.0.1.1/", "address"),
        ("https://168.63.129.16/", "address"),
        ("https://[::ffff:127.0.0.1]/", "address"),
        ("https://[::ffff:7f00:1]/", "address"),
        ("https://[64:ff9b::7f00:1]/", "address"),
        ("https://[2002:7f00:1::]/", "address"),
        ("https://[::7f00:1]/", "address"),
        ("https://[fd00:ec2::254]/", "address"),
        ("https://[fe80::1]/", "address"),
        ("https://[fe80::1%25eth0]/", "address"),
        ("https://[fec0::1]/", "address"),
        ("https://[ff0e::1]/", "address"),
        ("https://0x7f000001/", "host"),
        ("https://2130706433/", "host"),
        ("https://127.1/", "host"),
        ("https://0177.0.0.1/", "host"),
        ("https://127.0.0.0x1/", "host"),
        ("https://127.0.0.1./", "address"),
        ("https://\uff11\uff12\uff17.0.0.1/", "address"),
        ("https://127\u30020\u30020\u30021/", "address"),
        ("https://localhost/", "host"),
        ("https://localhost./", "host"),
        ("https://\u24dbocalhost/", "host"),
        ("https://internal/", "host"),
        ("https:///", "host"),
        ("https://ex_ample.com/", "host"),
        ("https://a..example.com/", "host"),
        ("https://" + "a" * 64 + ".example.com/", "host"),
        ("https://[::1/", "syntax"),
        ("https://example.com:99999/", "syntax"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://example.com/", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("http://example.com/", "scheme"),
        ("//example.com/", "scheme"),
        ("example.com", "scheme"),
        ("https://user@example.com/", "userinfo"),
        ("https://example.com:443@127.0.0.1/", "userinfo"),
        ("https://example.com:5432/", "port"),
        ("https://example.com:6379/", "port"),
        ("https://example.com:80/", "port"),
        ("https://example.com/#x", "fragment"),
        ("https://example.com/ x", "characters"),
        ("https://exa\tmple.com/", "characters"),
        ("https://example.com/\r\nHost: x", "characters"),
        ("https://example.com\\@127.0.0.1/", "characters"),
        ("https://example.com/\u00fc", "characters"),
    ],
)  # fmt: skip
def test_a_url_that_no_webhook_may_have(url: str, code: str) -> None:
    with pytest.raises(Refused) as met:
        addresses.parse(url, PUBLIC)
    assert met.value.code == code


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://hooks.example.com", "https://hooks.example.com/"),
        ("https://Hooks.Example.COM.:443/a?b=%20", "https://hooks.example.com/a?b=%20"),
        ("https://b\u00fccher.example/x", "https://xn--bcher-kva.example/x"),
        ("HTTPS://example.com/", "https://example.com/"),
        ("https://9.9.9.9/", "https://9.9.9.9/"),
        ("https://[2620:fe::fe]/", "https://[2620:fe::fe]/"),
    ],
)
def test_a_url_has_one_spelling(url: str, read: str) -> None:
    target = addresses.parse(url, PUBLIC)
    assert target.url == read
    assert addresses.parse(target.url, PUBLIC) == target


@pytest.mark.parametrize(
    ("address", "ends_at_a_public_one"),
    [
        ("8.8.8.8", True), ("2620:fe::fe", True), ("64:ff9b::808:808", True), ("::ffff:8.8.8.8", True),
        ("64:ff9b::a00:1", False), ("64:ff9b:1::808:808", False), ("2001::1", False), ("2001:db8::1", False),
        ("2002:808:808::", False), ("3fff::1", False), ("5f00::1", False), ("192.0.0.192", False),
        ("192.88.99.1", False), ("198.18.0.1", False), ("203.0.113.1", False), ("240.0.0.1", False),
        ("255.255.255.255", False), ("fe80::1%eth0", False), ("2620:fe::fe%eth0", False),
    ],
)  # fmt: skip
def test_an_address_is_judged_by_where_a_packet_to_it_ends(
    address: str, *, ends_at_a_public_one: bool
) -> None:
    found = addresses.is_allowed(ipaddress.ip_address(address), ())
    assert found is ends_at_a_public_one


def test_a_setting_may_allow_more_and_only_that() -> None:
    rules = Rules((443, 8000), allows_http=True, networks=[ipaddress.ip_network("127.0.0.0/30")])
    assert addresses.parse("http://127.0.0.1:8000/x", rules).url == "http://127.0.0.1:8000/x"
    for url in ("http://127.0.0.9:8000/", "http://10.0.0.1:8000/", "ftp://127.0.0.1:8000/"):
        with pytest.raises(Refused):
            addresses.parse(url, rules)


def resolver(*found: str) -> object:
    return lambda *_args, **_kwargs: [(2, 1, 6, "", (address, 443)) for address in found]


@pytest.mark.parametrize("found", [("127.0.0.1",), ("9.9.9.9", "10.0.0.1"), ("2620:fe::fe", "::1")])
def test_one_private_address_among_many_is_enough(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...]
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolver(*found))
    with pytest.raises(Refused) as met:
        egress.look_up(addresses.parse("https://hooks.example.com/", PUBLIC), 5)
    assert met.value.code == "address"


def test_public_addresses_are_all_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolver("9.9.9.9", "2620:fe::fe", "9.9.9.9"))
    known = egress.look_up(addresses.parse("https://hooks.example.com/", PUBLIC), 5)
    assert [str(address) for address in known] == ["9.9.9.9", "2620:fe::fe"]


def test_a_name_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolver())
    """It looks like one of a machine of ours: which names there are inside is not told."""
    target = addresses.parse("https://hooks.example.com/", PUBLIC)
    with pytest.raises(Refused) as unknown:
        egress.look_up(target, 5)
    monkeypatch.setattr(socket, "getaddrinfo", resolver("10.0.0.1"))
    with pytest.raises(Refused) as ours:
        egress.look_up(target, 5)
    assert (unknown.value.code, unknown.value.detail) == (ours.value.code, ours.value.detail)


def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: released.wait(20) and [])
    started = time.monotonic()
    with pytest.raises(Refused, match="in time"):
        egress.look_up(addresses.parse("https://hooks.example.com/", PUBLIC), 0.2)
    assert time.monotonic() - started < 5
    released.set()
