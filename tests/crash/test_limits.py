"""A real crawl that runs out of disk or of file descriptors, and goes on when there is room."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from demo_web.server import Answer, Server
from support import processes
from support.killed_crawl import N_HOSTS, N_PAGES, answer, command
from support.short_forms import some_of
from support.small_web import check

from scrapy_aopic.place.folder_place import store_folder

pytest.importorskip("resource", reason="needs limits on processes")


def crawl_within(job: Path, proxy: str, store: str, limit: tuple[str, int] | None = None) -> tuple[str, str]:
    """Crawl under *limit*; returns the errors in the log, and the reason why the spider was closed."""
    log = job.parent / "log"
    log.unlink(missing_ok=True)
    # Many commits in a crawl that lasts some seconds: the disk is full long before the last one.
    settings = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_MIN_GAP": 0.1, "AOPIC_DURABILITY": 50}
    settings |= {"LOG_LEVEL": "INFO", "LOG_FILE": log}
    line, environment = command(job, proxy, AOPIC_STORE=store, **settings)

    done = processes.run(line, env=environment, cwd=job.parent, timeout=300, limit=limit)
    lines = log.read_text().splitlines()
    errors = [text for text in lines if "] ERROR: " in text]
    (reason,) = [text.split("'")[3] for text in lines if "'finish_reason': " in text]
    assert done.returncode == (reason != "finished")
    assert "Traceback" not in log.read_text()
    return "\n".join(errors), reason


@pytest.mark.parametrize(("store", "size"), some_of([("rocksdb", 100_000), ("sqlite", 200_000)]))
def test_a_crawl_on_a_full_disk_stops_with_one_sentence_and_goes_on_when_there_is_room(tmp_path, store, size):
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        errors, reason = crawl_within(job, running.url, store, ("RLIMIT_FSIZE", size))
        assert reason == "aopic_storage"
        assert errors.count("] ERROR: ") == 1
        assert f"Cannot write to the store in {store_folder(job)}" in errors
        assert "nothing that was committed is lost, run the same command to go on" in errors
        stopped = check(job)
        assert stopped.violations == []
        assert 0 < stopped.visited < N_HOSTS * N_PAGES
        assert crawl_within(job, running.url, store) == ("", "finished")
    result = check(job)
    assert (result.violations, result.visited, result.queued) == ([], N_HOSTS * N_PAGES, 0)


@pytest.mark.parametrize(("store", "descriptors"), some_of([("sqlite", 15), ("rocksdb", 20)]))
def test_a_crawl_without_enough_file_descriptors_does_not_start(tmp_path, store, descriptors):
    if store == "rocksdb":
        pytest.importorskip("rocksdict")
    job = tmp_path / "job"
    with Server(answer).run_in_thread() as running:
        errors, reason = crawl_within(job, running.url, store, ("RLIMIT_NOFILE", descriptors))
        assert reason == "aopic_storage"
        assert errors.count("] ERROR: ") == 1
        assert f"Cannot open the store in {store_folder(job)}" in errors
        assert "The crawl does not start." in errors
        assert running.log == []
        assert crawl_within(job, running.url, store) == ("", "finished")
    assert check(job).visited == N_HOSTS * N_PAGES


MANY = """
import json, sys
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerProcess

class Many(Spider):
    name = "many"
    def parse(self, response):
        yield {"url": response.url}

process = AsyncCrawlerProcess(json.loads(sys.argv[1]))
crawler = process.create_crawler(Many)
process.crawl(crawler, start_urls=sys.argv[2:])
process.start()
print(json.dumps([crawler.stats.get_value("finish_reason"), crawler.stats.get_value("item_scraped_count")]))
"""


@pytest.mark.parametrize("delay", [1.0, 0.0], ids=["in use", "kept for each host"])
@pytest.mark.parametrize("is_fast", [False, True])
def test_no_more_connections_begin_than_files_may_be_open(tmp_path, delay, is_fast):
    """Each of 200 hosts has one connection, while it answers and afterwards, and 128 files may be open."""
    n, limit = 200, 128
    page = Answer(headers={"Content-Type": "text/html"}, body=b"<p>page", delay=delay)
    server = Server(lambda _: page, host="0.0.0.0")
    (tmp_path / "many.py").write_text(MANY, encoding="utf-8")
    settings = {
        "ADDONS": {"scrapy_aopic.Addon": 500}, "CONCURRENT_REQUESTS": n, "JOBDIR": str(tmp_path / "job"),
        "AOPIC_STORE": "sqlite", "ROBOTSTXT_OBEY": False, "LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False,
        "AOPIC_FAST_DOWNLOADS": is_fast,
    }  # fmt: skip
    with server.run_in_thread():
        urls = [f"http://127.1.0.{number}:{server.port}/" for number in range(1, n + 1)]
        line = [sys.executable, str(tmp_path / "many.py"), json.dumps(settings), *urls]
        done = processes.run_and_read(line, cwd=tmp_path, limit=("RLIMIT_NOFILE", limit))
    assert json.loads(done.stdout) == ["finished", n], done.stderr
    assert max(entry.in_flight for entry in server.entries) == 1
    assert done.stderr.count("ulimit -n") == (1 if delay else done.stderr.count("ulimit -n"))
    assert "Traceback" not in done.stderr
    assert "ERROR" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_address_space_for_rocksdb_there_is_one_sentence(tmp_path):
    pytest.importorskip("rocksdict")
    with Server(answer).run_in_thread() as running:
        line, environment = command(tmp_path / "job", running.url, AOPIC_STORE="rocksdb")
        done = processes.run_and_read(line, env=environment, cwd=tmp_path, limit=("RLIMIT_AS", 400 << 20))
    assert done.returncode == 1, done
    assert "RocksDB needs 400 MB of address space, and the limit of this process leaves" in done.stderr
    assert "terminate called" not in done.stderr
