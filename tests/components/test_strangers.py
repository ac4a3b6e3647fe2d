"""What hosts get to know of each other through the crawl, and what their text does to whoever reads it."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

from demo_web.server import Answer, Exchange
from scrapy import FormRequest, Request, signals
from scrapy.http import Response
from support import crawls
from support.crawls import Visits, in_folder, keep
from support.small_web import crawl, html

from scrapy_aopic import BroadSpider
from scrapy_aopic.core.printable import printable
from scrapy_aopic.exporters import TableExporter
from scrapy_aopic.place.file_formats import cell
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.request_errors import RedirectedFormError
from scrapy_aopic.storage import open_snapshot
from scrapy_aopic.view.exporting import export_pages
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.output import write

ADDON: dict[str, Any] = {**crawls.ADDON, "ROBOTSTXT_OBEY": False}


def echo(got: dict[str, dict[str, str]], links: list[str], **answer: Any) -> Callable[[Exchange], Answer]:
    """Keeps the headers of its requests by host and path."""

    def respond(exchange: Exchange) -> Answer:
        kept = ("referer", "cookie", "authorization")
        told = {name: value for name, value in exchange.headers.items() if name in kept}
        got[exchange.host + exchange.target] = told
        more = {"Content-Type": "text/html", **answer.get("headers", {})}
        return Answer(answer.get("status", 200), headers=more, body=html(links))

    return respond


async def test_another_host_learns_which_host_had_its_link_and_not_which_page(serve):
    got: dict[str, dict[str, str]] = {}
    links = ["/2", "http://b.test/", "http://www.a.test/"]
    leaves = ("http://a.test/2", "http://b.test/", "http://www.a.test/")
    serve({"http://a.test/?token=secret": echo(got, links), **dict.fromkeys(leaves, echo(got, []))})
    await crawl(BroadSpider, ADDON, seeds="http://a.test/?token=secret")
    assert {place: headers.get("referer") for place, headers in got.items()} == {
        "a.test/?token=secret": None,
        "a.test/2": "http://a.test/?token=secret",
        "b.test/": "http://a.test/",
        "www.a.test/": "http://a.test/",
    }


def follow(response: Response) -> Iterator[Any]:
    yield from map(Request, response.css("a::attr(href)").getall())


async def test_credentials_and_cookies_of_a_host_are_sent_to_no_other(serve):
    got: dict[str, dict[str, str]] = {}
    wide = {"Set-Cookie": "wide=1; Domain=co.uk", "Location": "http://b.co.uk/moved"}
    serve(
        {
            "http://a.co.uk/": echo(got, [], status=302, headers=wide),
            "http://b.co.uk/moved": echo(got, ["http://a.co.uk/2", "http://b.co.uk/3"]),
            "http://a.co.uk/2": echo(got, []),
            "http://b.co.uk/3": echo(got, []),
        }
    )
    signs = {"Authorization": "Basic c2VjcmV0", "Cookie": "own=1"}
    starts = [Request("http://a.co.uk/", headers=signs)]
    await crawl(Visits, {**ADDON, "COOKIES_ENABLED": True}, starts=starts, parse=follow)
    assert got["a.co.uk/"]["authorization"]
    assert len(got) == 4
    for place in ("b.co.uk/moved", "a.co.uk/2", "b.co.uk/3"):
        assert not got[place].keys() & {"authorization", "cookie"}, place


async def test_the_first_request_that_needs_cookies_is_said_with_the_setting_that_drops_them(serve, caplog):
    starts = [
        Request(f"http://a.test/{jar}", meta={"cookiejar": jar}, cookies={"c": str(jar)}) for jar in (1, 2)
    ]
    got: dict[str, dict[str, str]] = {}
    serve({f"http://a.test/{jar}": echo(got, []) for jar in (1, 2)})
    await crawl(Visits, ADDON, starts=starts)
    assert [headers.get("cookie") for headers in got.values()] == [None, None]
    assert caplog.text.count("COOKIES_ENABLED = True to log in") == 1


async def test_a_redirect_takes_a_form_to_no_other_site(serve, caplog):
    errors: list[Any] = []
    ways = [(status, place) for status in (302, 307, 308) for place in ("www.a.test", "b.test")]
    starts = [
        FormRequest(f"http://a.test/{status}/{place}", formdata={"password": "secret"}, errback=errors.append)
        for status, place in ways
    ]
    web = serve(
        {
            f"http://a.test/{status}/{place}": Answer(
                status, headers={"Location": f"http://{place}/{status}"}
            )
            for status, place in ways
        }
    )
    crawler = await crawl(Visits, ADDON, starts=starts)
    asked = {url for url in web.asked if not url.startswith("http://a.test/")}
    # With 302 the form is left behind, and what is asked for is a page.
    assert asked == {"http://b.test/302", *(f"http://www.a.test/{status}" for status in (302, 307, 308))}
    refused = [failure for failure in errors if failure.check(RedirectedFormError)]
    assert len(refused) == 2
    assert crawler.stats.get_value("aopic/safety/refused") == 2
    assert sum("another site" in record.getMessage() for record in caplog.records) == 1


HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e"


async def test_what_a_page_says_reaches_no_terminal_as_a_command(serve, caplog):
    caplog.set_level(logging.INFO)
    page = f'<html lang="e{HOSTILE}"><title>=cmd() {HOSTILE}</title></html>'.encode()
    serve(
        {
            "http://a.test/": ["/page", "/type", f"/{HOSTILE}", f"http://x{HOSTILE}.test/"],
            "http://a.test/page": Answer(headers={"Content-Type": "text/html; charset=utf-8"}, body=page),
            "http://a.test/type": Answer(headers={"Content-Type": "image/\x1b[31m\x07"}, body=b"text"),
        }
    )
    items: list[Any] = []

    told = {signals.item_scraped: keep(items)}
    await crawl(BroadSpider, ADDON, told=told, seeds="http://a.test/")
    texts = [text for item in items for text in item.values() if isinstance(text, str)]
    assert any("=cmd()" in text for text in texts)
    assert any("says" in record.getMessage() for record in caplog.records)  # of the type
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("scrapy_aopic")]
    assert [text for text in (*texts, *ours) if not text.isprintable()] == []


def test_a_text_becomes_no_formula_in_a_table():
    file = io.BytesIO()
    exporter = TableExporter(file, fields_to_export=["title", "depth"])
    titles = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "Plain = title", ""]
    exporter.start_exporting()
    for title in titles:
        exporter.export_item({"title": title, "depth": -1})
    exporter.finish_exporting()
    rows = list(csv.DictReader(io.StringIO(file.getvalue().decode(), newline="")))
    assert [row["title"] for row in rows] == [f"'{title}" for title in titles[:5]] + titles[5:]
    assert {row["depth"] for row in rows} == {"-1"}


async def test_an_exported_table_has_no_formulas(serve, tmp_path):
    """The host has a name of the spider's own, as a slot may have any name."""
    serve({"http://a.test/": []})
    starts = [Request("http://a.test/", meta={"download_slot": "=cmd()"})]
    await crawl(Visits, in_folder(tmp_path / "job", ADDON), starts=starts)
    store = open_snapshot(store_folder(tmp_path / "job"))
    try:
        assert export_pages(View([store]), str(tmp_path / "pages.csv")) == 1
    finally:
        store.close()
    with (tmp_path / "pages.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["host"] == "'=cmd()"
    assert row["url"] == "http://a.test/"


def test_a_command_prints_nothing_that_a_terminal_obeys(capsys):
    write(f"http://x{HOSTILE}.test/\tGrüße\n\r\x7f")
    shown = "http://x\ufffd]0;owned\ufffd\ufffd31m\ufffd.test/\tGrüße\n\ufffd\ufffd\n"
    assert capsys.readouterr().out == shown


def test_only_what_has_no_picture_is_left_out():
    assert printable("Grüße, 世界 👍") == "Grüße, 世界 👍"
    assert printable("a\x1b[31m\u202eb\ud800") == "a [31m b "
    assert cell("-") == "'-"
    assert cell("") == ""
