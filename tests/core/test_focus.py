"""Focused crawling: features, a classifier that learns, and shares of cash that lose no unit."""

from __future__ import annotations

import math
import re
import struct
from operator import mul
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.naming import case

import scrapy_aopic.core.focus.words as words_module
from scrapy_aopic.core.focus.calibration import GIST_BYTES, Calibration, directions, gist_of
from scrapy_aopic.core.focus.classifier import COST, Classifier
from scrapy_aopic.core.focus.harvest import Harvest
from scrapy_aopic.core.focus.leads import is_led
from scrapy_aopic.core.focus.shares import shares
from scrapy_aopic.core.focus.strategy import FLOOR
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.core.focus.words import BITS, LONGEST_WORD, Features, all_words, features, url_words, words
from scrapy_aopic.core.ledger import TOTAL, Ledger, Totals
from scrapy_aopic.core.order import Aopic, Focused, revalued, whole_value
from scrapy_aopic.core.records import Page, PageState
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import StorageError, TopicError
from scrapy_aopic.focus.stems import stem

VALUES = st.lists(st.floats(0, 1), max_size=30)
PARTS = st.floats(0, 1)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_words_of_plain_text_are_those_of_any_text(text):
    assert words(text) == words(text + " \u00e4")[:-1]


def test_words_of_texts_and_of_urls():
    """Of scripts without spaces, pairs of characters; long ones are cut in every script."""
    assert " ".join(words("Open Data: データ 数据库 x 水")) == "open data デー ータ 数据 据库 x 水"
    assert words(f"{'a' * 50} b") == ["a" * 40, "b"]
    assert words(f"{'é' * 50} b") == ["é" * 40, "b"]
    assert url_words("/docs/SecureShell_v2.html?page=17") == ["docs", "secure", "shell", "v", "html", "page"]


@given(st.text(st.sampled_from("abz019/_-.?=%&'") | st.characters(max_codepoint=127), max_size=100))
def test_words_of_a_url_are_the_same_whatever_comes_behind_it(path):
    """One in small letters is cut in another way than one with a capital letter, or with one beyond ASCII."""
    assert url_words(f"{path}/Z") == [*url_words(path), "z"]
    assert url_words(f"{path}/é") == [*url_words(path), "é"]


@given(st.text())
def test_features_are_a_vector_of_length_1(text):
    found = features([("page", words(text))])
    assert all(0 <= place < 1 << BITS for place in found)
    assert not found or math.isclose(sum(value * value for value in found.values()), 1.0)


def test_features_are_the_same_in_every_process_and_others_in_another_field():
    assert features([("page", ["open"])]) == {38546: 1.0}
    assert features([("anchor", ["open"])]).keys() != features([("url", ["open"])]).keys()


