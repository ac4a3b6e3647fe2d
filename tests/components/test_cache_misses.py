"""The counts of misses in ``benchmarks/caches.py``: one pass for all sizes says what runs at one size each say."""

from __future__ import annotations

import importlib.util
import random
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.lab.graphs import Graph

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "caches.py"
sys.path.insert(0, str(SCRIPT.parent))
spec = importlib.util.spec_from_file_location("benchmark_of_caches", SCRIPT)
caches = importlib.util.module_from_spec(spec)
spec.loader.exec_module(caches)

from cache_policies import LruCache

STREAMS = st.lists(st.integers(0, 20), min_size=1, max_size=200)


def min_at(stream: list[int], size: int) -> int:
    """Misses of a cache that looks into the future each time."""
    held: set[int] = set()
    misses = 0
    for moment, key in enumerate(stream):
        rest = stream[moment + 1 :]
        misses += key not in held
        held.add(key)
        if len(held) > size:
            held.remove(max(held, key=lambda each: rest.index(each) if each in rest else len(rest)))
    return misses


@pytest.mark.slow
@given(STREAMS)
def test_one_pass_counts_what_the_cache_of_the_package_misses_at_each_size(stream: list[int]):
    keys = [b"%d" % key for key in stream]
    misses = caches.lru_misses(stream)
    assert misses == [caches.run(LruCache(), keys, 1 << log) for log in range(len(misses))]
    assert misses[-1] == len(set(stream))


@pytest.mark.slow
@given(STREAMS)
def test_one_pass_counts_what_the_clairvoyant_misses_at_each_size(stream: list[int]):
    misses = caches.min_misses(stream)
    assert misses == [min_at(stream, 1 << log) for log in range(len(misses))]
    assert misses[-1] == len(set(stream))


def test_no_policy_beats_the_bound_and_all_end_where_nothing_has_to_go():
    dice = random.Random(1)
    stream = [int(dice.random() ** 3 * 500) for _ in range(5000)]
    found = caches.measure(stream, caches.POLICIES, 1, lambda _: None)
    for rates in found["rates"].values():
        assert all(rate >= bound for rate, bound in zip(rates, found["rates"]["min"], strict=True))
        assert rates[-1] == found["infinite"] == len(set(stream)) / len(stream)
    times = caches.beside_min(found["rates"])
    assert times.keys() == found["rates"].keys() - {"min"}
    for policy, each in times.items():
        assert min(each) == each[-1] == 1
        assert max(each) > 1
        assert each[4] == pytest.approx(found["rates"][policy][4] / found["rates"]["min"][4])


def test_hosts_take_turns_and_every_page_that_can_be_reached_is_fetched_once():
    # Three chains of ten pages, each on a host of its own, and a page that nothing leads to.
    links = [[page + 1] if page % 10 != 9 and page < 30 else [] for page in range(31)]
    indptr = np.cumsum([0, *map(len, links)])
    graph = Graph(
        "chains", indptr, np.array(list(chain(*links))), [f"host{page // 10}" for page in range(31)]
    )
    for at_once, begin in ((1, [0, 1, 2, 3]), (2, [0, 10, 1, 11]), (5, [0, 10, 20, 1])):
        fetched = list(caches.take_turns(graph, [0, 10, 20], at_once))
        assert fetched[:4] == begin
        assert sorted(fetched) == list(range(30))


def test_the_stream_has_the_links_of_pages_in_the_order_of_fetches_but_none_of_a_page_to_itself():
    graph = Graph("three", np.array([0, 2, 2, 5]), np.array([0, 1, 0, 1, 2]), ["host"] * 3)
    assert caches.stream_of(graph, [2, 0, 1]) == [0, 1, 1]
