"""How up to date the copies of important pages are when a crawl goes on and on, by the rule for visiting pages again.

    python benchmarks freshness GRAPH.npz ... [--budgets .01 .05 .2] [--rates measured] [--rng 1 2 3] [--json FILE]

A changing web on a real link graph (CSR arrays ``indptr``, ``indices``), crawled by the production crawl in memory on a
virtual clock. Each page changes by a Poisson process of its own rate, which is independent of everything else.

* ``--rates measured``: as Cho and Garcia-Molina found of 720,000 pages on 270 sites in four months ("The evolution of
  the web and implications for an incremental crawler", VLDB 2000, figure 2): 23 % of the pages change once a day or
  more often on average, 15 % once a week, 16 % once a month, 17 % once in four months, 29 % less often. Within each
  class the logarithm of the interval is uniform; the first begins with an hour, the last ends with 1,000 days.
* ``--rates log-normal``: with a median of one change in 60 days; the standard deviation of their logarithm is 2.5.

All pages are seeds, and are visited once in the first hour. Then there is a fetch every so many seconds: the budget is
in fetches a page and day. Nobody has to be polite to. A page may come back after an hour and a bit, and has a claim to
after ten times the mean interval. After --before visits a page, in which the crawl learns, it is
measured for --during visits a page. Freshness is the share of the time in which the copy of a page is what the page
is, with the pages weighted by their true PageRank(0.85) and averaged.

Policies:

* ``uniform``: all pages in turn;
* ``rounds``: all pages in rounds, as by ``--every 1d``, one each day if the budget can hold that: with a budget of 1 a crawl anew each day;
* ``cash``: importance only, as in the paper, without a longest interval;
* ``cash, floor``: with one;
* ``cash x phi``: the default of AOPIC_RECRAWL, which learns from digests and from answers 304 which pages change;
* ``with dates``: the same on a web whose answers say when the page was last changed (``Last-Modified``);
* ``hints``: the default with a sitemap that dates each change of the --hinted part of the pages, at once and rightly;
* ``useless hints``: the same sitemap with the day of its build as the date of each of them;
  With several values of --hinted these two, and the bound, have a row for each;
* ``no discovery``: the default without its share of revisits for what brings new pages;
* ``rates known``: the same by a crawl that is told the true rates, so that nothing need be learned.

With --hubs a part of the pages publish a new page every --born days each, and list the last twenty. The delay is the mean
time from the birth of a page to its visit, in days; these pages do not count for freshness.

``grown-5000`` as GRAPH is a made-up web of 5,000 pages on 200 hosts that has grown page by page, with links to old pages in
proportion to those that lead there.

``each day`` and ``bound`` are not crawled but computed: a visit of each page every day, which takes 1 / budget as many fetches; and the best frequency of regular visits for each page (Lagrange multiplier, as in
Azar et al.), from the true rates and the true PageRank. ``bound, hints`` is that of who also gets the hints (Kolobov et al.).

Gains over ``cash`` are paired: each --rng makes one web, the same for all policies. Each run ends with the audit of the
store: every unit of cash is counted, and every page that comes back has a time to.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import options
from options import Among
from tqdm import tqdm

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.order import Aopic, OpicCycle
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.records import Link, Page, host_key, page_key
from scrapy_aopic.core.revisits import Rates, Recrawl, Version, due
from scrapy_aopic.lab.graphs import Graph, graph_of, load_graph, pagerank
from scrapy_aopic.lab.results import half_width
from scrapy_aopic.storage.memory import MemoryStore

HINTED = ("hints", "useless hints")
HOUR, DAY = 3600.0, 86_400.0
BEGIN = 1e9
BORN = b"born"
FRUITFUL_TURN = due._FRUITFUL_TURN
COMMIT = 200
POLICIES = [
    "uniform",
    "rounds",
    "cash",
    "cash, floor",
    "cash x phi",
    "with dates",
    "hints",
    "useless hints",
    "no discovery",
    "rates known",
]
LEARNS = ("cash x phi", "no discovery", "with dates", "hints", "useless hints")
RATES = ["measured", "log-normal"]
INTERVALS = [1 / 24, 1, 7, 30, 120, 1000]
PARTS = [0.23, 0.15, 0.16, 0.17, 0.29]
MEDIAN, SPREAD = 60, 2.5


@dataclass(frozen=True, slots=True)
class ByCash(Recrawl):
    """Goes by a page's cash alone, until it is overdue."""

    def worth(self, page: Page, expected: int, rates: Rates, now: float, ratio: float = 1.0) -> int:
        is_overdue = page.visits and page.changes is not None and self.is_overdue(page, now)
        return Recrawl.worth(self, page, expected, rates, now) if is_overdue else page.cash


