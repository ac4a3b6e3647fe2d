"""All benchmarks: what each shows, the page that quotes it, and its short form. ``docs/measurements.md`` has it as a table."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Benchmark(NamedTuple):
    """A program that measures something.

    Attributes:
        shows: What.
        page: The document that quotes its figures.
        short: Options of the short form, which takes seconds and shows that all of it runs; several are divided by ``;``.
            Files are those of :mod:`made_up`.
        seconds: What the short form takes on two cores with little else to do, roughly.
        script: The file or folder beside this one; that of its name if none is given.
        words: What its script is given before the options.
        needs: What must be there, a key of :data:`NEEDS`.
    """

    shows: str
    page: str
    short: str
    seconds: int
    script: str = ""
    words: str = ""
    needs: str = ""


def _part(
    name: str, shows: str, page: str, seconds: int, *, options: str = "", needs: str = ""
) -> dict[str, Benchmark]:
    short = f"--most 20 --repeats 1 --sizes 1000 --pages 20 {options}".strip()
    return {name: Benchmark(shows, page, short, seconds, "bench", name, needs)}


TABLE: dict[str, Benchmark] = {
    **_part("crawl", "CPU of a page of whole crawls, beside Scrapy", "measurements.md", 30, options="--webs 1000x40"),
    **_part("peers", "CPU of a page beside other crawlers", "evidence.md", 20),
    **_part("queue", "the scheduler beside Scrapy's and scrapy-redis", "measurements.md", 40),
    **_part("work", "ledger, frontier and store for a page, with up to 100 million URLs known", "measurements.md", 15),
    **_part("memory", "memory and disk of a job, and how soon it is open", "measurements.md", 10),
    **_part("redis", "the same work on a server, and bytes of a URL there", "measurements.md", 15, needs="a server"),
    "since": Benchmark("what a page costs beside an earlier commit: CPU, in whose code, instructions", "CONTRIBUTING.md", "--kinds Links --counted 2 4", 90, needs="valgrind"),
    "order": Benchmark("how early important pages are fetched: real crawls, all graphs, and what each rule is worth", "order-evidence.md", "demo --pages 30; without . --only webkb-1997 --seeds 2 --sets 1 --rules groups", 18),
    "farms": Benchmark("what farms of domains take beside honest sites", "order-evidence.md", "--sizes 10 --fetches 50", 6),
    "honest": Benchmark("what is fetched of honest parts that look like traps", "order-evidence.md", "webkb-1997.npz --urls webkb-1997.urls.gz --sets 1 --seeds 2 --kinds shop", 8),
    "freshness": Benchmark("how fresh copies are in a recrawl", "order-evidence.md", "wikispeedia.npz --budgets 0.2 --policies cash --rng 1 --before 1 --during 1 --jobs 1", 5),
    "births": Benchmark("how soon new pages are fetched in real crawls that go on", "order-evidence.md", "--pages 20 --publishers 2 --every 2 --seconds 9 --kinds discovery", 15),
    "workers": Benchmark("what it costs to share a crawl over workers, and the capacity plan", "measurements.md", "--kinds redis-links disks --shards 2 --workers 1 --hosts 6 --pages 2 --links 3 --topics graded", 30, needs="a server"),
    "politeness": Benchmark("a crawl judged by the servers' logs", "evidence.md", "--kills 1 --after 2 --size 0.02", 50),
    "hostile_pages": Benchmark("what pages that are hard to read take from a good host beside them", "evidence.md", "--kinds 'of ten' --scale 0.01 --seconds 1 --evil 1", 20),
    "kills": Benchmark("kills at random moments", "evidence.md", "--kills 2 --kills-per-job 2 --pages 100", 15),
    "power": Benchmark("what is left after a power failure", "evidence.md", "--states 4 --stores sqlite", 15, needs="strace"),
    "damage": Benchmark("damaged files of a store", "evidence.md", "--cases 1 --pages 200 --stores sqlite --sample 4", 15),
    "soak": Benchmark("whether anything grows in a long crawl", "measurements.md", "--job soaked --pages 300 --hosts 50 --every 0.04", 15),
    "focused": Benchmark("relevant pages on held-out topics, by strategy", "measurements.md", "DIR --sets 1 --fetches 30 --examples 5 --most 20", 20),
    "mutants": Benchmark("small bugs that no test notices", "tests/README.md", "core/leases.py --each 1", 30, needs="coverage"),
    "screen": Benchmark("how often the dashboard's sentence contradicts its figures", "decisions.md", "--kinds demo --seconds 4", 12),
    "pictures": Benchmark("the pictures of the dashboard", "README.md", "", 70, needs="a browser"),
}  # fmt: skip
"""By name."""


def _server() -> bool:
    sys.path.insert(0, str(HERE.parent / "tests"))
    from support.redis_server import find_server

    return find_server() is not None


def _browser() -> bool:
    sys.path.insert(0, str(HERE.parent / "tests"))
    from support.chromium import CHROMIUM, DRIVER

    return bool(CHROMIUM and DRIVER and find_spec("selenium"))


NEEDS: dict[str, Callable[[], bool]] = {
    "": lambda: True,
    "a server": _server,
    "a browser": _browser,
    "strace": lambda: shutil.which("strace") is not None,
    "valgrind": lambda: shutil.which("valgrind") is not None,
    "coverage": lambda: find_spec("coverage") is not None,
}
"""Whether something is there."""

WITH_SECONDS_OF_THEIR_OWN = {"politeness", "soak"}
"""Whose short forms may end with 1, as the machine was too busy, or the crawl too short to be steady."""


def script_of(name: str) -> Path:
    """The file, or the folder, that the benchmark called *name* is in."""
    folder = HERE / (TABLE[name].script or name)
    return folder if folder.is_dir() else HERE / f"{name}.py"


def markdown() -> str:
    """All benchmarks as a table."""
    lines = ["| name | shows | quoted by | short form, s |", "|---|---|---|---:|"]
    for name, each in TABLE.items():
        page = each.page.rpartition("/")[2]
        target = {"README.md": "../README.md", "CONTRIBUTING.md": "../CONTRIBUTING.md"}.get(
            each.page, each.page
        )
        target = f"../{target}" if target.startswith("tests/") else target
        needs = f"; needs {each.needs}" if each.needs else ""
        lines.append(f"| `{name}` | {each.shows}{needs} | [{page}]({target}) | {each.seconds} |")
    return "\n".join([*lines, ""])
