"""What damage to each part of each file of a store does to who opens, checks, copies and salvages it.

    python benchmarks damage [--cases 2] [--pages 3000] [--stores rocksdb sqlite]

Jobs are crawled without a network, and left closed, as by a kill, and as by a kill after they went on. Then a part of a file of
a copy is damaged: the first or the last bytes, where the formats of RocksDB and SQLite have what says what the rest is, or an
eighth of what lies between. The part is changed in one bit, filled with zeros or noise, or with another part of its file; the
file is cut off there, emptied, or removed.

The copy is looked at (a snapshot and `scrapy aopic check`), opened for writing, copied, and salvaged. The damage is

- refused: one sentence says what is wrong, and nothing is opened;
- named: `check` finds it;
- harmless: every row is as it was;
- reported: a WARNING says that the last commit was left out, and every row is as at the one before;
- WRONG: rows differ and nothing says so, or something else than a StorageError is raised. There must be none.

A job that was refused or named is salvaged; then everything must hold in the new job.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import options

from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.copies.salvaging import salvage_job
from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.core.revisits import Version
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.storage import open_snapshot, open_store
from scrapy_aopic.view.auditing import audit_job

_COMMIT = 100
STATES = ("closed", "killed", "resumed")
EDGE, SHARES = 128, 8
"""Bytes at the beginning and the end of a file, and parts of what is between."""
HOWS = ("bit", "zeros", "noise", "other part", "cut", "emptied", "gone")
_GRAVITY = ("harmless", "named", "refused", "reported", "WRONG")


# -- the jobs


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


def make(folder: Path, kind: str, pages: int, state: str) -> set[bytes]:
    """Crawl a job into *folder*; returns the digests of its commits before the last one."""
    work, digests = folder.with_name("work"), list[bytes]()
    steps = pages // 2
    if state == "resumed":
        _crawl(work, kind, pages, range(steps // 2), digests, is_clean=True)
        _crawl(work, kind, pages, range(steps // 2, steps), digests, copy=folder)
    else:
        _crawl(work, kind, pages, range(steps), digests, is_clean=state == "closed", copy=folder)
    shutil.rmtree(work)
    return set(digests[:-1])


def _crawl(  # noqa: PLR0917
    work: Path,
    kind: str,
    pages: int,
    steps: range,
    digests: list[bytes],
    copy: Path | None = None,
    *,
    is_clean: bool = False,
) -> None:
    dice, store, now = (
        random.Random(steps.start),
        open_store(work, kind, memory_mb=1),
        1e9 + 1000 * steps.start,
    )
    crawl = Crawl(store, Policy(keep_links=True), now)
    crawl.seed(link(0), now)

    def commit(*, is_clean: bool = False) -> None:
        store.write(crawl.take_changes(now, is_clean=is_clean), sync=True)
        crawl.changes_landed()
        digests.append(digest(store))

    for step in steps:
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = lease.instant
            lease = crawl.lease(now)
        assert isinstance(lease, Lease)
        crawl.release(lease, now)
        links = [link(dice.randrange(pages)) for _ in range(5)]
        crawl.settle(lease, links, now, Findings(version=Version(b"%16d" % (step // 2))))
        if step % _COMMIT == _COMMIT - 1:
            commit()
    commit(is_clean=is_clean)
    if copy is not None and not is_clean:
        shutil.copytree(work, copy)
    store.close()
    if copy is not None and is_clean:
        shutil.copytree(work, copy)


# -- the parts of the files


class Part(NamedTuple):
    """A part of a file, from *begin* to before *end*."""

    name: str
    path: Path
    begin: int
    end: int


def parts(folder: Path) -> Iterator[Part]:
    """Parts of the files in *folder*, which belong to a store: the first and last bytes of each, where formats have what says
    what the rest is, and an equal share of it between."""
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        edge = min(EDGE, size // 3)
        each = max((size - 2 * edge) // SHARES, 1)
        found = {"beginning": (0, edge), "end": (size - edge, size)}
        found |= {f"share {n}": (edge + n * each, min(edge + (n + 1) * each, size)) for n in range(SHARES)}
        kind = path.suffix[1:] if path.suffix in {".sst", ".log"} else path.name.partition("-0")[0]
        for name, (begin, end) in found.items():
            if begin < end:
                yield Part(f"{kind}: {name}", path, begin, end)


def damage(part: Part, how: str, dice: random.Random) -> None:
    data = bytearray(part.path.read_bytes())
    begin, end = part.begin, min(part.end, part.begin + 4096)
    if how == "gone":
        part.path.unlink()
        return
    if how == "bit":
        data[dice.randrange(part.begin, part.end)] ^= 1 << dice.randrange(8)
    elif how == "zeros":
        data[begin:end] = bytes(end - begin)
    elif how == "noise":
        data[begin:end] = dice.randbytes(end - begin)
    elif how == "other part":  # as if a block had been written in the wrong place
        other = max(0, begin - (end - begin)) if dice.random() < 0.5 else min(end, len(data) - (end - begin))
        data[begin:end] = data[other : other + end - begin]
    else:
        del data[0 if how == "emptied" else dice.randrange(part.begin, part.end) :]
    part.path.write_bytes(data)


def spoil(whole: Path, job: Path, part: Part, how: str, where: str) -> None:
    """Make the store of *job* a copy of *whole* in which a *part* is damaged."""
    folder = store_folder(job)
    shutil.rmtree(job)
    shutil.copytree(whole, folder)
    damage(part._replace(path=folder / part.path.name), how, random.Random(where))


# -- the judge


class Warnings(logging.Handler):
    """Whether the package said that a commit is left out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = False

    def emit(self, record: logging.LogRecord) -> None:
        self.said = self.said or "is not whole" in record.getMessage()


