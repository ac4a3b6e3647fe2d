"""Bytes that once took quadratic time: four times as many take less than ten times as long."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from scrapy.http import HtmlResponse, Response
from scrapy.robotstxt import RobotParser

from scrapy_aopic.web.page_text import read_canonical
from scrapy_aopic.web.parse_limits import too_many_attributes
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser, parse
from scrapy_aopic.web.sitemaps import Sitemap

pytestmark = pytest.mark.long  # it compares CPU times, which a busy machine makes longer


class Other(RobotParser):
    @classmethod
    def from_crawler(cls, crawler: Any, robotstxt_body: bytes) -> Any:
        return robotstxt_body

    def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
        return True


def robots(text: bytes) -> None:
    Rfc9309RobotParser(text).allowed("http://a.test/" + "a" * 500, "bot")


def sitemap(text: bytes) -> None:
    for _ in Sitemap(text):
        pass


def page(text: bytes) -> HtmlResponse:
    return HtmlResponse("http://a.test/", body=text)


def each(line: bytes) -> Callable[[int], bytes]:
    return lambda n: b"".join(line % number for number in range(n))


CASES: dict[str, tuple[Callable[[bytes], Any], Callable[[int], bytes], int]] = {
    "agents and other lines": (robots, lambda n: b"useragent:\nx\n" * n, 8000),
    "agents and rules": (robots, lambda n: each(b"user-agent:%d\n")(n) + b"user-agent:*\n" + each(b"allow:/%d\n")(n), 4000),
    "wildcards": (robots, lambda n: b"user-agent:*\n" + each(b"allow:*a*b%d\n")(n), 8000),
    "agents for another parser": (lambda text: parse(text, Other), lambda n: b"useragent:\nx\n" * n, 8000),
    "attributes": (lambda text: any(too_many_attributes(page(text))), lambda n: b"<p " + each(b"a%d ")(n) + b">", 20_000),
    "end tags": (lambda text: any(too_many_attributes(page(text))), lambda n: b"<i></b>" * n, 20_000),
    "canonical links": (lambda text: read_canonical(page(text)), each(b"<link rel=canonical href=/%d>"), 5000),
    "canonical header": (
        lambda text: read_canonical(Response("http://a.test/", headers={"Link": text})), each(b"</%d>; rel=canonical,"), 5000,
    ),
    "elements of a sitemap": (sitemap, lambda n: b"<urlset>" + b"<x/><loc/>" * n, 20_000),
    "tags of a sitemap without an end": (sitemap, lambda n: b"<urlset><url>" + b"<link href=" * n, 20_000),
    "a long tag of a sitemap": (sitemap, lambda n: b"<urlset><url><link " + b'href="' * n + b"/><a" + b"a" * n, 15_000),
    "comments in an entry": (sitemap, lambda n: b"<urlset><url><loc>" + b"x<!---->" * n, 20_000),
    "comments without an end": (sitemap, lambda n: b"<urlset><url><loc>" + b"<!--<![CDATA[" * n, 20_000),
    "entries without an end": (sitemap, lambda n: b"<urlset>" + b"<url><loc>&#1" * n, 20_000),
    "lines of a sitemap": (sitemap, lambda n: b"http://a.test/" + b"\n \r" * n, 40_000),
    "what comes before a sitemap": (sitemap, lambda n: b"<?xml" * n, 40_000),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_time_is_linear_in_the_bytes(name):
    read, make, n = CASES[name]

    def seconds(text: bytes) -> float:
        times = []
        gc.collect()
        gc.disable()  # what it takes depends on all other objects of the process
        try:
            for _ in range(3):
                began = time.thread_time()
                read(text)
                times.append(time.thread_time() - began)
        finally:
            gc.enable()
        return min(times)

    def is_linear() -> bool:
        few, many = seconds(make(n)), seconds(make(4 * n))
        return many < 10 * few or many < 0.1

    assert any(is_linear() for _ in range(5))  # a busy machine makes something steep once, not five times
