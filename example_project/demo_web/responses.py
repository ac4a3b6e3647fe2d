"""What a crawler gets of the demo web: pages, documents, robots.txt, redirects and errors."""

from __future__ import annotations

import gzip
import re
from html import escape
from random import Random
from typing import TYPE_CHECKING

from .grammar import N_HOSTS, N_PAGES, SEED, TOPICS, Host, topic_sentences
from .server import Answer, Exchange
from .structure import CHILD, NAV, OTHER, RELATED, TEXT, TRAIL, TRAP_NAME, Link, Place, Structure

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOPICAL = 0.05
"""Part of the hosts that is about each topic: few enough to be missed by a crawl that does not look for them."""

TRAP = re.compile(r"/calendar/(\d{4,})/(\d\d)/(?:(\d\d)/)?((?:later/)*)")
MEDIA = re.compile(r"/media/[a-z]+-(\d{1,4})\.(jpg|pdf)")


class DemoWeb:
    """The invented web; :meth:`answer` is what a :class:`~demo_web.server.Server` needs.

    A *page* is a URL that the structure knows: ordinary ones, redirects and failing ones. Documents (images,
    PDF), ``robots.txt`` and the trap are no pages.

    Args:
        seed: What everything follows from.
        n_hosts: Hosts in all, the dead one and the trap included; 20 to some 4,000.
        n_pages: Pages in all; at least four a host.
        has_topics: Whether the hosts of two neighbourhoods are about :data:`~.grammar.TOPICS`. Their home pages and their
            sections say nothing of it: what is relevant lies behind two pages that are not.
    """

    def __init__(
        self, seed: int = SEED, n_hosts: int = N_HOSTS, n_pages: int = N_PAGES, *, has_topics: bool = False
    ) -> None:
        self._web = Structure(seed, n_hosts, n_pages)
        self._topics: dict[str, list[str]] = {}
        if has_topics:
            random = Random(f"{seed} topics")  # noqa: S311 - text to be repeated, not a secret
            self._topics = {topic: topic_sentences(random, topic) for topic in TOPICS}
        self.n_hosts = n_hosts
        self.n_urls = n_pages
        self.seeds = self._web.seeds
        self.trap = self._web.trap

    def urls(self) -> list[str]:
        """List the URLs of all pages, those included that redirect, fail or are forbidden."""
        return self._web.urls()

    def graph(self) -> tuple[list[str], list[list[int]]]:
        """Build the link graph that the true PageRank is computed from: see :meth:`Structure.graph`."""
        return self._web.graph()

    def topic(self, url: str) -> str:
        """The topic of the page at *url*; ``""`` for a page about nothing in particular, or for what is no page."""
        page = self._web.by_url.get(url.removeprefix("http://"))
        if page is None or not self._topics or page in self._web.redirects or page in self._web.failing:
            return ""
        return self._topic(self._web.hosts[self._web.host_of[page]], page)

    def _topic(self, host: Host, page: int) -> str:
        # A neighbourhood is what hosts link to most: a tenth of the web on either side (see Structure._refer).
        index, n_hosts = self._web.host_of[page], len(self._web.hosts)
        number, place = divmod(index * len(self._topics), n_hosts)
        is_inside = place < n_hosts * _TOPICAL * len(self._topics)
        is_deep = page - host.first > host.n_sections
        return list(self._topics)[number] if is_inside and is_deep else ""

    def answer(self, exchange: Exchange) -> Answer:
        """Answer as the invented host would; status 502, as from a proxy, if there is none of that name."""
        if exchange.method not in {"GET", "HEAD"}:
            return Answer(405, {"Allow": "GET, HEAD"})
        if exchange.host == TRAP_NAME:
            return self._answer_in_trap(exchange)
        host = self._web.by_name.get(exchange.host)
        if host is None:
            return _plain(502, f"There is no host {exchange.host} in this web.")
        if host.is_dead:
            return Answer(abort=True, delay=host.latency)
        page = self._web.by_url.get(exchange.host + exchange.target)
        if page is None:
            return self._answer_without_page(exchange, host)
        return self._answer_page(exchange, host, page)

    def _answer_page(self, exchange: Exchange, host: Host, page: int) -> Answer:
        if page in self._web.redirects:
            target = self._web.redirects[page]
            is_local = self._web.host_of[target] == self._web.host_of[page]
            location = self._web.paths[target] if is_local and target % 2 else self._web.url(target)
            return Answer(302 if page % 3 else 301, {"Location": location}, delay=host.latency)
        if page in self._web.failing:
            status = self._web.failing[page]
            headers = {"Retry-After": "1"} if status == 503 else {}
            return _plain(status, "Something is broken here.", host.latency, headers)
        return _html(exchange, host, self._render(host, page))

    def _answer_without_page(self, exchange: Exchange, host: Host) -> Answer:
        if exchange.target == "/robots.txt":
            return _robots(host)
        document = MEDIA.fullmatch(exchange.target)
        if document is None or int(document[1]) > host.size:
            return _plain(404, "Not found.", host.latency)
        random = self._web.random_of(exchange.host + exchange.target)
        content = random.randbytes(random.randint(1_000, 9_000))
        if document[2] == "jpg":
            headers, body = {"Content-Type": "image/jpeg"}, b"\xff\xd8\xff\xe0" + content
        else:
            headers, body = {"Content-Type": "application/pdf"}, b"%PDF-1.4\n" + content
        return Answer(200, headers, body, delay=host.latency)

    def _answer_in_trap(self, exchange: Exchange) -> Answer:
        host = Host(TRAP_NAME, "Endless Days", 1, 0.005, 0.0)
        match = TRAP.fullmatch("/calendar/2026/11/" if exchange.target == "/" else exchange.target)
        if match is None:
            return _plain(404, "Not found.", host.latency)
        year, month = int(match[1]), int(match[2])
        following = f"/calendar/{year + month // 12:04}/{month % 12 + 1:02}/"
        hrefs = [following, f"/calendar/{year + 1:04}/{month:02}/", f"/calendar/{year:04}/{month:02}/"]
        if match[3] is None:
            hrefs += [f"{day:02}/" for day in range(1, 29)]
        else:
            day = int(match[3])
            hrefs += [f"/calendar/{year:04}/{month:02}/{day % 28 + 1:02}/", "later/"]
        random = self._web.random_of(exchange.host + exchange.target)
        links = [Link(RELATED, href, href.strip("/").replace("/", " ")) for href in hrefs]
        title = f"What happens on {exchange.target.strip('/').replace('/', ' ')}"
        return _html(exchange, host, _page(host, title, links, self._paragraphs(random, 2)))

    def _render(self, host: Host, page: int) -> str:
        random = self._web.random_of(self._web.url(page))
        links = self._web.links(page, random)
        paragraphs = self._paragraphs(random, random.randint(3, 7))
        topic = self._topic(host, page) if self._topics else ""
        if topic:
            own = self._web.random_of(f"{self._web.url(page)} {topic}")  # so that links are as without topics
            paragraphs = [" ".join(own.choices(self._topics[topic], k=5)) for _ in paragraphs]
        in_text = [link for link in links if link.place == TEXT]
        for number, link in enumerate(in_text):
            paragraphs[number * len(paragraphs) // len(in_text)] += f" See also {_anchor(link)}."
        return _page(host, self._web.titles[page], links, paragraphs)

    def _paragraphs(self, random: Random, n_paragraphs: int) -> list[str]:
        return [" ".join(random.choices(self._web.sentences, k=5)) for _ in range(n_paragraphs)]


def _anchor(link: Link) -> str:
    rel = "" if link.is_followed else ' rel="nofollow"'
    return f'<a href="{escape(link.href)}"{rel}>{escape(link.text)}</a>'


def _page(host: Host, title: str, links: Sequence[Link], paragraphs: Sequence[str]) -> str:
    """Render a page; links in the text are in *paragraphs* already."""
    anchors: list[list[str]] = [[] for _ in range(6)]
    for link in links:
        if link.place != TEXT:
            anchors[link.place].append(_anchor(link))

    def listed(place: Place) -> str:
        return "".join(f"<li>{anchor}</li>\n" for anchor in anchors[place])

    text = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="{host.encoding}">\n'
        f"<title>{escape(title)} - {escape(host.title)}</title>\n</head>\n<body>\n"
        f"<nav>{' | '.join(anchors[NAV])}</nav>\n<p>Up: {' '.join(anchors[TRAIL]) or 'nothing'}</p>\n"
        f"<h1>{escape(title)}</h1>\n{text}"
        f"<ul>\n{listed(CHILD)}</ul>\n<h2>Related</h2>\n<ul>\n{listed(RELATED)}</ul>\n"
        f'<footer id="notes">{escape(host.title)} {" ".join(anchors[OTHER])}</footer>\n</body>\n</html>\n'
    )


