"""URLs: their normal form, what is refused and why, and what becomes of both in a crawl."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from ada_url import normalize_url
from demo_web.server import Answer, Exchange
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import Settings
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.request import RequestFingerprinter, fingerprint
from support.crawls import ADDON, OURS, Visits, in_folder, keep
from support.hostile_input import PIECES, STARTS
from support.naming import case
from support.ordinary_urls import judgements, ordinary_url, slow_way
from support.small_web import Follow, ask_view, check, crawl
from twisted.web.client import URI
from w3lib.url import canonicalize_url

from scrapy_aopic import Addon, BroadSpider, open_job
from scrapy_aopic.core.records import host_key, page_key
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.settings import read, read_normaliser
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.view.stored import count
from scrapy_aopic.web.meta import slot_key
from scrapy_aopic.web.page_keys import PageKeys
from scrapy_aopic.web.url_rules import BROAD_RULES, CHANGES, REFUSALS
from scrapy_aopic.web.urls import JudgedUrl, Normaliser, plain_host

DRAWN = "9682993c8daa2c5497996114facdc805"
"""A value of the kind that sessions have."""


def normal(url: str, *rules: str, **options: Any) -> str:
    """Normal form of *url*, which is not refused, under the default rules or under *rules*."""
    judged = Normaliser(rules or BROAD_RULES, **options)(url)
    assert judged.reason == ""
    return judged.url


def refusal(url: str, **options: Any) -> str:
    return Normaliser(**{"last_year": 2028, **options})(url).reason


# Rules that change a URL


def test_the_url_standard_is_kept_without_any_rule_of_our_own():
    for url, expected in [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        ("http://example.com:80/a/./b/../c", "http://example.com/a/c"),
        ("https://example.com:443/%2e%2E/a", "https://example.com/a"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("  http://exa\tmple.com/a\nb  ", "http://example.com/ab"),
        ("http:\\\\example.com\\a", "http://example.com/a"),
        ("http://bücher.example/ä?ö", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://faß.de/", "http://xn--fa-hia.de/"),  # IDNA 2003 would make it fass.de
        ("http://日本。jp/", "http://xn--wgv71a.jp/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0:0::1]/", "http://[2001:db8::1]/"),
    ]:
        assert normal(url, "scheme") == expected


def test_each_rule_changes_a_url_if_it_is_on():
    for rule, url, expected in [
        ("fragment", "http://h/a#b", "http://h/a"),
        ("fragment", "http://h/a#!/b", "http://h/a"),
        ("userinfo", "http://user:secret@h/", "http://h/"),
        ("root-dot", "http://example.com./", "http://example.com/"),
        ("percent", "http://h/%7efoo%2fbar", "http://h/~foo%2Fbar"),
        ("percent", "http://h/%41?%41=%e4", "http://h/A?A=%E4"),
        ("percent", "http://h/100%?100%", "http://h/100%25?100%25"),
        ("percent", "http://h/%%341", "http://h/%2541"),
        ("percent", "http://h/[1]|?{2}|^`\\", "http://h/%5B1%5D%7C?%7B2%7D%7C%5E%60%5C"),
        ("empty-query", "http://h/a?", "http://h/a"),
        ("empty-query", "http://h/a?&b=1&&c=2&", "http://h/a?b=1&c=2"),
        ("session", "http://h/a;jsessionid=1A.node1?b=1", "http://h/a?b=1"),
        ("session", "http://h/a?b=1&PHPSESSID=x&c", "http://h/a?b=1&c"),
        ("session", "http://h/a?JSESSIONID=x", "http://h/a"),
        ("session", "http://h/a?ASPSESSIONIDQQ=x&b", "http://h/a?b"),
        ("session", "http://h/a?CFID=1&CFTOKEN=2", "http://h/a"),
        ("session", f"http://h/a?sid={DRAWN}", "http://h/a"),
        ("session", f"http://h/a;sid={DRAWN}/b", "http://h/a/b"),
        ("session", "http://h/a?session_id=0f8fad5b-d9cb-469f-a165-70867728950e", "http://h/a"),
        ("session", "http://h/(S(lit3py55t21z5v55vlm25s55))/a.aspx", "http://h/a.aspx"),
        ("session", "http://h/b/(lit3py55t21z5v55vlm25s55)/a.aspx", "http://h/b/a.aspx"),
        ("session", "http://h/(A(x)S(lit3py55t21z5v55vlm25s55)F(y))/a", "http://h/a"),
        ("session", "http://h/a/..;jsessionid=1/b", "http://h/b"),  # what is left is a dot segment
        ("tracking", "http://h/?utm_source=x&id=1&UTM_Medium=y", "http://h/?id=1"),
        ("tracking", "http://h/?gclid=x&fbclid=y", "http://h/"),
        ("sort", "http://h/?b=2&a=1&b=1", "http://h/?a=1&b=1&b=2"),
    ]:
        assert normal(url, rule) == expected
        assert normal(url, *(name for name in CHANGES if name != rule), max_repeats=0) != expected


def test_what_may_mean_another_page_is_left_alone():
    for url in [
        "http://h/a%2Fb?c=%26&d=%3D",  # reserved characters say something else when they are escaped
        "http://h/a?b=2&a=1",
        "http://h/a?b=&c",
        "http://h/a?sid=17&s=shoes&session_id=2024",  # no value of a session
        "http://h/a?s=my-session-about-crawlers-2024",
        "http://h/a;version=2?ref=home&source=x&utm=1",
        "http://h/wiki/Set_(mathematics)/(abc)",
        "http://h/a//b",
        "http://h/a/",
        "https://www.example.com/",
        "http://my_host.example.com/",
        "http://-x-.example.com/",
        "http://xn--i-7iq.ws/",  # an emoji: no name of IDNA 2008, but there are such hosts
        "http://localhost:8000/",
    ]:
        assert normal(url) == url


# Refusals


def test_what_is_not_worth_a_place_is_refused_with_a_reason():
    for url, reason in [
        ("", "invalid"),
        ("/relative", "invalid"),
        ("http://", "invalid"),
        ("http://exa mple.com/", "invalid"),
        ("http://[::1/", "invalid"),
        ("http://h:65536/", "invalid"),
        ("http://1.2.3.256/", "invalid"),
        ("http://h/\ud800", "invalid"),
        ("ftp://h/", "scheme"),
        ("mailto:a@b.c", "scheme"),
        ("javascript:void(0)", "scheme"),
        ("data:text/html,x", "scheme"),
        ("http://a..b/", "host"),
        ("http://./", "host"),
        ("http://exa!mple.com/", "host"),
        ("http://" + "a" * 64 + ".com/", "host"),
        ("http://" + "a." * 127 + "com/", "host"),
        ("http://h:0/", "port"),
        ("http://h/a%0Ab", "control"),
        ("http://h/a%7fb", "control"),
        ("http://h/?a=%00", "control"),
        ("http://h/" + "a" * 2075, "length"),
        ("http://h" + "/a/b/c/d/e" * 4 + "/f", "depth"),
        ("http://h/a/a/a/a/x", "repeats"),
        ("http://h/x/a/b/a/b/a/b/a/b", "repeats"),
        ("http://h/a/b/c/a/b/c/a/b/c/a/b/c/", "repeats"),
        ("http://h/x/////", "repeats"),
        ("http://h/?" + "&".join(f"p{n}" for n in range(21)), "parameters"),
        ("http://h/calendar/2099/05/", "calendar"),
        ("http://h/kalender?month=2031-07", "calendar"),
        ("http://calendar.h/?date=20310501", "calendar"),
        ("http://h/calendar/?year=1850&month=1", "calendar"),
        ("http://h/events/5/2031/", "calendar"),
    ]:
        assert refusal(url) == reason


def test_what_is_within_the_bounds_is_not_refused():
    for url in [
        "http://h/" + "a" * 2074,
        "http://h/#" + "a" * 5000,
        "http://h" + "/a/b/c/d/e" * 3 + "/a/b/c/d/f",
        "http://h/a/a/a/b/a/a/a",
        "http://h/a/b/a/b/a/b/",
        "http://h/a/a/a/aa",
        "http://h/?" + "&".join(f"p{n}" for n in range(20)),
        "http://h/?a=%0A",
        "http://h/calendar/2027/05/",
        "http://h/2099/05/",  # not a calendar's
        "http://h/events/1945/05/08/",  # history
        "http://h/calendar/12345-99/",
    ]:
        assert refusal(url) == ""


def test_bounds_can_be_moved():
    for url, reason, option in [
        ("http://h/" + "a" * 5000, "length", {"max_length": 0}),
        ("http://h" + "/a/b/c/d/e" * 9, "depth", {"max_depth": 0, "max_repeats": 0}),
        ("http://h" + "/a" * 9, "repeats", {"max_repeats": 9}),
        ("http://h/?" + "&a" * 50, "parameters", {"max_parameters": 50}),
    ]:
        assert refusal(url) == reason
        assert refusal(url, **option) == ""


def test_refusals_can_be_turned_off():
    for rule, url, expected in [
        ("scheme", "ftp://User@h", "ftp://User@h"),
        ("host", "http://exa!mple.com", "http://exa!mple.com/"),
        ("port", "http://h:0", "http://h:0/"),
        ("control", "http://h/%00", "http://h/%00"),
        ("calendar", "http://h/calendar/2099/05/", "http://h/calendar/2099/05/"),
    ]:
        assert refusal(url) == rule
        on = [name for name in BROAD_RULES if name != rule]
        judged = Normaliser(on, last_year=2028)(url)
        assert judged == JudgedUrl(expected, host=judged.host), rule
        assert judged.host in ("", plain_host(expected)), rule


def test_file_names_are_refused_by_their_ends():
    for path, is_refused in [
        ("/a.pdf", True),
        ("/a.PDF?x", True),
        ("/a.b/c.tar.gz", True),
        ("/a.pdf;v=1", True),
        ("/a.pdf/b", False),
        ("/a.gz", False),
        ("/apdf", False),
        ("/a?b=c.pdf", False),
        ("/", False),
    ]:
        assert (
            refusal(f"http://h.pdf{path}", extensions=frozenset({"pdf", "tar.gz"}))
            == "extension" * is_refused
        )
        assert refusal(f"http://h.pdf{path}") == ""


def test_a_refused_url_has_its_normal_form_for_those_that_ask_anyway():
    assert Normaliser()("HTTP://h:0/%7e#x")[:2] == ("http://h:0/~", "port")
    assert Normaliser()("Mailto:a@b")[:2] == ("Mailto:a@b", "scheme")


# The user's rules


def test_the_users_rules_come_last_and_their_result_is_normalised():
    seen = []

    def rewrite(url: str) -> str | None:
        seen.append(url)
        return {"http://h/drop": None, "http://h/bad": "http://"}.get(url, url.replace("h/", "H/%7e"))

    assert [
        Normaliser(rewrite=rewrite)(url)[:2]
        for url in ("HTTP://h/drop#x", "http://h/bad", "http://h/a", "ftp://h")
    ] == [("http://h/drop", "user"), ("http://", "invalid"), ("http://h/~a", ""), ("ftp://h", "scheme")]
    assert seen == ["http://h/drop", "http://h/bad", "http://h/a"]


def shorten(url: str) -> str | None:
    """A rule of a user's, by its import path."""
    return None if "/drop" in url else url.replace("/long", "/short")


