"""What users break, and what they change between two runs: the job stays whole and goes on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import FormRequest, Request, Spider, signals
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro
from support.crawls import Visits, in_folder
from support.small_web import Follow, ask_view, check, crawl

from scrapy_aopic.view.stored import count

WEB = {
    f"http://h{n % 3}.test/{n}": [f"http://h{m % 3}.test/{m}" for m in (2 * n + 1, 2 * n + 2) if m < 15]
    for n in range(15)
}


on_disk = partial(in_folder, CONCURRENT_REQUESTS=1)


class FromRoot(Follow):
    start_urls = ["http://h0.test/0"]


class Breaks:
    """A pipeline that takes no item."""

    def process_item(self, item: Any) -> Any:
        raise RuntimeError("no item is good enough")


async def test_a_pipeline_and_an_errback_that_raise_cost_no_page_and_no_cash(serve, tmp_path, caplog):
    class Careless(Visits):
        start_urls = ["http://a.test/"]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"url": response.url}
            yield Request("http://a.test/gone", errback=self.fails)
            yield Request("http://a.test/1")

        def fails(self, failure: Any) -> None:
            raise RuntimeError("an errback that fails")

    web = serve({"http://a.test/": [], "http://a.test/1": []})
    await crawl(Careless, on_disk(tmp_path, ITEM_PIPELINES={Breaks: 100}))
    assert "no item is good enough" in caplog.text
    assert "an errback that fails" in caplog.text
    assert sorted(web.asked) == ["http://a.test/", "http://a.test/1", "http://a.test/gone"]
    result = check(tmp_path)
    assert (result.violations, result.visited, result.failed, result.queued) == ([], 2, 1, 0)
    assert ask_view(tmp_path, count).outcomes == {"http 404": 1}


@pytest.mark.slow
async def test_a_spider_that_was_renamed_goes_on_with_the_job(serve, tmp_path):
    web = serve(WEB)
    await crawl(FromRoot, on_disk(tmp_path, CLOSESPIDER_PAGECOUNT=4))
    await crawl(FromRoot, on_disk(tmp_path), name="renamed")
    assert sorted(web.asked) == sorted(WEB)
    result = check(tmp_path)
    assert (result.violations, result.visited, result.queued) == ([], len(WEB), 0)


@pytest.mark.slow
async def test_settings_that_are_changed_between_runs_keep_the_job_whole(serve, tmp_path):
    changes: list[dict[str, Any]] = [
        {},
        {"AOPIC_VIRTUAL_SHARE": 0.5, "AOPIC_ENDOWMENT": 0},
        {"AOPIC_VIRTUAL_SPENDING": "unvisited", "AOPIC_POLITENESS_FACTOR": 1, "AOPIC_DURABILITY": "page"},
        {"AOPIC_VIRTUAL_SPENDING": {"chosen": ["a.test"]}, "AOPIC_WINDOW_KIND": "fixed"},
        {"AOPIC_DOMAIN_BUDGET": 0, "AOPIC_KEEP_LINKS": True, "AOPIC_DURABILITY": "close"},
        {"AOPIC_WINDOW_KIND": "ewma", "AOPIC_POLITENESS_KEY": "domain", "AOPIC_CONTENT_SEEN": "near"},
    ]
    web = serve(WEB)
    for number, changed in enumerate(changes, 1):
        await crawl(FromRoot, on_disk(tmp_path, CLOSESPIDER_PAGECOUNT=2, **changed))
        assert len(web.asked) >= 2 * number
    await crawl(FromRoot, on_disk(tmp_path))
    assert sorted(web.asked) == sorted(WEB)
    result = check(tmp_path)
    assert (result.violations, result.visited, result.queued) == ([], len(WEB), 0)


async def test_a_retry_that_waits_goes_out_by_the_proxy_and_the_user_agent_of_the_next_run(
    serve, tmp_path, monkeypatch
):
    def stop(request: Request, spider: Spider) -> None:
        if request.meta.get("retry_times"):
            deferred_from_coro(spider.crawler.stop_async())

    old = serve({"http://a.test/": Answer(500)})
    monkeypatch.setenv("http_proxy", os.environ["http_proxy"].replace("//", "//me:secret@"))
    settings, start = on_disk(tmp_path), {"start_urls": ["http://a.test/"]}
    await crawl(Visits, {**settings, "USER_AGENT": "old"}, told={signals.request_scheduled: stop}, **start)
    assert len(old.asked) == 1
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"retry_times" in stored
    assert b"Basic" not in stored
    agents = []

    def page(exchange: Exchange) -> Answer:
        agents.append(exchange.headers["user-agent"])
        return Answer()

    new = serve({"http://a.test/": page})
    await crawl(Visits, {**settings, "USER_AGENT": "new"}, **start)
    assert (len(old.asked), len(new.asked)) == (1, 1)
    assert agents == ["new"]


async def test_a_crawl_that_goes_on_logs_in_again_and_does_not_begin_anew(serve, tmp_path):
    class Login(Visits):
        async def start(self) -> AsyncIterator[Any]:
            yield Request("http://a.test/plain", dont_filter=True)
            yield Request("http://a.test/login", self.log_in, dont_filter=True)
            yield FormRequest("http://a.test/form", formdata={"user": "me"}, dont_filter=True)

        def log_in(self, response: Response) -> None: ...

    web = serve({f"http://a.test/{name}": [] for name in ("plain", "login", "form")})
    for _ in range(2):
        await crawl(Login, on_disk(tmp_path))
    asked = [url.rpartition("/")[2] for url in web.asked]
    assert sorted(asked) == ["form", "form", "login", "login", "plain"]


async def test_a_job_folder_that_cannot_be_made_is_one_sentence(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, said in (("file/job", "because"), ("link", "which is not there")):
        caplog.clear()
        folder = str(tmp_path / name)
        await crawl(Follow, {"ADDONS": {"scrapy_aopic.Addon": 1}, "JOBDIR": folder})
        (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert said in error.getMessage()
        assert folder in error.getMessage()
        assert error.exc_info is None
