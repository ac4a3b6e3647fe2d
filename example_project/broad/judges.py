"""Models of one's own that say what is relevant, and what links are worth: three examples to begin with.

    AOPIC_TOPIC = {"function": "broad.judges.Encoder"}    # a model in this process
    AOPIC_TOPIC = {"function": "broad.judges.Service"}    # a model behind HTTP
    AOPIC_LINK_SCORER = "broad.judges.Nearness"           # what links say, by the same model

Each is made once a crawl, by ``from_crawler``, and then called for each page.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.request import ProxyHandler, Request, build_opener

from scrapy.http import Response, TextResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy.crawler import Crawler

    from scrapy_aopic.focus import LinkText, PageSeen

ABOUT = "comets and galaxies, stars and planets in the telescope"
"""What the crawl is for, in a sentence; ``JUDGE_ABOUT`` is another one."""

MOST_BYTES = 100_000
"""Bytes of what a service responds that are read: more than a grade takes."""

LENGTH = 5_000
"""Characters of a page that are judged: the beginning says what it is about."""


def encode(text: str) -> dict[str, float]:
    """*text* as a vector of length 1: how often groups of three letters occur in it, which is as good as its spelling.

    Your own encoder goes here, for example ``SentenceTransformer("all-MiniLM-L6-v2").encode(text)``.
    """
    counted = Counter(re.findall(r"(?=(\w\w\w))", text.casefold()))
    length = math.sqrt(sum(n * n for n in counted.values()))
    return {group: n / length for group, n in counted.items()}


def likeness(one: dict[str, float], other: dict[str, float]) -> float:
    """How alike two vectors are, 0 to 1."""
    return min(sum(value * other.get(group, 0.0) for group, value in one.items()), 1.0)


def text_of(response: Response) -> str:
    """The text of a page."""
    if not isinstance(response, TextResponse):
        return ""
    return " ".join(response.xpath("//body//text()[not(parent::script or parent::style)]").getall())[:LENGTH]


class Encoder:
    """A ``PageScorer``: how like a page is to what the crawl is for. It is called in the event loop, so it should be quick."""

    def __init__(self, about: str = ABOUT, half: float = 0.2) -> None:
        self._about = encode(about)
        self._half = half  # likeness at which a page is half relevant: look at some pages to choose it

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Encoder:
        return cls(crawler.settings.get("JUDGE_ABOUT", ABOUT))

    def __call__(self, response: Response) -> float:
        like = likeness(encode(text_of(response)), self._about)
        return like / (like + self._half)


class Nearness:
    """A ``LinkScorer``: how like the text of a link is to what the crawl is for, and how relevant its page is."""

    def __init__(self, about: str = ABOUT) -> None:
        self._about = encode(about)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Nearness:
        return cls(crawler.settings.get("JUDGE_ABOUT", ABOUT))

    def __call__(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        texts = [encode(f"{link.anchor} {link.around}") for link in links]
        return [0.7 * page.grade + 0.3 * likeness(text, self._about) for text in texts]


class Service:
    """A ``PageScorer`` that asks a service behind HTTP, which gets ``{"text": ...}`` and responds with ``{"grade": 0.7}``.

    It is asynchronous, so the crawl goes on meanwhile: pages wait for what it says of them, and nothing else does. Requests are
    made in threads, as Python has no HTTP client that is asynchronous; with httpx or aiohttp, await theirs.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._open = build_opener(ProxyHandler({})).open  # not through the crawl's proxy

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Service:
        settings = crawler.settings
        if not settings.get("JUDGE_URL"):
            raise ValueError("set JUDGE_URL to the URL of the service")
        return cls(settings["JUDGE_URL"], settings.getfloat("JUDGE_TIMEOUT", 3.0))

    async def __call__(self, response: Response) -> float:
        said = await asyncio.to_thread(self._ask, json.dumps({"text": text_of(response)}).encode())
        return float(said["grade"])

    def _ask(self, data: bytes) -> Any:
        request = Request(self._url, data, {"Content-Type": "application/json"})  # noqa: S310 - the user's own URL
        with self._open(request, timeout=self._timeout) as answer:
            return json.loads(answer.read(MOST_BYTES))
