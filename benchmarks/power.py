"""Let the power fail a thousand times while a job is written, and see what is left of it.

    python benchmarks power [--states 1000] [--stores rocksdb sqlite] [--rng 1]

A job is crawled without a network in four processes, one after the other, under strace (Linux; Debian's package strace):
two are closed, two end as by a kill. From the system calls follows what each file system may have on its disk if the
power fails before any one of them, every other time one that synchronises, as in ALICE (Pillai et al., OSDI 2014):

- what was synchronised (fsync, fdatasync) is there;
- of the blocks written since, any are there, each as it was after any of the writes to it; blocks are of 512 bytes
  or of 4 KB; a block that is not there holds what it held before, zeros behind the former end;
- the size of a file is any that it had since, whatever blocks are there;
- files made, renamed and removed since then are so or not, each by itself. Who synchronises a file also keeps its
  name, as Linux's file systems do; folders are there at once.

From each such state the job is opened, `scrapy aopic check` must hold, every row must be as at some commit, no earlier than
the last one that had landed, and the crawl must go on. Anything else is wrong, and makes the exit code 1.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import options
from damage import digest, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.ports import Store
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_snapshot

WITHOUT_GAPS = Policy(politeness=Politeness(0.0, 0.0, 0.0))
RUNS = ("close", "kill", "kill", "close")
COMMITS = 12
PAGES_A_COMMIT = 40

CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate,"
    "truncate,lseek,mkdir,mkdirat,link,linkat"
)


# -- the job that is recorded


def land(job: Job) -> None:
    while not job.shards[0].commits.is_over:
        job.commit_soon()
        job.tick()
        time.sleep(0.0005)


def record(folder: Path, kind: str, run: int, notes: Path) -> None:
    """Crawl a part of the job in *folder*; what has landed is written to *notes* as it lands."""
    dice = random.Random(run)
    witness = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    job = Job(folder, WITHOUT_GAPS, kind=kind, interval=1e9, memory_mb=1)
    for commit in range(COMMITS):
        for _ in range(dice.randrange(1, 2 * PAGES_A_COMMIT) if commit else 0):
            lease = job.crawl.lease(job.clock())
            if not isinstance(lease, Lease):  # the pause after a crash
                break
            job.crawl.release(lease, job.clock())
            number = int(lease.request.rpartition(b"/")[2])
            job.crawl.settle(lease, [link(5 * number + each) for each in range(1, 6)], job.clock())
        if commit:  # the first one is made by opening the job
            job.crawl.seed(link(dice.randrange(1 << 30)), job.clock())
        land(job)
        os.write(witness, f"{digest(job.shards[0].store).hex()}\n".encode())

    def noted(store: Store) -> None:
        os.write(witness, f"{digest(store).hex()}\n".encode())

    if RUNS[run] == "close":
        job.close(noted)
    else:
        os._exit(0)


# -- what the disk may hold


@dataclass
class File:
    """A file on the disk: what was synchronised, and what was written since.

    Attributes:
        writes: Offset and bytes, in order.
        sizes: That it had since, the synchronised one first.
    """

    durable: bytes = b""
    now: bytearray = field(default_factory=bytearray)
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: [0])

    def write(self, at: int, data: bytes) -> None:
        if len(self.now) < at + len(data):
            self.now.extend(bytes(at + len(data) - len(self.now)))
        self.now[at : at + len(data)] = data
        self.writes.append((at, data))
        self.sizes.append(len(self.now))

    def resize(self, size: int) -> None:
        del self.now[size:]
        self.now.extend(bytes(size - len(self.now)))
        self.sizes.append(size)

    def sync(self) -> None:
        self.durable = bytes(self.now)
        self.writes, self.sizes = [], [len(self.now)]

    def left(self, dice: random.Random, block: int) -> bytes:
        """What may be there after a power failure."""
        size = dice.choice((self.sizes[0], self.sizes[-1], dice.choice(self.sizes)))
        result = bytearray(self.durable[:size].ljust(size, b"\0"))
        likely = dice.choice((0.05, 0.5, 0.95))
        versions: dict[int, int] = {}
        for n, (at, data) in enumerate(self.writes):
            for begin in range(at - at % block, at + len(data), block):
                if begin not in versions:  # the last write to the block that is on the disk
                    last = len(self.writes) if dice.random() < likely else 0
                    versions[begin] = dice.randrange(len(self.writes) + 1) if dice.random() < 0.1 else last
                if n < versions[begin]:
                    first, end = max(begin, at), min(begin + block, at + len(data), size)
                    if first < end:
                        result[first:end] = data[first - at : end - at]
        return bytes(result)


class Disk:
    """Files by name, as the processes see them and as a power failure may leave them."""

    def __init__(self) -> None:
        self.names: dict[str, File] = {}
        self._durable: dict[str, File] = {}
        self._changes: list[dict[str, File | None]] = []

    def change(self, names: dict[str, File | None]) -> None:
        self._apply(self.names, names)
        self._changes.append(names)

    def sync(self, name: str) -> None:
        file = self.names.get(name)
        if file is None:  # a folder
            self._settle(lambda path, _: str(Path(path).parent) == name)
            return
        file.sync()
        self._settle(lambda _, each: each is file)

    def _settle(self, concerns: Callable[[str, File | None], bool]) -> None:
        waiting: list[dict[str, File | None]] = []
        for change in self._changes:
            if any(concerns(path, file) for path, file in change.items()):
                self._apply(self._durable, change)
                for earlier in waiting:  # of the same names
                    for name in change:
                        earlier.pop(name, None)
            else:
                waiting.append(dict(change))
        self._changes = waiting

    @staticmethod
    def _apply(names: dict[str, File], change: dict[str, File | None]) -> None:
        for name, file in change.items():
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file

    def left(self, dice: random.Random) -> dict[str, bytes]:
        names = dict(self._durable)
        likely, block = dice.choice((0.0, 0.5, 1.0)), dice.choice((512, 4096))
        for change in self._changes:
            if dice.random() < likely:
                self._apply(names, change)
        return {name: file.left(dice, block) for name, file in names.items()}


_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?(?: .*)?$")
_QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")


def escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def unescaped(quoted: str) -> bytes:
    return bytes.fromhex(quoted.replace("\\x", ""))


def calls(trace: Path, within: Path) -> Iterator[tuple[str, str, int]]:
    """Name, arguments and result of each call that concerns what is *within* a folder, in the order of their ends.

    What is reached through an open folder (``/proc/self/fd/N``) has its own path.
    """
    unfinished: dict[str, str] = {}
    folders: dict[bytes, bytes] = {}  # by the number of their descriptor
    shown, through = escaped(os.fsencode(within)), escaped(b"/proc/self/fd/")
    with trace.open("r", encoding="ascii") as lines:
        for line in lines:
            thread, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.lstrip()
            if rest.endswith("<unfinished ...>"):
                unfinished[thread] = rest.removesuffix("<unfinished ...>").rstrip()
                continue
            if rest.startswith("<... "):
                rest = unfinished.pop(thread, "") + re.sub(r"^<\.\.\. \w+ resumed>", "", rest)
            found = _CALL.match(rest)
            if found is None or int(found[3]) < 0:
                continue
            if found[1] == "openat" and "O_DIRECTORY" in found[2]:
                folders[found[3].encode()] = unescaped(found[4])
            arguments = found[2]
            if through in arguments:
                arguments = _QUOTED.sub(
                    lambda path: f'"{escaped(followed(unescaped(path[1]), folders))}"', arguments
                )
            if shown in arguments:
                yield found[1], arguments, int(found[3])


def followed(path: bytes, folders: dict[bytes, bytes]) -> bytes:
    """*path*, if it leads through one of the open *folders* then in that folder."""
    found = re.match(rb"/proc/self/fd/(\d+)/", path)
    folder = folders.get(found[1]) if found else None
    return path if found is None or folder is None else folder + b"/" + path[found.end() :]


class Tape:
    """The calls of *trace* that concern the job in *folder*, to be played one after the other.

    Attributes:
        n_calls: How many there are.
        disk: What they did so far.
        landed: Commits that have landed so far, from the *notes*.
    """

    def __init__(self, trace: Path, folder: Path, notes: Path) -> None:
        self._folder, self._notes = str(folder), str(notes)
        self._calls = list(calls(trace, folder.parent))
        self.n_calls = len(self._calls)
        self._at = 0
        self.disk, self.landed = Disk(), list[str]()
        self._offsets: dict[tuple[str, str], int] = {}

    def moment(self, dice: random.Random) -> int:
        """Number of a call before which the power fails: every other time one that synchronises."""
        syncs = [n for n, call in enumerate(self._calls) if call[0] in {"fsync", "fdatasync"}]
        return dice.choice(syncs) if dice.random() < 0.5 else dice.randrange(self.n_calls)

    def play(self, until: int) -> None:
        """Play the calls before the one with the number *until*."""
        for name, arguments, result in self._calls[self._at : until]:
            found = _DESCRIPTOR.match(arguments)
            if name not in {"openat", "creat"} and found:
                path = os.fsdecode(unescaped(found[2]))
                if path == self._notes and name == "write":
                    self.landed.append(unescaped(_QUOTED.findall(arguments)[0]).decode().strip())
                elif path.startswith(self._folder):
                    self._do(name, found[1], path, arguments[found.end() :], result)
            else:
                paths = [str(Path(os.fsdecode(unescaped(each)))) for each in _QUOTED.findall(arguments)]
                if paths[0].startswith(self._folder):
                    self._rename(name, paths, arguments, str(result))
        self._at = max(self._at, until)

    def _rename(self, name: str, paths: list[str], arguments: str, descriptor: str) -> None:
        disk, path = self.disk, paths[0]
        if name in {"openat", "creat"}:
            if path not in disk.names and "O_CREAT" in arguments:
                disk.change({path: File()})
            if path in disk.names:
                if "O_TRUNC" in arguments:
                    disk.names[path].resize(0)
                self._offsets[descriptor, path] = len(disk.names[path].now) if "O_APPEND" in arguments else 0
        elif path in disk.names and name.startswith("rename"):
            disk.change({path: None, paths[1]: disk.names[path]})
        elif path in disk.names and name.startswith("unlink"):
            disk.change({path: None})

    def _do(self, name: str, descriptor: str, path: str, arguments: str, result: int) -> None:
        file = self.disk.names.get(path)
        if name in {"fsync", "fdatasync"}:
            self.disk.sync(path)
        elif file is None:
            return  # it was removed
        elif name == "ftruncate":
            file.resize(int(arguments.rpartition(", ")[2]))
        elif name == "lseek":
            self._offsets[descriptor, path] = result
        else:
            assert name in {"write", "pwrite64"}, name
            data = unescaped(_QUOTED.findall(arguments)[0])[:result]
            at = int(arguments.rpartition(", ")[2]) if name == "pwrite64" else self._offsets[descriptor, path]
            file.write(at, data)
            if name == "write":
                self._offsets[descriptor, path] = at + len(data)


# -- the judge


def judge(folder: Path, landed: list[str], later: set[str]) -> str:
    """What is wrong with the job in *folder* after a power failure; empty if nothing is."""
    allowed = later | set(landed[-1:])
    try:
        before = 0
        if landed:
            store = open_snapshot(store_folder(folder))
            try:
                store.verify()
                result, found = audit(store), digest(store).hex()
            finally:
                store.close()
            if not result.holds:
                return f"check: {result.violations[0]}"
            if found not in allowed:
                return "check: an earlier state, or none of a commit"
            before = result.pages
        job = Job(folder, WITHOUT_GAPS, memory_mb=1)
        job.crawl.seed(link(1 << 31), job.clock())
        land(job)
        job.close()
        store = open_snapshot(store_folder(folder))
        result = audit(store)
        store.close()
    except StorageError as error:
        return re.sub(r"/\S+/", "", str(error))
    if result.holds and result.pages <= before:
        return f"afterwards: {result.pages} pages, not more than {before}"
    return "" if result.holds else f"afterwards: {result.violations[0]}"


def lay(disk: Disk, dice: random.Random, source: Path, target: Path) -> None:
    """Make *target* what may be left of *source* if the power fails now."""
    shutil.rmtree(target, ignore_errors=True)
    store_folder(target).mkdir(parents=True)
    for name, data in disk.left(dice).items():
        path = target / Path(name).relative_to(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def main() -> int:
    args = options.read(__doc__, states=1000, stores=["rocksdb", "sqlite"], rng=1, state=str, record=[])
    if args.record:
        folder, kind, run, notes = args.record
        record(Path(folder), kind, int(run), Path(notes))
        return 0
    logging.disable(logging.WARNING)
    states = [args.state] if args.state else [f"{args.rng}-{n}" for n in range(args.states)]
    n_wrong = 0
    for kind in args.stores:
        with tempfile.TemporaryDirectory(prefix="aopic-power-") as temporary:
            source, notes, trace = (Path(temporary) / name for name in ("job", "notes", "trace"))
            source.mkdir()
            me = f"{sys.executable} {__file__} --record {source} {kind}"
            script = "; ".join(f"{me} {run} {notes}" for run in range(len(RUNS)))
            strace = f"strace -f -y -xx -s 100000000 -e trace={CALLS} -e signal=none".split()
            subprocess.run([*strace, "-o", str(trace), "sh", "-c", script], check=True)
            tape, whole = Tape(trace, source, notes), notes.read_text().splitlines()
            dices = {name: random.Random(f"{kind} {name}") for name in states}
            steps = sorted((tape.moment(dice), name) for name, dice in dices.items())
            target = Path("power-state" if args.state else temporary) / "state"
            wrong: Counter[str] = Counter()
            n_late = 0
            for step, name in steps:
                tape.play(step)
                n_late += bool(tape.landed)
                lay(tape.disk, dices[name], source, target)
                if sentence := judge(target, tape.landed, set(whole[len(tape.landed) :])):
                    wrong[sentence] += 1
                    if wrong[sentence] == 1:
                        at = f"{kind}, state {name}, {len(tape.landed)} commits had landed"
                        sys.stderr.write(f"{at}: {sentence}\n")
            tape.play(tape.n_calls)
            assert tape.landed == whole
            for path in source.rglob("*"):  # the tape plays what happened
                if path.is_file() and not path.name.endswith("-shm"):  # which is written in memory
                    assert bytes(tape.disk.names[str(path)].now) == path.read_bytes(), path
            n_wrong += wrong.total()
            print(
                f"{kind}: {len(states)} power failures in {tape.n_calls:,} calls, {n_late} of them after a commit "
                f"had landed: {wrong.total()} wrong",
                flush=True,
            )
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
