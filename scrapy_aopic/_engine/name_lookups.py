"""Looks up host names, hundreds at a time, and remembers for some minutes what was found.

The system's resolver does it (``getaddrinfo``), in threads that only wait: it knows ``/etc/hosts`` and local names, has both
families of addresses, and may have a cache of its own, which obeys the time to live of answers. It tells nobody what that is.
"""

from __future__ import annotations

import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic
from typing import NamedTuple

from scrapy.utils.asyncio import CallLaterResult, call_later
from twisted.internet.defer import Deferred

_THREADS = 256
"""Names that the system is asked for at once: some 16 MB, and a socket for each."""

_KEPT = 300.0
"""Seconds for which addresses are used: names whose answers hold for less are those of large networks, which move slowly."""

_KEPT_IF_NONE, _KEPT_IF_UNKNOWN = 60.0, 5.0
"""The same for a name that there is not, and for one of which nothing could be found out."""

_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class Answer(NamedTuple):
    """What is known of a name.

    Attributes:
        addresses: Its addresses, those of IPv4 first.
        is_final: Whether it has none because there is no such name; else nothing could be found out this time.
    """

    addresses: tuple[str, ...] = ()
    is_final: bool = False


def _ask_system(name: str) -> Answer:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except (OSError, ValueError) as error:  # the latter for what cannot be a name
        return Answer((), isinstance(error, ValueError) or error.errno in _NO_SUCH_NAME)
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return Answer(tuple(dict.fromkeys(str(each[4][0]) for each in found)))


class LookupThreads:
    """Asks the system for names, each in a thread that the end of the process does not wait for.

    Args:
        in_loop: Calls a function in the event loop; it is called in a thread.
    """

    def __init__(self, in_loop: Callable[[Callable[[], None]], object]) -> None:
        self._in_loop = in_loop
        self._waiting: deque[tuple[str, Callable[[Answer], None]]] = deque()
        self._n = 0

    def ask(self, name: str, found: Callable[[Answer], None]) -> None:
        """Call *found* with what the system says of *name*."""
        self._waiting.append((name, found))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._n < _THREADS:
            if self._can_start(*self._waiting[0]):
                self._waiting.popleft()
                self._n += 1
            elif self._n:
                return
            else:
                self._waiting.popleft()[1](Answer())

    def _can_start(self, name: str, found: Callable[[Answer], None]) -> bool:
        try:
            Thread(target=self._run, args=(name, found), daemon=True).start()
        except RuntimeError:  # the system allows no more threads
            return False
        return True

    def _run(self, name: str, found: Callable[[Answer], None]) -> None:
        answer = _ask_system(name)
        with suppress(RuntimeError):  # the event loop has been closed
            self._in_loop(partial(self._over, found, answer))

    def _over(self, found: Callable[[Answer], None], answer: Answer) -> None:
        self._n -= 1
        self._begin()
        found(answer)


class NameLookups:
    """Names and their addresses; each name is asked for once at a time.

    Args:
        ask: Calls back with what is found of a name, maybe at once.
        size: Names that are remembered.
        timeout: Seconds after which nothing could be found out.
        is_kept: Whether what was found serves more than one connection.
    """

    def __init__(
        self,
        ask: Callable[[str, Callable[[Answer], None]], None],
        *,
        size: int,
        timeout: float,
        is_kept: bool,
    ) -> None:
        self._ask = ask
        self._size = size
        self._timeout = timeout
        self._is_kept = is_kept
        self._known: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._waiting: dict[str, list[Callable[[Answer], None]]] = {}
        self._timers: dict[str, CallLaterResult] = {}

    def known(self, name: str) -> Answer | None:
        """What is known of *name* now."""
        until, answer = self._known.get(name, (0.0, None))
        return answer if until > monotonic() else None

    def take(self, name: str) -> Answer | None:
        """The same, for a connection."""
        answer = self.known(name)
        if answer is not None and not self._is_kept:
            del self._known[name]
        return answer

    async def get(self, name: str) -> Answer:
        """What can be found out of *name*."""
        from scrapy.utils.defer import maybe_deferred_to_future  # noqa: PLC0415  # needs an installed reactor in old versions

        answer: Deferred[Answer] = Deferred()
        self.find(name, answer.callback)
        return await maybe_deferred_to_future(answer)

    def find(self, name: str, found: Callable[[Answer], None]) -> None:
        """Call *found* with what is known of *name*, maybe at once."""
        answer = self.known(name)
        if answer is not None:
            found(answer)
        elif name in self._waiting:
            self._waiting[name].append(found)
        else:
            self._waiting[name] = [found]
            self._timers[name] = call_later(self._timeout, self._note, name, Answer())
            self._ask(name, partial(self._note, name))

    def _note(self, name: str, answer: Answer) -> None:
        if name in self._timers:
            self._timers.pop(name).cancel()
        kept = _KEPT if answer.addresses else _KEPT_IF_NONE if answer.is_final else _KEPT_IF_UNKNOWN
        if kept == _KEPT_IF_UNKNOWN and name in self._known:
            answer = self._known[name][1]  # better an old address than none
        self._known[name] = (monotonic() + kept, answer)
        self._known.move_to_end(name)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        for found in self._waiting.pop(name, ()):
            found(answer)
