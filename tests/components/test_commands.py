"""``scrapy aopic``: answers about a job folder, also while its crawl runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scrapy.http import Response
from support import commands, processes
from support.commands import run_aopic, run_here
from support.crawls import in_folder
from support.small_web import Follow, crawl
from support.stored_jobs import make_job
from twisted.internet.threads import deferToThread

from scrapy_aopic.commands import SUBCOMMANDS
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack_page, page_key, unpack_page
from scrapy_aopic.place.folder_place import store_folder
from scrapy_aopic.storage import open_store
from scrapy_aopic.version import DOCS

pytestmark = pytest.mark.slow

PAGES = {"http://a.test/": ["/1", "http://b.test/", "/gone"], "http://a.test/1": ["/"], "http://b.test/": []}


def settings(folder: Path, store: str) -> dict[str, Any]:
    return in_folder(folder, AOPIC_STORE=store)


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
async def test_a_closed_job_answers(serve, tmp_path, store):
    serve(PAGES)
    await crawl(Follow, settings(tmp_path, store))

    rows = json.loads(commands.said(tmp_path, "top", tmp_path, "--json"))
    assert sorted(row["url"] for row in rows) == sorted(PAGES)
    assert rows == sorted(rows, key=lambda row: -row["importance"])
    hosts = json.loads(commands.said(tmp_path, "top", tmp_path, "--hosts", "--json"))
    assert {row["host"]: row["visited"] for row in hosts} == {"a.test": 3, "b.test": 1}
    assert "http://b.test/" in commands.said(tmp_path, "top", tmp_path)

    status = json.loads(commands.said(tmp_path, "status", tmp_path, "--json"))
    counted = [status["pages"][name] for name in ("queued", "visited", "failed")]
    assert counted == [0, 3, 1]
    assert status["counted"]["outcomes"] == {"http 404": 1}
    assert status["is_closed"]
    assert "visited: 3" in commands.said(tmp_path, "status", "--all", tmp_path)

    check = json.loads(commands.said(tmp_path, "check", tmp_path, "--json"))
    assert check["holds"]
    assert check["cash"] + check["virtual"] == TOTAL


@pytest.mark.parametrize("store", ["rocksdb", "sqlite"])
async def test_a_running_job_answers(serve, tmp_path, store):
    answers: list[subprocess.CompletedProcess[str]] = []

    class Asks(Follow):
        async def parse(self, response: Response) -> Any:
            if response.url.endswith("/1"):
                for question in ("check", "top", "status"):
                    ask: Any = deferToThread(run_aopic, question, str(tmp_path), "--json", folder=tmp_path)
                    answers.append(await ask.asFuture(__import__("asyncio").get_running_loop()))
            for request in super().parse(response):
                yield request

    serve(PAGES)
    await crawl(Asks, {**settings(tmp_path, store), "AOPIC_DURABILITY": "page", "CONCURRENT_REQUESTS": 1})
    assert [answer.returncode for answer in answers] == [0, 0, 0], answers
    assert json.loads(answers[0].stdout)["holds"]
    assert json.loads(answers[1].stdout)[0]["url"].startswith("http://")
    status = json.loads(answers[2].stdout)
    assert not status["is_closed"]
    sentence, headline = status["verdict"]["sentence"], status["verdict"]["headline"]
    assert sentence.startswith(f"Crawled by process {os.getpid()} since 20")
    assert sentence.endswith("1 page waits as of the last commit.")
    assert headline.startswith("It runs")


REQUEST = b"\x81\xa3url\xaehttp://a.test/"


def test_a_damaged_ledger_is_found(tmp_path):
    key = page_key(host_key("a.test"), b"1")
    make_job(tmp_path, "sqlite", 0, Link(key, "a.test", REQUEST))
    store = open_store(store_folder(tmp_path), "sqlite")
    page = unpack_page(store.get_many(Family.PAGES, [key])[0] or b"")
    page.cash += 1
    store.write({Family.PAGES: {key: pack_page(page)}}, sync=True)
    store.close()
    check = run_aopic("check", str(tmp_path), folder=tmp_path)
    assert check.returncode == 1
    assert f"all cash is {TOTAL + 1} units, not {TOTAL}: 1 too many" in check.stdout


def test_check_names_a_row_that_is_damaged(tmp_path):
    key = page_key(host_key("a.test"), b"1")
    make_job(tmp_path, "sqlite", 0, Link(key, "a.test", REQUEST))
    assert run_aopic("check", str(tmp_path), folder=tmp_path).returncode == 0
    file = store_folder(tmp_path) / "store.sqlite3"
    file.write_bytes(file.read_bytes().replace(b"http://a.test/", b"http://b.test/"))
    check = run_aopic("check", str(tmp_path), folder=tmp_path)
    assert check.returncode == 1
    assert f"the row {key.hex()} of {Family.REQUESTS.name} is damaged" in check.stdout
    assert "1 violation" in check.stdout


def test_a_job_of_another_format_is_refused_untouched(tmp_path):
    import msgspec

    from scrapy_aopic.core.layout import TOTALS_KEY
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.job.job import Job

    totals = msgspec.msgpack.encode({"format": 99})
    store = open_store(store_folder(tmp_path), "sqlite")
    store.write({Family.META: {TOTALS_KEY: totals}}, sync=True)
    store.close()
    for _ in range(2):  # the first refusal must not keep the folder locked
        with pytest.raises(StorageError, match=r"written in format 99, .* Nothing was changed"):
            Job(tmp_path, Policy())
    assert "format 99" in run_aopic("status", str(tmp_path), folder=tmp_path).stderr
    store = open_store(store_folder(tmp_path), "sqlite")
    assert list(store.scan(Family.META)) == [(TOTALS_KEY, totals)]
    store.close()


def test_a_folder_without_a_job_is_refused_with_one_sentence(tmp_path):
    answer = run_aopic("top", str(tmp_path / "nothing"), folder=tmp_path)
    assert answer.returncode == 2
    assert str(tmp_path / "nothing") in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert answer.stderr.endswith(f" See {DOCS} commands#top\n")
    for name in ("news", "broad"):
        open_store(store_folder(tmp_path / "crawls" / name), "sqlite").close()
    cut = tmp_path / "crawls" / "many" / "aopic-shards" / "cut.json"
    cut.parent.mkdir(parents=True)
    cut.touch()
    answer = run_aopic("top", "crawls", folder=tmp_path)
    named = [str(Path("crawls", name)) for name in ("broad", "many", "news")]
    assert f"No job is in the folder crawls; name one of {', '.join(named)}. See" in answer.stderr


ANEW = {
    "top": (["top", "{job}"], 0),
    "status": (["status", "{job}"], 0),
    "hosts": (["hosts", "{job}"], 0),
    "why": (["why", "{job}", "http://a.test/"], 0),
    "report": (["report", "{job}", "{new}.html"], 0),
    "check": (["check", "{job}"], 0),
    "docs": (["docs", "politeness"], 0),
    "identity": (["identity", "new", "{new}", "https://a.test"], 0),
    "control": (["control", "{job}"], 0),
    "backup": (["backup", "{job}", "{new}"], 0),
    "salvage": (["salvage", "{job}", "{new}"], 0),
    "seed": (["seed", "{new}", "http://a.test/"], 0),
    "export": (["export", "{job}", "--pages", "{new}.csv"], 0),
    # What these need is not there, which they find out after they have begun.
    "crawl": (["crawl", "nowhere.txt", "--contact", "me@example.org"], 2),
    "demo": (["demo", "--seconds", "0"], 2),
    "dashboard": (["dashboard", "{new}"], 2),
    "move": (["move", "{new}", "{new}-2"], 2),
    "import-redis": (["import-redis", "{new}", "x", "--from", "redis://127.0.0.1:1"], 2),
    "topic": (["topic", "label", "{job}"], 2),
    "simulate": (["simulate", "{new}"], 2),
}


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_each_subcommand_imports_what_it_needs(closed_job, tmp_path, subcommand):
    """The other tests fork it off a process that has imported everything."""
    arguments, code = ANEW[subcommand]
    job = shutil.copytree(closed_job, tmp_path / "job")
    line = [part.format(job=job, new=tmp_path / "new") for part in arguments]
    command = [sys.executable, "-m", "scrapy", "aopic", *line]
    done = processes.run(command, imported="scrapy.cmdline", capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert bool(done.stderr) == bool(code)
    assert "Traceback" not in done.stderr


def test_each_subcommand_and_action_has_help_of_its_own(capsys):
    groups = {name: getattr(each, "ACTIONS", {}) for name, each in SUBCOMMANDS.items()}
    for words in [(name, *rest) for name in groups for rest in [(), *((each,) for each in groups[name])]]:
        code, shown, _ = run_here(capsys, *words, "-h")
        assert code == 0
        assert f"scrapy aopic {' '.join(words)} [-h]" in shown
        # Scrapy's own options, too
        assert all(each in shown for each in (groups[words[0]] if len(words) == 1 else ()) or ["NAME=VALUE"])


@pytest.fixture(scope="module")
def closed_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two thousand pages."""
    folder, random = tmp_path_factory.mktemp("job"), Random(0)
    urls = [f"http://a.test/{n}/{random.getrandbits(400):x}".encode() for n in range(2000)]
    make_job(folder, "sqlite", 0, *(Link(page_key(host_key("a.test"), url), "a.test", url) for url in urls))
    return folder


