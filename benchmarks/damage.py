"""What damage to the files of a store does: single bytes that are changed, and files that are cut short.

    python benchmarks/damage.py --cases 100 --pages 3000

A job is crawled without a network, and closed or left as by a kill. Then one file of a copy of it is damaged at
random, the larger the file the likelier, and the copy is judged in both ways in which a store is opened. The damage is

- refused: the store is not opened, and one sentence says so;
- named: ``scrapy aopic check`` finds it;
- harmless: every row is as it was;
- earlier: every row is as it was at an earlier commit, as if the process had died then;
- WRONG: rows differ and nothing says so. There must be none: the exit code is 1 if there is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl, Policy
from scrapy_aopic.core.frontier import NotBefore
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage import open_snapshot, open_store

_COMMIT = 100


def link(number: int) -> Link:
    host = f"h{number % 37}.test"
    request = pack({"url": f"http://{host}/{number}"})
    return Link(page_key(host_key(host), b"%d" % number), host, request)


def digest(store: Store) -> bytes:
    """What tells one content of *store* from another."""
    result = blake2b()
    for family in Family:
        for key, value in store.scan(family):
            result.update(pack((int(family), key, value)))
    return result.digest()


def make(folder: Path, kind: str, pages: int, *, is_closed: bool) -> set[bytes]:
    """Crawl a job into *folder*; returns the digests of all its commits, the last one included."""
    dice = random.Random(1)
    work = folder.with_name("work")
    store, now = open_store(work, kind, memory_mb=1), 1e9
    crawl = Crawl(store, Policy(), now)
    crawl.seed(link(0), now)
    digests = {digest(store)}

    def commit(*, is_clean: bool = False) -> None:
        store.write(crawl.take_changes(now, is_clean=is_clean), sync=True)
        crawl.changes_landed()
        digests.add(digest(store))

    for step in range(pages // 2):
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = lease.instant
            lease = crawl.lease(now)
        assert isinstance(lease, Lease)
        crawl.release(lease, now)
        crawl.settle(lease, [link(dice.randrange(pages)) for _ in range(5)], now)
        if step % _COMMIT == _COMMIT - 1:
            commit()
    commit(is_clean=is_closed)
    if is_closed:
        store.close()
    shutil.copytree(work, folder)
    store.close()
    shutil.rmtree(work)
    return digests


def damage(folder: Path, dice: random.Random, how: str) -> str:
    """Damage one file of *folder*; returns which and where."""
    files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
    (path,) = dice.choices(files, [path.stat().st_size for path in files])
    data = bytearray(path.read_bytes())
    at = dice.randrange(len(data))
    if how == "byte":
        data[at] ^= dice.randrange(1, 256)
    else:
        del data[at:]
    path.write_bytes(data)
    return f"{how} {at:,} of {path.name}"


def judge(folder: Path, opening: Callable[[Path], Store], digests: set[bytes], last: bytes) -> str:
    """What the damage to *folder* does to who opens it."""
    try:
        store = opening(folder)
    except StorageError:
        return "refused"
    try:
        store.verify()
        if not audit(store).holds:
            return "named"
        found = digest(store)
    except StorageError:
        return "named"
    finally:
        store.close()
    if found == last:
        return "harmless"
    return "earlier" if found in digests else "WRONG"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100, help="cases of each kind of damage (default: 100)")
    parser.add_argument("--pages", type=int, default=3000, help="pages of the web (default: 3000)")
    parser.add_argument("--rng", type=int, default=1, help="seed of the random numbers (default: 1)")
    parser.add_argument("--stores", nargs="+", default=["rocksdb", "sqlite"])
    options = parser.parse_args()
    wrong = 0
    for kind in options.stores:
        for is_closed in (True, False):
            with tempfile.TemporaryDirectory() as temporary:
                whole, copy = Path(temporary) / "whole", Path(temporary) / "copy"
                digests = make(whole, kind, options.pages, is_closed=is_closed)
                shutil.copytree(whole, copy)
                store = open_store(copy)
                last = digest(store)
                store.close()
                for how in ("byte", "cut"):
                    counts: Counter[str] = Counter()
                    for case in range(options.cases):
                        verdicts = []
                        for opening in (open_snapshot, open_store):
                            shutil.rmtree(copy)
                            shutil.copytree(whole, copy)
                            where = damage(copy, random.Random(f"{options.rng} {how} {case}"), how)
                            verdicts.append(judge(copy, opening, digests, last))
                        verdict = max(verdicts, key=_GRAVITY.index)
                        counts[verdict] += 1
                        if verdict == "WRONG" or (verdict == "earlier" and is_closed):
                            sys.stderr.write(f"{kind}, {verdicts}: {where}, case {case}\n")
                        wrong += verdict == "WRONG"
                    state = "closed" if is_closed else "killed"
                    shown = ", ".join(f"{name} {counts[name]}" for name in _GRAVITY if counts[name])
                    sys.stdout.write(f"{kind}, {state}, {options.cases} x {how}: {shown}\n")
                    sys.stdout.flush()
    return 1 if wrong else 0


_GRAVITY = ("harmless", "named", "refused", "earlier", "WRONG")

if __name__ == "__main__":
    sys.exit(main())
