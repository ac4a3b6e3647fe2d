"""Which hosts and addresses a crawl may go to: the Internet, and what its operator allows beside it.

A link is anybody's. One to ``http://169.254.169.254/`` is followed from inside, by a process that may reach what its
author may not: the keys of a cloud's metadata service, the pages of an intranet, the ports of the machine itself. So an
address that is not public is refused, in whatever form a URL has it, and so is whatever name resolves to one.

What is decided by the text of a URL is decided here before it is queued. What a name resolves to is known when the
connection is made, and :mod:`scrapy_aopic._engine.addresses` asks then.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

Address: TypeAlias = IPv4Address | IPv6Address

_LOCAL_DOMAINS = frozenset(
    # RFC 6761, 6762 with its appendix G, 8375, and what ICANN keeps for private use.
    ("localhost", "local", "localdomain", "internal", "intranet", "private", "corp", "home", "lan")
)
_LOCAL_SUFFIX = ".home.arpa"

LOCAL_ENDS = _LOCAL_DOMAINS | {"arpa"}
"""Ends of all names that may be local, unless they have no dot."""

_LOOPBACK = IPv4Address("127.0.0.1")

_INSIDE = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",  # shared: carriers, Tailscale, Alibaba's metadata
            "168.63.129.16/32",  # Azure's, which looks public
            "192.0.0.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "240.0.0.0/4",
            "100::/64",
            "fec0::/10",
        ),
    )
)
"""Networks that are not public although some version of :mod:`ipaddress` takes them for it."""

_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"), IPv6Network("::ffff:0:0:0/96"))
"""Addresses of IPv4 in the last 32 bits: NAT64 (RFC 6052), IPv4-compatible, and translated (RFC 2765)."""

_SERVICE_PORTS = {
    port: place
    for place, port in enumerate((
        # Those that browsers block (https://fetch.spec.whatwg.org/#port-blocking).
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
        110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
        532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
        5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
        # Redis and Memcached: they take the lines of a request for commands.
        6379, 11211,
    ), start=1)
}  # fmt: skip
"""Ports of services other than the Web, with the number by which jobs know each: new ones come last."""

ADDRESS = 1
"""An exception that a seed makes for its host: that its address is local. The other one is a port of another service."""

_PLACE_BITS, _MOST_PORTS = 7, 9
"""Bits of a number of :data:`_SERVICE_PORTS`, and how many ports of a host fit into 64 bits beside :data:`ADDRESS`."""


def _ports_in(what: int) -> list[int]:
    """Numbers of the ports in *what* a host is allowed."""
    places = what >> 1
    return [places >> bit & 127 for bit in range(0, places.bit_length(), _PLACE_BITS)]


def _joined(one: int, other: int) -> int:
    """What is allowed in *one* or the *other*. The first nine ports of a host count: who needs more has the setting."""
    ports = list(dict.fromkeys(_ports_in(one) + _ports_in(other)))[:_MOST_PORTS]
    return (one | other) & ADDRESS | sum(place << 1 + _PLACE_BITS * n for n, place in enumerate(ports))


_AUTHORITY = re.compile(
    r"(?:https?|ftp)://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/?#:]*)(?::([0-9]{1,5}))?", re.IGNORECASE
)


class Allowed(NamedTuple):
    """Networks, hosts and ports that an operator allows beside the Internet (``AOPIC_ALLOW_NETWORKS``).

    Attributes:
        networks: Addresses.
        names: Hosts, with all below them, whatever they resolve to.
        ports: Ports of :data:`_SERVICE_PORTS`.
    """

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    names: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()


_REMEMBERED = 10_000
"""Hosts whose verdicts are remembered."""


def literal_address(host: str) -> Address | None:
    """The address that *host* is, in any form that a resolver reads: ``127.1``, ``0x7f000001``, ``[::1]``; ``None`` for a name.

    ``localhost`` and what is below it are one, too, by definition.
    """
    name = host.strip("[]").rstrip(".").lower()
    if "%" in name and ":" not in name:
        name = unquote(name).lower()
    if ":" in name:
        try:
            return ip_address(name)
        except ValueError:
            return None
    last = name.rpartition(".")[2]
    if last == "localhost":
        return _LOOPBACK
    if last[:1].isdigit():
        try:
            return IPv4Address(socket.inet_aton(name))
        except (OSError, ValueError):
            return None
    return None


def _all_of(address: Address) -> tuple[Address, ...]:
    """*address*, and those of IPv4 that it stands for: mapped, translated, tunnelled."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    others: list[Address] = []
    if address.sixtofour is not None:
        others.append(address.sixtofour)
    if address.teredo is not None:
        others += address.teredo
    if any(address in network for network in _TRANSLATED):
        low = IPv4Address(int(address) & 0xFFFFFFFF)
        # ::, ::1 and their neighbours are addresses of their own.
        return (address, low) if int(address) < 1 << 16 else (low,)
    return (address, *others)


def _is_public(address: Address) -> bool:
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        and not any(address.version == network.version and address in network for network in _INSIDE)
    )


def _is_local_name(host: str) -> bool:
    """Whether *host* is a name that means something else to each network: one without a dot, or below ``.internal`` ..."""
    name = host.rstrip(".").lower()
    return "." not in name or name.rpartition(".")[2] in _LOCAL_DOMAINS or name.endswith(_LOCAL_SUFFIX)


