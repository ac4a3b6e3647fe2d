"""Orders, which decide the next page: one small class for each.

An :class:`Order` answers three questions of the frontier, and three more for those who need them; none of them costs
more than arithmetic:

1. :meth:`Order.front_queue`: which of the 64 front queues of its priority a page waits in;
2. :meth:`Order.place`: where in that queue; first in, first out unless the order says otherwise;
3. :meth:`Order.rank`: where a host whose best page is known stands among the hosts that may be fetched from;
4. :meth:`Order.revisit_queue`: which of the visited pages are revisited first, in a recrawl;
5. :meth:`Order.clock_after`: what the order must remember (rule 1);
6. :meth:`Order.due`: how long a registered domain that is over its budget must wait.

To add an order: a class here, a line in :data:`ORDERS`, a row of the first table of docs/order.md, and its figures in
the tables of docs/order-evidence.md. A user's order needs neither; see docs/library.md.

Orders that look at the whole graph (:class:`BatchOrder`) give every page a score from time to time.

Rule 1: an order remembers nothing. What it must know from one page to the next is its *clock*, one whole number, which
the crawl keeps for it and stores.

Rule 2: an order reads no more of a page than :class:`PageView` shows, and no more of a host than :class:`HostView`
does. Everything else in their records may change with any release.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, ClassVar, Protocol

from .records import LAST_SERIAL, N_FRONT_QUEUES, VISITED, WORST_START, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from .graph import KnownGraph, Ranking

N_CLASSES = 2 * N_FRONT_QUEUES
"""Classes of hosts: half front queues, as the root of a number of pages has half as many binary digits."""

_RANKS = [bytes((N_CLASSES - 1 - number,)) for number in range(N_CLASSES)]
"""Rank of a host by its class, the best class first."""

_MIDDLE = N_FRONT_QUEUES // 2
"""Front queue of all pages of an order in which only their places differ."""

VALUE_BITS = 10
"""Binary digits of a page's value for a topic; above them, its score counts links."""

LARGEST_VALUE = (1 << VALUE_BITS) - 1
"""The value 1. Steps of a thousandth are finer than any judgement of a page that is not known yet."""

FOCUS = 0.9
"""Default weight of the topic in an order by topic: cash decides among pages of nearly the same value."""

_FLOAT = struct.Struct(">f")
"""Times of :class:`OpicRandom`: floating-point numbers of 32 bits."""


