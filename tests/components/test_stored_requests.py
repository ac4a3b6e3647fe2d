"""Each request that a spider can queue is that of its page when it is read without the spider, and no other one is."""

from __future__ import annotations

from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from scrapy_aopic.core.records import QUEUED, Page, repeat_key
from scrapy_aopic.web.page_keys import PageKeys
from scrapy_aopic.web.request_codec import encode
from scrapy_aopic.web.request_rows import directory_of, encode_url, pack_values, stand_in
from scrapy_aopic.web.stored_requests import RequestReader

KEYS = PageKeys(RequestFingerprinter.from_crawler(get_crawler()))
READ, READ_HOST = RequestReader(has_url_keys=True), RequestReader(has_url_keys=False)
PAGE = Page(QUEUED, 7)
OTHER = Request("http://other.test/")


class One(Spider):
    name = "one"

    def parse(self, response: object) -> None:
        pass


SPIDER = One()
REQUESTS = [
    Request("http://a.test/"),
    Request("http://a.test/x?b=2&a=%7e#there", SPIDER.parse, meta={"depth": 3}),
    Request("http://a.test/", headers={"Referer": "http://b.test/"}),
    Request("http://a.test:8080/caf\u00e9"),
    Request("http://\u00e4.test/"),
    Request("http://a.test/", method="POST", body=b"x"),
    Request("http://a.test/", meta={"download_slot": "own"}, cb_kwargs={"n": 1}),
    JsonRequest("http://a.test/", data={"a": 1}),
    FormRequest("http://a.test/", formdata={"a": "1"}),
    Request("http://[::1]:8000/"),
    Request("data:,text"),
]


def test_a_request_is_that_of_its_page_and_of_no_other():
    for request_ in REQUESTS:
        _, key = KEYS(request_)
        data = encode(request_, SPIDER)
        assert READ(key, data, PAGE) == READ_HOST(key, data, PAGE) == "", request_
        repeat = Page(QUEUED, 9, repeat_of=key[8:])
        assert READ(repeat_key(key, 9), data, repeat) == "", request_
        assert READ(key, data, repeat), request_
        assert READ(repeat_key(key, 9), data, PAGE), request_
        host, other = KEYS(OTHER)
        assert "another one" in READ(other, data, PAGE), request_
        assert "another one" in READ_HOST(other, data, PAGE), request_
        same_host = key[:8] + other[8:]
        assert "another page" in READ(same_host, data, PAGE), request_
        assert READ_HOST(same_host, data, PAGE) == "", request_
        assert host == "other.test", request_


def test_what_is_no_request_is_found():
    for data in [
        b"", b"\x80", b"\xff", b"http://a.test/\n1x", b"http://a.test/\nparse\n\nx", b"http://a.test/\n\n\n\n\n?",
        b"http://a.test/\n\n\n\n\ns\nmore", b"\x81\xa3url\x01", b"\x82\xa3url\xaehttp://a.test/\xa1x\x01", b"no url",
    ]:  # fmt: skip
        _, key = KEYS(Request("http://a.test/"))
        assert READ(key, data, PAGE)
        assert READ_HOST(key, data, PAGE)


def test_a_seed_and_what_had_to_stay_in_memory_are_requests():
    _, key = KEYS(Request("http://a.test/"))
    assert READ(key, encode_url("http://a.test/"), PAGE) == ""
    assert READ(key, stand_in("http://a.test/", 3), PAGE) == ""
    assert READ(key, stand_in("", 3), PAGE)


def test_the_directory_of_a_request_is_the_path_of_its_url_up_to_the_last_slash():
    for path, directory in [
        ("/a/b/c", b"a/b"),
        ("/a/b/", b"a/b"),
        ("/a/b/c?page=/d/e/", b"a/b"),
        ("/a/#/b/", b"a"),
        ("/a", b""),
        ("/?a=/b/", b""),
        ("/", b""),
        ("", b""),
        ("//a", b""),
    ]:
        for write in [
            encode_url,
            lambda url: pack_values({"url": url, "method": "POST"}),
            lambda url: stand_in(url, 1),
        ]:
            assert directory_of(write(f"http://a.test:8000{path}")) == directory


def test_what_is_no_request_is_in_no_directory():
    for data in [b"", b"\xc1", b"\x80", b"\xff\xff", b"no url", b"\n\n\n", stand_in("", 1)]:
        assert directory_of(data) == b""
