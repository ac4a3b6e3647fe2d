"""Strategies of the literature, and what holds for all of them."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.naming import case

from scrapy_aopic.core.focus.harvest_results import Degrees
from scrapy_aopic.core.focus.learned import ANCHOR_WORDS, HEADING_WORDS, Learned
from scrapy_aopic.core.focus.published.context_graph import (
    CONFIDENT,
    LAYERS,
    MOST_OF_LAYER,
    ContextGraph,
    Layers,
)
from scrapy_aopic.core.focus.published.fixed import Otie
from scrapy_aopic.core.focus.shares import UNIT, shares
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import PageSeen
from scrapy_aopic.core.focus.topic import LinkText, PageWords, Samples, Topic
from scrapy_aopic.core.focus.words import PAGE_CHARACTERS, url_words, words
from scrapy_aopic.exceptions import StorageError

PARTS = st.floats(0, 1)
TEXTS = st.text(alphabet="abc 水データ/?=", max_size=20) | st.text(max_size=100)
LINKS = st.builds(LinkText, TEXTS, TEXTS, TEXTS, TEXTS)
PAGES = st.builds(
    lambda number, parent, grade, value, link, text: PageSeen(
        f"http://host{number % 3}.test/{number}", grade, value, grade >= 0.5, b"%d" % number, b"%d" % parent, link, 0, grade, text
    ),
    st.integers(0, 9), st.integers(0, 9), PARTS, PARTS, st.none() | LINKS, TEXTS,
)  # fmt: skip
KEYWORD = Topic(["comet"])
KEYWORD.samples = Samples([("comet orbit", True), ("bread oven", False)], [("comet", True), ("bread", False)])

OF_SEVERAL_WORDS = Topic(["comet", "a b"])
OF_SEVERAL_WORDS.samples = KEYWORD.samples


@settings(deadline=None)
@given(
    st.sampled_from(sorted(STRATEGIES)), st.lists(st.tuples(PAGES, st.lists(LINKS, max_size=4)), max_size=25)
)
def test_values_are_bounded_whatever_a_crawl_finds(name, crawl):
    strategy = STRATEGIES[name](OF_SEVERAL_WORDS, Random(1))
    for page, links in crawl:
        strategy.learn(page)
        values = strategy.values(page, links)
        assert len(values) == len(links)
        assert all(0.0 <= value <= 1.0 for value in values)
        again = [strategy.revalue(page.grade, link) for link in links]
        assert all(value is None or 0.0 <= value <= 1.0 for value in again)


def stems(text: str, limit: int = PAGE_CHARACTERS) -> list[str]:
    """A tokeniser of a language whose words end in a *q* and any two letters: these say nothing."""
    return [word.partition("q")[0] for word in words(text, limit)]


def stems_of_url(path: str) -> list[str]:
    return [word.partition("q")[0] for word in url_words(path)]


def inflected(text: str, chance: Random) -> str:
    """Plain *text* in that language."""
    return re.sub(r"\w+", lambda found: f"{found[0]}q{''.join(chance.choices('abcdefgh', k=2))}", text)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_tokenizer_cuts_all_text_that_a_strategy_reads(name):
    """A crawl of a web whose words have endings, with the tokeniser that strips them, is the same as without either."""
    topic = Topic(["comet"], cut=stems, cut_url=stems_of_url)
    topic.samples = KEYWORD.samples
    plain, cut = STRATEGIES[name](KEYWORD, Random(1)), STRATEGIES[name](topic, Random(1))
    chance = Random(2)

    def ending(link: LinkText) -> LinkText:
        return LinkText(*[inflected(text, chance) for text in link])

    about = ["comet orbit", "planet star", "list telescope", "shop oven", "bread baker"]

    def spoken(n: int, kind: int) -> str:
        common = ["next", "more"] if n > 2 else []
        return " ".join(chance.choices(about[kind].split() + common, k=n))

    def said(kind: int) -> LinkText:
        path = spoken(2, kind).replace(" ", "/")
        return LinkText(spoken(2, kind), spoken(5, kind), spoken(1, kind), path)

    n_values = set()
    for number in range(400):  # each fifth page is relevant, and the four before led there
        kind = -number % 5
        grade, text = 1.0 - 0.2 * kind, spoken(90, kind)
        links = [said(chance.randrange(5)) for _ in range(number % 4)]
        key, parent = b"%d" % number, b"%d" % (number - 1)
        degrees = Degrees(3.0, -6.0, 8.0) if kind == 0 and number % 2 else Degrees(-5.0, -1.0, 1.0)
        page = PageSeen(
            "http://a.test/", grade, 0.5, kind == 0, key, parent, said(kind), 1, 0.5, text, degrees=degrees
        )
        assert page.link is not None
        plain.learn(page)
        values = [*plain.values(page, links), *[plain.revalue(grade, link, parent) for link in links]]
        page = page._replace(link=ending(page.link), text=inflected(text, chance))
        links = list(map(ending, links))
        cut.learn(page)
        again = [*cut.values(page, links), *[cut.revalue(grade, link, parent) for link in links]]
        assert values == pytest.approx(again, abs=1e-9)
        n_values.update(values)
    assert len(n_values) > 3


@settings(deadline=None)
@given(
    st.sampled_from(sorted(STRATEGIES.keys() - {"jlse", "jlse-paper"})), st.lists(PAGES, max_size=25), LINKS
)
def test_a_strategy_that_was_kept_values_links_as_before(name, pages, link):
    before, after = (STRATEGIES[name](KEYWORD, Random(1)) for _ in range(2))
    for page in pages:
        before.learn(page)
    after.restore(before.pack())  # JLSE reads its graph anew then
    seed = PageSeen("http://seed.test/", 0.3, 1.0, is_relevant=False, key=b"seed")
    before.learn(seed)
    after.learn(seed)
    assert after.values(seed, [link]) == pytest.approx(before.values(seed, [link]), abs=1e-6)


def test_cash_alone_is_split_by_relevance():
    page = PageSeen("", 0.6, 1.0, is_relevant=True)
    strategy = Otie(KEYWORD, Random(1))
    values = strategy.values(page, [LinkText("A comet"), LinkText("Home"), LinkText("Next", "a comet again")])
    assert values == pytest.approx([0.8, 0.3, 0.8])
    split = shares(values, power=strategy.power, null_mass=strategy.null_mass)
    assert split == ([800_000, 300_000, 800_000], 1_900_000)
    assert strategy.by_cash


@given(st.lists(PARTS, max_size=20), PARTS, st.floats(0, 5), st.floats(0, 4))
def test_shares_are_parts_of_a_whole_at_any_power(values, focus, null_mass, power):
    split = shares(values, focus=focus, null_mass=null_mass, power=power)
    assert all(0 <= weight <= UNIT for weight in split.weights)
    assert sum(split.weights) <= split.whole


def test_shares_of_a_negative_mass_or_power_are_refused():
    for name in ["null_mass", "power"]:
        with case(name), pytest.raises(ValueError, match=name):
            shares([0.5], **{name: -1.0})


def page(key: int, parent: int | None, text: str, *, is_relevant: bool = False) -> PageSeen:
    came_from = b"" if parent is None else b"%d" % parent
    return PageSeen("", float(is_relevant), 0.5, is_relevant, b"%d" % key, came_from, LinkText(""), text=text)


def test_a_page_is_in_the_layer_of_those_with_its_words():
    strategy = ContextGraph(KEYWORD, Random(1))
    home, catalog, thing, other = (
        "welcome to our home",
        "catalog of departments",
        "comet tail dust",
        "jobs imprint",
    )
    assert strategy.values(page(0, None, catalog), [LinkText("x")]) == [0.0]
    for number in range(0, 90, 3):
        strategy.learn(page(number, None, home))
        strategy.learn(page(number + 1, number, catalog))
        strategy.learn(page(number + 2, number + 1, thing, is_relevant=True))
    layers = [
        strategy.layer(page(1000 + at, None, text)) for at, text in enumerate((thing, catalog, home, other))
    ]
    assert layers == [0, 1, 2, LAYERS]
    assert strategy.values(page(1001, None, catalog), [LinkText("x")] * 2) == pytest.approx([0.8, 0.8])


def test_a_layer_learns_from_so_many_pages_only():
    layers = Layers()
    assert [layers.learn([1, 2], 1) for _ in range(MOST_OF_LAYER + 2)] == [True] * MOST_OF_LAYER + [False] * 2
    assert layers.likely([1, 2])[1] > CONFIDENT


@given(st.binary(min_size=1, max_size=50))
def test_damaged_layers_are_noticed(data):
    with pytest.raises(StorageError):
        Layers().restore(data)


HOSTS = [b"host %3d" % number for number in range(200)]


def found(key: bytes, parent: bytes, said: str, grade: float, *, parent_grade: float = 0.0) -> PageSeen:
    link = LinkText(said)
    return PageSeen("", grade, 0.5, grade >= 0.5, key, parent, link, 0, parent_grade)


def test_the_same_words_are_worth_something_else_on_relevant_pages():
    """Details lead to relevant pages from relevant ones only; both kinds of pages are on all hosts."""
    strategy = Learned(KEYWORD, Random(0))
    for number in range(300):
        grade = float(number % 2)
        host = HOSTS[number // 2 % 10]
        strategy.learn(found(b"%8d" % number, host + b" listing", "Details", grade, parent_grade=grade))
    on = [PageSeen("", grade, 0.5, grade >= 0.5, b"new host a page ") for grade in (0.0, 1.0)]
    no, yes = (strategy.values(page, [LinkText("Details")])[0] for page in on)
    assert yes > 5 * no
    assert strategy.revalue(1.0, LinkText("Details"), b"new host a page ") == pytest.approx(yes)


@given(
    st.sampled_from([["query"], ["query plan"], ["elsewhere"], []]),
    st.lists(st.sampled_from(["a", "b", "query", "plan", "c", "d"]), max_size=30),
    st.data(),
)
def test_links_are_worth_the_same_if_their_page_was_cut_into_words(keywords, said, data):
    topic = Topic(keywords)
    if not keywords:
        topic.learn([("query plan", True), ("a b c", False)])
    strategy = Learned(topic, Random(0))
    for number, word in enumerate(["query", "a", "b", "plan"] * 10):
        strategy.learn(found(b"%8d" % number, HOSTS[0] + b" listing", word, float(number % 2)))
    place = st.integers(0, len(said))
    six = st.tuples(*[place] * 6).map(sorted).map(tuple)
    places = data.draw(st.lists(six, min_size=3, max_size=3))
    titles = {1: "the query"}
    texts = [
        LinkText(
            " ".join([*titles.get(number, "").split(), *said[begin:end]][:ANCHOR_WORDS]),
            " ".join(said[before:begin] + said[end:behind]),
            " ".join(said[above : min(below, above + HEADING_WORDS)]),
            f"/way/{number}",
        )
        for number, (before, begin, end, behind, above, below) in enumerate(places)
    ]
    page = PageSeen("", 0.4, 0.5, is_relevant=False, key=HOSTS[0] + b" listing")
    read = strategy.read_page(PageWords(said, places, titles), [text.path for text in texts])
    assert strategy.values_of(page, read) == pytest.approx(strategy.values(page, texts))


def test_a_host_where_nothing_was_found_is_worth_less_whatever_its_links_say():
    strategy = Learned(KEYWORD, Random(0))
    for number in range(400):
        host = HOSTS[number % 10]
        strategy.learn(found(b"%8d" % number, host + b" listing", f"Item {number}", float(host < HOSTS[5])))
    link = LinkText("Never seen")
    values = [strategy.revalue(0.0, link, host + b" another") for host in HOSTS[:11]]
    poor, unknown, rich = max(values[5:10]), values[10], min(values[:5])
    assert poor < unknown < rich


@pytest.mark.parametrize("by_examples", [True, False])
def test_pages_that_are_hardly_relevant_count_little_if_a_judge_by_examples_says_so(by_examples):
    topic = Topic(["x"])
    if by_examples:
        topic.learn([("x", True), ("y", False)])
    strategy = Learned(topic, Random(0))
    for number in range(400):
        host = HOSTS[number % 10]
        said, grade = ("Sure", 0.95) if number % 2 else ("Perhaps", 0.55)
        strategy.learn(found(b"%8d" % number, host + b" listing", said, grade))
    sure, perhaps = (strategy.revalue(0.0, LinkText(said), HOSTS[20]) for said in ("Sure", "Perhaps"))
    assert (sure > 1.5 * perhaps) == by_examples
    assert sure > 1.1 * perhaps
