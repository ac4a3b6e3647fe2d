"""A report of a job as one page of HTML that needs nothing else: no script, no file, no network.

Everything that comes from the Web is escaped, and the page's policy forbids everything that it does not need, so a hostile URL
or host name is only text.
"""

from __future__ import annotations

from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING

from scrapy_aopic.core.counters import BOUNDS, OUTCOMES
from scrapy_aopic.core.printable import printable

from .history import column
from .text import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .queries import PageRow, SiteRow
    from .snapshot import HostRow, Snapshot

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 150, 58, 18
"""Of a chart, and what its numbers take of it, in the units of its picture."""

_MOST_POINTS = 360
"""Points of a line: one for every other unit of a chart's width."""

_COLOURS = {
    "rate.pages": "fetched", "hosts.ceiling": "possible", "pages.queued": "text", "pages.visited": "fetched",
    "pages.failed": "failed", "hosts.ready": "ready", "hosts.waiting": "waiting", "hosts.backing_off": "failed",
    "connections.in_use": "fetched", "connections.callbacks": "waiting", "machine.memory": "fetched",
    "store.size_bytes": "possible", "machine.cpu": "fetched", "machine.loop_lag": "failed",
}  # fmt: skip
"""Of lines, by their figures: a colour means the same as in the dashboard; the legend has words, too."""

