"""Finds pages that are the same, or nearly: the store remembers the page that was seen first.

1. Pages are the same if their words agree, and so do their links and data: a digest of 64 bits for either.
   Pages of one site whose words agree and whose links do not are different ones, up to a number of them.
2. Nearly the same are two texts by their resemblance: the part of their distinct runs of three words that they
   share. It is estimated from *sketches* of 64 bytes: runs are hashed once, into 64 bins; of the least hash in each
   bin, 8 bits are kept; the part of the bins that agree is the part of the runs that agree. 1 % of edited words
   lowers the resemblance to about 0.94. Links and data must agree all the same.
3. A sketch is found by its eight bands of eight bytes, each under a key of its own. Two sketches that differ in at
   most seven bytes share one for certain, so that all that :data:`ALIKE` demands is found by eight look-ups, however
   much was seen. A band leads to the first page that had it; a later one that is not alike is found by its others.
4. Who is first proves nothing across sites: a page that was copied is found among those of its own site, too.

All is read from the store and written behind; nothing but what was not committed yet is kept in memory.

Sources: Broder, "On the resemblance and containment of documents", 1997; one permutation and the filling of empty
bins: Li, Owen and Zhang, NIPS 2012, Shrivastava and Li, ICML 2014; few bits of each hash: Li and Koenig, WWW 2010.
SimHash (Charikar 2002; Manku, Jain and Das Sarma, WWW 2007) was measured, too, and finds far fewer: docs/internals.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from struct import unpack as unpack_struct
from typing import NamedTuple

from . import layout
from .ports import Family, Store
from .records import PAGE_BYTES, pack, unpack
from .tables import BlobTable, RowTable

_BINS = 64
"""Bytes of a sketch: the standard error of a resemblance of 0.9 is 0.04."""

_BAND = 8
"""Bytes in a band of a sketch: eight bands, so that with seven bytes changed one of them is whole."""

_RUN = 3
"""Words in a run."""

WHITE = b" \t\n\r\f\v"
"""White space, of ASCII."""

_MAX_WORDS = 20_000
"""Words of a page that its sketch is made of: a bound on the time for hostile pages."""

_HALF = 8
"""Bytes of a digest of words, or of links and data."""

_DIGEST = 2 * _HALF
"""Bytes of both digests."""

ALIKE = 57
"""Bytes of two sketches that are equal if the texts are nearly the same: a resemblance of about 0.9."""

SAME_WORDS = 1000
"""Pages of a registered domain that may have the same words but other links: a site can generate them without end."""

_MAX_CLAIMS = 10_000
"""Claims to be one page that its visit merges at once: a bound on one step."""


class Text(NamedTuple):
    """Digest and sketch of a page's text.

    Attributes:
        digest: Digest of the words, and then of links and data; empty if there are too few words to judge the page by.
        sketch: Sketch of its runs of words; empty if near duplicates are not looked for, or there are too few.
    """

    digest: bytes
    sketch: bytes = b""

    @property
    def words(self) -> bytes:
        """Digest of the words alone."""
        return self.digest[:_HALF]

    @property
    def links(self) -> bytes:
        """Digest of links and data alone."""
        return self.digest[_HALF:]


class Judgement(NamedTuple):
    """Which pages a page is the same as.

    Attributes:
        first: Key of the page of its site that was first; ``b""`` if it is the first.
        copy: Key of a page of another site; ``b""`` if none is known, or there is a *first* one.
        is_excess: Whether the *first* one has other links, and the site has too many such pages.
    """

    first: bytes = b""
    copy: bytes = b""
    is_excess: bool = False


class Claim(NamedTuple):
    """A page that is to be merged with another one once that was visited.

    Attributes:
        page: Its key.
        outcome: Its outcome after that.
        visits: How often it had been visited when it made the claim; a later visit may make another one.
        is_if_same: Whether the claim only counts if both have the same words.
    """

    page: bytes
    outcome: str
    visits: int
    is_if_same: bool = False


def text_of(text: bytes, links: bytes = b"", *, has_sketch: bool = False) -> Text:
    """Digest and sketch of *text*, in which white space only separates words, and of *links* in any form."""
    # To throw white space away is four times as fast as to make one space of each.
    digest = _half(text.translate(None, WHITE)) + _half(links)
    return Text(digest, sketch(text.split(None, _MAX_WORDS)) if has_sketch else b"")


def _unpacked(data: bytes) -> Text:
    return Text(digest_of(data), data[_DIGEST:])


def digest_of(data: bytes) -> bytes:
    """Digest of the text that is stored as *data*; empty if it has too few words."""
    return data[:_DIGEST]


def _half(text: bytes) -> bytes:
    return blake2b(text, digest_size=_HALF).digest()


def sketch(words: Sequence[bytes]) -> bytes:
    """Sketch of *words*, of the first 20,000 if there are more; empty if there are too few for one."""
    words = words[:_MAX_WORDS]
    runs = {b" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
    if len(runs) < _BINS:
        return b""
    hashed = b"".join([blake2b(run, digest_size=8).digest() for run in runs])
    # The last 6 bits choose the bin; the least of each bin comes last, and stays.
    bins = {each & _BINS - 1: each for each in sorted(unpack_struct(f"<{len(runs)}Q", hashed), reverse=True)}
    result = bytearray(_BINS)
    least = 0
    # An empty bin borrows from the next full one, each at another distance something else.
    for at in reversed(range(2 * _BINS)):
        full = bins.get(at % _BINS)
        least = least + 0x9D00 if full is None else full
        result[at % _BINS] = least >> 8 & 0xFF
    return bytes(result)


_OF_ONE_PAGE = (layout.LEADS, layout.WISHES, layout.GISTS, layout.SHARES)
"""Rows of a page alone: the page with the link of a lead may be of another shard."""


def pages_of(row: bytes, value: bytes) -> list[bytes]:
    """Keys of the pages that a row of the content family is about."""
    if row[:1] in (layout.OWN_CLAIMS, layout.FOREIGN_CLAIMS):
        return [row[1 : 1 + PAGE_BYTES]]
    if row[:1] == layout.CLAIMS:
        return [row[1 : 1 + PAGE_BYTES], row[1 + PAGE_BYTES :]]
    if row[:1] == layout.HINTS:
        return []
    if row[:1] in _OF_ONE_PAGE:
        return [row[1:]]
    return [row[1:] if row[:1] == layout.TEXTS else value[:PAGE_BYTES]]


def alike(one: bytes, two: bytes) -> int:
    """Bytes that the sketches *one* and *two* have in common, 0 to 64."""
    return sum(map(int.__eq__, one, two))


class Duplicates:
    """The texts of a crawl's pages, and which pages claim to be others.

    Args:
        is_near: Whether a page that has nearly the same text counts, too.
        site_of: Key of the site of the page under a key, 8 bytes: its registered domain.
        most: Pages of one site with the same words and other links that count as different ones, 0 for any number: a
            site that makes them up can make any number.

    Attributes:
        tables: Its rows, with those that wait for a commit.
    """

    def __init__(
        self, store: Store, *, is_near: bool, site_of: Callable[[bytes], bytes], most: int = 0
    ) -> None:
        self._rows = BlobTable(store, Family.CONTENT)
        self._claims = RowTable(store, Family.CONTENT, lambda key: key[: 1 + PAGE_BYTES])
        self.tables = (self._rows, self._claims)
        self._is_near = is_near
        self._site_of = site_of
        self._most = most

    def text(self, page: bytes) -> Text | None:
        """The text that the page under key *page* had at its last visit."""
        data = self._rows.get(layout.TEXTS + page)
        return _unpacked(data) if data is not None else None

    def prefetch(self, page: bytes, text: Text) -> None:
        """Begin to read what :meth:`judge` will look at, if the store can do that."""
        self._rows.prefetch([layout.TEXTS + page, *(self._names(text) if text.digest else ())])

    def judge(self, page: bytes, text: Text, is_other: Callable[[bytes], bool]) -> Judgement:
        """Keep *text* as that of the page under key *page*, and find out which page it is the same as.

        Args:
            is_other: Whether the page under a key is there and another one than this.
        """
        names = self._names(text) if text.digest else []
        data, *owners = self._rows.get_many([layout.TEXTS + page, *names])
        if data is not None and _unpacked(data) != text:
            self.drop(page)
            owners = self._rows.get_many(names)  # some of them may have led to this page
        if not names:
            return Judgement()
        found = self._find(page, text, owners, is_other) if any(owners) else Judgement()
        self._rows.put(layout.TEXTS + page, text.digest + text.sketch)
        if found.first:
            return found
        self._own(page, names, self._rows.get_many(names) if any(owners) else owners)  # some may be forgotten
        if found.copy:
            names = self._names(text, self._site_of(page))
            self._own(page, names, self._rows.get_many(names))
        return found

    def _own(self, page: bytes, names: list[bytes], owners: list[bytes | None]) -> None:
        """Find the page under key *page* by those of its *names* that lead to no page yet."""
        for at, (name, owner) in enumerate(zip(names, owners, strict=True)):
            # The second one only helps where the first one is another page's.
            if owner is None and (at != 1 or owners[0] not in (None, page)):
                self._rows.put(name, page)

    def _find(
        self, page: bytes, text: Text, owners: list[bytes | None], is_other: Callable[[bytes], bool]
    ) -> Judgement:
        site, copy = self._site_of(page), b""
        for first in self._like(text, owners, site):
            if first == page:
                return Judgement(copy=copy)
            if not is_other(first):
                self.forget(first)
            elif self._site_of(first) == site:
                return Judgement(first)
            else:
                copy = copy or first
        excess = self._excess(page, site, text, owners[0], is_other) if owners[0] and self._most else b""
        return Judgement(excess, b"" if excess else copy)

    def _like(self, text: Text, owners: list[bytes | None], site: bytes) -> Iterator[bytes]:
        """Keys of pages that had *text* first, or nearly, the most alike first: of all sites, and then of *site*."""
        yield from self._agreeing(text, owners)
        yield from self._agreeing(text, self._rows.get_many(self._names(text, site)))

    def _agreeing(self, text: Text, owners: list[bytes | None]) -> Iterator[bytes]:
        """Those of the *owners* of the names of *text* that have it, or nearly, the most alike first."""
        words, same, *near = owners
        first = same or words
        if first is not None and (same or self._has(first, text)):
            yield first
        alike_by = {owner: 0 for owner in near if owner is not None and owner != first}
        for owner in alike_by:
            other = self.text(owner)
            alike_by[owner] = alike(text.sketch, other.sketch) if other is not None else 0
        yield from sorted(
            (owner for owner in alike_by if alike_by[owner] >= ALIKE), key=alike_by.__getitem__, reverse=True
        )

    def _has(self, page: bytes, text: Text) -> bool:
        other = self.text(page)
        return other is not None and other.digest == text.digest

    def _excess(
        self, page: bytes, site: bytes, text: Text, words: bytes, is_other: Callable[[bytes], bool]
    ) -> bytes:
        """The page that stands for further ones of *site* with the words of *text*, if there were enough; else ``b""``."""
        name = layout.VARIETIES + text.words + site
        row = self._rows.get(name)
        first, n = (
            (row[:PAGE_BYTES], int.from_bytes(row[PAGE_BYTES:], "big")) if row is not None else (words, 1)
        )
        if self._site_of(first) != site or not is_other(first):
            first, n = page, 0
        if n >= self._most:
            return first
        self._rows.put(name, first + (n + 1).to_bytes(4, "big"))
        return b""

    def agree(self, page: bytes, other: bytes, *, with_links: bool = True) -> bool:
        """Whether two pages have the same words, or nearly, and the same links and data."""
        return self.is_alike(self.text(page), self.text(other), with_links=with_links)

    def is_alike(self, one: Text | None, two: Text | None, *, with_links: bool = True) -> bool:
        """Whether two texts have the same words, or nearly, and the same links and data."""
        if one is None or two is None or not one.digest or (with_links and one.links != two.links):
            return False
        return one.words == two.words or (self._is_near and alike(one.sketch, two.sketch) >= ALIKE)

    def forget(self, page: bytes) -> None:
        """Find the page under key *page* no more by the text that it had."""
        text = self.text(page)
        if text is not None and text.digest:
            names = self._names(text) + self._names(text, self._site_of(page))
            for name, owner in zip(names, self._rows.get_many(names), strict=True):
                if owner == page:
                    self._rows.delete(name)

    def drop(self, page: bytes) -> None:
        """Keep nothing of the page under key *page*."""
        self.forget(page)
        self._rows.delete(layout.TEXTS + page)

    def _names(self, text: Text, site: bytes = b"") -> list[bytes]:
        """Keys under which the first page with the words of *text* is found, that with its links, too, and like ones."""
        begin = layout.SITE_TEXTS + site if site else b""
        names = [begin + layout.FIRST_OF_TEXT + text.words, begin + layout.FIRST_OF_TEXT + text.digest]
        if self._is_near and text.sketch:
            names += [
                begin + layout.BANDS + bytes((at,)) + text.sketch[at : at + _BAND] + text.links
                for at in range(0, _BINS, _BAND)
            ]
        return names

    # -- claims

    def claim(self, other: bytes, claim: Claim) -> None:
        """Let a page wait to be merged with the one under key *other*."""
        self._claims.put(
            layout.CLAIMS + other + claim.page, pack(claim[1:] if claim.is_if_same else claim[1:3])
        )

    def claims(self, other: bytes) -> list[Claim]:
        """Pages that wait to be merged with the one under key *other*; 10,000 at once if there are more."""
        rows, _ = self._claims.first(layout.CLAIMS + other, _MAX_CLAIMS)
        self._claims.forget(layout.CLAIMS + other)
        return [Claim(row[1 + PAGE_BYTES :], *unpack(value)) for row, value in rows]

    def drop_claim(self, other: bytes, claim: Claim) -> None:
        """*claim* to be the page under key *other* waits no more."""
        self._claims.delete(layout.CLAIMS + other + claim.page)
