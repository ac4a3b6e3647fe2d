"""An invented web without a network: its URLs, a store that knows millions of them, and links for any page."""

from __future__ import annotations

import json
import random
import time
from hashlib import sha1
from typing import TYPE_CHECKING

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.host_state import HostState
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import Link, Page, PageState, host_key, pack_page, page_key
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import arrange, open_store
from scrapy_aopic.web.suffixes import registered_domain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEGIN = 1.7e9
_AT_ONCE = 50_000

N_NAVIGATION, N_RECENT, N_GLOBAL, N_NEW, N_REPEATED = 10, 5, 5, 8, 12
"""Links of a page: to pages of its host that all of its pages link to, to recent ones, to those that the whole web
links to, to new ones, and a second time to one of these."""


def host_name(host: int) -> str:
    return f"www.site{host}.example"


def page_url(host: int, page: int) -> str:
    return f"http://{host_name(host)}/articles/{page % 97}/a-page-of-it-{page:08d}.html"


def place(url: str) -> tuple[int, int]:
    """Host and page of *url*."""
    return int(url[15 : url.index(".example")]), int(url[-13:-5])


def fingerprint(url: str) -> bytes:
    """What Scrapy's fingerprint of a plain request for *url* is, if w3lib leaves the URL as it is."""
    return sha1(f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'.encode()).digest()


def policy(*, gap: float = 0.0) -> Policy:
    """That of the default settings, with hosts left alone for *gap* seconds."""
    return Policy(
        order=Aopic(),
        domain_of=registered_domain,
        politeness=Politeness(factor=0.0, min_gap=gap, max_gap=gap),
    )


def build(
    folder: Path, n_pages: int, n_hosts: int, n_queued: int, name_of: Callable[[str], bytes] = fingerprint
) -> None:
    """Make a job in *folder* that knows *n_pages* pages, evenly on *n_hosts* hosts, of which *n_queued* wait.

    The pages that wait are queued by the crawl itself; those that were visited are written as the crawl would.
    *name_of* says what a page is known by.
    """
    store = open_store(store_folder(folder), "rocksdb", memory_mb=256)
    crawl = Crawl(store, policy(), BEGIN)
    draw = random.Random(1)
    each, waiting = n_pages // n_hosts, n_queued // n_hosts
    totals, frontier = crawl.ledger.totals, crawl.frontier
    n_visited = n_hosts * (each - waiting)
    frontier.budgets.visits = n_visited  # else all domains would be over their budgets
    pages: dict[bytes, bytes | None] = {}
    requests: dict[bytes, bytes | None] = {}
    # By key, as a store likes it best.
    for key, host in sorted((host_key(host_name(host)), host) for host in range(n_hosts)):
        known = HostState(host_name(host), visited=each - waiting)
        frontier.hosts.put(key, known)
        frontier.n_hosts += 1
        assert crawl.domains is not None
        crawl.domains.count(crawl.domains.key(known), each - waiting)
        for number in range(each):
            url = page_url(host, number)
            link = Link(page_key(key, name_of(url)), known.name, url.encode())
            if number >= each - waiting:
                crawl.seed(link, BEGIN)
                continue
            units = draw.randrange(1 << 24)
            page = Page(PageState.VISITED, crawl.pages.next_place(), cash=units, score=1)
            crawl.ledger.window.visit(page, units, draw.random(), BEGIN - draw.random() * 1e6)
            totals.virtual -= units
            totals.history += units
            totals.distributed += units
            pages[link.key], requests[link.key] = pack_page(page), link.request
        if len(pages) >= _AT_ONCE or crawl.frontier.queued % _AT_ONCE > _AT_ONCE - each:
            _write(crawl, store, pages, requests)
            pages, requests = {}, {}
    totals.turn = 1.0
    totals.members = [totals.members[0], n_visited, 0, 0]
    crawl.pages.n_visited = n_visited
    _write(crawl, store, pages, requests)
    arrange(store)  # as the pages of a crawl are, which come in no order
    store.close()


def _write(
    crawl: Crawl, store: Store, pages: dict[bytes, bytes | None], requests: dict[bytes, bytes | None]
) -> None:
    batch = crawl.take_changes(BEGIN, is_clean=True)
    batch[Family.PAGES] = {**pages, **batch[Family.PAGES]}
    batch[Family.REQUESTS] = {**requests, **batch[Family.REQUESTS]}
    store.write(batch, sync=False)
    crawl.changes_landed()


class Links:
    """The links of the pages of a web of *n_hosts* hosts with *each* known pages.

    Attributes:
        seconds: CPU time that it took to make them, which is nobody's.
    """

    def __init__(self, n_hosts: int, each: int) -> None:
        self._draw = random.Random(2)
        self._n_hosts = n_hosts
        self._each = each
        self._next: dict[int, int] = {}
        self.seconds = 0.0

    def of(self, url: str) -> list[str]:
        """URLs of the links on the page under *url*, repeated ones included."""
        began = time.thread_time()
        links = self._of(url)
        self.seconds += time.thread_time() - began
        return links

    def _of(self, url: str) -> list[str]:
        host, _ = place(url)
        draw = self._draw
        new = self._next.get(host, self._each)
        self._next[host] = new + N_NEW
        recent = max(new - N_NEW - N_RECENT, N_NAVIGATION)
        links = [page_url(host, page) for page in range(N_NAVIGATION)]
        links += [page_url(host, recent + n) for n in range(N_RECENT)]
        # Zipf: the logarithm of the rank is even.
        links += [page_url(int(self._n_hosts ** draw.random()) - 1, n) for n in range(N_GLOBAL)]
        links += [page_url(host, new + n) for n in range(N_NEW)]
        return links + draw.choices(links, k=N_REPEATED)


def check_fingerprint() -> None:
    """Fail if Scrapy makes another fingerprint of our URLs."""
    from scrapy import Request
    from scrapy.utils.request import fingerprint as of_scrapy

    url = page_url(1, 2)
    assert of_scrapy(Request(url)) == fingerprint(url), json.dumps(url)
