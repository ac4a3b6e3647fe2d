"""Commits of several shards: which are written together, and what becomes of each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from scrapy_aopic.core import ports
from scrapy_aopic.core.ports import Batch, Family
from scrapy_aopic.exceptions import LostError, StorageError
from scrapy_aopic.job import commit_thread
from scrapy_aopic.job.commit_thread import JointCommits
from scrapy_aopic.job.side_files import SideFiles
from scrapy_aopic.storage.disk_shard import one_by_one


class Store:
    """Fails if it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.written: list[Batch] = []

    def write(self, batch: Batch, *, sync: bool) -> None:
        assert sync
        if self.failure is not None:
            raise self.failure
        self.written.append(batch)


def batch(n: int) -> Batch:
    return {Family.PAGES: {b"%d" % number: b"" for number in range(n)}, Family.META: {}}


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def add(joint: JointCommits, store: Store, n: int = 1) -> Future[None]:
    return joint.add(cast("ports.Store", store), batch(n))


def test_what_waits_is_written_at_once_and_fails_each_for_itself(executor):
    lost = LostError("lost")
    stores = [Store(), Store(lost), Store()]
    groups: list[int] = []

    def write(batches: Any) -> Sequence[Any]:
        groups.append(len(batches))
        return one_by_one(batches)

    joint = JointCommits(executor.submit, write, SideFiles())
    futures = [add(joint, store) for store in stores]
    assert not any(future.done() for future in futures)
    joint.flush()
    assert [future.exception(10) for future in futures] == [None, lost, None]
    assert [len(store.written) for store in stores] == [1, 0, 1]
    joint.flush()
    assert groups == [3]


def test_more_rows_than_readers_may_wait_for_are_parted(executor, monkeypatch):
    monkeypatch.setattr(commit_thread, "MOST_ROWS", 10)
    groups: list[int] = []

    def write(batches: Any) -> Sequence[Any]:
        groups.append(sum(len(rows) for _, found in batches for rows in found.values()))
        return one_by_one(batches)

    joint = JointCommits(executor.submit, write, SideFiles())
    futures = [add(joint, Store(), n) for n in (4, 5, 2, 30, 8, 2)]
    joint.flush()
    assert [future.exception(10) for future in futures] == [None] * 6
    assert groups == [9, 2, 30, 10]


def test_whatever_goes_wrong_is_the_failure_of_all_that_was_written(executor):
    error = ZeroDivisionError("a bug")

    def write(batches: Any) -> Sequence[Any]:
        raise error

    joint = JointCommits(executor.submit, write, SideFiles())
    futures = [add(joint, Store()) for _ in range(2)]
    joint.flush()
    assert [future.exception(10) for future in futures] == [error] * 2


def test_one_by_one_each_fails_for_itself_whatever_it_raises():
    bug, full = ZeroDivisionError("a bug"), StorageError("full")
    stores = [Store(), Store(bug), Store(full), Store()]
    assert one_by_one([(cast("ports.Store", store), batch(1)) for store in stores]) == [None, bug, full, None]
    assert [len(store.written) for store in stores] == [1, 0, 0, 1]


def test_what_lies_beside_the_stores_is_on_the_disk_before_their_commits(executor, tmp_path):
    done: list[str] = []
    is_full = False

    def flush() -> Iterator[tuple[str, int]]:
        done.append("flush")
        if is_full:
            side_files.fail("The feed", OSError(errno.ENOSPC, ""))
        yield "The feed", os.open(tmp_path / "file", os.O_CREAT)

    def write(batches: Any) -> Sequence[Any]:
        done.append(f"write {len(batches)}")
        return one_by_one(batches)

    side_files = SideFiles()
    side_files.add(flush)
    joint = JointCommits(executor.submit, write, side_files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: done.append("sync"))
        for is_full in (False, True, False):  # noqa: B007 - read by flush()
            futures = [add(joint, Store()) for _ in range(2)]
            joint.flush()
            failures = [future.exception(10) for future in futures]
            assert failures == [side_files.failure] * 2
    assert done == ["flush", "sync", "write 2", "flush", "sync", "flush", "sync"]
    assert str(side_files.failure) == "The feed cannot be written: the disk is full."
