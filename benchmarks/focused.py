"""How many relevant pages a crawl for a topic fetches, by strategy: offline, one page at a time.

    python benchmarks focused DIR                  # real HTML: DIR/sites/<name> are unpacked sites

Which pages are relevant is said by a lexicon or by what made the web, so that the crawler does not grade itself. The crawler is
given some relevant pages and three times as many others as examples, anew for each of the sets of seeds, which do
not count when they are fetched; with ``--examples 0`` it is given keywords instead. ``--tune`` uses
the topics that defaults may be chosen on; without it the others are used. Seeds are the portal,
or eight pages that are not relevant.

The one-step oracle is told of each known page whether it is relevant, which no crawler knows.

Printed: mean harvest, which is the part of the fetched pages that is relevant as the mean over all prefixes of the crawl; harvest
at 500 fetches; recall of the relevant pages that can be reached; the part of their PageRank that the first 500 fetches got; and the paired
difference of the mean harvest to that of --peer over topics, kinds of seeds and sets, with its 95 % interval (Student's t, which
takes the sets of a topic for independent).
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import options
from focus_webs import Web, corpus, page_rank, reachable
from focus_webs.simulation import Crawl, Policy, Remembered

from scrapy_aopic.core.focus.strategies import needs_samples
from scrapy_aopic.core.focus.topic import Samples, Topic
from scrapy_aopic.focus.background import background
from scrapy_aopic.focus.folders import stop_words
from scrapy_aopic.lab.results import half_width

POLICIES: dict[str, Policy] = {
    "breadth-first": Policy(),
    "cash": Policy(),
    "best-first": Policy("best-first", 1.0),
    "context-graph": Policy("context-graph", 1.0),
    "otie": Policy("otie", 1.0),
    "ata": Policy("ata", 1.0),
    "ata-paper": Policy("ata-paper", 1.0),
    "jlse-paper": Policy("jlse-paper", 1.0),
    "jlse": Policy("jlse", 1.0),
    "contextual": Policy("contextual"),
    "one-step oracle": Policy(),
}
"""Focus 1 for what the literature knows without cash; the default focus for what is this package's own."""

STEP = 10
"""Fetches between two points of the curve."""

EARLY = 500


class Outcome(NamedTuple):
    """What came of a crawl."""

    mean: float
    early: float
    recall: float
    ranked: float
    spent: float


class Given(NamedTuple):
    """What crawls by all policies begin with."""

    web: Web
    labels: Sequence[bool]
    ranks: Sequence[float]
    seeds: list[int]


def interval(differences: list[float]) -> str:
    half = f"{half_width(differences):.3f}" if len(differences) > 1 else "?"
    return f"{statistics.mean(differences):+.3f} ± {half}"


def taught(
    web: Web, labels: list[bool], keywords: list[str], n: int, chance: random.Random
) -> tuple[Topic, set[int]]:
    """A topic that was given *n* relevant examples and others, or the keywords if none; and the relevant examples."""
    if not n:
        return Topic(keywords), set()
    positive = chance.sample([i for i, label in enumerate(labels) if label], n)
    others = [i for i, label in enumerate(labels) if not label]
    negative = chance.sample(others, min(3 * n, len(others)))
    topic = Topic()
    given = [*positive, *negative]
    topic.samples = samples(web, given, labels)
    examples = [(web.pages[each].features, labels[each]) for each in given]
    topic.pages.fit(examples, [(features, False) for features in background()])
    return topic, set(positive)


def samples(web: Web, given: Sequence[int], labels: list[bool]) -> Samples:
    """The pages *given* as examples, the text of the first link to each, and stop words (English and Chinese)."""
    anchors: dict[int, str] = {}
    wanted = set(given)
    for page in web.pages:
        for target, said in page.links:
            if target in wanted and said.anchor:
                anchors.setdefault(target, said.anchor)
    return Samples(
        [(web.pages[i].text, labels[i]) for i in given],
        [(anchor, labels[i]) for i, anchor in anchors.items()],
        stop_words(),
    )


