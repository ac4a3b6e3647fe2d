"""Copies of jobs: whole or not at all, and a crawl goes on from each."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from web import ask, check, html

from scrapy_aopic.core.crawl import Crawl, Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.job.job import Job, store_folder
from scrapy_aopic.job.queries import status
from scrapy_aopic.job.seeds import give, seeds_folder
from scrapy_aopic.job.upkeep import backup, repair
from scrapy_aopic.storage import exists, open_snapshot, open_store
from scrapy_aopic.testing.server import Answer, Exchange, Server

SPIDER = Path(__file__).parents[1] / "support" / "follow.py"
N_PAGES = 120

each_store = pytest.mark.parametrize("store", ["rocksdb", "sqlite"])


def answer(exchange: Exchange) -> Answer:
    number = int(exchange.target[1:] or 0)
    links = [f"http://h{n % 7}.test/{n}" for n in (2 * number + 1, 2 * number + 2) if n < N_PAGES]
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.01)


def crawl(job: Path, proxy: str, store: str) -> subprocess.Popen[str]:
    settings = {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "JOBDIR": job,
        "AOPIC_STORE": store,
        "AOPIC_POLITENESS_FACTOR": 0.5,
        "AOPIC_DURABILITY": "page",
        "LOG_LEVEL": "ERROR",
        "REMOTE_CONTROL_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
    }
    options = [option for name, value in settings.items() for option in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *options]
    return subprocess.Popen(command, env={**os.environ, "http_proxy": proxy}, cwd=job.parent)


def link(host: str, number: int) -> Link:
    key = page_key(host_key(host), number.to_bytes(4, "big"))
    return Link(key, host, pack({"url": f"http://{host}/{number}"}))


def make_job(folder: Path, store: str, pages: int) -> None:
    opened = open_store(store_folder(folder), store)
    job = Crawl(opened, Policy(), 0.0)
    for n in range(pages):
        job.seed(link(f"h{n % 50}", n), 0.0)
    opened.write(job.take_changes(0.0, is_clean=True), sync=True)
    opened.close()


def rows(folder: Path) -> list[Any]:
    store = open_snapshot(store_folder(folder))
    try:
        return [list(store.scan(family)) for family in Family]
    finally:
        store.close()


@each_store
def test_a_crawl_goes_on_from_each_copy_of_a_job_that_is_running(tmp_path: Path, store: str) -> None:
    job, copy, second = tmp_path / "job", tmp_path / "copy", tmp_path / "second"
    with Server(answer).run_in_thread() as running:
        with crawl(job, running.url, store) as process:
            while len(running.log) < 30 and process.poll() is None:
                time.sleep(0.005)
            backup(job, copy)
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
def test_a_backup_that_is_killed_leaves_nothing_that_opens(tmp_path: Path, store: str) -> None:
    job, copy = tmp_path / "job", tmp_path / "copy"
    make_job(job, store, 20_000)
    part = tmp_path / "copy.part"
    command = [sys.executable, "-m", "scrapy", "aopic", "backup", str(job), str(copy)]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        while not exists(store_folder(part)):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    if part.exists():
        assert not copy.exists()
        with pytest.raises(StorageError):
            open_store(store_folder(part))
        with pytest.raises(StorageError, match=r"copy\.part exists; remove it"):
            backup(job, copy)
        shutil.rmtree(part)
        backup(job, copy)
    assert rows(copy) == rows(job)
    with pytest.raises(StorageError, match="copy exists; remove it"):
        backup(job, copy)


def test_seeds_that_wait_are_copied(tmp_path: Path) -> None:
    job = tmp_path / "job"
    make_job(job, "sqlite", 3)
    give(seeds_folder(job), ["http://a.test/"])
    (job / "spider.state").write_bytes(b"state")
    backup(job, tmp_path / "copy")
    assert (tmp_path / "copy" / "spider.state").read_bytes() == b"state"
    (one,) = seeds_folder(job).iterdir()
    (other,) = seeds_folder(tmp_path / "copy").iterdir()
    assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no job in the folder"):
        backup(tmp_path / "job", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def repair_command(job: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scrapy", "aopic", "repair", str(job)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=job.parent)


def spoil(job: Path, number: int) -> None:
    """Overwrite a part of the largest file of rows, where rows are."""
    files = [path for path in store_folder(job).iterdir() if path.suffix in (".sst", ".sqlite3")]
    path = max(files, key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    at = len(data) // 4 + 5_000 * number
    data = data[:at] + bytes(3_000) + data[at + 3_000 :]
    path.write_bytes(data.replace(b"http://h1/", b"http://hX/"))  # in SQLite, which compresses nothing


@each_store
def test_a_damaged_job_is_mended_and_goes_on(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 3_000)
    spoil(job, 1)
    damaged = {path.name: path.read_bytes() for path in store_folder(job).iterdir()}
    done = repair_command(job)
    assert done.returncode == 0, done.stderr
    result = check(job)
    assert f"{result.pages:,} pages on" in done.stdout
    assert "units. The damaged store is in" in done.stdout
    assert result.violations == []
    if store == "rocksdb":  # it was a table of pages or of requests
        assert result.pages == 3_000
        assert "0 wait to be visited again" not in done.stdout
    else:
        assert 2_000 < result.pages < 3_000
        assert f"{3_000 - result.pages:,} are forgotten" in done.stdout
    assert {path.name: path.read_bytes() for path in (job / "aopic.damaged-1").iterdir()} == damaged
    assert sorted(path.name for path in job.iterdir()) == ["aopic", "aopic.damaged-1", "aopic.lock"]
    before = rows(job)
    assert "nothing to mend" in repair_command(job).stdout
    assert rows(job) == before


@each_store
def test_a_damaged_log_of_a_job_that_was_killed_is_refused_and_mended(tmp_path: Path, store: str) -> None:
    killed, job = tmp_path / "killed", tmp_path / "job"
    opened = open_store(store_folder(killed), store)
    crawl = Crawl(opened, Policy(), 0.0)
    for n in range(300):
        crawl.seed(link(f"h{n % 50}", n), 0.0)
        if n % 30 == 0:
            opened.write(crawl.take_changes(0.0), sync=True)
            crawl.changes_landed()
    shutil.copytree(killed, job)  # as a kill would leave it
    opened.close()
    log = max(store_folder(job).glob({"rocksdb": "*.log", "sqlite": "*-wal"}[store]), key=os.path.getsize)
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 2] + b"damage" + data[len(data) // 2 + 6 :])
    for _ in range(2):  # the first refusal must not tidy it away
        with pytest.raises(StorageError):
            open_store(store_folder(job))
    mended, _ = repair(job)
    assert mended is not None
    result = check(job)
    assert result.violations == []
    assert 100 < result.pages <= 271  # in SQLite the rows behind the damage are kept, too


@pytest.mark.parametrize("lost", ["CURRENT", "MANIFEST", ".log", "format"])
def test_a_rocksdb_store_that_has_lost_a_file_is_mended(tmp_path: Path, lost: str) -> None:
    pytest.importorskip("rocksdict")
    job = tmp_path / "job"
    make_job(job, "rocksdb", 3_000)
    for path in store_folder(job).iterdir():
        if lost in path.name:
            path.unlink()
    if lost == "CURRENT":
        # A new store in its place, the second time, would be the end of it.
        for opens in (open_store, open_store, open_snapshot):
            with pytest.raises(StorageError, match="CURRENT is gone"):
                opens(store_folder(job))
    mended, _ = repair(job)
    assert mended is not None
    result = check(job)
    assert (result.violations, result.pages) == ([], 3_000)


@each_store
def test_a_repair_without_room_for_a_copy_changes_nothing_and_says_so_in_a_sentence(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job"
    make_job(job, store, 300)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(
        StorageError, match=r"cannot be copied to .*No space left on device\. It was not changed\.$"
    ) as told:
        repair(job)
    assert len(str(told.value)) < 1_000
    monkeypatch.undo()
    assert check(job).violations == []


@each_store
def test_a_job_of_another_format_is_no_damaged_one(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 300)
    (store_folder(job) / "format").write_text("4\n")
    before = sorted((path.name, path.stat().st_size) for path in store_folder(job).iterdir())
    with pytest.raises(StorageError, match=r"was written in format 4, .* Nothing was changed"):
        repair(job)
    (store_folder(job) / "format").write_text("5\n")
    assert sorted((path.name, path.stat().st_size) for path in store_folder(job).iterdir()) == before
    assert check(job).violations == []


@each_store
def test_a_repair_that_is_killed_ends_the_same_the_next_time(tmp_path: Path, store: str) -> None:
    job, other = tmp_path / "job", tmp_path / "other"
    make_job(job, store, 6_000)
    spoil(job, 2)
    shutil.copytree(job, other)
    repair(other)
    command = [sys.executable, "-m", "scrapy", "aopic", "repair", str(job)]
    for sign in ("aopic.copy", "aopic.new", "aopic.new/CURRENT", "aopic.damaged-1"):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            while not (job / sign).exists() and process.poll() is None:
                time.sleep(0.0005)
            process.kill()
    repair(job)
    assert check(job).violations == []
    for family, mine, others in zip(Family, rows(job), rows(other), strict=True):
        if family not in (Family.HOSTS, Family.META):  # which hold the time of the repair
            assert mine == others


def test_a_job_that_was_killed_between_the_renames_is_put_in_place(tmp_path: Path) -> None:
    job = tmp_path / "job"
    make_job(job, "sqlite", 10)
    store_folder(job).rename(job / "aopic.new")
    assert repair(job) == (None, None)
    assert check(job).pages == 10


@each_store
def test_a_job_in_use_is_not_mended(tmp_path: Path, store: str) -> None:
    job = tmp_path / "job"
    make_job(job, store, 10)
    opened = Job(job, Policy(), kind=store)
    with pytest.raises(StorageError, match=f"in use: process {os.getpid()} .*crawl"):
        repair(job)
    opened.close()
    assert repair(job) == (None, None)


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
