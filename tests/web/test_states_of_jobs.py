"""Dashboard and report of a job that was stopped, killed, damaged, or written in another format."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from demo_web.server import Server
from support import processes
from support.commands import run_aopic
from support.dashboard import get, serve_job
from support.killed_crawl import answer, command
from support.small_web import ask_view
from support.waiting import wait_until

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace, store_folder
from scrapy_aopic.view.stored import snapshot_of

pytestmark = pytest.mark.slow

STORES = ("rocksdb", "sqlite")


def visited(folder: Path) -> int:
    """Pages that were visited as of the last commit."""
    with suppress(StorageError):  # it has only just begun
        return int(ask_view(folder, snapshot_of).pages.visited)
    return 0


def crawl_and(end: signal.Signals, folder: Path, store: str) -> None:
    """Crawl 60 pages and more, until the signal *end*."""
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    with Server(answer).run_in_thread() as running:
        line, environment = command(folder, running.url, AOPIC_STORE=store)
        with processes.start(line, env=environment, cwd=folder.parent) as process:
            wait_until(lambda: len(running.log) >= 60 and visited(folder) > 0)
            process.send_signal(end)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Copies of jobs that were ``stopped`` or ``killed``."""
    made: dict[tuple[str, str], Path] = {}

    def copy(state: str, store: str) -> Path:
        if (state, store) not in made:
            made[state, store] = tmp_path_factory.mktemp(f"{state}-{store}") / "job"
            end = {"stopped": signal.SIGINT, "killed": signal.SIGKILL}[state]
            crawl_and(end, made[state, store], store)
        folder = tmp_path_factory.mktemp("copy") / "job"
        shutil.copytree(made[state, store], folder)
        return folder

    return copy


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    ("state", "said"),
    [("stopped", "was closed (shutdown)"), ("killed", "runs elsewhere, or its process died. If it")],
)
def test_a_job_that_ended(jobs, state, said, store):
    job = jobs(state, store)
    known = ask_view(job, snapshot_of)
    assert known.pages.visited > 0
    with serve_job(FolderPlace(job)) as port:
        now = json.loads(get(port, "/api/v1/snapshot").text)
        assert now["verdict"]["sentence"].startswith(f"As of the last commit; the crawl {said}")
        assert now["verdict"]["sentence"].endswith(f"goes on where it was: {known.pages.queued} pages wait.")
        assert now["is_closed"] == (state == "stopped")
        for name in ("visited", "failed", "queued"):
            assert now["pages"][name] == getattr(known.pages, name)
        assert get(port, "/").status == get(port, "/healthz").status == 200
        assert get(port, "/readyz").status == 503  # nothing crawls
        assert f"aopic_job_visited {known.pages.visited}\n" in get(port, "/metrics").text
        assert json.loads(get(port, "/api/v1/top").text)["pages"][0]["importance"] > 0
        why = json.loads(get(port, "/api/v1/why?of=http://h0.test/0").text)
        assert why["kind"] == "fetched"
    page = job.parent / "report.html"
    done = run_aopic("report", job, page, folder=job.parent)
    assert (done.returncode, done.stderr) == (0, "")
    text = page.read_text("utf-8")
    assert f"the crawl {said}" in text
    assert f'"visited":{known.pages.visited},' in text


def _spoil(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def damage(job: Path, store: str) -> None:
    """Make the store of *job* one that cannot be opened."""
    folder = store_folder(job)
    if store == "sqlite":
        _spoil(next(folder.rglob("*.sqlite*")), b"\xff" * 4096)
    else:
        _spoil(next(folder.rglob("CURRENT")), b"nonsense")


def change_format(job: Path) -> None:
    """As another version would have written it."""
    (store_folder(job) / "format").write_text("999\n")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("wrong", ["damaged", "other format"])
def test_a_job_that_cannot_be_read_is_one_sentence(jobs, wrong, store):
    job = jobs("stopped", store)
    if wrong == "damaged":
        damage(job, store)
    else:
        change_format(job)
    page = job.parent / "report.html"
    for done in (
        run_aopic("dashboard", job, "--listen", "127.0.0.1:0", folder=job.parent),
        run_aopic("report", job, page, folder=job.parent),
    ):
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        (sentence,) = done.stderr.splitlines()
        assert str(store_folder(job)) in sentence
        if wrong == "damaged":
            assert "scrapy aopic salvage" in sentence
        else:
            assert "was written in format 999" in sentence
    assert not page.exists()


@pytest.mark.parametrize("store", STORES)
def test_a_job_that_is_damaged_while_it_is_shown_stays_on_the_page(jobs, store):
    job = jobs("killed", store)
    known = ask_view(job, snapshot_of)
    with serve_job(FolderPlace(job)) as port:
        assert not json.loads(get(port, "/api/v1/snapshot").text)["problem"]
        damage(job, store)
        shown = lambda: json.loads(get(port, "/api/v1/snapshot").text)
        wait_until(lambda: shown()["problem"], every=0.1)
        now = shown()
        assert "damaged" in now["problem"]
        assert now["pages"]["visited"] == known.pages.visited  # as of when it could be read
        assert "damaged" in json.loads(get(port, "/api/v1/top").text)["problem"]
        assert "damaged" in json.loads(get(port, "/api/v1/why?of=h0.test").text)["problem"]