def seeds_of(kind: str, web: Web, labels: list[bool], chance: random.Random) -> list[int]:
    """Seeds of a *kind*, in random order."""
    if kind == "portal":
        return [len(web.pages) - 1]
    return chance.sample([i for i, label in enumerate(labels) if not label and web.pages[i].links], 8)


def outcome(given: Given, fetched: list[int], fetches: int, crawl: Crawl) -> Outcome:
    labels, ranks = given.labels, given.ranks
    found = [labels[page] for page in fetched] + [False] * (fetches - len(fetched))
    curve, n = [], 0
    for at, each in enumerate(found, 1):
        n += each
        if at % STEP == 0:
            curve.append(n / at)
    wanted = [page for page in reachable(given.web, given.seeds) if labels[page]]
    ranked = sum(ranks[page] for page in fetched[:EARLY] if labels[page])
    ranked /= sum(ranks[page] for page in wanted) or 1.0
    early = curve[min(EARLY, fetches) // STEP - 1]
    return Outcome(statistics.mean(curve), early, n / max(len(wanted), 1), ranked, crawl.spent)


def run(options: Any, policies: dict[str, Policy]) -> dict[str, list[Outcome]]:
    """Outcomes of all crawls, by policy."""
    web = corpus.load(options.folder, options.most)
    found: dict[str, list[Outcome]] = {policy: [] for policy in policies}
    ranks = page_rank(web)
    print(f"{len(web.pages)} pages, {sum(len(page.links) for page in web.pages)} links", flush=True)
    for topic in (t for t in web.topics if (t in corpus.TUNING) == options.tune):
        labels, keywords = web.topics[topic]
        print(f"  {topic}: {sum(labels)} relevant pages", flush=True)
        if sum(labels) < options.examples * 2 + 10:
            print("    left out: too few to give examples and to find others")
            continue
        for kind in ("portal", "general"):
            for number in range(options.sets):
                chance = random.Random(f"{topic} {kind} {number}")
                known, examples = taught(web, labels, keywords, options.examples, chance)
                remembered = Remembered(known)
                counted = [label and i not in examples for i, label in enumerate(labels)]
                begin = Given(web, counted, ranks, seeds_of(kind, web, labels, chance))
                for policy, what in policies.items():
                    crawl = Crawl(web, counted, remembered, (policy, what), number)
                    fetched = crawl.run(begin.seeds, options.fetches)
                    found[policy].append(outcome(begin, fetched, options.fetches, crawl))
            means = (
                f"{policy} {statistics.mean(o.mean for o in each[-options.sets :]):.3f}"
                for policy, each in found.items()
            )
            print(f"    {kind}: {', '.join(means)}", flush=True)
    return found if any(found.values()) else {}


def report(pooled: dict[str, list[Outcome]], fetches: int, peer: str) -> None:
    width = max(map(len, pooled))
    print(f"\n{'':{width}} mean harvest   at {EARLY}  recall  PageRank recall  mean less {peer:14} ms a page")
    for policy, each in pooled.items():
        less = [a.mean - b.mean for a, b in zip(each, pooled[peer], strict=True)]
        mean, early, recall, ranked = map(
            statistics.mean, zip(*((o.mean, o.early, o.recall, o.ranked) for o in each), strict=True)
        )
        spent = 1000 * statistics.mean(o.spent for o in each) / fetches
        print(
            f"{policy:{width}} {mean:12.3f} {early:8.3f} {recall:7.3f} {ranked:16.3f} {interval(less):>24} {spent:9.2f}"
        )


def main() -> None:
    args = options.read(
        __doc__, "folder", Path, tune=False, examples=30, sets=10, fetches=2000, most=120, peer="jlse"
    )
    policies = POLICIES
    if not args.examples:
        policies = {name: policy for name, policy in policies.items() if not needs_samples(policy.strategy)}
    found = run(args, policies)
    if not found:
        sys.exit("No topic has enough relevant pages: read more pages of each site (--most)")
    report(found, args.fetches, args.peer)


if __name__ == "__main__":
    main()
