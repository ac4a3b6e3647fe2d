"""``scrapy aopic status``: the totals of a commit are what is counted, and are not counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scrapy.cmdline import execute
from scrapy.settings import Settings
from support.core_crawl import Job, link
from support.stored_jobs import make_job

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.politeness import Outcome, Politeness
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import State, unpack_host, unpack_page
from scrapy_aopic.job.queries import status, totals
from scrapy_aopic.storage.memory import MemoryStore

COUNTED = {"outcomes", "set_aside", "waits", "longest_waits", "front_queues"}


class Watched(MemoryStore):
    """Notes how many rows of each family are scanned."""

    def __init__(self) -> None:
        super().__init__()
        self.n_scanned = dict.fromkeys(Family, 0)

    def scan(self, family: Family, start: bytes = b"", stop: bytes | None = None) -> Any:
        rows = list(super().scan(family, start, stop))
        self.n_scanned[family] += len(rows)
        return iter(rows)


def mixed_job(max_active: int) -> Job:
    """Hosts in all places; some pages were visited, some failed or redirected, and others wait."""
    job = Job(politeness=Politeness(backoff=5.0, dead_after=2), max_active=max_active)
    job.seed(
        *(
            link(f"{kind}{n}", page)
            for kind in ("dead", "slow", "good")
            for n in range(6)
            for page in range(4)
        )
    )
    for turn in range(3):
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            is_dead, is_slow = lease.host.startswith("dead"), lease.host.startswith("slow")
            outcome = Outcome.DOWN if is_dead else Outcome.ANSWER
            job.crawl.transferred(lease.host, 0.1, job.now, outcome, retry_after=40.0 if is_slow else 0.0)
            job.crawl.release(lease, job.now)
            job.settle(
                lease, outcome="http 503" if is_dead else "redirect" if turn else "", is_failure=is_dead
            )
        job.now += 5.1
    job.seed(*(link(f"new{n}") for n in range(6)))
    job.commit()
    return job


@pytest.mark.parametrize("max_active", [1, 3, 100])
def test_totals_are_what_is_counted_and_need_no_page(max_active: int) -> None:
    store = Watched()
    store.write({family: dict(mixed_job(max_active).store.scan(family)) for family in Family}, sync=True)
    counted = status(store)
    pages = [unpack_page(data) for _, data in store.scan(Family.PAGES)]
    assert counted["outcomes"] == Counter(page.outcome for page in pages if page.outcome)
    assert counted["front_queues"] == Counter(
        page.front_queue for page in pages if page.state == State.QUEUED
    )
    hosts = [unpack_host(data) for _, data in store.scan(Family.HOSTS)]
    n_waiting = sum(host.not_before > counted["saved_at"] for host in hosts if host.row)
    assert sum(counted["waits"].values()) == counted["back_queues"]["waiting"] == n_waiting > 0
    assert counted["back_queues"]["dead"] == 6
    store.n_scanned = dict.fromkeys(Family, 0)
    known = totals(store)
    assert max_active == 100 or (counted["back_queues"]["parked"] and counted["back_queues"]["shelved"])
    assert list(known) == [name for name in counted if name not in COUNTED]
    del counted["back_queues"]["waiting"]
    assert known == {name: value for name, value in counted.items() if name not in COUNTED}
    assert {family for family, n in store.n_scanned.items() if n} <= {Family.META}
    assert store.n_scanned[Family.META] <= max_active


def test_a_store_without_a_job_has_no_totals() -> None:
    assert totals(MemoryStore()) == status(MemoryStore()) == {}


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
def test_the_command_shows_the_totals_alone_if_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    make_job(tmp_path / "job", store, 100)
    shown = []
    for options in ([], ["--totals"]):
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", "aopic", "status", str(tmp_path / "job"), "--json", *options], Settings())
        assert ended.value.code == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0]["front_queues"]
    assert shown[0].keys() - shown[1].keys() == COUNTED
    assert shown[1]["pages"] == shown[0]["pages"] == {"queued": 100, "visited": 0, "failed": 0}
    assert shown[1]["back_queues"] == {"active": 50, "shelved": 0, "parked": 0, "dead": 0}
