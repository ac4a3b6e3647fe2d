"""What items learn of their pages, and what an archive holds of what was fetched."""

from __future__ import annotations

import asyncio
import errno
import gzip
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
from demo_web.server import Answer, Exchange
from scrapy import Field, Item, Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured, StopDownload
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from support.crawls import OURS, Visits, keep, logged, stat
from support.naming import case
from support.small_web import crawl, html
from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from scrapy_aopic import ImportancePipeline, PagesPipeline
from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.web import warc
from scrapy_aopic.web.warc_index import find_records

IMPORTANCE: dict[str, Any] = {"ITEM_PIPELINES": {"scrapy_aopic.ImportancePipeline": 100}}
PAGES: dict[str, Any] = {"ITEM_PIPELINES": {"scrapy_aopic.PagesPipeline": 100}}
ALL_FIELDS: dict[str, Any] = {"AOPIC_ITEM_FIELDS": ["importance", "cash", "history", "visits"]}

SEED = TOTAL >> SEED_SHIFT
"""Cash of the first seed, in units."""


class Starting(Visits):
    """Starts at the only page that most sites here need."""

    starts = ("http://a.test/",)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the archive of a crawl is."""
    return tmp_path / "pages.warc.gz"


def archiving(path: Path, way: dict[str, Any] = OURS, **settings: Any) -> dict[str, Any]:
    """Settings of a crawl whose archive is at *path*."""
    return {**way, **PAGES, "AOPIC_WARC_FILE": path, **settings}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- items


class Held(Item):
    url = Field()
    importance = Field()


class Bare(Item):
    url = Field()


@dataclass
class HeldData:
    url: str
    importance: float | None = None
    visits: int = -1


@dataclass
class BareData:
    url: str


@dataclass(frozen=True)
class Frozen:
    url: str
    importance: float = 0.5


@attrs.define
class HeldAttrs:
    url: str
    importance: float | None = None


@attrs.define
class BareAttrs:
    url: str


@attrs.define
class Picky:
    url: str
    importance: str = attrs.field(default="", validator=attrs.validators.instance_of(str))


@attrs.define
class Unset:
    url: str = attrs.field(init=False)


async def scrape(settings: dict[str, Any], make: Callable[[str], list[Any]]) -> tuple[list[Any], Crawler]:
    """The items that come out if a spider yields what *make* makes of the URL of its only page."""

    items: list[Any] = []

    class Yielding(Starting):
        def parse(self, response: Response) -> Iterator[Any]:
            yield Request("http://a.test/next", callback=self.ignore)
            yield from make(response.url)

        def ignore(self, response: Response) -> None:
            pass

    settings = {"CONCURRENT_ITEMS": 1, **IMPORTANCE, **settings}
    crawler = await crawl(Yielding, settings, told={signals.item_scraped: keep(items)})
    return items, crawler


async def test_a_dictionary_gets_what_the_setting_names_and_nothing_else(serve):
    serve({"http://a.test/": []})
    for fields, expected in [
        ({}, {"importance": 1.0}),
        (ALL_FIELDS, {"importance": 1.0, "cash": SEED, "history": 0, "visits": 0}),
        ({"AOPIC_ITEM_FIELDS": "visits,cash"}, {"cash": SEED, "visits": 0}),
        ({"AOPIC_ITEM_FIELDS": "relevance"}, {"relevance": None}),  # there is no topic
        ({"AOPIC_ITEM_FIELDS": []}, {}),
    ]:
        with case(fields):
            (item,), crawler = await scrape({**OURS, **fields}, lambda url: [{"url": url, "title": "A"}])
            assert item == {"url": "http://a.test/", "title": "A", **expected}
            assert {type(item[name]) for name in ("cash", "visits") if name in item} <= {int}
            assert stat(crawler, "aopic/items/without_page") is None


async def test_other_items_get_what_they_declare_if_they_can_be_changed(serve, caplog):
    serve({"http://a.test/": []})
    url = "http://a.test/"
    kinds = [
        (Held(url=url), Held(url=url, importance=1.0)),
        (Bare(url=url), Bare(url=url)),
        (HeldData(url), HeldData(url, 1.0, 0)),
        (BareData(url), BareData(url)),
        (HeldAttrs(url), HeldAttrs(url, 1.0)),
        (BareAttrs(url), BareAttrs(url)),
        (Frozen(url), Frozen(url, 0.5)),
        (Picky(url, "high"), Picky(url, "high")),
    ]
    items, crawler = await scrape({**OURS, **ALL_FIELDS}, lambda _: [item for item, _ in kinds])
    assert items == [expected for _, expected in kinds]
    assert stat(crawler, "aopic/items/without_page") is None
    assert logged(caplog, "ERROR") == []


async def test_items_without_a_known_page_pass_unchanged_and_are_counted(serve, caplog):
    serve({"http://a.test/": []})
    odd: list[dict[str, Any]] = [
        {},
        {"url": None},
        {"url": 7},
        {"url": ["http://a.test/"]},
        {"url": ""},
        {"url": "a.test"},
        {"url": "http://[a.test/"},
        {"url": "data:,x"},
        {"url": "http://a.test/unknown"},
        {"url": "http://unknown.test/"},
        {"link": "http://a.test/"},
    ]
    items, crawler = await scrape(OURS, lambda _: [*map(dict, odd), Unset()])
    assert items[:-1] == odd
    assert stat(crawler, "aopic/items/without_page") == len(odd) + 1
    assert logged(caplog, "ERROR") == []


async def test_a_page_visited_again_shows_its_earlier_visit(serve):
    serve({"http://a.test/": ["http://a.test/b"], "http://a.test/b": []})
    seen: list[dict[str, Any]] = []

    class Twice(Starting):
        def parse(self, response: Response, n: int = 0) -> Iterator[Any]:
            yield {"url": response.url}
            if n < 2:
                url = ("http://a.test/b", "http://a.test/")[n]
                yield Request(url, cb_kwargs={"n": n + 1}, dont_filter=n == 1)

    settings = {**OURS, **IMPORTANCE, **ALL_FIELDS, "AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0}
    await crawl(Twice, settings, told={signals.item_scraped: keep(seen)})
    first, other, again = seen
    assert (first["visits"], first["history"], first["cash"]) == (0, 0, SEED)
    assert (other["visits"], other["history"], other["cash"]) == (0, 0, SEED)
    assert (again["visits"], again["history"], again["cash"]) == (1, SEED, SEED)
    assert other["importance"] == pytest.approx(1 / 2)
    assert again["importance"] == pytest.approx(2 / 3)


async def test_beside_another_scheduler_items_pass_unchanged_with_one_warning(serve, caplog):
    serve({"http://a.test/": []})
    items, crawler = await scrape({}, lambda url: [{"url": url}, Held(url=url), {}])
    assert items == [{"url": "http://a.test/"}, Held(url="http://a.test/"), {}]
    assert logged(caplog, "WARNING") == [
        'ImportancePipeline knows nothing without SCHEDULER = "scrapy_aopic.Scheduler"; items pass unchanged.'
    ]
    assert stat(crawler, "aopic/items/without_page") is None


class NeedsKey:
    """Fails on requests of others, as fingerprinters that read ``Request.meta`` do."""

    def fingerprint(self, request: Request) -> bytes:
        key: str = request.meta["key"]
        return key.encode()


async def test_a_look_up_that_fails_costs_no_item_and_is_logged_once(serve, caplog):
    serve({"http://a.test/": []})

    crawler = await crawl(
        Visits,
        {**OURS, **IMPORTANCE, "REQUEST_FINGERPRINTER_CLASS": NeedsKey},
        starts=[Request("http://a.test/", meta={"key": "a"})],
        parse=lambda response: [{"url": response.url}] * 2,
    )
    assert stat(crawler, "item_scraped_count") == 2
    assert stat(crawler, "aopic/items/without_page") == 2
    (error,) = logged(caplog, "ERROR")
    assert error == (
        "The page of <GET http://a.test/> cannot be looked up, so that its importance is left out; no more "
        "such errors will be logged"
    )


@pytest.mark.parametrize(
    ("pipeline", "settings", "message"),
    [
        (
            ImportancePipeline,
            {"AOPIC_ITEM_FIELDS": ["rank"]},
            r"AOPIC_ITEM_FIELDS \(\['rank'\]\) must be some of",
        ),
        (PagesPipeline, {"AOPIC_WARC_FILE": 3}, r"AOPIC_WARC_FILE \(3\) must be the path of a file"),
        (
            PagesPipeline,
            {"AOPIC_WARC_FILE": "%(date)s.warc"},
            r"'%\(date\)s.warc'.*nothing to fill in but %\(name\)s",
        ),
        (PagesPipeline, {"AOPIC_WARC_FILE": "%d.warc"}, "nothing to fill in but"),
        (PagesPipeline, {"AOPIC_WARC_FILE": "100%"}, "a percent sign is written %%"),
    ],
)
def test_a_wrong_setting_stops_the_start_and_says_why(pipeline, settings, message, caplog):
    with pytest.raises(NotConfigured):
        pipeline.from_crawler(get_crawler(settings_dict=settings))
    (said,) = logged(caplog, "ERROR")
    assert re.search(message, said)
    assert said.endswith("The crawl does not start.")


# -- archives


class Record(NamedTuple):
    """A WARC record: its fields, and the HTTP message in it if there is one."""

    kind: str
    fields: dict[str, str]
    start: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def url(self) -> str:
        return self.fields["WARC-Target-URI"]

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]


def records(data: bytes) -> Iterator[Record]:
    """Every record in *data*, its digests checked."""
    for record in ArchiveIterator(BytesIO(data), check_digests="raise"):
        http = record.http_headers
        body = record.raw_stream.read()
        yield Record(
            record.rec_type,
            dict(record.rec_headers.headers),
            f"{http.protocol} {http.statusline}" if http else "",
            http.headers if http else [],
            body,
        )


def readable(data: bytes) -> list[Record]:
    """What comes out of *data*, which may be torn, before warcio gives up."""
    found: list[Record] = []
    with suppress(ArchiveLoadFailed, EOFError, AttributeError):  # what warcio may make of a torn record
        found.extend(records(data))
    return found


def read_all(path: Path) -> list[Record]:
    return list(records(path.read_bytes()))


def responses(path: Path) -> dict[str, Record]:
    return {record.url: record for record in read_all(path) if record.kind == "response"}


class Walk(Starting):
    """Follows every link."""

    name = "walk"

    def parse(self, response: Response) -> Iterator[Any]:
        if "/packed" in response.url:
            assert response.body == b"unpacked " * 100
        if response.headers.get("Content-Type") == b"text/html":
            yield from map(response.follow, response.css("a::attr(href)").getall())


class WalkWithItems(Walk):
    """The same; the packed page has an item."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        if "/packed" in response.url:
            yield {"url": response.url}


