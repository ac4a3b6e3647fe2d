"""Parts of sites that may be traps: many fetches went there, and these brought little, or the order holds back what waits there.

What a fetch brought is the cash that it moved on, which is the history of its page. A part of a site is all URLs that are the
same but for their numbers, and for repeated folders. Of each host that took a good part of the fetches a sample of its pages is
looked at: the keys of pages are hashes, so the first ones are a fair one, and the cost does not grow with the job.
"""

from __future__ import annotations

import heapq
import re
import shlex
from collections import Counter, defaultdict
from itertools import islice, takewhile
from posixpath import commonpath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.mirrors import MIRRORED
from scrapy_aopic.core.records import HOST_BYTES, HostRecord, Page, host_key, unpack_host, unpack_page

from .queries import urls_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy_aopic.core.ports import Store

    from .job_view import View

_MOST = 10
"""Parts that are listed."""

_HOSTS = 100
"""Hosts that are looked at, those with most fetches."""

_SAMPLE = 500
"""Pages that are looked at of each: some 15 ms."""

_LARGE = 0.01
"""Part of all fetches from which on it is worth saying."""

_POOR = 0.2
"""Of the average of all fetches, what those of a trap bring at most. On the demo web a calendar without end brings 0.02 to 0.13,
its other large sites 0.4 and more."""

_FEW = 20
"""Fetches in the sample that may be chance."""

_MOSTLY = 0.5
"""Part of the host's fetches from which on the whole host is blocked, and not slowed down."""

_SLOW = 60
"""Seconds between requests to a host that is slowed down."""

_LONGEST_URL = 2000
"""Characters of a URL that are looked at."""

_LONGEST = 200
"""Characters of a pattern."""


