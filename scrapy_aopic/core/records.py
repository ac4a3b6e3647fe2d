"""The records of a page and of a host, and their bytes.

Keys: a host is 8 bytes, a page is its host followed by 8 bytes of its request's fingerprint. Everything
of one host lies together in a store, and a collision of fingerprints, even a forged one, stays inside
one host (64 bits: about 3 in 10**8 for a host of a million pages).

Records are MessagePack arrays without what a page of their kind does not need: one that only waits takes some
18 bytes, one that was visited some 50. Changing a layout means a new :data:`~scrapy_aopic.core.layout.FORMAT`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from .politeness import Silence

HOST_BYTES = 8
"""Bytes of the key of a host."""

PAGE_BYTES = 2 * HOST_BYTES
"""Bytes of the key of a page."""

PART_BYTES = 4
"""Bytes that tell a directory or a branch from others of its host."""

N_FRONT_QUEUES = 64
"""Front queues of a host for each priority: one for each power of two that cash can be."""

PRIORITY_BITS = 6
"""Bits of a front queue below the priority of its pages: see :attr:`Page.front_queue`."""

IN_PRIORITY = N_FRONT_QUEUES - 1
"""The bits of a front queue that say which one of its priority it is."""

MOST_PRIORITY = (1 << 63) - 1
"""The highest priority that is told from higher ones; the lowest one is the same with the other sign."""

ROW_BYTES = 9
"""Last bytes of a queue row: the front queue among those of its priority, and the place there."""

ROW_PAGE_BYTES = PAGE_BYTES - HOST_BYTES
"""Bytes of a page without its host, which follow its queue row in a back queue."""

LAST_SERIAL = (1 << 32) - 1
"""The largest serial number of a page queued in a job; the last 32 bits of a place hold it."""

NO_RECORD = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError, msgspec.DecodeError)
"""What bytes raise that are no record of the kind that they are read as."""


class PageState(IntEnum):
    """Where a page stands; a leased page is still ``QUEUED`` in the store, so a crash loses nothing."""

    QUEUED = 1
    VISITED = 2
    FAILED = 3


# A look into an enum takes five times as long.
QUEUED, VISITED, FAILED = map(int, PageState)


class Changes(NamedTuple):
    """The changes of a page, as far as its visits have shown them.

    Attributes:
        wakes_at: Instant at which its priority is looked at again, 0 if at none.
        seen_at: Instant of the last visit that could show whether it had changed.
        evidence: What its visits have shown, for :class:`~scrapy_aopic.core.revisits.Rates`; empty before the second.
        digest: Digest of its content.
        etag: Its ``ETag``.
        modified: Its ``Last-Modified``.
        first_seen: Instant of its first visit; 0 if that was before changes were looked for.
        changed_at: Instant of the visit that showed the present version, or that it is gone; 0 if none has.
        previous: Digest of the version before that one.
        noted_at: End of that visit, later than those of all visits of its shard that had ended before.
        dated_at: Instant of its last change according to others, such as a sitemap; 0 if none says it.
        hinted_at: That instant if it is later than the last visit, the first of several; 0 if none is.
        brought: New pages, and new dates of pages, that its visits have brought, without the first; older ones count less.
        brought_in: Seconds in which these have come, older ones counting less.
        n_links: Links that it had at its last visit, if it has brought anything.
        basis: Digest of that in which what is compared was found, if the one says that the other is the same.
    """

    wakes_at: float = 0.0
    seen_at: float = 0.0
    evidence: bytes = b""
    digest: bytes = b""
    etag: bytes = b""
    modified: bytes = b""
    first_seen: float = 0.0
    changed_at: float = 0.0
    previous: bytes = b""
    noted_at: float = 0.0
    dated_at: float = 0.0
    hinted_at: float = 0.0
    brought: float = 0.0
    brought_in: float = 0.0
    n_links: int = 0
    basis: bytes = b""

    @property
    def is_blank(self) -> bool:
        """Whether no visit has shown anything yet."""
        return not (self.digest or self.evidence or self.changed_at)


_ALL_CHANGES = len(Changes._fields)
_WRITTEN_CHANGES = ((15, _ALL_CHANGES), (10, 15), (9, 10), (6, 9))
"""Groups of fields of :class:`Changes`, the last one first, that are not written while nothing is in them and in later ones."""


class Page(msgspec.Struct, array_like=True, gc=False):
    """A page the crawl knows.

    Attributes:
        state: One of :class:`PageState`, as a number.
        place: Place inside its front queue, lowest first; the last 32 bits are a serial number of pages queued in the job.
        cash: Units that it holds until its next visit.
        handed: Units that the virtual page had handed to each page of its class when ``cash`` was last brought up to date.
        front_queue: Front queue of its queue row: which of the 64 of its priority, and 64 times the priority. A page that is not
            queued keeps it for its priority.
        shift: Front queues by which the page waits higher (or lower) than its cash says.
        score: What an order other than by cash keeps of the page.
        is_chosen: Whether it is of a domain that the virtual page spends on.
        clicks: How far it is from where the crawl entered its host: those of the page of that host that was first to find it,
            and :data:`LONE_CLICK`, or those of a further one and 1, if that is less; at most :data:`MOST_CLICKS`.
        lowered: Front queues by which it waits lower, as its directory was full when its turn came (:mod:`.directories`), or its
            branch crowded (:mod:`.branches`), or its content there from another origin (:mod:`.mirrors`); only of a page that waits and was never visited.
        branch: Number of the branch of its host that it is in (:mod:`.branches`), of 32 bits; 0 if it is in none, as once it was
            visited.
        fetched: The last response for it, as a number (:mod:`.fetched`); 0 before the first.
        history: Units spent at visits, as far as the window counts them.
        visits: Visits so far, failed ones included.
        visited_turn: Virtual time of the last visit, in turns.
        visited_at: Time of the last visit in seconds since the epoch, by the clock of the job (``job/clock.py``), in steps
            of at most 2 ms; 0 before the first visit.
        marks: For the fixed window, its visits as ``(instant, units)``, oldest first.
        outcome: Why the page is no ordinary page: ``""``, ``"redirect"``, ``"http 404"``, ``"robots.txt"`` ...
        changes: What repeated visits need, if they are made.
        repeat_of: The latter half of the key of the page that it is one more request for, if it is one: it is never revisited, and
            one with that page once it was visited.
        canonical: Key of the page that it was merged with, which gets whatever is paid to it; only of a visited page.
        is_claimed: Whether pages wait to be merged with it.
        height: At least the number of hops from any page that was merged with it, directly or by way of others.
        purpose: What it was requested for unfiltered, by :attr:`.policy.Policy.purpose_of`, as long as no link has led to it; empty
            for all others.
    """

    state: int
    place: int
    cash: int = 0
    front_queue: int = 0
    handed: int = 0
    shift: int = 0
    score: int = 0
    is_chosen: bool = False
    clicks: int = 0
    # What most pages that only wait do not need:
    lowered: int = 0
    branch: int = 0
    # What none of them needs:
    fetched: int = 0
    history: int = 0
    visits: int = 0
    visited_turn: float = 0.0
    visited_at: float = 0.0
    # What few pages need:
    outcome: str = ""
    marks: tuple[tuple[float, int], ...] = ()
    changes: Changes | None = None
    repeat_of: bytes = b""
    canonical: bytes = b""
    is_claimed: bool = False
    height: int = 0
    purpose: bytes = b""

    @property
    def priority(self) -> int:
        """The ``Request.priority`` of its request: pages of a higher one come first."""
        return self.front_queue >> PRIORITY_BITS

    @property
    def is_possible(self) -> bool:
        """Whether its state, place and priority are those of a page."""
        is_placed = 0 < serial_of(self.place) <= self.place < 1 << 64
        return self.state in (QUEUED, VISITED, FAILED) and is_placed and abs(self.priority) <= MOST_PRIORITY


class HostRecord(msgspec.Struct, array_like=True, gc=False):
    """A host the crawl knows, as it is stored; :class:`~scrapy_aopic.core.frontier.host_state.HostState` is one in memory.

    Attributes:
        name: What the caller calls it: for Scrapy the key of the download slot, mostly the name in URLs without a port.
        queued: Pages with a queue row, those in flight included.
        visited: Pages that were visited or failed at least once.
        best: Front queue of the best page that can be taken (:attr:`Page.front_queue`), ``None`` if there is none.
        not_before: Instant (seconds since the epoch) before which the host must not be requested again.
        transfer: Seconds that the last transfer took.
        leased_at: Instant of the oldest lease whose transfer goes on, for the pause after a crash; 0 if there is none.
        row: Index row that says where the host waits, without its key; empty when it has nothing queued.
        crawl_delay: Seconds between requests that its robots.txt asks for.
        errors: Transfers in a row after which it did not respond as it should.
        down: Transfers in a row that showed it to be down.
        address: Its network address at the last request, if hosts of one address are kept apart.
        broken: Broken transfers in a row.
        silent: What is known of its origins whose links wait, by name; ``None`` if there are none.
        held_until: Instant until which all that is left of it waits for silent origins; 0 if something else is left.
        allowed: What the caller allows of it that it does not allow of others: a number that means nothing here.
    """

    name: str
    queued: int = 0
    visited: int = 0
    best: int | None = None
    not_before: float = 0.0
    transfer: float = 0.0
    leased_at: float = 0.0
    row: bytes = b""
    crawl_delay: float = 0.0
    errors: int = 0
    down: int = 0
    address: str = ""
    broken: int = 0
    silent: dict[str, Silence] | None = None
    held_until: float = 0.0
    allowed: int = 0

    @property
    def opens_at(self) -> float:
        """Instant before which nothing of it can be requested."""
        return max(self.not_before, self.held_until)

    @property
    def unanswered(self) -> int:
        """Transfers in a row that got no response, or one that asks for a later request: of the worst of its origins."""
        return max(self.down, *(silence.n for silence in (self.silent or {}).values()), 0)


class Link(msgspec.Struct, frozen=True, gc=False):
    """A request that the crawl is asked to make.

    Attributes:
        key: Page key.
        host: Name of the host.
        request: What is needed to make the request, as bytes that mean nothing here.
        shift: Front queues by which its page waits higher than its cash says.
        weight: Its part of the page's cash, relative to that of the other links; at least 0.
        again: Fetch it even if the page is known (``dont_filter``).
        value: What its page seems worth for a topic, 1 to :data:`~scrapy_aopic.core.order.LARGEST_VALUE`; 0 if nothing
            says it. Only for an order that ``values_links``.
        lead: What is to be kept of the link while its page waits (:mod:`.focus.leads`); empty for nothing.
        priority: Pages of a higher one come first, at most :data:`MOST_PRIORITY`.
        is_unfiltered: Whether it is no link but a request that is not to make its page known to links (``dont_filter``): the
            first link to it is followed if it is for something else.
    """

    key: bytes
    host: str
    request: bytes
    shift: int = 0
    again: bool = False
    weight: int = 1
    value: int = 0
    lead: bytes = b""
    priority: int = 0
    is_unfiltered: bool = False


@lru_cache(10_000)  # a page has many links to few hosts
def host_key(name: str) -> bytes:
    """Key of the host called *name*."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=HOST_BYTES).digest()