class WalkWithTexts(Walk):
    """The same; items have the texts of pages, one of them of a page that was not fetched."""

    def parse(self, response: Response) -> Iterator[Any]:
        yield from super().parse(response)
        if "/packed" in response.url:
            yield {"url": response.url, "text": "Über", "markdown": "# Über\n"}
            yield {"url": "http://a.test/other", "text": "x"}
            yield {"url": [response.url], "text": "x"}
            yield {"url": response.url, "text": ""}


PACKED = gzip.compress(b"unpacked " * 100, mtime=0)
SITE: dict[str, Any] = {
    "http://a.test/robots.txt": Answer(body=b"User-agent: *\nDisallow: /secret\n"),
    "http://a.test/": [
        *("/packed?a=1&b=%20#part", "/moved", "/gone", "/empty", "/none", "/odd", "/binary", "/secret"),
        "http://b.test/",
    ],
    "http://a.test/packed?a=1&b=%20": Answer(headers={"Content-Encoding": "gzip", "X-A": "b"}, body=PACKED),
    "http://a.test/moved": Answer(301, {"Location": "http://b.test/new"}, b"it moved"),
    "http://a.test/gone": Answer(404, body=b"it is gone"),
    "http://a.test/empty": Answer(),
    "http://a.test/none": Answer(204),
    "http://a.test/odd": Answer(299, body=b"odd"),
    "http://a.test/binary": Answer(body=bytes(range(256)) * 50),
    "http://b.test/": [],
    "http://b.test/new": [],
}
STATUSES = {url: page.status if isinstance(page, Answer) else 200 for url, page in SITE.items()}
STATUSES["http://b.test/robots.txt"] = 404


