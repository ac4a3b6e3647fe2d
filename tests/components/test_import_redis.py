"""A crawl with scrapy-redis goes on as a job: what waits is fetched once, what was fetched is not, and nothing is unpickled."""

from __future__ import annotations

import contextlib
import json
import pickle
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import Response
from support import redis_server
from support.commands import run_aopic
from support.crawls import in_folder, on_server
from support.small_web import crawl

from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.seeds.earlier_crawl import (
    SCHEMES,
    earlier_crawl_of,
    read_earlier_crawl,
    write_earlier_crawl,
)
from scrapy_aopic.seeds.scrapy_redis import _queue_values
from scrapy_aopic.web.plain_pickle import NotPlainError, read_pickle

redis = redis_server.needed()


class Shop(Spider):
    """As it was with scrapy-redis."""

    name = "shop"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: list[tuple[str, str, str, Any]] = []

    def parse(self, response: Any, **more: Any) -> Any:
        self.seen.append(("parse", _sent(response), response.url, more))
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)

    def parse_item(self, response: Any, **more: Any) -> None:
        self.seen.append(("parse_item", _sent(response), response.url, {**more, **_own(response)}))


def _sent(response: Any) -> str:
    return f"{response.request.method} {response.request.body.decode()}"


def _own(response: Any) -> dict[str, Any]:
    return {name: response.meta[name] for name in ("shelf",) if name in response.meta}


def fill(client: redis.Redis, queue: str, requests: list[Request], fetched: list[str]) -> None:
    """Let the server hold what scrapy-redis leaves behind; with the package itself, if it is there."""
    spider = Shop()
    for request in requests:
        data = pickle.dumps(request.to_dict(spider=spider), protocol=-1)
        if queue == "zset":
            client.zadd("shop:requests", {data: -request.priority})
        else:
            client.lpush("shop:requests", data)
    made = [*requests, *(Request(url) for url in fetched)]
    filtered = [
        SCHEMES["scrapy-redis"](each.method, each.url, each.body) for each in made if not each.dont_filter
    ]
    client.sadd("shop:dupefilter", *(each.hex() for each in filtered))