@lru_cache(1000)  # most pages of a directory, or of a make, are met in a row
def part_digest(name: bytes) -> bytes:
    """Digest of what tells a directory or a branch from others of its host."""
    return blake2b(name, digest_size=PART_BYTES).digest()


def page_key(host: bytes, fingerprint: bytes) -> bytes:
    """Key of the page with *fingerprint* (any length) on *host* (a host key)."""
    return host + blake2b(fingerprint, digest_size=8).digest()


def repeat_key(page: bytes, place: int) -> bytes:
    """Key of one more request for *page*, which waits beside the page itself."""
    return page_key(page[:HOST_BYTES], page + place.to_bytes(8, "big"))


BEST_START, WORST_START = 64, 64 + N_FRONT_QUEUES - 1
"""First bytes of the rows of the best and the worst front queue of priority 0; smaller ones are of positive priorities, and
larger ones of negative ones."""


class _RowStarts(dict[int, bytes]):
    """How the queue rows of each front queue begin; those of priority 0 are kept.

    One byte for the front queue, the best one first. Before it, with a priority other than 0: a byte that says how many bytes
    the priority has, and of which sign it is; and these bytes, inverted if it is positive. No such beginning is one of another,
    and they sort as the front queues do, best first.
    """

    def __missing__(self, front_queue: int) -> bytes:
        priority, last = front_queue >> PRIORITY_BITS, bytes((WORST_START - (front_queue & IN_PRIORITY),))
        n = (priority.bit_length() + 7) // 8
        if priority > 0:
            return bytes((8 - n,)) + ((1 << 8 * n) - 1 - priority).to_bytes(n, "big") + last
        return bytes((WORST_START + n,)) + (-priority).to_bytes(n, "big") + last


