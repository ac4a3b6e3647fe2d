"""What hostile bytes cost each parser of a crawl as there are more of them.

    python benchmarks growth [PARSER ...] [--seconds 5] [--seed 1]

For each parser, inputs are made by a grammar: one or two blocks, each of them some pieces of the language repeated as
often as there is room, with numbers in them if they shall differ; a beginning and an end. Those with the longest time
a byte are varied further. The worst by the time of the first half of the search, and by its growth, are then doubled
in size up to what can reach the parser, or to half a second. The exponent is that of the best line through the
logarithms of the last three sizes; times are CPU times, the least of several.

What must hold: no exponent above 1.25 (confirmed by measuring it anew), or at most 0.1 s for the most that can reach
the parser; and less than 20 MB more for it than twenty times its bytes. Parsers that are none of ours are measured
for what a crawl gives them; the ones named in KNOWN may fail, and docs/evidence.md says what is done about them.

Exit status: 0 if it holds, 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import math
import sys
import time
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from scrapy import Request
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.http import HtmlResponse, Response
from scrapy.http.cookies import CookieJar
from scrapy.linkextractors import LinkExtractor
from scrapy.robotstxt import ProtegoRobotParser
from scrapy.utils.response import get_base_url, get_meta_refresh
from w3lib.url import safe_url_string

from scrapy_aopic.core.robots.fetches import MAX_BYTES
from scrapy_aopic.core.robots.rules import finish, path_of
from scrapy_aopic.web.content_usage import read_statement
from scrapy_aopic.web.http_dates import read_retry_after
from scrapy_aopic.web.link_extraction import Extraction, LinkJoiner, rels_of
from scrapy_aopic.web.page_text import read_canonical, read_text
from scrapy_aopic.web.parse_limits import is_packed_too_often, too_many_attributes
from scrapy_aopic.web.robots_marks import metas_of, read_marks
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser, parse
from scrapy_aopic.web.sitemaps import Sitemap, sitemaps_in
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.tdmrep import TdmRules
from scrapy_aopic.web.url_keys import key_of_url
from scrapy_aopic.web.urls import Normaliser

STEEPEST = 1.25
SHORT = 0.1
"""Seconds."""

LONG = 0.5
"""Seconds of one measurement after which nothing larger is measured."""

NOISE = 0.002
"""Seconds below which a measurement says nothing of growth."""

URL = "http://h.test/" + "ab" * 1000
BODY = 10 << 20  # DOWNLOAD_MAXSIZE of the add-on
HEADER = 16_384  # a line, to Twisted
HEADERS = 256 << 10


class Parser(NamedTuple):
    """What is given foreign bytes.

    Attributes:
        read: Does with a text what a crawl does.
        pieces: Of its language; ``{n}`` becomes another number each time.
        most: Bytes that can reach it.
        begin: What every text begins with.
    """

    read: Callable[[bytes], Any]
    pieces: tuple[bytes, ...]
    most: int
    begin: bytes = b""


class Shape(NamedTuple):
    """A text of any size: its blocks are repeated until there is no room."""

    begin: bytes
    blocks: tuple[bytes, ...]
    end: bytes

    def text(self, size: int) -> bytes:
        room = max(size - len(self.begin) - len(self.end), 0) // len(self.blocks)
        parts = [self.begin]
        for block in self.blocks:
            if b"{n}" not in block:
                parts.append(block * (room // len(block)))
                continue
            length = number = 0
            while True:
                unit = block.replace(b"{n}", b"%d" % number)
                length, number = length + len(unit), number + 1
                if length > room:
                    break
                parts.append(unit)
        return b"".join([*parts, self.end])

    def __str__(self) -> str:
        shown = " then ".join(f"{block.decode('latin-1')!r} again and again" for block in self.blocks)
        return f"{self.begin[-40:].decode('latin-1')!r}, {shown}, {self.end.decode('latin-1')!r}"


# -- the parsers


def robots(text: bytes) -> None:
    rules = Rfc9309RobotParser(text[:MAX_BYTES])
    rules.allowed(URL, "bot")
    rules.crawl_delay("bot")
    rules.usage(URL, "bot")


def robots_url() -> Callable[[bytes], None]:
    """A URL judged by rules that were read before; only the judgement is measured."""
    kept: dict[bytes, Rfc9309RobotParser] = {}

    def judge(text: bytes) -> None:
        if text not in kept:
            kept.clear()
            kept[text] = Rfc9309RobotParser(text)
            finish(kept[text].read("bot"))
        kept[text].allowed(URL, "bot")

    return judge


class _Text(ProtegoRobotParser):
    """Another parser of robots.txt that takes no time."""

    @classmethod
    def from_crawler(cls, crawler: Any, robotstxt_body: bytes) -> Any:
        return robotstxt_body


def html(read: Callable[[HtmlResponse], Any]) -> Callable[[bytes], None]:
    """A page, if it is one that a crawl reads."""

    def judge(text: bytes) -> None:
        page = HtmlResponse("http://h.test/a/", body=text)
        if not any(too_many_attributes(page)):
            read(page)

    return judge


def link_header(value: bytes) -> None:
    values = [value[at : at + HEADER] for at in range(0, len(value), HEADER)]
    read_canonical(Response("http://h.test/", headers={"Link": values}))


def marks(page: HtmlResponse) -> None:
    read_marks(page.headers, metas_of(page, ("robots", "bot")), "bot", 0.0)


def header_of_marks(value: bytes) -> None:
    values = [value[at : at + HEADER] for at in range(0, len(value), HEADER)]
    read_marks(Response("http://h.test/", headers={"X-Robots-Tag": values}).headers, (), "bot", 0.0)


def unpack(value: bytes) -> None:
    response = Response("http://h.test/", headers={"Content-Encoding": value}, body=PACKED)
    if not is_packed_too_often(response.headers):
        HttpCompressionMiddleware.__new__(HttpCompressionMiddleware)._handle_encoding(
            response.body, response.headers.getlist("Content-Encoding"), BODY
        )


def cookies(value: bytes) -> None:
    request = Request("http://h.test/a")
    jar = CookieJar()
    jar.extract_cookies(Response(request.url, headers={"Set-Cookie": value}), request)
    jar.add_cookie_header(Request("http://h.test/b"))


def location(value: bytes) -> None:
    Request(safe_url_string(value.decode("utf-8", "replace")))


def unlimited(value: bytes) -> None:
    NORMALISER(value.decode("latin-1"))


def links(page: HtmlResponse) -> None:
    LinkExtractor().extract_links(page)


def link(value: bytes) -> None:
    JOINER.join(value.decode("utf-8", "replace"))


EXTRACTIONS = (
    Extraction(),
    Extraction(restrict_css="div, p", restrict_text="x"),
)
JOINER = LinkJoiner("http://h.test/a/b", "http://h.test/" + "ab/" * 300, "utf-8")
NORMALISER = Normaliser(
    last_year=2030, max_length=0, max_depth=0, max_repeats=0, max_parameters=0, extensions=frozenset({"gz"})
)
PACKED = gzip.compress(bytes(1 << 20), 0)
for _ in range(40):
    PACKED = gzip.compress(PACKED, 0)

ROBOTS = (
    b"user-agent: *\n", b"user-agent: {n}\n", b"user-agent:\n", b"user-agent bot\n", b"x\n", b"allow:/{n}\n", b"disallow:/*{n}$\n",
    b"disallow:*a*b{n}\n", b"allow:/", b"*a", b"%41", b"%e9", b"\xff", b"{n}", b"$", b"\n", b"\r", b" ", b"#", b":", b"crawl-delay: 1\n",
    b"crawl-delay: {n}", b"disallow:", b"a" * 100, b"ab" * 50, b"*ba" * 20, b"/index.html\n", b"sitemap: /{n}\n",
    b"content-usage: /{n} train-ai=n\n", b"content-usage: ",
)  # fmt: skip
HTML = (
    b"<a>", b"</a>", b"<a href='{n}'>", b"<p>", b"</p>", b"<b>", b"</b>", b"<i>", b"<div>", b"</div>", b"<table>", b"<td>", b"<tr>", b"<li>",
    b"x", b" ", b"{n}", b"a{n} ", b"a{n}=", b"'", b'"', b">", b"<", b"/", b"=", b"&amp;", b"&", b"&#65;", b"<!--", b"-->", b"<!", b"<?",
    b"<script>", b"</script>", b"<style>", b"<template>", b"<form>", b"<svg>", b"<select>", b"<option>", b"<base href='/'>", b"<a b{n}='>'",
    b"<link rel='canonical' href='/{n}'>", b"<link rel=canonical href=/>", b"<meta http-equiv=refresh content='0;url={n}'>", b"\0",
    b"<h1>", b"<body>", b"<head>", b"<html>", b"<frameset>", b"<textarea>", b"<title>", b"\xc3\xa9", b"<![CDATA[", b"\n", b"<a href='http://h",
    b"{", b"}", b'"nonce":', b"window.__STATE__ = {",
)  # fmt: skip
XML = (
    b"<url>", b"</url>", b"<loc>", b"</loc>", b"<loc/>", b"<x/>", b"<x>", b"</x>", b"<a{n}/>", b"http://h/{n}", b"&amp;", b"&e;", b"&#65;",
    b" a{n}=''", b" xmlns:a{n}='b'", b"<!--", b"-->", b"<?a?>", b"<![CDATA[", b"]]>", b"<", b">", b"x", b" ", b"\xff", b"\0",
    b"<!DOCTYPE a [<!ENTITY e '&e;'>", b"<!ENTITY e{n} 'x'>", b"<url><loc>http://h/{n}</loc></url>",
    b"<link ", b"<a:link rel='alternate' href='/{n}'/>", b" href=", b" rel=", b"'", b'"', b"&", b"&#{n};", b"\n", b"http://", b"<item><link>",
)  # fmt: skip
HEAD = (
    b"<", b">", b"</{n}>", b";", b",", b"=", b'"', b"rel", b"rel=", b"canonical", b" ", b"\t", b"<a>; rel=canonical,", b"a", b"{n}", b"\\",
)  # fmt: skip
MARKS = (
    b"noindex", b"nofollow", b",", b":", b" ", b"\t", b"bot", b"bot: ", b"*: ", b"unavailable_after", b"Friday, ", b"max-snippet:", b"{n}", b"a", b";",
    b"\xff", b"01-Jan-10 ", b"00:00:00 GMT", b"a{n},", b"-",
)  # fmt: skip
STATEMENT = (
    b"train-ai", b"=", b"n", b"y", b",", b" ", b"\t", b";", b"a", b"a=(", b"(", b")", b'"', b"\\", b":", b"?1", b"@1", b'%"', b"%20", b"1", b".", b"{n}", b"*",
)  # fmt: skip
RULES = (
    b"[", b"]", b"{", b"}", b",", b":", b'"', b'"location"', b'"tdm-reservation"', b'{"location":"/', b'","tdm-reservation":1},', b"/", b"*", b"$", b"a",
    b"%41", b"%e9", b"{n}", b"1", b"0", b" ", b"\\", b"\\u00fc", b"null", b"-", b"e9", b'{"location":"*a*b{n}","tdm-reservation":1},',
)  # fmt: skip
MARK = b"<meta name=robots content=nofollow>"
DATE = (
    b"Mon", b", ", b"1 ", b"Jan ", b"2030 ", b"00:00:00", b":", b"GMT", b"+0000", b"-", b"(", b")", b"\\", b'"', b" ", b"\t", b"9", b"a", b".", b"{n}",
)  # fmt: skip
COOKIE = (
    b"a=b", b"; ", b";", b"=", b'"', b"\\", b"expires=", b"max-age=", b"domain=", b"path=", b"/", b".", b" ", b"{n}", *DATE,
)  # fmt: skip
ADDRESS = (
    b"/", b"//", b":", b"@", b".", b"..", b"/./", b"%", b"%41", b"%e9", b"?", b"&", b"=", b"a=1&", b"#", b";", b";jsessionid=1", b"/.;jsessionid=1/..",
    b"/(S(lit3py55t21z5v55vlm25s55))", b"(", b")", b"[", b"]", b"a", b"{n}", b" ", b"\t", b"\\", b"xn--", b"xn--a.", b"a.", b"\xc3\xa9", b"-", b"_",
    b"calendar", b"2099/05", b"year=0", b"1", b"utm_source=1&", b"sid=", b"A()", "\u0301\u0323".encode(), b"e\xcc\x81", "\uff41".encode(),
)  # fmt: skip
CODING = (b"gzip", b",", b" ", b"gzip, ", b"br", b"x", b"deflate, ", b"identity, ")

OURS = {
    "robots.txt": Parser(robots, ROBOTS, MAX_BYTES),
    "robots.txt, a URL": Parser(robots_url(), ROBOTS, MAX_BYTES, b"user-agent: *\n"),
    "robots.txt, for another parser": Parser(lambda text: parse(text, _Text), ROBOTS, MAX_BYTES),
    "robots.txt, its sitemaps": Parser(lambda text: list(sitemaps_in(text, "http://h.test/robots.txt")), ROBOTS, MAX_BYTES),
    "robots.txt, path of a URL": Parser(lambda text: path_of(text.decode("latin-1")), ADDRESS, 65_536, b"http://h.test/"),
    "sitemap": Parser(lambda text: list(Sitemap(text)), XML, BODY, b"<urlset>"),
    "text of a page": Parser(html(read_text), HTML, BODY),
    "canonical links": Parser(html(read_canonical), HTML, BODY, b"<html><head>"),
    "marks for robots": Parser(html(marks), HTML, BODY, b"<html><head>" + MARK),
    "marks for robots, in headers": Parser(header_of_marks, MARKS, HEADERS),
    "rel of links": Parser(html(rels_of), HTML, BODY),
    "use of content": Parser(read_statement, STATEMENT, HEADER),
    "tdmrep.json": Parser(lambda text: TdmRules(b"[" + text.strip(b",") + b"]").find(URL), RULES, MAX_BYTES),
    "canonical headers": Parser(link_header, HEAD, HEADERS),
    "links of a page": Parser(html(lambda page: list(EXTRACTIONS[0].urls(page))), HTML, BODY),
    "links of regions": Parser(html(lambda page: list(EXTRACTIONS[1].urls(page))), HTML, 1 << 20),
    "URL of a link": Parser(link, ADDRESS, BODY),
    "attributes of a page": Parser(html(lambda _: None), HTML, BODY),
    "Retry-After": Parser(lambda value: read_retry_after([value], 0.0), DATE, HEADER),
    "normal form of a URL": Parser(unlimited, ADDRESS, 65_536, b"http://h.test/"),
    "normal form of a host": Parser(unlimited, ADDRESS, 65_536, b"http://"),
    "fingerprint of a URL": Parser(lambda url: key_of_url(url.decode("latin-1")), ADDRESS, 65_536, b"http://h.test/"),
    "registered domain": Parser(lambda name: registered_domain(name.decode("latin-1")), ADDRESS, 65_536),
    "codings of a body": Parser(unpack, CODING, HEADERS),
}  # fmt: skip

OTHERS = {
    "Scrapy: tree of a page": Parser(html(lambda page: page.selector.root), HTML, BODY),
    "Scrapy: LinkExtractor": Parser(html(links), HTML, 1 << 20),
    "Scrapy: meta refresh": Parser(html(get_meta_refresh), HTML, BODY),
    "Scrapy: base URL": Parser(html(get_base_url), HTML, BODY),
    "Scrapy: encoding by header": Parser(
        lambda value: HtmlResponse("http://h.test/", headers={"Content-Type": b"text/html;" + value}, body=b"\xff").text,
        (b"charset", b"=", b"utf-8", b'"', b";", b" ", b"\t", b"a", b"\\", b","), HEADER,
    ),
    "Scrapy: encoding by page": Parser(lambda text: HtmlResponse("http://h.test/", body=text).text, HTML, BODY),
    "Scrapy: URL of a request": Parser(location, ADDRESS, HEADER, b"http://h.test/"),
    "Scrapy: host of a request": Parser(location, ADDRESS, HEADER, b"http://"),
    "Scrapy: cookies": Parser(cookies, COOKIE, HEADER, b"a=b; "),
}  # fmt: skip

KNOWN = {"Scrapy: host of a request"}

# -- the search


def seconds(parser: Parser, text: bytes, tries: int = 3) -> float:
    """CPU time of reading *text*, the least of some *tries*; fewer if it takes long."""
    least = math.inf
    for _ in range(tries):
        began = time.process_time()
        with contextlib.suppress(Exception):  # not what is looked for here
            parser.read(text)
        took = time.process_time() - began
        least = min(least, took)
        if took > LONG:
            break
    return least


def drawn(parser: Parser, random: Random) -> Shape:
    def some(most: int) -> bytes:
        return b"".join(random.choices(parser.pieces, k=random.randint(0, most)))

    blocks = tuple(some(3) or random.choice(parser.pieces) for _ in range(random.choice((1, 1, 2))))
    return Shape(parser.begin + some(2), blocks, some(2))


def varied(shape: Shape, parser: Parser, random: Random) -> Shape:
    other = drawn(parser, random)
    match random.randrange(4):
        case 0:
            return shape._replace(begin=other.begin)
        case 1:
            return shape._replace(end=other.end)
        case 2:
            blocks = list(shape.blocks)
            blocks[random.randrange(len(blocks))] += random.choice(parser.pieces)
            return shape._replace(blocks=tuple(blocks))
    return shape._replace(blocks=(random.choice(shape.blocks), *other.blocks)[:2])


def search(parser: Parser, random: Random, budget: float) -> list[Shape]:
    """The shapes that take the longest a byte, and those that grow the most, found in *budget* seconds."""
    large = min(parser.most, 1 << 16)
    found: dict[Shape, tuple[float, float]] = {}
    spent = 0.0
    while spent < budget:
        slow = sorted(found, key=lambda shape: found[shape], reverse=True)[:8]
        shape = (
            varied(random.choice(slow), parser, random)
            if slow and random.random() < 0.6
            else drawn(parser, random)
        )
        small, big = (seconds(parser, shape.text(size), 1) for size in (large // 4, large))
        spent += small + big + 1e-4
        found[shape] = (big, big / max(small, NOISE / 4))
    by_time = sorted(found, key=lambda shape: found[shape][0], reverse=True)
    by_growth = sorted(found, key=lambda shape: found[shape][1] * (found[shape][0] > NOISE), reverse=True)
    return list(dict.fromkeys([*by_time[:3], *by_growth[:3]]))


# -- the growth


class Growth(NamedTuple):
    """How the time for a shape grows.

    Attributes:
        exponent: Of the size, at the end; 0 if it is too small to be measured.
        size: Bytes of the largest text that was read.
        took: Seconds for it.
    """

    exponent: float
    size: int
    took: float


def growth(parser: Parser, shape: Shape) -> Growth:
    sizes, times = [], []
    size = min(parser.most, 1 << 14)
    while True:
        text = shape.text(size)
        sizes.append(len(text))
        times.append(seconds(parser, text))
        if times[-1] > LONG or size == parser.most:
            break
        size = min(2 * size, parser.most)
    while len(sizes) < 3 and sizes[0] > 1000:  # what is slow at once
        text = shape.text(sizes[0] // 2)
        sizes.insert(0, len(text))
        times.insert(0, seconds(parser, text))
    points = [
        (math.log(n), math.log(t)) for n, t in zip(sizes[-3:], times[-3:], strict=True) if t > NOISE / 4 and n
    ]
    exponent = 0.0
    if len(points) == 3 and times[-1] > NOISE and len({x for x, _ in points}) > 1:
        middle = sum(x for x, _ in points) / 3
        spread = sum((x - middle) ** 2 for x, _ in points)
        exponent = sum((x - middle) * y for x, y in points) / spread
    return Growth(exponent, sizes[-1], times[-1])


def is_linear(measured: Growth, parser: Parser) -> bool:
    at_most = measured.size >= 0.9 * parser.most and measured.took <= SHORT
    return measured.exponent <= STEEPEST or at_most


def memory(parser: Parser, shape: Shape, size: int) -> tuple[int, int]:
    """Bytes of a text of *size*, and the most that Python held more while it was read."""
    text = shape.text(size)
    tracemalloc.start()
    with contextlib.suppress(Exception):
        parser.read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return len(text), peak


class Result(NamedTuple):
    """The worst that was found of a parser.

    Attributes:
        steepest: The growth with the largest exponent.
        longest: The one that takes the longest a byte.
        shape: Of the one that fails, if one does; else of the longest.
        peak: Bytes of memory for it, a byte of the text.
    """

    is_good: bool
    steepest: Growth
    longest: Growth
    shape: Shape
    peak: float


def judge(parser: Parser, random: Random, budget: float, shapes: tuple[Shape, ...] = ()) -> Result:
    """The worst of *shapes*, and of what a search of *budget* seconds finds."""
    measured: dict[Shape, Growth] = {}
    bad: Shape | None = None
    for shape in (*shapes, *search(parser, random, budget)):
        found = growth(parser, shape)
        for _ in range(2):  # a busy machine makes something steep once, not three times
            if not is_linear(found, parser):
                found = min(found, growth(parser, shape))
        measured[shape] = found
        if not is_linear(found, parser):
            bad = shape
    longest = max(measured, key=lambda shape: measured[shape].took / max(measured[shape].size, 1))
    size, peak = memory(parser, longest, min(measured[longest].size, 1 << 19))
    has_room = peak <= 20 * size + 20e6
    return Result(
        bad is None and has_room,
        max(measured.values()),
        measured[longest],
        bad or longest,
        peak / max(size, 1),
    )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("parsers", nargs="*", metavar="PARSER", help="part of a name; all if none is given")
    options.add_argument(
        "--seconds", type=float, default=5.0, help="of CPU time for the search for each parser"
    )
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    parsers = OURS | OTHERS
    chosen = [name for name in parsers if any(part in name for part in given.parsers) or not given.parsers]
    print(
        "| parser | most bytes | exponent | worst, bytes | CPU | memory a byte | |\n|---|--:|--:|--:|--:|--:|---|"
    )
    failed = []
    for name in chosen:
        result = judge(parsers[name], Random(f"{given.seed} {name}"), given.seconds)
        verdict = "" if result.is_good else "known" if name in KNOWN else "FAILED"
        if verdict:
            failed.append((name, result.shape))
        worst = max(result.steepest, result.longest) if verdict else result.longest
        print(
            f"| {name} | {parsers[name].most:,} | {result.steepest.exponent:.2f} | {worst.size:,} | {worst.took:.3f} s "
            f"| {result.peak:.0f} | {verdict} |",
            flush=True,
        )
    for name, shape in failed:
        print(f"{name}: {shape}")
    return int(any(name not in KNOWN for name, _ in failed))


if __name__ == "__main__":
    sys.exit(main())
