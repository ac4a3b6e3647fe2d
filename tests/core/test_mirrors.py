"""Pages of an origin whose pages are those of another one wait behind all others, and none is lost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, product

import pytest
from msgspec.structs import replace
from support.core_crawl import Job

from scrapy_aopic.core.api import Findings
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.domain import Domain, domain_key, note_same, pack_domain, unpack_domain
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.mirrors import MIRRORED
from scrapy_aopic.core.order import Aopic, Focused, Order
from scrapy_aopic.core.records import Link
from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.web.request_rows import encode_url, url_of, waits_for
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_keys import key_at, key_of_url

HTTP, WWW, HTTPS = "http://a.test", "http://www.a.test", "https://a.test"


def link(url: str) -> Link:
    host, key = key_of_url(url)
    return Link(key, host, encode_url(url))


def job(order: Order | None = None) -> Job:
    return Job(order=order or Aopic(), domain_of=registered_domain, waits_for=waits_for, key_at=key_at)


def visit(
    web: Job, url: str, *links: str, text: str = "", leads: str = "", outcome: str = "", **found: object
) -> None:
    """Fetch the page that is next, which is *url*: it has *text*, of its path if it is not given, and links as *leads* says."""
    lease = web.lease()
    assert url_of(lease.request) == url
    text = text or url.split("/", 3)[3]
    web.crawl.judge(lease, text_of(text.encode(), leads.encode()) if text != "none" else None)
    web.crawl.release(lease, web.now)
    web.crawl.settle(lease, [link(each) for each in links], web.now, Findings(outcome=outcome, **found))  # type: ignore[arg-type]


def pairs(web: Job, paths: Iterable[str], one: str = HTTP, two: str = HTTPS, **found: str) -> None:
    """Fetch the pages of *paths* from two origins, first from *one*."""
    for path in paths:
        for origin in (one, two):
            web.seed(link(f"{origin}/{path}"))
            visit(web, f"{origin}/{path}", **found)


def rest(web: Job) -> list[str]:
    """The URLs of all that waits, in the order in which it comes."""
    asked = [url_of(request) for request in web.drain()]
    web.commit()
    result = audit(web.store)
    assert result.cash + result.virtual == TOTAL
    return asked


def test_once_three_pages_were_the_same_those_of_the_other_origin_wait_behind_all_others():
    web = job()
    pairs(web, "123")
    web.seed(*(link(f"{origin}/{path}") for path in "45" for origin in (HTTPS, HTTP)))
    web.seed(link("http://b.test/"), worth=0.01)
    assert rest(web) == [f"{HTTP}/4", f"{HTTP}/5", "http://b.test/", f"{HTTPS}/4", f"{HTTPS}/5"]


@pytest.mark.parametrize(
    ("paths", "found"),
    [("12", {}), ("123", {"text": "not found"}), ("123", {"text": "none"})],
    ids=["two pages", "one text", "too short to be compared"],
)
def test_what_proves_nothing_lowers_nothing(paths, found):
    web = job()
    pairs(web, paths, **found)
    web.seed(link(f"{HTTPS}/4"), link(f"{HTTP}/4"))
    assert rest(web) == [f"{HTTPS}/4", f"{HTTP}/4"]


def test_pages_with_other_links_or_under_other_paths_prove_nothing():
    for one, two, leads in [("/", "/", "ab"), ("/", "/x/", "aa")]:
        web = job()
        for path in "123":
            for origin, lead in zip((HTTP + one, HTTPS + two), leads, strict=True):
                web.seed(link(f"{origin}{path}"))
                visit(web, f"{origin}{path}", text=path, leads=lead)
        web.seed(link(f"{HTTPS}/4"), link(f"{HTTP}/4"))
        assert rest(web) == [f"{HTTPS}/4", f"{HTTP}/4"]


def test_pages_of_another_registered_domain_are_none_of_its_mirrors():
    web = job()
    pairs(web, "123", two="http://b.test")
    web.seed(link("http://b.test/4"), link(f"{HTTP}/4"))
    assert rest(web) == ["http://b.test/4", f"{HTTP}/4"]


def test_who_names_another_page_as_canonical_and_has_its_text_is_the_mirror():
    web = job()
    for path in "123":
        web.seed(link(f"{HTTP}/{path}"))
        visit(web, f"{HTTP}/{path}", f"{HTTPS}/{path}", same_as=link(f"{HTTPS}/{path}").key)
        visit(web, f"{HTTPS}/{path}")
    web.seed(link(f"{HTTP}/4"), link(f"{HTTPS}/4"))
    assert rest(web) == [f"{HTTPS}/4", f"{HTTP}/4"]


def test_a_page_waits_only_for_one_that_is_there_or_comes():
    web = job()
    pairs(web, "123")
    for path, found in [
        ("404", {"outcome": "http 404", "is_failure": True}),
        ("moved", {"outcome": "redirect"}),
    ]:
        web.seed(link(f"{HTTP}/{path}"))
        visit(web, f"{HTTP}/{path}", text="none", **found)  # type: ignore[arg-type]
    mirrored = [f"{HTTPS}/{path}" for path in ("404", "moved", "new")]
    web.seed(*map(link, mirrored))
    web.seed(link("http://b.test/"), worth=0.01)
    assert rest(web) == [*mirrored, "http://b.test/"]


def test_of_the_main_origin_a_page_waits_if_it_was_read_elsewhere():
    web = job()
    pairs(web, "123")
    web.seed(link(f"{HTTPS}/4"))
    visit(web, f"{HTTPS}/4")
    web.seed(link(f"{HTTP}/4"))
    web.seed(link("http://b.test/"), worth=0.01)
    assert rest(web) == ["http://b.test/", f"{HTTP}/4"]


def test_a_request_that_is_more_than_its_url_and_one_more_for_a_page_do_not_wait():
    web = job()
    pairs(web, "123")
    web.seed(link(f"{HTTP}/4"))
    visit(web, f"{HTTP}/4")
    form = replace(link(f"{HTTPS}/4"), key=link(f"{HTTPS}/form").key)
    web.seed(form)
    web.seed(link("http://b.test/"), worth=0.01)
    assert rest(web) == [f"{HTTPS}/4", "http://b.test/"]


def test_what_is_a_mirror_of_a_mirror_is_one_too_whichever_was_found_first():
    origins = [HTTP, WWW, HTTPS, "https://www.a.test"]
    for first in range(4):
        web = job()
        turn = cycle(origins[first:] + origins[:first])
        for path in range(1, 4):
            for _ in origins:
                url = f"{next(turn)}/{path}"
                web.seed(link(url))
                visit(web, url)
        web.seed(*(link(f"{origin}/4") for origin in origins))
        web.seed(link("http://b.test/"), worth=0.01)
        asked = rest(web)
        assert (asked[1], len(set(asked))) == ("http://b.test/", 5), first


def test_what_is_known_of_mirrors_survives_a_kill_with_the_pages():
    web = job()
    pairs(web, "12")
    web.commit()
    pairs(web, "3")
    web.reopen()  # without what was not committed: two pages are the same
    web.now += 1000.0  # the pause after a crash
    web.seed(link(f"{HTTPS}/4"), link(f"{HTTP}/4"))
    assert rest(web) == [f"{HTTPS}/4", f"{HTTP}/4"]
    pairs(web, "5")
    web.seed(*(link(f"{origin}/{path}") for path in "67" for origin in (HTTPS, HTTP)))
    visit(web, f"{HTTP}/6")
    web.commit()
    assert web.page(link(f"{HTTPS}/6")).lowered == MIRRORED
    web.reopen()
    web.now += 1000.0
    assert rest(web) == [f"{HTTP}/7", f"{HTTPS}/6", f"{HTTPS}/7"]


def test_in_shards_all_origins_of_a_domain_are_in_one():
    web = job()
    shards = {Cut(ShardId(0, 7), registered_domain).of_host(host) for host in ("a.test", "www.a.test")}
    web.crawl = Crawl(web.store, web.policy, web.now, ShardId(*shards, 7))
    pairs(web, "123", two=WWW)
    web.seed(link(f"{WWW}/4"), link(f"{HTTP}/4"))
    assert [url_of(request) for request in web.drain()] == [f"{HTTP}/4", f"{WWW}/4"]


def test_an_order_without_mirrors_looks_for_none():
    for order in (Focused(), Aopic()):
        order.mirror_pages = 0
        web = job(order)
        pairs(web, "123")
        web.seed(link(f"{HTTPS}/4"), link(f"{HTTP}/4"))
        assert rest(web) == [f"{HTTPS}/4", f"{HTTP}/4"]


def test_a_domain_with_endless_origins_has_a_short_record():
    domain = Domain()
    for number, text in product(range(1000), range(2)):
        note_same(domain, f"http://{number}.a.test", "http://a.test", bytes((text,)), 3)
    assert not domain.mirrors
    assert len(domain.alike or ()) <= 17
    for number, text in product(range(1000), range(3)):
        note_same(domain, f"http://{number}.a.test", "http://a.test", bytes((text,)), 3)
    assert len(domain.mirrors or ()) <= 17
    assert set((domain.mirrors or {}).values()) == {"http://a.test"}
    assert len(pack_domain(domain)) < 2_000
    domain.visited = 5
    assert unpack_domain(pack_domain(domain)) == domain


def test_a_domain_without_mirrors_takes_no_byte_for_them():
    web = job()
    web.seed(link(f"{HTTP}/1"))
    visit(web, f"{HTTP}/1")
    web.commit()
    key = domain_key("a.test")
    assert web.crawl.domains is not None
    domain = web.crawl.domains.get(key)
    assert pack_domain(domain) == pack_domain(Domain(1, domain.sketch, 1))
