"""How soon the dashboard of a large job is there.

    python benchmarks/large_job.py [--pages 10000000] [--hosts 100000] [--folder FOLDER] [--store rocksdb]

Queues that many pages on that many hosts in a job without a crawl, which takes about 25 us for each; with ``--folder`` the job
is kept there, and used again. Then it takes, by the wall clock and in CPU time of the process that serves:

* from the start of ``scrapy aopic dashboard`` until its address is there;
* from then until the figures are answered;
* until a headless Chromium shows them, if there is one (``make browser`` installs what that needs);
* how long later looks take;
* ``scrapy aopic status --totals``, which is how long Python takes to start and read the same.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

TOKEN = "a-token-of-the-benchmark"
_COMMIT = 20_000
"""Pages of a commit: some 10 MB."""


def fill(folder: Path, store: str, pages: int, hosts: int) -> None:
    """Make a job with so many queued pages."""
    from support.stored_jobs import link

    from scrapy_aopic.core.crawl import Crawl
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.place.paths import store_folder
    from scrapy_aopic.storage import open_store

    began = time.monotonic()
    with closing(open_store(store_folder(folder), store)) as opened:
        crawl = Crawl(opened, Policy(), 0.0)
        for n in range(pages):
            crawl.seed(link(f"h{n * 7919 % hosts}.test", n), 0.0)
            if n % _COMMIT == _COMMIT - 1:
                opened.write(crawl.take_changes(0.0), sync=False)
        opened.write(crawl.take_changes(0.0, is_clean=True), sync=True)
    print(f"made in {time.monotonic() - began:.0f} s", flush=True)


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answer(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().read()


def in_browser(port: int) -> float | None:
    """Seconds from the address to the figures on the page; ``None`` without a browser."""
    try:
        from support.chromium import CHROMIUM, DRIVER, start_chromium

        if not (CHROMIUM and DRIVER and find_spec("selenium")):
            return None
        browser = start_chromium()
    except ImportError:
        return None
    try:
        began = time.monotonic()
        browser.get(f"http://127.0.0.1:{port}/?token={TOKEN}")
        while not browser.execute_script("return document.querySelector('#totals dd')?.textContent"):
            time.sleep(0.01)
        return time.monotonic() - began
    finally:
        browser.quit()


def measure(folder: Path) -> None:
    """Print how long everything takes."""
    command = [sys.executable, "-m", "scrapy", "aopic"]
    began = time.monotonic()
    subprocess.run(
        [*command, "status", "--totals", str(folder)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT
    )
    print(f"status --totals     {time.monotonic() - began:6.2f} s")
    began = time.monotonic()
    process = subprocess.Popen(
        [
            *command,
            "dashboard",
            str(folder),
            "--listen",
            "127.0.0.1:0",
            "-s",
            f"AOPIC_DASHBOARD_TOKEN={TOKEN}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        match = re.search(r":(\d+)/", process.stdout.readline())
        assert match is not None
        port = int(match[1])
        there = time.monotonic()
        print(f"dashboard, address  {there - began:6.2f} s, {cpu_of(process.pid):.2f} s of CPU")
        figures = json.loads(answer(port, "/api/v1/snapshot"))
        first = time.monotonic()
        print(
            f"first figures       {first - there:6.2f} s; {first - began:.2f} s from the start of the command"
        )
        shown = in_browser(port)
        if shown is not None:
            print(f"page in Chromium    {shown:6.2f} s")
        looks = []
        before = cpu_of(process.pid)
        for _ in range(5):
            began = time.monotonic()
            answer(port, "/api/v1/snapshot")
            looks.append(time.monotonic() - began)
        print(
            f"later answers       {median(looks):6.2f} s, {max(looks):.2f} s at most (the store is looked at every 2 s); "
            f"{(cpu_of(process.pid) - before) / 5:.3f} s of CPU each"
        )
        pages, hosts = figures["pages"], figures["hosts"]
        print(
            f"pages {pages['known']:,}, hosts {hosts['known']:,}, store {figures['store']['size_bytes'] / 1e9:.2f} GB"
        )
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--store", default="rocksdb")
    opts = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = opts.folder or Path(temporary) / "job"
        if not folder.exists():
            fill(folder, opts.store, opts.pages, opts.hosts)
        measure(folder)


if __name__ == "__main__":
    main()
