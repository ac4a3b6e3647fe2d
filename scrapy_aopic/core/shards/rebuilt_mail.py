"""Starts a shard whose store is lost again, from what the other shards know of it, and what was salvaged of it.

Rule 1: it goes on where its mail is. It counts as received every letter that a sender may have deleted, and as sent every
letter that a receiver may have applied; the letters in between are sent again by their senders, and applied.

Rule 2: its virtual page holds all the cash that the shard must have, by the units that went in and out, but for what pages hold
that were salvaged (:mod:`scrapy_aopic.core.salvage`). So the cash of the job does not change, to the unit. All other pages, and
what they held, are lost with the store.

Rule 3: the times of its last requests are lost, too, so its hosts are left alone as after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.layout import OUTBOX, RECEIVED, SENT, SHARD, TOTALS_KEY, Family
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import order_name
from scrapy_aopic.core.records import pack
from scrapy_aopic.exceptions import StorageError

from .cut import Cut, ShardId
from .letters import read_letter, write_letter
from .mail import Got, Posted, pack_cut, row_of

if TYPE_CHECKING:
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Batch, Store


@dataclass(frozen=True, slots=True)
class LostShard:
    """What the other shards know of a lost one.

    Attributes:
        got: The last letter of each other shard that it had applied, and the units of all of them.
        sent: Its last letter that each other shard has applied, and the units of all of them.
        letters: Its later letters to each other shard that are left, in their order.
    """

    got: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    sent: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    letters: Mapping[int, Sequence[bytes]] = field(default_factory=dict)


def start_lost_shard(shard: ShardId, known: LostShard, policy: Policy, now: float, store: Store) -> Batch:
    """The rows of *shard*, with its mail, to be written to its *store*, which is empty or holds what was salvaged.

    Args:
        policy: Policy of its crawl.
        now: Seconds since the epoch.

    Raises:
        StorageError: If a letter cannot be read, or the shard has spent more than it can have had.
    """
    cut = Cut(shard, policy.domain_of, policy.spread)
    rows: dict[bytes, bytes | None] = {SHARD: pack_cut(cut)}
    salvaged: dict[int, list[bytes]] = {}
    for row, data in store.scan(Family.META, OUTBOX, bytes((OUTBOX[0] + 1,))):
        salvaged.setdefault(int.from_bytes(row[1:3], "big"), []).append(data)
        rows[row] = None
    balance = 0
    for sender, (last, units) in known.got.items():
        rows[row_of(RECEIVED, sender)] = pack(tuple(Got(last, units)))
        balance += units
    for receiver in {*known.sent, *known.letters, *salvaged}:
        acknowledged, units = known.sent.get(receiver, (0, 0))
        last, there = acknowledged, cut.in_shard(receiver)
        letters = [read_letter(data, there) for data in known.letters.get(receiver, ())]
        for number, letter in enumerate(letters, acknowledged + 1):
            if (letter.sender, letter.number) != (shard.number, number):
                raise StorageError(
                    f"A letter of {shard} to shard {receiver} is not number {number}. Nothing was changed."
                )
        for letter in [*letters, *(read_letter(data, there) for data in salvaged.get(receiver, ()))]:
            last += 1
            rows[row_of(OUTBOX, receiver, last)] = write_letter(replace_fields(letter, number=last))
            units += letter.units
        rows[row_of(SENT, receiver)] = pack(tuple(Posted(acknowledged, last, units)))
        balance -= units
    saved = read_totals(store) or CrawlTotals(order_name(policy.order), now, now)
    virtual = TOTAL + balance - saved.ledger.held
    if virtual < 0:
        raise StorageError(
            f"{shard} has sent {-balance} units more than it received, of {TOTAL} that it began with: what the server knows of "
            "it is of different moments. Nothing was changed."
        )
    ledger = replace(saved.ledger, virtual=virtual, balance=balance)
    rows[TOTALS_KEY] = replace(saved, ledger=ledger, commit_within=policy.commit_within).pack()
    return {Family.META: rows}
