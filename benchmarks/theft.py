"""What copies of a page take from it, and what mirrors cost.

    python benchmarks/theft.py [--copies 1 5 20 50] [--sets 10] [--mirrors 4] [--attacks copy farm] [--rng 1] [--json FILE]
    python benchmarks/theft.py --loopback [--copies 1 50] [--sites 40]

The web: 40 sites of 25 pages that link to each other at random; the victim is a site of 10 pages, to whose first page
every fifth page of the others links. The copies are as many registered domains, each with all ten pages of the victim:
the same words, and the same links as seen from the site. A seed links to them, so that they are fetched first. Their
owner may do more, by what is called an attack here:

copy       nothing
farm       all copies link to all others, and so do 10 further pages of each
canonical  each copy names itself as canonical
redirect   each copy is behind a page that redirects to it for good, and that the seed links to
change     each copy has the text of the victim only at first, and comes back with another one

The production ledger and frontier crawl this web to its end, as the add-on would have it: links of duplicates are
dropped. The table has the importance of the victim's first page, and of its whole site, as parts of what they have if
each copy has a text of its own and all else is the same, in the mean over webs and at least; that of the page as a part
of what it has without any copies; and how many of the victim's pages were found.

A mirror is a copy that means no harm, of a site of 100 pages: under another name of its registered domain, on one of
its own with the original named as canonical, or without. It is linked from one page, the original from 10. The table has
the fetches that all mirrors take of a crawl to its end, and of one that ends after half as many fetches as there are
honest pages.

With --loopback the web of the attack "copy" is served on loopback and crawled by Scrapy with the add-on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.web.suffixes import registered_domain

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Answer, Exchange, Server

ATTACKS = ("copy", "farm", "canonical", "redirect", "change")
MIRRORS = ("same domain", "named", "bare")
SITES, PAGES, VICTIM, MIRRORED = 40, 25, 10, 100
TURN = 86_400.0
HTML = {"Content-Type": "text/html; charset=utf-8"}


@dataclass
class Page:
    """A page of the web: where it is, what it says, where it leads."""

    url: str
    text: str
    links: list[str]
    canonical: str = ""
    redirect: str = ""
    later: str = ""  # what it says at its second visit

    @property
    def host(self) -> str:
        return self.url.split("/")[2]


Web = dict[str, Page]


def honest(dice: random.Random, sites: int = SITES) -> Web:
    """The sites; page 0 of each is its home page."""
    web: Web = {}
    for site in range(sites):
        for number in range(PAGES):
            links = [f"http://site{site}.com/{dice.randrange(PAGES)}" for _ in range(5)]
            links += [f"http://site{dice.randrange(sites)}.com/{dice.randrange(3)}" for _ in range(2)]
            add(web, Page(f"http://site{site}.com/{number}", f"site {site} page {number}", links))
    return web


def add(web: Web, page: Page) -> None:
    web[page.url] = page


def site(host: str, n: int, text: str) -> Iterator[Page]:
    """The pages of a site: the first one links to all, each other one to the first and to the next."""
    for number in range(n):
        paths = range(1, n) if not number else (0, (number + 1) % n)
        yield Page(f"http://{host}/{number}", f"{text} {number}", [f"http://{host}/{path}" for path in paths])


def attacked(
    dice: random.Random, attack: str, n: int, *, is_theft: bool, sites: int = SITES
) -> tuple[Web, list[str]]:
    """The web with *n* copies, whose texts are their own unless *is_theft*; and its seeds."""
    web = honest(dice, sites)
    for url in dice.sample(sorted(web), len(web) // 5):
        web[url].links.append("http://victim.com/0")
    for page in site("victim.com", VICTIM, "victim"):
        add(web, page)
    entrances, homes = [], [f"http://copy{number}.com/0" for number in range(n)]
    for number, home in enumerate(homes):
        host = home.split("/")[2]
        for page in site(host, VICTIM, "victim" if is_theft else f"copy {number}"):
            if attack == "canonical":
                page.canonical = page.url
            if attack == "change":
                page.later = f"changed {page.url}"
            add(web, page)
        entrances.append(home)
        if attack == "redirect":
            add(web, Page(f"http://{host}/in", "", [], redirect=home))
            entrances[-1] = f"http://{host}/in"
        if attack == "farm":
            web[home].links += [other for other in homes if other != home]
            for further in range(10):
                add(web, Page(f"http://{host}/farm/{further}", f"farm {host} {further}", list(homes)))
                web[home].links.append(f"http://{host}/farm/{further}")
    seeds = ["http://site0.com/0", "http://site1.com/0"]
    web[seeds[0]].links = [*entrances, *web[seeds[0]].links]
    return web, seeds


def mirrored(dice: random.Random, kind: str, n: int) -> tuple[Web, list[str]]:
    """The web with a site and *n* mirrors of it; and its seeds."""
    web = honest(dice)
    linking = dice.sample(sorted(web), 10 + 3 * n)
    for url in linking[:10]:
        web[url].links.append("http://real.com/0")
    for page in site("real.com", MIRRORED, "real"):
        add(web, replace(page, canonical=page.url))
    for number in range(n):
        host = f"mirror{number}.real.com" if kind == "same domain" else f"mirror{number}.com"
        for url in linking[10 + number :: n][:3]:
            web[url].links.append(f"http://{host}/0")
        for copy in site(host, MIRRORED, "real"):
            add(web, replace(copy, canonical=copy.url.replace(host, "real.com") if kind == "named" else ""))
    return web, ["http://site0.com/0", "http://site1.com/0"]


def link_to(url: str) -> Link:
    host = url.split("/")[2]
    return Link(page_key(host_key(host), url.encode()), host, url.encode())


class Run:
    """A crawl of *web* from *seeds*, as the middlewares do it with the settings of the add-on."""

    def __init__(self, web: Web, seeds: list[str], fetches: int = 10**6, *, turns: int = 0) -> None:
        self.web = web
        self.fetched: list[str] = []
        recrawl = Recrawl(min_interval=TURN / 4, max_interval=10 * TURN) if turns else None
        self.policy = Policy(domain_of=registered_domain, recrawl=recrawl)
        self.store, self.now = MemoryStore(), 1e9
        self.crawl = Crawl(self.store, self.policy, self.now)
        self.visits: dict[str, int] = {}
        for seed in seeds:
            self.crawl.seed(link_to(seed), self.now)
        for _ in range(fetches):
            while not isinstance(lease := self.crawl.lease(self.now), Lease) and turns:
                turns -= 1
                self.now += TURN
            if not isinstance(lease, Lease):
                break
            self.visit(lease)
        self.store.write(self.crawl.take_changes(self.now), sync=False)
        self.crawl.changes_landed()
        problems = audit(self.store).violations
        assert not problems, problems

    def visit(self, lease: Lease) -> None:
        crawl, url = self.crawl, lease.request.decode()
        page = self.web[url]
        n = self.visits[url] = self.visits.get(url, 0) + 1
        self.fetched.append(url)
        crawl.release(lease, self.now)
        if page.redirect:
            to = link_to(page.redirect)
            crawl.settle(lease, [to], self.now, Findings("redirect", same_as=to.key))
            return
        named = link_to(page.canonical).key if page.canonical else b""
        is_internal = registered_domain(
            page.canonical.partition("//")[2].partition("/")[0]
        ) == registered_domain(page.host)
        as_seen = "\n".join(sorted(each.removeprefix(f"http://{page.host}") for each in page.links))
        text = text_of((page.later if page.later and n > 1 else page.text).encode(), as_seen.encode())
        found = crawl.judge(lease, text)
        is_duplicate = bool(found.first)
        if named and found.copy:
            is_duplicate = crawl.give_way(lease, named)
        links = [] if is_duplicate else [link_to(each) for each in page.links]
        crawl.settle(
            lease,
            links,
            self.now,
            Findings("duplicate" if is_duplicate else "", same_as=named, is_if_same=not is_internal),
        )

    def importance(self, *urls: str) -> float:
        pages = [self.crawl.page(link_to(url).key) for url in urls]
        return sum(self.crawl.ledger.importance(page) for page in pages if page is not None)


# -- in simulation


def theft(attack: str, n: int, rng: int) -> tuple[float, float, float, float]:
    """Importance of the victim's page and of its site, as parts of what they have if the copies' texts are their own; of
    the page, as a part of what it has if there are no copies; and the part of the victim's pages that was found."""
    found = []
    for copies, is_theft in ((0, False), (n, False), (n, True)):
        web, seeds = attacked(random.Random(rng), attack, copies, is_theft=is_theft)
        found.append(Run(web, seeds, turns=8 if attack == "change" else 0))
    urls = [f"http://victim.com/{number}" for number in range(VICTIM)]
    alone, without, under = found
    return (
        under.importance(urls[0]) / without.importance(urls[0]),
        under.importance(*urls) / without.importance(*urls),
        under.importance(urls[0]) / alone.importance(urls[0]),
        sum(url in under.visits for url in urls) / VICTIM,
    )


