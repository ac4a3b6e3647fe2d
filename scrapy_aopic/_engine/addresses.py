"""Looks up the network addresses of hosts with the resolver that the downloader uses."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

from scrapy.utils.reactor import is_reactor_installed
from twisted.internet.defer import Deferred

from .loop import start

if TYPE_CHECKING:
    from collections.abc import Callable

_ADDRESSES = 10_000
"""Addresses that are remembered."""


class _Receiver:
    """Takes the first address that Twisted finds."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found
        self._address = ""

    def resolutionBegan(self, resolution: object) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        self._address = self._address or address.host

    def resolutionComplete(self) -> None:
        self._found(self._address)


class Addresses:
    """Network addresses of hosts, each looked up once at a time and without waiting for it.

    With a reactor they come from the resolver that the downloader uses, and its cache, so that they are the ones
    that it connects to.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._asking: dict[str, list[Callable[[str], None]]] = {}

    def get(self, name: str) -> str:
        """Address of the host called *name*, empty if it is not known."""
        return self._known.get(name, "")

    def note(self, name: str, address: str) -> None:
        """The host called *name* has *address*."""
        self._known[name] = address
        self._known.move_to_end(name)
        if len(self._known) > _ADDRESSES:
            self._known.popitem(last=False)

    def look_up(self, name: str, found: Callable[[str], None]) -> None:
        """Call *found* with the address of the host called *name*, empty if it has none; maybe at once."""
        known = self.get(name) or (name if _is_address(name) else "")
        if known or not name:
            found(known)
        elif name in self._asking:
            self._asking[name].append(found)
        else:
            self._asking[name] = [found]
            self._ask(name)

    async def find(self, name: str) -> str:
        """Address of the host called *name*, empty if it has none."""
        from scrapy.utils.defer import maybe_deferred_to_future  # noqa: PLC0415  # as in start

        answer: Deferred[str] = Deferred()
        self.look_up(name, answer.callback)
        return await maybe_deferred_to_future(answer)

    def _ask(self, name: str) -> None:
        if not is_reactor_installed():
            start(partial(self._ask_loop, name))
            return
        from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

        receiver = _Receiver(partial(self._answer, name))
        try:
            cast("Any", reactor).nameResolver.resolveHostName(receiver, name)
        except ValueError:  # no name that could be one
            self._answer(name, "")

    async def _ask_loop(self, name: str) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            found = []
        self._answer(name, str(found[0][4][0]) if found else "")

    def _answer(self, name: str, address: str) -> None:
        if address:
            self.note(name, address)
        for found in self._asking.pop(name, ()):
            found(address)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