_STYLE = """
:root{color-scheme:light dark;--text:#1c2330;--faint:#545d6c;--line:#d5d3ca;--back:#fbfaf6;
--fetched:#1a5a9e;--ready:#17694a;--waiting:#8a5a00;--failed:#a3271b;--possible:#6a7280}
@media(prefers-color-scheme:dark){:root{--text:#e9ebef;--faint:#adb5c2;--line:#39404d;--back:#14171d;
--fetched:#7db4ee;--ready:#7ad0a9;--waiting:#f3c35b;--failed:#f0897c;--possible:#9aa3b1}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:60rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.1rem}h2{font-size:1.1rem;margin-top:2rem}
p.headline{font-size:clamp(1.5rem,4vw,2.4rem);line-height:1.15;letter-spacing:-.02em;font-weight:700;margin:.6rem 0}
p.verdict{color:var(--faint)}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}
th,td{text-align:left;padding:.15rem .8rem .15rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
figure{margin:1rem 0}figcaption{color:var(--faint)}svg{max-width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--faint)}svg .grid{stroke:var(--line)}
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report_page(
    now: Snapshot,
    *,
    history: Sequence[dict[str, str]] = (),
    pages: Sequence[PageRow] = (),
    hosts: Sequence[SiteRow] = (),
) -> str:
    """The page.

    Args:
        history: Rows of :func:`.history.read_history`.
        pages, hosts: Rows of :func:`scrapy_aopic.view.queries.top_pages` and ``top_hosts``.
    """
    name = escape(_shown(now.store.name or "a job"))
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Crawl report: {name}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="referrer" content="no-referrer">',
        f"<style>{_STYLE}</style></head><body><h1>Crawl report: {name}</h1>",
        f'<p class="headline">{escape(_shown(now.verdict.headline))}</p>',
        f'<p class="verdict">{escape(_shown(now.verdict.sentence))}</p>',
        _table("Figures", ("", "#"), _figures(now)),
        *_charts(history),
        _table(
            "Outcomes of visits",
            ("outcome", "#visits"),
            [(each, f"{now.outcomes[each]:,}") for each in OUTCOMES if now.outcomes.get(each)],
        ),
        _table("Transfers by time", ("up to", "#transfers"), _durations(now)),
        _table(
            "Why hosts wait",
            ("reason", "#hosts"),
            [(why, f"{n:,}") for why, n in sorted(now.hosts.waits.items())],
        ),
        _host_table("Slowest hosts", now.slow),
        _host_table("Failing hosts", now.failing),
        _table(
            "URLs that were refused",
            ("reason", "#URLs"),
            [(why, f"{n:,}") for why, n in sorted(now.refused.items(), key=lambda pair: -pair[1])],
        ),
        _table(
            "Most important pages",
            ("#importance", "#visits", "page"),
            [(f"{row.importance:.6f}", f"{row.visits:,}", row.url) for row in pages],
        ),
        _table(
            "Most important hosts",
            ("#importance", "#visited", "#queued", "host"),
            [(f"{row.importance:.6f}", f"{row.visited:,}", f"{row.queued:,}", row.host) for row in hosts],
        ),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _figures(now: Snapshot) -> list[tuple[str, str]]:
    pages, hosts, ledger = now.pages, now.hosts, now.ledger
    figures = [
        ("begun", _time(now.created_at)),
        ("last commit", _time(now.at)),
        ("pages visited", f"{pages.visited:,}"),
        ("pages failed", f"{pages.failed:,}"),
        ("pages queued", f"{pages.queued:,}"),
        ("hosts known", f"{hosts.known:,}"),
        ("hosts dead", f"{hosts.dead:,}"),
        (
            "pages a second since the job began",
            f"{now.mean_rate:.2f}" if now.mean_rate is not None else "-",
        ),
        ("transfers", f"{now.transfers.n:,}"),
        ("received", size(now.transfers.bytes)),
        (
            "time in the queue, on average",
            duration(now.queue_seconds) if now.queue_seconds is not None else "-",
        ),
        ("size of the store", size(now.store.size_bytes) if now.store.size_bytes is not None else "-"),
        ("cash of the virtual page", f"{100 * ledger.virtual / ledger.total:.2f} %" if ledger.total else "-"),
        ("turns of the cash", f"{ledger.turns:.4g}"),
    ]
    return [*figures, ("forecast", _forecast(now))]


def _forecast(now: Snapshot) -> str:
    found = now.forecast
    return f"{duration(found.seconds)}: {found.because}" if found.seconds is not None else found.because


def _durations(now: Snapshot) -> list[tuple[str, str]]:
    names = [*(f"{bound:g} s" for bound in BOUNDS), "longer"]
    return [(name, f"{n:,}") for name, n in zip(names, now.transfers.durations, strict=False) if n]


def _host_table(title: str, rows: Sequence[HostRow]) -> str:
    head = ("host", "state", "#last transfer", "#errors in a row", "#queued", "waits for")
    return _table(
        title,
        head,
        [
            (
                row.name,
                row.state,
                f"{row.transfer:.2f} s",
                f"{row.errors:,}",
                f"{row.queued:,}",
                f"{row.why}, {duration(row.wait)}" if row.why else "",
            )
            for row in rows
        ],
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, empty without rows; columns of numbers have names that begin with ``#``."""
    numbers = [name.startswith("#") for name in head]

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' * is_number}>{escape(_shown(value))}</{tag}>"
            for value, is_number in zip(values, numbers, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    if not body:
        return ""
    names = [name.removeprefix("#") for name in head]
    top = f"<thead><tr>{cells('th', names)}</tr></thead>" if any(names) else ""
    return f"<h2>{escape(title)}</h2><table>{top}<tbody>{body}</tbody></table>"


def _shown(text: str) -> str:
    """*text* without what changes the direction or the lines of others, as names from the Web may have it."""
    return printable(text[:2000], "\N{REPLACEMENT CHARACTER}")


def _time(instant: float) -> str:
    return datetime.fromtimestamp(instant, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


# -- charts


def _charts(history: Sequence[dict[str, str]]) -> list[str]:
    if len(history) < 2:
        return []
    return [
        "<h2>Over time</h2>",
        _chart(history, "Pages a second", {"rate.pages": "crawled", "hosts.ceiling": "politeness allowed"}),
        _chart(
            history, "Pages", {"pages.queued": "queued", "pages.visited": "visited", "pages.failed": "failed"}
        ),
        _chart(
            history,
            "Hosts",
            {"hosts.ready": "ready", "hosts.waiting": "waiting", "hosts.backing_off": "backing off"},
        ),
        _chart(history, "In work", {"connections.in_use": "transfers", "connections.callbacks": "callbacks"}),
        _chart(history, "Bytes", {"machine.memory": "memory", "store.size_bytes": "store"}),
        _chart(
            history,
            "Load",
            {"machine.cpu": "CPU seconds a second", "machine.loop_lag": "event loop late, seconds"},
        ),
    ]


def _chart(history: Sequence[dict[str, str]], title: str, names: dict[str, str]) -> str:
    """Lines over time; time in which no crawl ran is left out of the lines."""
    times, runs = column(history, "at"), [row.get("started_at", "") for row in history]
    known = [instant for instant in times if instant is not None]
    begin, span = min(known), max(max(known) - min(known), 1.0)
    columns = {name: column(history, name) for name in names}
    most = (
        max((value for values in columns.values() for value in values if value is not None), default=0.0)
        or 1.0
    )
    step = -(-len(history) // _MOST_POINTS)
    lines = []
    for name, values in columns.items():
        path, last = [], ""
        for place in range(0, len(values), step):
            value, instant = values[place], times[place]
            if value is None or instant is None:
                last = ""
                continue
            x = _LEFT + (_WIDTH - _LEFT - 6) * (instant - begin) / span
            y = 6 + (_HEIGHT - _BOTTOM - 6) * (1 - min(max(value / most, 0.0), 1.0))
            path.append(f"{'L' if last and last == runs[place] else 'M'}{x:.1f} {y:.1f}")
            last = runs[place] or "-"
        lines.append(
            f'<path d="{"".join(path)}" fill="none" style="stroke:var(--{_COLOURS[name]})" stroke-width="1.5"><title>{escape(names[name])}</title></path>'
        )
    legend = ", ".join(
        f'<span style="color:var(--{_COLOURS[name]})">&#9632;</span> {escape(label)}'
        for name, label in names.items()
    )
    bottom = _HEIGHT - _BOTTOM
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)} over {duration(span)}">'
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="6" y2="6"/>'
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
        f'<text x="{_LEFT - 5}" y="11" text-anchor="end">{_number(most)}</text>'
        f'<text x="{_LEFT - 5}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{_time(begin)}</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 4}" text-anchor="end">{_time(begin + span)}</text>'
        f"{''.join(lines)}</svg><figcaption>{escape(title)}: {legend}</figcaption></figure>"
    )


def _number(value: float) -> str:
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"
