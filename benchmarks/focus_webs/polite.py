"""The same crawl with politeness, on a virtual clock, so that two strategies can be compared without the noise of real ones.

It has what an order meets in a real crawl: several pages are under way at once, so links are valued before the last pages were
learned from; and each host wants its gap, so the best page of all is seldom one that may be requested. It leaves out the
processor, errors, redirects, and connections that are kept free of slow hosts.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from . import Web
from .simulation import Crawl, Policy, Remembered

_GAP, _ROBOTS = -1, -2
"""In the place of a page: the gap of a host is over, or its robots.txt was read."""


class Pace(NamedTuple):
    """How a polite crawl goes.

    Attributes:
        connections: Transfers under way at once.
        factor: Times that a transfer took for which its host is left alone after it.
        least: Seconds that a transfer takes beside the host's own.
    """

    connections: int = 4
    factor: float = 2.0
    least: float = 0.01


class PoliteCrawl(Crawl):
    """A crawl with several connections, and a gap after each transfer from a host, on a virtual clock.

    How long a host takes is drawn for each crawl as the demo web of the example project draws it: four of five are fast, one of
    twelve takes some tenths of a second. Its robots.txt comes first.
    """

    def __init__(
        self,
        web: Web,
        labels: Sequence[bool],
        topic: Remembered,
        policy: tuple[str, Policy],
        seed: int,
        *,
        pace: Pace,
    ) -> None:
        super().__init__(web, labels, topic, policy, seed)
        self.pace = pace
        self.seed = seed
        self.host_of = [urlsplit(page.url).netloc for page in web.pages]
        self.queues_of: dict[str, list[tuple[float, int, int]]] = {}
        self.ready: list[tuple[float, int, str]] = []
        self.busy: set[str] = set()
        self.taken: set[int] = set()
        self.seconds: dict[str, float] = {}

    def transfer(self, host: str) -> float:
        """Seconds that a transfer from *host* takes."""
        found = self.seconds.get(host)
        if found is None:
            draw = random.Random(f"{host} {self.seed}")
            kind = draw.random()
            low, high = (0.2, 0.6) if kind < 0.08 else (0.03, 0.08) if kind < 0.2 else (0.002, 0.015)
            found = self.seconds[host] = self.pace.least + draw.uniform(low, high)
        return found

    def push(self, page: int) -> None:
        host = self.host_of[page]
        entry = -self.score(page), self.order[page], page
        heapq.heappush(self.queues_of.setdefault(host, []), entry)
        if host not in self.busy:
            heapq.heappush(self.ready, (*entry[:2], host))

    def best(self, host: str) -> tuple[float, int, int] | None:
        """The best page of *host* that waits, as its entry."""
        queue = self.queues_of[host]
        while queue:
            key, _, page = queue[0]
            if page not in self.taken and -key == self.score(page):
                return queue[0]
            heapq.heappop(queue)
        return None

    def free(self, host: str) -> None:
        """*host* may be requested again."""
        self.busy.discard(host)
        best = self.best(host)
        if best is not None:
            heapq.heappush(self.ready, (*best[:2], host))

    def take(self) -> int | None:
        """The best page of all hosts that may be requested; ``None`` if there is none."""
        while self.ready:
            key, order, host = heapq.heappop(self.ready)
            best = self.best(host) if host not in self.busy else None
            if best is None:
                continue
            if best[:2] == (key, order):
                return best[2]
            heapq.heappush(self.ready, (*best[:2], host))
        return None

    def run(self, seeds: Sequence[int], fetches: int) -> list[int]:
        """Numbers of the pages that it requests, in their order."""
        done: dict[int, None] = {}
        requested: list[int] = []
        self.begin(seeds)
        events: list[
            tuple[float, int, str, int]
        ] = []  # when, in which order, a host, and its page; -1 if its gap is over
        now, n_events, connections = 0.0, 0, self.pace.connections
        known: set[str] = set()
        begin = time.process_time()
        while len(requested) < fetches:
            while connections and len(requested) < fetches and (page := self.take()) is not None:
                host = self.host_of[page]
                self.busy.add(host)
                connections -= 1
                n_events += 1
                if host in known:
                    requested.append(page)
                    self.taken.add(page)
                    heapq.heappush(events, (now + self.transfer(host), n_events, host, page))
                else:
                    known.add(host)
                    heapq.heappush(events, (now + self.transfer(host), n_events, host, _ROBOTS))
            if not events:
                break
            now, _, host, page = heapq.heappop(events)
            if page == _GAP:
                self.free(host)
                continue
            connections += 1
            n_events += 1
            heapq.heappush(events, (now + self.pace.factor * self.transfer(host), n_events, host, _GAP))
            if page >= 0:
                done[page] = None
                self.visit(page, done)
        self.spent += time.process_time() - begin
        return requested
