"""``scrapy aopic crawl``, run as a user runs it: from an empty folder, by command line, against a server on loopback."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from demo_web.server import Answer, Exchange
from pyarrow import parquet
from scrapy.cmdline import execute
from scrapy.settings import Settings
from support import processes
from support.redis_server import WHY_NOT, Server, find_server
from support.short_forms import some_of
from support.small_web import check, html

from scrapy_aopic import open_job

pytestmark = pytest.mark.slow


HOME = "http://www.example.com/"
PAGES: dict[str, Any] = {
    HOME: ["/1", "http://blog.example.com/", "http://example.org/", "/login"],
    "http://www.example.com/1": [HOME],
    "http://www.example.com/login": [],
    "http://blog.example.com/": [],
    "http://example.org/": ["/2"],
    "http://example.org/2": [],
}
CONTACT = ("--contact", "https://example.org/crawler")
FAST = ("-s", "AOPIC_POLITENESS_FACTOR=0", "-s", "AOPIC_BACKOFF=0")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scrapy", "aopic", "crawl", *arguments]


def crawl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run(
        command(*arguments), cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


def crawled(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same with a contact and without gaps; it has to end well."""
    done = crawl(folder, *arguments, *CONTACT, *FAST)
    assert done.returncode == 0, done.stderr
    return done


