"""Whether several workers visit the same pages of a real web as one process, each of them once.

    python benchmarks/real_pages.py FOLDER [--most 1100]
    python benchmarks/real_pages.py --demo

FOLDER has saved web pages, one site in each of its folders, of which those with at most so many pages are served on loopback,
each as a host of its own; a first page links to one page of each. With --demo it is the web of the example project, without
its calendar that never ends, so that everything in it can be fetched. They are crawled by one process with a store on the
disk, by three workers that share a job in shards, and by a job that one worker begins, which three more join when a sixth
of the pages is fetched, and which two leave when half of them are.

Wrong is what an audit of all shards and their letters finds, a page that one crawl fetched and another did not, a page that
was fetched twice, two requests to a host at once, and a gap that is too short. Exit status: 0 if nothing is wrong.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urlsplit

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

from demo_web import DemoWeb, server_log
from demo_web.server import Answer, Exchange, Running, Server
from support import redis_server
from support.killed_crawl import command
from support.workers import SHARDS, Workers, check

from scrapy_aopic.core.audit import audit
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import open_snapshot

FACTOR = 1
START = "h0.test"
SETTINGS = {
    "AOPIC_POLITENESS_FACTOR": FACTOR,
    "AOPIC_CONTENT_SEEN": "off",  # else whose links are followed depends on which of two copies comes first
    "AOPIC_MAX_LINKS": 10**6,
    "AOPIC_DURABILITY": 500,
    "CONCURRENT_REQUESTS": 64,
    "LOG_LEVEL": "CRITICAL",  # the demo web has pages that fail
}


class Sites:
    """What the hosts serve."""

    spider = TESTS / "support" / "links_of_site_spider.py"

    def __init__(self, folder: Path, most: int) -> None:
        self._sites = {}
        for site in sorted(each for each in folder.resolve().iterdir() if each.is_dir()):
            pages = sorted(site.rglob("*.htm*"), key=lambda page: (len(page.parts), str(page)))
            indexes = [page for page in pages if page.name.startswith("index.")]
            if 0 < len(pages) <= most:
                self._sites[f"{site.name}.test"] = site, (indexes or pages)[0]
        self._start = "".join(
            f'<a href="http://{host}/{quote(str(index.relative_to(site)))}">{host}</a> '
            for host, (site, index) in self._sites.items()
        ).encode()

    def answer(self, exchange: Exchange) -> Answer:
        if exchange.host == START:
            return Answer(headers={"Content-Type": "text/html"}, body=self._start)
        site, _ = self._sites.get(exchange.host, (None, None))
        if site is None:
            return Answer(404)
        path = site / unquote(exchange.target.partition("?")[0]).lstrip("/")
        if not path.is_file() or ".." in path.parts or ".htm" not in path.suffix:
            return Answer(404)
        return Answer(headers={"Content-Type": "text/html"}, body=path.read_bytes())

    def __len__(self) -> int:
        return len(self._sites)


class Demo:
    """The web of the example project, behind a page with links to its seeds."""

    spider = TESTS / "support" / "links_spider.py"

    def __init__(self) -> None:
        self._web = DemoWeb()
        self._start = "".join(f'<a href="{url}">{url}</a> ' for url in self._web.seeds).encode()

    def answer(self, exchange: Exchange) -> Answer:
        if exchange.host == START:
            return Answer(headers={"Content-Type": "text/html"}, body=self._start)
        if exchange.host == urlsplit(self._web.trap).hostname:
            return Answer(404)
        return self._web.answer(exchange)

    def __len__(self) -> int:
        return self._web.n_hosts


class Outcome:
    """What a crawl has fetched, and what is wrong about that."""

    def __init__(self, web: Running, violations: list[str], n_waiting: int) -> None:
        self.n_waiting = n_waiting  # of hosts that never respond
        fetched = Counter(
            (entry.host, entry.target)
            for entry in web.log
            if entry.status == 200 and entry.target != "/robots.txt"
        )
        self.pages = {*fetched}
        polite = server_log.audit(web.log, FACTOR)
        self.wrong = [
            *violations,
            *(f"{host}{target} was fetched {n} times" for (host, target), n in fetched.items() if n > 1),
            *polite.violations,
        ]


def alone(folder: Path, sites: Sites | Demo) -> Outcome:
    """By one process."""
    with Server(sites.answer).run_in_thread() as web:
        line, environment = command(folder, web.url, spider=sites.spider, **SETTINGS)
        subprocess.run(line, env=environment, cwd=folder, check=True)
        view = open_snapshot(store_folder(folder))
        try:
            found = audit(view)
            return Outcome(web, list(found.violations), found.queued)
        finally:
            view.close()


def together(folder: Path, sites: Sites | Demo, n_pages: int, *, changes: bool) -> Outcome:
    """By workers, whose number *changes*."""
    with ExitStack() as stack:
        redis = stack.enter_context(redis_server.Server(folder / "server"))
        web = stack.enter_context(Server(sites.answer).run_in_thread())
        workers = Workers(folder, redis, web, lock_timeout=10.0, spider=sites.spider, **SETTINGS)
        stack.callback(workers.close)
        for _ in range(1 if changes else 3):
            workers.start()
        if changes:
            wait_for(workers, n_pages / 6)
            for _ in range(3):
                workers.start()
            wait_for(workers, n_pages / 2)
            for process in workers.alive[1:3]:
                process.send_signal(signal.SIGTERM)
        for process in workers.all:
            process.wait()
        _, queued, violations = check(redis.url, SHARDS)
        if failed := [process.returncode for process in workers.all if process.returncode]:
            violations.append(f"workers ended with {failed}: {workers.said()}")
        return Outcome(web, violations, queued)


def wait_for(workers: Workers, n: float) -> None:
    while len(workers.web.log) < n and workers.alive:
        time.sleep(0.01)


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, metavar="FOLDER", nargs="?")
    options.add_argument("--demo", action="store_true", help="the web of the example project")
    options.add_argument("--most", type=int, default=1100, help="pages of a site (%(default)s)")
    given = options.parse_args()
    if given.demo == (given.folder is not None):
        options.error("give a FOLDER, or --demo")
    sites = Demo() if given.demo else Sites(given.folder, given.most)
    print(f"{len(sites)} sites\n\n| crawl | pages | seconds | missing | wrong |\n|---|--:|--:|--:|--:|")
    expected: set[tuple[str, str]] = set()
    n_waiting = 0
    failed = False
    for name in ("one process", "three workers", "1, 4, 2 workers"):
        began = time.monotonic()
        with TemporaryDirectory() as folder:
            if name == "one process":
                found = alone(Path(folder), sites)
                expected, n_waiting = found.pages, found.n_waiting
            else:
                found = together(Path(folder), sites, len(expected), changes=name[0] == "1")
        missing = expected ^ found.pages
        if found.n_waiting != n_waiting:
            found.wrong.append(f"{found.n_waiting} pages wait, and {n_waiting} with one process")
        failed = failed or bool(missing or found.wrong)
        seconds = time.monotonic() - began
        print(
            f"| {name} | {len(found.pages):,} | {seconds:.0f} | {len(missing)} | {len(found.wrong)} |",
            flush=True,
        )
        for line in [*found.wrong, *(f"{host}{target}" for host, target in missing)][:20]:
            print(f"    {line}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
