"""JLSE as printed against its paper: each equation by an example worked out by hand."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.focus.harvest_results import Degrees, SupportVectors, degrees, degrees_of
from scrapy_aopic.core.focus.published.bm25 import Index, Match
from scrapy_aopic.core.focus.published.jlse import FIELDS, NO_EVIDENCE
from scrapy_aopic.core.focus.published.jlse_as_printed import (
    AtaAsPrinted,
    JlseAsPrinted,
    NaiveBayes,
    best_score,
    idf,
    unit_vector,
)
from scrapy_aopic.core.focus.published.result_pages import RESULT_PAGES
from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText, Samples, Topic
from scrapy_aopic.core.focus.words import all_words

BAYES = NaiveBayes([(["ship", "sea"], True), (["ship"], True), (["land"], False)])


def test_equation_2_smooths_by_the_vocabulary_of_the_class():
    relevant = {"ship": 3 / 5, "sea": 2 / 5, "land": 1 / 5}  # three words, of which two are distinct
    other = {"ship": 1 / 2, "sea": 1 / 2, "land": 2 / 2}
    for word, probability in relevant.items():
        assert BAYES.word(word, is_relevant=True) == pytest.approx(probability)
        assert BAYES.word(word, is_relevant=False) == pytest.approx(other[word])


def test_equation_1_counts_each_word_of_a_document_once():
    for found in [["ship"], ["ship", "ship"]]:
        one, other = 2 / 3 * 3 / 5, 1 / 3 * 1 / 2
        assert BAYES.probability(found) == pytest.approx(one / (one + other)) == pytest.approx(12 / 17), found


def test_equation_1_of_nothing_is_how_frequent_a_class_is():
    assert BAYES.probability([]) == pytest.approx(2 / 3)


def test_one_class_alone_is_refused():
    with pytest.raises(ValueError, match="not 1 and 0"):
        NaiveBayes([(["ship"], True)])


@given(st.lists(st.text(max_size=3)))
def test_equation_1_is_a_probability(found):
    assert 0.0 <= BAYES.probability(found * 1000) <= 1.0


SHIPS, BREAD = "a ship at sea and its crew", "bread and rolls of the baker"
STOP = ("a", "and", "of", "the", "its", "at")
LIST, TEXT = Degrees(-5.0, -1.0, 1.0), Degrees(3.0, -6.0, 8.0)
LINEAR = SupportVectors(0.01, 0.0, ((TEXT, 1.0), (LIST, -1.0)))
"""Which of the two a page is nearer to."""


def topic() -> Topic:
    found = Topic()
    found.samples = Samples(
        [(SHIPS, True), (BREAD, False)], [("Ships and boats", True), ("Bread", False)], STOP
    )
    return found


class Hundredths(JlseAsPrinted):
    """Learns early, and knows what its pages are."""

    cf = 2
    results = LINEAR


def page(
    key: str, parent: str = "", link: LinkText | None = None, *, text: str = "", kind: Degrees = LIST
) -> PageSeen:
    return PageSeen("", 0.0, 0.5, False, key.encode(), parent.encode(), link, text=text, degrees=kind)


def chain(strategy: JlseAsPrinted, name: str) -> None:
    """A result behind a catalog and a list."""
    strategy.learn(page("seed", text=SHIPS))
    strategy.learn(page(f"{name} catalog", "seed", LinkText("Catalog", path="/c/"), text=SHIPS))
    strategy.learn(page(f"{name} list", f"{name} catalog", LinkText("List", path="/l/"), text=SHIPS))
    strategy.learn(
        page(f"{name} ship", f"{name} list", LinkText(f"{name} boat", path="/s/"), text=SHIPS, kind=TEXT)
    )


def test_algorithm_1_is_equation_1_of_a_links_text_without_stop_words_or_a_hundredth():
    strategy = JlseAsPrinted(topic(), Random(1))
    # Relevant are two words, both distinct; others one: P(ships | class) is 2/4 and 1/2, P(boats | class) the same.
    assert strategy.similarity(LinkText("the ships")) == NO_EVIDENCE  # 1/2 is not more likely than not
    more = Topic()
    more.samples = Samples([(SHIPS, True), (BREAD, False)], [("Ships ships", True), ("Bread", False)], STOP)
    strategy = JlseAsPrinted(more, Random(1))
    assert strategy.similarity(LinkText("and ships")) == pytest.approx((3 / 3) / (3 / 3 + 1 / 2))
    assert strategy.similarity(LinkText("bread")) == NO_EVIDENCE
    assert strategy.similarity(LinkText("")) == NO_EVIDENCE


def test_equation_3_is_the_better_of_two():
    strategy = Hundredths(topic(), Random(1))
    for name in ("first", "second"):
        chain(strategy, name)
    link = LinkText("List")
    assert strategy.memory.predict(link) > AtaAsPrinted.similarity(strategy, link)
    assert strategy.similarity(link) == strategy.memory.predict(link)
    assert strategy.similarity(LinkText("never seen")) == AtaAsPrinted.similarity(
        strategy, LinkText("never seen")
    )


def test_equation_4_takes_text_url_and_context_of_a_link_without_stop_words():
    strategy = JlseAsPrinted(topic(), Random(1))
    link = LinkText("The Ships", "a boat of the sea", "Heading", "/the/harbour/12?of=crew")
    as_in_definition_6 = (["ships"], ["harbour", "crew"], ["boat", "sea"])
    assert strategy.memory._document(link) == as_in_definition_6


DOCUMENTS = [(["a", "b"], [], []), (["a"], [], []), (["c"], [], [])]


def test_equation_6_is_below_0_for_what_most_documents_have():
    assert idf(3, 2) == pytest.approx(math.log(1.5 / 2.5))
    assert idf(3, 1) == pytest.approx(math.log(2.5 / 1.5))
    assert idf(2, 1) == 0.0


def test_equation_5_takes_each_term_of_a_link_once():
    index = Index(DOCUMENTS, FIELDS, idf)
    # The mean length is 4/3: 2 (.75 * 2 / (4/3) + .25) + 1 = 3.75, and 2 (.75 * 1 / (4/3) + .25) + 1 = 2.625.
    rarity = math.log(1.5 / 2.5)
    expected = {0: rarity * 3 / 3.75, 1: rarity * 3 / 2.625}
    assert index.scores((["a", "a"], [], [])) == [pytest.approx(expected), {}, {}]


def test_equations_7_and_8_weigh_columns_of_length_1():
    # 0: .5 * 3/5 = .3; 1: .5 * 4/5 + .2 * 1 = .6
    assert best_score([{0: 3.0, 1: 4.0}, {1: 2.0}, {}]) == Match(1, pytest.approx(0.6))
    assert best_score([{4: 1.0, 2: 1.0}, {}, {}]) == Match(2, pytest.approx(0.5 / math.sqrt(2)))
    assert best_score([{0: -3.0}, {}, {}]) is None
    assert best_score([{}, {}, {}]) is None


def test_equation_9_is_likeness_times_q():
    """Three vertices with a link's text: catalog, list and results, of which the graph has two chains."""
    strategy = Hundredths(topic(), Random(1))
    chain(strategy, "first")
    assert strategy.memory.predict(LinkText("List")) == 0.0  # nothing was read yet
    chain(strategy, "second")
    assert strategy.memory.predict(LinkText("List")) == pytest.approx(0.5 * 1.0)
    assert strategy.memory.predict(LinkText("List", path="/l/")) == pytest.approx(0.7 * 1.0)
    assert strategy.memory.predict(LinkText("Catalog")) == pytest.approx(0.5 * 0.9)
    assert strategy.memory.predict(LinkText("first")) == 0.0  # a result has no link, and so no Q


