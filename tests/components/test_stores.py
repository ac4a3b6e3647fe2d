"""A store from another package, which AOPIC_STORE names by its import path: crawled, asked, copied, and refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.commands import run_aopic
from support.journal_store import JournalStore
from support.small_web import Follow, crawl
from support.store_contract import check_transfers, write_transfers

from scrapy_aopic.exceptions import SettingError, StorageError
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.settings import read
from scrapy_aopic.storage import exists, open_snapshot, open_store, registry
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.version import DOCS

JOURNAL = "support.journal_store.JournalStore"
PAGES = {"http://a.test/": ["/1", "http://b.test/"], "http://a.test/1": ["/"], "http://b.test/": []}


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test names is not named in the next."""
    monkeypatch.setattr(registry, "_USED", {})


@pytest.mark.slow
async def test_a_crawl_on_a_store_of_your_own_is_asked_checked_copied_and_resumed(serve, tmp_path):
    web = serve(PAGES)
    job, copy = tmp_path / "job", tmp_path / "copy"
    settings = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": JOURNAL, "JOBDIR": str(job)}
    await crawl(Follow, settings)
    assert sorted(web.asked) == sorted(PAGES)
    assert store_folder(job).joinpath("backend").read_text() == f"{JOURNAL}\n"

    named = ("-s", f"AOPIC_STORE={JOURNAL}")
    status = run_aopic("status", "job", *named, folder=tmp_path)
    assert "3 pages" in status.stdout, status.stderr
    assert run_aopic("check", "job", *named, folder=tmp_path).returncode == 0
    assert run_aopic("backup", "job", "copy", *named, folder=tmp_path).returncode == 0
    assert run_aopic("check", "copy", *named, folder=tmp_path).returncode == 0

    await crawl(Follow, {**settings, "JOBDIR": str(copy)})
    assert len(web.asked) == len(PAGES), "the copy knows what was visited"


@pytest.mark.slow
async def test_what_a_folder_names_is_imported_only_if_the_user_names_it(serve, tmp_path):
    serve(PAGES)
    settings = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": JOURNAL, "JOBDIR": str(tmp_path)}
    await crawl(Follow, settings)
    done = run_aopic("status", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"The store in {store_folder(tmp_path)} was made by {JOURNAL}, which is imported only if you name it, too: set "
        f"AOPIC_STORE to it (on the command line -s AOPIC_STORE={JOURNAL}). See {DOCS} commands#status\n"
    )
    registry._USED.clear()
    with pytest.raises(StorageError, match="imported only if you name it"):
        open_store(store_folder(tmp_path))


def test_a_view_of_a_store_of_your_own_does_not_move_while_it_is_written(tmp_path):
    with closing(open_store(tmp_path / "job", JOURNAL)) as store:
        write_transfers(store, 10)
        with closing(open_snapshot(tmp_path / "job")) as view:
            write_transfers(store, 10)
            assert check_transfers(view) == 10
    with closing(open_store(tmp_path / "job")) as store:
        assert check_transfers(store) == 20


@pytest.mark.slow
async def test_a_damaged_store_of_others_is_salvaged_if_it_opens_and_else_refused_and_left_alone(
    serve, tmp_path
):
    serve(PAGES)
    job = tmp_path / "job"
    settings = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": JOURNAL, "JOBDIR": str(job)}
    await crawl(Follow, settings)
    named = ("-s", f"AOPIC_STORE={JOURNAL}")
    assert run_aopic("salvage", job, "new", *named, folder=tmp_path).returncode == 0
    assert run_aopic("check", "new", *named, folder=tmp_path).returncode == 0
    assert store_folder(tmp_path / "new").joinpath("backend").read_text() == f"{JOURNAL}\n"
    journal = store_folder(job) / "journal"
    data = bytearray(journal.read_bytes())
    data[100] ^= 0xFF
    journal.write_bytes(data)
    done = run_aopic("salvage", job, "again", *named, folder=tmp_path)
    assert done.returncode == 2
    assert "is damaged before byte" in done.stderr
    assert f"because {JOURNAL} has no open_for_salvage" in done.stderr
    assert done.stderr.count("\n") == 1
    assert journal.read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "new"]


@pytest.mark.parametrize("other", ["rocksdb", "sqlite", "memory"])
def test_a_folder_keeps_its_kind(tmp_path, other):
    open_store(tmp_path, JOURNAL).close()
    said = rf"holds a {JOURNAL} store.*as {other}; ask for {JOURNAL} or auto"
    with pytest.raises(StorageError, match=said):
        open_store(tmp_path, other)
    open_store(tmp_path).close()


def test_a_folder_whose_process_died_before_it_had_a_store_gets_one(tmp_path):
    open_store(tmp_path, JOURNAL).close()
    (tmp_path / "journal").unlink()
    open_store(tmp_path, JOURNAL).close()
    (tmp_path / "backend").unlink()
    assert not exists(tmp_path)
    open_store(tmp_path, JOURNAL).close()


@pytest.mark.parametrize(
    "text", ["", "journal_store", "os.system()\n", f"{JOURNAL}\nmore\n", "a" * 5_000 + ".b\n"]
)
def test_a_folder_that_does_not_say_which_kind_it_has_is_no_new_store(tmp_path, text):
    open_store(tmp_path, JOURNAL).close()
    (tmp_path / "backend").write_text(text)
    for opening in (open_store, open_snapshot, exists):
        with pytest.raises(StorageError, match=r"backend is damaged: it should hold the import path"):
            opening(tmp_path)


class NoScan(MemoryStore):
    scan = None  # type: ignore[assignment]

    def __init__(self, folder: Path, *, memory_mb: int, read_only: bool) -> None:
        super().__init__()


def raising(folder: Path, *, memory_mb: int, read_only: bool) -> Any:
    raise ValueError("the moon is full")


def returning(folder: Path, *, memory_mb: int, read_only: bool) -> Any:
    return object()


def test_what_is_no_backend_is_refused():
    for value, said in [
        ("rockdb", 'did you mean "rocksdb"?'),
        ("mongodb", ""),
        ("no.such.module", "No module named 'no'"),
        ("support.journal_store.Journal", "has no attribute 'Journal'"),
        ("support.journal_store.HEAD", "a Struct cannot be called"),
        ("scrapy_aopic.storage.memory.MemoryStore", "it does not take a folder, memory_mb and read_only"),
        (f"{__name__}.NoScan", "it has no scan"),
        (7, ""),
        (object(), ""),
    ]:
        with pytest.raises(SettingError) as caught:
            read({"AOPIC_STORE": value}, "AOPIC_STORE")
        text = str(caught.value)
        assert text.startswith(f"AOPIC_STORE ({value!r}) must be ")
        assert '"memory" or the import path of a backend' in text, value
        assert said in text, value


def test_a_backend_may_be_given_as_a_class_that_a_folder_can_remember():
    assert read({"AOPIC_STORE": JournalStore}, "AOPIC_STORE") == JOURNAL

    class Local(JournalStore):
        pass

    with pytest.raises(SettingError, match="must be "):
        read({"AOPIC_STORE": Local}, "AOPIC_STORE")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raising", r"Cannot open the store in .*job: .*raising raised ValueError: the moon is full\.$"),
        ("returning", r"what .*returning made has no get_many and no scan and no write"),
    ],
)
def test_a_backend_that_fails_is_one_sentence(tmp_path, name, said):
    with pytest.raises(StorageError, match=said):
        open_store(tmp_path / "job", f"{__name__}.{name}")
