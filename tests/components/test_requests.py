"""Requests as bytes, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider

from scrapy_aopic.requests import decode, encode, url_of


class Caller(Spider):
    name = "caller"

    def parse(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


SPIDER = Caller()
URL = "http://a.test/x?a=1&b=%0A"


def assert_same(request: Request) -> bytes:
    data = encode(request, SPIDER)
    again = decode(data, SPIDER)
    assert again.to_dict(spider=SPIDER) == request.to_dict(spider=SPIDER)
    assert type(again) is type(request)
    assert url_of(data) == request.url
    return data


def test_what_scrapy_makes_of_a_link_takes_little_more_than_its_urls():
    link = Request(
        URL, SPIDER.parse, errback=SPIDER.failed, meta={"depth": 3}, headers={"Referer": "http://b.test/"}
    )
    assert assert_same(link) == f"{URL}\nparse\nfailed\n3\nhttp://b.test/".encode()
    assert assert_same(Request(URL)) == URL.encode()


@pytest.mark.parametrize(
    "more",
    [
        {"meta": {"depth": 0}},
        {"meta": {"depth": -1}},
        {"meta": {"depth": True}},
        {"meta": {"depth": 1.5}},
        {"meta": {"depth": "3"}},
        {"meta": {"depth": 1, "page": ("a", 1)}},
        {"headers": {"Referer": ""}},
        {"headers": {"Referer": ["http://b.test/", "http://c.test/"]}},
        {"headers": {"Referer": b"http://b.test/\xe9\n"}},
        {"headers": {"Referer": "http://b.test/", "X-A": "1"}},
        {"headers": {"X-A": "1"}, "meta": {"depth": 1}},
        {"errback": SPIDER.failed},
        {"method": "POST", "body": b"\x00\xff"},
        {"priority": 1},
        {"dont_filter": True},
        {"cookies": {"a": "b"}},
        {"flags": ["a"]},
        {"cb_kwargs": {"a": 1}},
        {"encoding": "latin-1"},
    ],
    ids=str,
)
def test_a_request_is_read_as_it_was_written(more: dict[str, Any]):
    assert_same(Request(URL, **more))


def test_a_request_of_another_class_is_read_as_it_was_written():
    assert_same(FormRequest(URL, formdata={"a": "b"}))


@given(st.binary(), st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.booleans()))
def test_whatever_the_referer_and_the_depth_are_they_come_back(referer: bytes, depth: Any):
    assert_same(Request(URL, headers={"Referer": referer}, meta={"depth": depth}))