@pytest.mark.parametrize("name", ["pages.warc.gz", "pages.warc"])
async def test_an_archive_holds_every_transfer_as_it_was(serve, tmp_path, name):
    serve(SITE)
    path = tmp_path / "new" / "folder" / name
    before = datetime.now(timezone.utc)
    crawler = await crawl(Walk, archiving(path, ROBOTSTXT_OBEY=True))
    after = datetime.now(timezone.utc)
    info, *rest = read_all(path)
    assert (info.kind, info.fields["WARC-Filename"]) == ("warcinfo", name)
    assert "spider: walk\r\n" in info.body.decode()
    assert "format: WARC File Format 1.1\r\n" in info.body.decode()
    assert re.search(r"^software: scrapy-aopic/\S+ Scrapy/\S+\r$", info.body.decode(), re.MULTILINE)
    assert [record.kind for record in rest] == ["response", "request"] * len(STATUSES)
    found = responses(path)
    assert {url: record.status for url, record in found.items()} == STATUSES
    for url, record in found.items():
        page = SITE.get(url, Answer(404))
        assert record.body == (page.body if isinstance(page, Answer) else html(page)), url
        if record.body:  # for an answer without a body, not every Scrapy tells the address
            assert record.fields["WARC-IP-Address"] == "127.0.0.1"
        assert record.fields["WARC-Warcinfo-ID"] == info.fields["WARC-Record-ID"]
        date = datetime.strptime(record.fields["WARC-Date"], "%Y-%m-%dT%H:%M:%S.%f%z")
        assert before - timedelta(milliseconds=1) <= date <= after
    packed = found["http://a.test/packed?a=1&b=%20"]
    assert packed.start == "HTTP/1.1 200 OK"
    assert packed.values("Content-Encoding") == ["gzip"]
    assert packed.values("X-A") == ["b"]
    assert packed.values("Content-Length") == [str(len(PACKED))]
    assert found["http://a.test/moved"].start == "HTTP/1.1 301 Moved Permanently"
    assert found["http://a.test/moved"].values("Location") == ["http://b.test/new"]
    assert found["http://a.test/odd"].start == "HTTP/1.1 299 Unknown"
    assert len({record.fields["WARC-Record-ID"] for record in [info, *rest]}) == len(rest) + 1
    assert stat(crawler, "aopic/warc/records") == len(rest) + 1
    assert stat(crawler, "aopic/warc/bytes") == path.stat().st_size
    assert stat(crawler, "aopic/warc/errors") is None


