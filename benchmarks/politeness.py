"""How politely a crawl asks, seen by the servers, and how little of its time it gives away for that.

    python benchmarks politeness audit [--kills 3] [--after 25] [--size 1] [--set AOPIC_FAST_DOWNLOADS=True]
    python benchmarks politeness backlog [--seconds 30]

``audit`` crawls 300 misbehaving hosts at addresses of the loopback network (127.0.0.0/8, all at one port; Linux has
them without being told), 50 of them at one address, kills the crawler with SIGKILL on the way, and judges the log of
the servers alone: requests at once and requests too early, by host and by address, and what robots.txt forbids. The
exit status is 1 if there is any, or if the job does not pass ``scrapy aopic check``. One host in five has a
Crawl-delay, two in ten a robots.txt that is missing or cannot be had at first; a host takes from 5 ms to 4 s for a page.
A page in ten is a fault: connections reset before and closed within an answer, time-outs, status 5xx, 429 and 503 with
a Retry-After in seconds or as a date, redirects within the host, to others and to forbidden pages.

``backlog`` crawls 20 hosts while this machine is quiet, while other processes take its CPU, and with a spider whose
callbacks block for 50 ms, and compares the gaps that the servers saw with the factor times the servers' own times;
then it crawls 20 hosts that answer in a millisecond, with a factor of 10 and without gaps: both are limited by the CPU
only, so they fetch as many pages. The exit status is 1 if a gap is too short, or if gaps are more than 10 % longer in
the middle, or if more than a tenth of the pages is lost.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from email.utils import formatdate
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IResolverSimple
from zope.interface import implementer

from scrapy_aopic.core.politeness import Gap, TransferResult
from scrapy_aopic.downloadermiddlewares import robots
from scrapy_aopic.session.session import Session

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
        return (
            self._sites[entry.host].crawl_delay
            if entry.end >= self._known_at.get(entry.host, math.inf)
            else 0
        )

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


def run_audit(options: argparse.Namespace, folder: Path) -> int:
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
        **dict(pair.split("=", 1) for pair in options.set),
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
    check = subprocess.run(
        [sys.executable, "-m", "scrapy", "aopic", "check", str(job)],
        capture_output=True,
        text=True,
        check=False,
    )
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

    def __init__(self, seeds: str, stats: str, block: str = "0", **arguments: Any) -> None:
        super().__init__(**arguments)
        self._block = float(block)
        self._measured: list[tuple[str, float]] = []
        self.start_urls = Path(seeds).read_text().split()
        self._stats = Path(stats)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Follow:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.listen, signal=signals.spider_opened)
        return spider

    def listen(self) -> None:
        """Note how long each transfer took, as far as the crawler knows."""
        session = Session.of(self.crawler)
        if session is None:  # Scrapy's own scheduler
            return
        transferred = session.pacer.transferred

        def note(key: str, result: TransferResult, ago: float) -> Gap:
            self._measured.append((key, result.seconds))
            return transferred(key, result, ago)

        vars(session.pacer)["transferred"] = note

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        time.sleep(self._block)  # noqa: ASYNC251 - a callback that blocks
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
        if response.url.endswith("/p/7"):
            assert self.crawler.engine is not None
            await self.crawler.engine.download_async(Request(response.urljoin("/p/inline")))

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        stats = {**self.crawler.stats.get_stats(), "finish_reason": reason, "measured": self._measured}
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


def start(
    settings: dict[str, Any], folder: Path, seeds: Path, proxy: str = "", **arguments: str
) -> subprocess.Popen[bytes]:
    """Start a crawl in a process of its own."""
    command = [sys.executable, "-m", "scrapy", "runspider", __file__, "-a", f"seeds={seeds}"]
    command += ["-a", f"stats={folder / 'stats.json'}", "-s", "LOG_LEVEL=ERROR"]
    command += ["-s", f"LOG_FILE={folder / 'crawl.log'}"]
    for name, value in settings.items():
        command += ["-s", f"{name}={value}"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    if proxy:
        environment["http_proxy"] = proxy
    return subprocess.Popen(command, cwd=folder, env=environment)


# -- backlog

N_PLAIN = 20
OWN_TIME = 0.3
FOLLOWED = 60
BLOCKED = 0.05


def run_backlog(options: argparse.Namespace, folder: Path) -> int:
    print("| 20 hosts | pages | transfers as measured | gaps, middle | least | loop late, mean |")
    print("|---|---|---|---|---|---|", flush=True)
    is_bad = False
    for what, n_hogs, block in (
        ("quiet", 0, 0.0),
        ("two processes that take the CPU", 2, 0.0),
        ("callbacks that block for 50 ms", 0, BLOCKED),
    ):
        with hogs(n_hogs):
            ((log, stats),) = plain([5], OWN_TIME, options.seconds, folder, block)
        is_bad |= _compare(f"take 0.3 s, {what}", 5, log, stats) > 1.1
    both = plain([0, 10], 0.001, options.seconds, folder)
    for factor, (log, stats) in zip((0, 10), both, strict=True):
        is_bad |= _compare(f"answer in 1 ms, factor {factor}", factor, log, stats) < 0
    free, gapped = (len(log) for log, _ in both)
    return 1 if is_bad or gapped < 0.9 * free else 0


def _compare(what: str, factor: float, log: list[Entry], stats: dict[str, Any]) -> float:
    """Print what servers and crawler measured; returns the larger of the middles, infinite for gaps too short.

    A request that is due still waits for the loop, which is no part of the gap that the crawler wants.
    """
    cells, result, late = "| | ", 0.0, stats["aopic/loop/late_seconds/mean"]
    if factor:
        measured = sorted(seconds / true for seconds, true in transfers(log, stats["measured"]))
        gaps = sorted(gap / (factor * true) for true, gap in rests(log))
        middles = measured[len(measured) // 2], gaps[len(gaps) // 2]
        cells = f"{middles[0]:.3f} | {middles[1]:.3f} | {gaps[0]:.3f}"
        wanted = sorted((gap - late) / (factor * true) for true, gap in rests(log))
        result = max(middles[0], wanted[len(wanted) // 2]) if gaps[0] >= 1 else math.inf
    n_pages = sum(entry.status > 0 for entry in log)
    print(f"| {what} | {n_pages:,} | {cells} | {late:.3f} s |", flush=True)
    return result


def transfers(log: list[Entry], measured: list[tuple[str, float]]) -> Iterator[tuple[float, float]]:
    """Seconds of each transfer, as the crawler measured them and as the server did."""
    own: dict[str, list[float]] = {}
    for entry in sorted(log, key=lambda entry: entry.start):
        own.setdefault(entry.host, []).append(entry.end - entry.start)
    for host, seconds in measured:
        if own.get(host):
            yield seconds, own[host].pop(0)


def rests(log: list[Entry]) -> Iterator[tuple[float, float]]:
    """The server's own time for each request but the last to a host, and the gap after it."""
    last: dict[str, Entry] = {}
    for entry in sorted(log, key=lambda entry: entry.start):
        before = last.get(entry.host)
        if before is not None:
            yield before.end - before.start, entry.start - before.end
        last[entry.host] = entry


