"""Pages that are the same are one in the ledger: cash and history are moved, to the unit, and follow later."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from support.core_crawl import Job as Whole
from support.core_crawl import link
from support.short_forms import walks

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.duplicates import Text, text_of
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, PageState, pack_page, unpack_page
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.core.window import Window
from scrapy_aopic.storage.memory import MemoryStore

A, B, C, D, E = (link(host) for host in "abcde")
TEXT = text_of(b"one text")


class Job(Whole):
    """A crawl of hosts that are all of one registered domain, unless *policy* says else."""

    def __init__(self, *seeds: Link, **policy: Any) -> None:
        super().__init__(*seeds, **{"domain_of": lambda _: "one", **policy})


def histories(job: Job, *pages: Link) -> list[int]:
    return [job.page(page).history for page in pages]


def holdings(job: Job, *pages: Link) -> list[int]:
    return [job.cash(page) for page in pages]


def begin(job: Job, page: Link) -> Lease:
    """Lease *page*, whatever else waits."""
    others = []
    while (lease := job.lease()).key != page.key:
        others.append(lease)
    for other in others:
        job.crawl.release(other, job.now)
        job.crawl.put_back(other, Link(other.key, other.host, other.request), job.now)
    job.crawl.release(lease, job.now)
    return lease


def visit(job: Job, page: Link, *links: Link, **how: Any) -> None:
    job.settle(begin(job, page), *links, **how)


def visit_duplicate(job: Job, page: Link, *links: Link) -> None:
    lease = begin(job, page)
    assert job.crawl.judge(lease, TEXT).first
    job.settle(lease, *links, outcome="duplicate")


def visit_original(job: Job, page: Link, *links: Link) -> None:
    lease = begin(job, page)
    assert not job.crawl.judge(lease, TEXT).first
    job.settle(lease, *links)


# -- duplicates


def test_a_duplicate_hands_its_cash_on_whole_and_spends_nothing():
    job = Job(A, B)
    visit_original(job, A)
    had, virtual, distributed = job.cash(B), job.virtual, job.crawl.ledger.totals.distributed
    visit_duplicate(job, B)
    assert holdings(job, A, B) == [had, 0]
    assert histories(job, B) == [0]
    assert (job.virtual, job.crawl.ledger.totals.distributed) == (virtual, distributed)
    assert (job.page(B).outcome, job.page(B).canonical, job.page(B).visits) == ("duplicate", A.key, 1)
    assert job.crawl.n_merged == 1
    job.commit()


def test_a_page_that_is_one_with_another_is_no_ordinary_page():
    for outcome in ["", "redirect"]:
        job = Job(A, B, C)
        visit_original(job, A)
        lease = begin(job, B)
        assert job.crawl.judge(lease, TEXT).first, outcome
        job.settle(lease, outcome=outcome)
        visit(job, C, same_as=A.key, outcome=outcome)
        expected = outcome or "duplicate", outcome or "canonical"
        assert (job.page(B).outcome, job.page(C).outcome) == expected


# -- across registered domains


def sites(**policy: Any) -> Job:
    """A crawl in which each host is a registered domain of its own."""
    return Job(**{"share": 0.0, "domain_of": str, **policy})


def judged(job: Job, page: Link, *links: Link, text: Text = TEXT, **how: Any) -> bytes:
    """Visit *page*, which is judged by *text*; returns the key of the page that it is a duplicate of."""
    lease = begin(job, page)
    twin = job.crawl.judge(lease, text).first
    job.settle(lease, *([] if twin else links), outcome="duplicate" if twin else "", **how)
    return twin


def test_a_page_of_another_site_with_the_same_text_keeps_what_it_has_and_pays_its_links():
    job = sites()
    job.seed(A, B)
    had = holdings(job, A, B)
    lease = begin(job, A)
    assert job.crawl.judge(lease, TEXT) == (b"", b"", False)
    job.settle(lease, C)
    lease = begin(job, B)
    assert job.crawl.judge(lease, TEXT) == (b"", A.key, False)
    job.settle(lease, D)
    assert histories(job, A, B) == had
    assert holdings(job, C, D) == had
    assert (job.page(B).outcome, job.page(B).canonical, job.crawl.n_merged) == ("", b"", 0)
    job.commit()


@pytest.mark.parametrize("supporters", [0, 1, 2, 3])
def test_of_pages_of_several_sites_with_one_text_those_with_the_fewest_supporters_are_not_endowed(supporters):
    """Two other sites lead to the page that is fetched first, and some to the one that is fetched later."""
    job = sites(endowment=6.0)
    hubs = [link(f"hub{number}") for number in range(5)]
    job.seed(*hubs)
    for number, hub in enumerate(hubs):
        visit(job, hub, A if number < 2 else D, *([B] if number < supporters else []))
    if not supporters:
        job.seed(B, is_endowed=False)
    assert judged(job, A, C) == b""
    virtual = job.virtual
    assert judged(job, B, E) == b""
    assert (job.virtual < virtual) == (supporters > 2)
    assert job.page(B).outcome == ""
    job.commit()


@pytest.mark.slow
@given(
    visits=st.lists(st.tuples(st.sampled_from(range(6)), st.sampled_from(range(2))), min_size=1, max_size=20)
)
def test_whatever_copies_say_and_however_they_come_only_their_own_cash_moves(visits):
    """Page 0 is copied by the others, which are fetched in any order, change their texts and name each other."""
    pages = [link(f"copy{number}") for number in range(6)]
    job, texts = sites(window=Window(1e9, "fixed")), [TEXT, text_of(b"another text")]
    received = {}
    for page in pages:
        job.seed(page)
        received[page.key] = job.cash(page)
    for of, which in visits:
        page, named = pages[of], pages[(of * 3 + which) % 6]
        if job.state(page) != PageState.QUEUED:
            job.crawl.seed(replace(page, again=True), job.now)
            received[page.key] += job.crawl.enrich(page.key, job.now, 1.0)
        if of:
            judged(job, page, text=texts[which], same_as=named.key, is_if_same=True)
        else:
            judged(job, page)
        victim = job.page(pages[0])
        assert not victim.canonical
        rounded = len(visits)  # as histories are
        assert victim.history + victim.cash >= received[pages[0].key] - rounded
    job.commit()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_copy_that_names_its_original_is_one_with_it(*, is_first):
    job = sites()
    job.seed(A, B)
    units = job.cash(B)
    for page in (B, A) if is_first else (A, B):
        lease = begin(job, page)
        found = job.crawl.judge(lease, TEXT)
        assert not found.first
        is_way = bool(found.copy) and page == B and job.crawl.give_way(lease, A.key)
        assert is_way == (page == B and not is_first)
        job.settle(lease, same_as=A.key if page == B else b"", is_if_same=True)
    assert histories(job, B) == [0]
    assert histories(job, A)[0] + job.cash(A) >= 2 * units
    assert job.page(B).canonical == A.key
    job.commit()


def test_a_page_that_names_another_one_and_has_other_words_is_not_believed():
    job = sites()
    job.seed(A, B)
    judged(job, A)
    judged(job, B, text=text_of(b"another text"), same_as=A.key, is_if_same=True)
    job.seed(C, D)
    judged(job, C, text=text_of(b"one more text"), same_as=D.key, is_if_same=True)
    job.commit()
    judged(job, D)
    assert (job.page(B).canonical, job.page(C).canonical) == (b"", b"")
    job.commit()


def test_a_page_gives_way_to_none_that_has_other_links_or_is_itself_or_is_unknown():
    job = sites()
    job.seed(A, B, C)
    judged(job, A)
    judged(job, C, text=text_of(b"one text", b"links"))
    lease = begin(job, B)
    assert job.crawl.judge(lease, TEXT).copy == A.key
    for other in (B, C, D):
        assert not job.crawl.give_way(lease, other.key)
    assert job.crawl.give_way(lease, A.key)
    job.settle(lease, outcome="duplicate")
    assert job.page(B).canonical == A.key
    job.commit()


def test_a_page_is_united_with_the_first_one_of_its_site_whoever_copied_that_before():
    job = Job(A, B, C, D, domain_of=lambda host: "copy" if host == "a" else "site")
    assert [judged(job, page) for page in (A, B, C)] == [b"", b"", B.key]
    job.reopen()
    job.crawl.seed(A, job.now)
    job.seed(*(page for page in (B, C, D) if job.crawl.page(page.key) is None))
    job.now += 70
    assert [judged(job, page) for page in (A, B, C)] == [b"", b"", B.key]
    job.kill()
    job.now += 70
    assert judged(job, D) == B.key  # also in the next process
    job.commit()


def test_who_leads_a_chain_to_a_page_does_not_keep_it_from_its_canonical_page():
    job = Job(share=0.0, domain_of=lambda host: "trap" if host == "trap" else "site")
    chain = [link("trap", number) for number in range(2 * MAX_HEIGHT)]
    job.seed(chain[0])
    for page, after in pairwise([*chain, A]):
        visit(job, page, after, same_as=after.key, outcome="redirect")
    visit(job, A, B, same_as=B.key, outcome="redirect")
    visit(job, B)
    assert job.page(A).canonical == B.key
    job.commit()


# -- canonical pages and redirects


def visit_claiming(job: Job, page: Link, *links: Link) -> None:
    """Visit *page*, which has the text, and says that it is the first of its *links*."""
    lease = begin(job, page)
    job.crawl.judge(lease, TEXT)
    job.settle(lease, *links, same_as=links[0].key)


def test_the_page_that_a_duplicate_names_as_canonical_stands_for_both():
    """The common case: /page?from=mail says that it is /page, and has its text."""
    job = Job(A)
    visit_claiming(job, A, B, C)
    visit_original(job, B, C)
    assert (job.page(A).canonical, job.page(B).canonical) == (B.key, b"")
    visit_duplicate(job, C)
    assert job.page(C).canonical == B.key
    job.crawl.seed(replace(B, again=True), job.now)
    visit_original(job, B)
    job.commit()


def test_the_text_of_two_pages_that_are_one_leads_to_the_one_that_stands_for_both():
    job = Job(A)
    visit_claiming(job, A, B, C)
    visit_original(job, B, C)
    job.crawl.seed(replace(A, again=True), job.now)
    lease = begin(job, A)
    assert not job.crawl.judge(lease, text_of(b"another text")).first  # it was first with the old one
    job.settle(lease)
    assert job.page(A).canonical == b""
    visit_duplicate(job, C)
    assert job.page(C).canonical == B.key
    job.commit()


def test_a_page_with_the_text_of_a_page_that_is_one_with_it_is_no_duplicate():
    job = Job(A, B)
    visit_claiming(job, A, B)
    visit(job, B)  # with another text
    assert job.page(A).canonical == B.key
    job.crawl.seed(replace(B, again=True), job.now)
    visit_original(job, B)
    job.commit()


@pytest.mark.parametrize("is_duplicate", [False, True])
def test_a_page_that_asks_for_itself_once_more_waits_for_that_before_it_is_another_one(is_duplicate):
    job = Job(A, B)
    visit_original(job, A)
    lease = begin(job, B)
    assert not is_duplicate or job.crawl.judge(lease, TEXT).first
    job.settle(lease, replace(B, again=True), same_as=b"" if is_duplicate else A.key)
    assert job.state(B) == PageState.QUEUED
    job.commit()
    visit(job, B, same_as=A.key)
    assert job.page(B).canonical == A.key
    job.commit()


def test_links_to_a_page_count_for_the_page_that_stands_for_it():
    job = Job(A, B, C, D, order=Aopic())
    visit_original(job, A)
    visit(job, C, B)
    visit_duplicate(job, B)
    visit(job, D, B)
    assert (job.page(A).score, job.page(B).score) == (2, 1)
    job.commit()


# -- all windows, all spendings, all together


@pytest.mark.parametrize("kind", ["fixed", "variable"])
def test_windows_that_keep_visits_count_what_was_moved(kind):
    """With nothing between the visits, no history fades."""
    job = Job(A, B, window=Window(1e9 if kind == "fixed" else 1000, kind), share=0.0)
    for page in (A, B, A, B, A):
        visit(job, page)
        job.crawl.seed(replace(page, again=True), job.now)
        job.crawl.enrich(page.key, job.now, 1.0)
    visit_original(job, A)
    before = histories(job, A)[0]
    visit_duplicate(job, B)
    moved = histories(job, A)[0] - before
    assert moved > 0
    job.crawl.seed(replace(A, again=True), job.now)
    spent = job.cash(A)
    visit(job, A)
    assert histories(job, A)[0] > before + moved // 2 + spent
    job.commit()


def test_an_average_that_stands_for_a_newcomers_history_is_not_moved():
    job = Job(A, recrawl=Recrawl(min_interval=10.0, max_interval=1e6), share=0.0)
    visit_original(job, A)
    for _ in range(3):
        job.now += 100
        visit_original(job, A)
    before = job.page(A).history
    job.seed(B)
    visit_duplicate(job, B)
    assert histories(job, A, B) == [before, 0]
    job.commit()


def test_a_united_page_comes_back_by_itself_and_may_be_another_one_then():
    job = Job(A, B, recrawl=Recrawl(min_interval=10.0, max_interval=1e6), share=0.0)
    visit_original(job, A)
    visit_duplicate(job, B)
    job.now += 100
    came_back = set()
    while isinstance(lease := job.crawl.lease(job.now), Lease):
        job.crawl.release(lease, job.now)
        came_back.add(lease.key)
        text = TEXT if lease.key == A.key else text_of(b"another text")
        assert not job.crawl.judge(lease, text).first
        job.settle(lease)
    assert came_back >= {A.key, B.key}
    assert job.page(B).canonical == b""
    job.commit()


# -- the audit


def united() -> Job:
    """B is united with A, and C claims to be D, which waits."""
    job = Job(A, B, C, D)
    visit_original(job, A)
    visit_duplicate(job, B)
    visit(job, C, same_as=D.key)
    job.commit()
    return job


def change(job: Job, of: Link, **values: Any) -> None:
    page = unpack_page(job.store.get_many(Family.PAGES, (of.key,))[0] or b"")
    for name, value in values.items():
        setattr(page, name, value)
    job.store.write({Family.PAGES: {of.key: pack_page(page)}}, sync=True)


def test_the_audit_finds_what_is_wrong_with_a_united_page():
    for of, values, complaint in [
        (B, {"cash": 1}, "is not visited and empty"),
        (B, {"history": 1}, "is not visited and empty"),
        (B, {"state": PageState.FAILED}, "is not visited and empty"),
        (B, {"canonical": B.key}, "no page stands for it"),
        (B, {"canonical": E.key}, "no page stands for it"),
        (A, {"canonical": B.key}, "no page stands for it"),
        (B, {"canonical": b""}, "classes have"),
    ]:
        job = united()
        change(job, of, **values)
        assert any(complaint in text for text in audit(job.store).violations), (of, values, complaint)


def test_the_audit_finds_rows_of_pages_that_are_not_known():
    for letter in [b"P", b"T", b"C"]:
        job = united()
        key, value = next(row for row in job.store.scan(Family.CONTENT) if row[0][:1] == letter)
        wrong = {key: E.key} if letter == b"T" else {key: None, key[:-16] + E.key: value}
        job.store.write({Family.CONTENT: wrong}, sync=True)
        assert any("is not known" in text for text in audit(job.store).violations), letter


LINKS = st.builds(
    link, st.sampled_from("abcd"), st.integers(0, 3), again=st.sampled_from([False] * 6 + [True])
)


class Walk(RuleBasedStateMachine):
    """Visits of all kinds, commits, crashes: what must hold holds after every step."""

    @initialize(
        spending=st.sampled_from(list(SPENDING)),
        kind=st.sampled_from(["interpolation", "ewma", "fixed", "variable"]),
        page_cache=st.sampled_from([1, 3, 1000]),
        is_near=st.booleans(),
        recrawls=st.booleans(),
        has_sites=st.booleans(),
        same_words=st.sampled_from([0, 1, 2]),
    )
    def begin(self, *, spending, kind, page_cache, is_near, recrawls, has_sites, same_words):
        self.job = Job(
            spending=spending,
            chosen=frozenset("ab"),
            domain_of=(lambda host: "one" if host in "ab" else host) if has_sites else (lambda _: "one"),
            same_words=same_words,
            endowment=4.0,
            window=Window(3, kind),
            page_cache=page_cache,
            is_near=is_near,
            recrawl=Recrawl(min_interval=5.0, max_interval=1e3)
            if recrawls or SPENDING[spending].needs_revisits
            else None,
        )
        self.job.seed(*(link(host) for host in "abcd"))
        self.leases: list[Lease] = []

    @rule(of=LINKS)
    def seed(self, of):
        self.job.crawl.seed(of, self.job.now)

    @rule(of=LINKS)
    def enrich(self, of):
        if self.job.crawl.page(of.key) is not None:
            self.job.crawl.enrich(of.key, self.job.now, 2.0)

    @rule(seconds=st.sampled_from([1, 20, 70]))
    def time_passes(self, seconds):
        self.job.now += seconds

    @rule()
    def lease(self):
        lease = self.job.crawl.lease(self.job.now)
        if isinstance(lease, Lease):
            self.job.crawl.release(lease, self.job.now)
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(
        pick=st.integers(0, 9),
        links=st.lists(LINKS, max_size=4),
        same=st.none() | LINKS,
        text=st.sampled_from([None, b"x", b"y", b""]),
        leads=st.sampled_from([b"", b"", b"z"]),
        follows=st.booleans(),
        is_if_same=st.booleans(),
        outcome=st.sampled_from(["", "", "", "", "redirect", "http 404", "retry"]),
    )
    def settle(self, *, pick, links, same, text, leads, follows, is_if_same, outcome):
        crawl, now = self.job.crawl, self.job.now
        lease = self.leases.pop(pick % len(self.leases))
        twin = b""
        if text is not None and outcome != "redirect":
            twin = crawl.judge(lease, text_of(text, leads) if text else None).first
            assert twin != lease.key
            if not twin and same is not None and crawl.give_way(lease, same.key):
                twin = same.key
        if outcome == "retry":
            crawl.put_back(lease, Link(lease.key, lease.host, lease.request), now)
            return
        crawl.settle(
            lease,
            links if follows or not twin else (),
            now,
            Findings(
                outcome=outcome or ("duplicate" if twin else ""),
                is_failure=outcome == "http 404",
                same_as=same.key if same is not None else b"",
                is_if_same=is_if_same,
            ),
        )

    @rule()
    def commit(self):
        self.job.commit()

    @rule()
    def crash(self):
        self.job.reopen()
        self.leases = []
        self.job.now += 70

    @invariant()
    def everything_that_the_audit_knows_holds(self):
        """As if the process died here, right after a commit."""
        job, shadow = self.job, MemoryStore()
        for family in Family:
            shadow.write({family: dict(job.store.scan(family))}, sync=True)
        shadow.write(job.crawl.take_changes(job.now), sync=True)
        job.crawl.changes_failed()
        assert audit(shadow).violations == []


TestWalk, TestLongWalk = walks(Walk, examples=100, steps=40)