def test_rules_are_pairs_or_a_function():
    for value in [[("/long(er)?", "/short"), [r"(\d)0+", r"\1"]], "test_urls.shorten", shorten]:
        rewrite = read(Settings({"AOPIC_URL_REWRITE": value}), "AOPIC_URL_REWRITE")
        assert rewrite("http://h/longer" if isinstance(value, list) else "http://h/long") == "http://h/short"


def test_rules_are_named_all_or_by_what_is_different():
    for value, on, off in [
        ("+sort, -fragment", {"sort", "userinfo"}, {"fragment", "percent", "session", "calendar"}),
        (["+tracking"], {"tracking", "scheme"}, {"session", "sort"}),
        ("fragment,percent", {"fragment", "percent"}, {"scheme", "session"}),
        ((), set(), {*CHANGES, *REFUSALS}),
    ]:
        rules = read(Settings({"AOPIC_URL_RULES": value}), "AOPIC_URL_RULES")
        assert on <= rules, value
        assert not off & rules, value


def test_the_addon_sets_the_rules_of_a_broad_crawl_but_for_what_you_say():
    for set_rules, expected in [
        (None, set(BROAD_RULES)),
        ("-tracking, +sort", {*BROAD_RULES, "sort"} - {"tracking"}),
        ("fragment", {"fragment"}),
        ("", set()),
    ]:
        settings = Settings({} if set_rules is None else {"AOPIC_URL_RULES": set_rules})
        Addon().update_settings(settings)
        assert read(settings, "AOPIC_URL_RULES") == expected, set_rules


