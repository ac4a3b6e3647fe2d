"""What a public page cannot have fetched: nothing of the crawler's own network, whatever form its links have."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from subprocess import PIPE
from typing import Any

import pytest
import scrapy
from demo_web.server import Answer, Exchange, Server
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from scrapy import Request, Spider, signals
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from support.crawls import Visits, in_folder
from support.processes import run
from support.small_web import Follow, crawl, html
from twisted.internet import reactor as installed
from twisted.internet.address import IPv4Address
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from scrapy_aopic.request_errors import NetworkError, ServiceError
from scrapy_aopic.settings import read
from scrapy_aopic.web.networks import Allowed, Networks, literal_address
from scrapy_aopic.web.urls import Normaliser

reactor: Any = installed

PUBLIC, INSIDE, OTHER = "127.0.0.9", "127.0.0.1", "127.0.0.2"
"""Addresses of this machine: one that stands for a public one, and two others."""

ADDON: dict[str, Any] = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "AOPIC_ALLOW_NETWORKS": [PUBLIC],
    "RETRY_ENABLED": True,
    "METAREFRESH_ENABLED": True,
    "REMOTE_CONTROL_ENABLED": False,
}


class Names:
    """A resolver of names (``IHostnameResolver``): each has some addresses at a time; others are themselves."""

    def __init__(self, resolver: Any, known: dict[str, list[list[str]]]) -> None:
        self._resolver = resolver
        self._known = known

    def resolveHostName(self, receiver: Any, hostName: str, portNumber: int = 0, **options: Any) -> Any:
        answers = self._known.get(hostName)
        if answers is None:
            return self._resolver.resolveHostName(receiver, hostName, portNumber=portNumber, **options)
        receiver.resolutionBegan(self)
        for address in answers.pop(0) if len(answers) > 1 else answers[0]:
            receiver.addressResolved(IPv4Address("TCP", address, portNumber))
        receiver.resolutionComplete()
        return receiver


@contextmanager
def names(known: dict[str, list[list[str]]]) -> Iterator[None]:
    before = reactor.nameResolver
    reactor.installNameResolver(Names(before, known))
    try:
        yield
    finally:
        reactor.installNameResolver(before)


class World:
    """A public server and two inside."""

    def __init__(self, stack: ExitStack) -> None:
        self.pages: dict[str, Any] = {}
        self.public = self._start(stack, PUBLIC, self._answer)
        self.inside = self._start(stack, INSIDE, lambda _: Answer(body=b"secret"))
        self.other = self._start(stack, OTHER, lambda _: Answer(body=b"secret"))

    @staticmethod
    def _start(stack: ExitStack, address: str, answer: Callable[[Exchange], Answer]) -> Server:
        server = Server(answer, host=address)
        stack.enter_context(server.run_in_thread())
        return server

    def _answer(self, exchange: Exchange) -> Answer:
        page = self.pages.get(exchange.target)
        if isinstance(page, list):
            return Answer(headers={"Content-Type": "text/html"}, body=html(page))
        return page if page is not None else Answer(404)

    @property
    def home(self) -> str:
        return f"http://public.test:{self.public.port}/"

    def secret(self, host: str = INSIDE, path: str = "/secret") -> str:
        return f"http://{host}:{self.inside.port}{path}"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.delenv("http_proxy", raising=False)
    known = {
        "public.test": [[PUBLIC]],
        "inside.test": [[INSIDE]],
        "both.test": [[PUBLIC, INSIDE]],
        "later.test": [[PUBLIC], [INSIDE]],
        "wiki": [[INSIDE]],
    }
    with ExitStack() as stack:
        stack.enter_context(names(known))
        yield World(stack)


class Errors(Follow):
    """Follows links, and keeps what errbacks get."""

    wanted: list[str] = []

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.errors: list[Any] = []
        self.seen: list[str] = []

    def parse(self, response: Response) -> Iterator[Any]:
        self.seen.append(response.url)
        yield from super().parse(response) if hasattr(response, "text") else ()
        for url in self.wanted:
            yield Request(url, self.other, errback=self.failed)
            yield Request(url, self.other, dont_filter=True, method="POST", body=b"x")

    def other(self, response: Response) -> None:
        self.seen.append(response.url)

    def failed(self, failure: Any) -> None:
        self.errors.append(failure.value)


FORMS = [
    INSIDE,
    "localhost",
    "a.localhost",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1.",
    "[::ffff:127.0.0.1]",
    "[::1]",
    "0",
    "inside.test",
]


async def test_no_form_of_a_link_leads_inside(world, caplog):
    targets = [world.secret(form, f"/{n}") for n, form in enumerate(FORMS)]
    redirects = [Answer(302, headers={"Location": target}) for target in targets]
    refresh = f'<meta http-equiv="refresh" content="0; url={world.secret()}">'.encode()
    canonical = f'<link rel="canonical" href="{world.secret(path="/canonical")}">'.encode()
    page = {"Content-Type": "text/html"}
    sitemap = f"<urlset><url><loc>{world.secret(path='/sitemap')}</loc></url></urlset>".encode()
    world.pages = {
        "/": [*targets, "/refresh", "/canonical", *(f"/r{n}" for n in range(len(targets)))],
        "/refresh": Answer(headers=page, body=refresh),
        "/canonical": Answer(headers=page, body=canonical),
        "/robots.txt": Answer(
            body=f"Sitemap: {world.home}map.xml\nSitemap: {world.secret(path='/map.xml')}\n".encode()
        ),
        "/map.xml": Answer(headers={"Content-Type": "application/xml"}, body=sitemap),
        **{f"/r{n}": redirect for n, redirect in enumerate(redirects)},
    }
    settings = {**ADDON, "AOPIC_CANONICAL": "any", "AOPIC_SITEMAPS": True}
    crawler = await crawl(Errors, settings, start_urls=[world.home])
    assert world.inside.n_accepted == world.other.n_accepted == 0
    assert len(world.public.entries) >= len(targets) + 4
    stats = crawler.stats.get_stats()
    assert stats["aopic/urls/refused/network"] >= 2 * (len(targets) - 1)
    assert stats["aopic/safety/refused"] >= 1  # inside.test
    assert stats.get("retry/count", 0) == 0
    warned = [record.levelname for record in caplog.records if "AOPIC_ALLOW_NETWORKS" in record.getMessage()]
    assert warned == ["WARNING"] * 2


async def test_a_callback_requests_nothing_inside_and_its_errback_hears_of_it(world):
    world.pages = {"/": []}
    wanted = [world.secret(form) for form in ("127.1", "inside.test", "localhost")]
    settings = {**ADDON, "ROBOTSTXT_OBEY": False}
    crawler = await crawl(Errors, settings, start_urls=[world.home], wanted=wanted)
    assert world.inside.n_accepted == 0
    assert crawler.spider.seen == [world.home]
    assert [type(error) for error in crawler.spider.errors] == [NetworkError] * 3
    for error in crawler.spider.errors:
        assert isinstance(error, IgnoreRequest)
        assert "AOPIC_ALLOW_NETWORKS" in str(error)
    assert crawler.stats.get_value("retry/count") is None


async def test_a_download_inside_of_a_callback_is_refused(world):
    class Inline(Spider):
        name = "inline"
        n_refused = 0

        async def parse(self, response: Response) -> None:
            for url in (world.secret(), world.secret("inside.test")):
                with pytest.raises(NetworkError):
                    await self.crawler.engine.download_async(Request(url))
                self.n_refused += 1

    world.pages = {"/": []}
    crawler = await crawl(Inline, {**ADDON, "ROBOTSTXT_OBEY": False}, start_urls=[world.home])
    assert crawler.spider.n_refused == 2
    assert world.inside.n_accepted == 0


@pytest.mark.parametrize("is_fast", [False, True])
async def test_other_connections_of_the_process_go_where_they_like(world, is_fast):
    """Also those that are made where a transfer has just ended, in its context."""
    made: list[Any] = []

    def connect() -> None:
        endpoint = HostnameEndpoint(reactor, "inside.test", world.inside.port)
        made.append(connectProtocol(endpoint, Protocol()))

    async def parse(response: Response) -> None:
        connect()

    world.pages = {"/": []}
    settings = {**ADDON, "ROBOTSTXT_OBEY": False, "AOPIC_FAST_DOWNLOADS": is_fast}
    told = {signals.request_left_downloader: connect}
    await crawl(Visits, settings, start_urls=[world.home], parse=parse, told=told)
    assert len(made) == 2
    for each in made:
        protocol = await maybe_deferred_to_future(each)
        assert protocol.transport.getPeer().host == INSIDE
        protocol.transport.abortConnection()


@pytest.mark.parametrize("is_fast", [False, True])
async def test_a_name_that_says_something_else_the_next_time_gains_nothing(world, is_fast):
    """The first answer may have been looked at before; the connection is made to the second."""
    port = world.public.port
    world.pages = {"/": [f"http://{name}.test:{port}/{name}" for name in ("both", "later")]}
    world.pages |= {"/both": [f"http://both.test:{world.inside.port}/"]}
    world.pages |= {"/later": [f"http://later.test:{world.inside.port}/"]}
    settings = {**ADDON, "ROBOTSTXT_OBEY": False, "AOPIC_FAST_DOWNLOADS": is_fast}
    crawler = await crawl(Errors, settings, start_urls=[world.home])
    assert {f"http://both.test:{port}/both", f"http://later.test:{port}/later"} <= set(crawler.spider.seen)
    assert world.inside.n_accepted == 0


async def test_a_seed_allows_its_own_address_and_no_other(world):
    world.pages = {"/": [world.secret(path="/linked"), f"http://{OTHER}:{world.other.port}/"]}
    seeds = [world.home, world.secret("0x7f000001", "/seed"), world.secret("wiki", "/wiki")]
    crawler = await crawl(Errors, {**ADDON, "ROBOTSTXT_OBEY": False}, start_urls=seeds)
    assert sorted(entry.target for entry in world.inside.entries) == ["/linked", "/seed", "/wiki"]
    assert world.other.n_accepted == 0
    assert crawler.stats.get_value("aopic/urls/refused/network") == 1


@pytest.mark.parametrize("way", ["redirect", "sitemap", "robots.txt", "callback"])
async def test_a_seed_opens_its_port_and_no_other_whatever_leads_there(world, monkeypatch, way):
    seed, other = "http://c.test:22/", "http://c.test:6379/x"
    pages = {"redirect": Answer(302, headers={"Location": other})}
    world.pages = {"/": pages.get(way, ["http://c.test:22/x", "http://c.test/own"]), "/x": [], "/own": []}
    xml = f"<urlset><url><loc>{other}</loc></url></urlset>".encode()
    world.pages["/map.xml"] = Answer(headers={"Content-Type": "application/xml"}, body=xml)
    where = {"sitemap": "http://c.test:22/map.xml", "robots.txt": "http://c.test:6379/map.xml"}.get(way)
    if where:
        robots = f"User-agent: *\nAllow: /\nSitemap: {where}".encode()
        world.pages["/robots.txt"] = Answer(headers={"Content-Type": "text/plain"}, body=robots)

    wanted = [other] if way == "callback" else []
    asked = set()

    def answer(exchange: Exchange) -> Answer:
        asked.add(exchange.headers["host"])
        return world._answer(exchange)

    with Server(answer).run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        await crawl(Errors, {**ADDON, "AOPIC_SITEMAPS": True}, start_urls=[seed], wanted=wanted)
    assert asked == {"c.test:22"} | ({"c.test"} if way != "redirect" else set())


async def test_a_seed_that_leads_inside_by_a_redirect_or_by_its_name_allows_nothing(world):
    world.pages = {"/": Answer(302, headers={"Location": world.secret()})}
    seeds = [world.home, world.secret("inside.test")]

    class Meta(Errors):
        """Gives each request the meta of its page, as many do."""

        def parse(self, response: Response) -> Iterator[Any]:
            yield Request(world.secret("127.1"), self.other, meta=response.meta, errback=self.failed)

    world.pages["/meta"] = []
    crawler = await crawl(Meta, {**ADDON, "ROBOTSTXT_OBEY": False}, start_urls=[*seeds, f"{world.home}meta"])
    assert world.inside.n_accepted == 0
    assert len(crawler.spider.errors) == 1


@pytest.mark.parametrize("counts", [[1] * 6, [2, 0]], ids=["the list is still read", "the list was read"])
async def test_what_a_seed_allows_holds_in_later_runs(world, tmp_path, counts):
    """The list is read when the job begins, so a later run knows of its seeds only what the job has kept."""

    pages = {"/": ["/1", f"http://{OTHER}:{world.other.port}/"], "/1": ["/2"], "/2": ["/3"]}
    world.inside._answer = lambda exchange: Answer(  # type: ignore[attr-defined]
        headers={"Content-Type": "text/html"}, body=html(pages.get(exchange.target, []))
    )
    (tmp_path / "seeds.txt").write_text(world.secret("localhost", "/"))
    settings = in_folder(tmp_path / "job", ADDON, AOPIC_SEEDS=str(tmp_path / "seeds.txt"))
    for n in counts:
        await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": n}, start_urls=[])
    assert {entry.target for entry in world.inside.entries} >= {"/", "/1", "/2", "/3"}
    assert world.other.n_accepted == 0


async def test_what_a_list_of_seeds_names_is_fetched_once_the_setting_allows_it(world, tmp_path):
    """A name that leads inside, a page that leads there, and the same setting once more."""
    world.pages = {"/": [world.secret("inside.test", "/linked")]}
    (tmp_path / "seeds.txt").write_text(f"{world.secret('inside.test', '/seed')}\n{world.home}\n")
    seeds = {"AOPIC_SEEDS": str(tmp_path / "seeds.txt"), "ROBOTSTXT_OBEY": False}
    settings = in_folder(tmp_path / "job", ADDON, **seeds)
    asked, failed = [], []
    for allowed in ([PUBLIC], [PUBLIC], [PUBLIC, INSIDE], [PUBLIC, INSIDE]):
        crawler = await crawl(Errors, {**settings, "AOPIC_ALLOW_NETWORKS": allowed}, start_urls=[])
        asked.append(len(world.inside.entries))
        failed.append(crawler.stats.get_value("aopic/pages/failed", 0))
        assert crawler.stats.get_value("finish_reason") == "finished"
    assert (asked, failed) == ([0, 0, 2, 2], [2, 0, 0, 0])
    assert sorted(entry.target for entry in world.inside.entries) == ["/linked", "/seed"]


async def test_behind_a_proxy_what_is_local_by_its_text_is_refused(world, monkeypatch):
    """The proxy itself is the operator's, wherever it is; it resolves the rest."""
    local = ["127.1", "localhost", "wiki", "metadata.google.internal", "printer.local", "[::1]"]
    world.pages = {"/": [f"http://{host}/" for host in (*local, "b.test")]}
    proxy = Server(world._answer, host=OTHER)
    with proxy.run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        monkeypatch.delenv("no_proxy", raising=False)
        settings = {**ADDON, "AOPIC_ALLOW_NETWORKS": [], "ROBOTSTXT_OBEY": False}
        await crawl(Errors, settings, start_urls=["http://a.test/"])
        assert {entry.host for entry in proxy.entries} == {"a.test", "b.test"}
        settings["AOPIC_ALLOW_NETWORKS"] = ["internal", "127.0.0.0/8"]
        await crawl(Errors, settings, start_urls=["http://a.test/"])
        hosts = {entry.host for entry in proxy.entries}
        assert hosts == {"a.test", "b.test", "127.0.0.1", "localhost", "metadata.google.internal"}


