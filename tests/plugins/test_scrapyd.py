"""scrapyd: a project is deployed as an egg, and jobs of it run side by side, each with a job folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener
from zipfile import ZipFile

import pytest
from support.redis_server import free_port
from support.small_site import TITLES, titles

pytest.importorskip("scrapyd")

pytestmark = pytest.mark.slow

SPIDER = """
from scrapy import Spider

from scrapy_aopic import BroadSpider


class Plain(Spider):
    name = "plain"

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a")

    async def start(self):
        from scrapy import Request
        yield Request(self.url)


class Broad(BroadSpider):
    name = "broad"
    fields = "title"
"""

SETTINGS = """
SPIDER_MODULES = ["deployed.spiders"]
ROBOTSTXT_OBEY = False
AOPIC_MIN_GAP = AOPIC_POLITENESS_FACTOR = 0
"""


def egg() -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("deployed/__init__.py", "")
        archive.writestr("deployed/settings.py", SETTINGS)
        archive.writestr("deployed/spiders.py", SPIDER)
        archive.writestr("EGG-INFO/PKG-INFO", "Metadata-Version: 1.0\nName: deployed\nVersion: 1\n")
        archive.writestr("EGG-INFO/entry_points.txt", "[scrapy]\nsettings = deployed.settings\n")
        archive.writestr("EGG-INFO/top_level.txt", "deployed\n")
    return file.getvalue()


class Scrapyd:
    """A running scrapyd in *folder*."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._open = build_opener(ProxyHandler({})).open
        options = {
            "bind_address": "127.0.0.1",
            "http_port": port,
            "poll_interval": 0.2,
            "max_proc": 2,
            "items_dir": "items",
        }
        lines = [f"{name} = {value}" for name, value in options.items()]
        (folder / "scrapyd.conf").write_text("\n".join(["[scrapyd]", *lines]))
        self.log = folder / "scrapyd.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scrapyd"],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def ask(self, name: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        """What it answers, once it does."""
        for _ in range(600):
            try:
                with self._open(Request(f"{self._url}/{name}", body, headers or {})) as reply:
                    said = json.load(reply)
                break
            except URLError:
                assert self._process.poll() is None, self.log.read_text()
                time.sleep(0.1)
        else:
            raise AssertionError(self.log.read_text())
        assert said["status"] == "ok", said
        return said

    def deploy(self, project: str, egg: bytes) -> None:
        boundary = "a-boundary"
        fields = {"project": project, "version": "1"}
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in fields.items()
        ]
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="egg"; filename="a.egg"\r\n\r\n'.encode()
        )
        body = b"".join([*parts, head, egg, f"\r\n--{boundary}--\r\n".encode()])
        self.ask("addversion.json", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    def schedule(self, **values: object) -> str:
        """Id of the job that it will run."""
        return str(self.ask("schedule.json", urlencode(values, doseq=True).encode())["jobid"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def test_jobs_of_a_deployed_project_run_side_by_side(site, tmp_path):
    scrapyd = Scrapyd(tmp_path)
    try:
        scrapyd.deploy("deployed", egg())
        addon = 'ADDONS={"scrapy_aopic.Addon": 500}'
        jobs = [
            scrapyd.schedule(
                project="deployed",
                spider="plain",
                url=site.url,
                setting=[addon, f"JOBDIR={tmp_path / 'one'}"],
            ),
            scrapyd.schedule(
                project="deployed", spider="broad", seeds=site.url, setting=f"JOBDIR={tmp_path / 'two'}"
            ),
        ]
        for _ in range(1200):
            listed = scrapyd.ask("listjobs.json?project=deployed")
            if len(listed["finished"]) == len(jobs):
                break
            time.sleep(0.1)
        for job in jobs:
            feed = next((tmp_path / "items").rglob(f"{job}.jl"))
            assert titles([json.loads(line) for line in feed.read_text().splitlines()]) == TITLES
    finally:
        scrapyd.stop()
    assert (tmp_path / "one").is_dir()
    assert (tmp_path / "two").is_dir()
