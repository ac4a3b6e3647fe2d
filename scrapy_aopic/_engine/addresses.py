"""The downloader's resolver of host names, which withholds addresses to which nothing may be sent.

Twisted looks up each host that it connects to, numbers included, and connects to the address that the reactor's resolver
gives. So the decision is about that very address: a name that resolves differently the next time gains nothing.
"""

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
from .network import TransferWatch

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEMBERED = 10_000
"""Addresses that are remembered: 2 MB. As many as Scrapy's resolver remembers (``DNSCACHE_SIZE``)."""


class _Doorkeeper:
    """Hands to *receiver* the addresses to which a transfer may go (``IResolutionReceiver``)."""

    def __init__(self, receiver: Any, watch: TransferWatch) -> None:
        self._receiver = receiver
        self._watch = watch
        self.resolutionBegan = receiver.resolutionBegan
        self.resolutionComplete = receiver.resolutionComplete

    def addressResolved(self, address: Any) -> None:
        if self._watch.lets(address.host):
            self._receiver.addressResolved(address)


class _GuardedResolver:
    """Asks *resolver*, and withholds from a download the addresses to which it may not go (``IHostnameResolver``).

    Look-ups by other parts of the process pass unchanged.
    """

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver

    def resolveHostName(self, receiver: Any, *args: Any, **kwargs: Any) -> Any:
        watch = TransferWatch.current.get()
        if watch is not None and watch.door is not None:
            receiver = _Doorkeeper(receiver, watch)
        return self._resolver.resolveHostName(receiver, *args, **kwargs)


def guard_resolver() -> None:
    """Have the resolver of the reactor ask each transfer where it may go."""
    if is_reactor_installed():
        from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

        pluggable = cast("Any", reactor)
        if not isinstance(pluggable.nameResolver, _GuardedResolver):
            pluggable.installNameResolver(_GuardedResolver(pluggable.nameResolver))


class _ResolutionReceiver:
    """Takes the first address that Twisted finds (``IResolutionReceiver``)."""

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
    """Network addresses of hosts; each is looked up once at a time, and nothing waits for it.

    With a reactor they come from the resolver that the downloader uses, and its cache, so that they are those that it
    connects to.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._pending: dict[str, list[Callable[[str], None]]] = {}

    def get(self, name: str) -> str:
        """Address of the host called *name*, empty if it is not known."""
        return self._known.get(name, "")

    def note(self, name: str, address: str) -> None:
        """The host called *name* has *address*."""
        self._known[name] = address
        self._known.move_to_end(name)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def look_up(self, name: str, found: Callable[[str], None]) -> None:
        """Call *found* with the address of the host called *name*, empty if it has none; maybe at once."""
        known = self.get(name) or (name if _is_address(name) else "")
        if known or not name:
            found(known)
        elif name in self._pending:
            self._pending[name].append(found)
        else:
            self._pending[name] = [found]
            self._resolve(name)

    async def find(self, name: str) -> str:
        """Address of the host called *name*, empty if it has none."""
        from scrapy.utils.defer import maybe_deferred_to_future  # noqa: PLC0415  # as in start

        address: Deferred[str] = Deferred()
        self.look_up(name, address.callback)
        return await maybe_deferred_to_future(address)

    def _resolve(self, name: str) -> None:
        if not is_reactor_installed():
            start(partial(self._resolve_by_loop, name))
            return
        from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

        receiver = _ResolutionReceiver(partial(self._resolved, name))
        try:
            cast("Any", reactor).nameResolver.resolveHostName(receiver, name)
        except ValueError:  # no name that could be one
            self._resolved(name, "")

    async def _resolve_by_loop(self, name: str) -> None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            found = []
        self._resolved(name, str(found[0][4][0]) if found else "")

    def _resolved(self, name: str, address: str) -> None:
        if address:
            self.note(name, address)
        for found in self._pending.pop(name, ()):
            found(address)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
