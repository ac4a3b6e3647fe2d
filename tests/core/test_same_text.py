"""Which pages have the same text, or nearly: who was first is remembered, whatever happens to the process."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.core_crawl import NOW, Job, link

from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.duplicates import ALIKE, Text, alike, sketch, text_of
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link

WORDS = [f"word{number}".encode() for number in range(5000)]


def words(seed: str, n: int = 400) -> list[bytes]:
    dice = random.Random(seed)
    return [dice.choice(WORDS) for _ in range(n)]


def edited(text: list[bytes], part: float, seed: int = 1) -> list[bytes]:
    """*text* with *part* of its words changed."""
    dice, result = random.Random(seed), list(text)
    for place in dice.sample(range(len(text)), int(len(text) * part)):
        result[place] = f"changed{place}".encode()
    return result


class Pages(Job):
    """Visits pages one by one, each with a text; all hosts are of one registered domain, unless *policy* says else."""

    def __init__(self, **policy: Any) -> None:
        super().__init__(**{"domain_of": lambda _: "one", **policy})

    def begin(self, page: Link) -> Lease:
        if self.crawl.page(page.key) is None:
            self.seed(page)
        else:
            self.crawl.seed(replace(page, again=True), self.now)
        lease = self.lease()
        assert lease.key == page.key
        self.release(lease)
        return lease

    def judged(self, page: Link, text: list[bytes] | None, **how: object) -> bytes:
        """Visit *page*, which has *text*; returns the key of the page that it is a duplicate of."""
        lease = self.begin(page)
        twin = self.crawl.judge(lease, None if text is None else self.text(text)).first
        self.settle(lease, outcome="duplicate" if twin else "", **how)
        return twin

    def crash(self) -> None:
        """Die and come back, and wait until hosts may be asked."""
        self.reopen()
        self.now += 60

    def text(self, text: list[bytes]) -> Text:
        return text_of(b" ".join(text), has_sketch=self.policy.is_near) if len(text) > 5 else Text(b"")


A, B, C, D = (link(host) for host in "abcd")
LINKS = b"links..."


# -- words, links and data


def test_pages_whose_links_differ_are_two_pages_with_the_same_words():
    one, two = text_of(b"some words", b"/1"), text_of(b"some words", b"/2")
    assert one.words == two.words
    assert one.links != two.links
    assert text_of(b"other words", b"/1").links == one.links


def variety(job: Pages, page: Link, leads: str, words: bytes = b"some words") -> bytes:
    lease = job.begin(page)
    twin = job.crawl.judge(lease, text_of(words, leads.encode())).first
    job.settle(lease, outcome="duplicate" if twin else "")
    return twin


def test_each_variety_of_a_page_is_found():
    job = Pages()
    pages = [link("a", number) for number in range(8)]
    found = [variety(job, page, str(number % 4)) for number, page in enumerate(pages)]
    assert found == [b""] * 4 + [page.key for page in pages[:4]]
    assert variety(job, pages[0], "5") == b""  # it has changed: the others are found as before
    assert variety(job, link("a", 8), "3") == pages[3].key
    assert variety(job, link("a", 9), "0") == b""
    assert variety(job, link("a", 10), "0") == link("a", 9).key
    job.commit()


def test_a_site_has_so_many_varieties_and_no_more():
    job = Pages(same_words=3, domain_of={"a": "one", "b": "one"}.get)
    pages = [link("ab"[number % 2], number) for number in range(6)]
    found = [variety(job, page, str(number)) for number, page in enumerate(pages)]
    assert found == [b""] * 3 + [pages[0].key] * 3
    job.commit()
    job.crash()
    assert variety(job, pages[1], "1") == b""  # it stays what it was
    assert variety(job, pages[5], "5") == pages[0].key
    assert variety(job, link("a", 7), "7") == pages[0].key
    assert variety(job, link("a", 8), "8", words=b"other words") == b""
    job.commit()


def test_varieties_of_other_sites_do_not_count():
    job = Pages(same_words=2, domain_of=str)
    pages = [link(host, number) for number, host in enumerate("ababab")]
    found = [variety(job, page, str(number)) for number, page in enumerate(pages)]
    assert found == [b"", b"", b"", b"", pages[0].key, pages[1].key]
    job.commit()


def test_if_the_first_of_too_many_varieties_fails_they_are_counted_anew():
    job = Pages(same_words=2)
    one, two, three, four, five = (link("a", number) for number in range(5))
    assert [variety(job, page, page.key.hex()) for page in (one, two, three)] == [b"", b"", one.key]
    job.settle(job.begin(one), outcome="http 404", is_failure=True)
    found = [variety(job, page, page.key.hex()) for page in (four, five)]
    assert found[0] == b""
    job.commit()


# -- sketches


def test_equal_texts_have_equal_sketches_in_every_process_and_version():
    assert sketch(WORDS[:400])[:8].hex() == "aabbb3b51c6c982f"


def test_the_bytes_that_agree_estimate_the_runs_of_words_that_texts_share():
    for part, low, high in [(0.01, 58, 64), (0.1, 34, 55), (1.0, 0, 3)]:
        found = [
            alike(sketch(words(str(seed), 2000)), sketch(edited(words(str(seed), 2000), part)))
            for seed in range(20)
        ]
        assert low <= sum(found) / len(found) <= high, (part, low, high)


def test_what_few_words_leave_empty_is_not_taken_for_agreement():
    found = [alike(sketch(words(f"a{n}", 66)), sketch(words(f"b{n}", 66))) for n in range(20)]
    assert max(found) <= 4


def test_where_words_are_moved_to_does_not_matter_much():
    text = words("x", 2000)
    assert alike(sketch(text), sketch(text[1000:] + text[:1000])) >= 62


def test_a_text_of_few_words_has_no_sketch():
    assert sketch(WORDS[:65]) == b""
    assert len(sketch(WORDS[:66])) == 64
    assert sketch([b"same"] * 10_000) == b""  # few distinct runs


def test_what_comes_after_the_first_20_000_words_is_not_in_the_sketch():
    text = words("x", 20_000)
    assert sketch([*text, *words("y", 20_000)]) == sketch(text)
    assert text_of(b" ".join([*text, b"y"])).digest != text_of(b" ".join(text)).digest


@given(st.lists(st.binary(), max_size=100))
def test_any_text_can_be_kept(some):
    text = text_of(b" ".join(some), has_sketch=True)
    assert (len(text.digest), len(text.sketch)) in ((16, 0), (16, 64))


@pytest.mark.slow
@given(st.binary(min_size=64, max_size=64), st.sets(st.integers(0, 63), max_size=64 - ALIKE))
def test_whatever_is_alike_is_found(one, places):
    """Each of the eight bands of a sketch leads to it, and seven bytes cannot spoil them all."""
    job = Pages(is_near=True)
    job.seed(A)
    lease = job.lease()
    job.crawl.judge(lease, Text(b"a" * 8 + LINKS, one))
    job.settle(lease)
    other = bytes(byte ^ 1 if at in places else byte for at, byte in enumerate(one))
    assert job.crawl.judge(job.begin(B), Text(b"b" * 8 + LINKS, other)).first == A.key


def judged(job: Pages, page: Link, sketched: bytes) -> bytes:
    lease = job.begin(page)
    twin = job.crawl.judge(lease, Text(page.key[:4] + sketched[:4] + LINKS, sketched)).first
    job.settle(lease, outcome="duplicate" if twin else "")
    return twin


def spoilt(one: bytes, *places: int) -> bytes:
    return bytes(byte ^ 1 if at in places else byte for at, byte in enumerate(one))


ONE = bytes(range(64))
ALL_BUT_THE_FIRST_BAND = [8 * band for band in range(1, 8)]


def test_pages_that_share_a_band_and_no_more_do_not_hide_each_other():
    job = Pages(is_near=True)
    assert judged(job, A, ONE) == b""
    assert judged(job, B, spoilt(ONE, *range(8, 64))) == b""
    assert judged(job, C, spoilt(ONE, *ALL_BUT_THE_FIRST_BAND)) == A.key
    judged(job, B, spoilt(ONE, *range(64)))  # it has changed: what led to A still does
    assert judged(job, D, spoilt(ONE, *(place + 1 for place in ALL_BUT_THE_FIRST_BAND))) == A.key


def test_of_several_pages_that_are_alike_the_most_alike_counts():
    for closer in [0, 1]:
        job = Pages(is_near=True)
        places = [0, 1, 2, 8, 9, 10, 16, 17]
        assert judged(job, A, ONE) == judged(job, B, spoilt(ONE, *places)) == b"", closer
        between = spoilt(ONE, *places[: 6 if closer else 3])
        assert judged(job, C, between) == (B.key if closer else A.key), closer


# -- who was first


def test_the_first_page_with_a_text_is_no_duplicate_and_the_others_are():
    job = Pages()
    assert job.judged(A, words("x")) == b""
    assert job.judged(B, words("x")) == A.key
    assert job.judged(C, words("y")) == b""
    assert job.judged(D, words("x")) == A.key
    job.commit()


def test_a_page_is_no_duplicate_of_itself():
    job = Pages()
    assert job.judged(A, words("x")) == b""
    assert job.judged(A, words("x")) == b""
    lease, more = job.begin(A), replace(A, again=True)
    assert not job.crawl.judge(lease, job.text(words("x"))).first
    assert job.crawl.seed(more, job.now)  # one more request, beside the page in work
    job.settle(lease)
    ticket = job.lease()
    assert ticket.key != A.key
    assert job.crawl.judge(ticket, job.text(words("x")), A.key).first == b""


def test_who_was_first_outlives_the_process():
    for is_near in [False, True]:
        job = Pages(is_near=is_near)
        job.judged(A, words("x"))
        job.commit()
        job.crash()
        assert job.judged(B, words("x")) == A.key, is_near
        assert job.judged(C, edited(words("x"), 0.005)) == (A.key if is_near else b""), is_near


def test_what_was_not_committed_is_judged_again():
    job = Pages()
    job.seed(A)
    job.commit()
    lease = job.begin(A)
    job.crawl.judge(lease, job.text(words("x")))
    job.settle(lease)
    job.crash()
    assert job.crawl.judge(job.lease(), job.text(words("y"))).first == b""
    assert job.judged(B, words("x")) == b""


def test_rows_in_flight_and_rows_that_did_not_reach_the_store_count():
    job = Pages(is_near=True)
    job.judged(A, words("x"))
    job.crawl.take_changes(NOW)
    assert job.judged(B, words("x")) == A.key
    job.crawl.changes_failed()
    assert job.judged(C, words("x")) == A.key
    job.commit()
    job.crash()
    assert job.judged(D, edited(words("x"), 0.005)) == A.key


def test_a_small_edit_is_a_duplicate_only_if_near_duplicates_are_looked_for():
    for part in [0.005, 0.01]:
        near, exact = Pages(is_near=True), Pages()
        for job in (near, exact):
            job.judged(A, words("x"))
        assert near.judged(B, edited(words("x"), part)) == A.key, part
        assert exact.judged(B, edited(words("x"), part)) == b"", part
        assert near.judged(C, edited(words("x"), 0.2)) == b"", part


def test_a_page_with_too_few_words_is_not_judged():
    job = Pages()
    assert job.judged(A, ["few"]) == b""
    assert job.judged(B, ["few"]) == b""
    job.judged(C, words("x"))
    assert job.judged(C, ["few"]) == b""  # it has another text now
    assert job.judged(D, words("x")) == b""


def test_a_page_that_has_changed_is_found_by_its_new_text_only():
    job = Pages(is_near=True)
    job.judged(A, words("x"))
    job.judged(A, words("y"))
    assert job.judged(B, words("x")) == b""
    assert job.judged(C, edited(words("y"), 0.005)) == A.key
    job.judged(B, words("z"))
    assert job.judged(D, words("x")) == b"", "nor is the page that had it after that"
    job.commit()


def test_without_a_new_text_the_last_one_counts():
    """As the answer 304 says."""
    job = Pages()
    job.judged(A, words("x"))
    job.judged(B, words("x"))
    assert job.judged(B, None) == A.key
    assert job.judged(A, None) == b""
    assert job.judged(C, None) == b""


def test_a_page_that_failed_is_nobodys_original():
    job = Pages()
    job.judged(A, words("x"))
    lease = job.begin(A)
    job.settle(lease, outcome="http 404", is_failure=True)
    assert job.judged(B, words("x")) == b""
    assert job.judged(C, words("x")) == B.key
    job.commit()


def test_a_lease_that_is_put_back_leaves_no_trace_of_its_judgement():
    job = Pages()
    job.judged(A, words("x"))
    lease = job.begin(B)
    assert job.crawl.judge(lease, job.text(words("x"))).first == job.crawl.same_as(B.key) == A.key
    job.crawl.put_back(lease, B, job.now)
    assert job.crawl.same_as(B.key) == b""
    assert job.crawl.judge(job.lease(), job.text(words("z"))).first == b""


def test_a_page_costs_a_bounded_number_of_bytes():
    for is_near, most in ((False, 100), (True, 400)):
        job = Pages(is_near=is_near)
        for number in range(20):
            job.judged(link("a", number), words(str(number)))
            job.judged(link("b", number), words(str(number)))
        job.commit()
        rows = list(job.store.scan(Family.CONTENT))
        assert sum(len(key) + len(value) for key, value in rows) / 40 < most
