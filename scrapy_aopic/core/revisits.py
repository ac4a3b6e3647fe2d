"""When a visited page is worth another visit, and which of them is next.

A page that was visited comes back with the priority cash x phi(D S): the cash is what it is expected to have got, D the
rate at which it changes, S the time since it was last seen, and phi(x) = (1 - (1 + x) e^-x) / x what one more visit is
worth for the freshness of its copy.
It is compared with the cash of pages that were never visited. phi is largest near D S = 1.8: a page that has surely not
changed yet, and one that changes faster than it can be followed, both count for less.

1. :class:`Rates` learns D from what the visits find. What is not known of a rate matters as much as its mean, so it is
   a distribution, and phi its mean over it.
2. :class:`Wheel` looks at a page again each time S has grown by half, at instants that the store remembers.
3. :class:`Due` pages, those that were looked at, wait until a visit is paid for. The frontier has them from then on.

Sources: Cho and Garcia-Molina, "Effective Page Refresh Policies for Web Crawlers", TODS 28(4), 2003, and "Estimating
Frequency of Change", TOIT 3(3), 2003; Azar et al., "Tractable near-optimal policies for crawling", PNAS 2018.
"""

from __future__ import annotations

import heapq
import math
import struct
from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .layout import DUE, WAKES
from .records import HOST_BYTES, Changes, Page, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .tables import RowTable

OVERDUE = 255
"""In the place of a front queue: that of pages whose longest interval is over."""

_FIRST_LOOK, _NEXT_LOOK = 0.25, 1.5
_LOOKS = 100
_HEAD = 1000
_MAX_DUE = 100_000
_MAX_TOKENS = 100.0
_OVERDUE_TURN = 10
_RATES = [1 / (3600 * 2.5**n) for n in range(12)]  # changes a second: once an hour to once in 2.7 years
_GUESS, _LEAST, _MEMORY = (
    12.0,
    0.1,
    10_000.0,
)  # pages counted beforehand, at each rate at least, and at all at most
_NAT = 1000.0  # a factor of e in the evidence
_PACK, _UNPACK = struct.Struct(">12H").pack, struct.Struct(">12H").unpack
_JUST_NOW = 60.0

_Place = tuple[
    float, float
]  # the best is the least: the negative front queue, and the instant of the last visit


@dataclass(frozen=True, slots=True)
class Recrawl:
    """How visited pages come back.

    Attributes:
        min_interval: Seconds that pass between two visits of a page at least.
        max_interval: Seconds after which a page has a claim on a tenth of the repeated visits, the longest ago
            first, however little cash it holds.
        share: Part of the fetches that goes to visited pages while new ones wait whose hosts may be asked, 0 to 1.
        uses_changes: Whether the rate of change counts; else a page's cash alone does.
    """

    min_interval: float = 86_400.0
    max_interval: float = 90 * 86_400.0
    share: float = 0.5
    uses_changes: bool = True

    def worth(self, page: Page, expected: int, rates: Rates, now: float) -> int:
        """Units that *page*, whose cash is up to date, counts for at *now*; *expected* is its cash without chance."""
        if not page.visits or page.changes is None:
            return page.cash
        if self.is_overdue(page, now):
            return 1 << 62
        return int(expected * rates.phi(page.changes, now)) if self.uses_changes else page.cash

    def is_early(self, page: Page, now: float) -> bool:
        """Whether the shortest interval of *page*, which was visited, is not over."""
        return now - page.visited_at < self.min_interval

    def is_overdue(self, page: Page, now: float) -> bool:
        """Whether the longest interval of *page*, which was visited, is over."""
        return now - page.visited_at >= self.max_interval

    def first_look(self, interval: float) -> float:
        """Seconds after a visit at which to look at a page that was visited *interval* seconds after the last one."""
        return max(min(interval * _FIRST_LOOK, self.max_interval), self.min_interval)

    def next_look(self, passed: float) -> float:
        """Seconds after a visit at which to look at a page again, *passed* seconds after it."""
        later = max(passed * _NEXT_LOOK, self.min_interval)
        return min(later, self.max_interval) if passed < self.max_interval else later


