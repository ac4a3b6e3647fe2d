"""Visited pages that come back: what their visits teach, who is next, and what no crash may undo."""

from __future__ import annotations

import math
import random
from dataclasses import replace as replace_policy
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.core_crawl import NOW, Job, by_cash, link
from support.core_shards import ShardedJob
from support.naming import case

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.crawl_totals import read_totals
from scrapy_aopic.core.frontier.frontier import Empty, NotBefore
from scrapy_aopic.core.order import OpicCycle
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import HOST_BYTES, Changes, PageState, host_key, unpack_page
from scrapy_aopic.core.revisits import Rates, Recrawl, Version, due
from scrapy_aopic.core.revisits.due import OVERDUE, DuePages, DueQueue
from scrapy_aopic.core.revisits.found import found_last, found_now
from scrapy_aopic.core.revisits.hints import Hints
from scrapy_aopic.core.revisits.rates import RATES
from scrapy_aopic.core.revisits.rounds import Round, read_rounds, together
from scrapy_aopic.core.tables import BlobTable
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import changes_in, wishes_of

HOUR, DAY = 3600.0, 86_400.0
SAME = Version(is_same=True)


def version(number: int, **how: float) -> Version:
    return Version(number.to_bytes(8, "big"), **how)


def visits(rates: Rates, *gaps: tuple[float, bool]) -> Changes:
    """What is known after visits with these seconds between them, and whether they found a change."""
    now, number = NOW, 0
    changes = rates.learn(None, version(0), now)
    for seconds, is_changed in gaps:
        now += seconds
        number += is_changed
        changes = rates.learn(changes, version(number), now)
    return changes


def phi(x: float) -> float:
    return (1 - (1 + x) * math.exp(-x)) / x


# -- what a visit is worth


def fixed(rate: float) -> Rates:
    """All pages change at *rate*."""
    return Rates([float(each == rate) for each in RATES])


def test_a_visit_is_worth_what_it_does_for_the_copy():
    for x in [0.01, 1.0, 1.8, 30.0]:
        for rate in RATES:
            rates = fixed(rate)
            assert rates.phi(visits(rates), NOW + x / rate) == pytest.approx(phi(x), rel=1e-6), (rate, x)
            assert rates.same(visits(rates), NOW + x / rate) == pytest.approx(math.exp(-x)), (rate, x)


def test_a_page_that_was_just_seen_is_worth_nothing():
    rates = Rates()
    assert rates.phi(visits(rates), NOW) == 0.0


def test_pages_that_surely_have_not_changed_or_change_all_the_time_count_for_less():
    rate = RATES[5]
    changes = visits(fixed(rate))
    worths = {x: fixed(rate).phi(changes, NOW + x / rate) for x in (0.1, 0.5, 1.8, 10.0, 100.0)}
    assert max(worths, key=worths.__getitem__) == 1.8


# -- what visits teach


@given(st.lists(st.tuples(st.floats(60, 1e7), st.booleans()), max_size=30))
def test_what_is_known_of_a_rate_is_what_bayes_says(gaps):
    logs = [
        math.fsum(math.log(-math.expm1(-rate * gap)) if changed else -rate * gap for gap, changed in gaps)
        for rate in RATES
    ]
    check_evidence(visits(Rates(), *gaps), logs, len(gaps))


def check_evidence(changes: Changes, logs: list[float], n: int) -> None:
    """After *n* visits *changes* say how likely it was, by its logarithm at each rate, what they have found."""
    found = Rates([1.0] * len(RATES)).of(changes.evidence)
    expected = [math.exp(each - max(logs)) for each in logs]
    # The evidence is rounded to a thousandth of a factor of e at each visit.
    assert [each / sum(found) for each in found] == pytest.approx(
        [each / sum(expected) for each in expected], rel=1e-3 * (n + 1), abs=1e-12
    )


