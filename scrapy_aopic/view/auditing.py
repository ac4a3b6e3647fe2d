"""Whether everything in the stores of a job holds, its requests and the letters between shards included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from scrapy_aopic.core.audit import Audit, audit
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.ledger import TOTAL, Sums
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.exceptions import SALVAGE, StorageError
from scrapy_aopic.place.cutting import check_suffixes
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import closing_all
from scrapy_aopic.storage.homes import read_books
from scrapy_aopic.storage.redis.worker_registry import ShardState
from scrapy_aopic.web.stored_requests import RequestReader
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tqdm import tqdm

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


@dataclass(slots=True, kw_only=True)
class JobAudit(Audit):
    """The counts and violations that an audit of a job found, as of one moment.

    Attributes:
        shards: Number of shards.
        pages, queued, visited, failed: Number of pages, and of those in each state.
        hosts: Number of hosts.
        cash: Units that pages hold.
        virtual: Units of the virtual pages of all shards.
        in_transit: Units in letters that their receivers have not applied.
        letters: Number of these letters.
        total: Units that all of these must add up to.
        violations: The first violations, a sentence each.
        n_violations: Number of all violations.
        is_of_books: Whether only the books on the server were checked, because the shards are in the folders of workers.
    """

    shards: int
    in_transit: int = 0
    letters: int = 0
    total: int = 0
    is_of_books: bool = False

    def add(self, shard: int, found: Audit) -> None:
        """Take up what was *found* in *shard*."""
        for name in ("pages", "queued", "visited", "failed", "hosts", "cash", "virtual", "n_violations"):
            setattr(self, name, getattr(self, name) + getattr(found, name))
        where = f"shard {shard}: " if self.shards > 1 else ""
        self.violations += [f"{where}{violation}" for violation in found.violations]

    def violate(self, *violations: str) -> None:
        """Take up *violations* that are of no single shard."""
        self.n_violations += len(violations)
        self.violations += violations


def audit_job(job: Place, *, progress: bool = False) -> JobAudit:
    """Check every shard of *job*, and the mail between them, as of one moment.

    Args:
        progress: Whether to show on a terminal how far it is.

    Raises:
        StorageError: If there is no job, the letters of one in shards cannot be read or were written by another list of public
            suffixes, or the server cannot be reached.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    sharding = job.read_sharding()
    if sharding is not None:
        check_suffixes(job, sharding)
        if sharding.folders and isinstance(job, ServerPlace):
            return audit_books(read_books(job.address), sharding.shards)
    with (
        closing_all(job.open_snapshots()) as stores,
        tqdm(unit=" pages", unit_scale=True, leave=False, disable=None if progress else True) as line,
    ):
        here = job.shards_here()
        result = JobAudit(shards=len(here), total=len(here) * TOTAL)
        for number in here:
            result.add(number, _audit_shard(stores[number], line, is_one=len(stores) == 1))
        if len(here) == len(stores) > 1:
            between = audit_shards(stores, registered_domain)
            result.in_transit, result.letters = between.in_transit, between.letters
            result.violate(*between.violations)
    return result


def _audit_shard(store: Store, line: tqdm[NoReturn], *, is_one: bool) -> Audit:
    """Check *store*, the only one of its job or that of a shard."""
    try:
        store.verify()
        saved = read_totals(store)
        line.total = (line.total or 0) + (saved.pages if saved is not None else 0)
        found = audit_store(store, line.update)
    except StorageError as error:
        found = Audit()
        found.expect(False, "{}{}", error, f" {SALVAGE}" if is_one else "")
        return found
    if not is_one:
        found.expect(saved is not None, "its totals are gone, which its first commit wrote")
    return found


def audit_books(states: Mapping[int, ShardState], shards: int) -> JobAudit:
    """Check the cash of a job by the *states* of its shards with their books, as the server has them at one moment.

    Args:
        shards: How many there are; those without a state were never open.
    """
    result = JobAudit(shards=shards, total=shards * TOTAL, is_of_books=True)
    never = ShardState("", "", is_idle=True, sums=Sums(virtual=TOTAL), sent={}, got={}, counts=(0, 0, 0, 0))
    for number in range(shards):
        state = states.get(number, never)
        queued, visited, failed, hosts = state.counts
        sums = Sums(*state.sums)
        result.add(
            number, Audit(queued + visited + failed, queued, visited, failed, hosts, sums.held, sums.virtual)
        )
        cash = sums.held + sums.virtual
        owed = TOTAL + sum(state.got_units.values()) - sum(state.sent_units.values())
        if cash != owed:
            result.violate(f"shard {number}: it holds {cash} units, and by its book {owed}")
        for other, last in state.sent.items():
            receiver = states.get(other, never)
            got, units = receiver.got.get(number, 0), receiver.got_units.get(number, 0)
            way = state.sent_units.get(other, 0) - units
            result.letters += last - got
            result.in_transit += way
            if got > last or way < 0 or (got == last and way):
                result.violate(
                    f"shard {other} has applied {got} letters from shard {number}, of {last}, and {way} units are on their way"
                )
    found = result.cash + result.virtual + result.in_transit
    if found != result.total:
        result.violate(
            f"the cash of all shards and of {result.letters} letters between them is {found} units, not {result.total}"
        )
    return result
