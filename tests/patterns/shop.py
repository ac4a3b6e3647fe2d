"""The pages that the patterns crawl, the same on every host.

A page knows how often a crawl has asked for it, so that it can fail at first. Crawls are distinguished by their user agent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from urllib.parse import parse_qs, parse_qsl, urlsplit

from demo_web.server import Answer, Exchange


@dataclass(frozen=True)
class Asked:
    """A request for a page.

    Attributes:
        n: How often the crawl has made the request, this one included.
        path: Segments of the path behind the first one.
    """

    exchange: Exchange
    n: int
    path: list[str]
    query: dict[str, str]

    @property
    def cookies(self) -> str:
        return "; ".join(sorted(self.exchange.headers.get("cookie", "").split("; ")))

    def once_in(self, default: float = float("inf")) -> bool:
        """Whether the last segment of the path says that a page fails that often at first, and it still does."""
        return self.n <= (int(self.path[-1]) if len(self.path) > 1 else default)


def html(title: str, *links: str, rest: str = "") -> Answer:
    anchors = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
    page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1>\n{anchors}{rest}</body></html>"
    return Answer(headers={"Content-Type": "text/html; charset=utf-8"}, body=page.encode())


def as_json(value: object) -> Answer:
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(value).encode())


def page(asked: Asked) -> Answer:
    """One of three pages of a list, with its items and the next page."""
    n = int(asked.path[0]) if asked.path else 1
    following = [f"/page/{n + 1}"] if n < 3 else []
    return html(f"page {n}", f"/item/{n}", *following)


def item(asked: Asked) -> Answer:
    """An item, which links to nothing."""
    return html(f"item {'/'.join(asked.path)}")


def api(asked: Asked) -> Answer:
    """One of three pages of an API."""
    n = int(asked.query.get("page", "1"))
    return as_json({"page": n, "next": f"/api?page={n + 1}" if n < 3 else None})


def work(asked: Asked) -> Answer:
    """Work that is done when it is asked for the third time."""
    return as_json({"state": "done" if asked.n > 2 else "busy"})


def status(asked: Asked) -> Answer:
    """``/status/503``: that status; ``/status/503/2``: only for the first two requests."""
    if not asked.once_in():
        return html(f"at last {asked.path[0]}")
    return Answer(int(asked.path[0]), {"Content-Type": "text/html"}, f"<p>{asked.path[0]}</p>".encode())


def later(asked: Asked) -> Answer:
    """``/later/503``: that status, and when to come again."""
    return Answer(int(asked.path[0]), {"Retry-After": "0"})


def reset(asked: Asked) -> Answer:
    """No answer; ``/reset/x/2``: only for the first two requests."""
    return Answer(abort=True) if asked.once_in() else html("not reset any more")


def cut(asked: Asked) -> Answer:
    """Less than was announced."""
    return Answer(headers={"Content-Type": "text/html", "Content-Length": "99"}, body=b"<p>cut</p>")


def slow(asked: Asked) -> Answer:
    """Comes after so many seconds."""
    return Answer(headers={"Content-Type": "text/html"}, body=b"<p>slow</p>", delay=float(asked.path[0]))


def redirect(asked: Asked) -> Answer:
    """``/redirect/302?to=/page/1``."""
    return Answer(int(asked.path[0]), {"Location": asked.query["to"]})


def set_cookie(asked: Asked) -> Answer:
    """``/set/name/value`` sets a cookie."""
    answer = html(f"set {asked.path[0]}", "/cookies")
    return Answer(
        200, {**answer.headers, "Set-Cookie": f"{asked.path[0]}={asked.path[1]}; Path=/"}, answer.body
    )


def cookies(asked: Asked) -> Answer:
    """The cookies that were sent."""
    return html(f"cookies {asked.cookies}")


def login(asked: Asked) -> Answer:
    """A form, and what it is answered with: a session, and a redirect to the account."""
    if asked.exchange.method == "GET":
        return html(
            "log in", rest="<form method=post><input type=hidden name=token value=t1><input name=user></form>"
        )
    sent = dict(parse_qsl(asked.exchange.body.decode()))
    if (sent.get("token"), sent.get("password")) != ("t1", "secret"):
        return Answer(403)
    return Answer(302, {"Location": "/account", "Set-Cookie": f"session={sent['user']}; Path=/"})


def account(asked: Asked) -> Answer:
    """Only with a session."""
    name, _, user = asked.cookies.partition("=")
    return html(f"account of {user}") if name == "session" else Answer(403)


def onward(asked: Asked) -> Answer:
    """Redirects to the next one for ever."""
    return Answer(302, {"Location": f"/onward/{int(asked.path[0]) + 1}"})


def wall(asked: Asked) -> Answer:
    """Redirects to itself until the cookie that it sets is sent."""
    return (
        html("welcome")
        if asked.cookies
        else Answer(302, {"Location": "/wall", "Set-Cookie": "seen=1; Path=/"})
    )


def gate(asked: Asked) -> Answer:
    """Redirects to what sets a cookie and leads back."""
    return html("let in") if asked.cookies else Answer(302, {"Location": "/consent"})


def consent(asked: Asked) -> Answer:
    """Sets the cookie of the gate, and leads back to that."""
    return Answer(302, {"Location": "/gate", "Set-Cookie": "consent=1; Path=/"})


def refresh(asked: Asked) -> Answer:
    """``/refresh?to=/page/1``, at once; ``/refresh/1``: itself, every second."""
    url = asked.query.get("to")
    content = f"0; url={url}" if url else f"1; url={asked.exchange.target}"
    return html(f"refresh {'/'.join(asked.path)}", rest=f'<meta http-equiv="refresh" content="{content}">')


def same(asked: Asked) -> Answer:
    """One of three pages with the same text, which link to the next one."""
    n = int(asked.path[0])
    return html("same", *([f"/same/{n + 1}"] if n < 3 else []))


def linked(asked: Asked) -> Answer:
    """One of twenty pages that all link to all, itself included."""
    return html(f"linked {asked.path[0]}", *(f"/linked/{n}" for n in range(20)))


def links(asked: Asked) -> Answer:
    """``/links?to=/page/1``: a page with that link."""
    return html(f"links to {asked.query['to']}", asked.query["to"])


def marked(asked: Asked) -> Answer:
    """Asks robots not to follow its links."""
    answer = html("marked", "/item/1", "/item/2")
    return Answer(200, {**answer.headers, "X-Robots-Tag": "nofollow"}, answer.body)


def file(asked: Asked) -> Answer:
    """Three bytes that are no text."""
    return Answer(headers={"Content-Type": "application/octet-stream"}, body=bytes(3))


def image(asked: Asked) -> Answer:
    """A picture of eight pixels by eight."""
    from PIL import Image

    png = BytesIO()
    Image.new("RGB", (8, 8), "red").save(png, "PNG")
    return Answer(headers={"Content-Type": "image/png"}, body=png.getvalue())


def sitemap_index(asked: Asked) -> Answer:
    """Names one sitemap."""
    return xml(
        f"<sitemapindex><sitemap><loc>http://{asked.exchange.host}/sitemap.xml</loc></sitemap></sitemapindex>"
    )


def sitemap(asked: Asked) -> Answer:
    """Names two items and a page."""
    paths = ("/item/1", "/item/2", "/page/1")
    return xml(
        f"<urlset>{''.join(f'<url><loc>http://{asked.exchange.host}{path}</loc></url>' for path in paths)}</urlset>"
    )


def feed(asked: Asked) -> Answer:
    """Two entries."""
    entries = (
        f"<entry><name>{name}</name><url>http://{asked.exchange.host}/item/{n}</url></entry>"
        for n, name in enumerate("ab", 1)
    )
    return xml(f"<feed>{''.join(entries)}</feed>")


def table(asked: Asked) -> Answer:
    """Two rows."""
    return Answer(headers={"Content-Type": "text/csv"}, body=b"name,n\na,1\nb,2\n")


def xml(text: str) -> Answer:
    return Answer(headers={"Content-Type": "text/xml"}, body=f'<?xml version="1.0"?>{text}'.encode())


def echo(asked: Asked) -> Answer:
    """What was sent."""
    headers = {
        name: value
        for name, value in asked.exchange.headers.items()
        if name in ("content-type", "referer", "authorization", "proxy-authorization", "cookie")
        or name.startswith("x-")
    }
    sent = {"method": asked.exchange.method, "body": asked.exchange.body.decode(), "headers": headers}
    return as_json(sent)


PAGES: dict[str, Callable[[Asked], Answer]] = {
    "": page, "page": page, "item": item, "api": api, "work": work, "status": status, "later": later, "reset": reset, "cut": cut,
    "slow": slow, "redirect": redirect, "set": set_cookie, "cookies": cookies, "echo": echo,
    "login": login, "account": account, "onward": onward, "wall": wall, "gate": gate, "consent": consent, "refresh": refresh, "same": same, "linked": linked, "links": links, "file": file, "marked": marked,
    "image.png": image, "sitemap-index.xml": sitemap_index, "sitemap.xml": sitemap, "feed.xml": feed, "feed.csv": table,
}  # fmt: skip
"""By the first segment of the path."""


class Site:
    """Answers, and counts the requests of each crawl.

    Each request has a connection of its own: Twisted repeats one by itself that fails on a connection that was used before.

    Attributes:
        asked: By user agent, how often each method and URL was asked for, without robots.txt.
    """

    def __init__(self) -> None:
        self.asked: dict[str, Counter[str]] = {}

    def answer(self, exchange: Exchange) -> Answer:
        """The answer to a request."""
        answer = self._answer(exchange)
        return replace(answer, headers={**answer.headers, "Connection": "close"})

    def _answer(self, exchange: Exchange) -> Answer:
        parts = urlsplit(exchange.target)
        if parts.path == "/robots.txt":
            more = "Sitemap: http://mapped.test/sitemap.xml\n" if exchange.host == "mapped.test" else ""
            return Answer(body=f"User-agent: *\nDisallow: /forbidden\n{more}".encode())
        request = f"{exchange.method} {exchange.host}{exchange.target}"
        counts = self.asked.setdefault(exchange.headers.get("user-agent", ""), Counter())
        counts[request] += 1
        first, *path = parts.path.strip("/").split("/")
        make = PAGES.get(first)
        if make is None:
            return Answer(404)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        return make(Asked(exchange, counts[request], path, query))