def test_the_rates_of_a_web_are_learnt_from_all_its_pages():
    draw = random.Random(5)
    rates = Rates()
    fast, slow = 0, 0
    for page in range(2000):
        rate = 1 / DAY if page % 4 == 0 else 1 / (100 * DAY)
        gaps = [draw.uniform(0.2, 60) * DAY for _ in range(12)]
        visits(rates, *((gap, draw.random() < -math.expm1(-rate * gap)) for gap in gaps))
        fast, slow = fast + (page % 4 == 0), slow + (page % 4 != 0)
    found = dict(zip(RATES, rates.counts, strict=True))
    near_day = sum(count for rate, count in found.items() if rate > 1 / (8 * DAY))
    assert near_day / sum(found.values()) == pytest.approx(fast / (fast + slow), abs=0.05)
    seldom = sum(count for rate, count in found.items() if rate < 1 / (30 * DAY))
    assert seldom / sum(found.values()) == pytest.approx(slow / (fast + slow), abs=0.05)


def test_each_page_is_counted_once_however_often_it_is_visited():
    rates = Rates()
    before = sum(rates.counts)
    visits(rates, *[(DAY, True)] * 50)
    visits(rates, *[(DAY, False)] * 3)
    assert sum(rates.counts) == pytest.approx(before + 2, abs=1)  # no rate is given up altogether


def test_of_all_pages_that_were_counted_10_000_are_remembered():
    rates = Rates([1000.0] * len(RATES))
    visits(rates, (DAY, True))
    assert sum(rates.counts) == pytest.approx(10_000)


def test_no_rate_is_given_up_by_a_page_that_was_taken_for_another_one():
    page = visits(Rates(), (100 * DAY, False))
    rates = Rates([10_000.0 if rate == RATES[5] else 0.1 for rate in RATES])
    for number in range(1, 6):
        page = rates.learn(page, version(number), page.seen_at + 60.0)
    assert min(rates.counts) > 0


def test_an_unchanged_page_is_expected_to_change_less_often_than_a_changed_one():
    rates = Rates()
    still, busy = visits(rates, *[(DAY, False)] * 5), visits(rates, *[(DAY, True)] * 5)
    assert rates.phi(still, still.seen_at + 30 * DAY) > rates.phi(busy, busy.seen_at + 30 * DAY)
    assert rates.phi(still, still.seen_at + HOUR) < rates.phi(busy, busy.seen_at + HOUR)


def test_304_is_an_unchanged_page():
    one, other = Rates(), Rates()
    first = one.learn(None, version(1), NOW)
    assert one.learn(first, SAME, NOW + DAY) == other.learn(
        other.learn(None, version(1), NOW), version(1), NOW + DAY
    )


def test_no_answer_teaches_nothing():
    rates = Rates()
    known = visits(rates, (DAY, True))
    assert rates.learn(known, Version(is_missing=True), NOW + 9 * DAY) == known


def test_an_old_page_is_known_to_change_seldom_at_its_first_visit():
    rates = Rates()
    old = rates.learn(None, version(1, changed_at=NOW - 400 * DAY), NOW)
    young = rates.learn(None, version(1, changed_at=NOW - HOUR), NOW)
    assert rates.phi(old, NOW + DAY) < rates.phi(young, NOW + DAY)


def test_a_change_was_when_the_server_says_if_that_may_be_true():
    for age, is_believed in [
        (3 * HOUR, True),
        (10 * DAY, True),
        (1.0, False),
        (2 * HOUR, False),  # in the last hundredth of the time between the visits
        (11 * DAY, False),  # it has changed since
    ]:
        with case(age, is_believed):
            rates = Rates()
            now = NOW + 10 * DAY
            changes = rates.learn(rates.learn(None, version(0), NOW), version(1, changed_at=now - age), now)
            logs = [
                math.log(rate) - rate * age if is_believed else math.log(-math.expm1(-rate * 10 * DAY))
                for rate in RATES
            ]
            check_evidence(changes, logs, 1)


def test_a_server_that_says_just_now_of_each_page_teaches_no_more_than_one_that_does_not():
    one, other = Rates(), Rates()
    for rates, said in (one, True), (other, False):
        now = NOW
        known = None
        for number in range(4):
            known = rates.learn(known, version(number, changed_at=now - 1.0 if said else 0.0), now)
            now += 10 * DAY
    assert one.counts == other.counts


# -- who is next


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(["add", "add", "add", "remove", "best", "free", "freed"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 11), st.integers(0, 5)), max_size=80))