def mirrors(kind: str, n: int, rng: int) -> tuple[float, float]:
    """Fetches of a mirror in a crawl to its end, and in one of as many as there are honest pages."""
    n_honest = SITES * PAGES + MIRRORED
    taken = []
    for fetches in (10**6, n_honest):
        web, seeds = mirrored(random.Random(rng), kind, n)
        run = Run(web, seeds, fetches)
        taken.append(sum("//mirror" in url for url in run.fetched) / n)
    return taken[0], taken[1]


def simulated(args: argparse.Namespace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    print(
        "the victim's page (least) and site, of what they have without theft; the page, of what it has without"
    )
    print("copies; the part of the victim's pages that was found")
    for attack in args.attacks:
        for n in args.copies:
            results = [theft(attack, n, args.rng + each) for each in range(args.sets)]
            pages, sites, alone, found = zip(*results, strict=True)
            rows.append(
                {"attack": attack, "copies": n, "page": pages, "site": sites, "alone": alone, "found": found}
            )
            print(
                f"  {attack:10} {n:3} copies  {mean(pages):6.1%} ({min(pages):6.1%})  {mean(sites):6.1%}  "
                f"{mean(alone):6.1%}  {mean(found):5.0%}",
                flush=True,
            )
    if not args.mirrors:
        return rows
    print(
        f"fetches of a mirror of {MIRRORED} pages, of {args.mirrors}: to the end; in a crawl that ends before"
    )
    for kind in MIRRORS:
        ends, halves = zip(
            *(mirrors(kind, args.mirrors, args.rng + each) for each in range(args.sets)), strict=True
        )
        rows.append({"mirrors": kind, "end": mean(ends), "half": mean(halves)})
        print(f"  {kind:12} {mean(ends):6.1f}  {mean(halves):6.1f}")
    return rows


# -- on loopback


def body(page: Page) -> bytes:
    """A page with 60 words that are made of its text."""
    dice = random.Random(page.text)
    words = " ".join(f"word{dice.randrange(5000)}" for _ in range(60))
    head = f'<link rel="canonical" href="{page.canonical}">' if page.canonical else ""
    links = "".join(f'<a href="{link.removeprefix(f"http://{page.host}")}"></a>' for link in page.links)
    return f"<html><head><title>{page.text}</title>{head}</head><body>{words}{links}</body></html>".encode()


def crawl(seeds: list[str], folder: str) -> None:
    """Crawl from *seeds* with the add-on."""
    process = AsyncCrawlerProcess(
        {
            "ADDONS": {"scrapy_aopic.Addon": 500}, "JOBDIR": folder, "LOG_LEVEL": "ERROR", "AOPIC_BACKOFF": 0,
            "AOPIC_POLITENESS_FACTOR": 0, "TELNETCONSOLE_ENABLED": False, "CONCURRENT_REQUESTS": 4,
        }
    )  # fmt: skip
    process.crawl(Follow, start_urls=seeds)
    process.start()


class Follow(Spider):
    """Follows every link."""

    name = "follow"

    def parse(self, response: Response) -> Iterator[Request]:
        assert isinstance(response, HtmlResponse)
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url)