def test_q_of_a_result_may_be_1():
    class Leaf(Hundredths):
        leaf = 1.0

    strategy = Leaf(topic(), Random(1))
    for name in ("first", "second"):
        chain(strategy, name)
    assert strategy.memory.predict(LinkText("first")) == pytest.approx(0.5)


def test_equations_11_to_18_give_the_values_of_the_papers_example():
    """Ten pages, of which 3, 6 and 10 are results; each under the first page that links to it, so 7, which only links, is left out."""
    strategy = Hundredths(topic(), Random(1))
    for number, parent in ((1, 0), (2, 1), (3, 2), (4, 1), (5, 4), (6, 5), (8, 4), (9, 8), (10, 9)):
        kind = TEXT if number in {3, 6, 10} else LIST
        strategy.learn(page(str(number), str(parent), LinkText(str(number)), text=SHIPS, kind=kind))
    found = strategy.memory.graph.successes(100, strategy.memory._value)
    expected = {"1": 90, "2": 100, "4": 90, "5": 100, "8": 90, "9": 100, "3": 0, "6": 0, "10": 0}
    assert {link.anchor: 100 * q for link, q in found} == pytest.approx(expected)


def test_equation_10_splits_what_a_page_is_worth():
    assert unit_vector([0.3, 0.4]) == pytest.approx([0.6, 0.8])
    assert unit_vector([]) == []
    strategy = Hundredths(topic(), Random(1))
    seen = page("list", text=SHIPS)
    links = [LinkText("bread"), LinkText("x")]
    similarity = strategy.page_similarity(seen)
    assert 0.5 < similarity < 1.0
    assert strategy.values(seen, links) == pytest.approx([similarity / math.sqrt(2)] * 2)


