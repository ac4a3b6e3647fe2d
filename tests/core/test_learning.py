"""Learning from links: what is kept of a link while its page waits, and what a strategy makes of it."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.core_crawl import Job, link

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.focus import learned
from scrapy_aopic.core.focus.leads import IN_FULL, MOST_BYTES, LeadsOfPage, all_bounded, unpack_lead
from scrapy_aopic.core.focus.learned import BACK, FIRST, REPLAY, STEPS, Learned
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import MOST_OF_MEMO, PageSeen
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import LARGEST_VALUE, Focused, whole_value
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link
from scrapy_aopic.exceptions import StorageError

TEXTS = st.text(max_size=600)


def key(number: int) -> bytes:
    return number.to_bytes(16, "big")


def page(number: int, grade: float, said: str, parent: int = 0, **rest: object) -> PageSeen:
    """Page *number*, found by a link that *said* something."""
    seen = PageSeen(
        f"http://a.test/{number}", grade, 0.5, grade >= 0.5, key(number), key(parent), LinkText(said)
    )
    return seen._replace(**rest)


def taught(n: int = 100, seed: int = 0) -> Learned:
    """A strategy that has seen *n* links, of which those to the left led to relevant pages."""
    strategy = Learned(Topic(["bread"]), Random(seed))
    for number in range(1, n + 1):
        strategy.learn(
            page(number, float(number % 4 == 0), "to the left" if number % 4 == 0 else "to the right")
        )
    return strategy


def value(strategy: Learned, said: str, grade: float = 0.0) -> float:
    return strategy.values(PageSeen("", grade, 0.5, grade >= 0.5), [LinkText(said)])[0]


# what is learned


def test_without_examples_a_value_is_the_first_guess():
    strategy = Learned(Topic(["bread"]), Random(0))
    # How well the text fits, and the grade of its page.
    assert value(strategy, "bread", 0.5) == pytest.approx(0.2 + 0.8 * 0.5)
    assert value(strategy, "stone", 0.5) == pytest.approx(0.8 * 0.5)
    assert strategy.version == 0


def test_what_stands_around_a_link_counts_on_pages_that_are_not_relevant_themselves():
    strategy = Learned(Topic(["bread"]), Random(0))
    plain, quoted = LinkText("more"), LinkText("more", "about bread")
    on_irrelevant, on_relevant = (
        strategy.values(PageSeen("", grade, 0.5, grade >= 0.5), [plain, quoted]) for grade in (0.0, 0.7)
    )
    assert on_irrelevant[1] > 4 * on_irrelevant[0]
    assert on_relevant[1] == on_relevant[0] > on_irrelevant[1]


def test_keywords_on_irrelevant_pages_do_not_make_a_crawl_distrust_grades():
    """Every second page has one here, and no link leads to a relevant page."""
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 150):
        strategy.learn(page(number, 0.3 * (number % 2), f"way {number}"))
    assert value(strategy, "new", 0.8) > 2 * value(strategy, "new", 0.3)


def test_given_by_examples_what_stands_around_a_link_counts_beside_the_grade_of_its_page():
    topic = Topic()
    topic.learn([("bread dough oven", True), ("stone wall road", False)])
    strategy = Learned(topic, Random(0))
    seen = PageSeen("", 0.5, 0.5, is_relevant=True)
    link = LinkText("wall", "bread dough oven")
    own, together = topic.fit(["wall"]), topic.fit(["wall", "bread", "dough", "oven"])
    assert own < 0.5 < together
    assert strategy.values(seen, [link])[0] == pytest.approx(0.3 * own + 0.3 * together + 0.4 * 0.5)


def test_links_are_valued_by_what_became_of_earlier_ones_with_their_words():
    strategy = taught()
    assert value(strategy, "to the left") > 3 * value(strategy, "to the right")
    assert value(strategy, "to the right") < 0.2
    assert strategy.version > 0
    assert strategy.revalue(0.0, LinkText("to the left")) == value(strategy, "to the left")


def test_a_topic_without_any_relevant_page_yet_leaves_all_values_low_and_no_two_apart():
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 200):
        strategy.learn(page(number, 0.0, f"way {number % 7}"))
    values = [value(strategy, f"way {number}") for number in range(7)]
    assert max(values) < 0.05


def test_a_page_is_worth_what_is_found_through_it():
    """Doors lead to irrelevant pages whose links lead to relevant ones; walls lead to the same without."""
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 400, 4):
        strategy.learn(page(number, 0.0, "a door"))
        strategy.learn(page(number + 1, 0.0, "a wall"))
        strategy.learn(page(number + 2, 1.0, "go on", parent=number))
        strategy.learn(page(number + 3, 0.0, "go back", parent=number + 1))
    assert value(strategy, "a door") > 3 * value(strategy, "a wall")
    assert value(strategy, "go on") > value(strategy, "a door")


def test_a_duplicate_is_no_example_of_a_relevant_page():
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 100):
        strategy.learn(page(number, 1.0, "again", is_relevant=False))
    assert value(strategy, "again") < 0.1


def test_a_page_costs_a_bounded_number_of_steps_however_many_were_seen(monkeypatch):
    steps = 0
    step = Learned._step

    def counted(self: Learned, example: object) -> float:
        nonlocal steps
        steps += 1
        return step(self, example)  # type: ignore[arg-type]

    monkeypatch.setattr(Learned, "_step", counted)
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 1000):  # one long way, at the end of which relevant pages are
        steps = 0
        strategy.learn(page(number, float(number > 900), "on", parent=number - 1))
        assert steps <= STEPS + BACK


def test_what_is_kept_in_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(learned, "REPLAY", 50)
    monkeypatch.setattr(learned, "_CACHE", 20)
    strategy = Learned(Topic(["bread"]), Random(0))
    for number in range(1, 500):
        strategy.learn(page(number, float(number % 3 == 0), f"page {number}", parent=number - 1))
    again = Learned(Topic(["bread"]), Random(0))
    again.restore(strategy.pack())
    assert len(strategy._examples) == len(strategy._order) == len(again._examples) == 50
    assert len(strategy._said) <= 20


def test_versions_come_less_often_the_more_is_known():
    strategy = Learned(Topic(["bread"]), Random(0))
    at = []
    for number in range(1, 3000):
        before = strategy.version
        strategy.learn(page(number, 0.0, "on"))
        if strategy.version != before:
            at.append(number)
    steps = [later - earlier for earlier, later in pairwise(at)]
    assert at[0] == FIRST
    assert steps == sorted(steps)
    assert len(at) < 40


# what is kept with the job


def test_what_was_learned_is_the_same_once_restored():
    strategy = taught(REPLAY + 100)
    again = Learned(Topic(["bread"]), Random(1))
    again.restore(strategy.pack())
    for said in ("to the left", "to the right", "elsewhere"):
        assert value(again, said, 0.3) == value(strategy, said, 0.3)
    assert again.version == strategy.version
    assert again.pack() == strategy.pack()
    for each in (again, strategy):
        each._chance = Random(2)
        each.learn(page(9_999, 1.0, "to the right"))
    assert value(again, "to the right") == value(strategy, "to the right")


PACKED = taught(30).pack()
GUESS = value(Learned(Topic(["bread"]), Random(0)), "bread", 0.5)


@given(st.one_of(
    st.binary(max_size=200),
    st.integers(0, len(PACKED)).map(lambda n: PACKED[:n]),
    st.tuples(st.integers(0, len(PACKED) - 1), st.integers(1, 255)).map(
        lambda at: PACKED[: at[0]] + bytes((PACKED[at[0]] ^ at[1],)) + PACKED[at[0] + 1 :]
    ),
))  # fmt: skip
def test_damaged_bytes_are_refused_or_make_a_strategy_that_works(data):
    strategy = Learned(Topic(["bread"]), Random(0))
    try:
        strategy.restore(data)
    except StorageError:
        assert value(strategy, "bread", 0.5) == GUESS
        assert strategy.version == 0
    for number in range(3):
        strategy.learn(page(number, 1.0, "to the left"))
    assert 0.0 <= value(strategy, "to the left") <= 1.0


@pytest.mark.parametrize(
    "name",
    [name for name, make in STRATEGIES.items() if not make.needs_samples and make(Topic(), Random(0)).learns],
)
def test_every_strategy_that_learns_goes_on_from_what_was_kept(name):
    chance = Random(0)

    def some() -> list[float]:
        chance.seed(1)
        return [
            round(each, 6)
            for each in strategy.values(page(0, 0.4, ""), [LinkText("to the left"), LinkText("up")])
        ]

    strategy = STRATEGIES[name](Topic(["bread"]), chance)
    for number in range(1, 60):
        strategy.learn(page(number, float(number % 3 == 0), "to the left" if number % 3 == 0 else "right"))
    before, kept = some(), strategy.pack()
    strategy = STRATEGIES[name](Topic(["bread"]), chance)
    strategy.restore(kept)
    assert some() == before
    with pytest.raises(StorageError):
        STRATEGIES[name](Topic(["bread"]), Random(0)).restore(b"\xff" + kept[: len(kept) // 2])


# memos


LINKS = [
    LinkText("to the left", "bread", "Ways", "/left"),
    LinkText("to the right", "", "", "/right"),
    LinkText("bread"),
]


@pytest.mark.parametrize(
    "name",
    [name for name, make in STRATEGIES.items() if issubclass(make, Learned) and not make.needs_samples],
)
def test_a_memo_says_of_a_link_what_its_texts_do(name):
    by_texts, by_memos = (STRATEGIES[name](Topic(["bread"]), Random(0)) for _ in range(2))
    seen = PageSeen("", 0.4, 0.5, is_relevant=False, key=key(7))
    for number in range(1, 100):
        link, grade = LINKS[number % 3], float(number % 3 == 0)
        memo = by_memos.memo(by_memos.read([link])[0])
        assert len(memo) <= MOST_OF_MEMO
        by_texts.learn(page(number, grade, "", link=link))
        by_memos.learn(page(number, grade, "", link=None, memo=memo))
    values = by_texts.values(seen, LINKS)
    assert by_memos.values(seen, LINKS) == pytest.approx(
        values, abs=1e-5
    )  # a memo holds four bytes of a number
    memos = map(by_memos.memo, by_memos.read(LINKS))
    assert [by_memos.revalue_memo(0.4, memo, key(7)) for memo in memos] == pytest.approx(values, abs=1e-5)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_memo_are_none_or_say_nothing_wrong(memo):
    strategy = Learned(Topic(["bread"]), Random(0))
    strategy.restore(PACKED)
    found = strategy.revalue_memo(0.5, memo)
    assert found is None or 0.0 <= found <= 1.0
    strategy.learn(page(99, 1.0, "", link=None, memo=memo))
    assert 0.0 <= value(strategy, "to the left") <= 1.0


def test_a_memo_of_another_topic_says_only_which_words_a_link_has():
    memo = taught(60).memo(taught(60).read([LinkText("to the left bread")])[0])
    other = Learned(Topic(["stone"]), Random(0))
    other.restore(taught(60).pack())
    expected = other.values(PageSeen("", 0.5, 0.5, is_relevant=True), [LinkText("to the left bread")])
    assert other.revalue_memo(0.5, memo) == pytest.approx(expected[0])


def test_a_link_of_very_many_words_has_a_bounded_memo():
    strategy = Learned(Topic(["bread"]), Random(0))
    said = strategy.read([LinkText(" ".join(map(str, range(2_000))))])[0]
    assert len(strategy.memo(said)) <= MOST_OF_MEMO
    lead = unpack_lead(LeadsOfPage(key(7), 0.5, 3).pack_memo(strategy.memo(said), "go"))
    assert lead == (key(7), 0.5, 3, None, strategy.memo(said), "go")


# what led to a page


@given(st.builds(LinkText, TEXTS, TEXTS, TEXTS, TEXTS), st.floats(0, 1), st.integers(0, 1 << 40))
def test_a_lead_is_bounded_and_can_be_read(link, grade, depth):
    data = LeadsOfPage(key(7), grade, depth).pack(link)
    assert len(data) <= MOST_BYTES
    lead = unpack_lead(data)
    assert lead is not None
    assert lead.parent == key(7)
    assert lead.grade == pytest.approx(grade, abs=0.001)
    assert link.anchor.startswith(lead.link.anchor)
    assert lead.link.around in link.around


def test_a_page_of_many_links_costs_no_more_than_their_own_texts():
    links = all_bounded([LinkText(f"link {number}", "around", "heading", "/path") for number in range(1000)])
    assert [link.anchor for link in links] == [f"link {number}" for number in range(1000)]
    assert all(link.around for link in links[:IN_FULL])
    assert not any(link.around or link.heading for link in links[IN_FULL:])


def test_hostile_text_is_no_lead_that_hurts():
    for text in ["\ud800", "a\udfff" * 500, "\U0001f600" * 1000, "x" * 1_000_000]:
        data = LeadsOfPage(key(7), 0.5, 1).pack(LinkText(text, text, text, text))
        assert len(data) <= MOST_BYTES, text
        assert unpack_lead(data) is not None, text


@given(st.binary(max_size=300))
def test_bytes_that_are_no_lead_are_none(data):
    unpack_lead(data)
    assert unpack_lead(data[:15]) is None


def valued(number: int, value: float, lead: bytes) -> Link:
    return replace(link("a", number), value=whole_value(value), lead=lead)


def lead_of(anchor: str, grade: float = 1.0) -> bytes:
    return LeadsOfPage(link("a").key, grade, 1).pack(LinkText(anchor))


def focused_job() -> Job:
    return Job(link("a"), link("b"), order=Focused(1.0, 0.0))


def leads(job: Job) -> dict[bytes, bytes]:
    return {row[1:]: value for row, value in job.store.scan(Family.CONTENT) if row[:1] == b"L"}


def test_the_best_link_to_a_page_is_remembered_while_it_waits_and_forgotten_then():
    job = focused_job()
    poor, good, itself = (valued(1, value, lead_of(str(value))) for value in (0.2, 0.6, 0.9))
    job.visit(poor)
    job.commit()
    assert leads(job) == {poor.key: poor.lead}
    job.visit(good)
    job.commit()
    assert leads(job) == {poor.key: good.lead}
    job.reopen()
    job.now += 100  # after the pause that follows a crash
    assert job.crawl.lead(poor.key) == good.lead
    assert job.visit(itself).key == poor.key
    job.commit()
    assert leads(job) == {}


def test_a_seed_keeps_its_value_and_has_no_lead():
    job = focused_job()
    job.visit(replace(link("b"), value=whole_value(0.9), lead=lead_of("b")))
    job.commit()
    assert leads(job) == {}


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), max_size=60, unique_by=lambda each: each[0]),
    st.integers(1, 7),
    st.booleans(),
)
def test_waiting_pages_are_valued_anew_a_slice_at_a_time_and_no_unit_is_lost(found, n, is_committed_between):
    job = focused_job()
    links = [valued(number, value, lead_of(str(number))) for number, value in found]
    job.visit(*links)
    job.commit()
    leased = job.lease()
    at, n_steps = b"", 0
    while n_steps == 0 or at:
        _, at = job.crawl.revalue(lambda lead: whole_value(int(lead.link.anchor) / 30), job.now, at, n)
        n_steps += 1
        if is_committed_between:
            job.commit()
    assert n_steps <= len(links) // n + 1
    job.commit()
    result = audit(job.store)
    assert result.cash + result.virtual == TOTAL
    for (number, before), each in zip(found, links, strict=True):
        wanted, had = whole_value(number / 30), whole_value(before)
        now = job.page(each).score & LARGEST_VALUE
        if each.key == leased.key or abs(wanted - had) <= had / 32:  # it is in flight, or worth what it was
            assert now == had
        else:
            assert now == wanted


def test_a_page_moves_up_when_its_link_is_worth_more_now():
    job = focused_job()
    one, other = valued(1, 0.2, lead_of("one")), valued(2, 0.3, lead_of("other"))
    job.visit(one, other)
    job.commit()
    n, _ = job.crawl.revalue(
        lambda lead: whole_value(0.9 if lead.link.anchor == "one" else 0.1), job.now, b"", 100
    )
    assert n == 2
    job.commit()
    job.visit()  # the seed
    assert [job.visit().key for _ in range(2)] == [one.key, other.key]
