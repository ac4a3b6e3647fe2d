"""A web with every trap at once: ordinary sites, each page of which links to traps."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import count
from random import Random

from demo_web.server import Answer, Exchange

from support.hostile_input import CHARSETS, LOCATIONS, hostile_page, hostile_url

N_SITES, N_PAGES = 12, 8
ORDINARY = frozenset(f"http://site{site}.test/{page}" for site in range(N_SITES) for page in range(N_PAGES))

FORBIDDEN = "/secret"
"""What the robots.txt of a host forbids, if that can be read."""

HTML = {"Content-Type": "text/html; charset=utf-8"}
TEXT = " ".join(f"word{number}" for number in range(60))
BOMB = bytes(50_000_000)
PACKED = gzip.compress(BOMB)
NUMBERS = count()

Trap = Callable[[Exchange], Answer]
TRAPS: dict[str, Trap] = {}
"""What each trap answers, by its registered domain without ``.test``."""

ENTRANCES: list[str] = []
"""URLs of the traps that ordinary pages link to."""


def trap(*entrances: str, has_robots: bool = False) -> Callable[[Trap], Trap]:
    """Have a function answer for the registered domains of *entrances*, which ordinary pages link to.

    For their robots.txt only if it *has_robots*; else there is none.
    """

    def note(answer: Trap) -> Trap:
        for entrance in entrances:
            host, _, path = entrance.partition("/")
            ENTRANCES.append(f"http://{host}.test/{path}")
            TRAPS[host.rpartition(".")[2]] = answer if has_robots else without_robots(answer)
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
def repeating(exchange: Exchange) -> Answer:
    if exchange.host == "words.test":
        return page("a/", "b/", "c/", text=TEXT)
    return page("../" * (exchange.target.count("/") - 1) + 2 * exchange.target[1:], text=exchange.target)


@trap(f"calendar/calendar/{datetime.now(tz=timezone.utc).year}/1")
def calendar(exchange: Exchange) -> Answer:
    year, month = map(int, exchange.target.split("/")[2:])
    months = year * 12 + month - 1
    links = (f"/calendar/{each // 12}/{each % 12 + 1}" for each in (months - 1, months + 1, months + 12))
    return page(*links, text=f"{year}/{month}: {TEXT}")


@trap("session/0")
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
def deep(exchange: Exchange) -> Answer:
    return page(f"x{len(exchange.target)}/", "../", text=f"{exchange.target}: {TEXT}")


@trap("n0.wild/")
def subdomains(exchange: Exchange) -> Answer:
    number = int(exchange.host[1:].partition(".")[0])
    links = (f"http://n{number + step}.wild.test/" for step in (1, 2))
    return page(*links, text=f"Host {number}: {TEXT}")


@trap("pages/?page=0")
def numbered(exchange: Exchange) -> Answer:
    number = int(exchange.target.rpartition("=")[2])
    return page(f"/?page={number + 1}", f"/?page={number + 10}", text=f"Page {number}: {TEXT}")


@trap("same/0", "n0.clones/")
def same_text(exchange: Exchange) -> Answer:
    number = next(NUMBERS)
    return page(f"/{number}", f"http://n{number}.clones.com/", text=TEXT)


@trap("mirror0/0", "mirror1/0", "mirror2/0", "mirror3/0")
def mirrors(exchange: Exchange) -> Answer:
    number = int(exchange.target[1:])
    links = [f"/{number + 1}"] if number < 9 else []
    return page(*links, text=f"Mirrored page {number}: {TEXT}")


@trap("flood/")
def flood(exchange: Exchange) -> Answer:
    return page(*(f"/{number}" for number in range(10_000))) if exchange.target == "/" else page()


# pages without end


@trap("endless/")
def endless(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"<p>more</p>" * 10_000, endless=True)


@trap("drip/")
def drip(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"x", body_delay=0.05, endless=True)


@trap("gzip/", "twice/", "deflate/")
def bomb(exchange: Exchange) -> Answer:
    kind = exchange.host.partition(".")[0]
    body = zlib.compress(BOMB) if kind == "deflate" else PACKED
    if kind == "twice":
        kind, body = "gzip, gzip", gzip.compress(body)
    return Answer(headers={**HTML, "Content-Encoding": kind}, body=body)


@trap("layers/")
def layers(exchange: Exchange) -> Answer:
    body = b"<p>packed</p>"
    for _ in range(50):
        body = gzip.compress(body)
    return Answer(headers={**HTML, "Content-Encoding": ", ".join(["gzip"] * 50)}, body=body)


@trap("attributes/", "canonicals/")
def many(exchange: Exchange) -> Answer:
    if exchange.host == "attributes.test":  # which libxml2 would parse for a minute
        return Answer(
            headers=HTML, body=b"<p " + b" ".join(b"a%d" % number for number in range(250_000)) + b">"
        )
    links = "".join(f'<link rel="canonical" href="/?{number}">' for number in range(50_000))
    return page(head=links)


@trap("headers/", "header/")
def headers(exchange: Exchange) -> Answer:
    lines = {"X": "x" * 10_000_000}
    if exchange.host == "headers.test":
        lines = {f"X-{number}": "x" * 10_000 for number in range(1000)}
    return Answer(headers={**HTML, **lines}, body=b"read")


@trap("nested/")
def nested(exchange: Exchange) -> Answer:
    return Answer(headers=HTML, body=b"<div>" * 100_000 + b'<a href="/in">x</a>')


# pages that lead to each other


@trap("loop0/", "loop1/", "loop2/")
def circle(exchange: Exchange) -> Answer:
    number = int(exchange.host[4])
    return Answer((301, 302, 308)[number], {"Location": f"http://loop{(number + 1) % 3}.test/"})


@trap("itself/301", "itself/302")
def itself(exchange: Exchange) -> Answer:
    return Answer(int(exchange.target[1:]), {"Location": exchange.target})


@trap("n0.chain301/", "n0.chain302/")
def chain(exchange: Exchange) -> Answer:
    number, domain = exchange.host.removesuffix(".test").split(".")
    return Answer(int(domain[5:]), {"Location": f"http://n{int(number[1:]) + 1}.{domain}.test/"})


@trap("refresh/0", "refresh/self", "refresh/chain0")
def refresh(exchange: Exchange) -> Answer:
    path = exchange.target[1:]
    if path == "end":
        return page()
    url = path if path == "self" else f"chain{int(path[5:]) + 1}" if path[:5] == "chain" else 1 - int(path)
    return page("/end", head=f'<meta http-equiv="refresh" content="0; url=/{url}">')


@trap("canonical/0", "canonical/n0", "canonical/lie0", "canonical/lie1", "canonical/lie2", "canonical/lie3")
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
def failing(exchange: Exchange) -> Answer:
    kind = exchange.host.partition(".")[0]
    return Answer(503, {"Retry-After": "99999999"}) if kind == "later" else Answer(int(kind[1:]))


@trap("reset/0", "reset/1")
def reset(exchange: Exchange) -> Answer:
    return Answer(abort=True)


NOISE = Random(0).randbytes(20_000)


@trap("binary/noise", "binary/nuls", "binary/png", "binary/pdf", "binary/none", "binary/broken-gzip")
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
def wrong_length(exchange: Exchange) -> Answer:
    length = LENGTHS[int(exchange.host[6])]
    return Answer(headers={**HTML, "Content-Length": length}, body=b"<p>a page</p>" * 9)


@trap(*(f"charset/{number}" for number in range(2 * len(CHARSETS))))
def wrong_charset(exchange: Exchange) -> Answer:
    number, is_in_page = divmod(int(exchange.target[1:]), 2)
    charset = CHARSETS[number]
    body = f'<html><head><meta charset="{charset}"></head>\u00e9 {TEXT} <a href="{number}">'.encode()
    return Answer(
        headers=HTML if is_in_page else {"Content-Type": f"text/html; charset={charset}"}, body=body
    )


@trap(*(f"location/{number}" for number in range(len(LOCATIONS) + 1)))
def wrong_location(exchange: Exchange) -> Answer:
    number = exchange.target[1:]
    if not number.isdigit():
        return Answer(404)
    return Answer(302, {"Location": LOCATIONS[int(number)]} if int(number) < len(LOCATIONS) else {})


@trap("links/0", "links/1", "links/2", "links/3")
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
    "bomb": Answer(headers={"Content-Encoding": "gzip"}, body=PACKED),
    "page": Answer(headers=HTML, body=f"<p>{TEXT}".encode()),
    "location": Answer(302, {"Location": "http://["}),
}
OBEYED = ("huge", "agents", "endless")
UNREACHABLE = ("drip", "500", "later", "reset", "bomb")


@trap(*(f"robots-{kind}{path}" for kind in ROBOTS for path in ("/", FORBIDDEN)), has_robots=True)
def robots(exchange: Exchange) -> Answer:
    kind = exchange.host.removesuffix(".test").rpartition("-")[2]
    if exchange.target != "/robots.txt":
        return page(text=f"{exchange.host}: {TEXT}")
    if kind == "chain":
        return Answer(302, {"Location": f"http://n{next(NUMBERS)}.robots-chain.test/robots.txt"})
    return ROBOTS[kind]
