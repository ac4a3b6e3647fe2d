"""What a job in shards can be asked as a whole, also while workers crawl it: how far it is, and whether everything holds."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.audit import Audit
from scrapy_aopic.core.focus.harvest import read_harvest
from scrapy_aopic.core.ledger import TOTAL, Sums
from scrapy_aopic.core.saved import read_saved
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.mail import Got, read_counts
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.cutting import check_suffixes
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage.disk_workers import read_books, registry_of
from scrapy_aopic.storage.redis.membership import ShardState
from scrapy_aopic.storage.redis.shared_lessons import LessonBoard
from scrapy_aopic.web.suffixes import registered_domain

from .auditing import audit_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage import Address
    from scrapy_aopic.storage.redis.membership import JobCut

_COUNTS = ("queued", "visited", "failed", "hosts")
"""What each shard counts, in this order."""


def _cut_of(job: Place) -> JobCut:
    cut = job.read_cut()
    if cut is None:
        raise StorageError(f"The job in {job} is in one piece, or gone.")
    return cut


def who_crawls(job: Place) -> dict[int, str] | None:
    """Who crawls each shard of *job* now; empty for a shard that nobody crawls, and ``None`` for a copy in a folder.

    Raises:
        StorageError: If the server cannot be reached.
    """
    if not isinstance(job, ServerPlace):
        return None
    return {row["shard"]: row["worker"] for row in shards_status(job.address)["shards"]}


# -- status


def shards_status(address: Address) -> dict[str, Any]:
    """Counts of the job at *address*, its mail, its workers and its shards, as of their last commits.

    Raises:
        StorageError: If there is no such job, or the server cannot be reached.
    """
    cut = _cut_of(ServerPlace(address))
    with closing(registry_of(address, cut)) as registry:
        look = registry.look({}, joins=False)
    states = [look.states.get(number) for number in range(cut.shards)]
    named = {token: f"{worker['host']}:{worker['pid']}" for token, worker in look.workers.items()}
    shards: list[dict[str, Any]] = []
    for number, state in enumerate(states):
        owner = named.get(state.worker, "a worker that has died") if state is not None else ""
        shards.append(
            {
                "shard": number,
                **dict(zip(_COUNTS, state.counts if state is not None else (0, 0, 0, 0), strict=True)),
                "worker": (owner or "a worker") if look.is_owned[number] else "",
                "is_idle": state is not None and state.is_idle,
                "letters": 0,
            }
        )
    sent = {
        (sender, to): last
        for sender, state in enumerate(states)
        if state is not None
        for to, last in state.sent.items()
    }
    for (sender, to), last in sent.items():
        other = states[to]
        shards[to]["letters"] += max(last - (other.got.get(sender, 0) if other is not None else 0), 0)
    on_their_way = sum(shard["letters"] for shard in shards)
    return {
        "pages": {
            name: sum(state.counts[n] for state in states if state is not None)
            for n, name in enumerate(_COUNTS[:3])
        },
        "hosts": sum(state.counts[3] for state in states if state is not None),
        "letters": {"sent": sum(sent.values()), "on_their_way": on_their_way},
        "cash": {
            "total": cut.shards * TOTAL,
            "pages": sum(Sums(*state.sums).held for state in states if state is not None),
            "virtual_pages": sum(Sums(*state.sums).virtual for state in states if state is not None),
        },
        **_graded(address),
        "is_finished": look.is_quiet,
        "workers": [
            {
                "worker": named[token],
                "shards": sum(shard["worker"] == named[token] for shard in shards),
                "seconds": round(look.now - worker["since"]),
            }
            for token, worker in look.workers.items()
        ],
        "shards": shards,
    }


def stored_status(job: Place) -> dict[str, Any]:
    """What :func:`shards_status` says, of the copy of a job at *job*, which nobody crawls.

    Raises:
        StorageError: If there is no such job, or a store cannot be read.
    """
    with ExitStack() as opened:
        stores = job.open_snapshots()
        for store in stores:
            opened.callback(store.close)
        saved = [read_saved(store) for store in stores]
        mail = [read_counts(store) for store in stores]
        harvests = [read_harvest(store) for store in stores]
    shards: list[dict[str, Any]] = [
        {
            "shard": number,
            **{name: getattr(each, name) if each is not None else 0 for name in _COUNTS},
            "worker": "",
            "is_idle": False,
            "letters": 0,
        }
        for number, each in enumerate(saved)
    ]
    sent = {(sender, to): each.last for sender, (posted, _) in enumerate(mail) for to, each in posted.items()}
    for (sender, to), last in sent.items():
        shards[to]["letters"] += last - mail[to][1].get(sender, Got()).last
    return {
        "pages": {name: sum(row[name] for row in shards) for name in _COUNTS[:3]},
        "hosts": sum(row["hosts"] for row in shards),
        "letters": {"sent": sum(sent.values()), "on_their_way": sum(row["letters"] for row in shards)},
        "cash": {
            "total": len(stores) * TOTAL,
            "pages": sum(each.ledger.held for each in saved if each is not None),
            "virtual_pages": sum(each.ledger.virtual if each is not None else TOTAL for each in saved),
        },
        **_topic(sum(each.pages for each in harvests), sum(each.relevant for each in harvests)),
        "is_finished": False,
        "workers": [],
        "shards": shards,
    }


def _graded(address: Address) -> dict[str, Any]:
    """How many pages of the job at *address* are relevant, if it has a topic."""
    with closing(LessonBoard(address)) as board:
        return _topic(*board.graded())


def _topic(pages: int, relevant: int) -> dict[str, Any]:
    if not pages:
        return {}
    return {"topic": {"pages": pages, "relevant": relevant, "harvest": round(min(relevant / pages, 1.0), 4)}}


def format_shards(state: dict[str, Any]) -> str:
    """What :func:`shards_status` says, for people."""
    pages, letters, cash = state["pages"], state["letters"], state["cash"]
    lines = [
        "pages:",
        *(f"  {name}: {n:,}" for name, n in pages.items()),
        f"hosts: {state['hosts']:,}",
        f"letters between shards: {letters['sent']:,}, {letters['on_their_way']:,} of them on their way",
        f"cash of the virtual pages: {cash['virtual_pages'] / cash['total']:.3f} of all",
        *(
            [f"relevant: {topic['relevant']:,} of {topic['pages']:,} graded pages, {topic['harvest']:.1%}"]
            if (topic := state.get("topic"))
            else []
        ),
        f"finished: {'yes' if state['is_finished'] else 'no'}",
        "workers:",
        *(
            f"  {worker['worker']}: {worker['shards']:,} shards, for {worker['seconds']:,} s"
            for worker in state["workers"]
        ),
        *([] if state["workers"] else ["  none"]),
        f"{'shard':>5}  {'queued':>9}  {'visited':>9}  {'failed':>7}  {'hosts':>7}  worker",
    ]
    lines += [
        f"{row['shard']:>5}  {row['queued']:>9,}  {row['visited']:>9,}  {row['failed']:>7,}  {row['hosts']:>7,}  "
        f"{row['worker'] or 'none'}{' (idle)' if row['worker'] and row['is_idle'] else ''}"
        for row in state["shards"]
    ]
    return "\n".join(lines)


# -- check


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
    cut = _cut_of(job)
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
