"""A page and the rows that say where it waits: what a damaged store leaves of them is a sentence, not a failed guess."""

from __future__ import annotations

import pytest
from support.core_crawl import Job, link

from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.exceptions import StorageError

A, B = link("a"), link("b")
MENDS = "'scrapy aopic repair' mends the job"


def without(family: Family, key: bytes, **policy: object) -> Job:
    """A crawl that visited a page and left another one waiting, opened again without the row under *key*."""
    job = Job(**policy)
    job.seed(A)
    job.visit(B)
    job.commit(is_clean=True)
    job.store.write({family: {key: None}}, sync=True)
    job.reopen(later=1e9)
    return job


def test_a_queue_row_without_its_page_is_said_to_need_a_repair():
    job = without(Family.PAGES, B.key)
    with pytest.raises(StorageError, match=f"a queue row for page {B.key.hex()}, but no such page: {MENDS}"):
        job.lease()


def test_a_time_to_look_at_a_page_that_is_not_there_is_said_to_need_a_repair():
    job = without(Family.PAGES, A.key, recrawl=Recrawl(min_interval=1.0))
    with pytest.raises(StorageError, match=f"a look row for page {A.key.hex()}, but no such page: {MENDS}"):
        job.lease()


def test_a_page_that_is_due_without_its_host_is_said_to_need_a_repair():
    job = without(Family.HOSTS, A.key[:HOST_BYTES], recrawl=Recrawl(min_interval=1.0))
    with pytest.raises(
        StorageError, match=f"a page of host {A.key[:HOST_BYTES].hex()}, but no such host: {MENDS}"
    ):
        job.drain()
