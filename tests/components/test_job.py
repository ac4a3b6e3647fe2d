"""A job begins with a commit, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.small_web import ask
from support.stored_jobs import link, make_job

from scrapy_aopic.core.policy import Policy
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.folder import store_folder
from scrapy_aopic.job.job import Job
from scrapy_aopic.job.queries import status
from scrapy_aopic.storage import open_store

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


@each_store
def test_a_run_is_known_not_to_have_ended_before_it_may_ask_anybody(tmp_path: Path, store: str) -> None:
    """Else a kill before its first commit has landed would leave no pause."""
    job = tmp_path / "job"
    make_job(job, store, 3)
    assert ask(job, status)["closed"]
    opened = Job(job, Policy(), kind=store)
    try:
        assert not ask(job, status)["closed"]
    finally:
        opened.close()
    assert ask(job, status)["closed"]


@each_store
def test_a_job_that_takes_no_first_commit_is_not_begun(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    make_job(job, store, 3)

    def fail(*_: object, **__: object) -> None:
        raise StorageError("The disk is full.")

    kind = type(opened := open_store(store_folder(job)))
    opened.close()
    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", fail)
        with pytest.raises(StorageError, match="The disk is full"):
            Job(job, Policy(), kind=store)
    Job(job, Policy(), kind=store).close()


@each_store
def test_a_commit_that_lands_after_one_that_failed_holds_its_changes_too(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "job"
    make_job(folder, store, 3)
    job = Job(folder, Policy(), kind=store, interval=0.0)
    kind = type(opened := open_store(tmp_path / "other", store))
    opened.close()

    def fail(*_: object, **__: object) -> None:
        raise StorageError("The disk is full.")

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
        assert ask(folder, status)["pages"]["queued"] == 4
    finally:
        job.close()
