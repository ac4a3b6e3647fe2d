"""Domains that are spread over the shards of a job: who decides it, what it changes, and what commands say of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from demo_web.server import Answer
from support import redis_server
from support.commands import run_aopic, said
from support.small_web import Follow, crawl, html, until

from scrapy_aopic.copies.backing_up import backup
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.spiders import BroadSpider
from scrapy_aopic.view.auditing import audit_job
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import top_pages
from scrapy_aopic.web.suffixes import registered_domain

redis_server.needed()

SHARDS = 4
HOSTS = [f"{host}.big.test" for host in "abcdefghijkl"]
LINKS = [f"http://{host}/" for host in HOSTS] + [f"/{n}" for n in range(1, 4)]
PAGE = Answer(headers={"Content-Type": "text/html"}, body=html(LINKS), delay=0.02)
PAGES: dict[str, Any] = {f"http://{host}/{n or ''}": PAGE for host in HOSTS for n in range(4)}
CUT = Cut(ShardId(0, SHARDS), registered_domain, ["big.test"])
RULE = {"AOPIC_HOST_RULES": {"big.test": {"spread": True}}}


class Inside(Follow):
    start_urls = ["http://a.big.test/"]
    allowed_domains = ["big.test"]


class Anywhere(Follow):
    start_urls = ["http://a.big.test/"]


@pytest.mark.slow
async def test_a_domain_that_a_spider_stays_in_is_crawled_by_all_workers_and_known_to_all_commands(
    serve, settings, address, tmp_path, caplog
):
    caplog.set_level("INFO")
    web, server = serve(PAGES), ServerPlace(address)
    most = until(lambda: len(web.asked) >= 20, Inside)
    await asyncio.gather(*(crawl(most, settings) for _ in range(2)))
    assert caplog.text.count("Each host of big.test may be in another of the 4 shards") == 1
    sharding = server.read_sharding()
    assert sharding is not None
    assert sharding.spread == "big.test"
    with open_view(server) as view:
        assert sum(saved is not None and saved.visits > 0 for saved in view.saved) > 1
        assert {row.url for row in top_pages(view, 1_000)} <= PAGES.keys()
    answer = said(tmp_path, "why", str(address), "http://b.big.test/")
    assert f"big.test is spread over shards: this host is in shard {CUT.of_host('b.big.test')} of 4" in answer
    assert "b.big.test" in said(tmp_path, "hosts", str(address), "--find", "b.big")
    assert audit_job(server).violations == []
    backup(server, tmp_path / "copy")
    assert audit_job(FolderPlace(tmp_path / "copy")).violations == []
    run_aopic("move", str(server), tmp_path / "job", folder=tmp_path)
    # A spider that names no domain goes on with what the job began with.
    await crawl(Anywhere, {**settings, "AOPIC_STORE": "auto", "AOPIC_SHARDS": 1, "JOBDIR": tmp_path / "job"})
    assert sorted(web.asked) == sorted(PAGES), "each page once"
    with open_view(FolderPlace(tmp_path / "job")) as view:
        assert all(saved is not None and saved.visits > 0 for saved in view.saved)
    assert audit_job(FolderPlace(tmp_path / "job")).violations == []


@pytest.mark.parametrize(
    ("spider", "given", "arguments", "spread"),
    [
        (Anywhere, {}, {}, ""),
        (Anywhere, RULE, {}, "big.test"),
        (Inside, {}, {"allowed_domains": [f"d{n}.test" for n in range(16)]}, ""),
        (Inside, {"AOPIC_POLITENESS_KEY": "domain"}, {}, ""),
        (Inside, {"AOPIC_SHARDS": 1}, {}, None),
        (BroadSpider, {}, {"seeds": "http://a.big.test/", "scope": "domain"}, "big.test"),
        (BroadSpider, {}, {"seeds": "http://a.big.test/"}, ""),
    ],
)
async def test_domains_are_spread_if_a_crawl_stays_in_few_or_a_rule_says_so(
    serve, settings, address, client, *, spider, given, arguments, spread
):
    serve(PAGES)
    await crawl(
        spider,
        {**settings, "AOPIC_REDIS_KEY": address.key, **given, "CLOSESPIDER_PAGECOUNT": 1},
        **arguments,
    )
    sharding = ServerPlace(address).read_sharding()
    assert (sharding.spread if sharding is not None else None) == spread
    job = f"{{{address.key}}}"
    for stored in (client.get(f"{job}:cut"), *client.hvals(f"{job}:states")):
        assert (b"spread" in (stored or b"")) == bool(spread), "other jobs are stored as before"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, RULE, "The hosts of big.test are in one shard of the job in redis://"),
        (RULE, {"AOPIC_POLITENESS_KEY": "domain"}, "hosts of big.test are in several shards, which cannot wait for each other"),
        ({"AOPIC_POLITENESS_KEY": "domain", **RULE}, {}, "hosts of big.test are in several shards"),
        ({"AOPIC_SHARDS": 1, **RULE}, {}, "AOPIC_HOST_RULES: spread needs a job in shards"),
        ({"AOPIC_HOST_RULES": {"a.big.test": {"spread": True}}}, {}, "a.big.test is no registered domain"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_said(serve, settings, caplog, *, first, second, said):
    serve(PAGES)
    for given in (first, second):
        await crawl(Anywhere, {**settings, **given, "CLOSESPIDER_PAGECOUNT": 1})
    assert said in caplog.text


async def test_a_job_in_one_piece_is_cut_so_that_its_domain_is_spread(serve, settings, tmp_path):
    web = serve(PAGES)
    one = {**settings, "AOPIC_STORE": "sqlite", "AOPIC_SHARDS": 1, "JOBDIR": tmp_path / "one"}
    await crawl(until(lambda: len(web.asked) >= 10, Anywhere), one)
    said(
        tmp_path,
        "salvage",
        "one",
        "new",
        "--shards",
        4,
        "-s",
        'AOPIC_HOST_RULES={"big.test": {"spread": true}}',
    )
    new = FolderPlace(tmp_path / "new")
    with open_view(new) as view:
        assert all(saved is not None and saved.pages > 0 for saved in view.saved)
    await crawl(Anywhere, {**one, "AOPIC_STORE": "auto", "JOBDIR": new.folder})
    assert sorted(web.asked) == sorted(PAGES)
    assert audit_job(new).violations == []