@dataclass(frozen=True, slots=True)
class KnownRates(Recrawl):
    """Goes by the true rates, changes a second; a page's digest begins with its number."""

    rates: tuple[float, ...] = ()

    def worth(self, page: Page, expected: int, rates: Rates, now: float, ratio: float = 1.0) -> int:
        if not page.visits or page.changes is None or self.is_overdue(page, now):
            return Recrawl.worth(self, page, expected, rates, now)
        x = (now - page.changes.seen_at) * self.rates[_number(page.changes.digest[:4])]
        return int(expected * (1 - (1 + x) * math.exp(-x)) / x) if x > 0 else 0


class Task(NamedTuple):
    graph: Path
    policy: str
    budget: float
    rng: int
    rates: str
    before: float
    during: float
    hinted: float = 0.0
    hubs: float = 0.0
    born: float = 1.0


class Result(NamedTuple):
    freshness: float
    repeated: int
    not_modified: int
    never: float
    visits_a_change: float
    delay: float
    violations: list[str]


class Web:
    """Pages that change, and the copies that a crawl has of them.

    Attributes:
        rates: Changes a second of each page.
        visits: Visits of each page.
    """

    def __init__(self, n: int, task: Task) -> None:
        self._random = random.Random(task.rng)
        self.rates = [1 / (self._interval(task.rates) * DAY) for _ in range(n)]
        self.visits = [0] * n
        self._versions = [0] * n
        self._seen = [0.0] * n
        self._changes = [0.0] * n  # when the copy is out of date
        self.hinted = {page for page in range(n) if self._random.random() < task.hinted}
        self._are_useless = task.policy == "useless hints"
        self._hints: list[tuple[float, int]] = []
        if task.policy in ("hints", "useless hints"):
            self._hints = [(BEGIN + HOUR + DAY * self._are_useless, page) for page in self.hinted]
        self._listed: set[int] = set()

    def _interval(self, rates: str) -> float:
        """Days between two changes of a page."""
        if rates == "log-normal":
            return MEDIAN * math.exp(self._random.gauss(0, SPREAD))
        (part,) = self._random.choices(range(len(PARTS)), PARTS)
        return math.exp(self._random.uniform(math.log(INTERVALS[part]), math.log(INTERVALS[part + 1])))

    def visit(self, page: int, now: float, *, is_dated: bool) -> Version:
        """The answer to a visit of *page* at *now*; half of the pages tell by 304 that nothing has changed."""
        draw, rate = self._random.expovariate, self.rates[page]
        is_new, out_of_date = not self.visits[page], self._changes[page]
        is_same = not is_new and out_of_date > now
        self.visits[page] += 1
        self._seen[page] = now
        if is_same:
            if page % 2:
                return Version(is_same=True)
        else:
            self._versions[page] += 1
            self._changes[page] = now + draw(rate)
            if page in self._listed and not self._are_useless:
                heapq.heappush(self._hints, (self._changes[page], page))
        # A Poisson process is the same backwards, but there was a change when the copy became out of date.
        age = draw(rate) if is_new else min(draw(rate), now - out_of_date)
        digest = page.to_bytes(4, "big") + self._versions[page].to_bytes(4, "big")
        return Version(digest, changed_at=now - age if is_dated and not is_same else 0.0)

    def hints(self, now: float) -> Iterator[tuple[int, float]]:
        """Pages whose dates in the sitemap are new by *now*, with these dates."""
        while self._hints and self._hints[0][0] <= now:
            at, page = heapq.heappop(self._hints)
            if page not in self._listed:
                self._listed.add(page)
                yield page, self._seen[page] - 1
                at = self._changes[page] if not self._are_useless else at + DAY
                heapq.heappush(self._hints, (at, page))
            elif self._are_useless:
                heapq.heappush(self._hints, (at + DAY, page))
                yield page, at
            elif at == self._changes[page]:
                yield page, at

    @property
    def n_changes(self) -> int:
        """Visits that have found another version than before, first ones included."""
        return sum(self._versions)

    def fresh(self, page: int, begin: float, end: float) -> float:
        """Seconds between *begin* and *end* in which the copy of *page* has been up to date since its last visit."""
        return max(min(self._changes[page], end) - max(self._seen[page], begin), 0.0)


