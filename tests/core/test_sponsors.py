"""What lies behind a link is one family: farms of domains, and honest sites that are found once or twice."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_crawl import write_changes

from scrapy_aopic.core.domains import Domains
from scrapy_aopic.core.frontier.host_state import HostState
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import pack
from scrapy_aopic.core.sponsors import FAMILY, MAX_SPONSORS
from scrapy_aopic.lab.simulation import Simulation
from scrapy_aopic.storage.memory import MemoryStore

BUDGET, FREE = 0.02, 3.0
PART = FAMILY * BUDGET


class Desk:
    """Domains by name; each fetch is one visit of the crawl."""

    def __init__(self, *seeds: str) -> None:
        self.store = MemoryStore()
        self.domains = Domains(self.store, str, BUDGET, FREE)
        self.visits = 0
        for seed in seeds:
            self.domains.vouch(self.key(seed), seed.encode())

    def key(self, name: str) -> bytes:
        return self.domains.key(HostState(name))

    def link(self, source: str, *targets: str) -> None:
        for target in targets:
            self.domains.support(self.key(target), self.key(source))

    def is_late(self, name: str) -> bool:
        key = self.key(name)
        return bool(self.domains.sponsors.blocker(key, self.domains.get(key), self.visits)[0])

    def fetch(self, name: str, n: int = 1) -> None:
        for _ in range(n):
            self.domains.count(self.key(name), 1)
            self.domains.sponsors.charge(self.key(name), self.visits)
            self.visits += 1

    def sponsors(self, name: str) -> dict[bytes, int]:
        domain = self.domains.get(self.key(name))
        return dict(zip(domain.sponsors, domain.charges, strict=True))

    def commit(self) -> None:
        write_changes([self.domains.table], self.store)

    def reopen(self) -> None:
        self.commit()
        self.domains = Domains(self.store, str, BUDGET, FREE)


def test_a_domain_that_is_found_from_itself_has_no_sponsor_and_its_routes_end():
    for hops in range(8):
        desk = Desk("seed")
        # Nothing vouches for "made", and it is linked to only by what was found from it.
        names = ["made", *(f"d{number}" for number in range(hops))]
        for source, target in pairwise([*names, "made"]):
            desk.link(source, target)
        assert desk.sponsors("made") == {}, hops
        assert [len(desk.sponsors(name)) for name in names[1:]] == [1] * hops, hops
        for name in names:
            desk.fetch(name, 20)
        assert [desk.is_late(name) for name in names] == [False] + [True] * hops, hops


def test_the_first_fetches_behind_a_link_into_another_shard_do_not_stand_for_all_shards():
    """One domain that another shard's has found is no family that is spread over all of them."""
    desk = Desk("seed")
    hub = desk.key("hub")
    desk.domains = Domains(desk.store, str, BUDGET, FREE, is_own=lambda key: key != hub)
    desk.domains.introduce(hub + desk.key("seed"))
    desk.link("hub", "a")
    charged, late = [], []
    for _ in range(8):
        desk.domains.sponsors.charge(desk.key("a"), desk.visits, 50)
        desk.visits += 50
        charged.append((*desk.sponsors("a").values(), *desk.sponsors("hub").values()))
        late.append(desk.is_late("a"))
    assert [own for own, _ in charged] == list(range(1, 9))
    assert [other for _, other in charged] == [1, 3, 7, 15, 31, 63, 113, 163]
    assert late == [False] * 3 + [
        other > PART * visits for visits, (_, other) in zip(range(200, 401, 50), charged[3:], strict=True)
    ]


def test_what_is_charged_after_a_commit_outlives_the_next_one():
    desk = Desk("seed")
    desk.link("seed", "hub")
    desk.link("hub", "far")
    for n in (1, 2, 3):
        desk.fetch("far")
        desk.commit()
        desk.domains = Domains(desk.store, str, BUDGET, FREE) if n == 3 else desk.domains
        assert list(desk.sponsors("hub").values()) == [n]


def test_a_domain_whose_record_was_lost_may_be_found_by_what_it_found():
    desk = Desk("seed")
    desk.link("seed", "lost")
    desk.link("lost", "other")
    desk.reopen()
    desk.store.write({Family.DOMAINS: {desk.key("lost"): None}}, sync=True)
    desk.link("other", "lost")
    assert desk.sponsors("lost") == {}
    assert list(desk.sponsors("other")) == [desk.key("lost")]
    desk.fetch("other", 20)
    assert desk.is_late("other")


def test_what_is_behind_a_link_is_charged_to_it_however_many_domains_it_is_on():
    desk = Desk("seed")
    desk.link("seed", "head")
    for number in range(3):
        desk.link("head", f"farm{number}")
        assert not desk.is_late(f"farm{number}")
        desk.fetch(f"farm{number}")
    assert desk.sponsors("head") == {desk.key("seed"): 3}
    assert all(desk.is_late(name) for name in ("head", "farm0", "farm2"))
    desk.fetch("seed", 27)
    assert not desk.is_late("farm0")  # three are a tenth of thirty
    desk.fetch("farm0")
    assert desk.is_late("farm1")