async def test_a_request_record_says_what_was_asked(serve, path):
    got: list[Exchange] = []

    def note(exchange: Exchange) -> Answer:
        got.append(exchange)
        return Answer(body=b"thanks")

    serve({"http://a.test/form?x=1": note})

    headers = {"X-Two": ["1", "2"], "Proxy-Authorization": "Basic dXNlcjpzZWNyZXQ="}
    starts = [
        Request("http://a.test/form?x=1#part", method="POST", body=b"a=\xff", headers=headers),
        Request("http://a.test/form?x=1", method="PUT"),
        Request("http://a.test/form?x=1"),
    ]
    await crawl(Visits, archiving(path, CONCURRENT_REQUESTS=1), starts=starts)
    _, *rest = read_all(path)
    pairs = list(zip(rest[::2], rest[1::2], strict=True))
    for response, request in pairs:
        assert request.kind == "request"
        assert request.fields["WARC-Concurrent-To"] == response.fields["WARC-Record-ID"]
        assert request.url == response.url == "http://a.test/form?x=1"
        assert request.fields["WARC-Date"] == response.fields["WARC-Date"]
        assert request.values("Host") == ["a.test"]
        assert request.values("User-Agent") == [got[0].headers["user-agent"]]
        assert not request.values("Proxy-Authorization")
    asked = {request.start.split()[0]: request for _, request in pairs}
    assert asked["POST"].start == "POST /form?x=1 HTTP/1.1"
    assert asked["POST"].body == b"a=\xff"
    assert asked["POST"].values("X-Two") == ["1", "2"]
    assert {method: request.values("Content-Length") for method, request in asked.items()} == {
        "POST": ["3"],
        "PUT": ["0"],
        "GET": [],
    }


async def test_importance_and_cash_are_those_of_the_page_when_it_was_fetched(serve, path):
    serve(SITE)
    settings = {"AOPIC_ENDOWMENT": 0, "AOPIC_VIRTUAL_SHARE": 0, "CONCURRENT_REQUESTS": 1}
    await crawl(Walk, archiving(path, ROBOTSTXT_OBEY=True, **settings))
    known = {
        url: (float(record.fields["WARC-AOPIC-Importance"]), int(record.fields["WARC-AOPIC-Cash"]))
        for url, record in responses(path).items()
        if "WARC-AOPIC-Importance" in record.fields
    }
    assert set(known) == {url for url in STATUSES if not url.endswith("/robots.txt")}
    assert known.pop("http://a.test/") == (1.0, SEED)
    each = SEED // 9
    # The one with the forbidden page among them or not: until then no cash has left the pages.
    assert known["http://a.test/packed?a=1&b=%20"][1] == each
    assert all(0 < importance < 1 and 0 < cash <= SEED for importance, cash in known.values())
    assert all(
        "WARC-AOPIC-Cash" not in record.fields for record in read_all(path) if record.kind != "response"
    )


@pytest.mark.parametrize("topic", [{"keywords": ["packed"]}, "items"])
async def test_the_archive_of_a_crawl_for_a_topic_has_the_relevance_of_pages(serve, path, topic):
    serve(SITE)
    spider = Walk if isinstance(topic, dict) else WalkWithItems
    crawler = await crawl(spider, archiving(path, ROBOTSTXT_OBEY=True, AOPIC_TOPIC=topic))
    found = read_all(path)
    by_id = {record.fields["WARC-Record-ID"]: record for record in found if record.kind == "response"}
    said = {}
    for record in found:
        if record.kind == "metadata":
            name, _, grade = record.body.decode().strip().partition(": ")
            assert name == "aopic-relevance"
            assert by_id[record.fields["WARC-Refers-To"]].url == record.url
            said[record.url] = float(grade)
    assert len(said) == crawler.stats.get_value("aopic/topic/pages")
    assert "http://a.test/moved" not in said
    relevant = "http://a.test/packed?a=1&b=%20" if topic == "items" else "http://a.test/"
    assert [url for url, grade in said.items() if grade >= 0.5] == [relevant]
    assert crawler.stats.get_value("aopic/warc/records") == len(found)


@pytest.mark.parametrize("scheduler", [OURS, {}])
async def test_the_archive_has_the_texts_that_items_have_of_their_pages(serve, path, scheduler):
    serve(SITE)
    crawler = await crawl(WalkWithTexts, archiving(path, scheduler))
    found = read_all(path)
    texts = [record for record in found if record.kind == "conversion"]
    assert {(record.fields["Content-Type"].partition(";")[0], record.body.decode()) for record in texts} == {
        ("text/plain", "Über"),
        ("text/markdown", "# Über\n"),
    }
    (page,) = (record for record in found if record.kind == "response" and "/packed" in record.url)
    assert {(record.url, record.fields["WARC-Refers-To"]) for record in texts} == {
        (page.url, page.fields["WARC-Record-ID"])
    }
    assert stat(crawler, "aopic/warc/records") == len(found)


async def test_beside_another_scheduler_the_archive_has_no_importance(serve, path, caplog):
    serve(SITE)
    crawler = await crawl(Walk, archiving(path, {}, ROBOTSTXT_OBEY=True))
    assert {url: record.status for url, record in responses(path).items()} == STATUSES
    assert not [name for record in read_all(path) for name in record.fields if "AOPIC" in name]
    assert stat(crawler, "aopic/warc/errors") is None
    assert logged(caplog, "WARNING", "ERROR") == []


