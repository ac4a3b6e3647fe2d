"""scrapy-poet: page objects are injected into callbacks, also into that of a ``BroadSpider``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.http import HtmlResponse
from support.small_site import EACH_WAY, TITLES, run, titles

from scrapy_aopic import BroadSpider

pytest.importorskip("scrapy_poet")
web_poet = pytest.importorskip("web_poet")

pytestmark = pytest.mark.filterwarnings("ignore")


class Titled(web_poet.WebPage):
    @web_poet.field
    def title(self) -> Any:
        return self.css("title::text").get()


class Plain(Spider):
    name = "plain"

    def parse(self, response: HtmlResponse, page: Titled) -> Iterator[Any]:
        yield {"title": page.title}
        yield from response.follow_all(css="a")


class Broad(BroadSpider):
    name = "broad"

    def parse_page(self, response: HtmlResponse, page: Titled) -> Iterator[Any]:
        yield {"title": page.title}


class Handed(Broad):
    """Gives a page object for other pages, and an argument of its own."""

    name = "handed"

    def parse_page(self, response: HtmlResponse, page: Titled) -> Iterator[Any]:
        yield Request(response.url + "?again", callback=self.parse_again, cb_kwargs={"seen": page.title})

    async def parse_again(self, response: HtmlResponse, page: Titled, seen: str) -> dict[str, str]:
        assert page.title == seen
        return {"title": seen}


@pytest.mark.crossed
@pytest.mark.parametrize("spider", [Plain, Broad, Handed], ids=lambda cls: cls.name)
@EACH_WAY
async def test_page_objects_are_injected(site, way, spider):
    arguments: dict[str, Any] = {"start_urls" if spider is Plain else "seeds": site.url}
    if spider is Plain:
        arguments = {"start_urls": [site.url]}
    items, _ = await run(spider, way, {"ADDONS": {"scrapy_poet.Addon": 300}}, **arguments)
    assert titles(items) == TITLES