def plain(
    factors: Sequence[float], own: float, seconds: float, folder: Path, block: float = 0.0
) -> list[tuple[list[Entry], dict[str, Any]]]:
    """What servers of their own saw of a crawl with each factor, all at the same time, and its stats."""

    def reply(exchange: Exchange) -> Answer:
        number = int(exchange.target[1:] or 1)
        links = [f"/{FOLLOWED * number + n}" for n in range(FOLLOWED)]
        body = page(f"{exchange.host} {number}", links)
        return Answer(headers={"Content-Type": "text/html"}, body=body, delay=own)

    folders = [folder / f"factor{factor:g}" for factor in factors]
    crawls, logs = [], []
    with ExitStack() as stack:
        for factor, each in zip(factors, folders, strict=True):
            each.mkdir(exist_ok=True)
            settings = {
                "ADDONS": '{"scrapy_aopic.Addon": 500}',
                "ROBOTSTXT_OBEY": False,
                "AOPIC_POLITENESS_FACTOR": factor,
                "AOPIC_CONTENT_SEEN": "off",
                "AOPIC_DOMAIN_BUDGET": 0,
                "COOKIES_ENABLED": False,
                "CLOSESPIDER_TIMEOUT": seconds,
            }
            seeds = each / "seeds.txt"
            seeds.write_text("".join(f"http://h{n}.test/1\n" for n in range(N_PLAIN)))
            running = stack.enter_context(Server(reply).run_in_thread())
            crawls.append(start(settings, each, seeds, running.url, block=str(block)))
            logs.append(running.log)
        for crawl in crawls:
            crawl.wait()
    return [
        (log, json.loads((each / "stats.json").read_text())) for log, each in zip(logs, folders, strict=True)
    ]


@contextmanager
def hogs(n: int) -> Iterator[None]:
    """Processes that take the CPU meanwhile."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where to leave job and logs, new")
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("audit")
    part.set_defaults(run=run_audit)
    part.add_argument("--kills", type=int, default=3)
    part.add_argument("--after", type=float, default=25, help="seconds of each run before it is killed")
    part.add_argument(
        "--size", type=float, default=1, help="pages of each host, in parts of the usual number"
    )
    part.add_argument("--set", action="append", default=[], help="more settings, NAME=VALUE")
    part = parts.add_parser("backlog")
    part.set_defaults(run=run_backlog)
    part.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result: int = options.run(options, folder.resolve())
    return result


if __name__ == "__main__":
    sys.exit(main())
