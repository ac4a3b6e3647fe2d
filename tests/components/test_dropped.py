"""Links that are dropped on their way to the queue: why says so, and on which page they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from demo_web.server import Answer
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from support.commands import run_here
from support.crawls import ADDON, in_folder
from support.small_web import Follow, Web, crawl, html

from scrapy_aopic import Links
from scrapy_aopic.core import duplicates
from scrapy_aopic.view import dropped
from scrapy_aopic.view.dropped import FILE_NAME, REASONS, Drop, Dropped, find, read_dropped

Serve = Callable[[dict[str, Any]], Web]

TEXT = "the same words " * 30


def page(*links: str, text: str = "") -> Answer:
    return Answer(headers={"Content-Type": "text/html"}, body=html(list(links), text))


class ByLinks(Follow):
    """Follows all links of a page at once."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield Links(response)


class Fussy(BaseSpiderMiddleware):
    """Drops what nobody else does, and puts another request in the place of some."""

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        if "unwanted" in request.url:
            return None
        if "changed" in request.url:
            return Request("http://a.test/instead")
        return super().get_processed_request(request, response)


async def answers(
    serve: Serve,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    web: dict[str, Any],
    *questions: str,
    spider: type[Spider] = Follow,
    **options: Any,
) -> list[dict[str, Any]]:
    """What ``why`` says after a crawl with *options*: settings, in capitals, and arguments of the spider."""
    serve(web)
    quiet = {**ADDON, "USER_AGENT": "tester", "AOPIC_REPORT": False, "ROBOTSTXT_OBEY": False}
    settings = {name: value for name, value in options.items() if name.isupper()}
    arguments = {name: value for name, value in options.items() if name.islower()}
    await crawl(spider, in_folder(folder, quiet, **settings), **arguments)
    capsys.readouterr()
    code, out, _ = run_here(capsys, "why", "--json", folder, *questions)
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


def assert_dropped(answer: dict[str, Any], reason: str, page: str = "http://a.test/") -> None:
    assert answer["kind"] == "dropped", answer
    assert answer["sentences"][0] == f"A link to it on {page} was dropped, because {REASONS[reason]}."
    assert answer["facts"]["dropped"] == reason


@pytest.mark.parametrize("spider", [Follow, ByLinks])
async def test_links_beyond_a_flood(serve, tmp_path, capsys, spider):
    links = [f"http://a.test/{n}" for n in range(5)]
    web = {"http://a.test/": links, **{link: [] for link in links}}
    limits = {"AOPIC_URL_LIMITS": {"links": 3}}
    none = "http://a.test/none"
    found = await answers(serve, tmp_path, capsys, web, *links, none, spider=spider, **limits)
    assert [answer["kind"] for answer in found] == ["fetched"] * 3 + ["dropped"] * 2 + ["unknown"]
    for answer in found[3:5]:
        assert_dropped(answer, "flood")
    assert "It is not among the 2 links that were dropped on their way to the queue." in found[5]["sentences"]