def on_loopback(args: argparse.Namespace) -> None:
    print("on loopback, of the importance without theft: the victim's page, its site; its pages found")
    spawn = multiprocessing.get_context("spawn")
    for n in args.copies:
        shares: list[tuple[float, float]] = []
        for is_theft in (False, True):
            web, seeds = attacked(random.Random(args.rng), "copy", n, is_theft=is_theft, sites=args.sites)

            def answer(exchange: Exchange, web: Web = web) -> Answer:
                page = web.get(f"http://{exchange.host}{exchange.target}")
                return Answer(404) if page is None else Answer(headers=HTML, body=body(page))

            server = Server(answer)
            with server.run_in_thread() as running, TemporaryDirectory() as folder:
                os.environ["http_proxy"] = running.url
                process = spawn.Process(target=crawl, args=(seeds, folder))
                process.start()
                process.join()
                store = open_snapshot(store_folder(Path(folder)))
                problems = audit(store).violations
                rows = top_pages(View([store]), 10**6, everything=True)
                store.close()
            assert not problems, problems
            importance = {row.url: row.importance for row in rows if "//victim.com/" in row.url}
            shares.append((importance["http://victim.com/0"], sum(importance.values())))
        asked = {entry.target for entry in server.entries if entry.host == "victim.com"} - {"/robots.txt"}
        (page, whole), (stolen_page, stolen_whole) = shares
        print(
            f"  {n:3} copies  {stolen_page / page:6.1%}  {stolen_whole / whole:6.1%}  {len(asked) / VICTIM:5.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 5, 20, 50])
    parser.add_argument("--mirrors", type=int, default=4, help="of a site; 0 for no table of them")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS)
    parser.add_argument("--sites", type=int, default=SITES, help="honest ones, with --loopback")
    parser.add_argument("--sets", type=int, default=10, help="webs, each with other links")
    parser.add_argument("--rng", type=int, default=1)
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.loopback:
        on_loopback(args)
        return
    rows = simulated(args)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
