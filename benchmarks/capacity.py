"""The constants of the capacity plan (docs/many-machines.md): what a page costs two workers and their server.

    python benchmarks capacity [--shards 16] [--hosts 120] [--pages 14] [--links 20] [--durability 2000]
    python benchmarks capacity --topic graded focused contextual

One crawl with the shards on the server, and one with them on the disks of the workers. From 10 to 90 % of the pages: CPU
time of workers and server (from ``/proc``, Linux), and bytes to and from the server, by its own count; and the resident
memory of a worker at the end. What a URL takes of the server's memory is measured by ``python benchmarks redis``.

With --topic what a topic adds to that: pages whose links stand in text, some 400 words of a page, are crawled without a topic and
by each of the strategies that are named; ``graded`` stands for a topic in the default order.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

import redis
from demo_web.server import Server
from linked_hosts import Size, cpu, linked_hosts
from support.redis_server import Server as Redis
from workers import SPIDER

WORKERS = 2
TOPIC = {"AOPIC_TOPIC": '{"keywords": ["w7", "w8", "w9"]}'}
WORDS = 2_000
"""Words that texts are made of; three of them are the topic's."""


class Reading(NamedTuple):
    """What was counted by a moment: CPU seconds of workers and server, bytes to and from the server, pages."""

    workers: float
    server: float
    bytes: int
    pages: int


def resident(process: int) -> int:
    """Bytes of a process in memory at the most so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def written(links: list[str], rng: random.Random) -> bytes:
    """A page with *links*, each of which stands in a text of its own."""

    def text(n: int) -> str:
        return " ".join([f"w{rng.randrange(WORDS)}" for _ in range(n)])

    paragraphs = [f"<p>{text(8)} <a href='{link}'>{text(2)}</a> {text(8)}</p>" for link in links]
    return f"<html><title>{text(3)}</title><h1>{text(3)}</h1>{''.join(paragraphs)}</html>".encode()


def of_topic(name: str) -> dict[str, str]:
    """Settings of a crawl for a topic by a strategy."""
    if name == "none":
        return {}
    return TOPIC if name == "graded" else {**TOPIC, "AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": name}


def crawl(options: argparse.Namespace, topic: str, *, on_disks: bool) -> list[str]:
    """The figures of a crawl, as cells of a table."""
    size = Size(options.hosts, options.pages, options.links)
    answer = linked_hosts(size, written) if options.topic else linked_hosts(size)
    settings = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_SHARDS": options.shards,
        "AOPIC_DURABILITY": options.durability,
        "AOPIC_MIN_GAP": 0.05,
        "AOPIC_POLITENESS_FACTOR": 1,
        "CONCURRENT_REQUESTS": 64,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        **of_topic(topic),
    }
    total = size.total
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(
            Redis(folder / "server", hash_max_listpack_entries="256", hash_max_listpack_value="1024")
        )
        web = stack.enter_context(Server(answer).run_in_thread())
        client = stack.enter_context(redis.Redis.from_url(server.url))
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        workers = []
        for number in range(WORKERS):
            own = {"AOPIC_DISKS": WORKERS, "JOBDIR": folder / f"job-{number}"}
            given = {**settings, "REDIS_URL": server.url, **(own if on_disks else {"AOPIC_STORE": "redis"})}
            parts = [part for name, value in given.items() for part in ("-s", f"{name}={value}")]
            command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *parts]
            workers.append(subprocess.Popen(command, env=environment, cwd=folder))
            stack.callback(workers[-1].kill)

        def read(part: float) -> Reading:
            while len(web.log) < part * total and any(worker.poll() is None for worker in workers):
                time.sleep(0.01)
            stats = client.info("stats")
            return Reading(
                sum(cpu(worker.pid) for worker in workers),
                cpu(server.process_id),
                stats["total_net_input_bytes"] + stats["total_net_output_bytes"],
                len(web.log),
            )

        begin, end = read(0.1), read(0.9)
        largest = max(resident(worker.pid) for worker in workers)
        for worker in workers:
            if worker.wait(300):
                sys.exit("A worker has failed.")
    pages = end.pages - begin.pages
    return [
        ("workers' disks" if on_disks else "server") + (f", {topic}" if options.topic else ""),
        f"{(end.workers - begin.workers) / pages * 1000:.2f}",
        f"{(end.server - begin.server) / pages * 1e6:.0f}",
        f"{(end.bytes - begin.bytes) / pages / 1000:.1f}",
        f"{largest / 1e6:.0f}",
    ]


def main() -> None:
    """Crawl, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--hosts", type=int, default=120)
    parser.add_argument("--pages", type=int, default=14, help="of each host")
    parser.add_argument("--links", type=int, default=20, help="of each page, and two more (%(default)s)")
    parser.add_argument("--durability", type=int, default=2000, help="AOPIC_DURABILITY (%(default)s)")
    parser.add_argument("--topic", nargs="+", default=[], help="graded, or names of strategies")
    options = parser.parse_args()
    head = ("shards are on", "workers, ms CPU a page", "server, us CPU a page", "kB to and from the server a page",
            "worker, MB")  # fmt: skip
    sys.stdout.write(f"| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}\n")
    for on_disks in (False, True):
        for topic in ("none", *options.topic):
            sys.stdout.write(f"| {' | '.join(crawl(options, topic, on_disks=on_disks))} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
