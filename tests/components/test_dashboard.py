"""The dashboard of a crawl that runs, and of a stored job."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from support.crawls import logged
from support.dashboard import TOKEN, Got, get
from support.dashboard import serve_job as serving_job
from support.small_web import Follow, Web, ask_view, crawl
from support.stored_jobs import make_job
from twisted.internet.threads import deferToThread

from scrapy_aopic.core.branches import QUEUES
from scrapy_aopic.core.crawl_totals import CrawlTotals
from scrapy_aopic.core.layout import TOTALS_KEY, Family
from scrapy_aopic.core.ledger import Totals
from scrapy_aopic.core.mirrors import MIRRORED
from scrapy_aopic.core.ports import Batch
from scrapy_aopic.core.records import (
    HostRecord,
    Page,
    PageState,
    host_key,
    pack,
    pack_host,
    pack_page,
    page_key,
)
from scrapy_aopic.dashboard import feed as feed_module
from scrapy_aopic.dashboard import site as site_module
from scrapy_aopic.dashboard.feed import Feed, FeedItem
from scrapy_aopic.dashboard.serving import serve as serve_job
from scrapy_aopic.dashboard.site import ChartHistory, health, readiness
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.settings import Listen, read_dashboard
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.version import DOCS
from scrapy_aopic.view.job_view import View, open_view
from scrapy_aopic.view.queries import hosts_by
from scrapy_aopic.view.questions import top_domains
from scrapy_aopic.view.snapshot import Snapshot, StoreState
from scrapy_aopic.view.stored import StoredWatch, snapshot_of
from scrapy_aopic.view.traps import find_traps, pattern_of

SCHEDULER = {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_DASHBOARD": "127.0.0.1:0"}
PAGES: dict[str, Any] = {"http://a.test/": ["http://b.test/"], "http://b.test/": []}

Serve = Callable[[dict[str, Any]], Web]


def addresses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "scrapy_aopic.dashboard.serving"]


class Curious(Spider):
    """Looks at its own dashboard while it crawls, from another thread."""

    name = "curious"
    start_urls = ["http://a.test/"]
    port: Callable[[], int]
    paths: tuple[str, ...]
    seen: dict[str, Got]

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for path in self.paths:
            self.seen[path] = await maybe_deferred_to_future(deferToThread(get, self.port(), path))
        yield Request("http://b.test/", self.done)

    def done(self, response: Response) -> None:
        pass


@pytest.fixture
def look(serve: Serve, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Callable[..., Any]:
    """What a crawl shows under some paths."""

    async def of(*wanted: str, **settings: Any) -> dict[str, Got]:
        def port() -> int:
            (said,) = addresses(caplog)
            match = re.fullmatch(rf"Dashboard: http://127\.0\.0\.1:(\d+)/\?token={TOKEN}", said)
            return int(match[1])

        serve(PAGES)
        caplog.set_level(logging.INFO)
        settings = {**SCHEDULER, "AOPIC_DASHBOARD_TOKEN": TOKEN, "JOBDIR": str(tmp_path), **settings}
        seen: dict[str, Got] = {}
        await crawl(Curious, settings, paths=wanted, seen=seen, port=port)
        return seen

    return of


async def test_a_crawl_shows_itself(look):
    explainer = [f"/opic/{name}" for name in ("", "style.css", "ledger.js", "scenes.js")]
    seen = await look("/", "/dashboard.css", "/dashboard.js", "/icon.svg", *explainer, "/healthz", "/readyz")
    assert {found.status for found in seen.values()} == {200}
    assert "dashboard.js" in seen["/"].text
    assert '<meta name="top-pages" content="/api/v1/top">\n</head>' in seen["/opic/"].text
    assert seen["/healthz"].text == "ok\n"
    assert seen["/readyz"].text == "ready\n"


async def test_its_figures_are_those_of_the_moment(look):
    names = ("snapshot", "history", "top", "domains", "traps", "hosts?by=fetched&find=A.", "hosts?by=size")
    seen = await look("/metrics", *(f"/api/v1/{name}" for name in names), AOPIC_STORE="sqlite")
    said = {name: json.loads(seen[f"/api/v1/{name}"].text) for name in names}
    now = said["snapshot"]
    assert now["is_live"]
    assert now["spider"] == "curious"
    assert now["pages"]["known"] == now["pages"]["queued"] == 1  # the page is in its callback
    assert now["connections"]["callbacks"] == 1
    assert now["verdict"]["sentence"].endswith(".")
    assert "aopic_live_callbacks 1\n" in seen["/metrics"].text
    assert 'aopic_info{version="' in seen["/metrics"].text
    assert [point["pages.queued"] for point in said["history"]] == [1]
    assert said["top"].keys() == {"pages"}
    assert said["domains"].keys() == {"domains"}
    assert said["traps"] == {"traps": []}
    assert {row["name"] for row in said["hosts?by=fetched&find=A."]["hosts"]} <= {"a.test"}
    assert said["hosts?by=size"]["problem"].startswith("Hosts are listed by slow, failing,")


async def test_pages_of_a_job_in_memory_cannot_be_listed(look):
    seen = await look("/api/v1/top", AOPIC_STORE="memory")
    problem = {"problem": "They cannot be listed for a job without a folder."}
    assert json.loads(seen["/api/v1/top"].text) == problem


async def test_there_is_none_unless_it_is_wanted(serve, caplog, monkeypatch):
    def listen(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("scrapy_aopic.dashboard.serving.listen", listen)
    serve(PAGES)
    caplog.set_level(logging.INFO)
    await crawl(Follow, {**SCHEDULER, "AOPIC_DASHBOARD": False})
    assert addresses(caplog) == []


async def test_each_run_has_its_own_token_and_says_it_once(serve, caplog):
    serve(PAGES)
    caplog.set_level(logging.INFO)
    for _ in range(2):
        await crawl(Follow, {**SCHEDULER, "LOG_LEVEL": "WARNING"})
    first, second = addresses(caplog)
    assert first.partition("token=")[2] != second.partition("token=")[2]
    assert {record.levelname for record in caplog.records if "token=" in record.getMessage()} == {"WARNING"}


async def test_a_port_that_is_taken_costs_no_crawl(serve, caplog):
    web = serve(PAGES)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        await crawl(Follow, {**SCHEDULER, "AOPIC_DASHBOARD": where})
    (said,) = addresses(caplog)
    assert said.startswith(f"There is no dashboard, as AOPIC_DASHBOARD ('{where}') cannot be listened on: ")
    assert web.asked == ["http://a.test/", "http://b.test/"]


async def test_another_address_needs_a_token_of_ones_own(serve, caplog):
    web = serve(PAGES)
    await crawl(Follow, {**SCHEDULER, "AOPIC_DASHBOARD": "0.0.0.0:0"})
    (said,) = logged(caplog, "ERROR")
    assert said == (
        "AOPIC_DASHBOARD ('0.0.0.0:0') is an address that other machines can reach, so AOPIC_DASHBOARD_TOKEN must be set "
        f"to a token of your own. See {DOCS} settings#aopic_dashboard. The crawl does not start."
    )
    assert web.asked == []


# Health


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A feed on a clock of its own, and the figures that it finds."""
    self = SimpleNamespace(now=1000.0, taken=0)
    self.figures = {"is_live": True, "at": 50.0, "not_before": 0.0, "store": StoreState(commit_age=1.0)}

    def take() -> FeedItem:
        self.taken += 1
        return FeedItem(Snapshot(**self.figures), {})

    def go_on(seconds: float) -> None:
        for _ in range(int(4 * seconds)):
            self.now += 0.25
            self.figures["at"] += 0.25
            self.feed.beat()

    for module in (feed_module, site_module):
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
    self.feed, self.go_on = Feed(take), go_on
    self.feed.beat()
    return self


