"""A peer that needs more than an import: scrapy-redis, with a server of its own."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.redis_server import WHY_NOT, Server, find_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def without_redis() -> str:
    """Why scrapy-redis cannot be measured, "" if it can."""
    if find_spec("scrapy_redis") is None:
        return "scrapy-redis is not installed; make bench installs it."
    return "" if find_server() is not None else f"{WHY_NOT}."


@contextmanager
def redis() -> Iterator[tuple[dict[str, Any], Callable[[], float]]]:
    """Start a server that keeps nothing on the disk; scrapy-redis' settings for it, and its CPU time."""
    from redis import Redis

    with tempfile.TemporaryDirectory() as folder, Server(Path(folder), appendonly="no") as server:
        client = Redis.from_url(server.url)

        def seconds() -> float:
            info = client.info("cpu")
            return float(info["used_cpu_user"] + info["used_cpu_sys"])

        settings = {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": server.url,
            "ROBOTSTXT_OBEY": False,
        }
        yield settings, seconds
