"""A web that has every trap at once, crawled with the add-on: the crawl ends, and each trap costs little."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from demo_web.server import Server
from scrapy import Request, Spider
from scrapy.http import HtmlResponse, TextResponse
from support import hostile_web, processes
from support.hostile_input import CHARSETS
from support.small_web import check

from scrapy_aopic.session.links.found_link import link_test
from scrapy_aopic.session.links.link_weights import ByKind
from scrapy_aopic.web.page_text import read_canonical, read_text
from scrapy_aopic.web.parse_limits import too_many_attributes

STATS = Path(__file__).parents[2] / "docs" / "stats.md"

SPIDER = Path(hostile_web.__file__).with_name("wander_spider.py")
"""Not imported: it changes modules of the package for a process of its own."""

SETTINGS = {
    "ADDONS": '{"scrapy_aopic.Addon": 500}',
    # The bounds of the add-on, smaller, so that they are reached in seconds.
    "DOWNLOAD_TIMEOUT": 3,
    "DOWNLOAD_MAXSIZE": 3_000_000,
    "AOPIC_URL_LIMITS": "links=300",
    "AOPIC_POLITENESS_FACTOR": 0,
    "AOPIC_BACKOFF": 0.05,
    "AOPIC_MAX_GAP": 2,
    "AOPIC_MAX_BACKOFF": 3,  # five of these after a Retry-After, and a host is dead
    "AOPIC_MAX_WAIT": 0.15,
    # Sites whose pages are always new end by nothing else; their budget only lets the others go first.
    "DEPTH_LIMIT": 40,
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}

MOST = {
    "pages": 450,
    "flood": 310,
    "wild": 200,
    "calendar": 110,
    "location": 60,
    "deep": 45,
    "canonical": 60,
    "refresh": 40,
    # One text with other links each time: a page of its own, up to SAME_WORDS for a registered domain.
    "clones": 110,  # with those that are asked for when that is reached
    "words": 60,
}
"""Requests to a registered domain, robots.txt, retries and tries included; to others at most 30."""

SILENT = {"drip", "headers", "header", "reset", "s429", "later", "length2", "length3", "length4", "length5",
          "robots-drip", "robots-reset"}  # fmt: skip
"""Hosts that never give an answer that is one: their pages wait, and nobody waits for them."""


def name_of(host: str) -> str:
    return host.removesuffix(".test").removesuffix(".com").rpartition(".")[2]


@pytest.mark.slow
def test_a_web_of_traps_is_crawled_to_its_end(tmp_path):
    job, report = tmp_path / "job", tmp_path / "report.json"
    options = [f"{name}={value}" for name, value in {**SETTINGS, "JOBDIR": job}.items()]
    line = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), "-a", f"report={report}"]
    with Server(hostile_web.answer).run_in_thread() as running:
        process = processes.run(
            [*line, *(part for option in options for part in ("-s", option))],
            env={**os.environ, "http_proxy": running.url, "https_proxy": running.url, "no_proxy": ""},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=550,
        )
    assert process.returncode == 0, process.stderr
    result = json.loads(report.read_text())
    stats = result["stats"]
    assert result["reason"] == ("aopic_unreachable" if stats["aopic/job/dead_pages"] else "finished")

    # All that is worth it was found, and of the rest no more than this.
    fetched = {f"http://{entry.host}{entry.target}" for entry in running.log if entry.status == 200}
    assert fetched >= hostile_web.ORDINARY
    asked = Counter(name_of(entry.host) for entry in running.log)
    # Hosts that give no answer are asked once in a longest gap as long as the crawl takes.
    again = (running.log[-1].end - running.log[0].start) / SETTINGS["AOPIC_MAX_BACKOFF"]
    assert {name: n for name, n in asked.items() if n > MOST.get(name, 30) + again * (name in SILENT)} == {}
    assert sum(asked.values()) < 1800 + again * len(SILENT)
    assert result["peak_mb"] is None or result["peak_mb"] < 400
    for kind in hostile_web.OBEYED:
        assert f"http://robots-{kind}.test/" in fetched
        assert f"http://robots-{kind}.test{hostile_web.FORBIDDEN}" not in fetched
    robots_alone = {f"robots-{kind}.test" for kind in hostile_web.UNREACHABLE}
    assert {entry.target for entry in running.log if entry.host in robots_alone} == {"/robots.txt"}

    # The ledger holds; nothing waits but the pages of dead hosts.
    audit = check(job)
    assert audit.violations == []
    assert audit.queued == stats["aopic/job/dead_pages"]
    assert stats["aopic/job/dead_hosts"] <= len(SILENT)

    # What would stop everything is not read.
    assert (stats["aopic/hostile/codings"], stats["aopic/hostile/attributes"]) == (1, 1)

    # What went wrong has a name.
    assert "aopic/errors" not in stats
    outcomes = {name[15:]: n for name, n in stats.items() if name.startswith("aopic/outcomes/")}
    failures = {outcome: n for outcome, n in outcomes.items() if outcome not in ("redirect", "duplicate")}
    assert sum(failures.values()) == stats["aopic/pages/failed"]
    documented = re.findall(r"^- \S+ \S+`(aopic/[^`<]+)", STATS.read_text(), re.MULTILINE)
    assert [name for name in stats if name[:6] == "aopic/" and not name.startswith(tuple(documented))] == []
    ours = re.findall(r'File ".*[/\\]scrapy_aopic[/\\].*', process.stderr)
    # Scrapy shows by which download handler an error came.
    assert [line for line in ours if not line.endswith(", in download_request")] == []


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize("kind", [HtmlResponse, TextResponse])
@pytest.mark.parametrize("charset", [*CHARSETS, "base64", "uu", "bz2"])
def test_a_charset_that_is_none_is_no_error(kind, charset):
    """Python has codecs that are none of text, and Scrapy's responses raise whatever these raise."""
    for size in (1, 10_000):
        response = kind(
            "http://a.test/",
            headers={"Content-Type": f"text/html; charset={charset}"},
            body=b'<link rel=canonical href="/x"><p>some words <a href="/y" rel=nofollow>more</a>' * size,
            request=Request("http://a.test/"),
        )
        read_text(response, has_sketch=True)
        read_canonical(response)
        any(too_many_attributes(response))
        link_test(response, Spider("any"))(Request("http://a.test/y"))
        ByKind(nofollow=0)(Request("http://a.test/y"), response)
