"""What it costs to share a crawl over workers, and the constants of the capacity plan (docs/capacity.md).

    python benchmarks workers [--kinds rocksdb redis disks ...] [--workers 1 2] [--shards 16] [--links 20] [--rounds 1]
    python benchmarks workers --kinds redis disks --workers 2 --topics graded contextual

Each crawl fetches the same made-up web on loopback, whose server is in this process, by so many processes: ``rocksdb`` one with
a job in a folder, ``links`` the same with the add-on and a spider that yields ``Links``, ``folder-links`` workers that share
its folder, with the command that starts them, in ``--folder-shards`` or as many as the package chooses, ``links-apart``
processes that share nothing, of which each crawls all of it into a job of its own: what a second process costs the first one on
the same cores, ``redis-one`` one with a job in one piece on a Redis or Valkey server, ``redis`` with its shards there,
``redis-links`` with ``Links``, ``disks`` with shards in a job folder of each worker, ``scrapy-redis``, and ``scrapy`` in
memory; all others have Scrapy's link extractor and a request for each link. The last two have no gaps between requests.

``--near`` is the part of the drawn links that stay on their host (of those of webkb-1997, .82). From 10 to 90 % of the pages, so
that starts and ends do not count: CPU time of workers and server (``/proc``, Linux), commands and bytes by the server's own
count, pages a second by the clock; the most memory of a worker at the end; and the seconds from the command to the first request.
What a server that has nothing to do takes in the same time was measured for two seconds before. At the end all shards are
audited, and each page must have been fetched once. With ``--topics`` the links of pages stand in text, some 400 words of a page,
and they are crawled without a topic and by each of the strategies that are named; ``graded`` stands for a topic in the default order.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import options
import redis
from options import Among

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

from demo_web.server import Answer, Exchange, Server
from support.redis_server import Server as Redis
from support.small_web import html

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address, open_snapshot
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.web.suffixes import registered_domain

KINDS = (
    "rocksdb", "links", "folder-links", "links-apart", "redis-one", "redis", "redis-links", "disks", "scrapy-redis", "scrapy",
)  # fmt: skip
ALONE = {"rocksdb", "links", "redis-one", "scrapy-redis", "scrapy"}
"""Kinds that are crawled by one process."""

TOPIC = {"AOPIC_TOPIC": '{"keywords": ["w7", "w8", "w9"]}'}
WORDS = 2_000
"""Words that texts are made of; three of them are the topic's."""

IDLE = 2.0
TICK = os.sysconf("SC_CLK_TCK")


class Reading(NamedTuple):
    """What was counted by a moment: CPU seconds of workers and server, its commands and bytes, pages, and the time."""

    workers: float
    server: float
    commands: int
    bytes: int
    pages: int
    at: float


def text_page(links: list[str], rng: random.Random) -> bytes:
    """A page with *links*, each of which stands in a text of its own."""

    def text(n: int) -> str:
        return " ".join([f"w{rng.randrange(WORDS)}" for _ in range(n)])

    paragraphs = [f"<p>{text(8)} <a href='{link}'>{text(2)}</a> {text(8)}</p>" for link in links]
    return f"<html><title>{text(3)}</title><h1>{text(3)}</h1>{''.join(paragraphs)}</html>".encode()


def answer(options: Any, write: Callable[[list[str], random.Random], bytes], exchange: Exchange) -> Answer:
    """A page of the web, with links to pages drawn at random; all pages can be reached from the first."""
    host, page = int(exchange.host[1:-5]), int(exchange.target[1:])
    rng = random.Random(f"{host}/{page}")
    places = [
        (host if rng.random() < options.near else rng.randrange(options.hosts), rng.randrange(options.pages))
        for _ in range(options.links)
    ]
    places += [((host + 1) % options.hosts, page), (host, (page + 1) % options.pages)]
    links = [f"http://h{to}.test/{number}" for to, number in places]
    return Answer(headers={"Content-Type": "text/html"}, body=write(links, rng))


def settings_of(
    kind: str, topic: str, url: str, job: Path, *, n_workers: int, options: Any
) -> dict[str, object]:
    """Settings of a worker whose folder is *job*."""
    common: dict[str, object] = {
        "CONCURRENT_REQUESTS": 64,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "REDIS_URL": url,
    }
    if kind == "scrapy":
        return common
    if kind == "scrapy-redis":
        own = {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "SCHEDULER_PERSIST": True,
        }
        return {**common, **own}
    places: dict[str, dict[str, object]] = {
        "rocksdb": {"JOBDIR": job},
        "links": {"JOBDIR": job},
        "links-apart": {"JOBDIR": job},
        "folder-links": {"JOBDIR": job, "AOPIC_WORKERS": n_workers, "AOPIC_SHARDS": options.folder_shards},
        "disks": {"JOBDIR": job, "AOPIC_SHARDS": f"{n_workers}x{options.shards // n_workers}"},
        "redis-one": {"AOPIC_STORE": "redis", "AOPIC_SHARDS": 1},
    }
    place = places.get(kind, {"AOPIC_STORE": "redis", "AOPIC_SHARDS": options.shards})
    if "links" in kind:
        place |= {"ADDONS": json.dumps({"scrapy_aopic.Addon": 500}), "ROBOTSTXT_OBEY": False}
    if topic != "none":
        place |= TOPIC
    if topic not in ("none", "graded"):
        place |= {"AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": topic}
    return {
        **common,
        **place,
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_DURABILITY": options.durability,
        "AOPIC_MIN_GAP": 0.05,
        "AOPIC_POLITENESS_FACTOR": 1,
        "LOGSTATS_INTERVAL": 0,
    }


