"""Reports of a job as text for people; ``--json`` writes the same values for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from shlex import quote
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scrapy_aopic.core.focus.harvest import LATELY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.place.calibration_file import read_calibration
from scrapy_aopic.place.stored_control import time_of
from scrapy_aopic.version import DOCS

from .auditing import JobAudit, audit_job, audit_store
from .job_view import View
from .output import Colour, flush, n_columns, painted, write
from .queries import PageRow, SiteRow, top_pages
from .stored import snapshot_of, with_surroundings
from .text import (
    LIMITED_BY,
    checked,
    duration,
    fetched,
    n_of,
    relevant_of,
    round_sentence,
    short_summary,
    size,
)
from .verdict import AGAIN

if TYPE_CHECKING:
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.core.salvage import Salvaged
    from scrapy_aopic.place.place import Place

    from .snapshot import HostRow, Snapshot

_AUDITED = 300_000
"""Pages up to which the report of a crawl that ends includes the audit, which reads them all: some seconds."""

_OLD = 60.0
"""Seconds after which a crawl that runs would have committed: ``AOPIC_DURABILITY`` is rarely more than a few."""


def format_pages(rows: list[PageRow], *, total: int = TOTAL, width: int | None = None) -> str:
    """A table of :func:`~.queries.top_pages`.

    Args:
        total: All cash, in units.
        width: Characters of a line of the terminal; ``None`` if it is shown on none.
    """
    states = (page.outcome or page.state for page in rows)
    shown = ["" if state == "visited" else state for state in states]
    return format_table(
        [
            *_ranks([page.importance for page in rows], width),
            *_relevant(rows),
            Column("cash", [f"{page.cash / total:.1e}" for page in rows], goes=2),
            Column("history", [f"{page.history / total:.1e}" for page in rows], goes=1),
            Column("visits", [f"{page.visits:,}" for page in rows], goes=4),
            Column("state", shown, is_left=True, paints=colour_of),
            Column("page", [page.url for page in rows], is_left=True),
        ],
        width,
    )


def _ranks(importances: list[float], width: int | None) -> list[Column]:
    """The place of each row, its importance, and on a terminal a bar as long as that."""
    bar = Column("", bars(importances), is_left=True, goes=3, paints=lambda _: Colour.FETCHED)
    return [
        Column("", [f"{number:>4}" for number in range(1, len(importances) + 1)]),
        Column("importance", [f"{each:.6f}" for each in importances]),
        *([bar] if width is not None else ()),
    ]


def colour_of(state: str) -> Colour | None:
    """The colour of what a page or a host does now, as the dashboard has it."""
    if state in {"ready", "visited"}:
        return Colour.READY if state == "ready" else None
    if state in {"idle", "redirect"}:
        return Colour.FAINT
    if state in {"in flight", "fetched"}:
        return Colour.FETCHED
    return Colour.WAITING if state in _WAITING else Colour.FAILED


_WAITING = {"queued", "waiting", "gated", "locating", "late", "dry", "shelved", "parked"}


def format_hosts(rows: list[SiteRow], *, width: int | None = None) -> str:
    """A table of :func:`~.queries.top_hosts`; *width* as of :func:`format_pages`."""
    return format_table(
        [
            *_ranks([host.importance for host in rows], width),
            Column("visited", [f"{host.visited:,}" for host in rows]),
            Column("queued", [f"{host.queued:,}" for host in rows]),
            Column("state", [host.state for host in rows], is_left=True, paints=colour_of),
            Column("host", [host.host for host in rows], is_left=True),
        ],
        width,
    )


def _relevant(rows: Sequence[PageRow | HostRow]) -> list[Column]:
    """A column for the relevance of *rows*, if any was graded."""
    said = ["" if row.relevance is None else f"{row.relevance:.2f}" for row in rows]
    return [Column("relevant", said)] if any(said) else []


def format_host_rows(rows: list[HostRow], *, width: int | None = None) -> str:
    """A table of :func:`~.queries.hosts_by`; *width* as of :func:`format_pages`."""
    waits = [f"{duration(row.wait)}, {row.why}" if row.why else "" for row in rows]
    return format_table(
        [
            *_relevant(rows),
            Column("transfer", [f"{row.transfer:.2f} s" for row in rows]),
            Column("errors", [f"{row.errors:,}" for row in rows], goes=1),
            Column("queued", [f"{row.queued:,}" for row in rows]),
            Column("fetched", [f"{row.visited:,}" for row in rows], goes=2),
            Column("state", [row.state for row in rows], is_left=True, paints=colour_of),
            Column("waits", waits, is_left=True, goes=3),
            Column("host", [row.name for row in rows], is_left=True),
        ],
        width,
    )


def headline(now: Snapshot, width: int) -> str:
    """How a job is, in a line of a terminal: how it ended, or how far it was at its last commit."""
    age = time() - now.at
    line = now.verdict.headline if now.is_closed else short_summary(now, width)
    if not now.is_closed and age > _OLD:
        line = f"No commit for {duration(age)}: {line}"
    return painted(line, Colour.STRONG)


def format_screen(now: Snapshot, job: str) -> str:
    """How *job* is, on one screen: what is known of it and not 0, in words."""
    pages, hosts, rate, topic, shards = now.pages, now.hosts, now.rate, now.topic, now.shards
    states = ((getattr(hosts, name), name) for name in ("ready", "waiting", "shelved", "parked", "dead"))
    waits = now.counted.waits if now.counted is not None else hosts.waits
    counted = sorted(now.outcomes.items(), key=lambda pair: -pair[1])
    lists = now.counted or now
    speed = [f"{rate.pages:,.1f} a second over {rate.seconds:.0f} s"] if rate is not None else []
    speed += [f"{now.mean_rate:,.1f} since the job began"] if now.mean_rate else []
    rows = {
        "fetched": [fetched(now), f"{pages.queued:,} wait", f"{pages.known:,} known"],
        "speed": speed,
        "end": [f"in {duration(now.forecast.seconds)}: {now.forecast.because}"]
        if now.forecast.seconds
        else [],
        "hosts": [f"{hosts.known:,} known", *(f"{n:,} {name}" for n, name in states if n)],
        "why they wait": [f"{n:,} {why}" for why, n in waits.items()],
        "visits": [f"{n:,} {name}" for name, n in counted],
        "failed": _failed(now),
        "round": [round_sentence(now.round)] if now.round is not None else [],
        "relevant": [
            f"{100 * topic.harvest:.0f} % of {n_of(topic.pages, 'page')}",
            *([relevant_of(topic.lately, min(topic.pages, LATELY))] if topic.lately is not None else []),
            checked(topic.labels, job),
        ]
        if topic is not None
        else [],
        "operator": now.control.sentences,
        "set aside": [_row(msgspec.to_builtins(row)) for row in now.counted.set_aside] if now.counted else [],
        "slowest": [_row(msgspec.to_builtins(row)) for row in lists.slow[:_FEW_HOSTS]],
        "failing": [_row(msgspec.to_builtins(row)) for row in lists.failing[:_FEW_HOSTS]],
        "shards": [f"{shards.n:,}, {n_of(shards.on_the_way or 0, 'letter')} on the way"]
        if shards.n > 1
        else [],
        "workers": [_row(msgspec.to_builtins(row)) for row in shards.workers],
        "store": [size(now.store.size_bytes)] if now.store.size_bytes else [],
        "more": [f"scrapy aopic status {quote(job)} --all", f"{DOCS} commands#what-limits-a-crawl"],
    }
    found = {
        name: ("; " if name in _SENTENCES else ", ").join(parts) for name, parts in rows.items() if parts
    }
    problems = [painted(text, Colour.FAILED) for text in (now.problem, now.unread) if text]
    verdict = painted(now.verdict.headline, Colour.STRONG)
    each = [_row(msgspec.to_builtins(row)) for row in shards.each] if shards.n > 1 else []
    return "\n".join([verdict, now.verdict.sentence, *problems, "", *_facts(found), *each])


_FEW_HOSTS = 3
"""Hosts of a kind on the screen; ``--all`` has ten, and ``scrapy aopic hosts`` any number."""

_SENTENCES = {"operator", "set aside", "slowest", "failing", "workers"}
"""What has commas in it already."""


def _failed(now: Snapshot) -> list[str]:
    """How many visits failed, and how many pages are none."""
    visits = now.visits
    return [
        f"{100 * n / visits.all:.1f} % {what}"
        for n, what in ((visits.failed, "of all visits failed"), (visits.gone, "forbidden or gone"))
        if n
    ]


def _facts(rows: dict[str, str]) -> list[str]:
    """A line for each of *rows*, the names in a column."""
    width = max(map(len, rows))
    return [f"  {painted(f'{name:<{width}}', Colour.FAINT)}  {text}" for name, text in rows.items()]


def format_snapshot(now: Snapshot) -> str:
    """A line for each figure that is known and not 0, under its name in a snapshot."""
    figures: dict[str, Any] = msgspec.to_builtins(now, str_keys=True)
    for name in ("at", "created_at", "not_before", "counted_since", "revisit_at"):
        figures[name] = time_of(figures[name]) if figures[name] else None
    if now.round is not None:
        figures["round"] = round_sentence(now.round)
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
        label = f"{indent}{painted(name.replace('_', ' '), Colour.FAINT)}"
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
        return f"{row['worker']}: {n_of(row['shards'], 'shard')}, for {row['seconds']:,.0f} s"
    if "shard" in row:
        worker = row["worker"] or ("" if row["worker"] is None else "nobody")
        return (
            f"{row['shard']:>3}: {row['queued']:,} queued, {row['visited']:,} visited, {row['failed']:,} failed, "
            f"{n_of(row['hosts'], 'host')}, {n_of(row['letters'], 'letter')}"
            f"{', ' + worker if worker else ''}{' (idle)' if row['is_idle'] else ''}"
        )
    parts = [f"{row['transfer']:.2f} s"] if row["transfer"] else []
    parts += [f"{n_of(row['errors'], 'error')} in a row"] if row["errors"] else []
    down = f"{row['down']:,} of them" if row["errors"] else f"{n_of(row['down'], 'transfer')} in a row"
    parts += [f"{down} without a response"] if row["down"] else []
    parts += [f"waits {duration(row['wait'])}: {row['why']}"] if row["wait"] else []
    return f"{row['name']}: {', '.join(parts)}"


def format_audit(result: JobAudit) -> str:
    """The violations, and a line of what was counted."""
    n = result.n_violations
    holds = "the books hold" if result.is_of_books else "every invariant holds"
    several = f"{result.shards} shards: " if result.shards > 1 else ""
    letters = f" + {result.in_transit:,} in {n_of(result.letters, 'letter')}" if result.shards > 1 else ""
    summary = (
        f"{several}{n_of(result.pages, 'page')} ({result.queued:,} queued, {result.visited:,} visited, {result.failed:,} failed) on "
        f"{n_of(result.hosts, 'host')}; cash of pages {result.cash:,} + virtual page{'s' * (result.shards > 1)} {result.virtual:,}"
        f"{letters} = {result.cash + result.virtual + result.in_transit:,} units: "
        f"{holds if result.holds else n_of(n, 'violation')}"
    )
    note = "Pages were not looked at: 'scrapy aopic check JOBDIR' audits those in the job folder of a worker."
    return "\n".join([*result.violations, summary, *([note] if result.is_of_books else [])])


def format_salvage(done: Salvaged, name: str = "") -> str:
    """Report what was salvaged of a damaged store, each line with the *name* of its shard before it."""
    lines = [done.reason] if done.reason else []
    lines += [f"rows of {family} could not be read in {n_of(n, 'place')}." for family, n in done.gaps.items()]
    letters = f" Beside these, links in letters between shards: {done.letters:,}." if done.letters else ""
    missing = "any, as the totals are lost" if done.missing is None else f"{done.missing:,}"
    lines.append(
        f"{n_of(done.waiting, 'page')} wait and {done.fetched:,} are known as fetched, on {n_of(done.hosts, 'host')}.{letters}"
    )
    lines.append(
        f"lost: {done.unrequested:,} that waited, whose requests are gone; {done.unnamed:,} of hosts whose names are gone; "
        f"{missing} of which nothing is left."
    )
    if done.uncertain:
        lines.append(
            f"{done.uncertain:,} of those that wait may have been fetched: only their requests are left. They come last."
        )
    return "\n".join(f"{name}{line[:1].upper()}{line[1:]}" for line in lines)


def print_report(place: Place | None, *stores: Store) -> None:
    """Print the most important pages, the audit if it is quick, what to do next, and how it went, to standard output.

    Args:
        place: Where the job is from now on; ``None`` if it is nowhere.
        stores: Its stores, in the order of their shards.

    Raises:
        OutputError: If it cannot be printed.
    """
    view = View(stores, read_calibration(place.folder if place is not None else None))
    now = snapshot_of(view)
    if now is None:
        return
    if place is not None:
        now = with_surroundings(now, place)
    lines = []
    is_one = len(stores) == 1
    if now.pages.known <= _AUDITED and (is_one or place is not None):
        result = audit_store(stores[0]) if is_one or place is None else audit_job(place)
        if result.holds:
            lines.append("Audit: every invariant holds.")
        else:
            n = n_of(result.n_violations, "violation").upper()
            lines.append(painted(f"Audit: {n}, first: {result.violations[0]}", Colour.FAILED))
    best = top_pages(view, 20)
    table = format_pages(best, total=view.total, width=n_columns())
    lines += ["", "The most important pages, from the cash that flowed to them:", table, ""]
    if place is not None:
        lines += [*_next_steps(quote(str(place)), quote(best[0].url) if best else "URL"), ""]
    write("\n".join(["", *lines, *format_end(now)]))
    flush()


def format_end(now: Snapshot) -> list[str]:
    """A crawl that has ended, in five lines: why, what was fetched, what limited it, what is left, how to go on."""
    pages, again = now.pages, "visits" if now.visits.all > now.pages.visited + now.pages.failed else "pages"
    dead = f", {pages.dead:,} of them on dead hosts" if pages.dead else ""
    rows = {
        "fetched": ", ".join(
            [
                fetched(now),
                f"{n_of(now.hosts.known, 'host')} known",
                f"{now.mean_rate or 0.0:.1f} {again} a second",
                *_failed(now),
            ]
        ),
        "limit": LIMITED_BY.get(now.limit, "not known"),
        "left": f"{n_of(pages.queued, 'page')}{dead}",
        "go on": "the same command again" if pages.queued or now.revisit_at else AGAIN.partition(": ")[2],
    }
    return [painted(now.verdict.headline, Colour.STRONG), *_facts(rows)]


def _next_steps(job: str, url: str) -> list[str]:
    """What one may want to know of the *job* and one of its pages, each with its command."""
    return _facts(
        {
            "figures": f"scrapy aopic status {job}",
            "why a page was fetched or not": f"scrapy aopic why {job} {url}",
            "all of it in the browser": f"scrapy aopic dashboard {job}",
            "every page with its importance": f"scrapy aopic export {job} --pages pages.csv",
            "more": f"{DOCS} first-crawl",
        }
    )


# -- tables that fit the width of a terminal

_ROOM = 50
"""Characters that the last column should have at least; other columns go to make room for it."""

_LONGEST_BAR = 10
"""Characters of the bar of the largest number."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
"""The part of a character by which a bar goes on behind whole ones."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        head: Its heading.
        cells: A text for each row.
        is_left: Whether they begin at the left; numbers end at the right.
        goes: Which columns go first where all are too wide: those with the lowest number; with 0 a column stays.
        paints: Gives the colour of a cell.
    """

    head: str
    cells: list[str]
    is_left: bool = False
    goes: int = 0
    paints: Callable[[str], Colour | None] = lambda _: None


