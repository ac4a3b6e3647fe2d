"""The web of the whole crawls, which a process of its own serves, so that only the crawler's CPU time counts."""

from __future__ import annotations

import os
import random
import sys

from demo_web.server import Answer, Exchange, Server

_N_SENTENCES, _N_WORDS = 4000, 3000

_SHORT, _FRAME = 20, 800
"""Sentences of an ordinary page, and bytes of the rest of a page besides its links and sentences."""


class Web:
    """Hosts whose pages are made when they are asked for: links to the host's own pages, and a fifth to others.

    Args:
        links: Links of a page.
        kilobytes: Size of a page, text with the markup of an article; 0 for links and a little text.
    """

    def __init__(self, hosts: int, links: int, kilobytes: int = 0) -> None:
        self.hosts = hosts
        self.links = links
        draw = random.Random(1)
        words = [
            "".join(draw.choices("abcdefghiklmnoprstuvw", k=draw.randint(2, 9))) for _ in range(_N_WORDS)
        ]
        self._sentences = [
            " ".join(draw.choices(words, k=14)).capitalize() + "." for _ in range(_N_SENTENCES)
        ]
        self._bytes = kilobytes * 1000

    def answer(self, exchange: Exchange) -> Answer:
        if not exchange.target.startswith("/p/"):
            return Answer(404)
        host, page = int(exchange.host[1:-5]), int(exchange.target[3:])
        links = []
        for n in range(self.links):
            mixed = (host * 7919 + page * 104729 + n * 1299709) * 2654435761 >> 7
            if n % 5:
                links.append(f"/p/{n if n < self.links // 4 else mixed % 5000}")
            else:
                links.append(f"http://h{mixed % self.hosts}.test/p/{mixed // self.hosts % 50}")
        anchors = [f'<a href="{link}">Link {link}</a>' for link in links]
        text = self._article(host, page, anchors) if self._bytes else self._short(host, page, anchors)
        body = f"<html><head><title>Page {page}</title></head><body>{text}</body></html>"
        return Answer(headers={"Content-Type": "text/html; charset=utf-8"}, body=body.encode())

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


def serve(hosts: int, links: int, kilobytes: int = 0) -> None:
    """Serve until standard input ends."""
    with Server(Web(hosts, links, kilobytes).answer).run_in_thread() as running:
        print(running.port, flush=True)
        sys.stdin.read()
    os._exit(0)  # nobody reads what it would print
