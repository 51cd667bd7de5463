"""Which URLs a webhook may have, and which addresses it may reach. Pure.

The promise: a tenant cannot make us speak to a machine that is not on the public internet. A URL has one spelling of
its host that everybody here reads alike: what a resolver might take for a number (`0x7f000001`, `127.1`) is refused
before any does. An address is judged as what a packet to it ends at, so that an IPv4 address inside an IPv6 one counts.
"""

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import idna

DEFAULT_PORTS = {"https": 443, "http": 80}
HOST_LENGTH = 253
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Printable ASCII for all but the host; no space, no backslash, which some readers take for a slash.
_PLAIN = re.compile(r"[!-\[\]-~]*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNICAST = ipaddress.ip_network("2000::/3")  # all that was ever handed out
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Global by the tables of some releases of Python, and no place of a customer's: relays, documentation, and the address
# at which a cloud answers to its machines.
_NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    )
)  # fmt: skip


class Refused(Exception):
    """A URL or an address that nothing is sent to. `code` is a word for logs and clients, `detail` a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Rules:
    """What settings allow beside the public internet over TLS: for tests and development."""

    ports: Collection[int]
    allows_http: bool
    networks: Sequence[Network]


@dataclass(frozen=True, slots=True)
class Target:
    """A URL, read. `host` is ASCII, in lower case, a full name or an address without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_address(self) -> bool:
        """Not a name; one that was judged when it was read."""
        return _address(self.host) is not None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def parse(url: str, rules: Rules) -> Target:
    """Read a URL; Refused for one that no webhook may have."""
    parts, port = _split(url)
    if parts.scheme != "https" and not (rules.allows_http and parts.scheme == "http"):
        raise Refused("scheme", "must begin with https://")
    if "@" in parts.netloc:
        raise Refused("userinfo", "must not hold a user name or password")
    if "#" in url:
        raise Refused("fragment", "must not have a fragment")
    found = _host(parts.hostname or "")
    target = Target(parts.scheme, found, port or DEFAULT_PORTS[parts.scheme], _path(parts))
    if target.port not in rules.ports:
        raise Refused("port", f"must have one of the ports {_all(rules.ports)}")
    if (literal := _address(found)) is not None and not is_allowed(literal, rules.networks):
        raise Refused("address", "must not be at a private or reserved address")
    return target


def is_allowed(address: Address, networks: Sequence[Network]) -> bool:
    """Whether a packet to it ends at a machine of the public internet, or in one of these networks."""
    if any(address in network for network in networks):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if (inner := _inside(address)) is not None:
            return is_allowed(inner, networks)
        if address.scope_id is not None or address not in _UNICAST:
            return False
    is_odd = address.is_multicast or address.is_reserved or any(address in n for n in _NEVER)
    return address.is_global and not is_odd


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def _split(url: str) -> tuple[SplitResult, int | None]:
    if (
        not url.isprintable() or " " in url or "\\" in url
    ):  # urlsplit would drop some of them in silence
        raise Refused("characters", "must not contain spaces, backslashes or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused("syntax", "is not a URL") from None
    return parts, port


def _host(host: str) -> str:
    """The host in its one spelling: an address as Python writes it, or a full name as IDNA 2008 has it."""
    if (literal := _address(host)) is not None:
        return str(literal)
    try:
        name = idna.encode(host.removesuffix("."), uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError):
        raise Refused("host", "must have a valid host name") from None
    if (literal := _address(name)) is not None:  # digits of another script
        return str(literal)
    labels = name.removesuffix(".").split(".")
    if len(labels) < 2 or len(name) > HOST_LENGTH or _NUMBER.fullmatch(labels[-1]):
        raise Refused("host", "must have a full host name, as in hooks.example.com")
    return ".".join(labels)


def _path(parts: SplitResult) -> str:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _PLAIN.fullmatch(path):
        raise Refused("characters", "must be percent-encoded after the host")
    return path


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _all(ports: Collection[int]) -> str:
    return ", ".join(str(port) for port in sorted(ports))