def test_who_asks_for_health_takes_nothing_of_the_crawl(watched):
    """However often: anybody may ask, so an answer neither waits nor makes the crawl look at itself."""
    for _ in range(40):
        watched.go_on(0.25)
        assert health(watched.feed, 30).status == readiness(watched.feed).status == 200
    assert watched.taken == 2  # the points of the past


def test_a_loop_that_does_not_answer_is_not_well(watched):
    watched.go_on(7)
    watched.now += 4.9
    assert health(watched.feed, 30).status == readiness(watched.feed).status == 200
    watched.now += 0.2
    assert health(watched.feed, 30).status == readiness(watched.feed).status == 503
    watched.go_on(0.25)
    assert health(watched.feed, 30).status == readiness(watched.feed).status == 200
    watched.feed.close("finished")
    assert health(watched.feed, 30).status == readiness(watched.feed).status == 503


def test_a_commit_that_is_too_old_is_not_well(watched):
    watched.figures["store"] = StoreState(commit_age=31.0)
    watched.go_on(10)
    assert (health(watched.feed, 30).status, readiness(watched.feed).status) == (503, 200)


def test_a_crawl_is_ready_at_the_end_of_its_pause(watched):
    watched.figures["not_before"] = 65.0
    watched.go_on(14.75)
    assert (health(watched.feed, 30).status, readiness(watched.feed).status) == (200, 503)
    watched.go_on(0.25)
    assert readiness(watched.feed).status == 200


