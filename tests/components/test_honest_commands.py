"""What was asked for and is not done is said: seeds that are dropped, crawls that fetch nothing, names that mean nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from support.commands import run_aopic, run_here
from support.crawls import Visits, in_folder, logged
from support.small_web import crawl
from support.stored_jobs import make_job

from scrapy_aopic import Addon, BroadSpider
from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.session.seeding import Seeding
from scrapy_aopic.spiders import check_option
from scrapy_aopic.version import __version__

CONTACT = ("--contact", "https://example.org/crawler")
FAST = ("-s", "AOPIC_POLITENESS_FACTOR=0", "-s", "AOPIC_BACKOFF=0")


# Lists


def test_an_option_that_takes_names_takes_a_file_of_them(tmp_path):
    listed = tmp_path / "domains.txt"
    listed.write_text("\ufeff# ours\nexample.org\n\n B\u00fccher.example\n", encoding="utf-8")
    found = check_option("domains", f"example.com,{listed}")
    assert found == ("example.com", "example.org", "xn--bcher-kva.example")
    (tmp_path / "patterns.list").write_text("/news/[0-9]{1,4}\n#no\n/blog/\n")
    found = check_option("deny", ["a,b", str(tmp_path / "patterns.list")])
    assert [each.pattern for each in found] == ["a,b", "/news/[0-9]{1,4}", "/blog/"]


def test_a_name_is_a_file_only_if_no_domain_can_have_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("example.org", "places"):
        (tmp_path / name).write_text("example.com\n")
    assert check_option("domains", "example.org") == ("example.org",)
    assert check_option("domains", "places") == ("example.com",)  # no suffix of the list, and it is there
    assert check_option("domains", "intranet") == ("intranet",)
    assert [each.pattern for each in check_option("deny", "robots.txt")] == ["robots.txt"]


def test_a_list_of_domains_that_cannot_be_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = "https://example.com/"
    for text, said in [
        (None, "domains.txt cannot be read: there is no such file or folder"),
        ("", "domains.txt lists nothing"),
        ("example.org\nno domain\n", "domains.txt, line 2: 'no domain'"),
        (f"example.org\n{url}\n", f"line 2: '{url}': did you mean \"example.com\"?"),
    ]:
        if text is not None:
            (tmp_path / "domains.txt").write_text(text)
        with pytest.raises(SettingError) as caught:
            check_option("domains", "domains.txt")
        assert said in str(caught.value)


def test_hosts_to_leave_alone_may_be_in_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_job(tmp_path / "job", "sqlite", 1)
    (tmp_path / "blocked.txt").write_text("h0\nexample.org\n")
    code, out, _ = run_here(capsys, "control", "job", "block", "blocked.txt", "[::1]", "--json")
    assert code == 0
    assert json.loads(out)["blocked"].keys() == {"h0", "example.org", "[::1]"}


# Seeds


def settings(folder: Path, seeds: str, **more: Any) -> dict[str, Any]:
    (folder / "seeds.txt").write_text(seeds)
    return in_folder(folder / "job", **{"AOPIC_SEEDS": str(folder / "seeds.txt"), **more})


def why(capsys: pytest.CaptureFixture[str], folder: Path, *urls: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    code, out, err = run_here(capsys, "why", "--json", str(folder / "job"), *urls)
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)
    return found


class Idle(Visits):
    """Has no start requests of its own."""

    allowed_domains = ["a.test"]


async def test_seeds_out_of_scope_are_counted_and_said_once_and_known(serve, tmp_path, capsys, caplog):
    web = serve({"http://a.test/": []})
    outside = ["http://b.test/1", "http://b.test/2", "http://c.test/"]
    crawler = await crawl(Idle, settings(tmp_path, "\n".join(["http://a.test/", *outside])))
    assert web.asked == ["http://a.test/"]
    assert crawler.stats.get_value("aopic/seeds/dropped") == 3
    assert crawler.stats.get_value("aopic/seeds/rows") == 4
    (said,) = [record.getMessage() for record in caplog.records if "The seed" in record.getMessage()]
    outside_its = "because its host is none of the spider's allowed_domains."
    assert said.startswith(f"The seed http://b.test/1 is not fetched, {outside_its}")
    for answer in why(capsys, tmp_path, *outside):
        assert answer["kind"] == "dropped"
        assert answer["sentences"][0] == f"It is a seed that was dropped, {outside_its}"
    assert why(capsys, tmp_path, "http://a.test/")[0]["kind"] == "fetched"


async def test_seeds_that_a_handler_drops_are_known(serve, tmp_path, capsys):
    serve({"http://a.test/": []})

    def refuse(request: Request) -> None:
        if request.url.endswith("/no"):
            raise IgnoreRequest

    told = {signals.request_scheduled: refuse}
    crawler = await crawl(Idle, settings(tmp_path, "http://a.test/no\nhttp://a.test/\n"), told=told)
    assert crawler.stats.get_value("aopic/seeds/dropped") == 1
    (answer,) = why(capsys, tmp_path, "http://a.test/no")
    assert answer["facts"]["dropped"] == "signal"


@pytest.mark.parametrize(
    "told", [{}, {signals.request_scheduled: lambda: None}], ids=["as links", "as requests"]
)
async def test_a_seed_that_an_error_loses_costs_no_other_and_is_known(  # noqa: PLR0917
    serve, tmp_path, capsys, caplog,
    monkeypatch, told
):  # fmt: skip
    web = serve({"http://a.test/1": [], "http://a.test/3": []})
    take, n = Seeding._take, 0

    def fail(self: Seeding, *args: Any) -> bool:
        nonlocal n
        n += 1
        if n == 2:
            raise LookupError("a fault of ours")
        return take(self, *args)

    monkeypatch.setattr(Seeding, "_take", fail)
    seeds = "".join(f"http://a.test/{number}\n" for number in (1, 2, 3))
    crawler = await crawl(Visits, settings(tmp_path, seeds), told=told, has_errors=True)
    assert {*web.asked} == {"http://a.test/1", "http://a.test/3"}
    assert crawler.stats.get_value("aopic/seeds/dropped") == 1
    assert crawler.stats.get_value("aopic/errors") == 1
    (error,) = logged(caplog, "ERROR")
    assert "http://a.test/2" in error
    (answer,) = why(capsys, tmp_path, "http://a.test/2")
    assert answer["facts"]["dropped"] == "error"


async def test_seeds_of_a_spider_out_of_its_domains_are_known(serve, tmp_path, capsys):
    serve({"http://a.test/": []})
    values = settings(tmp_path, "", AOPIC_SEEDS="", ADDONS={Addon: 500})
    seeds = "http://a.test/,http://b.test/"
    crawler = await crawl(BroadSpider, values, seeds=seeds, domains="a.test")
    assert crawler.stats.get_value("aopic/seeds/dropped") == 1
    (answer,) = why(capsys, tmp_path, "http://b.test/")
    assert answer["facts"]["dropped"] == "offsite"


@pytest.mark.slow
def test_a_crawl_that_fetches_nothing_ends_with_3_and_says_why(serve, tmp_path):
    web = serve({"http://a.test/": []})
    (tmp_path / "seeds.txt").write_text("http://b.test/\nhttp://c.test/\n")
    (tmp_path / "domains.txt").write_text("a.test\n")
    again = ("crawl", "seeds.txt", "--domains", "domains.txt", *CONTACT, *FAST, "--job", "my")
    done = run_aopic(*again, folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert web.asked == []
    said = "seeds that were dropped: 2. 'scrapy aopic why my URL' says why a page was not."
    assert done.stderr.splitlines()[-1] == f"Nothing was fetched: {said}"
    assert done.stderr.count(" WARNING: ") == 1
    # A job that is complete is no failure if it is run again, and neither is one that has fetched something.
    for _ in range(2):
        done = run_aopic("crawl", "http://a.test/", *CONTACT, *FAST, "--job", "other", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert web.asked == ["http://a.test/"]


# Other commands


def test_an_output_that_is_impossible_does_not_keep_the_other_from_being_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    make_job(tmp_path / "job", "sqlite", 3)
    for pages, links, written, said in [
        ("pages.txt", "links.csv", "", "pages.txt must end in"),
        ("no/pages.csv", "links.csv", "", "no/pages.csv cannot be written: there is no such file or folder"),
        ("1.csv", "links.csv", "3 pages in 1.csv", "links.csv is not written. This job has kept no links."),
        (
            "2.csv",
            "links.txt",
            "3 pages in 2.csv",
            "links.txt must end in .csv, .jsonl, one of these and .gz, or",
        ),
    ]:
        before = {*tmp_path.iterdir()}
        code, out, err = run_here(capsys, "export", "job", "--pages", pages, "--links", links)
        assert (code, out.strip(), err.count("\n")) == (2, written, 1), pages
        assert said in err
        assert links in err  # which is impossible in each of these, too
        assert {*tmp_path.iterdir()} - before == ({tmp_path / pages} if written else set())


def test_two_tables_are_not_written_to_one_file(tmp_path, capsys):
    code, _, err = run_here(capsys, "export", str(tmp_path), "--pages", "all.csv", "--links", "all.csv")
    assert code == 2
    assert "--pages and --links need a file each, and not both all.csv" in err


def test_the_command_says_its_version(capsys):
    assert run_here(capsys, "--version")[:2] == (0, f"scrapy-aopic {__version__}\n")


def test_a_misspelt_setting_is_said_on_the_command_line(tmp_path, capsys):
    make_job(tmp_path / "job", "sqlite", 1)
    for given, said in [
        ("AOPC_MIN_GAP=5", "AOPC_MIN_GAP means nothing to scrapy-aopic; did you mean AOPIC_MIN_GAP?"),
        ("AOPIC_MINGAP=5", 'AOPIC_MINGAP is no setting of scrapy-aopic (did you mean "AOPIC_MIN_GAP"?)'),
    ]:
        code, out, err = run_here(capsys, "status", str(tmp_path / "job"), "-s", given)
        assert (code, err.count("\n")) == (0, 1)
        assert "1 wait" in out
        assert err.startswith(said)
