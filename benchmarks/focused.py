"""How many relevant pages a crawl for a topic fetches, by strategy: offline, one page at a time.

    python benchmarks focused DIR                  # real HTML: DIR/sites/<name> are unpacked sites
    python benchmarks focused --web tunnels        # an invented web with everything relevant behind pages that are not
    python benchmarks focused --web demo           # the demo web of the example project

Which pages are relevant is said by a lexicon or by what made the web, so that the crawler does not grade itself. The crawler is
given some relevant pages and three times as many others (or ``--others``) as examples, anew for each of the sets of seeds, which do
not count when they are fetched, unless with ``--count-examples``; with ``--examples 0`` it is given keywords instead. ``--tune`` uses
the topics that defaults may be chosen on; without it the others are used. Seeds are the portal (the home pages of the demo web),
or eight pages that are not relevant.

``--paper`` compares the strategies of the paper on JLSE as printed, from six relevant pages, and prints its figures beside them; with
``--cf`` JLSE alone, reading its graph at each 50th, 100th, 150th and 200th result.

The one-step oracle is told of each known page whether it is relevant, which no crawler knows.

Printed: mean harvest, which is the part of the fetched pages that is relevant as the mean over all prefixes of the crawl; harvest
at 500 fetches; recall of the relevant pages that can be reached; the part of their PageRank that the first 500 fetches got; and the paired
difference of the mean harvest to that of --peer over topics, kinds of seeds and sets, with its 95 % interval (Student's t, which
takes the sets of a topic for independent).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from focus_webs import Web, corpus, demo, page_rank, reachable, tunnels
from focus_webs.simulation import Crawl, Policy, Remembered

from scrapy_aopic.core.focus.jlse_as_printed import JlseAsPrinted
from scrapy_aopic.core.focus.strategies import needs_samples
from scrapy_aopic.core.focus.topic import Samples, Topic
from scrapy_aopic.focus.folders import stop_words

POLICIES: dict[str, Policy] = {
    "breadth-first": Policy(),
    "cash": Policy(),
    "best-first": Policy("best-first", 1.0),
    "shark-search": Policy("shark-search", 1.0),
    "context-graph": Policy("context-graph", 1.0),
    "otie": Policy("otie", 1.0),
    "ata": Policy("ata", 1.0),
    "ata-paper": Policy("ata-paper", 1.0),
    "jlse-paper": Policy("jlse-paper", 1.0),
    "jlse": Policy("jlse", 1.0),
    "focused": Policy("focused"),
    "learned": Policy("learned"),
    "portfolio": Policy("portfolio"),
    "contextual": Policy("contextual"),
    "one-step oracle": Policy(),
}
"""Focus 1 for what the literature knows without cash; the default focus for what is this package's own."""

PUBLISHED = {
    "jlse-paper": ((0.68, 0.55), (0.02, 0.28)),
    "otie": ((0.65, 0.51), (0.02, 0.26)),
    "ata-paper": ((0.67, 0.38), (0.02, 0.22)),
    "context-graph": ((0.57, 0.31), (0.02, 0.18)),
    "breadth-first": ((0.26, 0.03), (0.01, 0.10)),
}
"""Harvest and recall at the first and the last point of the curves of the paper on JLSE, which it calls average harvest rate and average
target recall (equations 20 and 21)."""

PAPER = [*PUBLISHED, "leaf 1", "contextual"]


class LeafOne(JlseAsPrinted):
    """With the other reading of equation 18 for results."""

    leaf = 1.0


CF: dict[str, Policy] = {
    f"cf {n}": Policy(type(f"Cf{n}", (JlseAsPrinted,), {"cf": n}), 1.0) for n in (150, 50, 100, 200)
}
POLICIES_OF_PAPER = POLICIES | {"leaf 1": Policy(LeafOne, 1.0)} | CF

STEP = 10
"""Fetches between two points of the curve."""

EARLY = 500


class Outcome(NamedTuple):
    """What came of a crawl."""

    mean: float
    early: float
    recall: float
    ranked: float
    curve: list[float]
    spent: float
    began: int = 0


