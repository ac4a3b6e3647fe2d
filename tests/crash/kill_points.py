"""A crawl that is killed at its first operation on the store, at its second one, and so on; run by test_kill_points.py.

    python kill_points.py rocksdb|sqlite FOLDER [EACH]

With EACH, only every so many operations. Each crawl is a fork of this process, which opens no store itself: RocksDB's threads do not survive a fork.
"""

# ruff: noqa: T201
from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.layout import DIRECTORIES
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import exists, open_snapshot, open_store

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.faulty_store import Fault, FaultyStore
from support.twelve_pages import PAGES, crawl_twelve_pages

STEPS = 18
HOSTS = 3


def directory_of(request: bytes) -> bytes:
    """Of each host three pages are in one directory, and one is in another."""
    return b"one" if int(request) < 9 else b"two"


def policy() -> Policy:
    """A small memory, and directories that are full after two pages, so that the third one waits lower."""
    order = Aopic()
    order.directory_pages = 2
    return Policy(order=order, directory_of=directory_of, max_active=2, page_cache=3)


def crawl(kind: str, folder: Path, steps: int, now: float, kill_at: int = 0) -> None:
    faults = [Fault("kill", kill_at)] if kill_at else []
    with closing(FaultyStore(open_store(folder, kind), *faults)) as store:
        crawl_twelve_pages(store, policy(), now, steps=steps, n_hosts=HOSTS)


def opened(folder: Path) -> Store | None:
    """A view of what is stored; ``None`` if the crawl was killed before there was anything."""
    try:
        return open_snapshot(folder)
    except StorageError:
        if exists(folder):
            raise
        return None


def check(folder: Path, visited: int = 0) -> None:
    """Fail unless what is stored is whole, and *visited* pages were, if that is given: each counted once in its directory."""
    store = opened(folder)
    if store is None:
        return
    with closing(store):
        store.verify()
        result = audit(store)
        rows = store.scan(Family.META, DIRECTORIES, bytes((DIRECTORIES[0] + 1,)))
        counts = sorted(value[0] for _, value in rows)
    if result.violations or (visited and result.visited != visited):
        raise SystemExit(f"{folder.name}: {result}")
    if visited and counts != [1] * HOSTS + [2] * HOSTS:
        raise SystemExit(f"{folder.name}: {counts} pages of directories were counted")


def in_a_fork(work: Callable[[], None]) -> int:
    """Do *work* in a process of its own; returns its exit status, or the negative signal that killed it."""
    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            try:
                work()
                status = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                raise
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    kind, folder, each = sys.argv[1], Path(sys.argv[2]), int((sys.argv[3:] and sys.argv[3]) or 1)
    for at in count(1, each):
        job = folder / str(at)
        killed = in_a_fork(lambda job=job, at=at: crawl(kind, job, STEPS, 1e9, at))  # type: ignore[misc]
        # Recovery is killed, too, at each of its first operations in turn, and then again.
        for again in (1 + at % 5, 1 + at % 3):
            if killed == -9:
                assert in_a_fork(lambda job=job: check(job)) == 0, at  # type: ignore[misc]
                in_a_fork(lambda job=job, again=again: crawl(kind, job, STEPS, 1e9 + 1000, again))  # type: ignore[misc]
        assert in_a_fork(lambda job=job: crawl(kind, job, 2 * STEPS, 1e9 + 2000)) == 0, at  # type: ignore[misc]
        assert in_a_fork(lambda job=job: check(job, PAGES)) == 0, at  # type: ignore[misc]
        if killed != -9:
            assert killed == 0, killed
            break
    print(f"{at - each} kill points")


if __name__ == "__main__":
    main()
