"""Whether everything in the stores of a job holds, its requests and the letters between shards included."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_aopic.core.audit import Audit, audit
from scrapy_aopic.core.ledger import TOTAL, Sums
from scrapy_aopic.core.saved import read_saved
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.cutting import check_suffixes
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage.disk_workers import read_books
from scrapy_aopic.storage.redis.membership import ShardState
from scrapy_aopic.web.stored_requests import RequestReader
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.place.place import Place


def audit_store(store: Store, progress: Callable[[int], object] = lambda _: None) -> Audit:
    """Check every invariant of the job in *store*, and read its requests.

    Args:
        progress: Called with the number of further pages that were looked at.

    Raises:
        StorageError: If the store cannot be read, was written in another format, or its totals are damaged.
    """
    return audit(store, progress=progress, wrong_request=RequestReader.of(store))


@dataclass(slots=True)
class WholeAudit:
    """What was counted in all shards of a job at one moment, and what does not hold.

    Attributes:
        shards: How many there are.
        queued, visited, failed: Pages.
        cash: Units of all shards, by their own counts.
        in_transit: Units in letters that their receivers have not applied.
        letters: Number of these letters.
        total: Units that there must be together.
        violations: What does not hold, a sentence each.
        holds: Whether everything does.
        is_of_books: Whether only the books of the shards were checked, which are on disks elsewhere.
    """

    shards: int
    queued: int = 0
    visited: int = 0
    failed: int = 0
    cash: int = 0
    in_transit: int = 0
    letters: int = 0
    total: int = 0
    violations: list[str] = field(default_factory=list)
    holds: bool = True
    is_of_books: bool = False


def audit_job(job: Place) -> WholeAudit:
    """Check every shard of *job*, and the mail between them, as of one moment.

    Raises:
        StorageError: If a shard was never opened, its letters were written by another list of public suffixes, or the
            server cannot be reached.
    """
    cut = job.read_cut()
    if cut is None:
        raise StorageError(f"The job in {job} is in one piece, or gone.")
    check_suffixes(job, cut)
    if cut.disks and isinstance(job, ServerPlace):
        return audit_books(read_books(job.address, cut), cut.shards)
    result = WholeAudit(cut.shards, total=cut.shards * TOTAL)
    with ExitStack() as opened:
        views = job.open_snapshots()
        for view in views:
            opened.callback(view.close)
        for number, view in enumerate(views):
            try:
                view.verify()
                found = audit_store(view)
            except StorageError as error:
                found = Audit()
                found.expect(False, "{}", error)
            if read_saved(view) is None:
                found.expect(False, "its totals are gone, which its first commit wrote")
            result.queued += found.queued
            result.visited += found.visited
            result.failed += found.failed
            result.violations += [f"shard {number}: {violation}" for violation in found.violations]
        between = audit_shards(views, registered_domain)
    result.cash, result.in_transit, result.letters = between.cash, between.in_transit, between.letters
    result.violations += between.violations
    result.holds = not result.violations
    return result


def audit_books(states: Mapping[int, ShardState], shards: int) -> WholeAudit:
    """Check the cash of a job by the *states* of its shards with their books, as the server has them at one moment.

    Args:
        shards: How many there are; those without a state were never open.
    """
    result = WholeAudit(shards, total=shards * TOTAL, is_of_books=True)
    never = ShardState("", "", is_idle=True, sums=Sums(virtual=TOTAL), sent={}, got={}, counts=(0, 0, 0, 0))
    for number in range(shards):
        state = states.get(number, never)
        queued, visited, failed, _ = state.counts
        result.queued += queued
        result.visited += visited
        result.failed += failed
        sums = Sums(*state.sums)
        cash = sums.held + sums.virtual
        result.cash += cash
        owed = TOTAL + sum(state.got_units.values()) - sum(state.sent_units.values())
        if cash != owed:
            result.violations.append(f"shard {number}: it holds {cash} units, and by its book {owed}")
        for other, last in state.sent.items():
            receiver = states.get(other, never)
            got, units = receiver.got.get(number, 0), receiver.got_units.get(number, 0)
            way = state.sent_units.get(other, 0) - units
            result.letters += last - got
            result.in_transit += way
            if got > last or way < 0 or (got == last and way):
                result.violations.append(
                    f"shard {other} has applied {got} letters from shard {number}, of {last}, and {way} units are on their way"
                )
    if result.cash + result.in_transit != result.total:
        result.violations.append(
            f"the cash of all shards and of {result.letters} letters between them is {result.cash + result.in_transit} units, "
            f"not {result.total}"
        )
    result.holds = not result.violations
    return result


def format_whole(result: WholeAudit) -> str:
    """What :func:`audit_job` found, for people."""
    lines = [
        f"{result.shards} shards: {result.queued:,} pages queued, {result.visited:,} visited, {result.failed:,} failed",
        f"cash: {result.cash:,} units in the shards and {result.in_transit:,} in {result.letters:,} letters, of {result.total:,}",
        *result.violations,
        ("the books hold" if result.is_of_books else "everything holds")
        if result.holds
        else "this does not hold",
    ]
    if result.is_of_books:
        lines.append(
            "Pages were not looked at: 'scrapy aopic check JOBDIR/aopic-home/N' audits those of shard N on its disk."
        )
    return "\n".join(lines)
