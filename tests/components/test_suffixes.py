"""Registered domains of hosts whose suffix is on no list: in-house names, names for tests, and suffixes that are new."""

from __future__ import annotations

import pytest
from demo_web.server import Answer
from support.small_web import crawl

from scrapy_aopic import BroadSpider
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


@pytest.mark.parametrize("suffix", ["corp", "com"])
async def test_a_seed_that_redirects_to_www_stays_in_scope_and_keeps_its_sitemap(serve, suffix):
    here = f"http://x1.{suffix}/"
    www = f"http://www.x1.{suffix}/"
    entries = "".join(f"<url><loc>{url}</loc></url>" for url in (f"{www}2", f"http://x2.{suffix}/no"))
    web = serve(
        {
            f"{here}robots.txt": Answer(
                headers={"Content-Type": "text/plain"}, body=f"Sitemap: {www}sitemap.xml".encode()
            ),
            here: Answer(301, {"Location": www}),
            www: ["/1", f"{here}3", f"http://shop.x1.{suffix}/", f"http://x2.{suffix}/"],
            f"{www}1": [here],
            f"{www}2": [],
            f"{here}3": [],
            f"http://shop.x1.{suffix}/": [f"{www}1"],
            f"http://x2.{suffix}/": [],
            f"{www}sitemap.xml": Answer(
                headers={"Content-Type": "text/xml"}, body=f"<urlset>{entries}</urlset>".encode()
            ),
        }
    )
    settings = {
        "ADDONS": {"scrapy_aopic.Addon": 500},
        "AOPIC_SITEMAPS": True,
        "AOPIC_ALLOW_NETWORKS": ["corp"],
    }
    await crawl(BroadSpider, settings, seeds=here, scope="domain")
    pages = {here, www, f"{www}1", f"{www}2", f"{here}3", f"http://shop.x1.{suffix}/"}
    assert {*web.asked} - {f"{www}sitemap.xml"} == pages
