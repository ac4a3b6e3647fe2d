"""How owners want their content to be used: Content-Usage in headers and robots.txt, TDM-Reservation, noai."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from demo_web.server import Answer
from demo_web.server_log import audit
from scrapy import Request, signals
from scrapy.http import Response
from scrapy.http.headers import Headers
from support.commands import run_here
from support.crawls import OURS, in_folder, keep
from support.small_web import Follow, ask_view, crawl
from warcio.archiveiterator import ArchiveIterator

from scrapy_aopic import Addon, BroadSpider, PagesPipeline
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.request_errors import ContentUsageError, UnwantedTypeError
from scrapy_aopic.view.exporting import export_pages
from scrapy_aopic.view.queries import pages_in
from scrapy_aopic.web.content_usage import Stated, read_statement, read_usage
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser
from scrapy_aopic.web.tdmrep import TdmRules

NOT_TRAIN, TRAIN = {"train-ai": "n"}, {"train-ai": "y"}


OURBOT = {"ADDONS": {Addon: 500}, "USER_AGENT": "ourbot/1.0", "AOPIC_CONTENT_SEEN": "off"}
"""Settings of a crawl with the add-on where copies of a page count as pages."""


def test_a_statement_is_a_dictionary_of_structured_fields():
    for statement, stated in [
        (b"", {}),
        (b"train-ai=n", NOT_TRAIN),
        (b"train-ai=y, search=n", {"train-ai": "y", "search": "n"}),
        (b"  train-ai=n\t,\tsearch=y ", {"train-ai": "n", "search": "y"}),
        (b"other=n, train-ai=y", {"other": "n", "train-ai": "y"}),
        # The examples of the draft
        (b'train-ai=y, train-ai, search=n, search="n"', {}),
        (b"train-ai;allow=n, train-ai=y", TRAIN),
        (b"train-ai=n;exceptions=ptext", NOT_TRAIN),
        # Values that are no tokens, or other ones
        (b'train-ai="n"', {}),
        (b"train-ai=no, search=?0", {}),
        (b"train-ai=(n), search=n", {"search": "n"}),
        (b'a=("x)" y);z, b=:YQ==:, c=@1, d=%"x%20y", e=-1.5, train-ai=n', NOT_TRAIN),
        # No dictionaries
        (b"Train-AI=n", None),
        (b"train-ai=n,", None),
        (b",train-ai=n", None),
        (b"train-ai = n", None),
        (b"train-ai=n search=n", None),
        (b"train-ai=n;", None),
        (b"a=(n, train-ai=n", None),
        (b"\xff", None),
        (b"train-ai=n, a=" + b"x" * 5000, None),
    ]:
        assert read_statement(statement) == stated


def test_what_is_said_in_several_places_is_put_together():
    reserved, lifted = {"tdm-reservation": "1"}, {"tdm-reservation": "0"}
    at_x, at_y = {"tdm-policy": "http://x/"}, {"tdm-policy": "http://y/"}
    header, policy = {"TDM-Reservation": "1"}, {"TDM-Policy": "http://x/"}
    for headers, metas, robots_txt, usage, n_malformed in [
        ({}, {}, [], {}, 0),
        ({"Content-Usage": ["train-ai=y", "search=n"]}, {}, [], {"train-ai": "y", "search": "n"}, 0),
        ({"content-usage": "train-ai=y"}, {}, [b"train-ai=n"], NOT_TRAIN, 0),
        ({"Content-Usage": "train-ai=n"}, {}, [b"train-ai=y"], NOT_TRAIN, 0),
        ({}, {}, [b"train-ai=n", b"train-ai=y"], NOT_TRAIN, 0),
        ({"Content-Usage": "TRAIN"}, {}, [b"train-ai=n", b"?"], NOT_TRAIN, 2),
        (header, {}, [], reserved, 0),
        ({"TDM-Reservation": "0", **policy}, {}, [], lifted, 0),
        (policy, {}, [], {}, 0),
        ({"TDM-Reservation": "yes"}, {}, [], {}, 1),
        ({"TDM-Reservation": " 1 ", "TDM-Policy": " http://x/ "}, {}, [], reserved | at_x, 0),
        ({"TDM-Reservation": ["1", "0"]}, {}, [], {}, 1),
        ({"TDM-Reservation": ["1", "1"], "TDM-Policy": 2 * ["http://x/"]}, {}, [], reserved | at_x, 0),
        ({}, reserved, [], reserved, 0),
        # A page's own word supersedes its header's, and what it does not say changes nothing.
        (header, lifted, [], lifted, 0),
        ({"TDM-Reservation": "0"}, reserved, [], reserved, 0),
        (header, {"tdm-reservation": "2"}, [], reserved, 1),
        (header, at_y, [], reserved | at_y, 0),
        (header | policy, {"robots": "none"}, [b"search=y"], {"search": "y"} | reserved | at_x, 0),
    ]:
        found = read_usage(Headers(headers), list(metas.items()), Stated(robots_txt))
        assert found.usage == usage, headers
        assert len(found.malformed) == n_malformed, headers


ROBOTS_TXT = b"""
User-Agent: *
Allow: /
Disallow: /never/
Content-Usage: train-ai=n
content-usage : /ai-ok/ train-ai=y # a comment
Content-Usage: /both\ttrain-ai=n
Content-Usage: /both search=y
Content-Usage: /*.pdf$ search=n
Content-Usage: /%7eu/  train-ai=y
Content-Usage: /whole$ train-ai=y

User-Agent: ExampleBot
Content-Usage: train-ai=y
User-Agent: LastBot
Disallow: /x
"""


def test_a_robots_txt_states_it_by_path_and_by_robot():
    for path, agent, stated in [
        ("/test", "other", [b"train-ai=n"]),
        ("/ai-ok/test", "other", [b"train-ai=y"]),
        ("/both/test", "other", [b"train-ai=n", b"search=y"]),
        ("/some/x.pdf", "other", [b"search=n"]),
        ("/some/x.pdf?", "other", [b"train-ai=n"]),
        ("/~u/", "other", [b"train-ai=y"]),
        ("/whole", "other", [b"train-ai=y"]),
        ("/whole/part", "other", [b"train-ai=n"]),
        ("/test", "ExampleBot/1.0", [b"train-ai=y"]),
        ("/test", "LastBot", []),
    ]:
        parser = Rfc9309RobotParser(ROBOTS_TXT)
        assert parser.usage(f"http://a.test{path}", agent) == stated
        assert not parser.allowed("http://a.test/never/x", "other"), "rules of the other kind are as before"


def test_a_robots_txt_with_too_many_of_them_says_so():
    lines = b"".join(b"Content-Usage: /%d train-ai=n\n" % n for n in range(100_000))
    parser = Rfc9309RobotParser(b"User-Agent: *\n" + lines)
    assert parser.usage("http://a.test/1", "other") == [b"train-ai=n"]
    (rules,) = parser._rules.values()
    assert rules.n_cut > 90_000


def page(head: str = "", **headers: str) -> Answer:
    body = f"<html><head><title>t</title>{head}</head><body>x</body></html>"
    return Answer(headers={"Content-Type": "text/html", **headers}, body=body.encode())


RESERVED = {"TDM-Reservation": "1", "TDM-Policy": "http://a.test/policy"}
PAGES = {
    "http://a.test/free": page(),
    "http://a.test/wanted": page(**{"Content-Usage": "train-ai=y, search=n"}),
    "http://a.test/unwanted": page(**{"Content-Usage": "train-ai=n"}),
    "http://a.test/noai": page('<meta name="robots" content="noai, noimageai">'),
    "http://a.test/images": page('<meta name="robots" content="noimageai">'),
    "http://a.test/reserved": page(**RESERVED),
    "http://a.test/lifted": page("<meta name=TDM-Reservation content=0>", **RESERVED),
    "http://a.test/odd": page(**{"Content-Usage": "train-ai: no"}),
    "http://b.test/": page(**{"Content-Usage": "train-ai=y"}),
    "http://b.test/ok": page(),
}
WEB: dict[str, Any] = {
    "http://a.test/": [*PAGES, "http://b.test/to-ok"],
    "http://b.test/to-ok": Answer(302, {"Location": "/ok"}),
    "http://b.test/robots.txt": Answer(
        body=b"User-Agent: *\nContent-Usage: train-ai=n\nContent-Usage: /ok train-ai=y\n"
    ),
    **PAGES,
}


@pytest.mark.parametrize(
    ("obeyed", "left_out"),
    [
        ("train-ai=obey", {"http://a.test/unwanted", "http://a.test/noai", "http://b.test/"}),
        ({"tdm": "obey", "search": "obey"}, {"http://a.test/reserved", "http://a.test/wanted"}),
    ],
)
async def test_items_are_left_out_for_the_uses_that_are_named(serve, tmp_path, caplog, obeyed, left_out):
    serve(WEB)
    items: list[dict[str, str]] = []
    archive = {"ITEM_PIPELINES": {PagesPipeline: 800}, "AOPIC_WARC_FILE": tmp_path / "pages.warc"}
    crawler = await crawl(
        BroadSpider,
        in_folder(tmp_path, OURBOT, AOPIC_CONTENT_USAGE=obeyed, **archive),
        told={signals.item_scraped: keep(items)},
        seeds="http://a.test/",
        fields="url,robots,content_usage",
    )
    said = {item["url"]: (item["robots"], item["content_usage"]) for item in items}
    assert said.keys() == {"http://a.test/", *PAGES} - left_out
    expected = {
        "http://a.test/free": ("", ""),
        "http://a.test/wanted": ("", "search=n, train-ai=y"),
        "http://a.test/noai": ("noai, noimageai", ""),
        "http://a.test/reserved": ("", "tdm-policy=http://a.test/policy, tdm-reservation=1"),
        "http://a.test/lifted": ("", "tdm-reservation=0"),
        "http://a.test/odd": ("", ""),
        "http://b.test/": ("", "train-ai=n"),
        "http://b.test/ok": ("", "train-ai=y"),
    }
    assert {url: said[url] for url in expected.keys() - left_out} == {
        url: texts for url, texts in expected.items() if url not in left_out
    }
    with (tmp_path / "pages.warc").open("rb") as file:
        records = {
            record.rec_headers["WARC-Target-URI"]: record.content_stream().read().decode().strip()
            for record in ArchiveIterator(file)
            if record.rec_type == "metadata"
        }
    assert records.keys() == {*PAGES} - {"http://a.test/free", "http://a.test/odd"}
    assert records["http://a.test/noai"] == "aopic-robots: noai, noimageai"
    assert records["http://b.test/ok"] == "aopic-content-usage: train-ai=y"
    assert ask_view(tmp_path, export_pages, str(tmp_path / "pages.csv")) == len(PAGES) + 2
    with (tmp_path / "pages.csv").open(newline="") as table:
        rows = {row["url"]: row for row in csv.DictReader(table)}
    assert rows["http://a.test/noai"]["robots"] == "noai, noimageai"
    assert rows["http://b.test/"]["content_usage"] == "train-ai=n"
    stats = crawler.stats.get_stats()
    assert stats.get("aopic/robots/items_dropped", 0) == len(left_out)
    assert stats["aopic/content_usage/malformed"] == 1
    assert [stats[f"aopic/content_usage/pages/{use}"] for use in ("train-ai", "search", "tdm")] == [2, 1, 1]
    messages = [record.getMessage() for record in caplog.records]
    assert sum("train-ai: no" in text for text in messages) == 1
    assert sum("AOPIC_CONTENT_USAGE" in text for text in messages) == bool(left_out)


UNREAD = Answer(headers={"Content-Type": "application/pdf", "Content-Usage": "train-ai=n"}, body=b"%PDF-")


class Reads(Follow):
    """A spider that knows nothing of wishes: it keeps the texts of pages, and follows their links."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()
        self.errors: list[BaseException] = []

    def parse(self, response: Response) -> Iterator[Any]:
        self.read.add(response.url)
        yield {"url": response.url}
        for link in response.css("a::attr(href)"):
            yield Request(response.urljoin(link.get()), errback=self.note)

    def note(self, failure: Any) -> None:
        self.errors.append(failure.value)


@pytest.mark.slow
async def test_pages_are_skipped_for_the_uses_that_are_named(serve, tmp_path, caplog, capsys):
    skipped = {"http://a.test/unwanted", "http://a.test/noai", "http://b.test/"}
    pages = {
        **WEB,
        "http://a.test/noai": page('<meta name="robots" content="noai, noimageai"><a href=/behind>x</a>'),
        "http://a.test/file": UNREAD,
    }
    pages["http://a.test/"] = [*WEB["http://a.test/"], "http://a.test/file"]
    web = serve(pages)
    archive = {"ITEM_PIPELINES": {PagesPipeline: 800}, "AOPIC_WARC_FILE": tmp_path / "pages.warc"}
    wishes = {"AOPIC_CONTENT_USAGE": "train-ai=skip, search=obey"}
    crawler = await crawl(Reads, in_folder(tmp_path, OURBOT, **wishes, **archive))
    spider: Any = crawler.spider
    # What is only obeyed is up to a spider of one's own.
    assert spider.read == {"http://a.test/", *PAGES} - skipped
    assert {type(error) for error in spider.errors} == {ContentUsageError, UnwantedTypeError}
    assert sum(isinstance(error, ContentUsageError) for error in spider.errors) == len(skipped)
    assert "http://a.test/behind" not in web.asked
    with (tmp_path / "pages.warc").open("rb") as file:
        records = {
            (record.rec_type, record.rec_headers["WARC-Target-URI"]) for record in ArchiveIterator(file)
        }
    archived = {url for kind, url in records if kind == "response" and not url.endswith("/robots.txt")}
    assert archived == {url for url in web.asked if url not in skipped and not url.endswith("/file")}
    assert {url for kind, url in records if kind == "metadata"} & skipped == set()
    assert crawler.stats.get_value("aopic/outcomes/content usage") == len(skipped)
    assert sum('"train-ai": "obey"' in record.getMessage() for record in caplog.records) == 1
    capsys.readouterr()
    (answer,) = json.loads(run_here(capsys, "why", "--json", tmp_path, "http://a.test/noai")[1])
    assert any("AOPIC_CONTENT_USAGE" in text and "no callback got it" in text for text in answer["sentences"])
    assert answer["facts"]["robots"] == "noai, noimageai"


# -- the tdmrep.json of a host

RESERVED_1, RESERVED_0 = {"tdm-reservation": "1"}, {"tdm-reservation": "0"}


def rule(location: Any, reservation: Any = 1, **more: Any) -> dict[str, Any]:
    return {"location": location, "tdm-reservation": reservation, **more}


def test_a_tdmrep_json_says_it_by_path():
    for rules, path, said in [
        # As in the report: all, groups, and the first that matches
        ([rule("/")], "/any/page", RESERVED_1),
        (
            [rule("/a/"), rule("/b/html/", **{"tdm-policy": "/p"})],
            "/b/html/x",
            {**RESERVED_1, "tdm-policy": "/p"},
        ),
        ([rule("/a/"), rule("/b/images/*.jpg", 0)], "/b/images/deep/x.jpg", RESERVED_0),
        ([rule("/a/")], "/b/", {}),
        ([rule("/a/", 0), rule("/a/b/")], "/a/b/", RESERVED_0),
        ([rule("/a/b/"), rule("/a/", 0)], "/a/c", RESERVED_0),
        # Patterns, as those of a robots.txt
        ([rule("/a$")], "/a", RESERVED_1),
        ([rule("/a$")], "/ab", {}),
        ([rule("*.pdf")], "/x.pdf", RESERVED_1),
        ([rule("/A")], "/a", {}),
        ([rule("/foo-%24")], "/foo-$", RESERVED_1),
        ([rule("/%7Eu/")], "/~u/", RESERVED_1),
        ([rule("/\u00fc")], "/%C3%BC", RESERVED_1),
        ([rule("/a?x=")], "/a?x=1", RESERVED_1),
        # Values
        ([rule("/", "1")], "/", RESERVED_1),
        ([rule("/", 0, **{"tdm-policy": "/p"})], "/", {**RESERVED_0, "tdm-policy": "/p"}),
        ([rule("/", 1, **{"tdm-policy": 7})], "/", RESERVED_1),
    ]:
        found = TdmRules(json.dumps(rules).encode())
        assert found.find(f"http://a.test{path}") == said, rules
        assert found.malformed == "", rules


def test_what_means_nothing_in_a_tdmrep_json_is_taken_as_not_said():
    for text, said in [
        (b"<html>", {}),
        (b'{"location": "/", "tdm-reservation": 1}', {}),
        (b'[{"location": "/", "tdm-reservation": 1}', {}),
        (b'[1, {"location": "/", "tdm-reservation": 1}]', RESERVED_1),
        (b'[{"tdm-reservation": 0}, {"location": "x"}, {"location": "/", "tdm-reservation": 1}]', RESERVED_1),
        # It matches, so no further one counts.
        (b'[{"location": "/", "tdm-reservation": 2}, {"location": "/", "tdm-reservation": 1}]', {}),
        (b'[{"location": "/", "tdm-reservation": true}]', {}),
        (b'[{"location": "/"}]', {}),
        (b'[{"location": "/\\u001b[2J", "tdm-reservation": 7}]', {}),
        (b"[" * 500_000, {}),
        (b"[" + b"1" * 400_000 + b"]", {}),
        (b"[" + b'{"location": "/x", "tdm-reservation": 1},' * 10_000 + b'{"location": "/"}]', {}),
    ]:
        found = TdmRules(text)
        assert found.find("http://a.test/page") == said, text
        assert 0 < len(found.malformed) < 200, text
        assert found.malformed.isprintable(), text


def test_a_header_and_a_meta_element_come_before_the_file():
    for headers, metas, usage in [
        ({}, [], {**RESERVED_1, "tdm-policy": "/file"}),
        ({"TDM-Reservation": "0"}, [], RESERVED_0),
        ({"TDM-Reservation": "1"}, [], RESERVED_1),
        ({"TDM-Policy": "/header"}, [], {**RESERVED_1, "tdm-policy": "/header"}),
        ({}, [("tdm-reservation", "0")], RESERVED_0),
        ({"TDM-Reservation": "0"}, [("tdm-reservation", "1")], RESERVED_1),
        ({"TDM-Reservation": "?"}, [], {**RESERVED_1, "tdm-policy": "/file"}),
    ]:
        stated = Stated(file={**RESERVED_1, "tdm-policy": "/file"})
        assert read_usage(Headers(headers), metas, stated).usage == usage


def tdm(*rules: dict[str, Any]) -> Answer:
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(rules).encode())


FILE = "/.well-known/tdmrep.json"
HOSTS = [f"http://{name}.test/" for name in "abcdefgh"]
TDM_WEB: dict[str, Any] = {
    "http://a.test/": [*HOSTS[1:], "/p/1", "/p/2", "/p/lifted", "/q"],
    "http://a.test/p/1": page(),
    "http://a.test/p/2": page(),
    "http://a.test/p/lifted": page("<meta name=tdm-reservation content=0>"),
    "http://a.test/q": page(**RESERVED),
    f"http://a.test{FILE}": tdm(rule("/p/", **{"tdm-policy": "http://a.test/terms"})),
    "http://b.test/": page(),
    f"http://c.test{FILE}": page(),  # as many servers answer whatever is asked for
    "http://c.test/": page(),
    "http://d.test/robots.txt": Answer(body=b"User-agent: *\nDisallow: /.well-known/\n"),
    f"http://d.test{FILE}": tdm(rule("/")),
    "http://d.test/": page(),
    f"http://e.test{FILE}": Answer(301, {"Location": f"http://g.test{FILE}"}),
    "http://e.test/": page(),
    f"http://f.test{FILE}": Answer(503),
    "http://f.test/": page(),
    f"http://g.test{FILE}": tdm(rule("/")),
    f"http://h.test{FILE}": Answer(301, {"Location": f"http://d.test{FILE}"}),  # where robots.txt forbids it
    "http://h.test/": page(),
    "http://g.test/": page(),
}


@pytest.mark.slow
async def test_a_tdmrep_json_is_fetched_once_a_host_in_its_turn(serve, tmp_path, caplog, capsys):
    web = serve(TDM_WEB)
    wishes = {"AOPIC_CONTENT_USAGE": "tdm=obey, tdmrep.json=fetch"}
    settings = in_folder(tmp_path, OURBOT, **wishes, AOPIC_POLITENESS_FACTOR=10, AOPIC_MIN_GAP=0.05)
    items: list[dict[str, str]] = []

    async def run(*seeds: str) -> Any:
        told = {signals.item_scraped: keep(items)}
        return await crawl(BroadSpider, settings, told=told, seeds=[*seeds], fields="url,content_usage")

    crawler = await run("http://a.test/")
    asked = [url for url in web.asked if url.endswith(FILE)]
    assert sorted(asked) == [f"{host}{FILE[1:]}" for host in HOSTS if host != "http://d.test/"]
    assert audit(web.log, 10).is_polite
    kept = {item["url"]: item["content_usage"] for item in items}
    assert kept == {
        "http://a.test/": "",
        "http://a.test/p/lifted": "tdm-reservation=0",
        **dict.fromkeys([f"http://{name}.test/" for name in "bcdfh"], ""),
    }
    pages = [url for url in TDM_WEB if "/robots.txt" not in url and FILE not in url]
    assert sorted(web.asked) == sorted([*asked, *pages])
    listed = ask_view(tmp_path, lambda view: list(pages_in(view, 50)))
    rows = {row.url: row.content_usage for row in chain(*listed)}
    assert rows["http://a.test/p/1"] == "tdm-policy=http://a.test/terms, tdm-reservation=1"
    assert rows["http://e.test/"] == rows["http://g.test/"] == "tdm-reservation=1"
    stats = crawler.stats.get_stats()
    assert stats["aopic/tdmrep/malformed"] == stats["aopic/tdmrep/unreachable"] == 1
    assert stats["aopic/content_usage/pages/tdm"] == 5
    messages = [record.getMessage() for record in caplog.records]
    assert sum("c.test" in text and "means nothing" in text for text in messages) == 1
    assert sum("f.test" in text and "cannot be had" in text for text in messages) == 1
    capsys.readouterr()
    (answer,) = json.loads(run_here(capsys, "why", "--json", tmp_path, f"http://a.test{FILE}")[1])
    assert (answer["kind"], answer["facts"]["rules"]) == ("fetched", 1)
    # Another run knows what they say, and asks again for what could not be had.
    new = [f"http://{name}.test/new" for name in "bfg"]
    web.pages.update(dict.fromkeys(new, page()))
    items.clear()
    await run(*new)
    kept = {item["url"]: item["content_usage"] for item in items}
    assert [url for url in web.asked if url.endswith(FILE)][len(asked) :] == [f"http://f.test{FILE}"]
    assert kept["http://b.test/new"] == ""
    assert "http://g.test/new" not in kept


async def test_a_tdmrep_json_is_fetched_only_where_robots_txt_is():
    settings = {**OURS, "AOPIC_CONTENT_USAGE": "tdmrep.json=fetch", "ROBOTSTXT_OBEY": False}
    with pytest.raises(SettingError, match=r"AOPIC_CONTENT_USAGE: tdmrep\.json.* set ROBOTSTXT_OBEY = True"):
        await crawl(BroadSpider, settings, seeds=HOSTS)


async def test_a_tdmrep_json_is_not_fetched_unless_that_is_wanted(serve):
    web = serve(TDM_WEB)
    await crawl(BroadSpider, {"ADDONS": {Addon: 500}, "AOPIC_CONTENT_USAGE": "tdm=obey"}, seeds=HOSTS)
    assert not any(FILE in url for url in web.asked)
