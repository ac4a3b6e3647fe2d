"""A job begins with a commit, or not at all."""

from __future__ import annotations

import threading

import pytest
from support.crawls import in_folder
from support.small_web import Follow, ask_view, crawl
from support.stored_jobs import link, make_job

from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Batch
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.commit_thread import ShardCommits
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_store
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.stored import snapshot_of

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


@each_store
def test_a_run_is_known_not_to_have_ended_before_it_may_ask_anybody(tmp_path, store):
    """Else a kill before its first commit has landed would leave no pause."""
    job = tmp_path / "job"
    make_job(job, store, 3)
    assert ask_view(job, snapshot_of).is_closed
    opened = Job(job, Policy(), kind=store)
    try:
        assert not ask_view(job, snapshot_of).is_closed
    finally:
        opened.close()
    assert ask_view(job, snapshot_of).is_closed


def fail(*_: object, **__: object) -> None:
    raise StorageError("The disk is full.")


@each_store
def test_a_job_that_takes_no_first_commit_is_not_begun(tmp_path, store, monkeypatch):
    job = tmp_path / "job"
    make_job(job, store, 3)

    kind = type(opened := open_store(store_folder(job)))
    opened.close()
    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", fail)
        with pytest.raises(StorageError, match="The disk is full"):
            Job(job, Policy(), kind=store)
    Job(job, Policy(), kind=store).close()


@each_store
def test_a_commit_that_lands_after_one_that_failed_holds_its_changes_too(tmp_path, store, monkeypatch):
    folder = tmp_path / "job"
    make_job(folder, store, 3)
    job = Job(folder, Policy(), kind=store, interval=0.0)
    kind = type(opened := open_store(tmp_path / "other", store))
    opened.close()

    def commit() -> int:
        """Begin a commit, and take note of how it ended; returns how many have landed."""
        job.tick()
        job.run(lambda: None).result()  # behind it
        job.tick(0)
        return job.commits

    try:
        job.crawl.seed(link("new", 0), job.clock())
        with monkeypatch.context() as patch:
            patch.setattr(kind, "write", fail)
            before = job.commits
            assert commit() == before
            assert "The disk is full" in str(job.failure)
            job.run(lambda: None).result()
        for _ in range(2):
            commit()
        assert job.commits > before
        assert job.failure is None
        assert ask_view(folder, snapshot_of).pages.queued == 4
    finally:
        job.close()


def test_only_a_disk_that_has_a_commit_to_take_is_waited_for(monkeypatch):
    now, goes_on = 1000.0, threading.Event()

    class SlowDisk(MemoryStore):
        def write(self, batch: Batch, *, sync: bool) -> None:
            assert goes_on.wait(60)
            super().write(batch, sync=sync)

    monkeypatch.setattr("scrapy_aopic.job.clock.JobClock.__call__", lambda _: now)
    monkeypatch.setattr("scrapy_aopic.job.job.open_store", lambda *_, **__: SlowDisk())
    goes_on.set()
    job = Job(None, Policy(commit_within=1.0), kind="memory")
    now += 5.0
    assert job.is_behind  # by the clock, until a beat begins another commit
    assert not job.waits_for_disk
    goes_on.clear()
    job.tick()
    assert job.waits_for_disk
    goes_on.set()
    job.run(lambda: None).result(60)  # in the thread that writes, after the commit
    assert not job.waits_for_disk
    job.close()


@each_store
def test_a_commit_is_due_when_many_pages_have_changed(tmp_path, store, monkeypatch):
    """However long the interval is; and a tick does not both land a large one and take the next."""
    monkeypatch.setattr("scrapy_aopic.job.commit_thread.MAX_CHANGED", 3)
    job = Job(tmp_path / "job", Policy(), kind=store, interval=float("inf"))

    def seed(*numbers: int) -> None:
        for number in numbers:
            job.crawl.seed(link("new", number), job.clock())

    try:
        seed(0, 1, 2)
        job.tick(0)
        assert job.crawl.n_changed == 3
        seed(3)
        assert job.is_full
        job.tick(0)
        assert job.crawl.n_changed == 0
        before = job.commits
        seed(4, 5, 6, 7)
        job.run(lambda: None).result()
        job.tick(0)
        assert job.commits == before + 1
        assert job.is_full
        job.tick(0)
        assert not job.is_full
    finally:
        job.close()
    assert ask_view(tmp_path / "job", snapshot_of).pages.queued == 8


async def test_pages_with_many_links_are_committed_although_no_time_has_passed(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("scrapy_aopic.job.commit_thread.MAX_CHANGED", 40)
    take, taken = ShardCommits.take, list[int]()

    def note(self: ShardCommits, **options: bool) -> None:
        taken.append(self._crawl.n_changed)
        take(self, **options)

    monkeypatch.setattr(ShardCommits, "take", note)
    hub = {f"http://a.test/{n}": [f"/{n}-{link}" for link in range(50)] for n in range(4)}
    serve({"http://a.test/": list(hub), **hub})
    settings = {"AOPIC_DURABILITY": "close", "CLOSESPIDER_PAGECOUNT": 20}
    await crawl(Follow, in_folder(tmp_path / "job", **settings))
    _opening, first, *_, _closing = taken
    assert first > 40