class Content(NamedTuple):
    """What an answer says of a page's content.

    Attributes:
        digest: Digest of the body.
        etag: ``ETag``.
        modified: ``Last-Modified``.
        is_same: The server says that nothing has changed (304); its links are those of the last visit.
        is_missing: There was no such answer; nothing is known, and the links are those of the last visit.
        changed_at: Instant of the last change according to the server, 0 if it does not say.
    """

    digest: bytes = b""
    etag: bytes = b""
    modified: bytes = b""
    is_same: bool = False
    is_missing: bool = False
    changed_at: float = 0.0


class Rates:
    """How often pages change, as far as their visits have shown.

    A page's rate is one of :data:`_RATES`. Beforehand, each is as likely as it is among all pages that were visited
    more than once: those are counted, each once, by what is known of it by now (incremental EM, Neal and Hinton
    1998). What the visits of a page have found is kept as its evidence: how likely that was at each of the rates.

    Attributes:
        counts: Pages that change at each of the rates, in all probability.
    """

    def __init__(self, counts: Sequence[float] = ()) -> None:
        self.counts = list(counts) or [_GUESS / len(_RATES)] * len(_RATES)

    def of(self, evidence: bytes) -> list[float]:
        """Probabilities of the rates for a page with *evidence*, but for a common factor."""
        if not evidence:
            return self.counts
        return [
            count * math.exp(-doubt / _NAT)
            for count, doubt in zip(self.counts, _UNPACK(evidence), strict=True)
        ]

    def phi(self, changes: Changes, now: float) -> float:
        """Mean of phi(D S) for a page with *changes* at *now*: what a visit is worth, 0 to 0.3."""
        passed = now - changes.seen_at
        if passed <= 0:
            return 0.0
        odds = self.of(changes.evidence)
        worth = 0.0
        for part, rate in zip(odds, _RATES, strict=True):
            x = rate * passed
            worth += part * (1 - (1 + x) * math.exp(-x)) / x
        return worth / sum(odds)

    def learn(self, known: Changes | None, content: Content, now: float) -> Changes:
        """What is known of a page after an answer with *content* at *now*; *known* is ``None`` at its first visit."""
        age = now - content.changed_at if content.changed_at else -1.0
        if known is None:
            evidence = self._weigh(b"", [_dated(rate, age) for rate in _RATES]) if age > _JUST_NOW else b""
            return Changes(0.0, now, evidence, content.digest, content.etag, content.modified)
        if content.is_missing:
            return known
        interval = max(now - known.seen_at, 1.0)
        if content.is_same or content.digest == known.digest:
            logs = [-rate * interval for rate in _RATES]
        # Many servers say of each page that it was made just now.
        elif max(_JUST_NOW, interval / 100) < age <= interval:
            logs = [_dated(rate, age) for rate in _RATES]
        else:
            logs = [math.log(-math.expm1(-rate * interval)) for rate in _RATES]
        known = known._replace(seen_at=now, evidence=self._weigh(known.evidence, logs))
        if content.is_same:
            return known
        return known._replace(digest=content.digest, etag=content.etag, modified=content.modified)

    def _weigh(self, evidence: bytes, logs: list[float]) -> bytes:
        """Add to a page's *evidence* the logarithms of how likely it was, at each of the rates, what was found."""
        doubts = [-_NAT * log for log in logs]
        if evidence:
            doubts = [doubt + old for doubt, old in zip(doubts, _UNPACK(evidence), strict=True)]
        least = min(doubts)
        found = _PACK(*(min(round(doubt - least), 0xFFFF) for doubt in doubts))
        changed = self._share(found)
        if evidence:
            changed = [part - old for part, old in zip(changed, self._share(evidence), strict=True)]
        self.counts = [max(count + part, _LEAST) for count, part in zip(self.counts, changed, strict=True)]
        if (total := sum(self.counts)) > _MEMORY:
            self.counts = [count * _MEMORY / total for count in self.counts]
        return found

    def _share(self, evidence: bytes) -> list[float]:
        odds = self.of(evidence)
        total = sum(odds)
        return [part / total for part in odds]


