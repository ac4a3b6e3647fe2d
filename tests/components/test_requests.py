"""Requests as bytes, and back."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from functools import cached_property, partialmethod
from types import MethodType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider

from scrapy_aopic.web.meta import OWN_SLOT, slot_key
from scrapy_aopic.web.request_codec import (
    UnreadableError,
    UnserialisableError,
    decode,
    encode,
    forget_transfer,
)
from scrapy_aopic.web.request_rows import SLOT, url_of


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


def test_a_request_is_read_as_it_was_written():
    for more in [
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
        {
            "meta": {
                "a": [{("b", 1): {2.5: None, b"c": [True, {"d"}]}}],
                "e": bytearray(b"f"),
                7: Decimal("1.50"),
            }
        },
        {"encoding": "latin-1"},
    ]:
        assert_same(Request(URL, **more))


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Point:
    x: int


class Text(str):
    __slots__ = ()


class Items(list[int]): ...


def test_no_object_is_written_as_something_else():
    """A codec would take a date for a text, and a data class for a dictionary."""
    for value in (
        Items([1]),
        Number(1),
        Colour.RED,
        Point(1),
        UUID(int=1),
        memoryview(b"a"),
        1 << 64,
        object(),
    ):
        for meta in (
            {"a": value},
            {"a": [(value,)]},
            {"a": {"b": {value}}} if value != [1] else {"a": [value]},
        ):
            with pytest.raises(UnserialisableError):
                encode(Request(URL, meta=meta), SPIDER)
    data = encode(Request(URL, meta={"a": Text("b"), Text("c"): 1}), SPIDER)
    assert decode(data, SPIDER).meta == {"a": "b", "c": 1}


def test_a_request_of_another_class_is_read_as_it_was_written():
    assert_same(FormRequest(URL, formdata={"a": "b"}))


@pytest.mark.slow
@given(st.binary(), st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.text(), st.booleans()))
def test_whatever_the_referer_and_the_depth_are_they_come_back(referer, depth):
    assert_same(Request(URL, headers={"Referer": referer}, meta={"depth": depth}))


class Pager(FormRequest):
    """A class of the spider's own, with an attribute of its own."""

    attributes = (*FormRequest.attributes, "page")

    def __init__(self, *args: Any, page: int = 0, **kwargs: Any) -> None:
        self.page = page
        super().__init__(*args, **kwargs)


def test_a_request_of_a_class_of_the_spiders_own_comes_back_also_with_a_private_callback():
    class Private(Spider):
        name = "private"

        def __secret(self, response: Any) -> None: ...

        def requests(self) -> Request:
            return Pager(URL, self.__secret, page=7, method="POST", body="x")

    spider = Private()
    again = decode(encode(spider.requests(), spider), spider)
    assert (type(again), again.page, again.body) == (Pager, 7, b"x")
    assert again.callback == spider.requests().callback


def test_a_method_that_the_spider_gave_itself_is_a_callback():
    spider = Caller()
    spider.own = MethodType(lambda self, response: None, spider)
    spider.own.__func__.__name__ = "own"
    assert decode(encode(Request(URL, spider.own), spider), spider).callback == spider.own


# A job folder may be somebody else's.


class Trusting(Spider):
    """A spider with members that are no callbacks."""

    name = "trusting"
    ran: list[str] = []
    helper = os.system

    def parse(self, response: Any) -> None: ...

    def closed(self, reason: str) -> None: ...

    @property
    def computed(self) -> Any:
        self.ran.append("property")
        return self.parse

    @cached_property
    def remembered(self) -> Any:
        self.ran.append("cached property")
        return self.parse

    @staticmethod
    def static(response: Any) -> None: ...

    @classmethod
    def of_class(cls, response: Any) -> None: ...

    kind = Caller
    part = partialmethod(parse, 1)


def test_only_methods_of_the_spider_are_called_back_and_nothing_is_run_to_find_out():
    for value in [
        "computed", "remembered", "static", "of_class", "kind", "helper", "part", "ran", "name", "missing", "closed",
        "start", "from_crawler", "update_settings", "_set_crawler", "log", "__init__", "__class__", "__reduce__",
        "parse.__func__", "", "crawler", 7, None, ["parse"], b"parse",
    ]:  # fmt: skip
        for name in ["callback", "errback"]:
            stored = [msgspec.msgpack.encode({"url": URL, name: value})]
            if isinstance(value, str) and value:
                stored.append(
                    f"{URL}\n{value}".encode() if name == "callback" else f"{URL}\n\n{value}".encode()
                )
            for data in stored:
                with pytest.raises(UnreadableError):
                    decode(data, Trusting())
                assert url_of(data) == URL, (name, value)
            assert Trusting.ran == [], (name, value)


