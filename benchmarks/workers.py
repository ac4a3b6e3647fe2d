"""What it costs to share a crawl: workers of a job in shards beside one process and a job in one piece, both in Redis.

    python benchmarks/workers.py [--shards 16] [--workers 1 2 4] [--hosts 120] [--pages 14] [--durability 500]

Each crawl fetches the same made-up web on loopback, whose server is in this process. CPU time of the workers and of the
Redis or Valkey server is read from ``/proc`` (Linux) when a tenth of the pages was fetched, and when nine tenths were, so
that starts and ends do not count. Pages a second are by the clock of the wall, of as many cores as there are for all
of this together.
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

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support.redis_server import Server as Redis
from support.small_web import html

from scrapy_aopic.job.whole import audit_job, is_cut
from scrapy_aopic.storage import Address
from scrapy_aopic.testing.server import Answer, Exchange, Server

SPIDER = TESTS / "support" / "follow_spider.py"
N_LINKS = 20
TICK = os.sysconf("SC_CLK_TCK")


def cpu(process: int) -> float:
    """CPU seconds of a process so far, all threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def crawl(
    n_hosts: int, n_pages: int, shards: int, n_workers: int, *, durability: int
) -> tuple[float, float, float]:
    """CPU milliseconds of the workers and of the server a page, and pages a second."""

    def answer(exchange: Exchange) -> Answer:
        host, page = int(exchange.host[1:-5]), int(exchange.target[1:])
        rng = random.Random(f"{host}/{page}")
        links = [f"http://h{rng.randrange(n_hosts)}.test/{rng.randrange(n_pages)}" for _ in range(N_LINKS)]
        links += [
            f"http://h{(host + 1) % n_hosts}.test/{page}",
            f"http://h{host}.test/{(page + 1) % n_pages}",
        ]
        return Answer(headers={"Content-Type": "text/html"}, body=html(links))

    settings = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "AOPIC_STORE": "redis",
        "AOPIC_SHARDS": shards,
        "AOPIC_DURABILITY": durability,
        "AOPIC_MIN_GAP": 0.05,
        "AOPIC_POLITENESS_FACTOR": 1,
        "CONCURRENT_REQUESTS": 64,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }
    total = n_hosts * n_pages
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(Redis(folder / "server"))
        web = stack.enter_context(Server(answer).run_in_thread())
        options = [
            part
            for name, value in {**settings, "REDIS_URL": redis.url}.items()
            for part in ("-s", f"{name}={value}")
        ]
        environment = {**os.environ, "http_proxy": web.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *options]
        workers = [subprocess.Popen(command, env=environment, cwd=folder) for _ in range(n_workers)]
        for worker in workers:
            stack.callback(worker.kill)

        def wait_for(part: float) -> tuple[float, float, int, float]:
            while len(web.log) < part * total and any(worker.poll() is None for worker in workers):
                time.sleep(0.01)
            return (
                sum(cpu(worker.pid) for worker in workers),
                cpu(redis.process_id),
                len(web.log),
                time.monotonic(),
            )

        begin, end = wait_for(0.1), wait_for(0.9)
        for worker in workers:
            if worker.wait(300):
                sys.exit("A worker has failed.")
        address = Address("aopic:follow", redis.url)
        if is_cut(address) and (violations := audit_job(address).violations):
            sys.exit("\n".join(violations))
        fetched = {(entry.host, entry.target) for entry in web.log}
        if len(fetched) != total or len(web.log) != total:
            sys.exit(f"{len(web.log):,} requests for {len(fetched):,} of {total:,} pages.")
    pages = end[2] - begin[2]
    return (
        (end[0] - begin[0]) / pages * 1000,
        (end[1] - begin[1]) / pages * 1000,
        pages / (end[3] - begin[3]),
    )


def main() -> None:
    """Crawl, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--hosts", type=int, default=120)
    parser.add_argument("--pages", type=int, default=14, help="of each host")
    parser.add_argument("--durability", type=int, default=500, help="AOPIC_DURABILITY (%(default)s)")
    options = parser.parse_args()
    sys.stdout.write(
        "| shards | workers | workers, ms CPU a page | ratio | server, ms CPU a page | pages/s |\n"
    )
    sys.stdout.write("|---:|---:|---:|---:|---:|---:|\n")
    first = 0.0
    for shards, n_workers in [(1, 1), *((options.shards, n) for n in options.workers)]:
        of_workers, of_server, rate = crawl(
            options.hosts, options.pages, shards, n_workers, durability=options.durability
        )
        first = first or of_workers
        sys.stdout.write(
            f"| {shards} | {n_workers} | {of_workers:.2f} | {of_workers / first:.2f} | {of_server:.3f} | {rate:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
