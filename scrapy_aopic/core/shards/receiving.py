"""Applies letters: links are paid and queued, domains get supporters, pages are merged.

Rule: a letter is applied in one step, like a visit. All of it is checked before anything is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from scrapy_aopic.core.records import FAILED, HOST_BYTES, Link
from scrapy_aopic.exceptions import StorageError

from .letters import Letter, Payment, read_letter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.domain_links import DomainLinks
    from scrapy_aopic.core.frontier.frontier import Frontier
    from scrapy_aopic.core.ledger import Ledger
    from scrapy_aopic.core.merging import Merging
    from scrapy_aopic.core.pages import Pages

    from .mail import Mail
    from .remote_pages import RemotePages


_MOST_PREPARED = 256
"""Most decoded letters that are kept: more than come to one shard at a time."""


class Received(NamedTuple):
    """What became of the letters that a shard was given, in numbers.

    Attributes:
        applied: Letters that were applied.
        known: Letters that had been applied before.
        early: Letters that must be given again, because earlier ones are missing.
    """

    applied: int = 0
    known: int = 0
    early: int = 0


class _Paid(NamedTuple):
    """A payment and the link that it is for."""

    link: Link
    payment: Payment


class Seeder(Protocol):
    """The calls of a crawl that take a seed: :meth:`scrapy_aopic.core.api.VisitCalls.seed` and ``enrich``."""

    def seed(self, link: Link, now: float, *, is_endowed: bool = True, worth: float = 1.0) -> bool: ...

    def enrich(self, key: bytes, now: float, worth: float) -> int: ...


class Receiver:
    """Applies letters to a shard."""

    def __init__(
        self,
        mail: Mail,
        *,
        seeder: Seeder,
        pages: Pages,
        ledger: Ledger,
        frontier: Frontier,
        domain_links: DomainLinks | None,
        merging: Merging,
        remote: RemotePages,
    ) -> None:
        self._mail = mail
        self._seeder = seeder
        self._pages = pages
        self._ledger = ledger
        self._frontier = frontier
        self._domain_links = domain_links
        self._merging = merging
        self._remote = remote
        self._prepared: dict[bytes, tuple[Letter, list[_Paid]]] = {}

    def prepare(self, data: bytes) -> int:
        """Start to read all rows that the letter *data*, which will be received soon, needs.

        Returns:
            Number of the request to the store, after which the letter can be applied without a wait; 0 if there is none.

        Raises:
            StorageError: If *data* is not a valid letter to this shard.
        """
        if len(self._prepared) > _MOST_PREPARED:
            self._prepared.clear()
        letter, payments = self._prepared[data] = self._read(data)
        return self._prefetch(payments, self._linked(letter, payments))

    def _read(self, data: bytes) -> tuple[Letter, list[_Paid]]:
        letter = read_letter(data, self._mail.cut)
        return letter, paid_links(letter)

    def receive(self, letters: Sequence[bytes], now: float) -> Received:
        """Apply those of *letters* that come next, in the order of their numbers.

        Raises:
            StorageError: If one of them is not a valid letter to this shard; nothing was changed.
        """
        prepared = self._prepared
        read = [prepared.pop(data) if data in prepared else self._read(data) for data in letters]
        read.sort(key=lambda each: (each[0].sender, each[0].number))
        applied = known = early = 0
        for letter, payments in read:
            expected = self._mail.expected(letter.sender)
            if letter.number < expected:
                known += 1
            elif letter.number > expected:
                early += 1
            else:
                self._mail.applied(letter)
                self.apply(letter, payments, now)
                applied += 1
        return Received(applied, known, early)

    def apply(self, letter: Letter, payments: list[_Paid], now: float) -> None:
        """Do what *letter* says, with its *payments*, whose units the caller has taken from elsewhere."""
        linked = self._linked(letter, payments)
        keys = [paid.link.key for paid in payments]
        # One read for all pages, one for all hosts, and one for all domains; all of them at once if that can be.
        self._prefetch(payments, linked)
        self._pages.get_many(keys)
        self._frontier.preload({paid.link.key[:HOST_BYTES] for paid in payments})
        by_found: dict[int, list[_Paid]] = {}
        for paid in payments:
            if not paid.link.again:
                by_found.setdefault(paid.payment.found, []).append(paid)
        for (
            paid
        ) in payments:  # before the others, which may be for the same page, and need not make it wait twice
            if paid.link.again:
                page = self._pages.get(paid.link.key)
                self._pages.pay([paid.link], [page], [paid.payment.units], now, found=paid.payment.found)
        for found, group in by_found.items():
            self._pay(group, now, found)
        self._find(linked, now)
        self._seed(letter, now)
        for claim in letter.claims:
            round_trip = self._remote.claimed(claim)
            if round_trip is not None:
                self._merging.claim(round_trip, claim.other, now)
        for grant in letter.grants:
            self._remote.granted(grant, letter.sender)
        for bequest in letter.bequests:
            self._remote.inherited(bequest, now)

    def _prefetch(self, payments: list[_Paid], linked: list[tuple[bytes, bytes]]) -> int:
        """Start to read the rows that *payments*, and the domains of the *linked* hosts, need; see :meth:`prepare`."""
        keys = [paid.link.key for paid in payments]
        return max(
            self._pages.table.prefetch(keys),
            self._frontier.prefetch({key[:HOST_BYTES] for key in keys}),
            self._domain_links.prefetch_elsewhere(linked) if self._domain_links is not None else 0,
        )

    def _pay(self, group: list[_Paid], now: float, found: int) -> None:
        """Pay pages, each of them once; payments to failed pages go to the virtual page."""
        known = self._pages.get_many([paid.link.key for paid in group])
        links, pages, units = [], [], []
        for paid, page in zip(group, known, strict=True):
            is_lost = page is None and not paid.link.host
            has_failed = page is not None and page.state == FAILED
            if is_lost or (has_failed and page is not None and not self._pages.is_for_more(paid.link, page)):
                self._ledger.forfeit(paid.payment.units)
                continue
            links.append(paid.link)
            pages.append(page)
            units.append(paid.payment.units)
        self._pages.pay(links, pages, units, now, found=found)

    def _linked(self, letter: Letter, payments: list[_Paid]) -> list[tuple[bytes, bytes]]:
        """Keys of the hosts of pages that were paid, each with the way to the domain that links there."""
        return [
            (link.key[:HOST_BYTES], letter.ways[finder])
            for link, payment in payments
            if link.host
            for finder in payment.finders
        ]

    def _find(self, linked: list[tuple[bytes, bytes]], now: float) -> None:
        """Note the domains that link to the *linked* hosts as supporters of their domains."""
        if self._domain_links is not None:
            self._domain_links.preload_elsewhere(linked)
            for target, way in linked:
                self._domain_links.found_elsewhere(target, way, now)

    def _seed(self, letter: Letter, now: float) -> None:
        """Queue the seeds that the sender was given."""
        for note in letter.seeds:
            link = letter.link(note.target)
            if link.host and self._seeder.seed(link, now, is_endowed=note.is_endowed, worth=note.worth):
                if self._domain_links is not None and note.finder >= 0:
                    self._domain_links.found_elsewhere(link.key[:HOST_BYTES], letter.ways[note.finder], now)
            elif note.enriches:
                self._seeder.enrich(link.key, now, note.worth)


def paid_links(letter: Letter) -> list[_Paid]:
    """The payments of *letter* with their links.

    Raises:
        StorageError: If one page is paid twice: its record would be written twice.
    """
    found = [_Paid(letter.link(payment.target), payment) for payment in letter.payments]
    if letter.values:
        leads = letter.leads or [b""] * len(found)
        found = [
            paid._replace(link=replace(paid.link, value=value, lead=lead))
            for paid, value, lead in zip(found, letter.values, leads, strict=True)
        ]
    keys = [link.key for link, _ in found if not link.again]
    if len(set(keys)) < len(keys):
        raise StorageError(f"The {letter} pays one page twice, which no letter does. Nothing was changed.")
    return found