@given(st.lists(st.floats(0.01, 1), max_size=20))
def test_priorities_are_from_0_to_1(similarities):
    found = unit_vector(similarities)
    assert all(0.0 <= each <= 1.0 for each in found)
    assert not found or math.isclose(math.hypot(*found), 1.0)


def test_algorithm_2_follows_no_link_of_a_result_or_of_an_irrelevant_page():
    for text, kind in [(BREAD, LIST), (SHIPS, TEXT), (BREAD, TEXT)]:
        strategy = Hundredths(topic(), Random(1))
        seen = page("x", text=text, kind=kind)
        strategy.learn(seen)
        assert strategy.values(seen, [LinkText("ships")]) == [0.0], (text, kind)
        assert strategy.memory.graph.n_results == (text == SHIPS), (text, kind)


def test_definition_8_reads_the_graph_at_each_multiple_of_cf():
    read = []
    strategy = JlseAsPrinted(topic(), Random(1))
    strategy.memory = type("Fifty", (JlseAsPrinted,), {"cf": 50, "results": LINEAR})(
        topic(), Random(1)
    ).memory
    for number in range(170):
        version = strategy.version
        strategy.memory.note(page(str(number), text=SHIPS, kind=TEXT), result=True)
        if strategy.version != version:
            read.append(number + 1)
    assert read == [50, 100, 150]
    assert JlseAsPrinted.cf == 150
    again = type("Fifty", (JlseAsPrinted,), {"cf": 50})(topic(), Random(1))
    again.memory.graph.n_results = 170
    again.memory.note(page("x"), result=True)
    assert again.memory._due == 200


def test_ata_has_the_text_of_a_link_alone():
    strategy = AtaAsPrinted(topic(), Random(1))
    for link in (LinkText("ships", "ships", "ships", "/ships"), LinkText("bread"), LinkText("boats")):
        assert strategy.similarity(link) == strategy.similarity(link)
    assert not strategy.learns


def test_what_led_to_results_is_kept():
    strategy, again = Hundredths(topic(), Random(1)), Hundredths(topic(), Random(1))
    for name in ("first", "second"):
        chain(strategy, name)
    again.restore(strategy.pack())
    for text in ("Catalog", "List", "first boat"):
        assert again.memory.predict(LinkText(text)) == pytest.approx(strategy.memory.predict(LinkText(text)))


def test_a_topic_without_samples_is_refused():
    with pytest.raises(ValueError, match="samples"):
        JlseAsPrinted(Topic(["ship"]), Random(1))


def test_degrees_of_a_page():
    assert degrees([200, 200], 420, 42) == Degrees(2.0, pytest.approx(math.log2(0.1)), math.log2(201))
    assert degrees([], 0, 0) == Degrees(-math.log2(100), 0.0, 0.0)
    between, links = ["one two three", "", "four"], ["five", "six seven"]
    assert degrees_of(between, links, all_words) == degrees([3, 1], 7, 2)


def test_a_machine_decides_by_its_vectors():
    """At the place of the first: 1 - exp(-.1 * 4) + .25; half way: nothing but what is added."""
    machine = SupportVectors(0.1, 0.25, ((Degrees(2, 0, 0), 1.0), (Degrees(0, 0, 0), -1.0)))
    assert machine.decide(Degrees(2, 0, 0)) == pytest.approx(1.25 - math.exp(-0.4))
    assert machine.decide(Degrees(1, 0, 0)) == pytest.approx(0.25)


def test_the_machine_of_the_package_tells_an_article_from_a_list():
    article = degrees_of(["word " * 300, "word " * 200], ["a reference"], all_words)
    contents = degrees_of(["word " * 25, *[""] * 60], ["a chapter of it"] * 60, all_words)
    assert RESULT_PAGES.decide(article) > 0.0 > RESULT_PAGES.decide(contents)