def _html(exchange: Exchange, host: Host, text: str) -> Answer:
    """Send *text* in the encoding of *host*, which one host declares in the document only."""
    body = text.encode(host.encoding, "xmlcharrefreplace")
    is_declared = host.encoding != "windows-1252"
    headers = {"Content-Type": f"text/html; charset={host.encoding}" if is_declared else "text/html"}
    if host.is_gzipped:
        headers["Vary"] = "Accept-Encoding"
        if "gzip" in exchange.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, 1, mtime=0)
    return Answer(200, headers, body, delay=host.latency)


def _plain(status: int, text: str, delay: float = 0.0, headers: dict[str, str] | None = None) -> Answer:
    content_type = {"Content-Type": "text/plain; charset=utf-8"}
    return Answer(status, {**content_type, **(headers or {})}, f"{text}\n".encode(), delay=delay)


def _robots(host: Host) -> Answer:
    if host.robots == "none":
        return _plain(404, "Not found.", host.latency)
    if host.robots == "error":
        return _plain(500, "Something is broken here.", host.latency)
    rules = {
        "private": "Disallow: /private/",
        "all": "Disallow: /",
        "delay": "Disallow: /private/\nCrawl-delay: 1",
    }
    return _plain(200, f"User-agent: *\n{rules[host.robots]}", host.latency)