async def test_ports_of_other_services_are_refused_unless_a_seed_or_the_setting_has_them(world, monkeypatch):
    hosts = ["a.test:25", "b.test:6379", "a.test:8080", "b.test:10080", "c.test:22", "c.test:6379"]
    world.pages = {"/": [f"http://{host}/x" for host in hosts]}

    proxy = Server(world._answer)
    with proxy.run_in_thread() as running:
        monkeypatch.setenv("http_proxy", running.url)
        settings = {**ADDON, "AOPIC_ALLOW_NETWORKS": [":10080"], "ROBOTSTXT_OBEY": False}
        starts = ["http://a.test/", "http://c.test:22/"]
        crawler = await crawl(Errors, settings, start_urls=starts, wanted=["http://d.test:6379/"])
        asked = {(entry.host, entry.target) for entry in proxy.entries}
    assert asked == {("a.test", "/"), ("c.test", "/"), ("c.test", "/x"), ("a.test", "/x"), ("b.test", "/x")}
    assert {type(error) for error in crawler.spider.errors} == {ServiceError}
    assert crawler.stats.get_value("aopic/urls/refused/service") == 8  # three links and a form, of two pages


class Foreign(HTTP11DownloadHandler):
    """A handler of somebody else's, of which nobody knows how it connects."""


