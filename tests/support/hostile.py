"""Hostile URLs and pages: pieces that parsers disagree on, put together at random; and a web that has every trap."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor

from scrapy_aopic.testing.server import Answer, Exchange

STARTS = (
    "http://example.com/", "http://h{n}.test/", "https://a.b/{n}/", "http://h/?{n}=", "http://u:p@h:8/{n}", "http://{n}",
    "http://", "HTTP:/", "//", "",
)  # fmt: skip

PIECES = (
    # what divides a URL
    "http://", "https://", "HTTP:", "http:/", "ftp://", "javascript:", "mailto:", "//", "/", "\\", "?", "#", "&", "=",
    ";", "@", ":", "..", ".", "./", "../", "+", ",", "~", "$", "*", "(", ")", "!", "|", "^", "{", "}", "`", "'", '"',
    "<", ">", "[", "]", "-", "_",
    # escapes, some of them broken, some hiding others
    "%", "%2e", "%2F", "%25", "%41", "%7e", "%zz", "%4", "%00", "%0a", "%e4", "%C3%A9", "%u00e9", "&amp;", "%%341",
    # characters that are dropped, folded, mapped or forbidden
    " ", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\x85", "\u00a0", "\u2028", "\ufeff", "\ud800", "\udfff", "\ufffd",
    "é", "ß", "ﬀ", "日", "\u3002", "\uff0e", "\uff0f", "\u00ad", "\u200d", "\u2044", "\u212a", "\u0663", "\u202e",
    "\U0001f600", "\U0010ffff",
    # hosts
    "example.com", "xn--", "xn--a", "xn--bcher-kva", "[::1]", "[::ffff:1.2.3.4]", "[v1.x]", "[::1%25eth0]", "127.1",
    "0x7f", "08", "1", "256", "a" * 64, "b." * 130, "localhost",
    # ports
    ":80", ":443", ":0", ":65536", ":99999999999999999999",
    # what sites add, and what traps are made of
    "jsessionid=1", ";jsessionid=", "(S(lit3py55t21z5v55vlm25s55))", "utm_source=x", "sid=", "PHPSESSID=", "a=1&",
    "calendar", "2099/05", "year=0", "a/", "a/b/", ".pdf", ".tar.gz", "x" * 300, "/.;jsessionid=1/..",
)  # fmt: skip

MARKUP = (
    '<a href="{}">', "<a href='{}'>", "<a href={}>", '<a href="{}', '<A HREF = "{}"/>', '<area href="{}">',
    '<base href="{}">', '<link rel=next href="{}">', '<a rel="nofollow ugc" href="{}"><a href="{}">',
    '<table><a href="{}"><tr><a href="{}"></table>', '<svg><a xlink:href="{}">', "<!--<a href='{}'>-->", "<a href>",
    '<a href="\x00{}">', '<iframe src="{}">', '<meta http-equiv=refresh content="0;url={}">', "<plaintext>{}",
)  # fmt: skip


def hostile_url(random: Random) -> str:
    """A URL that is in order at its beginning at most."""
    start = random.choice(STARTS[:6]) if random.random() < 0.9 else random.choice(STARTS)
    pieces = random.choices(PIECES, k=min(int(random.expovariate(0.25)), 30))
    return start.replace("{n}", str(random.randrange(100_000))) + "".join(pieces)


def hostile_page(random: Random, urls: list[str], malformed: tuple[str, ...] = ("<p>",)) -> str:
    """HTML that links to *urls* between *malformed* pieces."""
    parts = []
    for url in urls:
        parts += [
            random.choice(malformed),
            random.choice(MARKUP).format(url, url),
            random.choice(("", "x", "</a>")),
        ]
    return "".join(parts)


# -- a web with every trap at once: ordinary sites, each page of which links to traps

N_SITES, N_PAGES = 12, 8
ORDINARY = frozenset(f"http://site{site}.test/{page}" for site in range(N_SITES) for page in range(N_PAGES))

FORBIDDEN = "/secret"
"""What the robots.txt of a host forbids, if that can be read."""

HTML = {"Content-Type": "text/html; charset=utf-8"}
TEXT = " ".join(f"word{number}" for number in range(60))
BOMB = bytes(50_000_000)
NUMBERS = count()

Trap = Callable[[Exchange], Answer]
TRAPS: dict[str, Trap] = {}
"""What each trap answers, by its registered domain without ``.test``."""

ENTRANCES: list[str] = []
"""URLs of the traps that ordinary pages link to."""


def trap(*entrances: str) -> Callable[[Trap], Trap]:
    """Have a function answer for the registered domains of *entrances*, which ordinary pages link to."""

    def note(answer: Trap) -> Trap:
        for entrance in entrances:
            host, _, path = entrance.partition("/")
            ENTRANCES.append(f"http://{host}.test/{path}")
            TRAPS[host.rpartition(".")[2]] = answer
        return answer

    return note


def page(*links: str, text: str = "", head: str = "", **headers: str) -> Answer:
    anchors = "".join(f'<a href="{link}">more</a>\n' for link in links)
    body = f"<html><head>{head}</head><body>{text}<p>{anchors}</body></html>"
    return Answer(headers={**HTML, **headers}, body=body.encode("utf-8", "replace"))


def answer(exchange: Exchange) -> Answer:
    """What the whole web answers."""
    name = exchange.host.removesuffix(".test").removesuffix(".com").rpartition(".")[2]
    if name.startswith("site"):
        return ordinary(exchange)
    if name in TRAPS:
        return TRAPS[name](exchange)
    return Answer(404)


def ordinary(exchange: Exchange) -> Answer:
    site, number = exchange.host[4:-5], exchange.target[1:]
    if f"http://{exchange.host}{exchange.target}" not in ORDINARY:
        return Answer(404)
    place = int(site) * N_PAGES + int(number)
    links = [f"http://site{(int(site) + 1) % N_SITES}.test/{number}", f"/{(int(number) + 1) % N_PAGES}"]
    return page(*links, *ENTRANCES[place :: len(ORDINARY)], text=f"Page {place}: {TEXT}")


def without_robots(trap: Trap) -> Trap:
    """The host answers as ever, but has no robots.txt."""

    def answer(exchange: Exchange) -> Answer:
        return Answer(404) if exchange.target == "/robots.txt" else trap(exchange)

    return answer


# sites without end


@trap("repeat/a/", "repeat/a/b/", "repeat/a/b/c/", "words/a/")
@without_robots
def repeating(exchange: Exchange) -> Answer:
    if exchange.host == "words.test":
        return page("a/", "b/", "c/", text=TEXT)
    return page("../" * (exchange.target.count("/") - 1) + 2 * exchange.target[1:], text=exchange.target)


@trap(f"calendar/calendar/{datetime.now(tz=timezone.utc).year}/1")
@without_robots
def calendar(exchange: Exchange) -> Answer:
    year, month = map(int, exchange.target.split("/")[2:])
    months = year * 12 + month - 1
    links = (f"/calendar/{each // 12}/{each % 12 + 1}" for each in (months - 1, months + 1, months + 12))
    return page(*links, text=f"{year}/{month}: {TEXT}")


@trap("session/0")
@without_robots
def sessions(exchange: Exchange) -> Answer:
    session, path = (
        f"{next(NUMBERS):032x}",
        exchange.target.partition("?")[0].partition(";")[0].rpartition("/")[2],
    )
    if path == "loop":
        return Answer(302, {"Location": f"/loop;jsessionid={session}"})
    targets = [f"/{number}" for number in range(5)]
    forms = (";jsessionid={}", "?PHPSESSID={}", "?sid={}", "?utm_source=x&sessionid={}")
    links = [target + form.format(session) for target in targets for form in forms]
    return page(*links, f"/(S({session[-24:]}))/1", f"/loop;jsessionid={session}", text=path)


@trap("deep/d/")
@without_robots
def deep(exchange: Exchange) -> Answer:
    return page(f"x{len(exchange.target)}/", "../", text=f"{exchange.target}: {TEXT}")


@trap("n0.wild/")
@without_robots
def subdomains(exchange: Exchange) -> Answer:
    number = int(exchange.host[1:].partition(".")[0])
    links = (f"http://n{number + step}.wild.test/" for step in (1, 2))
    return page(*links, text=f"Host {number}: {TEXT}")


@trap("pages/?page=0")
@without_robots
def numbered(exchange: Exchange) -> Answer:
    number = int(exchange.target.rpartition("=")[2])
    return page(f"/?page={number + 1}", f"/?page={number + 10}", text=f"Page {number}: {TEXT}")


@trap("same/0", "n0.clones/")
@without_robots
def same_text(exchange: Exchange) -> Answer:
    number = next(NUMBERS)
    # Not ".test", which is no public suffix, so that each host would be a registered domain that somebody pays for.
    return page(f"/{number}", f"http://n{number}.clones.com/", text=TEXT)


@trap("mirror0/0", "mirror1/0", "mirror2/0", "mirror3/0")
@without_robots
def mirrors(exchange: Exchange) -> Answer:
    number = int(exchange.target[1:])
    links = [f"/{number + 1}"] if number < 9 else []
    return page(*links, text=f"Mirrored page {number}: {TEXT}")


@trap("flood/")
@without_robots
def flood(exchange: Exchange) -> Answer:
    return page(*(f"/{number}" for number in range(100_000))) if exchange.target == "/" else page()


# pages without end


@trap("endless/")
@without_robots
def endless(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"<p>more</p>" * 10_000, endless=True)


@trap("drip/")
@without_robots
def drip(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"x", body_delay=0.05, endless=True)


@trap("gzip/", "twice/", "deflate/")
@without_robots
def bomb(exchange: Exchange) -> Answer:
    kind = exchange.host.partition(".")[0]
    body = zlib.compress(BOMB) if kind == "deflate" else gzip.compress(BOMB)
    if kind == "twice":
        kind, body = "gzip, gzip", gzip.compress(body)
    return Answer(headers={**HTML, "Content-Encoding": kind}, body=body)


@trap("layers/")
@without_robots
def layers(exchange: Exchange) -> Answer:
    body = b"<p>packed</p>"
    for _ in range(50):
        body = gzip.compress(body)
    return Answer(headers={**HTML, "Content-Encoding": ", ".join(["gzip"] * 50)}, body=body)


@trap("attributes/", "canonicals/")
@without_robots
def many(exchange: Exchange) -> Answer:
    if exchange.host == "attributes.test":  # which libxml2 would parse for a minute
        return Answer(
            headers=HTML, body=b"<p " + b" ".join(b"a%d" % number for number in range(250_000)) + b">"
        )
    links = "".join(f'<link rel="canonical" href="/?{number}">' for number in range(50_000))
    return page(head=links)


@trap("headers/", "header/")
@without_robots
def headers(exchange: Exchange) -> Answer:
    lines = {"X": "x" * 10_000_000}
    if exchange.host == "headers.test":
        lines = {f"X-{number}": "x" * 10_000 for number in range(1000)}
    return Answer(headers={**HTML, **lines}, body=b"read")


@trap("nested/")
@without_robots
def nested(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"<div>" * 100_000 + b'<a href="/in">x</a>')


# pages that lead to each other


@trap("loop0/", "loop1/", "loop2/")
@without_robots
def circle(exchange: Exchange) -> Answer:
    number = int(exchange.host[4])
    return Answer((301, 302, 308)[number], {"Location": f"http://loop{(number + 1) % 3}.test/"})


@trap("itself/301", "itself/302")
@without_robots
def itself(exchange: Exchange) -> Answer:
    return Answer(int(exchange.target[1:]), {"Location": exchange.target})


@trap("n0.chain301/", "n0.chain302/")
@without_robots
def chain(exchange: Exchange) -> Answer:
    number, domain = exchange.host.removesuffix(".test").split(".")
    return Answer(int(domain[5:]), {"Location": f"http://n{int(number[1:]) + 1}.{domain}.test/"})


@trap("refresh/0", "refresh/self", "refresh/chain0")
@without_robots
def refresh(exchange: Exchange) -> Answer:
    path = exchange.target[1:]
    url = path if path == "self" else f"chain{int(path[5:]) + 1}" if path[:5] == "chain" else 1 - int(path)
    return (
        page("/end", head=f'<meta http-equiv="refresh" content="0; url=/{url}">') if path != "end" else page()
    )


@trap("canonical/0", "canonical/n0", "canonical/lie0", "canonical/lie1", "canonical/lie2", "canonical/lie3")
@without_robots
def canonical(exchange: Exchange) -> Answer:
    path, lies = exchange.target[1:], ("http://site0.test/0", "/missing", "http://[", "javascript:x")
    if path == "missing":
        return Answer(404)
    if path.startswith("lie"):
        url = lies[int(path[3:])]
    else:
        url = f"/n{int(path[1:]) + 1}" if path[0] == "n" else f"/{(int(path) + 1) % 3}"
    return page("/0", text=f"{path}: {TEXT}", head=f'<link rel="canonical" href="{url}">')


# hosts that fail, and answers that are wrong


@trap("s500/0", "s503/0", "s429/0", "later/0")
@without_robots
def failing(exchange: Exchange) -> Answer:
    kind = exchange.host.partition(".")[0]
    return Answer(503, {"Retry-After": "99999999"}) if kind == "later" else Answer(int(kind[1:]))


@trap("reset/0", "reset/1")
@without_robots
def reset(exchange: Exchange) -> Answer:
    return Answer(abort=True)


NOISE = Random(0).randbytes(20_000)


@trap("binary/noise", "binary/nuls", "binary/png", "binary/pdf", "binary/none", "binary/broken-gzip")
@without_robots
def binary(exchange: Exchange) -> Answer:
    match exchange.target[1:]:
        case "nuls":
            return Answer(headers=HTML, body=bytes(20_000) + b"<a href='/in'>")
        case "png":
            return Answer(headers={"Content-Type": "image/png"}, body=NOISE)
        case "pdf":
            return Answer(headers={"Content-Type": "text/html"}, body=b"%PDF-1.7" + NOISE)
        case "none":
            return Answer(body=NOISE)
        case "broken-gzip":
            return Answer(headers={**HTML, "Content-Encoding": "gzip"}, body=b"\x1f\x8b" + NOISE)
    return Answer(headers=HTML, body=NOISE)


LENGTHS = ("5", "999999999", "-1", "many", "5, 6", "")


@trap(*(f"length{number}/" for number in range(len(LENGTHS))))
@without_robots
def wrong_length(exchange: Exchange) -> Answer:
    length = LENGTHS[int(exchange.host[6])]
    return Answer(headers={**HTML, "Content-Length": length}, body=b"<p>a page</p>" * 9)


CHARSETS = (
    "utf-16",
    "utf-32",
    "utf-7",
    "nonsense",
    "idna",
    "punycode",
    "zlib",
    "hex",
    "rot13",
    "\xff",
    "undefined",
)


@trap(*(f"charset/{number}" for number in range(2 * len(CHARSETS))))
@without_robots
def wrong_charset(exchange: Exchange) -> Answer:
    number, is_in_page = divmod(int(exchange.target[1:]), 2)
    charset = CHARSETS[number]
    body = f'<html><head><meta charset="{charset}"></head>\u00e9 {TEXT} <a href="{number}">'.encode()
    return Answer(
        headers=HTML if is_in_page else {"Content-Type": f"text/html; charset={charset}"}, body=body
    )


LOCATIONS = (
    "", "http://[", "http://:99999999/", "//", "///", "javascript:x", "file:///etc/passwd", "ftp://ftp.test/", "\xff\xfe",
    "http://" + "x" * 300 + "/", "/" + "x" * 60_000, "/%", "http://\x80.test/", "http://h.test:0/", "data:,x", "?" * 9,
)  # fmt: skip


@trap(*(f"location/{number}" for number in range(len(LOCATIONS) + 1)))
@without_robots
def wrong_location(exchange: Exchange) -> Answer:
    number = exchange.target[1:]
    if not number.isdigit():
        return Answer(404)
    return Answer(302, {"Location": LOCATIONS[int(number)]} if int(number) < len(LOCATIONS) else {})


@trap("links/0", "links/1", "links/2", "links/3")
@without_robots
def wrong_links(exchange: Exchange) -> Answer:
    random = Random(exchange.target)
    if exchange.target not in ("/0", "/1", "/2", "/3"):
        return Answer(404)
    html = hostile_page(random, [hostile_url(random) for _ in range(40)])
    return Answer(headers=HTML, body=html.encode("utf-8", "replace"))


# robots.txt

ROBOTS = {
    "huge": Answer(body=f"User-agent: *\nDisallow: {FORBIDDEN}\n".encode() + b"Disallow: /x\n" * 400_000),
    "agents": Answer(body=f"User-agent: *\nDisallow: {FORBIDDEN}\n".encode() + b"user-agent:\nx\n" * 20_000),
    "endless": Answer(body=f"User-agent: *\nDisallow: {FORBIDDEN}\n".encode() * 1000, endless=True),
    "drip": Answer(body=b"#", body_delay=0.05, endless=True),
    "circle": Answer(302, {"Location": "/robots.txt"}),
    "chain": Answer(302, {"Location": "http://n.robots-chain.test/robots.txt"}),
    "500": Answer(500),
    "later": Answer(503, {"Retry-After": "99999999"}),
    "reset": Answer(abort=True),
    "noise": Answer(body=NOISE),
    "bomb": Answer(headers={"Content-Encoding": "gzip"}, body=gzip.compress(BOMB)),
    "page": Answer(headers=HTML, body=f"<p>{TEXT}".encode()),
    "location": Answer(302, {"Location": "http://["}),
}
OBEYED = ("huge", "agents", "endless")
UNREACHABLE = ("drip", "500", "later", "reset", "bomb")


@trap(*(f"robots-{kind}{path}" for kind in ROBOTS for path in ("/", FORBIDDEN)))
def robots(exchange: Exchange) -> Answer:
    kind = exchange.host.removesuffix(".test").rpartition("-")[2]
    if exchange.target != "/robots.txt":
        return page(text=f"{exchange.host}: {TEXT}")
    if kind == "chain":
        return Answer(302, {"Location": f"http://n{next(NUMBERS)}.robots-chain.test/robots.txt"})
    return ROBOTS[kind]


class Wander(Spider):
    """Follows every link; writes the stats, and the most memory that its process ever held, to the file *report*."""

    name = "wander"
    start_urls = ["http://site0.test/0"]
    report: str

    def parse(self, response: Response) -> Iterator[Any]:
        if not isinstance(response, TextResponse):
            return
        try:
            links = LinkExtractor().extract_links(response)
        except ValueError:  # what it says of a base URL that is none
            return
        for link in links:
            with suppress(ValueError):
                yield Request(link.url)

    def closed(self, reason: str) -> None:
        assert self.crawler.stats is not None
        # Not ru_maxrss, which begins with what the process that started this one held.
        status = Path("/proc/self/status")
        peak = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
        report = {
            "reason": reason,
            "stats": self.crawler.stats.get_stats(),
            "peak_mb": int(peak[1]) / 1024 if peak else None,
        }
        Path(self.report).write_text(json.dumps(report, default=str))
