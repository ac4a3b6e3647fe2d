"""How many relevant pages a crawl for a topic fetches: the core's focused order beside others, on real HTML, offline.

    python benchmarks/focused.py DIR [--tune] [--sets 5] [--fetches 800]

DIR/sites/<name> are unpacked sites. One page is fetched at a time, without politeness. A page is relevant if it has
a certain density of a lexicon's words, so that the crawler does not grade itself. The crawler is given relevant pages
and three times as many others as examples, anew for each seed set, which do not count when they are fetched; with
``--examples 0`` it is given three keywords instead, which are not in the lexicon. Seeds are one page of each site, any
of the ten nearest to its home. Printed: mean harvest (over all
prefixes of the crawl), harvest at the end, and the paired difference to best-first over topics and seed sets with its
95 % interval (Student's t), which takes the seed sets of a topic for independent. --tune uses the topics that defaults may be chosen on; without it the others are used.

``cash`` is greedy OPIC without endowments, domains and budgets: not the order ``aopic``.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lxml import html

from scrapy_aopic.core.focus.shares import shares
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import FLOOR, PageSeen
from scrapy_aopic.core.focus.topic import RELEVANT, LinkText, Topic
from scrapy_aopic.core.focus.words import words
from scrapy_aopic.core.order import Focused, revalued, whole_value
from scrapy_aopic.core.records import Page, State
from scrapy_aopic.web.context import page_context

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
}  # fmt: skip
TUNING = ("security", "databases")
DENSITY, DISTINCT = 0.015, 3


class Leaf(NamedTuple):
    text: str
    words: list[str]
    links: list[tuple[int, LinkText]]


def load(folder: Path, most: int) -> tuple[list[Leaf], list[int]]:
    """The pages of all sites, at most so many of each, nearest to its home first; and the homes."""
    pages: list[Leaf] = []
    homes = []
    for site in sorted((folder / "sites").iterdir()):
        files = sorted((p for p in site.rglob("*.htm*") if p.is_file()), key=lambda p: (len(p.parts), str(p)))
        indexes = [p for p in files if p.name.lower().startswith("index.")] or files
        if len(files) < 20:
            continue
        number: dict[Path, int] = {}
        waiting = deque(indexes[:1])
        read = {}
        while waiting and len(read) < most:
            file = waiting.popleft()
            if file in number or not file.is_file():
                continue
            number[file] = len(pages) + len(read)
            url = f"http://{site.name}.test/{quote(str(file.relative_to(site)))}"
            try:
                context = page_context(html.fromstring(file.read_bytes()), url)
            except (ValueError, html.etree.ParserError):
                context = page_context(html.fromstring("<p>empty</p>"), url)
            targets = []
            for link, text in context.links.items():
                parts = urlsplit(link)
                if parts.hostname == f"{site.name}.test":
                    target = site / unquote(parts.path).lstrip("/")
                    targets.append((target, text))
                    if target.suffix.startswith(".htm"):
                        waiting.append(target)
            read[file] = context.text, targets
        homes.append(number[indexes[0]])
        for text, targets in read.values():
            links = [(number[target], said) for target, said in targets if target in number]
            pages.append(Leaf(text, words(text), links))
    return pages, homes


def relevant(pages: list[Leaf], lexicon: str) -> list[bool]:
    terms = frozenset(lexicon.split())
    found = []
    for page in pages:
        hits = [word for word in page.words if word in terms]
        found.append(len(hits) >= DENSITY * max(len(page.words), 100) and len(set(hits)) >= DISTINCT)
    return found


class Crawl:
    """One simulated crawl; *policy* is a row of :data:`POLICIES`."""

    def __init__(self, pages: list[Leaf], labels: list[bool], topic: Topic, policy: str) -> None:
        self.pages, self.labels, self.policy = pages, labels, policy
        self.topic = topic
        scorer, self.focus = POLICIES[policy]
        self.strategy = STRATEGIES[scorer](topic, random.Random(0)) if scorer else None
        self.queues = Focused(self.focus)
        self.cash: dict[int, float] = {}
        self.value: dict[int, float] = {}
        self.order: dict[int, int] = {}
        self.spent = 0.0

    def score(self, page: int) -> float:
        if self.policy == "breadth-first":
            return 0.0
        if self.policy == "one-step oracle":
            return float(self.labels[page])
        if self.policy == "cash":
            return self.cash[page]
        waiting = Page(State.QUEUED, 1, score=revalued(0, whole_value(self.value[page])))
        return self.queues.front_queue(waiting, int(self.cash[page] * SEED))

    def run(self, seeds: Sequence[int], fetches: int) -> list[bool]:
        heap: list[tuple[float, int, int]] = []
        done: set[int] = set()
        harvest = []
        for seed in seeds:
            self.cash[seed], self.value[seed], self.order[seed] = 1.0, 1.0, len(self.order)
            heap.append((-self.score(seed), self.order[seed], seed))
        heapq.heapify(heap)
        while heap and len(harvest) < fetches:
            key, _, number = heapq.heappop(heap)
            if number in done or -key != self.score(number):
                continue  # its score has changed since: it is there once more
            done.add(number)
            harvest.append(self.labels[number])
            begin = time.process_time()
            self.visit(number, self.pages[number], done, heap)
            self.spent += time.process_time() - begin
        return harvest + [False] * (fetches - len(harvest))

    def visit(self, number: int, page: Leaf, done: set[int], heap: list[tuple[float, int, int]]) -> None:
        values = [1.0] * len(page.links)
        if self.strategy is not None:
            grade = self.topic.grade(page.text)
            seen = PageSeen("", grade, self.value[number], grade >= RELEVANT)
            self.strategy.learn(seen)
            texts = [text for _, text in page.links]
            values = [max(value, FLOOR) for value in self.strategy.values(seen, texts)]
        split = shares(values, focus=self.focus)
        cash = 0.85 * self.cash.get(number, 0.0)
        for (target, _), value, weight in zip(page.links, values, split.weights, strict=True):
            if target in done:
                continue
            self.order.setdefault(target, len(self.order))
            self.cash[target] = self.cash.get(target, 0.0) + cash * weight / split.whole
            self.value[target] = max(self.value.get(target, 0.0), value)
            heapq.heappush(heap, (-self.score(target), self.order[target], target))


SEED = 1 << 29
"""Units of cash that a seed gets in a real crawl."""

POLICIES: dict[str, tuple[str, float]] = {
    "breadth-first": ("", 0.0),
    "cash": ("", 0.0),
    "best-first": ("best-first", 1.0),
    "shark-search": ("shark-search", 1.0),
    "focused 0.25": ("focused", 0.25),
    "focused 0.5": ("focused", 0.5),
    "focused 0.75": ("focused", 0.75),
    "focused 0.9": ("focused", 0.9),
    "focused 1": ("focused", 1.0),
    "one-step oracle": ("", 0.0),
}
"""Strategy (``AOPIC_LINK_SCORER``) and focus (``AOPIC_FOCUS``) of each; focused 0.9 is the default."""


def t_95(n: int) -> float:
    """Quantile of Student's t for 95 % intervals with *n* degrees of freedom (Abramowitz and Stegun, 26.7.5)."""
    z = 1.959964
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.inf if n < 1 else 12.706 if n == 1 else sum(term / n**i for i, term in enumerate(terms))