class Networks:
    """Where a crawl may go.

    Args:
        allowed: What is allowed beside the Internet; ``None`` for everything.
    """

    def __init__(self, allowed: Allowed | None) -> None:
        self._allowed = allowed
        self._named: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []
        # Hosts that were refused, whose verdicts others may remember.
        self._refused: set[str] = set()

    @property
    def are_all_open(self) -> bool:
        """Whether everything is allowed."""
        return self._allowed is None

    def on_change(self, forget: Callable[[], None]) -> None:
        """Have *forget* called when a seed allows what was refused before."""
        self._listeners.append(forget)

    # -- what seeds allow

    def name(self, url: str) -> int:
        """A seed has *url*: allow its host if that is not public, and its port; returns all that is allowed of the host."""
        if self._allowed is None or (match := _AUTHORITY.match(url)) is None:
            return 0
        host = _plain(match[1])
        needs = 0 if _is_public_host(host) else ADDRESS
        if match[2]:
            needs |= _SERVICE_PORTS.get(int(match[2]), 0) << 1
        self.admit(host, needs)
        return self._named.get(host, 0)

    def named(self, url: str) -> int:
        """What seeds have allowed of the host of *url*; 0 for nothing."""
        match = _AUTHORITY.match(url) if self._named else None
        return self._named.get(_plain(match[1]), 0) if match is not None else 0

    def admit(self, host: str, what: int) -> None:
        """Allow *what*, which :meth:`name` returned, of *host*, as a seed does, or did in an earlier run."""
        host = _plain(host)
        known = self._named.get(host, 0)
        if (joined := _joined(known, what)) != known:
            self._named[host] = joined
            if host in self._refused:
                self.forget()

    def forget(self) -> None:
        """Let nobody remember what was refused."""
        self._refused.clear()
        for forget in self._listeners:
            forget()

    def _refuse(self, host: str) -> bool:
        """Note that *host* is refused."""
        if len(self._refused) >= _REMEMBERED:
            self.forget()
        self._refused.add(_plain(host))
        return True

    # -- what is refused

    def refusal(self, url: str, *, is_by_others: bool) -> str:
        """Why *url* is refused by its text: its host (``network``) or its port (``service``); ``""`` if it is not.

        Args:
            is_by_others: Whether others resolve its host, as a proxy does: then a local name has to be allowed as such.
        """
        if self._allowed is None or (match := _AUTHORITY.match(url)) is None:
            return ""
        host, port = match[1], int(match[2] or 80)
        if port not in _SERVICE_PORTS and _is_public_host(host):
            return ""
        if self.refuses_host(host) or (is_by_others and self._refuses_name(host)):
            return "network"
        return "service" if self.refuses_port(host, port) else ""

    def refuses_port(self, host: str, port: int) -> bool:
        """Whether *port* of *host* is refused."""
        return (
            port in _SERVICE_PORTS
            and self._allowed is not None
            and port not in self._allowed.ports
            and _SERVICE_PORTS[port] not in _ports_in(self._named.get(_plain(host), 0))
            and self._refuse(host)
        )

    def door(self, host: str) -> Callable[[str], bool] | None:
        """A function that tells whether *host* may be connected to at an address; ``None`` if at any."""
        return None if self._allowed is None or self._is_named(host) else self._lets

    def _lets(self, address: str) -> bool:
        try:
            return self._is_allowed(ip_address(address))
        except ValueError:  # no address that could be judged
            return False

    def _is_allowed(self, address: Address) -> bool:
        assert self._allowed is not None
        return all(
            _is_public(each)
            or any(each.version == network.version and each in network for network in self._allowed.networks)
            for each in _all_of(address)
        )

    def refuses_host(self, host: str) -> bool:
        """Whether *host*, of a URL, is refused by its text, whatever it resolves to."""
        return self._judge(host) and not self._is_named(host) and self._refuse(host)

    def _judge(self, host: str) -> bool:
        """Whether *host* is refused unless an operator has allowed it."""
        if self._allowed is None or _is_public_host(host):
            return False
        address = literal_address(host)
        if address is not None:
            return not self._is_allowed(address)
        return not self._allowed.networks  # with networks of one's own, a local name is what it resolves to

    def _refuses_name(self, host: str) -> bool:
        return (
            literal_address(host) is None
            and _is_local_name(host)
            and not self._is_named(host)
            and self._refuse(host)
        )

    def _is_named(self, host: str) -> bool:
        """Whether an operator has allowed the address of *host*, by a seed or by its name."""
        if self._allowed is None:
            return True
        host = _plain(host)
        names = self._allowed.names
        if names and any(host == name or host.endswith(f".{name}") for name in names):
            return True
        return bool(self._named.get(host, 0) & ADDRESS)


def _plain(host: str) -> str:
    """*host* in the form that all its other forms come to."""
    name = host.strip("[]").rstrip(".").lower()
    if ":" in name or name.rpartition(".")[2][:1].isdigit():
        return str(literal_address(name) or name)
    return name


@lru_cache(10_000)
def _is_public_host(host: str) -> bool:
    """Whether *host* is public as far as its text shows."""
    address = literal_address(host)
    if address is None:
        return not _is_local_name(host)
    return all(map(_is_public, _all_of(address)))