@given(VALUES, PARTS, st.floats(0, 5), st.integers(0, TOTAL // 2), st.integers(0, 5))
def test_cash_is_conserved_to_the_unit(values, focus, null_mass, cash, filtered):
    ledger = Ledger(Totals(virtual=TOTAL - cash), Window())
    page = Page(PageState.QUEUED, 1)
    ledger.admit(page, cash)
    split = shares(values, focus=focus, null_mass=null_mass)
    assert sum(split.weights) <= split.whole

    paid = ledger.visit(
        page, cash, split.weights, len(values) + filtered, 0.0, whole=split.whole, domain_visited=0
    )

    assert sum(paid) + page.cash + ledger.totals.virtual == TOTAL


@given(VALUES, VALUES)
def test_a_link_of_higher_value_is_paid_no_less(some, others):
    values = sorted([*some, *others])
    assert shares(values).weights == sorted(shares(values).weights)


def test_without_focus_all_links_are_paid_the_same():
    split = shares([0.0, 0.3, 1.0], focus=0.0)
    assert len(set(split.weights)) == 1
    assert sum(split.weights) == split.whole


def test_an_off_topic_page_keeps_its_cash_from_its_links():
    split = shares([FLOOR] * 100)
    assert sum(split.weights) / split.whole < 0.02


def test_a_value_that_is_none_is_refused():
    for wrong in [-0.1, 1.1, math.nan]:
        with case(wrong), pytest.raises(ValueError, match="from 0 to 1"):
            shares([wrong])


def words_of(*found: str) -> Features:
    return features([("page", found)])


def learned() -> Classifier:
    classifier = Classifier()
    relevant = [(words_of("key", "cipher", f"w{i}"), True) for i in range(50)]
    classifier.fit([*relevant, *((words_of("bread", "oven", f"w{i}"), False) for i in range(50))])
    return classifier


def test_a_classifier_learns_from_examples_of_both_kinds():
    classifier = learned()
    assert classifier.score(words_of("cipher", "unheard")) > 0.8
    assert classifier.score(words_of("oven", "unheard")) < 0.2


def test_one_relevant_example_in_a_hundred_is_not_lost():
    classifier = Classifier()
    classifier.fit(
        [(words_of("bread" if i % 100 else "cipher", f"w{i % 7}"), not i % 100) for i in range(500)]
    )
    assert classifier.score(words_of("cipher")) > classifier.score(words_of("bread")) + 0.3


@given(st.lists(st.tuples(st.lists(st.sampled_from("abcd"), min_size=1), st.booleans()), min_size=2))
def test_a_classifier_is_fitted_to_its_end(examples):
    """No small change of a weight makes the sum of squared weights and of losses smaller."""
    given_ = [(words_of(*found), is_relevant) for found, is_relevant in examples]
    classifier = Classifier()
    classifier.fit(given_)
    n, seen = len(given_), classifier.seen
    costs = [COST * min(n / (2 * max(seen[not is_relevant], 1.0)), 10.0) for _, is_relevant in given_]
    slopes: dict[int, float] = {
        place: classifier.part({place: 1.0}, place) for found, _ in given_ for place in found
    }
    for (found, is_relevant), cost in zip(given_, costs, strict=True):
        error = classifier.score(found) - is_relevant
        for place, value in found.items():
            slopes[place] += cost * error * value
    assert max(map(abs, slopes.values())) < 0.01 * sum(costs)


def test_a_classifier_is_the_same_when_it_was_written_and_read():
    one = learned()
    two = Classifier.unpack(one.pack())
    assert one.score(words_of("cipher", "oven")) == two.score(words_of("cipher", "oven"))
    assert one.pack() == two.pack()


def test_models_of_earlier_versions_are_read():
    entries = [struct.pack("<Iff", place, weight, 1.0) for place, weight in ((3, 0.5), (70_000, -1.0))]
    old = Classifier.unpack(struct.pack("<4sBdddI", b"AOFC", BITS, 0.0, 5.0, 5.0, 2) + b"".join(entries))
    assert old.part({70_000: 0.5}, 70_000) == -0.5


@given(st.binary(max_size=200))
def test_other_bytes_are_no_classifier(data):
    with pytest.raises(StorageError):
        Classifier.unpack(data)


def packed() -> bytes:
    classifier = Classifier()
    classifier.fit([({3: 0.6, 70_000: 0.8}, True)])
    return classifier.pack()


PACKED = packed()


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_never_gives_numbers_that_are_none(where, flip):
    data = bytearray(PACKED)
    data[where % len(data)] ^= flip
    try:
        read = Classifier.unpack(bytes(data))
    except StorageError:
        return
    assert 0.0 <= read.score({3: 0.6, 70_000: 0.8}) <= 1.0


def test_pages_are_graded_by_keywords_until_there_are_examples():
    topic = Topic(["encryption"])
    assert topic.grade("encryption " * 3 + "word " * 97) > 0.5
    assert topic.grade("word " * 100) == 0.0
    topic.learn([("lattices and primes", True), ("encryption of bread", False)])
    assert topic.grade("primes") > topic.grade("encryption")


@given(st.integers(0, 3000), st.integers(0, 60))
def test_a_page_stuffed_with_keywords_is_worth_no_more_than_a_page(n, others):
    """However often the words are repeated, and whether they are judged as keywords or by examples."""
    text = "encryption " * n + "word " * others
    by_keywords, by_examples = Topic(["encryption"]), Topic()
    by_examples.learn([("encryption and keys", True), ("bread and ovens", False)])
    for topic in (by_keywords, by_examples):
        assert 0.0 <= topic.grade(text) <= 1.0
        assert topic.grade(text) <= topic.grade(f"encryption {text}")
        assert topic.match(LinkText("encryption " * n)) <= topic.match(LinkText("encryption")) + 1e-9
    many = by_examples.grade("encryption " * 3000)
    assert many == pytest.approx(by_examples.grade("encryption"))  # nothing but the word is as good said once


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_phrases_are_counted_wherever_they_begin(found):
    n = sum(found[i : i + 2] == ["a", "b"] for i in range(len(found)))
    density = 100 * n / max(len(found), 100)
    assert Topic(["a b"]).grade(" ".join(found)) == density / (1 + density)


@given(st.lists(st.sampled_from(["茶", "红", "Tee", " "]), max_size=12).map("".join))
def test_a_single_character_counts_wherever_it_stands(text):
    """But twice in a row, where pairs cannot tell."""
    n = len(re.findall("茶+", text)) if "茶茶" not in text else None
    topic = Topic(["茶"])
    assert (topic.keywords.count(topic.words(text)) == n) or n is None


def test_forms_of_keywords_count_in_any_language():
    for keyword, text, n in [
        ("databases", "A database, databases", 2),
        ("query", "queries query quarry", 2),
        ("sql", "sql sqlite", 1),  # too short to begin others
        ("foreign database", "foreign databases, the foreign office's database", 1),
        ("Haus", "Hauses Häuser", 1),
        ("Datenbanken", "die Datenbank der Datenbanken", 2),
        ("requête", "requêtes", 1),
        ("funzione", "funzioni", 1),
        ("função", "funções", 1),
        ("книга", "книги", 1),
        ("고양이", "고양이가 고양이는", 2),
        ("猫", "黒い猫がいる", 1),
        ("数据库", "关系数据库", 1),
        ("Debian包", "安装Debian包的方法", 1),
        ("galax*", "galaxies Galaxien", 2),
        ("sq*", "sqlite", 1),
        ('"stars"', "star stars", 1),
    ]:
        topic = Topic([keyword], stem=stem)
        with case(keyword):
            assert topic.keywords.count(topic.words(text)) == n


def test_a_keyword_may_speak_against_the_topic():
    topic = Topic(["star", "-film"])
    assert topic.grade("star " * 3) > topic.grade("star star star film") > topic.grade("star film") == 0.0
    assert topic.match(LinkText("a star")) > topic.match(LinkText("the star of a film")) == 0.0


def test_patterns_on_url_and_title_say_whether_a_page_is_relevant():
    topic = Topic(["sql", "url:/boats/*.html", "Title: Harvest", "-url:/forum/"])
    assert topic.keywords.read == ["sql", "url:/boats/*.html", "title:harvest", "-url:/forum/"]
    many = ["sql"] * 100
    for url, title, found, grade in [
        ("http://a.test/", "", [], 0.0),
        ("http://a.test/boats/1.HTML", "", [], 0.5),
        ("http://a.test/1.html/boats/", "", [], 0.0),
        ("http://a.test/harvest", "", [], 0.0),
        ("http://a.test/", "The harvest of 1920", [], 0.5),
        ("http://a.test/", "", many, pytest.approx(100 / 101)),
        ("http://a.test/harvest", "The harvest", many, pytest.approx(100 / 101)),
        ("http://a.test/forum/", "", many, 0.0),
        ("http://a.test/forum/boats/1.html", "", many, pytest.approx(100 / 101)),
    ]:
        assert topic.grade_page(found, url, lambda title=title: title) == grade, (url, title)
    assert Topic(["url:/boats/"]).grade_page([], "http://a.test/boats/", str) == 0.5
    for wrong, why in [(["url:*"], "in the url"), (["-title:a"], "speak against")]:
        with pytest.raises(TopicError, match=why):
            Topic(wrong)


def test_keywords_that_can_match_nothing_are_refused():
    for wrong, said in [(["...", "sql"], "'...'"), (["- "], "'- '"), (["-bread"], "All keywords")]:
        with case(wrong), pytest.raises(TopicError, match=re.escape(said)):
            Topic(wrong)


def test_a_link_fits_if_a_keyword_is_in_its_text_or_its_url():
    topic = Topic(["encryption", "public key"])
    assert topic.match(LinkText("About public key systems")) == 1.0
    assert topic.match(LinkText("", path="/encryption/")) == 1.0
    assert topic.match(LinkText("About ovens", around="encryption")) == 0.0


# the order


def page_of(value: float, links: int = 1) -> Page:
    return Page(PageState.QUEUED, 1, score=revalued(links * Focused.one_link, whole_value(value)))


@given(st.integers(0, TOTAL), st.integers(0, 50))
def test_without_focus_the_order_is_that_of_aopic(cash, links):
    plain = Page(PageState.QUEUED, 1, score=links)
    assert Focused(0.0).front_queue(page_of(0.5, links), cash) == Aopic().front_queue(plain, cash)


@given(st.integers(0, TOTAL), st.integers(0, TOTAL), PARTS)
def test_with_all_focus_cash_does_not_count(one, two, value):
    order = Focused(1.0)
    assert order.front_queue(page_of(value), one) == order.front_queue(page_of(value, 9), two)


@given(PARTS, PARTS, PARTS, st.integers(0, TOTAL))
def test_what_is_worth_more_never_waits_behind(focus, one, two, cash):
    queues = [Focused(focus).front_queue(page_of(value), cash) for value in sorted([one, two])]
    assert queues == sorted(queues)


def test_a_seed_is_worth_as_much_as_anything():
    assert Focused().front_queue(Page(PageState.QUEUED, 1), 1 << 29) == Focused().front_queue(
        page_of(1.0), 1 << 29
    )


# harvest


@given(st.lists(st.booleans(), max_size=1200))
def test_harvest_is_counted_whole_and_lately(relevant):
    harvest = Harvest()
    for number, each in enumerate(relevant):
        if number == len(relevant) // 2:
            harvest = Harvest.unpack(harvest.pack())
        harvest.note(is_relevant=each)
    assert harvest.rate == (sum(relevant) / len(relevant) if relevant else 0.0)
    last = relevant[-500:]
    assert harvest.rate_lately == (sum(last) / len(last) if last else 0.0)


def test_gists_of_pages_with_the_same_words_are_alike_however_long_these_are():
    def alike(one: str, two: str) -> float:
        return sum(map(mul, directions(gist_of(words(one))), directions(gist_of(words(two)))))

    database = "the database keeps each table and a query in sql reads it by an index "
    bread = "our baker opens an oven sells fresh rolls made with flour yeast water "
    assert alike(database, bread) < 0.4 < alike(database, database + bread)
    assert alike(database, database * 2_000) > 0.9
    assert {len(gist_of(words(text))) for text in ("", database, database * 2_000)} == {GIST_BYTES}
    about = Calibration(1.0, -1.0, 50, tuple(4.0 * each for each in directions(gist_of(words(database)))))
    likely = about.probability(0.5, gist_of(words(database * 3)))
    assert about.probability(0.5, gist_of(words(bread))) < likely > about.probability(0.5)


@given(st.binary(max_size=100))
def test_harvest_that_cannot_be_read_begins_anew(data):
    harvest = Harvest.unpack(data)
    assert 0 <= harvest.relevant <= harvest.pages


@given(st.text(st.sampled_from("aZ09_é\u2019ß-. \t\u00a0日本ไทย") | st.characters(), max_size=200))
def test_words_are_cut_the_same_way_whichever_way_is_fast(text):
    normal = normalize("NFKC", text).casefold()
    if not re.search(
        "[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]", normal
    ):
        assert words(text) == [word[:LONGEST_WORD] for word in re.findall(r"\w+", normal)]
    # Characters of scripts without spaces take the slow way; next to a word of another one they change nothing of it.
    assert [word for word in words(f"{text} \u4e00") if word != "\u4e00"] == [
        word for word in words(text) if word != "\u4e00"
    ]


@given(
    st.lists(st.text(st.sampled_from("aZ_-. \u00e9\u2019\1 日本") | st.characters(), max_size=30), max_size=8)
)
def test_words_of_several_texts_are_those_of_each(texts):
    assert all_words(texts) == list(map(words, texts))


def test_marks_that_combine_cost_no_more_than_their_number(monkeypatch):
    """Python sorts them by comparing each with all others: 20,000 would take seconds."""
    most = 0

    def counted(form: str, text: str) -> str:
        nonlocal most
        most = max(most, len(text))
        return normalize(form, text)  # type: ignore[arg-type]

    monkeypatch.setattr(words_module, "normalize", counted)
    words("a" + "\u0301\u0323" * 20_000)
    assert 0 < most <= 200


@given(st.lists(st.sampled_from(["a", "b", "c", "query", "é"]), max_size=12))
def test_what_a_classifier_says_of_words_is_what_it_says_of_their_features(found):
    classifier = Classifier()
    classifier.fit([(words_of(word, "x"), word in {"a", "query"}) for word in ("a", "b", "query", "c")])
    assert classifier.score_words(found) == pytest.approx(classifier.score(features([("page", found)])))


def test_a_link_leads_to_a_page_that_is_new_or_was_worth_less():
    for page, is_it in [
        (None, True),
        (Page(PageState.QUEUED, 1, score=revalued(0, 100)), True),
        (Page(PageState.QUEUED, 1, score=revalued(0, 101)), False),
        (Page(PageState.VISITED, 1, score=revalued(0, 1)), False),
        (Page(PageState.FAILED, 1), False),
    ]:
        assert is_led(page, 101) is is_it, (page, is_it)
