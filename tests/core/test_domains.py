from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.domain import estimate
from scrapy_aopic.core.domains import Domains
from scrapy_aopic.core.frontier.host_state import HostState
from scrapy_aopic.core.ports import Family
from scrapy_aopic.storage.memory import MemoryStore


def last_label(host: str) -> str:
    return host.rpartition(".")[2]


def domains(store: MemoryStore | None = None) -> Domains:
    return Domains(store if store is not None else MemoryStore(), last_label)


def key(of: Domains, name: str) -> bytes:
    return of.key(HostState(name))


def supporters(of: Domains, domain: bytes) -> float:
    return of.get(domain).supporters


def test_a_supporter_counts_once():
    known = domains()
    a, b, c = (key(known, name) for name in "abc")
    assert known.support(a, b)
    assert not known.support(a, b)
    once = supporters(known, a)
    assert once == pytest.approx(1, abs=0.01)
    assert known.support(a, c)
    assert supporters(known, a) == pytest.approx(2, abs=0.05)
    assert supporters(known, b) == 0.0


def test_the_number_of_supporters_is_estimated_without_bias_and_within_some_percent():
    for n in [5, 20, 100, 1000]:
        known, estimates = domains(), []
        for number in range(60):
            domain = key(known, f"domain{number}")
            for supporter in range(n):
                known.support(domain, b"%d of %d" % (supporter, number))
            estimates.append(supporters(known, domain))
        assert sum(estimates) / len(estimates) == pytest.approx(n, rel=0.04), n
        assert math.sqrt(sum((each / n - 1) ** 2 for each in estimates) / len(estimates)) < 0.14, n


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=100), st.randoms())
def test_neither_order_nor_repetition_matters(keys, dice):
    first, second = domains(), domains()
    last = 0.0
    for supporter in keys:
        rose = first.support(b"domain..", supporter)
        assert rose == (supporters(first, b"domain..") > last)
        last = supporters(first, b"domain..")
    shuffled = [*keys, *keys[:5]]
    dice.shuffle(shuffled)
    for supporter in shuffled:
        second.support(b"domain..", supporter)
    assert supporters(second, b"domain..") == last


def test_a_sketch_that_is_full_is_no_error():
    assert estimate(bytes([58] * 64)) > 1e9
    assert estimate(bytes(64)) == 0.0


def test_who_seeds_a_page_vouches_for_its_domain():
    known = domains()
    a, b, c = (key(known, name) for name in "abc")
    for domain, seed in ((a, b"seed 1"), (a, b"seed 2"), (b, b"seed 3"), (a, b"seed 4")):
        known.vouch(domain, seed)
    known.support(c, a)
    assert [known.seeded(known.get(domain)) for domain in (a, b, c)] == [0.75, 0.25, 0.0]
    assert supporters(known, a) == pytest.approx(3, abs=0.1)
    assert supporters(known, b) == pytest.approx(1, abs=0.01)


def test_without_seeds_no_domain_has_a_part_of_them():
    known = domains()
    assert known.seeded(known.get(b"domain..")) == 0.0


def test_what_is_known_outlives_a_restart():
    store = MemoryStore()
    known = domains(store)
    a, b = key(known, "a"), key(known, "b")
    known.count(a, 7)
    known.vouch(a, b"a seed")
    for number in range(100):
        known.support(a, b"supporter %d" % number)
    known.count(b, 1)
    store.write({Family.DOMAINS: known.table.take()}, sync=True)
    known.table.landed()
    again = domains(store)
    assert (again.get(a).visited, again.get(a).seeds, again.get(b).visited) == (7, 1, 1)
    assert supporters(again, a) == supporters(known, a) > 50
    assert not again.support(a, b"supporter 42")


def test_a_domain_without_supporters_takes_little_room():
    store = MemoryStore()
    known = domains(store)
    known.count(key(known, "a"), 1)
    (row,) = known.table.take().values()
    assert len(row) < 10
