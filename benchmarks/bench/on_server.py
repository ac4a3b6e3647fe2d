"""Redis: the work of a page with 40 links on a job in Redis or Valkey, beside the same on RocksDB.

The server is the one that AOPIC_REDIS_SERVER names, or that of a wheel; it has an append-only file (everysec).
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Absent, Runner, live_by_cpu_time
from support.redis_server import WHY_NOT, Server, find_server
from work import GAP, measured, store, visits
from world import policy

from scrapy_aopic.core.ports import Family
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import Address, open_snapshot
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

LISTPACKS = {"hash_max_listpack_value": "1024", "hash_max_listpack_entries": "256"}
"""What docs/many-machines.md recommends."""

_AT_ONCE = 5_000
"""Rows of a batch that fills the server."""


def core(folder: str, size: int, pages: int) -> dict[str, Any]:
    """``work:core`` on a server."""
    if find_server() is None:
        raise Absent(WHY_NOT)
    live_by_cpu_time()
    with tempfile.TemporaryDirectory() as temporary, Server(Path(temporary), **LISTPACKS) as server:
        address = Address("job", server.url)
        _fill(address, store_folder(Path(folder)))
        server.stop()
        server.start()  # memory counts as after a restart, without what filling it has left behind
        with closing(connect(address)) as link:
            memory = _info(link, "used_memory")
            job = Job(None, policy(gap=GAP), address=address)
            stays = _timed(job)
            used = [0.0]

            def begins() -> None:
                stays.clear()
                used[0] = _used(link)

            visit, links = visits(job, size)
            found = measured(visit, links, pages, begins)
            found["server_us"] = (_used(link) - used[0]) / pages * 1e6
            reads, blocked = len(stays) / pages, sum(stays) / pages * 1e6
            job.close()
            return {**found, "reads": reads, "blocked_us": blocked, "bytes": memory / size}


def _info(link: Any, name: str) -> float:
    (said,) = link.ask((b"INFO",))
    return float(
        next(row.partition(":")[2] for row in said.decode().splitlines() if row.startswith(f"{name}:"))
    )


def _used(link: Any) -> float:
    """Seconds of CPU that the server has used."""
    return _info(link, "used_cpu_user") + _info(link, "used_cpu_sys")


def _fill(address: Address, folder: Path) -> None:
    with closing(open_snapshot(folder)) as source, closing(open_store_at(address)) as target:
        for family in Family:
            rows = source.scan(family)
            while chunk := dict(islice(rows, _AT_ONCE)):
                target.write({family: dict(chunk)}, sync=False)


def _timed(job: Job) -> list[float]:
    """Seconds of each call for which the event loop waits from now on."""
    stays: list[float] = []
    loop = threading.get_ident()

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                if threading.get_ident() == loop:
                    stays.append(time.perf_counter() - began)

        return call

    of_server: Any = job.shards[0].store
    for name in ("get_many", "read_leaves", "write"):
        setattr(of_server, name, timed(getattr(of_server, name)))
    return stays


def part(run: Runner) -> None:
    """Beside RocksDB."""
    size = min(run.options.sizes)
    arguments = {"folder": store(run, size, "urls"), "size": size, "pages": 4000}
    name = f"{size / 1e6:g} M URLs"
    near, disk, seldom = run.by_turns(
        ("on_server:core", arguments),
        ("work:core", {**arguments, "each_commit": RedisStore.most_steps}),
        ("work:core", arguments),
    )
    for what, key in (("all threads", "us"), ("event loop", "own_us")):
        run.add("redis", f"a page on a server, to RocksDB with as many commits: {what}, {name}", "us CPU/page", near[key], peer=disk[key], wanted=1.3)  # fmt: skip
    run.add("redis", f"a page on a server, to RocksDB with a commit every half second: all threads, {name}", "us CPU/page", near["us"], peer=seldom["us"])  # fmt: skip
    run.add("redis", "the server itself", "us CPU/page", near["server_us"], wanted=300)
    run.add("redis", "reads for which the event loop waits", "per page", near["reads"], wanted=1)
    run.add("redis", "the event loop waits, on loopback", "us/page", near["blocked_us"])
    run.add("redis", "memory of the server", "bytes/URL", near["bytes"], wanted=170)
