"""Sitemaps of any bytes: what is found in them, and that none keeps the event loop to itself."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Generator
from unittest.mock import patch

import pytest
from scrapy.utils.defer import deferred_f_from_coro_f

from scrapy_aopic.session import turns
from scrapy_aopic.session.turns import in_turns
from scrapy_aopic.web import sitemaps
from scrapy_aopic.web.sitemaps import PAGES, SITEMAPS, Sitemap, sitemaps_in

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
URL = "<url><loc>http://a.test/{}</loc><lastmod>2026-11-22</lastmod></url>"


def urls(body: bytes | str) -> list[str]:
    sitemap = Sitemap(body.encode() if isinstance(body, str) else body)
    return [url.removeprefix("http://a.test/") for url in sitemap if url is not None]


def test_the_entries_are_those_of_urls_and_sitemaps() -> None:
    assert urls(f'<?xml version="1.0"?><urlset {NAMESPACE}>{URL.format(1)}\n{URL.format(2)}</urlset>') == [
        "1",
        "2",
    ]
    assert urls("<sitemapindex><sitemap><loc> http://a.test/1\n</loc></sitemap></sitemapindex>") == ["1"]
    image = "<image:image><image:loc>http://a.test/no</image:loc></image:image>"
    text = f'<urlset {NAMESPACE} xmlns:image="i"><url>{image}<loc>http://a.test/1</loc></url><loc>http://a.test/no</loc></urlset>'
    assert urls(text) == ["1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<urlset><url><loc><![CDATA[http://a.test/1&2]]></loc></url>", ["1&2"]),
        ("<urlset><url><loc>http://a.test/1&amp;2</loc></url><url", ["1&2"]),
        ("\n\n<?xml version='1.0'?><urlset>" + URL.format(1), ["1"]),
        ("<urlset><url><loc/></url>" + URL.format(1), ["1"]),
        ("<urlset><url><loc>http://a.test/1</url>" + URL.format(2), ["1", "2"]),
        ("<!DOCTYPE x [<!ENTITY e 'http://a.test/no'>]><urlset><url><loc>&e;</loc></url></urlset>", []),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><urlset>" + URL.format(1), ["1"]),
    ],
)  # fmt: skip
def test_broken_ones_are_read_as_far_as_they_go(text: str, found: list[str]) -> None:
    assert urls(text) == found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not a sitemap",
        b"<html><loc>http://a.test/</loc></html>",
        b"\x1f\x8b\x08\x00x",
        b"\xff\xfe<",
        b"<",
        bytes(99),
    ],
)
def test_what_is_none_has_no_kind(body: bytes) -> None:
    sitemap = Sitemap(body)
    assert [url for url in sitemap if url is not None] == []
    assert sitemap.kind == ""


def test_a_compressed_one_is_unpacked_in_all_its_parts() -> None:
    body = gzip.compress(b"<urlset>" + URL.format(1).encode()) + gzip.compress(URL.format(2).encode())
    assert urls(body) == ["1", "2"]
    assert urls(body[:-9])[:1] == ["1"]
    assert (
        urls(gzip.compress(b"<urlset>") + gzip.compress(b"") * 200 + gzip.compress(URL.format(1).encode()))
        == []
    )


def test_entries_and_bytes_have_a_bound() -> None:
    body = ("<urlset>" + "".join(map(URL.format, range(3000)))).encode()
    with patch.object(sitemaps, "MAX_ENTRIES", 10):
        assert len(urls(body)) == 10
    with patch.object(sitemaps, "MAX_BYTES", 1000):
        assert 0 < len(urls(body)) < 2000


@pytest.mark.parametrize("unit", [URL, "<x/>", "<x><y/></x>", "<url><x/></url>"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_one_is_read_in_steps_and_forgotten(unit: str, pack: type[bytes]) -> None:
    body = ("<urlset>" + unit * (1_000_000 // len(unit))).encode()
    left = []
    forget = sitemaps._forget

    def note(root: object) -> None:
        forget(root)
        left.append(sum(1 for _ in root.iter()))  # type: ignore[attr-defined]

    with patch.object(sitemaps, "_forget", note):
        sitemap = Sitemap(pack(body))
        steps = sum(url is None for url in sitemap)
    assert steps >= 15
    assert max(left) < 10
    assert sitemap.kind == PAGES != SITEMAPS


def test_robots_txt_names_sitemaps() -> None:
    long = "x" * 100_000
    text = f"Sitemap: /a.xml\nsitemap :http://b.test/\r SITEMAP: http://[/\nsitemaps: x\nSitemap: /{long}\nSitemap: /c\u00e9"
    assert list(sitemaps_in(text.encode(), "http://a.test/robots.txt")) == [
        "http://a.test/a.xml",
        "http://b.test/",
        "http://a.test/c\u00e9",
    ]


@deferred_f_from_coro_f
async def test_others_go_on_between_the_turns_of_long_work() -> None:
    done = []

    def work() -> Generator[None, None, str]:
        for number in range(4):
            done.append(number)
            yield
        return "the result"

    with patch.object(turns, "TURN", -1.0):
        asyncio.get_running_loop().call_soon(done.append, "another")
        assert await in_turns(work()) == "the result"
    assert done.index("another") < 3
    assert [each for each in done if each != "another"] == [0, 1, 2, 3]