def test_a_seed_s_domain_answers_for_itself():
    desk = Desk("seed")
    desk.link("seed", "a")
    desk.fetch("a", 3)
    assert desk.is_late("a")
    desk.domains.vouch(desk.key("a"), b"a page")
    assert desk.sponsors("a") == {}
    desk.fetch("a", 100)
    assert not desk.is_late("a")


def test_a_site_that_is_found_elsewhere_is_in_time_again():
    desk = Desk("seed", "other")
    desk.link("seed", "hub")
    desk.link("hub", "a", "b")
    desk.fetch("hub", 3)
    assert desk.is_late("a")
    desk.link("b", "a")
    assert desk.is_late("a")  # by the same link
    desk.link("other", "a")
    assert not desk.is_late("a")
    desk.fetch("a")
    assert desk.sponsors("a")[desk.key("other")] == 1
    assert desk.sponsors("hub") == {desk.key("seed"): 3}


def test_nobody_is_sponsored_by_what_lives_on_it():
    desk = Desk("seed")
    desk.link("seed", "a")
    desk.link("a", "b")
    desk.link("b", "c")
    desk.link("b", "a")
    desk.link("c", "a")
    assert list(desk.sponsors("a")) == [desk.key("seed")]


def test_of_many_sponsors_good_ones_drive_out_those_with_no_room():
    desk = Desk("seed", "other")
    desk.link("seed", "head")
    desk.link("head", *(f"farm{number}" for number in range(20)))
    desk.link("head", "victim")
    desk.fetch("head", 3)
    for number in range(20):
        desk.link(f"farm{number}", "victim")
    assert len(desk.sponsors("victim")) == MAX_SPONSORS
    assert desk.is_late("victim")
    desk.link("other", "victim")
    assert len(desk.sponsors("victim")) == MAX_SPONSORS
    assert not desk.is_late("victim")


def test_a_chain_of_domains_is_no_long_way():
    desk = Desk("seed")
    names = ["seed", *(f"farm{number}" for number in range(200))]
    for source, target in pairwise(names):
        desk.link(source, target)
        desk.fetch(target)
    assert desk.sponsors("farm0") == {desk.key("seed"): 200}
    assert len(desk.domains.sponsors.known_route(desk.key("farm199"), desk.visits).hops) < 10


def test_charges_outlive_a_restart():
    desk = Desk("seed", "other")
    desk.link("seed", "a")
    desk.link("other", "a")
    desk.link("a", "b")
    desk.fetch("b", 5)
    before = [(desk.sponsors(name), desk.is_late(name)) for name in ("a", "b")]
    desk.reopen()
    assert [(desk.sponsors(name), desk.is_late(name)) for name in ("a", "b")] == before
    assert sum(desk.sponsors("a").values()) == 5


def test_domains_of_a_job_from_before_are_as_good_as_seeds():
    desk = Desk("seed")
    desk.store.write({Family.DOMAINS: {desk.key("old"): pack([7, bytes([1] * 64), 0])}}, sync=True)
    desk.link("seed", "old")
    desk.fetch("old", 50)
    assert not desk.is_late("old")
    assert desk.domains.get(desk.key("old")).visited == 57
    desk.link("old", "new")
    desk.fetch("new", 50)
    assert desk.is_late("new")


def test_without_budgets_nobody_is_asked_who_answers():
    domains = Domains(MemoryStore(), str)
    key = domains.key(HostState("a"))
    domains.support(key, b"somebody")
    assert domains.get(key).sponsors == []
    assert not domains.sponsors


HONEST, FARM = [f"h{number}" for number in range(5)], [f"f{number}" for number in range(6)]


@given(
    entries=st.lists(st.tuples(st.sampled_from(HONEST), st.sampled_from(FARM)), max_size=3, unique=True),
    steps=st.lists(st.tuples(st.sampled_from(HONEST + FARM), st.sampled_from(HONEST + FARM)), max_size=150),
)
def test_a_farm_gets_what_the_links_into_it_carry_however_it_links_inside(entries, steps):
    """Each step is a link between two domains that a crawl has found, and a fetch of the target if that is in time."""
    desk, known, taken = Desk("h0"), {"h0"}, 0
    for source, target in steps:
        is_entry = source in HONEST and target in FARM
        if source in known and source != target and (not is_entry or (source, target) in entries):
            desk.link(source, target)
            known.add(target)
        if target in known and not desk.is_late(target):
            desk.fetch(target)
            taken += target in FARM
        else:
            desk.fetch("h0")
        assert taken <= len(entries) * max(FREE, PART * desk.visits + 1)
    for name in known:
        hops = desk.domains.sponsors.known_route(desk.key(name), desk.visits).hops
        assert len({hop.key for hop in hops}) == len(hops) <= 8
        assert not hops or hops[-1].domain.sponsors[hops[-1].sponsor] == desk.key("h0")


