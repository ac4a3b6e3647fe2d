"""Content types as browsers read them: lists, nonsense, none at all; and what the spider and the log see of it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request
from scrapy.http import HtmlResponse, Response, TextResponse
from scrapy.http.headers import Headers
from scrapy.linkextractors import LinkExtractor
from support.small_web import Follow, crawl

from scrapy_aopic.web.content_types import content_type, declared_type

ADDON: dict[str, Any] = {"ADDONS": {"scrapy_aopic.Addon": 500}, "ROBOTSTXT_OBEY": False}
HOME = "http://a.test/"
PAGE = '<!DOCTYPE html>\n<html lang=en><title>t</title><a href="/from/{}">x</a></html>'

HTML: dict[str, list[str]] = {
    "plain": ["text/html"],
    "upper case": ["TEXT/HTML; CHARSET=UTF-8"],
    "semicolons": ["text/html;;"],
    "spaces": [" text/html ; charset=utf-8"],
    "xhtml": ["application/xhtml+xml"],
    "none": [],
    "empty": [""],
    "list": ["text/html, text/html"],
    "list with charsets": ["text/html; charset=utf-8, text/html; charset=utf-8"],
    "list of two": ["text/plain, text/html"],
    "list that ends in nonsense": ["text/html, charset=utf-8"],
    "list that ends in any": ["text/html, */*"],
    "two headers": ["text/html", "text/html; charset=utf-8"],
    "two headers, the last is nonsense": ["text/html", "html"],
    "any": ["*/*"],
    "any, with a charset": ["*/*; charset=utf-8"],
    "unknown": ["unknown/unknown"],
    "application/unknown": ["application/unknown"],
    "no slash": ["html"],
    "text": ["text"],
    "no subtype": ["text/"],
    "no type": ["/html"],
    "no semicolon": ["text/html charset=utf-8"],
    "charset only": ["charset=utf-8"],
    "charset first": ["charset=utf-8; text/html"],
    "colon": ["text/html:charset=utf-8"],
    "quoted": ['"text/html"'],
    "semicolon only": [";"],
}
AS_SCRAPY_READS_THEM = {
    *("plain", "upper case", "semicolons", "spaces", "xhtml", "list with charsets", "two headers"),
    *("none", "empty", "semicolon only"),  # by the body, in which it finds "<!doctype html>"
}
OTHERS: dict[str, list[str]] = {
    "bytes": ["application/octet-stream"],
    "list of others": ["text/html, application/octet-stream"],
    "php": ["application/x-httpd-php"],
    "picture": ["image/png"],
    "pdf": ["application/pdf; text/html"],
}


def headers(values: list[str], **others: str) -> dict[str, str]:
    """Headers with each of *values*: names differ in case, so that a dictionary can hold several."""
    return {("Content-Type", "content-type")[number]: value for number, value in enumerate(values)} | others


class Read(Follow):
    """Follows the links of every page, and notes of which class they are."""

    seen: dict[str, Response]

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen[response.url] = response
        if isinstance(response, TextResponse):
            for link in LinkExtractor().extract_links(response):
                yield Request(link.url)


async def read(settings: dict[str, Any]) -> tuple[dict[str, Response], dict[str, Any]]:
    """Responses by URL that a spider was given, and the stats of its crawl."""
    Read.seen = {}
    crawler = await crawl(Read, settings)
    return Read.seen, crawler.stats.get_stats()


async def test_what_browsers_show_as_html_is_html(serve, caplog):
    pages: dict[str, Any] = {HOME: [f"/{number}" for number in range(len(HTML))]}
    for number, (name, values) in enumerate(HTML.items()):
        pages[f"{HOME}{number}"] = Answer(headers=headers(values), body=PAGE.format(name).encode())
    web = serve(pages)
    seen, stats = await read(ADDON)
    followed = {url.removeprefix(f"{HOME}from/").replace("%20", " ") for url in web.asked if "/from/" in url}
    assert followed == set(HTML)
    assert {type(response) for response in seen.values()} == {HtmlResponse}
    (warning,) = (each for each in caplog.records if "aopic/types/guessed" in each.getMessage())
    assert warning.levelname == "WARNING"
    assert HOME in warning.getMessage()
    assert stats["aopic/types/guessed"] == len(HTML) - len(AS_SCRAPY_READS_THEM)


async def test_what_browsers_save_is_not_read(serve):
    pages: dict[str, Any] = {HOME: [f"/{number}" for number in range(len(OTHERS) + 1)]}
    for number, (name, values) in enumerate(OTHERS.items()):
        pages[f"{HOME}{number}"] = Answer(headers=headers(values), body=PAGE.format(name).encode())
    pages[f"{HOME}{len(OTHERS)}"] = Answer(headers=headers(["*/*"]), body=b"\x89PNG\r\n\x1a\n\0\0<html>")
    web = serve(pages)
    seen, stats = await read(ADDON)
    assert [*seen] == [HOME]
    assert [url for url in web.asked if "/from/" in url] == []
    assert stats["aopic/outcomes/content type"] == len(OTHERS) + 1


@pytest.mark.parametrize("settings", [{}, {"SCHEDULER": "scrapy_aopic.Scheduler"}], ids=["stock", "alone"])
async def test_without_the_addon_it_is_scrapy_that_decides(serve, settings):
    serve({HOME: Answer(headers=headers(["text/html, text/html"]), body=PAGE.format(1).encode())})
    seen, stats = await read(settings)
    assert type(seen[HOME]) is TextResponse
    assert "aopic/types/guessed" not in stats


async def test_a_packed_page_is_looked_at_once_it_is_unpacked_and_its_refresh_is_followed(serve):
    body = gzip.compress(b"<html><meta http-equiv=refresh content='0; url=/there'></html>")
    packed = {"Content-Encoding": "gzip"}
    web = serve({HOME: Answer(headers=headers(["html"], **packed), body=body), f"{HOME}there": []})
    seen, _ = await read(ADDON)
    assert web.asked == [HOME, f"{HOME}there"]
    assert [*seen] == [f"{HOME}there"]


async def test_the_charset_of_the_header_that_browsers_take_is_taken(serve):
    body = "<!DOCTYPE html><p>\u0434\u0430".encode("windows-1251")
    serve({HOME: Answer(headers=headers(["text/html; charset=windows-1251", "text/html"]), body=body)})
    seen, _ = await read(ADDON)
    response = seen[HOME]
    assert response.text == body.decode("windows-1251")


@pytest.mark.slow
async def test_the_charset_of_a_huge_page_is_guessed_by_a_part_of_it_and_is_the_same(serve, monkeypatch):
    """A page whose text is behind a long script, in what people write who state no charset; and one that ends with a byte of it."""
    texts = {
        "fr": ("<p>La forêt où naît déjà un été, ça va très bien</p>\n", "cp1252"),
        "ru": ("<p>Мальчик шёл дорогой, думая: завтра опять зима</p>\n", "koi8-r"),
        "ja": ("<p>今日は天気がとても良いので、公園で本を読みました</p>\n", "shift_jis"),
        "zh": ("<p>今天天气很好。我们去公园看书。历史文化非常丰富</p>\n", "gbk"),
    }
    script = b"<html><script>" + b"a = 1;\n" * 60_000 + b"</script>"
    bodies = {
        name: script + "".join(f"{text}<i>{n}</i>" for n in range(12_000)).encode(charset)
        for name, (text, charset) in texts.items()
    } | {"late": b"<p>word " * 200_000 + b"\xe9"}
    by_all = {name: HtmlResponse(HOME, body=body).encoding for name, body in bodies.items()}
    guesses: list[int] = []
    guess = TextResponse._auto_detect_fun

    def watched(self: TextResponse, text: bytes) -> str | None:
        guesses.append(len(text))
        return guess(self, text)

    monkeypatch.setattr(TextResponse, "_auto_detect_fun", watched)
    urls = {name: f"http://{name}.test/" for name in bodies}
    serve(
        {HOME: [*urls.values()]}
        | {urls[name]: Answer(200, headers(["text/html"]), body) for name, body in bodies.items()}
    )
    seen, _ = await read(ADDON)
    assert {name: seen[url].encoding for name, url in urls.items()} == by_all
    assert max(guesses) < 100_000


async def test_what_must_not_be_guessed_is_no_html(serve):
    page = PAGE.replace("<html lang=en>", "").replace("!DOCTYPE html", "p ").format(1).encode()
    nosniff = {"X-Content-Type-Options": "NoSniff, x"}
    serve({HOME: Answer(headers=headers(["*/*"], **nosniff), body=page)})
    seen, _ = await read(ADDON)
    assert type(seen[HOME]) is TextResponse


def of(body: bytes, *values: str, **others: str) -> str:
    return content_type(Response(HOME, body=body, headers={"Content-Type": [*values], **others}))


def test_a_body_without_a_type_is_sniffed():
    for body, kind in [
        (b"<!doctype HTML>", "text/html"),
        (b"\t\n\x0c\r <P class=x>", "text/html"),
        (b"<!-- x --><html>", "text/html"),
        (b"<a\thref=x>", "text/plain"),
        (b"<html", "text/plain"),
        (b"<address>", "text/plain"),
        (b"x<html>", "text/plain"),
        (b" " * 1445 + b"<html>", "text/plain"),
        (b"<?xml version='1.0'?><urlset>", "text/xml"),
        (b"%PDF-1.7", "application/pdf"),
        (b"%!PS-Adobe-3.0", "application/postscript"),
        (b"\xef\xbb\xbf<html>", "text/plain"),
        (b"\xff\xfe<\0h\0t\0", "text/plain"),
        (b"\xfe\xff\0<\0h", "text/plain"),
        (b"caf\xe9", "text/plain"),
        (b"", "text/plain"),
        (b"PK\x03\x04", "application/octet-stream"),
        (b"x" * 1445 + b"\0", "text/plain"),
    ]:
        assert of(body) == of(body, "*/*") == of(body, "text/html/x") == kind


def test_long_headers_are_read_in_linear_time():
    for value in [
        "," * 60_000,
        '"' * 60_001,
        "\\" * 60_000,
        '"\\' * 30_000,
        "text/html;" * 6000 + ",",
        "a/" * 30_000,
        "\t" * 60_000 + "x",
        '"a' * 30_000 + ",text/html",
    ]:
        found = {declared_type(Headers({"Content-Type": value * 10})).essence for _ in range(3)}
        assert found <= {"", "text/html"}, value


def test_a_quoted_comma_ends_no_type():
    quoted = 'text/html; x=", text/plain; \\", image/png"; charset=utf-8'
    assert declared_type(Headers({"Content-Type": quoted})) == ("text/html", "", False)