async def test_a_handler_that_asks_nobody_gets_no_request_for_a_name_that_leads_inside(world, caplog):
    world.pages = {"/": [world.secret("inside.test")]}
    settings = {**ADDON, "ROBOTSTXT_OBEY": False, "DOWNLOAD_HANDLERS": {"http": Foreign}}
    reached: list[str] = []
    told = {signals.request_reached_downloader: lambda request: reached.append(request.url)}
    crawler = await crawl(Errors, settings, start_urls=[world.home], told=told)
    assert reached == [world.home]
    assert world.inside.n_accepted == 0
    assert crawler.stats.get_value("aopic/safety/refused") == 1
    assert "own download handler makes all requests" not in caplog.text


WITHOUT_REACTOR = """
import json, socket, sys
from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess

known, look_up = json.loads(sys.argv[2]), socket.getaddrinfo
socket.getaddrinfo = lambda host, *args, **options: look_up(known.get(host, host), *args, **options)

class Plain(Spider):
    name = "plain"
    def parse(self, response):
        for url in json.loads(sys.argv[3]):
            yield Request(url, self.got, errback=self.failed)
    def got(self, response):
        print("got", response.url)
    def failed(self, failure):
        print("failed", failure.type.__name__)

process = AsyncCrawlerProcess({"TWISTED_REACTOR_ENABLED": False, "ROBOTSTXT_OBEY": False, "LOG_ENABLED": False,
    "ADDONS": {"scrapy_aopic.Addon": 500}, "AOPIC_ALLOW_NETWORKS": ["127.0.0.9"], "AOPIC_MIN_GAP": 0})
process.crawl(Plain, start_urls=[sys.argv[1]])
process.start()
"""