ANSWERS = [
    ["top", "{job}"],
    ["top", "{job}", "--json", "-n", "2000"],
    ["status", "{job}"],
    ["check", "{job}"],
    ["backup", "{job}", "{new}"],
    ["salvage", "{job}", "{new}"],
    ["seed", "{new}", "http://a.test/"],
    ["export", "{job}", "--pages", "{new}.csv"],
]


def test_what_the_job_does_not_know_is_said_and_written_over_nothing(closed_job, tmp_path, capsys):
    code, out, _ = run_here(capsys, "top", closed_job, "--by", "relevance")
    assert code == 0
    assert out.endswith(
        "No page was graded for a topic (AOPIC_TOPIC), so these are the most important ones.\n"
    )
    target = tmp_path / "changes.csv"
    target.write_text("of yesterday")
    code, _, err = run_here(capsys, "export", closed_job, "--pages", target, "--since", "1 day")
    assert (code, target.read_text()) == (2, "of yesterday")
    assert "No visit of this job has noted what it found: AOPIC_RECRAWL" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        *(
            pytest.param(">/dev/full", each, marks=[pytest.mark.long] * (n > 0))
            for n, each in enumerate(ANSWERS)
        ),
        *(pytest.param(">&-", each, marks=[pytest.mark.long] * (n > 0)) for n, each in enumerate(ANSWERS)),
        *(("full", each) for each in ANSWERS[1:]),
    ],
    ids=str,
)
def test_an_answer_that_cannot_be_written_is_one_sentence(closed_job, tmp_path, arguments, where):
    line = [part.format(job=closed_job, new=tmp_path / "new") for part in arguments]
    command = [sys.executable, "-m", "scrapy", "aopic", *line]
    if where == "full":
        with Path("/dev/full").open("w") as full:
            done = processes.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    else:
        command = ["sh", "-c", f'exec "$@" {where}', "sh", *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("The output cannot be written: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_hears_no_more(closed_job, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "scrapy", "aopic", "top", str(closed_job), "--json", "-n", "2000"]
    silent = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **silent) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["backup", "{job}", "{new}"],
        ["seed", "{new}", "{seeds}"],
        *(["export", "{job}", "--pages", f"{{new}}.{kind}"] for kind in ("csv", "csv.gz", "parquet")),
    ],
    ids=" ".join,
)
def test_a_file_that_the_disk_does_not_take_is_one_sentence_and_is_not_left_behind(
    closed_job, tmp_path, arguments
):
    pytest.importorskip("resource", reason="needs limits on processes")
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("".join(f"http://a.test/{n}\n" for n in range(10_000)))
    line = [part.format(job=closed_job, new=tmp_path / "new", seeds=seeds) for part in arguments]
    done = processes.run(
        [sys.executable, "-m", "scrapy", "aopic", *line],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        limit=("RLIMIT_FSIZE", 50_000),
    )
    # SQLite does not say that it is for a limit on the size of a file, as it does for a full disk.
    assert done.returncode == (2 if arguments[0] == "backup" else 1), done.stderr
    assert str(tmp_path / "new") in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path != seeds]
    assert left == []


