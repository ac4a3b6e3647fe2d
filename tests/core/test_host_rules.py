"""Options of single hosts: which rule holds, and what follows for budgets, revisits and cash."""

from __future__ import annotations

import pickle
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_crawl import Job, link
from support.core_shards import ShardedJob
from support.naming import case

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.host_rules import NO_RULES, HostRule, HostRules
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.order import ALLOWANCE, Aopic
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.revisits import Recrawl, Version

HOUR, DAY = 3600.0, 86_400.0

RULES = HostRules(
    {
        "news.example": HostRule(min_gap=1.0),
        "fast.news.example": HostRule(min_gap=2.0),
        "example": HostRule(min_gap=3.0, factor=4.0),
        "shop.test": HostRule(factor=5.0),
    },
    [("*.shop.test", HostRule(min_gap=6.0)), ("*.test", HostRule(min_gap=7.0, max_gap=8.0)), ("*", HostRule(worth=9.0))],
)  # fmt: skip


def test_the_nearest_name_then_the_first_pattern_has_each_option():
    for host, found in [
        # the host's own name, then the nearest above it; what one does not have comes from the next
        ("fast.news.example", {"min_gap": "fast.news.example", "factor": "example", "worth": "*"}),
        ("very.fast.news.example", {"min_gap": "fast.news.example", "factor": "example", "worth": "*"}),
        ("news.example", {"min_gap": "news.example", "factor": "example", "worth": "*"}),
        ("slow.news.example", {"min_gap": "news.example", "factor": "example", "worth": "*"}),
        ("other.example", {"min_gap": "example", "factor": "example", "worth": "*"}),
        # names before patterns, patterns in their order
        ("a.shop.test", {"factor": "shop.test", "min_gap": "*.shop.test", "max_gap": "*.test", "worth": "*"}),
        ("shop.test", {"factor": "shop.test", "min_gap": "*.test", "max_gap": "*.test", "worth": "*"}),
        # the end of a name is not a name above it
        ("workshop.test", {"min_gap": "*.test", "max_gap": "*.test", "worth": "*"}),
        ("fakenews.org", {"worth": "*"}),
    ]:
        assert {option: source.name for option, source in RULES.sources(host).items()} == found, (host, found)
        rule = RULES.of(host)
        assert rule is not None, (host, found)
        with case(host, found):
            assert rule.options == {option: RULES.all[name].options[option] for option, name in found.items()}


def test_rules_know_which_of_them_have_held_and_survive_a_pickle():
    rules = pickle.loads(pickle.dumps(RULES))
    assert rules.of("a.shop.test") == RULES.of("a.shop.test")
    assert rules.used == {"shop.test", "*.shop.test", "*.test", "*"}
    assert (bool(rules), bool(NO_RULES), NO_RULES.of("a")) == (True, False, None)


LABELS = st.sampled_from(["a", "b", "ab"])
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda name, at, wild: name[:at] + wild + name[at:], NAMES, st.integers(0, 8), st.sampled_from("*?")
)
OPTIONS = st.builds(
    HostRule, factor=st.none() | st.integers(0, 3), min_gap=st.none() | st.integers(0, 3), worth=st.none() | st.integers(0, 3)
)  # fmt: skip


@given(
    st.dictionaries(NAMES, OPTIONS),
    st.lists(st.tuples(PATTERNS, OPTIONS), unique_by=lambda each: each[0]),
    st.lists(NAMES),
)
def test_the_look_up_is_as_one_that_looks_at_every_rule(names, patterns, hosts):
    rules = HostRules(names, patterns)
    for host in hosts:
        holding = sorted(
            (name for name in names if host == name or host.endswith(f".{name}")), key=len, reverse=True
        )
        layers = [names[name] for name in holding] + [
            rule for text, rule in patterns if fnmatchcase(host, text)
        ]
        found: dict[str, Any] = {}
        for rule in layers:
            found = {**rule.options, **found}
        assert rules.of(host) == (HostRule(**found) if layers else None)


# -- bytes


def test_the_gap_grows_with_the_bytes_of_a_transfer():
    assert HostRule(bytes_per_second=1000.0).gap_after(5000) == 5.0
    assert HostRule().gap_after(10**9) == 0.0


# -- budgets


def spread(job: Job, n: int) -> list[str]:
    """Hosts of the first *n* pages of a crawl in which one link leads to 60 good pages of "b", and "c" has 60 seeds."""
    job.seed(link("a", shift=40), *(link("c", number, shift=-40) for number in range(60)))
    job.visit(*(link("b", number, shift=20) for number in range(60)))
    return [job.visit().host for _ in range(n)]


def by_support(**policy: Any) -> Job:
    return Job(order=Aopic(), domain_of=str, politeness=Politeness(0.0), **policy)