# Settings


def test_where_it_listens():
    own = "127.0.0.1"
    for given, where in (
        *((each, None) for each in (False, "False")),
        *((each, Listen(own, None)) for each in (True, "1")),
        *((each, Listen(own, 6810)) for each in ("127.0.0.1:6810", "6810", 6810)),
        ("[::1]:0", Listen("::1", 0)),
        ("localhost:6810", Listen("localhost", 6810)),
    ):
        assert read_dashboard({"AOPIC_DASHBOARD": given}) == where, given


# Stored jobs


async def test_a_stored_job_has_the_figures_of_its_last_commit(serve, tmp_path):
    serve(PAGES)
    await crawl(Follow, {**SCHEDULER, "JOBDIR": str(tmp_path), "AOPIC_STORE": "sqlite"})
    known = ask_view(tmp_path, snapshot_of)
    with serving_job(FolderPlace(tmp_path)) as port:
        paths = ("/", "/api/v1/snapshot", "/metrics", "/healthz", "/readyz", "/api/v1/top")
        found = {path: get(port, path) for path in paths}
    now = json.loads(found["/api/v1/snapshot"].text)
    for name in ("pages", "hosts", "ledger", "outcomes"):
        assert now[name] == msgspec.to_builtins(getattr(known, name))
    assert not now["is_live"]
    assert now["is_closed"]
    assert now["verdict"]["sentence"]
    assert "aopic_job_visited 2\n" in found["/metrics"].text
    assert (found["/healthz"].status, found["/healthz"].text) == (200, "ok\n")
    assert found["/readyz"].status == 503  # it makes no requests
    assert [page["url"] for page in json.loads(found["/api/v1/top"].text)["pages"]]


async def test_a_store_that_goes_away_leaves_the_last_figures(serve, tmp_path):
    serve(PAGES)
    folder = tmp_path / "job"
    await crawl(Follow, {**SCHEDULER, "JOBDIR": str(folder), "AOPIC_STORE": "sqlite"})
    now = 0.0
    watch = StoredWatch(FolderPlace(folder), clock=lambda: now)
    assert not watch.snapshot().problem
    folder.rename(tmp_path / "elsewhere")
    now += 3
    seen = watch.snapshot()
    assert seen.pages.visited == 2
    assert "There is no store" in seen.problem


def test_the_past_is_that_of_the_job_and_then_of_this_run(tmp_path):
    path = tmp_path / "history.csv"
    lines = "".join(f"{n},{n / 2},3\n" for n in range(1, 2501))
    path.write_text(f"at,rate.pages,hosts.ready\n{lines}nan,1,2\n99")
    seen: list[dict[str, float | None]] = [{"at": at, "rate.pages": 7.0} for at in (2499.0, 2501.0)]
    points = ChartHistory(lambda: seen, path).points()
    assert len(points) == 834 + 1
    assert {name: value for name, value in points[-2].items() if value is not None} == {
        "at": 2500, "rate.pages": 1250, "hosts.ready": 3,
    }  # fmt: skip
    assert points[-1] == seen[1]
    for nowhere in (tmp_path / "none.csv", None, tmp_path):  # a folder cannot be read
        assert ChartHistory(lambda: seen, nowhere).points() == seen


