"""Pages that are the same: duplicates, canonical pages and permanent redirects, in real crawls on loopback."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, Response, TextResponse
from support.crawls import Visits, in_folder, keep
from support.small_web import Follow, ask, ask_view, crawl

from scrapy_aopic.core import duplicates
from scrapy_aopic.core.duplicates import Text
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import unpack_page
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.view.stored import count
from scrapy_aopic.web.page_text import MAX_SKIMMED, MAX_SPECIAL, MIN_TEXT, read_canonical, read_text
from scrapy_aopic.web.request_rows import url_of

HOME = "http://a.test/"


def words(seed: str, n: int = 200) -> str:
    dice = random.Random(seed)
    return " ".join(f"word{dice.randrange(2000)}" for _ in range(n))


def page(text: str, links: list[str] = [], head: str = "", **headers: str) -> Answer:  # noqa: B006
    anchors = "".join(f'<a href="{link}"></a>' for link in links)
    body = f"<html><head><title>t</title>{head}</head><body><p>{text}</p>{anchors}</body></html>"
    return Answer(headers={"Content-Type": "text/html", **headers}, body=body.encode())


def canonical(url: str) -> str:
    return f'<link rel="canonical" href="{url}">'


DROP = {"AOPIC_CONTENT_SEEN": "exact"}
"""What the add-on sets."""

APART: dict[str, Any] = {**DROP, "AOPIC_URL_RULES": ["-session", "-tracking"]}
"""With this, URLs that lead to the same place, by the links of a page, are different ones."""

ONE_BY_ONE = {"CONCURRENT_REQUESTS": 1, "SCRAPER_SLOT_MAX_ACTIVE_SIZE": 1}
"""No page is asked for while another one is downloaded or parsed."""

ONE, TWO = (f"http://a.test/1?utm_id={number}" for number in (1, 2))


async def run(folder: Path, spider: type[Spider] = Follow, **options: Any) -> Crawler:
    """Crawl with SCHEDULER alone, and with *options*: settings, in capitals, and arguments; the audit holds at the end."""
    settings = {name: value for name, value in options.items() if name.isupper()}
    arguments = {name: value for name, value in options.items() if name.islower()}
    return await crawl(spider, in_folder(folder, **ONE_BY_ONE, **settings), **arguments)


def stat(crawler: Crawler, name: str) -> Any:
    return crawler.stats.get_value(f"aopic/{name}")


def same(folder: Path) -> dict[str, str]:
    """URLs of the pages that were united with others, and of those that stand for them."""

    def read(store: Store) -> dict[str, str]:
        pages = {key: unpack_page(data) for key, data in store.scan(Family.PAGES)}
        urls = {key: url_of(data) for key, data in store.scan(Family.REQUESTS)}
        roots = {}
        for key in (key for key, page in pages.items() if page.canonical):
            roots[key] = key
            while pages[roots[key]].canonical:
                roots[key] = pages[roots[key]].canonical
        return {urls[key]: urls[root] for key, root in roots.items()}

    found: dict[str, str] = ask(folder, read)
    return found


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    return {row.url: row for row in ask_view(folder, top_pages, 100, everything=True)}


# -- duplicates


async def test_the_links_of_a_duplicate_are_dropped_and_its_cash_goes_to_the_first(serve, tmp_path):
    web = serve(
        {
            HOME: page(words("home"), ["/1", "/2", "/3"]),
            "http://a.test/1": page(words("x"), [f"/4?sid={'a1' * 12}"]),
            "http://a.test/2": page(words("x"), [f"/4?sid={'b2' * 12}"]),
            "http://a.test/3": page(words("y")),
            f"http://a.test/4?sid={'a1' * 12}": page(words("z")),
        }
    )
    crawler = await run(tmp_path, AOPIC_ENDOWMENT=0, **APART)
    numbered = [f"http://a.test/{number}" for number in (1, 2, 3)]
    assert sorted(web.asked) == [HOME, *numbered, f"http://a.test/4?sid={'a1' * 12}"]
    assert same(tmp_path) == {"http://a.test/2": "http://a.test/1"}
    assert rows(tmp_path)["http://a.test/2"].outcome == "duplicate"
    assert rows(tmp_path)["http://a.test/2"].importance == 0
    one, three = (rows(tmp_path)[f"http://a.test/{number}"] for number in (1, 3))
    assert one.cash + one.history == 2 * three.history
    assert "http://a.test/2" not in {row.url for row in ask_view(tmp_path, top_pages, 100)}
    assert ask_view(tmp_path, count).outcomes == {"duplicate": 1}
    assert [stat(crawler, f"content/{name}") for name in ("links_dropped", "merged")] == [1, 1]
    assert stat(crawler, "outcomes/duplicate") == 1


@pytest.mark.parametrize(("settings", "found"), [({}, {ONE: HOME}), ({"AOPIC_CONTENT_SEEN": "off"}, {})])
async def test_the_scheduler_alone_follows_the_links_of_duplicates(serve, tmp_path, settings, found):
    """And with content seen off every page is its own."""
    web = serve({HOME: page(words("x"), [ONE]), ONE: page(words("x"), [TWO]), TWO: page(words("z"))})
    crawler = await run(tmp_path, AOPIC_URL_RULES=["-tracking"], **settings)
    assert web.asked == [HOME, ONE, TWO]
    assert same(tmp_path) == found
    assert stat(crawler, "content/links_dropped") is None


@pytest.mark.parametrize(("seen", "n_asked"), [("exact", 4), ("near", 3)])
async def test_an_endless_site_of_nearly_the_same_page_ends_where_near_duplicates_are_looked_for(
    serve, tmp_path, seen, n_asked
):
    web = serve(
        {
            HOME: page(words("home"), [ONE]),
            ONE: page(f"{words('x', 600)} served at 12:31:07", [TWO]),
            TWO: page(f"{words('x', 600)} served at 12:31:08", ["/1?utm_id=3"]),
            "http://a.test/1?utm_id=3": page(words("y")),
        }
    )
    await run(tmp_path, **{**APART, "AOPIC_CONTENT_SEEN": seen})
    assert len(web.asked) == n_asked


async def test_pages_with_little_text_errors_and_other_types_are_no_duplicates(serve, tmp_path):
    text = words("x").encode()
    web = serve(
        {
            HOME: page(words("home"), [f"/{number}" for number in range(7)]),
            "http://a.test/0": page("x" * (MIN_TEXT - 3)),  # and the title, and a space
            "http://a.test/1": page("x" * (MIN_TEXT - 3), ["/7"]),
            "http://a.test/2": Answer(headers={"Content-Type": "text/plain"}, body=text),
            "http://a.test/3": Answer(headers={"Content-Type": "text/plain"}, body=text),
            "http://a.test/4": Answer(404, {"Content-Type": "text/html"}, page(words("z")).body),
            "http://a.test/5": Answer(404, {"Content-Type": "text/html"}, page(words("z")).body),
            "http://a.test/6": page(words("z"), ["/8"]),
        }
    )

    class All(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if isinstance(response, HtmlResponse):
                yield from super().parse(response)

    await run(tmp_path, All, HTTPERROR_ALLOW_ALL=True)
    assert same(tmp_path) == {}
    assert {"http://a.test/7", "http://a.test/8"} < set(web.asked)


async def test_callbacks_and_items_know_of_a_duplicate_and_callbacks_of_a_copy_on_another_site(
    serve, tmp_path
):
    twice, copy = page(words("x"), ["/1", "/2"]), "http://b.com/"
    web = {HOME: twice, "http://a.test/1": twice, "http://a.test/2": page(words("y"), [copy])}
    serve({**web, copy: twice, f"{copy}1": page(words("z"))})
    told, items = [], []

    class Tell(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            told.append((response.url, *map(response.meta.get, ("aopic_duplicate_of", "aopic_copy_of"))))
            yield {"url": response.url}
            for request in super().parse(response):
                yield request.replace(meta=response.meta)

    await run(
        tmp_path,
        Tell,
        told={signals.item_scraped: keep(items)},
        AOPIC_ITEM_FIELDS="duplicate_of",
        ITEM_PIPELINES={"scrapy_aopic.ImportancePipeline": 100},
    )
    first = {HOME: None, "http://a.test/1": HOME, "http://a.test/2": None, copy: None, f"{copy}1": None}
    assert told == [(url, of, HOME if url == copy else None) for url, of in first.items()]
    assert [(item["url"], item["duplicate_of"]) for item in items] == [*first.items()]


async def test_what_a_duplicate_asks_for_with_dont_filter_is_asked(serve, tmp_path):
    class Insist(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            for request in super().parse(response):
                yield request.replace(dont_filter=True)

    web = serve({HOME: page(words("x"), [ONE]), ONE: page(words("x"), [TWO]), TWO: page("")})
    await run(tmp_path, Insist, **APART)
    assert TWO in web.asked


async def test_a_page_that_cannot_be_read_costs_nothing_but_its_judgement(serve, tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no text")

    monkeypatch.setattr("scrapy_aopic.session.responses.read_text", fail)
    web = serve({HOME: page(words("x"), ["/1"]), "http://a.test/1": page(words("x"), ["/2"])})
    crawler = await crawl(Follow, {"SCHEDULER": "scrapy_aopic.Scheduler"}, has_errors=True)
    assert len(web.asked) == 3
    assert stat(crawler, "errors") == 2


# -- pages whose words agree, and no more


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, DROP])
async def test_no_item_of_listings_with_the_same_words_is_lost(serve, tmp_path, settings):
    """A shop whose lists name no item: each shows the same words around ten pictures."""
    items = {f"http://a.test/item/{number}": page(words(f"item {number}")) for number in range(50)}
    lists = {
        f"http://a.test/list/{number}": page(words("list"), [f"/item/{10 * number + at}" for at in range(10)])
        for number in range(5)
    }
    web = serve({HOME: page(words("home"), list(lists)), **lists, **items})
    await run(tmp_path, **settings)
    assert set(web.asked) == {HOME, *lists, *items}
    assert same(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, DROP])
async def test_no_page_of_a_site_whose_scripts_hold_the_data_is_lost(serve, tmp_path, settings):
    """Next.js: what is seen is a frame, and what it is filled with is JSON in a script."""

    def parse(response: HtmlResponse) -> Iterator[Any]:
        for path in response.css("#__NEXT_DATA__::text").re(r"/p/[0-9]+"):
            yield Request(response.urljoin(path))

    def framed(paths: list[str]) -> Answer:
        data = ", ".join(f'"{path}"' for path in paths)
        script = f'<script id="__NEXT_DATA__" type="application/json">{{"paths": [{data}]}}</script>'
        return page(words("frame") + script)

    tree = {
        f"http://a.test/p/{n}": framed([f"/p/{below}" for below in range(4 * n + 1, min(4 * n + 5, 160))])
        for n in range(160)
    }
    web = serve({HOME: framed(["/p/0"]), **tree})
    await run(tmp_path, Visits, start_urls=[HOME], parse=parse, **settings)
    assert len(set(web.asked)) == 161


async def test_a_site_that_makes_up_links_around_one_text_ends(serve, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(duplicates, "SAME_WORDS", 5)

    def answer(exchange: Exchange) -> Answer:
        number = int(exchange.target[1:] or 0)
        return page(words("x"), [f"/{number + 1}"])

    web = serve({HOME: answer, **{f"http://a.test/{number}": answer for number in range(100)}})
    crawler = await run(tmp_path, **DROP)
    assert len(web.asked) == 6
    assert caplog.text.count("one more page with the words of") == 1
    assert same(tmp_path) == {"http://a.test/5": HOME}
    assert stat(crawler, "content/links_dropped") == 1


@pytest.mark.slow
async def test_the_first_link_that_is_dropped_is_logged_with_its_setting(serve, tmp_path, caplog):
    links = [ONE, TWO]
    serve({HOME: page(words("x"), links), ONE: page(words("x"), links), TWO: page(words("x"), links)})
    crawler = await run(tmp_path, **APART)
    assert stat(crawler, "content/links_dropped") == 4
    logged = [record for record in caplog.records if record.name == "scrapy_aopic.session.links.page_rules"]
    assert [record.levelname for record in logged] == ["WARNING"]
    assert all(text in logged[0].getMessage() for text in (ONE, HOME, 'AOPIC_CONTENT_SEEN = "follow"'))


# -- across registered domains


@pytest.mark.parametrize("settings", [{}, DROP])
async def test_who_copies_a_page_and_is_fetched_first_gets_nothing_of_it(serve, tmp_path, settings):
    copy, victim = "http://copy.com/", "http://victim.com/"
    hub = {f"http://hub.com/{number}": page(words(f"hub {number}"), [victim]) for number in range(5)}
    x, one = page(words("x"), ["/1"]), page(words("one"), [])
    both = {copy: x, f"{copy}1": one, victim: x, f"{victim}1": one}
    web = serve({"http://hub.com/": page(words("hub"), [copy, *hub]), **hub, **both})
    crawler = await run(tmp_path, start_urls=["http://hub.com/"], **settings)
    assert web.asked.index(copy) < web.asked.index(victim)
    assert f"{victim}1" in web.asked
    assert same(tmp_path) == {}
    importance = {url: row.importance for url, row in rows(tmp_path).items()}
    assert importance[victim] > 2 * importance[copy]
    assert stat(crawler, "content/copies") == 2


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_copy_that_names_the_original_hands_its_cash_on(serve, tmp_path, *, is_first):
    """Canonical pages of other domains do not count by default; here the text says so, too."""
    copy, real = "http://copy.com/", "http://real.com/"
    seeds = [copy, real] if is_first else [real, copy]
    text, other = page(words("x"), ["/1"], canonical(real)), page(words("1"))
    web = serve({copy: text, real: text, f"{copy}1": other, f"{real}1": other})
    await run(tmp_path, start_urls=seeds, **DROP)
    assert sorted(seeds, key=web.asked.index) == seeds
    assert same(tmp_path) == {copy: real}
    assert f"{real}1" in web.asked
    assert (f"{copy}1" in web.asked) == is_first


# -- canonical pages


@pytest.mark.parametrize("how", ["link", "header"])
async def test_a_page_is_united_with_the_canonical_page_that_it_names(serve, tmp_path, how):
    def variant(text: str, links: list[str]) -> Answer:
        if how == "header":
            return page(text, links, Link='</real>; rel="canonical"')
        return page(text, links, canonical("/real"))

    web = serve(
        {
            HOME: page(words("home"), ["/?from=mail", "/?from=list"]),
            "http://a.test/?from=mail": variant(words("x"), ["/1"]),
            "http://a.test/?from=list": variant(words("x"), ["/1"]),
            "http://a.test/real": page(words("x"), ["/1"], canonical("http://a.test/real")),
            "http://a.test/1": page(words("y")),
        }
    )
    crawler = await run(tmp_path, AOPIC_CANONICAL="domain")
    assert sorted(web.asked) == sorted(web.pages)
    variants = ("http://a.test/?from=mail", "http://a.test/?from=list")
    assert same(tmp_path) == dict.fromkeys(variants, "http://a.test/real")
    assert stat(crawler, "content/merged") == 2
    listed = {row.url for row in ask_view(tmp_path, top_pages, 100)}
    assert listed == {HOME, "http://a.test/real", "http://a.test/1"}


async def test_the_callback_of_the_page_is_that_of_its_canonical_page(serve, tmp_path):
    told = []

    class Other(Visits):
        async def start(self) -> Any:
            yield Request(HOME, self.parse_other, cb_kwargs={"number": 5})

        def parse_other(self, response: Response, number: int) -> Iterator[Any]:
            told.append((response.url, number))
            yield Request("http://a.test/1", self.parse)

    pages = {HOME: page(words("x"), head=canonical("/real")), "http://a.test/1": []}
    serve({**pages, "http://a.test/real": page(words("y"))})
    await run(tmp_path, Other, AOPIC_CANONICAL="domain")
    assert told == [(HOME, 5), ("http://a.test/real", 5)]


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ("off", []),
        ("domain", ["http://www.a.com/real"]),
        ("any", ["http://www.a.com/real", "http://b.test/"]),
    ],
)
async def test_which_canonical_pages_count(serve, tmp_path, setting, asked):
    web = serve(
        {
            "http://a.com/": page(words("x"), ["/1", "/2"], canonical("http://www.a.com/real")),
            "http://a.com/1": page(words("y"), ["/2"], canonical("http://b.test/")),
            "http://a.com/2": page(words("z")),
            "http://b.test/": page(words("b")),
            "http://www.a.com/real": page(words("r")),
        }
    )
    await run(tmp_path, start_urls=["http://a.com/"], AOPIC_CANONICAL=setting)
    assert sorted(set(web.asked) - {"http://a.com/", "http://a.com/1", "http://a.com/2"}) == sorted(asked)
    assert set(same(tmp_path).values()) == set(asked)


async def test_a_spider_that_follows_no_links_is_given_no_page(serve, tmp_path):
    web = serve({HOME: page(words("x"), ["/1"], canonical("/real"))})
    await run(tmp_path, Visits, start_urls=[HOME], parse=lambda response: [{"url": response.url}])
    assert web.asked == [HOME]


async def test_filters_hold_for_canonical_pages_too(serve, tmp_path):
    home = page(words("x"), ["/1"], canonical("http://b.test/"))
    web = serve({HOME: home, "http://a.test/1": page(words("y"))})
    await run(tmp_path, allowed_domains=["a.test"], AOPIC_CANONICAL="any")
    assert web.asked == [HOME, "http://a.test/1"]
    assert same(tmp_path) == {}


async def test_a_site_whose_pages_all_name_the_home_page_is_crawled_all_the_same(serve, tmp_path):
    """A common mistake; the ledger believes it, and the crawl goes on."""
    pages = {
        f"http://a.test/{number}": page(words(str(number)), [f"/{number + 1}"], canonical("/"))
        for number in range(5)
    }
    web = serve({HOME: page(words("home"), ["/0"], canonical("/")), **pages})
    await run(tmp_path, AOPIC_CANONICAL="domain")
    assert sorted(web.asked)[:-1] == sorted(web.pages)
    assert same(tmp_path) == dict.fromkeys(pages, HOME)


def answered(body: str = "", status: int = 200, headers: dict[str, Any] | None = None) -> HtmlResponse:
    return HtmlResponse("http://a.test/x/y", status, headers, body=body.encode(), encoding="utf-8")


def test_the_canonical_page_is_read_from_the_head():
    for head, url in [
        ('<link rel="canonical" href="/z">', "http://a.test/z"),
        ("<link href=' /z ' rel='shortlink CANONICAL'>", "http://a.test/z"),
        ('<base href="http://b.test/q/"><link rel="canonical" href="z">', "http://b.test/q/z"),
        ('<link rel="canonical" href="/z"><link rel="canonical" href="http://a.test/z">', "http://a.test/z"),
        ('<link rel="canonical" href="/z"><link rel="canonical" href="/w">', ""),
        ('<link rel="canonical" href="">', "http://a.test/x/y"),
        ('<link rel="canonical">', ""),
        ('<link rel="canonical" href="http://[">', ""),
        ('<link rel="stylesheet" href="/z">', ""),
        ('<script>"<link rel=canonical href=/z>"</script>', ""),
        ('<!-- <link rel="canonical" href="/z"> -->', ""),
        ('</head><body><p>by a visitor: <link rel="canonical" href="/z"></p>', ""),
        ("", ""),
    ]:
        assert read_canonical(answered(f"<html><head><title>t</title>{head}")) == url


def test_the_canonical_page_is_read_from_the_header_of_any_answer():
    for header, url in [
        ('</z>; rel="canonical"', "http://a.test/z"),
        ("<http://b.test/z>;rel=Canonical", "http://b.test/z"),
        ('</w>; rel="next", </z>; title="a, b"; rel="canonical"', "http://a.test/z"),
        (['</w>; rel="next"', '</z>; rel="canonical"'], "http://a.test/z"),
        ('</z>; rel="canonical alternate"', "http://a.test/z"),
        ('</z>; rel="next"', ""),
        ('</z>; title="rel=canonical"', ""),
        ("/z; rel=canonical", ""),
        ("<>" * 1000, ""),
    ]:
        assert read_canonical(Response("http://a.test/x/y", headers={"Link": header})) == url


def test_an_error_names_no_canonical_page():
    assert read_canonical(answered('<html><head><link rel="canonical" href="/z">', 404)) == ""


# -- what is the text


TEXT = words("x")


def test_what_is_not_seen_does_not_count():
    for body in [
        f"<html><title>t</title><body><p>{TEXT}</p>",
        f"<title>t</title>\n\n<p>\n{TEXT.replace(' ', chr(10))}\n</p>",
        f"<title>T</title><p>{TEXT.upper()}</p>",
        f"<title>t</title><script>var x = 0.75;</script><style>p {{}}</style><p>{TEXT}</p>",
        f"<title>t</title><!-- 0.25 --><p class='0.5'>{TEXT}</p>",
        f"<title>t</title><p>{TEXT}</p><template>hidden</template>",
        f"<title>t</title><script>t</script><p>{TEXT}</p><script>{TEXT}</script><style>t</style>",
        f"<title>t</title><template>t<!-- in two pieces -->{TEXT}</template><p>{TEXT}</p>",
    ]:
        assert read_text(answered(body)) == read_text(answered(f"<title>t</title>{TEXT}"))


def test_every_word_and_number_counts():
    for body in [f"<title>u</title>{TEXT}", f"<title>t</title>{TEXT} 1", f"<title>t</title>{TEXT[:-1]}"]:
        assert read_text(answered(body)) != read_text(answered(f"<title>t</title>{TEXT}"))


def test_any_body_has_a_text_or_little():
    for body in ["", " ", "<html></html>", "<p>&#0;</p>", "\x00\x01", "<" * 1000, "日本語" * 300]:
        text = read_text(answered(body))
        assert text is not None, body
        assert bool(text.digest) == (len(body) >= 900)


def leads(links: str = "", url: str = "http://a.test/x/y", **how: str) -> bytes:
    body = f"<title>t</title><p>{TEXT}</p>{links}"
    text = read_text(HtmlResponse(url, body=body.encode(), encoding="utf-8", **how))
    return text.links


def test_what_leads_to_the_same_place_is_the_same():
    for one, two in [
        ('<a href="/1"></a><a href="/2"></a>', '<a href=" /2 "></a><a href="/1"></a><a href="/1"></a>'),
        ('<a href="/1"></a>', '<a href="http://a.test/1"></a>'),
        ('<a href="/1"></a>', '<a href="//www.a.test/1"></a>'),
        ('<a href="/x/1"></a>', '<a href="1"></a>'),
        ('<a href="/x/y?p=1"></a>', '<a href="?p=1"></a>'),
        ("", '<a href="#top"></a><a href="mailto:a@a.test"></a><a href="javascript:x()"></a><a></a>'),
        ('<a href="/1?sid=0123456789abcdef"></a>', '<a href="/1?sid=fedcba9876543210"></a>'),
        ('<a href="/1;jsessionid=7?p=1"></a>', '<a href="/1;jsessionid=8?p=1"></a>'),
        ('<a href="/1?session=0.351824987341"></a>', '<a href="/1?session=0.82349211023"></a>'),
        (
            '<a href="/(S(0123456789abcdefghijklmn))/1"></a>',
            '<a href="/(S(nmlkjihgfedcba9876543210))/1"></a>',
        ),
        ('<form action="/1?PHPSESSID=5"></form>', '<form action="/1?PHPSESSID=6"></form>'),
        ("<script>var now = 12;</script>", "<script>var now = 13;</script>"),
        (
            '<script>window.STATE = {"csrfToken": "a1", "items": [1]}</script>',
            '<script>window.STATE = {"csrfToken": "b2", "items": [1]}</script>',
        ),
        ('<link rel="icon" href="/1"><img src="/1">', '<link rel="icon" href="/2"><img src="/2">'),
    ]:
        assert leads(one) == leads(two)


def test_what_leads_elsewhere_is_another_page():
    for one, two in [
        ('<a href="/1"></a>', '<a href="/2"></a>'),
        ('<a href="/1"></a>', '<a href="/1"></a><a href="/2"></a>'),
        ('<a href="/x?id=1"></a>', '<a href="/x?id=2"></a>'),
        ('<a href="/x?newsid=0123456789ab"></a>', '<a href="/x?newsid=ba9876543210"></a>'),
        ('<a href="/x?sid=1"></a>', '<a href="/x?sid=2"></a>'),
        ('<a href="//b.test/1"></a>', '<a href="/1"></a>'),
        ('<a href="http://one.a.test/"></a>', '<a href="http://two.a.test/"></a>'),
        ('<area href="/1">', '<area href="/2">'),
        ('<iframe src="/1"></iframe>', '<iframe src="/2"></iframe>'),
        ('<form action="/1"></form>', '<form action="/2"></form>'),
        ('<link rel="next" href="/1">', '<link rel="next" href="/2">'),
        ('<base href="/1/"><a href="a"></a>', '<base href="/2/"><a href="a"></a>'),
        (
            '<script type="application/ld+json">{"url": "/1"}</script>',
            '<script type="application/ld+json">{"url": "/2"}</script>',
        ),
        (
            '<script id="__NEXT_DATA__" type="application/json">{"id": 1}</script>',
            '<script id="__NEXT_DATA__" type="application/json">{"id": 2}</script>',
        ),
        (
            '<script>self.__next_f.push([1,"/item/1"])</script>',
            '<script>self.__next_f.push([1,"/item/2"])</script>',
        ),
        ('<script>window.__NUXT__=(function(a){}("1"))</script>', '<script>window.__NUXT__=(function(a){}("2"))</script>'),
        ("<script>\n  var items = [1];</script>", "<script>\n  var items = [2];</script>"),
    ]:  # fmt: skip
        assert leads(one) != leads(two)


def test_links_are_told_apart_as_seen_from_their_site():
    links = '<a href="/1"></a><a href="2"></a><a href="http://c.test/"></a>'
    assert leads(links) == leads(links, "https://www.b.test/x/z?q=1")
    assert leads(links) != leads(links, "http://a.test/other/y")  # "2" leads elsewhere
    assert leads('<a href="/1"></a>') == leads('<a href="/1"></a>', "http://a.test/other/y")


def test_deep_and_long_pages_are_read():
    assert read_text(answered("<div>" * 20_000 + TEXT), has_sketch=True) is not None
    text = read_text(answered(f"<p>{words('x', 100_000)}</p>"), has_sketch=True)
    assert len(text.sketch) == 64


SESSIONS = ['<a href="/1?sid=0123456789abcdef"></a>', '<a href="/1?sid=fedcba9876543210"></a>']
TOKENS = [f'<script type="application/json">{{"token": "{n}"}}</script>' for n in (1, 2)]


def test_what_differs_on_equal_pages_counts_far_down_in_huge_ones():
    for one, two in [("a b", "A B"), SESSIONS, TOKENS]:
        texts = [read_text(answered(TEXT + part)) for part in (one, two)]
        assert texts[0] == texts[1], one
        texts = [read_text(answered(TEXT + " " * MAX_SKIMMED + part)) for part in (one, two, one)]
        assert texts[0] != texts[1], one
        assert texts[0] == texts[2], one


def test_no_two_pages_are_one_because_they_have_ten_thousand_of_anything():
    for part in ["<form action='/{}'>", "<!-- {} -->", "<script>{}</script>", "<link rel=icon href='/{}'>"]:
        many = "".join(map(part.format, range(MAX_SPECIAL)))
        one, two, last = (
            read_text(answered(TEXT + many + more)) for more in ("<a href='/a'>", "<a href='/b'>", "1")
        )
        assert len({one, two, last}) == 3, part


def test_a_huge_page_that_begins_without_words_says_little():
    blank = " " * MAX_SKIMMED
    assert read_text(answered(f"not{blank}found")) == Text(b"")
    assert read_text(answered(f"{TEXT}{blank}")) != Text(b"")


def test_other_types_have_no_text():
    assert read_text(TextResponse("http://a.test/", body=TEXT.encode())) is None
    assert read_text(answered(TEXT, 404)) is None


# -- redirects


@pytest.mark.parametrize(
    ("code", "is_one"), [(301, True), (308, True), (302, False), (307, False), (303, False)]
)
async def test_permanent_redirects_make_source_and_target_one_page(serve, tmp_path, code, is_one):
    serve(
        {
            HOME: ["/old", "/1"],
            "http://a.test/old": Answer(code, {"Location": "http://b.test/new"}),
            "http://b.test/new": [],
            "http://a.test/1": ["/old"],
        }
    )
    await run(tmp_path, AOPIC_VIRTUAL_SHARE=0)
    old, new = (rows(tmp_path)[url] for url in ("http://a.test/old", "http://b.test/new"))
    assert same(tmp_path) == ({"http://a.test/old": "http://b.test/new"} if is_one else {})
    assert old.outcome == "redirect"
    assert (old.cash + old.history == 0) == is_one
    assert new.history > 0


# -- pages that come back


def test_no_link_is_overlooked():
    for begin in [
        '<a href="/{}"', "<a\thref='/{}'", "<A HREF=/{}", '<a title="1 > 0" hReF = "/{}"', "<a title='<b>' href=/{}",
        '<x:a href="/{}"', '<area href="/{}"', '<iframe class="a > b" src="/{}"', "<FORM method=post action='/{}'",
        '<!-- no end <a href="/{}"', '<link rel=next href="/{}"', '<link href="/{}" rel="prev"', "<a b='\"' href='/{}'",
    ]:  # fmt: skip
        for end in ["", ">", "/>", " x='>'>", "></a>"]:
            assert leads(begin.format(1) + end) != leads(begin.format(2) + end)


def test_what_is_neither_shown_nor_leads_anywhere_does_not_count():
    for part in [
        "<!-- <a href='/{}'>{}</a> -->", "<!--{}-->", "<script>'<a href=/{}>' + {}</script >", "<SCRIPT>{}</SCRIPT>",
        "<style>a[href='/{}'] {}</style\n>", "<template><a href='/{}'>{}</a></template>", "<link rel=icon href='/{}'>",
        "<p data-n='{}'>", "<img src='/{}' alt='{}'>", "<!DOCTYPE {}>", "<?php {} ?>", "<script>no end {}",
    ]:  # fmt: skip
        one, two = (read_text(answered(f"<title>t</title><p>{TEXT}</p>" + part.format(n, n))) for n in (1, 2))
        assert one == two, part


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-16-le", "utf-32"])
def test_characters_of_several_bytes_are_read(charset):
    def text(words: str) -> Text | None:
        body = f"<title>{words}</title>{TEXT}".encode(charset)
        return read_text(HtmlResponse("http://a.test/", body=body, encoding=charset))

    assert text("t") == read_text(answered(f"<title>t</title>{TEXT}"))
    assert text("\u65e5\u672c") != text("\u672c\u65e5")
