"""Makes the mail between the shards of a damaged job consistent again.

Rule 1: a receiver's count of applied letters stands. The letters that follow it without a gap are still in transit; all
others are lost, and count as never sent.

Rule 2: if the receiver's count is lost, it is taken to be what the sender has deleted, so later letters may be applied
twice.

Rule 3: the balance of a shard then follows from its mail, and :mod:`scrapy_aopic.core.rebuild` lets its virtual page, or
its pages, give or take the difference. So the cash of the job is correct again, to the unit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl_totals import read_damaged_totals
from scrapy_aopic.core.layout import OUTBOX, RECEIVED, SENT, SHARD, TOTALS_KEY, Family
from scrapy_aopic.core.records import NO_RECORD, pack, unpack
from scrapy_aopic.exceptions import StorageError

from .cut import Cut, ShardId
from .letters import read_letter
from .mail import Got, Posted, balance_of_rows, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.ports import Store


class _Ends:
    """The two counts of the mail from one shard to another, as far as they are left."""

    def __init__(self, outbox: Store, inbox: Store, sender: int, cut: Cut) -> None:
        to = cut.own.number
        posted = outbox.get_many(Family.META, (row_of(SENT, to),))[0]
        got = inbox.get_many(Family.META, (row_of(RECEIVED, sender),))[0]
        sent, applied = _numbers(posted), _numbers(got)
        self.posted = Posted(*sent) if sent is not None and len(sent) == len(Posted._fields) else None
        self.got = Got(*applied) if applied is not None and len(applied) == len(Got._fields) else None
        beginning = row_of(OUTBOX, to)
        end = (int.from_bytes(beginning, "big") + 1).to_bytes(len(beginning), "big")
        self.rows = [row for row, _ in outbox.scan(Family.META, beginning, end)]
        self.units: dict[int, int] = {}
        for row, data in outbox.scan(Family.META, beginning, end):
            try:
                letter = read_letter(data, cut)
            except StorageError:
                continue
            number = int.from_bytes(row[len(beginning) :], "big")
            if (letter.sender, letter.number) == (sender, number):
                self.units[number] = letter.units

    @property
    def agree(self) -> bool:
        """Whether both counts agree."""
        posted, got = self.posted or Posted(), self.got or Got()
        if len(self.rows) != len(self.units) or not posted.acknowledged <= got.last <= posted.last:
            return False
        if sorted(self.units) != list(range(posted.acknowledged + 1, posted.last + 1)):
            return False
        return posted.units - got.units == sum(n for number, n in self.units.items() if number > got.last)

    def mended(self) -> tuple[Posted, Got]:
        """The counts of both ends from now on."""
        got = self.got
        if got is None and self.posted is not None:
            got = Got(self.posted.acknowledged, max(self.posted.units - sum(self.units.values()), 0))
        elif got is None:
            got = Got(min(self.units, default=1) - 1)
        last, units = got
        while last + 1 in self.units:
            last += 1
            units += self.units[last]
        return Posted(got.last, last, units), got


def _numbers(data: bytes | None) -> list[int] | None:
    """The numbers in a row of counts; ``None`` if it is lost."""
    try:
        return [*map(int, unpack(data))] if data is not None else None
    except NO_RECORD:
        return None


def mend_mail(stores: Sequence[Store], domain_of: Callable[[str], str]) -> dict[int, int]:
    """Make the mail between *stores*, those of all shards of a job, consistent.

    This changes the balance of a shard's ledger, which is what it must hold, but not what it holds.

    Returns:
        The shards that were changed, and how many of their letters are lost.

    Raises:
        StorageError: If a store cannot be written.
    """
    of = len(stores)
    lost: dict[int, int] = {}
    for receiver, inbox in enumerate(stores):
        cut = Cut(ShardId(receiver, of), domain_of)
        for sender, outbox in enumerate(stores):
            if sender == receiver:
                continue
            ends = _Ends(outbox, inbox, sender, cut)
            if ends.agree:
                continue
            posted, got = ends.mended()
            kept = range(posted.acknowledged + 1, posted.last + 1)
            before = max(ends.posted.last if ends.posted is not None else 0, *ends.units, 0)
            lost[sender] = lost.get(sender, 0) + max(before - posted.last, 0)
            lost.setdefault(receiver, 0)
            keys = {row_of(OUTBOX, receiver, number) for number in kept}
            rows: dict[bytes, bytes | None] = {row: None for row in ends.rows if row not in keys}
            rows[row_of(SENT, receiver)] = pack(tuple(posted))
            outbox.write({Family.META: rows}, sync=False)
            inbox.write({Family.META: {row_of(RECEIVED, sender): pack(tuple(got))}}, sync=False)
    for number, store in enumerate(stores):
        if store.get_many(Family.META, (SHARD,))[0] != pack((number, of)):
            lost.setdefault(number, 0)
            store.write({Family.META: {SHARD: pack((number, of))}}, sync=False)
        _balance(number, store, lost)
    return lost


def _balance(number: int, store: Store, lost: dict[int, int]) -> None:
    """Set the balance of a shard's ledger to what its mail says, if its totals are left."""
    saved = read_damaged_totals(store.get_many(Family.META, (TOTALS_KEY,))[0])
    balance = balance_of_rows(store.scan(Family.META))
    if saved is not None and saved.ledger.balance != balance:
        lost.setdefault(number, 0)
        ledger = replace(saved.ledger, balance=balance)
        store.write({Family.META: {TOTALS_KEY: replace(saved, ledger=ledger).pack()}}, sync=False)
