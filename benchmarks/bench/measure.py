"""Runs each measurement in a process of its own, ours and its peers by turns, and keeps what was found as rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from typing_extensions import Self

_MORE = {"rate", "pages"}
"""What is better if there is more of it."""

_BEGIN = time.time()
PROFILE = "AOPIC_BENCH_PROFILE"
"""Environment variable that makes tasks show where their time goes."""

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / folder) for folder in ("tests", "example_project")]

_EACH = {"hosts": 1, "each": 1, "pages": 1, "n": 1, "size": 100, "queued": 100}
"""Numbers of a task that ``--most`` bounds, each with what it is multiplied by: a host has a hundred pages."""


class Absent(Exception):
    """A peer that is not installed; says how it could be."""


@dataclass
class Row:
    """One line of the table.

    Attributes:
        peer: What the peer takes for the same; ``None`` if there is none.
        ratio: Ours to the peer's, or the other way round if *more* is better.
        spread: The least and the largest ratio of paired runs, of which *ratio* is the median.
        wanted: The target: of the ratio if there is a peer, else of *ours*.
        more: Whether a larger value is the better one.
    """

    part: str
    what: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    wanted: float | None = None
    more: bool = False
    spread: tuple[float, float] | None = None

    @property
    def is_reached(self) -> bool | None:
        value = self.ratio if self.ratio is not None else self.ours
        if self.wanted is None:
            return None
        return value >= self.wanted if self.more else value <= self.wanted


class Runner:
    """Runs tasks, functions of the modules beside this one, each in a fresh process.

    Attributes:
        rows: What was found.
        notes: What was left out, and why.
    """

    def __init__(self, repeats: int, scratch: Path, options: Any) -> None:
        self.repeats = repeats
        self.scratch = scratch
        self.options = options
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def once(self, task: str, **arguments: Any) -> dict[str, Any]:
        """What *task* (``module:function``) returns; with *python* in its arguments, in that environment."""
        if most := self.options.most:
            arguments = {name: _capped(name, value, most) for name, value in arguments.items()}
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [arguments.pop("python", sys.executable), str(HERE), "--task", task, json.dumps(arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{task}({arguments}) failed:\n{done.stderr[-3000:]}")
        if os.environ.get(PROFILE):
            tqdm.write(f"{task} {arguments}: parts of its CPU time\n{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if "absent" in result:
            raise Absent(result["absent"])
        return result

    def by_turns(self, *tasks: tuple[str, dict[str, Any]], repeats: int = 0) -> list[dict[str, Any]]:
        """What each of the *tasks* returns, the best of the repeats.

        What else runs on the machine only ever adds to what something takes.
        """
        return [
            {name: (max if name in _MORE else min)(run[name] for run in runs) for name in runs[0]}
            for runs in self.rounds(*tasks, repeats=repeats)
        ]

    def rounds(self, *tasks: tuple[str, dict[str, Any]], repeats: int = 0) -> list[list[dict[str, Any]]]:
        """What each of the *tasks* returns in each repeat; the order turns round with each repeat."""
        found: list[list[dict[str, Any]]] = [[] for _ in tasks]
        repeats = repeats or self.repeats
        names = ", ".join(task for task, _ in tasks)
        with tqdm(total=repeats * len(tasks), desc=names, leave=False, disable=None) as bar:
            for repeat in range(repeats):
                numbers = range(len(tasks)) if repeat % 2 == 0 else reversed(range(len(tasks)))
                for number in numbers:
                    task, arguments = tasks[number]
                    found[number].append(self.once(task, **arguments))
                    bar.update()
        return found

    def add(self, part: str, what: str, unit: str, ours: float, **others: Any) -> None:
        """Keep a row, and show it."""
        row = Row(part, what, unit, ours, **others)
        if row.peer is not None:
            row.ratio = row.peer / row.ours if row.more else row.ours / row.peer
        self.rows.append(row)
        tqdm.write(line(row))

    def add_paired(
        self, part: str, what: str, unit: str, ours: list[float], peers: list[float], **others: Any
    ) -> None:
        """Keep a row of paired runs: the medians, and the median and the spread of the ratios of each round."""
        ratios = sorted(mine / peer for mine, peer in zip(ours, peers, strict=True))
        row = Row(part, what, unit, median(ours), median(peers), median(ratios), **others)
        row.spread = ratios[0], ratios[-1]
        self.rows.append(row)
        tqdm.write(line(row))

    def note(self, text: str) -> None:
        self.notes.append(text)
        tqdm.write(text)


def _capped(name: str, value: Any, most: int) -> Any:
    return min(value, most * _EACH[name]) if name in _EACH else value


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def with_spread(value: float | None, spread: tuple[float, float] | None) -> str:
    return number(value) + (f" ({number(spread[0])} to {number(spread[1])})" if spread else "")


HEAD = "| part | what | unit | ours | peer | ratio | wanted | |\n|---|---|---|---:|---:|---:|---:|---|"


def line(row: Row) -> str:
    """*row* as a line of the table in Markdown."""
    wanted = "" if row.wanted is None else f"{'>=' if row.more else '<='} {number(row.wanted)}"
    said = {None: "", True: "reached", False: "**missed**"}[row.is_reached]
    cells = [
        row.part,
        row.what,
        row.unit,
        number(row.ours),
        number(row.peer),
        with_spread(row.ratio, row.spread),
        wanted,
        said,
    ]
    return f"| {' | '.join(cells)} |"


# -- inside a task


class Samples:
    """Where the CPU time of the main thread goes: looked at once in a millisecond of it, which disturbs little.

    cProfile would count Python's calls several times over, and what they do inside of C once.

    Attributes:
        of: Samples by the package of the innermost frame that is not of the standard library (asyncio is one of its own).
    """

    def __init__(self) -> None:
        self._within: Counter[str] = Counter()
        self.of: Counter[str] = Counter()

    def __enter__(self) -> Self:
        signal.signal(signal.SIGPROF, self._look)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def show(self) -> None:
        """Print them."""
        for title, counts in (("by package", self.of), ("within", self._within)):
            print(title, file=sys.stderr)
            for name, n in counts.most_common(40):
                print(f"{100 * n / self.of.total():5.1f} %  {name}", file=sys.stderr)

    def _look(self, _: int, frame: FrameType | None) -> None:
        names, package = set(), ""
        while frame is not None:
            code = frame.f_code
            package = package or _package(Path(code.co_filename))
            names.add(f"{'/'.join(Path(code.co_filename).parts[-3:])}:{code.co_name}")
            frame = frame.f_back
        self._within.update(names)
        self.of[package or "Python"] += 1


def _package(file: Path) -> str:
    """The package that *file* is of, "" for one of the standard library; of this package also the folder."""
    parts = file.parts
    if "scrapy_aopic" in parts:
        return "/".join(parts[parts.index("scrapy_aopic") : -1][:2])
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    return next((name for name in ("bench", "asyncio") if name in parts), "")


@contextmanager
def samples() -> Iterator[None]:
    """Show where the time of the block goes, if that was asked for."""
    if not os.environ.get(PROFILE):
        yield
        return
    with Samples() as found:
        yield
    found.show()


@contextmanager
def cpu(per: int) -> Iterator[dict[str, float]]:
    """Microseconds of CPU that all threads of this process spend in the block, per one of *per*; and of wall time."""
    found: dict[str, float] = {}
    with samples():
        began, own, wall = time.process_time(), time.thread_time(), time.perf_counter()
        yield found
    found["us"] = (time.process_time() - began) / per * 1e6
    found["own_us"] = (time.thread_time() - own) / per * 1e6  # of this thread alone
    found["wall_us"] = (time.perf_counter() - wall) / per * 1e6


def live_by_cpu_time() -> None:
    """Let jobs live by the CPU time of this process, as they would if nothing else ran on the machine.

    Otherwise a busy machine makes more commits of fewer pages, each of which costs more CPU.
    """
    from scrapy_aopic.job.clock import JobClock

    JobClock.__call__ = lambda _: _BEGIN + time.process_time()  # type: ignore[method-assign, assignment]


def resident() -> float:
    """Resident memory of this process in MB."""
    from scrapy_aopic._engine import process_memory

    return process_memory.resident() / 1e6


def descriptors() -> int:
    """File descriptors that this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def disk_bytes(folder: Path) -> int:
    """Bytes of the files in *folder*."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
