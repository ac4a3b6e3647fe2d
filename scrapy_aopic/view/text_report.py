"""What a job is reported to be, as text for people; what computers read is JSON of the same values."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.ledger import TOTAL

from .auditing import audit_store
from .lines import duration
from .output import flush, write
from .queries import top_pages, totals

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.audit import Audit
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.rebuild import Repaired

    from .snapshot import HostRow

_AUDITED = 300_000
"""Pages up to which the report of a crawl that ends includes the audit, which reads them all: some seconds."""


def format_pages(rows: list[dict[str, Any]], *, total: int = TOTAL) -> str:
    """A table of :func:`top_pages`; *total* is all cash, in units."""
    lines = [f"{'':>4}  {'importance':>10}  {'cash':>8}  {'history':>8}  visits  page"]
    lines += [
        f"{number:>4}  {row['importance']:>10.6f}  {row['cash'] / total:>8.1e}  {row['history'] / total:>8.1e}  "
        f"{row['visits']:>6}  {row['url']}{'' if row['state'] == 'visited' else '  (' + row['state'] + ')'}"
        for number, row in enumerate(rows, 1)
    ]
    return "\n".join(lines)


def format_hosts(rows: list[dict[str, Any]]) -> str:
    """A table of :func:`~.queries.top_hosts`."""
    lines = [f"{'':>4}  {'importance':>10}  {'visited':>8}  {'queued':>8}  host"]
    lines += [
        f"{number:>4}  {row['importance']:>10.6f}  {row['visited']:>8,}  {row['queued']:>8,}  {row['host']}"
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


def format_status(state: dict[str, Any]) -> str:
    """What :func:`~.queries.status` says, a line each."""
    times = {name: _time(state[name]) for name in ("created_at", "saved_at")}
    return _lines({**state, **times})


def _lines(state: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in state.items():
        label = f"{indent}{str(name).replace('_', ' ')}"
        if isinstance(value, dict):
            lines.append(f"{label}:")
            lines.append(_lines(value, indent + "  ") if value else f"{indent}  none")
        elif isinstance(value, list):
            lines.append(f"{label}:")
            lines += [f"{indent}  {_row(row)}" for row in value] or [f"{indent}  none"]
        else:
            lines.append(
                f"{label}: {value:,}"
                if isinstance(value, (int, float)) and not isinstance(value, bool)
                else f"{label}: {value}"
            )
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    if "example" in row:
        return f"{row['pages']:,}, for example {row['example']}: {row['reason']}"
    if "seconds" in row:
        return f"{row['host']}: {row['seconds']:.2f} s"
    if "errors_in_a_row" in row:
        down = f", {row['down_in_a_row']:,} of them without a response" if row["down_in_a_row"] else ""
        errors = f"{row['errors_in_a_row']:,} error{'s' * (row['errors_in_a_row'] != 1)}"
        return f"{row['host']}: {errors} in a row{down}"
    until = _time(row["until"])
    times = f", {row['in_a_row']:,} in a row" if row["in_a_row"] else ""
    return f"{row['host']} until {until}: {row['why']}{times}"


def _time(instant: float) -> str:
    return datetime.fromtimestamp(instant, timezone.utc).isoformat(" ", "seconds")


def format_audit(result: Audit) -> str:
    """The violations, and a line of what was counted."""
    summary = (
        f"{result.pages:,} pages ({result.queued:,} queued, {result.visited:,} visited, {result.failed:,} failed) on "
        f"{result.hosts:,} hosts; cash of pages {result.cash:,} + virtual page {result.virtual:,} = "
        f"{result.cash + result.virtual:,} units: "
    )
    verdict = (
        "every invariant holds"
        if result.holds
        else f"{result.n_violations:,} violation{'s' * (result.n_violations != 1)}"
    )
    return "\n".join([*result.violations, summary + verdict])


def format_repair(done: Repaired, kept: Path | str | None) -> str:
    """What was made of a damaged job; *kept* is the folder of the damaged store, or where it is on a server."""
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


def print_report(store: Store) -> None:
    """Print the most important pages, the counts and, if it is quick, the audit to standard output.

    Raises:
        OutputError: If it cannot be printed.
    """
    state = totals(store)
    pages = state["pages"]
    seconds = max(state["saved_at"] - state["created_at"], 1e-9)
    done = pages["visited"] + pages["failed"]
    lines = [
        "",
        "The most important pages, from the cash that flowed to them:",
        format_pages(top_pages(store, 20)),
        "",
        (
            f"{pages['visited']:,} pages visited and {pages['failed']:,} failed on {state['hosts']:,} hosts, "
            f"{pages['queued']:,} queued; {done / seconds:.1f} pages/s since the job began"
        ),
    ]
    if sum(pages.values()) <= _AUDITED:
        result = audit_store(store)
        lines.append(
            f"cash audit: pages {result.cash:,} + virtual page {result.virtual:,} = {result.cash + result.virtual:,} units; "
            + (
                "every invariant holds"
                if result.holds
                else f"{result.n_violations} VIOLATIONS, first: {result.violations[0]}"
            )
        )
    write("\n".join(lines))
    flush()
