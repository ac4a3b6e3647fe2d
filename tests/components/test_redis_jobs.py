"""Crawls whose job is in Redis: with and without a JOBDIR, asked, seeded, copied, and refused."""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from demo_web.server import Exchange
from support import redis_server
from support.commands import run_aopic
from support.crawls import OURS, Visits
from support.redis_server import Server
from support.small_web import Follow, check, crawl

from scrapy_aopic.exceptions import SettingError, StorageError
from scrapy_aopic.place import seed_files
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.server_seeds import ServerSeeds
from scrapy_aopic.settings import read_address
from scrapy_aopic.storage import Address, open_store
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.server_lock import LockKeeper

redis = redis_server.needed()


PAGES = {"http://a.test/": ["/1", "http://b.test/"], "http://a.test/1": ["/"], "http://b.test/": []}
PASSWORD = "geheim"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), requirepass=PASSWORD) as server:
        yield server


@pytest.fixture
def client(server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, password=PASSWORD) as client:
        client.flushall()
        yield client


@pytest.fixture
def settings(server, client) -> dict[str, Any]:
    ours = {**OURS, "AOPIC_STORE": "redis", "REDIS_URL": server.url}
    return {**ours, "REDIS_PARAMS": {"password": PASSWORD}}


def scrapy(*arguments: str, settings: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    given = {name: settings[name] for name in ("REDIS_URL", "REDIS_PARAMS") if name in settings}
    texts = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
    options = [option for name, text in texts.items() for option in ("-s", f"{name}={text}")]
    return run_aopic(*arguments, *options, folder=folder)


@pytest.mark.slow
async def test_a_crawl_without_a_folder_goes_on_and_is_asked_seeded_and_copied(
    serve, tmp_path, settings, client, caplog
):
    url = settings["REDIS_URL"]
    web = serve({**PAGES, "http://c.test/": []})
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    assert len(web.asked) < len(PAGES)
    assert {name.split(b"}")[0] for name in client.scan_iter()} == {b"{aopic:follow"}
    with caplog.at_level(logging.INFO):
        await crawl(Follow, settings)
    assert sorted(web.asked) == sorted(PAGES), "the second crawl goes on with what the first has left"
    where = url + "#aopic:follow"
    assert f"Resuming the crawl in {where}: " in caplog.text

    def run(*arguments: str) -> str:
        done = scrapy(*arguments, settings=settings, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for place in (where, url, "redis://", "redis://#aopic:follow"):
        assert "3 pages" in run("status", place)
    assert "http://a.test/1" in run("top", where)
    assert json.loads(run("check", "--json", where))["holds"]
    run("export", where, "--pages", "pages.csv")
    assert (tmp_path / "pages.csv").read_text().count("\n") == len(PAGES) + 1
    assert f"1 seed added to the crawl of {where}." in run("seed", where, "http://c.test/")
    run("backup", where, "copy")
    for then in (settings, {**settings, "AOPIC_STORE": "auto", "JOBDIR": str(tmp_path / "copy")}):
        await crawl(Follow, then)
        assert web.asked.pop() == "http://c.test/"
        assert len(web.asked) == len(PAGES) + 1 if then is settings else len(PAGES) + 2
    assert check(tmp_path / "copy").holds
    assert not client.exists("{aopic:follow}:seeds"), "seeds that were taken up are gone from the server"
    assert PASSWORD not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]


async def test_the_dupefilter_keeps_its_fingerprints_there_beside_any_scheduler(serve, settings, client):
    web = serve(PAGES)
    settings = {**settings, "DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter"}
    del settings["SCHEDULER"]
    for _ in range(2):
        await crawl(Follow, settings)
    # The start request is never filtered, and not remembered, so that the link back to it is followed once.
    assert sorted(web.asked) == sorted([*PAGES, *["http://a.test/"] * 2])
    assert {name.split(b"}")[0] for name in client.scan_iter()} == {b"{aopic:follow:seen"}


async def test_seeds_of_a_job_without_a_folder_are_taken_up_once(serve, tmp_path, settings, client):
    web = serve({f"http://{host}.test/": [] for host in "abcde"})
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("".join(f"http://{host}.test/\n" for host in "abcd"))
    settings = {**settings, "AOPIC_SEEDS": str(seeds)}
    await crawl(Visits, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    seeds.write_text("http://e.test/\n")
    for _ in range(2):
        await crawl(Visits, settings)
    # The job has begun without e.test.
    assert sorted(web.asked) == [f"http://{host}.test/" for host in "abcd"]


@pytest.mark.slow
async def test_a_job_folder_beside_keeps_the_spiders_state_and_leads_to_the_store(
    serve, tmp_path, settings, server
):
    serve(PAGES)
    job = tmp_path / "job"
    await crawl(Follow, {**settings, "JOBDIR": str(job)})
    assert (job / "spider.state").exists()
    where = server.url + "#aopic:follow"
    for argument, *more in (["status"], ["salvage", "new"]):
        done = scrapy(argument, str(job), *more, settings=settings, folder=tmp_path)
        assert done.returncode == 2
        assert (
            f"is on a server: crawl with AOPIC_STORE=redis, and give commands {where} instead" in done.stderr
        )
    with pytest.raises(StorageError, match="is on a server"):
        open_store(job / "aopic")
    with pytest.raises(StorageError, match="holds a redis store, so it cannot be opened as sqlite"):
        open_store(job / "aopic", "sqlite")


@pytest.mark.slow
async def test_a_folder_of_another_job_is_refused(serve, tmp_path, settings, caplog):
    web = serve(PAGES)
    for name, first, second, said in (
        (
            "one",
            {"AOPIC_STORE": "sqlite"},
            {},
            "belongs to a job whose store is a sqlite store in it, and not redis:",
        ),
        ("two", {}, {"AOPIC_REDIS_KEY": "other"}, "#aopic:follow, and not redis:"),
    ):
        job = {"JOBDIR": str(tmp_path / name)}
        await crawl(Follow, {**settings, **job, **first})
        n_asked = len(web.asked)
        await crawl(Follow, {**settings, **job, **second})
        assert said in caplog.text
        assert len(web.asked) == n_asked


@pytest.fixture
def _renewed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is looked at ten times a second, however long it holds."""

    def keep(keeper: LockKeeper) -> None:
        while not keeper._ended.wait(0.1):
            keeper._renew()

    monkeypatch.setattr(LockKeeper, "_keep", keep)


@pytest.mark.usefixtures("_renewed_at_once")
@pytest.mark.parametrize("durability", [500, "close"])
async def test_a_crawl_whose_job_was_taken_over_stops(serve, settings, client, caplog, durability):
    def take_over(_: object) -> list[str]:
        fmt, _, number = client.get("{aopic:follow}:head").split()
        client.set("{aopic:follow}:head", b" ".join((fmt, b"another", number)))
        return ["/1"]

    def endless(exchange: Exchange) -> list[str]:
        return [f"/{int(exchange.target[1:]) + 1}"]

    web = serve({"http://a.test/": take_over, **{f"http://a.test/{n}": endless for n in range(1, 500)}})
    crawler = await crawl(Follow, {**settings, "AOPIC_DURABILITY": durability, "AOPIC_MIN_GAP": 0.01})
    assert crawler.stats.get_value("finish_reason") == "aopic_storage"
    assert caplog.text.count("is no longer this process's: another process has opened it") == 1
    assert len(web.asked) < 400
    assert client.get("{aopic:follow}:head").split()[1] == b"another"


@pytest.mark.usefixtures("_renewed_at_once")
async def test_a_second_crawl_of_a_job_is_refused(serve, settings, caplog):
    web = serve(PAGES)
    with closing(open_store_at(read_address(settings, "follow"))):
        await crawl(Follow, settings)
    assert caplog.text.count("is in use: process") == 1
    assert web.asked == []


async def test_a_server_that_is_not_there_is_one_sentence(serve, settings, caplog):
    serve(PAGES)
    await crawl(Follow, {**settings, "REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:1/0"})
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith(
        "Cannot connect to the store in redis://127.0.0.1:1/0#aopic:follow: "
    )
    assert "The crawl does not start." in record.getMessage()
    assert PASSWORD not in caplog.text


def test_settings_mean_what_they_mean_to_scrapy_redis():
    def address(**settings: Any) -> Address:
        return read_address(settings, "broad spider")

    assert str(address()) == "redis://localhost:6379/0#aopic:broad_spider"
    assert str(address(REDIS_HOST="h", REDIS_PORT=7000, REDIS_DB=3)) == "redis://h:7000/3#aopic:broad_spider"
    assert (
        str(address(REDIS_PARAMS={"host": "h", "password": PASSWORD}))
        == "redis://h:6379/0#aopic:broad_spider"
    )
    assert str(address(REDIS_PARAMS='{"url": "redis://h/1"}', AOPIC_REDIS_KEY="k")) == "redis://h:6379/1#k"
    assert str(address(REDIS_URL="unix:///a/b?db=2&password=x")) == "unix:///a/b#aopic:broad_spider"
    assert str(address(REDIS_URL=f"rediss://u:{PASSWORD}@h:1/")) == "rediss://h:1/0#aopic:broad_spider"
    assert address(REDIS_PARAMS={"redis_cls": "redis.Redis"}).parameters == {"redis_cls": redis.Redis}
    assert PASSWORD not in repr(
        address(REDIS_URL=f"redis://:{PASSWORD}@h", REDIS_PARAMS={"password": PASSWORD})
    )
    for wrong in (
        {"REDIS_PARAMS": PASSWORD},
        {"REDIS_PARAMS": {"redis_cls": "no.such"}},
        {"AOPIC_REDIS_KEY": "a b"},
    ):
        with pytest.raises(SettingError) as caught:
            address(**wrong)
        assert PASSWORD not in str(caught.value)


# What a server is like is said at the start.


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"appendonly": "no"}, "keeps nothing on a disk: the job is gone when the server ends"),
        (
            {"appendonly": "no", "save": "60 1"},
            "has no append-only file: .*since the last snapshot .save 60 1.",
        ),
        ({"appendfsync": "no"}, "a power failure undoes up to half a minute"),
        ({"maxmemory_policy": "allkeys-lru"}, "would drop rows of the job if it got a maxmemory"),
    ],
)
def test_a_server_that_may_forget_is_a_warning(tmp_path, caplog, options, said):
    with Server(tmp_path, **options) as server, closing(open_store_at(Address("job", server.url))):
        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert re.search(said, record.getMessage())


def test_a_server_that_drops_rows_is_refused(tmp_path):
    with (
        Server(tmp_path, maxmemory="100mb", maxmemory_policy="allkeys-lru") as server,
        pytest.raises(StorageError, match=r"would drop rows .*set maxmemory-policy to noeviction"),
    ):
        open_store_at(Address("job", server.url))


def test_the_rights_that_the_docs_list_are_enough_and_two_of_them_are_optional(
    tmp_path, server, client, caplog
):
    client.execute_command(
        "ACL", "SETUSER", "crawler", "on", ">pw", "~{mine*", "+@all", "-@admin", "-@dangerous"
    )
    address = Address("mine", server.url.replace("//", "//crawler:pw@"))
    with caplog.at_level(logging.INFO), closing(open_store_at(address)) as store:
        assert store.size_bytes() == 0
    assert "could not be checked (NOPERM" in caplog.text
    with pytest.raises(StorageError, match="may not do this"):
        open_store_at(Address("others", address.url))


@pytest.mark.slow
def test_the_job_must_be_named_if_there_are_several(settings, tmp_path, server, client):
    for key in ("one", "two"):
        open_store_at(Address(key, server.url, {"password": PASSWORD})).close()
    done = scrapy("status", server.url, settings=settings, folder=tmp_path)
    assert done.returncode == 2
    assert f"is the jobs one, two; name one, as {server.url}#KEY." in done.stderr
    client.flushall()
    assert "is no job; name one" in scrapy("status", server.url, settings=settings, folder=tmp_path).stderr


def test_large_lists_of_seeds_wait_in_pieces(settings, tmp_path, client, monkeypatch):
    monkeypatch.setattr(seed_files, "_PIECE_BYTES", 1_000)
    address = read_address(settings, "follow")
    given = add_seeds(ServerPlace(address), [f"http://{n}.test/" for n in range(500)])
    assert given.rows == 500
    waiting = ServerSeeds(address, tmp_path / "seeds")
    (path,) = (tmp_path / "seeds").iterdir()
    assert len(path.read_text().splitlines()) == 500
    assert ServerPlace(address).seed_names() == {path.name}
    waiting.remove([path.name])
    waiting.close()
    assert client.dbsize() == 0