def format_table(columns: list[Column], width: int | None) -> str:
    """A line of headings, and a line for each row.

    Args:
        columns: The last one takes what the others leave of a line. Those without any text are left out.
        width: Characters of a line; to fit, columns go and the cells of the last one are cut. ``None`` for any number.
    """
    *shown, last = [column for column in columns if column.head or any(column.cells)]
    while width is not None and _width(shown) + min(_widest(last), _ROOM) > width:
        first = min((column for column in shown if column.goes), key=lambda column: column.goes, default=None)
        if first is None:
            break
        shown.remove(first)
    room = None if width is None else max(width - _width(shown), 1)
    heads = [*(_padded(column, column.head) for column in shown), last.head]
    texts = [
        *(
            [painted(_padded(column, cell), column.paints(cell) if cell else None) for cell in column.cells]
            for column in shown
        ),
        [cut(cell, room) for cell in last.cells],
    ]
    return "\n".join([painted("  ".join(heads), Colour.FAINT), *map("  ".join, zip(*texts, strict=True))])


def _widest(column: Column) -> int:
    return max(map(len, (column.head, *column.cells)))


def _width(columns: list[Column]) -> int:
    """Characters of *columns*, with the gaps behind them."""
    return sum(_widest(column) + 2 for column in columns)


def _padded(column: Column, text: str) -> str:
    return text.ljust(_widest(column)) if column.is_left else text.rjust(_widest(column))


def cut(text: str, width: int | None) -> str:
    """*text* in at most *width* characters, without its middle if it has more: of a URL, begin and end say most."""
    if width is None or len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def bars(numbers: list[float]) -> list[str]:
    """A bar for each of *numbers*, the longest for the largest."""
    most = max(numbers, default=0.0)
    n_eighths = [round(number / most * _LONGEST_BAR * 8) if most else 0 for number in numbers]
    return [f"{'█' * (n // 8)}{_EIGHTHS[n % 8].strip()}" for n in n_eighths]
