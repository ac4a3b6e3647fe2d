"""What it costs to have shards on the disks of workers: beside one process with RocksDB and a job in one piece.

    python benchmarks disks [--shards 8] [--workers 1 2] [--hosts 240] [--pages 14] [--links 20] [--durability 500] [--rounds 1]

Each crawl fetches the same made-up web on loopback, whose server is in this process, with as many processes as workers. CPU
time of the workers and of the Redis or Valkey server is read from ``/proc`` (Linux) when a tenth of the pages was
fetched, and when nine tenths were, so that starts and ends do not count. What an idle server takes in the same time is said
beside it: it was measured for five seconds before the workers came. Commands and bytes are by the server's own count. At the
end all shards are audited, and each page must have been fetched once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import redis

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

from demo_web.server import Server
from linked_hosts import Size, cpu, linked_hosts
from support.redis_server import Server as Redis

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.place.paths import shard_folder, shards_on_disk, store_folder
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.web.suffixes import registered_domain

SPIDER = TESTS / "support" / "follow_spider.py"
IDLE = 5.0
"""Seconds."""


class Cost(NamedTuple):
    """What a page cost, and the server's memory.

    Attributes:
        workers: CPU milliseconds.
        server: The same.
        idle: What an idle server would have taken of that.
        commands: Of the server.
        bytes: To and from the server.
        rate: Pages a second.
        memory: Bytes.
    """

    workers: float
    server: float
    idle: float
    commands: float
    bytes: float
    rate: float
    memory: int


class Reading(NamedTuple):
    """What was counted by a moment: CPU seconds, commands, bytes, pages, and the time."""

    workers: float
    server: float
    commands: int
    bytes: int
    pages: int
    at: float


def crawl(options: argparse.Namespace, n_workers: int) -> Cost:
    """The cost with so many workers; 0 is one process with a job in one piece."""
    size = Size(options.hosts, options.pages, options.links)
    total = size.total
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(Redis(folder / "server"))
        web = stack.enter_context(Server(linked_hosts(size)).run_in_thread())
        settings: dict[str, object] = {
            "SCHEDULER": "scrapy_aopic.Scheduler",
            "AOPIC_DURABILITY": options.durability,
            "AOPIC_MIN_GAP": 0.05,
            "AOPIC_POLITENESS_FACTOR": 1,
            "CONCURRENT_REQUESTS": 64,
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
        }
        if n_workers:
            settings |= {"REDIS_URL": server.url, "AOPIC_SHARDS": options.shards, "AOPIC_DISKS": n_workers}
        client = stack.enter_context(redis.Redis.from_url(server.url))

        def server_cpu() -> float:
            used = client.info("cpu")
            return float(used["used_cpu_sys"] + used["used_cpu_user"])

        idle = server_cpu()
        time.sleep(IDLE)
        idle = (server_cpu() - idle) / IDLE
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        jobs = [folder / f"job-{number}" for number in range(max(n_workers, 1))]
        workers = []
        for job in jobs:
            said = [
                part
                for name, value in {**settings, "JOBDIR": job}.items()
                for part in ("-s", f"{name}={value}")
            ]
            line = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *said]
            workers.append(subprocess.Popen(line, env=environment, cwd=folder))
            stack.callback(workers[-1].kill)

        def wait_for(part: float) -> Reading:
            while len(web.log) < part * total and any(worker.poll() is None for worker in workers):
                time.sleep(0.01)
            of_workers = sum(cpu(worker.pid) for worker in workers)
            stats = client.info("stats")
            n_bytes = stats["total_net_input_bytes"] + stats["total_net_output_bytes"]
            n_commands = stats["total_commands_processed"]
            return Reading(of_workers, server_cpu(), n_commands, n_bytes, len(web.log), time.monotonic())

        begin, end = wait_for(0.1), wait_for(0.9)
        memory = client.info("memory")["used_memory_dataset"]
        for worker in workers:
            if worker.wait(300):
                sys.exit("A worker has failed.")
        if n_workers:
            check(jobs)
        fetched = {(entry.host, entry.target) for entry in web.log}
        if len(fetched) != total or len(web.log) != total:
            sys.exit(f"{len(web.log):,} requests for {len(fetched):,} of {total:,} pages.")
    of_workers, of_server, commands, n_bytes, pages, seconds = (
        after - before for before, after in zip(begin, end, strict=True)
    )
    return Cost(
        of_workers / pages * 1000,
        of_server / pages * 1000,
        idle * seconds / pages * 1000,
        commands / pages,
        n_bytes / pages,
        pages / seconds,
        memory,
    )


def check(jobs: list[Path]) -> None:
    """Exit unless every invariant holds, in each shard and between them."""
    with ExitStack() as opened:
        places = {number: shard_folder(job, number) for job in jobs for number in shards_on_disk(job)}
        stores = [open_snapshot(store_folder(places[number])) for number in sorted(places)]
        for store in stores:
            opened.callback(store.close)
        violations = [violation for store in stores for violation in audit(store).violations]
        violations += audit_shards(stores, registered_domain).violations
        if violations:
            sys.exit("\n".join(violations))


def main() -> None:
    """Crawl, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--hosts", type=int, default=240)
    parser.add_argument("--pages", type=int, default=14, help="of each host")
    parser.add_argument("--links", type=int, default=20, help="of each page, and two more (%(default)s)")
    parser.add_argument("--durability", type=int, default=500, help="AOPIC_DURABILITY (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of all crawls, by turns (%(default)s)")
    options = parser.parse_args()
    sys.stdout.write(
        "| shards | workers | workers, ms CPU a page | ratio | server, us CPU a page | if idle | commands a page | bytes a page | "
        "server, MB | pages/s |\n"
    )
    sys.stdout.write("|" + "---:|" * 10 + "\n")
    first = 0.0
    for n_workers in [0, *options.workers] * options.rounds:
        cost = crawl(options, n_workers)
        first = cost.workers if not n_workers else first
        sys.stdout.write(
            f"| {options.shards if n_workers else 1} | {n_workers or 1} | {cost.workers:.2f} | {cost.workers / first:.2f} | "
            f"{cost.server * 1000:.1f} | {cost.idle * 1000:.1f} | {cost.commands:.2f} | {cost.bytes:.0f} | "
            f"{cost.memory / 1e6:.1f} | {cost.rate:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
