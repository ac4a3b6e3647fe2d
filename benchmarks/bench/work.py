"""Work: the ledger, the frontier and the seen-set for a page with 40 links (8 of them new), on a store of N URLs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Runner, cpu, disk_bytes, live_by_cpu_time, resident
from stage import OURS, STOCK, Stage
from world import Links, build, check_fingerprint, fingerprint, page_url, policy

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.politeness import Outcome, TransferResult
from scrapy_aopic.core.records import Link, host_key, page_key
from scrapy_aopic.job.job import Job
from scrapy_aopic.web.request_rows import url_of

if TYPE_CHECKING:
    from collections.abc import Callable


EACH = 100
"""Known pages of a host."""

OBJECTS_UP_TO = 10_000_000
"""Known URLs up to which there is a job by Scrapy's fingerprints, too."""

GAP = 0.2
"""Seconds for which a host is left alone, so that some hundreds of hosts are crawled at once."""

_STOCK_HOSTS, _STOCK_EACH = 500, 40

_NAMES: dict[str, Callable[[str], bytes]] = {"fingerprints": fingerprint, "urls": str.encode}
"""What a page is known by: Scrapy's fingerprint, or its URL where nothing is Scrapy's."""


def make(folder: str, size: int, names: str) -> dict[str, Any]:
    """A job that knows *size* pages, of which a fifth waits."""
    with cpu(size) as found:
        build(Path(folder), size, size // EACH, size // 5, _NAMES[names])
    return {**found, "disk": disk_bytes(Path(folder))}


def core(folder: str, size: int, pages: int, each_commit: int = 0) -> dict[str, Any]:
    """URLs of links in, the best URL out, durable: without Scrapy's objects.

    With *each_commit*, a commit is due after that many pages.
    """
    live_by_cpu_time()
    with copied(folder) as job_folder:
        job = Job(Path(job_folder), policy(gap=GAP))
        watched = job.shards[0].watched
        watched.most_steps = each_commit or watched.most_steps
        found = measured(*visits(job, size), pages)
        job.close()
        return found


def visits(job: Job, size: int) -> tuple[Callable[[], None], Links]:
    """A function that visits the next page of *job*, which began with *size* known ones; and its links."""
    crawl, links = job.crawl, Links(size // EACH, EACH)
    hosts: dict[str, bytes] = {}

    def visit() -> None:
        now = job.clock()
        lease = crawl.lease(now)
        while isinstance(lease, NotBefore):  # a job of few hosts, which is there to be tried
            lease = crawl.lease(job.clock())
        if not isinstance(lease, Lease):
            raise TypeError(f"{lease} is no page")
        targets = []
        url = url_of(lease.request)
        for target in dict.fromkeys(links.of(url)):
            name = target[7 : target.index("/", 7)]
            host = hosts.get(name)
            if host is None:
                host = hosts[name] = host_key(name)
            data = target.encode()  # what a plain request is written as
            targets.append(Link(page_key(host, data), name, data))
        crawl.transferred(lease.host, TransferResult(0.02, Outcome.ANSWER), now)
        crawl.release(lease, now)
        crawl.settle(lease, targets, now, Findings(n_links=len(targets)))
        job.tick()

    return visit, links


def measured(
    visit: Callable[[], None], links: Links, pages: int, begins: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """CPU time of a *visit*, without what making its *links* takes, after as many visits as fill the caches.

    Args:
        begins: Called when these are over.
    """
    for _ in range(pages // 4):
        visit()
    begins()
    links.seconds = 0.0
    with cpu(pages) as found:
        for _ in range(pages):
            visit()
    found["us"] -= links.seconds / pages * 1e6
    return {**found, "rate": 1e6 / found["us"], "resident": resident()}


def objects(folder: str, size: int, pages: int) -> dict[str, Any]:
    """The same through the scheduler, with a ``Request`` for each distinct link."""
    live_by_cpu_time()
    with copied(folder) as job_folder:
        stage = Stage({**OURS, "JOBDIR": job_folder, "AOPIC_MIN_GAP": GAP})
        return _through(stage, Links(size // EACH, EACH), pages)


def links(folder: str, size: int, pages: int) -> dict[str, Any]:
    """The same through the link middleware, to which the links of a page are given at once (``Links``)."""
    live_by_cpu_time()
    with copied(folder) as job_folder:
        stage = Stage({**OURS, "JOBDIR": job_folder, "AOPIC_MIN_GAP": GAP})
        return _through(stage, Links(size // EACH, EACH), pages, at_once=True)


def stock(size: int, pages: int) -> dict[str, Any]:
    """The same through Scrapy's scheduler with JOBDIR; it knows *size* fingerprints and queues some thousand pages."""
    check_fingerprint()
    with tempfile.TemporaryDirectory() as job_folder:
        known = (fingerprint(page_url(host, page)) for host in range(size // EACH) for page in range(EACH))
        # As Scrapy 2.19 keeps them: each after its length.
        Path(job_folder, "requests.seen").write_bytes(b"".join(b"\0\x14" + each for each in known))
        stage = Stage({**STOCK, "JOBDIR": job_folder})
        assert stage.scheduler.df.request_seen(stage.request(page_url(0, 0))), "Scrapy reads another file"
        for host in range(_STOCK_HOSTS):
            for page in range(EACH, EACH + _STOCK_EACH):
                stage.scheduler.enqueue_request(stage.request(page_url(host, page)))
        return _through(stage, Links(size // EACH, EACH + _STOCK_EACH), pages)


def _through(stage: Stage, links: Links, pages: int, *, at_once: bool = False) -> dict[str, Any]:
    def visit() -> None:
        page = stage.pop()
        if at_once:
            stage.follow(page, dict.fromkeys(links.of(page.url)))
        else:
            link = stage.link(page)
            for url in dict.fromkeys(links.of(page.url)):
                link(stage.request(url))
        stage.transferred(page)
        stage.done(page)

    found = measured(visit, links, pages)
    stage.scheduler.close("finished")
    return found


class copied:
    """A copy of a job, to be changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        self._temporary = tempfile.TemporaryDirectory()
        return shutil.copytree(self._folder, f"{self._temporary.name}/job", copy_function=_link)

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()


def _link(source: str, target: str) -> None:
    """Tables are never changed, so a second name is as good as a copy."""
    if source.endswith(".sst"):
        Path(target).hardlink_to(source)
    else:
        shutil.copy(source, target)


def store(run: Runner, size: int, names: str = "fingerprints") -> str:
    """The folder of a job that knows *size* pages, made once."""
    folder = run.scratch / f"job-{size}-{names}"
    if not folder.exists():
        made = run.once("work:make", folder=str(folder), size=size, names=names)
        run.note(f"Making a job of {size:,} pages took {made['us']:.1f} us CPU a page.")
    return str(folder)


def part(run: Runner) -> None:
    """A page with 40 links: of the core and the store alone, and through Scrapy's objects."""
    sizes = sorted(set(run.options.sizes))
    first, last = sizes[0], sizes[-1]
    rates = {}
    for size in sizes:
        name = f"{size / 1e6:g} M URLs"
        tasks: list[tuple[str, dict[str, Any]]] = [
            ("work:core", {"folder": store(run, size, "urls"), "size": size, "pages": 4000})
        ]
        if size <= OBJECTS_UP_TO:
            what = {"folder": store(run, size), "size": size, "pages": 2000}
            tasks += [("work:links", what), ("work:objects", what)]
        if size == first and size <= OBJECTS_UP_TO:
            tasks.append(("work:stock", {"size": size, "pages": 2000}))
        core_, *others = run.by_turns(*tasks)
        rates[size] = core_["us"]
        run.add("work", f"core and store, {name}", "pages/s CPU", core_["rate"], wanted=4000, more=True)
        for words, found in zip(("through Links", "through Scrapy's objects"), others[:2], strict=False):
            run.add("work", f"{words}, {name}", "pages/s CPU", found["rate"], wanted=1500, more=True)
        if size == first and size <= OBJECTS_UP_TO:
            links_, objects_, stock_ = others
            for way, mine, wanted in (
                ("core and store", core_, 0.25),
                ("through Links", links_, 0.45),
                ("through Scrapy's objects", objects_, 0.7),
            ):
                run.add("work", f"{way}, to Scrapy's scheduler with JOBDIR, {name}", "us CPU/page", mine["us"], peer=stock_["us"], wanted=wanted)  # fmt: skip
    if last > first:
        run.add("work", f"core and store, {last / 1e6:g} M URLs to {first / 1e6:g} M", "us CPU/page", rates[last], peer=rates[first], wanted=2)  # fmt: skip