def stat(process: int) -> list[str]:
    """What ``/proc`` says of a process, from its state on."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def family(process: int) -> list[int]:
    """*process* and those that it has started, and those that these have."""
    found = [process]
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if int(stat(int(path.name))[1]) == process:
                found += family(int(path.name))
    return found


def cpu(process: int) -> float:
    """CPU seconds of a process so far, all threads."""
    fields = stat(process)
    return (int(fields[11]) + int(fields[12])) / TICK


def resident(process: int) -> int:
    """Bytes of a process in memory at the most so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def crawl(kind: str, n_workers: int, topic: str, options: Any) -> list[float]:
    """Of a page: ms of CPU of workers, us of the server and if idle, commands, kB; MB of a worker, seconds to the first request, and pages a second."""
    n_pages = options.hosts * options.pages
    total = n_pages * (n_workers if kind == "links-apart" else 1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(
            Redis(folder / "server", hash_max_listpack_entries="256", hash_max_listpack_value="1024")
        )
        web = stack.enter_context(
            Server(
                partial(answer, options, text_page if options.topics else lambda links, _: html(links))
            ).run_in_thread()
        )
        client = stack.enter_context(redis.Redis.from_url(server.url))
        idle = cpu(server.process_id)
        time.sleep(IDLE)
        idle = (cpu(server.process_id) - idle) / IDLE
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        spider = TESTS / "support" / ("links_spider.py" if "links" in kind else "follow_spider.py")
        jobs = [folder / f"job-{number}" for number in range(1 if kind == "folder-links" else n_workers)]
        workers, began = [], time.monotonic()
        for job in jobs:
            given = settings_of(kind, topic, server.url, job, n_workers=n_workers, options=options)
            parts = [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
            command = [sys.executable, "-m", "scrapy", "runspider", str(spider), *parts]
            workers.append(subprocess.Popen(command, env=environment, cwd=folder))
            stack.callback(workers[-1].kill)

        def read(part: float) -> Reading:
            while len(web.log) < part * total and any(worker.poll() is None for worker in workers):
                time.sleep(0.01)
            stats = client.info("stats")
            n_bytes = stats["total_net_input_bytes"] + stats["total_net_output_bytes"]
            of_workers = sum(cpu(each) for worker in workers for each in family(worker.pid))
            commands = stats["total_commands_processed"]
            return Reading(
                of_workers, cpu(server.process_id), commands, n_bytes, len(web.log), time.monotonic()
            )

        while not web.log and workers[0].poll() is None:
            time.sleep(0.01)
        first = time.monotonic() - began
        begin, end = read(0.1), read(0.9)
        largest = max(resident(each) for worker in workers for each in family(worker.pid))
        if kind == "scrapy-redis":  # which stays idle
            read(1.0)
            for worker in workers:
                worker.terminate()
        for worker in workers:
            if worker.wait(300):
                sys.exit("A worker has failed.")
        check(kind, jobs, server.url)
        fetched = {(entry.host, entry.target) for entry in web.log}
        if len(fetched) != n_pages or (len(web.log) != total and "scrapy" not in kind):
            sys.exit(f"{len(web.log):,} requests for {len(fetched):,} of {n_pages:,} pages.")
    took, used, commands, n_bytes, pages, seconds = (
        after - before for before, after in zip(begin, end, strict=True)
    )
    of_page = [took * 1e3, used * 1e6, idle * seconds * 1e6, commands, n_bytes / 1e3]
    return [*(each / pages for each in of_page), largest / 1e6, first, pages / seconds]


def check(kind: str, jobs: list[Path], url: str) -> None:
    """Exit unless every invariant holds, in each shard and between them."""
    violations: list[str] = []
    if kind in ("redis", "redis-links"):
        violations = list(audit_job(ServerPlace(Address("aopic:follow", url))).violations)
    if kind in ("folder-links", "disks"):
        with ExitStack() as opened:
            places = {
                number: job / "aopic-shards" / str(number)
                for job in jobs
                for number in FolderPlace(job).shards_here()
            }
            stores = [open_snapshot(places[number]) for number in sorted(places)]
            for store in stores:
                opened.callback(store.close)
            violations = [violation for store in stores for violation in audit(store).violations]
            violations += audit_shards(stores, registered_domain).violations
    if violations:
        sys.exit("\n".join(violations))


def main() -> None:
    """Crawl, and print a table."""
    args = options.read(
        __doc__, kinds=Among(list(KINDS), KINDS), shards=16, folder_shards=1, workers=[1, 2], hosts=120, pages=14,
        links=20, near=0.0, durability=500, topics=[], rounds=1,
    )  # fmt: skip
    kinds = [
        kind for kind in args.kinds if kind != "scrapy-redis" or importlib.util.find_spec("scrapy_redis")
    ]
    cases = [(kind, n) for kind in kinds for n in ([1] if kind in ALONE else args.workers)]
    print("| crawl | workers | workers, ms CPU a page | beside the first | server, us CPU a page | if idle | commands a page "
          "| kB to and from the server a page | worker, MB | s to the first request | pages/s |")  # fmt: skip
    print("|---|" + "---:|" * 10, flush=True)
    first = 0.0
    for (kind, n_workers), topic in [
        (case, topic) for case in cases for topic in ("none", *args.topics)
    ] * args.rounds:
        took, *others = crawl(kind, n_workers, topic, args)
        first = first or took
        name = f"{kind}, {topic}" if args.topics else kind
        cells = " | ".join(f"{each:.3g}" for each in others)
        print(f"| {name} | {n_workers} | {took:.2f} | {took / first:.2f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
