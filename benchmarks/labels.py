"""What labels say of a crawl for a topic, on topics that nobody tuned on, and how well few examples tell what is relevant.

    python benchmarks labels DIR --sets 2 --fetches 600      # DIR/sites/<name> are unpacked sites

Crawls by the default begin at a portal and at irrelevant pages, with 10 examples; a lexicon that no crawl knows labels
the sample. *said* is the harvest that people are told by the true one, as a factor of at least 1.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import options
from focus_webs import Web, corpus
from focus_webs.simulation import Crawl, Remembered
from focused import POLICIES, seeds_of, t_95, taught

from scrapy_aopic.core.focus.sample import Sampled
from scrapy_aopic.focus.labels import judge, to_label
from scrapy_aopic.focus.quality import quality

LABELS = (0, 20, 50, 200)
EXAMPLES = (3, 10, 30)
SAMPLE = 200


def main() -> None:
    args = options.read(__doc__, "folder", Path, tune=False, examples=10, sets=2, fetches=600, most=120)
    web = corpus.load(args.folder, args.most)
    precise: dict[int, list[float]] = {n: [] for n in EXAMPLES}
    told: dict[int, list[tuple[float, float, float]]] = {n: [] for n in LABELS}
    topics = [name for name in web.topics if (name in corpus.TUNING) == args.tune]
    n_topics = 0
    for topic in topics:
        labels, keywords = web.topics[topic]
        if sum(labels) < max(args.examples, 3) * 2 + 10:
            continue
        n_topics += 1
        for number in range(args.sets):
            chance = random.Random(f"{topic} {number}")
            for n in EXAMPLES:
                if sum(labels) >= 2 * n:
                    precise[n].append(_average_precision(web, labels, keywords, n, chance))
            for kind in ("portal", "general"):
                for n, found in _crawled(web, labels, keywords, args, (kind, number)).items():
                    told[n].append(found)
    if not n_topics:
        sys.exit("No topic has enough relevant pages: read more pages of each site (--most)")
    print(f"{len(web.pages)} pages, {n_topics} topics, {len(told[0])} crawls of {args.fetches} pages\n")
    print("examples  average precision (95 %)")
    for n, values in precise.items():
        print(f"{n:8}  {_mean(values)}")
    print("\n  labels  precision (95 %)  recall (95 %)     said, median  said at most 1.5")
    for n, rows in told.items():
        precisions, recalls, factors = zip(*rows, strict=True)
        near = sum(factor <= 1.5 for factor in factors) / len(factors)
        print(
            f"{n:8}  {_mean(precisions):16}  {_mean(recalls):16} {statistics.median(factors):13.2f} {near:17.2f}"
        )


def _mean(values: Any) -> str:
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return f"{known[0]:.2f} ± ?" if known else "?"
    half = t_95(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))
    return f"{statistics.mean(known):.2f} ± {half:.2f}"


def _average_precision(
    web: Web, labels: list[bool], keywords: list[str], n: int, chance: random.Random
) -> float:
    """Of the pages of *web* but the *n* examples, all relevant ones and 3,000 others."""
    topic, examples = taught(web, labels, keywords, n, chance)
    grades: tuple[list[float], list[float]] = ([], [])
    for number, page in enumerate(web.pages):
        if number not in examples:
            grades[labels[number]].append(topic.pages.score(page.features))
    return quality(
        grades[True], chance.sample(grades[False], min(3_000, len(grades[False])))
    ).average_precision


def _crawled(
    web: Web, labels: list[bool], keywords: list[str], args: Any, begin: tuple[str, int]
) -> dict[int, tuple[float, float, float]]:
    """Precision and recall of what counts as relevant in a crawl, and the harvest said by the true one, by number of labels."""
    kind, number = begin
    chance = random.Random(f"{kind} {number} {keywords}")
    topic, examples = taught(web, labels, keywords, args.examples, chance)
    remembered = Remembered(topic)
    counted = [label and i not in examples for i, label in enumerate(labels)]
    crawl = Crawl(web, counted, remembered, ("contextual", POLICIES["contextual"]), number)
    fetched = crawl.run(seeds_of(kind, web, labels, chance), args.fetches)
    grades = [remembered.grade_of(web, page) for page in fetched if page not in examples]
    truth = [labels[page] for page in fetched if page not in examples]
    drawn = chance.sample(range(len(grades)), min(SAMPLE, len(grades)))
    sample = [Sampled(str(at), grades[at], grades[at] >= 0.5, is_duplicate=False) for at in drawn]
    found = {}
    for n in LABELS:
        asked = {page.url: truth[int(page.url)] for page in (to_label(sample)[:n] if n < SAMPLE else sample)}
        judged = judge(len(grades), sample, asked if n else {})
        called = [judged.calibration.probability(grade) >= 0.5 for grade in grades]
        if not n:
            called = [grade >= 0.5 for grade in grades]
        hits = sum(a and b for a, b in zip(called, truth, strict=True))
        said = judged.harvest if n else sum(called) / len(called)
        true = sum(truth) / len(truth)
        found[n] = (
            hits / sum(called) if any(called) else math.nan,
            hits / sum(truth) if any(truth) else math.nan,
            max(said, true, 1e-9) / max(min(said, true), 1e-9) if said != true else 1.0,
        )
    return found


if __name__ == "__main__":
    main()