async def test_headers_are_kept_and_chunks_are_joined(tmp_path):
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (PACKED[:7], PACKED[7:])) + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 All Right\r\nSet-Cookie: a=1\r\nX-Name: caf\xe9\r\nSet-Cookie: b=2; Path=/\r\n"
            b"X-Empty:\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    path = tmp_path / "pages.warc"
    crawler = await crawl(Walk, archiving(path), starts=[f"http://{host}/packed"])
    server.close()
    await server.wait_closed()
    assert stat(crawler, "spider_exceptions/count") is None
    _, response, request = read_all(path)
    assert response.body == PACKED
    assert response.values("Set-Cookie") == ["a=1", "b=2; Path=/"]
    assert response.values("X-Empty") == [""]
    assert response.values("Content-Length") == [str(len(PACKED))]
    assert response.values("Transfer-Encoding") == []
    assert b"\r\nX-Name: caf\xe9\r\n" in path.read_bytes()
    assert request.values("Host") == [host]


class OddHandler(BaseDownloadHandler):
    """Tells of a transfer what other download handlers than Scrapy's default one may tell."""

    async def download_request(self, request: Request) -> Response:
        headers = {"Transfer-Encoding": "chunked", "Content-Length": "999", "X-Folded": "one\r\n two"}
        return Response(f"{request.url}#part", headers=headers, body=b"body", protocol="h2")


async def test_a_record_is_sound_whatever_the_download_handler_tells(path):
    await crawl(Walk, archiving(path, DOWNLOAD_HANDLERS={"http": OddHandler}))
    _, response, request = read_all(path)
    assert response.url == request.url == "http://a.test/"
    assert response.start == "HTTP/1.1 200 OK"
    assert response.headers == [("X-Folded", "one  two"), ("Content-Length", "4")]
    assert response.body == b"body"
    assert "WARC-IP-Address" not in response.fields


async def test_an_answer_that_was_cut_says_so(serve, path):
    serve(
        {
            "http://a.test/cut": Answer(headers={"Content-Length": "1000"}, body=b"a part"),
            "http://a.test/stopped": Answer(body=b"x" * 100_000),
        }
    )

    def stop(request: Request) -> None:
        if request.url.endswith("/stopped"):
            raise StopDownload(fail=False)

    settings = archiving(path, DOWNLOAD_FAIL_ON_DATALOSS=False)
    starts = ["http://a.test/cut", "http://a.test/stopped"]
    await crawl(Visits, settings, told={signals.headers_received: stop}, starts=starts)
    found = responses(path)
    assert found["http://a.test/cut"].fields["WARC-Truncated"] == "disconnect"
    assert found["http://a.test/cut"].values("Content-Length") == ["6"]
    assert found["http://a.test/cut"].body == b"a part"
    assert found["http://a.test/stopped"].fields["WARC-Truncated"] == "unspecified"
    assert found["http://a.test/stopped"].values("Content-Length") == ["0"]


async def test_every_attempt_is_recorded_and_what_was_no_transfer_is_not(serve, path):
    tries = iter([Answer(500), Answer(body=b"at last")])
    serve({"http://a.test/flaky": lambda _: next(tries), "http://a.test/cut": Answer(abort=True)})

    starts = ["http://a.test/flaky", "http://a.test/cut", "data:,x"]
    await crawl(Visits, archiving(path, RETRY_TIMES=1), starts=starts)
    found = [
        (record.url, record.status, record.body) for record in read_all(path) if record.kind == "response"
    ]
    assert found == [("http://a.test/flaky", 500, b""), ("http://a.test/flaky", 200, b"at last")]


async def test_inline_requests_are_recorded_without_the_importance_of_another_page(serve, path):
    serve({"http://a.test/": Answer(body=b"page"), "http://a.test/picture": Answer(body=b"picture")})

    class Inline(Starting):
        async def parse(self, response: Response) -> None:
            await self.crawler.engine.download_async(Request("http://a.test/picture", meta=response.meta))

    await crawl(Inline, archiving(path))
    found = responses(path)
    assert found["http://a.test/picture"].body == b"picture"
    assert "WARC-AOPIC-Importance" not in found["http://a.test/picture"].fields
    assert found["http://a.test/"].fields["WARC-AOPIC-Importance"] == "1.0"


class OtherSlot:
    """Gives every request a download slot of another name, as middlewares that rotate proxies do."""

    def process_request(self, request: Request) -> None:
        request.meta["download_slot"] = "proxy-1"


async def test_a_page_is_known_even_if_a_middleware_changes_its_slot(serve, path):
    serve({"http://a.test/": []})
    await crawl(Walk, archiving(path, DOWNLOADER_MIDDLEWARES={OtherSlot: 100}))
    assert responses(path)["http://a.test/"].fields["WARC-AOPIC-Importance"] == "1.0"


async def test_records_of_revisits_say_what_was_found(serve, tmp_path):
    versions = iter([[], ["/new"]])

    def tagged(exchange: Exchange) -> Answer:
        status = 304 if "if-none-match" in exchange.headers else 200
        return Answer(
            status, {"Content-Type": "text/html", "ETag": '"1"'}, b"" if status == 304 else html([])
        )

    urls = [f"http://{name}.test/" for name in ("same", "tagged", "other")]
    other = lambda _: Answer(headers={"Content-Type": "text/html"}, body=html(next(versions)))
    serve(dict(zip(urls, [Answer(body=b"same" * 500), tagged, other], strict=True)))

    again = {"JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite", "AOPIC_RECRAWL": ["once", "changed"]}
    found = []
    for n in range(2):
        path = tmp_path / f"{n}.warc"
        await crawl(Visits, archiving(path, **again), starts=urls)
        records = {each.url: each for each in read_all(path) if each.kind in ("response", "revisit")}
        found.append([(records[url].kind, records[url].fields["WARC-AOPIC-Found"]) for url in urls])
    assert found[0] == [("response", "new")] * 3
    assert found[1] == [("response", "unchanged"), ("revisit", "unchanged"), ("response", "changed")]


