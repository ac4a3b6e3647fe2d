"""Reports of a job as text for people; ``--json`` writes the same values for programs."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.place.stored_control import time_of
from scrapy_aopic.version import DOCS

from .auditing import audit_store
from .job_view import View
from .output import flush, write
from .queries import top_pages
from .stored import snapshot_of
from .text import duration

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.rebuild import Repaired
    from scrapy_aopic.place.place import Place

    from .auditing import JobAudit
    from .queries import PageRow, SiteRow
    from .snapshot import HostRow, Snapshot

_AUDITED = 300_000
"""Pages up to which the report of a crawl that ends includes the audit, which reads them all: some seconds."""


def format_pages(rows: list[PageRow], *, total: int = TOTAL) -> str:
    """A table of :func:`top_pages`; *total* is all cash, in units."""
    lines = [f"{'':>4}  {'importance':>10}  {'cash':>8}  {'history':>8}  visits  page"]
    lines += [
        f"{number:>4}  {row.importance:>10.6f}  {row.cash / total:>8.1e}  {row.history / total:>8.1e}  "
        f"{row.visits:>6}  {row.url}{_remark(row)}"
        for number, row in enumerate(rows, 1)
    ]
    return "\n".join(lines)


def _remark(page: PageRow) -> str:
    """What is said behind the URL of a *page* that is no ordinary visited one."""
    state = page.outcome or page.state
    return "" if state == "visited" else f"  ({state})"


def format_hosts(rows: list[SiteRow]) -> str:
    """A table of :func:`~.queries.top_hosts`."""
    lines = [f"{'':>4}  {'importance':>10}  {'visited':>8}  {'queued':>8}  host"]
    lines += [
        f"{number:>4}  {row.importance:>10.6f}  {row.visited:>8,}  {row.queued:>8,}  {row.host}"
        for number, row in enumerate(rows, 1)
    ]
    return "\n".join(lines)


def format_host_rows(rows: list[HostRow]) -> str:
    """A table of :func:`~.queries.hosts_by`."""
    lines = [
        f"{'transfer':>9}  {'errors':>6}  {'queued':>8}  {'fetched':>8}  {'state':<9}  {'waits':<24}  host"
    ]
    lines += [
        f"{row.transfer:>7.2f} s  {row.errors:>6,}  {row.queued:>8,}  {row.visited:>8,}  {row.state:<9}  "
        f"{f'{duration(row.wait)}, {row.why}' if row.why else '':<24}  {row.name}"
        for row in rows
    ]
    return "\n".join(lines)


def format_snapshot(now: Snapshot) -> str:
    """A line for each figure that is known and not 0, under its name in a snapshot."""
    figures: dict[str, Any] = msgspec.to_builtins(now, str_keys=True)
    for name in ("at", "created_at", "not_before", "counted_since"):
        figures[name] = time_of(figures[name]) if figures[name] else None
    if now.counted is not None:  # lists of all hosts, and not only of those in memory
        figures.update(slow=None, failing=None, waiting=None)
    if now.shards.n == 1:
        figures["shards"] = None
    return "\n".join(_lines(figures))


_HISTOGRAMS = {"due_in", "durations", "front_queues", "ready_queues", "flight_queues"}
"""Figures that are left out, but for the queues that were counted."""


_EVEN_IF_0 = {"queued", "visited", "failed", "held", "alive", "on_the_way"}
"""Counts that are shown even if they are 0, as others are not."""


def _lines(figures: dict[str, Any], path: str = "") -> list[str]:
    indent = "  " * (path.count(".") + 1 if path else 0)
    lines: list[str] = []
    for name, value in figures.items():
        label = f"{indent}{name.replace('_', ' ')}"
        if (
            value is None
            or (not value and name not in _EVEN_IF_0)
            or (name in _HISTOGRAMS and path != "counted")
        ):
            continue
        if isinstance(value, dict):
            below = _lines(value, f"{path}.{name}" if path else name)
            lines += [f"{label}:", *below] if below else []
        elif isinstance(value, list):
            lines += [f"{label}:", *(f"{indent}  {_row(row)}" for row in value)]
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            lines.append(f"{label}: {value}")
        else:
            lines.append(f"{label}: {_number(value)}")
    return lines


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{float(f'{value:.4g}'):,}"


def _row(row: str | dict[str, Any]) -> str:
    """A row of a list: a sentence, pages that were set aside, a shard, a worker or a host."""
    if isinstance(row, str):
        return row
    if "example" in row:
        return f"{row['pages']:,}, for example {row['example']}: {row['reason']}"
    if "seconds" in row:
        return f"{row['worker']}: {row['shards']:,} shards, for {row['seconds']:,.0f} s"
    if "shard" in row:
        worker = row["worker"] or ("" if row["worker"] is None else "nobody")
        return (
            f"{row['shard']:>3}: {row['queued']:,} queued, {row['visited']:,} visited, {row['failed']:,} failed, "
            f"{row['hosts']:,} hosts, {row['letters']:,} letters"
            f"{', ' + worker if worker else ''}{' (idle)' if row['is_idle'] else ''}"
        )
    parts = [f"{row['transfer']:.2f} s"] if row["transfer"] else []
    parts += [f"{row['errors']:,} error{'s' * (row['errors'] != 1)} in a row"] if row["errors"] else []
    parts += [f"{row['down']:,} of them without a response"] if row["down"] else []
    parts += [f"waits {duration(row['wait'])}: {row['why']}"] if row["wait"] else []
    return f"{row['name']}: {', '.join(parts)}"


def format_audit(result: JobAudit) -> str:
    """The violations, and a line of what was counted."""
    n = result.n_violations
    holds = "the books hold" if result.is_of_books else "every invariant holds"
    several = f"{result.shards} shards: " if result.shards > 1 else ""
    letters = f" + {result.in_transit:,} in {result.letters:,} letters" if result.shards > 1 else ""
    summary = (
        f"{several}{result.pages:,} pages ({result.queued:,} queued, {result.visited:,} visited, {result.failed:,} failed) on "
        f"{result.hosts:,} hosts; cash of pages {result.cash:,} + virtual page{'s' * (result.shards > 1)} {result.virtual:,}"
        f"{letters} = {result.cash + result.virtual + result.in_transit:,} units: "
        f"{holds if result.holds else f'{n:,} violation' + 's' * (n != 1)}"
    )
    note = "Pages were not looked at: 'scrapy aopic check JOBDIR/aopic-home/N' audits those of shard N on its disk."
    return "\n".join([*result.violations, summary, *([note] if result.is_of_books else [])])


def format_repair(done: Repaired, kept: Path | str | None) -> str:
    """Report the repair of a damaged job; *kept* is the folder of the damaged store, or its name on a server."""
    lines = [done.reason] if done.reason else []
    lines += [f"Rows of {family} could not be read in {n:,} places." for family, n in done.gaps.items()]
    if not done.has_totals:
        lines.append("The totals are lost: the job begins with a new ledger, in the default order.")
    lines.append(
        f"{done.pages:,} pages on {done.hosts:,} hosts are kept, {done.forgotten:,} are forgotten, "
        f"{done.requeued:,} wait to be visited again because only their requests are left, "
        f"{done.set_aside:,} have failed because their requests cannot be read or are those of others, "
        f"{done.unmerged:,} stand for themselves again; the virtual page took up {done.cash:,} units. "
        f"The damaged store is in {kept}; remove it when you do not need it any more."
    )
    return "\n".join(lines)


def print_report(place: Place | None, store: Store) -> None:
    """Print the most important pages, the counts, the audit if it is quick, and what to do next to standard output.

    Args:
        place: Where the job is from now on; ``None`` if it is nowhere.

    Raises:
        OutputError: If it cannot be printed.
    """
    view = View([store])
    now = snapshot_of(view)
    if now is None:
        return
    pages = now.pages
    lines = [
        "",
        "The most important pages, from the cash that flowed to them:",
        format_pages(top_pages(view, 20)),
        "",
        (
            f"{pages.visited:,} pages visited and {pages.failed:,} failed on {now.hosts.known:,} hosts, "
            f"{pages.queued:,} queued; {now.mean_rate or 0.0:.1f} pages/s since the job began"
        ),
    ]
    if pages.known <= _AUDITED:
        result = audit_store(store)
        lines.append(
            "Audit: every invariant holds."
            if result.holds
            else f"Audit: {result.n_violations} VIOLATIONS, first: {result.violations[0]}"
        )
    if place is not None:
        lines += ["", "What to do next:", *_next_steps(quote(str(place)))]
    write("\n".join(lines))
    flush()


def _next_steps(job: str) -> list[str]:
    """Commands for the *job*, each with what it is good for."""
    steps = {
        f"scrapy aopic status {job}": "what limited the crawl, and what became of its pages",
        f"scrapy aopic why {job} URL": "why a page was fetched, waits or was not",
        f"scrapy aopic dashboard {job}": "all of it in the browser",
        f"scrapy aopic export {job} --pages pages.csv": "every page with its importance",
    }
    width = max(map(len, steps))
    lines = [f"  {command:<{width}}  {what}" for command, what in steps.items()]
    return [*lines, f"  The command that began the crawl goes on with it. Docs: {DOCS}"]
