"""Cut the log of a server at the end of every transaction, and a byte before and after it, and audit the job each time.

    python benchmarks log_cuts [--pages 200] [--shards 6] [--workers 2] [--every 1]

Workers crawl a web of that many pages. Then the append-only file of their Redis or Valkey server is cut behind each command
and each transaction in it, one byte before that, and one byte after it; a server is started on what is left, and all shards and
the letters between them are audited. Cash must be whole, with ``==``, in each state that a crash of the server can leave.
Some of the states are then crawled to the end, by one worker: every page must be visited.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS.parent / "example_project")]

from demo_web.server import Server
from support import killed_crawl
from support.redis_server import Server as Redis
from support.workers import check

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.redis.sharding import read_sharding


def ends(log: bytes) -> list[int]:
    """Where each command of *log* ends that is in no transaction, and each transaction."""
    found, at, is_open = [], 0, False
    while at < len(log):
        line_end = log.index(b"\r\n", at)
        if log[at : at + 1] == b"#":  # a note of the server's
            at = line_end + 2
            continue
        n, at, words = int(log[at + 1 : line_end]), line_end + 2, []
        for _ in range(n):
            line_end = log.index(b"\r\n", at)
            length = int(log[at + 1 : line_end])
            words.append(log[line_end + 2 : line_end + 2 + length])
            at = line_end + 2 + length + 2
        word = words[0].upper()
        is_open = word == b"MULTI" or (is_open and word != b"EXEC")
        if not is_open:
            found.append(at)
    return found


def main() -> int:
    """Crawl, cut, audit; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="cut only at every so many ends (%(default)s)")
    parser.add_argument(
        "--resumed", type=int, default=10, help="states that are crawled to the end (%(default)s)"
    )
    options = parser.parse_args()
    killed_crawl.N_PAGES = options.pages // killed_crawl.N_HOSTS
    n_pages = killed_crawl.N_PAGES * killed_crawl.N_HOSTS
    with TemporaryDirectory() as name, Server(killed_crawl.answer).run_in_thread() as web:
        folder = Path(name)

        def crawl(url: str, n: int) -> None:
            line, environment = killed_crawl.command(
                folder,
                web.url,
                AOPIC_STORE="redis",
                AOPIC_SHARDS=options.shards,
                AOPIC_REDIS_LOCK_TIMEOUT=1.0,
                REDIS_URL=url,
                JOBDIR="",
            )
            workers = [subprocess.Popen(line, env=environment, cwd=folder) for _ in range(n)]
            ended = [worker.wait(120) for worker in workers]
            if any(ended):
                sys.exit("A worker has failed.")

        with Redis(folder / "first", appendfsync="always") as redis:
            crawl(redis.url, options.workers)
            redis.stop()
        file = redis.append_only_file()
        log = file.read_bytes()
        cuts = sorted(
            {at + more for at in ends(log)[:: options.every] for more in (-1, 0, 1)} - {len(log) + 1}
        )
        wrong = resumed = before = 0
        for number, cut in enumerate(cuts):
            shutil.copytree(folder / "first", folder / "cut", dirs_exist_ok=True)
            (folder / "cut" / file.relative_to(folder / "first")).write_bytes(log[:cut])
            with Redis(folder / "cut") as redis:
                address = Address("aopic:follow", redis.url)
                if read_sharding(address) is None:
                    before += 1
                    continue
                try:
                    violations = check(redis.url, options.shards)[2]
                except StorageError as error:
                    if str(error).startswith("There is no store in"):
                        before += 1  # some shard was not opened yet
                        continue
                    violations = [str(error)]
                if not violations and number * options.resumed // len(cuts) >= resumed:
                    resumed += 1
                    time.sleep(1.0)  # until its locks have expired
                    crawl(redis.url, 1)
                    visited, queued, violations = check(redis.url, options.shards)
                    if (visited, queued) != (n_pages, 0):
                        violations.append(f"{visited} of {n_pages} pages were visited, {queued} wait")
                if violations:
                    wrong += 1
                    sys.stderr.write(f"byte {cut:,} of {len(log):,}: {violations[:3]}\n")
        sys.stdout.write(
            f"{len(cuts):,} cuts of a log of {len(log):,} bytes, {before} of them before all shards were made; crawled to the end: "
            f"{resumed}; wrong: {wrong}\n"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
