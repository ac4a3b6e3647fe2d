"""Copies of jobs: whole or not at all, and a crawl goes on from each."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from demo_web.server import Answer, Exchange, Server
from support import processes
from support.killed_crawl import command
from support.small_web import check, html
from support.stored_jobs import make_job, rows

from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace, seeds_folder, store_folder
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.storage import exists, lock_job, open_store

pytestmark = pytest.mark.slow

N_PAGES = 120

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


def answer(exchange: Exchange) -> Answer:
    number = int(exchange.target[1:] or 0)
    links = [f"http://h{n % 7}.test/{n}" for n in (2 * number + 1, 2 * number + 2) if n < N_PAGES]
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.05)


def crawl(job: Path, proxy: str, store: str) -> processes.Process:
    often = {"AOPIC_POLITENESS_FACTOR": 0.5, "AOPIC_DURABILITY": "page"}
    line, environment = command(job, proxy, AOPIC_STORE=store, **often)
    return processes.start(line, env=environment, cwd=job.parent)


@each_store
def test_a_crawl_goes_on_from_each_copy_of_a_job_that_is_running(tmp_path, store):
    job, copy, second = tmp_path / "job", tmp_path / "copy", tmp_path / "second"
    with Server(answer).run_in_thread() as running:
        with crawl(job, running.url, store) as process:
            while len(running.log) < 30 and process.poll() is None:
                time.sleep(0.005)
            backup(FolderPlace(job), copy)
            assert process.poll() is None
        before = rows(copy)
        assert check(job).visited == N_PAGES
        assert check(copy).violations == []
        assert 0 < check(copy).visited < N_PAGES
        shutil.copytree(copy, second)
        for folder in (copy, second):
            assert rows(folder) == before
            assert crawl(folder, running.url, store).wait(120) == 0
            result = check(folder)
            assert (result.violations, result.visited, result.queued) == ([], N_PAGES, 0)


@each_store
def test_a_backup_that_is_killed_leaves_nothing_that_opens(tmp_path, store):
    job, copy = tmp_path / "job", tmp_path / "copy"
    make_job(job, store, 20_000)
    part = tmp_path / "copy.part"
    line = [sys.executable, "-m", "scrapy", "aopic", "backup", str(job), str(copy)]
    with processes.start(line, cwd=tmp_path) as process:
        while not exists(store_folder(part)):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    if part.exists():
        assert not copy.exists()
        with pytest.raises(StorageError):
            open_store(store_folder(part))
        with (
            lock_job(store_folder(part), "backup"),
            pytest.raises(StorageError, match=r"part.* is in use: .*backup"),
        ):
            backup(FolderPlace(job), copy)  # another one goes on
        (part / "aopic.lock").write_text('{"task": "backup"}')  # as it was
        backup(FolderPlace(job), copy)
    assert rows(copy) == rows(job)
    with pytest.raises(StorageError, match="copy exists; remove it"):
        backup(FolderPlace(job), copy)


@pytest.mark.parametrize("left", ["notes", "aopic.lock"])
def test_a_folder_that_no_backup_has_left_is_not_removed(tmp_path, left):
    job, part = tmp_path / "job", tmp_path / "copy.part"
    make_job(job, "sqlite", 10)
    part.mkdir()
    (part / left).write_text('{"task": "crawl"}')
    with pytest.raises(StorageError, match=r"copy\.part exists; remove it"):
        backup(FolderPlace(job), tmp_path / "copy")
    assert (part / left).exists()


def test_seeds_that_wait_are_copied(tmp_path):
    job = tmp_path / "job"
    make_job(job, "sqlite", 3)
    add_seeds(FolderPlace(job), ["http://a.test/"])
    (job / "spider.state").write_bytes(b"state")
    backup(FolderPlace(job), tmp_path / "copy")
    assert (tmp_path / "copy" / "spider.state").read_bytes() == b"state"
    (one,) = seeds_folder(job).iterdir()
    (other,) = seeds_folder(tmp_path / "copy").iterdir()
    assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


def test_a_folder_without_a_job_is_refused(tmp_path):
    with pytest.raises(StorageError, match="no job in the folder"):
        backup(FolderPlace(tmp_path / "job"), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_a_file_in_the_place_of_another_is_never_copied_as_if_rows_had_not_been_there(tmp_path):
    job = tmp_path / "job"
    make_job(job, "sqlite", 3000)
    file = store_folder(job) / "store.sqlite3"
    whole, before = file.read_bytes(), rows(job)
    inner = [at for at in range(4096, len(whole), 4096) if whole[at] in (2, 5)]  # pages that lead to others
    assert inner
    refused = 0
    for at in inner:
        for other in (at - 4096, at + 4096):
            file.write_bytes(whole[:at] + whole[other : other + 4096] + whole[at + 4096 :])
            copy = tmp_path / "copy"
            try:
                backup(FolderPlace(job), copy)
            except StorageError:
                refused += 1
            else:
                assert rows(copy) == before
                shutil.rmtree(copy)
    assert refused