class Given(NamedTuple):
    """What crawls by all policies begin with."""

    web: Web
    labels: Sequence[bool]
    ranks: Sequence[float]
    seeds: list[int]


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
    web: Web, labels: list[bool], keywords: list[str], examples: tuple[int, int], chance: random.Random
) -> tuple[Topic, set[int]]:
    """A topic that was given so many relevant *examples* and others, or the keywords if none; and the relevant examples."""
    n, n_others = examples
    if not n:
        return Topic(keywords), set()
    positive = chance.sample([i for i, label in enumerate(labels) if label], n)
    others = [i for i, label in enumerate(labels) if not label]
    negative = chance.sample(others, min(n_others, len(others)))
    topic = Topic()
    given = [*positive, *negative]
    topic.samples = samples(web, given, labels)
    for _ in range(5):
        chance.shuffle(given)
        for each in given:
            page = web.pages[each]
            topic.pages.learn(dict(zip(page.places, page.values, strict=True)), float(labels[each]))
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
    if kind == "relevant":
        return chance.sample([i for i, label in enumerate(labels) if label and web.pages[i].links], 6)
    if kind == "homes":
        return chance.sample(web.homes, min(len(web.homes), 8))
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
    recall = n / max(len(wanted), 1)
    return Outcome(
        statistics.mean(curve),
        curve[min(EARLY, fetches) // STEP - 1],
        recall,
        ranked,
        curve,
        crawl.spent,
        crawl.began,
    )


def webs(options: argparse.Namespace) -> Iterator[tuple[str, Web, list[str], list[str]]]:
    """Name, web, names of topics and kinds of seeds."""
    if options.web == "corpus":
        web = corpus.load(options.folder, options.most)
        yield (
            "corpus",
            web,
            [t for t in web.topics if (t in corpus.TUNING) == options.tune],
            ["relevant"] if options.paper else ["portal", "general"],
        )
    elif options.web == "demo":
        web = demo.load()
        yield "demo", web, list(web.topics), ["homes"]
    else:
        for depth in (1, 2):
            web = tunnels.load(depth)
            names = list(web.topics)
            yield f"tunnels of depth {depth}", web, names[:2] if options.tune else names[2:4], ["homes"]


def run(options: argparse.Namespace, policies: dict[str, Policy]) -> dict[str, dict[str, list[Outcome]]]:
    """Outcomes of all crawls, by what they were of and by policy."""
    found: dict[str, dict[str, list[Outcome]]] = {}
    for name, web, topics, kinds in webs(options):
        ranks = page_rank(web)
        print(
            f"{name}: {len(web.pages)} pages, {sum(len(page.links) for page in web.pages)} links", flush=True
        )
        for topic in topics:
            labels, keywords = web.topics[topic]
            print(f"  {topic}: {sum(labels)} relevant pages", flush=True)
            if sum(labels) < options.examples * (1 if options.count_examples else 2) + 10:
                print("    left out: too few to give examples and to find others")
                continue
            for kind in kinds:
                if options.starts and kind not in options.starts.split(","):
                    continue
                of = found.setdefault(f"{name}, {topic}, {kind}", {policy: [] for policy in policies})
                for number in range(options.sets):
                    chance = random.Random(f"{topic} {kind} {number}")
                    examples = options.examples, options.others or 3 * options.examples
                    known, given = taught(web, labels, keywords, examples, chance)
                    remembered = Remembered(known)
                    if options.count_examples:
                        given = set()
                    counted = [label and i not in given for i, label in enumerate(labels)]
                    seeds = seeds_of(kind, web, labels, chance)
                    begin = Given(web, counted, ranks, seeds)
                    for policy, what in policies.items():
                        crawl = Crawl(web, counted, remembered, (policy, what), number)
                        fetched = crawl.run(seeds, options.fetches)
                        came = outcome(begin, fetched, options.fetches, crawl)
                        of[policy].append(came)
                line = " ".join(
                    f"{policy} {statistics.mean(o.mean for o in each):.3f}," for policy, each in of.items()
                )
                print(f"    {kind}: {line.rstrip(',')}", flush=True)
    return found


def report(
    found: dict[str, dict[str, list[Outcome]]], policies: Iterable[str], fetches: int, peer: str
) -> None:
    policies = list(policies)
    pooled = {policy: [outcome for of in found.values() for outcome in of[policy]] for policy in policies}
    width = max(map(len, policies))
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


def plus_minus(values: Sequence[float]) -> str:
    """The mean of *values* with its 95 % interval."""
    n, mean = len(values), statistics.mean(values)
    half = f"{t_95(n - 1) * statistics.stdev(values) / math.sqrt(n):.3f}" if n > 1 else "?"
    return f"{mean:.3f} ± {half}"


def report_paper(
    found: dict[str, dict[str, list[Outcome]]], policies: Iterable[str], fetches: int, peer: str
) -> None:
    """Harvest and recall after a tenth of the fetches and after all of them, beside what the paper on JLSE has; and, of runs by cf,
    the harvest along the crawl, beside that of cf = 150."""
    del peer
    pooled = {policy: [outcome for of in found.values() for outcome in of[policy]] for policy in policies}
    points = [n for n in (fetches // 10, fetches // 5, fetches // 2, fetches) if n >= STEP]
    print(f"\n{len(next(iter(pooled.values())))} crawls by each strategy")
    if all(policy in CF for policy in pooled):
        print("       " + "  ".join(f"harvest at {n:<5} less cf 150   " for n in points))
        for policy, each in pooled.items():
            row = []
            for n in points:
                own = [o.curve[n // STEP - 1] for o in each]
                less = [a - o.curve[n // STEP - 1] for a, o in zip(own, pooled["cf 150"], strict=True)]
                row.append(f"{statistics.mean(own):16.3f} {interval(less):>16}")
            print(f"{policy:6} {'  '.join(row)}")
        return
    first = points[0]
    print(
        f"{'':14} harvest: paper      at {first:<14} at {fetches:<13} recall: paper    at {first:<14} at {fetches:<12} learned from"
    )
    for policy, each in pooled.items():
        shown = ["", ""]
        if policy in PUBLISHED:
            shown = [f"{begin:.2f} to {end:.2f}" for begin, end in PUBLISHED[policy]]
        begin = [o.curve[first // STEP - 1] for o in each]
        end = [o.curve[fetches // STEP - 1] for o in each]
        recalls = [
            o.recall * a * first / ((b * fetches) or 1) for o, a, b in zip(each, begin, end, strict=True)
        ]
        began = [o.began for o in each if o.began]
        learned = f"{statistics.median(began):5.0f} in {len(began)}" if began else ""
        print(
            f"{policy:14} {shown[0]:>14}  {plus_minus(begin):>16} {plus_minus(end):>16}  {shown[1]:>14}"
            f"  {plus_minus(recalls):>16} {plus_minus([o.recall for o in each]):>16} {learned:>14}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--web", choices=["corpus", "tunnels", "demo"], default="corpus")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--paper", action="store_true", help="the comparison of the paper on JLSE")
    parser.add_argument("--cf", action="store_true", help="its experiment on cf")
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--others", type=int, default=0, help="examples of what is not relevant")
    parser.add_argument("--count-examples", action="store_true")
    parser.add_argument("--starts", help="kinds of seeds, with commas")
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--fetches", type=int, default=2000)
    parser.add_argument("--most", type=int, default=120, help="pages of a site")
    parser.add_argument("--only", help="names of policies, with commas")
    parser.add_argument("--peer", default="")
    options = parser.parse_args()
    if options.web == "corpus" and options.folder is None:
        parser.error("a folder with sites is needed")
    policies = POLICIES
    if options.paper:
        policies = CF if options.cf else {name: POLICIES_OF_PAPER[name] for name in PAPER}
    if not options.examples:
        policies = {name: policy for name, policy in policies.items() if not needs_samples(policy.strategy)}
    if options.only:
        known = POLICIES_OF_PAPER
        policies = {name: known.get(name) or Policy(name) for name in options.only.split(",")}
    peer = options.peer or next(name for name in ("jlse", *policies) if name in policies)
    found = run(options, policies)
    if not found:
        sys.exit("No topic has enough relevant pages: read more pages of each site (--most)")
    show = report_paper if options.paper else report
    show(found, policies, options.fetches, peer)


if __name__ == "__main__":
    main()