@pytest.mark.skipif(Version(scrapy.__version__) < Version("2.19"), reason="its handler is of Scrapy 2.19")
@pytest.mark.slow
def test_without_a_reactor_it_is_decided_by_the_address_too(world):
    world.pages = {"/": [], "/2": []}
    names = json.dumps({"public.test": PUBLIC, "inside.test": INSIDE})
    wanted = json.dumps([world.secret("inside.test"), world.secret("127.1"), f"{world.home}2"])
    done = run([sys.executable, "-c", WITHOUT_REACTOR, world.home, names, wanted], stdout=PIPE, text=True)
    said = ["failed NetworkError", "failed NetworkError", f"got {world.home}2"]
    assert sorted(done.stdout.splitlines()) == said
    assert world.inside.n_accepted == 0


# -- what is public

INTERNAL = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "192.0.0.192", "192.168.1.1", "198.18.0.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "168.63.129.16", "::", "::1", "::2", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1",
    "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1",
    "2001:db8::1", "100::1", "::ffff:0:127.0.0.1", "2001:0:7f00:1::",
]  # fmt: skip
EXTERNAL = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2a00:1450::1",
]


def refuses(networks: Networks, address: str) -> bool:
    host = f"[{address}]" if ":" in address else address
    door = networks.door("a.test")
    assert door(address) != networks.refuses_host(host)
    return not door(address)


