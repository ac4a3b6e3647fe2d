"""``scrapy aopic status``: the totals of a commit are what is counted, and are not counted."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from support.commands import run_here
from support.core_crawl import Job, link
from support.stored_jobs import make_job

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.layout import LATE
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import PageState, pack_host, unpack_host, unpack_page
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import hosts_by
from scrapy_aopic.view.snapshot import N_LISTED, HostCounts, HostRow, PageCounts, Snapshot
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.view.text_report import format_end, format_snapshot


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
    hosts = [f"{kind}{n}" for kind in ("dead", "slow", "good") for n in range(6)]
    job.seed(*(link(host, page) for host in hosts for page in range(4)))
    for turn in range(3):
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            is_dead, is_slow = lease.host.startswith("dead"), lease.host.startswith("slow")
            outcome = Outcome.DOWN if is_dead else Outcome.ANSWER
            result = TransferResult(0.1, outcome, retry_after=40.0 if is_slow else 0.0)
            job.crawl.transferred(lease.host, result, job.now)
            job.crawl.release(lease, job.now)
            ended = "http 503" if is_dead else "redirect" if turn else ""
            job.settle(lease, outcome=ended, is_failure=is_dead)
        job.now += 5.1
    job.seed(*(link(f"new{n}") for n in range(6)))
    job.commit()
    return job


def status(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """What ``scrapy aopic status --json`` writes."""
    code, out, _ = run_here(capsys, "status", "--json", *arguments)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def figures(job: Job, *, counts: bool = False) -> Snapshot:
    found = snapshot_of(View([job.store]), counts=counts)
    assert found is not None
    return found


@pytest.mark.parametrize("max_active", [1, 3, 100])
def test_totals_are_what_is_counted_and_need_no_page(max_active):
    store = Watched()
    store.write({family: dict(mixed_job(max_active).store.scan(family)) for family in Family}, sync=True)
    view = View([store])
    now = snapshot_of(view, counts=True)
    counted = now.counted
    pages = [unpack_page(data) for _, data in store.scan(Family.PAGES)]
    assert counted.outcomes == Counter(page.outcome for page in pages if page.outcome)
    queued = [page for page in pages if page.state == PageState.QUEUED]
    assert counted.front_queues == Counter(page.front_queue for page in queued)
    hosts = [unpack_host(data) for _, data in store.scan(Family.HOSTS)]
    assert sum(counted.waits.values()) == sum(host.not_before > now.at for host in hosts if host.row) > 0
    assert now.hosts.dead == 6
    assert now.hosts.ready + now.hosts.waiting <= max_active
    assert max_active == 100 or (now.hosts.parked and now.hosts.shelved)
    store.n_scanned = dict.fromkeys(Family, 0)
    assert snapshot_of(view) == replace(now, counted=None)
    assert {family for family, n in store.n_scanned.items() if n} <= {Family.META}
    assert store.n_scanned[Family.META] <= max_active


def test_a_store_without_a_job_has_no_totals():
    assert snapshot_of(View([MemoryStore()]), counts=True) is None


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
def test_the_command_shows_the_totals_alone_if_it_is_asked_to(tmp_path, capsys, store):
    make_job(tmp_path / "job", store, 100)
    counted, totals = (status(capsys, tmp_path / "job", *options) for options in ([], ["--totals"]))
    assert counted["counted"]["front_queues"]
    assert totals == {**counted, "counted": None}
    assert (totals["pages"]["queued"], totals["pages"]["visited"]) == (100, 0)
    assert totals["hosts"]["ready"] == 50


def test_slow_and_failing_hosts_and_counts_of_the_whole_job_are_shown():
    job = mixed_job(3)
    now = figures(job, counts=True)
    counted = now.counted
    assert {row.name[:4] for row in counted.failing} == {"dead"}
    assert [row.errors for row in counted.failing] == [2] * 6
    assert len(counted.slow) == N_LISTED
    assert now.transfers.n == job.crawl.counters.transfers > 0
    assert now.transfers.down == 12
    assert now.mean_rate is not None
    assert now.mean_rate > 0
    assert now.forecast.because == "the speed is not known, as no crawl is running or one has just begun"
    text = format_snapshot(now)
    assert text.index("pages:") < text.index("mean rate:") < text.index("ledger:") < text.index("slow:")
    assert "2 errors in a row, 2 of them without a response" in text
    silent = replace(now, counted=None, slow=[HostRow(name="a.test", transfer=1.0, down=1)])
    assert "a.test: 1.00 s, 1 transfer in a row without a response" in format_snapshot(silent)
    one = Snapshot(at=0.0, pages=PageCounts(known=2, queued=1, visited=1), hosts=HostCounts(known=2))
    assert "1 page, 2 hosts known" in format_end(one)[1], "which of them the page is of is not known"


@pytest.mark.parametrize(
    ("kind", "first", "names"),
    [("slow", "", {"dead", "slow", "good"}), ("failing", "dead", {"dead"}), ("waiting", "slow", {"slow"})],
)
def test_hosts_are_listed_by_what_is_asked_for(kind, first, names):
    rows = hosts_by(View([mixed_job(100).store]), kind, 100)
    assert {row.name[:4] for row in rows} == names
    assert rows[0].name.startswith(first)
    by = {"slow": "transfer", "failing": "errors", "waiting": "wait"}[kind]
    values = [getattr(row, by) for row in rows]
    assert values == sorted(values, reverse=True)
    assert len(hosts_by(View([mixed_job(100).store]), kind, 2)) == 2
    assert hosts_by(View([MemoryStore()]), kind, 2) == []


def test_hosts_over_their_budgets_are_listed_by_queued_pages():
    store = mixed_job(1).store
    late = []
    for key, data in list(store.scan(Family.HOSTS)):
        host = unpack_host(data)
        if host.row[:1] == b"F" and len(late) < 2:
            host.row = LATE + bytes(9)
            late.append(host.name)
            store.write({Family.HOSTS: {key: pack_host(host)}}, sync=True)
    rows = hosts_by(View([store]), "budget", 10)
    assert sorted(row.name for row in rows) == sorted(late)


def test_the_command_lists_hosts_of_a_kind_or_those_with_most_pages(tmp_path, capsys):
    make_job(tmp_path / "job", "sqlite", 10)
    out = ""
    for options, code in ((["--slow", "--json"], 0), (["--waiting"], 0), ([], 0), (["--slow", "-n", "0"], 2)):
        ended, shown, _ = run_here(capsys, "hosts", tmp_path / "job", *options)
        assert ended == code
        out += shown
    slow, *tables = out.split("transfer")
    assert slow == "[]\n"
    assert [len(table.splitlines()) for table in tables][-1] > 1  # there is a host in the last one


def test_the_last_row_of_the_history_says_what_the_crawl_was_like(tmp_path, capsys):
    make_job(tmp_path / "job", "sqlite", 10)  # at 0 seconds
    said = []
    columns = "at,verdict.limit,rate.pages,machine.memory,machine.memory_limit"
    for at in (-100.0, -10.0):
        (tmp_path / "job" / FILE_NAME).write_text(f"{columns}\n{at},disk,1.5,200,600\n")
        said.append(status(capsys, tmp_path / "job", "--totals"))
    assert [each["rate"] and each["rate"]["pages"] for each in said] == [None, 1.5]
    assert [each["limit"] for each in said] == ["", "disk"]
    machines = [each["machine"] for each in said]
    assert machines[0] is None
    assert (machines[1]["memory"], machines[1]["memory_limit"]) == (200, 600)
