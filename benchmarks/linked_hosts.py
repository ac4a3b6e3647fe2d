"""The made-up web that the benchmarks of workers crawl, and the CPU time of their processes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from demo_web.server import Answer, Exchange
from support.small_web import html

_TICK = os.sysconf("SC_CLK_TCK")
"""Ticks of a second in ``/proc`` (Linux)."""


class Size(NamedTuple):
    """How large a web is.

    Attributes:
        pages: Of each host.
        links: Of each page, and two more.
    """

    hosts: int
    pages: int
    links: int

    @property
    def total(self) -> int:
        """Pages of all hosts."""
        return self.hosts * self.pages


def _bare(links: list[str], rng: random.Random) -> bytes:
    """A page with *links* and nothing else."""
    del rng
    return html(links)


def linked_hosts(
    size: Size, write: Callable[[list[str], random.Random], bytes] = _bare
) -> Callable[[Exchange], Answer]:
    """What a web of that *size* answers: pages with links to pages drawn at random, all of which can be reached from the first.

    Args:
        write: Makes the page with given links; what it draws is the same each time.
    """

    def answer(exchange: Exchange) -> Answer:
        host, page = int(exchange.host[1:-5]), int(exchange.target[1:])
        rng = random.Random(f"{host}/{page}")
        links = [
            f"http://h{rng.randrange(size.hosts)}.test/{rng.randrange(size.pages)}" for _ in range(size.links)
        ]
        links += [
            f"http://h{(host + 1) % size.hosts}.test/{page}",
            f"http://h{host}.test/{(page + 1) % size.pages}",
        ]
        return Answer(headers={"Content-Type": "text/html"}, body=write(links, rng))

    return answer


def cpu(process: int) -> float:
    """CPU seconds of a process so far, all threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