def test_the_addon_leaves_wrong_rules_to_whoever_reads_them():
    settings = Settings({"AOPIC_URL_RULES": "+nonsense"})
    Addon().update_settings(settings)
    with pytest.raises(SettingError, match="nonsense"):
        read(settings, "AOPIC_URL_RULES")


# Whatever the text

hostile = st.builds(lambda start, pieces: start + "".join(pieces), st.sampled_from(STARTS), st.lists(st.sampled_from(PIECES)))  # fmt: skip
texts = st.one_of(
    st.text(), hostile, st.text(alphabet="ht:p/?#@[]%.;&=a1\\", max_size=60).map("http://".__add__)
)
every_rule = Normaliser({*CHANGES, *REFUSALS}, last_year=2028)


@given(texts, st.sets(st.sampled_from((*CHANGES, *REFUSALS))), st.integers(0, 30))
@example("http://h/%2e;jsessionid=1/%%341", {"percent", "session"}, 0)
@example("http://h/(S(lit3py55t21z5v55vlm25s55))/(S(lit3py55t21z5v55vlm25s55))/..", {"session"}, 0)
@example("http://a../", {"root-dot"}, 0)
def test_a_normal_form_is_its_own_and_nothing_raises(text, rules, bound):
    normaliser = Normaliser(
        rules, max_length=bound * 9, max_depth=bound, max_repeats=bound, max_parameters=bound, last_year=2028
    )
    judged = normaliser(text)
    if not judged.reason:
        assert normaliser(judged.url)[:2] == judged[:2]


