"""Who has a job, and what becomes of it when its folder is taken away."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import processes
from support.store_contract import check_transfers, write, write_transfers
from support.stores import KINDS, each_kind

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import LostError, StorageError
from scrapy_aopic.storage import lock as module
from scrapy_aopic.storage import lock_job, open_snapshot, open_store
from scrapy_aopic.storage.lock import OpenFolder, sync_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="moves folders whose files are open")

HOLDER = """
import os, sys, time
from pathlib import Path
from scrapy_aopic.storage import lock_job

lock = lock_job(Path(sys.argv[1]), "crawl")
{}
os.write(1, b"locked\\n")
time.sleep(60)
"""
LOOKER = """
import importlib, os, pickle, sys, tempfile
from pathlib import Path
from scrapy_aopic.storage import open_snapshot
from support.store_contract import check_transfers

importlib.import_module(f"scrapy_aopic.storage.{sys.argv[2]}")
os.setgid(65534)
os.setuid(65534)
store = open_snapshot(Path(sys.argv[1]))
print(check_transfers(store))
store.close()
"""
CHILD = "if os.fork() == 0:\n os.write(1, b'%d\\n' % os.getpid())\n time.sleep(60)\n"

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")


def holding(folder: Path, more: str = "") -> processes.Process:
    """A process that has the lock of the job in *folder*."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", HOLDER.format(more), str(folder / "aopic")]
    return processes.start(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether a folder can be reached other than by its name; it can on Linux only."""
    if request.param == "not followed":
        monkeypatch.setattr(module, "_OPEN_FOLDERS", Path("/nowhere"))
    elif not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux")
    return str(request.param)


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def test_only_one_has_the_lock_and_its_owner_is_named(tmp_path):
    with lock_job(tmp_path / "job" / "aopic", "backup"):
        said = rf"in {tmp_path}/job/aopic is in use: process {os.getpid()} on .* since 20.* \(backup\); wait"
        with pytest.raises(StorageError, match=said):
            lock_job(tmp_path / "job" / "aopic", "crawl")
        lock_job(tmp_path / "job" / "aopic-seen", "crawl").release()
    lock_job(tmp_path / "job" / "aopic", "crawl").release()


def test_the_lock_dies_with_its_process_whatever_its_file_says(tmp_path):
    with holding(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StorageError, match=f"process {process.pid} on"):
            lock_job(tmp_path / "aopic", "crawl")
        process.kill()
    owner = json.loads((tmp_path / "aopic.lock").read_bytes())
    assert owner["pid"] == process.pid
    # As in a container, in which each process has the same number.
    (tmp_path / "aopic.lock").write_text(json.dumps({**owner, "pid": os.getpid()}), encoding="utf-8")
    lock_job(tmp_path / "aopic", "backup").release()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path):
    with holding(tmp_path, CHILD) as process:
        assert process.stdout is not None
        child = int(next(line for line in process.stdout if line.strip().isdigit()))
        process.kill()
    try:
        lock_job(tmp_path / "aopic", "backup").release()
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_does_not_take_the_lock_away(tmp_path):
    with lock_job(tmp_path / "aopic", "crawl") as lock:
        child = os.fork()
        if child == 0:
            lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        lock.check()
        with pytest.raises(StorageError, match="in use"):
            lock_job(tmp_path / "aopic", "crawl")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOLCK, "cannot be locked: its file system takes no locks"),
        (errno.ENOSYS, "cannot be locked: its file system takes no locks"),
        (errno.EOPNOTSUPP, "cannot be locked: its file system takes no locks"),
        (errno.EIO, "cannot be locked: the disk failed to read or write it"),
        (errno.EAGAIN, "is in use: another process has it open"),
    ],
)
def test_what_a_file_system_says_is_said_as_what_it_is(tmp_path, monkeypatch, number, said):
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "_lock", fail)
    with pytest.raises(StorageError, match=said) as caught:
        lock_job(tmp_path / "aopic", "crawl")
    assert str(tmp_path) in str(caught.value)


def test_a_lock_file_of_a_stranger_is_neither_followed_nor_waited_for(tmp_path):
    (tmp_path / "valuable").write_bytes(b"kept")
    (tmp_path / "aopic.lock").symlink_to(tmp_path / "valuable")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "aopic.lock")
    for folder in (tmp_path, tmp_path / "other"):
        with pytest.raises(StorageError, match="cannot be locked"):
            lock_job(folder / "aopic", "crawl")
    assert (tmp_path / "valuable").read_bytes() == b"kept"


@pytest.mark.parametrize("kind", KINDS)
def test_whose_lock_file_is_removed_or_replaced_writes_no_more(tmp_path, kind):
    with closing(open_store(tmp_path / "aopic", kind)) as store, lock_job(tmp_path / "aopic", "crawl") as job:
        write(store, Family.META, {b"a": b"1"})
        (tmp_path / "aopic.lock").unlink()
        with pytest.raises(LostError, match=r"aopic\.lock was moved, deleted or replaced"):
            job.check()
        with lock_job(tmp_path / "aopic", "backup"), pytest.raises(LostError):
            job.check()
        (tmp_path / "aopic" / "store.lock").unlink()
        with pytest.raises(LostError, match=r"store\.lock was moved"):
            write(store, Family.META, {b"a": b"2"})


@pytest.mark.parametrize("way", ["followed", "not followed"], indirect=True)
@pytest.mark.usefixtures("way")
def test_a_folder_that_is_moved_or_replaced_is_noticed(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    with closing(OpenFolder(folder)) as held:
        held.check()
        (held.where / "mine").touch()
        folder.rename(tmp_path / "moved")
        for make in (lambda: None, folder.mkdir, folder.rmdir, folder.touch):
            make()
            with pytest.raises(
                LostError, match=re.escape(f"The folder {folder} was moved, deleted or replaced")
            ):
                held.check()
        assert held.is_followed == ((held.where / "mine").exists())
        folder.unlink()
        (tmp_path / "moved").rename(folder)
        held.check()
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        held.check()


def test_a_folder_is_not_lost_when_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with lock_job(Path("job/aopic"), "crawl") as lock:
        monkeypatch.chdir(tmp_path / "elsewhere")
        lock.check()
        assert (lock.around.where / "aopic.lock").exists()


def fill(folder: Path, kind: str, batches: int) -> None:
    with closing(open_store(folder, kind, memory_mb=1)) as store:
        write_transfers(store, batches, padding=2_000)


@pytest.mark.crossed
@pytest.mark.parametrize("way", ["followed", "not followed"], indirect=True)
@each_kind
@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_store_in_the_place_of_one_that_is_open_is_not_touched(tmp_path, way, kind, how):
    """RocksDB names its files by path, and removes at its end what it does not know."""
    folder, moved = tmp_path / "job", tmp_path / "moved"
    fill(tmp_path / "other", kind, 60)
    fill(folder, kind, 30)
    store: Any = open_store(folder, kind, memory_mb=1)
    write_transfers(store, 20, padding=2_000)
    scan = store.scan(Family.REQUESTS)
    next(scan)
    folder.rename(moved)
    if how == "deleted":
        shutil.rmtree(moved)
    (tmp_path / "other").rename(folder)
    before = contents(folder)
    with pytest.raises(LostError, match="was moved, deleted or replaced"):
        write(store, Family.META, {b"a": b"1"})
    store.close()
    assert contents(folder) == before
    with closing(open_snapshot(folder)) as snapshot:
        assert check_transfers(snapshot) == 60
    if how == "replaced":
        with closing(open_store(moved)) as again:
            assert check_transfers(again) == 50


@needs_proc
@each_kind
def test_a_store_that_was_moved_is_read_and_closed_where_it_is(tmp_path, kind):
    fill(tmp_path / "job", kind, 30)
    store: Any = open_store(tmp_path / "job", kind, memory_mb=1)
    write_transfers(store, 20, padding=2_000)
    (tmp_path / "job").rename(tmp_path / "moved")
    keys = [key for key, _ in store.scan(Family.META)]
    assert store.get_many(Family.META, keys)
    store.close()
    with closing(open_snapshot(tmp_path / "moved")) as snapshot:
        assert check_transfers(snapshot) == 50
    assert not (tmp_path / "job").exists()


@pytest.mark.slow
@each_kind
def test_a_closed_store_can_be_looked_at_without_the_right_to_write(kind):
    """Nothing that only looks takes a lock."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "job")
        fill(folder, kind, 3)
        for each in (folder.parent, *folder.rglob("*"), folder):
            each.chmod(0o555 if each.is_dir() else 0o444)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", LOOKER, str(folder), kind],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout == "3\n", done.stderr


def test_a_folder_is_synchronised_as_far_as_that_is_possible(tmp_path, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sync_folder(tmp_path)
    assert len(synced) == 1

    def fail(number: int) -> Any:
        def fsync(_: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)


@pytest.mark.slow
def test_ten_processes_that_want_a_job_at_once(tmp_path):
    several = [holding(tmp_path) for _ in range(10)]
    time.sleep(0)
    try:
        ended = [process for process in several if _ends(process)]
        assert len(ended) == 9
    finally:
        for process in several:
            process.kill()
            process.communicate()


def _ends(process: processes.Process) -> bool:
    """Whether *process* is refused the lock, which it says at once."""
    assert process.stdout is not None
    return process.stdout.readline() != "locked\n"