def _dated(rate: float, age: float) -> float:
    """Logarithm of how likely it is that the last change was *age* seconds ago."""
    return math.log(rate * 3600) - rate * age


class Due:
    """Visited pages that wait to be let in: the best front queue first, and in it the longest ago.

    A host is *free* if none of its pages is in the frontier, or all that are there were taken. The best page of all
    hosts, and that of the free ones, are each on top of :class:`_Heads`.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, _Place] = {}
        self._pages: dict[bytes, list[tuple[_Place, bytes]]] = {}
        self._all, self._free = _Heads(), _Heads()
        self._n_entries = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def add(self, key: bytes, level: int, visited_at: float) -> bool:
        """Let the page under *key* wait in front queue *level*; returns whether this is news."""
        place = (-level, visited_at)
        if self._places.get(key) == place:
            return False
        self._places[key] = place
        self._push(key, place)
        self._n_entries += 1
        if self._n_entries > 2 * _MAX_DUE:
            self._rebuild()  # without the entries that are no longer true
        return True

    def remove(self, key: bytes) -> None:
        """The page under *key* waits no more."""
        self._places.pop(key, None)

    def freed(self, host: bytes) -> None:
        """The host under key *host* is free."""
        if (top := self._top(host)) is not None:
            self._free.push(host, top[0])

    def best(self, is_free: Callable[[bytes], bool] | None = None) -> bytes | None:
        """The best page, which waits no more; of a host that *is_free*, if that is given."""
        heads = self._all if is_free is None else self._free
        while (head := heads.first()) is not None:
            place, host = head
            top = self._top(host)
            if top is None or (is_free is not None and not is_free(host)):
                heads.pop()  # until it has a better page, or is freed
            elif top[0] != place:
                heads.pop()
                heads.push(host, top[0])
            else:
                del self._places[top[1]]
                return top[1]
        return None

    def trim(self, n: int) -> list[bytes]:
        """Keep the best *n* pages; returns the others."""
        worst = sorted(self._places, key=self._places.__getitem__)[n:]
        for key in worst:
            del self._places[key]
        self._rebuild()
        return worst

    def _push(self, key: bytes, place: _Place) -> None:
        host = key[:HOST_BYTES]
        pages = self._pages.setdefault(host, [])
        heapq.heappush(pages, (place, key))
        if pages[0][1] == key:
            self._all.push(host, place)
            self._free.push(host, place)

    def _top(self, host: bytes) -> tuple[_Place, bytes] | None:
        """The best page of *host*."""
        pages = self._pages.get(host)
        while pages:
            if self._places.get(pages[0][1]) == pages[0][0]:
                return pages[0]
            heapq.heappop(pages)
        self._pages.pop(host, None)
        return None

    def _rebuild(self) -> None:
        self._pages, self._all, self._free = {}, _Heads(), _Heads()
        self._n_entries = len(self._places)
        for key, place in self._places.items():
            self._push(key, place)


class _Heads:
    """A heap of hosts by their best pages. A host that got a better page is there once more; what it was is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[_Place, bytes]] = []
        self._at: dict[bytes, _Place] = {}

    def push(self, host: bytes, place: _Place) -> None:
        """Let *host* be there at *place*, if it is not at a better one."""
        known = self._at.get(host)
        if known is None or place < known:
            self._at[host] = place
            heapq.heappush(self._heap, (place, host))

    def first(self) -> tuple[_Place, bytes] | None:
        """The host at the best place."""
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def pop(self) -> None:
        """Take away what :meth:`first` gave."""
        del self._at[heapq.heappop(self._heap)[1]]


