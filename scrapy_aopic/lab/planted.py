"""Endless traps, and farms of domains, to be planted on a link graph.

Each page of a ``chain`` links to one new page, each page of a ``binary-tree`` to two and of a ``tree`` to ten, each page of a
``mesh`` to five new ones and to five that are known. All pages of a trap are on ``one host`` of its own, or on a ``real-host`` from whose pages it is
entered; or each is on one of its own: on ``sub-hosts`` of one registered domain, or on registered ``domains``; or twenty on
each of many ``sites``.

What traps of real sites are made of is in :mod:`.site_traps`; such a trap is on a real host, and has the URLs of its make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from scrapy_aopic.exceptions import AopicError

from .site_traps import COPIES, EVERYWHERE, SITE_TRAPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .graphs import Graph

CHILDREN = {"chain": 1, "tree": 10, "binary-tree": 2, "mesh": 5}
"""Kinds of traps, with the new pages that each page links to."""

KINDS = (*CHILDREN, *SITE_TRAPS)
"""All kinds of traps."""

ENTERED = {"anywhere": (0.0, 1.0), "early": (0.0, 0.1), "late": (0.5, 1.0)}
"""When a trap may be entered, as parts of the reachable pages of its host, nearest to the seeds first."""

REAL = "real-host"

PAGES = {REAL: 0, "one host": 0, "sub-hosts": 1, "domains": 1, "sites": 20}
"""Where the pages of a trap may be, with the pages of each of its hosts; 0 for all."""

DIRECTORIES = ("root", "one", "own", "nested")
"""Where the paths of a trap's pages may be: in the root of their host, in one directory, each in its own one in the root, or
each in its own one in that of the page that leads to it."""

ENTRIES = 3
"""Real pages that link to a trap, unless somebody says another number."""

_DOMAIN = "endless-trap.com"


class PlantedTrap(NamedTuple):
    """A trap to plant.

    Attributes:
        kind: One of :data:`KINDS`.
        hosts: One of :data:`PAGES`.
        entries: Real pages that link to it.
        directories: One of :data:`DIRECTORIES`.
        links_back: Whether each page links to the one that leads to it, and to the first entry, too.
        entered: One of :data:`ENTERED`.
    """

    kind: str
    hosts: str = REAL
    entries: int = ENTRIES
    directories: str = "one"
    links_back: bool = False
    entered: str = "anywhere"

    @property
    def is_farm(self) -> bool:
        """Whether it has several registered domains."""
        return self.hosts in ("domains", "sites")

    def __str__(self) -> str:
        kind = self.kind if self.directories == "one" else f"{self.kind}, {self.directories}"
        entered = "" if self.entered == "anywhere" else f", {self.entered}"
        return f"{kind}{', links back' if self.links_back else ''} | {self.hosts} | {self.entries}{entered}"


class Planted:
    """*graph* with *trap*, whose pages come after the real ones, and which is linked from the pages *entries*.

    Its first pages, one for each entry of a farm and else a single one, are linked from there. Page *i* of a trap is
    linked from one page before it, and each host begins with a page that links to all others of the host.

    Args:
        size: Hosts of the trap.
    """

    def __init__(self, graph: Graph, trap: PlantedTrap, entries: Sequence[int], size: int = 1 << 40) -> None:
        self._graph = graph
        self._trap = trap
        self._heads = len(entries) if trap.is_farm else 1
        self._entries = {page: number % self._heads for number, page in enumerate(entries)}
        self._pages = PAGES[trap.hosts] or 1
        self._size = size

    def out_links(self, page: int) -> list[int]:
        """Links of *page*."""
        n = len(self._graph)
        if page < n:
            entry = self._entries.get(page)
            return self._graph.out_links(page) + ([n + entry * self._pages] if entry is not None else [])
        host, number = divmod(page - n, self._pages)
        if number:
            return [n + host * self._pages]
        width = CHILDREN[self._trap.kind]
        hosts = list(range(self._heads + width * host, self._heads + width * (host + 1)))
        if self._trap.kind == "mesh":
            hosts += [(host * step + step) // 7 for step in range(5)]  # as good as random
        back = {self._leads_to(host): None, min(self._entries): None} if self._trap.links_back else {}
        return [
            *(n + each * self._pages for each in dict.fromkeys(hosts) if each < self._size),
            *range(page + 1, page + self._pages),
            *back,
        ]

    def _leads_to(self, host: int) -> int:
        """The page that leads to the first one of host number *host* of the trap."""
        if host < self._heads:
            return min(self._entries)
        before = (host - self._heads) // CHILDREN[self._trap.kind]
        return len(self._graph) + before * self._pages

    def host_of(self, page: int) -> str:
        """Host of *page*."""
        n = len(self._graph)
        if page < n:
            return self._graph.hosts[page]
        if self._trap.is_farm:
            return f"www.farm{(page - n) // self._pages}.com"
        if self._trap.hosts == REAL:
            return self._graph.hosts[next(iter(self._entries))]
        return _DOMAIN if self._trap.hosts == "one host" else f"h{page}.{_DOMAIN}"

    def url_of(self, page: int) -> str:
        """URL of *page*; ``""`` if those of the graph are not known."""
        n = len(self._graph)
        if page < n or not self._graph.urls:
            return self._graph.url_of(page) if page < n else ""
        return f"http://{self.host_of(page)}{self._path(page - n)}"

    def _path(self, number: int) -> str:
        """Path of page *number* of the trap."""
        where = self._trap.directories
        if where != "nested":
            return {"root": f"/trap-{number}", "one": f"/trap/{number}", "own": f"/trap-{number}/"}[where]
        host, steps = number // self._pages, [str(number)]
        while host >= self._heads:
            host = (host - self._heads) // CHILDREN[self._trap.kind]
            steps.append(str(host))
        return f"/trap/{'/'.join(reversed(steps))}/"


class PlantedSite(Planted):
    """*graph* with a trap of a real site, one of :data:`.site_traps.SITE_TRAPS`, whose pages have numbers as they are found."""

    def __init__(self, graph: Graph, trap: PlantedTrap, entries: Sequence[int]) -> None:
        super().__init__(graph, trap, entries)
        self._links, self._at = SITE_TRAPS[trap.kind]
        self._home = min(entries)
        self._found: dict[str, int] = {}
        self._paths: list[str] = []
        host = self.host_of(self._home)
        self._linked_from = range(len(graph)) if trap.kind in EVERYWHERE else self._entries
        self._is_on_host = [each == host for each in graph.hosts]

    def out_links(self, page: int) -> list[int]:
        n = len(self._graph)
        if page >= n:
            return [self._number(each) for each in self._links(self._paths[page - n], self._home, self._own)]
        links = self._graph.out_links(page)
        if page in self._linked_from and self._is_on_host[page]:
            links = [*links, self._number(self._at.format(page))]
        return links

    def _own(self, page: int) -> list[int]:
        """Links of the real *page* to pages of the trap's host."""
        return [each for each in self._graph.out_links(page) if self._is_on_host[each]]

    def _number(self, page: str | int) -> int:
        if isinstance(page, int):
            return page
        number = self._found.setdefault(page, len(self._paths))
        if number == len(self._paths):
            self._paths.append(page)
        return len(self._graph) + number

    def _path(self, number: int) -> str:
        path = self._paths[number]
        if self._trap.kind not in COPIES:
            return path
        where, _, page = path.rpartition("/p")
        return where + urlsplit(self._graph.url_of(int(page))).path


def plant(graph: Graph, trap: PlantedTrap, seeds: Sequence[int], rng: np.random.Generator) -> Planted:
    """*graph* with *trap*, linked from random pages that can be reached from *seeds*: those of one host for a real one."""
    pages = graph.by_distance(seeds)
    if trap.hosts == REAL:
        hosts = np.asarray([graph.hosts[page] for page in pages.tolist()])
        names, counts = np.unique(hosts, return_counts=True)
        begin, end = ENTERED[trap.entered]
        large = hosts[np.isin(hosts, names[counts >= trap.entries])]
        pages = pages[hosts == rng.choice(np.sort(large))] if len(large) else large
        pages = pages[int(begin * len(pages)) : max(int(end * len(pages)), trap.entries)]
    if len(pages) < trap.entries:
        where = "on one host " if trap.hosts == REAL else ""
        raise AopicError(
            f"A trap with {trap.entries} entries cannot be planted: the seeds do not lead to so many pages {where}of {graph.name}."
        )
    entries = rng.choice(pages, trap.entries, replace=False).tolist()
    return (PlantedSite if trap.kind in SITE_TRAPS else Planted)(graph, trap, entries)