async def test_a_transfer_is_in_the_file_before_its_callback_runs(serve, path):
    serve({"http://a.test/": ["/1"], "http://a.test/1": ["/2"], "http://a.test/2": []})
    seen: list[list[str]] = []

    class Look(Walk):
        def parse(self, response: Response) -> Iterator[Any]:
            seen.append(list(responses(path)))
            return super().parse(response)

    await crawl(Look, archiving(path))
    urls = ["http://a.test/", "http://a.test/1", "http://a.test/2"]
    assert seen == [urls[:1], urls[:2], urls]


async def test_the_name_and_the_time_are_filled_in(serve, tmp_path, monkeypatch):
    serve({"http://a.test/": []})
    monkeypatch.chdir(tmp_path)
    before = datetime.now(timezone.utc).replace(microsecond=0)
    await crawl(Walk, {**PAGES})
    (path,) = (tmp_path / "crawls").iterdir()
    match = re.fullmatch(r"walk-(\d{8}T\d{6}Z)\.warc\.gz", path.name)
    started = datetime.strptime(match[1], "%Y%m%dT%H%M%S%z")
    assert before <= started <= datetime.now(timezone.utc)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("a.test-2.5.warc.gz", ["a.test-2.5-1.warc.gz", "a.test-2.5-2.warc.gz"]),
        ("pages.warc", ["pages-1.warc", "pages-2.warc"]),
        ("pages.gz", ["pages-1.gz", "pages-2.gz"]),
        ("pages", ["pages-1", "pages-2"]),
    ],
)
async def test_a_file_that_exists_is_never_touched(serve, tmp_path, name, others):
    serve({"http://a.test/": []})
    (tmp_path / name).write_bytes(b"of another program")
    (tmp_path / others[0]).symlink_to("nowhere")
    await crawl(Walk, {**PAGES, "AOPIC_WARC_FILE": tmp_path / name})
    assert (tmp_path / name).read_bytes() == b"of another program"
    assert (tmp_path / others[0]).is_symlink()
    assert not (tmp_path / "nowhere").exists()
    info, *_ = read_all(tmp_path / others[1])
    assert info.fields["WARC-Filename"] == others[1]
    assert names(tmp_path) == sorted([name, *others])


