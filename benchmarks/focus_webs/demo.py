"""The demo web of the example project: two topics, each on the hosts of one neighbourhood, behind two pages that say nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

from lxml import html  # type: ignore[import-untyped]

from scrapy_aopic.web.context import page_context

from . import Web, leaf

sys.path.insert(0, str(Path(__file__).parents[2] / "example_project"))

from demo_web import DemoWeb
from demo_web.server import Answer, Exchange

KEYWORDS = {
    "astronomy": ["comet", "galaxy", "stars", "telescope"],
    "weaving": ["warp", "tapestry", "threads", "loom"],
}
"""What a crawl for each topic is given if by keywords: two of each are words of it, and one is on other pages, too."""


def load() -> Web:
    """Its pages; redirects lead to where they redirect."""
    made = DemoWeb(has_topics=True)
    urls = made.urls()
    number: dict[str, int] = {}
    bodies: list[tuple[str, Answer]] = []
    redirects: dict[str, str] = {}
    for url in (url if "//" in url else f"http://{url}" for url in urls):
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        exchange = Exchange("GET", parts.hostname or "", target, {})
        answer = made.answer(exchange)
        if answer.status in (301, 302):
            location = answer.headers["Location"]
            redirects[url] = location if "//" in location else f"http://{parts.netloc}{location}"
        elif answer.status == 200 and not answer.abort:
            number[url] = len(bodies)
            bodies.append((url, answer))
    pages = []
    for url, answer in bodies:
        charset = answer.headers.get("Content-Type", "").partition("charset=")[2] or None
        root = html.fromstring(answer.body, parser=html.HTMLParser(encoding=charset))
        context = page_context(root, url)
        links = []
        for link, said in context.links.items():
            place = number.get(redirects.get(link, link))
            if place is not None:
                links.append((place, said))
        pages.append(leaf(url, context.text, links, context.parts()))
    topics = {}
    for topic, keywords in KEYWORDS.items():
        topics[topic] = [made.topic(page.url) == topic for page in pages], keywords
    seeds = [number[seed] for seed in made.seeds if seed in number]
    return Web(pages, topics, seeds)
