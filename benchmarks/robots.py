"""Memory that robots.txt takes as hosts become many: Scrapy's middleware and ours, in processes of their own.

    python benchmarks/robots.py [--hosts 100000] [--files FOLDER]

Each host is asked for two pages, and answers with one of the files in FOLDER, or with 33 invented lines; there is no
network. Scrapy's middleware is stopped at a tenth of the hosts, because its memory grows with each of them. Beside
the hosts a table shows the resident memory in MB, of which some tens are Python and Scrapy.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapy import Request
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_aopic import RobotsMiddleware

sys.path.insert(0, str(Path(__file__).with_name("bench")))
from measure import disk_bytes, resident
from stage import OURS, STOCK, Stage

INVENTED = "".join(
    f"User-agent: {agent}\nCrawl-delay: 2\n" + "".join(f"Disallow: /{agent}/{n}/*.html$\n" for n in range(13)) + "\n"
    for agent in ("*", "somebot")
).encode() + b"Sitemap: http://example.com/sitemap.xml\n"  # fmt: skip
WAYS = ("Scrapy", "ours, beside another scheduler", "ours, with a job")
STEPS = 10


class Net:
    """An engine that answers from memory."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files
        self.n = 0

    async def download_async(self, request: Request) -> Response:
        self.n += 1
        return Response(request.url, body=self.files[self.n % len(self.files)])


async def ask(way: str, n_hosts: int, files: list[bytes], folder: Path) -> None:
    """Print the memory after each tenth of the hosts."""
    has_job = way == "ours, with a job"
    more = {**OURS, "JOBDIR": str(folder), "AOPIC_MEMORY_MB": 64} if has_job else STOCK
    stage = Stage({**more, "ROBOTSTXT_OBEY": True, "USER_AGENT": "anybot"})
    vars(stage.engine)["download_async"] = Net(files).download_async
    middleware: Any = (RobotsTxtMiddleware if way == "Scrapy" else RobotsMiddleware).from_crawler(
        stage.crawler
    )
    job = None
    if stage.session is not None:
        middleware.pacer = stage.session.pacer
        job = stage.session.job
    began = time.process_time()
    for n in range(1, n_hosts + 1):
        for path in ("", "other"):
            with suppress(IgnoreRequest):
                await middleware.process_request(Request(f"http://host{n}.example/{path}"))
        if job is not None:
            job.tick()
        if n % (n_hosts // STEPS) == 0:
            print(f"{n} {resident():.0f}", flush=True)
    print(f"cpu {(time.process_time() - began) / n_hosts * 1000:.2f}")
    stage.scheduler.close("finished")
    if job is not None:
        print(f"disk {disk_bytes(folder) / n_hosts:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="robots.txt files to answer with")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        files = [path.read_bytes() for path in options.files.iterdir()] if options.files else [INVENTED]
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(ask(options.way, options.hosts, files, Path(folder)))
        return
    print(
        "| hosts | "
        + " | ".join(f"{n * options.hosts // STEPS:,}" for n in range(1, STEPS + 1))
        + " | CPU | disk |"
    )
    print("|---" * (STEPS + 3) + "|")
    for way in WAYS:
        n_hosts = options.hosts // STEPS if way == "Scrapy" else options.hosts
        command = [sys.executable, __file__, "--hosts", str(n_hosts), "--way", way]
        command += ["--files", str(options.files)] if options.files else []
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        values = dict(line.split() for line in done.stdout.splitlines())
        cells = [values.get(str(n * options.hosts // STEPS), "") for n in range(1, STEPS + 1)]
        disk = f"{values['disk']} bytes a host" if "disk" in values else ""
        print(f"| {way} | " + " | ".join(cells) + f" | {values['cpu']} ms a host | {disk} |", flush=True)


if __name__ == "__main__":
    main()