def test_a_stored_job_is_no_more_open_than_a_live_one(tmp_path):
    with pytest.raises(SettingError, match="AOPIC_DASHBOARD_TOKEN must be set"):
        serve_job(FolderPlace(tmp_path), Listen("0.0.0.0", 0), {}, say=print)


async def test_it_says_why_a_page_waits(look):
    seen = await look(
        "/api/v1/why?of=http://a.test/", "/api/v1/why?of=b.test", "/api/v1/why", AOPIC_STORE="sqlite"
    )
    of_url, of_host, of_nothing = (json.loads(found.text) for found in seen.values())
    assert of_url["about"] == "http://a.test/"
    assert of_url["sentences"]
    assert of_host["about"] == "b.test"
    assert of_nothing == {"problem": "A URL or the name of a host is needed."}


def test_domains_are_those_of_most_fetches_and_the_others_together(tmp_path):
    make_job(tmp_path, "sqlite", 120)  # hosts h0 to h49, domains of their own
    with open_view(FolderPlace(tmp_path)) as view:
        found = top_domains(view, 3)["domains"]
        assert [row["domain"] for row in found] == ["h0", "h1", "h10", ""]
        assert found[0] == {"domain": "h0", "hosts": 1, "visited": 0, "queued": 3, "importance": None}
        assert found[-1]["hosts"] == 47
        assert sum(row["queued"] for row in found) == 120
        assert len(top_domains(view, 50)["domains"]) == 50
        valued = top_domains(view, 3, has_importance=True)["domains"]
        assert valued[0]["importance"] == pytest.approx(3 / 120, rel=0.01)
        assert sum(row["importance"] for row in valued) == pytest.approx(1)


def store_of(hosts: dict[str, HostRecord], pages: dict[str, Page]) -> MemoryStore:
    """A store that has these *hosts*, and *pages* by their URLs without the scheme."""
    store = MemoryStore()
    rows: Batch = {family: {} for family in (Family.HOSTS, Family.PAGES, Family.REQUESTS, Family.META)}
    rows[Family.HOSTS] = {host_key(name): pack_host(record) for name, record in hosts.items()}
    for url, record in pages.items():
        page = page_key(host_key(url.partition("/")[0]), url.encode())
        rows[Family.PAGES][page] = pack_page(record)
        rows[Family.REQUESTS][page] = pack({"url": f"http://{url}"})
    spent = sum(record.history for record in pages.values())
    saved = CrawlTotals("", created_at=0.0, saved_at=0.0, ledger=Totals(history=spent))
    rows[Family.META][TOTALS_KEY] = saved.pack()
    store.write(rows, sync=True)
    return store


def test_a_part_of_a_site_that_took_much_and_brought_little_may_be_a_trap():
    """A calendar is one, on a host of its own or beside better pages; an archive that brings as much as others is none."""
    sites = {
        "days.test": [(f"/cal/{n}/", 1) for n in range(80)] + [(f"/cal/{n}/later/later/", 1) for n in range(80)],
        "town.test": [(f"/events?day={n}", 1) for n in range(60)] + [(f"/news/{chr(97 + n % 26)}{n}x", 90) for n in range(90)],
        "archive.test": [(f"/issue/{n}/", 100) for n in range(300)],
        "gone.test": [(f"/lost/{n}/", 0) for n in range(100)],
    }  # fmt: skip
    hosts = {name: HostRecord(name, visited=len(pages), queued=5) for name, pages in sites.items()}
    pages = {
        f"{name}{path}": Page(
            PageState.VISITED, 0, history=history, visits=1, outcome="http 404" * (name == "gone.test")
        )
        for name, paths in sites.items()
        for path, history in paths
    }
    spent = sum(page.history for page in pages.values())
    first, second = find_traps(View([store_of(hosts, pages)]), "a job")
    assert (first.pattern, first.host) == ("days.test/cal/*", "days.test")
    assert (first.visited, first.queued) == (160, 0)
    assert first.visited_part == pytest.approx(160 / 710)
    assert first.brought_part == pytest.approx(160 / spent)
    assert first.command == "scrapy aopic control 'a job' block days.test"
    assert first.deny_url == r"://days\.test/cal/"
    assert second.pattern == "town.test/events?day=*"
    assert second.command == "scrapy aopic control 'a job' slow 60 town.test"
    assert second.deny_url == r"://town\.test/events\?"
    assert find_traps(View([MemoryStore()]), "none") == []