async def test_a_resumed_crawl_gets_a_file_of_its_own(serve, tmp_path, path):
    serve({"http://a.test/": ["/1"], "http://a.test/1": []})
    settings = archiving(path, JOBDIR=str(tmp_path / "job"), AOPIC_STORE="auto", CONCURRENT_REQUESTS=1)
    await crawl(Walk, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    first = path.read_bytes()
    await crawl(Walk, settings)
    assert path.read_bytes() == first
    assert list(responses(path)) == ["http://a.test/"]
    assert list(responses(tmp_path / "pages-1.warc.gz")) == ["http://a.test/1"]


@pytest.mark.parametrize("name", ["pages.warc.gz", "pages.warc"])
async def test_a_file_cut_anywhere_is_readable_up_to_there(serve, tmp_path, name):
    serve(SITE)
    path = tmp_path / name
    await crawl(Walk, archiving(path))
    data, whole = path.read_bytes(), read_all(path)
    ends = record_ends(data)
    assert len(ends) == len(whole)
    dice = random.Random(4)
    for size in [*ends, *(dice.randrange(len(data)) for _ in range(300))]:
        n_whole = sum(end <= size for end in ends)
        found = readable(data[:size])
        assert found[:n_whole] == whole[:n_whole], size
        assert len(found) <= n_whole + 1


def record_ends(data: bytes) -> list[int]:
    archive = ArchiveIterator(BytesIO(data))
    return [archive.get_record_offset() + archive.get_record_length() for _ in archive]


async def test_beside_another_scheduler_a_path_that_cannot_be_written_does_not_stop_the_crawl(
    serve, tmp_path, caplog
):
    web = serve({"http://a.test/": ["/1"], "http://a.test/1": []})
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file" / "pages.warc.gz"
    crawler = await crawl(Walk, archiving(path, {}))
    assert stat(crawler, "finish_reason") == "finished"
    assert len(web.asked) == 2
    assert stat(crawler, "aopic/warc/errors") == 3  # when the spider opened, and for each page
    assert stat(crawler, "aopic/warc/records") is None
    (error,) = logged(caplog, "ERROR")
    assert re.fullmatch(
        rf"AOPIC_WARC_FILE \({re.escape(str(path))}\) cannot be written \(there is something else of that name\), so that pages "
        r"are missing from it; further errors are only counted \(aopic/warc/errors\)\.",
        error,
    )


async def test_beside_another_scheduler_a_path_that_becomes_writable_is_written_from_then_on(serve, tmp_path):
    folder = tmp_path / "folder"
    folder.write_text("in the way")

    def clear(_: Exchange) -> Answer:
        folder.unlink()
        return Answer(headers={"Content-Type": "text/html"}, body=html(["/1"]))

    serve({"http://a.test/": clear, "http://a.test/1": []})
    crawler = await crawl(Walk, {**PAGES, "AOPIC_WARC_FILE": folder / "pages.warc.gz"})
    assert list(responses(folder / "pages.warc.gz")) == ["http://a.test/", "http://a.test/1"]
    assert stat(crawler, "aopic/warc/errors") == 1


class FullDisk:
    """A file whose *n*-th write takes a part of the data and then finds the disk full."""

    def __init__(self, file: Any, n: int, *, is_broken: bool) -> None:
        self._file = file
        self._writes = 0
        self._n = n
        self._is_broken = is_broken
        self.name = file.name
        self.close = file.close
        self.seek = file.seek
        self.fileno = file.fileno

    def write(self, data: memoryview) -> int:
        self._writes += 1
        if self._writes == self._n:
            return int(self._file.write(data[: len(data) // 2]))
        if self._writes == self._n + 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def truncate(self, size: int) -> None:
        if self._is_broken:
            raise OSError(errno.EIO, "Input/output error")
        self._file.truncate(size)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_beside_another_scheduler_a_full_disk_costs_what_does_not_fit_and_tears_no_record(
    serve, tmp_path, monkeypatch, caplog, is_broken
):
    pages = {
        "http://a.test/": ["/1"],
        **{f"http://a.test/{n}": [f"/{n + 1}"] for n in (1, 2)},
        "http://a.test/3": [],
    }
    web = serve(pages)
    create = warc._create
    for n in range(1, 6):  # the first write is that of the warcinfo record, the sixth there is not
        folder = tmp_path / str(n)
        n_files = 0

        def create_full(path: Path, n: int = n) -> Any:
            nonlocal n_files
            n_files += 1
            file = create(path)
            return FullDisk(file, n, is_broken=is_broken) if n_files == 1 else file

        monkeypatch.setattr(warc, "_create", create_full)
        caplog.clear()
        crawler = await crawl(Walk, {**PAGES, "AOPIC_WARC_FILE": folder / "pages.warc"})
        assert stat(crawler, "finish_reason") == "finished"
        assert stat(crawler, "aopic/warc/errors") == 1
        assert len(logged(caplog, "ERROR")) == 1
        expected = [url for number, url in enumerate(pages, 2) if number != n]
        if not is_broken or n == 1:  # if nothing was written, the file has gone and is made again
            assert names(folder) == ["pages.warc"]
            assert list(responses(folder / "pages.warc")) == expected
            assert stat(crawler, "aopic/warc/bytes") == (folder / "pages.warc").stat().st_size
            continue
        # What could not be removed stays at the end of the first file; what came later is in a second one.
        torn = (folder / "pages.warc").read_bytes()
        found = [record.url for record in readable(torn) if record.kind == "response"]
        assert found in (list(pages)[: n - 2], list(pages)[: n - 1])
        if n < 5:
            assert list(responses(folder / "pages-1.warc")) == expected[n - 2 :]
    assert len(web.asked) == 5 * len(pages)


async def test_a_full_disk_under_an_archive_ends_the_crawl_and_its_page_is_not_visited(
    serve, tmp_path, monkeypatch, caplog
):
    serve({"http://a.test/": ["/1"], "http://a.test/1": ["/2"], "http://a.test/2": []})
    path = tmp_path / "pages.warc"
    settings = archiving(path, JOBDIR=str(tmp_path / "job"), AOPIC_STORE="auto")
    create = warc._create
    with monkeypatch.context() as patch:
        patch.setattr(warc, "_create", lambda path: FullDisk(create(path), 3, is_broken=False))
        crawler = await crawl(Walk, {**settings, "AOPIC_DURABILITY": "page"})
    assert stat(crawler, "finish_reason") == "aopic_storage"
    (error,) = logged(caplog, "ERROR")
    assert error.startswith(f"AOPIC_WARC_FILE ({path}) cannot be written: the disk is full.")
    assert list(responses(path)) == ["http://a.test/"]
    await crawl(Walk, settings)
    kept = {url for each in tmp_path.glob("*.warc") for url in responses(each)}
    assert kept == {"http://a.test/", "http://a.test/1", "http://a.test/2"}


async def test_a_path_that_no_archive_can_have_ends_the_crawl_before_its_first_page(serve, tmp_path, caplog):
    web = serve({"http://a.test/": []})
    (tmp_path / "file").write_text("no folder")
    path = tmp_path / "file" / "pages.warc"
    crawler = await crawl(Walk, archiving(path))
    assert stat(crawler, "finish_reason") == "aopic_storage"
    (error,) = logged(caplog, "ERROR")
    assert error.startswith(
        f"AOPIC_WARC_FILE ({path}) cannot be written: there is something else of that name."
    )
    assert web.asked == []


def test_without_warcio_the_pipeline_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "warcio", None)
    with pytest.raises(NotConfigured, match=r"^PagesPipeline needs warcio: pip install warcio\.$"):
        PagesPipeline.from_crawler(get_crawler())


SAME = b"<p>" + b"the same words on both sites " * 70
BIG = {f"http://a.test/{n}": Answer(body=bytes((n,)) * 400_000) for n in range(4)}
REPEATS: dict[str, Any] = {
    "http://a.test/": [*BIG, "/one", "/two", "/unchanged"],
    "http://a.test/one": Answer(body=SAME),
    "http://a.test/two": Answer(headers={"X-Own": "yes"}, body=SAME),
    "http://a.test/unchanged": Answer(304, headers={"ETag": '"1"'}),
    **BIG,
}


async def test_a_body_is_written_once_and_full_files_are_followed_by_others(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("scrapy_aopic.pipelines.MAX_BYTES", 1_000_000)
    serve(REPEATS)
    crawler = await crawl(Walk, archiving(tmp_path / "pages.warc", CONCURRENT_REQUESTS=1))
    paths = sorted(tmp_path.iterdir())
    assert [each.name for each in paths] == ["pages-1.warc", "pages.warc"]
    assert all(each.stat().st_size < 2_000_000 for each in paths)
    found = [record for each in paths for record in read_all(each)]
    assert stat(crawler, "aopic/warc/records") == len(found)
    named = {record.fields["WARC-Filename"] for record in found if record.kind == "warcinfo"}
    assert named == {each.name for each in paths}
    by_url = {record.url: record for record in found if record.kind in ("response", "revisit")}
    assert by_url.keys() == REPEATS.keys()
    two = by_url["http://a.test/one"], by_url["http://a.test/two"]
    first, again = sorted(two, key=lambda record: record.kind)
    assert (first.kind, again.kind) == ("response", "revisit")
    assert (first.body, again.body) == (SAME, b"")
    assert again.values("Content-Length") == [str(len(SAME))]
    assert again.fields["WARC-Profile"].endswith("/1.1/revisit/identical-payload-digest")
    assert again.fields["WARC-Payload-Digest"] == first.fields["WARC-Payload-Digest"]
    assert again.fields["WARC-Refers-To"] == first.fields["WARC-Record-ID"]
    assert again.fields["WARC-Refers-To-Target-URI"] == first.url
    assert again.fields["WARC-Refers-To-Date"] == first.fields["WARC-Date"]
    unchanged = by_url["http://a.test/unchanged"]
    assert (unchanged.kind, unchanged.status) == ("revisit", 304)
    assert unchanged.fields["WARC-Profile"].endswith("/1.1/revisit/server-not-modified")
    assert unchanged.values("ETag") == ['"1"']
    assert "WARC-Payload-Digest" not in unchanged.fields


async def test_what_an_earlier_crawl_has_archived_is_neither_fetched_nor_written_again(serve, tmp_path, path):
    web = serve(REPEATS)
    await crawl(Walk, archiving(path))
    add_seeds(FolderPlace(tmp_path / "job"), [str(path)], fetched=True)
    web.pages["http://b.test/"] = Answer(body=SAME)
    before = len(web.asked)
    settings = archiving(tmp_path / "new.warc.gz", JOBDIR=str(tmp_path / "job"))
    await crawl(Walk, settings, starts=["http://a.test/", "http://b.test/"])
    assert web.asked[before:] == ["http://b.test/"]
    (revisit,) = (each for each in read_all(tmp_path / "new.warc.gz") if each.kind == "revisit")
    (first,) = (each for each in responses(path).values() if each.body == SAME)
    assert revisit.url == "http://b.test/"
    assert revisit.fields["WARC-Refers-To"] == first.fields["WARC-Record-ID"]
    assert revisit.fields["WARC-Refers-To-Target-URI"] == first.url
    assert revisit.fields["WARC-Refers-To-Date"] == first.fields["WARC-Date"]


@pytest.fixture
def archived(tmp_path: Path) -> Path:
    """A file with two pages, the second of which has the body of the first, and one that has not changed."""
    path = tmp_path / "pages.warc.gz"
    file = warc.WarcFile(path, "walk", "ours", warc.FirstRecords())
    for name, status, body in (("one", 200, SAME), ("two", 200, SAME), ("same", 304, b"")):
        response = Response(f"http://a.test/{name}", status=status, body=body, protocol="HTTP/1.1")
        file.add(response, Request(response.url), None)
    file.close()
    return path


def test_another_reader_reads_the_archive(archived):
    fastwarc = pytest.importorskip("fastwarc.warc")
    with archived.open("rb") as file:
        kinds = [record.headers["WARC-Type"] for record in fastwarc.ArchiveIterator(file)]
    assert kinds == ["warcinfo", "response", "request", "revisit", "request", "revisit", "request"]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_index_of_the_archive_says_where_pages_are(archived):
    indexer = pytest.importorskip("cdxj_indexer.main")
    index = archived.with_name("index.cdxj")
    indexer.CDXJIndexer(str(index), [str(archived)], sort=True).process_all()
    places = find_records(index, {"http://a.test/one", "http://a.test/two", "http://a.test/other"})
    assert places.keys() == {"http://a.test/one"}, "the others have no body"
    name, offset, length = places["http://a.test/one"]
    assert (name, type(offset), type(length)) == (archived.name, int, int)
    (record,) = records(archived.read_bytes()[offset:][:length])
    assert (record.kind, record.url, record.body) == ("response", "http://a.test/one", SAME)
