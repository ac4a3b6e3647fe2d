"""``spider.state`` in a job folder: as safe as the job itself."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path
from typing import Any

from scrapy import Spider
from support.small_web import crawl

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import lock_job

SETTINGS = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": "sqlite", "AOPIC_REPORT": False}


class Counting(Spider):
    """Counts its runs in its state; a run may put in something else, too."""

    name = "counting"
    start_urls: list[str] = []

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Counting:
        spider: Counting = super().from_crawler(crawler, *args, **kwargs)
        spider.seen = []
        return spider

    async def start(self) -> Any:
        self.seen.append(dict(self.state))
        self.state["runs"] = self.state.get("runs", 0) + 1
        self.state.update(getattr(self, "more", {}))
        return
        yield

    def closed(self, reason: str) -> None:
        self.state["reason"] = reason


async def run(job: Path, **arguments: Any) -> Any:
    return (await crawl(Counting, {**SETTINGS, "JOBDIR": str(job)}, **arguments)).spider


async def test_the_state_goes_on_with_what_a_closing_spider_noted_last(tmp_path):
    await run(tmp_path / "job")
    spider = await run(tmp_path / "job")
    assert spider.seen == [{"runs": 1, "reason": "finished"}]
    assert spider.state["runs"] == 2
    with (tmp_path / "job" / "spider.state").open("rb") as file:
        assert pickle.load(file) == {"runs": 2, "reason": "finished"}
    lock_job(store_folder(tmp_path / "job"), "crawl").release()


async def test_a_broken_state_is_put_aside(tmp_path, caplog):
    job = tmp_path / "job"
    await run(job)
    whole = (job / "spider.state").read_bytes()
    for number, broken in enumerate((whole[:-3], b"", b"cno_such_module\nname\n."), 1):
        (job / "spider.state").write_bytes(broken)
        caplog.clear()
        spider = await run(job)
        assert spider.seen == [{}]
        assert (job / f"spider.state.broken-{number}").read_bytes() == broken
        (warning,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
        assert f"{job}/spider.state cannot be read" in warning.getMessage()
        assert f"put aside as spider.state.broken-{number}" in warning.getMessage()


async def test_a_state_that_cannot_be_written_leaves_the_old_one(tmp_path, caplog):
    job = tmp_path / "job"
    await run(job)
    whole = (job / "spider.state").read_bytes()
    await run(job, more={"function": lambda: None})
    assert (job / "spider.state").read_bytes() == whole
    assert sorted(path.name for path in job.iterdir() if "state" in path.name) == ["spider.state"]
    (error,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "The state of the spider cannot be written" in error.getMessage()


async def test_a_crawl_that_is_refused_leaves_the_state_alone(tmp_path):
    job = tmp_path / "job"
    await run(job)
    before = (job / "spider.state").stat()
    with lock_job(store_folder(job), "crawl"):
        await run(job)
    assert (job / "spider.state").stat().st_mtime_ns == before.st_mtime_ns
    assert os.path.samestat((job / "spider.state").stat(), before)


async def test_others_are_kept_out_until_the_state_is_written(tmp_path):
    job, refused = tmp_path / "job", []

    class Slow(Counting):
        def closed(self, reason: str) -> None:
            super().closed(reason)
            try:
                lock_job(store_folder(job), "crawl").release()
            except StorageError as error:
                refused.append(str(error))

    await crawl(Slow, {**SETTINGS, "JOBDIR": str(job)})
    assert len(refused) == 1
    assert f"process {os.getpid()}" in refused[0]