@given(texts)
def test_what_is_not_refused_can_be_asked_for_as_it_is(text):
    url, reason, _ = every_rule(text)
    if reason:
        return
    assert Request(url).url == url
    parts, asked = urlsplit(url), URI.fromBytes(url.encode("ascii"))
    assert parts.scheme in ("http", "https")
    assert parts.hostname == asked.host.decode("ascii")
    assert 0 < asked.port < 65536
    assert asked.toBytes() == url.encode("ascii")
    assert url.isprintable()
    assert " " not in url


# In a crawl

ALONE = {**OURS, "CONCURRENT_REQUESTS": 1}
BROAD = {**ALONE, "AOPIC_URL_RULES": BROAD_RULES, "AOPIC_URL_LIMITS": "repeats=3"}
HOME = "http://a.test/"


def stats_of(crawler: Crawler) -> dict[str, Any]:
    """What was counted of URLs, without the common beginning of the names, and without what took long."""
    stats = crawler.stats.get_stats()
    names = [name for name in stats if name.startswith("aopic/urls/") and name != "aopic/urls/slow"]
    return {name[11:]: stats[name] for name in names}


async def test_links_to_one_page_are_one(serve, tmp_path):
    names = ["/x", "/x#part", "/./x", "HTTP://A.test:80/x?utm_source=home", "/x;jsessionid=77"]
    web = serve({HOME: [*names, "http://a.test./x?"], "http://a.test/x": []})
    crawler = await crawl(Follow, in_folder(tmp_path, BROAD))
    assert web.asked == [HOME, "http://a.test/x"]
    assert check(tmp_path).pages == 2
    assert stats_of(crawler)["changed"] >= 3


async def test_refused_links_pay_the_virtual_page_and_not_their_siblings(serve, tmp_path, caplog):
    refused = ["http://a..test/", "http://a.test:0/", "ftp://a.test/", "http://a.test/" + "a/" * 5]

    def parse(response: Response) -> Iterator[Any]:
        if response.url == HOME:
            yield from map(Request, [*refused, refused[0], "http://a.test/kept"])

    web = serve({HOME: [], "http://a.test/kept": []})
    settings = in_folder(tmp_path, BROAD, AOPIC_ENDOWMENT=0, AOPIC_VIRTUAL_SHARE=0)
    crawler = await crawl(Visits, settings, start_urls=[HOME], parse=parse)
    assert web.asked == [HOME, "http://a.test/kept"]
    counted = {"refused/host": 2, "refused/port": 1, "refused/scheme": 1, "refused/repeats": 1}
    assert stats_of(crawler) == counted
    rows = {row.url: row for row in ask_view(tmp_path, top_pages, 10)}
    assert rows["http://a.test/kept"].history == rows[HOME].history // 5
    warned = [record.getMessage() for record in caplog.records if "is not queued" in record.getMessage()]
    assert len(warned) == 4
    assert all(f" on {HOME} is not queued" in text and "aopic/urls/refused/" in text for text in warned)
    for name in ("RULES: host", "RULES: port", "RULES: scheme", "LIMITS: repeats"):
        assert sum(f"(AOPIC_URL_{name})" in text for text in warned) == 1


async def test_urls_of_uncommon_forms_are_counted(serve):
    common = ["?id=1&q=caf%C3%A9+noir", "#a", "?utm_source=x", "b.html", "~c/(d):e,f/", "%e9", "?a=/b&c"]
    hosts = ("http://a.test/", "http://WWW.a.test:54321/", "https://bücher.test/", "http://93.184.216.34/")

    urls = [host + end for host in hosts for end in common]
    urls += [f"{HOME}a;b", f"{HOME}a;c", f"{HOME}a;b", f"{HOME}%25"]
    serve({HOME: []})
    settings = {**BROAD, "CLOSESPIDER_PAGECOUNT": 1}
    crawler = await crawl(Visits, settings, start_urls=[HOME], parse=lambda response: map(Request, urls))
    assert crawler.stats.get_value("aopic/urls/slow") == 3
    assert crawler.stats.get_value("scheduler/enqueued") == 4 * 6 + 3  # two of the seven are one page


