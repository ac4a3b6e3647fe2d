"""What a job has done is counted over all of its runs, and audited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_crawl import NOW, Job, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.counters import OUTCOMES, Counters, QueueTimes, class_of_outcome, read_counters
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.layout import COUNTERS_KEY, Family
from scrapy_aopic.core.politeness import Outcome, TransferResult


def crawl_some(job: Job, outcomes: list[str], seconds: float = 0.2) -> None:
    """Visit a page for each of *outcomes*."""
    for outcome in outcomes:
        lease = job.crawl.lease(job.now)
        assert isinstance(lease, Lease)
        job.crawl.transferred(lease.host, TransferResult(seconds, Outcome.ANSWER), job.now)
        job.finish(lease, outcome=outcome, is_failure=outcome.startswith("http"))
        job.now += 100


def counters_of(job: Job) -> Counters | None:
    saved = read_totals(job.store)
    assert saved is not None
    return read_counters(job.store, saved.saved_at)


def test_outcomes_are_counted_in_few_classes():
    for outcome, name in [
        ("", "page"), ("redirect", "redirect"), ("http 404", "not found"), ("http 410", "not found"),
        ("http 403", "other 4xx"), ("http 429", "too many requests"), ("http 503", "5xx"), ("http 700", "other"),
        ("DownloadTimeoutError", "no answer"), ("ConnectionRefusedError", "no answer"), ("ResponseFailed", "no answer"),
        ("unreadable: no such callback", "unreadable"), ("robots.txt", "robots.txt"), ("robots.txt unreachable", "robots.txt"), ("canonical", "duplicate"),
        ("whatever a user raises", "other"),
    ]:  # fmt: skip
        assert class_of_outcome(outcome) == name, (outcome, name)
        assert name in OUTCOMES, (outcome, name)


@given(st.text())
def test_the_names_of_classes_are_bounded(outcome):
    assert class_of_outcome(outcome) in OUTCOMES


def test_pages_whose_owners_ask_something_are_classes_of_their_own():
    job = Job()
    wishes = [("", "train-ai=n"), ("noarchive, noindex", ""), ("nofollow, noindex", ""), ()]
    job.seed(*(link("a", n) for n in range(len(wishes) + 1)))
    for each in wishes:
        job.visit(wishes=each)
        job.now += 100
    job.visit(outcome="duplicate", wishes=("nofollow", ""))
    job.commit()
    counted = counters_of(job)
    assert counted is not None
    assert counted.outcomes == {"page": 2, "noindex": 1, "nofollow": 1, "duplicate": 1}
    assert audit(job.store).violations == []


def test_what_was_counted_outlives_the_run_and_is_audited():
    job = Job(*(link("a", n) for n in range(6)))
    crawl_some(job, ["", "http 404"])
    job.commit()
    job.crawl = Crawl(job.store, job.policy, job.now)
    job.now += 1000  # the pause after a crash
    crawl_some(job, ["", "redirect"], seconds=20.0)
    job.commit()
    found = counters_of(job)
    assert found is not None
    assert found.is_whole
    assert found.outcomes == {"page": 2, "not found": 1, "redirect": 1}
    assert (found.transfers, found.transfer_seconds) == (4, pytest.approx(40.4))
    assert found.durations == [0, 0, 0, 2, 0, 0, 0, 2, 0]
    assert found.since == NOW
    assert audit(job.store).violations == []
    found.outcomes["page"] += 1
    job.store.write({Family.META: {COUNTERS_KEY: found.pack(found.saved_at)}}, sync=True)
    assert audit(job.store).violations == ["5 visits are counted, but pages have 4"]


@pytest.mark.parametrize("row", [None, b"\xc1", b"\x00"])
def test_a_job_without_counters_begins_to_count_and_is_not_audited_for_it(row):
    job = Job(*(link("a", n) for n in range(4)))
    crawl_some(job, [""])
    job.commit()
    job.store.write({Family.META: {COUNTERS_KEY: row}}, sync=True)
    job.crawl = Crawl(job.store, job.policy, job.now)
    assert not job.crawl.counters.is_whole
    job.now += 1000
    crawl_some(job, [""])
    job.commit()
    assert job.crawl.counters.outcomes == {"page": 1}
    assert audit(job.store).violations == []


def test_a_version_that_does_not_count_leaves_a_gap_that_is_known():
    job = Job(*(link("a", n) for n in range(4)))
    crawl_some(job, [""])
    job.commit()
    old = job.store.get_many(Family.META, [COUNTERS_KEY])[0]
    crawl_some(job, [""])
    job.commit()
    job.store.write({Family.META: {COUNTERS_KEY: old}}, sync=True)  # as such a version leaves it
    found = counters_of(job)
    assert found is not None
    assert not found.is_whole
    assert audit(job.store).violations == []


def test_times_in_the_queue_are_counted():
    job = Job(link("a"), link("b"))
    crawl_some(job, ["", ""])
    assert job.crawl.counters.waited == 2
    assert job.crawl.counters.waited_seconds == 100  # the second one waited until the first had ended


@given(st.lists(st.integers(1, 50), min_size=1, max_size=2000))
def test_the_table_of_times_is_bounded_and_never_says_too_late(steps):
    times, queued, serial = QueueTimes(), {}, 0
    for instant, n in enumerate(steps):
        times.note(serial + 1, instant)
        for _ in range(n):
            serial += 1
            queued[serial] = instant
    for number, instant in queued.items():
        about = times.queued_at(number)
        assert about is not None
        assert about <= instant
    assert len(times._serials) < 256
    assert times.queued_at(0) is None
