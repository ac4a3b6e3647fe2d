"""Crawl hosts of which many have dead names, slow names or nothing that listens, beside Scrapy with as many connections.

    python benchmarks names [hub] [mixed] [dead] [--names 5000] [--seconds 30]

The system's resolver is replaced by one that sleeps, and all hosts are one server on the loopback network.

* ``hub``: a page links to 150 names whose look-up takes 3 s and fails, and to 15 hosts of 10 pages;
* ``mixed``: seeds, a third of which have dead names (2 s), a third slow ones (1 s), and a third quick ones;
* ``dead``: seeds at closed ports but for three hosts that have pages without end, somewhere among them.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import options
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))
from demo_web.server import Answer, Exchange, Server

WAYS: dict[str, dict[str, Any]] = {
    "Scrapy": {"ROBOTSTXT_OBEY": True, "CONCURRENT_REQUESTS": 100, "DOWNLOAD_TIMEOUT": 30},
    "scrapy-aopic": {"ADDONS": {"scrapy_aopic.Addon": 500}, "AOPIC_ALLOW_NETWORKS": "127.0.0.0/8"},
}
DEAD, SLOW = {"hub": 3.0, "mixed": 2.0, "dead": 0.0}, 1.0


def answer(exchange: Exchange) -> Answer:
    """The page of any host."""
    host, target = exchange.host, exchange.target
    if target == "/robots.txt":
        return Answer(404)
    number, links = int(target.strip("/") or 0), []
    if host == "hub.test":
        links = [f"http://dead{n}.test" for n in range(150)] + [f"http://good{n}.test" for n in range(15)]
        random.Random(1).shuffle(links)
    elif (host.startswith("good") and number < 9) or host.startswith("live"):
        links = [f"/{number + 1}"]
    body = "".join(f'<a href="{link}">a</a>' for link in links).encode()
    return Answer(headers={"Content-Type": "text/html"}, body=body)


def seeds(part: str, n: int) -> list[str]:
    if part == "hub":
        return ["hub"]
    if part == "mixed":
        return [f"{('dead', 'slow', 'quick')[number % 3]}{number}" for number in range(n)]
    hosts = [*(f"closed{number}" for number in range(n - 3)), *(f"live{number}" for number in range(3))]
    return random.Random(1).sample(hosts, n)


class Names:
    """The system's resolver."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.asked: Counter[str] = Counter()

    def gethostbyname(self, name: str) -> str:
        self.asked[name] += 1
        if name.startswith("dead"):
            time.sleep(DEAD[self._part])
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        if name.startswith("slow"):
            time.sleep(SLOW)
        return "127.0.0.1"

    def getaddrinfo(self, name: str, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.gethostbyname(name), 0))]


class Follow(Spider):
    """Follows every link, and notes when each page came."""

    name = "follow"
    port = 0
    began = 0.0

    def __init__(self, hosts: list[str], port: int) -> None:
        super().__init__()
        self.pages: list[float] = []
        self.port, self.began = port, time.monotonic()
        self.start_urls = [self.of(f"http://{host}.test") for host in hosts]

    def of(self, link: str) -> str:
        """The URL of *link* at the server, or at a port that is closed."""
        return f"{link}:{1 if 'closed' in link else self.port}/" if link.startswith("http") else link

    def parse(self, response: Response) -> Iterator[Request]:
        if "hub" in response.url:
            self.began = time.monotonic()
        else:
            self.pages.append(time.monotonic() - self.began)
        for link in response.css("a::attr(href)").getall():
            yield response.follow(self.of(link))


def crawl(part: str, way: str, n: int, port: int, seconds: float) -> None:
    """Crawl in this process, and print what came of it."""
    names = Names(part)
    socket.gethostbyname, socket.getaddrinfo = names.gethostbyname, names.getaddrinfo  # type: ignore[assignment]
    process = AsyncCrawlerProcess({**WAYS[way], "CLOSESPIDER_TIMEOUT": seconds, "LOG_ENABLED": False})
    crawler = process.create_crawler(Follow)
    process.crawl(crawler, hosts=seeds(part, n), port=port)
    cpu, pages, found = time.process_time(), [], {}
    began = time.monotonic()
    Follow.closed = lambda spider, reason: pages.extend(spider.pages)  # type: ignore[attr-defined]
    process.start()
    dead = [count for name, count in names.asked.items() if name.startswith("dead")]
    found = {"pages": pages, "cpu": time.process_time() - cpu, "ended": time.monotonic() - began}
    print(json.dumps({**found, "most": max(dead, default=0)}), flush=True)
    os._exit(0)


def measure(part: str, way: str, n: int, seconds: float) -> dict[str, Any]:
    with Server(answer).run_in_thread() as running:
        line = [sys.executable, __file__, "--crawl", part, way, str(n), str(running.port), str(seconds)]
        environment = {
            name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
        }
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows(part: str, found: dict[str, Any], seconds: float) -> dict[str, str]:
    pages = sorted(found["pages"])
    if part == "hub":
        half, last = (pages[at] if len(pages) > at else None for at in (74, 149))
        shown = {
            "s from its page to half of the 150 good ones": half,
            "s to the last": last,
            "look-ups of a dead name, most": found["most"],
        }
        return {f"hub: {what}": "none" if value is None else f"{value:.3g}" for what, value in shown.items()}
    return {
        f"{part}: pages after {until:g} s": f"{sum(each <= until for each in pages):,}"
        for until in (seconds / 3, seconds)
    } | {f"{part}: s until the end, of {seconds:g}": f"{found['ended']:.3g}"}


def main() -> int:
    if sys.argv[1:2] == ["--crawl"]:
        part, way, n, port, seconds = sys.argv[2:]
        crawl(part, way, int(n), int(port), float(seconds))
    args = options.read(__doc__, "parts*", names=5000, seconds=30.0)
    print("| | " + " | ".join(WAYS) + " |\n|---|" + "---:|" * len(WAYS))
    for part in args.parts or DEAD:
        n = 2 * args.names if part == "dead" else args.names
        seconds = max(args.seconds, 60) if part == "hub" and args.seconds >= 30 else args.seconds
        by_way = [rows(part, measure(part, way, n, seconds), seconds) for way in WAYS]
        for what in by_way[0]:
            print(f"| {what} | " + " | ".join(each[what] for each in by_way) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
