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


# Of the spiders of public projects.

FOLLOWS = {"1": "23", "2": "13", "3": "1", "4": "1"}
"""Whom each person follows."""


def statuses(asked: Asked) -> Answer:
    """Two posts on each of two pages, and nothing behind them; the first post of each is too long to be there."""
    n = int(asked.query["page"])
    posts = [{"id": f"{asked.query['user']}{n}{which}", "is_long": which == "a"} for which in "ab"]
    return as_json({"list": posts if n < 3 else []})


def long_text(asked: Asked) -> Answer:
    return as_json({"text": f"all of {asked.query['id']}"})


def person(asked: Asked) -> Answer:
    """Of person n: what is known, and by pages of one whom they follow, and who follows them."""
    n, what = asked.path
    if what == "info":
        return html(f"person {n}")
    all_ = FOLLOWS[n] if what == "follow" else [each for each, whom in FOLLOWS.items() if n in whom]
    page = int(asked.query.get("page", "1"))
    following = [f"/person/{n}/{what}?page={page + 1}"] if page < len(all_) else []
    return html(f"{what} {n}", *following, rest=f"<b>{all_[page - 1]}</b>" if all_ else "")


def comments(asked: Asked) -> Answer:
    return html(f"comments {asked.path[0]} {asked.query['page']}", rest="<i>3</i>")


def calendar(asked: Asked) -> Answer:
    """A form with a token; sent with that and a day, it says what there was on an even day."""
    if asked.exchange.method == "GET":
        return html("calendar", rest="<form method=post><input name=token value=t1></form>")
    sent = {name: value for name, (value,) in parse_qs(asked.exchange.body.decode()).items()}
    if sent["token"] != "t1" or int(sent["day"]) % 2:
        return as_json({"error": "nothing"})
    return as_json({"issues": [f"{'/'.join(asked.path) or 'regular'} {sent['day']}"]})


def search(asked: Asked) -> Answer:
    return html(f"found {asked.query['s']} {asked.path[0]}", rest="<i>3</i>")


def rest(asked: Asked) -> Answer:
    """Countries, or the shops of one; by pages if that is asked for."""
    asks = json.loads(asked.exchange.body)
    if asks["of"] == "Country":
        return as_json({"response": ["de", "fr", "it"]})
    if asks["of"] == "Page":
        n = asks.get("page", 0)
        key = asked.exchange.headers["x-key"]
        return as_json({"hits": [f"{key} {n}"], "page": n, "pages": 3})
    return as_json({"response": [f"{asks['where']}{n}" for n in (1, 2)] if asks["where"] != "it" else []})


def news(asked: Asked) -> Answer:
    """An index, which articles link to, and six of these, each of which links to the next ones."""
    name = asked.path[0]
    n = 0 if name == "index.html" else int(name.removesuffix(".htm"))
    links = [f"/news/{each}.htm" for each in range(n + 1, min(n + 3, 7))]
    return html(f"news {name}", "/news/index.html", *links)


def forum(asked: Asked) -> Answer:
    """Two forums of two pages, each with a thread, which leads back to its forum and to the other one."""
    kind, which, n = asked.path[0].split("-")
    if kind == "thread":
        return html(f"thread {which} {n}", f"/forum/forum-{which}-1", "/forum/forum-2-1")
    more = [f"/forum/forum-{which}-2"] if n == "1" else [f"/forum/forum-{which}-1"]
    return html(f"forum {which} {n}", f"/forum/thread-{which}-{n}", *more)


def archive(asked: Asked) -> Answer:
    """Of each month two pages of posts, the newest first; the last post of a month is in the next one's list, too."""
    month, n = int(asked.path[0]), int(asked.query.get("page", "1"))
    posts = [f"/post/{month}-{5 - 2 * n + each}" for each in (1, 0)] + (
        [f"/post/{month - 1}-4"] if n == 2 else []
    )
    return html(f"archive {month} {n}", *posts, *([f"/archive/{month}?page=2"] if n == 1 else []))


def post(asked: Asked) -> Answer:
    return html(f"post {asked.path[0]}")


def board(asked: Asked) -> Answer:
    """One of three pages of topics, each of which is on two of them."""
    n = int(asked.query.get("p", "1"))
    return html(f"board {n}", f"/topic/{n}", f"/topic/{n + 1}")


def topic(asked: Asked) -> Answer:
    """Has been written by two members, one of whom is gone."""
    n = int(asked.path[0])
    return html(f"topic {n}", rest=f"<b>m0</b><b>m{(n + 1) // 2}</b>")


def member(asked: Asked) -> Answer:
    return html(f"member {asked.path[0]}") if asked.path[0] != "m0" else Answer(404)


PAGES: dict[str, Callable[[Asked], Answer]] = {
    "": page, "page": page, "item": item, "api": api, "work": work, "status": status, "later": later, "reset": reset, "cut": cut,
    "slow": slow, "redirect": redirect, "set": set_cookie, "cookies": cookies, "echo": echo,
    "login": login, "account": account, "onward": onward, "wall": wall, "gate": gate, "consent": consent, "refresh": refresh, "same": same, "linked": linked, "links": links, "file": file, "marked": marked,
    "image.png": image, "sitemap-index.xml": sitemap_index, "sitemap.xml": sitemap, "feed.xml": feed, "feed.csv": table,
    "statuses": statuses, "long-text": long_text, "person": person, "comments": comments, "calendar": calendar,
    "search": search, "rest": rest, "news": news, "forum": forum, "archive": archive, "post": post, "board": board,
    "topic": topic, "member": member,
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