def items(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_an_empty_folder_is_enough(serve, tmp_path):
    seen: list[Exchange] = []

    def robots(exchange: Exchange) -> Answer:
        seen.append(exchange)
        body = b"User-agent: scrapy-aopic\nDisallow: /login"
        return Answer(headers={"Content-Type": "text/plain"}, body=body)

    web = serve({**PAGES, "http://www.example.com/robots.txt": robots})
    done = crawled(tmp_path, HOME, "-o", "items.jsonl", "-o", "items.csv")
    kept = items(tmp_path / "items.jsonl")
    allowed = PAGES.keys() - {"http://www.example.com/login"}
    assert {item["url"] for item in kept} == allowed
    assert {tuple(item) for item in kept} == {("url", "title", "language", "type", "importance", "visits")}
    with (tmp_path / "items.csv").open(encoding="utf-8") as file:
        assert {row["url"] for row in csv.DictReader(file)} == allowed
    assert {*web.asked} == allowed
    assert " (+https://example.org/crawler)" in seen[0].headers["user-agent"]
    (job,) = (tmp_path / "crawls").iterdir()
    assert job.name.startswith("www.example.com-")
    assert "The most important pages" in done.stdout
    assert "every invariant holds" in done.stdout
    assert "Done: nothing is queued." in done.stdout
    assert f"scrapy aopic why crawls/{job.name} http://" in done.stdout
    first, *others = done.stderr.splitlines()
    assert first.startswith(f"Beginning the crawl in crawls/{job.name}.")
    assert [line for line in others if " WARNING: Forbidden by robots.txt" not in line] == []
    assert check(job).visited == len(allowed)


@pytest.mark.parametrize(
    ("options", "fetched"),
    [
        (["--domains", "example.com"], ["blog.example.com/", "www.example.com/", "www.example.com/1", "www.example.com/login"]),
        (["--scope", "domain"], ["blog.example.com/", "www.example.com/", "www.example.com/1", "www.example.com/login"]),
        (["--scope", "host", "--deny", "/login"], ["www.example.com/", "www.example.com/1"]),
        (["--deny", "example.org", "--deny", "/1"], ["blog.example.com/", "www.example.com/", "www.example.com/login"]),
        (["--allow", "/1", "--allow", "/$", "--domains", "www.example.com", "--domains", "blog.example.com"],
         ["blog.example.com/", "www.example.com/", "www.example.com/1"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_it_stays_where_it_is_told_to(serve, tmp_path, options, fetched):
    web = serve(PAGES)
    crawled(tmp_path, *options, HOME)
    assert sorted(url.removeprefix("http://") for url in web.asked) == fetched


def test_a_topic_by_a_word_or_two_is_an_option(serve, tmp_path):
    more, harvest = "http://www.example.com/1", "http://www.example.com/2"
    about = Answer(headers={"Content-Type": "text/html"}, body=b"<p>" + b"the boats of the harvest " * 9)
    web = serve({HOME: ["/1", "/2"], more: [], harvest: about})
    done = crawled(tmp_path, HOME, "--topic", "harvest, boat", "-o", "items.jsonl")
    is_relevant = {item["url"]: item["relevance"] > 0.5 for item in items(tmp_path / "items.jsonl")}
    assert is_relevant == {HOME: False, more: False, harvest: True}
    assert " relevant" in done.stdout.split("The most important pages")[1].splitlines()[1]
    assert web.asked[0] == HOME


def test_a_round_fetches_each_page_once_and_gives_only_what_changed(serve, tmp_path):
    home, is_later = "http://www.example.com/", Event()

    def page(exchange: Exchange) -> Answer:
        """Once it is later, the home page has another link, /1 is gone, and /2 has another comment."""
        if is_later.is_set() and exchange.target == "/1":
            return Answer(404)
        links = {"/": ["/1", "/2", *["/3"] * is_later.is_set()]}.get(exchange.target, [])
        body = html(links) + b"<!-- later -->" * (is_later.is_set() and exchange.target == "/2")
        return Answer(headers={"Content-Type": "text/html"}, body=body)

    web = serve({f"{home}{name}": page for name in ("", "1", "2", "3")})
    files = ("-o", "items.jsonl", "-o", "i.parquet", "-s", "AOPIC_RECRAWL=20 %, text")
    again = [HOME, "--again", "--changed-only", "--gone", *files]
    done = crawled(tmp_path, *again)
    assert len(web.asked) == 3
    assert "the same command with --again" in done.stdout
    is_later.set()
    done = crawled(tmp_path, *again)
    assert sorted(web.asked[3:]) == [home, f"{home}1", f"{home}2", f"{home}3"]
    assert "Round 2: 1 of 3 known pages changed, 1 gone, 0 moved, 0 failed; 1 new." in done.stderr
    assert "4 pages in 7 visits" in done.stdout
    found = [(item["url"], item["found"]) for item in items(tmp_path / "items.jsonl")]
    assert sorted(found[:3]) == [(home, "new"), (f"{home}1", "new"), (f"{home}2", "new")]
    assert sorted(found[3:]) == [(home, "changed"), (f"{home}1", "gone"), (f"{home}3", "new")]
    crawled(tmp_path, *again, "--older-than", "1 hour")
    assert len(web.asked) == 7
    is_later.clear()
    done = crawled(tmp_path, *again)
    assert "Round 4: 1 of 4 known pages changed, 0 gone, 1 back, 0 moved, 0 failed; 0 new." in done.stderr
    found = [(row["url"], row["found"]) for row in parquet.read_table(tmp_path / "i.parquet").to_pylist()]
    assert sorted(found[6:]) == [(home, "changed"), (f"{home}1", "back")]


@pytest.mark.parametrize("kills", some_of((2, 10)))
def test_no_change_is_lost_by_kills_and_each_is_given_once_or_again_with_its_number(serve, tmp_path, kills):
    """Twenty pages without ``ETag``, four of which are others after each kill."""
    urls = [f"http://h{n}.example.com/{n}" for n in range(20)]
    version = 0
    asked: list[tuple[str, int]] = []

    def body(url: str, version: int) -> bytes:
        return html([], f"{version if url in urls[::5] else 0}")

    def page(exchange: Exchange) -> Answer:
        url = f"http://{exchange.host}{exchange.target}"
        asked.append((url, version))
        return Answer(headers={"Content-Type": "text/html"}, body=body(url, version))

    serve(dict.fromkeys(urls, page))
    line = command(*urls, *CONTACT, *FAST, "-s", "AOPIC_RECRAWL=1 second, 90 days", "--changed-only", "--job", "my",
                   "-o", "items.jsonl", "--fields", "url,title")  # fmt: skip
    committed: set[tuple[str, str]] = set()
    versions = range(kills + 1)
    seen = {blake2b(body(urls[0], each), digest_size=8).hexdigest(): f"{each}" for each in versions}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for version in versions:
        how = signal.SIGKILL if version < kills else signal.SIGINT
        with processes.start(line, cwd=tmp_path, **silent) as process:
            until = time.monotonic() + 300
            while min(asked.count((url, version)) for url in urls[::5]) < 1 + version % 2:
                assert time.monotonic() < until, "no page was asked for again"
                time.sleep(0.01)
            process.send_signal(how)
        changes = open_job(tmp_path / "my").changes()
        committed |= {(row.url, seen[row.digest]) for row in changes if row.digest}
    kept = items(tmp_path / "items.jsonl")
    given = [(item["url"], item["title"], item["visits"], item["found"]) for item in kept]
    assert {found for *_, found in given} == {"new", "changed"}
    assert {url for url, *_ in given} == {*urls}
    assert committed <= {(url, title) for url, title, *_ in given}
    numbers = {(url, title, visits) for url, title, visits, _ in given}
    assert len(numbers) == len({(url, title) for url, title, _ in numbers}), "again with the same number only"
    assert {visits for url, _, visits in numbers if url not in urls[::5]} == {0}


def endless(exchange: Exchange) -> Answer:
    """A page of a web of 60."""
    number = int(exchange.target[1:] or 0)
    links = [f"/{next_one}" for next_one in (2 * number + 1, 2 * number + 2) if next_one < 60]
    return Answer(headers={"Content-Type": "text/html"}, body=html(links), delay=0.03)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_the_same_command_goes_on(serve, tmp_path, how):
    pages = {f"http://www.example.com/{number or ''}": endless for number in range(60)}
    web = serve(pages)
    files = ("-o", "items.jsonl", "-o", "items.parquet")
    again = command(HOME, *CONTACT, *FAST, "-s", "AOPIC_MIN_GAP=0.02", *files, "--job", "my")
    with processes.start(again, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while len(web.asked) < 20 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
    first = len(web.asked)
    assert first < 60
    if how == signal.SIGINT:
        assert process.returncode == 0
        assert b"every invariant holds" in out, err
    done = processes.run(again, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Going on with the crawl in my." in done.stderr
    assert {*web.asked} == pages.keys()
    assert check(tmp_path / "my").holds
    kept = [row["url"] for row in parquet.read_table(tmp_path / "items.parquet").to_pylist()]
    assert {*kept} == pages.keys()
    assert not list((tmp_path / "items.parquet").glob("*.jsonl"))
    if how == signal.SIGINT:
        assert len(kept) == 60
        assert len(web.asked) == 60
        assert sorted(item["url"] for item in items(tmp_path / "items.jsonl")) == sorted(pages)


def test_a_list_of_seeds_is_read_when_the_job_begins(serve, tmp_path):
    web = serve(PAGES)
    seeds = tmp_path / "seeds.csv"
    seeds.write_text("url,score\nhttp://example.org/,9\nhttp://blog.example.com/,1\n", encoding="utf-8")
    crawled(tmp_path, "seeds.csv", "--pages", "1", "-s", "CONCURRENT_REQUESTS=1")
    assert web.asked == ["http://example.org/"]
    seeds.unlink()
    (job,) = (tmp_path / "crawls").iterdir()
    done = crawl(tmp_path, "seeds.csv", *CONTACT, *FAST)
    assert done.returncode == 2  # a list that is not there may be a slip of the pen
    seeds.write_text("url\nhttp://www.example.com/\n", encoding="utf-8")
    done = crawled(tmp_path, "seeds.csv")
    assert done.stderr.startswith(
        f"seeds.csv was read when the job began; 'scrapy aopic seed {job.relative_to(tmp_path)}' adds seeds.\n"
    )
    assert sorted(web.asked) == ["http://blog.example.com/", "http://example.org/", "http://example.org/2"]


@pytest.mark.parametrize("by", ["address", "settings"])
def test_a_job_may_be_on_a_server(serve, tmp_path, by):
    pytest.importorskip("redis")
    if find_server() is None:
        pytest.skip(WHY_NOT)
    web = serve(PAGES)
    folder = tmp_path / "empty"
    folder.mkdir()
    (tmp_path / "seeds.txt").write_text("http://blog.example.com/\nhttp://example.org/\n", encoding="utf-8")
    with Server(tmp_path / "server") as server:
        job = ["--job", f"{server.url}#my"] if by == "address" else ["-s", f"REDIS_URL={server.url}"]
        again = ("../seeds.txt", *job, "-s", "AOPIC_STORE=redis", "-s", "CONCURRENT_REQUESTS=1")
        done = crawled(folder, *again, "--pages", "1")
        place = f"{server.url}#{'my' if by == 'address' else 'aopic:seeds-'}"
        assert f"Beginning the crawl in {place}" in done.stderr
        assert len(web.asked) < 3
        done = crawled(folder, *again)
        assert "../seeds.txt was read when the job began" in done.stderr
    assert sorted(web.asked) == ["http://blog.example.com/", "http://example.org/", "http://example.org/2"]
    assert list(folder.iterdir()) == []
    done = crawl(folder, *again, *CONTACT, *FAST)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_without_seeds_a_job_goes_on_and_another_url_joins_it(serve, tmp_path):
    web = serve(PAGES)
    again = ("--deny", "example", "--job", "my")
    crawled(tmp_path, HOME, *again)
    crawled(tmp_path, *again)
    assert web.asked == [HOME]
    crawled(tmp_path, "http://example.org/", *again)
    assert web.asked == [HOME, "http://example.org/"]


def test_a_table_of_several_runs_has_one_head_and_the_same_columns(serve, tmp_path):
    serve(PAGES)
    again = (HOME, "-o", "items.csv", "-s", "CONCURRENT_REQUESTS=1")
    crawled(tmp_path, *again, "--pages", "2")
    crawled(tmp_path, *again)
    with (tmp_path / "items.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["url", "title", "language", "type", "importance", "visits"]
    assert sorted(row[0] for row in rows[1:]) == sorted(PAGES)
    done = crawl(tmp_path, *again, *CONTACT, *FAST, "--fields", "url")
    assert done.returncode == 2
    assert "begins with 'url,title,language,type,importance,visits'" in done.stderr.splitlines()[-1]


def test_a_host_that_cannot_be_reached_is_told_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    done = crawl(tmp_path, HOME, *CONTACT, *FAST, "--seconds", "2")
    assert done.returncode == 3  # nothing was fetched
    (warning,) = [line for line in done.stderr.splitlines() if " WARNING: " in line]
    assert "The robots.txt of http://www.example.com is unreachable (" in warning


def test_standard_output_is_for_items_alone_if_they_go_there(serve, tmp_path):
    serve(PAGES)
    done = crawled(tmp_path, HOME, "-o", "-:jsonl", "--fields", "url,depth")
    assert {(item["url"], item["depth"]) for item in map(json.loads, done.stdout.splitlines())} > {(HOME, 0)}
    assert len(done.stdout.splitlines()) == len(PAGES)


def test_what_is_fetched_can_be_kept_as_warc(serve, tmp_path):
    from warcio.archiveiterator import ArchiveIterator

    serve(PAGES)
    crawled(tmp_path, HOME, "--warc", "100% web/warc")
    (path,) = (tmp_path / "100% web" / "warc").iterdir()
    with path.open("rb") as file:
        kept = {
            record.rec_headers.get_header("WARC-Target-URI")
            for record in ArchiveIterator(file)
            if record.rec_type == "response"
        }
    assert kept >= PAGES.keys()


def test_a_project_keeps_what_it_sets(serve, tmp_path):
    seen: list[str] = []

    def page(exchange: Exchange) -> Answer:
        seen.append(exchange.headers["user-agent"])
        return Answer(headers={"Content-Type": "text/html"})

    serve({HOME: page})
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = mine\n", encoding="utf-8")
    settings = "USER_AGENT = 'mine (me@example.org)'\nLOG_LEVEL = 'INFO'\nAOPIC_REPORT = False\n"
    (tmp_path / "mine.py").write_text(settings, encoding="utf-8")
    done = crawl(tmp_path, HOME, *FAST)
    assert done.returncode == 0, done.stderr
    assert seen == ["mine (me@example.org)"]
    assert "INFO: Spider closed (finished)" in done.stderr
    assert done.stdout == ""


WRONG = [
    ([HOME], "say who crawls"),
    ([HOME, "--contact", "me"], "--contact ('me') must be a web page"),
    ([HOME, "--contact", "a@b.c\r\nX: y"], "--contact ('a@b.c\\r\\nX: y') must be a web page"),
    ([HOME, *CONTACT, "-s", "USER_AGENT=me"], "give --contact or USER_AGENT, not both"),
    ([*CONTACT], "give at least one seed"),
    (["", *CONTACT], "SEEDS ('') must not be empty"),
    (["example.com", *CONTACT], 'did you mean "https://example.com"?'),
    (["nowhere.txt", *CONTACT], "SEEDS ('nowhere.txt') must be URLs with http:// or https://, or files"),
    (["ftp://example.com/", *CONTACT], "SEEDS ('ftp://example.com/') must be URLs"),
    ([".", *CONTACT], "SEEDS ('.') must be URLs"),
    ([HOME, *CONTACT, "--domains", "https://example.com/"], 'did you mean "example.com"?'),
    ([HOME, *CONTACT, "--domains", "example.org"], "all of them lie outside of domains (example.org)"),
    ([HOME, *CONTACT, "--scope", "site"], "--scope ('site') must be"),
    ([HOME, *CONTACT, "--allow", "("], "--allow ('(') must be a regular expression"),
    ([HOME, *CONTACT, "--deny", "x", "--deny", ""], "an empty one is found in every URL"),
    ([HOME, *CONTACT, "--pages", "0"], "--pages (0) must be at least 1"),
    ([HOME, *CONTACT, "--older-than", "1 hour"], "--older-than needs --again or --every"),
    ([HOME, *CONTACT, "--again", "--older-than", "yesterday"], "--older-than: 'yesterday' must be a time such as"),
    ([HOME, *CONTACT, "--every", "never"], "--every: 'never' must be a time such as"),
    ([HOME, *CONTACT, "--seconds", "soon"], "--seconds: invalid int value"),
    ([HOME, *CONTACT, "-o", "items.json"], "which is impossible in json; use jsonl, csv or parquet"),
    ([HOME, *CONTACT, "-o", "items.txt"], "Unrecognized output format 'txt'"),
    ([HOME, *CONTACT, "-o", "s3://bucket/items.parquet"], "write to a local folder, and copy its files"),
    ([HOME, *CONTACT, "--fields", "url,titel"], 'did you mean "title"?'),
    ([HOME, *CONTACT, "--page", "1", "--nonsense"], "unknown argument: --nonsense"),
    ([HOME, *CONTACT, "-s", "SCHEDULER=scrapy.core.scheduler.Scheduler"], "must be scrapy_aopic.Scheduler"),
    ([HOME, *CONTACT, "-s", "SCHEDULER=no.such"], "must be scrapy_aopic.Scheduler"),
]  # fmt: skip


def test_wrong_arguments_are_one_message_and_leave_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, said in WRONG:
        with pytest.raises(SystemExit) as exited:
            execute(["scrapy", "aopic", "crawl", *arguments], Settings())
        usage, message = capsys.readouterr().err.strip().rsplit("\n", 1)
        assert exited.value.code == 2, arguments
        assert message.startswith("scrapy aopic crawl: error: ")
        assert said in message
        assert "scrapy aopic crawl [-h]" in usage
        assert "Traceback" not in usage
        assert list(tmp_path.iterdir()) == [], arguments


def test_a_list_that_cannot_be_used_is_one_sentence(tmp_path):
    for text, said in [
        ("http://example.com/\nexample.org\n", "line 2: 'example.org' is no http or https URL with a host"),
        ("", "There are no seeds in seeds.txt."),
        ("\x00\xff\xfe\x80" * 500, "is not UTF-8"),
        ("x" * 1_000_000, "..."),
    ]:
        (tmp_path / "seeds.txt").write_text(text, encoding="latin-1")
        done = crawl(tmp_path, "seeds.txt", *CONTACT)
        assert done.returncode == 2, text[:80]
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 2000


def test_a_wrong_setting_and_a_job_in_use_are_a_crawl_that_does_not_start(serve, tmp_path):
    is_asked = Event()

    def slow(exchange: Exchange) -> Answer:
        is_asked.set()
        return Answer(headers={"Content-Type": "text/html"}, delay=60)

    serve({HOME: slow})
    done = crawl(tmp_path, HOME, *CONTACT, "-s", "AOPIC_MIN_GAP=-1")
    assert done.returncode == 1
    assert "AOPIC_MIN_GAP ('-1') must be" in done.stderr
    (tmp_path / "file").write_text("")
    done = crawl(tmp_path, HOME, *CONTACT, "--job", "file")
    assert done.returncode == 2
    assert "file is a file, and no job folder" in done.stderr
    if sys.platform == "linux":  # where root cannot make a folder, either
        done = crawl(tmp_path, HOME, *CONTACT, "--job", "/proc/job")
        assert done.returncode == 2
        assert "The job folder /proc/job cannot be made: " in done.stderr
        assert "Traceback" not in done.stderr
    mine = command(HOME, *CONTACT, "--job", "my")
    with processes.start(mine, cwd=tmp_path, stderr=subprocess.DEVNULL) as other:
        assert is_asked.wait(60)
        done = crawl(tmp_path, HOME, *CONTACT, "--job", "my")
        other.kill()
    assert done.returncode == 1
    assert "The crawl does not start" in done.stderr