class Trap(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a site to which many fetches went, and which brought little, or whose pages the order holds back as ``why`` says.

    Attributes:
        pattern: URLs without their scheme, with ``*`` for what differs.
        host: The host.
        visited: Pages that were fetched, about.
        queued: Pages that wait, about.
        held: Those of them that the order holds back, since their branch or group is crowded (:mod:`scrapy_aopic.core.branches`).
        visited_part: Of all fetches of the job, 0 to 1.
        brought_part: Of all cash that was spent, 0 to 1.
        command: What keeps the crawl from it at once.
        order: The same without the name of the job, as a dashboard takes it.
        deny_url: Regular expression for ``deny_urls`` of ``AOPIC_SCOPE``, which keeps later runs from its links; empty if none
            finds all of them.
    """

    pattern: str
    host: str
    visited: int
    queued: int
    held: int
    visited_part: float
    brought_part: float
    command: str
    order: str = ""
    deny_url: str = ""


def find_traps(view: View, job: str) -> list[Trap]:
    """Parts of sites of the job in *view* that may be traps, those with most fetches first.

    Args:
        job: What commands call the job.
    """
    history = sum(saved.ledger.history for saved in view.saved if saved is not None)
    visited = 0
    largest: list[tuple[int, str, Store, HostRecord]] = []
    for store in view.stores:
        for _, data in store.scan(Family.HOSTS):
            host = unpack_host(data)
            visited += host.visited
            if host.visited >= _FEW:
                heapq.heappush(largest, (host.visited, host.name, store, host))
                if len(largest) > _HOSTS:
                    heapq.heappop(largest)
    found = (
        trap
        for n, _, store, host in largest
        if n >= _LARGE * visited
        for trap in _traps_of(store, host, visited, history, job)
    )
    return heapq.nlargest(_MOST, found, key=lambda trap: trap.visited)


def _traps_of(store: Store, host: HostRecord, visited: int, history: int, job: str) -> Iterator[Trap]:
    """What may be traps of *host*: its parts that took much and brought little, or are held back; those of a branch or a folder as one."""
    parts: defaultdict[str, list[tuple[str, Page]]] = defaultdict(list)
    pages = _sample(store, host.name)
    for url, page in pages:
        parts[pattern_of(url)].append((url, page))
    n_fetched = sum(page.visits > 0 for _, page in pages)
    waiting = Counter(page.branch for _, page in pages if not page.visits)
    held = Counter(page.branch for _, page in pages if _is_held(page))
    crowded = {each for each, n in held.items() if each and n >= max(_FEW, waiting[each] / 2)}
    branch_of = {pattern_of(url): page.branch for url, page in pages if page.branch in crowded}
    of_fetched = host.visited / max(n_fetched, 1)
    of_queue = host.queued / max(len(pages) - n_fetched, 1)
    found: defaultdict[object, list[str]] = defaultdict(list)
    for pattern, part in parts.items():
        fetched = [page for _, page in part if page.visits and not page.outcome]
        of_all = len(fetched) * of_fetched / visited
        brought = sum(page.history for page in fetched) * of_fetched
        is_poor = len(fetched) >= _FEW and of_all >= _LARGE and brought <= _POOR * of_all * history
        if is_poor or pattern in branch_of or sum(_is_held(page) for _, page in part) >= _FEW:
            folder = "".join(re.split("[/?]", pattern, maxsplit=2)[:2])
            found[branch_of.get(pattern, folder)].append(pattern)
    for patterns in found.values():
        urls, own = zip(*(each for pattern in patterns for each in parts[pattern]), strict=True)
        fetched = [page for page in own if page.visits and not page.outcome]
        n = len(fetched) * of_fetched
        action = "block" if n >= _MOSTLY * host.visited else f"slow {_SLOW}"
        pattern = patterns[0] if len(patterns) == 1 else f"{commonpath(patterns).rstrip('*/')}/*"
        yield Trap(
            pattern=pattern,
            host=host.name,
            visited=round(n),
            queued=round(sum(not page.visits for page in own) * of_queue),
            held=round(sum(map(_is_held, own)) * of_queue),
            visited_part=n / visited,
            brought_part=sum(page.history for page in fetched) * of_fetched / history if history else 0.0,
            command=f"scrapy aopic control {shlex.quote(job)} {action} {shlex.quote(host.name)}",
            order=f"{action} {host.name}",
            deny_url=deny_url_of(pattern, urls),
        )


def _is_held(page: Page) -> bool:
    """Whether *page* waits behind others since its branch or group is crowded."""
    return not page.visits and 1 < page.lowered < MIRRORED


def deny_url_of(pattern: str, urls: Sequence[str]) -> str:
    """What finds all of *urls*, by what they have in common before the first number or query."""
    begin = re.split(r"(?<=\?)|\*", pattern, maxsplit=1)[0]
    found = f"://{re.escape(begin)}"
    is_part = "/" in begin.rstrip("/")
    return found if is_part and all(re.search(found, url) for url in urls) else ""


def _sample(store: Store, host: str) -> list[tuple[str, Page]]:
    """Pages of *host* with their URLs."""
    prefix = host_key(host)
    rows = takewhile(lambda row: row[0][:HOST_BYTES] == prefix, store.scan(Family.PAGES, prefix))
    pages = {key: unpack_page(data) for key, data in islice(rows, _SAMPLE)}
    urls = urls_of(store, [*pages])
    return [(urls[key], page) for key, page in pages.items()]


_NUMBERS = re.compile(r"[0-9a-f]{8,}|\d+")


def pattern_of(url: str) -> str:
    """What *url* has in common with others of its part of the site."""
    url = url[:_LONGEST_URL]
    try:
        parts = urlsplit(url)
    except ValueError:
        return url[:_LONGEST]
    folders = _NUMBERS.sub("*", parts.path).split("/")
    path = "/".join(name for n, name in enumerate(folders) if not n or name != folders[n - 1])
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair})
    query = f"?{'&'.join(f'{name}=*' for name in names)}" if names else ""
    return f"{parts.netloc}{path}{query}"[:_LONGEST]