def judge(
    job: Path, opening: Callable[[Path], Store], earlier: set[bytes], last: bytes, warnings: Warnings
) -> str:
    """What the damage to *job* does to who opens it."""
    warnings.said = False
    try:
        store = opening(store_folder(job))
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
    return "reported" if found in earlier and warnings.said else "WRONG"


def copied(job: Path) -> Callable[[Path], Store]:
    """Opens a copy of *job*, as ``scrapy aopic backup`` makes it."""

    def opening(_: Path) -> Store:
        target = job.with_name("backup")
        shutil.rmtree(target, ignore_errors=True)
        backup(FolderPlace(job), target)
        return open_snapshot(store_folder(target))

    return opening


def salvaged(job: Path) -> bool:
    """Whether a salvage of *job* makes a new one that holds."""
    new = job.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    salvage_job(FolderPlace(job), new)
    return audit_job(FolderPlace(new)).holds


def main() -> int:
    args = options.read(__doc__, cases=2, pages=3000, rng=1, stores=["rocksdb", "sqlite"], sample=int)
    warnings = Warnings()
    logging.getLogger("scrapy_aopic").addHandler(warnings)
    logging.getLogger("scrapy_aopic").propagate = False
    n_wrong = 0
    for kind in args.stores:
        for state in STATES:
            with tempfile.TemporaryDirectory() as temporary:
                n_wrong += _damage_all(Path(temporary), kind, state, args, warnings)
    return 1 if n_wrong else 0


def _damage_all(folder: Path, kind: str, state: str, options: Any, warnings: Warnings) -> int:
    whole, job = folder / "whole", folder / "job"
    earlier = make(whole, kind, options.pages, state)
    shutil.copytree(whole, store_folder(job))
    store = open_snapshot(store_folder(job))
    last = digest(store)
    store.close()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    cases = [
        (part, how, case)
        for part in parts(whole)
        for how in HOWS
        for case in range(1 if how in {"zeros", "emptied", "gone"} else options.cases)
    ]
    if options.sample:
        cases = random.Random(options.rng).sample(cases, min(options.sample, len(cases)))
    for part, how, case in cases:
        where = f"{options.rng}: {kind}, {state}, {part.name} ({part.path.name}), {how}, case {case}"
        verdicts = []
        for opening in (open_snapshot, open_store, copied(job)):
            spoil(whole, job, part, how, where)
            verdicts.append(judge(job, opening, earlier, last, warnings))
        verdict = max(verdicts, key=_GRAVITY.index)
        if verdict in {"refused", "named"}:
            spoil(whole, job, part, how, where)
            try:
                verdict = verdict if salvaged(job) else "WRONG"
            except StorageError as error:
                counts[part.name]["not salvaged"] += 1
                sys.stderr.write(f"{where}: not salvaged: {error}\n")
        counts[part.name][verdict] += 1
        if verdict == "WRONG":
            sys.stderr.write(f"{where}: {verdicts}\n")
    for name, found in [*counts.items(), ("", sum(counts.values(), Counter[str]()))]:
        shown = ", ".join(f"{verdict} {n}" for verdict, n in sorted(found.items()))
        print(f"{kind}, {state}{', ' if name else ''}{name}: {shown}", flush=True)
    return found["WRONG"]


if __name__ == "__main__":
    sys.exit(main())