def run(server: redis_server.Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command says that takes the crawl of ``shop`` from the server into the job of *folder*."""
    return run_aopic("import-redis", "job", "shop", "--from", server.url, *arguments, folder=folder)


def queued() -> list[Request]:
    spider = Shop()
    return [
        Request("http://a.test/list", priority=5),
        Request(
            "http://a.test/item",
            callback=spider.parse_item,
            headers={"X-Shop": "yes"},
            meta={"depth": 3, "shelf": (1, 2), "download_slot": "a.test", "download_latency": 0.2},
            cb_kwargs={"colour": "red"},
        ),
        FormRequest("http://b.test/search", formdata={"q": "café"}, dont_filter=True),
        Request("http://b.test/twice"),
    ]


def pages() -> dict[str, Any]:
    return {
        "http://a.test/list": ["/item", "/old", "/new", "http://b.test/twice"],
        "http://a.test/item": [],
        "http://a.test/old": [],
        "http://a.test/new": ["/old"],
        "http://b.test/search": [],
        "http://b.test/twice": [],
        "http://c.test/start": ["http://a.test/old"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("shards", [0, 1, 4])
async def test_what_waits_is_fetched_once_and_what_was_fetched_is_not(
    serve, server, client, tmp_path, shards
):
    web = serve(pages())
    fill(client, "zset" if shards else "list", queued(), ["http://a.test/old"])
    client.lpush("shop:start_urls", "http://c.test/start")
    before = {name: client.dump(name) for name in client.scan_iter()}
    job = f"{server.url}#aopic:shop" if shards else "job"
    taken = ("import-redis", job, "shop", "--from", server.url)
    done = run_aopic(*taken, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"4 requests and 1 start URL of shop added to the crawl of {job}, and 1 page that" in done.stdout
    assert {name: client.dump(name) for name in before} == before, "the old crawl's keys are only read"
    settings = on_server(server.url, shards) if shards else in_folder(tmp_path / "job")
    crawler = await crawl(Shop, settings)
    assert sorted(web.asked) == sorted({*pages()} - {"http://a.test/old"})
    seen = {url: (callback, method, more) for callback, method, url, more in crawler.spider.seen}
    assert seen["http://a.test/item"] == ("parse_item", "GET ", {"colour": "red", "shelf": (1, 2)})
    assert seen["http://b.test/search"][1:] == ("POST q=caf%C3%A9", {})
    again = await crawl(Shop, settings)
    assert again.spider.seen == [], "a list of requests is taken up once"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")  # which scrapy-redis earns
async def test_what_the_real_package_left_is_taken_over(serve, server, client, tmp_path):
    pytest.importorskip("scrapy_redis")
    web = serve(pages())
    old = {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": server.url,
        "CONCURRENT_REQUESTS": 1,
        "CLOSESPIDER_PAGECOUNT": 1,
        "STATS_CLASS": "scrapy.statscollectors.DummyStatsCollector",  # it sets some that are not ours
    }

    await crawl(Shop, old, start_urls=["http://a.test/list"])
    fetched = list(web.asked)
    assert fetched[0] == "http://a.test/list"
    assert client.zcard("shop:requests") >= 1
    done = run(server, tmp_path)
    assert done.returncode == 0, done.stderr
    await crawl(Shop, {"SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": str(tmp_path / "job")})
    others = {"http://c.test/start", "http://b.test/search"}
    assert sorted(web.asked) == sorted(pages().keys() - others)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")  # which scrapy-redis earns
@pytest.mark.parametrize("shards", [1, 3])
async def test_a_spider_of_the_real_package_goes_on_with_what_is_pushed(serve, server, client, shards):
    spiders = pytest.importorskip("scrapy_redis.spiders")
    hosts = [f"http://h{n}.test/" for n in range(6)]
    web = serve({**{url: ["/1"] for url in hosts}, **{f"{url}1": [] for url in hosts}})

    class Pushed(spiders.RedisSpider):
        name = "pushed"
        redis_key = "pushed:start_urls"
        redis_batch_size = 2
        max_idle_time = 2

        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == hosts[0]:
                client.rpush(self.redis_key, *hosts[3:])
            for url in response.css("a::attr(href)").getall():
                yield response.follow(url)

    client.rpush(Pushed.redis_key, *hosts[:2], json.dumps({"url": hosts[2]}))
    await crawl(Pushed, on_server(server.url, shards))
    assert sorted(web.asked) == sorted(web.pages)
    assert client.llen(Pushed.redis_key) == 0


async def test_a_request_that_the_spider_cannot_make_is_left_out_with_a_warning(
    serve, server, client, tmp_path, caplog
):
    web = serve(pages())
    values = {**Request("http://a.test/item").to_dict(), "callback": "parse_shelf"}
    client.lpush("shop:requests", pickle.dumps(values), json.dumps({"url": "http://b.test/twice"}))
    assert run(server, tmp_path).returncode == 0
    crawler = await crawl(Shop, {"SCHEDULER": "scrapy_aopic.Scheduler", "JOBDIR": str(tmp_path / "job")})
    assert web.asked == ["http://b.test/twice"]
    assert "the spider 'shop' has no callback 'parse_shelf'" in caplog.text
    assert crawler.stats.get_value("aopic/seeds/unreadable") == 1


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_unpickled(server, client, tmp_path, protocol):
    good = Request("http://a.test/").to_dict()
    client.lpush("shop:requests", pickle.dumps(good))
    client.lpush("shop:requests", pickle.dumps({**good, "meta": {"x": Evil(tmp_path / "made")}}, protocol))
    refused = run(server, tmp_path)
    assert refused.returncode == 2
    assert "it has an object of" in refused.stderr
    assert "open" in refused.stderr
    assert not (tmp_path / "job").exists(), "all or nothing"
    taken = run(server, tmp_path, "--skip-bad")
    assert taken.returncode == 0
    assert "1 request and" in taken.stdout
    assert "Left out: 1." in taken.stdout
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("fill_in", "said"),
    [
        (lambda _: None, "There is nothing of a crawl at"),
        (lambda client: client.set("shop:requests", "x"), "holds a string, and not a list"),
        (lambda client: client.lpush("shop:requests", b"\x04xyz"), "neither a pickle nor JSON"),
        (lambda client: client.lpush("shop:requests", b"\x80\x04\x95"), "cut short"),
        (
            lambda client: client.lpush("shop:requests", b'{"url": "ftp://a.test/"}'),
            "is no http or https URL",
        ),
        (lambda client: client.sadd("shop:dupefilter", "ab" * 20), "None of the queued requests"),
        (lambda client: client.sadd("shop:dupefilter", "no hex"), "is no fingerprint in hexadecimal"),
        (
            lambda client: client.lpush("shop:start_urls", '{"url": "http://a.test/", "q": "1"}'),
            "'q' for a form",
        ),
    ],
)
def test_what_cannot_be_taken_over_is_said(server, client, tmp_path, fill_in, said):
    fill_in(client)
    done = run(server, tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "job").exists()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers() | st.binary(), inner)
        | st.tuples(inner, inner)
        | st.tuples()
        | st.tuples(inner, inner, inner, inner)
    ),
    max_leaves=30,
)


@given(plain, st.integers(3, 5))  # 2 writes bytes as calls
def test_plain_data_is_read_as_it_was_pickled(value, protocol):
    assert read_pickle(pickle.dumps(value, protocol)) == value


def test_values_of_all_sizes_are_read():
    for value in [{1, "a"}, frozenset({2}), 1 << 100, -1, b"x" * 300, "é" * 300, list(range(3000))]:
        assert read_pickle(pickle.dumps(value, 4)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_data_or_refused(data):
    with contextlib.suppress(NotPlainError):
        read_pickle(b"\x80\x04" + data)


@trials(max_examples=300)
@given(plain, st.data())
def test_any_damage_is_plain_data_or_refused(value, data):
    pickled = bytearray(pickle.dumps(value, 4))
    at = data.draw(st.integers(0, len(pickled) - 1))
    pickled[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NotPlainError):
        read_pickle(bytes(pickled))


@pytest.mark.parametrize("data", [b"\x80\x04.", b"\x80\x04}(K\x01u."])
def test_a_pickle_that_lacks_a_value_is_said_to_be_damaged(data):
    with pytest.raises(NotPlainError, match="it is cut short"):
        read_pickle(data)


@pytest.mark.parametrize(
    "key",
    [
        b")" + b"\x85" * 200_000,  # (((...),),): Python's hash would end the process
        b")"
        + b"".join(
            b"\x94h" + bytes((n,)) + b"\x86" for n in range(40)
        ),  # of two that are the same, 2^40 in all
    ],
    ids=["deep", "doubled"],
)
def test_a_key_is_looked_at_before_it_is_hashed(key):
    for data in (b"}" + key + b"Ns.", b"(" + key + b"\x91.", b"\x8f(" + key + b"\x90."):
        with pytest.raises(NotPlainError, match="it has a key for more than 100 values"):
            read_pickle(b"\x80\x04" + data)


def test_a_mark_that_nothing_closes_is_damage():
    for data in (b"\x80\x04((.", b"\x80\x04](a."):
        with pytest.raises(NotPlainError, match="damaged"):
            read_pickle(data)


def test_a_pickle_that_stands_for_too_much_is_refused():
    many: list[Any] = []
    for _ in range(40):
        many = [many, many]
    endless: list[Any] = []
    endless.append(endless)
    for value in (many, endless):
        with pytest.raises(NotPlainError, match="stands for more than"):
            read_pickle(pickle.dumps(value))
    with pytest.raises(NotPlainError, match="cut short"):
        read_pickle(b"\x80\x04\x8e" + b"\xff" * 8 + b"x.")
    with pytest.raises(NotPlainError, match=r"object of datetime\.datetime"):
        read_pickle(pickle.dumps(datetime.now(timezone.utc)))


def test_fingerprints_are_those_of_the_packages():
    from scrapy.utils.request import fingerprint

    requests = [Request("http://a.test/?b=1&a=2#x"), Request("http://a.test/é", method="POST", body=b"x\xff")]
    for each in requests:
        assert SCHEMES["scrapy"](each.method, each.url, each.body) == fingerprint(each)
    scrapy_redis = pytest.importorskip("scrapy_redis.dupefilter")
    filter_ = scrapy_redis.RFPDupeFilter(None, "")
    for each in requests:
        made = SCHEMES["scrapy-redis"](each.method, each.url, each.body).hex()
        assert made == filter_.request_fingerprint(each)


def test_former_pages_are_kept_in_order_and_damage_is_noticed(tmp_path):
    urls = [f"http://a.test/{n}" for n in range(500)]
    for name, fingerprint in SCHEMES.items():
        numbers = (int.from_bytes(fingerprint("GET", url, b"")[:8], "big") for url in urls)
        former = earlier_crawl_of(name, numbers)
        write_earlier_crawl(FolderPlace(tmp_path), former)
        found = read_earlier_crawl(FolderPlace(tmp_path))
        assert len(found) == len(urls)
        assert all(found.has("GET", url, b"") for url in urls)
        assert not any(found.has("GET", url + "x", b"") or found.has("POST", url, b"") for url in urls)
    path = tmp_path / "aopic-former"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StorageError, match="are damaged"):
        read_earlier_crawl(FolderPlace(tmp_path))
    assert read_earlier_crawl(FolderPlace(tmp_path / "nowhere")) is None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"url": "http://a.test/", "meta": []}, None),
        ({"url": "http://a.test/", "meta": [1]}, "its meta is no dict"),
        ({"url": "http://a.test/", "method": 1}, "its method"),
        ({"url": "http://a.test/", "body": 5}, "its body is no bytes"),
        ({"url": "http://a.test/", "priority": "x"}, "its priority is no int"),
        ({1: 2}, "it holds no request"),
        ([], "it holds no request"),
    ],
)
def test_values_that_no_request_has_are_refused(said, why):
    data = pickle.dumps(said)
    if why is None:
        assert _queue_values(data) == {"url": "http://a.test/"}
        return
    with pytest.raises((ValueError, TypeError), match=why):
        _queue_values(data)


INSIDE = {
    "ADDONS": {"scrapy_aopic.Addon": 500},
    "ROBOTSTXT_OBEY": False,
    "AOPIC_MIN_GAP": 0,
    "AOPIC_POLITENESS_FACTOR": 0,
    "REMOTE_CONTROL_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
}


@pytest.mark.slow
@pytest.mark.parametrize("shards", [0, 2])
async def test_what_is_refused_of_an_import_is_said_and_comes_back_with_the_setting(
    server, client, tmp_path, shards
):
    """A person has named the start URL and what has no depth; what pages led to must be allowed."""

    def answer(exchange: Exchange) -> Answer:
        return Answer(headers={"Content-Type": "text/html"}, body=b"<p>page</p>")

    linked, named = Server(answer, host="127.0.0.3"), Server(answer, host="127.0.0.4")
    with linked.run_in_thread(), named.run_in_thread():
        links = [Request(f"http://127.0.0.3:{linked.port}/{n}", meta={"depth": 1}) for n in range(30)]
        links += [Request(f"http://127.0.0.4:{named.port}/link", meta={"depth": 2})]
        fill(client, "list", [*links, Request(f"http://127.0.0.4:{named.port}/named")], [])
        job = f"{server.url}#aopic:shop" if shards else "job"
        origin = [] if shards else ["--from", server.url]
        done = run_aopic("import-redis", job, "shop", *origin, folder=tmp_path)
        assert "32 requests and 0 start URLs" in done.stdout, done.stdout + done.stderr
        assert "AOPIC_ALLOW_NETWORKS" in done.stdout
        assert "ports: 30 requests. The first: http://127.0.0.3:" in done.stdout
        store = on_server(server.url, shards) if shards else in_folder(tmp_path / "job")
        asked = []
        for allowed in ([], [], ["127.0.0.3"], ["127.0.0.3"]):
            crawler = await crawl(Shop, {**store, **INSIDE, "AOPIC_ALLOW_NETWORKS": allowed})
            asked.append((len(linked.entries), len(named.entries)))
    assert asked == [(0, 2), (0, 2), (30, 2), (30, 2)]
    assert crawler.stats.get_value("aopic/pages/failed") is None