def test_addresses_that_are_not_of_the_internet_are_known():
    networks = Networks(Allowed())
    assert [address for address in INTERNAL if not refuses(networks, address)] == []
    assert [address for address in EXTERNAL if refuses(networks, address)] == []


def test_a_url_that_parsers_may_read_in_two_ways_is_read_in_the_worse():
    for url in [
        "http://user@127.0.0.1/",
        "http://1.1.1.1@127.0.0.1/",
        "http://a@1.1.1.1@127.0.0.1:8080/",
        "http://%31%32%37.0.0.1/",
        "http://LOCALHOST./",
        "ftp://10.0.0.1/",
        "http://[::1]:80/",
        "http:///etc",
    ]:
        assert Networks(Allowed()).refusal(url, is_by_others=False) == "network"


def test_what_is_no_address_leads_nowhere():
    door = Networks(Allowed()).door("a.test")
    assert not door("")
    assert not door("fe80::1%eth0")


def test_all_forms_of_an_address_are_one():
    for form in ["127.1", "0x7f.1", "0177.0.0.01", "2130706433", "127.0.0.1.", "[::ffff:7f00:1]"]:
        address = literal_address(form)
        assert address is not None, form
        networks = Networks(Allowed())
        assert networks.refuses_host(form)
        networks.name(f"http://{form}:8080/")
        assert not networks.refuses_host(form)


