"""Focused crawling: features, a classifier that learns, and shares of cash that lose no unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.focus.classifier import Classifier
from scrapy_aopic.core.focus.shares import rank, shares
from scrapy_aopic.core.focus.topic import FLOOR, LinkText, Topic
from scrapy_aopic.core.focus.words import BITS, features, url_words, words
from scrapy_aopic.core.ledger import TOTAL, Ledger, Totals
from scrapy_aopic.core.records import Page, State
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import StorageError

VALUES = st.lists(st.floats(0, 1), max_size=30)
PARTS = st.floats(0, 1)


def test_words_of_scripts_without_spaces_are_pairs_of_characters() -> None:
    assert words("Open Data: データ 数据库 x 水") == [
        "open",
        "data",
        "デー",
        "ータ",
        "数据",
        "据库",
        "x",
        "水",
    ]


def test_words_of_urls_are_parted_at_capitals_and_lose_numbers() -> None:
    assert url_words("/docs/SecureShell_v2.html?page=17") == ["docs", "secure", "shell", "v", "html", "page"]


@given(st.text())
def test_features_are_a_vector_of_length_1(text: str) -> None:
    found = features([("page", words(text))])
    assert all(0 <= place < 1 << BITS for place in found)
    assert not found or math.isclose(sum(value * value for value in found.values()), 1.0)


def test_features_are_the_same_in_every_process() -> None:
    assert features([("page", ["open"])]) == {38546: 1.0}


def test_a_word_is_another_one_in_another_field() -> None:
    assert features([("anchor", ["open"])]).keys() != features([("url", ["open"])]).keys()


@given(VALUES, PARTS, st.floats(0, 5), st.integers(0, TOTAL // 2), st.integers(0, 5))
def test_cash_is_conserved_to_the_unit(
    values: list[float], focus: float, null_mass: float, cash: int, filtered: int
) -> None:
    ledger = Ledger(Totals(virtual=TOTAL - cash), Window())
    page = Page(State.QUEUED, 1)
    ledger.admit(page, cash)
    split = shares(values, focus=focus, null_mass=null_mass)
    assert sum(split.weights) <= split.whole

    paid = ledger.visit(
        page, cash, split.weights, len(values) + filtered, 0.0, whole=split.whole, domain_visited=0
    )

    assert sum(paid) + page.cash + ledger.totals.virtual == TOTAL


@given(VALUES, VALUES)
def test_a_link_of_higher_value_is_paid_no_less(some: list[float], others: list[float]) -> None:
    values = sorted([*some, *others])
    assert shares(values).weights == sorted(shares(values).weights)


def test_without_focus_all_links_are_paid_the_same() -> None:
    split = shares([0.0, 0.3, 1.0], focus=0.0)
    assert len(set(split.weights)) == 1
    assert sum(split.weights) == split.whole


def test_an_off_topic_page_keeps_its_cash_from_its_links() -> None:
    split = shares([FLOOR] * 100)
    assert sum(split.weights) / split.whole < 0.02


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_a_value_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        shares([wrong])


def test_the_dial_goes_from_cash_to_topic() -> None:
    rich, fit = (0.1, 1000.0), (0.9, 1.0)
    assert rank(*rich, focus=0.0) > rank(*fit, focus=0.0)
    assert rank(*rich, focus=1.0) > rank(0.1, 1.0, focus=1.0)
    assert rank(*fit, focus=1.0) > rank(0.1, 10.0, focus=1.0)


def learned() -> Classifier:
    classifier = Classifier()
    for i in range(200):
        classifier.learn(features([("page", ["key", "cipher", f"w{i}"])]), 1.0)
        classifier.learn(features([("page", ["bread", "oven", f"w{i}"])]), 0.0)
    return classifier


def test_a_classifier_learns_from_examples_of_both_kinds() -> None:
    classifier = learned()
    assert classifier.score(features([("page", ["cipher", "unheard"])])) > 0.8
    assert classifier.score(features([("page", ["oven", "unheard"])])) < 0.2


def test_one_relevant_example_in_a_hundred_is_not_lost() -> None:
    classifier = Classifier()
    for i in range(1000):
        classifier.learn(
            features([("page", ["bread" if i % 100 else "cipher", f"w{i % 7}"])]), float(not i % 100)
        )
    assert (
        classifier.score(features([("page", ["cipher"])]))
        > classifier.score(features([("page", ["bread"])])) + 0.3
    )


def test_a_classifier_goes_on_after_it_was_written_and_read() -> None:
    one, two = learned(), Classifier.unpack(learned().pack())
    example = features([("page", ["cipher", "oven"])])
    one.learn(example, 1.0)
    two.learn(example, 1.0)
    assert one.score(example) == two.score(example)
    assert one.pack() == two.pack()


@given(st.binary(max_size=200))
def test_other_bytes_are_no_classifier(data: bytes) -> None:
    with pytest.raises(StorageError):
        Classifier.unpack(data)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_never_gives_numbers_that_are_none(where: int, flip: int) -> None:
    classifier = Classifier()
    classifier.learn({3: 0.6, 70_000: 0.8}, 1.0)
    data = bytearray(classifier.pack())
    data[where % len(data)] ^= flip
    try:
        read = Classifier.unpack(bytes(data))
    except StorageError:
        return
    assert 0.0 <= read.score({3: 0.6, 70_000: 0.8}) <= 1.0


def test_links_are_valued_by_keywords_before_anything_is_known() -> None:
    topic = Topic(["encryption", "public key"])
    named = topic.value(LinkText("About public key systems"), 0.5).value
    assert named > topic.value(LinkText("About ovens"), 0.5).value >= FLOOR
    assert topic.value(LinkText("About ovens"), 0.0).value == FLOOR


def test_what_became_of_links_outweighs_keywords() -> None:
    topic = Topic(["encryption"])
    for i in range(100):
        topic.learn_link(topic.value(LinkText(f"Chapter {i}", path="/ssh/"), 0.3), 1.0)
        topic.learn_link(topic.value(LinkText(f"About encryption {i}", path="/shop/"), 0.3), 0.0)
    ssh = topic.value(LinkText("Chapter 1000", path="/ssh/"), 0.3).value
    assert ssh > topic.value(LinkText("About encryption 1000", path="/shop/"), 0.3).value


def test_pages_are_graded_by_keywords_until_there_are_examples() -> None:
    topic = Topic(["encryption"])
    assert topic.grade("encryption " * 3 + "word " * 97) > 0.5
    assert topic.grade("word " * 100) == 0.0
    for _ in range(50):
        topic.learn_page("lattices and primes", 1.0)
        topic.learn_page("encryption of bread", 0.0)
    assert topic.grade("primes") > topic.grade("encryption")


@given(st.text(max_size=200), st.text(max_size=200), PARTS)
def test_a_value_is_always_one(anchor: str, path: str, grade: float) -> None:
    assert FLOOR <= Topic(["a b", ""]).value(LinkText(anchor, anchor, anchor, path), grade).value <= 1.0
