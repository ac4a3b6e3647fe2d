"""Does it pay to merge links by batches, as the sieve of Mercator and BUbiNG and the DRUM of IRLbot do?

    python benchmarks/sieve.py [--sizes 1000000 10000000] [--buffer 20000] [--rate 200] [--merges 3]
        [--pages 100000] [--scratch FOLDER]

Two sieves and the store of this package (RocksDB) are given the same links: 28 distinct ones a page, 8 of them new,
of hosts in no order, which is the worst for a store. A sieve collects the keys in memory, sorts them, and reads its
sorted file once from end to end while it writes the next one (fsync, rename). It merges when links of ``--buffer``
pages are there, and no sooner than after ten times as long as the last merge took, in a crawl of ``--rate`` pages a
second. The small one keeps 8 bytes a URL, and forgets repeated links; the other one keeps 16 bytes and a record of 32
to which every link is credited, as in the ledger. The store reads the records of a page's links and writes them back,
in one synchronous batch a second. The URLs themselves are left out everywhere.

Each runs in a process of its own. CPU time is of all threads, bytes are those that were asked of the system, most of
which its cache may have had. 100 million URLs take 10 GB in ``--scratch`` and about ten minutes.
For Linux; ``pip install --editable . --group bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from scrapy_aopic.core.ports import Family
from scrapy_aopic.storage.rocksdb import RocksStore

EACH = 100  # known pages of a host
N_NAVIGATION, N_RECENT, N_GLOBAL, N_NEW = 10, 5, 5, 8
N_LINKS = N_NAVIGATION + N_RECENT + N_GLOBAL + N_NEW
RECORD = 32
_REST = 10  # times as long as a merge takes, nothing is merged after it
_CHUNK = 8 << 20
_HOSTS_AT_ONCE = 2000  # when a store is made
_FRESH = 1 << 20  # number of the first page that is not known


# -- links


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Hashes of 64 bits, different for different numbers (splitmix64)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def host_keys(hosts: np.ndarray) -> np.ndarray:
    return mixed(hosts.astype(np.uint64) | np.uint64(1 << 63))


def page_keys(hosts: np.ndarray, pages: np.ndarray) -> np.ndarray:
    return mixed((hosts.astype(np.uint64) << np.uint64(32)) | pages.astype(np.uint64))


def links(n_hosts: int, n_pages: int, at_once: int = 200) -> Iterator[list[list[bytes]]]:
    """Keys (host and page) of the links of *n_pages* pages, some pages at a time."""
    draw = np.random.default_rng(1)
    for first in range(0, n_pages, at_once):
        n = min(at_once, n_pages - first)
        own = np.repeat(draw.integers(n_hosts, size=n), N_LINKS).reshape(n, N_LINKS)
        pages = np.empty((n, N_LINKS), np.int64)
        pages[:, :N_NAVIGATION] = np.arange(N_NAVIGATION)
        recent = draw.integers(N_NAVIGATION, EACH - N_RECENT, size=(n, 1))
        pages[:, N_NAVIGATION : N_NAVIGATION + N_RECENT] = recent + np.arange(N_RECENT)
        everywhere = slice(N_NAVIGATION + N_RECENT, N_LINKS - N_NEW)
        # Zipf: the logarithm of the rank is even.
        own[:, everywhere] = n_hosts ** draw.random((n, N_GLOBAL)) - 1
        pages[:, everywhere] = np.arange(N_GLOBAL)
        numbers = np.arange(first * N_NEW, (first + n) * N_NEW)
        pages[:, N_LINKS - N_NEW :] = _FRESH + numbers.reshape(n, N_NEW)
        keys = np.stack((host_keys(own), page_keys(own, pages)), axis=2).astype(">u8")
        yield keys.reshape(n, N_LINKS * 2).view("V16").tolist()


def io() -> tuple[int, int]:
    """Bytes that this process has read and written."""
    found = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
    return int(found["rchar"]), int(found["wchar"])


class Spent:
    """What a block costs; the making of links inside of it, by :meth:`made`, is nobody's."""

    def __init__(self) -> None:
        self._io, self._cpu, self._wall, self._others = (
            io(),
            time.process_time(),
            time.perf_counter(),
            [0.0, 0.0],
        )

    def made(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            cpu, wall = time.thread_time(), time.perf_counter()
            batch = next(batches, None)
            self._others[0] += time.thread_time() - cpu
            self._others[1] += time.perf_counter() - wall
            if batch is None:
                return
            yield batch

    def per(self, n: int) -> dict[str, float]:
        read, written = (now - before for now, before in zip(io(), self._io, strict=True))
        return {
            "cpu_us": (time.process_time() - self._cpu - self._others[0]) / n * 1e6,
            "wall_us": (time.perf_counter() - self._wall - self._others[1]) / n * 1e6,
            "read": read / n,
            "written": written / n,
            "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }


# -- the sieve


class Sieve:
    """A sorted file of page keys, with a host and a record beside each if *is_ledger*.

    Pages are told apart by the 64 bits of their own hash.
    """

    def __init__(self, path: Path, is_ledger: bool) -> None:
        self._path = path
        self._words = 6 if is_ledger else 1  # page, host, cash and three others
        self._keys = bytearray()
        self._shares: list[int] = []

    def add(self, keys: list[bytes], share: int) -> None:
        """Give *share* to each of *keys*."""
        self._keys += b"".join(keys)
        self._shares.append(share)

    def merge(self) -> int:
        """Take what was added into the file; how many pages are new."""
        rows = self._sorted()
        hashes, n_new, done = rows[:, 0].copy(), 0, 0
        chunk_rows = _CHUNK // rows.strides[0]
        following = self._path.with_suffix(".new")
        with self._path.open("rb") as old, following.open("wb") as new:
            while True:
                chunk = np.fromfile(old, np.uint64, chunk_rows * self._words).reshape(-1, self._words)
                is_last = len(chunk) < chunk_rows
                stop = len(rows) if is_last else int(np.searchsorted(hashes, chunk[-1, 0], "right"))
                merged, n = self._merged(chunk, rows[done:stop], hashes[done:stop])
                merged.tofile(new)
                n_new, done = n_new + n, stop
                if is_last:
                    break
            new.flush()
            os.fsync(new.fileno())
        following.replace(self._path)
        self._keys.clear()
        self._shares.clear()
        return n_new

    def _sorted(self) -> np.ndarray:
        """One row for each page that was added, by its hash, with all that it was given."""
        pairs = np.frombuffer(bytes(self._keys), ">u8").reshape(-1, 2)
        hashes = pairs[:, 1].astype(np.uint64)
        order = np.argsort(hashes)
        hashes = hashes[order]
        first = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1])))
        rows = np.zeros((len(first), self._words), np.uint64)
        rows[:, 0] = hashes[first]
        if self._words > 1:
            shares = np.repeat(np.array(self._shares, np.uint64), N_LINKS)
            rows[:, 1] = pairs[order[first], 0]
            rows[:, 2] = np.add.reduceat(shares[order], first)
        return rows

    def _merged(self, chunk: np.ndarray, rows: np.ndarray, hashes: np.ndarray) -> tuple[np.ndarray, int]:
        known = np.ascontiguousarray(chunk[:, 0])
        at = np.searchsorted(known, hashes)
        is_known = known[np.minimum(at, len(known) - 1)] == hashes if len(known) else np.zeros(len(at), bool)
        if self._words > 1:
            chunk[at[is_known], 2] += rows[is_known, 2]
        fresh, at = rows[~is_known], at[~is_known]
        at += np.arange(len(at))
        row = f"V{8 * self._words}"
        merged = np.empty(len(chunk) + len(fresh), row)
        is_old = np.ones(len(merged), bool)
        is_old[at] = False
        merged[is_old] = chunk.view(row)[:, 0]
        merged[at] = np.ascontiguousarray(fresh).view(row)[:, 0]
        return merged, len(fresh)


