"""What pages ask of robots: each mark, place, precedence and misspelling, at a server, whatever way links are yielded and kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy import Request, signals
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from support import redis_server
from support.commands import run_here
from support.crawls import in_folder, keep
from support.small_web import Follow, Web, ask_view, check, crawl

from scrapy_aopic import Addon, BroadSpider, LinkMiddleware, Links
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.storage import Address
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.view.queries import pages_in, top_pages
from scrapy_aopic.view.stored import snapshot_of
from scrapy_aopic.web.robots_marks import MOST_RULES, joined, robot_name
from scrapy_aopic.web.suffixes import registered_domain

Serve = Callable[[dict[str, Any]], Web]
Marks = dict[str, str]

NOINDEX, NOFOLLOW = {"noindex": ""}, {"nofollow": ""}
NONE = {**NOINDEX, **NOFOLLOW}
PAST, FUTURE = "1 Jan 2010 00:00:00 GMT", "1 Jan 2090 00:00:00 GMT"


def page(
    head: str = "", body: str = "", charset: str = "utf-8", kind: str = "text/html", **tags: str
) -> Answer:
    """A page with links, whose X-Robots-Tag headers are *tags*."""
    html = f"<!doctype html><html><head><title>t</title>{head}</head><body>{body}<a href='to'>to</a></body></html>"
    # The server's headers are a mapping, and their names may differ in case.
    names = dict(zip(tags, ("X-Robots-Tag", "x-robots-tag", "X-ROBOTS-TAG"), strict=False))
    headers = {"Content-Type": f"{kind}; charset={charset}", **{names[each]: tags[each] for each in tags}}
    return Answer(headers=headers, body=html.encode(charset))


def meta(content: str, name: str = "robots") -> str:
    return f'<meta name="{name}" content="{content}">'


def raw(html: bytes, kind: str = "text/html") -> Answer:
    return Answer(headers={"Content-Type": kind}, body=html)


CASES: dict[str, tuple[Answer, Marks]] = {
    # Nothing, or nothing that restricts
    "no mark": (page(), {}),
    "all": (page(meta("all")), {}),
    "index, follow": (page(meta("index, follow")), {}),
    "header all": (page(one="all"), {}),
    "empty content": (page(meta("")), {}),
    "empty header": (page(one=""), {}),
    "no content": (page('<meta name="robots">'), {}),
    "no name": (page('<meta content="noindex,nofollow">'), {}),
    "another name": (page(meta("noindex, nofollow", "description")), {}),
    "http-equiv": (page('<meta http-equiv="robots" content="none">'), {}),
    # Each rule, in a meta element
    "noindex": (page(meta("noindex")), NOINDEX),
    "nofollow": (page(meta("nofollow")), NOFOLLOW),
    "noindex, nofollow": (page(meta("noindex, nofollow")), NONE),
    "none": (page(meta("none")), NONE),
    "noarchive": (page(meta("noarchive")), {"noarchive": ""}),
    "nosnippet": (page(meta("nosnippet, noimageindex")), {"nosnippet": "", "noimageindex": ""}),
    "values": (
        page(meta("max-snippet:50, max-image-preview: Large, max-video-preview :-1")),
        {"max-snippet": "50", "max-image-preview": "large", "max-video-preview": "-1"},
    ),
    "a word of others": (page(meta("noindex, indexifembedded")), {"noindex": "", "indexifembedded": ""}),
    # Spellings
    "capitals": (page('<META NAME="ROBOTS" CONTENT="NOINDEX,NOFOLLOW">'), NONE),
    "blanks": (page(meta("  noindex ,\n\tnofollow ", " robots ")), NONE),
    "no quotes": (page("<meta name=robots content=nofollow>"), NOFOLLOW),
    "single quotes": (page("<meta content='nofollow' name='robots'/>"), NOFOLLOW),
    "blanks for commas": (page(meta("noindex nofollow")), NONE),
    "semicolons for commas": (page(meta("noindex; nofollow")), NONE),
    "empty parts": (page(meta(",,noindex,,")), NOINDEX),
    "entities": (page(meta("no&#102;ollow")), NOFOLLOW),
    "part of a word": (page(meta("xnofollow, nofollowing")), {"xnofollow": "", "nofollowing": ""}),
    "property": (page('<meta property="robots" content="none">'), {}),
    "not a rule": (page(meta("no follow, 50%")), {"no": ""}),
    # Places in a page
    "twice": (page(meta("noindex") + meta("nofollow")), NONE),
    "the strictest counts": (page(meta("follow") + meta("nofollow")), NOFOLLOW),
    "in either order": (page(meta("nofollow, follow")), NOFOLLOW),
    "in a comment": (page(f"<!-- {meta('nofollow')} -->"), {}),
    "in a script": (page(f"<script>x = '{meta('nofollow')}'</script>"), {}),
    "in the body": (page(body=meta("nofollow")), {}),
    "in the body, and words in the head": (page("<title>robots</title>", meta("nofollow")), {}),
    "after what ends a head": (page(f"<div>x</div>{meta('nofollow')}"), NOFOLLOW),
    "without a head": (raw(b"<meta name=robots content=nofollow><a href='to'>to</a>"), NOFOLLOW),
    "behind a long head": (page(f"<style>{'x' * 70_000}</style>{meta('nofollow')}"), NOFOLLOW),
    "in a page that ends in it": (raw(b"<a href='to'>to</a><meta name=robots content='nofollow"), {}),
    "in plain text": (raw(f"{meta('nofollow')}<a href='to'>".encode(), "text/plain"), {}),
    "XHTML": (page(meta("nofollow"), kind="application/xhtml+xml"), NOFOLLOW),
    # Charsets
    "UTF-16": (page(meta("nofollow"), charset="utf-16"), NOFOLLOW),
    "Latin-1": (page(f"<title>é</title>{meta('nofollow')}", charset="latin-1"), NOFOLLOW),
    "Shift JIS": (page(f"<title>表示</title>{meta('nofollow')}", charset="shift_jis"), NOFOLLOW),
    "ISO-2022-JP": (page(f"<title>表示</title>{meta('nofollow')}", charset="iso2022_jp"), NOFOLLOW),
    "no such charset": (raw(b"<meta charset=x-none><meta name=robots content=nofollow><a href='to'>"), NOFOLLOW),
    # Headers
    "header noindex": (page(one="noindex"), NOINDEX),
    "header nofollow": (page(one="nofollow"), NOFOLLOW),
    "header none": (page(one="none"), NONE),
    "header list": (page(one="NOINDEX,nofollow , noarchive"), {**NONE, "noarchive": ""}),
    "several headers": (page(one="noindex", two="nofollow", three="nosnippet"), {**NONE, "nosnippet": ""}),
    "header of a file": (
        Answer(headers={"Content-Type": "text/plain", "X-Robots-Tag": "nofollow"}, body=b"<a href='to'>"),
        NOFOLLOW,
    ),
    "header and meta": (page(meta("nofollow"), one="noindex"), NONE),
    "header against meta": (page(meta("follow"), one="nofollow"), NOFOLLOW),
    "header that is no list": (page(one="\xff\x00, nofollow"), NOFOLLOW),
    # Names of robots
    "own meta": (page(meta("nofollow", "ourbot")), NOFOLLOW),
    "own meta in capitals": (page(meta("nofollow", "OurBot")), NOFOLLOW),
    "meta of another": (page(meta("none", "googlebot")), {}),
    "own and another": (page(meta("none", "googlebot") + meta("noindex", "ourbot")), NOINDEX),
    "own before all": (page(meta("none") + meta("all", "ourbot")), {}),
    "own adds to all": (page(meta("nofollow") + meta("noindex", "ourbot")), NONE),
    "own lifts one of two": (page(meta("none") + meta("follow", "ourbot")), NOINDEX),
    "own is the stricter": (page(meta("all") + meta("none", "ourbot")), NONE),
    "a name that begins alike": (page(meta("none", "ourbot-news")), {}),
    "own header": (page(one="ourbot: nofollow"), NOFOLLOW),
    "own header, list": (page(one="OURBOT : noindex, nofollow"), NONE),
    "header of another": (page(one="otherbot: noindex, nofollow"), {}),
    "header of all": (page(one="*: nofollow"), NOFOLLOW),
    "names in one header": (page(one="noindex, otherbot: nofollow"), NOINDEX),
    "and back": (page(one="otherbot: none, ourbot: nofollow"), NOFOLLOW),
    "own header before meta": (page(meta("none"), one="ourbot: index, follow"), {}),
    "own meta before header": (page(meta("follow", "ourbot"), one="none"), NOINDEX),
    "header of another, then of all": (page(one="otherbot: none", two="nofollow"), NOFOLLOW),
    # Dates
    "past": (page(one=f"unavailable_after: {PAST}"), {"unavailable_after": PAST, **NOINDEX}),
    "future": (page(one=f"unavailable_after: {FUTURE}"), {"unavailable_after": FUTURE}),
    "in meta": (page(meta(f"unavailable_after:{PAST}")), {"unavailable_after": PAST, **NOINDEX}),
    "RFC 850": (
        page(one="nofollow, unavailable_after: Friday, 01-Jan-10 00:00:00 GMT, noarchive"),
        {"unavailable_after": "Friday, 01-Jan-10 00:00:00 GMT", **NONE, "noarchive": ""},
    ),
    "RFC 822": (
        page(one="unavailable_after: Fri, 01 Jan 2010 00:00:00 PST, nofollow"),
        {"unavailable_after": "Fri, 01 Jan 2010 00:00:00 PST", **NONE},
    ),
    "ISO 8601": (page(meta("unavailable_after: 2010-01-01")), {"unavailable_after": "2010-01-01", **NOINDEX}),
    "no date": (page(one="unavailable_after: soon, nofollow"), NOFOLLOW),
    "date for another": (page(one=f"otherbot: unavailable_after: {PAST}"), {}),
    # Bounds
    "many rules": (page(meta(",".join(f"{'x' * (n + 2)}" for n in range(35)) + ",none")), {}),
    "a long header": (page(one=",".join(["noarchive"] * 1000)), {"noarchive": ""}),
}  # fmt: skip
CASES["many rules"] = (CASES["many rules"][0], {"x" * (n + 2): "" for n in range(MOST_RULES)} | NONE)

SITES = [f"http://{name}.test/" for name in ("a", "b", "c", "d")]
OWN = {
    "ADDONS": {Addon: 500},
    "USER_AGENT": "ourbot/1.0 (+http://www.a.com)",
    "AOPIC_CONTENT_SEEN": "off",  # most pages have the same words
    "AOPIC_MIN_GAP": 0,
}


def urls() -> dict[str, str]:
    return {case: f"{SITES[n % len(SITES)]}{n}/" for n, case in enumerate(CASES)}


def web_of_cases() -> dict[str, Any]:
    web: dict[str, Any] = {site: [url for url in urls().values() if url.startswith(site)] for site in SITES}
    for case, url in urls().items():
        web[url] = CASES[case][0]
        web[f"{url}to"] = page()
    return web


class ByRequests(BroadSpider):
    """Yields a request for each link."""

    seen: dict[str, Marks]

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen = {**getattr(self, "seen", {}), response.url: response.meta.get("aopic_robots", {})}
        yield self.parse_page(response)
        for link in LinkExtractor().extract_links(response):
            yield Request(link.url, meta=response.meta)  # a copy of the marks means nothing


class ByLinks(BroadSpider):
    """As it is, and notes what pages ask."""

    def parse_page(self, response: Response) -> Any:
        self.seen = {**getattr(self, "seen", {}), response.url: response.meta.get("aopic_robots", {})}
        return super().parse_page(response)


async def run(spider: type[BroadSpider], settings: dict[str, Any]) -> tuple[Any, set[str]]:
    """The crawler of a crawl of all cases, and the URLs of its items."""
    items: list[dict[str, Any]] = []
    crawler = await crawl(spider, {**OWN, **settings}, told={signals.item_scraped: keep(items)}, seeds=SITES)
    return crawler, {item["url"] for item in items}


def judge(web: Web, crawler: Any, kept: set[str]) -> None:
    """Each page was seen with its marks, nothing was followed or kept that should not be, and nothing else left out."""
    asked = set(web.asked)
    found = {case: crawler.spider.seen.get(url) for case, url in urls().items()}
    assert found == {case: marks for case, (_, marks) in CASES.items()}
    links = {case for case, url in urls().items() if f"{url}to" in asked}
    assert links == {case for case, (_, marks) in CASES.items() if "nofollow" not in marks}
    indexed = {case for case, url in urls().items() if url in kept}
    assert indexed == {case for case, (_, marks) in CASES.items() if "noindex" not in marks}
    stats = crawler.stats.get_stats()
    for rule in ("noindex", "nofollow"):
        n = sum(rule in marks for _, marks in CASES.values())
        assert stats[f"aopic/robots/pages/{rule}"] == n
    assert stats["aopic/robots/items_dropped"] == stats["aopic/robots/pages/noindex"]


EITHER = pytest.mark.parametrize("spider", [ByLinks, ByRequests])


@EITHER
async def test_marks_are_obeyed_with_a_job_folder(serve, tmp_path, caplog, spider):
    assert len(CASES) >= 60
    web = serve(web_of_cases())
    crawler, kept = await run(spider, in_folder(tmp_path, {}))
    judge(web, crawler, kept)
    stats = crawler.stats.get_stats()
    listed = chain(*ask_view(tmp_path, lambda view: list(pages_in(view, 50))))
    wishes = {page.url: (page.robots, page.content_usage) for page in listed}
    asked = {case: (joined(marks), "") for case, (_, marks) in CASES.items()}
    assert {case: wishes[url] for case, url in urls().items()} == asked
    outcomes = {name: sum(name in marks for _, marks in CASES.values()) for name in ("nofollow", "noindex")}
    outcomes["noindex"] -= sum(marks.keys() >= {"nofollow", "noindex"} for _, marks in CASES.values())
    seen = ask_view(tmp_path, snapshot_of).outcomes
    assert {name: seen[name] for name in outcomes} == outcomes
    assert {name: stats[f"aopic/outcomes/{name}"] for name in outcomes} == outcomes
    said = [record.getMessage() for record in caplog.records if "AOPIC_PAGE_ROBOTS" in record.getMessage()]
    assert len(said) == 2, "the first of each kind"
    assert any("follow its links" in text for text in said)
    assert any("index it" in text for text in said)


@EITHER
async def test_marks_are_obeyed_in_memory(serve, spider):
    web = serve(web_of_cases())
    judge(web, *await run(spider, {}))


@pytest.mark.slow
@pytest.mark.skipif(redis_server.find_server() is None, reason=redis_server.WHY_NOT)
@EITHER
async def test_marks_are_obeyed_in_a_shared_job(serve, server, spider):
    key = f"robots-{spider.__name__}"
    shared = {"AOPIC_STORE": "redis", "AOPIC_SHARDS": 4, "REDIS_URL": server.url, "AOPIC_REDIS_KEY": key}
    web = serve(web_of_cases())
    judge(web, *await run(spider, shared))
    views = ServerPlace(Address(key, server.url)).open_snapshots()
    try:
        between = audit_shards(views, registered_domain)
        assert between.violations == []
        assert between.cash + between.in_transit == len(views) * TOTAL
        assert [audit_store(view).violations for view in views] == [[]] * len(views)
    finally:
        for view in views:
            view.close()


# -- what else follows from a mark, and what does not

SEED = TOTAL >> 24
"""Units that a seed begins with."""

HOME, LEFT, RIGHT = "http://a.test/", "http://a.test/left", "http://a.test/right"


def links(*tags: str, head: str = "", **headers: str) -> Answer:
    anchors = "".join(f"<a {tag}>x</a>" for tag in tags)
    body = f"<head>{head}</head>{anchors}".encode()
    return Answer(headers={"Content-Type": "text/html", **headers}, body=body)


class Yields(Follow):
    """Yields all links as one object."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield Links(response)


