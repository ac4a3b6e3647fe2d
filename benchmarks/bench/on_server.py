"""Redis: the work of a page with 40 links on a job in Redis or Valkey, beside the same on RocksDB, and how long the event
loop waits for the server when the network takes a millisecond.

The server is the one that AOPIC_REDIS_SERVER names, or that of a wheel; it has an append-only file (everysec).
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from measure import Absent, Runner, live_by_cpu_time
from support.redis_server import WHY_NOT, Server, find_server
from work import GAP, measured, store, visits
from world import policy

from scrapy_aopic.core.ports import Family
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.paths import store_folder
from scrapy_aopic.storage import Address, open_snapshot
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LISTPACKS = {"hash_max_listpack_value": "1024", "hash_max_listpack_entries": "256"}
"""What docs/many-machines.md recommends."""

_AT_ONCE = 5_000
"""Rows of a batch that fills the server."""


def core(folder: str, size: int, pages: int, delay_ms: float = 0.0) -> dict[str, Any]:
    """``work:core`` on a server that is *delay_ms* away."""
    if find_server() is None:
        raise Absent(WHY_NOT)
    if not delay_ms:
        live_by_cpu_time()
    with tempfile.TemporaryDirectory() as temporary, Server(Path(temporary), **LISTPACKS) as server:
        address = Address("job", server.url)
        _fill(address, store_folder(Path(folder)))
        server.stop()
        server.start()  # memory counts as after a restart, without what filling it has left behind
        with closing(connect(address)) as link, _far(server.port, delay_ms) as port:
            memory = _info(link, "used_memory")
            address = Address("job", f"redis://127.0.0.1:{port}/0")
            job = Job(None, policy(gap=GAP), address=address)
            stays, writes = _timed(job)
            used = [0.0]

            def begins() -> None:
                stays.clear()
                writes.clear()
                used[0] = _used(link)

            visit, links = visits(job, size)
            with closing(connect(address)) as bare:
                pings: list[float] = []

                def visit_and_ping() -> None:
                    visit()
                    began = time.perf_counter()
                    bare.ask((b"PING",))
                    pings.append(time.perf_counter() - began)

                found = measured(visit_and_ping if delay_ms else visit, links, pages, begins)
                pings.sort()
            found["server_us"] = (_used(link) - used[0]) / pages * 1e6
            reads = sorted(stays)
            job.close()
            return {
                **found,
                "reads": len(reads) / pages,
                "blocked_us": sum(reads) / pages * 1e6,
                "stay_999_ms": reads[int(len(reads) * 0.999)] * 1000,
                "stay_max_ms": reads[-1] * 1000,
                "write_ms": max(writes, default=0.0) * 1000,
                "writes": len(writes) / pages,
                "stay_99_ms": reads[int(len(reads) * 0.99)] * 1000,
                "stay_50_ms": reads[len(reads) // 2] * 1000,
                "round_trip_ms": median(pings) * 1000 if pings else 0.0,
                "ping_999_ms": pings[int(len(pings) * 0.999)] * 1000 if pings else 0.0,
                "bytes": memory / size,
            }


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


def _timed(job: Job) -> tuple[list[float], list[float]]:
    """Seconds that each call takes from now on: those for which the event loop waits, and those of the other thread."""
    stays: list[float] = []
    writes: list[float] = []
    loop = threading.get_ident()

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                (stays if threading.get_ident() == loop else writes).append(time.perf_counter() - began)

        return call

    of_server: Any = job.shards[0].store
    for name in ("get_many", "read_leaves", "write"):
        setattr(of_server, name, timed(getattr(of_server, name)))
    return stays, writes


@contextmanager
def _far(port: int, delay_ms: float) -> Iterator[int]:
    """The port of a proxy that brings everything to *port* and back *delay_ms* later, half of that each way."""
    if not delay_ms:
        yield port
        return
    told: Any = multiprocessing.Queue()
    proxy = multiprocessing.Process(target=_proxy, args=(port, delay_ms / 2000, told), daemon=True)
    proxy.start()
    yield told.get()
    proxy.kill()


def _proxy(port: int, delay: float, told: Any) -> None:
    def bring(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 18):
            time.sleep(delay)
            target.sendall(data)
        target.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        told.put(server.getsockname()[1])
        while True:
            here, _ = server.accept()
            there = socket.create_connection(("127.0.0.1", port))
            for pair in ((here, there), (there, here)):
                for each in pair:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=bring, args=pair, daemon=True).start()


def part(run: Runner) -> None:
    """On loopback beside RocksDB, and a millisecond away."""
    size = min(run.options.sizes)
    arguments = {"folder": store(run, size, "urls"), "size": size, "pages": 4000}
    name = f"{size / 1e6:g} M URLs"
    near, disk, seldom, far = run.by_turns(
        ("on_server:core", arguments),
        ("work:core", {**arguments, "each_commit": RedisStore.most_steps}),
        ("work:core", arguments),
        ("on_server:core", {**arguments, "delay_ms": 1.0}),
    )
    for what, key in (("all threads", "us"), ("event loop", "own_us")):
        run.add("redis", f"a page on a server, to RocksDB with as many commits: {what}, {name}", "us CPU/page", near[key], peer=disk[key], wanted=1.3)  # fmt: skip
    run.add("redis", f"a page on a server, to RocksDB with a commit every half second: all threads, {name}", "us CPU/page", near["us"], peer=seldom["us"])  # fmt: skip
    run.add("redis", "the server itself", "us CPU/page", near["server_us"], wanted=300)
    run.add("redis", "reads for which the event loop waits", "per page", near["reads"], wanted=1)
    run.add("redis", "the event loop waits, on loopback", "us/page", near["blocked_us"])
    run.add("redis", "the event loop waits, 1 ms away", "us/page", far["blocked_us"])
    run.add("redis", "a round trip, 1 ms away", "ms", far["round_trip_ms"])
    for name_, key in (("median", "stay_50_ms"), ("99th percentile", "stay_99_ms")):
        run.add("redis", f"{name_} of these, 1 ms away", "ms", far[key])
    run.add("redis", "99.9th percentile of these, 1 ms away", "ms", far["stay_999_ms"], wanted=20)
    run.add("redis", "the same of bare round trips in the same run", "ms", far["ping_999_ms"])
    run.add("redis", "slowest commit, 1 ms away", "ms", far["write_ms"])
    run.add("redis", "memory of the server", "bytes/URL", near["bytes"], wanted=170)
