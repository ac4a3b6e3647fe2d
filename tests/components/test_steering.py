"""``scrapy aopic control``: crawls that an operator pauses, slows down, limits, and keeps from hosts, while they run and later."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from scrapy.http import Response
from support import processes, redis_server
from support.commands import run_here
from support.crawls import in_folder, on_server
from support.small_web import Follow, Web, check, crawl

from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.exceptions import SettingError, StorageError
from scrapy_aopic.place.folder_place import CONTROL_FILE, FolderPlace
from scrapy_aopic.place.place import Place
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import ask_of_crawl, change_control, read_control
from scrapy_aopic.session.session import Session

HOSTS = ("a.test", "b.test", "www.c.test", "c.test")
PAGES: dict[str, Any] = {
    f"http://{host}/{path}": [f"http://{other}/{n}" for other in HOSTS for n in range(5)]
    for host in HOSTS
    for path in ("", *range(5))
}
N_PAGES = len(HOSTS) * 5 + 1
"""That links lead to, and the first one."""


async def until(is_true: Callable[[], object]) -> None:
    """Wait for something that other processes and threads do."""
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def of_host(web: Web, *hosts: str) -> list[str]:
    return [url for url in web.asked if url.split("/")[2] in hosts]


class Pausing(Follow):
    """Pauses the crawl on its fifth page, and lets it go on when nothing has happened for a while."""

    counts: tuple[int, int] = (0, 0)
    place: Any = None
    web: Any = None

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for request in super().parse(response):
            yield request
        if self.crawler.stats.inc_value("pages") or self.crawler.stats.get_value("pages") != 5:
            return
        session = Session.of(self.crawler)
        change_control(self.place, lambda control: control.paused(session.job.clock()))
        watch, visits = session.watch, session.visits
        await until(lambda: watch.snapshot().verdict.limit == "paused" and not visits.n_downloading)
        before = len(self.web.log)
        assert session.steering.control.paused_since
        await asyncio.sleep(0.7)
        self.counts = before, len(self.web.log)
        change_control(self.place, Control.resumed)


@pytest.mark.slow
async def test_a_paused_crawl_requests_nothing_and_goes_on_when_it_is_resumed(serve, tmp_path, caplog):
    web = serve(PAGES)
    settings = in_folder(tmp_path, CONCURRENT_REQUESTS=2)
    change_control(FolderPlace(tmp_path), lambda control: control.limited(rate=8.0))
    with caplog.at_level(logging.INFO):
        crawler = await crawl(Pausing, settings, place=FolderPlace(tmp_path), web=web)
    before, after = crawler.spider.counts
    assert 5 <= before == after < N_PAGES
    assert sorted(web.asked) == sorted({*web.asked})
    assert len(web.asked) == N_PAGES
    assert ": no page is requested; at most 8 pages a second" in caplog.text
    assert caplog.text.count("Control settings now in force: at most 8 pages a second") == 2
    assert check(tmp_path).holds
    assert read_control(FolderPlace(tmp_path)) == Control(rate=8.0)


@pytest.mark.slow
async def test_a_run_that_was_stopped_ends_and_the_next_one_goes_on(serve, tmp_path):
    web, place, is_told = serve(PAGES), FolderPlace(tmp_path), Event()

    class Stopping(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            for request in super().parse(response):
                yield request
            if len(web.asked) >= 3 and not is_told.is_set():
                is_told.set()
                ask_of_crawl(place, "stop", [])

    settings = in_folder(tmp_path)
    ask_of_crawl(place, "rate", ["8"])
    crawler = await crawl(Stopping, settings)
    assert crawler.stats.get_value("finish_reason") == "aopic_stopped"
    assert len(web.asked) < N_PAGES
    ask_of_crawl(place, "rate", ["0"])
    crawler = await crawl(Follow, settings)
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert len(web.asked) == N_PAGES
    assert [each.what for each in read_control(place).asked] == ["rate 8", "stop", "rate 0"]


async def test_links_to_denied_urls_are_not_followed_until_they_are_allowed_again(serve, tmp_path, aopic):
    """While it runs: the fifth page allows what was denied before it began, and denies another pattern."""
    web, place = serve(PAGES), FolderPlace(tmp_path)

    class Denying(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            if self.crawler.stats.inc_value("pages") or self.crawler.stats.get_value("pages") != 5:
                for request in super().parse(response):
                    yield request
                return
            session = Session.of(self.crawler)
            ask_of_crawl(place, "allow", ["/1$"])
            ask_of_crawl(place, "deny", ["://c[.]test/4"])
            await until(lambda: session.steering.look() or "/1$" not in session.steering.control.denied)
            session.admission.deny(session.steering.control.denies())
            for request in super().parse(response):
                yield request

    ask_of_crawl(place, "deny", ["/1$", "//b[.]"])
    crawler = await crawl(Denying, in_folder(tmp_path))
    assert len(web.asked) == N_PAGES - 5 - 1 + ("http://c.test/4" in web.asked)
    assert not of_host(web, "b.test")
    assert "http://a.test/1" in web.asked
    assert crawler.stats.get_value("aopic/urls/refused/denied") >= 5
    said = "refused\n  An operator has denied such URLs: no links to them are followed.\n"
    assert aopic("why", str(tmp_path), "http://b.test/2")[1] == f"http://b.test/2: {said}"
    assert aopic("control", str(tmp_path))[1] == "no links to: //b[.], ://c[.]test/4\n"


@pytest.mark.slow
async def test_a_job_that_was_paused_stays_so_in_its_next_run(serve, tmp_path):
    web = serve(PAGES)
    settings = in_folder(tmp_path)
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 3})
    n = len(web.asked)
    change_control(FolderPlace(tmp_path), lambda control: control.paused(1.0))
    crawler = await crawl(Follow, {**settings, "CLOSESPIDER_TIMEOUT": 1.0})
    assert (
        crawler.stats.get_value("finish_reason") == "closespider_timeout"
    )  # it is neither idle nor finished
    assert len(web.asked) == n
    change_control(FolderPlace(tmp_path), Control.resumed)
    await crawl(Follow, settings)
    assert len(web.asked) == N_PAGES


@pytest.mark.slow
async def test_blocked_hosts_are_left_alone_and_keep_their_pages(serve, tmp_path, caplog, aopic):
    web = serve(PAGES)
    change_control(FolderPlace(tmp_path), lambda control: control.blocking(["c.test"], 1.0))
    with caplog.at_level(logging.INFO):
        crawler = await crawl(Follow, in_folder(tmp_path))
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert of_host(web, "c.test", "www.c.test") == []
    assert len(web.asked) == 11
    audit = check(tmp_path)
    assert audit.holds
    assert audit.queued == 10
    said = "0 of them on hosts that do not answer, and 10 on hosts that were blocked or have had all of their pages"
    assert f"Pages queued: 10, {said}" in caplog.text
    answer = await asyncio.to_thread(aopic, "why", tmp_path, "http://www.c.test/1")
    assert "An operator has blocked c.test at 1970-01-01 00:00:01+00:00" in answer[1]
    assert "blocked: c.test" in (await asyncio.to_thread(aopic, "status", tmp_path))[1]
    status = json.loads((await asyncio.to_thread(aopic, "status", "--json", tmp_path))[1])
    assert status["control"]["sentences"] == ["blocked: c.test"]


class Unblocking(Follow):
    """Blocks a host on its first page, and unblocks it when all else is done."""

    place: Any = None
    web: Any = None
    asked_before: Any = None

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        session = Session.of(self.crawler)
        if response.url == "http://a.test/":
            change_control(self.place, lambda control: control.blocking(["b.test"], 1.0))
            await until(lambda: session.steering.control.blocked)
        for request in super().parse(response):
            yield request
        if response.url == "http://www.c.test/4":
            await until(lambda: not (session.job.crawl.blocked != (1, 5) or len(session.visits) > 1))
            self.asked_before = of_host(self.web, "b.test")
            change_control(self.place, lambda control: control.unblocking(["b.test"]))
            await until(lambda: not (session.steering.control.blocked))


def places(
    tmp_path: Path, request: pytest.FixtureRequest, *, is_served: bool, shards: int
) -> tuple[Place, dict[str, Any]]:
    """Where a job is, and the settings for that."""
    if not is_served:
        return FolderPlace(tmp_path), in_folder(tmp_path)
    from scrapy_aopic.storage import Address

    server = request.getfixturevalue("redis_url")
    return ServerPlace(Address("aopic:follow", server)), on_server(server, shards)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    if redis_server.find_server() is None:
        pytest.skip(redis_server.WHY_NOT)
    with redis_server.Server(tmp_path / "server") as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize(("is_served", "shards"), [(False, 1), (True, 1), (True, 4)])
async def test_hosts_are_blocked_and_unblocked_while_a_crawl_runs(
    serve, tmp_path, request, *, is_served, shards
):
    web = serve(PAGES)
    place, settings = places(tmp_path, request, is_served=is_served, shards=shards)
    crawler = await crawl(Unblocking, settings, place=place, web=web)
    assert crawler.spider.asked_before == []
    assert len(of_host(web, "b.test")) == 5
    assert len(web.asked) == N_PAGES
    assert read_control(place) == Control()


@pytest.mark.slow
async def test_a_slow_host_gets_its_gap(serve, tmp_path):
    pages = {f"http://a.test/{n}": [] for n in range(3)}
    web = serve({"http://a.test/": [*pages], **pages})
    change_control(FolderPlace(tmp_path), lambda control: control.slowing(["a.test"], 0.4, 1.0))
    await crawl(Follow, in_folder(tmp_path))
    entries = sorted(web.log, key=lambda entry: entry.start)
    assert len(entries) == 4
    for first, second in pairwise(entries):
        assert second.start - first.start >= 0.4


@pytest.mark.slow
async def test_connections_and_rate_are_limited(serve, tmp_path):
    web = serve(PAGES)
    change_control(FolderPlace(tmp_path), lambda control: control.limited(connections=1, rate=20.0))
    await crawl(Follow, in_folder(tmp_path, CONCURRENT_REQUESTS=16))
    entries = sorted(web.log, key=lambda entry: entry.start)
    assert len(entries) == N_PAGES
    for first, second in pairwise(entries):
        assert second.start >= first.end, "one at a time"
    assert entries[-1].start - entries[0].start >= 0.9 * (N_PAGES - 1) / 20


# -- what cannot be


@pytest.fixture
def aopic(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a subcommand; returns its exit code, and what it wrote."""
    return partial(run_here, capsys)


