"""What it costs to share a crawl: workers of a job in shards beside one process with RocksDB, one with a job in one piece in
Redis, Scrapy's own scheduler in memory, and scrapy-redis.

    python benchmarks workers [--shards 16] [--workers 1 2 4] [--hosts 120] [--pages 14] [--links 20] [--durability 500]

Each crawl fetches the same made-up web on loopback, whose server is in this process. CPU time of the workers and of the
Redis or Valkey server is read from ``/proc`` (Linux) when a tenth of the pages was fetched, and when nine tenths were, so
that starts and ends do not count. Pages a second are by the clock of the wall, of as many cores as there are for all
of this together. What the server was asked for in between is from its ``INFO commandstats``: commands that read rows
(``HMGET``, of which a page may send several at once), and transactions; the longest of these is what a reader had to wait
(the 99.9th percentile of ``INFO latencystats``). *Waits* are those of the workers' event loops for the server, a page and
over the whole crawl, and what all but one in a thousand of them took at most. *Requests to commit* are those of the threads that
write, each of which is a round trip; transactions are those of locks and looks at the other workers, too. ``--latency`` adds so much to each reply of the server.
*Worst* is the longest transaction of all, to the millisecond (``LATENCY LATEST``). ``redis-links`` is a crawl with the add-on whose spider yields ``Links``, as this
package would have it; all others have a spider with Scrapy's link extractor and a request for each link. The last two have no gaps between requests here, and make 8 at once to a host.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import redis

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

from demo_web.server import Server
from linked_hosts import Size, cpu, linked_hosts
from support.redis_server import Server as Redis
from support.store_waits import PATTERN

from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.view.auditing import audit_job

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SPIDER = TESTS / "support" / "follow_spider.py"
LINKS_SPIDER = TESTS / "support" / "links_spider.py"


class Cost(NamedTuple):
    """What a page cost.

    Attributes:
        workers: CPU of the workers, milliseconds.
        server: CPU of the server, milliseconds.
        rate: Pages a second, by the clock of the wall.
        reads: Commands that read rows.
        writes: Transactions.
        longest: Milliseconds that all but one in a thousand of these took the server at most.
        worst: Milliseconds that the longest of these took it.
        waits: Times that an event loop waited for the server.
        stay: Milliseconds that all but one in a thousand of these took at most.
        requests: Requests of the threads that commit.
    """

    workers: float
    server: float
    rate: float
    reads: float
    writes: float
    longest: float
    worst: int
    waits: float
    stay: float
    requests: float


def settings_of(kind: str, shards: int, durability: int, folder: Path, url: str) -> dict[str, object]:
    """Settings of the crawl called *kind*."""
    common = {
        "CONCURRENT_REQUESTS": 64,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "REDIS_URL": url,
    }
    if kind == "scrapy-redis":
        return {
            **common,
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "SCHEDULER_PERSIST": True,
        }
    if kind == "scrapy":
        return common
    addon = {
        "ADDONS": json.dumps({"scrapy_aopic.Addon": 500}),
        "ROBOTSTXT_OBEY": False,
        "LOGSTATS_INTERVAL": 0,
    }
    store = (
        {"JOBDIR": folder / "job"} if kind == "rocksdb" else {"AOPIC_STORE": "redis", "AOPIC_SHARDS": shards}
    )
    return {
        **common,
        **store,
        **(addon if kind == "redis-links" else {}),
        **({"EXTENSIONS": json.dumps({"support.store_waits.StoreWaits": 0})} if kind != "rocksdb" else {}),
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_DURABILITY": durability,
        "AOPIC_MIN_GAP": 0.05,
        "AOPIC_POLITENESS_FACTOR": 1,
    }


def asked(url: str) -> tuple[int, int]:
    """Commands that read rows, and transactions, that the server has carried out so far."""
    with redis.Redis.from_url(url) as link:
        stats = link.info("commandstats")
    return tuple(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("hmget", "exec"))


def longest(url: str) -> float:
    """Milliseconds that all but one in a thousand transactions took at most."""
    with redis.Redis.from_url(url) as link:
        return (
            float(link.info("latencystats").get("latency_percentiles_usec_exec", {}).get("p99.9", 0)) / 1000
        )


def worst(url: str) -> int:
    """Milliseconds that the longest command took; 0 if that is less than one."""
    with redis.Redis.from_url(url) as link:
        events = link.execute_command("LATENCY LATEST")
    return max((int(event[3]) for event in events if event[0] == b"command"), default=0)


def delay_replies(port: int, seconds: float, said: Connection) -> None:
    """Forward connections to *port*, and hold each reply back for some *seconds*; says by *said* where it listens. Never ends."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        loop = asyncio.get_running_loop()

        async def replies() -> None:
            while data := await server_reader.read(1 << 18):
                loop.call_later(seconds, writer.write, data)
            loop.call_later(seconds, writer.close)

        replying = loop.create_task(replies())
        try:
            while data := await reader.read(1 << 18):
                server_writer.write(data)
        finally:
            server_writer.close()
            replying.cancel()  # who has left reads no more

    async def serve() -> None:
        server = await asyncio.start_server(forward, "127.0.0.1", 0)
        said.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def delayed(stack: ExitStack, server: Redis, seconds: float) -> str:
    """URL of *server* with so much between it and whoever uses the URL."""
    if not seconds:
        return server.url
    hears, says = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=delay_replies, args=(server.port, seconds, says), daemon=True
    )
    process.start()
    stack.callback(process.kill)
    return f"redis://127.0.0.1:{hears.recv()}/0"


