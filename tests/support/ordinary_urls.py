"""URLs of the forms that pages have, and what becomes of them by the quick way and by the slow one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from scrapy.linkextractors import IGNORED_EXTENSIONS

from scrapy_aopic.web import urls
from scrapy_aopic.web.networks import Allowed, Networks
from scrapy_aopic.web.url_keys import key_of_parts, key_of_plain_url
from scrapy_aopic.web.url_rules import BROAD_RULES, PLAIN_RULES
from scrapy_aopic.web.urls import Normaliser

HOSTS = (
    "www.a-b.example", "a.test", "x_y.test", "93.184.216.34", "127.0.0.1", "1.2.3", "256.1.1.1", "01.2.3.4", "a.0x7f", "a.1",
    "xn--bcher-kva.test", "xn--a.test", "WWW.A.test", "bücher.test", "[::1]", "u@a.test", "a.test.", "-a.test", "localhost",
)  # fmt: skip
PORTS = (":80", ":443", ":8080", ":54321", ":65535", ":65536", ":60000", ":0", ":080", ":", ":6379", ":655")
SEGMENTS = (
    "a", "b.html", "page-1", "index.php", "~u", "a:b", "@me", "a,b", "x_(1)", "it's", "a+b", "$1!", "a=b&c", "..", ".", "...", "",
    ".well-known", "(S(lit3py55t21z5v55vlm25s55))", "a;b=c", "a.PDF", "a.tar.gz", "calendar", "2099-05", "%2e%2E", "Café", "a b",
)  # fmt: skip
ESCAPES = (
    "%C3%A9", "%e9", "%20", "%2f", "%2F", "%41", "%7e", "%25", "%3b", "%3f", "%26", "%3d", "%2B", "%7C", "%5b", "%22", "%27", "%00",
    "%7f", "%zz", "%4", "%", "%%34",
)  # fmt: skip
NAMES = (
    "a", "b", "c", "id", "a-b", "a.b", "a1", "A", "z", "x[]", "x%5B%5D", "é", "", "utm_source", "sid",
    "PHPSESSID", "_ga",
)  # fmt: skip
VALUES = (
    "", "1", "2", "abc", "a+b", "a%20b", "%C3%A9", "x=y", "a/b", "http://h/?x", "a%26b", "lit3py55t21z5v55vlm25s55", "z%3", "%00",
    "a;b", "{x}|^`", "\\", "'", "é", "/./", "xn--",
)  # fmt: skip
CHARACTERS = "abyzABYZ0189-._~!$&'()*+,=:@/;|[]{}^`\\\"<>#?% é\t"

_networks = Networks(Allowed())
_normalisers = [
    Normaliser(rules, networks=_networks, extensions=frozenset(IGNORED_EXTENSIONS), last_year=2028)
    for rules in (BROAD_RULES, PLAIN_RULES, (*BROAD_RULES, "sort"), ())
]


def ordinary_url(random: Random) -> str:
    """A URL of an ordinary form, with something odd in it now and then."""
    host = random.choice(HOSTS) if random.random() < 0.4 else "www.a.test"
    port = random.choice(PORTS) if random.random() < 0.2 else ""
    url = random.choice(("http://", "https://")) + host + port
    for _ in range(random.randrange(5)):
        url += f"/{_piece(random, SEGMENTS)}"
    if random.random() < 0.5:
        names = [_piece(random, NAMES) for _ in range(random.randrange(6))]
        url += f"{random.choice(('', '/'))}?"
        url += "&".join(
            f"{name}={_piece(random, VALUES)}" if random.random() < 0.9 else name for name in names
        )
    return url + (f"#{_piece(random, VALUES)}" if random.random() < 0.1 else "")


def _piece(random: Random, pieces: tuple[str, ...]) -> str:
    kind = random.random()
    if kind < 0.1:
        return "".join(random.choices(CHARACTERS, k=random.randrange(6)))
    return random.choice(pieces) + (random.choice(ESCAPES) if kind < 0.25 else "")


class Judgements(NamedTuple):
    """What becomes of a URL, under several sets of rules.

    Attributes:
        judged: The normal form, and why it is refused.
        keys: Page keys of the normal forms, ``None`` where no request can be made of one.
        n_quick: How many of these were found without w3lib.
    """

    judged: list[tuple[str, str]]
    keys: list[tuple[str, bytes] | None]
    n_quick: int


def judgements(url: str) -> Judgements:
    """What becomes of *url*."""
    all_judged = [normaliser.judge(url) for normaliser in _normalisers]
    keys: list[tuple[str, bytes] | None] = []
    for normal, reason, host in all_judged:
        if reason:
            continue
        try:
            keys.append(
                (host, key_of_plain_url(host, normal))
                if host
                else key_of_parts(urlsplit(normal).hostname or "", normal)
            )
        except ValueError:
            keys.append(None)
    n_quick = sum(bool(judged.host) for judged in all_judged if not judged.reason)
    return Judgements([judged[:2] for judged in all_judged], keys, n_quick)


@contextmanager
def slow_way() -> Iterator[None]:
    """No URL is plain: each is parsed by the URL Standard's parser, and its page key is of w3lib's canonical form."""
    with patch.object(urls, "_PLAIN", re.compile("(?!)")), patch.object(urls, "_BARE", re.compile("(?!)")):
        yield