def test_the_command_says_what_is_asked(aopic, tmp_path):
    assert aopic("control", tmp_path) == (0, f"Nothing is set for the crawl of {tmp_path}.\n", "")
    assert aopic("control", tmp_path, "block", "Example.com", "b.test")[1] == "blocked: b.test, example.com\n"
    assert "slowed down: c.test (2.5 s)" in aopic("control", tmp_path, "slow", "2.5", "c.test")[1]
    assert "paused" in aopic("control", tmp_path, "pause")[1]
    shown = json.loads(aopic("control", tmp_path, "--json")[1])
    assert shown["slowed"]["c.test"]["gap"] == 2.5
    assert aopic("control", tmp_path, "resume")[1] == aopic("control", tmp_path)[1]
    (tmp_path / CONTROL_FILE).write_text("{")
    assert f"'scrapy aopic control {tmp_path} reset' removes it" in aopic("control", tmp_path, "resume")[2]
    assert aopic("control", tmp_path, "reset") == (0, f"Nothing is set for the crawl of {tmp_path}.\n", "")


async def test_the_command_says_which_names_the_job_does_not_know(serve, tmp_path, aopic):
    serve({"http://a.test/": ["http://www.b.test/"], "http://www.b.test/": []})
    await crawl(Follow, in_folder(tmp_path))
    known = aopic("control", tmp_path, "block", "a.test", "b.test", "www.b.test", "test")[1]
    assert known == "blocked: a.test, b.test, test, www.b.test\n"
    said = aopic("control", tmp_path, "slow", "2", "b.test", "c.test", "www.a.test")[1]
    assert "No page of c.test or www.a.test is known to the job: this holds if" in said
    assert "is known to the job" not in aopic("control", tmp_path, "unblock", "a.test")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("unblock", "d.test"), "d.test is not blocked: nothing is blocked"),
        (("block", "http://a.test/"), "is no name of a host or domain"),
        (("block",), "'block' takes NAME... after it, and nothing was given"),
        (("slow", "3"), "'slow' takes SECONDS NAME... after it, and '3' was given"),
        (("pause", "now"), "'pause' takes nothing after it, and 'now' was given"),
        (("rate", "fast"), "'fast' after 'rate' is no number"),
        (("rate", "nan"), "a limit of nan pages a second cannot be"),
        (("connections", "1.5"), "'1.5' after 'connections' is no whole number"),
        (("halt",), 'there is no action "halt"'),
    ],
)
def test_the_command_refuses_what_cannot_be(aopic, tmp_path, arguments, said):
    code, _, shown = aopic("control", tmp_path, *arguments)
    assert code != 0
    assert said in shown
    assert shown.endswith(" See scrapy aopic docs commands#control\n")
    assert "Traceback" not in shown
    assert not (tmp_path / CONTROL_FILE).exists()