class Wheel:
    """Which visited pages are looked at when, and which of those wait to be let in.

    Invariant: in the store, a page that may come back has one row that says when it is looked at, and a page that
    is due has one more, with its place.

    Args:
        index: Those rows.
        share: Visits that each fetch pays for.
    """

    def __init__(self, index: RowTable, share: float) -> None:
        self._index = index
        self._share = share
        self._tokens = 0.0
        self._head: list[bytes] = []  # the first rows of times to look, and whether these are all
        self._is_whole = False
        self._n_let_in = 0
        self._due, self._overdue = Due(), Due()
        for row, value in index.first(DUE, 1 << 60)[0]:
            level, visited_at = unpack(value)
            (self._overdue if level == OVERDUE else self._due).add(row[1:], level, visited_at)

    def set(self, key: bytes, page: Page, instant: float) -> None:
        """Look at *page* at *instant*, at no time if it is 0, and no more at the time set before."""
        assert page.changes is not None
        head = self._head
        if page.changes.wakes_at:
            row = wake_row(page.changes.wakes_at, key)
            self._index.delete(row)
            position = bisect_left(head, row)
            if position < len(head) and head[position] == row:
                del head[position]
        page.changes = page.changes._replace(wakes_at=instant)
        if not instant:
            return
        row = wake_row(instant, key)
        self._index.put(row, b"")
        if self._is_whole or (head and row < head[-1]):
            insort(head, row)
            if len(head) > 2 * _HEAD:
                del head[_HEAD:]
                self._is_whole = False

    def when(self) -> float:
        """Instant of the next look; infinite if there is none."""
        if not self._head and not self._is_whole:
            rows, self._is_whole = self._index.first(WAKES, _HEAD)
            self._head = [row for row, _ in rows]
        return _instant(self._head[0]) if self._head else math.inf

    def looks(self, now: float) -> list[bytes]:
        """Keys of some pages to look at; the caller sets their next time."""
        if self.when() > now:
            return []
        return [row[9:] for row in self._head[:_LOOKS] if _instant(row) <= now]

    def offer(self, key: bytes, level: int, visited_at: float) -> None:
        """Let the visited page under *key*, last visited at *visited_at*, wait in front queue *level* to be let in."""
        lane, other = (self._overdue, self._due) if level == OVERDUE else (self._due, self._overdue)
        other.remove(key)
        if lane.add(key, level, visited_at):
            self._index.put(DUE + key, pack((level, visited_at)))
        if len(lane) > _MAX_DUE:
            for worse in lane.trim(_MAX_DUE // 2):  # until their next looks
                self._index.delete(DUE + worse)

    def remove(self, key: bytes) -> None:
        """The page under *key* is not to be let in."""
        if key in self._due or key in self._overdue:
            self._due.remove(key)
            self._overdue.remove(key)
            self._index.delete(DUE + key)

    def fetched(self) -> None:
        """A fetch pays for its share of a repeated visit."""
        self._tokens = min(self._tokens + self._share, _MAX_TOKENS)

    def freed(self, host: bytes) -> None:
        """The host under key *host* has nothing in the frontier any more."""
        self._due.freed(host)
        self._overdue.freed(host)

    def best(self, is_free: Callable[[bytes], bool] | None = None) -> bytes | None:
        """Key of the page to let in now, if one is paid for; for nothing if its host must satisfy *is_free*."""
        if is_free is None and self._tokens < 1:
            return None
        lanes = (self._due, self._overdue) if self._n_let_in % _OVERDUE_TURN else (self._overdue, self._due)
        for lane in lanes:
            if (key := lane.best(is_free)) is not None:
                self._index.delete(DUE + key)
                self._tokens = max(self._tokens - 1, 0.0)
                self._n_let_in += 1
                return key
        return None


def wake_row(instant: float, key: bytes) -> bytes:
    """Row that says that the page under *key* is looked at at *instant*."""
    return WAKES + int(instant * 1000).to_bytes(8, "big") + key


def _instant(row: bytes) -> float:
    return (int.from_bytes(row[1:9], "big") + 1) / 1000