@given(steps())
def test_the_best_page_is_next_as_in_a_sorted_list(steps):
    due = DueQueue()
    waiting: dict[bytes, tuple[int, float]] = {}
    free: set[bytes] = set()
    for kind, number, level in steps:
        key = link(f"h{number % 3}", number).key
        host = key[:HOST_BYTES]
        if kind == "add":
            place = (-level, float(number))
            assert due.add(key, level, float(number)) == (waiting.get(key) != place)
            waiting[key] = place
        elif kind == "remove":
            due.remove(key)
            waiting.pop(key, None)
        elif kind == "freed":
            free.symmetric_difference_update({host})
            if host in free:
                due.freed(host)
        else:
            among = {
                key: place for key, place in waiting.items() if kind == "best" or key[:HOST_BYTES] in free
            }
            best = min(among, key=among.__getitem__) if among else None
            assert due.best(free.__contains__ if kind == "free" else None) == best
            if best is not None:
                del waiting[best]
        assert len(due) == len(waiting)


def test_of_many_pages_the_best_stay():
    due = DueQueue()
    pages = [link(f"h{number % 7}", number).key for number in range(100)]
    for number, key in enumerate(pages):
        due.add(key, number // 2, 0.0)
    assert set(due.trim(10)) == set(pages[:90])
    assert {due.best() for _ in range(10)} == set(pages[90:])
    assert due.best() is None


@pytest.mark.parametrize(("busy", "taken_at"), [(range(0), (0, 10, 20)), (range(8, 13), (0, 13, 23))])
def test_each_tenth_visit_is_of_an_overdue_page_while_others_are_due(busy, taken_at):
    """Or the first one after that for which its host, which is *busy* for some visits, is free."""
    pages = DuePages(Job().crawl.frontier.index, share=1.0)
    overdue = [link("a", number).key for number in range(5)]
    for number in range(40):
        pages.offer(link("b", number).key, 30, NOW)
    for number, key in enumerate(overdue):
        pages.offer(key, OVERDUE, NOW + number)
    taken = []
    for at in range(30):
        if at == busy.stop:
            pages.freed(host_key("a"))
        taken.append(pages.best(lambda host, at=at: host == host_key("b") or at not in busy))
    assert {at: key for at, key in enumerate(taken) if key in overdue} == dict(
        zip(taken_at, overdue, strict=False)
    )


# -- in a crawl


def again(**how: float) -> Job:
    """A crawl whose pages come back after an hour."""
    return Job(recrawl=Recrawl(**{"min_interval": HOUR, "max_interval": 30 * DAY, **how}))


def leases(job: Job) -> list[int]:
    """Visit what may be visited now, as pages that link to each other; numbers of the pages in order."""
    found = []
    while isinstance(lease := job.crawl.lease(job.now), Lease):
        job.crawl.release(lease, job.now)
        found.append(_number(lease))
        job.settle(lease, *(link("a", number) for number in range(3)), version=version(len(found)))
        if len(found) > 100:
            break
    return found


def _number(lease: Lease) -> int:
    return int(lease.request.split(b"/")[1])


VISITS = [
    # outcome, version, what the visit has found, and whether the page is another one from then on
    ("", Version(b"1"), "new", True),
    ("", Version(b"1"), "unchanged", False),
    ("", Version(b"2"), "changed", True),
    ("http 503", Version(is_missing=True), "failed", False),
    ("", Version(is_same=True), "unchanged", False),
    ("redirect", Version(), "moved", True),
    ("redirect", Version(), "unchanged", False),
    ("", Version(b"2"), "changed", True),
    ("http 410", Version(b"3"), "gone", True),
    ("http 404", Version(b"4"), "unchanged", False),
    ("http 503", Version(is_missing=True), "failed", False),
    ("http 404", Version(b"3"), "unchanged", False),
    ("", Version(b"2"), "back", True),
    ("", Version(b"2"), "unchanged", False),
]


def test_what_a_visit_finds_is_told_and_its_record_says_it_afterwards():
    job, page, began, changed_at = again(), link("a", 0, again=True), 0.0, 0.0
    digest = previous = b""
    for outcome, shown, what, is_other in VISITS:
        job.now += 31 * DAY
        if not began or job.state(page) == PageState.FAILED:
            job.seed(page)
        began = began or job.now
        lease = job.lease()
        is_gone = outcome in ("http 404", "http 410")
        found = Findings(outcome, is_failure=is_gone, version=shown)
        if is_other:
            changed_at, previous = job.now, digest
            digest = b"" if is_gone else shown.digest
        told = found_now(job.page(page), found, job.now)
        assert told == (what, began, changed_at, previous), what
        job.crawl.release(lease, job.now)
        job.crawl.settle(lease, (), job.now, found)
        stays_gone = is_gone or (what == "failed" and not digest)
        assert found_last(job.page(page)) == told._replace(what="gone" if stays_gone else what), what
        assert job.page(page).visited_at == job.now, "when it was last seen so"
        job.commit()
    assert found_now(None, Findings(), NOW) == ("new", NOW, NOW, b""), "also if nobody looks for changes"


@pytest.mark.parametrize("of", [1, 2], ids=["one shard", "two"])
def test_unchanged_pages_pay_without_a_callback_as_with_one_to_the_unit(of):
    """Links of several weights, some of which a filter drops, to new pages, known ones and those that failed."""

    def rows(*, is_shown: bool) -> list[Any]:
        job, dice = ShardedJob(of, recrawl=Recrawl(1.0, 30 * DAY), order=by_cash()), random.Random(7)
        seed = link("h0", 0)
        job.shard_of(seed).seed(seed, job.now)
        versions: dict[bytes, int] = {}
        n_unchanged = 0
        for step in range(200):
            job.now += HOUR
            shard = job.shards[step % of]
            lease = shard.lease(job.now)
            if not isinstance(lease, Lease):
                continue
            shard.release(lease, job.now)
            n = versions.get(lease.key, 0)
            is_changed, fails = not n or dice.random() < 0.3, not n and step > 5 and dice.random() < 0.2
            n = versions[lease.key] = n + is_changed
            web = random.Random(lease.key + bytes((n,)))
            numbers = [web.randrange(12) for _ in range(web.randrange(1, 6))]
            links = [
                replace(link(f"h{number % 5}", number), weight=web.choice([1, 1, 3])) for number in numbers
            ]
            shown: dict[str, Any] = {
                "n_links": len(links) + web.randrange(2),
                "weight": 20 * web.randrange(2),
            }
            shows = is_changed or is_shown
            n_unchanged += not is_changed
            found = Findings(
                "http 500" * fails, fails, version=version(n, is_same=not shows), **(shown if shows else {})
            )
            shard.settle(lease, links if shows and not fails else (), job.now, found)
            if step % 10 == 0:
                job.exchange()
        job.exchange()
        assert n_unchanged > 30
        return [list(store.scan(family)) for store in job.stores for family in Family]

    assert rows(is_shown=True) == rows(is_shown=False)


@pytest.mark.parametrize("of", [1, 2], ids=["one shard", "two"])
def test_a_round_visits_each_old_page_once_and_goes_on_after_a_crash(of):
    """Of a job that looked for no changes at first."""

    def visits(most: int = 1 << 30) -> list[bytes]:
        found: list[bytes] = []
        for shard in job.shards:
            while len(found) < most and not isinstance(lease := shard.lease(job.now), Empty):
                if isinstance(lease, NotBefore):
                    job.now = max(job.now, lease.instant)
                    continue
                assert isinstance(lease, Lease)
                shard.defer(lease.key[:HOST_BYTES], job.now, 0.1)
                shard.release(lease, job.now)
                shard.settle(lease, (), job.now, Findings(version=version(1)))
                found.append(lease.key)
        return found

    def reopen() -> None:
        for number in range(of):
            job.reopen(number)

    job, pages = ShardedJob(of), [link(f"h{n % 7}", n) for n in range(250)]
    for page in pages:
        job.shard_of(page).seed(page, job.now)
    assert len(visits()) == 250
    job.commit()
    job.policy = replace_policy(job.policy, recrawl=Recrawl(12 * HOUR, 12 * HOUR, once=True))
    for what in ("changed", "unchanged"):
        reopen()
        assert visits() == [], "nothing is so old"
        job.commit()
        job.now += DAY
        reopen()
        began = job.now
        assert any(shard.has_work(job.now) for shard in job.shards)
        fetched = visits(100)
        job.commit()
        visits(20)  # which a crash undoes
        job.now += HOUR
        reopen()
        fetched += visits()
        job.now += 1
        job.commit()
        *_, last = together(each for store in job.stores for each in read_rounds(store))
        assert (last.began, last.known, last.found) == (began, 250, {what: 250})
        assert last.ended > began
        assert sorted(fetched) == sorted(page.key for page in pages)
        assert not any(shard.has_work(job.now) for shard in job.shards)
        assert {found_last(job.page(page)).what for page in pages} == {what}


def test_a_round_is_over_with_the_last_of_its_shards_and_not_before():
    shards = [Round(1, 0.0, 5.0), Round(1, 0.0, 7.0), Round(2, 9.0, 11.0), Round(2, 8.0)]
    assert [(each.began, each.ended) for each in together(shards)] == [(0.0, 7.0), (8.0, 0.0)]


def test_a_round_begins_each_day_in_one_run_but_not_before_the_last_one_is_over():
    job = Job(link("a", 0), link("b", 1), recrawl=Recrawl(0.0, DAY, once=True, every=DAY))

    def visits() -> int:
        n = 0
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            job.finish(lease, version=version(1))
            n += 1
        return n

    assert visits() == 2
    for _ in range(2):
        job.commit()
        assert job.crawl.when() == NotBefore(job.now + DAY)
        job.now += DAY
        assert visits() == 2
    job.now += DAY
    lease = job.lease()
    job.now += 2 * DAY
    job.finish(lease, version=version(1))
    job.visit(version=version(1))
    job.commit(is_clean=True)
    job.now += 1
    job.reopen()
    assert visits() == 2, "at once"
    job.commit()
    found = [(each.number, each.known, each.ended - each.began) for each in read_rounds(job.store)]
    assert found == [(1, 0, 0), (2, 2, 0), (3, 2, DAY), (4, 2, 2 * DAY), (5, 2, 0)]


@pytest.mark.parametrize("seed", range(5))
def test_who_follows_the_changes_gets_each_once_whenever_it_looks(seed):
    """Visits end in another order than their responses came, at the same instant, and a crash undoes some."""
    rng = random.Random(seed)
    job = again(share=1.0)
    job.seed(*(link(f"h{n}", n) for n in range(9)))
    job.commit()
    under_way: list[tuple[Lease, float]] = []
    committed: dict[bytes, bytes] = {}
    known: dict[str, str | None] = {}
    given: list[Any] = []
    after = [0.0]
    for step in rng.choices(("lease", "settle", "commit", "look", "crash"), (9, 9, 4, 4, 1), k=400):
        job.now += rng.choice((0, 0, 5000))
        if step == "lease" and isinstance(lease := job.crawl.lease(job.now), Lease):
            job.crawl.release(lease, job.now)
            under_way.append((lease, job.now))
        elif step == "settle" and under_way:
            lease, at = under_way.pop(rng.randrange(len(under_way)))
            job.settle(lease, version=Version(rng.choice((b"1", b"2")), at=at))
        elif step == "crash":
            job.reopen(later=HOUR)
            under_way = []
        elif step == "commit":
            job.commit()
            pages = {key: unpack_page(row).changes for key, row in job.store.scan(Family.PAGES)}
            committed = {key: changes.digest for key, changes in pages.items() if changes is not None}
        elif step == "look":
            rows = [row for some in changes_in(View([job.store]), 2, after) for row in some]
            given += [(row.host, row.last_changed) for row in rows]
            assert {row.found for row in rows if row.host in known} <= {"changed"}
            assert {row.found for row in rows} <= {"new", "changed"}
            known |= {row.host: row.digest for row in rows}
            assert sorted(filter(None, known.values())) == sorted(each.hex() for each in committed.values())
    assert len(known) == 9
    assert len(given) == len(set(given)), "each change once"


def test_the_difference_says_what_all_visits_since_have_found_together():
    """A page that changed in the second of three visits is unchanged by the last, or could not be had."""
    job = again(share=1.0)
    hosts = ("changed", "same", "failing", "gone")
    job.seed(*(link(host, number) for number, host in enumerate(hosts)))
    begins = []
    for visit in range(3):
        begins.append(job.now)
        for _ in range(4 if visit < 2 else 3):
            lease = job.lease()
            job.crawl.release(lease, job.now)
            is_gone, fails = lease.host == "gone" and visit == 1, lease.host == "failing" and visit == 2
            found = Findings(
                version=Version(bytes((1 if lease.host == "same" else min(visit, 1),)), is_missing=fails),
                outcome="http 410" if is_gone else "http 500" if fails else "",
                is_failure=is_gone,
            )
            job.crawl.settle(lease, [], job.now, found)
        job.now += DAY
    job.commit()

    def difference(since: float) -> dict[str, str]:
        return {row.host: row.found for some in changes_in(View([job.store]), 9, [since]) for row in some}

    assert difference(0.0) == {"changed": "new", "same": "new", "failing": "new", "gone": "gone"}
    assert difference(begins[1] - 1) == {"changed": "changed", "failing": "changed", "gone": "gone"}
    assert difference(begins[2] - 1) == {}
    last = {"changed": "unchanged", "same": "unchanged", "failing": "failed", "gone": "gone"}
    assert difference(-1.0) == last, "of all pages the last visit"


def test_a_page_without_cash_comes_back_after_the_longest_interval():
    job = Job(link("a", 0), link("b", 1), recrawl=Recrawl(HOUR, DAY), share=0.0)
    for lease in (job.lease(), job.lease()):  # all cash goes to page 1
        job.finish(lease, *([link("b", 1)] if lease.host == "a" else []), version=version(1))
    seen = set()
    for _ in range(60):
        job.now += HOUR
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            seen.add(lease.host)
            job.finish(lease, link("b", 1), version=version(1))
    assert seen == {"a", "b"}
    job.commit()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_visited_pages_take_no_more_than_their_share_while_new_ones_wait(share):
    job = again(share=share)
    job.seed(*(link(f"old{number}", number) for number in range(50)))
    for _ in range(50):
        job.visit(version=version(1))
    job.now += DAY
    job.seed(*(link(f"new{number}", 1000 + number) for number in range(200)))
    taken = []
    for turn in range(200):
        job.now += 60.0
        lease = job.lease()
        taken.append(_number(lease))
        job.crawl.release(lease, job.now)
        old = [link(f"old{number}", number) for number in (turn % 5, (turn + 1) % 5)]
        job.settle(lease, *old, version=version(2))
    repeated = sum(number < 1000 for number in taken)
    assert repeated <= share * 200 + 50 * share + 1  # those of the first visits paid, too
    assert bool(repeated) == bool(share)


def test_each_fetch_pays_for_its_share_of_a_visit_and_all_for_a_hundred_at_most():
    for share, paid in [(0.5, 75 + 1), (1.0, 100 + 2)]:
        job = again(share=share)
        job.seed(*(link(f"old{number}", number) for number in range(150)))
        for _ in range(150):
            job.visit(version=version(1))
        job.now += DAY
        job.seed(*(link(f"new{number}") for number in range(3)))
        for _ in range(3):
            job.lease()
        # By all visits before, and by two of the three leases.
        assert job.crawl.counts.visited == 150 - paid, share


def test_an_idle_crawl_takes_the_pages_of_a_host_one_after_the_other():
    for passed in [2 * HOUR, 40 * DAY]:
        job = again(share=0.0)
        job.seed(link("a", 0), link("a", 1))
        for _ in range(2):
            job.visit(version=version(1))
        job.now += passed
        first = job.lease()
        assert not isinstance(job.crawl.lease(job.now), Lease), passed
        job.finish(first, version=version(9))
        assert job.lease().key != first.key, passed


def test_a_page_that_is_let_in_is_a_change_even_if_its_host_must_wait():
    for share in [0.0, 1.0]:
        job = again(share=share)
        job.seed(link("a"))
        job.visit(version=version(1))
        job.now += 2 * HOUR
        job.crawl.defer(host_key("a"), job.now + 60, 0.1)
        job.commit()
        assert not isinstance(job.crawl.lease(job.now), Lease), share
        assert job.state(link("a")) == PageState.QUEUED, share
        assert job.crawl.has_changes, share


def test_a_page_that_is_gone_does_not_come_back_and_its_cash_is_handed_on():
    job = again()
    job.seed(link("a", 0), link("a", 1))
    job.visit(version=version(1))
    gone = link("a", _number(job.visit(is_failure=True, outcome="gone")))
    job.now += 40 * DAY
    assert sorted(leases(job)) == sorted({0, 1, 2} - {int(gone.request.split(b"/")[1])} | {2})
    assert job.state(gone) == PageState.FAILED
    assert job.cash(gone) == 0
    job.commit()


def test_all_pages_come_in_turn_with_an_order_that_does_not_look_at_cash():
    job = Job(*(link(f"h{number}", number) for number in range(5)), recrawl=Recrawl(1.0), order=OpicCycle())
    found = []
    for _ in range(20):
        job.now += 2.0
        found.append(_number(job.visit(version=version(1))))
    assert found[5:] == found[:5] * 3


def test_after_a_crash_the_crawl_waits_for_a_visited_page_also_if_no_other_one_waits():
    job = Job(link("a"), recrawl=Recrawl(HOUR, 2 * DAY), order=by_cash())
    job.visit(version=version(1))
    job.kill()
    when = job.crawl.lease(job.now)
    assert when == job.crawl.when()
    assert isinstance(when, NotBefore)


def test_what_was_learnt_of_all_pages_outlives_a_restart():
    job = again()
    job.seed(link("a"))
    for _ in range(3):
        job.visit(version=version(1))
        job.now += DAY
    job.commit()
    learnt = read_totals(job.store).rates
    assert learnt != Rates().counts
    job.reopen()
    job.seed(link("b"))
    job.commit()
    assert read_totals(job.store).rates == learnt


def test_what_an_owner_asks_is_kept_until_a_visit_shows_something_else():
    job, page = again(), link("a.test")
    job.seed(page)
    asked = ("noindex", "train-ai=n")
    kept = []
    for found, wishes in [
        (Version(b"1"), asked),
        (SAME, ()),
        (Version(is_missing=True), ()),
        (Version(b"2"), ()),
    ]:
        job.visit(version=found, wishes=wishes)
        job.commit()
        kept.append(wishes_of(job.store, [page.key])[page.key])
        job.now += 60 * DAY
    assert kept == [asked, asked, asked, ("", "")]


# -- hints, and what brings new pages


def believed(n: int, *, is_right: bool) -> tuple[Hints, Changes]:
    """What is learned of *n* visits of pages that change half of the time, with hints for those that have, or by chance."""
    dice, hints, rates = random.Random(1), Hints(BlobTable(MemoryStore(), Family.CONTENT)), fixed(RATES[5])
    seen = visits(rates)._replace(dated_at=NOW)
    for _ in range(n):
        is_changed = dice.random() < 0.5
        is_hinted = is_changed if is_right else dice.random() < 0.5
        known = seen._replace(hinted_at=NOW + 1.0 if is_hinted else 0.0)
        hints.learn(link("a").key, known, is_changed=is_changed, expected=0.5)
    return hints, seen


def test_hints_count_as_far_as_those_of_their_host_were_right():
    for n, is_right, least, most in [(0, True, 1.0, 1.0), (200, True, 0.0, 0.05), (200, False, 0.6, 1.6)]:
        hints, seen = believed(n, is_right=is_right)
        hinted = seen._replace(hinted_at=NOW + 1.0)
        assert least <= hints.ratio(link("a").key, hinted) <= most, (n, is_right)
        assert least <= 1 / hints.ratio(link("a").key, seen) <= most, (n, is_right)
        assert hints.ratio(link("b").key, hinted) == 1.0  # of another host nothing is known
        assert hints.ratio(link("a").key, seen._replace(dated_at=0.0)) == 1.0


def test_a_hint_that_is_believed_makes_a_visit_worth_most_and_its_lack_worth_nothing():
    for x in [0.01, 1.0, 30.0]:
        rates, at = fixed(RATES[5]), NOW + x / RATES[5]
        seen = visits(rates)
        assert rates.phi(seen, at, 1e-9) == pytest.approx(1 / x, rel=1e-5)
        assert rates.phi(seen, at, 1e30) == pytest.approx(0.0, abs=1e-6)
        assert rates.phi(seen, at, 1 + 1e-12) == pytest.approx(rates.phi(seen, at), rel=1e-6)


def test_a_page_whose_change_is_told_is_next_and_wakes_for_it():
    job = again()
    pages = [link("a", number) for number in range(6)]
    job.seed(*pages, worth=1.0)
    told, other = pages[4:]
    for _ in pages:
        job.visit(version=version(0))
    (key, host) = told.key, host_key("a")
    hints = job.crawl._revisits._hints  # type: ignore[attr-defined]
    for _ in range(100):
        known = job.page(told).changes._replace(dated_at=NOW, hinted_at=NOW + 1.0)
        hints.learn(key, known, is_changed=True, expected=0.5)
    job.now += 2 * HOUR
    first = job.visit(version=version(0), dates={told.key: job.now - 60.0, other.key: NOW - DAY})
    known = job.page(told).changes
    assert known.hinted_at == job.now - 60.0
    assert job.page(other).changes.hinted_at == 0.0 < job.page(other).changes.dated_at
    assert known.wakes_at == job.now
    while first.key != told.key:  # those that were let in before the hint come first
        first = job.visit(version=version(1))
    assert job.page(told).changes.hinted_at == 0.0
    assert hints.of(host)[1].changed == 101.0
    job.commit()
    assert Hints(BlobTable(job.store, Family.CONTENT)).of(host) == hints.of(host)


def mean_delay(publishers: int, hosts: int = 1) -> float:
    """Seconds from the birth of a page to its visit: of 60 pages, which change at each visit, some publish one every 10 s.

    Of several *hosts* each one is asked as often as its share of four requests a second.
    """
    job = again(min_interval=1.0)
    job.seed(*(link(f"h{number % hosts}", number) for number in range(60)))
    delays = []
    for turn in range(4 * 400):
        job.now = NOW + turn / 4
        if not isinstance(lease := job.crawl.lease(job.now), Lease):
            continue
        number, at = map(int, f"{lease.request.decode().split('/')[1]}-0".split("-")[:2])
        if at and not lease.visits and turn > 800:
            delays.append(job.now - NOW - at)
        hosted = range(10, int(job.now - NOW) + 1, 10) if not at and number < publishers else ()
        name = lease.host
        new = [link(name, 1000 * number + at, f"{name}/{number}-{at}".encode()) for at in hosted[-5:]]
        job.release(lease, gap=hosts / 4 if hosts > 1 else 0.0)
        job.settle(lease, *new, version=version(0 if at else turn))
    job.commit()
    return sum(delays) / len(delays)


@pytest.mark.parametrize(("hosts", "part"), [(1, 0.25), (12, 0.67)])
def test_pages_that_bring_new_ones_get_a_share_of_the_visits(hosts, part):
    delay = mean_delay(3, hosts)
    with patch.object(due, "_FRUITFUL_TURN", 1 << 60):
        before = mean_delay(3, hosts)
    assert delay < before * part, (delay, before)


def test_a_page_that_was_let_in_for_what_it_is_likely_to_bring_comes_first():
    """Its own cash, which is less than that of the others, does not decide."""
    job = again(share=1.0)
    pages = [link("a", number) for number in range(10)]
    job.seed(*pages)
    for day in range(3):
        job.now = NOW + day * DAY
        leases = []
        while isinstance(lease := job.crawl.lease(job.now), Lease):
            leases.append(lease.key)
            job.crawl.release(lease, job.now)
            new = [link("a", 100 + day)] if lease.key == pages[0].key else pages[1:]
            job.settle(lease, *new, version=version(day))
            assert len(leases) < 20
    assert leases[0] == pages[0].key
    assert len(set(leases)) == len(leases) == 13
