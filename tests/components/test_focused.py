"""Crawls for a topic, from the outside: what is fetched first, what is counted, and what is refused."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from demo_web.server import Answer, Exchange
from scrapy import signals
from scrapy.http import Response, TextResponse
from scrapy.settings import Settings
from support.crawls import in_folder, keep, logged, stat
from support.small_web import Follow, Web, ask, ask_view, check, crawl

from scrapy_aopic.core.focus.harvest import Harvest
from scrapy_aopic.core.focus.leads import MOST_BYTES
from scrapy_aopic.core.focus.learned import Learned
from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.strategy import PageSeen, Strategy
from scrapy_aopic.core.focus.topic import LinkText, Topic
from scrapy_aopic.core.layout import HARVEST_KEY, LEADS, STRATEGY_KEY
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import pack, unpack
from scrapy_aopic.focus import read_folder, save_model, train
from scrapy_aopic.links import Links
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.session.topic import harvest_watch
from scrapy_aopic.storage import open_store
from scrapy_aopic.view.exporting import export_pages
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import why

HOME = "http://a.test/"
TOPIC = "the database answers a query in sql and keeps each table in a database file"
OTHER = "the baker opens the oven in the morning and sells bread to the whole street"
KEYWORDS = {"keywords": ["database", "sql", "query"]}


def page(text: str, links: Sequence[str]) -> Answer:
    anchors = "".join(f'<li><a href="{link}">go on</a></li>' for link in links)
    body = f"<html><title>page</title><p>{text}</p><ul>{anchors}</ul></html>"
    return Answer(200, {"Content-Type": "text/html"}, body.encode())


def tree(name: str, text: str, depth: int = 4) -> dict[str, Answer]:
    """A binary tree of pages with *text*."""
    pages = {}
    for number in range(1, 2**depth):
        children = [f"/{name}/{child}" for child in (2 * number, 2 * number + 1) if child < 2**depth]
        pages[f"{HOME}{name}/{number}"] = page(text, children)
    return pages


WEB = {
    HOME: page("here is all that we have", ["/bread/1", "/data/1", "/rolls/1"]),
    **tree("bread", OTHER),
    **tree("data", TOPIC),
    **tree("rolls", OTHER),
}
"""46 pages, 15 of which are about databases."""


def focused(topic: Any = KEYWORDS, **settings: Any) -> dict[str, Any]:
    return {
        "SCHEDULER": "scrapy_aopic.Scheduler",
        "SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000},
        "AOPIC_ORDER": "focused",
        "AOPIC_TOPIC": topic,
        "CONCURRENT_REQUESTS": 1,
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1,
        "AOPIC_MIN_GAP": 0.01,
        **settings,
    }


def about_data(web: Web, n: int = 18) -> int:
    """How many of the first *n* pages that the server was asked for are about databases."""
    return sum("/data/" in url for url in web.asked[:n])


class FollowLinks(Follow):
    """The same by Links, in batches."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield Links(response)


