"""Memory and disk: what a known URL and a queued one take, and how soon a large job is open."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import Runner, disk_bytes, resident
from work import EACH, GAP, OBJECTS_UP_TO, copied, core, store
from world import build, policy

from scrapy_aopic.core.api import Lease
from scrapy_aopic.job.job import Job


def empty() -> dict[str, Any]:
    """Resident memory of an open job without pages."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), policy())
        found = resident()
        job.close()
    return {"mb": found}


def working(folder: str, size: int, pages: int) -> dict[str, Any]:
    """Resident memory of a job after as many *pages* of work, and a quarter more."""
    found = core(folder, size, pages)
    return {"mb": found["resident"]}


def opening(folder: str) -> dict[str, Any]:
    """Seconds from nothing but an interpreter to the first request."""
    with copied(folder) as job_folder:
        began = time.perf_counter()
        job = Job(Path(job_folder), policy(gap=GAP))
        while not isinstance(job.crawl.lease(job.clock()), Lease):
            time.sleep(0.001)
        seconds = time.perf_counter() - began
        job.close()
    return {"seconds": seconds}


def disk(size: int, queued: int) -> dict[str, Any]:
    """Bytes on disk for each page of a job that was closed."""
    folder = tempfile.mkdtemp()
    build(Path(folder), size, size // EACH, queued)
    found = disk_bytes(Path(folder)) / size
    shutil.rmtree(folder)
    return {"bytes": found}


def part(run: Runner) -> None:
    """Resident memory above an empty crawl, bytes on disk, opening."""
    base = run.by_turns(("memory:empty", {}))[0]["mb"]
    for size in sorted(set(run.options.sizes)):
        name = f"{size / 1e6:g} M URLs, a fifth of them queued"
        folder = store(run, size, "urls")
        is_huge = size > OBJECTS_UP_TO
        taken = run.once("memory:working", folder=folder, size=size, pages=20_000)["mb"] - base
        run.add("memory", f"above an empty crawl ({base:.0f} MB), {name}", "MB", taken, wanted=600 if is_huge else 400)  # fmt: skip
        found = run.by_turns(("memory:opening", {"folder": folder}))[0]["seconds"]
        run.add("memory", f"opening until the first request, {name}", "s", found, wanted=3 if is_huge else 1)
        run.add("memory", f"on disk, {name}", "bytes/URL", disk_bytes(Path(folder)) / size)
    for what, queued, wanted in (("known", 0, 60), ("queued", 500_000, 220)):
        found = run.once("memory:disk", size=500_000, queued=queued)["bytes"]
        run.add("memory", f"on disk, a {what} URL", "bytes", found, wanted=wanted)