class Births:
    """Pages that are published while the web is crawled, each by one of its hubs."""

    def __init__(self, n: int, task: Task) -> None:
        dice, self._every = random.Random(task.rng), task.born * DAY
        hubs = [page for page in range(n) if dice.random() < task.hubs]
        self._first = {page: BEGIN + HOUR + dice.random() * self._every for page in hubs}
        self._links: dict[int, list[Link]] = {page: [] for page in hubs}
        self._at: dict[bytes, float] = {}
        self.delays: list[float] = []

    def links(self, page: int, now: float) -> list[Link]:
        """Links of *page* to the last pages that it has published."""
        if page not in self._first:
            return []
        links = self._links[page]
        while (at := self._first[page] + len(links) * self._every) <= now:
            number = BORN + page.to_bytes(4, "big") + len(links).to_bytes(4, "big")
            name = f"born{page}.test"
            links.append(Link(page_key(host_key(name), number), name, number))
            self._at[number] = at
        return links[-20:]

    def visit(self, request: bytes, now: float) -> Version:
        """What a visit of the page of *request* shows, which does not change."""
        if at := self._at.pop(request, 0.0):
            self.delays.append(now - at)
        return Version(request)


def load(path: Path) -> Graph:
    """The graph at *path*, or a made-up one of that name."""
    if path.exists() or not path.name.startswith("grown-"):
        return load_graph(path)
    pages, dice = int(path.name.removeprefix("grown-")), random.Random(1)
    ends: list[int] = []
    links: dict[str, list[str]] = {}
    for page in range(pages):
        to = {dice.choice(ends) if ends and dice.random() < 0.7 else dice.randrange(pages) for _ in range(10)}
        ends += to
        links[_url(page)] = [_url(each) for each in sorted(to - {page})]
    return graph_of(links, path.name)


def _url(page: int) -> str:
    return f"http://h{page % 200}.test/{page}"


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def measure(task: Task) -> Result:
    """Crawl a web that changes."""
    graph = load(task.graph)
    n = len(graph)
    rank = pagerank(graph.indptr, graph.indices)
    weights = (rank / rank.sum()).tolist()
    web, births = Web(n, task), Births(n, task)
    links = []
    for page in range(n):
        name, number = graph.hosts[page], page.to_bytes(4, "big")
        links.append(Link(page_key(host_key(name), number), name, number))
    targets = [[links[target] for target in graph.out_links(page)] for page in range(n)]

    between = DAY / (task.budget * n)
    first = HOUR / n  # all pages once, before any of them may come back
    shortest, longest = HOUR + between, 10 * n * between * (1000 if task.policy == "cash" else 1)
    kind = Recrawl if task.policy in LEARNS else ByCash
    recrawl = kind(shortest, longest)
    if task.policy == "rates known":
        recrawl = KnownRates(shortest, longest, rates=tuple(web.rates))
    if task.policy == "rounds":
        recrawl = Recrawl(0.0, DAY, once=True, every=DAY)
    due._FRUITFUL_TURN = 1 << 60 if task.policy == "no discovery" else FRUITFUL_TURN
    order = OpicCycle() if task.policy == "uniform" else Aopic()
    now = BEGIN
    store = MemoryStore()
    crawl = Crawl(store, Policy(order=order, recrawl=recrawl), now)
    for link in links:
        crawl.seed(link, now)

    up_to_date, begin, not_modified, changes = 0.0, math.inf, 0, 0
    settled: list[int] = []
    last = n + int(task.before * n)
    end = last + int(task.during * n)
    for fetch in range(1, end + 1):
        now += first if fetch <= n else between
        lease = crawl.lease(now)
        if fetch == last:
            births.delays.clear()
            begin, settled, changes = now, list(web.visits), web.n_changes
        if isinstance(lease, Lease) and lease.request.startswith(BORN):
            crawl.release(lease, now)
            crawl.settle(lease, [], now, Findings(version=births.visit(lease.request, now)))
        elif isinstance(lease, Lease):
            page = _number(lease.request)
            up_to_date += weights[page] * web.fresh(page, begin, now)
            content = web.visit(page, now, is_dated=task.policy == "with dates")
            not_modified += content.is_same
            for each, at in web.hints(now):  # as by a sitemap that is read all the time
                if (known := crawl.pages.get(links[each].key)) is not None:
                    crawl._revisits.dated(links[each].key, known, at, now)
            crawl.release(lease, now)
            crawl.settle(
                lease,
                [*([] if content.is_same else targets[page]), *births.links(page, now)],
                now,
                Findings(version=content),
            )
        if not fetch % COMMIT or fetch == end:
            store.write(crawl.take_changes(now), sync=False)
            crawl.changes_landed()
    up_to_date += sum(weights[page] * web.fresh(page, begin, now) for page in range(n))
    return Result(
        up_to_date / (now - begin),
        sum(web.visits) - n,
        not_modified,
        sum(old == new for old, new in zip(settled, web.visits, strict=True)) / n,
        (sum(web.visits) - sum(settled)) / max(web.n_changes - changes, 1),
        sum(births.delays) / max(len(births.delays), 1) / DAY,
        audit(store).violations,
    )


