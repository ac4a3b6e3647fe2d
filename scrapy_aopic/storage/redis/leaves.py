"""The rows of a family in Redis hashes: cut into leaves by key, like the lowest level of a B+ tree. No I/O.

1. A leaf is a hash of up to :data:`MOST_ROWS` rows, small enough for Redis to keep it in one piece (a listpack), which
   takes a third of the memory of a key for each row. It is named by its *separator*: the leaf of a key is the one
   with the greatest separator that is not above the key. The first separator is always the empty one.
2. The owner of a job keeps all separators in memory (one for some 80 rows), so that a row is found without a read.
3. In the server's list of separators are exactly those of leaves that have rows. So rows that are gone are noticed.
4. A leaf that overflows is cut, and one that has few rows left is joined to the one before it, in the transaction of
   the commit that does it, or of the next one that changes the leaf, so that its rows need not be read first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MOST_ROWS = 128
"""Rows of a leaf, at most, apart from those that its last batch added. Redis searches half of a leaf for each row that it
reads: a microsecond."""

_BULK_ROWS = 2 * MOST_ROWS
"""Rows of a leaf, at most, if each row of a batch was new. Only counting shows how many are; a leaf with more rows than
:data:`MOST_ROWS` is cut by the next batch that changes it, so that leaves are seldom read for nothing."""

_CUT_ROWS = 96
"""Rows of the leaves that a cut makes, at most: some room is left for the rows that come next."""

_FEW_ROWS = MOST_ROWS // 8
"""Rows of a leaf that is joined to the one before it, at most."""

_JOINED_ROWS = MOST_ROWS // 2
"""Rows of two leaves that are joined, at most, so that they are not cut again soon."""

Rows = dict[bytes, bytes]
"""The rows of a leaf."""


@dataclass(slots=True)
class Change:
    """The changes of a batch to the leaf *separator*.

    Attributes:
        puts: New values.
        deletes: Keys whose rows go.
        n_rows: Number of its rows afterwards, if that is known.
        n_added: Otherwise, by how many that number grew, by the replies to the commands.
    """

    separator: bytes
    puts: Rows = field(default_factory=dict)
    deletes: list[bytes] = field(default_factory=list)
    n_rows: int | None = None
    n_added: int = 0


@dataclass(slots=True)
class Plan:
    """The changes of a batch to a family.

    Attributes:
        changes: Changes of the leaves, in the order of their separators; each leaf once.
        new: Separators of leaves that have rows for the first time.
        gone: Separators of leaves that have none any more.
    """

    changes: list[Change]
    new: list[bytes]
    gone: list[bytes]

    @property
    def touched(self) -> Iterator[bytes]:
        """Separators of the leaves that change."""
        return (change.separator for change in self.changes)


class Leaves:
    """The leaves of one family.

    Args:
        counts: Rows of each leaf by its separator.
    """

    __slots__ = ("_counts", "_order")

    def __init__(self, counts: Mapping[bytes, int]) -> None:
        self._counts = {b"": 0, **counts}
        self._order = sorted(self._counts)

    def of(self, key: bytes) -> bytes:
        """The separator of the leaf of *key*."""
        order = self._order
        return order[bisect_right(order, key) - 1]

    def group(self, keys: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        """*keys* by the separators of their leaves, each once and in ascending order."""
        groups: dict[bytes, list[bytes]] = {}
        order = self._order
        group: list[bytes] = []
        begin = stop = b""
        is_last = False
        for key in sorted({*keys}):
            if not group or not (is_last or key < stop):
                at = bisect_right(order, key)
                begin = order[at - 1]
                is_last = at == len(order)
                stop = b"" if is_last else order[at]
                group = groups[begin] = []
            group.append(key)
        return groups

    def between(self, start: bytes, stop: bytes | None) -> list[bytes]:
        """Separators of the leaves that have rows with ``start <= key < stop``."""
        order, counts = self._order, self._counts
        if stop is not None and stop <= start:
            return []
        begin = bisect_right(order, start) - 1
        end = len(order) if stop is None else bisect_left(order, stop)
        return [each for each in order[begin:end] if counts[each]]

    @property
    def n_rows(self) -> int:
        """Rows in all leaves."""
        return sum(self._counts.values())

    @property
    def filled(self) -> list[bytes]:
        """Separators of the leaves that have rows, in their order."""
        return [each for each in self._order if self._counts[each]]

    def bounds(self, separator: bytes) -> tuple[bytes, bytes | None]:
        """First key that the leaf *separator* may have, and the first that it may not."""
        at = bisect_right(self._order, separator)
        return separator, self._order[at] if at < len(self._order) else None

    def to_read(
        self, rows: Mapping[bytes, bytes | None], groups: Mapping[bytes, Sequence[bytes]]
    ) -> list[bytes]:
        """Separators of the leaves whose rows :meth:`plan` needs for a batch of *rows*, whose keys are in *groups*."""
        return [
            separator
            for separator, keys in groups.items()
            if (n_before := self._counts[separator])
            and (
                n_before > MOST_ROWS
                or n_before + len(keys) > _BULK_ROWS
                or (
                    # Most batches leave most leaves far from that, so their deletions need not be counted.
                    n_before <= len(keys) + _FEW_ROWS
                    and (n_deletes := sum(rows[key] is None for key in keys))
                    and (n_before <= n_deletes or self._may_join(separator, n_before - n_deletes))
                )
            )
        ]

    def may_wait(self, separator: bytes, keys: Sequence[bytes], rows: Mapping[bytes, bytes | None]) -> bool:
        """Whether a leaf that :meth:`to_read` names, for the *keys* of a batch of *rows*, may be cut or joined by a later batch: it
        only has a few rows too many, or some will be left."""
        n_before = self._counts[separator]
        if n_before > MOST_ROWS:
            return n_before <= _BULK_ROWS - len(keys)
        return n_before + len(keys) <= _BULK_ROWS and n_before > sum(rows[key] is None for key in keys)

    def _may_join(self, separator: bytes, n_rows: int) -> bool:
        """Whether a leaf that has *n_rows* afterwards may go into the one before it."""
        if n_rows > _FEW_ROWS or not separator:
            return False
        before = self._order[bisect_left(self._order, separator) - 1]
        return 0 < self._counts[before] <= _JOINED_ROWS - n_rows

    def plan(
        self,
        rows: Mapping[bytes, bytes | None],
        groups: Mapping[bytes, Sequence[bytes]],
        known: Mapping[bytes, Rows],
    ) -> Plan:
        """The changes that a batch of *rows* makes.

        Args:
            groups: Their keys, as :meth:`group` returns them.
            known: Rows of the leaves that :meth:`to_read` names, by their separators; of those that may wait, not all.
        """
        changes: dict[bytes, Change] = {}
        new: list[bytes] = []
        gone: list[bytes] = []
        for separator, keys in groups.items():
            n_before = self._counts[separator]
            change = changes[separator] = Change(separator)
            for key in keys:
                value = rows[key]
                if value is None:
                    change.deletes.append(key)
                else:
                    change.puts[key] = value
            if n_before == 0:
                change.deletes.clear()
                change.n_rows = len(change.puts)
                if len(change.puts) <= MOST_ROWS:
                    if change.puts:
                        new.append(separator)
                    else:
                        del changes[separator]
                    continue
                rest: Rows = {}
            elif separator in known:
                rest = known[separator]
            else:
                continue
            self._plan_exactly(change, rest, changes, new, gone)
        ordered = sorted(changes.values(), key=lambda change: change.separator)
        return Plan(ordered, new, gone)

    def _plan_exactly(
        self, change: Change, before: Rows, changes: dict[bytes, Change], new: list[bytes], gone: list[bytes]
    ) -> None:
        """Plan *change* of a leaf whose rows *before* it are known."""
        separator = change.separator
        change.deletes = [key for key in change.deletes if key in before]
        after = before | change.puts
        for key in change.deletes:
            del after[key]
        change.n_rows = len(after)
        if not after:
            gone.append(separator)
        elif len(after) > MOST_ROWS:
            if not before:
                new.append(separator)
            pieces = _cut(after)
            first = {*pieces[0]}
            change.puts = {key: value for key, value in change.puts.items() if key in first}
            change.deletes = [key for key in before if key not in first]
            change.n_rows = len(first)
            last = pieces[0][-1]
            for piece in pieces[1:]:
                between = _shortest_between(last, piece[0])
                changes[between] = Change(between, {key: after[key] for key in piece}, [], len(piece))
                new.append(between)
                last = piece[-1]
        elif self._may_join(separator, len(after)):
            left = self._order[bisect_left(self._order, separator) - 1]
            if left in changes:  # how many rows it has then is not known
                return
            changes[left] = Change(left, after, [], self._counts[left] + len(after))
            change.puts, change.deletes, change.n_rows = {}, list(before), 0
            gone.append(separator)

    def apply(self, plan: Plan) -> None:
        """Take note that *plan* was carried out."""
        counts = self._counts
        for change in plan.changes:
            n_rows = change.n_rows
            counts[change.separator] = counts[change.separator] + change.n_added if n_rows is None else n_rows
        for separator in plan.new:
            if separator:
                insort(self._order, separator)
        for separator in plan.gone:
            if separator:
                del self._counts[separator]
                del self._order[bisect_left(self._order, separator)]


def _cut(rows: Rows) -> list[list[bytes]]:
    """The keys of *rows* in their order, in pieces of about the same length."""
    keys = sorted(rows)
    n_pieces = -(-len(keys) // _CUT_ROWS)
    ends = [len(keys) * n // n_pieces for n in range(n_pieces + 1)]
    return [keys[begin:end] for begin, end in pairwise(ends)]


def _shortest_between(below: bytes, above: bytes) -> bytes:
    """The shortest bytes that are greater than *below*, and not greater than *above*."""
    for n, (low, high) in enumerate(zip(below, above, strict=False)):
        if low != high:
            return above[: n + 1]
    return above[: len(below) + 1]
