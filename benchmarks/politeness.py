"""How politely a crawl asks, seen by the servers.

    python benchmarks politeness [--kills 3] [--after 25] [--size 1] [--set AOPIC_FAST_DOWNLOADS=False]

It crawls 300 misbehaving hosts at addresses of the loopback network (127.0.0.0/8, all at one port; Linux has
them without being told), 50 of them at one address, kills the crawler with SIGKILL on the way, and judges the log of
the servers alone: requests at once and requests too early, by host and by address, and what robots.txt forbids. The
exit status is 1 if there is any, or if the job does not pass ``scrapy aopic check``. One host in five has a
Crawl-delay, two in ten a robots.txt that is missing or cannot be had at first; a host takes from 5 ms to 4 s for a page.
A page in ten is a fault: connections reset before and closed within an answer, time-outs, status 5xx, 429 and 503 with
a Retry-After in seconds or as a date, redirects within the host, to others and to forbidden pages.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from email.utils import formatdate
from pathlib import Path
from random import Random
from typing import Any

import options
from scrapy import Request, Spider
from scrapy.http import Response
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IResolverSimple
from zope.interface import implementer

from scrapy_aopic.downloadermiddlewares import robots

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server import Answer, Exchange, Server
from demo_web.server_log import Entry, audit, read_log

SHARED_ADDRESS = "127.0.0.2"

# -- audit

FACTOR, MIN_GAP, MAX_GAP, BACKOFF, TIMEOUT = 2.0, 0.02, 20.0, 1.0, 6.0
robots.RETRY = 2.0  # some are unreachable at first
N_OWN, N_SHARED = 250, 50

KINDS = {
    "reset": 0.015,  # the connection, once
    "cut": 0.015,  # the connection, once, after half of the answer
    "hang": 0.004,  # once, for longer than the crawler waits
    "error": 0.015,  # status 500 or 503, once
    "broken": 0.005,  # status 502, always
    "later": 0.015,  # status 429 or 503 with Retry-After in seconds, once
    "date": 0.01,  # the same as a date
    "moved": 0.02,  # to another page of the host
    "away": 0.03,  # to another host
    "door": 0.01,  # to a forbidden page
    "private": 0.02,  # forbidden, if there is a robots.txt
}
ONCE = frozenset({"reset", "cut", "hang", "error", "later", "date"})
DATE = 3.0


def address_of(name: str) -> str:
    """Network address of the host called *name*: shared by those whose name begins with s."""
    number = int(name[1:4])
    return SHARED_ADDRESS if name[0] == "s" else f"127.0.1.{number + 1}"


class Site:
    """A host; all about it follows from its name."""

    def __init__(self, name: str, size: float) -> None:
        draw = Random(name)
        number, is_shared = int(name[1:4]), name[0] == "s"
        self.name = name
        self.latency = 10 ** draw.uniform(math.log10(0.005), math.log10(0.8))
        if is_shared:
            self.latency = draw.uniform(0.005, 0.02)
        elif number < 20:
            self.latency = draw.uniform(2, 4)
        self.crawl_delay = draw.choice((1, 2)) if not is_shared and draw.random() < 0.2 else 0
        self.robots = draw.choices(("there", "missing", "error", "reset"), (80, 10, 5, 5))[0]
        self.is_dying = number in (100, 101, 102)
        pace = (1 + FACTOR) * self.latency + max(self.crawl_delay, MIN_GAP)
        n_pages = 22 if is_shared else min(55, int(100 / pace))
        self.pages = [self._target(n) for n in range(1, max(int(size * n_pages), 4))]
        self.wish = draw.choice((1, 2, 8)) if not is_shared else 1

    def _target(self, number: int) -> str:
        names = [*KINDS, "p"]
        weights = [*KINDS.values(), 1 - sum(KINDS.values())]
        return f"/{Random(f'{self.name} {number}').choices(names, weights)[0]}/{number}"

    @property
    def forbids(self) -> bool:
        return self.robots != "missing"


class Misbehaving:
    """The answers of all sites."""

    def __init__(self, size: float) -> None:
        names = [f"h{n:03}.test" for n in range(N_OWN)] + [f"s{n:03}.test" for n in range(N_SHARED)]
        self.sites = {name: Site(name, size) for name in names}
        self.port = 0
        self._names = names
        self._asked: Counter[tuple[str, str]] = Counter()
        self._random = Random(1)

    def answer(self, exchange: Exchange) -> Answer:
        site, target = self.sites[exchange.host], exchange.target
        self._asked[site.name, target] += 1
        n_asked = self._asked[site.name, target]
        delay = site.latency * self._random.uniform(0.5, 1.5)
        if site.is_dying and sum(self._asked[site.name, each] for each in ("/", *site.pages[:4])) > 3:
            return Answer(abort=True, delay=delay)
        if target == "/robots.txt":
            return self._robots(site, n_asked, delay)
        kind = target.split("/")[1] or "p"
        if kind in ONCE and n_asked > 1:
            kind = "p"
        return self._page(site, kind, target, delay)

    def _robots(self, site: Site, n_asked: int, delay: float) -> Answer:
        if site.robots == "missing":
            return Answer(404, delay=delay)
        if site.robots == "reset" and n_asked == 1:
            return Answer(abort=True, delay=delay)
        if site.robots == "error" and n_asked == 1:
            return Answer(500, delay=delay)
        text = "User-agent: *\nDisallow: /private/\n"
        if site.crawl_delay:
            text += f"Crawl-delay: {site.crawl_delay}\n"
        return Answer(headers={"Content-Type": "text/plain"}, body=text.encode(), delay=delay)

    def _page(self, site: Site, kind: str, target: str, delay: float) -> Answer:
        number = target.rpartition("/")[2]
        elsewhere = f"http://{self._random.choice(self._names)}:{self.port}/"
        places = {
            "moved": f"/p/moved{number}",
            "door": f"/private/door{number}",
            "away": f"{elsewhere}p/from{number}{site.name[:4]}",
        }
        wishes = {"later": str(site.wish), "date": formatdate(time.time() + DATE, usegmt=True)}
        errors = {"error": self._random.choice((500, 503)), "broken": 502}
        if kind in places:
            return Answer(302, {"Location": places[kind]}, delay=delay)
        if kind in wishes:
            return Answer(self._random.choice((429, 503)), {"Retry-After": wishes[kind]}, delay=delay)
        if kind in errors:
            return Answer(errors[kind], delay=delay)
        if kind in ("reset", "hang"):
            return Answer(abort=True, delay=delay if kind == "reset" else 10 * TIMEOUT)
        body = page(f"{site.name}{target}", [*site.pages, elsewhere] if target == "/" else [elsewhere])
        headers = {"Content-Type": "text/html"}
        if kind == "cut":
            headers["Content-Length"] = str(2 * len(body))
        return Answer(200, headers, body, delay=delay / 2, body_delay=delay / 2)


def page(title: str, links: Iterable[str]) -> bytes:
    anchors = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
    return f"<html><title>{title}</title>{title}\n{anchors}</html>".encode()


class Judgement:
    """What the servers' log says of a crawl; prints a line a promise.

    Attributes:
        n_broken: Requests that break a promise.
    """

    def __init__(self, entries: list[Entry], sites: dict[str, Site]) -> None:
        self.n_broken = 0
        self._entries = sorted(entries, key=lambda entry: entry.start)
        self._sites = sites
        self._known_at: dict[str, float] = {}  # when a robots.txt with a Crawl-delay was sent
        self._faults: set[Entry] = set()
        seen: set[tuple[str, str]] = set()
        for entry in self._entries:
            kind = _kind(entry)
            is_first = (entry.host, entry.target) not in seen
            seen.add((entry.host, entry.target))
            if kind == "robots.txt" and entry.status == 200:
                self._known_at.setdefault(entry.host, entry.end)
            if entry.status in (0, 429) or entry.status >= 500 or (kind == "cut" and is_first):
                self._faults.add(entry)

    def print(self) -> None:
        for name, key in (("host", lambda entry: entry.host), ("address", lambda e: address_of(e.host))):
            result = audit(self._entries, FACTOR, MIN_GAP, MAX_GAP, key=key)
            what = f"{result.n_requests:,} requests to {result.n_hosts} {name}{'es' if name == 'address' else 's'}"
            self._print(f"{what}: parallel", result.n_overlaps, "")
            ratio = f"smallest gap {result.smallest_ratio:.3f} times the transfer"
            self._print(f"{what}: earlier than {FACTOR:g} times the transfer", result.n_short_gaps, ratio)
            self._show(result.violations)
        for what, rest in (
            ("Crawl-delay", self._crawl_delay),
            ("Retry-After", self._wish),
            (f"{BACKOFF:g} s after 429, 5xx and time-outs", self._backoff),
        ):
            due = sum(rest(entry) > 0 for entry in self._entries)
            result = audit(self._entries, 0, rest=rest)
            ratio = f"smallest gap {result.smallest_share:.3f} times that"
            self._print(f"{due:,} times {what}: requests within", result.n_short_gaps, ratio)
            self._show(result.violations)
        result = audit(
            self._entries, 0, key=lambda e: address_of(e.host), rest=lambda e: min(self._wish(e), MAX_GAP)
        )
        self._print("Retry-After by address: requests within", result.n_short_gaps, "")
        self._show(result.violations)
        forbidden = [e for e in self._entries if _kind(e) == "private" and self._sites[e.host].forbids]
        self._print("requests that robots.txt forbids", len(forbidden), "")
        told: set[str] = set()
        early = []
        for entry in sorted(self._entries, key=lambda entry: entry.end):
            if _kind(entry) == "robots.txt" and entry.status in (200, 404):
                told.add(entry.host)
            elif _kind(entry) != "robots.txt" and entry.host not in told:
                early.append(entry)
        self._print("requests before robots.txt was there", len(early), "")
        faults = Counter(
            "closed within the answer" if entry.status == 200 else str(entry.status or "without an answer")
            for entry in self._faults
        )
        print("faults by status: " + ", ".join(f"{n} {what}" for what, n in sorted(faults.items())))
        print(f"redirects: {sum(entry.status == 302 for entry in self._entries)}")

    def faults_since(self, instant: float) -> int:
        return sum(entry.start > instant for entry in self._faults)

    def _print(self, what: str, n: int, ratio: str) -> None:
        self.n_broken += n
        print(f"{what}: {n}" + (f"; {ratio}" if ratio else ""))

    @staticmethod
    def _show(violations: Iterable[str]) -> None:
        for violation in violations:
            print(f"  {violation}")

    def _crawl_delay(self, entry: Entry) -> float:
        is_known = entry.end >= self._known_at.get(entry.host, math.inf)
        return self._sites[entry.host].crawl_delay if is_known else 0

    def _wish(self, entry: Entry) -> float:
        if entry.status not in (429, 503):
            return 0.0
        if _kind(entry) == "later":
            return float(self._sites[entry.host].wish)
        if _kind(entry) == "date":  # which has no parts of a second
            return math.floor(entry.start + DATE - 0.01) - entry.end
        return 0.0

    def _backoff(self, entry: Entry) -> float:
        # Not after resets and truncated responses, which are pages' faults where a host answers.
        is_hosts = entry.status == 429 or entry.status >= 500 or _kind(entry) == "hang"
        return BACKOFF if is_hosts and entry in self._faults else 0.0


def _kind(entry: Entry) -> str:
    return entry.target.split("/")[1]


def run_audit(options: Any, folder: Path) -> int:
    web = Misbehaving(options.size)
    log, job = folder / "log.tsv", folder / "job"
    server = Server(web.answer, log=log, host="0.0.0.0")  # all of 127.0.0.0/8
    settings: dict[str, Any] = {
        "ADDONS": '{"scrapy_aopic.Addon": 500}',
        "TWISTED_DNS_RESOLVER": "politeness.Resolver",
        "AOPIC_ALLOW_NETWORKS": "127.0.0.0/8",
        "JOBDIR": job,
        "AOPIC_POLITENESS_KEY": "host+address",
        "AOPIC_POLITENESS_FACTOR": FACTOR,
        "AOPIC_MIN_GAP": MIN_GAP,
        "AOPIC_MAX_GAP": MAX_GAP,
        "AOPIC_BACKOFF": BACKOFF,
        "DOWNLOAD_TIMEOUT": TIMEOUT,
        **options.set,
    }
    began = time.monotonic()
    with server.run_in_thread() as running:
        web.port = running.port
        seeds = folder / "seeds.txt"
        seeds.write_text("".join(f"http://{name}:{running.port}/\n" for name in web.sites))
        for _ in range(options.kills):
            process = start(settings, folder, seeds)
            try:
                process.wait(options.after)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            else:
                print("the crawl was over before it was killed")
        resumed = time.time()
        start(settings, folder, seeds).wait()
    seconds = time.monotonic() - began
    command = [sys.executable, "-m", "scrapy", "aopic", "check", str(job)]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    stats = json.loads((folder / "stats.json").read_text())
    entries = read_log(log)
    print(f"{seconds:.0f} s, {options.kills} kills")
    judgement = Judgement(entries, web.sites)
    judgement.print()
    since = sum(entry.start > resumed for entry in entries)
    print(f"stats of the crawler since the last kill ({since:,} requests by the servers' log):")
    shown = "aopic/politeness/ aopic/outcomes/ aopic/errors aopic/job/ retry/ downloader/exc downloader/response_status"
    shown += " log_count/E spider_exceptions finish_reason"
    for name, value in sorted(stats.items()):
        if name.startswith(tuple(shown.split())):
            print(f"  {name}: {value}")
    print(check.stdout.strip().rpartition("\n")[2])
    counted = [stats.get(f"aopic/politeness/{name}", 0) for name in ("transfers", "down", "errors")]
    uncounted = abs(since - counted[0]) + abs(judgement.faults_since(resumed) - sum(counted[1:]))
    print(f"requests and faults that the crawler did not count, or not as such: {uncounted}")
    is_whole = stats["finish_reason"] in ("finished", "aopic_unreachable") and not check.returncode
    return 1 if judgement.n_broken or uncounted or not is_whole else 0


# -- the crawler


class Follow(Spider):
    """Follows every link; asks for something inline now and then."""

    name = "follow"

    def __init__(self, seeds: str, stats: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = Path(seeds).read_text().split()
        self._stats = Path(stats)

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
        if response.url.endswith("/p/7"):
            assert self.crawler.engine is not None
            await self.crawler.engine.download_async(Request(response.urljoin("/p/inline")))

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        stats = {**self.crawler.stats.get_stats(), "finish_reason": reason}
        self._stats.write_text(json.dumps(stats, default=str))


@implementer(IResolverSimple)
class Resolver:
    """Finds the addresses of invented names."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    @classmethod
    def from_crawler(cls, crawler: object, reactor: Any) -> Resolver:
        return cls(reactor)

    def install_on_reactor(self) -> None:
        self._reactor.installResolver(self)

    def getHostByName(self, name: str, timeout: object = None) -> Deferred[str]:
        return succeed(address_of(name))


def start(settings: dict[str, Any], folder: Path, seeds: Path) -> subprocess.Popen[bytes]:
    """Start a crawl in a process of its own."""
    command = [sys.executable, "-m", "scrapy", "runspider", __file__, "-a", f"seeds={seeds}"]
    command += ["-a", f"stats={folder / 'stats.json'}", "-s", "LOG_LEVEL=ERROR"]
    command += ["-s", f"LOG_FILE={folder / 'crawl.log'}"]
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.Popen(command, cwd=folder, env=environment)


def main() -> int:
    args = options.read(__doc__, folder=Path, kills=3, after=25.0, size=1.0, set={})
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        return run_audit(args, folder.resolve())


if __name__ == "__main__":
    sys.exit(main())
