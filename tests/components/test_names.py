"""Names are looked up before hosts get connections, by threads that nothing waits for, and dead ones hold nobody up."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from subprocess import PIPE
from typing import Any

import pytest
import scrapy
from demo_web.server import Answer, Exchange, Server
from packaging.version import Version
from scrapy.http import Response
from support.processes import run
from support.small_web import Follow, Web, crawl, html, until

from scrapy_aopic._engine import name_lookups
from scrapy_aopic._engine.name_lookups import NameLookups

ADDON: dict[str, Any] = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "AOPIC_ALLOW_NETWORKS": ["127.0.0.0/8"],
    "AOPIC_BACKOFF": 5,
    "RETRY_ENABLED": True,
}


class Names:
    """The system's resolver: names are those of this machine, but that of those with ``dead`` nothing is known.

    Attributes:
        asked: How often each was asked for.
        most: Look-ups at once.
        hold: What each dead name waits for.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.most = self.n = 0
        self.hold: Callable[[], object] = lambda: None
        self.error = socket.EAI_NONAME
        self.known: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        with self._lock:
            self.asked[host] += 1
            self.n += 1
            self.most = max(self.n, self.most)
        try:
            if "dead" in host:
                self.hold()
                raise socket.gaierror(self.error, "no such name")
            return [
                (
                    socket.AF_INET6 if ":" in address else socket.AF_INET,
                    socket.SOCK_STREAM,
                    6,
                    "",
                    (address, 0),
                )
                for address in self.known.get(host, ["127.0.0.1"])
            ]
        finally:
            with self._lock:
                self.n -= 1


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    from twisted.internet import reactor
    from twisted.internet._resolver import GAIResolver

    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    installed: Any = reactor
    before = installed.installNameResolver(GAIResolver(installed))
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    installed.installNameResolver(before)


@pytest.fixture
def web() -> Iterator[tuple[Web, dict[str, Any], int]]:
    pages: dict[str, Any] = {}

    def answer(exchange: Exchange) -> Answer:
        found = pages.get(f"{exchange.host}{exchange.target}")
        return (
            Answer(404) if found is None else Answer(headers={"Content-Type": "text/html"}, body=html(found))
        )

    server = Server(answer)
    with server.run_in_thread() as running:
        yield Web(server, pages), pages, running.port


@pytest.mark.slow
async def test_dead_names_hold_no_good_host(names, web):
    """While 150 names are looked up, all pages of 15 good hosts are fetched; then each name is known to be dead."""
    log, pages, port = web
    good = [f"good{n}.test" for n in range(15)]
    pages["hub.test/"] = [f"http://dead{n}.test:{port}/" for n in range(150)]
    pages["hub.test/"] += [f"http://{host}:{port}/" for host in good]
    for host in good:
        pages[f"{host}/"] = [f"http://{host}:{port}/{n}" for n in range(1, 10)]
        pages |= {f"{host}/{n}": [] for n in range(1, 10)}
    all_there = threading.Event()
    names.hold = lambda: all_there.wait(120)

    class Hub(Follow):
        n = 0

        def parse(self, response: Response) -> Iterator[Any]:
            self.n += 1
            if self.n == 151:
                assert names.most >= 150
                all_there.set()
            yield from super().parse(response)

    settings = {**ADDON, "AOPIC_MAX_WAIT": 1}
    crawler = await crawl(Hub, settings, start_urls=[f"http://hub.test:{port}/"])
    assert len(log.asked) == 151
    assert all_there.is_set()
    assert max(names.asked.values()) == 1
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"
    assert crawler.stats.get_value("retry/count") is None


@pytest.mark.slow
async def test_the_end_of_a_crawl_does_not_wait_for_names(names, web):
    log, pages, port = web
    pages["hub.test/"] = [f"http://dead{n}.test:{port}/" for n in range(300)]
    over = threading.Event()
    names.hold = lambda: over.wait(60)

    starts = [f"http://hub.test:{port}/"]
    try:
        crawler = await crawl(until(lambda: names.n == 256), ADDON, start_urls=starts)
        assert names.n == 256  # the others wait for these
    finally:
        over.set()
    assert log.asked == ["http://hub.test/"]
    assert crawler.stats.get_value("finish_reason") == "shutdown"


@pytest.mark.slow
def test_the_end_of_a_process_does_not_wait_for_names():
    code = f"""
import os, signal, socket, sys, threading
from scrapy import Spider
from scrapy.crawler import AsyncCrawlerProcess

asked = []
def getaddrinfo(host, *_, **__):
    asked.append(host)
    if len(asked) == 20:
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()

socket.getaddrinfo = getaddrinfo
class Dead(Spider):
    name = "dead"
    start_urls = [f"http://dead{{n}}.test/" for n in range(20)]
process = AsyncCrawlerProcess({{**{ADDON!r}, "TWISTED_REACTOR_ENABLED": sys.argv[1] == "reactor", "LOG_ENABLED": False}})
crawler = process.create_crawler(Dead)
process.crawl(crawler)
process.start()
print(crawler.stats.get_value("finish_reason"), flush=True)
"""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    for way in ["reactor", *(["none"] if Version(scrapy.__version__) >= Version("2.19") else [])]:
        done = run([sys.executable, "-c", code, way], stdout=PIPE, text=True, env=environment, timeout=60)
        assert (done.returncode, done.stdout) == (0, "shutdown\n"), way