def test_control_of_a_job_that_is_not_there_is_refused(aopic, tmp_path):
    assert "There is no job folder" in aopic("control", tmp_path / "gone", "pause")[2]


def test_changes_by_several_processes_all_count(tmp_path):
    code = (
        "import sys; from pathlib import Path; from scrapy_aopic.place.folder_place import FolderPlace;"
        "from scrapy_aopic.place.stored_control import change_control\n"
        "for n in range(20): change_control(FolderPlace(Path(sys.argv[1])), lambda c: c.blocking([f'{sys.argv[2]}{n}.test'], 1.0))"
    )
    several = [processes.start([sys.executable, "-c", code, str(tmp_path), each]) for each in "xyz"]
    assert [process.wait(60) for process in several] == [0, 0, 0]
    assert len(read_control(FolderPlace(tmp_path)).blocked) == 60


@pytest.mark.slow
async def test_a_damaged_control_stops_a_crawl_before_it_begins_and_changes_nothing_later(
    serve, tmp_path, caplog
):
    web = serve(PAGES)
    settings = in_folder(tmp_path)
    (tmp_path / CONTROL_FILE).write_text('{"blocked": {"*.a.test": 1}}')
    await crawl(Follow, settings)
    assert web.asked == []
    assert "cannot be used: '*.a.test' is no name of a host or domain" in caplog.text
    (tmp_path / CONTROL_FILE).unlink()

    class Damaging(Follow):
        async def parse(self, response: Response) -> AsyncIterator[Any]:
            if response.url == "http://a.test/":
                (tmp_path / CONTROL_FILE).write_text("nonsense")
                await until(lambda: "The previous settings stay in force" in caplog.text)
            for request in super().parse(response):
                yield request

    await crawl(Damaging, settings)
    assert len(web.asked) == N_PAGES


def test_a_refused_change_changes_nothing(tmp_path):
    change_control(FolderPlace(tmp_path), lambda control: control.paused(1.0))
    with pytest.raises(SettingError):
        change_control(FolderPlace(tmp_path), lambda control: control.unblocking(["a.test"]))
    assert read_control(FolderPlace(tmp_path)) == Control(paused_since=1.0)
    with pytest.raises(StorageError, match="There is no job folder"):
        change_control(FolderPlace(tmp_path / "gone"), Control.resumed)
