"""The explainer's ledger (docs/opic/ledger.js) is the production ledger, to the unit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.javascript import call
from support.stored_jobs import make_job

from scrapy_aopic.core.ledger import TOTAL, Estimate, Ledger, Totals
from scrapy_aopic.core.order import Opic, front_queue
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.records import QUEUED, Page
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.core.window import Window
from scrapy_aopic.lab.graphs import pagerank
from scrapy_aopic.lab.simulation import Simulation
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import top_hosts, top_pages

ROOT = Path(__file__).parents[2]
EXPLAINER = ROOT / "docs" / "opic"
SCRIPTS = [EXPLAINER / "ledger.js", ROOT / "tests" / "support" / "opic_driver.js"]


def random_links(rng: random.Random, n: int) -> list[list[int]]:
    """Links of *n* pages: some to themselves, some twice, some pages without any."""
    return [[rng.randrange(n) for _ in range(rng.choice((0, 1, 2, 3, 5)))] for _ in range(n)]


def state_of(ledger: Ledger, pages: list[Page]) -> dict[str, Any]:
    """What ``stateOf`` of the driver says of the same ledger."""
    totals = ledger.totals
    in_window, ever = Estimate(totals, by_window=True), Estimate(totals, by_window=False)
    return {
        "totals": [*map(str, (
            totals.virtual, totals.distributed, totals.virtual_distributed, totals.history, *totals.handed,
        ))],
        "members": list(totals.members),
        "turn": totals.turn,
        "pages": [
            [
                str(page.cash), str(ledger.cash(page)), str(page.history), page.visits, page.visited_turn,
                str(in_window.weight(page)), str(ever.weight(page)), front_queue(ledger.cash(page)),
            ]
            for page in pages
        ],
    }  # fmt: skip


class Walk:
    """Random actions on the production ledger, with what came of each."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        # Each kind of window gets the same number of graphs, and each of them every way of spending.
        kind = ("interpolation", "fixed", "variable", "ewma")[seed % 4]
        clock = rng.choice(("turns", "seconds"))
        size = rng.choice((2.0, 5.0)) if kind == "variable" else rng.choice((0.3, 2.0, 8.0, 1e18))
        self.window = Window(size, kind, clock)
        self.how = {
            "share": rng.choice((0.0, 0.15, 0.5, None)),
            "endowment": rng.choice((0.0, 6.0)),
            "spending": list(SPENDING)[seed // 4 % len(SPENDING)],
            "averages": rng.random() < 0.3,
        }
        self.ledger = Ledger(Totals(), self.window, **self.how)
        self.links = random_links(rng, rng.randint(2, 9))
        self.pages: list[Page] = []
        self.actions: list[tuple[str, dict[str, Any]]] = []
        self.results: list[Any] = []
        self.ended: set[int] = set()
        self.now = 0.0
        for _ in self.links:
            page = Page(QUEUED, len(self.pages), is_chosen=rng.random() < 0.5)
            self.pages.append(page)
            self._do("admit", lambda page=page: self.ledger.admit(page), isChosen=page.is_chosen)
        for number in rng.sample(range(len(self.pages)), rng.randint(1, len(self.pages))):
            self._grant(number)
        for _ in range(40):
            self._step()

    def _do(self, name: str, act: Callable[[], Any], **given: Any) -> None:
        result = act()
        self.actions.append((name, {**given, "now": self.now}))
        known = self.pages[: sum(action == "admit" for action, _ in self.actions)]
        self.results.append([result, state_of(self.ledger, known)])
        assert self.ledger.totals.virtual + sum(map(self.ledger.cash, known)) == TOTAL

    def _grant(self, number: int) -> None:
        worth = self.rng.choice((1.0, 0.25, 3.7, 2.0**30))
        self._do("grant", lambda: str(self.ledger.grant(self.pages[number], worth)), page=number, worth=worth)

    def _step(self) -> None:
        rng, ledger = self.rng, self.ledger
        self.now += rng.choice((0.0, 0.3, 7.1, 1e3))
        alive = [number for number in range(len(self.pages)) if number not in self.ended]
        number = rng.choice(alive)
        page = self.pages[number]
        chance = rng.random()
        if chance < 0.05:
            self._grant(number)
        elif chance < 0.15:
            rival = rng.choice((0, ledger.cash(page), TOTAL))
            self._do("spend", lambda: ledger.spend_virtual(rival), rival=str(rival))
        elif chance < 0.19 and len(alive) > 2 and page.visits:
            self.ended.add(number)
            self._do("fail", lambda: str(ledger.fail(page)), page=number)
        elif chance < 0.23 and len(alive) > 2 and page.visits:
            other = rng.choice([each for each in alive if each != number])
            if self.pages[other].visits:
                self.ended.add(number)
                page.canonical = b""
                self._do("merge", lambda: self._merge(number, other), page=number, other=other)
        else:
            self._visit(number)

    def _merge(self, number: int, other: int) -> None:
        self.ledger.merge(self.pages[number], self.pages[other])
        self.pages[number].canonical = b"the other"  # the caller's part

    def _visit(self, number: int) -> None:
        rng, ledger = self.rng, self.ledger
        page, cash = self.pages[number], ledger.cash(self.pages[number])
        targets = [each for each in dict.fromkeys(self.links[number]) if each != number]
        targets = [each for each in targets if each not in self.ended]
        n_links = len(targets) + rng.choice((0, 0, 0, 1, 7))
        weights, whole = [1] * len(targets), 0
        if rng.random() < 0.3:
            weights = [rng.choice((0, 1, 5, 2**16)) for _ in targets]
            whole = sum(weights) + rng.choice((0, 3))
        given: dict[str, Any] = {
            "spent": cash if rng.random() < 0.8 else rng.randint(0, cash),
            "n_links": n_links,
            "domain_visited": rng.choice((None, 0, 3, 25)),
            "is_plain": rng.random() < 0.8,
            "whole": whole,
        }

        def act() -> list[str]:
            how = {key: given[key] for key in ("whole", "domain_visited", "is_plain")}
            paid = ledger.visit(page, given["spent"], weights, n_links, self.now, **how)
            for target, units in zip(targets, paid, strict=True):
                ledger.catch_up(self.pages[target])
                self.pages[target].cash += units
            return [str(units) for units in paid]

        self._do(
            "visit",
            act,
            page=number,
            targets=targets,
            weights=weights,
            spent=str(given["spent"]),
            nLinks=n_links,
            domainVisited=given["domain_visited"],
            isPlain=given["is_plain"],
            whole=whole,
        )


def test_the_ledger_of_the_explainer_is_the_production_ledger_on_200_random_graphs():
    """Every page's cash, history and estimate, and the virtual page, after every step.

    Exponentials differ in their last digit from engine to engine: histories of the window ``"ewma"`` may, too.
    """
    walks = [Walk(seed) for seed in range(200)]
    windows = [[walk.window.size, walk.window.kind, walk.window.clock] for walk in walks]
    cases = [
        {"how": walk.how, "window": window, "actions": walk.actions}
        for walk, window in zip(walks, windows, strict=True)
    ]
    found = call(SCRIPTS, "driveLedgers", cases)
    n_steps = 0
    for seed, (walk, given) in enumerate(zip(walks, found, strict=True)):
        for step, (expected, got) in enumerate(zip(walk.results, given, strict=True)):
            n_steps += 1
            if walk.window.kind == "ewma":
                expected, got = _without_histories(expected), _without_histories(got)  # noqa: PLW2901
            assert got == expected, f"graph {seed}, step {step}: {walk.actions[step]}"
    assert n_steps > 8000
    for window in ("interpolation", "fixed", "variable", "ewma"):
        ways = {walk.how["spending"] for walk in walks if walk.window.kind == window}
        assert ways == set(SPENDING)


def _without_histories(result: list[Any]) -> list[Any]:
    """*result* with histories, and what follows from them, to 12 digits."""
    paid, state = result
    state["totals"][3] = f"{float(state['totals'][3]):.11e}"
    for page in state["pages"]:
        for column in (2, 5, 6):
            page[column] = f"{float(page[column]):.11e}"
    return [paid, state]


def test_webs_of_the_explainer_are_the_production_ledger_under_every_policy():
    rng = random.Random(18)
    cases = [
        {
            "links": random_links(rng, rng.randint(2, 12)),
            "policy": policy,
            "steps": 40,
            "seed": number,
            "spending": spending,
        }
        for number in range(20)
        for policy in ("greedy", "random", "cycle")
        for spending in ("chosen", "visited")
    ]
    visited: dict[str, set[int]] = {"greedy": set(), "random": set(), "cycle": set()}
    for case, found in zip(cases, call(SCRIPTS, "driveWebs", cases), strict=True):
        n = len(case["links"])
        totals = Totals(virtual=0, balance=1000 * n - TOTAL)
        ledger = Ledger(totals, Window(1e18), endowment=0.0, spending=case["spending"])
        pages = [Page(QUEUED, number, is_chosen=True) for number in range(n)]
        for page in pages:
            ledger.admit(page, 1000)
        for step, (moved, state) in enumerate(found["states"]):
            number, *said = moved
            cash = [ledger.cash(page) for page in pages]
            if case["policy"] == "greedy":
                assert number == cash.index(max(cash))
            if case["policy"] == "cycle":
                assert number == step % n
            visited[case["policy"]].add(number)
            page = pages[number]
            ledger.catch_up(page)
            handed = totals.handed[3]
            ledger.spend_virtual(page.cash)
            ledger.catch_up(page)
            targets = [each for each in dict.fromkeys(case["links"][number]) if each != number]
            spent, before = page.cash, totals.virtual
            paid = ledger.visit(page, spent, [1] * len(targets), len(targets), float(step))
            for target, units in zip(targets, paid, strict=True):
                ledger.catch_up(pages[target])
                pages[target].cash += units
            of_virtual = [str(totals.virtual - before), str(totals.handed[3] - handed)]
            assert said == [str(spent), targets, [str(units) for units in paid], *of_virtual]
            assert state == state_of(ledger, pages)
            assert sum(map(ledger.cash, pages)) + totals.virtual == 1000 * n
        assert found["importance"] == pytest.approx([ledger.importance(page) for page in pages], abs=1e-12)
        assert found["turns"] * 1000 * n == pytest.approx(totals.distributed + totals.virtual_distributed)
        indptr = np.cumsum([0, *map(len, case["links"])])
        indices = np.array([target for targets in case["links"] for target in targets], dtype=np.int64)
        assert found["pagerank"] == pytest.approx(pagerank(indptr, indices).tolist(), abs=1e-9)
    assert visited["random"] == set(range(12))


def test_estimates_tend_to_pagerank():
    """What the explainer says of its third scene: with all that was ever received, repeated visits, and 0.15."""
    links = [[1, 2], [2], [0, 3], [4], [], [2, 0, 3]]
    for policy in ("greedy", "random", "cycle"):
        case = {"links": links, "policy": policy, "steps": 3000, "seed": 1, "spending": "chosen"}
        (found,) = call(SCRIPTS, "driveWebs", [case])
        far = sum(abs(one - other) for one, other in zip(found["importance"], found["pagerank"], strict=True))
        assert far < 0.003, policy


def test_the_polite_crawl_of_the_explainer_is_that_of_the_production_frontier():
    rng = random.Random(5)
    cases = []
    for _ in range(80):
        n, n_hosts = rng.randint(3, 30), rng.randint(1, 6)
        cases.append(
            {
                "links": random_links(rng, n),
                "hosts": [f"{rng.randrange(n_hosts)}.example" for _ in range(n)],
                "transfers": [rng.choice((0.1, 0.25, 0.7, 3.0)) for _ in range(n)],
                "seeds": rng.sample(range(n), rng.randint(1, 3)),
                "how": {
                    "factor": rng.choice((0, 1, 3.5, 10)),
                    "minGap": rng.choice((0, 0.5)),
                    "maxGap": rng.choice((1, 60)),
                    "connections": rng.choice((1, 2, 4)),
                },
                "fetches": n,
            }
        )
    n_visits = n_waits = 0
    for case, found in zip(cases, call(SCRIPTS, "driveCrawls", cases), strict=True):
        how = case["how"]
        politeness = Politeness(factor=how["factor"], min_gap=how["minGap"], max_gap=how["maxGap"])
        simulation = Simulation(
            case["links"].__getitem__,
            case["hosts"].__getitem__,
            case["seeds"],
            case["fetches"],
            Policy(order=Opic(), politeness=politeness),
            transfer=case["transfers"].__getitem__,
            connections=how["connections"],
        )
        visits = [list(visit) for visit in simulation.run()]
        assert simulation.violations() == []
        assert [visit[:3] for visit in found["visits"]] == visits
        crawl, accounts = simulation.crawl, simulation._cash.accounts
        assert {number: (cash, history) for number, cash, history in found["pages"]} == {
            number: (str(crawl.ledger.cash(page)), str(page.history))
            for number, account in accounts.items()
            if (page := crawl.page(account.link.key)) is not None
        }
        assert found["virtual"] == str(crawl.ledger.totals.virtual)
        n_visits += len(visits)
        n_waits += sum(later[1] > earlier[2] for earlier, later in pairwise(visits))
    assert n_visits > 500
    assert n_waits > 100


# What readers bring


def test_my_crawl_reads_what_top_writes(tmp_path):
    make_job(tmp_path, "sqlite", 40)
    store = open_snapshot(store_folder(tmp_path))
    try:
        rows = top_pages(View([store]), 25)
        hosts = top_hosts(View([store]), 25)
    finally:
        store.close()
    read, read_hosts = call(
        SCRIPTS,
        "read",
        [
            ["fromTop", json.dumps(msgspec.to_builtins([row._asdict() for row in each]))]
            for each in (rows, hosts)
        ],
    )
    assert [(row["name"], row["visits"]) for row in read_hosts] == [(row.host, row.visited) for row in hosts]
    assert [row["name"] for row in read] == [row.url for row in rows]
    assert [row["importance"] for row in read] == [row.importance for row in rows]


HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e\u0000'


def test_my_crawl_says_what_is_wrong_with_any_other_file():
    row = {"url": HOSTILE, "importance": 0.5, "cash": 1, "history": 2, "visits": 3, "state": HOSTILE}
    wrong = [(key, value) for key in row if key != "state" for value in (None, "<b>", -1, [], {})]
    wrong.remove(("url", "<b>"))  # a strange address, but one
    rows = [HOSTILE, None, [], *(row | {key: value} for key, value in [*wrong, ("importance", 2)])]
    broken = ["", "{", "[]", "{}", "null", "3", *(json.dumps([each]) for each in rows)]
    broken.append(json.dumps([row | {"cash": 10**400}]).replace("0" * 400, "e999"))
    found = call(SCRIPTS, "read", [["fromTop", text] for text in broken])
    assert [text for text, each in zip(broken, found, strict=True) if not isinstance(each, str)] == []
    (good,) = call(SCRIPTS, "read", [["fromTop", json.dumps([row])]])
    assert good == [
        {"name": HOSTILE, "importance": 0.5, "cash": 1, "history": 2, "visits": 3, "state": HOSTILE}
    ]


def test_a_drawn_web_survives_its_address_and_nothing_else_is_taken_for_one():
    rng = random.Random(7)
    webs = []
    for _ in range(50):
        n = rng.randint(1, 30)
        links = [
            sorted({target for target in row if target != page})
            for page, row in enumerate(random_links(rng, n))
        ]
        webs.append(
            {"places": [[rng.randint(0, 100), rng.randint(0, 100)] for _ in range(n)], "links": links}
        )
    for web, (fragment, again) in zip(webs, call(SCRIPTS, "writeAndRead", webs), strict=True):
        assert again == web, fragment
    nonsense = ["", "#", "#web=", "web=1,1", "web=1,101/", "web=1,2,3/", "web=<b>/", "web=1,1;2,2/0"]
    nonsense += ["web=;/;", "web=" + ";".join(["1,1"] * 31) + "/" + ";" * 30, "web=" + "1" * 10**6, HOSTILE]
    assert call(SCRIPTS, "read", [["fromFragment", text] for text in nonsense]) == [None] * len(nonsense)
    # Links to pages that are not there, and to the page itself, are left out.
    assert call(SCRIPTS, "read", [["fromFragment", "#web=1,1;2,2/0.1.7;0.0"]])[0]["links"] == [[1], [0]]


def test_links_are_read_as_readers_write_them():
    texts = ["1: 2 3\n2:3\n3:", " 2 : 1,1 , 2\n\n", "1:\n1: 2\n2: 1"]
    links = [[[1, 2], [2], []], [[], [0]], [[1], [0]]]
    assert call(SCRIPTS, "read", [["fromText", text] for text in texts]) == links
    wrong = ["", "  \n", "1", "a: 1", "1: 31", "0: 1", "1: 0", "1: 2; 3", HOSTILE, "1: 999999999999"]
    assert all(
        isinstance(each, str) for each in call(SCRIPTS, "read", [["fromText", text] for text in wrong])
    )
