"""Crawls a link graph with the production ledger and frontier on a virtual clock: for measuring orders.

A page of the graph is a page of the crawl, and what a session with Scrapy would bring in from outside (links,
transfers, the time) comes from the graph and from arguments. What goes in and out of the crawl is also
recorded here, apart from it: at the end its cash is compared with this record page by page, and while it runs
its choice of hosts.
"""

from __future__ import annotations

import gzip
import heapq
import math
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.graph import FrozenGraph
from scrapy_aopic.core.records import HOST_BYTES, Link, host_key, page_key
from scrapy_aopic.core.spending import page_class
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store

_COMMIT = 1000
"""Visits between two commits."""


# -- graphs


@dataclass(frozen=True)
class Graph:
    """A link graph in CSR form: page *p* links to ``indices[indptr[p]:indptr[p + 1]]``.

    Attributes:
        name: Where it came from.
        hosts: Host name of each page.
    """

    name: str
    indptr: NDArray[np.integer[Any]]
    indices: NDArray[np.integer[Any]]
    hosts: Sequence[str]

    def __len__(self) -> int:
        """Pages."""
        return len(self.indptr) - 1

    def out_links(self, page: int) -> list[int]:
        """Pages that *page* links to."""
        links: list[int] = self.indices[self.indptr[page] : self.indptr[page + 1]].tolist()
        return links

    def reachable(self, pages: Sequence[int]) -> NDArray[np.bool_]:
        """For each page, whether a path of links leads there from one of *pages*."""
        known = np.zeros(len(self), bool)
        level = np.unique(np.asarray(pages, np.int64))
        while len(level):
            known[level] = True
            begins, counts = self.indptr[level].astype(np.int64), np.diff(self.indptr)[level]
            # Positions in ``indices`` of all links of the level: begin, begin + 1, ... of each page in turn.
            positions = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            level = np.unique(self.indices[positions])
            level = level[~known[level]]
        return known


