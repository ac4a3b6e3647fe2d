"""Sitemaps of any bytes: what is found in them, and that none keeps the event loop to itself."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import Generator
from unittest.mock import patch

import pytest

from scrapy_aopic.session import time_slices
from scrapy_aopic.session.time_slices import in_time_slices
from scrapy_aopic.web import sitemaps
from scrapy_aopic.web.sitemaps import PAGES, Sitemap, feeds_in, sitemaps_in

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
URL = "<url><loc>http://a.test/{}</loc><lastmod>2026-11-22</lastmod></url>"


def urls(body: bytes | str) -> list[str]:
    sitemap = Sitemap(body.encode() if isinstance(body, str) else body)
    return [url.removeprefix("http://a.test/") for url in sitemap if url is not None]


def test_the_entries_are_those_of_urls_and_sitemaps():
    assert urls(f'<?xml version="1.0"?><urlset {NAMESPACE}>{URL.format(1)}\n{URL.format(2)}</urlset>') == [
        "1",
        "2",
    ]
    assert urls("<sitemapindex><sitemap><loc> http://a.test/1\n</loc></sitemap></sitemapindex>") == ["1"]
    image = "<image:image><image:loc>http://a.test/no</image:loc></image:image>"
    text = f'<urlset {NAMESPACE} xmlns:image="i"><url>{image}<loc>http://a.test/1</loc></url><loc>http://a.test/no</loc></urlset>'
    assert urls(text) == ["1"]


def test_broken_ones_are_read_as_far_as_they_go():
    for text, found in [
        ("<urlset><url><loc><![CDATA[http://a.test/1&2]]></loc></url>", ["1&2"]),
        ("<urlset><url><loc>http://a.test/1&amp;2</loc></url><url", ["1&2"]),
        ("\n\n<?xml version='1.0'?><urlset>" + URL.format(1), ["1"]),
        ("<urlset><url><loc/></url>" + URL.format(1), ["1"]),
        ("<urlset><url><loc>http://a.test/1</url>" + URL.format(2), ["1", "2"]),
        ("<!DOCTYPE x [<!ENTITY e 'http://a.test/no'>]><urlset><url><loc>&e;</loc></url></urlset>", ["&e;"]),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><urlset>" + URL.format(1), ["1"]),
        ("<urlset>" + URL.format("1?a=1&b=2") + URL.format(2), ["1?a=1&b=2", "2"]),
        ("<urlset>" + URL.format("1?a=1&copy=2&&lt;&#x41;&#0;&#xD800;&#9999999;") + URL.format(2), ["1?a=1&copy=2&<A", "2"]),
        ("<urlset>" + URL.format("1<") + URL.format("2<b") + URL.format(3), ["1", "2", "3"]),
        ("<urlset>" + URL.format(1) + "</url></urlset></loc>" + URL.format(2), ["1", "2"]),
        ("<urlset><url><loc a=1 a=2 b>http://a.test/1</loc><x:y/></url>" + URL.format(2), ["1", "2"]),
        ("<urlset><url><loc>http://a.test/1<!-- <loc>no --><![CDATA[&2<]]>3</loc></url>" + URL.format(4), ["1&2<3", "4"]),
        ("<urlset><!-- " + URL.format("no") + " -->" + URL.format(1), ["1"]),
        ("<b>Warning</b>: include()\n<?xml version='1.0'?><urlset>" + URL.format(1), ["1"]),
        ("<URLSET>" + URL.replace("loc", "LOC").replace("url", "Url").format(1), ["1"]),
        ("<s:urlset><s:url><s:loc>http://a.test/1</s:loc><i:loc>http://a.test/no</i:loc></s:url></s:urlset>", ["1"]),
        ("<urlset>" + URL.format(1) * 3, ["1"]),
        ("<urlset><url><loc>http://a.test/1", []),
    ]:  # fmt: skip
        assert urls(text) == found


def test_what_is_none_has_no_kind():
    for body in [
        b"",
        b"not a sitemap",
        b"<html><loc>http://a.test/</loc></html>",
        b"\x1f\x8b\x08\x00x",
        b"\xff\xfe<",
        b"<",
        bytes(99),
    ]:
        sitemap = Sitemap(body)
        assert [url for url in sitemap if url is not None] == [], body
        assert sitemap.kind == "", body


def test_a_compressed_one_is_unpacked_in_all_its_parts():
    body = gzip.compress(b"<urlset>" + URL.format(1).encode()) + gzip.compress(URL.format(2).encode())
    assert urls(body) == ["1", "2"]
    assert urls(body[:-9])[:1] == ["1"]
    assert (
        urls(gzip.compress(b"<urlset>") + gzip.compress(b"") * 200 + gzip.compress(URL.format(1).encode()))
        == []
    )


def test_entries_and_bytes_have_a_bound():
    body = ("<urlset>" + "".join(map(URL.format, range(3000)))).encode()
    with patch.object(sitemaps, "MAX_ENTRIES", 10):
        assert len(urls(body)) == 10
    with patch.object(sitemaps, "MAX_BYTES", 1000):
        assert 0 < len(urls(body)) < 2000


def test_it_does_not_matter_where_steps_end():
    for size in [1, 2, 3, 7, 50, 1000]:
        text = (
            "<b>x</b><!-- <urlset> --><urlset><url><loc> http://a.test/1&amp;<![CDATA[<&]]><!-- x -->2 </loc>"
            '<x:link rel=\'alternate\' hreflang="d" href="http://a.test/3" /></url><url><loc>http://a.test/\u00e94</loc></url></urlset>'
        )
        for body in (text.encode(), text.encode("utf-16"), gzip.compress(text.encode())):
            with patch.object(sitemaps, "_CHUNK", size if body[0] == ord("<") else max(size, 50)):
                assert urls(body) == ["1&<&2", "3", "\u00e94"], size
        lines = b"http://a.test/1\nhttp://a.test/2"
        with patch.object(sitemaps, "_CHUNK", max(size, 7)):
            assert urls(lines) == ["1", "2"], size


def test_the_encoding_is_found_whatever_is_declared():
    for encoding, declared in [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "ISO-8859-1"),
        ("utf-16", "UTF-8"),
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-8", "UTF-16"),
        ("utf-8", "nonsense"),
        ("utf-8", "zlib"),
        ("utf-8", "punycode"),
        ("iso-8859-1", "latin1"),
        ("windows-1251", "cp1251"),
        ("gb18030", "gb2312"),
    ]:
        letter = "\u0434" if encoding == "windows-1251" else "\u00e9"
        text = f"<?xml version='1.0' encoding='{declared}'?><urlset>{URL.format(letter)}</urlset>"
        assert urls(text.encode(encoding)) == [letter]


def test_bytes_that_are_no_text_stay_what_they_are():
    assert urls(b"<urlset>" + URL.format("\u00e9?a").encode("latin-1") + URL.format(2).encode()) == [
        "%E9?a",
        "2",
    ]


def test_other_languages_are_pages_too():
    link = '<xhtml:link {} href="http://a.test/{}"/>'
    links = link.format("rel='alternate' hreflang=de", 2) + link.format('rel="Alternate" media="x"', 1)
    text = f"<urlset><url>{links}<loc>http://a.test/1</loc>{link.format('rel=canonical', 'no')}</url>{link.format('rel=alternate', 'no')}"
    assert urls(text) == ["2", "1"]
    with patch.object(sitemaps, "MAX_ENTRIES", 1):
        sitemap = Sitemap(f"<urlset><url>{links}{link.format('rel=alternate', 3)}{URL.format(4)}".encode())
        assert [url for url in sitemap if url] == ["http://a.test/2", "http://a.test/4"]
    assert sitemap.left_out == {"alternates": 2, "rest": 1}


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [URL, "<x><y/></x>", "<!---->xx", "<![CDATA[x]]>", "<url><loc>x", "<a", "\n"]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_one_is_read_in_steps_and_forgotten(unit, pack):
    for beginning in ("<urlset>", "<urlset><url><loc>", "http://a.test/\n"):
        body = pack((beginning + unit * (250_000 // len(unit))).encode())
        sitemap = Sitemap(body)
        tracemalloc.start()
        try:
            steps = sum(url is None for url in sitemap)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert steps >= 15
        assert most < 2_500_000
        assert sitemap.kind in (PAGES, "")


def test_robots_txt_names_sitemaps():
    long = "x" * 100_000
    text = f"Sitemap: /a.xml\nsitemap :http://b.test/\r SITEMAP: http://[/\nsitemaps: x\nSitemap: /{long}\nSitemap: /c\u00e9"
    assert list(sitemaps_in(text.encode(), "http://a.test/robots.txt", 2))[2:] == [""] * 3
    assert list(sitemaps_in(text.encode(), "http://a.test/robots.txt", 100)) == [
        "http://a.test/a.xml",
        "http://b.test/",
        "http://a.test/c\u00e9",
    ]


async def test_others_go_on_between_the_turns_of_long_work():
    done = []

    def work() -> Generator[None, None, str]:
        for number in range(4):
            done.append(number)
            yield
        return "the result"

    with patch.object(time_slices, "SLICE", -1.0):
        asyncio.get_running_loop().call_soon(done.append, "another")
        assert await in_time_slices(work()) == "the result"
    assert done.index("another") < 3
    assert [each for each in done if each != "another"] == [0, 1, 2, 3]


async def test_work_that_has_had_many_slices_comes_after_other_work():
    done: list[str] = []
    has_had_many = asyncio.Event()

    def work(name: str, n: int) -> Generator[None, None, None]:
        for number in range(n):
            done.append(name)
            if number == 2 * time_slices.MANY:
                has_had_many.set()
            yield

    with patch.object(time_slices, "SLICE", -1.0):
        long = asyncio.ensure_future(in_time_slices(work("long", 60)))
        await has_had_many.wait()
        done.clear()
        await in_time_slices(work("short", 9))
        assert done.count("short") == 9
        assert done.count("long") <= 9 / time_slices.SHARE + 1
        await long


async def test_other_work_has_its_share_of_what_a_long_step_took():
    now, done, loop, is_over = 0.0, [], asyncio.get_running_loop(), False

    def other() -> None:
        nonlocal now
        now += 0.1
        done.append("other")
        if not is_over:
            loop.call_soon(other)

    def long() -> Generator[None, None, None]:
        nonlocal now
        for _ in range(4):
            now += 1.0
            done.append("long")
            yield

    with patch.multiple(time_slices, thread_time=lambda: now, perf_counter=lambda: now):
        loop.call_soon(other)
        await in_time_slices(long())
        is_over = True
    turns = "".join(each[0] for each in done).split("l")[1:-1]
    assert [len(others) >= 10 * time_slices.SHARE for others in turns[1:]] == [True, True], done


def test_the_dates_of_entries_are_read_in_all_formats():
    entry = "<{0}><{1}>http://a.test/{2}</{1}>{3}</{0}>"
    noon, day = 1_795_780_800.0, 1_795_780_800.0 + 43_199
    for root, name, url, dates in [
        ("urlset", "url", "loc", ("<lastmod>2026-11-27</lastmod>", "<lastmod> 2026-11-27T13:00:00+01:00</lastmod>")),
        ("rss", "item", "link", ("<pubDate>Fri, 27 Nov 2026 12:00:00 GMT</pubDate>", "<pubDate>27 Nov 2026 12:00 +0000</pubDate>")),
        ("rdf", "item", "link", ("<dc:date>2026-11-27T12:00Z</dc:date>", "<dc:date>2026-11-27</dc:date>")),
    ]:  # fmt: skip
        text = "".join(
            entry.format(name, url, number, date)
            for number, date in enumerate((*dates, "", "<lastmod>soon</lastmod>"))
        )
        sitemap = Sitemap(f"<{root}>{text}</{root}>".encode(), has_dates=True)
        assert len([each for each in sitemap if each]) == 4
        wanted = {
            f"http://a.test/{number}": day if "27<" in date else noon for number, date in enumerate(dates)
        }
        assert sitemap.dates == wanted, root
    atom = "<feed><entry><updated>2026-11-27T12:00:00Z</updated><link href='http://a.test/1'/></entry><entry><link href='/2'/></entry></feed>"
    sitemap = Sitemap(atom.encode(), has_dates=True)
    assert [each for each in sitemap if each] == ["http://a.test/1", "/2"]
    assert sitemap.dates == {"http://a.test/1": noon}


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ("<ttl>60</ttl>", 3600),
        ("<sy:updatePeriod> Daily </sy:updatePeriod>", 86_400),
        ("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>", 1800),
        ("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>0</sy:updateFrequency>", 3600),
        ("<ttl>" + "9" * 99 + "</ttl>", 365 * 86_400),
        ("<ttl>soon</ttl><item><ttl>1</ttl></item>", 0),
    ],
)
def test_a_feed_says_how_often_it_is_updated(own, seconds):
    feed = Sitemap(f"<rss><channel>{own}<item><link>http://a.test/1</link></item></channel></rss>".encode())
    assert [each for each in feed if each] == ["http://a.test/1"]
    assert feed.every == seconds


def test_feeds_are_named_in_the_head_of_a_page():
    html = b"""<link rel=stylesheet href=/a.css type=text/css><LINK REL="Alternate" TYPE='application/rss+xml' HREF="/feed?a=1&amp;b=2">
        <link type="application/atom+xml" rel="alternate home" href=/atom><link rel=alternate type=application/atom+xml>
        <link rel=author type=application/rss+xml href=/not>"""
    assert list(feeds_in(html)) == ["/feed?a=1&b=2", "/atom"]