async def test_what_a_spider_asks_for_on_purpose_is_asked_for_as_it_is(serve):
    class Purpose(Follow):
        deep = f"/a/a/a/a/a/a?utm_source=x&session_id={DRAWN}&sid=%00#f"

        async def start(self) -> AsyncIterator[Any]:
            yield Request(f"http://start.test{self.deep}", errback=self.failed)

        def failed(self, failure: Any) -> Iterator[Any]:
            yield Request(f"http://errback.test{self.deep}", self.parse)

        def parse(self, response: Response) -> Iterator[Any]:
            if "errback" in response.url:
                yield Request(f"http://filter.test{self.deep}", dont_filter=True)
                yield Request(f"http://verbatim.test{self.deep}", meta={"verbatim_url": True})
                yield Request(f"http://form.test{self.deep}", method="POST", body="q=1")
                yield Request(f"http://api.test{self.deep}", self.parse_api)
                yield Request(f"http://link.test{self.deep}")

        def parse_api(self, response: Response) -> Iterator[Any]:
            yield Request(response.url.replace("api", "next"), self.parse_api, meta=response.meta)

    target = Purpose.deep.partition("#")[0]
    names = ("errback", "filter", "verbatim", "form", "api", "next", "link")
    pages: dict[str, Any] = {f"http://{name}.test{target}": [] for name in names}
    pages[f"http://api.test{target}"] = Answer(headers={"Content-Type": "application/json"}, body=b"{}")
    pages[f"http://next.test{target}"] = Answer(302, {"Location": f"http://moved.test{target}"})
    web = serve(pages)
    crawler = await crawl(Purpose, BROAD)
    expected = [*(name for name in names if name != "link"), "start", "moved"]
    assert sorted(web.asked) == sorted(f"http://{name}.test{target}" for name in expected)
    assert stats_of(crawler) == {"refused/control": 1}


async def test_the_scheduler_alone_refuses_no_link_that_can_be_asked_for(serve):
    links = [
        "/a/a/a/a/a",
        f"/a?{'&'.join(f'p{n}=1' for n in range(25))}",
        "/deep" + "/a/b/c/d/e" * 8,
        "/calendar/2099/05",
        "/a%0Ab?%00",
        f"/x?utm_source=x&session_id={DRAWN}",
        "/x;jsessionid=7",
        "/" + "a" * 3000,
        "/x.pdf",
    ]

    def parse(response: Response) -> Iterator[Any]:
        yield from map(response.follow, links)

    web = serve({HOME: []})
    crawler = await crawl(Visits, {**ALONE, "URLLENGTH_LIMIT": 0}, start_urls=[HOME], parse=parse)
    assert sorted(web.asked) == sorted([HOME, *(f"http://a.test{link}" for link in links)])
    assert stats_of(crawler) == {}


async def test_other_schemes_are_for_the_spider_and_not_for_pages(serve, tmp_path):
    secret = tmp_path / "secret.html"
    secret.write_text("<p>", encoding="utf-8")
    read_by = []

    def parse(response: Response) -> Iterator[Any]:
        read_by.append(response.url)
        if response.url.startswith("data:text/html"):
            yield Request("data:,next")
            yield Request(HOME)
        elif response.url == HOME:
            yield Request(secret.as_uri())
            yield Request("data:,page")

    serve({HOME: []})
    crawler = await crawl(Visits, ALONE, starts=["data:text/html,start"], parse=parse)
    assert sorted(read_by) == ["data:,next", "data:text/html,start", HOME]
    assert stats_of(crawler) == {"refused/scheme": 2}


@pytest.mark.slow
async def test_a_request_on_purpose_that_cannot_be_made_reaches_its_errback(serve):
    failed: list[Any] = []
    serve({})
    starts = [Request("http://127.0.0.1:0/", errback=failed.append, meta={"proxy": None})]
    crawler = await crawl(Visits, {**BROAD, "RETRY_ENABLED": False}, starts=starts)
    assert [failure.request.url for failure in failed] == ["http://127.0.0.1:0/"]
    assert not failed[0].check(HttpError)
    assert stats_of(crawler) == {}


async def test_one_host_has_one_name_whoever_asks(serve):
    web = serve({"http://a.test/1?utm_source=x": []})
    starts = ["http://A.test./1?utm_source=x#y", "http://a.test:80/1?utm_source=x"]
    await crawl(Visits, BROAD, starts=starts)
    assert web.asked == ["http://a.test/1?utm_source=x"]


async def test_the_target_of_a_redirect_is_normalised_or_refused(serve, tmp_path):
    web = serve(
        {
            HOME: ["/moved", "/away", "/x"],
            "http://a.test/moved": Answer(301, {"Location": "/x?utm_source=moved"}),
            "http://a.test/away": Answer(302, {"Location": "/a/a/a/a/a"}),
            "http://a.test/x": [],
        }
    )
    crawler = await crawl(Follow, in_folder(tmp_path, BROAD))
    assert sorted(web.asked) == [HOME, "http://a.test/away", "http://a.test/moved", "http://a.test/x"]
    assert ask_view(tmp_path, count).outcomes["redirect"] == 2
    assert stats_of(crawler)["refused/repeats"] == 1


