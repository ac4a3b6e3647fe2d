"""Rounds: each page that was visited before a round began is visited once more in it, and no page twice.

A round is a row with its number, its beginning, its end and what its visits have found, written with each commit. Which pages
it still has to visit is not written: those whose last visit was before it began. So it goes on after a crash.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from scrapy_aopic.core.layout import ROUNDS, Family
from scrapy_aopic.exceptions import SALVAGE, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.ports import Store


class Round(msgspec.Struct):
    """A round, of a shard or of the whole job; times are in seconds since the epoch.

    Attributes:
        number: Which it is, from 1 on.
        began: When it began.
        ended: From when on nothing was left to visit; 0 while anything is.
        known: Visits of pages that were known when it began.
        found: Visits by what they have found; see :class:`~.found.Found`.
    """

    number: int
    began: float
    ended: float = 0.0
    known: int = 0
    found: dict[str, int] = {}  # msgspec gives each one of its own

    def note(self, what: str, *, is_known: bool) -> None:
        """A visit has found *what* of a page, which was visited before if it *is_known*."""
        self.known += is_known
        self.found[what] = self.found.get(what, 0) + 1

    def row(self) -> tuple[bytes, bytes]:
        """Its row in ``META``."""
        return ROUNDS + self.number.to_bytes(4, "big"), _encode(self)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Round).decode


def read_rounds(store: Store) -> list[Round]:
    """The rounds of the job or shard in *store*, in order.

    Raises:
        StorageError: If the row of one is damaged.
    """
    try:
        return [_decode(row) for _, row in store.scan(Family.META, ROUNDS, bytes((ROUNDS[0] + 1,)))]
    except msgspec.DecodeError as error:
        raise StorageError(f"A round of this job is damaged: {SALVAGE}") from error


def last_round(stores: Iterable[Store]) -> tuple[int, float, float]:
    """Number, beginning and end of the last round of the job whose shards are in *stores*; the end is 0 if it is not over in all.

    Raises:
        StorageError: If the row of one is damaged.
    """
    each = [[Round(0, 0.0), *read_rounds(store)][-1] for store in stores]
    last = together([Round(0, 0.0), *each])[-1]  # there may be none yet
    return last.number, last.began, last.ended * all(one.number == last.number for one in each)


def together(rounds: Iterable[Round]) -> list[Round]:
    """The rounds of a job, in order, of the *rounds* of its shards."""
    whole: dict[int, Round] = {}
    for each in sorted(rounds, key=lambda each: each.number):
        other = whole.setdefault(each.number, Round(each.number, each.began, each.ended))
        other.began = min(other.began, each.began)
        other.ended = max(other.ended, each.ended) if other.ended and each.ended else 0.0
        other.known += each.known
        other.found = dict(Counter(other.found) + Counter(each.found))
    return list(whole.values())