def test_what_the_order_holds_back_may_be_a_trap_whatever_it_brought():
    """A group by its URLs, and a tree, which has no URLs of one make, by its branch; a mirror and a page of a full directory are none."""
    kinds = {
        "/shop?colour={}": {"lowered": QUEUES}, "/tree/{1}/{1}x": {"lowered": QUEUES, "branch": 7},
        "/twin/{}": {"lowered": MIRRORED, "branch": 8}, "/full/{}": {"lowered": 1, "branch": 9},
    }  # fmt: skip
    pages = {}
    for path, fields in kinds.items():
        for n in range(35):
            url = path.format(n, chr(97 + n % 26) * (1 + n // 26))
            visits = int(n < 10)
            state = PageState.VISITED if visits else PageState.QUEUED
            pages[f"town.test{url}"] = Page(state, 0, history=50 * visits, visits=visits, **fields)
    hosts = {"town.test": HostRecord("town.test", visited=40, queued=100)}
    found = {trap.pattern: trap for trap in find_traps(View([store_of(hosts, pages)]), "a job")}
    assert {*found} == {"town.test/shop?colour=*", "town.test/tree/*"}
    for trap in found.values():
        assert (trap.visited, trap.queued, trap.held) == (10, 25, 25)
    assert found["town.test/tree/*"].deny_url == r"://town\.test/tree/"


def test_a_pattern_is_what_urls_of_a_part_have_in_common():
    for url, pattern in {
        "http://a.test/shop/12/item.html?sort=up&page=3": "a.test/shop/*/item.html?page=*&sort=*",
        "http://a.test/a/a/a/b/0123456789abcdef/": "a.test/a/b/*/",
        "http://[a.test/": "http://[a.test/",
        "http://a.test/" + 3000 * "b/c/": ("a.test/" + 60 * "b/c/")[:200],
    }.items():
        assert pattern_of(url) == pattern, url


def test_hosts_are_found_by_a_part_of_their_name(tmp_path):
    make_job(tmp_path, "sqlite", 120)
    with open_view(FolderPlace(tmp_path)) as view:
        names = {row.name for row in hosts_by(view, "queued", 50, "h1")}
        assert names == {"h1", *(f"h1{n}" for n in range(10))}
        assert len(hosts_by(view, "queued", 2, "h1")) == 2
        assert hosts_by(view, "fetched", 2, "h1") == []


def test_questions_without_a_pause_take_a_tenth_of_a_core_at_most(monkeypatch):
    now, used, rested = 100.0, 0.0, list[float]()

    def rest(seconds: float) -> None:
        nonlocal now
        rested.append(seconds)
        now += seconds

    def look(_: object) -> dict[str, str]:
        nonlocal now, used
        now, used = now + 0.2, used + 0.1
        return {}

    monkeypatch.setattr(site_module, "monotonic", lambda: now)
    monkeypatch.setattr(site_module, "thread_time", lambda: used)
    monkeypatch.setattr(site_module, "sleep", rest)
    asked = site_module._OneAtATime(look)
    for _ in range(20):
        asked.show({})
    assert sum(rested) == pytest.approx(19 * 9 * 0.1)
    now += 60
    asked.show({})
    assert rested[-1] == 0, "somebody who asks now and then does not wait"
