from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import pytest
from support import processes
from support.store_contract import check_transfers, write, write_transfers
from support.stores import each_kind, needs_rocksdict

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import SettingError, StorageError
from scrapy_aopic.storage import exists, open_snapshot, open_store
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.storage.store_folder import write_format

CLASSES = {"rocksdb": "RocksStore", "sqlite": "SqliteStore", "memory": "MemoryStore"}

WRITER = """
import sys
from pathlib import Path
from scrapy_aopic.storage import open_store
from support.store_contract import write_transfers

folder, kind, padding = sys.argv[1:]
store = open_store(Path(folder), kind, memory_mb=1)
write_transfers(store, sys.maxsize, padding=int(padding), report=lambda n: print(n, flush=True))
"""


@contextmanager
def writing(folder, kind, *, padding=100):
    """A live process that writes transfers until it is killed; yields it with its output."""
    with processes.start(
        [sys.executable, "-c", WRITER, str(folder), kind, str(padding)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def last_reported(process, n):
    """Wait for *n* more reports and return the last one."""
    return int(list(islice(process.stdout, n))[-1])


@pytest.fixture
def no_rocksdict(monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    monkeypatch.delitem(sys.modules, "scrapy_aopic.storage.rocksdb", raising=False)
    monkeypatch.setattr("scrapy_aopic.storage.opening._WARNED", set())


class TestOpenStore:
    @needs_rocksdict
    def test_a_new_folder_gets_rocksdb(self, tmp_path, caplog):
        caplog.set_level(logging.DEBUG, "scrapy_aopic")
        with closing(open_store(tmp_path / "deep" / "job")) as store:
            assert type(store).__name__ == "RocksStore"
        assert not caplog.messages

    @pytest.mark.usefixtures("no_rocksdict")
    def test_new_folders_get_sqlite_without_rocksdict_and_the_log_says_so_once(self, tmp_path, caplog):
        for name in ("job", "other", "job"):
            with closing(open_store(tmp_path / name)) as store:
                assert type(store).__name__ == "SqliteStore"
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "because rocksdict is not installed" in record.getMessage()
        assert "AOPIC_STORE" in record.getMessage()

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            ("import _gone_from_here", "is not installed"),
            (
                "raise ImportError('libsnappy.so.1 is missing')",
                r"cannot be imported \(libsnappy.so.1 is missing",
            ),
            (
                "raise RuntimeError('no such processor')",
                r"cannot be imported \(RuntimeError: no such processor",
            ),
            ("", r"cannot be imported \(cannot import name 'AccessType'"),  # another version
        ],
    )
    @pytest.mark.usefixtures("no_rocksdict")
    def test_new_folders_get_sqlite_if_importing_rocksdict_fails_for_any_reason(
        self, tmp_path, caplog, monkeypatch, fault, why
    ):
        (tmp_path / "rocksdict.py").write_text(fault)
        monkeypatch.delitem(sys.modules, "rocksdict")
        monkeypatch.syspath_prepend(tmp_path)
        open_store(tmp_path / "job").close()
        assert [path.name for path in (tmp_path / "job").glob("store.*3")] == ["store.sqlite3"]
        assert re.search(f"because rocksdict .*{why}", caplog.text)
        with pytest.raises(StorageError, match=f"needs rocksdict, which .*{why}"):
            open_store(tmp_path / "other", "rocksdb")

    @each_kind
    def test_a_folder_keeps_its_kind(self, tmp_path, kind):
        with closing(open_store(tmp_path, kind)) as store:
            write(store, Family.META, {b"a": b"1"})
        for again in ("auto", kind):
            with closing(open_store(tmp_path, again)) as store:
                assert type(store).__name__ == CLASSES[kind]
                assert store.get_many(Family.META, [b"a"]) == [b"1"]

    @each_kind
    @pytest.mark.parametrize("asked", ["rocksdb", "sqlite", "memory"])
    def test_another_kind_is_refused(self, tmp_path, kind, asked):
        if asked == kind:
            pytest.skip("the same kind")
        open_store(tmp_path, kind).close()
        files = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(StorageError, match=f"holds a {kind} store.*as {asked}; ask for") as caught:
            open_store(tmp_path, asked)
        assert str(tmp_path) in str(caught.value)
        assert sorted(path.name for path in tmp_path.iterdir()) == files

    @needs_rocksdict
    def test_a_rocksdb_folder_is_refused_without_rocksdict(self, tmp_path, request):
        open_store(tmp_path, "rocksdb").close()
        request.getfixturevalue("no_rocksdict")
        with pytest.raises(StorageError, match="needs rocksdict"):
            open_store(tmp_path)

    @pytest.mark.usefixtures("no_rocksdict")
    def test_rocksdb_is_refused_without_rocksdict(self, tmp_path):
        with pytest.raises(StorageError, match="install rocksdict"):
            open_store(tmp_path / "job", "rocksdb")
        assert not exists(tmp_path / "job")

    def test_no_folder_is_memory(self):
        for kind in ("auto", "memory"):
            with closing(open_store(None, kind)) as store:
                assert type(store) is MemoryStore
        for kind in ("rocksdb", "sqlite"):
            with pytest.raises(StorageError, match=f"A {kind} store needs a folder"):
                open_store(None, kind)

    def test_memory_leaves_the_folder_alone(self, tmp_path):
        open_store(tmp_path / "job", "memory").close()
        assert not (tmp_path / "job").exists()

    def test_an_unknown_kind_is_refused(self, tmp_path):
        with pytest.raises(
            SettingError, match=r"\(mysql\) must be one of auto, rocksdb, sqlite, memory, redis"
        ):
            open_store(tmp_path, "mysql")

    def test_a_store_on_a_server_is_not_made_in_a_folder(self, tmp_path):
        for folder in (tmp_path / "new", None):
            with pytest.raises(StorageError, match="needs the address of a server, not a folder"):
                open_store(folder, "redis")
        assert list(tmp_path.iterdir()) == []

    @each_kind
    def test_a_folder_that_cannot_be_made_is_refused(self, tmp_path, kind):
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match=r"Cannot open the store in .*file"):
            open_store(tmp_path / "file", kind)

    @each_kind
    def test_a_damaged_store_is_refused(self, tmp_path, kind):
        open_store(tmp_path, kind).close()
        path = tmp_path / {"rocksdb": "CURRENT", "sqlite": "store.sqlite3"}[kind]
        path.write_bytes(b"damaged " * (path.stat().st_size // 8))
        for opening in (open_store, open_snapshot):
            with pytest.raises(StorageError, match=re.escape(f"The store in {tmp_path} is damaged: ")):
                opening(tmp_path)

    @each_kind
    def test_a_file_that_was_cut_short_after_the_store_was_closed_is_named(self, tmp_path, kind):
        with closing(open_store(tmp_path, kind)) as store:
            write_transfers(store, 30)
        suffix = {"rocksdb": ".sst", "sqlite": ".sqlite3"}[kind]
        path = next(
            path for path in sorted(tmp_path.iterdir()) if path.suffix == suffix and path.stat().st_size
        )
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:-1])
        said = f"its file {path.name} has {size - 1:,} bytes, and had {size:,} bytes when it was closed"
        for opening in (open_store, open_snapshot):
            with pytest.raises(StorageError, match=said):
                opening(tmp_path)

    @pytest.mark.slow
    @needs_rocksdict
    @pytest.mark.parametrize("from_end", [1, 30, 50, 400])
    def test_a_table_that_cannot_be_opened_is_not_left_out(self, tmp_path, from_end):
        """RocksDB's secondary instances go back to what there was before it, and say nothing."""
        with closing(open_store(tmp_path)) as store:
            write_transfers(store, 300)
        for path in tmp_path.glob("*.sst"):
            data = bytearray(path.read_bytes())
            data[-from_end] ^= 0xFF
            path.write_bytes(data)
            for opening in (open_snapshot, open_store):
                with pytest.raises(
                    StorageError, match=rf"is damaged: .*{path.name}.* 'scrapy aopic salvage'"
                ):
                    opening(tmp_path)
            data[-from_end] ^= 0xFF
            path.write_bytes(data)
        with closing(open_snapshot(tmp_path)) as store:
            assert check_transfers(store) == 300

    @each_kind
    def test_a_closed_store_that_was_looked_at_is_not_begun_anew_if_its_file_is_emptied(self, tmp_path, kind):
        with closing(open_store(tmp_path, kind)) as store:
            write_transfers(store, 30)
        open_snapshot(tmp_path).close()
        main = {"rocksdb": "MANIFEST-*", "sqlite": "store.sqlite3"}[kind]
        for path in tmp_path.glob(main):
            path.write_bytes(b"")
        for opening in (open_store, open_store, open_snapshot):
            with pytest.raises(StorageError, match=r"is damaged: its file .* has 0 bytes"):
                opening(tmp_path)

    @each_kind
    def test_commits_that_had_landed_and_are_gone_are_missed(self, tmp_path, kind):
        live, killed = tmp_path / "live", tmp_path / "killed"
        with closing(open_store(live, kind)) as store:
            write_transfers(store, 40)
            shutil.copytree(live, tmp_path / "before")
            write_transfers(store, 4)
            shutil.copytree(live, killed)
        shutil.copytree(killed, tmp_path / "copy")
        with closing(open_store(tmp_path / "copy")) as store:
            assert check_transfers(store) == 44
        for path in (tmp_path / "before").iterdir():
            if path.name != "landed":
                shutil.copy(path, killed / path.name)
        for opening in (open_snapshot, open_store):
            with pytest.raises(
                StorageError, match=r"its last commit is number \d+, but number \d+ had landed"
            ):
                opening(killed)

    @each_kind
    def test_a_folder_whose_files_are_gone_is_no_new_store(self, tmp_path, kind):
        with closing(open_store(tmp_path, kind)) as store:
            write_transfers(store, 40)
        for path in tmp_path.iterdir():
            if path.name != "landed":
                path.unlink()
        for opening in (open_store, open_store, open_snapshot):
            with pytest.raises(StorageError, match=r"files of the store in .* are gone"):
                opening(tmp_path)
        (tmp_path / "landed").write_text("damaged")
        open_store(tmp_path).close()

    def test_a_log_of_sqlite_without_its_database_is_left_alone(self, tmp_path):
        live, killed = tmp_path / "live", tmp_path / "killed"
        with closing(open_store(live, "sqlite")) as store:
            write_transfers(store, 40)
            shutil.copytree(live, killed)
        log = killed / "store.sqlite3-wal"
        before = log.read_bytes()
        for spoil in (lambda path: path.write_bytes(b""), Path.unlink):
            spoil(killed / "store.sqlite3")
            for opening in (open_store, open_snapshot):
                with pytest.raises(StorageError, match="is empty or gone, but not its log"):
                    opening(killed)
            assert log.read_bytes() == before

    @pytest.mark.slow
    @each_kind
    def test_a_folder_in_use_by_another_process_is_refused(self, tmp_path, kind):
        with writing(tmp_path, kind) as process:
            last_reported(process, 1)
            with pytest.raises(StorageError, match="is in use") as caught:
                open_store(tmp_path)
            assert str(tmp_path) in str(caught.value)
            assert f"process {process.pid} on {socket.gethostname()} has had it open since 20" in str(
                caught.value
            )
            last_reported(process, 20)

    @pytest.mark.slow
    @each_kind
    def test_the_store_of_a_process_that_was_killed_is_taken_over(self, tmp_path, kind):
        with writing(tmp_path, kind) as process:
            last_reported(process, 1)
        with closing(open_store(tmp_path)), pytest.raises(StorageError, match=f"process {os.getpid()} on "):
            open_store(tmp_path)
        open_store(tmp_path).close()
        assert (tmp_path / "store.lock").read_bytes() == b""

    @each_kind
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (None, "is missing or damaged"),
            ("99\n", "in format 99"),
            ("\x80?", "is missing or damaged"),
            ("1", "is missing or damaged"),
        ],
    )
    def test_another_format_is_refused_untouched(self, tmp_path, kind, text, said):
        with closing(open_store(tmp_path, kind)) as store:
            write_transfers(store, 3)
        if text is None:
            (tmp_path / "format").unlink()
        else:
            (tmp_path / "format").write_text(text, "latin-1")
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}
        for opening in (open_store, open_snapshot):
            with pytest.raises(StorageError, match=said):
                opening(tmp_path)
        assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()} == before

    @pytest.mark.slow
    @each_kind
    def test_killed_in_the_middle_of_writing(self, tmp_path, kind):
        n_written = 0
        for n_more in (1, 40, 90, 10):
            with writing(tmp_path, kind, padding=5_000) as process:
                n_written = last_reported(process, n_more)
            with closing(open_store(tmp_path)) as store:
                n_found = check_transfers(store)
                assert n_found >= n_written
                write_transfers(store, 2)
                assert check_transfers(store) == n_found + 2