def test_a_domain_has_its_own_budget_whoever_links_to_it():
    for part, more in [(1.0, 39), (0.5, 10), (0.1, 0), (0.0, 39)]:
        for reopens in [False, True]:
            free = int(ALLOWANCE)
            without = set(spread(by_support(), 59)[free:])
            assert without == {"c"}, (reopens, part, more)  # one link carries no more
            job = by_support(rules=HostRules({"b": HostRule(budget=part)}))
            assert spread(job, free) == ["b"] * free, (reopens, part, more)
            if reopens:
                job.restart()
            hosts = [job.visit().host for _ in range(39)]
            assert hosts.count("b") == more, (reopens, part, more)  # of 60 in all
            job.commit()


# -- revisits


def version(number: int) -> Version:
    return Version(bytes((number % 256,)))


def test_pages_of_a_host_come_back_by_its_own_interval_before_all_others():
    rules = HostRules(
        {"news": HostRule(revisit=(HOUR, HOUR)), "archive": HostRule(revisit=(9 * DAY, 9 * DAY))}
    )
    job = Job(recrawl=Recrawl(DAY, 2 * DAY), rules=rules)
    hosts = ["news", "archive", *(f"other{number}" for number in range(60))]  # more than there is time for
    job.seed(*map(link, hosts))
    visits = {host: [] for host in hosts}  # type: dict[str, list[float]]
    start = job.now
    for _ in range(24 * 10):
        for _ in range(2):
            lease = job.crawl.lease(job.now)
            if not isinstance(lease, Lease):
                break
            visits[lease.host].append(round((job.now - start) / HOUR))
            job.finish(lease, version=version(len(visits[lease.host])))
        job.now += HOUR + 1
    assert len(visits["news"]) >= 200
    assert all(after - before <= 2 for before, after in pairwise(visits["news"]) if before > 40)
    assert len(visits["archive"]) == 2
    assert all(after - before >= 24 for host in hosts[2:] for before, after in pairwise(visits[host]))
    assert sum(len(visits[host]) for host in hosts[2:]) > 60
    job.commit()


# -- cash at the start


@pytest.mark.parametrize("how", ["seed", "link", "announced"])
def test_the_first_page_of_a_host_gets_cash_from_the_virtual_page_once(how):
    job = Job(rules=HostRules({"rich": HostRule(worth=1000.0)}))
    pages = [link("rich", number) for number in range(3)]
    job.seed(link("a"))
    if how == "seed":
        job.seed(*pages, is_endowed=False)
    elif how == "link":
        job.visit(link("poor"), *pages)
    else:
        lease = job.lease()
        announced = job.crawl.announce(lease, pages, job.now, 3)
        job.finish(lease, *announced)
    first, *others = map(job.cash, pages)
    assert first >= 999 * (TOTAL >> SEED_SHIFT) > 100 * max(others)
    job.commit(is_clean=True)  # which counts all cash
    job.reopen()
    before = job.virtual
    job.seed(link("rich", 9), is_endowed=False)
    assert (job.cash(link("rich", 9)), job.virtual) == (0, before)
    assert job.lease().key == pages[0].key
    job.commit()


def test_a_host_of_another_shard_gets_its_cash_there_and_none_is_lost():
    from support.core_shards import hosts_of
    from support.core_shards import link as of_shard

    there = hosts_of(1, 2, 1)[0]
    job = ShardedJob(2, rules=HostRules({there: HostRule(worth=1000.0)}))
    job.shards[0].seed(of_shard(hosts_of(0, 2, 1)[0]), job.now)
    page = of_shard(there)
    job.visit(0, page)
    job.exchange()
    assert job.cash(page) >= 999 * (TOTAL >> SEED_SHIFT)
    job.commit()


def test_a_host_with_all_of_its_pages_is_put_aside_until_one_of_them_comes_back():
    job = Job(rules=HostRules({"a.test": HostRule(pages=2)}))
    pages = {each.key: each for each in (link("a.test", number) for number in range(4))}
    job.seed(*pages.values())
    first = job.lease()
    job.release(first)
    second = job.lease()
    job.release(second)
    assert not isinstance(job.crawl.lease(job.now), Lease), "two are in flight"
    assert job.crawl.blocked == (1, 2)
    job.settle(first)
    job.crawl.put_back(second, pages[second.key], job.now)
    third = job.lease()
    job.release(third)
    job.settle(third)
    assert job.crawl.pages_left("a.test") == 0
    assert not isinstance(job.crawl.lease(job.now), Lease)
    assert job.crawl.blocked == (1, 2)
    assert not job.crawl.has_work(job.now), "the crawl does not wait for it"
    job.commit()
    assert audit(job.store).violations == []