def test_an_unknown_option_of_an_address_is_one_sentence(capsys):
    code, _, err = run_here(capsys, "status", "redis://127.0.0.1:1/0?shards=2")
    assert code
    assert "has an option that redis-py does not know: 'shards'" in err


def test_ctrl_c_is_no_traceback(closed_job, monkeypatch, capsys):
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scrapy_aopic.view.stored.snapshot_of", interrupt)
    assert run_here(capsys, "status", closed_job)[0] == 130


def test_a_name_that_the_terminal_cannot_show_is_shown_escaped(tmp_path):
    make_job(tmp_path, "sqlite", 0, Link(page_key(host_key("é☃"), b"1"), "é☃", b"http://a.test/"))
    command = [sys.executable, "-m", "scrapy", "aopic", "top", str(tmp_path), "--hosts"]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, env=latin, capture_output=True, check=False)
    assert done.stderr == b""
    assert b"\xe9\\u2603" in done.stdout


def test_settings_come_after_the_subcommand(tmp_path):
    answer = run_aopic("top", str(tmp_path), "-s", "AOPIC", folder=tmp_path)
    assert answer.returncode == 2
    assert "Invalid -s value" in answer.stderr


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said of wrong usage."""
    code, _, err = run_here(capsys, *words)
    assert code == 2, words
    return err


def test_wrong_usage_shows_the_usage_of_that_subcommand(capsys):
    for arguments, said in [
        (["status", "x", "--hosts"], "unknown argument: --hosts"),
        (["top", "x", "y"], "unknown argument: y."),
        (["top", "x", "--numbr=3"], "unknown argument: --numbr=3; did you mean --number?"),
        (["hosts", "x", "--failling"], "unknown argument: --failling; did you mean --failing?"),
        (["simulate", "x", "--policy=opic"], "unknown argument: --policy=opic; did you mean --order?"),
        (["crawl", "--policy=opic"], "unknown argument: --policy=opic; did you mean -s AOPIC_ORDER=NAME?"),
        (["top", "x", "-n", "0"], "--number (0) must be at least 1"),
        (["top", "x", "-n", "many"], "invalid int value: 'many'"),
        (["top"], "the following arguments are required: JOBDIR"),
        (["why", "x"], "give JOBDIR and a URL or a host, or --grade MODEL PAGE"),
        (["why", "x", "y", "--grade", "m", "p"], "give JOBDIR and a URL or a host, or --grade MODEL PAGE"),
        (["export", "x"], "give --pages FILE, --links FILE or both"),
        (["simulate", "x", "--jobs", "0"], "--jobs (0) must be at least 1"),
    ]:
        shown = refused(arguments, capsys)
        assert f"scrapy aopic {arguments[0]} [-h]" in shown
        assert f"scrapy aopic {arguments[0]}: error: " in shown
        assert said in shown
        assert shown.endswith(f" See {DOCS} commands#{arguments[0]}\n")


def test_a_word_that_is_no_subcommand_and_no_action_is_met_with_a_question(capsys):
    cases: list[tuple[list[str], str]] = [
        (["statsu", "x"], 'there is no subcommand "statsu"; did you mean "status"?'),
        (["tpo", "x"], 'there is no subcommand "tpo"; did you mean "top"?'),
        ([], "name a subcommand: demo, crawl, top, status"),
        (["nothing", "x"], 'there is no subcommand "nothing": they are demo, crawl, top, status, hosts, why'),
        (["topic", "trian", "x"], 'there is no action "trian"; did you mean "train"?'),
        (["topic", "explain"], 'there is no action "explain": they are train, evaluate, label.'),
        (["topic"], "the following arguments are required: train|evaluate|label."),
        (["control", "x", "pasue"], 'there is no action "pasue"; did you mean "pause"?'),
    ]
    for given, said in cases:
        shown = refused(given, capsys)
        assert said in shown
        section = f"#{given[0]}" if given and given[0] in SUBCOMMANDS else ""
        assert shown.endswith(f" See {DOCS} commands{section}\n"), given
