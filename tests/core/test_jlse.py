"""JLSE against the numbers of its paper, and what it is built of against plain reference models."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_aopic.core.focus.published.bm25 import K1, MOST_DOCUMENTS, B, Index
from scrapy_aopic.core.focus.published.jlse import FIELDS, LEAST_PAGE, NO_EVIDENCE, Ata, Jlse, Memory, growing
from scrapy_aopic.core.focus.published.success_graph import MOST_PAGES, SuccessGraph
from scrapy_aopic.core.focus.strategy import PageSeen, Strategy
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.exceptions import StorageError

WORDS = st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"])
DOCUMENTS = st.tuples(*[st.lists(WORDS, max_size=6)] * 3)


def swept(edges: list[tuple[int, int]], results: set[int], reward: float, gamma: float) -> dict[int, float]:
    """Q of the paper by sweeps of its equations 17 and 18 until nothing changes, with absorbing results."""
    after: dict[int, list[int]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    q = dict.fromkeys({page for edge in edges for page in edge} | results, 0.0)
    for _ in range(len(q) + 1):
        for page in q:
            if page not in results:
                found = [reward if to in results else gamma * q[to] for to in after.get(page, ())]
                q[page] = max(found, default=0.0)
    return {page: value for page, value in q.items() if value}


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=40), st.floats(0.1, 0.95))
def test_worth_is_kept_up_as_pages_come_in(tree, gamma):
    """A page at a time, under a parent among those before it, against sweeps over the finished graph."""
    graph = SuccessGraph(gamma)
    edges, results = [], set()
    for number, (parent, is_result) in enumerate(tree):
        at = parent % number if number else None
        if at is not None:
            edges.append((at, number))
        if is_result:
            results.add(number)
        graph.note(
            b"%d" % number, b"" if at is None else b"%d" % at, LinkText(str(number)), is_result=is_result
        )
    behind = swept(edges, results, 1.0, gamma)
    expected = {number: gamma * q for number, q in behind.items()} | dict.fromkeys(results, 1.0)
    assert {int(key): step.worth for key, step in graph.pages.items() if step.worth} == pytest.approx(
        expected
    )
    assert all(0.0 <= step.worth <= 1.0 for step in graph.pages.values())
    assert graph.n_results == sum(is_result for _, is_result in tree)


def test_the_graph_forgets_the_oldest_pages():
    graph = SuccessGraph(most=3)
    for number in range(10):
        graph.note(b"%d" % number, b"%d" % (number - 1), LinkText(str(number)), is_result=number == 9)
    assert list(graph.pages) == [b"7", b"8", b"9"]
    assert [link.anchor for link, _ in graph.successes(2)] == ["9", "8"]
    assert MOST_PAGES <= 10_000


def test_a_page_that_is_its_own_ancestor_ends_the_walk():
    graph = SuccessGraph()
    graph.note(b"a", b"b", LinkText("a"), is_result=False)
    graph.note(b"b", b"a", LinkText("b"), is_result=True)
    assert [step.worth for step in graph.pages.values()] == pytest.approx([0.9, 1.0])


def plain_bm25(documents: list[tuple[list[str], ...]], query: tuple[list[str], ...]) -> list[float]:
    """Scores of all documents by the formula: a mean over fields, each divided by what the query has with itself."""
    n = len(documents)
    scores = [0.0] * n
    for field, weight in enumerate(FIELDS):
        mean = sum(len(document[field]) for document in documents) / n or 1.0

        def score(terms: list[str], field: int = field, mean: float = mean) -> float:
            total = 0.0
            for term in set(query[field]):
                df = sum(term in document[field] for document in documents)
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
                f = Counter(terms)[term]
                total += idf * f * (K1 + 1) / (K1 * (B * len(terms) / mean + 1 - B) + f)
            return total

        own = score(query[field])
        for number, document in enumerate(documents):
            if own:
                scores[number] += weight * score(document[field]) / own
    return scores


@given(st.lists(DOCUMENTS, min_size=1, max_size=25), DOCUMENTS)
@settings(deadline=None)
def test_a_search_finds_what_the_formula_says(documents, query):
    expected = plain_bm25(documents, query)
    found = Index(documents, FIELDS).nearest(query)
    best = max(expected)
    assert (found is not None) == (best > 0)
    if found is not None:
        assert found.score == pytest.approx(min(best, 1.0))
        assert expected[found.number] == pytest.approx(best)


def test_a_document_is_like_itself_and_an_unknown_one_like_none():
    index = Index([(["open", "data"], ["docs"], ["see", "also"]), (["close"], [], [])], FIELDS)
    assert index.nearest((["open", "data"], ["docs"], ["see", "also"])) == (0, pytest.approx(1.0))
    assert index.nearest((["never"], [], [])) is None
    assert Index([], FIELDS).nearest((["never"], [], [])) is None


def test_an_index_is_bounded():
    with pytest.raises(ValueError, match="5000 documents"):
        Index([([], [], [])] * (MOST_DOCUMENTS + 1), FIELDS)
    with pytest.raises(ValueError, match="sum 1"):
        Index([], (0.5, 0.2))


def test_the_graph_is_read_seldomer_the_more_there_is():
    times = [growing(0)]
    while len(times) < 5:
        times.append(growing(times[-1]))
    assert times == [15, 20, 26, 34, 45]


KEYWORD = Topic(["comet"])


def page(
    key: int, parent: int | None = None, anchor: str = "", *, grade: float = 0.0, text: str = ""
) -> PageSeen:
    link = LinkText(anchor) if parent is not None else None
    came_from = b"" if parent is None else b"%d" % parent
    return PageSeen("", grade, 0.5, grade >= 0.5, b"%d" % key, came_from, link, text=text)


def test_evidence_is_the_text_of_a_link_before_anything_was_found():
    links = [LinkText("A comet"), LinkText("Home"), LinkText("", path="/comet")]
    for strategy in (Jlse(KEYWORD, Random(1)), Ata(KEYWORD, Random(1))):
        assert strategy.values(page(1, grade=0.8), links) == pytest.approx(
            [math.sqrt(0.8 * each) for each in (1.0, NO_EVIDENCE, NO_EVIDENCE)]
        )
        assert strategy.values(page(1, grade=0.0), links)[0] == math.sqrt(LEAST_PAGE)


def found_behind_catalogs(strategy: Strategy, n: int) -> None:
    """*n* relevant pages, each behind a link to a catalog that says nothing of the topic."""
    strategy.learn(page(0))
    for number in range(1, 2 * n, 2):
        strategy.learn(page(number, 0, "All our catalogs"))
        strategy.learn(page(number + 1, number, "More about it", grade=0.9, text="comet " * 100))


def test_links_like_those_that_led_to_results_are_worth_what_they_were():
    strategy = Jlse(KEYWORD, Random(1))
    links = [LinkText("All our catalogs"), LinkText("More about it"), LinkText("Imprint")]
    found_behind_catalogs(strategy, 14)
    assert strategy.version == 0
    found_behind_catalogs(strategy, 1)
    assert strategy.version == 1
    assert strategy.values(page(99, grade=1.0), links) == pytest.approx(
        [math.sqrt(each) for each in (0.5 * 0.9, 0.5, NO_EVIDENCE)]
    )
    assert strategy.revalue(0.0, links[0]) == pytest.approx(math.sqrt(LEAST_PAGE * 0.45))


def test_what_led_to_results_is_kept():
    strategy = Jlse(KEYWORD, Random(1))
    found_behind_catalogs(strategy, 15)
    again = Jlse(KEYWORD, Random(1))
    again.restore(strategy.pack())
    assert again.memory.graph.n_results == 15
    for text in ("All our catalogs", "More about it", "Imprint"):
        assert again.memory.predict(LinkText(text)) == strategy.memory.predict(LinkText(text))
    assert Jlse(KEYWORD, Random(1)).pack() == b""


@given(st.binary(max_size=40))
def test_what_was_kept_and_is_damaged_changes_nothing(data):
    memory = Memory(KEYWORD)
    if data:
        with pytest.raises(StorageError):
            memory.restore(data)
    assert memory.version == memory.graph.n_results == 0


def test_damage_anywhere_is_noticed_or_does_no_harm():
    strategy = Jlse(KEYWORD, Random(1))
    found_behind_catalogs(strategy, 15)
    data = strategy.pack()
    for at in range(len(data)):
        memory = Memory(KEYWORD)
        try:
            memory.restore(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        except StorageError:
            assert memory.version == 0
        assert 0.0 <= memory.predict(LinkText("All our catalogs")) <= 1.0
