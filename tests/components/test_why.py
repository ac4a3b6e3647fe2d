"""``scrapy aopic why``: every kind of answer, and an answer for every URL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from demo_web.server import Answer
from scrapy.settings import Settings
from support.commands import run_here
from support.core_crawl import Job
from support.crawls import Visits, in_folder
from support.small_web import Follow, ask, crawl, html

from scrapy_aopic.addon import Addon
from scrapy_aopic.core.api import Lease
from scrapy_aopic.core.branches import QUEUES
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.layout import LATE, Family
from scrapy_aopic.core.mirrors import MIRRORED
from scrapy_aopic.core.order import Aopic
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.records import Link, host_key, pack_host, page_key, unpack_host
from scrapy_aopic.core.robots.state import RobotsTxt
from scrapy_aopic.view.job_view import View
from scrapy_aopic.view.queries import pages_in
from scrapy_aopic.view.url_settings import CrawlRules
from scrapy_aopic.view.why import Explanation, why
from scrapy_aopic.web.request_rows import directory_of, encode_url, group_of, url_of, waits_for
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_keys import key_at, key_of_url


def rules(**values: Any) -> CrawlRules:
    settings = Settings({"USER_AGENT": "tester", **values})
    Addon().update_settings(settings)
    return CrawlRules(settings)


def asked(job: Job, question: str, **values: Any) -> Explanation:
    job.commit()
    return why(job.store, question, rules(**values))


def link(url: str) -> Link:
    host, key = key_of_url(url)
    return Link(key, host, encode_url(url))


WEB: dict[str, Any] = {
    "http://a.test/": [
        "http://a.test/copy",
        "http://a.test/moved",
        "http://a.test/for-now",
        "http://a.test/gone",
        "http://a.test/private/x",
        "http://a.test/picture",
        "http://b.test/?utm_source=x&q=1",
        "http://c.test/",
        "http://a.test/b/b/b/b/b/b",
    ],
    "http://a.test/robots.txt": Answer(headers={"Content-Type": "text/plain"}, body=b"User-agent: *\nDisallow: /private"),
    "http://a.test/page": Answer(headers={"Content-Type": "text/html"}, body=html([], "the same words " * 30)),
    "http://a.test/copy": Answer(headers={"Content-Type": "text/html"}, body=html(["http://a.test/page"], "")),
    "http://a.test/moved": Answer(301, headers={"Location": "http://a.test/page"}),
    "http://a.test/for-now": Answer(302, headers={"Location": "http://a.test/twin"}),
    "http://a.test/twin": Answer(headers={"Content-Type": "text/html"}, body=html([], "the same words " * 30)),
    "http://a.test/picture": Answer(headers={"Content-Type": "image/png"}, body=b"png"),
    "http://b.test/?q=1": [],
    "http://c.test/": Answer(500),
}  # fmt: skip


async def test_there_is_an_answer_for_every_page_of_a_crawl_and_for_every_link_that_was_dropped(
    serve, tmp_path
):
    serve(WEB)
    ours = {"ADDONS": {Addon: 500}, "RETRY_ENABLED": False, "AOPIC_KEEP_LINKS": True}
    await crawl(Follow, in_folder(tmp_path, ours))

    def kind(url: str) -> tuple[str, str]:
        answer = ask(tmp_path, why, url, rules())
        assert all(sentence.endswith(".") for sentence in answer.sentences)
        return answer.kind, " ".join(answer.sentences)

    for url, expected, words in (
        ("http://a.test/", "fetched", "and is an ordinary page. It links to"),
        ("http://a.test/moved", "redirect", "and redirected to http://a.test/"),
        ("http://a.test/for-now", "redirect", "as the redirect is not permanent"),
        ("http://a.test/gone", "failed", "the server responded with status 404"),
        ("http://c.test/", "failed", "status 500"),
        ("http://a.test/private/x", "forbidden", "Its robots.txt forbids it (ROBOTSTXT_OBEY)"),
        ("http://a.test/picture", "failed", "a content type that is not read (AOPIC_CONTENT_TYPES)"),
        ("http://b.test/?q=1", "fetched", "ordinary page"),
        ("http://b.test/?utm_source=x&q=1", "fetched", "Its normal form is http://b.test/?q=1"),
        ("http://a.test/b/b/b/b/b/b", "refused", "its path repeats itself (AOPIC_URL_LIMITS: repeats)"),
        ("http://a.test/private/y", "robots", "its robots.txt would forbid it"),
        ("http://a.test/never", "unknown", "no page that was settled as of"),
        ("https://a.test/page", "unknown", "http://a.test/page is known, and was fetched."),
        ("http://c.test", "failed", "Its normal form is http://c.test/"),
        ("http://a.test/robots.txt", "fetched", "The crawl reads it by itself, and not as a page."),
        ("http://c.test/robots.txt", "fetched", "there is none, or an empty one: everything is allowed"),
        ("http://z.test/robots.txt", "unknown", "It was not needed yet"),
        ("mailto:a@a.test", "refused", "It is neither a URL that is crawled"),
        ("two words", "refused", "nor the name of a host"),
        (" a.test/gone ", "failed", "the server responded with status 404"),
        ("http://z.test/", "unknown", "Neither it nor any other page of z.test"),
        ("ftp://a.test/", "refused", "neither http nor https"),
        ("http://[/", "refused", "it is no URL"),
    ):
        found, sentences = kind(url)
        assert (found, words in sentences) == (expected, True), (url, sentences)
    duplicates = [url for url in ("http://a.test/page", "http://a.test/twin") if kind(url)[0] == "duplicate"]
    assert len(duplicates) == 1
    assert "is a duplicate of http://a.test/" in kind(duplicates[0])[1]
    chunks = ask(tmp_path, lambda store: list(pages_in(View([store]), 100)))
    pages = {page.url: page for chunk in chunks for page in chunk}
    assert len(pages) >= 10
    noted = {url: (page.status, page.content_type, page.bytes) for url, page in pages.items()}
    assert {url: what for url, what in noted.items() if "b.test" not in url} == {
        "http://a.test/": (200, "text/html", len(html(WEB["http://a.test/"]))),
        "http://a.test/page": (200, "text/html", len(html([], "the same words " * 30))),
        "http://a.test/twin": (200, "text/html", len(html([], "the same words " * 30))),
        "http://a.test/copy": (200, "text/html", len(html(["http://a.test/page"], ""))),
        "http://a.test/moved": (301, "", None),
        "http://a.test/for-now": (302, "", None),
        "http://a.test/gone": (404, "text/plain", 0),
        "http://a.test/private/x": (None, "", None),
        "http://a.test/picture": (200, "image/png", None),
        "http://c.test/": (500, "text/plain", 0),
    }
    response = ask(tmp_path, why, "http://a.test/moved", rules())
    assert "Its last response had status 301." in response.sentences
    facts = [response.facts[name] for name in ("status", "content_type", "bytes")]
    assert facts == [301, "", None]
    assert {kind(url)[0] for url in pages} == {"fetched", "redirect", "duplicate", "failed", "forbidden"}
    assert kind("a.test")[0] == "idle"


def waiting_job(**politeness: Any) -> Job:
    """A host of which a page was just fetched, and three wait."""
    return Job(*(link(f"http://a.test/{n}") for n in range(4)), politeness=Politeness(**politeness))


def fetch(
    job: Job, outcome: Outcome = Outcome.ANSWER, seconds: float = 2.0, links: Sequence[Link] = ()
) -> Lease:
    lease = job.crawl.lease(job.now)
    job.crawl.transferred(lease.host, TransferResult(seconds, outcome), job.now)
    job.finish(lease, *links)
    return lease


def test_a_queued_page_has_its_rank_and_its_host_a_reason_to_wait():
    job = waiting_job()
    fetch(job)
    answers = [asked(job, f"http://a.test/{n}") for n in range(4)]
    assert sorted(answer.kind for answer in answers) == ["fetched", "queued", "queued", "queued"]
    queued = [answer for answer in answers if answer.kind == "queued"]
    assert sorted(answer.facts["rank"] for answer in queued) == [1, 2, 3]
    assert "must be left alone for 20 s: the gap after its last transfer" in " ".join(queued[0].sentences)
    host = asked(job, "A.test")
    assert host.kind == "waiting"
    assert host.facts["queued"] == 3
    assert "Its last transfer took 2 s." in host.sentences


@pytest.mark.parametrize(
    ("politeness", "outcome", "kind", "words"),
    [
        ({"backoff": 50.0}, Outcome.ERROR, "waiting", "errors, after each of which the gap doubles (AOPIC_BACKOFF)"),
        ({"backoff": 50.0}, Outcome.DOWN, "waiting", "it did not respond, or asked for a later request"),
        ({"backoff": 50.0, "dead_after": 1}, Outcome.DOWN, "dead", "the crawl does not wait for it. It is"),
        ({"factor": 0.0}, Outcome.ANSWER, "ready", "it could be requested as of the last commit"),
    ],
)  # fmt: skip
def test_a_host_says_why_it_waits(politeness, outcome, kind, words):
    job = waiting_job(**politeness)
    fetch(job, outcome)
    answer = asked(job, "a.test")
    assert answer.kind == kind
    assert words in " ".join(answer.sentences)


def test_a_page_that_waits_lower_because_of_its_directory_says_so():
    job = Job(order=Aopic(), directory_of=directory_of, politeness=Politeness(factor=0.0))
    job.seed(*(link(f"http://a.test/d/{n}") for n in range(5)), link("http://a.test/e/0"))
    assert [url_of(fetch(job).request)[-3:] for _ in range(4)] == ["d/0", "d/1", "d/2", "e/0"]
    answer = asked(job, "http://a.test/d/3")
    assert (answer.kind, answer.facts["lowered"]) == ("queued", 1)
    assert "one front queue lower, because enough pages of its directory" in " ".join(answer.sentences)


def test_a_page_that_waits_lower_because_of_its_branch_says_so():
    order = Aopic()
    order.branch_pages = 2
    job = Job(link("http://a.test/"), order=order, politeness=Politeness(factor=0.0))
    for number in range(4):  # each leads to the next two of a tree
        fetch(job, links=[link(f"http://a.test/{2 * number + each}") for each in (1, 2)])
    answer = asked(job, "http://a.test/8")
    assert (answer.kind, answer.facts["lowered"]) == ("queued", QUEUES)
    assert f"It waits {QUEUES} front queues lower" in " ".join(answer.sentences)


def test_a_page_of_a_crowded_group_says_so_and_how_to_deny_it():
    order = Aopic()
    order.branch_pages = 2
    job = Job(order=order, group_of=group_of, politeness=Politeness(factor=0.0))
    facets = [link(f"http://a.test/shop?a={number}") for number in range(9)]
    job.seed(link("http://a.test/"))
    fetch(job, links=facets[:1])
    for _ in range(4):
        fetch(job, links=facets)
    waits = [answer for each in facets if (answer := asked(job, url_of(each.request))).kind == "queued"]
    assert {answer.facts["lowered"] for answer in waits} == {QUEUES + 4}
    told = " ".join(waits[0].sentences)
    assert "many pages like a.test/shop?a=* that lead to each other" in told
    assert "beyond 64 pages and a hundredth of its host's fetches" in told
    assert '"deny_urls": ["://a\\\\.test/shop\\\\?"]' in told


def test_a_page_that_waits_since_another_origin_has_it_says_so():
    origins = {"domain_of": registered_domain, "waits_for": waits_for, "key_at": key_at}
    job = Job(order=Aopic(), politeness=Politeness(factor=0.0), **origins)
    for path in "123":
        for origin in ("http://a.test", "http://www.a.test"):
            job.seed(link(f"{origin}/{path}"))
            lease = job.lease()
            job.crawl.judge(lease, text_of(path.encode()))
            job.release(lease)
            job.settle(lease)
    job.seed(link("http://a.test/4"), link("http://www.a.test/4"))
    fetch(job)
    job.seed(link("http://b.test/"), worth=0.01)
    assert url_of(fetch(job).request) == "http://b.test/"
    answer = asked(job, "http://www.a.test/4")
    assert (answer.kind, answer.facts["lowered"]) == ("queued", MIRRORED)
    assert answer.facts["mirrors"] == ["http://a.test", "http://www.a.test"]
    said = "It waits behind all others, because http://a.test and http://www.a.test have the same pages"
    assert said in " ".join(answer.sentences)


def test_a_job_that_was_closed_waits_for_a_crawl():
    job = waiting_job()
    job.commit(is_clean=True)
    for question in ("a.test", "http://a.test/3"):
        first = why(job.store, question, rules()).sentences[0]
        assert first.startswith("No crawl uses the job now: it was closed at 2001-")
    assert "No crawl" not in " ".join(asked(job, "a.test").sentences)  # which commits as one that goes on


def test_a_ready_host_says_how_many_have_better_pages():
    job = Job(*(link(f"http://h{n}.test/") for n in range(3)))
    next(iter(job.crawl.frontier.active.values())).best += 2
    job.commit()
    better = [why(job.store, f"h{n}.test", rules()).facts["better"] for n in range(3)]
    assert sorted(better) == [0, 1, 1]
    sentences = why(job.store, f"h{better.index(1)}.test", rules()).sentences
    assert "1 of 3 hosts in memory have better ones" in " ".join(sentences)


def test_names_of_hosts_are_taken_as_people_write_them():
    job = Job(link("http://xn--mnchen-3ya.test/"))
    assert asked(job, "M\N{LATIN SMALL LETTER U WITH DIAERESIS}nchen.test.").kind == "ready"


def test_a_crawl_delay_and_a_robots_txt_out_of_reach_are_said():
    job = waiting_job()
    job.crawl.set_crawl_delay("a.test", 120.0, job.now)
    robots = RobotsTxt(None, failures=3, retry_at=job.now + 60)
    job.crawl.keep_robots(page_key(host_key("a.test"), b"http://a.test"), robots.to_bytes())
    for question in ("a.test", "http://a.test/3"):
        text = " ".join(asked(job, question).sentences)
        assert "must be left alone for 2 min: the crawl delay of its robots.txt" in text
        assert "Its robots.txt has a crawl delay of 120 s." in text
        assert "was unreachable 3 times in a row, so nothing is allowed" in text


def test_a_page_in_flight_is_said_to_be():
    job = waiting_job()
    lease = job.crawl.lease(job.now)
    url = lease.request.decode().partition("\n")[0]
    answer = asked(job, url)
    assert answer.kind == "in flight"
    assert "If the crawl died since, it waits again." in answer.sentences
    assert asked(job, "a.test").kind == "in flight"
    others = [asked(job, f"http://a.test/{n}").kind for n in range(4)]
    assert others.count("queued") >= 3


@pytest.mark.parametrize(("max_active", "kind"), [(100, "ready"), (1, "shelved")])
def test_hosts_that_are_on_the_disk_are_found(max_active, kind):
    job = Job(*(link(f"http://h{n}.test/") for n in range(3)), max_active=max_active)
    assert asked(job, "h2.test").kind == kind


def test_a_host_over_its_budget_is_said_to_be_late():
    job = waiting_job()
    job.commit()
    key = host_key("a.test")
    host = unpack_host(job.store.get_many(Family.HOSTS, [key])[0] or b"")
    host.row = LATE + bytes(9)
    job.store.write({Family.HOSTS: {key: pack_host(host)}}, sync=True)
    answer = why(job.store, "a.test", rules())
    assert answer.kind == "late"
    assert "its domain is over its budget" in " ".join(answer.sentences)


def test_pauses_after_a_crash_and_a_store_without_a_job_are_said():
    job = Job()
    assert why(job.store, "http://a.test/", rules()).sentences == ["There is no job yet."]
    assert why(job.store, "a.test", rules()).sentences == ["There is no job yet."]
    job.seed(link("http://a.test/"))
    assert asked(job, "www.a.test").sentences[-1] == "a.test is known."


def test_a_robots_txt_that_is_not_obeyed_forbids_nothing():
    job = waiting_job()
    robots = RobotsTxt(b"User-agent: *\nDisallow: /", job.now)
    job.crawl.keep_robots(page_key(host_key("a.test"), b"http://a.test"), robots.to_bytes())
    assert asked(job, "http://a.test/x").kind == "robots"
    assert asked(job, "http://a.test/x", ROBOTSTXT_OBEY=False).kind == "unknown"


def test_a_rule_of_the_user_counts_and_one_that_fails_does_not():
    job = waiting_job()
    own = [[r"^http://old\.test/", "http://a.test/"]]
    assert asked(job, "http://old.test/1", AOPIC_URL_REWRITE=own).kind == "queued"
    assert asked(job, "http://a.test/1", AOPIC_URL_REWRITE=lambda url: 1 / 0).kind == "queued"
    assert asked(job, "http://a.test/1", AOPIC_URL_REWRITE=lambda url: None).kind == "queued"
    refused = asked(job, "http://a.test/x", AOPIC_URL_REWRITE=lambda url: None)
    assert "your own rule says so (AOPIC_URL_REWRITE)" in refused.sentences[0]


async def test_the_command_answers_several_questions(serve, tmp_path, capsys):
    serve({"http://a.test/": []})
    await crawl(Visits, in_folder(tmp_path), start_urls=["http://a.test/"])
    for options in ([], ["--json"]):
        code, shown, _ = run_here(capsys, "why", tmp_path, "http://a.test/", "b.test", *options)
        assert code == 0
        if options:
            assert [answer["kind"] for answer in json.loads(shown)] == ["fetched", "unknown"]
        else:
            assert "http://a.test/: fetched\n  It was fetched at " in shown
            assert "b.test: unknown\n" in shown