async def test_links_of_a_duplicate(serve, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(duplicates, "SAME_WORDS", 1)
    numbers = range(1, 3)
    web = {"http://a.test/": [f"/{n}/" for n in numbers]}
    web |= {f"http://a.test/{n}/": page("end", text=TEXT) for n in numbers}
    ends = [f"http://a.test/{n}/end" for n in numbers]
    found = await answers(serve, tmp_path, capsys, web, *ends)
    (last,) = (answer for answer in found if answer["kind"] != "failed")
    assert_dropped(last, "duplicate", last["about"].removesuffix("end"))


@pytest.mark.parametrize("spider", [Follow, ByLinks])
async def test_links_to_other_sites(serve, tmp_path, capsys, spider):
    web = {"http://a.test/": ["http://b.test/", "/1"], "http://a.test/1": []}
    asked, bound = ("http://b.test/", "http://a.test/1"), {"allowed_domains": ["a.test"]}
    (one, two) = await answers(serve, tmp_path, capsys, web, *asked, spider=spider, **bound)
    assert_dropped(one, "offsite")
    assert two["kind"] == "fetched"


async def test_links_that_are_too_deep_or_too_long(serve, tmp_path, capsys):
    long = f"http://a.test/{'x' * 60}"
    web = {"http://a.test/": ["/1", long], "http://a.test/1": ["/2"], "http://a.test/2": ["/3"]}
    settings = {"DEPTH_LIMIT": 1, "URLLENGTH_LIMIT": 50}
    deep, length = await answers(serve, tmp_path, capsys, web, "http://a.test/2", long, **settings)
    assert_dropped(deep, "depth", "http://a.test/1")
    assert_dropped(length, "length")


async def test_links_that_a_middleware_of_the_user_drops(serve, tmp_path, capsys):
    links = ["http://a.test/unwanted", "http://a.test/changed", "http://b.test/", "http://a.test/1"]
    web = {"http://a.test/": [*links, "/1"], "http://a.test/1": [], "http://a.test/instead": []}
    options = {"SPIDER_MIDDLEWARES": {Fussy: 500}, "allowed_domains": ["a.test"]}
    found = await answers(serve, tmp_path, capsys, web, *links, "http://a.test/instead", **options)
    for answer in found[:3]:
        assert_dropped(answer, "middleware")
    assert [answer["kind"] for answer in found[3:]] == ["fetched", "fetched"]


async def test_what_is_not_dropped_is_said_and_what_is_known_goes_on_over_runs(serve, tmp_path, capsys):
    web = {"http://a.test/": ["/1"], "http://a.test/1": ["/2", "/3", "/4"], "http://a.test/2": []}
    (none,) = await answers(serve, tmp_path, capsys, web, "http://a.test/9", CLOSESPIDER_PAGECOUNT=1)
    assert any("No link was dropped on its way to the queue" in each for each in none["sentences"])
    (one,) = await answers(serve, tmp_path, capsys, web, "http://a.test/4", AOPIC_URL_LIMITS={"links": 2})
    assert_dropped(one, "flood", "http://a.test/1")
    (again,) = await answers(serve, tmp_path, capsys, web, "http://a.test/4")
    assert_dropped(again, "flood", "http://a.test/1")


# The sample


def test_it_is_bounded_and_has_the_same_urls_whatever_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(dropped, "MOST", 50)
    urls = [f"http://a.test/{n}" for n in range(1000)]
    kept = []
    for order in (urls, urls[::-1], urls * 3):
        made = Dropped(tmp_path / "sample")
        (tmp_path / "sample").unlink(missing_ok=True)
        for url in order:
            made.note("flood", url, "http://a.test/")
        kept.append(set(made.samples["flood"].pages))
        assert made.n == made.samples["flood"].n == len(order)
        assert not made.samples["flood"].is_whole
    assert kept[0] == kept[1] == kept[2] == set(sorted(urls, key=lambda url: crc32(url.encode()))[:50])


def test_it_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(dropped, "MOST", 3)
    path = tmp_path / FILE_NAME
    first = Dropped(path)
    assert first.packed() is not None  # that nothing was dropped is worth to be known
    for n in range(5):
        first.note("offsite", f"http://b.test/{n}", "http://a.test/")
    data = first.packed()
    assert data is not None
    first.write(data)
    assert first.packed() is None
    second, whole = Dropped(path), Dropped()
    assert second.packed() is None
    for n in range(5, 10):
        second.note("offsite", f"http://b.test/{n}", "http://a.test/")
    for n in range(10):
        whole.note("offsite", f"http://b.test/{n}", "http://a.test/")
    assert second.samples == whole.samples
    assert whole.packed() is None  # nowhere to write


def test_a_url_that_is_very_long_is_counted_and_not_kept():
    made = Dropped()
    made.note("length", f"http://a.test/{'x' * 10_000}", "http://a.test/")
    assert made.samples["length"].n == 1
    assert made.samples["length"].pages == {}
    assert not made.samples["length"].is_whole
    assert find(made.samples, ["http://a.test/"]) is None
    made.note("length", "http://a.test/\udcff", "http://a.test/")
    assert find(made.samples, ["http://a.test/\udcff"]) == Drop("length", "http://a.test/")


def test_a_file_that_is_damaged_or_cannot_be_written_costs_a_warning(tmp_path, caplog):
    path = tmp_path / FILE_NAME
    assert read_dropped(path) is None
    path.write_text("{")
    made = Dropped(path)
    assert "begins anew" in caplog.text
    made.note("flood", "http://a.test/", "http://b.test/")
    (data,) = (made.packed(),)
    assert data is not None
    gone = Dropped(tmp_path / "no folder" / FILE_NAME)
    caplog.clear()
    gone.write(data)
    gone.write(data)
    assert len(caplog.records) == 1
    assert "will not find them" in caplog.text
