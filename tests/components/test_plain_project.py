"""What the packages that the work was asked for are used for, each alone in a project that `scrapy startproject` has made."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from demo_web.server import Answer, Exchange, Server
from support import processes, redis_server

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.questions import top_domains

SPIDER = """
import scrapy

class Links(scrapy.Spider):
    name = "links"
    start_urls = ["http://a.firm.co.uk/"]

    def parse(self, response):
        yield from response.follow_all(css="a")
"""
N = 3
HOSTS = ("a.firm.co.uk", "b.firm.co.uk", "other.co.uk")


def web(exchange: Exchange) -> Answer:
    """Each page links to all of every host, twice."""
    links = [f"http://{host}/{n}" for host in HOSTS for n in range(N)]
    body = "".join(f'<a href="{link}">x</a>' for link in [*links, *links])
    return Answer(headers={"Content-Type": "text/html"}, body=body.encode())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("an LRU cache before RocksDB", ["DUPEFILTER_CLASS=scrapy_aopic.DupeFilter", "JOBDIR=job"]),
        (
            "a Bloom filter",
            ["DUPEFILTER_CLASS=scrapy_aopic.DupeFilter", "AOPIC_DUPEFILTER=bloom", "JOBDIR=job"],
        ),
        ("tldextract", ["SCHEDULER=scrapy_aopic.Scheduler", "AOPIC_MIN_GAP=0.01", "JOBDIR=job"]),
        ("Redis", ["SCHEDULER=scrapy_aopic.Scheduler", "AOPIC_MIN_GAP=0.01", "AOPIC_STORE=redis"]),
    ],
)
def test_each_package_does_its_part_in_a_plain_new_project(tmp_path, name, settings):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    begin = [sys.executable, "-m", "scrapy"]
    processes.run([*begin, "startproject", "plain", str(tmp_path)], check=True, capture_output=True, env=env)
    (tmp_path / "plain" / "spiders" / "links.py").write_text(SPIDER, encoding="utf-8")
    config = tmp_path / "plain" / "settings.py"
    plain = [line for line in config.read_text().splitlines() if not line.startswith("DOWNLOAD_DELAY")]
    config.write_text("\n".join(plain), encoding="utf-8")
    given = [part for each in (*settings, "ROBOTSTXT_OBEY=False") for part in ("-s", each)]
    before = {path.name for path in tmp_path.iterdir()} | {"server"}
    server = Server(web)
    with server.run_in_thread() as running, ExitStack() as stack:
        env["http_proxy"] = running.url
        if name == "Redis":
            client = redis_server.needed()
            store = stack.enter_context(redis_server.Server(tmp_path / "server"))
            given += ["-s", f"REDIS_URL={store.url}"]
        for _ in range(2):  # the second run finds all pages in what the first one has kept
            done = processes.run(
                [*begin, "crawl", "links", *given], cwd=tmp_path, env=env, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in done.stderr, done.stderr
        if name == "Redis":
            with client.Redis.from_url(store.url) as asked:
                assert {key.partition(b":")[0] for key in asked.scan_iter()} == {b"{aopic"}
            assert {path.name for path in tmp_path.iterdir()} == before, "the job is in Redis alone"
    pages = [f"{entry.host}{entry.target}" for entry in server.entries]
    start = f"{HOSTS[0]}/"
    assert sorted(each for each in pages if each != start) == sorted(
        f"{host}/{n}" for host in HOSTS for n in range(N)
    )
    job = Path(tmp_path, "job")
    if name == "tldextract":
        with open_view(FolderPlace(job)) as view:
            found = {
                each["domain"]: each["hosts"] for each in top_domains(view, 9)["domains"] if each["domain"]
            }
        assert found == {"firm.co.uk": 2, "other.co.uk": 1}
    elif "RocksDB" in name:
        assert (job / "aopic-seen" / "IDENTITY").exists()  # a file of RocksDB's


@pytest.mark.slow
def test_a_look_at_a_page_is_no_part_of_the_job_that_the_project_sets(tmp_path):
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = plain\n", encoding="utf-8")
    (tmp_path / "links.py").write_text(
        SPIDER.replace('css="a"', 'css="a", callback=self.read') + "    def read(self, response): pass\n",
        encoding="utf-8",
    )
    lines = (
        'SPIDER_MODULES = ["links"]',
        'ADDONS = {"scrapy_aopic.Addon": 500}',
        'JOBDIR = "job"',
        "AOPIC_STORE = 'sqlite'",
    )
    (tmp_path / "plain.py").write_text("\n".join(lines), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    url = "http://a.firm.co.uk/"
    looks = (
        ["fetch", url],
        ["parse", url, "--spider", "links", "-c", "read"],
        ["shell", url, "-c", "response.url"],
    )
    queued = []
    with Server(web).run_in_thread() as running:
        env["http_proxy"] = running.url
        for what in (["crawl", "links", "-s", "CLOSESPIDER_PAGECOUNT=2"], *looks):
            workers = [] if what[0] == "crawl" else ["-s", "AOPIC_WORKERS=2"]
            line = [sys.executable, "-m", "scrapy", *what, *workers]
            done = processes.run_and_read(line, cwd=tmp_path, env=env)
            assert done.returncode == 0, done.stderr
            with open_view(FolderPlace(tmp_path / "job")) as view:
                queued.append([saved.queued for saved in view.saved if saved is not None])
    assert queued[0] != [0]
    assert queued == queued[:1] * 4