def make_sieve(*, folder: str, size: int, is_ledger: bool, **_: Any) -> dict[str, Any]:
    """The file of a sieve that knows *size* pages."""
    hosts = np.arange(size // EACH)
    keys = np.concatenate([page_keys(hosts, np.full_like(hosts, number)) for number in range(EACH)])
    keys.sort()
    with Path(folder, "sieve").open("wb") as file:
        for first in range(0, size, 1 << 18):
            chunk = keys[first : first + (1 << 18)]
            (np.repeat(chunk, 6) if is_ledger else chunk).tofile(file)
    return {}


def sieve(
    *, folder: str, size: int, is_ledger: bool, buffer: int, rate: float, merges: int, **_: Any
) -> dict[str, Any]:
    path = Path(folder, "sieve")
    sieve, batches = Sieve(path, is_ledger), links(size // EACH, 1 << 31)
    seconds: list[float] = []

    def turn(batches: Iterator[list[list[bytes]]]) -> int:
        rest = _REST * seconds[-1] * rate if seconds else 0
        n = 0
        while n < max(buffer, rest):
            for number, keys in enumerate(next(batches)):
                sieve.add(keys, 1000 + number)
                n += 1
        began = time.perf_counter()
        n_new = sieve.merge()
        seconds.append(time.perf_counter() - began)
        assert n_new == n * N_NEW, f"{n_new} new pages of {n}"
        return n

    turn(batches)  # tells how long a merge takes
    spent = Spent()
    batches = spent.made(batches)
    filled = [turn(batches) for _ in range(merges)]
    return {
        **spent.per(sum(filled)),
        "disk": 2 * path.stat().st_size,
        "pages": sum(filled) / merges,
        "merge": max(seconds),
        "age": max(filled) / rate + max(seconds),
        "lost": max(filled),
    }


# -- the store


def make_store(*, folder: str, size: int) -> dict[str, Any]:
    """A store with a record for each of *size* pages.

    Each quarter is written in the order of its keys, which is fast. If all of them were, files would only be moved
    from level to level, and there would be more and smaller ones than a crawl leaves.
    """
    store = RocksStore(Path(folder, "store"))
    hosts = np.arange(size // EACH)
    keys = host_keys(hosts)
    order = np.argsort(keys)
    record = bytes(range(RECORD))
    quarters = [order[first::4] for first in range(4)]
    batches = [
        quarter[first : first + _HOSTS_AT_ONCE]
        for quarter in quarters
        for first in range(0, len(quarter), _HOSTS_AT_ONCE)
    ]
    for some in batches:
        pages = page_keys(np.repeat(hosts[some], EACH), np.tile(np.arange(EACH), len(some)))
        pages = np.sort(pages.reshape(-1, EACH), axis=1).reshape(-1)
        rows = np.stack((np.repeat(keys[some], EACH), pages), axis=1).astype(">u8")
        store.write({Family.PAGES: dict.fromkeys(rows.view("V16")[:, 0].tolist(), record)}, sync=False)
    store._families[Family.PAGES].compact_range(None, None)  # else the crawl would pay for it
    store.close()
    return {}


def lookups(*, folder: str, size: int, rate: float, pages: int, **_: Any) -> dict[str, Any]:
    store = RocksStore(Path(folder, "store"))
    n_new = 0
    stream = links(size // EACH, pages, int(rate))
    seconds = []
    spent = Spent()
    for batch in spent.made(stream):
        pending: dict[bytes, bytes | None] = {}
        for keys in batch:
            wanted = [key for key in keys if key not in pending]
            for key, record in zip(wanted, store.get_many(Family.PAGES, wanted), strict=True):
                n_new += record is None
                pending[key] = record or bytes(RECORD)
            for key in keys:  # a new record, of other bytes
                record = pending[key]
                assert record is not None
                pending[key] = record[1:] + record[:1]
        began = time.perf_counter()
        store.write({Family.PAGES: pending}, sync=True)
        seconds.append(time.perf_counter() - began)
    found = spent.per(pages)
    assert n_new == pages * N_NEW, f"{n_new} new pages of {pages}"
    disk = store.size_bytes()
    store.close()
    return {
        **found,
        "disk": disk,
        "pages": int(rate),
        "merge": max(seconds),
        "age": 0.0,
        "lost": int(rate),
    }


# -- the table

HEAD = (
    "| known URLs | | us CPU/page | us/page on the clock | bytes read/page | bytes written/page | memory, MB "
    "| disk, MB | pages a merge | longest merge, s | a new URL waits up to, s | links lost by a crash, pages |\n"
    "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "sieve of keys": ("make_sieve", "sieve", {"is_ledger": False}),
    "sieve with records": ("make_sieve", "sieve", {"is_ledger": True}),
    "the same, as often as it may": ("make_sieve", "sieve", {"is_ledger": True, "buffer": 1}),
    "RocksDB": ("make_store", "lookups", {}),
}


def line(size: int, kind: str, found: dict[str, Any]) -> str:
    cells = [
        f"{size:,}", kind, f"{found['cpu_us']:,.0f}", f"{found['wall_us']:,.0f}", f"{found['read']:,.0f}",
        f"{found['written']:,.0f}", f"{found['mb']:,.0f}", f"{found['disk'] / 1e6:,.0f}",
        f"{found['pages']:,.0f}", f"{found['merge']:.2f}", f"{found['age']:,.0f}", f"{found['lost']:,.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def once(task: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What *task* finds in a process of its own."""
    command = [sys.executable, __file__, "--task", task, json.dumps(arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000], help="known URLs")
    parser.add_argument(
        "--buffer", type=int, default=20_000, help="pages whose links fill the memory of a sieve"
    )
    parser.add_argument("--rate", type=float, default=200.0, help="pages that the crawl fetches in a second")
    parser.add_argument("--merges", type=int, default=3)
    parser.add_argument("--pages", type=int, default=100_000, help="pages that the store is given")
    parser.add_argument("--scratch", type=Path, help="folder for the files, which are deleted in the end")
    parser.add_argument("--task", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(globals()[options.task[0]](**json.loads(options.task[1]))))
        return
    given = {name: getattr(options, name) for name in ("buffer", "rate", "merges", "pages")}
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}\n\n{HEAD}")
    for size, kind in tqdm([(size, kind) for size in options.sizes for kind in KINDS], disable=None):
        make, measure, more = KINDS[kind]
        folder = tempfile.mkdtemp(prefix="aopic-sieve-", dir=options.scratch)
        try:
            arguments = {"folder": folder, "size": size, **more}
            once(make, arguments)
            tqdm.write(line(size, kind, once(measure, {**given, **arguments})))
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
