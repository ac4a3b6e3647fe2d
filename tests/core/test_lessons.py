"""What processes of one crawl learn from each other: what is told arrives, and nothing else is believed."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.focus.harvest_results import Degrees
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.lessons import (
    MOST_LESSONS,
    OTHERS,
    Lessons,
    part_told,
    read_lessons,
    write_lessons,
)
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import MOST_OF_MEMO, PageSeen
from scrapy_aopic.core.focus.topic import LinkText, Samples, Topic
from scrapy_aopic.core.records import PAGE_BYTES, pack

PART = st.floats(0, 1)
KEY = st.binary(min_size=PAGE_BYTES, max_size=PAGE_BYTES)
SHORT = st.text(max_size=70)
PAGES = st.builds(
    PageSeen,
    url=SHORT,
    grade=PART,
    value=PART,
    is_relevant=st.booleans(),
    key=KEY,
    parent=KEY | st.just(b""),
    link=st.none() | st.builds(LinkText, SHORT, SHORT, SHORT, SHORT),
    depth=st.integers(0, 1000),
    parent_grade=PART,
    text=SHORT,
    memo=st.binary(max_size=60),
    degrees=st.none() | st.builds(Degrees, *[st.floats(-99, 99)] * 3),
)


@given(st.lists(st.booleans(), max_size=20), st.lists(PAGES, max_size=5))
def test_what_is_told_arrives(grades, pages):
    read = read_lessons(write_lessons(Lessons("somebody", 7, grades, pages)))
    assert read == Lessons("somebody", 7, grades, pages)


def test_what_leaves_is_bounded():
    text = "\U0001f600" * 100_000
    page = PageSeen(text, 1.0, 1.0, True, bytes(16), bytes(16), LinkText(text, text, text, text), text=text)
    rng = Random(0)
    pages = [page._replace(text="".join(chr(rng.randrange(0x20000, 0x2A000)) for _ in range(9000)))] * 100
    data = write_lessons(Lessons("somebody", 7, [True] * 100_000, pages))
    read = read_lessons(data)
    assert read is not None
    assert len(read.pages) == MOST_LESSONS
    assert len(data) < 2 << 20


def test_half_a_character_does_not_stop_a_lesson():
    page = PageSeen("u", 0.5, 0.5, True, bytes(16), b"", LinkText("\ud800", "", "", "/"), text="\udfff")
    read = read_lessons(write_lessons(Lessons("somebody", 7, [], [page])))
    assert read is not None
    assert read.pages[0].link == LinkText("?", "", "", "/")


@given(st.binary(max_size=200) | st.binary(max_size=200).map(zlib.compress))
def test_bytes_that_are_no_lessons_are_none(data):
    read = read_lessons(data)
    assert read is None or isinstance(read, Lessons)


def test_a_lesson_that_cannot_be_is_left_out_and_the_others_are_not():
    nan = float("nan")
    for place, wrong in [
        (0, 7), (1, 1.5), (1, nan), (2, -1), (4, b"short"), (5, b"short"), (6, ("", "")), (6, (1, 2, 3, 4)), (7, -1),
        (8, "high"), (9, b"bytes"), (10, "text"), (10, bytes(MOST_OF_MEMO + 1)),
        (11, "abc"), (11, (1.0, 2.0)), (11, (1.0, 2.0, "3")), (11, (1.0, 2.0, 1e300)), (11, (1.0, 2.0, nan)),
    ]:  # fmt: skip
        good = ["u", 0.5, 0.5, True, bytes(16), bytes(16), ("a", "b", "c", "d"), 3, 0.5, "", b"memo", None]
        bad = [*good]
        bad[place] = wrong
        read = read_lessons(zlib.compress(pack(("somebody", 7, b"\x01", [bad, good]))))
        assert read is not None, (place, wrong)
        assert [page.depth for page in read.pages] == [3], (place, wrong)


def test_a_bomb_is_refused():
    assert read_lessons(zlib.compress(bytes(100 << 20))) is None


def test_how_much_is_told_does_not_grow_with_the_number_of_processes():
    assert part_told(1) == part_told(2) == part_told(OTHERS + 1) == 1.0
    for n in (10, 1000):
        assert part_told(n) * (n - 1) == pytest.approx(OTHERS)


def test_who_learns_from_lessons_values_links_as_who_has_fetched_the_pages():
    rng = Random(1)
    pages = []
    for number in range(300):
        is_good = rng.random() < 0.3
        link = LinkText("recipe" if is_good else "weather", "", "", f"/{number}")
        key = number.to_bytes(16, "big")
        pages.append(PageSeen(f"u{number}", float(is_good), 0.5, is_good, key, bytes(16), link, 1, 0.2))
    taught, fetched = Learned(Topic(["x"]), Random(2)), Learned(Topic(["x"]), Random(2))
    for page in pages:
        fetched.learn(page)
        read = read_lessons(write_lessons(Lessons("somebody", 7, [], [page])))
        assert read is not None
        taught.learn(read.pages[0])
    links = [LinkText("recipe", "", "", "/x"), LinkText("weather", "", "", "/y")]
    seen = PageSeen("p", 0.2, 0.5, False, bytes(16))
    assert taught.values(seen, links) == fetched.values(seen, links)
    one, other = taught.values(seen, links)
    assert one > 2 * other


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_learns_from_pages_of_which_it_has_seen_no_other(name):
    rng = Random(3)
    topic = Topic(["bread"])
    topic.samples = Samples([("bread oven", True), ("rain", False)], [("bread", True), ("weather", False)])
    strategy = STRATEGIES[name](topic, rng)
    for number in range(300):
        is_good = rng.random() < 0.3
        link = LinkText("bread" if is_good else "weather", "around", "heading", f"/{number}")
        key, parent = number.to_bytes(16, "big"), rng.randbytes(16)
        text = "bread oven flour " * 40 if is_good else "rain wind sun " * 40
        page = PageSeen(
            f"u{number}", float(is_good), 0.5, is_good, key, parent, link, rng.randrange(9), 0.5, text
        )
        read = read_lessons(write_lessons(Lessons("somebody", 7, [], [page])))
        assert read is not None
        strategy.learn(read.pages[0])
    links = [LinkText("bread", "", "", "/x"), LinkText("weather", "", "", "/y")]
    values = strategy.values(PageSeen("p", 0.5, 0.5, True, bytes(16), text="bread " * 100), links)
    assert all(0.0 <= value <= 1.0 for value in values)
    strategy.restore(strategy.pack())