# -- what is known of the web without a crawl


def bound(
    rates: np.ndarray, weights: np.ndarray, fetches: float, hinted: np.ndarray | None = None
) -> tuple[float, float]:
    """Freshness, and visits for each change found, at the best frequencies of visits with *fetches* a day in all.

    *rates* are a day, too. Visits are regular, but for pages that are *hinted*: these are visited at each change, or never.
    """

    def frequencies(price: float) -> np.ndarray:
        # A visit more is worth weight/rate (1 - (1 + x) e^-x) at rate/frequency = x; to be the price everywhere.
        wanted = price * rates / weights
        low, high = np.zeros(len(rates)), np.full(len(rates), 100.0)
        for _ in range(50):
            x = (low + high) / 2
            is_low = 1 - (1 + x) * np.exp(-x) < wanted
            low, high = np.where(is_low, x, low), np.where(is_low, high, x)
        regular = np.where(wanted < 1, rates / high, 0.0)
        return regular if hinted is None else np.where(hinted & (wanted < 1), rates, regular)

    low, high = 1e-15, 1e3
    for _ in range(100):
        price = math.sqrt(low * high)
        low, high = (price, high) if frequencies(price).sum() > fetches else (low, price)
    visits = frequencies(high)
    x = rates / np.maximum(visits, 1e-300)
    fresh = -np.expm1(-x) / x
    if hinted is not None:
        fresh = np.where(hinted, visits > 0, fresh)
    is_hinted = np.zeros(len(rates), bool) if hinted is None else hinted
    changes = np.where(is_hinted, visits, visits * -np.expm1(-x))
    return float((weights * fresh).sum()), float(visits.sum() / changes.sum())


# -- tables


def interval(values: list[float]) -> str:
    return f" ± {half_width(values):.3f}" if len(values) > 1 else ""


