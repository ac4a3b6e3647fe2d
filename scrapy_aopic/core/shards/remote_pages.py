"""Pages that are one with a page of another shard: a claim goes there, a grant comes back, then the page *forwards*.

What :mod:`scrapy_aopic.core.merging` does in one step takes three letters here:

1. The shard of a page that says it is a page of another shard keeps the claim, and sends it.
2. That shard grants it, at once or when the page that it names has been visited.
3. If the first page was not visited since, its cash and history go to the other one, and so does all that it gets later.

The crawl goes on meanwhile, so each step checks again whether it still applies. A claim to be a page that forwards is
passed on to the page that stands for it.

Rule: a page that waits for a grant gives none, or pages could be merged in a circle, in which cash would go round for
ever: in any circle each claim would have to be older than the next one's grant, and that one older than the next claim, all
the way round. A claim to be such a page waits until that page is known to stand for itself or for another. Of two pages
that claim to be each other, the one with the larger key gives up its claim; three or more in a circle all wait, and stay
as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.duplicates import Claim, Duplicates, Text
from scrapy_aopic.core.layout import FOREIGN_CLAIMS, OWN_CLAIMS
from scrapy_aopic.core.pages import MAX_HEIGHT, Pages
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import FAILED, PAGE_BYTES, VISITED, Page, pack, unpack
from scrapy_aopic.core.tables import BlobTable, RowTable

from .cut import address, shard_of_address
from .letters import Bequest, Grant, PageClaim

if TYPE_CHECKING:
    from scrapy_aopic.core.ledger import Ledger

    from .mail import Mail

_MAX_WAITING = 10_000
"""Most claims that the visit of a page grants at once: a bound on one step."""


class RemotePages:
    """Merges pages of this shard with pages of others.

    Args:
        adds_scores: Whether the scores of merged pages are added up.

    Attributes:
        n_merged: Pages of this shard that forward since this run.
        tables: Its rows, with those that wait for a commit.
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
        self.tables = (self._own, self._foreign)

    # -- pages of this shard that are pages of others

    def claim(self, claim: Claim, page: Page, other: bytes) -> None:
        """Send *claim*, of *page*, that it is the page at the address *other*."""
        text = self._duplicates.text(claim.page) if claim.is_if_same else None
        if page.height >= MAX_HEIGHT // 2 or (claim.is_if_same and (text is None or not text.digest)):
            return
        self._own.put(OWN_CLAIMS + claim.page, pack((claim.outcome, claim.visits, other[:PAGE_BYTES])))
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

    def stays(self, key: bytes, page: Page) -> None:
        """Give up the claim of *page*, which stands for itself from now on because it stands for another one."""
        if not self._mail.cut.has_others:
            return
        self._own.delete(OWN_CLAIMS + key)
        if page.is_claimed and page.visits:
            self.visited(key)

    def granted(self, grant: Grant, sender: int) -> None:
        """Apply the decision of *sender* on the claim of a page of this shard: if it was granted, the page forwards.

        Nothing happens if the page was visited since, as it may have claimed to be another page then.
        """
        key, page = grant.page, self._pages.get(grant.page)
        claim = self._claim_of(key, page)
        if page is None or claim is None or claim.visits != grant.visits:
            return
        self._own.delete(OWN_CLAIMS + key)
        if grant.root != key and page.height < MAX_HEIGHT // 2:
            self._forward(key, page, claim, address(grant.root, sender))
        if page.is_claimed:
            self.visited(key)

    def _forward(self, key: bytes, page: Page, claim: Claim, where: bytes) -> None:
        """Merge *page* with the page at the address *where*."""
        units, history = self._pages.bequeath(key, page, where, claim.outcome)
        score = page.score if self._adds_scores else 0
        length = (history.bit_length() + 7) // 8
        bequest = Bequest(where[:PAGE_BYTES], units, history.to_bytes(length, "big"), score, page.height + 1)
        self._mail.tell(shard_of_address(where), bequest)
        self.n_merged += 1

    def _claim_of(self, key: bytes, page: Page | None) -> Claim | None:
        """The claim of *page* that waits for a grant; ``None`` if it has none, was visited since, or is merged."""
        row = self._own.get(OWN_CLAIMS + key) if page is not None and not page.canonical else None
        if row is None or page is None:
            return None
        outcome, visits, _ = unpack(row)
        return Claim(key, outcome, visits) if (page.state, page.visits) == (VISITED, visits) else None

    # -- pages of others that are pages of this shard

    def claimed(self, claim: PageClaim) -> Claim | None:
        """Decide on the claim of a page of another shard to be a page of this one.

        Returns:
            The claim if it came back to its own shard: of a page of this shard to be ``claim.other`` of this shard.
        """
        root, page = self._pages.root(claim.other)
        if len(root) > PAGE_BYTES:
            passed_on = PageClaim(claim.page, claim.origin, root[:PAGE_BYTES], claim.visits, claim.height,
                                  claim.is_if_same, claim.digest, claim.sketch)  # fmt: skip
            self._mail.tell(shard_of_address(root), passed_on)
            return None
        if claim.origin == self._mail.cut.own.number:
            own = self._claim_of(claim.page, self._pages.get(claim.page))
            self._own.delete(OWN_CLAIMS + claim.page)
            return own._replace(is_if_same=claim.is_if_same) if own is not None else None
        if page is None or page.state == FAILED or not self._counts(claim):
            self._mail.tell(claim.origin, Grant(claim.page, claim.visits, claim.page))
            return None
        if page.visits and self._is_free(root, page, claim.page):
            self._mail.tell(claim.origin, Grant(claim.page, claim.visits, root))
            return None
        self._pages.claim(root, page, is_claimed=True)
        value = (claim.visits, claim.height, claim.is_if_same, claim.digest, claim.sketch)
        self._foreign.put(FOREIGN_CLAIMS + root + address(claim.page, claim.origin), pack(value))
        return None

    def visited(self, key: bytes) -> None:
        """Decide on the claims to be the page under *key*, which was visited, or no longer waits for a grant."""
        if not self._mail.cut.has_others:
            return
        rows, _ = self._foreign.first(FOREIGN_CLAIMS + key, _MAX_WAITING)
        self._foreign.forget(FOREIGN_CLAIMS + key)
        for row, value in rows:
            self._foreign.delete(row)
            where = row[1 + PAGE_BYTES :]
            self.claimed(PageClaim(where[:PAGE_BYTES], shard_of_address(where), key, *unpack(value)))

    def inherited(self, bequest: Bequest, now: float) -> None:
        """Give a *bequest* to its page, or to the page that now stands for it."""
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
        self._pages.inherit(
            root,
            page,
            now,
            units=bequest.units,
            history=int.from_bytes(bequest.history, "big"),
            score=bequest.score,
            height=bequest.height,
        )

    def _counts(self, claim: PageClaim) -> bool:
        """Whether *claim* counts, assuming that the page that it names is there and was visited."""
        page = self._pages.get(claim.other)
        if claim.height >= MAX_HEIGHT // 2:
            return False
        if not claim.is_if_same or page is None or not page.visits:
            return True
        text = self._duplicates.text(claim.other)
        return self._duplicates.is_alike(Text(claim.digest, claim.sketch), text, with_links=False)

    def _is_free(self, key: bytes, page: Page, claimant: bytes) -> bool:
        """Whether *page* may stand for *claimant*: it has no claim that waits, or gives it up."""
        if self._claim_of(key, page) is None:
            return True
        named = unpack(self._own.get(OWN_CLAIMS + key) or b"")[2]
        if named != claimant or claimant > key:
            return False
        self.stays(key, page)
        return True
