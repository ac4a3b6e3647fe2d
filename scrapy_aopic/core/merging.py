"""Merges pages that are one: duplicates, pages that name a canonical page, and permanent redirects.

A visit may show that its page is one with another page: because that one had the same text (:mod:`.duplicates`), or
because the page says so itself. The two are merged once both were visited: cash and history move to the *root*, the page
that stands for both, and so do later payments to the other one. Until then there is a *claim*, which the store remembers.

Rule 1: the findings of a response count only when its lease is settled. Until then they are a *verdict*, in memory.

Rule 2: a page that claims to be another one proves nothing about that one; so a claim gives cash away, and never takes any.

Rule 3: merged pages are at most :data:`~scrapy_aopic.core.pages.MAX_HEIGHT` hops from their root, as each page of an
endless chain may claim to be the next one.

Rule 4: only the address of a page of another shard is known here: :mod:`scrapy_aopic.core.shards.remote_pages` does by
mail what this module does in one step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .api import Ending, Lease
from .duplicates import Claim, Duplicates, Judgement, Text
from .pages import MAX_HEIGHT, Pages
from .records import FAILED, PAGE_BYTES, VISITED, Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from .leases import Leases
    from .mirrors import Mirrors
    from .shards.remote_pages import RemotePages

_UNJUDGED = Judgement()


class Merging:
    """Finds out which pages are one, and makes one page of them.

    Args:
        site_of: Key of the registered domain of the page under a key.
        adds_scores: Whether the scores of merged pages are added up: they are if they count links.
        remote: Merges pages with pages of other shards.
        mirrors: Learns of pages that are the same at two origins of a domain; ``None`` if nothing does.

    Attributes:
        n_merged: Pages that were merged with another one in this run.
    """

    def __init__(
        self,
        pages: Pages,
        leases: Leases,
        duplicates: Duplicates,
        site_of: Callable[[bytes], bytes],
        *,
        adds_scores: bool,
        remote: RemotePages,
        mirrors: Mirrors | None = None,
    ) -> None:
        self.n_merged = 0
        self._remote = remote
        self._mirrors = mirrors
        self._pages = pages
        self._leases = leases
        self._duplicates = duplicates
        self._site_of = site_of
        self._adds_scores = adds_scores
        self._verdicts: dict[bytes, Judgement] = {}  # by page key of the lease

    # -- while a page is in flight

    def prefetch(self, lease: Lease, text: Text, key: bytes) -> None:
        """Begin to read what :meth:`judge` will look at for the same arguments, if the store can do that."""
        self._duplicates.prefetch(key or lease.key, text)

    def judge(self, lease: Lease, text: Text | None, key: bytes = b"") -> Judgement:
        """Note the *text* of a leased page; returns which pages had it, or nearly the same, before.

        Args:
            text: ``None`` for the text that it had at its last visit.
            key: Key of the page itself, if the lease is of a repeat.
        """
        key = key or lease.key
        text = text or self._duplicates.text(key)
        if text is None or self._leases.standing(lease) != Ending.OK:
            return _UNJUDGED
        found = self._duplicates.judge(key, text, partial(self._is_other, key))
        if found.first:
            found = found._replace(is_excess=not self._duplicates.agree(key, found.first))
        self._verdicts[lease.key] = found
        return found

    def give_way(self, lease: Lease, other: bytes, key: bytes = b"") -> bool:
        """Let a leased page, which was judged and says that it is the one under key *other*, be a duplicate of that.

        Args:
            key: Key of the page itself, if the lease is of a repeat.

        Returns:
            False if that one is not known to have the same text.
        """
        if self._leases.standing(lease) != Ending.OK:
            return False
        key = key or lease.key
        page = self._pages.get(other)
        is_there = page is not None and page.state != FAILED and self._pages.root(other)[0] != key
        if not is_there or not self._duplicates.agree(key, other):
            return False
        self._verdicts[lease.key] = Judgement(other)
        return True

    def verdict(self, key: bytes) -> Judgement:
        """What the leased page under *key* was found to be the same as."""
        return self._verdicts.get(key, _UNJUDGED)

    def drop_verdict(self, key: bytes) -> None:
        """The lease of the page under *key* is over."""
        self._verdicts.pop(key, None)

    def same_as(self, key: bytes) -> bytes:
        """Key of the page that the one under *key* was found to be the same as, in flight or before; ``b""`` if none."""
        page = self._pages.get(key)
        other = self.verdict(key).first or (page.canonical if page is not None else b"")
        return self._pages.root(other)[0][:PAGE_BYTES] if other else b""

    def _is_other(self, key: bytes, first: bytes) -> bool:
        """Whether the page under key *first* is there, and another one than that under *key*."""
        root, page = self._pages.root(first)
        is_this = root == key or any(claim.page == first for claim in self._duplicates.claims(key))
        return page is not None and page.state != FAILED and not is_this

    # -- when it was visited

    def visited(self, key: bytes, page: Page, claim: Claim | None, other: bytes, now: float) -> None:
        """*page* was just visited: make one page of all that can be merged by now.

        Args:
            claim: That it is the page under key *other*, if anything says so.
            other: The address of that page if it is of another shard.
        """
        # A page that links to itself with dont_filter is queued again: it may say so then.
        if claim is not None and page.state == VISITED:
            self.claim(claim, other, now)
        if page.is_claimed:
            self._merge_claimants(key, page, now)

    def claim(self, claim: Claim, other: bytes, now: float) -> None:
        """Merge the page of *claim* with the one under *other*, now or once that is visited."""
        root, page = self._partner(claim.page, other)
        if len(root) > PAGE_BYTES:
            self._remote.claim(claim, self._pages.expect(claim.page, "a claim"), root)
        if page is None:
            self._end_repeat(claim.page)
            return
        if page.visits:
            if self._is_backed(claim, other):
                self._merge(claim.page, root, page, claim.outcome, now)
            return
        self._pages.claim(root, page, is_claimed=True)
        self._duplicates.claim(root, claim)

    def _merge_claimants(self, key: bytes, page: Page, now: float) -> None:
        """Merge the pages that claim to be *page* with it, unless it failed."""
        claims = self._duplicates.claims(key)
        self._pages.claim(key, page, is_claimed=False)
        for claim in claims:
            self._duplicates.drop_claim(key, claim)
            source = self._pages.get(claim.page)
            if source is None or source.state != VISITED or source.visits != claim.visits:
                continue  # it may say something else by now
            root, other = self._partner(claim.page, key)
            if len(root) > PAGE_BYTES:
                self._remote.claim(claim, source, root)
            elif other is None:
                self._end_repeat(claim.page)
            elif self._is_backed(claim, key):
                self._merge(claim.page, root, other, claim.outcome, now)
        self._remote.visited(key)

    def _end_repeat(self, key: bytes) -> None:
        """Let the page under *key* fail, if it is one more request for a page, as that failed: it would never be visited again."""
        page = self._pages.expect(key, "a claim")
        if page.repeat_of:
            self._pages.fail(key, page)

    def _partner(self, key: bytes, other: bytes) -> tuple[bytes, Page | None]:
        """The page to merge the one under *key* with if it is the one under *other*; ``None`` for no other one."""
        root, page = self._pages.root(other)
        is_one = page is not None and page.state != FAILED and root != key
        return root, page if is_one else None

    def _is_backed(self, claim: Claim, other: bytes) -> bool:
        """Whether *claim* to be the page under key *other* counts."""
        return not claim.is_if_same or self._duplicates.agree(claim.page, other, with_links=False)

    def _merge(self, key: bytes, root: bytes, other: Page, outcome: str, now: float) -> None:
        """Move cash and history of the page under *key* to *other*, and lead there what is paid to it."""
        page = self._pages.expect(key, "a claim")
        # A chain from another site leaves room for the pages of this site: else whoever leads one to a page could keep
        # it from being merged with its canonical page.
        site = self._site_of(root)
        is_of_site = self._site_of(key) == site
        if page.height >= (MAX_HEIGHT if is_of_site else MAX_HEIGHT // 2):
            return
        self._remote.stays(root, other)
        self._pages.merge(key, page, root, other, now, outcome=outcome, adds_score=self._adds_scores)
        if page.repeat_of:  # of one page
            return
        self.n_merged += 1
        if self._mirrors is not None and is_of_site and self._duplicates.agree(key, root):
            text = self._duplicates.text(root)
            requests = self._pages.requests.get_many([key, root])
            if text is not None and all(requests):
                request, of_root = (each or b"" for each in requests)
                self._mirrors.merged(site, request, root, of_root, text.words)
