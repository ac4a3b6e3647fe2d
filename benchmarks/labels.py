"""What labels say of a crawl for a topic, on topics that nobody tuned on, and how well few examples tell what is relevant.

    python benchmarks labels DIR --sets 2 --fetches 600      # DIR/sites/<name> are unpacked sites
    python benchmarks labels DIR --folders schart,smath      # a page is relevant if it is in the folder of this name

Crawls by the default begin at a portal, and at irrelevant pages if labels are by a lexicon, with 10 examples; a lexicon that no
crawl knows, or the folder, labels the sample. *said* is the harvest that people are told by the true one, as a factor of at least
1; *held* the part of the crawls in which the interval of 95 % has the true one; *ordered* the average precision of the fetched
pages by relevance.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import options
from focus_webs import Web, corpus
from focus_webs.simulation import Crawl, Remembered
from focused import POLICIES, seeds_of, t_95, taught

from scrapy_aopic.core.focus.calibration import LEAST_GRADED, Calibration, gist_of, unchecked_by
from scrapy_aopic.core.focus.classifier import Classifier
from scrapy_aopic.core.focus.sample import Sampled
from scrapy_aopic.core.focus.words import words
from scrapy_aopic.focus.labels import judge, to_label
from scrapy_aopic.focus.quality import quality


class Said(NamedTuple):
    """Of a crawl, with some number of labels: precision and recall of what counts as relevant, the harvest said by the true one,
    whether its interval holds that, and the average precision by relevance."""

    precision: float
    recall: float
    factor: float
    is_held: bool
    ordered: float


LABELS = ("0", "20", "50", "20 by grade", "50 by grade")
"""Labels; *by grade*: nothing is learned of words."""

EXAMPLES = (3, 10, 30)
SAMPLE = 200


def main() -> None:
    args = options.read(
        __doc__, "folder", Path, tune=False, examples=10, sets=2, fetches=600, most=120, folders=""
    )
    if args.folders:
        web = corpus.by_folder(args.folder, args.folders.split(","))
    else:
        web = corpus.load(args.folder, args.most)
    precise: dict[int, list[float]] = {n: [] for n in EXAMPLES}
    told: dict[str, list[Said]] = {n: [] for n in LABELS}
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
            for kind in ("portal",) if args.folders else ("portal", "general"):
                for name, found in _crawled(web, labels, keywords, args, (kind, number)).items():
                    told[name].append(found)
    if not n_topics:
        sys.exit("No topic has enough relevant pages: read more pages of each site (--most)")
    print(f"{len(web.pages)} pages, {n_topics} topics, {len(told['0'])} crawls of {args.fetches} pages\n")
    print("examples  average precision (95 %)")
    for n, values in precise.items():
        print(f"{n:8}  {_mean(values)}")
    print(
        "\n     labels  precision (95 %)  at least .5  recall (95 %)     said, median  said at most 1.5  held  ordered"
    )
    for name, rows in told.items():
        precisions, recalls, factors, held, ordered = zip(*rows, strict=True)
        known = [each for each in precisions if not math.isnan(each)]
        print(
            f"{name:>11}  {_mean(precisions):16} {_part(each >= 0.5 for each in known):12.2f}  {_mean(recalls):16}"
            f" {statistics.median(factors):13.2f} {_part(each <= 1.5 for each in factors):17.2f} {_part(held):5.2f}"
            f"  {_mean(ordered)}"
        )


def _part(held: Iterable[bool]) -> float:
    found = list(held)
    return sum(found) / max(len(found), 1)


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


def _unchecked(web: Web, labels: list[bool], examples: list[int], chance: random.Random) -> Calibration:
    """What grades mean without labels, as :func:`scrapy_aopic.focus.quality.unlabelled` has it."""
    others = chance.sample([i for i, label in enumerate(labels) if not label], 3 * len(examples))
    grades = []
    for fold in range(5):
        pages = Classifier()
        pages.fit(
            [
                (web.pages[i].features, labels[i])
                for given in (examples, others)
                for at, i in enumerate(given)
                if at % 5 != fold
            ]
        )
        grades += [pages.score(web.pages[i].features) for i in examples[fold::5]]
    return unchecked_by(grades)


def _crawled(
    web: Web, labels: list[bool], keywords: list[str], args: Any, begin: tuple[str, int]
) -> dict[str, Said]:
    """What people are told of a crawl, by number of labels."""
    kind, number = begin
    chance = random.Random(f"{kind} {number} {keywords}")
    topic, examples = taught(web, labels, keywords, args.examples, chance)
    remembered = Remembered(topic)
    counted = [label and i not in examples for i, label in enumerate(labels)]
    crawl = Crawl(web, counted, remembered, ("contextual", POLICIES["contextual"]), number)
    fetched = crawl.run(seeds_of(kind, web, labels, chance), args.fetches)
    grades = [remembered.grade_of(web, page) for page in fetched if page not in examples]
    truth = [labels[page] for page in fetched if page not in examples]
    texts = [web.pages[page].text for page in fetched if page not in examples]
    seen = [
        (grade, gist_of(words(text)) if grade >= LEAST_GRADED else b"")
        for grade, text in zip(grades, texts, strict=True)
    ]
    drawn = chance.sample(range(len(grades)), min(SAMPLE, len(grades)))
    sample = [
        Sampled(str(at), grades[at], grades[at] >= 0.5, is_duplicate=False, gist=seen[at][1]) for at in drawn
    ]
    true, unchecked = (
        sum(truth) / len(truth),
        _unchecked(web, labels, sorted(examples), random.Random(number)),
    )
    found = {}
    for name in LABELS:
        n, by_grade = int(name.split()[0]), name.endswith("grade")
        asked = {page.url: truth[int(page.url)] for page in to_label(sample)[:n]}
        shown = [page._replace(gist=b"") for page in sample] if by_grade else sample
        judged = judge(len(grades), shown, asked)
        meaning = judged.calibration if n else unchecked
        parts = [meaning.probability(*each) for each in seen]
        called = [part >= 0.5 for part in parts]
        hits = sum(a and b for a, b in zip(called, truth, strict=True))
        said = judged.harvest if n else sum(called) / len(called)
        order = quality(
            [part for part, is_it in zip(parts, truth, strict=True) if is_it] or [0.0],
            [part for part, is_it in zip(parts, truth, strict=True) if not is_it],
        )
        found[name] = Said(
            hits / sum(called) if any(called) else math.nan,
            hits / sum(truth) if any(truth) else math.nan,
            max(said, true, 1e-9) / max(min(said, true), 1e-9) if said != true else 1.0,
            judged.low <= true <= judged.high,
            order.average_precision if any(truth) else math.nan,
        )
    return found


if __name__ == "__main__":
    main()
