"""A job begins with a commit, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.small_web import ask
from support.stored_jobs import make_job

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