def interval(differences: list[float]) -> str:
    n = len(differences)
    if n < 2:
        return f"{statistics.mean(differences):+.3f} ± ?"
    half = t_95(n - 1) * statistics.stdev(differences) / math.sqrt(n)
    return f"{statistics.mean(differences):+.3f} ± {half:.3f}"


def taught(
    pages: list[Leaf], labels: list[bool], keywords: list[str], n: int, number: int
) -> tuple[Topic, list[bool]]:
    """A topic that was given *n* relevant examples, or the keywords if 0; and the labels without those examples."""
    if not n:
        return Topic(keywords), labels
    chance = random.Random(f"examples {number}")
    positive = chance.sample([i for i, label in enumerate(labels) if label], n)
    negative = chance.sample([i for i, label in enumerate(labels) if not label], 3 * n)
    topic = Topic()
    given = [*positive, *negative]
    for _ in range(5):
        chance.shuffle(given)
        for each in given:
            topic.learn_page(pages[each].text, float(labels[each]))
    return topic, [label and i not in positive for i, label in enumerate(labels)]


def mean_harvest(got: list[bool]) -> float:
    """Part of the fetched pages that are relevant, as the mean over all prefixes in steps of ten pages."""
    return statistics.mean(sum(got[:n]) / n for n in range(10, len(got) + 1, 10))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--fetches", type=int, default=800)
    parser.add_argument("--most", type=int, default=300, help="pages of a site")
    options = parser.parse_args()
    begin = time.process_time()
    pages, homes = load(options.folder, options.most)
    n_links = sum(len(page.links) for page in pages)
    print(
        f"{len(pages)} pages of {len(homes)} sites, {n_links} links, read in {time.process_time() - begin:.0f} s CPU"
    )
    mean: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    end: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    spent = dict.fromkeys(POLICIES, 0.0)
    for name, (keywords, lexicon) in TOPICS.items():
        if (name in TUNING) != options.tune:
            continue
        labels = relevant(pages, lexicon)
        print(f"{name}: {sum(labels)} relevant pages", flush=True)
        if sum(labels) < options.examples + 10:
            print("  left out: too few to give examples and to find others")
            continue
        for number in range(options.sets):
            chance = random.Random(number)
            seeds = [min(home + chance.randrange(10), len(pages) - 1) for home in homes]
            for policy in POLICIES:
                topic, counted = taught(pages, labels, keywords, options.examples, number)
                crawl = Crawl(pages, counted, topic, policy)
                got = crawl.run(seeds, options.fetches)
                mean[policy].append(mean_harvest(got))
                end[policy].append(sum(got) / len(got))
                spent[policy] += crawl.spent
        for policy in POLICIES:
            print(f"  {policy:16} {statistics.mean(mean[policy][-options.sets :]):.3f}", flush=True)
    if not mean["best-first"]:
        sys.exit("No topic has enough relevant pages: read more pages of each site (--most)")
    print(f"\n{'all topics':16} mean harvest  at the end  mean less best-first  CPU ms a page")
    for policy in POLICIES:
        less = [a - b for a, b in zip(mean[policy], mean["best-first"], strict=True)]
        cpu = 1000 * spent[policy] / (len(less) * options.fetches)
        print(
            f"{policy:16} {statistics.mean(mean[policy]):12.3f} {statistics.mean(end[policy]):11.3f}  {interval(less):>20} {cpu:14.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