class Items(Follow):
    """An item behind its links, of pages about databases."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        if "database" in response.text:
            yield {"url": response.url}


class ItemsFirst(Follow):
    """The same, before its links."""

    def parse(self, response: Response) -> Iterator[Any]:
        if "database" in response.text:
            yield {"url": response.url}
        yield from super().parse(response)


@pytest.mark.parametrize(
    ("spider", "scorer"),
    [
        (FollowLinks, "contextual"),
        *((Follow, each) for each in ("contextual", "best-first")),
    ],
)
async def test_relevant_pages_come_before_others(serve, spider, scorer):
    web = serve(WEB)
    crawler = await crawl(spider, focused(AOPIC_LINK_SCORER=scorer))
    assert about_data(web) == 15
    assert sorted(web.asked) == sorted(WEB)
    assert stat(crawler, "aopic/topic/pages") == 46
    assert stat(crawler, "aopic/topic/relevant") == 15
    assert stat(crawler, "aopic/topic/harvest") == 15 / 46


async def test_a_page_is_relevant_by_its_url_or_its_title(serve):
    harvest = Answer(200, {"Content-Type": "text/html"}, b"<title>The Harvest</title><p>1920")
    serve({HOME: page(OTHER, ["/data/1", "/2"]), f"{HOME}data/1": page(OTHER, []), f"{HOME}2": harvest})
    crawler = await crawl(Follow, focused({"keywords": ["url:/data/", "title:harvest"]}))
    assert stat(crawler, "aopic/topic/pages") == 3
    assert stat(crawler, "aopic/topic/relevant") == 2


async def test_a_page_that_has_not_changed_keeps_its_relevance(serve, tmp_path):
    body = page(TOPIC, []).body

    def tagged(exchange: Exchange) -> Answer:
        is_same = "if-none-match" in exchange.headers
        headers = {"Content-Type": "text/html", "ETag": '"1"'}
        return Answer(304 if is_same else 200, headers, b"" if is_same else body)

    serve({HOME: tagged})
    job = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite", "AOPIC_RECRAWL": ["once", "changed"]}
    found = []
    for _ in range(2):
        crawler = await crawl(Follow, focused(**job))
        [row] = ask_view(tmp_path, top_pages, 10)
        found.append((row.visits, row.relevance, stat(crawler, "aopic/topic/relevant")))
    (_, relevance, _), again = found
    assert relevance > 0.5
    assert again == (2, relevance, None)


def grade(response: TextResponse) -> float:
    return float("database" in response.text)


def folders(folder: Path) -> dict[str, str]:
    for name, texts in (("yes", [TOPIC, "a query of a table"]), ("no", [OTHER, "here is bread", "a street"])):
        (folder / name).mkdir()
        for number, text in enumerate(texts):
            (folder / name / f"{number}.html").write_text(f"<p>{text}</p>")
    return {"positive": str(folder / "yes"), "negative": str(folder / "no")}


def model(folder: Path) -> dict[str, str]:
    positive, negative = (read_folder(Path(path)) for path in folders(folder).values())
    save_model(train(positive, negative), folder / "topic.aopic")
    return {"model": str(folder / "topic.aopic")}


@pytest.mark.parametrize(
    ("spider", "topic"),
    [
        (Follow, lambda _: {"function": grade}),
        (Items, lambda _: "items"),
        (ItemsFirst, lambda _: "items"),
        (Follow, folders),
        (Follow, model),
    ],
    ids=["function", "items", "items first", "folders", "model"],
)
async def test_pages_are_relevant_whoever_says_so(serve, tmp_path, spider, topic):
    web = serve(WEB)
    crawler = await crawl(spider, focused(topic(tmp_path)))
    assert about_data(web) == 15
    assert topic in (folders, model) or stat(crawler, "aopic/topic/relevant") == 15


def by_url(page: PageSeen, links: Sequence[LinkText]) -> list[float]:
    return [float("/rolls/" in link.path) for link in links]


async def test_a_function_of_the_users_values_links(serve):
    web = serve(WEB)
    await crawl(Follow, focused(AOPIC_LINK_SCORER=by_url, AOPIC_FOCUS=1))
    assert all("/rolls/" in url for url in web.asked[1:16])


def broken(*_: Any) -> Any:
    raise RuntimeError("no idea")


class Asked(Strategy):
    """Values all links the same, and notes of which pages it was asked for which."""

    values_known = False
    asked: ClassVar[dict[str, list[str]]] = {}

    def __init__(self, topic: Topic, chance: Random) -> None:
        self.asked.clear()

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> Sequence[float]:
        self.asked[page.url] = [link.path for link in links]
        return [0.5] * len(links)


class AskedAgain(Asked):
    """The same, of all links of all pages."""

    values_known = True


@pytest.mark.parametrize("strategy", [Asked, AskedAgain])
async def test_links_to_pages_that_were_read_are_worth_what_those_are(serve, strategy):
    """So that nobody is asked for them."""
    links = {"": ["/one", "/two"], "one": ["/two", "/", "/three"], "two": ["/one", "/three", "/four"]}
    texts = {"": OTHER, "one": OTHER, "two": TOPIC, "three": OTHER, "four": OTHER}
    serve({f"{HOME}{name}": page(text, links.get(name, [])) for name, text in texts.items()})
    await crawl(Follow, focused(AOPIC_LINK_SCORER=strategy))
    asked = {url.removeprefix(HOME): paths for url, paths in Asked.asked.items()}
    if strategy.values_known:
        assert asked == links
    else:
        assert asked == {"": ["/one", "/two"], "one": ["/two", "/three"], "two": ["/three", "/four"]}


async def test_functions_that_fail_lose_nothing(serve, caplog):
    web = serve(WEB)
    crawler = await crawl(Follow, focused({"function": broken}, AOPIC_LINK_SCORER=broken))
    assert sorted(web.asked) == sorted(WEB)
    assert stat(crawler, "aopic/topic/ungraded") == 46
    assert stat(crawler, "aopic/topic/unvalued") > 0
    errors = logged(caplog, "ERROR")
    assert len(errors) == 2
    assert "AOPIC_TOPIC" in errors[0]
    assert "AOPIC_LINK_SCORER" in errors[1]


def stems(text: str) -> list[str]:
    """A tokeniser of a language in which the first four letters of a word are its stem."""
    return [word[:4].lower() for word in re.findall("[a-zA-Z]+", text)]


def inflected(pages: dict[str, Answer]) -> dict[str, Answer]:
    """The same, and no page that was about databases has the word."""
    return {
        url: Answer(200, answer.headers, answer.body.replace(b"database", b"datapoints datatypes"))
        for url, answer in pages.items()
    }


@pytest.mark.parametrize("scorer", ["contextual", "jlse"])  # tests/core/test_strategies.py has all of them
async def test_words_are_those_of_the_tokenizer(serve, scorer):
    web = serve(inflected(WEB))
    settings = focused({"keywords": ["database"]}, AOPIC_LINK_SCORER=scorer, AOPIC_TOKENIZER=stems)
    crawler = await crawl(Follow, settings)
    assert about_data(web) == 15
    assert stat(crawler, "aopic/topic/relevant") == 15
    without = await crawl(Follow, {**settings, "AOPIC_TOKENIZER": None})
    assert stat(without, "aopic/topic/relevant") is None


async def test_what_was_learned_by_another_tokenizer_is_learned_anew(serve, tmp_path, caplog):
    serve(WEB)
    settings = focused(JOBDIR=str(tmp_path), AOPIC_STORE="sqlite", AOPIC_LINK_SCORER="jlse", LOG_LEVEL="INFO")
    with caplog.at_level("INFO"):
        await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 20})
        assert "begins anew" not in caplog.text
        await crawl(Follow, {**settings, "AOPIC_TOKENIZER": stems})
    assert f"jlse with {__name__}.stems begins anew" in caplog.text


@pytest.mark.parametrize("scorers", [("contextual", "jlse", "otie"), ("jlse", "contextual", "best-first")])
async def test_another_strategy_goes_on_with_what_waits(serve, tmp_path, scorers):
    """Of a link one keeps its texts, and another what it has read of them, which the first one cannot use."""
    web = serve(SIGNED)
    settings = focused(JOBDIR=str(tmp_path), AOPIC_STORE="sqlite")
    for scorer in scorers[:2]:
        crawler = await crawl(Follow, {**settings, "AOPIC_LINK_SCORER": scorer, "CLOSESPIDER_PAGECOUNT": 60})
        assert stat(crawler, "aopic/topic/unlearned") is None
    crawler = await crawl(Follow, {**settings, "AOPIC_LINK_SCORER": scorers[2]})
    assert sorted(set(web.asked)) == sorted(SIGNED)


ITEMS = {
    "AOPIC_ITEM_FIELDS": ["relevance", "visits"],
    "ITEM_PIPELINES": {"scrapy_aopic.ImportancePipeline": 100},
}


@pytest.mark.parametrize(("topic", "order"), [(KEYWORDS, "focused"), ("items", "breadth-first")])
async def test_items_get_the_relevance_of_their_page_and_harvest_is_counted_in_any_order(serve, topic, order):
    web = serve(WEB)
    items: list[dict[str, Any]] = []
    settings = focused(topic, AOPIC_ORDER=order, **ITEMS)
    crawler = await crawl(Items, settings, told={signals.item_scraped: keep(items)})
    assert stat(crawler, "aopic/topic/relevant") == len(items) == 15
    assert (about_data(web) < 8) == (order == "breadth-first")
    assert all(item["relevance"] >= 0.5 and item["visits"] == 0 for item in items)
    if topic == "items":
        assert all(item["relevance"] == 1.0 for item in items)


class AboutEarlier(Follow):
    """Items about pages that were visited, that wait, and that nobody knows, and what the spider is told."""

    def parse(self, response: Response) -> Iterator[Any]:
        for request in super().parse(response):
            yield request.replace(meta=response.meta)  # which must not make the next page as relevant
        for url in (HOME, f"{HOME}data/1", f"{HOME}bread/1", response.url):
            yield {"url": url, "on": response.url, "told": response.meta["aopic_relevance"]}


async def test_the_spider_knows_how_relevant_a_page_is_and_items_get_what_is_kept_of_others(serve):
    serve(WEB)
    items: list[dict[str, Any]] = []
    await crawl(AboutEarlier, focused(**ITEMS), told={signals.item_scraped: keep(items)})
    visited: set[str] = set()
    for item in items:
        visited.add(item["on"])
        assert (item["told"] >= 0.5) == ("/data/" in item["on"])
        if item["url"] not in visited:
            assert item.get("relevance") is None  # as nobody knows it, or nobody has read it
        else:
            assert (item["relevance"] >= 0.5) == ("/data/" in item["url"])
    assert len(visited) == 46


def harvest_of(store: Store) -> Harvest:
    return Harvest.unpack(store.get_many(Family.META, (HARVEST_KEY,))[0])


async def test_harvest_and_cash_are_whole_over_stops(serve, tmp_path):
    web = serve(WEB)
    on_disk = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"}
    for pages, focus in ((5, 0.9), (10, 0.2), (10, 0.0), (0, 1.0)):
        await crawl(Follow, focused(CLOSESPIDER_PAGECOUNT=pages, AOPIC_FOCUS=focus, **on_disk))
    assert sorted(web.asked) == sorted(WEB)
    harvest = ask(tmp_path, harvest_of)
    assert (harvest.pages, harvest.relevant) == (46, 15)


# -- learning


def signed(name: str, depth: int = 6) -> dict[str, Answer]:
    """A binary tree of pages about bread; behind each page of ``door`` is one about databases, of which no link says so."""
    pages = {}
    for number in range(1, 2**depth):
        children = [(f"/{name}/{child}", name) for child in (2 * number, 2 * number + 1) if child < 2**depth]
        if name == "door":
            children.append((f"/room/{number}", "this way"))
        anchors = "".join(f'<li><a href="{link}">a {said}</a></li>' for link, said in children)
        body = f"<html><title>page</title><p>{OTHER}</p><ul>{anchors}</ul></html>".encode()
        pages[f"{HOME}{name}/{number}"] = Answer(200, {"Content-Type": "text/html"}, body)
    return pages


SIGNED = {
    HOME: page("here is all that we have", ["/door/1", "/wall/1"]),
    **signed("door"),
    **signed("wall"),
    **{f"{HOME}room/{number}": page(TOPIC, []) for number in range(1, 64)},
}


def rooms(web: Web, n: int) -> int:
    return sum("/room/" in url for url in web.asked[:n])


LEARNED = {"AOPIC_FOCUS": 1.0}


async def test_a_crawl_learns_which_links_lead_to_relevant_pages(serve, tmp_path):
    found = {}
    for scorer in ("best-first", "contextual"):
        web = serve(SIGNED)
        crawler = await crawl(Follow, focused(AOPIC_LINK_SCORER=scorer, AOPIC_FOCUS=1.0))
        assert sorted(web.asked) == sorted(SIGNED)
        found[scorer] = rooms(web, 130)
    assert found["contextual"] > 1.3 * found["best-first"]
    assert stat(crawler, "aopic/topic/version") > 2
    assert stat(crawler, "aopic/topic/revalued") > 0


def strategy_of(store: Store) -> tuple[str, bytes]:
    name, learned = unpack(store.get_many(Family.META, (STRATEGY_KEY,))[0] or b"")
    return name, learned


def damage(folder: Path) -> None:
    store = open_store(store_folder(folder), "sqlite")
    store.write({Family.META: {STRATEGY_KEY: pack(("contextual", b"\xff" * 1000))}}, sync=True)
    store.close()


async def test_what_was_learned_outlives_a_stop_and_damage_to_it_costs_nothing_else(serve, tmp_path, caplog):
    web = serve(SIGNED)
    settings = focused(**LEARNED, JOBDIR=str(tmp_path), AOPIC_STORE="sqlite")
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 60})
    name, before = ask(tmp_path, strategy_of)
    assert name == "contextual"
    one = Learned(Topic(), Random(0))
    one.restore(before)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 20})
    other = Learned(Topic(), Random(0))
    other.restore(ask(tmp_path, strategy_of)[1])
    assert other.version >= one.version > 0
    assert 10 < other.n_learned - one.n_learned < 40
    damage(tmp_path)
    await crawl(Follow, settings)
    said = logged(caplog, "WARNING")
    assert len([each for each in said if "learned in this job cannot be read" in each]) == 1
    assert sorted(web.asked) == sorted(SIGNED)


class Broken(Strategy):
    learns = True

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return [0.5] * len(links)

    def learn(self, page: PageSeen) -> None:
        raise RuntimeError("no idea")


async def test_a_strategy_that_cannot_learn_loses_no_page(serve, monkeypatch):
    monkeypatch.setitem(STRATEGIES, "contextual", Broken)
    web = serve(WEB)
    crawler = await crawl(Follow, focused(**LEARNED))
    assert sorted(web.asked) == sorted(WEB)
    assert stat(crawler, "aopic/topic/unlearned") == 46


LONG = {
    HOME: page(TOPIC, ["/bread/1"]),
    **{f"{HOME}bread/{n}": page(f"{OTHER} {n}", [f"/bread/{n + 1}"]) for n in range(1, 560)},
}


@pytest.mark.slow
async def test_a_crawl_ends_when_hardly_anything_is_relevant(serve, tmp_path, caplog):
    web = serve(LONG)
    settings = focused(AOPIC_MIN_HARVEST=0.1, AOPIC_MIN_GAP=0)
    crawler = await crawl(Follow, in_folder(tmp_path, settings))
    assert stat(crawler, "finish_reason") == "aopic_harvest"
    assert 500 <= len(web.asked) < 510
    harvest = "0.2 % of the last 500 pages (95 %: 0.0 to 1.1 %) are relevant, unchecked: scrapy aopic"
    assert harvest in caplog.text
    assert check(tmp_path).queued > 0


async def test_what_cannot_be_a_topic_is_refused(serve, caplog):
    web = serve(WEB)
    wrong: list[tuple[dict[str, Any], list[str]]] = [
        ({"AOPIC_TOPIC": None}, ["AOPIC_ORDER ('focused')", "AOPIC_TOPIC"]),
        ({"AOPIC_TOPIC": {"keywords": []}}, ["AOPIC_TOPIC"]),
        ({"AOPIC_TOPIC": {"keyword": ["sql"]}}, ["AOPIC_TOPIC"]),
        ({"AOPIC_TOPIC": {"keywords": ["sql", "++"]}}, ["AOPIC_TOPIC", "'++'"]),
        ({"AOPIC_TOPIC": {"keywords": ["sql"], "threshold": 0}}, ["AOPIC_TOPIC", "threshold 0"]),
        ({"AOPIC_TOPIC": {"keywords": ["-sql"]}}, ["AOPIC_TOPIC", "speak against"]),
        ({"AOPIC_TOPIC": {"model": "/nowhere/at.all"}}, ["AOPIC_TOPIC", "/nowhere/at.all"]),
        ({"AOPIC_TOPIC": None, "AOPIC_ORDER": "aopic", "AOPIC_MIN_HARVEST": 0.1}, ["AOPIC_MIN_HARVEST"]),
        ({"AOPIC_LINK_SCORER": "best-frist"}, ["AOPIC_LINK_SCORER", "best-first"]),
    ]
    for settings, words in wrong:
        caplog.clear()
        await crawl(Follow, {**focused(), **settings})
        (said,) = logged(caplog, "ERROR")
        assert all(word in said for word in words), (settings, said)
    assert web.asked == []


async def test_a_crawl_that_finds_nothing_says_so_once(serve, monkeypatch, caplog):
    monkeypatch.setattr(harvest_watch, "NONE_IN", 5)
    serve(WEB)
    await crawl(Follow, focused({"keywords": ["zeppelin"]}))
    assert caplog.text.count("is relevant: look") == 1


async def test_a_threshold_counts_fewer_pages_and_fetches_the_same(serve):
    web = serve(WEB)
    low = await crawl(Follow, focused())
    high = await crawl(Follow, focused({**KEYWORDS, "threshold": 0.999}))
    assert {*Counter(web.asked).values()} == {2}  # in which order depends on when a page is read
    assert (stat(low, "aopic/topic/relevant"), stat(high, "aopic/topic/relevant")) == (15, None)


async def test_an_export_has_the_relevance_of_pages_that_were_read(serve, tmp_path):
    serve(WEB)
    await crawl(Follow, focused(JOBDIR=str(tmp_path), AOPIC_STORE="sqlite", CLOSESPIDER_PAGECOUNT=20))
    path = tmp_path / "pages.csv"
    ask(tmp_path, lambda store: export_pages(View([store]), str(path)))
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert any(row["state"] == "queued" for row in rows)
    for row in rows:
        if row["state"] == "visited":
            assert (float(row["relevance"]) >= 0.5) == ("/data/" in row["url"])
        else:
            assert row["relevance"] == ""

    # And 'why' knows of it.
    rules = CrawlRules(Settings())
    waiting = next(row["url"] for row in rows if row["state"] == "queued")
    read = next(row for row in rows if row["state"] == "visited")
    queued, fetched = (ask(tmp_path, why, url, rules) for url in (waiting, read["url"]))
    assert queued.facts["strategy"] == "contextual"
    assert 0.0 < queued.facts["value"] < 1.0
    assert any(queued.facts["parent"] in sentence for sentence in queued.sentences)
    assert fetched.facts["relevance"] == pytest.approx(float(read["relevance"]), abs=0.01)


# -- pages that are made to mislead, or to be too much

N_LURES = 50_000
LURE = "database sql query"
WORD = "database "


def lures(text: str) -> Answer:
    return Answer(200, {"Content-Type": "text/html"}, f"<html><title>lures</title>{text}</html>".encode())


HOSTILE = {
    "hidden": lures(f"<p>{OTHER}</p><div hidden>{TOPIC * 50}</div><p style='display:none'>{TOPIC * 50}</p>"),
    "stuffed": lures(f"<p>{WORD * 100_000}</p>"),
    "many": lures("".join(f"<a href='/lure/{number}'>{LURE}</a>" for number in range(N_LURES))),
    "anchor": lures(f"<a href='/lure/a'>{WORD * 120_000}</a>"),
    "title": lures(
        f"<a href='/lure/t' title='{WORD * 120_000}'>x</a><a href='/lure/i'><img alt='{WORD * 120_000}'></a>"
    ),
    "around": lures(f"<h1>{WORD * 120_000}</h1>{WORD * 60_000}<a href='/lure/o'>on</a>{WORD * 60_000}"),
    "path": lures("".join(f"<a href='/lure/{'database/' * 200}{number}'>x</a>" for number in range(200))),
    "deep": lures("<div>" * 20_000 + f"<a href='/lure/d'>{LURE}</a>"),
    "halves": lures("<a href='/lure/h'>&#xD800;&#0;\0 database</a><p>&#xDFFF;</p>"),
}
"""Pages that repeat the topic's words hidden or openly, with 50,000 links, a text of a megabyte at each place that is read of a
link, paths of nothing but keywords, and what no text can have."""

FARM = "http://b.test/"
HOSTILE_WEB = {**WEB, **{f"{FARM}{name}": answer for name, answer in HOSTILE.items()}}


@pytest.mark.parametrize("scorer", ["contextual", pytest.param("jlse", marks=pytest.mark.long)])
async def test_hostile_pages_cost_neither_pages_nor_cash_nor_room(serve, tmp_path, scorer):
    web = serve(HOSTILE_WEB)
    grades: dict[str, float] = {}

    class Note(FollowLinks):
        def parse(self, response: Response) -> Iterator[Any]:
            grades[response.url] = response.meta["aopic_relevance"]
            yield from super().parse(response)

    settings = focused(
        AOPIC_LINK_SCORER=scorer,
        CLOSESPIDER_PAGECOUNT=200,
        CONCURRENT_REQUESTS=2,  # so that no host has to wait for the other, however slow the machine is
        HTTPERROR_ALLOW_ALL=True,
    )
    farm = {f"{FARM}{name}" for name in HOSTILE}
    crawler = await crawl(Note, in_folder(tmp_path, settings), start_urls=[HOME, *farm])
    # What hides its words is not relevant, and what repeats them is no more than relevant.
    assert grades[f"{FARM}hidden"] < 0.5
    assert 0.5 <= grades[f"{FARM}stuffed"] <= 1.0
    for name in ("ungraded", "unvalued", "unlearned"):
        assert stat(crawler, f"aopic/topic/{name}") is None
    # All that is hostile was fetched, and some of what it leads to, which is nothing; and so were all pages of the topic.
    assert {url for url in web.asked if FARM in url and "/lure/" not in url} == farm
    assert sum("/data/" in url for url in web.asked) == 15
    assert "/lure/" in " ".join(web.asked)
    rows = ask(tmp_path, lambda store: [row for key, row in store.scan(Family.CONTENT) if key[:1] == LEADS])
    assert len(rows) > 100
    assert max(map(len, rows)) <= MOST_BYTES
