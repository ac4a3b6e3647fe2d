from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.graph import FrozenGraph, KnownGraph

np = pytest.importorskip("numpy")

MEAN = 1 << 16
"""Score of a page that has as much as the mean page."""


def graph(links: dict[str, str]) -> KnownGraph:
    """A graph of pages with one letter each."""
    known = KnownGraph()
    for source, targets in links.items():
        known.add(source.encode(), [target.encode() for target in targets])
    return known


def matrix(frozen: FrozenGraph):
    """1 where the page of the row links to that of the column."""
    links = np.zeros((frozen.n, frozen.n))
    links[frozen.source, frozen.target] = 1
    return links


def true_pagerank(links, damping=0.85):
    """By solving the equations."""
    n = len(links)
    degree = links.sum(axis=1, keepdims=True)
    walk = np.where(degree > 0, links / np.maximum(degree, 1), 1 / n)
    return np.linalg.solve(np.eye(n) - damping * walk.T, np.full(n, (1 - damping) / n))


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 12))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    links = draw(st.lists(pairs, unique=True, max_size=40)) if n > 1 else []
    source, target = (np.array([pair[side] for pair in links], dtype=np.int64) for side in (0, 1))
    return FrozenGraph(n, source, target)


# -- what is known


def test_a_frozen_graph_does_not_grow():
    known = graph({"a": "b"})
    frozen = known.frozen()
    known.add(b"b", [b"a", b"c"])
    assert (frozen.n, len(frozen.source), len(known)) == (2, 1, 3)


# -- PageRank


@given(graphs())
def test_scores_are_parts_of_the_mean_and_never_nothing(frozen):
    scores = np.array(frozen.pagerank())
    assert scores.min() >= 1
    assert scores == pytest.approx(true_pagerank(matrix(frozen)) * frozen.n * MEAN, rel=2e-3, abs=2)
    assert all(isinstance(score, int) for score in frozen.pagerank())


def test_pages_without_any_links_are_all_alike():
    frozen = FrozenGraph(5, np.array([], np.int64), np.array([], np.int64))
    assert frozen.pagerank() == [MEAN] * 5


# -- HITS


def test_authority_is_what_good_hubs_link_to():
    """Three hubs link to a, two of them to b, a fourth page that nobody else joins links to c."""
    frozen = graph({"1": "ab", "2": "ab", "3": "a", "4": "c"}).frozen()
    score = dict(
        zip(graph({"1": "ab", "2": "ab", "3": "a", "4": "c"}).keys, frozen.authorities(), strict=True)
    )
    assert score[b"a"] > score[b"b"] > score[b"c"]
    assert score[b"1"] == score[b"4"] == 1


@pytest.mark.slow
@given(graphs())
def test_authorities_are_those_of_the_power_method(frozen):
    links = matrix(frozen)
    expected = np.full(frozen.n, 1 / frozen.n)
    for _ in range(50):
        expected = links.T @ (links @ expected)
        expected /= expected.sum() or 1
    scores = np.array(frozen.authorities())
    assert scores / MEAN / frozen.n == pytest.approx(expected, abs=0.01)
    assert scores.min() >= 1


def test_without_links_nobody_has_authority():
    assert FrozenGraph(3, np.array([], np.int64), np.array([], np.int64)).authorities() == [1, 1, 1]
