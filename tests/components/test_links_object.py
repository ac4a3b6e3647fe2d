"""``Links``: what a spider yields for all links of a page, beside requests for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scrapy.http import HtmlResponse, Response
from support.small_web import Follow, crawl

from scrapy_aopic import Links

PAGE = """<base href="/in/"><main><a href="b?x=1#part">B</a> <a rel="nofollow" href="c">C</a></main>
<a href="b?x=1#part">B</a> <a href="d.pdf">D</a> <a href="javascript:e()">E</a> <area href="http://other.test/f">"""


def page(body: str = PAGE) -> HtmlResponse:
    return HtmlResponse("http://a.test/x", body=body.encode(), encoding="utf-8")


def test_they_are_what_scrapys_extractor_finds():
    urls = list(Links(page()).urls())
    assert urls == ["http://a.test/in/b?x=1#part", "http://a.test/in/c", "http://other.test/f"]
    assert [request.url for request in Links(page()).requests()] == urls


def test_options_say_which():
    for options, found in [
        ({"css": "main"}, ["b?x=1#part", "c"]),
        ({"css": "main a"}, ["b?x=1#part", "c"]),
        ({"xpath": "//main"}, ["b?x=1#part", "c"]),
        ({"allow": "x=", "tags": "a"}, ["b?x=1#part"]),
        ({"deny": [r"/c", r"x="]}, ["http://other.test/f"]),
        ({"restrict_text": "C"}, ["c"]),
        ({"deny_extensions": [], "allow": "pdf"}, ["d.pdf"]),
        ({"deny_domains": ["a.test"]}, ["http://other.test/f"]),
    ]:
        base = "http://a.test/in/"
        assert list(Links(page(), **options).urls()) == [
            each if "://" in each else base + each for each in found
        ]


def test_urls_can_be_given():
    links = Links(page(), ["../y", "/z", "//other.test/é", "/z"])
    assert list(links.urls()) == [
        "http://a.test/y",
        "http://a.test/z",
        "http://other.test/%C3%A9",
        "http://a.test/z",
    ]


def test_urls_that_are_none_are_refused():
    for urls in ["/a", b"/a", [None]]:
        with pytest.raises(TypeError, match=r"^Links: urls must be "):
            Links(page(), urls)


def test_what_is_no_text_has_no_links():
    assert not list(Links(Response("http://a.test/image", body=PAGE.encode())).urls())


class FollowsByLinks(Follow):
    def parse(self, response: Any, level: int = 0) -> Iterator[Any]:
        yield Links(response, callback=self.parse, cb_kwargs={"level": level + 1})


@pytest.mark.parametrize("scheduler", [{}, {"SCHEDULER": "scrapy_aopic.Scheduler"}], ids=["scrapys", "ours"])
async def test_they_are_followed_beside_any_scheduler(serve, scheduler):
    web = serve(
        {
            "http://a.test/": ["/b", "/c"],
            "http://a.test/b": ["/c", "/d"],
            "http://a.test/c": [],
            "http://a.test/d": [],
        }
    )
    await crawl(FollowsByLinks, {**scheduler, "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}})
    assert sorted(web.asked) == [f"http://a.test/{name}" for name in ("", "b", "c", "d")]


@pytest.mark.parametrize("scheduler", [{}, {"SCHEDULER": "scrapy_aopic.Scheduler"}], ids=["scrapys", "ours"])
async def test_one_that_is_no_url_costs_no_other(serve, scheduler, caplog):
    class Given(Follow):
        def parse(self, response: Any) -> Iterator[Any]:
            yield Links(response, ["/b", "http://[", "/c"])

    web = serve({"http://a.test/": [], "http://a.test/b": [], "http://a.test/c": []})
    crawler = await crawl(Given, {**scheduler, "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 2000}})
    assert sorted(web.asked) == ["http://a.test/", "http://a.test/b", "http://a.test/c"]
    assert "http://[" in caplog.text
    assert crawler.stats.get_value("aopic/urls/refused/invalid") == (3 if scheduler else None)  # on each page
