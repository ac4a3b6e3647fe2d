"""A page and the rows that say where it waits: what a damaged store leaves of them is a sentence, not a failed guess."""

from __future__ import annotations

import pytest
from support.core_crawl import Job, link
from support.naming import case

from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, Link, Page, pack_page, unpack_page
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.exceptions import StorageError

A, B = link("a"), link("b")
MENDS = "'scrapy aopic salvage'"


def without(family: Family, key: bytes, **policy: object) -> Job:
    """A crawl that visited a page and left another one waiting, opened again without the row under *key*."""
    job = Job(A, **policy)
    job.visit(B)
    job.commit(is_clean=True)
    job.store.write({family: {key: None}}, sync=True)
    job.reopen(later=1e9)
    return job


def test_a_queue_row_without_its_page_is_said_to_be_damage():
    job = without(Family.PAGES, B.key)
    with pytest.raises(StorageError, match=f"a queue row for page {B.key.hex()}, but no such page: {MENDS}"):
        job.lease()


def test_a_time_at_which_a_page_wakes_that_is_not_there_is_said_to_be_damage():
    job = without(Family.PAGES, A.key, recrawl=Recrawl(min_interval=1.0))
    with pytest.raises(StorageError, match=f"a wake row for page {A.key.hex()}, but no such page: {MENDS}"):
        job.lease()


def test_a_page_that_is_due_without_its_host_is_said_to_be_damage():
    job = without(Family.HOSTS, A.key[:HOST_BYTES], recrawl=Recrawl(min_interval=1.0))
    with pytest.raises(
        StorageError, match=f"a page of host {A.key[:HOST_BYTES].hex()}, but no such host: {MENDS}"
    ):
        job.drain()


def leading(pages: list[Link], *, to: Link | None = None) -> Job:
    """A crawl whose *pages* were visited, and lead each to the next one, the last to page *to*, opened again."""
    job = Job(*pages)
    job.drain()
    job.commit(is_clean=True)
    keys = [page.key for page in pages]
    records = {key: stored(job, key) for key in keys}
    for key, following in zip(keys, [*keys[1:], to.key if to else b""], strict=True):
        records[key].canonical = following
    job.store.write({Family.PAGES: {key: pack_page(page) for key, page in records.items()}}, sync=True)
    job.reopen()
    return job


def stored(job: Job, key: bytes) -> Page:
    (data,) = job.store.get_many(Family.PAGES, (key,))
    assert data is not None
    return unpack_page(data)


def test_merged_pages_that_lead_in_a_circle_are_said_to_be_damage():
    for length in [1, 2, 5]:
        with case(length):
            pages = [link(f"page{n}") for n in range(length)]
            job = leading(pages, to=pages[0])
            circle = f"one with page {pages[0].key.hex()} lead to each other in a circle: {MENDS}"
            with pytest.raises(StorageError, match=circle):
                job.crawl.pages.root(pages[0].key)
            job.seed(A)
            with pytest.raises(StorageError, match=circle):
                job.visit(pages[0])  # which pays the page that stands for it


def test_merged_pages_lead_on_as_far_as_they_may():
    pages = [link(f"page{n}") for n in range(MAX_HEIGHT + 1)]
    job = leading(pages)
    assert job.crawl.pages.root(pages[0].key)[0] == pages[-1].key