class TestExists:
    @each_kind
    def test_a_store_exists_once_it_was_opened(self, tmp_path, kind):
        assert not exists(tmp_path / "job")
        with closing(open_store(tmp_path / "job", kind)):
            assert exists(tmp_path / "job")
        assert exists(tmp_path / "job")

    def test_other_files_are_no_store(self, tmp_path):
        (tmp_path / "requests.seen").touch()
        assert not exists(tmp_path)


@each_kind
class TestOpenSnapshot:
    @pytest.fixture(autouse=True)
    def temporary(self, tmp_path, monkeypatch):
        """Where snapshots may keep files while they are open."""
        folder = tmp_path / "temporary"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder
        assert list(folder.iterdir()) == []

    @pytest.mark.slow
    def test_of_a_store_that_another_process_is_writing(self, tmp_path, kind):
        n_written = 0
        with writing(tmp_path / "job", kind, padding=50_000) as process:
            for n_more in (1, 3, 60, 3, 100, 3, 30, 3, 3, 3):
                n_written = last_reported(process, n_more)
                with closing(open_snapshot(tmp_path / "job")) as snapshot:
                    n_found = check_transfers(snapshot)
                    assert n_found >= n_written
                    last_reported(process, 2)
                    assert check_transfers(snapshot) == n_found, "the snapshot has moved"
        with closing(open_store(tmp_path / "job")) as store:
            assert check_transfers(store) >= n_written

    def test_of_a_store_that_this_process_is_writing(self, tmp_path, kind):
        with closing(open_store(tmp_path / "job", kind)) as store:
            write_transfers(store, 10)
            with closing(open_snapshot(tmp_path / "job")) as snapshot:
                write_transfers(store, 10)
                assert check_transfers(snapshot) == 10
            assert check_transfers(store) == 20

    def test_of_a_closed_store(self, tmp_path, kind):
        with closing(open_store(tmp_path / "job", kind)) as store:
            write_transfers(store, 10)
        with closing(open_snapshot(tmp_path / "job")) as snapshot:
            assert check_transfers(snapshot) == 10
            with closing(open_store(tmp_path / "job")) as store:
                write_transfers(store, 10)
            assert check_transfers(snapshot) == 10
            assert snapshot.size_bytes() > 0

    @pytest.mark.slow
    def test_of_a_store_whose_process_was_killed(self, tmp_path, kind):
        with writing(tmp_path / "job", kind) as process:
            n_written = last_reported(process, 30)
        with closing(open_snapshot(tmp_path / "job")) as snapshot:
            assert check_transfers(snapshot) >= n_written

    @pytest.mark.slow
    def test_many_keys_and_long_scans(self, tmp_path, kind):
        with closing(open_store(tmp_path / "job", kind)) as store:
            write_transfers(store, 1_500, padding=1)
        with closing(open_snapshot(tmp_path / "job")) as snapshot:
            pairs = list(snapshot.scan(Family.REQUESTS))
            assert snapshot.get_many(Family.REQUESTS, [key for key, _ in pairs]) == [v for _, v in pairs]
            next(snapshot.scan(Family.REQUESTS))
            assert check_transfers(snapshot) == 1_500

    def test_cannot_be_written(self, tmp_path, kind):
        open_store(tmp_path / "job", kind).close()
        with closing(open_snapshot(tmp_path / "job")) as snapshot:
            with pytest.raises(StorageError, match=r"snapshot of the store in .*job cannot be written"):
                write(snapshot, Family.META, {b"a": b"1"})
            assert snapshot.get_many(Family.META, [b"a"]) == [None]
            snapshot.close()
            with pytest.raises(StorageError, match="closed"):
                snapshot.get_many(Family.META, [b"a"])

    def test_needs_a_store(self, tmp_path, kind):
        with pytest.raises(StorageError, match=r"no store in the folder .*job"):
            open_snapshot(tmp_path / "job")
        assert not (tmp_path / "job").exists()


@each_kind
def test_a_store_whose_first_process_died_while_it_made_it_is_opened_by_the_next(tmp_path, kind):
    if kind == "rocksdb":
        rocksdict = pytest.importorskip("rocksdict")
        rocksdict.Rdict(str(tmp_path), rocksdict.Options(raw_mode=True)).close()  # and no family yet
    else:
        connection = sqlite3.connect(tmp_path / "store.sqlite3")
        connection.execute("PRAGMA journal_mode = WAL")  # and no table yet
        connection.close()
    write_format(tmp_path)
    with pytest.raises(StorageError, match=r"is not made yet: .* start it again"):
        open_snapshot(tmp_path)
    store = open_store(tmp_path)
    store.write({Family.META: {b"a": b"1"}}, sync=True)
    store.close()
    snapshot = open_snapshot(tmp_path)
    assert snapshot.get_many(Family.META, [b"a"]) == [b"1"]
    snapshot.close()
