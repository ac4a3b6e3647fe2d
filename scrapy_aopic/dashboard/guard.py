"""Decides by the headers of a request who may see the dashboard.

Rule 1: a request that a page of another site makes a browser send is refused. It is recognised by the headers that browsers add
(``Sec-Fetch-Site``, ``Origin``), and by ``Host``: a name that an attacker has pointed here (DNS rebinding) is not one of those
that the server was given.

Rule 2: a visitor knows the token. It comes in the address once, then in a cookie that scripts cannot read and that no
other site's request carries; programs send it as ``Authorization: Bearer``.
"""

from __future__ import annotations

import hmac
import re
from ipaddress import ip_address
from secrets import token_urlsafe
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_aopic.settings import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    Headers = Mapping[str, str] | Message[str, str]

_TOKEN_BYTES = 24
"""Random bytes of a token: 192 bits, which cannot be guessed."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::\d{1,5})?", re.IGNORECASE)

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

ORDER = "Aopic-Order"
"""Header of requests that change something, with any value: a browser asks us before it sends one for another site, and is refused."""

_OWN_SITE = {"", "none", "same-origin"}
"""Values of ``Sec-Fetch-Site`` of requests that no other site has made; empty for clients that do not send it."""


def new_token() -> str:
    """A token for one run."""
    return token_urlsafe(_TOKEN_BYTES)


def _is_wildcard(host: str) -> bool:
    """Whether *host* stands for all addresses of this machine."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return not host


class Guard:
    """Decides about requests.

    Args:
        token: The secret that visitors know.
        host: Address or name that the server listens on.
        port: Port that the server listens on.
    """

    def __init__(self, token: str, host: str, *, port: int = 0) -> None:
        self._token = token.encode("ascii")
        self._takes_addresses = _is_wildcard(host)
        self._names = {host.lower()}
        if is_loopback(host) or self._takes_addresses:
            self._names.update(_LOOPBACK_NAMES)
        self.cookie = f"aopic-{port}"

    def refusal(self, headers: Headers, *, changes: bool = False) -> str:
        """Why a request with these *headers* is refused, as a sentence; empty if it is not.

        Args:
            changes: Whether it asks for a change. It needs :data:`ORDER` then, which no page of another site can have sent.
        """
        host = headers.get("Host", "")
        if not self._is_own(host):
            return (
                "The name in the address is not that of this server: call it as AOPIC_DASHBOARD does, and let a proxy in front of "
                "it do so (Host)."
            )
        if headers.get("Sec-Fetch-Site", "").lower() not in _OWN_SITE:
            return "Requests from pages of other sites are refused; open the address by hand."
        origin = headers.get("Origin")
        if origin is not None and not self._is_same(origin, host):
            return "Requests from pages of other sites are refused."
        if changes and ORDER not in headers:
            return f"The header {ORDER} is missing, which shows that no page of another site has sent this."
        return ""

    def _is_own(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        if name in self._names or name.strip("[]") in self._names:
            return True
        if not self._takes_addresses:
            return False
        try:  # an address cannot be made to lead elsewhere
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    @staticmethod
    def _is_same(origin: str, host: str) -> bool:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False

    def knows(self, token: str) -> bool:
        """Whether *token* is the right one; takes as long for one as for another."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def is_visitor(self, headers: Headers) -> bool:
        """Whether a request with these *headers* shows that its sender knows the token."""
        kind, _, given = headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.knows(given.strip())
        # Other applications on this host may keep what they like beside ours: a strict parser would give all of it up.
        cookies = (cookie.partition("=") for cookie in headers.get("Cookie", "").split(";"))
        return any(name.strip() == self.cookie and self.knows(value.strip()) for name, _, value in cookies)

    def cookie_header(self) -> str:
        """The header by which a browser remembers the token until it is closed."""
        return f"{self.cookie}={self._token.decode('ascii')}; Path=/; HttpOnly; SameSite=Strict"
