"""Which pages have the same text, or nearly: the page that was seen with it first is remembered in the store.

1. The same text is told by a digest of 128 bits.
2. Nearly the same is told by the resemblance of two texts: the part of their distinct runs of three words that they
   share. It is estimated from *sketches* of 64 bytes: runs are hashed once, into 64 bins; of the least hash in each
   bin, 8 bits are kept; the part of the bins that agree is the part of the runs that agree. 1 % of edited words
   lowers the resemblance to about 0.94.
3. A sketch is found by its eight bands of eight bytes, each under a key of its own. Two sketches that differ in at
   most seven bytes share one for certain, so that to find what :data:`ALIKE` asks for takes eight look-ups, however
   much was seen. A band leads to the first page that had it; a later one that is not alike is found by its others.

All is read from the store and written behind; nothing but what was not committed yet is kept in memory.

Sources: Broder, "On the resemblance and containment of documents", 1997; one permutation and the filling of empty
bins: Li, Owen and Zhang, NIPS 2012, Shrivastava and Li, ICML 2014; few bits of each hash: Li and Koenig, WWW 2010.
SimHash (Charikar 2002; Manku, Jain and Das Sarma, WWW 2007) was measured, too, and finds far fewer: docs/content.md.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import unpack as unpack_struct
from typing import TYPE_CHECKING, NamedTuple

from .ports import Family, Store
from .records import HOST_BYTES, pack, unpack
from .tables import BlobTable, RowTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BINS = 64
_BAND = 8
_RUN = 3
_MAX_WORDS = 20_000
_DIGEST = 16

ALIKE = 57
"""Bytes of two sketches that are equal if the texts are nearly the same: a resemblance of about 0.9."""

_TEXT, _FIRST, _BANDS, _CLAIM = b"P", b"T", b"B", b"C"
_PAGE = 2 * HOST_BYTES
_MAX_CLAIMS = 10_000


class Text(NamedTuple):
    """What is kept of a page's text.

    Attributes:
        digest: Digest of the words; empty if there are too few to judge the page by.
        sketch: Sketch of its runs of words; empty if near duplicates are not looked for, or there are too few.
    """

    digest: bytes
    sketch: bytes = b""


class Claim(NamedTuple):
    """A page that is to be united with another one once that was visited.

    Attributes:
        page: Its key.
        outcome: What it is then.
        visits: Its visits when it said so; it may say something else after another one.
    """

    page: bytes
    outcome: str
    visits: int


def text_of(text: str, *, has_sketch: bool = False) -> Text:
    """What is kept of *text*, in which white space counts."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
    return Text(digest, sketch(text.split()) if has_sketch else b"")


def sketch(words: Sequence[str]) -> bytes:
    """Sketch of *words*, of the first 20,000 if there are more; empty if there are too few for one."""
    words = words[:_MAX_WORDS]
    runs = {" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1)}
    if len(runs) < _BINS:
        return b""
    hashed = b"".join([blake2b(run.encode("utf-8", "surrogatepass"), digest_size=8).digest() for run in runs])
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


def pages_of(row: bytes, value: bytes) -> list[bytes]:
    """Keys of the pages that a row of the content family is about."""
    if row[:1] == _CLAIM:
        return [row[1 : 1 + _PAGE], row[1 + _PAGE :]]
    return [row[1:] if row[:1] == _TEXT else value]


def alike(one: bytes, two: bytes) -> int:
    """Bytes that the sketches *one* and *two* have in common, 0 to 64."""
    return sum(map(int.__eq__, one, two))


class Contents:
    """The texts of a crawl's pages, and which pages claim to be others.

    Args:
        is_near: Whether a page that has nearly the same text counts, too.
    """

    def __init__(self, store: Store, *, is_near: bool) -> None:
        self._rows = BlobTable(store, Family.CONTENT)
        self._claims = RowTable(store, Family.CONTENT, lambda key: key[: 1 + _PAGE])
        self._is_near = is_near

    def text(self, page: bytes) -> Text | None:
        """The text that the page under key *page* had at its last visit."""
        data = self._rows.get(_TEXT + page)
        return Text(data[:_DIGEST], data[_DIGEST:]) if data is not None else None

    def like(self, text: Text) -> Iterator[bytes]:
        """Keys of pages that had *text* first, or nearly, the most alike first."""
        names = self._names(text)
        owners = self._rows.get_many(names)
        if owners[0] is not None:
            yield owners[0]
        near = {owner: 0 for owner in owners[1:] if owner is not None and owner != owners[0]}
        for owner in near:
            other = self.text(owner)
            near[owner] = alike(text.sketch, other.sketch) if other is not None else 0
        yield from sorted(
            (owner for owner in near if near[owner] >= ALIKE), key=near.__getitem__, reverse=True
        )

    def note(self, page: bytes, text: Text, *, is_first: bool) -> None:
        """Keep *text* as that of the page under key *page*, under which it is found if it *is_first*."""
        self._rows.put(_TEXT + page, text.digest + text.sketch)
        if is_first:
            names = self._names(text)
            for name, owner in zip(names, self._rows.get_many(names), strict=True):
                if owner is None:
                    self._rows.put(name, page)

    def forget(self, page: bytes) -> None:
        """Find the page under key *page* no more by the text that it had."""
        text = self.text(page)
        if text is not None:
            names = self._names(text)
            for name, owner in zip(names, self._rows.get_many(names), strict=True):
                if owner == page:
                    self._rows.delete(name)

    def drop(self, page: bytes) -> None:
        """Keep nothing of the page under key *page*."""
        self.forget(page)
        self._rows.delete(_TEXT + page)

    def _names(self, text: Text) -> list[bytes]:
        """Keys under which the first page with *text* is found."""
        names = [_FIRST + text.digest]
        if self._is_near and text.sketch:
            names += [_BANDS + bytes((at,)) + text.sketch[at : at + _BAND] for at in range(0, _BINS, _BAND)]
        return names

    # -- claims

    def claim(self, other: bytes, claim: Claim) -> None:
        """Let a page wait to be united with the one under key *other*."""
        self._claims.put(_CLAIM + other + claim.page, pack((claim.outcome, claim.visits)))

    def claims(self, other: bytes) -> list[Claim]:
        """Pages that wait to be united with the one under key *other*; 10,000 at once if there are more."""
        rows, _ = self._claims.first(_CLAIM + other, _MAX_CLAIMS)
        self._claims.forget(_CLAIM + other)
        return [Claim(row[1 + _PAGE :], *unpack(value)) for row, value in rows]

    def settled(self, other: bytes, claim: Claim) -> None:
        """*claim* to be the page under key *other* waits no more."""
        self._claims.delete(_CLAIM + other + claim.page)

    # -- commits

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""
        return {**self._rows.take(), **self._claims.take()}

    def landed(self) -> None:
        """The rows in flight are in the store."""
        self._rows.landed()
        self._claims.landed()

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""
        self._rows.failed()
        self._claims.failed()