ROW_STARTS = _RowStarts({number: bytes((WORST_START - number,)) for number in range(N_FRONT_QUEUES)})
"""How the queue rows of each front queue begin."""


def queue_row(front_queue: int, place: int) -> bytes:
    """Key of a queue row inside its host: best front queue first, then in the order's places."""
    return ROW_STARTS[front_queue] + place.to_bytes(8, "big")


def front_queue_of(row: bytes) -> int:
    """Front queue of a queue row, whatever follows it."""
    first = row[0]
    if BEST_START <= first <= WORST_START:
        return WORST_START - first
    n = 8 - first if first < BEST_START else first - WORST_START
    digits = int.from_bytes(row[1 : 1 + n], "big")
    priority = (1 << 8 * n) - 1 - digits if first < BEST_START else -digits
    return (priority << PRIORITY_BITS) + WORST_START - row[1 + n]


def serial_of(place: int) -> int:
    """Serial number of the page queued at *place*: how many pages of its job were queued before it, and 1."""
    return place & LAST_SERIAL


_BIG = 1
"""Code of a whole number beyond 64 bits among the extension types of MessagePack."""


def _as_plain(value: object) -> object:
    """*value*, which is of a subclass of a plain type, as of that."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{value!r} is no part of a record")


def _with_big(value: Any) -> Any:
    """*value* in a form that can be written, with whole numbers beyond 64 bits, as sums of cash become in a long crawl."""
    if isinstance(value, int):
        n = value.bit_length()
        return value if n < 64 else msgspec.msgpack.Ext(_BIG, value.to_bytes(n // 8 + 1, "big", signed=True))
    if isinstance(value, dict):
        return {key: _with_big(each) for key, each in value.items()}
    return [*map(_with_big, value)] if isinstance(value, (list, tuple)) else value


def _big(_: int, data: memoryview) -> int:
    return int.from_bytes(data, "big", signed=True)


_encode = msgspec.msgpack.Encoder(enc_hook=_as_plain).encode
_decode = msgspec.msgpack.Decoder(ext_hook=_big).decode


def pack(value: Any) -> bytes:
    """Bytes of *value*, of plain types or a dataclass of them, and whole numbers of any size."""
    try:
        return _encode(value)
    except OverflowError:
        return _encode(_with_big(msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_as_plain)))


def unpack(data: bytes) -> Any:
    """The value written as *data*, with lists for tuples."""
    return _decode(data)


def read_wishes(data: bytes) -> tuple[str, str] | None:
    """What the owner of a page asks, from its row: of robots, and for its use; ``None`` if it cannot be understood."""
    try:
        robots, usage = unpack(data)
    except NO_RECORD:
        return None
    return (robots, usage) if isinstance(robots, str) and isinstance(usage, str) else None


R = TypeVar("R", bound=msgspec.Struct)


def reader_of(kind: type[R]) -> Callable[[bytes], R]:
    """Reads records of *kind*, which may have whole numbers beyond 64 bits."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes) -> R:
        try:
            return decode(data)
        except msgspec.ValidationError:
            return msgspec.convert(unpack(data), kind)

    return read


