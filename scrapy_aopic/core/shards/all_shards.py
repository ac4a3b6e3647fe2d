"""Checks all shards of a job against each other: a letter that was sent and not yet applied must be in the outbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.exceptions import StorageError

from .letters import read_letter
from .mail import Got, Posted, cut_of, read_counts, read_outbox, read_shard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_aopic.core.ports import Store

    from .cut import Cut


@dataclass(slots=True)
class ShardsAudit:
    """Result of an audit over all shards of a job.

    Attributes:
        cash: Units that the shards hold, by their own counts.
        in_transit: Units in letters that their receivers have not applied.
        letters: Number of these letters.
        violations: Invariants that do not hold, a sentence each.
    """

    cash: int = 0
    in_transit: int = 0
    letters: int = 0
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether everything holds."""
        return not self.violations


def audit_shards(stores: Sequence[Store], domain_of: Callable[[str], str]) -> ShardsAudit:
    """Check the mail between all shards of a job; :func:`~scrapy_aopic.core.audit.audit` checks each shard alone.

    Args:
        stores: The stores of all shards, in the order of their numbers, as they were at one moment. If they are read
            while the crawl runs, read the receiver of a letter before its sender, or a letter may seem to be applied
            that was never sent.
        domain_of: Registered domain of a host name.

    Raises:
        StorageError: If a store cannot be read.
    """
    whole, of = ShardsAudit(), len(stores)
    cut = cut_of(stores, domain_of)
    counts = [read_counts(store) for store in stores]
    for number, store in enumerate(stores):
        saved, shard = read_totals(store), read_shard(store)
        if saved is not None and of > 1 and shard != (number, of):
            whole.violations.append(f"store {number} of {of} holds {shard or 'a job in one piece'}")
        whole.cash += saved.ledger.whole if saved is not None else TOTAL
    for sender, (posted, _) in enumerate(counts):
        for receiver, sent in posted.items():
            if receiver < of:
                got = counts[receiver][1].get(sender, Got())
                _check_pair(whole, stores[sender], sent, got, (sender, cut.in_shard(receiver)))
    for receiver, (_, received) in enumerate(counts):
        for sender, got in received.items():
            if sender >= of or receiver not in counts[sender][0]:
                whole.violations.append(
                    f"shard {receiver} has {got.last} letters from shard {sender}, which has written none"
                )
    if whole.cash + whole.in_transit != of * TOTAL:
        whole.violations.append(
            f"the cash of all shards and of {whole.letters} letters between them is {whole.cash + whole.in_transit} units, "
            f"not {of * TOTAL}"
        )
    return whole


def _check_pair(whole: ShardsAudit, outbox: Store, sent: Posted, got: Got, way: tuple[int, Cut]) -> None:
    """Check the letters in *outbox*, of which *got* are applied, and count the others."""
    sender, cut = way
    names = f"from shard {sender} to shard {cut.own.number}"
    if not sent.acknowledged <= got.last <= sent.last:
        whole.violations.append(
            f"{got.last} letters {names} are applied, of {sent.last} that were written, {sent.acknowledged} of them deleted"
        )
    letters = dict(read_outbox(outbox, cut.own.number))
    if sorted(letters) != list(range(sent.acknowledged + 1, sent.last + 1)):
        whole.violations.append(f"the outbox does not hold the letters {names} that are not acknowledged")
    units = 0
    for number, data in letters.items():
        if number > got.last:
            try:
                units += read_letter(data, cut).units
            except StorageError as error:
                whole.violations.append(str(error))
            whole.letters += 1
    whole.in_transit += units
    if sent.units - got.units != units:
        whole.violations.append(
            f"the letters {names} carry {units} units, but {sent.units} were sent and {got.units} received"
        )