def load_graph(path: Path, *, hosts: Path | None = None, urls: Path | None = None) -> Graph:
    """Read a graph.

    Args:
        path: An ``.npz`` file with the arrays ``indptr``, ``indices`` and, if hosts are known, ``host``: the number
            of the host of each page. Without any hosts all pages are on one.
        hosts: An ``.npy`` file with such an array.
        urls: A text file, which may be gzipped, with the URL of each page, one a line.

    Raises:
        AopicError: If something in the files cannot be used.
    """
    try:
        with np.load(path) as data:
            arrays = {name: data[name] for name in ("indptr", "indices", "host") if name in data}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise AopicError(f"{path} cannot be read as an .npz file: {error}") from error
    for name in ("indptr", "indices"):
        if name not in arrays:
            raise AopicError(f"{path} has no array {name!r}; a graph needs indptr and indices (CSR).")
        _check_integers(path, name, arrays[name])
    indptr, indices = arrays["indptr"], arrays["indices"]
    if len(indptr) < 2:
        raise AopicError(f"{path}: indptr has {len(indptr)} numbers; a graph of n pages needs n + 1, n > 0.")
    n = len(indptr) - 1
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise AopicError(
            f"{path}: indptr must rise from 0 to the number of links, {len(indices)}; it goes from {indptr[0]} to "
            f"{indptr[-1]}" + (", and falls in between." if (np.diff(indptr) < 0).any() else ".")
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise AopicError(f"{path}: indices holds page {wrong}, but pages are numbered from 0 to {n - 1}.")
    if urls is not None:
        names = _read_hosts_of_urls(urls)
        _check_length(urls, "lines", len(names), n)
    else:
        numbers = arrays.get("host", np.zeros(n, int))
        if hosts is not None:
            try:
                numbers = np.load(hosts)
            except (OSError, ValueError, EOFError) as error:
                raise AopicError(f"{hosts} cannot be read as an .npy file: {error}") from error
        where, name = (path, "host") if hosts is None else (hosts, "the array")
        _check_integers(where, name, numbers)
        _check_length(where, f"numbers in {name}", len(numbers), n)
        # Each is a registered domain of its own, whatever splits names into domains.
        names = [f"host{number}.com" for number in numbers.tolist()]
    return Graph(path.stem, indptr, indices, names)


def _check_integers(path: Path, name: str, array: NDArray[Any]) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        kind = (
            f"{array.ndim} dimensions of {array.dtype}" if isinstance(array, np.ndarray) else "several arrays"
        )
        raise AopicError(f"{path}: {name} must be one row of whole numbers; it has {kind}.")


def _check_length(path: Path, what: str, n: int, pages: int) -> None:
    if n != pages:
        raise AopicError(
            f"{path}: {n} {what}, but the graph has {pages} pages; it must be one for each page."
        )


def _read_hosts_of_urls(path: Path) -> list[str]:
    names = []
    open_it = gzip.open if path.suffix == ".gz" else open
    try:
        with open_it(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                name = urlsplit(line.strip()).hostname
                if not name:
                    raise AopicError(f"{path}, line {number}: {line.strip()!r} is no URL with a host.")
                names.append(name)
    except (OSError, EOFError, ValueError) as error:
        raise AopicError(f"{path} cannot be read as lines of URLs: {error}") from error
    return names


def pagerank(
    indptr: NDArray[np.integer[Any]], indices: NDArray[np.integer[Any]], damping: float = 0.85
) -> NDArray[np.float64]:
    """PageRank with uniform teleport, dangling mass spread evenly; self links and repeated ones do not count."""
    n = len(indptr) - 1
    source = np.repeat(np.arange(n), np.diff(indptr))
    links = np.unique(source * n + np.asarray(indices, np.int64))
    source, target = np.divmod(links, n)
    others = source != target
    return FrozenGraph(n, source[others], target[others]).pagerank_vector(damping=damping)


# -- crawls


class Visit(NamedTuple):
    """A visited page, with the begin and the end of its transfer in virtual seconds."""

    page: int
    begin: float
    end: float


@dataclass(slots=True)
class _Account:
    """What went to a page and came from it, in units, as seen from outside the ledger.

    Attributes:
        link: What leads to it.
        is_chosen: Whether it is of a domain that the virtual page spends on.
        handed: Units per page of its class that the virtual page had handed out when ``received`` was brought
            up to date.
    """

    link: Link
    is_chosen: bool
    handed: int
    received: int = 0
    spent: int = 0
    visits: int = 0


class _HostLog:
    """When each host may be asked, and for how many pages, as seen from outside the frontier.

    Attributes:
        idle: Connection-seconds in which a connection was free, a host might be asked and had a page queued,
            and nothing was leased.
        faults: Hosts that were asked twice at once, or too early, a sentence each.
    """

    def __init__(self) -> None:
        self.idle = 0.0
        self.faults: list[str] = []
        self._queued: dict[str, int] = {}
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._later: list[tuple[float, str]] = []
        self._due: set[str] = set()

    def queue(self, host: str, now: float) -> None:
        """A page of *host* is queued."""
        self._queued[host] = self._queued.get(host, 0) + 1
        self._look(host, now)

    def begin(self, host: str, now: float) -> None:
        """A page of *host* is asked for."""
        if host in self._busy or now < self._not_before.get(host, 0.0):
            allowed = "another request is under way" if host in self._busy else f"at {self._not_before[host]}"
            self.faults.append(f"host {host} was asked at {now} s; it may be asked when: {allowed}")
        self._queued[host] -= 1
        self._busy.add(host)
        self._due.discard(host)

    def end(self, host: str, not_before: float, now: float) -> None:
        """The transfer from *host* is over; it must be left alone until *not_before*."""
        self._busy.discard(host)
        self._not_before[host] = not_before
        if not_before > now:
            heapq.heappush(self._later, (not_before, host))
        self._look(host, now)

    def wait(self, now: float, until: float, free: int) -> None:
        """Nothing is leased from *now* until *until*, though *free* connections are free."""
        while self._later and self._later[0][0] <= until:
            instant, host = heapq.heappop(self._later)
            self.idle += min(free, len(self._due)) * (instant - now)
            now = instant
            self._look(host, now)
        self.idle += min(free, len(self._due)) * (until - now)

    def _look(self, host: str, now: float) -> None:
        if self._queued.get(host) and host not in self._busy and self._not_before.get(host, 0.0) <= now:
            self._due.add(host)


@dataclass
class Simulation:
    """One crawl of a graph; see :func:`simulate` for the arguments.

    Attributes:
        connections: Transfers that may be under way at once.
        now: The virtual clock, in seconds.
    """

    out_links: Callable[[int], Sequence[int]]
    host_of: Callable[[int], str]
    seeds: Sequence[int]
    fetches: int
    policy: Policy
    store: Store = field(default_factory=MemoryStore)
    transfer: Callable[[int], float] | None = None
    connections: int = 1
    now: float = 0.0

    def __post_init__(self) -> None:
        self.crawl = Crawl(self.store, self.policy, self.now)
        self._accounts: dict[int, _Account] = {}
        self._host_keys: dict[str, bytes] = {}
        self._hosts = _HostLog() if self.transfer is not None else None
        self._faults: list[str] = []

    @property
    def idle_though_due(self) -> float:
        """Part of all connections' time in which one was free, a host was due, and nothing was leased."""
        whole = self.connections * self.now
        return self._hosts.idle / whole if self._hosts is not None and whole else 0.0

    def run(self) -> Iterator[Visit]:
        """Crawl; yields the visits in the order of their ends."""
        crawl, gap = self.crawl, self.policy.politeness.gap
        for page in self.seeds:
            self._seed(page)
        under_way: list[tuple[float, int, float, Lease]] = []  # end, number, begin
        begun = done = 0
        while True:
            wake = math.inf
            while begun < self.fetches and len(under_way) < self.connections:
                lease = crawl.lease(self.now)
                if not isinstance(lease, Lease):
                    if isinstance(lease, NotBefore):
                        wake = self._checked(lease.instant)
                    break
                taken = 0.0
                if self.transfer is not None and self._hosts is not None:
                    taken = self.transfer(_page_of(lease))
                    self._hosts.begin(lease.host, self.now)
                heapq.heappush(under_way, (self.now + taken, begun, self.now, lease))
                begun += 1
            instant = min(wake, under_way[0][0] if under_way else math.inf)
            if instant == math.inf:
                return
            if self._hosts is not None:
                free = self.connections - len(under_way) if begun < self.fetches else 0
                self._hosts.wait(self.now, instant, free)
            self.now = instant
            while under_way and under_way[0][0] <= self.now:
                end, _, begin, lease = heapq.heappop(under_way)
                if self._hosts is not None:
                    not_before = end + gap(end - begin)
                    crawl.defer(lease.key[:HOST_BYTES], not_before, end - begin)
                    self._hosts.end(lease.host, not_before, end)
                crawl.release(lease, self.now)
                page = _page_of(lease)
                self._settle(page, lease)
                done += 1
                if done % _COMMIT == 0:
                    self._commit()
                yield Visit(page, begin, end)

    def violations(self) -> list[str]:
        """What does not hold at the end of the crawl, a sentence each; reads every page."""
        self._commit()
        found = [*self._faults, *(self._hosts.faults if self._hosts is not None else ())]
        found += audit(self.store, self.policy.order).violations
        known = sum(self.crawl.counts[:3])
        if known != len(self._accounts):
            found.append(f"the crawl knows {known} pages, but {len(self._accounts)} were made known to it")
        ledger = self.crawl.ledger
        for number, account in self._accounts.items():
            page = self.crawl.page(account.link.key)
            cash = ledger.cash(page) if page is not None else 0
            received = account.received + self._handed(account) - account.handed
            if received != account.spent + cash:
                found.append(
                    f"page {number} received {received} units, but spent {account.spent} and holds {cash}"
                )
        return found

    def _checked(self, wake: float) -> float:
        """Instant at which to ask again: never, with a fault, if the crawl names one that is past."""
        if wake > self.now:
            return wake
        self._faults.append(
            f"at {self.now} s nothing was leased, though it is said to be possible since {wake} s"
        )
        return math.inf

    # -- steps of a visit

    def _account(self, page: int) -> _Account:
        """The account of *page*, which is opened when the page is found."""
        account = self._accounts.get(page)
        if account is None:
            host = self.host_of(page)
            key = self._host_keys.get(host)
            if key is None:
                key = self._host_keys[host] = host_key(host)
            request = page.to_bytes(6, "big")
            link = Link(page_key(key, request), host, request)
            is_chosen = self.policy.is_chosen(host)
            handed = self.crawl.ledger.totals.handed[page_class(is_visited=False, is_chosen=is_chosen)]
            account = _Account(link, is_chosen, handed)
            self._accounts[page] = account
            if self._hosts is not None:
                self._hosts.queue(host, self.now)
        return account

    def _seed(self, page: int) -> None:
        totals = self.crawl.ledger.totals
        account, before = self._account(page), totals.virtual
        self.crawl.seed(account.link, self.now)
        account.received += before - totals.virtual

    def _settle(self, page: int, lease: Lease) -> None:
        """Let the crawl settle a visit, and book what left the page and did not go to the virtual page."""
        crawl, totals, known = self.crawl, self.crawl.ledger.totals, self._accounts.get
        links = self.out_links(page)
        accounts = [known(target) or self._account(target) for target in links]
        account = self._accounts[page]
        account.received += self._handed(account) - account.handed
        account.spent += lease.cash
        account.visits += 1
        account.handed = self._handed(account)
        before = totals.virtual
        units = crawl.settle(lease, [target.link for target in accounts], self.now).paid
        targets = dict(zip(links, accounts, strict=True))
        targets.pop(page, None)
        paid = lease.cash + before - totals.virtual
        if paid != sum(units):
            self._faults.append(f"page {page} paid {paid} units, but {sum(units)} to {len(targets)} pages")
        for target, each in zip(targets.values(), units, strict=True):
            target.received += each
        if (scores := crawl.rescoring()) is not None:
            crawl.rescored(scores(), self.now)

    def _handed(self, account: _Account) -> int:
        """Units that the virtual page has handed so far to each page of the class that *account* is in."""
        which = page_class(is_visited=account.visits > 0, is_chosen=account.is_chosen)
        return self.crawl.ledger.totals.handed[which]

    def _commit(self) -> None:
        self.store.write(self.crawl.take_changes(self.now), sync=False)
        self.crawl.changes_landed()


def simulate(
    out_links: Callable[[int], Sequence[int]],
    host_of: Callable[[int], str],
    seeds: Sequence[int],
    fetches: int,
    policy: Policy,
    *,
    store: Store | None = None,
    transfer: Callable[[int], float] | None = None,
) -> Iterator[int]:
    """Visit pages in the order of *policy*.

    Args:
        out_links: Pages that a page links to.
        host_of: Host of a page.
        seeds: Pages to start from.
        fetches: Visits at most.
        store: Where the crawl is remembered; a memory store if ``None``.
        transfer: Seconds that a page's transfer takes, one page at a time; ``None`` for hosts that may always be
            asked.

    Yields:
        The visited pages, in order.
    """
    store = store if store is not None else MemoryStore()
    for visit in Simulation(out_links, host_of, seeds, fetches, policy, store, transfer).run():
        yield visit.page


def _page_of(lease: Lease) -> int:
    return int.from_bytes(lease.request, "big")
