"""Strategies in real crawls, with politeness, of the demo web: how many relevant pages each finds, by the log of the web's server.

    python benchmarks/focused_live.py [--pages 500] [--seconds 60] [--only contextual,jlse] [--turns 1] [--peer contextual]

Each is a crawl of its own as in ``make focus``: a topic given by four keywords, what is relevant behind two pages that are not, few
connections, so that the order decides. Turns are by topics: the first is about astronomy, the second about weaving, and so on.
With --examples 30 the topic is given by so many relevant pages, others in each turn, and three times as many others, as in the
simulated crawls of ``benchmarks/focused.py``; these count as found when they are fetched.

Printed are harvest after each quarter and its mean over all prefixes, and after several turns the means of these, and the
difference of the mean harvest to that of --peer in the same turn, with its 95 % interval (Student's t).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

import demo_web
import focus
from demo_web.server import Answer, Exchange
from focus_webs.demo import KEYWORDS
from focused import interval

STRATEGIES = "best-first shark-search context-graph otie ata jlse focused learned portfolio contextual"
STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument(
        "--examples", type=int, default=0, help="relevant pages that are given (none: keywords)"
    )
    parser.add_argument("--peer", default="contextual")
    parser.add_argument("--only", default=STRATEGIES.replace(" ", ","))
    options = parser.parse_args()
    with TemporaryDirectory(prefix="focused-live-") as folder:
        compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Crawl by turns, and print what was found."""
    crawls = {"breadth-first": {"AOPIC_ORDER": "breadth-first"}}
    for name in options.only.split(","):
        crawls[name] = {"AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": name}
    steps = [options.pages * step // STEPS for step in range(1, STEPS + 1)]
    print(f"{'':16}" + "".join(f"{f'at {step}':>9}" for step in steps) + "     mean  seconds")
    kept: dict[str, list[list[bool]]] = {}
    for turn in range(options.turns):
        topic, keywords = list(KEYWORDS.items())[turn % len(KEYWORDS)]
        given: dict[str, object] = {"keywords": keywords}
        if options.examples:
            given = _examples(topic, options.examples, random.Random(turn), folder / str(turn))
        print(topic)
        for name, strategy in crawls.items():
            begin = time.monotonic()
            settings = {**strategy, "AOPIC_TOPIC": json.dumps(given)}
            found = focus.crawl(settings, options.pages, options.seconds, topic)[: options.pages]
            kept.setdefault(name, []).append(found)
            print(_row(name, [found], steps, time.monotonic() - begin), flush=True)
    if options.turns > 1:
        print("\nmean of all turns")
        peer = list(map(_mean, kept[options.peer]))
        for name, each in kept.items():
            less = [mean - other for mean, other in zip(map(_mean, each), peer, strict=True)]
            print(_row(name, each, steps, 0.0), "" if name == options.peer else f"  {interval(less)}")


def _examples(topic: str, n: int, chance: random.Random, folder: Path) -> dict[str, object]:
    """A topic by *n* pages about it and three times as many others, which are written to *folder*."""
    web = demo_web.DemoWeb(has_topics=True)
    urls = [url for url in web.urls() if _answered(web, url).status == 200]
    about = [url for url in urls if web.topic(url) == topic]
    others = [url for url in urls if web.topic(url) != topic]
    for name, some in (("positive", chance.sample(about, n)), ("negative", chance.sample(others, 3 * n))):
        (folder / name).mkdir(parents=True)
        for number, url in enumerate(some):
            (folder / name / f"{number}.html").write_bytes(_answered(web, url).body)
    return {"positive": str(folder / "positive"), "negative": str(folder / "negative")}


def _answered(web: demo_web.DemoWeb, url: str) -> Answer:
    parts = urlsplit(url)
    return web.answer(Exchange("GET", parts.netloc, parts.path or "/", {}))


def _mean(found: list[bool]) -> float:
    """Mean harvest over all prefixes of a crawl."""
    return statistics.mean(sum(found[:n]) / n for n in range(10, max(len(found), 10) + 1, 10))


def _row(name: str, crawls: list[list[bool]], steps: list[int], seconds: float) -> str:
    parts = [statistics.mean(sum(found[:step]) / step for found in crawls) for step in steps]
    mean = statistics.mean(map(_mean, crawls))
    return f"{name:16}" + "".join(f"{part:>9.3f}" for part in parts) + f"{mean:>9.3f}{seconds:>9.0f}"


if __name__ == "__main__":
    main()
