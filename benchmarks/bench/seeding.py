"""Seed: how fast lists of URLs are given to a job, and taken up by its crawl."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from measure import Runner
from scrapy import Request
from scrapy.signals import request_scheduled
from stage import OURS, Stage
from world import fingerprint, host_name, page_url, policy

from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.inbox import ROWS_A_TURN

_HOSTS = 1000


def given(n: int) -> dict[str, Any]:
    """Rows a second of CPU that ``scrapy aopic seed`` checks and puts beside a job."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        add_seeds(FolderPlace(Path(folder)), [_list(Path(folder), n)])
        return {"rate": n / (time.process_time() - began)}


def core(n: int) -> dict[str, Any]:
    """Rows a second of CPU that the core and the store queue, all of them new."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), policy())
        began = time.process_time()
        for number in range(n):
            host = number % _HOSTS
            url, name = page_url(host, number), host_name(host)
            key = page_key(host_key(name), fingerprint(url))
            job.crawl.seed(Link(key, name, url.encode()), job.clock())
            if number % ROWS_A_TURN == 0:
                job.tick(ROWS_A_TURN)
        job.close()
        return {"rate": n / (time.process_time() - began)}


def taken(n: int, is_watched: bool = False) -> dict[str, Any]:
    """Rows a second of CPU that a crawl takes up, one in which somebody looks at each request if *is_watched*."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage({**OURS, "JOBDIR": folder, "AOPIC_SEEDS": _list(Path(folder), n)})
        vars(stage.engine)["crawl"] = stage.scheduler.enqueue_request
        if is_watched:
            stage.crawler.signals.connect(_look, signal=request_scheduled)
        assert stage.session is not None
        began = time.process_time()
        while len(stage.scheduler) < n:
            stage.session._beat()
        stage.scheduler.close("finished")
        return {"rate": n / (time.process_time() - began)}


def _look(request: Request) -> None:
    pass


def _list(folder: Path, n: int) -> str:
    path = folder / "seeds.txt"
    path.write_text("".join(f"{page_url(each % _HOSTS, each)}\n" for each in range(n)), encoding="ascii")
    return str(path)


def part(run: Runner) -> None:
    """Seeds from a list."""
    arguments = {"n": 200_000}
    found = run.by_turns(
        ("seeding:given", arguments),
        ("seeding:core", arguments),
        ("seeding:taken", {"n": 50_000}),
        ("seeding:taken", {"n": 50_000, "is_watched": True}),
    )
    run.add(
        "seed",
        "given to a job (`scrapy aopic seed`)",
        "URLs/s CPU",
        found[0]["rate"],
        wanted=100_000,
        more=True,
    )
    run.add(
        "seed", "queued by the core and the store", "URLs/s CPU", found[1]["rate"], wanted=100_000, more=True
    )
    run.add("seed", "taken up by a crawl", "URLs/s CPU", found[2]["rate"])
    run.add("seed", "taken up by a crawl that looks at requests", "URLs/s CPU", found[3]["rate"])