def show(
    found: dict[str, dict[str, list[Result]]],
    computed: dict[str, dict[str, list[float]]],
    policies: list[str],
) -> str:
    head = [
        "policy",
        *(f"{budget} a day" for budget in found),
        *(f"visits a change at {budget}" for budget in found),
    ]
    has_births = any(each.delay for results in found.values() for runs in results.values() for each in runs)
    if has_births:
        head += [f"delay at {budget}" for budget in found]
    if "cash" in policies:
        head += [f"gain at {budget}" for budget in found]
    lines = [head, ["---"] * len(head)]
    for policy in policies:
        row = [policy]
        for results in found.values():
            fresh = [result.freshness for result in results[policy]]
            row.append(f"{np.mean(fresh):.3f}{interval(fresh)}")
        row += [
            f"{np.mean([each.visits_a_change for each in results[policy]]):.2f}" for results in found.values()
        ]
        if has_births:
            row += [f"{np.mean([each.delay for each in results[policy]]):.2f}" for results in found.values()]
        if "cash" in policies:
            for results in found.values():
                pairs = zip(results[policy], results["cash"], strict=True)
                gains = [one.freshness - other.freshness for one, other in pairs]
                row.append(f"{np.mean(gains):+.3f}{interval(gains)}" if policy != "cash" else "")
        lines.append(row)
    for name in next(iter(computed.values())):
        row = [f"{computed[budget][name][0]:.3f}" for budget in found]
        row += [f"{computed[budget][name][1]:.2f}" for budget in found]
        lines.append([name, *row, *[""] * (len(head) - 1 - len(row))])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def of_part(hinted: float, parts: list[float]) -> str:
    """What is said of the *hinted* part in the name of a row, if there are several."""
    return f", {hinted:.0%}" if len(parts) > 1 else ""


def main() -> None:
    args = options.read(
        __doc__, "graphs+", Path, budgets=[0.01, 0.05, 0.2], policies=Among(POLICIES, POLICIES),
        rates=Among("measured", RATES), before=3.0, during=2.0, hinted=[0.0], hubs=0.0, born=1.0, rng=[1, 2, 3], jobs=os.cpu_count(), json=Path,
    )  # fmt: skip
    everything = {}
    for path in args.graphs:
        task = partial(
            Task,
            path,
            rates=args.rates,
            before=args.before,
            during=args.during,
            hubs=args.hubs,
            born=args.born,
        )
        rows = {
            policy + of_part(hinted, args.hinted if policy in HINTED else []): (policy, hinted)
            for hinted in args.hinted
            for policy in args.policies
        }
        tasks = [
            (name, task(policy=policy, hinted=hinted, budget=budget, rng=rng))
            for budget in args.budgets
            for name, (policy, hinted) in rows.items()
            for rng in args.rng
        ]
        found: dict[str, dict[str, list[Result]]] = {}
        with ProcessPoolExecutor(args.jobs) as pool:
            measured = pool.map(measure, [each for _, each in tasks])
            results = tqdm(measured, path.stem, len(tasks), leave=False, disable=None)
            for (name, each), result in zip(tasks, results, strict=True):
                if result.violations:
                    raise SystemExit(f"{each}: the audit does not hold: {result.violations}")
                found.setdefault(f"{each.budget:g}", {}).setdefault(name, []).append(result)
        graph = load(path)
        rank = pagerank(graph.indptr, graph.indices)
        computed: dict[str, dict[str, list[float]]] = {}
        for budget in args.budgets:
            known: dict[str, list[tuple[float, float]]] = {}
            for hinted, rng in product(args.hinted, args.rng):
                web = Web(len(graph), task(policy="", hinted=hinted, budget=budget, rng=rng))
                given = np.array(web.rates) * DAY, rank / rank.sum(), budget * len(graph)
                found_changes = -np.expm1(-given[0])
                each_day = float((given[1] * found_changes / given[0]).sum()), 1 / float(found_changes.mean())
                known.setdefault("each day", []).append(each_day)
                known.setdefault("bound", []).append(bound(*given))
                if hinted:
                    informed = bound(*given, np.isin(np.arange(len(graph)), list(web.hinted)))
                    known.setdefault("bound, hints" + of_part(hinted, args.hinted), []).append(informed)
            computed[f"{budget:g}"] = {name: np.mean(each, axis=0).tolist() for name, each in known.items()}
        print(
            f"\n{path.stem}: {len(graph):,} pages; rates {args.rates}; measured for {args.during:g} visits a page after {args.before:g}; rng {args.rng}; the "
            "audit holds at the end of every run\n"
        )
        print(show(found, computed, [*rows]))
        everything[path.stem] = {
            "computed": computed,
            "results": {
                budget: {policy: [each._asdict() for each in runs] for policy, runs in results.items()}
                for budget, results in found.items()
            },
        }
    if args.json:
        settings = {
            name: value for name, value in vars(args).items() if name not in ("graphs", "json", "jobs")
        }
        args.json.write_text(json.dumps({**settings, "graphs": everything}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
