"""Seen: whether the page of a link is known, beside Scrapy's set, scrapy-redis' and Bloom filters."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from measure import Absent, Runner, cpu
from peers import redis, without_redis
from scrapy import Request
from work import EACH, OBJECTS_UP_TO, copied, store
from world import fingerprint, host_name, page_url, policy

from scrapy_aopic.core.records import host_key, page_key
from scrapy_aopic.job.job import Job

_CHECKS = 50_000


def _urls(size: int, first: int) -> list[tuple[int, str]]:
    """Known URLs of the first *first* hosts, in no order."""
    draw = random.Random(3)
    hosts = (draw.randrange(first) for _ in range(min(_CHECKS, 100 * first)))
    return [(host, page_url(host, draw.randrange(EACH))) for host in hosts]


def ours(folder: str, size: int, kind: str) -> dict[str, Any]:
    """Microseconds a check: *kind* is ``hit`` (in memory), ``miss`` (on disk) or ``new`` (nowhere)."""
    first = min(size // EACH, 500) if kind == "hit" else size // EACH
    with copied(folder) as job_folder:
        job = Job(Path(job_folder), policy())
        keys = [page_key(host_key(host_name(host)), fingerprint(url)) for host, url in _urls(size, first)]
        if kind == "new":
            keys = [key[:8] + page_key(b"", key) for key in keys]
        page = job.crawl.page
        if kind == "hit":
            for key in keys:
                page(key)
        with cpu(len(keys)) as found:
            for key in keys:
                page(key)
        job.close()
    return found


def scrapy_set(size: int) -> dict[str, Any]:
    from scrapy.dupefilters import RFPDupeFilter
    from scrapy.utils.request import fingerprint as of_scrapy

    dupefilter = RFPDupeFilter()
    dupefilter._fingerprints.update(
        fingerprint(page_url(host, page)) for host in range(size // EACH) for page in range(EACH)
    )
    requests = [Request(url) for _, url in _urls(size, size // EACH)]
    for request in requests:
        of_scrapy(request)  # it is kept beside the request
    with cpu(len(requests)) as found:
        for request in requests:
            dupefilter.request_seen(request)
    with cpu(len(requests)) as known:
        for request in requests:
            of_scrapy(request)
    return {"us": found["us"] - known["us"]}


def scrapy_redis(size: int) -> dict[str, Any]:
    """A check of scrapy-redis, whose server is asked each time and whose CPU time is counted too."""
    if reason := without_redis():
        raise Absent(reason)
    from scrapy.settings import Settings
    from scrapy_redis.dupefilter import RFPDupeFilter

    with redis() as (settings, seconds):
        dupefilter = RFPDupeFilter.from_settings(Settings(settings))
        for host in range(size // EACH):
            urls = (page_url(host, page) for page in range(EACH))
            dupefilter.server.sadd(
                dupefilter.key, *(dupefilter.request_fingerprint(Request(url)) for url in urls)
            )
        requests = [Request(url) for _, url in _urls(size, size // EACH)]
        began = seconds()
        with cpu(len(requests)) as found:
            for request in requests:
                assert dupefilter.request_seen(request)
        server = (seconds() - began) / len(requests) * 1e6
        with cpu(len(requests)) as known:
            for request in requests:
                dupefilter.request_fingerprint(request)
    return {"us": found["us"] + server - known["us"]}


def pybloom(size: int) -> dict[str, Any]:
    try:
        from pybloom_live import BloomFilter
    except ImportError as error:
        raise Absent("pybloom-live is not installed; make bench installs it.") from error
    bloom = BloomFilter(size, 0.001)
    return _bloom(bloom, bloom.add, size)


def rbloom(size: int) -> dict[str, Any]:
    try:
        from rbloom import Bloom
    except ImportError as error:
        raise Absent("rbloom is not installed; make bench installs it.") from error
    bloom = Bloom(size, 0.001, lambda key: int.from_bytes(key[:16], "big", signed=True))
    return _bloom(bloom, bloom.add, size)


def _bloom(bloom: Any, add: Any, size: int) -> dict[str, Any]:
    for host in range(size // EACH):
        for page in range(EACH):
            add(fingerprint(page_url(host, page)))
    keys = [fingerprint(url) for _, url in _urls(size, size // EACH)]
    with cpu(len(keys)) as found:
        for key in keys:
            assert key in bloom
    return found


def part(run: Runner) -> None:
    """Seen-checks in memory and on disk."""
    size = min(max(run.options.sizes), OBJECTS_UP_TO)
    folder = store(run, size)
    tasks = [("seen:ours", {"folder": folder, "size": size, "kind": kind}) for kind in ("hit", "miss", "new")]
    found = run.by_turns(*tasks)
    for mine, what, wanted in zip(found, ("in memory", "on disk", "new"), (1.5, 12, 12), strict=True):
        run.add(
            "seen",
            f"check of a URL that is {what}, {size / 1e6:g} M URLs",
            "us CPU",
            mine["us"],
            wanted=wanted,
        )
    peer_size = min(size, 1_000_000)
    for name, task in (
        ("RFPDupeFilter", "scrapy_set"),
        ("scrapy-redis and its server", "scrapy_redis"),
        ("pybloom-live", "pybloom"),
        ("rbloom", "rbloom"),
    ):
        try:
            mine, other = run.by_turns(tasks[0], (f"seen:{task}", {"size": peer_size}))
        except Absent as absent:
            run.note(str(absent))
            continue
        run.add("seen", f"check in memory, to {name} of {peer_size / 1e6:g} M", "us CPU", mine["us"], peer=other["us"])  # fmt: skip