# -- whole crawls


SITES, PAGES = 20, 40


class FarmWeb:
    """Twenty honest sites of forty pages that a directory links to, and behind one link a farm without end.

    The farm's domains have three pages each, and link to five new ones and to two that are known.
    """

    directory, head = SITES * PAGES, SITES * PAGES + 1

    def out_links(self, page: int) -> list[int]:
        if page < self.directory:
            site, number = divmod(page, PAGES)
            own = [site * PAGES + each for each in (2 * number + 1, 2 * number + 2) if each < PAGES]
            return [*own, (site + 1) % SITES * PAGES]
        if page == self.directory:
            return [*range(0, SITES * PAGES, PAGES), self.head]
        domain, number = divmod(page - self.head, 3)
        domains = range(5 * domain + 1, 5 * domain + 6) if number == 0 else (domain // 2, domain // 3)
        return [
            *(self.head + 3 * (each % 10**9) for each in domains),
            *((page + 1, page + 2) if number == 0 else ()),
        ]

    def host_of(self, page: int) -> str:
        if page < self.directory:
            return f"www.site{page // PAGES}"
        return "www.directory" if page == self.directory else f"www.farm{(page - self.head) // 3}"


def crawl_of(web: Any, seeds: list[int], fetches: int, **order: float) -> tuple[Simulation, list[int]]:
    aopic = Aopic()
    for name, value in order.items():
        setattr(aopic, name, value)
    policy = Policy(order=aopic, domain_of=lambda host: host.rpartition(".")[2], max_active=50)
    simulation = Simulation(web.out_links, web.host_of, seeds, fetches, policy)
    visited = [visit.page for visit in simulation.run()]
    assert simulation.violations() == []
    return simulation, visited


@pytest.mark.slow
def test_a_farm_behind_a_link_takes_a_twentieth_while_honest_sites_may_be_asked_and_then_all():
    web = FarmWeb()
    _, visited = crawl_of(web, [web.directory], 1500)
    assert len(visited) == 1500  # nothing idles
    last = max(number for number, page in enumerate(visited) if page < web.directory)
    assert sum(page < web.directory for page in visited) == SITES * PAGES
    assert sum(page >= web.head for page in visited[:last]) < 0.06 * last
    _, without = crawl_of(web, [web.directory], 1000, budget=0.0)
    assert sum(page >= web.head for page in without) > 400


@pytest.mark.slow
def test_what_is_remembered_of_late_farms_does_not_grow_with_their_domains():
    simulation, visited = crawl_of(FarmWeb(), [FarmWeb.directory], 2000)
    frontier = simulation.crawl.frontier
    assert sum(page >= FarmWeb.head for page in visited) > 1000
    assert frontier.n_hosts > 1000
    assert len(frontier.places.late) + len(frontier.places.shelves) < 100
    assert len(frontier.active) <= 51


class HubWeb:
    """Three large sites, the first of which links to a hub with links to 400 young sites of five pages each.

    Of these, the second half of the other large sites links to every second, one from each page. A page of a large site links
    to two new ones and to the third next one: if one link led to each, it would be a tree (:mod:`scrapy_aopic.core.branches`).
    """

    large, young = 1000, 400
    hub = 3 * large

    def out_links(self, page: int) -> list[int]:
        if page < self.hub:
            site, number = divmod(page, self.large)
            near = 2 * number + 1, 2 * number + 2, number + 3
            own = [site * self.large + each for each in near if each < self.large]
            if site == 0:
                return [*own, *([self.hub] if number == 0 else [])]
            return [*own, *([self.home(2 * (number * 2 + site - 1) % self.young)] if number > 250 else [])]
        if page == self.hub:
            return [self.home(number) for number in range(self.young)]
        number = (page - self.hub - 1) % 5
        return [page + each for each in range(1, 5)] if number == 0 else []

    def home(self, number: int) -> int:
        return self.hub + 1 + 5 * number

    def host_of(self, page: int) -> str:
        if page < self.hub:
            return f"large{page // self.large}"
        return "hub" if page == self.hub else f"young{(page - self.hub - 1) // 5}"


@pytest.mark.slow
def test_young_sites_behind_one_good_link_are_found_as_soon_as_without_budgets_once_others_link_to_them():
    web = HubWeb()
    seeds = [0, web.large, 2 * web.large]
    for fetches in (1500, 2500):
        n_found = []
        for order in ({}, {"budget": 0.0}):
            _, visited = crawl_of(web, seeds, fetches, **order)
            n_found.append(len({web.home(number) for number in range(0, web.young, 2)} & set(visited)))
        assert n_found[0] >= 0.95 * n_found[1]
    assert n_found[0] == web.young // 2
