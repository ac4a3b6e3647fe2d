"""What a crawl remembers in memory does not grow with the pages that it has visited."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from support.core_crawl import Job, link

from scrapy_aopic.core import leases

CODE = (type, ModuleType, Callable)


def items_in_memory(job: Job) -> int:
    """Entries of all containers that the crawl of *job* refers to, but for its store's."""
    seen, todo, n = {id(job.store)}, [job.crawl], 0
    while todo:
        found: Any = todo.pop()
        if isinstance(found, (dict, list, set, tuple, deque)):
            n += len(found)
        for other in gc.get_referents(found):
            if id(other) not in seen and not isinstance(other, CODE):
                seen.add(id(other))
                todo.append(other)
    return n


def visit(job: Job, numbers: range) -> None:
    """Visit a page for each of *numbers*, which it links to; the transfers are short, and the pauses are kept."""
    for number in numbers:
        lease = job.lease()
        job.now += 0.1
        job.release(lease)
        job.settle(lease, link(lease.host, number))
        job.now += 1.0
        if number % 20 == 0:
            job.store.write(job.crawl.take_changes(job.now), sync=True)
            job.crawl.changes_landed()


def test_memory_does_not_grow_by_the_page(monkeypatch):
    monkeypatch.setattr(leases, "_MAX_ENDED", 20)  # not 10,000, which is a bound as well
    job = Job(*(link(f"h{n}.example") for n in range(4)), connections=16, page_cache=20, commit_within=1e9)
    visit(job, range(1, 400))
    before = items_in_memory(job)
    visit(job, range(400, 1200))
    assert items_in_memory(job) < before + 80
