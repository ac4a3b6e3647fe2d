"""Pages that are one with a page of another shard: a claim goes there, a grant comes back, then the page *forwards*.

What :mod:`scrapy_aopic.core.merging` does in one step takes three letters here:

1. The shard of a page that says it is a page of another shard keeps the claim, and sends it.
2. That shard grants it, at once or when the page that it names has been visited.
3. If the first page was not visited since, its cash and history go to the other one, and from then on all that it gets.

Nothing stands still meanwhile, so each step looks again. A claim that names a page that forwards is passed on to the page
that stands for it.

Rule: a page never waits for a grant and gives one, or pages could be merged in a circle, in which cash would go round
for ever. A page that is asked while it waits grants the claim and forgets its own, if the claimant's key is the smaller
one; otherwise it lets the claim drop. So of two pages that claim to be each other one is merged. Then in any circle each
claim would have to be older than the next one's grant, and that one older than the next claim, all the way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.duplicates import Claim, Text
from scrapy_aopic.core.layout import FOREIGN_CLAIMS, OWN_CLAIMS
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import FAILED, PAGE_BYTES, VISITED, pack, unpack
from scrapy_aopic.core.tables import BlobTable, RowTable

from .cut import address, shard_of_address
from .letters import Bequest, Grant, PageClaim

if TYPE_CHECKING:
    from scrapy_aopic.core.duplicates import Duplicates
    from scrapy_aopic.core.ledger import Ledger
    from scrapy_aopic.core.pages import Pages
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.records import Page

    from .mail import Mail

_MAX_WAITING = 10_000
"""Claims to be one page that its visit grants at once: a bound on one step."""


class Abroad:
    """Merges pages of this shard with pages of others.

    Args:
        adds_scores: Whether the scores of merged pages are added up.

    Attributes:
        n_merged: Pages of this shard that forward since this run.
    """

    def __init__(
        self,
        store: Store,
        mail: Mail,
        pages: Pages,
        ledger: Ledger,
        duplicates: Duplicates,
        *,
        adds_scores: bool,
    ) -> None:
        self.n_merged = 0
        self._mail = mail
        self._pages = pages
        self._ledger = ledger
        self._duplicates = duplicates
        self._adds_scores = adds_scores
        self._own = BlobTable(store, Family.CONTENT)
        self._foreign = RowTable(store, Family.CONTENT, lambda row: row[: 1 + PAGE_BYTES])

    # -- pages of this shard that are pages of others

    def claim(self, claim: Claim, page: Page, other: bytes) -> None:
        """Send *claim*, of *page*, that it is the page at the address *other*."""
        text = self._duplicates.text(claim.page) if claim.is_if_same else None
        if page.height >= MAX_HEIGHT // 2 or (claim.is_if_same and (text is None or not text.digest)):
            return
        self._own.put(OWN_CLAIMS + claim.page, pack((claim.outcome, claim.visits)))
        word = PageClaim(
            claim.page,
            self._mail.cut.own.number,
            other[:PAGE_BYTES],
            claim.visits,
            page.height,
            claim.is_if_same,
            text.digest if text is not None else b"",
            text.sketch if text is not None else b"",
        )
        self._mail.tell(shard_of_address(other), word)

    def stays(self, key: bytes) -> None:
        """The page under *key* stands for another one from now on, and so for itself: it waits for no grant."""
        self._own.delete(OWN_CLAIMS + key)

    def granted(self, grant: Grant, sender: int) -> None:
        """*sender* grants the claim of a page of this shard: that forwards now, unless it was visited since."""
        key = grant.page
        row = self._own.get(OWN_CLAIMS + key)
        if row is None:
            return  # it stands for another page by now
        outcome, visits = unpack(row)
        page = self._pages.get(key)
        if visits != grant.visits:
            return  # it has claimed something else since
        self._own.delete(OWN_CLAIMS + key)
        if (
            page is None
            or page.state != VISITED
            or page.visits != visits
            or page.canonical
            or page.height >= MAX_HEIGHT // 2
        ):
            return
        units, history = self._ledger.bequeath(page)
        page.canonical = address(grant.root, sender)
        page.outcome = outcome
        score = page.score if self._adds_scores else 0
        length = (history.bit_length() + 7) // 8
        self._mail.tell(
            sender, Bequest(grant.root, units, history.to_bytes(length, "big"), score, page.height + 1)
        )
        self._pages.keep(key, page)
        self.n_merged += 1

    # -- pages of others that are pages of this shard

    def claimed(self, claim: PageClaim) -> Claim | None:
        """A page of another shard says that it is a page of this one.

        Returns:
            The claim if it came round: of a page of this shard to be ``claim.other`` of this shard.
        """
        root, page = self._pages.root(claim.other)
        if len(root) > PAGE_BYTES:
            passed_on = PageClaim(claim.page, claim.origin, root[:PAGE_BYTES], claim.visits, claim.height,
                                  claim.is_if_same, claim.digest, claim.sketch)  # fmt: skip
            self._mail.tell(shard_of_address(root), passed_on)
            return None
        if page is None or page.state == FAILED or root == claim.page:
            return None
        if claim.origin == self._mail.cut.own.number:
            row = self._own.get(OWN_CLAIMS + claim.page)
            outcome, visits = unpack(row) if row is not None else ("", 0)
            return Claim(claim.page, outcome, visits, claim.is_if_same) if visits == claim.visits else None
        if page.visits:
            self._grant(claim, claim.other, root)
            return None
        page.is_claimed = True
        self._pages.keep(root, page)
        value = (claim.visits, claim.height, claim.is_if_same, claim.digest, claim.sketch)
        self._foreign.put(FOREIGN_CLAIMS + root + address(claim.page, claim.origin), pack(value))
        return None

    def visited(self, key: bytes) -> None:
        """The page under *key*, which was claimed to be others, was visited: grant the claims of other shards, unless it failed."""
        rows, _ = self._foreign.first(FOREIGN_CLAIMS + key, _MAX_WAITING)
        self._foreign.forget(FOREIGN_CLAIMS + key)
        for row, value in rows:
            self._foreign.delete(row)
            where = row[1 + PAGE_BYTES :]
            self.claimed(PageClaim(where[:PAGE_BYTES], shard_of_address(where), key, *unpack(value)))

    def inherited(self, bequest: Bequest, now: float) -> None:
        """The page of a *bequest* gets it, or the page that stands for it by now."""
        root, page = self._pages.root(bequest.root)
        if len(root) > PAGE_BYTES:
            passed_on = Bequest(
                root[:PAGE_BYTES], bequest.units, bequest.history, bequest.score, bequest.height + 1
            )
            self._mail.tell(shard_of_address(root), passed_on)
            return
        if page is None or page.state == FAILED:
            self._ledger.forfeit(bequest.units)
            return
        self._ledger.inherit(page, bequest.units, int.from_bytes(bequest.history, "big"))
        page.score += bequest.score
        page.height = max(page.height, bequest.height)
        self._pages.replace(root, page, now)

    def _grant(self, claim: PageClaim, other: bytes, root: bytes) -> None:
        """Grant *claim* to be the page under *other*, for which the one under *root* stands, if it counts."""
        if claim.height >= MAX_HEIGHT // 2:
            return
        if claim.is_if_same:
            text = self._duplicates.text(other)
            if not self._duplicates.is_alike(Text(claim.digest, claim.sketch), text, with_links=False):
                return
        if self._own.get(OWN_CLAIMS + root) is not None:
            if claim.page > root:
                return
            self.stays(root)
        self._mail.tell(claim.origin, Grant(claim.page, claim.visits, root))

    # -- commits

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""
        return {**self._own.take(), **self._foreign.take()}

    def landed(self) -> None:
        """The rows in flight are in the store."""
        self._own.landed()
        self._foreign.landed()

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._own.failed()
        self._foreign.failed()