def crawl(
    kind: str, size: Size, shards: int, n_workers: int, *, durability: int, latency: float = 0.0
) -> Cost:
    """What a page costs in a crawl of that *kind*."""

    total = size.total
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(Redis(folder / "server", latency_monitor_threshold="1"))
        url = delayed(stack, server, latency)
        web = stack.enter_context(Server(linked_hosts(size)).run_in_thread())
        options = [
            part
            for name, value in settings_of(kind, shards, durability, folder, url).items()
            for part in ("-s", f"{name}={value}")
        ]
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        spider = LINKS_SPIDER if kind == "redis-links" else SPIDER
        command = [sys.executable, "-m", "scrapy", "runspider", str(spider), *options]
        workers = [subprocess.Popen(command, env=environment, cwd=folder) for _ in range(n_workers)]
        for worker in workers:
            stack.callback(worker.kill)

        def wait_for(part: float) -> tuple[float, float, int, float, tuple[int, int]]:
            while len(web.log) < part * total and any(worker.poll() is None for worker in workers):
                time.sleep(0.01)
            return (
                sum(cpu(worker.pid) for worker in workers),
                cpu(server.process_id),
                len(web.log),
                time.monotonic(),
                asked(server.url),
            )

        begin, end = wait_for(0.1), wait_for(0.9)
        longest_ms, worst_ms = longest(server.url), worst(server.url)
        if kind == "scrapy-redis":  # which stays idle
            while len(web.log) < total:
                time.sleep(0.01)
            for worker in workers:
                worker.terminate()
        for worker in workers:
            if worker.wait(300):
                sys.exit("A worker has failed.")
        address = Address("aopic:follow", server.url)
        if ServerPlace(address).read_sharding() is not None and (
            violations := audit_job(ServerPlace(address)).violations
        ):
            sys.exit("\n".join(violations))
        fetched = {(entry.host, entry.target) for entry in web.log}
        if len(fetched) != total or (len(web.log) != total and "scrapy" not in kind):
            sys.exit(f"{len(web.log):,} requests for {len(fetched):,} of {total:,} pages.")
        noted = [json.loads(file.read_text()) for file in folder.glob(PATTERN)]
        waits = sorted(1000 * each for found in noted for each in found["waits"])
    pages = end[2] - begin[2]
    return Cost(
        (end[0] - begin[0]) / pages * 1000,
        (end[1] - begin[1]) / pages * 1000,
        pages / (end[3] - begin[3]),
        (end[4][0] - begin[4][0]) / pages,
        (end[4][1] - begin[4][1]) / pages,
        longest_ms,
        worst_ms,
        len(waits) / total,
        waits[int(len(waits) * 0.999)] if waits else 0.0,
        sum(found["writes"] for found in noted) / total,
    )


def main() -> None:
    """Crawl, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--hosts", type=int, default=120)
    parser.add_argument("--pages", type=int, default=14, help="of each host")
    parser.add_argument("--links", type=int, default=20, help="of each page, and two more (%(default)s)")
    parser.add_argument("--durability", type=int, default=500, help="AOPIC_DURABILITY (%(default)s)")
    parser.add_argument("--latency", type=float, default=0, help="milliseconds between workers and server")
    parser.add_argument("--rounds", type=int, default=1, help="of all crawls, by turns (%(default)s)")
    options = parser.parse_args()
    sys.stdout.write(
        "| crawl | shards | workers | workers, ms CPU a page | ratio | server, ms CPU a page | pages a CPU second of both "
        "| reads a page | transactions a page | longest, ms | worst, ms | waits a page | longest, ms | requests to commit, a page "
        "| pages/s |\n"
    )
    sys.stdout.write("|---|" + "---:|" * 14 + "\n")
    first = 0.0
    cases = [
        ("rocksdb", 1, 1),
        ("redis", 1, 1),
        *((kind, options.shards, n) for kind in ("redis", "redis-links") for n in options.workers),
    ]
    if importlib.util.find_spec("scrapy_redis"):
        cases.append(("scrapy-redis", 1, 1))
    cases.append(("scrapy", 1, 1))
    for kind, shards, n_workers in cases * options.rounds:
        size = Size(options.hosts, options.pages, options.links)
        cost = crawl(
            kind, size, shards, n_workers, durability=options.durability, latency=options.latency / 1000
        )
        if kind == "rocksdb":
            first = cost.workers
        sys.stdout.write(
            f"| {kind} | {shards} | {n_workers} | {cost.workers:.2f} | {cost.workers / first:.2f} | {cost.server:.3f} | "
            f"{1000 / (cost.workers + cost.server):.0f} | {cost.reads:.2f} | {cost.writes:.3f} | {cost.longest:.1f} | "
            f"{cost.worst} | {cost.waits:.2f} | {cost.stay:.1f} | {cost.requests:.3f} | {cost.rate:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