async def test_each_name_that_is_not_known_is_asked_for_by_the_schedule_of_silent_hosts(
    names, web, monkeypatch
):
    """If the name server fails, there may be such a host: it is tried again as one that is silent."""
    monkeypatch.setattr(name_lookups, "_KEPT_IF_UNKNOWN", 3600.0)
    _, _, port = web
    names.error = socket.EAI_AGAIN

    settings = {**ADDON, "AOPIC_BACKOFF": 0.01, "ROBOTSTXT_OBEY": False, "AOPIC_MAX_WAIT": 1}
    crawler = await crawl(Follow, settings, start_urls=[f"http://dead.test:{port}/"])
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"
    assert crawler.stats.get_value("aopic/politeness/down") == 5
    assert crawler.stats.get_value("retry/count") is None
    assert names.asked["dead.test"] == 1  # what was found serves for all of them


async def test_the_next_address_is_used_if_one_does_not_answer(names, web):
    """Those of IPv4 come first, and each is asked about."""
    log, pages, port = web
    pages["both.test/"] = []
    names.known = {"both.test": ["::1", "127.0.0.2", "127.0.0.1"], "six.test": ["::1", "::2"]}

    starts = [f"http://{name}.test:{port}/" for name in ("both", "six")]
    settings = {**ADDON, "AOPIC_ALLOW_NETWORKS": ["127.0.0.1"], "AOPIC_MAX_WAIT": 1}
    crawler = await crawl(Follow, settings, start_urls=starts)
    assert log.asked == ["http://both.test/"]
    assert crawler.stats.get_value("aopic/outcomes/network") == 1


async def test_a_look_up_that_takes_too_long_is_given_up(names, web):
    port, over = web[2], threading.Event()
    names.hold = lambda: over.wait(60)

    settings = {"DNS_TIMEOUT": 0.1, "AOPIC_BACKOFF": 0.01, "ROBOTSTXT_OBEY": False, "AOPIC_MAX_WAIT": 1}
    try:
        starts = [f"http://dead.test:{port}/"]
        crawler = await crawl(Follow, {**ADDON, **settings}, start_urls=starts)
        assert names.n == 1
    finally:
        over.set()
    assert crawler.stats.get_value("finish_reason") == "aopic_unreachable"


def test_what_is_remembered_is_bounded_and_an_old_address_is_better_than_none(monkeypatch):
    now, asked, found = 0.0, [], []
    answers = {name: name_lookups.Answer((f"192.0.2.{number}",)) for number, name in enumerate("abc")}

    def ask(name: str, tell: Callable[[name_lookups.Answer], None]) -> None:
        asked.append(name)
        tell(answers[name])

    monkeypatch.setattr(name_lookups, "monotonic", lambda: now)
    lookups = NameLookups(ask, size=2, timeout=60, is_kept=True)
    for name in "abcaa":
        lookups.find(name, found.append)
    assert asked == ["a", "b", "c", "a"]
    now, answers["a"], answers["c"] = 301.0, name_lookups.Answer(), name_lookups.Answer((), is_final=True)
    for name in "aac":
        lookups.find(name, found.append)
    assert asked[4:] == ["a", "c"]
    assert found[5:] == [name_lookups.Answer(("192.0.2.0",))] * 2 + [answers["c"]]
    now += 10
    lookups.find("a", found.append)
    assert asked[6:] == ["a"]


EARLY = """
import sys
from scrapy import Spider, addons, cmdline
from scrapy.settings import Settings

read, ours, is_applied, given = set(), set(), True, None

class Spy(Settings):
    def __getitem__(self, name):
        if self is given or not is_applied:
            read.add(name)
        return super().__getitem__(name)

    def items(self):  # to read all is to need none
        return [(name, super(Spy, self).__getitem__(name)) for name in self]

load = addons.AddonManager.load_settings

def load_settings(self, settings):
    global is_applied
    is_applied = True
    load(self, settings)
    ours.update(name for name in settings if settings.getpriority(name) == 15)

addons.AddonManager.load_settings = load_settings
given = Spy({"ADDONS": {"scrapy_aopic.Addon": 500}, "LOG_LEVEL": "ERROR"})
is_applied = False
try:
    cmdline.execute(["scrapy", "runspider", sys.argv[1]], settings=given)
finally:
    print(len(ours), *sorted(ours & read), sep=",")
    print(*sorted(read), sep=",")
"""


@pytest.mark.slow
def test_the_addon_sets_nothing_that_is_read_before_it_is_asked(tmp_path):
    spider = tmp_path / "none.py"
    spider.write_text("from scrapy import Spider\n\nclass Nothing(Spider):\n    name = 'nothing'\n")
    done = run([sys.executable, "-c", EARLY, str(spider)], stdout=PIPE, text=True, cwd=tmp_path)
    both, read = done.stdout.splitlines()
    n, *too_late = both.split(",")
    assert too_late == []
    assert int(n) > 20
    assert {"LOG_LEVEL", "REACTOR_THREADPOOL_MAXSIZE", "TWISTED_DNS_RESOLVER", "DNS_TIMEOUT"} <= set(
        read.split(",")
    )
