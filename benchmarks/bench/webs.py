"""The web of the whole crawls, which a process of its own serves, so that only the crawler's CPU time counts."""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from demo_web.server import Answer, Exchange, Server
from spiders import page_path
from support.certificate import tls_of

_NUMBER = re.compile(r"/(?:p/|view\?page=)([0-9]+)")
"""Behind what a URL has the number of its page."""

_HOST = re.compile("h([0-9]+)")
"""The name of a host begins with its number."""

_N_SENTENCES, _N_WORDS = 4000, 3000

_NAVIGATION = 20
"""Links of each page of a host that are the same."""

_SHORT, _FRAME = 20, 800
"""Sentences of an ordinary page, and bytes of the rest of a page besides its links and sentences."""


class Web:
    """Hosts whose pages are made when they are asked for; a fifth of their links lead to other hosts.

    Args:
        links: Links of a page.
        kilobytes: Size of a page, text with the markup of an article; 0 for links and a little text.
        new: How many of the links of a page are on no other page; ``None`` for most of them early in a crawl, and few later.
        has_queries: Whether the URLs of pages have queries of three parameters.
        site: What URLs begin with, with the number of the host. It may change before the first request.
        each: Pages of a host, if *new* is ``None``.
        answers: What a visit is answered: ``bytes``, ``304`` if it is conditional, or a ``new`` text each time.
    """

    def __init__(
        self,
        hosts: int,
        links: int,
        kilobytes: int = 0,
        new: int | None = None,
        *,
        has_queries: bool = False,
        site: str = "http://h{}.test",
        each: int = 5000,
        answers: str = "bytes",
    ) -> None:
        self.hosts = hosts
        self.links = links
        self._new = new
        self.site = site
        self._each = each
        self._answers, self._n = answers, count()
        self._page = partial(page_path, has_queries=has_queries)
        draw = random.Random(1)
        words = [
            "".join(draw.choices("abcdefghiklmnoprstuvw", k=draw.randint(2, 9))) for _ in range(_N_WORDS)
        ]
        self._sentences = [
            " ".join(draw.choices(words, k=14)).capitalize() + "." for _ in range(_N_SENTENCES)
        ]
        self._bytes = kilobytes * 1000

    def answer(self, exchange: Exchange) -> Answer:
        number = _NUMBER.match(exchange.target)
        if number is None:
            return Answer(404)
        headers = {"Content-Type": "text/html; charset=utf-8"}
        if self._answers == "304":
            headers["ETag"] = '"1"'
            if "if-none-match" in exchange.headers:
                return Answer(304, headers)
        host = _HOST.match(exchange.host)
        assert host is not None
        body = self.body(int(host[1]), int(number[1]))
        if self._answers == "new":
            body = body.replace(b"<body>", b"<body><p>Version %d of this page</p>" % next(self._n))
        return Answer(headers=headers, body=body)

    def body(self, host: int, page: int) -> bytes:
        """The HTML of a page."""
        links = self._mixed(host, page) if self._new is None else self._divided(host, page, self._new)
        anchors = [f'<a href="{link}">Link {link}</a>' for link in links]
        text = self._article(host, page, anchors) if self._bytes else self._short(host, page, anchors)
        return f"<html><head><title>Page {page}</title></head><body>{text}</body></html>".encode()

    def _mixed(self, host: int, page: int) -> list[str]:
        links = []
        for n in range(self.links):
            mixed = (host * 7919 + page * 104729 + n * 1299709) * 2654435761 >> 7
            if n % 5:
                links.append(f"/p/{n if n < self.links // 4 else mixed % self._each}")
            else:
                links.append(f"{self.site.format(mixed % self.hosts)}/p/{mixed // self.hosts % 50}")
        return links

    def _divided(self, host: int, page: int, new: int) -> list[str]:
        """As many *new* links, up to 20 to the first pages of the host, and others to the front pages of other hosts."""
        known = self.links - new
        links = [self._page(self.links * (page + 1) + n) for n in range(new)]
        links += [self._page(n) for n in range(min(known, _NAVIGATION))]
        fronts = ((host + n) % self.hosts for n in range(1, known - _NAVIGATION + 1))
        return links + [f"{self.site.format(other)}{self._page(0)}" for other in fronts]

    def _draw(self, host: int, page: int) -> random.Random:
        return random.Random(host * 1_000_003 + page)

    def _short(self, host: int, page: int, anchors: list[str]) -> str:
        sentences = self._draw(host, page).choices(self._sentences, k=_SHORT)
        return "\n".join([*(f"<p>{sentence}</p>" for sentence in sentences), *anchors])

    def _article(self, host: int, page: int, anchors: list[str]) -> str:
        """Sections, paragraphs and lists of ``self._bytes`` with the *anchors* in between."""
        draw, parts, size, left = self._draw(host, page), [], _FRAME, list(reversed(anchors))
        size += sum(map(len, anchors))
        each = max(
            1, (self._bytes - size) // 170 // max(len(anchors), 1)
        )  # paragraphs from one link to the next
        while size < self._bytes:
            for sentence in draw.choices(self._sentences, k=each):
                first, _, rest = sentence.partition(" ")
                part = f'<div class="row block-{size % 7}"><p><b>{first}</b> <span>{rest}</span></p></div>\n'
                parts.append(part)
                size += len(part)
            if left:
                parts.append(f'<ul class="related"><li>{left.pop()}</li></ul>')
        return "".join(parts + left)


def serve(*, tls: bool = False, **web: Any) -> None:
    """Serve a :class:`Web` until standard input ends, by *tls* at ``https://h0.test`` with the port and so on."""
    with tempfile.TemporaryDirectory() as folder:
        context = tls_of(Path(folder))[0] if tls else None
    made = Web(**web)
    with Server(made.answer, tls=context).run_in_thread() as running:
        if tls:
            made.site = f"https://h{{}}.test:{running.port}"
        print(running.port, made.site, flush=True)
        sys.stdin.read()
    os._exit(0)  # nobody reads what it would print