class PageView(Protocol):
    """The fields of a page that an order may read.

    Attributes:
        place: Its place inside its front queue, from :meth:`Order.place`.
        shift: Front queues by which it waits higher, or lower if negative.
        priority: Its ``Request.priority``: pages of a higher one come first, whatever the order says.
        score: Visits that found a link to it if the order ``counts_links``; its score, in units of 2**-16 of the
            mean, for a :class:`BatchOrder`; for an order that ``values_links``, see :func:`value_of`.
        visits: Visits so far.
        lowered: Front queues by which it waits lower, if the order counts directories, bounds branches or looks for mirrors.
        clicks: How far it is from where the crawl entered its host (:class:`~scrapy_aopic.core.records.Page`).
    """

    @property
    def place(self) -> int: ...
    @property
    def shift(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def score(self) -> int: ...
    @property
    def visits(self) -> int: ...
    @property
    def lowered(self) -> int: ...
    @property
    def clicks(self) -> int: ...


class HostView(Protocol):
    """The fields of a host that an order may read.

    Attributes:
        name: Its name.
        queued: Pages that wait, those in flight included.
        visited: Pages of it that were visited or failed at least once.
    """

    @property
    def name(self) -> str: ...
    @property
    def queued(self) -> int: ...
    @property
    def visited(self) -> int: ...


def front_queue(cash: int, shift: int = 0) -> int:
    """Front queue of a page with *cash* units, moved up by *shift* queues."""
    number = cash.bit_length() + shift
    return number if 0 <= number < N_FRONT_QUEUES else 0 if number < 0 else N_FRONT_QUEUES - 1


def quarter_queue(worth: int, shift: int = 0) -> int:
    """Quarter of a front queue, counted from the lowest, of a visited page that is worth *worth* units."""
    return min(max(int(4 * math.log2(worth + 1)) + 4 * shift, 0), 4 * N_FRONT_QUEUES - 2)


def host_class(best: int, visited: int) -> int:
    """Class of a host in half front queues: its best page's cash over the root of the visited pages.

    All pages of a host share the discount, so it orders hosts and costs nothing to keep up.
    """
    number = 2 * best + 1 - (visited + 1).bit_length()
    return number if 0 <= number < N_CLASSES else 0 if number < 0 else N_CLASSES - 1


def whole_value(value: float) -> int:
    """A *value* for a topic, 0 to 1, as links and pages hold it: 1 to :data:`LARGEST_VALUE`, as 0 means that there is none."""
    return max(int(LARGEST_VALUE * value), 1)


def value_of(score: int) -> float:
    """Value for a topic of a page with this *score*, 0 to 1; 1 for one that nothing is known of, such as a seed."""
    return (score & LARGEST_VALUE or LARGEST_VALUE) / LARGEST_VALUE


def relevance_of(page: Page) -> float | None:
    """How relevant *page* was to the topic when it was last visited, 0 to 1; ``None`` if it was not graded.

    Only orders that value links keep it; the score of a waiting page is its expected value.
    """
    is_graded = page.state == VISITED and not page.outcome and page.score & LARGEST_VALUE
    return value_of(page.score) if is_graded else None


def revalued(score: int, value: int) -> int:
    """A page's *score* with another *value*, as :func:`whole_value` gives it."""
    return score & ~LARGEST_VALUE | value


class Order:
    """Breadth first: pages in the order in which they were found. The base of all orders.

    An order of your own is a subclass, named by its import path in ``AOPIC_ORDER``. It is made without arguments.

    Attributes:
        uses_endowments: Whether visits are endowed (``AOPIC_ENDOWMENT``), if that is what the virtual page spends on.
        uses_domains: Whether pages are counted by registered domain, and the domains that link to each.
        counts_links: Whether ``page.score`` is to count the visits that found a link to the page.
        values_links: Whether links have values for a topic, the best of which the lowest :data:`VALUE_BITS` digits of
            ``page.score`` keep; once the page was visited, they keep how relevant it is.
        one_link: What a visit that found a link to a page adds to ``page.score``, if it ``counts_links``.
        ranks_by_front_queue: Whether the rank of a host improves only when the front queue of its best page does.
        budget: Part of all fetches that a registered domain with one supporter may take, and a fifth of what may
            go behind a link to one; 0 for no such bound.
        allowance: Fetches of a registered domain with one supporter that are free of the budget.
        directory_pages: Fetched pages of a directory at which it is full: each further one is lowered when its turn comes
            (``page.lowered``), and waits where :meth:`front_queue` says then; 0 if directories are not counted.
        branch_pages: Fetched pages of a branch from which on it may be crowded (:mod:`.branches`), and its pages are lowered;
            0 if branches are not bounded. The order must count links.
        mirror_pages: Pages of two origins that must be the same for those of one to wait lower (:mod:`.mirrors`); 0 if mirrors are
            not looked for. The order must use domains.
    """

    uses_endowments: ClassVar[bool] = False
    uses_domains: ClassVar[bool] = False
    counts_links: ClassVar[bool] = False
    values_links: ClassVar[bool] = False
    one_link: ClassVar[int] = 1
    ranks_by_front_queue: ClassVar[bool] = False
    budget: float = 0.0
    allowance: float = 0.0
    directory_pages: int = 0
    branch_pages: int = 0
    mirror_pages: int = 0

    def front_queue(self, page: PageView, cash: int) -> int:
        """Front queue of *page* among those of its priority, which holds *cash* units (or is worth them, at a repeated visit).

        It must depend on these two only. ``page.shift`` is to be added.
        """
        return front_queue(1 << (_MIDDLE - 1), page.shift)

    def revisit_queue(self, page: PageView, worth: int) -> int:
        """Which visited pages are revisited first, 0 to 254, the best highest; the same for all in turn.

        Args:
            worth: Units that *page* is worth at its next visit.
        """
        return 0

    def place(self, number: int, clock: int) -> int:
        """Place inside a front queue, lowest first, of the *number*-th page queued: 64 bits that end in *number*.

        Args:
            clock: What :meth:`clock_after` gave last in this job; 0 at its start.
        """
        return number

    def clock_after(self, page: PageView, clock: int) -> int:
        """The order's state of 32 bits after *page* is leased; *clock* is the state before."""
        return clock

    def rank(self, row: bytes, host: HostView, visited: int) -> bytes:
        """Where *host* stands among hosts that may be fetched from, lowest bytes first; the same length for all.

        Args:
            row: The best queue row of the host, without its priority, by which hosts are ranked first; while the host is not in
                memory only its first byte is reliable: :data:`~scrapy_aopic.core.records.WORST_START` less the front queue.
            visited: Visited pages of the host, or of its registered domain if the order uses domains.
        """
        return row

    def due(self, visited: int, supporters: float, seeded: float) -> float:
        """Visits of the whole crawl before which a registered domain is over its budget; 0 for no budget.

        Args:
            visited: Pages of the domain visited so far.
            supporters: Estimated number of other domains that link to it; each of its seeds counts as one.
            seeded: Part of all seeds that are its pages, 0 to 1.
        """
        return 0.0


class BreadthFirst(Order):
    """Pages in the order in which they were found (Najork and Wiener, WWW 2001)."""


class DepthFirst(Order):
    """The page that was found last, as Scrapy's own default."""

    def place(self, number: int, clock: int) -> int:
        return (LAST_SERIAL - number) << 32 | number


class Opic(Order):
    """The page with the most cash, within a factor of two (greedy; Abiteboul, Preda and Cobena, WWW 2003)."""

    def front_queue(self, page: PageView, cash: int) -> int:
        return front_queue(cash, page.shift)

    def revisit_queue(self, page: PageView, worth: int) -> int:
        return quarter_queue(worth, page.shift)


class OpicCycle(Order):
    """All pages in turn; cash is counted but does not decide (the paper's cycle)."""


class OpicRandom(Order):
    """Any waiting page with the same chance (the paper's random).

    Each page gets an exponentially distributed time after the clock, which stands at the time of the last page leased.
    Such times have no memory, so the next one to come is equally likely to be any page's. They are kept as 32-bit
    floating-point numbers, whose bytes sort as they do.
    """

    def place(self, number: int, clock: int) -> int:
        mixed = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1  # splitmix64 (Steele, Lea and Flood, 2014)
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
        chance = ((mixed ^ mixed >> 31) + 1) / 2**64
        (begin,) = _FLOAT.unpack(clock.to_bytes(4, "big"))
        return int.from_bytes(_FLOAT.pack(begin - math.log(chance)), "big") << 32 | number

    def clock_after(self, page: PageView, clock: int) -> int:
        if page.priority or page.shift:  # it may come long before or after its time
            return clock
        return max(clock, page.place >> 32)  # its host may have had to wait


class Backlinks(Order):
    """The page with the most known links to it (Cho, Garcia-Molina and Page, WWW7, 1998)."""

    counts_links = True

    def front_queue(self, page: PageView, cash: int) -> int:
        n = page.score  # exact up to 16, then in steps of a quarter of a power of two
        step = n if n < 16 else int(16 + 4 * math.log2(n / 16))
        return min(max(step + page.shift, 0), N_FRONT_QUEUES - 1)


class LargerSites(Order):
    """The host with the most waiting pages, within 0.3 % (Baeza-Yates, Castillo, Marin and Rodriguez, WWW 2005)."""

    def rank(self, row: bytes, host: HostView, visited: int) -> bytes:
        return (0xFFFF - int(256 * math.log2(host.queued + 1))).to_bytes(2, "big")


class BatchOrder(Order):
    """Pages by a score on the known graph, computed again each time the graph has grown by *growth*.

    Needs numpy, keeps the known graph in memory, and the links in the store.
    """

    growth: ClassVar[float] = 0.1

    def front_queue(self, page: PageView, cash: int) -> int:
        if not page.score:  # found since the last computation
            return front_queue(0, page.shift)
        return min(max(int(2 * math.log2(page.score)) - 16 + page.shift, 1), N_FRONT_QUEUES - 1)

    def ranking(self, graph: KnownGraph) -> Callable[[], Ranking]:
        """A function that computes the score of each page of *graph*, 0 to 1; called in another thread."""
        raise NotImplementedError


class PageRank(BatchOrder):
    """PageRank(0.85) of the known graph (Cho, Garcia-Molina and Page, WWW7, 1998)."""

    def ranking(self, graph: KnownGraph) -> Callable[[], Ranking]:
        return graph.frozen().pagerank


class Hits(BatchOrder):
    """Authority scores of the known graph (Kleinberg, JACM 46(5), 1999)."""

    def ranking(self, graph: KnownGraph) -> Callable[[], Ranking]:
        return graph.frozen().authorities


BUDGET = 0.004
"""Part of all fetches that a registered domain with one supporter may take in the order ``aopic``."""

ALLOWANCE = 20.0
"""Fetches of such a domain that are free of the budget, in the order ``aopic``."""

DIRECTORY_PAGES = 3
"""Fetched pages at which a directory is full, in the order ``aopic``."""

BRANCH_PAGES = 64
"""Fetched pages from which on a branch may be crowded, in the order ``aopic``: of smaller hosts, most parts are smaller."""

MIRROR_PAGES = 3
"""Pages of two origins that must be the same, in the order ``aopic``: one or two may be so by chance, such as a licence."""

NEAR_CLICKS = 36
"""Clicks inside a host up to which a page waits where its cash says, in the order ``aopic``; one front queue lower for each
further one.

That starves an endless binary tree, each page of which has less than half of the cash of the one that leads to it, as fading
endowments starve a chain. Real pages are that far away only behind nine links in a row each of which is the only one known.
From 16 clicks on, order would lose .008 of its mean on a graph with large hosts.
"""


def clicks_lower(clicks: int) -> int:
    """Front queues by which a page with so many *clicks* waits lower in the order ``aopic``."""
    return clicks - NEAR_CLICKS if clicks > NEAR_CLICKS else 0


class Aopic(Order):
    """The default: cash and links, with endowments, a discount for large sites, and budgets by support.

    1. A page counts for its cash times the root of the number of visits that found a link to it: early in a crawl,
       when little cash has circulated, the number of links says more than their cash.
    2. Visits are endowed out of the virtual page's reserve, less the more of a domain is visited (see the ledger).
    3. Hosts are ranked by what their best page counts for, over the root of the visited pages of their domain.
    4. A domain may take a part of all fetches that grows with the number of distinct domains that link to it
       (STAR of IRLbot: Lee, Leonard, Wang and Loguinov, WWW 2008), and the part of all seeds that it has. What is
       over that budget is deferred until the crawl has grown (BEAST), and fetched when nothing else can be: the best
       page first, lowered by how far its budgets are overdrawn (see :mod:`.frontier.budgets`).
    5. What lies behind a link from one domain to another, whatever the number of domains, may take five times what
       a domain with one supporter may (see :mod:`.sponsors`).
    6. A page waits one front queue lower if three pages of its directory have been fetched when its turn comes: what a
       host has in other directories comes first (see :mod:`.directories`).
    7. A page waits sixteen front queues lower if one link leads to it, and a hundredth of what was fetched of its host, and 64
       pages, were reached by such links alone from the same page: an endless tree is like that; and two more for each doubling
       of that (see :mod:`.branches`).
    8. A page that is more than 36 clicks from where the crawl entered its host waits a front queue lower for each further
       one.
    9. A page waits behind all others if the same page was read, or waits, at an origin of its domain that has the same pages (see
       :mod:`.mirrors`).
    """

    uses_endowments = True
    uses_domains = True
    counts_links = True
    ranks_by_front_queue = True
    budget = BUDGET
    allowance = ALLOWANCE
    directory_pages = DIRECTORY_PAGES
    branch_pages = BRANCH_PAGES
    mirror_pages = MIRROR_PAGES

    def front_queue(self, page: PageView, cash: int) -> int:
        if page.score > 1:
            cash = cash * math.isqrt(page.score << 16) >> 8
        number = cash.bit_length() + page.shift - page.lowered  # front_queue, without a call for each link
        if page.clicks > NEAR_CLICKS:
            number -= page.clicks - NEAR_CLICKS
        return number if 0 <= number < N_FRONT_QUEUES else 0 if number < 0 else N_FRONT_QUEUES - 1

    def revisit_queue(self, page: PageView, worth: int) -> int:
        return quarter_queue(worth, page.shift)

    def rank(self, row: bytes, host: HostView, visited: int) -> bytes:
        return _RANKS[host_class(WORST_START - row[0], visited)]

    def due(self, visited: int, supporters: float, seeded: float) -> float:
        support: float = supporters**1.5 if supporters > 1 else 1.0
        if visited < self.allowance * support or not self.budget:
            return 0.0
        return visited / (self.budget * support + seeded)


class Focused(Aopic):
    """Pages that seem relevant to a topic first (Chakrabarti, van den Berg and Dom, WWW8, 1999).

    The front queue of a page is the mean, weighted by *focus*, of two: that of its value for the topic, and the one that it
    has in the order ``aopic``. Hosts are discounted, and domains bounded, the less the more the topic counts: what is
    relevant may all be on one site.

    Args:
        focus: How much the topic counts, from 0 (as ``aopic``) to 1 (nothing else).
        budget: What ``aopic`` has as its budget.
    """

    values_links = True
    one_link = 1 << VALUE_BITS
    directory_pages = branch_pages = mirror_pages = 0

    def __init__(self, focus: float = FOCUS, budget: float = BUDGET) -> None:
        self.focus = focus
        rest = 1.0 - focus
        self.budget = budget / rest if rest else 0.0
        self.allowance = ALLOWANCE / rest if rest else 0.0
        self._rest = rest
        # Even steps where values are large, and steps by ratio where they are small.
        self._queues = [
            focus
            * (N_FRONT_QUEUES - 2)
            * (value / LARGEST_VALUE + 1 + math.log2(value / LARGEST_VALUE) / VALUE_BITS)
            / 2
            for value in range(1, LARGEST_VALUE + 1)
        ]

    def front_queue(self, page: PageView, cash: int) -> int:
        links, value = page.score >> VALUE_BITS, page.score & LARGEST_VALUE or LARGEST_VALUE
        if links > 1:
            cash = cash * math.isqrt(links << 16) >> 8
        bits = max(cash.bit_length() - clicks_lower(page.clicks), 0)
        number = int(self._queues[value - 1] + self._rest * bits) + page.shift
        return number if 0 <= number < N_FRONT_QUEUES else 0 if number < 0 else N_FRONT_QUEUES - 1

    def rank(self, row: bytes, host: HostView, visited: int) -> bytes:
        discount = int(self._rest * ((visited + 1).bit_length() - 1))
        number = 2 * (WORST_START - row[0]) - discount
        return _RANKS[number if 0 <= number < N_CLASSES else 0 if number < 0 else N_CLASSES - 1]


ORDERS: dict[str, type[Order]] = {
    "aopic": Aopic,
    "focused": Focused,
    "opic": Opic,
    "opic-random": OpicRandom,
    "opic-cycle": OpicCycle,
    "breadth-first": BreadthFirst,
    "depth-first": DepthFirst,
    "backlinks": Backlinks,
    "pagerank": PageRank,
    "hits": Hits,
    "larger-sites": LargerSites,
}
"""The orders of this package, by the names that ``AOPIC_ORDER`` takes."""


def order_name(order: Order) -> str:
    """Name of the class of *order*, by which a job remembers it."""
    return f"{type(order).__module__}.{type(order).__qualname__}"