async def test_a_redirect_to_the_same_page_with_a_session_is_followed(serve):
    def page(exchange: Exchange) -> Answer:
        return Answer(302, {"Location": f"{exchange.target};jsessionid=1"})

    pages = {f"http://a.test/{n};jsessionid=1": [f"/{n + 1};jsessionid=2"] for n in range(3)}
    web = serve({**dict.fromkeys((f"http://a.test/{n}" for n in range(3)), page), **pages})

    await crawl(Follow, BROAD, start_urls=["http://a.test/0"])
    expected = [f"http://a.test/{n}{end}" for n in range(3) for end in ("", ";jsessionid=1")]
    assert web.asked == [*expected, "http://a.test/3"]


async def test_lists_of_seeds_are_normalised_before_they_become_requests(serve, tmp_path):
    seeds = tmp_path / "seeds.txt"
    urls = "http://A.test/1?utm_source=list\nhttp://a.test/1#x\nhttp://faß.test/\nhttp://a.test:0/\n"
    seeds.write_text(urls, encoding="utf-8")
    web = serve({"http://a.test/1": [], "http://xn--fa-hia.test/": []})
    crawler = await crawl(Visits, {**BROAD, "AOPIC_SEEDS": str(seeds)})
    assert sorted(web.asked) == ["http://a.test/1", "http://xn--fa-hia.test/"]
    assert stats_of(crawler) == {"changed": 3, "refused/port": 1}
    n_seeds = [crawler.stats.get_value(f"aopic/seeds/{name}") for name in ("rows", "queued", "known")]
    assert n_seeds == [4, 2, 1]


async def test_a_rule_of_the_users_that_fails_is_said_once_and_changes_nothing(serve, caplog):
    def rewrite(url: str) -> Any:
        if "/1" in url:
            raise RuntimeError("no")
        return 7 if "/2" in url else None if "/3" in url else url

    web = serve({HOME: ["/1?", "/2", "/3"], "http://a.test/1": [], "http://a.test/2": []})
    crawler = await crawl(Follow, {**ALONE, "AOPIC_URL_REWRITE": rewrite})
    assert sorted(web.asked) == [HOME, "http://a.test/1", "http://a.test/2"]
    assert stats_of(crawler)["refused/user"] == 1
    assert stats_of(crawler)["unrewritten"] == 2
    assert caplog.text.count("AOPIC_URL_REWRITE fails on") == 1


# Content types