def test_ordinary_names_are_no_addresses_and_not_local():
    for name in ["a.test", "1.2.3.4.example.com", "0x7f.example", "internal.example.com", "xn--a.com"]:
        assert literal_address(name) is None
        assert not Networks(Allowed()).refuses_host(name)


def test_an_operator_allows_networks_names_and_ports(tmp_path):
    (tmp_path / "networks.txt").write_text("10.0.0.0/8\nfd00::/8\n.corp.example.com\n:6667\n")
    for value in (
        ["10.0.0.0/8", "fd00::/8", "corp.example.com", ":6667"],
        "10.0.0.0/8, fd00::/8, corp.example.com, :6667",
        str(tmp_path / "networks.txt"),
    ):
        networks = Networks(read({"AOPIC_ALLOW_NETWORKS": value}, "AOPIC_ALLOW_NETWORKS"))
        assert not refuses(networks, "10.1.2.3")
        assert not refuses(networks, "::ffff:10.1.2.3")
        assert not refuses(networks, "fd00::1")
        assert refuses(networks, "192.168.0.1")
        assert networks.door("wiki.corp.example.com") is None
        assert networks.door("notcorp.example.com") is not None
        assert not networks.refuses_port("a.test", 6667)
        assert networks.refuses_port("a.test", 6666)
    assert read({"AOPIC_ALLOW_NETWORKS": "all"}, "AOPIC_ALLOW_NETWORKS") is None


PORTS = [0, 1, 21, 22, 25, 53, 990, 5060, 6379, 10080, 11211, 80]
"""Those of other services, and the web's."""


@given(st.lists(st.sampled_from(PORTS), max_size=15), st.booleans())
def test_a_seed_allows_the_port_that_it_has_and_no_other(ports, is_local):
    """In later runs, too, which are told by a number of 64 bits: of nine ports."""
    host = "wiki" if is_local else "a.test"
    now, later = Networks(Allowed()), Networks(Allowed())
    kept = 0
    for port in ports:
        kept = now.name(f"http://{host}:{port}/")
    assert kept < 1 << 64
    later.admit(host, kept)
    allowed = [80, *[port for port in dict.fromkeys(ports) if port != 80][:9]]
    for port in PORTS:
        assert now.refuses_port(host, port) is later.refuses_port(host, port) is (port not in allowed)
    assert now.refuses_host(host) is later.refuses_host(host) is (is_local and not ports)


def test_a_link_has_its_verdict_again_once_a_seed_allows_its_host():
    networks = Networks(Allowed())
    normalise = Normaliser(networks=networks)
    networks.on_change(normalise.forget)
    forgotten: list[None] = []
    networks.on_change(lambda: forgotten.append(None))
    assert normalise("http://127.1/a").reason == "network"
    for n in range(100):
        networks.name(f"http://10.0.0.{n}/")
    assert not forgotten, "nobody was refused because of these"
    networks.name("http://localhost/")
    assert normalise("http://127.1/a").reason == "network"
    networks.name("http://127.0.0.1/")
    assert normalise("http://127.1/a").reason == ""
