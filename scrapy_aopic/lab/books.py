"""Records of a simulated crawl's inputs and outputs, kept apart from it, so that it can be checked against them.

Rule: nothing here reads the crawl's own state; only its inputs and its actions are recorded.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import Link
from scrapy_aopic.core.spending import page_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.core.crawl import Crawl
    from scrapy_aopic.core.ledger import Totals


@dataclass(slots=True)
class Account:
    """Units that went to a page and came from it.

    Attributes:
        link: A link to it.
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


class CashBook:
    """The accounts of all pages that were found.

    Attributes:
        accounts: By number of the page.
        faults: What did not add up, a sentence each.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self.accounts: dict[int, Account] = {}
        self.faults: list[str] = []

    def open(self, page: int, link: Link, *, is_chosen: bool) -> Account:
        """Open the account of *page*, which was found."""
        handed = self._totals.handed[page_class(is_visited=False, is_chosen=is_chosen)]
        account = self.accounts[page] = Account(link, is_chosen, handed)
        return account

    def spend(self, account: Account, cash: int) -> None:
        """A page is visited, and distributes *cash*."""
        account.received += self._handed(account) - account.handed
        account.spent += cash
        account.visits += 1
        account.handed = self._handed(account)

    def pay(self, page: int, paid: int, targets: Sequence[Account], units: Sequence[int]) -> None:
        """*page* paid *units* to *targets*, and *paid* in all did not go to the virtual page."""
        if paid != sum(units):
            self.faults.append(f"page {page} paid {paid} units, but {sum(units)} to {len(targets)} pages")
        for target, each in zip(targets, units, strict=True):
            target.received += each

    def violations(self, crawl: Crawl) -> Iterator[str]:
        """Where the cash of *crawl* differs from these accounts, a sentence each; reads every page."""
        known = sum(crawl.counts[:3])
        if known != len(self.accounts):
            yield f"the crawl knows {known} pages, but {len(self.accounts)} were made known to it"
        for number, account in self.accounts.items():
            page = crawl.page(account.link.key)
            cash = crawl.ledger.cash(page) if page is not None else 0
            received = account.received + self._handed(account) - account.handed
            if received != account.spent + cash:
                yield f"page {number} received {received} units, but spent {account.spent} and holds {cash}"

    def _handed(self, account: Account) -> int:
        """Units that the virtual page has handed so far to each page of the class that *account* is in."""
        return self._totals.handed[page_class(is_visited=account.visits > 0, is_chosen=account.is_chosen)]


class HostBook:
    """When each host may be requested, and for how many pages, as seen from outside the frontier.

    Attributes:
        idle: Connection-seconds in which a connection was free, a host with queued pages could be requested, and nothing
            was leased.
        faults: Hosts that were requested twice at once, or too early, a sentence each.
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
        """A page of *host* is requested."""
        if host in self._busy or now < self._not_before.get(host, 0.0):
            allowed = "another request is under way" if host in self._busy else f"at {self._not_before[host]}"
            self.faults.append(f"host {host} got a request at {now} s; allowed: {allowed}")
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
