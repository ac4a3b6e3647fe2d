"""The resolver of host names, which withholds from downloads the addresses to which nothing may be sent.

Twisted looks up each host that it connects to, numbers included, and connects to the addresses that the reactor's resolver
gives, one after the other, the next one after .3 s. So the decision is about those very addresses: a name that resolves
differently the next time gains nothing.

The resolvers that Scrapy and Twisted bring along use some ten threads of the reactor, the end of which waits for them, and
:mod:`.name_lookups` takes their place. One that was put there on purpose stays.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.request import getproxies, proxy_bypass

from scrapy.resolver import CachingThreadedResolver, HostResolution
from scrapy.utils.reactor import is_reactor_installed
from twisted.internet._idna import _idnaBytes
from twisted.internet._resolver import GAIResolver
from twisted.internet.address import IPv4Address, IPv6Address

from .name_lookups import Answer, LookupThreads, NameLookups
from .network import TransferWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import BaseSettings

_REMEMBERED = 10_000
"""Addresses that are remembered: 2 MB."""


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


class _Collector:
    """Collects all addresses that a resolver gives (``IResolutionReceiver``)."""

    def __init__(self, found: Callable[[Answer], None]) -> None:
        self._found = found
        self._addresses: list[str] = []

    def resolutionBegan(self, resolution: object) -> None:
        pass

    def addressResolved(self, address: Any) -> None:
        self._addresses.append(address.host)

    def resolutionComplete(self) -> None:
        self._found(Answer(tuple(self._addresses)))


class _GuardedResolver:
    """Withholds from a download the addresses to which it may not go (``IHostnameResolver``).

    Look-ups by other parts of the process get all addresses.

    Args:
        resolver: What is asked; if it is one that Scrapy or Twisted bring along, the system is.

    Attributes:
        names: What was found.
    """

    def __init__(self, resolver: Any, reactor: Any, settings: BaseSettings) -> None:
        simple = getattr(resolver, "_simpleResolver", None)
        self._is_in_place = type(resolver) is not GAIResolver and type(simple) is not CachingThreadedResolver
        self._resolver = resolver
        ask = self._ask if self._is_in_place else LookupThreads(reactor.callFromThread).ask
        self.names = _names(ask, settings, is_kept=not self._is_in_place)

    def _ask(self, name: str, found: Callable[[Answer], None]) -> None:
        try:
            self._resolver.resolveHostName(_Collector(found), name)
        except ValueError:  # no name that could be one
            found(Answer())

    def resolveHostName(
        self,
        receiver: Any,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: Any = "TCP",
    ) -> Any:
        watch = TransferWatch.current.get()
        if watch is not None and watch.door is not None:
            receiver = _Doorkeeper(receiver, watch)

        def found(answer: Answer) -> None:
            for address in answer.addresses:
                kind = IPv6Address if ":" in address else IPv4Address
                if addressTypes is None or kind in addressTypes:
                    receiver.addressResolved(kind(transportSemantics, address, portNumber))
            receiver.resolutionComplete()

        name = _ascii(hostName)
        answer = _literal(name) or (self.names.take(name) if watch or not self._is_in_place else None)
        if answer is None and self._is_in_place:
            return self._resolver.resolveHostName(
                receiver,
                hostName,
                portNumber=portNumber,
                addressTypes=addressTypes,
                transportSemantics=transportSemantics,
            )
        resolution = HostResolution(hostName)
        receiver.resolutionBegan(resolution)
        if answer is not None:
            found(answer)
        else:
            self.names.find(name, found)
        return resolution


def _names(ask: Any, settings: BaseSettings, *, is_kept: bool) -> NameLookups:
    return NameLookups(
        ask,
        size=max(settings.getint("DNSCACHE_SIZE"), 1),
        timeout=settings.getfloat("DNS_TIMEOUT"),
        is_kept=is_kept and settings.getbool("DNSCACHE_ENABLED"),
    )


def guard_resolver(settings: BaseSettings) -> NameLookups | None:
    """Have the resolver of the reactor ask each transfer where it may go; gives what it has found, if there is a reactor."""
    if not is_reactor_installed():
        return None
    from twisted.internet import reactor  # noqa: PLC0415  # whichever was installed

    pluggable = cast("Any", reactor)
    resolver = pluggable.nameResolver
    if not isinstance(resolver, _GuardedResolver):
        resolver = _GuardedResolver(resolver, pluggable, settings)
        pluggable.installNameResolver(resolver)
    return resolver.names


class Addresses:
    """Network addresses of hosts; each is looked up once at a time, and nothing waits for it.

    With a reactor they come from the resolver that the downloader uses, and what that remembers, so that they are those that
    it connects to.

    Attributes:
        is_direct: Whether the last request went to its host, and not to a proxy, which looks names up itself.
    """

    def __init__(self, settings: BaseSettings) -> None:
        self._settings = settings
        self._proxies = getproxies() if settings.getbool("HTTPPROXY_ENABLED") else {}
        self._known: OrderedDict[str, str] = OrderedDict()
        self._without_reactor: NameLookups | None = None
        self.is_direct = True

    @property
    def names(self) -> NameLookups:
        """What was found of names, and looks them up."""
        names = guard_resolver(self._settings) or self._without_reactor
        if names is None:
            threads = LookupThreads(asyncio.get_running_loop().call_soon_threadsafe)
            names = self._without_reactor = _names(threads.ask, self._settings, is_kept=True)
        return names

    def get(self, name: str) -> str:
        """Address of the host called *name*, empty if it is not known."""
        return self._known.get(name, "")

    def note(self, name: str, address: str) -> None:
        """The host called *name* has *address*."""
        self._known[name] = address
        self._known.move_to_end(name)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def is_nowhere(self, name: str) -> bool:
        """Whether there is no host called *name*, as was just found."""
        answer = self.names.known(name)
        return answer is not None and answer.is_final

    def look_up(self, name: str, found: Callable[[str], None]) -> None:
        """Call *found* with the address of the host called *name* before it is requested, empty if it has none; maybe at once.

        It is looked up anew if need be, and not behind a proxy.
        """
        if name and not _literal(name) and self.is_direct and (not self._proxies or proxy_bypass(name)):
            self.names.find(_ascii(name), lambda answer: found(self._note_answer(name, answer)))
        else:
            found(self.get(name))

    async def find(self, name: str) -> str:
        """Address of the host called *name*, empty if it has none."""
        known = self.get(name) or (name if _literal(name) else "")
        if known or not name:
            return known
        return self._note_answer(name, await self.names.get(_ascii(name)))

    def _note_answer(self, name: str, answer: Answer) -> str:
        if answer.addresses:
            self.note(name, answer.addresses[0])
        return self.get(name)


def _ascii(name: str) -> str:
    """How *name* is asked for."""
    try:
        return (name.encode("ascii") if name.isascii() else _idnaBytes(name)).decode().lower()
    except UnicodeError:
        return name


def _literal(name: str) -> Answer | None:
    """The address that *name* is, if it is one."""
    try:
        ip_address(name)
    except ValueError:
        return None
    return Answer((name,))
