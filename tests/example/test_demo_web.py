"""The demo web: the same for everyone, shaped like a web, and faulty in every way it promises."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from random import Random
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from demo_web import N_HOSTS, N_PAGES, DemoWeb, served
from demo_web.grammar import TOPICS
from demo_web.server import Answer, Exchange
from demo_web.server_log import read_log
from parsel import Selector
from support.waiting import wait_until

pytestmark = pytest.mark.slow

Graph = tuple[list[str], list[list[int]]]


@pytest.fixture(scope="module")
def web() -> DemoWeb:
    return DemoWeb()


@pytest.fixture(scope="module")
def graph(web: DemoWeb) -> Graph:
    return web.graph()


@pytest.fixture(scope="module")
def answers(web: DemoWeb) -> dict[str, Answer]:
    """The answer of every page."""
    return {url: get(web, url) for url in web.urls()}


@pytest.fixture(scope="module")
def robots(web: DemoWeb) -> dict[str, Answer]:
    """The answer to robots.txt by host."""
    hosts = {urlsplit(url).netloc for url in web.urls()}
    return {host: get(web, f"http://{host}/robots.txt") for host in sorted(hosts)}


def get(web: DemoWeb, url: str, **headers: str) -> Answer:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return web.answer(Exchange("GET", parts.netloc, target, headers))


def text_of(answer: Answer) -> str:
    """Decode a page as a browser would: by the header, else by the declaration in the document."""
    declared = answer.headers["Content-Type"].partition("charset=")[2]
    return answer.body.decode(declared or Selector(body=answer.body).xpath("//meta/@charset").get(""))


def links_of(url: str, answer: Answer) -> list[tuple[str, str, str]]:
    """All links of a page in document order: href as written, URL it leads to without fragment, rel."""
    anchors = Selector(text=text_of(answer)).css("a[href]")
    return [
        (a.attrib["href"], urldefrag(urljoin(url, a.attrib["href"])).url, a.attrib.get("rel", ""))
        for a in anchors
    ]


def some(items: list[str], n: int) -> list[str]:
    return Random(1).sample(items, n)


@pytest.fixture(scope="module")
def parsed(graph: Graph, answers: dict[str, Answer]) -> dict[str, list[tuple[str, str, str]]]:
    """The links of some ordinary pages, as served."""
    ordinary = [url for url in graph[0] if answers[url].status == 200]
    return {url: links_of(url, answers[url]) for url in some(ordinary, 400)}


# Determinism


def test_two_webs_of_one_seed_answer_with_the_same_bytes_and_another_seed_does_not(web):
    same, other = DemoWeb(), DemoWeb(seed=1)
    assert same.seeds == web.seeds
    urls = [*some(web.urls(), 200), web.trap, *(f"{seed}robots.txt" for seed in web.seeds)]
    for url in urls:
        assert get(same, url) == get(web, url)
    assert other.seeds != web.seeds
    shared = set(other.urls()) & set(web.urls())  # a few names are drawn twice
    assert len(shared) < 200
    assert sum(get(other, url).body == get(web, url).body != b"" for url in shared) < 5  # error texts
    assert get(other, other.trap).body != get(web, web.trap).body


# Shape


def test_the_web_has_as_many_hosts_and_pages_as_asked_for(web):
    for known in (web, DemoWeb(5, 40, 400)):
        urls = known.urls()
        assert len(urls) == len(set(urls)) == known.n_urls
        assert len({urlsplit(url).netloc for url in urls}) == known.n_hosts - 1  # the trap has no pages
    assert (web.n_hosts, web.n_urls) == (N_HOSTS, N_PAGES) == (400, 12_000)


def test_the_smallest_web_is_complete():
    for seed in range(20):
        web = DemoWeb(seed, 20, 80)
        urls, outlinks = web.graph()
        assert set(web.seeds) <= set(urls), seed
        assert len(urls) == len(outlinks), seed
        assert {get(web, url).abort for url in web.urls()} == {False, True}, seed


def test_a_web_of_another_size_is_refused():
    for n_hosts, n_pages in [(19, 400), (5_000, 50_000), (100, 399)]:
        with pytest.raises(ValueError, match=rf"\(({n_hosts}|{n_pages})\) must be"):
            DemoWeb(1, n_hosts, n_pages)


def test_every_page_of_the_graph_is_reachable_from_the_seeds(web, graph):
    urls, outlinks = graph
    assert len(web.seeds) == 10
    found = {urls.index(seed) for seed in web.seeds}
    waiting = list(found)
    while waiting:
        new = set(outlinks[waiting.pop()]) - found
        found |= new
        waiting += new
    assert len(found) == len(urls)


# The graph is the web that is served


def test_the_graph_has_the_links_that_are_served(graph, answers, parsed):
    urls, outlinks = graph
    position = {url: page for page, url in enumerate(urls)}
    for url, links in parsed.items():
        seen = [target for _, target, rel in links if rel != "nofollow" and target != url]
        served_links = list(dict.fromkeys(position[target] for target in seen if target in position))
        assert outlinks[position[url]] == served_links, url
    redirects = [url for url in urls if answers[url].status in {301, 302}]
    assert len(redirects) > 300
    for url in redirects:
        location = urljoin(url, answers[url].headers["Location"])
        assert outlinks[position[url]] == [position[location]]


def test_the_graph_has_every_page_that_leads_somewhere(graph, answers):
    looping = {url for url in answers if resolved(answers, url) is None}
    expected = [
        url
        for url, answer in answers.items()
        if answer.status < 400 and not answer.abort and url not in looping
    ]
    assert graph[0] == expected


def resolved(answers: dict[str, Answer], url: str) -> list[str] | None:
    """Follow redirects; the URLs on the way, or None if they go round in a circle."""
    way = [url]
    while answers[way[-1]].status in {301, 302}:
        target = urljoin(way[-1], answers[way[-1]].headers["Location"])
        if target in way:
            return None
        way.append(target)
    return way


# Pages


def test_links_are_of_every_kind(web, answers, parsed):
    links = [link for page_links in parsed.values() for link in page_links]
    hrefs = [href for href, _, _ in links]
    for kind in (r"//", r"\.\./", r"#", r".+#", r"mailto:", r".*&view="):
        assert any(re.match(kind, href) for href in hrefs), kind
    assert any(len(set(page_links)) < len(page_links) for page_links in parsed.values())
    assert any(target == url for url, page_links in parsed.items() for _, target, _ in page_links)
    assert any(rel == "nofollow" for _, _, rel in links)
    dangling = [target for _, target, _ in links if target.startswith("http") and target not in answers]
    assert any(get(web, target).status == 404 for target in dangling)


def test_it_has_each_fault(answers, robots):
    """Redirects in a chain and in a circle, old encodings, errors, a dead host, slow ones, and robots.txt of every kind."""
    redirects = {url: answer for url, answer in answers.items() if answer.status in {301, 302}}
    ways = [resolved(answers, url) for url in redirects]
    assert ways.count(None) == 2
    assert {len(way) for way in ways if way} == {2, 3}
    assert any(urlsplit(way[0]).netloc != urlsplit(way[-1]).netloc for way in ways if way)
    for kind, encoding in (("text/html; charset=iso-8859-1", "iso-8859-1"), ("text/html", "windows-1252")):
        pages = [a for a in answers.values() if a.headers.get("Content-Type") == kind and a.status == 200]
        assert all(f'charset="{encoding}"'.encode() in page.body for page in pages)
        assert any("Zoë Ångström" in text_of(page) for page in pages)
    failing = [answer for answer in answers.values() if answer.status >= 500]
    assert Counter(answer.status for answer in failing) == {500: 12, 503: 12}
    assert all(("Retry-After" in answer.headers) == (answer.status == 503) for answer in failing)
    (dead,) = {urlsplit(url).netloc for url, answer in answers.items() if answer.abort}
    assert [host for host, answer in robots.items() if answer.abort] == [dead]
    assert 0.04 < sum(answer.delay >= 0.2 for answer in robots.values()) / len(robots) < 0.12
    assert {answer.status for answer in robots.values() if not answer.abort} == {200, 404, 500}
    texts = [answer.body.decode() for answer in robots.values() if answer.status == 200]
    for line in ("Disallow: /\n", "Crawl-delay: 1\n", "Disallow: /private/\n"):
        assert any(line in text for text in texts), line


def test_unknown_names_hosts_and_methods_are_told_apart(web):
    assert get(web, f"{web.seeds[0]}no/such/page.html").status == 404
    assert get(web, "http://unknown.example/").status == 502
    assert web.answer(Exchange("POST", urlsplit(web.seeds[0]).netloc, "/", {})).status == 405


def test_the_calendar_never_ends(web):
    for choice in (0, -1):  # the next month, and deeper and deeper
        url, visited = web.trap, {web.trap}
        for _ in range(300):
            links = links_of(url, get(web, url))
            assert all(target.startswith("http://calendar.") for _, target, _ in links)
            url = links[choice][1]
            assert url not in visited
            visited.add(url)
    assert url.endswith("later/later/")
    assert get(web, urljoin(web.trap, "/other")).status == 404


# As a process


def fetch(proxy: str, url: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(proxy).netloc, timeout=60)
    try:
        connection.request("GET", url)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_served_runs_it_as_a_proxy_until_the_end_of_the_block(tmp_path):
    log = tmp_path / "log.tsv"
    web = DemoWeb(7, 30, 300)
    with served(seed=7, n_hosts=30, n_pages=300, log=log) as proxy:
        for url in web.seeds:
            answer = get(web, url)
            assert fetch(proxy, url) == (answer.status, answer.body)
        assert fetch(proxy, f"{proxy}/")[0] == 502
    with pytest.raises(OSError, match="refused"):
        fetch(proxy, web.seeds[0])
    assert [f"http://{entry.host}{entry.target}" for entry in read_log(log)[:-1]] == web.seeds


def started(*line: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    return subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env=environment)


COMMAND = [sys.executable, "-m", "demo_web", "--hosts", "20", "--pages", "80"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None], ids=["TERM", "INT", "stdin"])
def test_a_signal_or_the_end_of_stdin_stops_it(number):
    with started(*COMMAND, "--watch-stdin") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        assert line.startswith("serving 80 pages of 20 hosts, proxy http://127.0.0.1:")
        if number is None:
            process.stdin.close()
        else:
            process.send_signal(number)
        assert process.stdout.read() == ""  # exactly one line
        assert process.wait(timeout=60) == 0


def test_it_does_not_outlive_a_killed_crawler_and_keeps_its_log(tmp_path):
    log = tmp_path / "log.tsv"
    crawler = (
        "import sys, pathlib, demo_web as demo\n"
        "with demo.served(n_hosts=20, n_pages=80, log=pathlib.Path(sys.argv[1])) as proxy:\n"
        "    print(proxy, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with started(sys.executable, "-c", crawler, str(log)) as process:
        assert process.stdout is not None
        proxy = process.stdout.readline().strip()
        assert fetch(proxy, "http://unknown.example/x")[0] == 502
        process.kill()

    def is_gone() -> bool:
        with suppress(OSError):
            fetch(proxy, "http://unknown.example/y")
            return False
        return True

    wait_until(is_gone)
    assert read_log(log)[0].target == "/x"


def test_topics_change_texts_and_nothing_else():
    plain, topical = DemoWeb(), DemoWeb(has_topics=True)
    assert topical.graph() == plain.graph()
    topics = {url: topical.topic(url) for url in topical.urls()}
    assert set(topics.values()) == {"", *TOPICS}
    assert not any(map(plain.topic, topics))
    for topic, nouns in TOPICS.items():
        urls = [url for url, name in topics.items() if name == topic]
        for url in urls[:20]:
            assert any(noun.encode() in get(topical, url).body for noun in nouns)
            assert not any(noun.encode() in get(plain, url).body for noun in nouns)
