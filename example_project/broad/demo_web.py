"""An invented web for trying a crawler: some hundred hosts, thousands of pages, no internet.

Rule 1: everything follows from the seed. The structure (hosts, pages, fame, faults) is drawn at the start;
links and text of a page are drawn from seed and URL whenever it is asked for, so that memory stays small
and two webs of the same seed answer with the same bytes.

Rule 2: fame makes links. Hosts and pages have a fame drawn from a Pareto distribution, independent of size
and depth; a link to elsewhere is drawn by host fame x page fame, one within the host by page fame. It is
preferential attachment with the end result drawn first, so that in-degree and PageRank are heavy-tailed,
and the important pages are not simply the home pages near the seeds. Most links to elsewhere stay in the
neighbourhood (hosts stand on a circle), so that the web has regions and is not known after ten pages.

Rule 3: it misbehaves as the web does. There are slow hosts, a dead one, redirects (also across hosts, a
chain and a loop), errors, dangling links, forbidden sections, odd encodings, and a calendar without end.

All names end in ``.example`` or ``.test`` (RFC 2606), so that no crawler can reach a real host by them.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import re
import signal
import subprocess
import sys
from array import array
from bisect import bisect
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from itertools import accumulate
from pathlib import Path
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from scrapy_aopic.testing import server as server_module
from scrapy_aopic.testing.server import Answer, Exchange, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["DemoWeb", "main", "served"]

SEED = 2003  # the year of the AOPIC paper
N_HOSTS = 400
N_PAGES = 12_000

N_CHILDREN = 12  # longer lists are split over more levels, as with paging
N_SECTIONS = 6
N_SEEDS = 10
TRAP_NAME = "calendar.endless-days.example"
TRAP_START = "/calendar/2026/11/"
TRAP = re.compile(r"/calendar/(\d{4,})/(\d\d)/(?:(\d\d)/)?((?:later/)*)")
MEDIA = re.compile(r"/media/[a-z]+-(\d{1,4})\.(jpg|pdf)")

FIRST = [
    "alder", "amber", "ash", "barley", "birch", "bramble", "brook", "calder", "cedar", "clover", "copper",
    "cove", "elder", "ember", "fen", "finch", "flint", "fox", "gannet", "garnet", "glen", "harbour",
    "hazel", "heron", "hollow", "iris", "juniper", "kestrel", "lantern", "larch", "linden", "lowland",
    "maple", "marsh", "meadow", "merlin", "mill", "moor", "moss", "north", "oak", "opal", "orchard",
    "otter", "pebble", "pine", "quarry", "raven", "reed", "rowan", "saffron", "sedge", "silver", "slate",
    "sorrel", "sparrow", "spring", "stone", "swift", "tern", "thistle", "thorn", "tide", "umber", "vale",
    "violet", "walnut", "west", "willow", "winter", "wren", "yarrow",
]  # fmt: skip
SECOND = [
    "academy", "almanac", "archive", "atlas", "bakery", "books", "brewery", "bulletin", "chapel",
    "college", "courier", "crafts", "dairy", "energy", "ferry", "forum", "foundry", "gallery", "garden",
    "gazette", "herald", "hospital", "institute", "journal", "kitchen", "laboratory", "library", "lodge",
    "market", "mercury", "museum", "music", "nursery", "observer", "optics", "pharmacy", "post",
    "pottery", "press", "railway", "records", "review", "school", "seeds", "society", "studio", "survey",
    "theatre", "times", "tools", "trust", "university", "weekly", "wharf", "workshop", "yard",
]  # fmt: skip
SUBDOMAINS = ["www", "blog", "docs", "shop", "news", "wiki", "data", "forum", "people", "static"]
SECTIONS = [
    "news", "catalogue", "guides", "people", "projects", "events", "notes", "maps", "reports", "letters",
    "courses", "recipes",
]  # fmt: skip
ADJECTIVES = [
    "ancient", "brief", "broken", "careful", "common", "early", "eastern", "empty", "faded", "final",
    "forgotten", "gentle", "hidden", "hollow", "late", "local", "lost", "modern", "narrow", "naïve",
    "open", "patient", "plain", "quiet", "rare", "second", "shared", "small", "steady", "twin", "unlikely",
    "useful", "western", "young",
]  # fmt: skip
NOUNS = [
    "anchor", "apple", "autumn", "bell", "boat", "bridge", "café", "candle", "canal", "chart", "clock",
    "coast", "dialect", "engine", "ferry", "field", "garden", "glacier", "harvest", "honey", "instrument",
    "island", "kite", "ladder", "lamp", "letter", "lighthouse", "loom", "map", "market", "mosaic",
    "mountain", "needle", "orchard", "paper", "pigment", "planet", "railway", "recipe", "river", "roof",
    "salt", "shadow", "signal", "song", "spindle", "telescope", "tide", "timber", "tower", "valley",
    "violin", "voyage", "weather", "window", "workshop",
]  # fmt: skip
VERBS = [
    "describes", "explains", "follows", "mentions", "outlives", "precedes", "questions", "recalls",
    "repairs", "replaces", "resembles", "supports", "surprises",
]  # fmt: skip
ENDINGS = [
    "in the first year", "as Zoë Ångström noted", "although nobody counted", "for want of a better word",
    "at the usual place", "“more or less”", "before the river froze", "and the reverse is rarely true",
    "according to the parish register", "which took three summers", "on both sides of the valley",
]  # fmt: skip

Place = int
NAV, TRAIL, TEXT, CHILD, RELATED, OTHER = range(6)  # where on a page a link stands, in document order


class _Link(NamedTuple):
    place: Place
    href: str
    text: str
    target: int = -1  # a page, or -1 for what is none: documents, mail addresses, dangling, the trap
    is_followed: bool = True


@dataclass(slots=True)
class _Host:
    """A host and what is drawn once for it; its pages are numbered from ``first`` on, the home page first."""

    name: str
    title: str
    size: int
    latency: float
    fame: float
    first: int = 0
    n_sections: int = 0
    robots: str = "none"  # "none" (404), "private", "all", "delay", "error"
    encoding: str = "utf-8"
    is_gzipped: bool = False
    is_dead: bool = False
    friends: list[int] = field(default_factory=list)  # hosts near it that its pages like to link to
    cumulated_fame: list[float] = field(default_factory=list)  # of its pages, for drawing among them

    def draw(self, random: Random) -> int:
        """Draw one of its pages by fame."""
        total = self.cumulated_fame[-1]
        return self.first + bisect(self.cumulated_fame, random.random() * total, hi=self.size - 1)


class DemoWeb:
    """The invented web; :meth:`answer` is what a :class:`~scrapy_aopic.testing.server.Server` needs.

    A *page* is a URL that the structure knows: ordinary ones, redirects and failing ones. Documents (images,
    PDF), ``robots.txt`` and the trap are no pages.

    Args:
        seed: What everything follows from.
        n_hosts: Hosts in all, the dead one and the trap included; 20 to some 4,000.
        n_pages: Pages in all; at least four a host.
    """

    def __init__(self, seed: int = SEED, n_hosts: int = N_HOSTS, n_pages: int = N_PAGES) -> None:
        if not 20 <= n_hosts <= len(FIRST) * len(SECOND):
            limit = len(FIRST) * len(SECOND)
            raise ValueError(
                f"n_hosts ({n_hosts}) must be between 20 (one for every fault) and {limit} (names)."
            )
        if n_pages < 4 * n_hosts:
            raise ValueError(f"n_pages ({n_pages}) must be at least four a host, that is {4 * n_hosts}.")
        self.seed = seed
        self.n_hosts = n_hosts
        self.n_urls = n_pages
        self.trap = f"http://{TRAP_NAME}{TRAP_START}"
        random = Random(seed)  # noqa: S311 - a web to be repeated, not a secret
        self._sentences = _sentences(random)
        self._hosts = _hosts(random, n_hosts - 1, n_pages)
        self._host_of = array("H")
        self._paths: list[str] = []
        self._titles: list[str] = []
        self._fame: list[float] = []
        self._parent = array("l")
        self._children: dict[int, list[int]] = {}
        for index, host in enumerate(self._hosts):
            self._grow(random, index, host)
        self._by_name = {host.name: host for host in self._hosts}
        self._by_url = {
            self._hosts[host].name + path: page
            for page, (host, path) in enumerate(zip(self._host_of, self._paths, strict=True))
        }
        self._cumulated_fame = list(
            accumulate(
                fame * self._hosts[host].fame for fame, host in zip(self._fame, self._host_of, strict=True)
            )
        )
        self._redirects: dict[int, int] = {}
        self._failing: dict[int, int] = {}
        self._looping: set[int] = set()
        self._spoil(random)
        self._referred: dict[int, list[int]] = {}
        self._trap_links: set[int] = set()
        self._refer(random)
        self.seeds = self._choose_seeds(random)

    # Structure

    def _grow(self, random: Random, index: int, host: _Host) -> None:
        """Add the pages of *host*: a tree of home page, sections and what is below them."""
        host.first = len(self._paths)
        host.n_sections = min(N_SECTIONS, host.size // 5)
        names = random.sample(SECTIONS, host.n_sections)
        if names and host.robots in {"private", "delay"}:
            names[-1] = "private"
        taken = {"/", *(f"/{name}/" for name in names)}
        # A page is drawn as parent as often as it is listed: once, and once more for every child.
        parents = [host.first + 1 + i for i in range(host.n_sections)] * 3 or [host.first]
        for local in range(host.size):
            page = host.first + local
            parent = host.first
            if local == 0:
                path, title = "/", host.title
            elif local <= host.n_sections:
                path, title = f"/{names[local - 1]}/", names[local - 1].capitalize()
            else:
                parent = random.choice(parents)
                if len(self._children.get(parent, ())) >= N_CHILDREN:
                    parent = page - 1 if page - 1 > host.first + host.n_sections else parents[-1]
                path, title = _path(random, self._paths[parent], local)
                if path in taken:
                    path = _path(random, self._paths[parent], local, is_item=True)[0]
                taken.add(path)
                parents += (parent, page)
            self._host_of.append(index)
            self._paths.append(path)
            self._titles.append(title)
            self._parent.append(parent)
            if local > host.n_sections:
                self._children.setdefault(parent, []).append(page)
            fame = min(random.paretovariate(1.1), 150.0)
            if path.startswith("/private/"):
                fame *= 0.2
            self._fame.append(fame + 3.0 if local == 0 else fame)
        host.cumulated_fame = list(accumulate(self._fame[host.first : host.first + host.size]))

    def _spoil(self, random: Random) -> None:
        """Turn leaves of the trees into redirects and errors, so that nothing gets lost behind them."""
        leaves = [
            page
            for page in range(len(self._paths))
            if page not in self._children
            and page > self._home(page) + self._hosts[self._host_of[page]].n_sections
            and not self._hosts[self._host_of[page]].is_dead
        ]
        n_failing = max(4, self.n_urls // 500)
        n_redirects = max(6, self.n_urls * 3 // 100)
        spoilt = random.sample(leaves, n_failing + n_redirects)
        for number, page in enumerate(spoilt[:n_failing]):
            self._failing[page] = 500 if number % 2 else 503
        first, second, chained, *moved = spoilt[n_failing:]
        self._redirects = dict.fromkeys(spoilt[n_failing:], -1)
        for page in (chained, *moved):
            is_across = random.random() < 0.2
            target = page
            while not self._is_ordinary(target):
                target = self._draw(random) if is_across else self._hosts[self._host_of[page]].draw(random)
                if not is_across and random.random() < 0.1:
                    is_across = True  # a host may have nothing else that is ordinary
            self._redirects[page] = target
        self._redirects[moved[0]] = chained
        self._redirects[first], self._redirects[second] = second, first
        self._looping = {first, second}

    def _refer(self, random: Random) -> None:
        """Let every host be known by someone, and a handful of pages lead into the trap."""
        allowed = [
            page
            for page in range(len(self._paths))
            if self._is_ordinary(page)
            and self._hosts[self._host_of[page]].robots != "all"
            and not self._paths[page].startswith("/private/")
        ]
        for host in self._hosts:
            for page in random.sample(allowed, 2):
                self._referred.setdefault(page, []).append(host.first)
        self._trap_links = set(random.sample(allowed, 5))
        n_hosts = len(self._hosts)
        for index, host in enumerate(self._hosts):
            reach = range(index - n_hosts // 10, index + n_hosts // 10)
            near = [number % n_hosts for number in reach if number != index]
            fame = [self._hosts[number].fame * self._hosts[number].cumulated_fame[-1] for number in near]
            host.friends = random.choices(near, weights=fame, k=random.randint(3, 8))

    def _choose_seeds(self, random: Random) -> list[str]:
        """Choose home pages of hosts that are neither famous nor unknown."""
        hosts = [
            host
            for host in sorted(self._hosts, key=lambda host: -host.fame * host.cumulated_fame[-1])
            if host.robots in {"none", "private"} and not host.is_dead
        ]
        known = [host for host in hosts[len(hosts) // 4 : len(hosts) * 2 // 3] if host.size > 2] or hosts
        return [f"http://{host.name}/" for host in random.sample(known, min(N_SEEDS, len(known)))]

    def _home(self, page: int) -> int:
        return self._hosts[self._host_of[page]].first

    def _is_ordinary(self, page: int) -> bool:
        return (
            page not in self._redirects
            and page not in self._failing
            and not self._hosts[self._host_of[page]].is_dead
        )

    def _draw(self, random: Random) -> int:
        """Draw a page of the whole web by fame."""
        total = self._cumulated_fame[-1]
        return bisect(self._cumulated_fame, random.random() * total, hi=self.n_urls - 1)

    # What is known about it

    def urls(self) -> list[str]:
        """List the URLs of all pages, those included that redirect, fail or are forbidden."""
        return [self._url(page) for page in range(len(self._paths))]

    def graph(self) -> tuple[list[str], list[list[int]]]:
        """Build the link graph that the true PageRank is computed from.

        It has the pages that are answered with HTML, and redirects, with one link each. What never leads to
        a page is left out, with the links to it: failing pages, the dead host, the loop, the trap. So are
        repeated links, links to the page itself, and those marked ``nofollow``. Pages that ``robots.txt``
        forbids are in it: they are important whether or not a crawler may visit them.

        Returns:
            The URLs, and for each the positions of the distinct URLs it links to, in document order.
        """
        pages = [
            page
            for page in range(len(self._paths))
            if page not in self._failing
            and page not in self._looping
            and not self._hosts[self._host_of[page]].is_dead
        ]
        position = {page: number for number, page in enumerate(pages)}
        outlinks: list[list[int]] = []
        for page in pages:
            if page in self._redirects:
                targets = [self._redirects[page]]
            else:
                links = self._links(page, self._random(self._url(page)))
                targets = [link.target for link in links if link.is_followed and link.target != page]
            outlinks.append([position[target] for target in dict.fromkeys(targets) if target in position])
        return [self._url(page) for page in pages], outlinks

    def _url(self, page: int) -> str:
        return f"http://{self._hosts[self._host_of[page]].name}{self._paths[page]}"

    # Answers

    def answer(self, exchange: Exchange) -> Answer:
        """Answer as the invented host would; status 502, as from a proxy, if there is none of that name."""
        if exchange.method not in {"GET", "HEAD"}:
            return Answer(405, {"Allow": "GET, HEAD"})
        if exchange.host == TRAP_NAME:
            return self._answer_in_trap(exchange)
        host = self._by_name.get(exchange.host)
        if host is None:
            return _plain(502, f"There is no host {exchange.host} in this web.")
        if host.is_dead:
            return Answer(abort=True, delay=host.latency)
        page = self._by_url.get(exchange.host + exchange.target)
        if page is None:
            return self._answer_without_page(exchange, host)
        return self._answer_page(exchange, host, page)

    def _answer_page(self, exchange: Exchange, host: _Host, page: int) -> Answer:
        if page in self._redirects:
            target = self._redirects[page]
            is_local = self._host_of[target] == self._host_of[page]
            location = self._paths[target] if is_local and target % 2 else self._url(target)
            return Answer(302 if page % 3 else 301, {"Location": location}, delay=host.latency)
        if page in self._failing:
            status = self._failing[page]
            headers = {"Retry-After": "1"} if status == 503 else {}
            return _plain(status, "Something is broken here.", host.latency, headers)
        return _html(exchange, host, self._render(host, page))

    def _answer_without_page(self, exchange: Exchange, host: _Host) -> Answer:
        if exchange.target == "/robots.txt":
            return _robots(host)
        document = MEDIA.fullmatch(exchange.target)
        if document is None or int(document[1]) > host.size:
            return _plain(404, "Not found.", host.latency)
        random = self._random(exchange.host + exchange.target)
        content = random.randbytes(random.randint(1_000, 9_000))
        if document[2] == "jpg":
            headers, body = {"Content-Type": "image/jpeg"}, b"\xff\xd8\xff\xe0" + content
        else:
            headers, body = {"Content-Type": "application/pdf"}, b"%PDF-1.4\n" + content
        return Answer(200, headers, body, delay=host.latency)

    def _answer_in_trap(self, exchange: Exchange) -> Answer:
        host = _Host(TRAP_NAME, "Endless Days", 1, 0.005, 0.0)
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
        random = self._random(exchange.host + exchange.target)
        links = [_Link(RELATED, href, href.strip("/").replace("/", " ")) for href in hrefs]
        title = f"What happens on {exchange.target.strip('/').replace('/', ' ')}"
        return _html(exchange, host, _page(host, title, links, self._paragraphs(random, 2)))

    def _random(self, url: str) -> Random:
        return Random(f"{self.seed} {url}")  # noqa: S311 - text to be repeated, not a secret

    def _render(self, host: _Host, page: int) -> str:
        random = self._random(self._url(page))
        links = self._links(page, random)
        paragraphs = self._paragraphs(random, random.randint(3, 7))
        in_text = [link for link in links if link.place == TEXT]
        for number, link in enumerate(in_text):
            paragraphs[number * len(paragraphs) // len(in_text)] += f" See also {_anchor(link)}."
        return _page(host, self._titles[page], links, paragraphs)

    def _paragraphs(self, random: Random, n_paragraphs: int) -> list[str]:
        return [" ".join(random.choices(self._sentences, k=5)) for _ in range(n_paragraphs)]

    def _links(self, page: int, random: Random) -> list[_Link]:
        """Draw the links of an ordinary page, in document order."""
        host = self._hosts[self._host_of[page]]
        home = host.first
        nav = range(home, home + 1 + host.n_sections)
        if host.first % 2:
            links = [_Link(NAV, self._paths[target], self._titles[target], target) for target in nav]
        else:
            links = [_Link(NAV, self._url(target), self._titles[target], target) for target in nav]
        if page != home:
            links.append(self._link(random, TRAIL, page, self._parent[page]))

        elsewhere = [*self._referred.get(page, ())]
        for _ in range(random.randint(3, 8) + (6 if host.size < 4 else 0)):
            if random.random() < 0.85:
                elsewhere.append(self._hosts[random.choice(host.friends)].draw(random))
            else:
                elsewhere.append(self._draw(random))
        links += [self._link(random, TEXT, page, target) for target in elsewhere]
        links += [self._link(random, CHILD, page, target) for target in self._children.get(page, ())]
        related = [host.draw(random) for _ in range(random.randint(4, 8))]
        if page in nav:  # the latest pages, whatever their fame
            related += [home + random.randrange(host.size) for _ in range(6)]
        links += [self._link(random, RELATED, page, target) for target in related]
        return links + self._odd_links(page, random)

    def _odd_links(self, page: int, random: Random) -> list[_Link]:
        """Draw the links that a crawler must not follow blindly."""
        host = self._hosts[self._host_of[page]]
        links: list[_Link] = []
        if random.random() < 0.3:
            links.append(_Link(OTHER, "#notes", "Notes", page))
        if random.random() < 0.4:
            for _ in range(random.randint(1, 3)):
                target = random.randrange(len(self._paths))
                links.append(self._link(random, OTHER, page, target)._replace(is_followed=False))
        if random.random() < 0.5:
            name = f"{random.choice(SECTIONS)}-{random.randint(0, min(host.size, 9_999))}"
            kind = random.choice(("jpg", "jpg", "pdf"))
            links.append(_Link(OTHER, f"/media/{name}.{kind}", f"{name} ({kind})"))
        if random.random() < 0.45:
            place = host if random.random() < 0.7 else random.choice(self._hosts)
            href = f"http://{place.name}/withdrawn-{random.randint(100, 999)}.html"
            links.append(_Link(OTHER, href, "An older version"))
        if random.random() < 0.3:
            links.append(_Link(OTHER, f"mailto:office@{host.name}", "Write to us"))
        if page in self._trap_links:
            links.append(_Link(OTHER, self.trap, "What happens today"))
        return links

    def _link(self, random: Random, place: Place, page: int, target: int) -> _Link:
        """Write a link from *page* to *target* in one of the ways that occur."""
        path = self._paths[target]
        form = random.random()
        if self._host_of[page] != self._host_of[target]:
            href = self._url(target)
            if form < 0.05:
                href = href.removeprefix("http:")
        elif form < 0.6:
            href = path
        elif form < 0.8:
            href = _relative(self._paths[page], path)
        else:
            href = self._url(target)
        if form > 0.97:
            href += "#part-2"
        return _Link(place, href, self._titles[target], target)


def _sentences(random: Random) -> list[str]:
    """Make the sentences that all text is made of."""
    return [
        f"The {random.choice(ADJECTIVES)} {random.choice(NOUNS)} {random.choice(VERBS)} "
        f"the {random.choice(ADJECTIVES)} {random.choice(NOUNS)}, {random.choice(ENDINGS)}."
        for _ in range(500)
    ]


def _hosts(random: Random, n_hosts: int, n_pages: int) -> list[_Host]:
    """Draw the hosts, without their pages."""
    hosts = [
        _Host(name, title, size, _latency(random), min(random.paretovariate(1.0), 80.0))
        for (name, title), size in zip(_names(random, n_hosts), _sizes(random, n_hosts, n_pages), strict=True)
    ]
    for host in hosts:
        host.is_gzipped = random.random() < 0.25
        host.robots = "private" if random.random() < 0.4 else "none"
    # The odd ones are neither among the largest, where they would spoil the web, nor too small to be met.
    by_size = sorted(hosts, key=lambda host: -host.size)
    middle = by_size[len(hosts) // 20 : len(hosts) // 2]
    forbidden, delayed, broken, latin, windows, dead = random.sample(middle, 6)
    forbidden.robots = "all"
    delayed.robots = "delay"
    broken.robots = "error"
    latin.encoding = "iso-8859-1"
    windows.encoding = "windows-1252"
    dead.is_dead = True
    return hosts


def _names(random: Random, n_hosts: int) -> list[tuple[str, str]]:
    """Draw names and titles; some registered domains have several hosts."""
    pairs = random.sample([(first, second) for first in FIRST for second in SECOND], n_hosts)
    n_shared = max(2, n_hosts // 50)
    names: list[tuple[str, str]] = []
    for number, (first, second) in enumerate(pairs):
        domain = f"{first}-{second}.{'example' if random.random() < 0.75 else 'test'}"
        title = f"{first} {second}".title()
        if number < n_shared:
            names += [
                (f"{subdomain}.{domain}", f"{title} {subdomain.title()}".removesuffix(" Www"))
                for subdomain in random.sample(SUBDOMAINS, random.randint(3, 8))
            ]
        else:
            names.append((f"www.{domain}" if random.random() < 0.7 else domain, title))
        if len(names) >= n_hosts:
            break
    random.shuffle(names)
    return names[:n_hosts]


def _sizes(random: Random, n_hosts: int, n_pages: int) -> list[int]:
    """Draw heavy-tailed sizes between 1 and a twentieth of the web that sum to *n_pages*."""
    shares = [random.lognormvariate(0.0, 1.6) for _ in range(n_hosts)]
    largest = max(8, n_pages // min(20, n_hosts // 2))

    def scaled(factor: float) -> list[int]:
        return [min(largest, max(1, int(share * factor))) for share in shares]

    low, high = 0.0, float(n_pages)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(scaled(middle)) <= n_pages:
            low = middle
        else:
            high = middle
    sizes = scaled(low)
    n_left = n_pages - sum(sizes)
    smallest = 2  # hosts of one page stay that small as long as others can grow
    while n_left:
        n_before = n_left
        for index in random.sample(range(n_hosts), n_hosts):
            if n_left and smallest <= sizes[index] < largest:
                sizes[index] += 1
                n_left -= 1
        if n_left == n_before:
            smallest = 1
    return sizes


def _latency(random: Random) -> float:
    """Draw the seconds that a host takes for an answer."""
    kind = random.random()
    if kind < 0.08:
        return random.uniform(0.2, 0.6)
    if kind < 0.20:
        return random.uniform(0.03, 0.08)
    return random.uniform(0.002, 0.015)


def _path(random: Random, parent: str, number: int, *, is_item: bool = False) -> tuple[str, str]:
    """Draw path and title of a page below the page at *parent*."""
    folder = parent.rpartition("/")[0] + "/"
    if parent.endswith(".html"):
        folder = parent.removesuffix(".html") + "/"
    kind = random.random()
    if is_item or kind < 0.05:
        return f"{folder}item?id={number}&view=full", f"Item {number}"
    words = f"{random.choice(ADJECTIVES)} {random.choice(NOUNS)}"
    slug = quote(words.replace(" ", "-"))
    return f"{folder}{slug}{'/' if kind > 0.8 else '.html'}", words.capitalize()


def _relative(base: str, target: str) -> str:
    """Write the path *target* relative to the path *base*."""
    folders, (*target_folders, leaf) = base.split("/")[:-1], target.split("/")
    n_common = 0
    for folder, target_folder in zip(folders, target_folders, strict=False):
        if folder != target_folder:
            break
        n_common += 1
    parts = [".."] * (len(folders) - n_common) + [*target_folders[n_common:], leaf]
    return "/".join(parts) or "./"


def _anchor(link: _Link) -> str:
    rel = "" if link.is_followed else ' rel="nofollow"'
    return f'<a href="{escape(link.href)}"{rel}>{escape(link.text)}</a>'


def _page(host: _Host, title: str, links: Sequence[_Link], paragraphs: Sequence[str]) -> str:
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


def _html(exchange: Exchange, host: _Host, text: str) -> Answer:
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


def _robots(host: _Host) -> Answer:
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


async def _serve(web: DemoWeb, log: Path | None, port: int, *, watches_stdin: bool) -> None:
    """Serve until a signal asks for the end, or, if it is watched, standard input is closed: the parent has ended."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: there Ctrl-C raises KeyboardInterrupt, see main()
            loop.add_signal_handler(number, stopping.set)

    def watch_stdin() -> None:
        # Not sys.stdin.read(): a thread that still holds that lock at the end brings the interpreter down.
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(stopping.set)

    server = Server(web.answer, log=log, port=port)
    await server.start()
    sys.stdout.write(f"serving {web.n_urls} pages of {web.n_hosts} hosts, proxy {server.url}\n")
    sys.stdout.flush()
    if watches_stdin:
        Thread(target=watch_stdin, name="watch-stdin", daemon=True).start()
    try:
        await stopping.wait()
    finally:
        await server.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the demo web on a loopback port, which is printed in one line."""
    parser = argparse.ArgumentParser(prog="broad.demo_web", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="port to listen at (default: a free one)")
    parser.add_argument("--seed", type=int, default=SEED, help="another seed makes another web (%(default)s)")
    parser.add_argument("--log", type=Path, help="file to which a line is added for every request")
    parser.add_argument("--hosts", type=int, default=N_HOSTS, help="number of hosts (%(default)s)")
    parser.add_argument("--pages", type=int, default=N_PAGES, help="number of pages (%(default)s)")
    parser.add_argument(
        "--watch-stdin",
        action="store_true",
        help="end when standard input is closed, as it is with the parent",
    )
    options = parser.parse_args(arguments)
    try:
        web = DemoWeb(options.seed, options.hosts, options.pages)
    except ValueError as error:
        parser.error(str(error))
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(web, options.log, options.port, watches_stdin=options.watch_stdin))


@contextmanager
def served(
    seed: int = SEED, n_hosts: int = N_HOSTS, n_pages: int = N_PAGES, *, log: Path | None = None
) -> Iterator[str]:
    """Serve the demo web from a process of its own while the block runs; gives the URL of the proxy.

    The process also ends when this one is killed. Ctrl-C does not reach it, so that a crawler which is
    asked to stop can finish what is under way.

    Raises:
        RuntimeError: If it does not start; its own message is on standard error.
    """
    command = [sys.executable, "-m", "broad.demo_web", "--watch-stdin"]
    command += ["--seed", str(seed), "--hosts", str(n_hosts), "--pages", str(n_pages)]
    if log is not None:
        command += ["--log", str(log)]
    # The folders of both packages, so that it works from a checkout and from any working directory.
    roots = [Path(__file__).parents[1], Path(server_module.__file__).parents[2]]
    path = os.pathsep.join([*map(str, roots), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(  # noqa: S603 - our own module, with numbers and a path as arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("serving "):
                raise RuntimeError("The demo web did not start; see standard error for the reason.")
            yield line.split()[-1]
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    main()