async def test_answers_of_other_types_are_not_read(serve, tmp_path, caplog):
    called = []

    class Called(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            called.append(response.url)
            yield from super().parse(response)

    def of_type(kind: str, body: bytes, **headers: str) -> Answer:
        return Answer(headers={"Content-Type": kind, **headers}, body=body)

    zipped = {"Content-Encoding": "gzip"}
    web = serve(
        {
            HOME: ["/pdf", "/zip", "/moved", "/gone", "/plain", "/feed", "/none"],
            "http://a.test/pdf": of_type("Application/PDF; x=y", b"%PDF" * 100_000),
            "http://a.test/zip": of_type("application/pdf", gzip.compress(b"%PDF" * 1000), **zipped),
            "http://a.test/moved": Answer(301, {"Location": "/target", "Content-Type": "image/png"}),
            "http://a.test/target": [],
            "http://a.test/gone": Answer(404, {"Content-Type": "image/png"}),
            "http://a.test/plain": of_type("text/plain", b"x"),
            "http://a.test/feed": of_type("application/atom+xml", b"<feed/>"),
            "http://a.test/none": Answer(body=b"<p>"),
        }
    )
    settings = in_folder(tmp_path, ALONE, AOPIC_CONTENT_TYPES="text/*, application/*+xml")
    crawler = await crawl(Called, settings)
    (warning,) = [record for record in caplog.records if "AOPIC_CONTENT_TYPES" in record.getMessage()]
    assert warning.levelname == "WARNING"
    assert len(web.asked) == 9
    read = [HOME, *(f"http://a.test/{name}" for name in ("target", "plain", "feed", "none"))]
    assert sorted(called) == sorted(read)
    outcomes = ask_view(tmp_path, count).outcomes
    assert (outcomes["content type"], outcomes["http 404"], outcomes["redirect"]) == (2, 1, 1)
    result = check(tmp_path)
    assert (result.failed, result.violations) == (3, [])
    assert crawler.stats.get_value("downloader/response_bytes") < 100_000
    assert not [name for name in crawler.stats.get_stats() if "exception" in name]


async def test_every_answer_is_read_without_the_addon(serve):
    pdf = Answer(headers={"Content-Type": "application/pdf"}, body=b"%PDF")
    serve({HOME: [], "http://a.test/a.pdf": pdf, "http://a.test/b": pdf})
    for settings, expected in [
        (ALONE, [HOME, "http://a.test/a.pdf", "http://a.test/b"]),
        ({**ADDON, "AOPIC_POLITENESS_FACTOR": 0}, [HOME]),
    ]:
        read: list[str] = []

        def parse(response: Response, read: list[str] = read) -> Iterator[Any]:
            read.append(response.url)
            yield from (Request(f"http://a.test/{name}") for name in ("a.pdf", "b"))

        with case(settings):
            await crawl(Visits, settings, start_urls=[HOME], parse=parse)
            assert sorted(read) == expected


ordinary_urls = st.randoms(use_true_random=False).map(ordinary_url)


@given(ordinary_urls)
@example("http://a.test/.well-known/a")
@example("http://a.test/a/./b?a")
@example("http://a.test//")
@example("http://127.0.0.1/a")
@example("http://a.0x7f/")
@example("http://a.test:65536/")
def test_a_plain_url_is_what_everybody_else_makes_of_it(url):
    host = plain_host(url)
    if host:
        assert host == urlsplit(url).hostname
        assert "xn--" in host or normalize_url(url) == url


@given(ordinary_urls)
@example("http://a.test/?a1&a&a=%20&A+=b=c&%C3%A9&z")
@example("http://a.test/%2f%2C%e9;%2c")
def test_a_place_is_worked_out_from_the_fingerprint_that_scrapy_makes(url):
    try:
        request = Request(url)
    except ValueError:  # no request can be made of it
        return
    key = page_key(host_key(slot_key(request)), fingerprint(request))
    assert PageKeys(RequestFingerprinter())(request) == (slot_key(request), key)


def test_nothing_depends_on_whether_a_url_takes_the_quick_way():
    random = Random(1)
    urls = [ordinary_url(random) for _ in range(2000)]
    quick = [judgements(url) for url in urls]
    with slow_way():
        slow = [judgements(url) for url in urls]
    for url, one, other in zip(urls, quick, slow, strict=True):
        assert one.judged == other.judged, url
        assert one.keys == other.keys, url
    assert sum(one.n_quick for one in quick) > 0.65 * sum(len(one.keys) for one in quick)
    assert not any(other.n_quick for other in slow)


def test_a_place_follows_a_fingerprinter_of_the_users_own_and_whatever_else_tells_requests_apart():
    class Own:
        def fingerprint(self, request: Request) -> bytes:
            return request.headers["X"] or b""

    places = PageKeys(Own())
    one, other = (Request("http://a.test/", headers={"X": value}) for value in "ab")
    assert places(one) != places(other)
    places = PageKeys(RequestFingerprinter())
    plain = places(Request("http://a.test/?b&a"))
    assert places(Request("http://a.test/?a&b")) == plain
    verbatim = {"meta": {"verbatim_url": True}}
    for different in ({"method": "POST"}, {"body": b"a"}, verbatim, {"meta": {"download_slot": "b"}}):
        request = Request("http://a.test/?b&a", **different)
        known_key = page_key(host_key(slot_key(request)), fingerprint(request))
        assert places(request) == (slot_key(request), known_key)
        is_unknown = different == verbatim and fingerprint(request) == fingerprint(Request(request.url))
        assert is_unknown or places(request) != plain  # Scrapy 2.16 does not know URLs that are verbatim


def test_a_w3lib_whose_canonical_form_is_another_makes_all_keys_the_slow_way(monkeypatch):
    def other_form(url: str, **options: Any) -> str:
        return canonicalize_url(url, **options).replace("+", "%20")

    monkeypatch.setattr("scrapy_aopic.web.url_keys.canonicalize_url", other_form)
    monkeypatch.setattr("scrapy.utils.request.canonicalize_url", other_form)
    places = PageKeys(RequestFingerprinter())
    assert not places.are_of_urls
    for url in ("http://a.test/?a=1+2", "http://a.test/?a=1%202"):
        request = Request(url)
        assert places(request)[1] == page_key(host_key("a.test"), fingerprint(request))


# -- scope


def test_a_scope_is_names_of_which_the_nearest_counts_and_patterns():
    for scope, followed in [
        ({"allow": "b.test"}, ["http://b.test/", "http://x.b.test/", "http://x.y.b.test/1"]),
        ({"allow": ["b.test", "y.b.test"], "deny": ["x.b.test", "x.y.b.test"]}, ["http://b.test/"]),
        ({"deny": ["b.test"], "allow": ["x.y.b.test"]}, ["http://x.y.b.test/1"]),
        ({"deny": ["test"]}, ["http://c.example/"]),
        ({"deny_urls": ["^http://x", "e/$"]}, ["http://b.test/"]),
        ({"deny": ["c.example"], "allow_urls": ["1$", "c.ex"]}, ["http://x.y.b.test/1"]),
    ]:  # fmt: skip
        normalise = read_normaliser(Settings({"AOPIC_SCOPE": scope}), None)
        urls = ["http://b.test/", "http://x.b.test/", "http://x.y.b.test/1", "http://c.example/"]
        assert [url for url in urls if not normalise(url).reason] == followed, scope
        assert {normalise(url).reason for url in urls} == {"", "scope"}, scope


async def test_links_and_redirects_out_of_scope_are_counted_and_explained(serve, tmp_path, caplog):
    (tmp_path / "hosts.txt").write_text("b.test\nother.example\n", encoding="utf-8")
    scope = {"allow": [str(tmp_path / "hosts.txt")], "deny": ["ads.b.test"], "deny_urls": ["/login"]}
    (tmp_path / "scope.json").write_text(json.dumps(scope), encoding="utf-8")
    links = [
        f"http://{each}" for each in ("b.test/", "ads.b.test/", "b.test/login", "c.test/", "b.test/moved")
    ]
    web = serve(
        {
            HOME: links,
            "http://b.test/": [],
            "http://b.test/moved": Answer(301, {"Location": "http://c.test/x"}),
            "http://b.test/robots.txt": Answer(body=b"Sitemap: http://b.test/map.txt"),
            "http://b.test/map.txt": Answer(body=b"http://b.test/login/2\nhttp://b.test/mapped"),
            "http://b.test/mapped": [],
        }
    )
    settings = {"AOPIC_SCOPE": str(tmp_path / "scope.json"), "USER_AGENT": "tester"}
    settings |= {"ROBOTSTXT_OBEY": True, "AOPIC_SITEMAPS": True}
    crawler = await crawl(Follow, in_folder(tmp_path / "job", BROAD, **settings))
    pages = {url for url in web.asked if not url.endswith(".txt")}
    assert pages == {HOME, "http://b.test/", "http://b.test/moved", "http://b.test/mapped"}, "with the seed"
    assert stats_of(crawler)["refused/scope"] == 5
    assert caplog.text.count("it is out of scope (AOPIC_SCOPE)") == 1
    job = open_job(tmp_path / "job", settings)
    said = {url: job.why(url).sentences[0] for url in (*links, "http://c.test/x")}
    assert '(AOPIC_SCOPE): "deny" has ads.b.test.' in said["http://ads.b.test/"]
    assert "(AOPIC_SCOPE): \"deny_urls\" has '/login'." in said["http://b.test/login"]
    assert '(AOPIC_SCOPE): "allow" has no name that covers c.test.' in said["http://c.test/"]
    assert "was fetched" in said["http://b.test/"]


def in_language(language: str, *links: str, header: str = "") -> Answer:
    body = f"<!-- <html lang=xx> --><html{language and f' lang={language}'}>" + "".join(
        f"<a href={each}>" for each in links
    )
    headers = {"Content-Type": "text/html"} | ({"Content-Language": header} if header else {})
    return Answer(headers=headers, body=body.encode())


LANGUAGES: dict[str, Any] = {
    HOME: in_language("en", "/de", "/at", "/none", "/header", "/two", "/fr", "/old", "/dev"),
    f"{HOME}de": in_language("DE", "/from-de"),
    f"{HOME}from-de": in_language("de"),
    f"{HOME}at": in_language("de_AT"),
    f"{HOME}none": in_language("", "/from-none"),
    f"{HOME}from-none": in_language("''"),
    f"{HOME}header": in_language("", header="de-CH"),
    f"{HOME}two": in_language("", header="en, de"),
    f"{HOME}fr": in_language("fr", "/from-fr", "/also-from-fr"),
    f"{HOME}old": in_language("fr", header="de"),
    f"{HOME}dev": in_language("dev"),
}


async def test_a_page_in_another_language_leads_nowhere_and_has_no_item(serve, tmp_path, caplog):
    web = serve(LANGUAGES)
    settings = {"AOPIC_SCOPE": {"languages": ["de", "nl"]}, "USER_AGENT": "tester"}
    items: list[Any] = []
    ours = in_folder(tmp_path / "job", BROAD, **settings)
    crawler = await crawl(BroadSpider, ours, told={signals.item_scraped: keep(items)}, seeds=HOME)
    assert set(web.asked) == LANGUAGES.keys(), "and no page that is linked from one in French alone"
    inside = {f"{HOME}{name}" for name in ("de", "from-de", "at", "none", "from-none", "header", "two")}
    assert {item["url"] for item in items} == inside
    stats = crawler.stats.get_stats()
    assert stats["aopic/outcomes/language"] == 4
    assert (stats["aopic/scope/links_dropped"], stats["aopic/scope/items_dropped"]) == (2, 4)
    assert stats["aopic/scope/undeclared"] == 2
    warnings = [each.getMessage() for each in caplog.records if "languages" in each.getMessage()]
    assert len(warnings) == 2
    job = open_job(tmp_path / "job", settings)
    assert {page.url for page in job.top(99)} == inside
    page, link, seed = (job.why(f"{HOME}{name}") for name in ("fr", "from-fr", ""))
    assert "its language is not one of those in AOPIC_SCOPE" in " ".join(page.sentences)
    assert "is in a language that is out of scope (AOPIC_SCOPE)" in " ".join(link.sentences)
    assert seed.kind == "fetched"
