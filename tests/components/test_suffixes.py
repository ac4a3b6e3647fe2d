"""Registered domains of hosts whose suffix is on no list: in-house names, names for tests, and suffixes that are new."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib

import pytest
from demo_web.server import Answer
from support.crawls import ADDON
from support.small_web import Follow, crawl

from scrapy_aopic import BroadSpider
from scrapy_aopic.web import suffixes
from scrapy_aopic.web.suffixes import registered_domain

UNLISTED = ("corp", "internal", "lan", "test", "example", "xn--new-suffix")


def test_an_unlisted_suffix_is_the_last_label():
    for suffix in UNLISTED:
        names = (f"x1.{suffix}", f"www.x1.{suffix}", f"a.b.www.x1.{suffix}", f"www.x1.{suffix}.")
        assert {registered_domain(name) for name in names} == {f"x1.{suffix}"}
        assert registered_domain(suffix) == suffix


def test_listed_suffixes_addresses_and_single_labels_are_what_they_are():
    for host, domain in [
        ("www.example.com", "example.com"),
        ("www.example.co.uk", "example.co.uk"),
        ("a.me.github.io", "me.github.io"),
        ("a.b.foo.ck", "b.foo.ck"),
        ("www.ck", "www.ck"),
        *(
            (f"{start}example.com{end}", "example.com")
            for start in (".", "a..", "..")
            for end in ("", ".", "..")
        ),
        *(
            (name, name)
            for name in (
                *("co.uk", "github.io", "foo.ck", "com", "localhost", "", "..", "a..test", ".test"),
                *("127.0.0.1", "1.2.3", "1.2.3.4.5", "256.1.1.1", "10.0.0.0x7f"),
                *("::1", "[::1]", "2001:db8::1", "::ffff:1.2.3.4", "fe80::1%eth0.1"),
            )
        ),
    ]:
        assert registered_domain(host) == domain


@pytest.mark.slow
def test_most_domains_are_found_by_their_last_labels_and_are_what_the_rules_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names at each rule of the list, below it and beside it, also as they are in URLs."""
    rules = zlib.decompress(suffixes.packed_list()).decode().splitlines()
    ends = {rule.lstrip("!").replace("*", "any") for rule in rules}
    ends |= {end.encode("idna").decode() for end in ends if not end.isascii()}
    names = [start + end for end in ends for start in ("", "x.", "y.x.", "y.x", "x.any.")]
    find = registered_domain.__wrapped__
    found = list(map(find, names))
    monkeypatch.setattr(suffixes, "_ENDS", re.compile("(?!)"))
    assert found == list(map(find, names))


@pytest.mark.parametrize("suffix", ["corp", "com"])
async def test_a_seed_that_redirects_to_www_stays_in_scope_and_keeps_its_sitemap(serve, suffix):
    here = f"http://x1.{suffix}/"
    www = f"http://www.x1.{suffix}/"
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in (f"{www}2", f"http://x2.{suffix}/no"))
    shop, other = f"http://shop.x1.{suffix}/", f"http://x2.{suffix}/"
    robots = Answer(headers={"Content-Type": "text/plain"}, body=f"Sitemap: {www}sitemap.xml".encode())
    sitemap = Answer(headers={"Content-Type": "text/xml"}, body=f"<urlset>{entries}</urlset>".encode())
    web = serve(
        {
            f"{here}robots.txt": robots,
            here: Answer(301, {"Location": www}),
            www: ["/1", f"{here}3", shop, other],
            f"{www}1": [here],
            **{url: [] for url in (f"{www}2", f"{here}3", other)},
            shop: [f"{www}1"],
            f"{www}sitemap.xml": sitemap,
        }
    )
    settings = {**ADDON, "AOPIC_SITEMAPS": True, "AOPIC_ALLOW_NETWORKS": ["corp"]}
    await crawl(BroadSpider, settings, seeds=here, scope="domain")
    pages = {here, www, f"{www}1", f"{www}2", f"{here}3", shop}
    assert {*web.asked} - {f"{www}sitemap.xml"} == pages


def test_the_list_is_read_without_the_network_and_without_a_folder(tmp_path):
    """Whatever the environment says of lists, and of where to cache them."""
    program = (
        "import socket, requests\n"
        "def refuse(*_, **__): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from scrapy_aopic.web.suffixes import packed_list, list_name, registered_domain, use_list\n"
        "name, data = list_name(), packed_list()\n"
        "print(registered_domain('a.b.example.co.uk'), registered_domain('a.me.github.io'), use_list(name, data),\n"
        "      registered_domain('www.example.com'))"
    )
    variables = {
        "HOME": tmp_path / "home",
        "TLDEXTRACT_CACHE": tmp_path / "cache",
        "TMPDIR": tmp_path / "tmp",
    }
    (tmp_path / "tmp").mkdir()
    url = {"TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS": "https://list.test/"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **url, **{name: str(path) for name, path in variables.items()}},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["example.co.uk", "me.github.io", "example.com"]
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp"]


@pytest.mark.parametrize(
    "alone",
    [
        {"SCHEDULER": "scrapy_aopic.Scheduler"},
        {"DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter"},
        {"DUPEFILTER_CLASS": "scrapy_aopic.DupeFilter", "AOPIC_DUPEFILTER": "bloom"},
        {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_STORE": "rocksdb"},
        {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_ORDER": "opic", "AOPIC_VIRTUAL_SPENDING": "unvisited"},
        {"ADDONS": {"scrapy_aopic.Addon": 500}},
    ],
    ids=["scheduler", "exact filter", "bloom filter", "rocksdb", "opic", "add-on"],
)
async def test_what_the_package_was_asked_for_works_alone_in_a_plain_project(serve, tmp_path, alone):
    """Each page is fetched once, by settings of one line each; with the domains that tldextract tells apart."""
    pages = {f"http://{host}/{n}": [] for host in ("a.test", "www.a.test", "b.co.uk") for n in range(4)}
    web = serve({"http://a.test/": [*pages, *pages], **{url: [*pages] for url in pages}})
    crawler = await crawl(
        Follow, {"JOBDIR": str(tmp_path / "job"), **alone}, start_urls=["http://a.test/"], allowed_domains=[]
    )
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert sorted(web.asked) == sorted(["http://a.test/", *pages])