def test_what_is_no_callback_is_not_written_either():
    spider = Trusting()
    for method in (spider.closed, spider.static, spider.of_class, spider.helper, spider.start):
        with pytest.raises(UnserialisableError):
            encode(Request(URL, method), spider)
    assert Trusting.ran == []


def test_a_foreign_class_is_neither_called_nor_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ran_module.py").write_text("open('ran', 'w')", encoding="utf-8")
    values: Any
    for values in [
        {"_class": "os.system", "command": "touch ran"},
        {"_class": "subprocess.Popen", "args": ["touch", "ran"]},
        {"_class": "ran_module.Any", "url": URL},
        {"_class": "scrapy.Spider", "name": "x"},
        {"_class": "scrapy.http.request.Request.from_curl", "curl_command": "curl http://a.test/"},
        {"_class": 7, "url": URL},
        {"url": URL, "unknown": 1},
        {"url": URL, "self": 1},
        {"url": URL, 7: 1},
        {"url": 7},
        {"url": URL, "meta": 7},
        {"url": URL, "cookies": msgspec.msgpack.Ext(99, b"")},
        {"url": URL, "cookies": msgspec.msgpack.Ext(3, b"\xa1x")},
        [],
        7,
    ]:
        with pytest.raises(UnreadableError):
            decode(msgspec.msgpack.encode(values), SPIDER)
        assert not (tmp_path / "ran").exists(), values


@given(st.binary())
def test_whatever_the_bytes_are_they_make_a_request_or_one_error(data):
    with suppress(UnreadableError):
        assert isinstance(decode(data, SPIDER), Request)
    assert isinstance(url_of(data), str)


def test_deep_nesting_is_refused_before_the_stack_is_full():
    deep: Any = ()
    for _ in range(60):
        deep = (deep,)
    assert_same(Request(URL, meta={"deep": deep}))
    for _ in range(10_000):
        deep = (deep,)
    with pytest.raises(UnserialisableError):
        encode(Request(URL, meta={"deep": deep}), SPIDER)
    stored = b"\x90"
    for _ in range(10_000):
        stored = msgspec.msgpack.encode(msgspec.msgpack.Ext(0, b"\x91" + stored))
    with pytest.raises(UnreadableError, match="inside one another"):
        decode(b"\x82\xa3url\xa8http://a\xa4meta\x81\xa1x" + stored, SPIDER)
    assert_same(Request(URL, meta={"flat": ((),)}))  # the bound is forgotten


# What belongs to a transfer


def test_what_a_middleware_added_for_a_transfer_is_forgotten():
    for asked, sent, copy, kept in [
        ({}, {"proxy": "http://p"}, {"proxy": "http://p"}, {}),
        ({}, {"proxy": "http://p"}, {"proxy": "http://q"}, {"proxy": "http://q"}),
        ({}, {"proxy": None}, {"proxy": None}, {}),
        ({"proxy": "http://u:s@p"}, {"proxy": "http://p"}, {"proxy": "http://p"}, {"proxy": "http://u:s@p"}),
        ({"proxy": "http://p"}, {"proxy": "http://p"}, {"proxy": "http://p"}, {"proxy": "http://p"}),
        ({}, {"download_timeout": 9}, {"download_timeout": 9, "retry_times": 1}, {"retry_times": 1}),
        ({}, {"cookiejar": 1}, {"cookiejar": 1}, {"cookiejar": 1}),
    ]:
        request = Request(URL, meta=copy)
        forget_transfer(request, Request(URL, meta=sent), Request(URL, meta=asked))
        assert request.meta == kept, asked


def test_so_are_headers_but_for_those_that_the_copy_changed():
    asked = Request(URL, headers={"Authorization": "Bearer mine", "X-Own": "1"})
    sent = asked.copy()
    for name, value in (("Cookie", "a=b"), ("Authorization", "Basic x"), ("User-Agent", "old")):
        sent.headers[name] = value
    copy = sent.copy()
    copy.headers["User-Agent"] = "another"
    forget_transfer(copy, sent, asked)
    expected = {"User-Agent": "another", "Authorization": "Bearer mine", "X-Own": "1"}
    assert dict(copy.headers.to_unicode_dict()) == expected


def test_a_slot_is_what_the_user_named_or_else_the_host():
    for meta, name in [
        ({}, "a.test"),
        ({SLOT: "mine"}, "mine"),
        ({SLOT: "b.test", OWN_SLOT: "b.test"}, "a.test"),  # a copy of a request for another host
        ({SLOT: "mine", OWN_SLOT: "b.test"}, "mine"),
        ({OWN_SLOT: "b.test"}, "a.test"),
        ({SLOT: 1}, "1"),
    ]:
        assert slot_key(Request("http://a.test/", meta=meta)) == name