LONE_CLICK = 4
"""Clicks that the only link known to a page counts for; one of several known ones counts for 1.

The pages of a trap have one link each when they are visited, or some more from pages as far inside as they are. Most
pages of a real host are linked from several, and these as a rule from nearer to where the crawl entered.
"""

MOST_CLICKS = 255
"""Clicks that a page has at most: by then nothing is left of its endowment."""


def pack_page(page: Page) -> bytes:
    """Bytes of *page*."""
    is_usual = not (
        page.outcome
        or page.changes
        or page.marks
        or page.canonical
        or page.repeat_of
        or page.is_claimed
        or page.height
        or page.purpose
    )
    try:
        if is_usual and not (
            page.visits or page.history or page.visited_turn or page.visited_at or page.fetched
        ):
            if page.lowered or page.branch:
                return _encode((page.state, page.place, page.cash, page.front_queue, page.handed, page.shift, page.score,
                                page.is_chosen, page.clicks, page.lowered, page.branch))  # fmt: skip
            return _encode((page.state, page.place, page.cash, page.front_queue, page.handed, page.shift, page.score,
                            page.is_chosen, page.clicks))  # fmt: skip
        if is_usual:
            return _encode((page.state, page.place, page.cash, page.front_queue, page.handed, page.shift, page.score,
                            page.is_chosen, page.clicks, page.lowered, page.branch, page.fetched, page.history, page.visits,
                            page.visited_turn, page.visited_at))  # fmt: skip
        changes = page.changes
        if changes is not None:
            size = next((end for begin, end in _WRITTEN_CHANGES if any(changes[begin:end])), 6)
            if size < _ALL_CHANGES:
                page = msgspec.structs.replace(page, changes=changes[:size])
        return _encode(page)
    except OverflowError:
        return pack(msgspec.structs.astuple(page))


unpack_page = reader_of(Page)
"""The page whose record was written as some bytes."""


_host_values = attrgetter(*HostRecord.__struct_fields__)
_HOST_DEFAULTS = (None, *HostRecord.__struct_defaults__)
_BEST = HostRecord.__struct_fields__.index("best")


def pack_host(host: HostRecord, best: int | None = None) -> bytes:
    """Bytes of the record of *host*, without the last fields as far as they have their usual values.

    Args:
        best: Front queue of its best page, if not that which it has now.
    """
    values = list(_host_values(host))
    if best is not None:
        values[_BEST] = best
    last = len(values)
    while last and values[last - 1] == _HOST_DEFAULTS[last - 1]:
        last -= 1
    return pack(values[:last])


unpack_host = reader_of(HostRecord)
"""The host whose record was written as some bytes."""
