"""Real HTML: unpacked sites of documentation, with a portal that links to the home page of each.

A page is relevant if it has a certain density of a lexicon's words, so that the crawler does not grade itself.
What was read is kept in a file beside the sites (MessagePack), as parsing takes a minute or two.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections import deque
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from zlib import crc32

import msgspec
from lxml import html  # type: ignore[import-untyped]

from scrapy_aopic.core.focus.harvest_results import Degrees
from scrapy_aopic.core.focus.topic import LinkText
from scrapy_aopic.core.focus.words import words
from scrapy_aopic.web.context import page_context

from . import Leaf, Web, leaf

TOPICS = {
    "security": (["authentication", "encryption", "password"],
                 "kerberos ssl tls certificate certificates keytab cipher principal credential credentials realm kdc token tokens x509 gssapi"),
    "databases": (["database", "sql", "query"],
                  "table tables column columns index record records schema mysql postgresql sqlite transaction rows dataset"),
    "unicode": (["unicode", "locale", "collation"],
                "utf character characters codepoint normalization transliteration charset encoding script break icu"),
    "testing": (["test", "junit", "assertion"],
                "testcase suite runner fixture assert assertequals expected mock failures rule matcher assertthat"),
    "graphics": (["drawing", "widget", "color"],
                 "canvas pixel pixels window surface font paint bitmap rgb image button cairo gtk"),
    "mail": (["email", "smtp", "mailbox"],
             "mail message messages smtp imap pop3 sender recipient recipients spam transport header headers mime delivery queue"),
    "xml": (["xml", "xslt", "markup"],
            "stylesheet stylesheets element elements attribute attributes namespace dtd xpath docbook entity entities template templates parser"),
    "network": (["network", "firewall", "router"],
                "ip ipv4 ipv6 tcp udp port ports interface interfaces route routes dns subnet vlan bridge packet packets socket"),
}  # fmt: skip
"""Keywords for the crawler, and the lexicon that says what is relevant; no word is in both."""

TUNING = ("security", "databases")
"""Topics that defaults may be chosen on."""

DENSITY, DISTINCT = 0.015, 3
MOST_LINKS = 150
QUOTED = 300
"""Characters of a home page that the portal quotes."""


def load(folder: Path, most: int) -> Web:
    """The pages of all sites, at most so many of each, nearest to its home first."""
    version = crc32(
        repr(
            (Web._fields, TOPICS, DENSITY, DISTINCT, MOST_LINKS, Degrees._fields, most, sys.version_info[:2])
        ).encode()
    )
    file = folder / f"focused-{version:08x}.msgpack"
    if not file.is_file():
        begin = time.process_time()
        raw = _read(folder, most)
        temporary = file.with_suffix(".part")
        temporary.write_bytes(msgspec.msgpack.encode(raw))
        temporary.replace(file)
        print(f"read in {time.process_time() - begin:.0f} s CPU, and kept as {file}")
    rows, labels = msgspec.msgpack.decode(file.read_bytes())
    pages = []
    for url, text, places, values, degrees, links in rows:
        said = [(target, LinkText(*texts)) for target, *texts in links]
        pages.append(Leaf(url, text, array("I", places), array("f", values), said, Degrees(*degrees)))
    return Web(pages, {name: (labels[name], TOPICS[name][0]) for name in TOPICS})


def _read(folder: Path, most: int) -> list[Any]:
    pages: list[Leaf] = []
    homes = []
    found: dict[str, list[bool]] = {name: [] for name in TOPICS}
    for site in sorted((folder / "sites").iterdir()):
        files = sorted((p for p in site.rglob("*.htm*") if p.is_file()), key=lambda p: (len(p.parts), str(p)))
        indexes = [p for p in files if p.name.lower().startswith("index.")] or files
        if len(files) < 20:
            continue
        number: dict[Path, int] = {}
        waiting = deque(indexes[:1])
        read: dict[Path, tuple[str, str, tuple[list[str], list[str]], list[tuple[Path, LinkText]]]] = {}
        while waiting and len(read) < most:
            path = waiting.popleft()
            if path in number or not path.is_file():
                continue
            number[path] = len(pages) + len(read)
            url = f"http://{site.name}.test/{quote(str(path.relative_to(site)))}"
            try:
                context = page_context(html.fromstring(path.read_bytes()), url)
            except (ValueError, html.etree.ParserError):
                context = page_context(html.fromstring("<p>empty</p>"), url)
            targets: list[tuple[Path, LinkText]] = []
            for link, said in context.links.items():
                place = urlsplit(link)
                if place.hostname == f"{site.name}.test" and len(targets) < MOST_LINKS:
                    target = site / unquote(place.path).lstrip("/")
                    targets.append((target, said))
                    if target.suffix.startswith(".htm"):
                        waiting.append(target)
            read[path] = url, context.text, context.parts(), targets
        homes.append(number[indexes[0]])
        for url, text, parts, targets in read.values():
            pages.append(leaf(url, text, [(number[t], said) for t, said in targets if t in number], parts))
            counted = words(text)
            for name, (_, lexicon) in TOPICS.items():
                found[name].append(_is_relevant(counted, frozenset(lexicon.split())))
    portal = len(pages)
    links = []
    for home in homes:
        page = pages[home]
        name = str(urlsplit(page.url).hostname).removesuffix(".test")
        links.append((home, LinkText(name, page.text[:QUOTED], "", f"/{name}")))
        page.links.append((portal, LinkText("All documentation", "", "", "/")))
    pages.append(leaf("http://portal.test/", "All documentation", links))
    for name in TOPICS:
        found[name].append(False)
    rows = [
        (
            p.url,
            p.text,
            p.places.tobytes(),
            p.values.tobytes(),
            p.degrees,
            [(t, *said) for t, said in p.links],
        )
        for p in pages
    ]
    return [rows, found]


def _is_relevant(found: list[str], terms: frozenset[str]) -> bool:
    hits = [word for word in found if word in terms]
    return len(hits) >= DENSITY * max(len(found), 100) and len(set(hits)) >= DISTINCT