BOTH = pytest.mark.parametrize("spider", [Follow, Yields])


async def follow(
    serve: Serve, web: dict[str, Any], folder: Path, spider: type[Follow] = Follow, **settings: Any
) -> tuple[Web, Any]:
    served = serve(web)
    # So that nothing but what a page hands on can be anywhere else than on the virtual page.
    plain = {"AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0, "AOPIC_CONTENT_SEEN": "off"}
    rules = {"SPIDER_MIDDLEWARES": {LinkMiddleware: 2000}, "AOPIC_PAGE_ROBOTS": "nofollow"}
    crawler = await crawl(spider, in_folder(folder, **{**plain, **rules, **settings}))
    return served, crawler


def units(folder: Path) -> dict[str, int]:
    """What each page has distributed, which is all that it ever got."""
    return {row.url: row.history for row in ask_view(folder, top_pages, 100, everything=True)}


@BOTH
async def test_the_cash_of_a_page_without_links_to_follow_goes_to_the_virtual_page(serve, tmp_path, spider):
    home = links("href=/left", "href=/right", head=meta("nofollow"))
    web, _ = await follow(serve, {HOME: home}, tmp_path, spider)
    assert web.asked == [HOME]
    assert units(tmp_path) == {HOME: SEED}
    assert check(tmp_path).virtual == TOTAL


@BOTH
async def test_a_link_that_its_rel_stops_leaves_its_share_to_the_others(serve, tmp_path, spider):
    tags = ("href=/left", "href=/right rel='UGC\tnoopener'", "href=/%7Ex#part rel=sponsored")
    home = links(*tags, "href=/y rel=nofollow", "href=/left rel=ugc")
    weights = {"AOPIC_LINK_WEIGHTS": "ugc=0, sponsored=0"}
    pages = {HOME: home, LEFT: [], "http://a.test/y": []}
    web, crawler = await follow(serve, pages, tmp_path, spider, **weights)
    assert sorted(web.asked) == [HOME, LEFT, "http://a.test/y"], "one link to the left has no such rel"
    paid = {LEFT: SEED // 2, "http://a.test/y": SEED // 2}
    assert units(tmp_path) == {HOME: SEED, **paid}
    assert check(tmp_path).virtual == TOTAL
    assert crawler.stats.get_value("aopic/links/dropped") == 2


async def test_what_a_spider_requests_on_purpose_is_its_own_affair(serve, tmp_path):
    class OnPurpose(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request(LEFT, callback=self.parse_other)
            yield Request(RIGHT)

        def parse_other(self, response: Response) -> None:
            pass

    pages = {HOME: links("href=/left", "href=/right", head=meta("nofollow")), LEFT: [], RIGHT: []}
    web, _ = await follow(serve, pages, tmp_path, OnPurpose)
    assert web.asked == [HOME, LEFT]
    assert units(tmp_path) == {HOME: SEED, LEFT: SEED}


async def test_marks_belong_to_the_response_that_has_them(serve, tmp_path):
    """A redirect's header says nothing of its target, whose own marks count; and a page's nothing of its redirect."""
    pages = {
        HOME: ["/1", "/2"],
        "http://a.test/1": Answer(302, {"Location": "/left", "X-Robots-Tag": "none"}),
        "http://a.test/2": Answer(302, {"Location": "/right"}),
        LEFT: ["/3"],
        RIGHT: links("href=/4", **{"X-Robots-Tag": "none"}),
        "http://a.test/3": [],
    }
    web, _ = await follow(serve, pages, tmp_path)
    assert sorted(web.asked) == sorted(pages)


async def test_without_the_setting_marks_are_data_only(serve, tmp_path):
    class Keep(Follow):
        seen: Any = None

        def parse(self, response: Response) -> Iterator[Any]:
            self.seen = self.seen or response.meta["aopic_robots"]
            yield from super().parse(response)

    pages = {HOME: links("href=/left", head=meta("none, max-snippet:5")), LEFT: page(meta("none"))}
    pages[f"{LEFT}/to"] = pages["http://a.test/to"] = []
    web, crawler = await follow(serve, pages, tmp_path, Keep, AOPIC_PAGE_ROBOTS=None)
    assert web.asked == [HOME, LEFT, "http://a.test/to"]
    assert crawler.spider.seen == {**NONE, "max-snippet": "5"}
    assert crawler.stats.get_value("aopic/robots/links_dropped") is None


def test_the_name_of_a_robot_is_in_its_user_agent():
    for agent, name in [
        ("ourbot/1.0 (+http://x.test/bot)", "ourbot"),
        ("Mozilla/5.0 (compatible; OurBot/2.1; +http://x.test/)", "ourbot"),
        ("Our-Bot", "our-bot"),
        (" (nobody)", ""),
        ("", ""),
    ]:
        assert robot_name(agent) == name


async def test_why_says_what_a_page_asks_and_where_a_link_was_dropped(serve, tmp_path, capsys):
    await follow(serve, {HOME: links("href=/left", head=meta("nofollow"))}, tmp_path)
    capsys.readouterr()
    link, page = json.loads(run_here(capsys, "why", "--json", tmp_path, LEFT, HOME)[1])
    assert "asks robots not to follow its links (AOPIC_PAGE_ROBOTS)" in link["sentences"][0]
    assert link["facts"]["page"] == HOME
    assert page["facts"]["robots"] == "nofollow"
    assert any("It asks robots: nofollow" in sentence for sentence in page["sentences"])
