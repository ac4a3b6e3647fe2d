"""Seeds that wait beside a job: given whole, taken up while a crawl runs, each row once whatever happens."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from scrapy import Request, signals
from scrapy.http import Response
from support.commands import run_aopic, said
from support.crawls import in_folder, logged
from support.small_web import Follow, ask, ask_view, check, crawl

from scrapy_aopic.core.ledger import SEED_SHIFT, TOTAL
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import Link, host_key, pack, page_key
from scrapy_aopic.exceptions import ExchangeError
from scrapy_aopic.job.job import Job
from scrapy_aopic.place.folder_place import FolderPlace, seeds_folder, store_folder
from scrapy_aopic.seeds.adding import Seed, add_seeds
from scrapy_aopic.seeds.inbox import Inbox
from scrapy_aopic.view.queries import top_pages


def listed(folder: Path) -> list[list[tuple[str, float | None]]]:
    """The lists that wait, in the order in which they are taken up."""
    return [
        [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    ]


# Seeds are given


def test_seeds_with_scores_share_a_seeds_cash_each_in_proportion(tmp_path):
    plain, scored = tmp_path / "plain.txt", tmp_path / "scored.csv"
    plain.write_text("http://p.test/\n", encoding="utf-8")
    scored.write_text("url,score\nhttp://a.test/,1\nhttp://b.test/,0\nhttp://c.test/,5\n", encoding="utf-8")
    given = add_seeds(FolderPlace(tmp_path / "in"), [str(plain), str(scored), "http://u.test/", str(scored)])
    assert given == (8, 0, "", {}, None)
    rows = [("http://a.test/", 0.5), ("http://b.test/", 0.0), ("http://c.test/", 2.5)]
    assert listed(seeds_folder(tmp_path / "in")) == [
        [("http://p.test/", None), *rows, ("http://u.test/", None), *rows]
    ]


def test_lists_are_taken_up_in_the_order_in_which_they_were_given(tmp_path):
    for n in range(20):
        add_seeds(FolderPlace(tmp_path), [f"http://a.test/{n}"])
    assert listed(seeds_folder(tmp_path)) == [[(f"http://a.test/{n}", None)] for n in range(20)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            "url\nhttp://a.test/\nhtp://b.test/\nhttp://c.test/\nnone\n",
            r"line 3: 'htp://b.test/' is no http or https URL .* Bad rows: 2 of 5, .* --skip-bad",
        ),
        ("url,score\nhttp://a.test/,0\nhttp://b.test/,0\n", r"scores in .*seeds.csv add up to 0.0"),
        ("url,score\nhttp://a.test/,1e308\nhttp://b.test/,1e308\n", "add up to inf"),
        ("url\n", r"no seeds in .*seeds.csv"),
    ],
)
def test_a_list_that_cannot_be_used_leaves_nothing(tmp_path, table, message):
    path = tmp_path / "seeds.csv"
    path.write_text(table, encoding="utf-8")
    with pytest.raises(ExchangeError, match=message):
        add_seeds(
            FolderPlace(tmp_path / "in"),
            ["http://first.test/", str(path)] if "no seeds" not in message else [str(path)],
        )
    assert list(seeds_folder(tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("source", ["a.test", "ftp://a.test/"])
def test_what_is_neither_a_file_nor_a_url_is_refused(tmp_path, source):
    with pytest.raises(ExchangeError, match=source):
        add_seeds(FolderPlace(tmp_path / "in"), [source])
    assert list(seeds_folder(tmp_path / "in").iterdir()) == []


def test_bad_rows_can_be_left_out(tmp_path):
    path = tmp_path / "seeds.csv"
    path.write_text("url,score\nhttp://a.test/,3\nb.test,99\nhttp://c.test/,1\n,1\n", encoding="utf-8")
    given = add_seeds(FolderPlace(tmp_path / "in"), [str(path)], skip_bad=True)
    assert (given.rows, given.bad) == (2, 2)
    assert given.first_bad == f"{path}, line 3: 'b.test' is no http or https URL with a host"
    assert listed(seeds_folder(tmp_path / "in")) == [[("http://a.test/", 1.5), ("http://c.test/", 0.5)]]


# Seeds are taken up


class Intake:
    """A job on disk with its inbox and no crawl around it: what is taken up becomes seeds at once."""

    def __init__(self, folder: Path, interval: float = 0, **policy: Any) -> None:
        self.job = Job(folder, Policy(**policy), kind="sqlite", interval=interval)
        self.stats: Counter[str] = Counter()
        self.inbox = Inbox(FolderPlace(folder), self.job, self.take, self.count)
        self.now = 0.0

    def take(self, seed: Seed) -> None:
        host = seed.url.split("/")[2]
        link = Link(page_key(host_key(host), seed.url.encode()), host, pack({"url": seed.url}))
        if not self.job.crawl.seed(link, 0.0, worth=1.0 if seed.worth is None else seed.worth):
            self.job.crawl.enrich(link.key, 0.0, seed.worth or 0.0)

    def count(self, name: str) -> None:
        self.stats[name] += 1

    def turn(self) -> int:
        """Take up what one turn takes."""
        self.now += 10
        rows = self.inbox.turn(self.now)
        self.job.tick(1 + rows)
        return rows

    def land(self) -> None:
        """Wait until all is committed that was taken up."""
        deadline = time.monotonic() + 60
        while self.job.offsets._landed != self.job.offsets._now or self.job.crawl.has_changes:
            assert time.monotonic() < deadline
            self.job.tick()

    def run(self) -> None:
        """Take up everything, and close."""
        while self.inbox.has_rows():
            self.turn()
        self.job.close()
        self.inbox.close()


def cash_by_url(folder: Path) -> dict[str, int]:
    return {row.url: row.cash for row in ask_view(folder, top_pages, 10**6)}


def many(tmp_path: Path) -> tuple[Path, dict[str, float]]:
    """A list of a thousand rows with scores, one of them twice."""
    scores = {f"http://h{n % 10}.test/{n}": 1.0 + n for n in range(1000)}
    path = tmp_path / "many.csv"
    rows = [f"{url},{score}" for url, score in [*scores.items(), ("http://h0.test/0", 9.0)]]
    path.write_text("\n".join(["url,score", *rows]), encoding="utf-8")
    return path, scores


def test_a_list_is_taken_up_in_turns_and_removed_when_the_store_holds_it(tmp_path):
    path, scores = many(tmp_path)
    job = tmp_path / "job"
    add_seeds(FolderPlace(job), [str(path)])
    intake = Intake(job)
    rows = []
    while intake.inbox.has_rows():
        rows.append(intake.turn())
    assert sum(rows) == 1001
    assert max(rows) < 500
    intake.land()
    intake.turn()
    assert listed(seeds_folder(job)) == []
    assert intake.job.offsets.names, "its name is not gone for good yet"
    intake.job.run(lambda: None).result()  # what came before is over
    intake.turn()
    assert not intake.job.offsets.names
    add_seeds(FolderPlace(job), ["http://late.test/"])
    assert intake.turn() == 1
    intake.run()
    assert cash_by_url(job).keys() == {*scores, "http://late.test/"}
    assert listed(seeds_folder(job)) == []
    assert check(job).violations == []
    assert intake.stats == {"aopic/seeds/files": 2}


def test_a_list_stays_until_its_last_row_is_committed(tmp_path):
    add_seeds(FolderPlace(tmp_path), ["http://a.test/"])
    intake = Intake(tmp_path, interval=float("inf"), commit_within=float("inf"))
    assert [intake.turn(), intake.turn(), intake.turn()] == [1, 0, 0]
    assert len(listed(seeds_folder(tmp_path))) == 1
    intake.run()
    assert listed(seeds_folder(tmp_path)) == []
    again = Intake(tmp_path)
    assert not again.job.offsets.names
    again.run()


@pytest.mark.slow
def test_after_a_crash_each_row_counts_once(tmp_path):
    path, _ = many(tmp_path)
    add_seeds(FolderPlace(tmp_path / "whole"), [str(path)])
    shutil.copytree(tmp_path / "whole", tmp_path / "0")
    Intake(tmp_path / "whole").run()
    crashes = 0
    while listed(seeds_folder(tmp_path / str(crashes))):
        assert crashes < 20
        intake = Intake(tmp_path / str(crashes))
        intake.turn()
        intake.land()
        if crashes % 2:
            intake.inbox.turn(1e9)  # and no commit
        crashes += 1
        # What a process leaves that is killed now.
        shutil.copytree(tmp_path / str(crashes - 1), tmp_path / str(crashes))
        intake.job.close()
        intake.inbox.close()
    assert crashes > 4
    Intake(tmp_path / str(crashes)).run()
    assert cash_by_url(tmp_path / str(crashes)) == cash_by_url(tmp_path / "whole")
    assert check(tmp_path / str(crashes)).violations == []


@pytest.mark.parametrize(
    "damage",
    [
        b"not json\n",
        b'["http://a.test/"',
        b'["nowhere", null]\n',
        b'["http://a.test/x", -1]\n',
        b"[" * 100_000,
    ],
)
def test_a_list_that_cannot_be_read_is_set_aside_with_one_error(tmp_path, caplog, damage):
    folder = seeds_folder(tmp_path)
    add_seeds(FolderPlace(tmp_path), ["http://a.test/1", "http://a.test/2"])
    (damaged,) = folder.iterdir()
    damaged.write_bytes(damaged.read_bytes() + damage)
    add_seeds(FolderPlace(tmp_path), ["http://b.test/"])
    intake = Intake(tmp_path)
    intake.run()
    assert cash_by_url(tmp_path).keys() == {"http://a.test/1", "http://a.test/2", "http://b.test/"}
    assert [path.name for path in folder.iterdir()] == [f"{damaged.name}.bad"]
    assert intake.stats == {"aopic/seeds/files": 1, "aopic/seeds/bad_files": 1}
    (error,) = logged(caplog, "ERROR")
    assert str(damaged) in error
    Intake(tmp_path).run()
    assert len(logged(caplog, "ERROR")) == 1


def test_a_row_that_fails_is_not_tried_again(tmp_path):
    add_seeds(FolderPlace(tmp_path), ["http://a.test/", "http://b.test/"])
    intake = Intake(tmp_path)
    taken: list[str] = []

    def fails_once(seed: Seed) -> None:
        taken.append(seed.url)
        if len(taken) == 1:
            raise ZeroDivisionError

    intake.inbox = Inbox(FolderPlace(tmp_path), intake.job, fails_once, intake.count)
    with pytest.raises(ZeroDivisionError):
        intake.turn()
    intake.run()
    assert taken == ["http://a.test/", "http://b.test/"]


def test_a_list_that_is_half_written_is_not_looked_at(tmp_path):
    seeds_folder(tmp_path).mkdir()
    half = seeds_folder(tmp_path) / "00-killed.jsonl.part"
    half.write_text('["http://a.test/", null]\n', encoding="utf-8")
    intake = Intake(tmp_path)
    assert not intake.inbox.has_rows()
    intake.run()
    assert half.exists()


# A real crawl


alone = partial(in_folder, CONCURRENT_REQUESTS=1)


class NoStart(Follow):
    start_urls: list[str] = []


def stats_of(crawler: Any) -> dict[str, Any]:
    stats = crawler.stats.get_stats().items()
    return {name.removeprefix("aopic/seeds/"): n for name, n in stats if name.startswith("aopic/seeds/")}


@pytest.mark.slow
async def test_seeds_reach_a_crawl_that_runs_and_one_that_has_nothing_left(serve, tmp_path):
    class Gives(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == "http://a.test/":
                add_seeds(FolderPlace(tmp_path), ["http://b.test/", "http://a.test/"])
            if response.url == "http://b.test/":  # the last page there is
                add_seeds(FolderPlace(tmp_path), ["http://c.test/"])
            yield from super().parse(response)

    web = serve({"http://a.test/": [], "http://b.test/": [], "http://c.test/": ["/1"], "http://c.test/1": []})
    crawler = await crawl(Gives, alone(tmp_path))
    assert web.asked == ["http://a.test/", "http://b.test/", "http://c.test/", "http://c.test/1"]
    assert stats_of(crawler) == {"rows": 3, "queued": 2, "known": 1, "files": 2}
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert list(seeds_folder(tmp_path).iterdir()) == []


async def test_a_job_starts_from_known_importances_best_first(serve, tmp_path):
    scores = {f"http://a.test/{n}": 4.0**n for n in range(8)}
    path = tmp_path / "scores.csv"
    lines = ["url,score", *(f"{url},{score}" for url, score in scores.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    web = serve({url: [] for url in scores})
    settings = alone(tmp_path / "job", AOPIC_SEEDS=str(path))
    crawler = await crawl(NoStart, settings)
    assert web.asked == sorted(scores, key=lambda url: -scores[url])
    assert stats_of(crawler) == {"rows": 8, "queued": 8, "files": 1}
    rows = {row.url: row for row in ask_view(tmp_path / "job", top_pages, 10)}
    mean, seed = sum(scores.values()) / len(scores), TOTAL >> SEED_SHIFT
    for url, score in scores.items():
        assert rows[url].history == pytest.approx(seed * score / mean, rel=1e-5)


async def test_all_of_a_long_list_is_known_before_the_first_page_is_fetched(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("scrapy_aopic.job.commit_thread.MAX_UNCOMMITTED", 500)
    path = tmp_path / "scores.csv"
    urls = [f"http://a.test/{n}" for n in range(1000)]
    lines = [f"{url},1" for url in urls] + ["http://b.test/best,1000"]
    path.write_text("\n".join(["url,score", *lines]), encoding="utf-8")
    web = serve({})
    settings = {**alone(tmp_path), "JOBDIR": None, "AOPIC_STORE": "memory", "AOPIC_SEEDS": str(path)}
    settings |= {"AOPIC_DURABILITY": "close", "CLOSESPIDER_PAGECOUNT": 2}
    crawler = await crawl(NoStart, settings)
    assert web.asked[0] == "http://b.test/best"
    assert stats_of(crawler)["queued"] == 1001
    assert crawler.stats.get_value("aopic/commits") > 1  # rows count as steps, so that memory stays flat


@pytest.mark.slow
async def test_a_known_page_gets_the_cash_of_its_score_and_none_without(serve, tmp_path):
    class Gives(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            if response.url == "http://a.test/":
                add_seeds(FolderPlace(tmp_path), [str(path), "http://a.test/1"])
            yield from super().parse(response)

    path = tmp_path / "scores.csv"
    path.write_text("url,score\nhttp://a.test/,3\nhttp://gone.test/,1\n", encoding="utf-8")
    serve({"http://a.test/": [], "http://gone.test/": []})
    crawler = await crawl(Gives, alone(tmp_path, AOPIC_VIRTUAL_SHARE=1))
    rows = {row.url: row for row in ask_view(tmp_path, top_pages, 10)}
    assert rows["http://a.test/"].visits == 1
    assert rows["http://a.test/"].cash == pytest.approx((TOTAL >> SEED_SHIFT) * 1.5, rel=1e-5)
    assert stats_of(crawler)["known"] == 1


async def test_what_filters_drop_is_no_seed(serve, tmp_path):
    path = tmp_path / "seeds.txt"
    path.write_text("http://a.test/\nhttp://far.test/\n", encoding="utf-8")
    web = serve({"http://a.test/": []})
    settings = alone(tmp_path / "job", AOPIC_SEEDS=str(path))
    crawler = await crawl(NoStart, settings, allowed_domains=["a.test"])
    assert web.asked == ["http://a.test/"]
    assert stats_of(crawler) == {"rows": 2, "queued": 1, "dropped": 1, "files": 1}
    assert {row.url for row in ask_view(tmp_path / "job", top_pages, 10)} == {"http://a.test/"}


async def test_a_seed_is_made_a_request_only_if_somebody_looks_at_it_and_is_queued_alike(
    serve, tmp_path, monkeypatch
):
    made: list[str] = []

    def make(url: str, **how: Any) -> Request:
        made.append(url)
        return Request(url, **how)

    monkeypatch.setattr("scrapy_aopic.session.seeding.Request", make)
    path = tmp_path / "seeds.txt"
    path.write_text("http://a.test/1#top\nhttp://a.test/%e4\nhttp://a.test/1\n", encoding="utf-8")
    pages = ["http://a.test/1", "http://a.test/%E4"]
    seen: list[str] = []
    told = {signals.request_scheduled: lambda request: seen.append(request.url)}
    found = []
    for watched in ({}, told):
        web = serve({url: [] for url in pages})
        made.clear()
        folder = tmp_path / ("watched" if watched else "alone")
        settings = alone(folder, AOPIC_SEEDS=str(path), AOPIC_URL_RULES="+percent")
        crawler = await crawl(NoStart, settings, told=watched)
        assert sorted(web.asked) == sorted(pages)
        assert stats_of(crawler) == {"rows": 3, "queued": 2, "known": 1, "files": 1}
        # One that is known is told to the log of duplicates.
        assert made == ([*pages, pages[0]] if watched else [pages[0]])
        found.append(ask(folder, lambda store: dict(store.scan(Family.REQUESTS))))
    assert seen == [*pages, pages[0]]
    assert found[0] == found[1]


async def test_a_job_that_goes_on_does_not_start_again(serve, tmp_path):
    path = tmp_path / "seeds.txt"
    path.write_text("http://a.test/\nhttp://b.test/\n", encoding="utf-8")
    web = serve({"http://a.test/": [], "http://b.test/": [], "http://c.test/": []})
    settings = alone(tmp_path / "job", AOPIC_SEEDS=str(path))
    await crawl(NoStart, {**settings, "CLOSESPIDER_PAGECOUNT": 1})
    path.write_text("http://c.test/\n", encoding="utf-8")
    crawler = await crawl(NoStart, settings)
    assert sorted(web.asked) == ["http://a.test/", "http://b.test/"]
    assert stats_of(crawler) == {}


async def test_a_list_that_cannot_be_used_stops_the_start_with_one_sentence(serve, tmp_path, caplog):
    path = tmp_path / "seeds.csv"
    path.write_text("url\na.test\n", encoding="utf-8")
    crawler = await crawl(NoStart, alone(tmp_path / "job", AOPIC_SEEDS=str(path)))
    (error,) = logged(caplog, "ERROR")
    assert error.startswith(f"AOPIC_SEEDS ('{path}') cannot be used: {path}, line 2: 'a.test' is no http")
    assert crawler.stats.get_value("finish_reason") == "aopic_setting"
    assert not store_folder(tmp_path / "job").exists()  # so the next start is the first


# The commands


@pytest.mark.slow
async def test_what_one_crawl_learned_another_starts_from(serve, tmp_path):
    pages = {
        "http://a.test/": ["/rich", "http://b.test/"],
        "http://a.test/rich": ["/1"],
        "http://a.test/1": ["/rich", "/gone"],
        "http://b.test/": ["http://a.test/rich"],
    }
    serve(pages)
    await crawl(Follow, alone(tmp_path / "one", AOPIC_STORE="rocksdb", AOPIC_KEEP_LINKS=True))
    said_of_export = said(tmp_path, "export", "one", "--pages", "pages.csv", "--links", "links.csv")
    assert said_of_export == "6 links in links.csv\n5 pages in pages.csv\n"
    links = (tmp_path / "links.csv").read_text(encoding="utf-8").splitlines()
    expected = [f"{page},{urljoin(page, link)}" for page, links in pages.items() for link in links]
    assert sorted(links[1:]) == sorted(expected)
    web = serve(pages)
    added = said(tmp_path, "seed", "two", "pages.csv")
    assert added == "5 seeds added to the crawl of two, which has not begun.\n"
    await crawl(NoStart, alone(tmp_path / "two"))
    assert sorted(web.asked) == sorted([*pages, "http://a.test/gone"])
    importance = {row.url: row.importance for row in ask_view(tmp_path / "one", top_pages, 9)}
    assert web.asked[0] == max(importance, key=lambda url: importance[url])


@pytest.mark.slow
async def test_seeds_are_added_from_the_command_line_while_the_crawl_runs(serve, tmp_path):
    answers: list[subprocess.CompletedProcess[str]] = []

    class Waits(Follow):
        async def parse(self, response: Response) -> Any:
            if response.url == "http://a.test/":
                seed = asyncio.to_thread(
                    run_aopic, "seed", "job", "http://b.test/", "bad.txt", "--skip-bad", folder=tmp_path
                )
                answers.append(await seed)
                export = asyncio.to_thread(run_aopic, "export", "job", "--pages", "now.csv", folder=tmp_path)
                answers.append(await export)
            for request in super().parse(response):
                yield request

    (tmp_path / "bad.txt").write_text("http://c.test/\nc.test\n", encoding="utf-8")
    web = serve({"http://a.test/": [], "http://b.test/": [], "http://c.test/": []})
    await crawl(Waits, alone(tmp_path / "job", AOPIC_DURABILITY="page"))
    assert [answer.returncode for answer in answers] == [0, 0], answers
    assert answers[0].stdout == "2 seeds added to the crawl of job.\n"
    assert answers[0].stderr == (
        "Left out: 1 row whose URL is no http or https URL with a host. "
        "The first bad one: bad.txt, line 2: 'c.test' is no http or https URL with a host\n"
    )
    assert "http://a.test/,a.test," in (tmp_path / "now.csv").read_text(encoding="utf-8")
    assert sorted(web.asked) == ["http://a.test/", "http://b.test/", "http://c.test/"]
