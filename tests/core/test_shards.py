"""Shards of a job: what goes from one to another, what each refuses, and that together they crawl what one would."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.core_crawl import NOW, by_cash
from support.core_shards import ShardedJob, hosts_of, link
from support.naming import case

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.domain import domain_key
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.layout import DIRECTORIES, OUTBOX, RECEIVED, SENT, SHARD
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL, Sums
from scrapy_aopic.core.order import LARGEST_VALUE, ORDERS
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, PAGE_BYTES, Link, PageState, host_key, pack, page_key
from scrapy_aopic.core.revisits import Recrawl, Version
from scrapy_aopic.core.salvage import Salvage
from scrapy_aopic.core.shard import Received, Shard, ShardId
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.cut import Cut
from scrapy_aopic.core.shards.letters import Letter, PageRef, Payment, read_letter, write_letter
from scrapy_aopic.core.shards.spread import DomainCounts
from scrapy_aopic.exceptions import CallError, StorageError
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

HERE, THERE = hosts_of(0, 2, 3), hosts_of(1, 2, 3)
A, A2 = link(HERE[0]), link(HERE[0], 2)
B, B2, B3 = link(THERE[0]), link(THERE[0], 2), link(THERE[1])


def a_job(**policy: Any) -> ShardedJob:
    """Two shards, of which shard 0 has page A, a seed."""
    job = ShardedJob(2, **policy)
    job.shards[0].seed(A, job.now)
    return job


SPREAD: dict[str, Any] = {"domain_of": lambda host: host.rpartition(".")[2], "spread": frozenset({"big"})}
"""What stands behind the last point is a domain, and one of them is spread over all shards."""


def rows_of(store: MemoryStore) -> dict[Family, dict[bytes, bytes]]:
    return {family: dict(store.scan(family)) for family in Family}


# -- a link to a page of another shard


@pytest.mark.parametrize("level", [0, 1])
def test_a_link_to_another_shard_is_paid_queued_and_followed_there(level):
    job = a_job(endowment=0.0, order=by_cash())
    job.shards[0].mail.level = level
    there = Link(B.key, B.host, b"the request", shift=3)
    _, settled = job.visit(0, B2, A2, there)
    spent = TOTAL >> SEED_SHIFT
    assert settled.paid == [(spent - int(spent * 0.25)) // 3] * 3
    assert job.shards[1].page(B.key) is None
    job.exchange()
    assert [job.cash(each) for each in (B2, A2, there)] == settled.paid
    assert (job.page(there).state, job.page(there).shift) == (PageState.QUEUED, 3)
    lease, _ = job.visit(1)
    assert (lease.key, lease.host, lease.request) == (B.key, B.host, b"the request")


def test_several_links_to_one_page_are_one_payment_and_count_one_by_one():
    job = a_job()
    job.shards[0].seed(A2, job.now)
    paid = [job.visit(0, B)[1].paid[0] for _ in range(2)]
    job.commit()
    (data,) = job.shards[0].letters(1)
    letter = read_letter(data, Cut(ShardId(1, 2), str))
    (payment,) = letter.payments
    assert (payment.units, payment.found, len(payment.finders)) == (sum(paid), 2, 1)
    job.exchange()
    assert (job.cash(B), job.page(B).score) == (sum(paid), 2)


def test_a_link_that_asks_for_a_fetch_gets_one_in_another_shard_too():
    job = a_job()
    job.shards[1].seed(B, job.now)
    job.visit(1)
    assert job.page(B).state == PageState.VISITED
    job.visit(0, Link(B.key, B.host, b"again", again=True))
    job.exchange()
    assert job.page(B).state == PageState.QUEUED
    assert job.visit(1)[0].request == b"again"


def test_a_seed_may_be_given_to_any_shard():
    job = ShardedJob(2)
    job.shards[0].seed(B, job.now, worth=2.0)
    job.shards[0].seed(B2, job.now, is_endowed=False)
    job.exchange()
    assert (job.cash(B), job.cash(B2)) == (2 * (TOTAL >> SEED_SHIFT), 0)
    assert [shard.sums.seeds for shard in job.shards] == [0, 1]
    job.shards[0].seed(B, job.now, worth=2.0)
    job.exchange()
    assert job.cash(B) == 2 * (TOTAL >> SEED_SHIFT)  # it was known
    job.shards[0].seed(B, job.now, worth=2.0, enriches=True)
    job.exchange()
    assert job.cash(B) > 3 * (TOTAL >> SEED_SHIFT)


def test_an_unchanged_page_pays_its_last_links_in_other_shards_once_more():
    job = a_job(recrawl=Recrawl(10.0, 100.0), endowment=0.0)
    job.visit(0, B, A2, version=Version(b"1"))
    job.exchange()
    before = job.cash(B)
    job.shards[1].seed(B2, job.now)
    job.visit(1, A)  # so that the page is worth another visit
    job.exchange()
    while True:
        job.now += 1000.0
        lease, settled = job.visit(0, version=Version(b"1", is_same=True))
        if lease.key == A.key:
            break
    job.exchange()
    assert len(settled.paid) == 2
    assert all(settled.paid)
    assert job.cash(B) == before + settled.paid[-1]
    assert audit(job.stores[0]).violations == []


# -- mail


def test_letters_are_applied_once_and_in_order_however_they_come():
    job = a_job()
    job.shards[0].seed(A2, job.now)
    for target in (B, B2):
        job.visit(0, target)
        job.commit(0)
    first, second = job.shards[0].letters(1)
    receive = job.shards[1].receive
    for data in (second, first):
        assert job.shards[1].has_come(job.shards[1].expect(data))
    assert not job.shards[1].has_changes
    assert receive([second], job.now) == Received(early=1)
    assert receive([second, first], job.now) == Received(applied=2)
    assert receive([first, second, first], job.now) == Received(known=3)
    job.commit()
    job.reopen(1)
    assert job.shards[1].receive([first], job.now) == Received(known=1)
    assert job.shards[0].letters(1, after=1) == [second]
    assert job.shards[0].letters(1, n=1) == [first]


def test_a_store_that_is_older_than_its_mail_is_noticed():
    job = a_job()
    job.visit(0, B)
    with pytest.raises(
        StorageError, match=r"received letter 1 from shard 0 of 2, whose last one is 0.*older than"
    ):
        job.shards[0].acknowledged(1, 1)
    job.commit()
    job.shards[0].acknowledged(1, 1)


def test_a_letter_that_is_gone_is_said_to_be():
    job = a_job()
    job.visit(0, B)
    job.commit()
    job.stores[0].write({Family.META: {OUTBOX + b"\0\1" + bytes(7) + b"\1": None}}, sync=True)
    with pytest.raises(StorageError, match="no letter 1 to shard 1 any more"):
        job.shards[0].letters(1)
    assert any("outbox does not hold" in each for each in audit_shards(job.stores, str).violations)


def test_a_commit_of_very_many_links_is_several_letters():
    job = ShardedJob(2)
    for number in range(50):
        job.shards[0].seed(link(HERE[0], number), job.now, is_endowed=False)
    n = 0
    for _ in range(50):
        job.visit(0, *[link(THERE[0], n + each) for each in range(100)])
        n += 100
    job.commit(0)
    assert job.shards[0].mail.waiting() == {1: (1, 3)}
    job.exchange()
    assert job.shards[1].counts.queued == n


def test_the_audit_of_all_shards_notices_units_that_were_made_or_lost():
    job = a_job()
    job.visit(0, B)
    job.commit()
    whole = audit_shards(job.stores, str)
    assert (whole.holds, whole.letters, whole.cash + whole.in_transit) == (True, 1, 2 * TOTAL)
    assert whole.in_transit > 0
    job.stores[1].write({Family.META: {RECEIVED + b"\0\0": pack((1, 0))}}, sync=True)
    assert any("0 received" in each for each in audit_shards(job.stores, str).violations)
    assert audit(job.stores[1]).violations == []  # its own counts agree
    job.stores[1].write({Family.META: {RECEIVED + b"\0\0": pack((1, 7))}}, sync=True)
    assert any("mail brought 7 units" in each for each in audit(job.stores[1]).violations)


def test_the_links_in_letters_of_a_salvaged_shard_are_sent_again():
    job = a_job()
    job.visit(0, B, A2)
    job.commit()
    source, target = DamagedStore(job.stores[0]), MemoryStore()
    saved = read_totals(job.stores[0])
    work = Salvage(
        source, target, job.policy, job.now, saved=saved, host_of=lambda _: HERE[0], shard=ShardId(0, 2)
    )
    assert work.run().letters == 1
    assert audit(target).violations == []
    job.stores = [target, MemoryStore()]  # all shards are salvaged, and their mail begins anew
    job.reopen(0)
    job.reopen(1)
    job.exchange()
    assert job.cash(B) > 0
    assert audit_shards(job.stores, str).violations == []


# -- pages that are one


def test_a_redirect_to_another_shard_is_one_page_with_its_target_once_that_was_visited():
    job = a_job(endowment=0.0)
    _, settled = job.visit(0, B, outcome="redirect", same_as=B.key)
    job.exchange()
    assert not job.page(A).canonical
    job.visit(1, A2)
    job.exchange()
    one, other = job.page(A), job.page(B)
    assert one.canonical[:PAGE_BYTES] == B.key == job.shards[0].same_as(A.key)
    assert (one.cash, one.history, one.outcome, job.shards[0].n_merged) == (0, 0, "redirect", 1)
    assert other.history == TOTAL // 2**SEED_SHIFT + settled.paid[0]
    before = job.cash(B)
    _, settled = job.visit(0, A)
    job.exchange()
    assert (job.cash(A), job.cash(B)) == (0, before + settled.paid[0])


def test_what_is_granted_to_a_page_that_forwards_is_granted_where_it_forwards_to():
    job = a_job()
    job.visit(0, B, outcome="redirect", same_as=B.key)
    job.exchange()
    job.visit(1)
    job.exchange()
    before = job.cash(B)
    assert job.shards[0].enrich(A.key, job.now, 2.0) == 0
    job.exchange()
    assert job.cash(B) - before >= 2 * ((TOTAL >> SEED_SHIFT) - 1)


@pytest.mark.parametrize("other", ["the same words", "other words"])
def test_a_page_that_names_one_of_another_shard_is_that_if_their_words_agree(other):
    job = a_job()
    job.shards[1].seed(B, job.now)
    for number, text, found in (
        (
            0,
            "the same words",
            Findings(outcome="canonical", same_as=B.key, is_if_same=True, same_host=B.host),
        ),
        (1, other, Findings()),
    ):
        shard = job.shards[number]
        lease = shard.lease(job.now)
        assert isinstance(lease, Lease)
        shard.judge(lease, text_of(text.encode()))
        shard.release(lease, job.now)
        shard.settle(lease, [], job.now, found)
    job.exchange()
    assert bool(job.page(A).canonical) == (other == "the same words")


def test_a_page_that_was_visited_again_is_no_longer_what_it_said():
    job = a_job()
    job.visit(0, B, outcome="redirect", same_as=B.key)
    job.exchange()
    job.shards[0].seed(Link(A.key, A.host, A.request, again=True), job.now)
    job.visit(0)
    job.visit(1)
    job.exchange()
    assert not job.page(A).canonical


# -- the whole job


def test_a_job_in_one_piece_has_the_rows_of_a_plain_crawl():
    stores = [MemoryStore(), MemoryStore()]
    for store, crawl in zip(
        stores, (Crawl(stores[0], Policy(), NOW), Shard(stores[1], Policy(), NOW, ShardId(0, 1))), strict=True
    ):
        crawl.seed(A, NOW)
        lease = crawl.lease(NOW)
        assert isinstance(lease, Lease)
        crawl.settle(lease, [B, A2], NOW)
        store.write(crawl.take_changes(NOW), sync=True)
        crawl.changes_landed()
    assert rows_of(stores[0]) == rows_of(stores[1])
    assert not any(row[:1] in (SHARD, OUTBOX, SENT, RECEIVED) for row, _ in stores[0].scan(Family.META))
    Crawl(stores[1], Policy(), NOW)
    alone = Shard(stores[0], Policy(), NOW)
    assert (alone.mail.waiting(), alone.mail.received_landed(), alone.letters(0)) == ({}, {}, [])
    with pytest.raises(CallError, match="gets no letters"):
        alone.receive([], NOW)
    with pytest.raises(CallError, match="writes no letters"):
        alone.acknowledged(0, 1)


def test_a_store_is_opened_as_the_shard_that_it_holds_and_as_no_other():
    job = a_job()
    job.commit()
    for opened in (
        lambda: Crawl(job.stores[0], job.policy, NOW),
        lambda: Shard(job.stores[0], job.policy, NOW, ShardId(1, 2)),
        lambda: Shard(job.stores[0], job.policy, NOW, ShardId(0, 4)),
    ):
        with pytest.raises(StorageError, match="This store holds shard 0 of 2, and was opened as shard"):
            opened()
    whole = MemoryStore()
    crawl = Crawl(whole, job.policy, NOW)
    crawl.seed(A, NOW)
    whole.write(crawl.take_changes(NOW), sync=True)
    with pytest.raises(StorageError, match="holds shard 0 of 1"):
        Shard(whole, job.policy, NOW, ShardId(0, 2))


def test_there_is_no_such_shard():
    for shard in [ShardId(2, 2), ShardId(-1, 2), ShardId(0, 0), ShardId(0, 1025)]:
        with case(shard), pytest.raises(CallError, match="There is no shard"):
            Shard(MemoryStore(), Policy(), NOW, shard)


def test_what_needs_one_place_for_the_whole_job_is_refused():
    for policy in [{"order": ORDERS["pagerank"]()}, {"by_address": True}]:
        with case(policy), pytest.raises(CallError, match="AOPIC_SHARDS = 1"):
            Shard(MemoryStore(), Policy(**policy), NOW, ShardId(0, 2))


def test_budgets_count_the_visits_of_all_shards():
    job = ShardedJob(2)
    shard = job.shards[0]
    others = [link(HERE[1], number) for number in range(50)]
    shard.seed(A, job.now)
    job.visit(0, *others)  # the other host may take 0.4 % of all fetches, and 20 in any case
    for _ in range(21):
        job.visit(0)
    key = host_key(HERE[1])
    host = shard.frontier.host(key)
    assert host is not None
    assert shard.frontier.places.is_worse(host, b"") or host.visited >= 20
    before = shard.frontier.budgets.visits
    shard.learn(Sums(visits=100_000))
    assert (shard.frontier.budgets.visits, shard.sums.visits) == (before + 100_000, before)
    job.commit()
    job.reopen(0)
    assert (job.shards[0].frontier.budgets.visits, job.shards[0].sums.visits) == (before + 100_000, before)
    with pytest.raises(CallError, match="0 or more"):
        shard.learn(Sums(visits=-1))


def test_the_best_shard_is_the_one_with_the_best_page_and_of_late_ones_that_as_well():
    job = ShardedJob(2)
    one, other = job.shards
    assert one.best(job.now) is None
    one.seed(A, job.now)
    other.seed(B, job.now, worth=64.0)
    assert other.best(job.now) < one.best(job.now)
    standings = []
    for number, links, n in (
        (0, [link(HERE[0], each) for each in range(1, 99)], 40),
        (1, [link(THERE[0], each) for each in range(1, 99)], 60),
    ):
        job.visit(number, *links)
        for _ in range(n):
            job.visit(number)
        standings.append(job.shards[number].best(job.now))
    # A seed's domain may take its part of all seeds.
    assert [each.is_late for each in standings] == [False, False]
    one.learn(Sums(seeds=1_000_000))
    other.learn(Sums(seeds=1_000_000))
    for number in (0, 1):
        job.visit(number)
    late = [shard.best(job.now) for shard in job.shards]
    assert [each.is_late for each in late] == [True, True]
    assert late[1] < late[0]  # the other one was given 64 times as much to share out
    assert max(standings) < min(late)


def test_virtual_time_passes_with_what_other_shards_distribute():
    alone, job = ShardedJob(1), a_job()
    alone.shards[0].seed(A, alone.now)
    alone.shards[0].seed(B, alone.now)
    job.shards[1].seed(B, job.now)
    alone.visit(0)
    alone.visit(0)
    job.learn()
    job.visit(0)
    job.learn()
    job.visit(1)
    job.learn()
    expected = alone.shards[0].ledger.totals.turn
    for shard in job.shards:
        assert shard.ledger.totals.turn == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_what_is_behind_a_link_is_bounded_though_it_is_spread_over_all_shards():
    """A farm of 60 domains behind one link, which link to each other, gets no more in four shards than in one."""
    taken = {}
    for of in (1, 4):
        job = ShardedJob(of)
        farm = [f"farm{number}" for number in range(60)]
        good = [f"good{number}" for number in range(20)]
        for host in good:
            job.shard_of(link(host)).seed(link(host), job.now)
        n, per_host = 0, dict.fromkeys([*farm, *good], 1)
        for turn in range(1200):
            number = turn % of
            shard = job.shards[number]
            lease = shard.lease(job.now)
            if not isinstance(lease, Lease):
                continue
            shard.release(lease, job.now)
            host = lease.host
            n += host in farm
            names = (
                (farm[0:1] if host == "good0" else [host]) if host in good else [host, *farm[turn % 50 :][:8]]
            )
            links = []
            for name in [*names, host]:
                per_host[name] += 1
                links.append(link(name, per_host[name]))
            shard.settle(lease, links, job.now)
            if turn % 40 == 0:
                job.learn()
                job.exchange()
        taken[of] = n
    assert taken[4] <= 1.5 * taken[1] + 20


def test_each_host_of_a_spread_domain_is_in_one_shard_and_the_domain_of_others_is():
    cut = Cut(ShardId(0, 64), **SPREAD)
    names = [f"{n}.big" for n in range(640)]
    assert len({cut.of_host(name) for name in names}) == 64
    assert all(cut.of_host(f"www.{name}") == cut.of_host(name) for name in names)
    assert len({cut.of_host(f"{n}.small") for n in range(640)}) == 1


def test_a_store_is_opened_only_with_the_spread_domains_that_its_job_began_with():
    job = ShardedJob(2, **SPREAD)
    job.commit()
    job.reopen(0)
    for policy in (Policy(), Policy(domain_of=SPREAD["domain_of"], spread=frozenset({"other"}))):
        with pytest.raises(StorageError, match="spreads the hosts of big over its shards"):
            Shard(job.stores[0], policy, job.now, ShardId(0, 2))
    job = ShardedJob(2)
    job.commit()
    with pytest.raises(StorageError, match="spreads the hosts of no domain"):
        Shard(job.stores[0], Policy(**SPREAD), job.now, ShardId(0, 2))


def test_a_spread_domain_is_that_of_a_seed_in_all_shards():
    job, key = ShardedJob(2, **SPREAD), domain_key("big")
    cut = Cut(ShardId(0, 2), **SPREAD)
    here, there = (next(f"{n}.big" for n in range(99) if cut.of_host(f"{n}.big") == at) for at in (0, 1))
    job.shards[1].seed(link(hosts_of(1, 2, 1)[0]), job.now)
    job.visit(1, link(there))
    domains = job.shards[1].domains
    assert domains is not None
    assert domains.get(key).sponsors, "it was found by a link"
    job.shards[0].seed(link(here), job.now)
    job.learn()
    assert domains.get(key).sponsors == []
    assert domains.whole(key) == DomainCounts(visited=0, seeds=1, supporters=domains.get(key).supporters)


@pytest.mark.slow
def test_a_farm_of_hosts_of_a_spread_domain_gets_what_it_would_in_one_piece():
    """Its pages link to ever new hosts of it, and four of 24 sites link there; each shard has as many of these."""
    taken = {}
    good = [host for number in range(4) for host in hosts_of(number, 4, 6)]
    for of in (1, 4):
        job, n = ShardedJob(of, **SPREAD), 0
        job.check = lambda: None  # type: ignore[method-assign]  # once at the end
        for host in good:
            job.shard_of(link(host)).seed(link(host), job.now)
        for turn in range(3000):
            shard = job.shards[turn % of]
            lease = shard.lease(job.now)
            assert isinstance(lease, Lease)
            shard.release(lease, job.now)
            is_farm = lease.host.endswith(".big")
            n += is_farm
            links = [link(lease.host, 3 * turn + each) for each in range(3)]
            if is_farm or lease.host in good[::6]:
                links += [link(f"{turn}-{each}.big") for each in range(5)]
            shard.settle(lease, links, job.now)
            if turn % 40 == 0:
                job.learn()
                job.exchange()
        ShardedJob.check(job)
        taken[of] = n
    assert taken[4] <= 1.2 * taken[1] < 150, (
        "if each shard counted for itself it would be three times as much"
    )


def test_a_directory_is_in_the_shard_of_its_host_and_is_counted_for_all_who_link_there():
    """Pages of one directory that two shards link to; the shard that has them changes hands after two visits."""
    job = a_job(endowment=0.0, order=by_cash(), directory_of=lambda request: request.rpartition(b"/")[0])
    job.shards[1].seed(B, job.now)
    docs = [link(THERE[1], number, b"docs/%d" % number) for number in range(5)]
    news = link(THERE[1], 9, b"news/9")
    job.visit(0, *docs[:3])
    job.exchange()
    job.visit(1, *docs[3:], news)
    requests = [job.visit(1)[0].request for _ in range(2)]
    job.commit()
    job.reopen(1)
    requests += [job.visit(1)[0].request for _ in range(4)]
    job.commit()
    assert requests == [*(b"docs/%d" % number for number in range(3)), b"news/9", b"docs/3", b"docs/4"]
    begin = DIRECTORIES + news.key[:HOST_BYTES]
    counts = [
        sorted(value for key, value in rows_of(store)[Family.META].items() if key.startswith(begin))
        for store in job.stores
    ]
    assert counts == [[], [b"\1", b"\3"]]


# -- letters from outside


def a_letter() -> tuple[ShardedJob, bytes]:
    job = a_job()
    job.visit(0, B, B3, Link(B2.key, B2.host, b"again", again=True), outcome="redirect", same_as=B.key)
    job.shards[0].seed(link(THERE[2]), job.now)
    job.commit()
    (data,) = job.shards[0].letters(1)
    return job, data


def refused(job: ShardedJob, data: bytes) -> str:
    """The sentence with which shard 1 of *job* refuses *data*, having changed nothing."""
    before = job.shards[1].sums
    with pytest.raises(StorageError, match="Nothing was changed") as caught:
        job.shards[1].receive([data], job.now)
    assert (job.shards[1].sums, job.shards[1].has_changes) == (before, False)
    return str(caught.value)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_bytes_that_changed_on_the_way_are_refused(data):
    job, letter = a_letter()
    place = data.draw(st.integers(0, len(letter) - 1))
    how = data.draw(st.sampled_from(["changed", "cut", "longer", "other"]))
    changed = bytearray(letter)
    if how == "changed":
        changed[place] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del changed[place:]
    elif how == "longer":
        changed += b"\0"
    else:
        changed = bytearray(data.draw(st.binary(max_size=60)))
    assert "again" in refused(job, bytes(changed))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300, deadline=None)
@example(None)
def test_letters_that_say_something_else_are_refused_or_leave_a_whole_shard(data):
    """Any part of a letter is anything else: it is refused as a whole, or every invariant holds after it."""
    job, letter = a_letter()
    values = msgspec.msgpack.decode(zlib.decompress(letter))
    if data is not None:
        at = values
        while True:
            place = data.draw(st.integers(0, len(at) - 1))
            if not isinstance(at[place], list) or not at[place] or data.draw(st.booleans()):
                break
            at = at[place]
        at[place] = data.draw(VALUES)
    changed = zlib.compress(msgspec.msgpack.encode(values))
    received, sentence = Received(), ""
    try:
        received = job.shards[1].receive([changed], job.now)
    except StorageError as error:
        sentence = str(error)
    assert not sentence or "Nothing was changed" in sentence
    assert job.shards[1].has_changes is (received.applied > 0)
    assert data is not None or received == Received(applied=1)
    job.stores[1].write(job.shards[1].take_changes(job.now), sync=True)
    job.shards[1].changes_landed()
    assert audit(job.stores[1]).violations == []


def test_a_letter_about_a_host_of_another_shard_says_that_the_lists_of_suffixes_differ():
    job, letter = a_letter()
    values = msgspec.msgpack.decode(zlib.decompress(letter))
    values[6][0] = HERE[0].encode()
    assert "same list of public suffixes" in refused(job, zlib.compress(msgspec.msgpack.encode(values)))


def test_a_letter_that_pays_one_page_twice_is_refused():
    job, _ = a_letter()
    payment = Payment(PageRef(0, B.key[HOST_BYTES:], b"b"), 1)
    twice = Letter(1, 0, 1, 2, 1, 2, [B.host.encode()], [], [payment, payment])
    assert "pays one page twice" in refused(job, write_letter(twice))


@pytest.mark.slow
def test_a_letter_that_unpacks_to_too_much_is_refused_before_it_is_unpacked():
    job, _ = a_letter()
    assert "cannot be read" in refused(job, zlib.compress(bytes(80 << 20)))


def test_a_request_that_is_too_long_for_a_letter_is_refused_before_anything_is_changed():
    job = a_job()
    shard = job.shards[0]
    lease = shard.lease(job.now)
    assert isinstance(lease, Lease)
    with pytest.raises(CallError, match="bytes at most"):
        shard.settle(lease, [Link(B.key, B.host, bytes((16 << 20) + 1))], job.now)
    with pytest.raises(CallError, match="must begin with"):
        shard.settle(lease, [Link(A2.key, B.host, b"")], job.now)
    with pytest.raises(CallError, match="worth must be"):
        shard.seed(B, job.now, worth=-1.0)
    shard.settle(lease, [B], job.now)
    job.exchange()


# -- what links are worth for a topic


def test_cash_is_split_by_value_over_shards_as_it_is_in_one():
    of_one = Crawl(MemoryStore(), Policy(share=0.25, order=ORDERS["focused"]()), NOW)
    of_one.seed(A, NOW)
    lease = of_one.lease(NOW)
    assert isinstance(lease, Lease)
    links = [replace(of, weight=weight) for of, weight in ((B, 810_000), (A2, 10_000), (B3, 0))]
    job = a_job(order=ORDERS["focused"](), endowment=0.0)
    _, there = job.visit(0, *links, weight=1_820_000, n_links=3)
    here = of_one.settle(lease, links, NOW, Findings(weight=1_820_000, n_links=3))
    assert [paid / sum(here.paid) for paid in here.paid] == pytest.approx(
        [paid / sum(there.paid) for paid in there.paid]
    )
    assert there.paid[2] == 0
    job.exchange()
    assert (job.cash(B), job.cash(A2), job.cash(B3)) == tuple(there.paid)


def test_values_that_cannot_be_are_refused():
    for place, wrong in [
        (-2, [LARGEST_VALUE + 1]),
        (-2, [-1]),
        (-2, [1, 1, 1, 1, 1]),
        (-1, [bytes(100_000)]),
        (-1, [b"", b""] * 9),
    ]:
        job, letter = a_letter()
        values = msgspec.msgpack.decode(zlib.decompress(letter))
        n = len(values[8])
        values[place] = (wrong * n)[:n] if len(wrong) == 1 else wrong
        assert refused(job, zlib.compress(msgspec.msgpack.encode(values))), (place, wrong)


# -- beside one crawl


def crawl_all(job: ShardedJob, links_of: Callable[[bytes], list[Link]]) -> dict[bytes, int]:
    """Visit everything; returns how often each request was made."""
    seen: dict[bytes, int] = {}
    while True:
        is_idle = True
        for shard in job.shards:
            while not isinstance(found := shard.lease(job.now), Lease) and isinstance(found, NotBefore):
                job.now = max(job.now, found.instant)
            if isinstance(found, Lease):
                is_idle = False
                shard.release(found, job.now)
                shard.settle(found, links_of(found.request), job.now)
                seen[found.request] = seen.get(found.request, 0) + 1
        job.learn()
        job.exchange()
        if is_idle and not any(len(shard) for shard in job.shards):
            return seen


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(0, 29), max_size=6), min_size=30, max_size=30),
    st.integers(2, 5),
    st.sampled_from([{}, SPREAD]),
)
@settings(max_examples=25, deadline=None)
def test_shards_visit_what_one_crawl_would_each_page_once(graph, of, policy):
    def page(number: int) -> Link:
        host = f"host{number % 12}.{'big' if number % 3 else 'other'}"
        request = number.to_bytes(2, "big")
        return Link(page_key(host_key(host), request), host, request)

    def links_of(request: bytes) -> list[Link]:
        return [page(number) for number in graph[int.from_bytes(request, "big")]]

    found = []
    for n in (1, of):
        job = ShardedJob(n, **policy)
        job.shards[0].seed(page(0), job.now)
        found.append(crawl_all(job, links_of))
    assert found[0] == found[1]
    assert set(found[0].values()) == {1}
