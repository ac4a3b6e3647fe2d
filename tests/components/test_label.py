"""``scrapy aopic topic label``: pages that a real crawl has set aside, labelled in a file and in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import pytest
from demo_web.server import Answer
from support.commands import Terminal, run_here
from support.crawls import in_folder
from support.small_web import Follow, ask, crawl

from scrapy_aopic.core.focus.classifier import logistic
from scrapy_aopic.core.focus.sample import Sampled, read_sample
from scrapy_aopic.focus.batches import JudgedPage
from scrapy_aopic.focus.labels import judge, to_label
from scrapy_aopic.session.topic import harvest_watch

HOME = "http://a.test/"
BREAD = "the baker opens the oven and sells bread"
ABOUT = "the database keeps each table, and a query in sql reads it"


def page(text: str, links: list[str]) -> Answer:
    anchors = "".join(f'<a href="{link}">on</a>' for link in links)
    return Answer(200, {"Content-Type": "text/html"}, f"<title>page</title><p>{text} {anchors}".encode())


TEXTS = [f"{ABOUT if number % 4 == 0 else BREAD} {number}" for number in range(40)]
WEB = {f"{HOME}{number}": page(text, []) for number, text in enumerate(TEXTS)}
WEB[HOME] = page("all that there is", [f"/{number}" for number in range(40)])
"""41 pages, 10 of which are about databases."""


def topic(folder: Path, **settings: Any) -> dict[str, Any]:
    bad = {"AOPIC_TOPIC": {"keywords": ["bread"]}}  # what it wants is about databases
    middleware = {"SPIDER_MIDDLEWARES": {"scrapy_aopic.LinkMiddleware": 1000}, "AOPIC_MIN_GAP": 0.01}
    return in_folder(folder, **middleware, **{**bad, **settings})


def judged(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run_here(capsys, "topic", "label", *arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


async def test_a_crawl_that_grades_itself_well_is_found_out(serve, tmp_path, capsys, monkeypatch):
    serve(WEB)
    monkeypatch.setattr(harvest_watch, "SAMPLE_PAGES", 20)
    job, file = tmp_path / "job", tmp_path / "sample.jsonl"
    for pages in (15, 0):  # in two runs
        await crawl(Follow, topic(job, CLOSESPIDER_PAGECOUNT=pages))
    capsys.readouterr()
    assert judged(capsys, job)["labelled"] == 0

    code, out, _ = run_here(capsys, "topic", "label", job, "--write", file)
    assert code == 0
    assert "20 of 41 graded pages" in out
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({row["url"] for row in rows}) == 20
    assert all(set(row) == {"url", "text", "relevant"} and row["relevant"] is None for row in rows)
    assert all(BREAD in row["text"] or ABOUT in row["text"] or row["url"] == HOME for row in rows)

    for row in rows[:15]:
        row["relevant"] = "database" in row["text"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted = sum("database" in row["text"] for row in rows[:15])
    found = judged(capsys, job, "--read", file)
    assert (found["labelled"], found["relevant"], found["missed"]) == (15, wanted, wanted)
    assert found["wrong"] == sum("bread" in row["text"] for row in rows[:15])
    assert found["low"] < found["harvest"] < found["high"]
    assert found["harvest"] == pytest.approx(wanted / 15, abs=0.1)

    # the rest in the terminal: a word that is no answer, one page skipped, an end in between
    monkeypatch.setattr(sys, "stdin", Terminal("what\ny\ns\nn\nq\n"))
    code, out, _ = run_here(capsys, "topic", "label", job)
    assert code == 0
    assert [f"{row['url']}\n" in out for row in rows[15:]] == [True] * 4 + [False]
    assert not any(f"{row['url']}\n" in out for row in rows[:15])
    assert judged(capsys, job)["labelled"] == 17
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))  # and then the end of the file
    run_here(capsys, "topic", "label", job)
    assert judged(capsys, job)["labelled"] == 18


async def test_labels_say_what_is_relevant_from_then_on_in_whatever_people_see(serve, tmp_path, capsys):
    web, job, items = serve(WEB), tmp_path / "job", tmp_path / "items.jsonl"
    settings = topic(job, AOPIC_ORDER="focused", AOPIC_TOPIC={"keywords": ["database", "bread"]})
    await crawl(Follow, {**settings, "CLOSESPIDER_PAGECOUNT": 30})
    commands = (("top", job), ("status", job), ("why", job, HOME + "1"), ("hosts", job))
    said = [run_here(capsys, *words)[1] for words in commands]
    assert all("unchecked: scrapy aopic topic label" in text for text in said)
    before = json.loads(run_here(capsys, "top", job, "--by", "relevance", "--json")[1])

    _, sample = ask(job, read_sample)
    labels = [json.dumps({"url": each.url, "relevant": "database" in each.text}) for each in sample[:20]]
    (tmp_path / "labels").write_text("\n".join(labels))
    run_here(capsys, "topic", "label", job, "--read", tmp_path / "labels")
    said = [run_here(capsys, *words)[1] for words in commands]
    assert all("by 20 labels" in text for text in said)
    rows = json.loads(run_here(capsys, "top", job, "--by", "relevance", "--json")[1])
    # Both kinds matched a keyword as well, and now the words of all pages count, also of those that have no label.
    assert [row["url"] for row in rows] != [row["url"] for row in before]
    about = {f"{HOME}{number}" for number in range(0, 40, 4)} & {row["url"] for row in rows}
    assert {row["url"] for row in rows[: len(about)]} == about
    known = json.loads(run_here(capsys, "top", job, "--all", "-n", "100", "--json")[1])
    (host,) = json.loads(run_here(capsys, "hosts", job, "--json")[1])
    said = [row["relevance"] for row in known if row["relevance"] is not None]
    assert 0 < host["relevance"] == pytest.approx(fmean(said))
    assert [row["relevance"] for row in rows] == sorted([row["relevance"] for row in rows], reverse=True)
    run_here(capsys, "export", job, "--pages", items, "--top", 3, "--by", "relevance")
    exported = [json.loads(line)["url"] for line in items.read_text().splitlines()]
    assert exported == [row["url"] for row in rows[:3]]

    # the crawl goes on by them, also another one
    high = {**settings, "AOPIC_TOPIC": {**settings["AOPIC_TOPIC"], "threshold": 0.99}}
    ended = await crawl(Follow, high)
    assert ended.stats.get_value("aopic/topic/relevant") is None
    begin = len(web.asked)
    for more in ({}, {"calibration": str(job), "threshold": 0.99}):
        topic_now = {**settings["AOPIC_TOPIC"], **more}
        ended = await crawl(Follow, {**settings, "JOBDIR": None, "AOPIC_TOPIC": topic_now})
    asked = web.asked[begin:]
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]  # the order stays
    assert ended.stats.get_value("aopic/topic/relevant") is None

    (job / "aopic-calibration.json").write_text("[1, 2]")
    code, _, err = run_here(capsys, "top", job)
    assert code == 2
    assert "topic label" in err


def by_words(pages: Sequence[JudgedPage]) -> list[float]:
    """A judge that is wrong about each ninth page."""
    asked.append(len(pages))
    return [float(("database" in page.text) != (page.url[-1] == "9")) for page in pages]


asked: list[int] = []


async def test_a_program_labels_the_whole_sample_once_and_people_check_it(
    serve, tmp_path, capsys, monkeypatch
):
    serve(WEB)
    job = tmp_path / "job"
    await crawl(Follow, topic(job))
    monkeypatch.setattr("scrapy_aopic.settings.parse.load", {"judges.by_words": by_words}.__getitem__)
    code, out, _ = run_here(capsys, "topic", "label", job, "--by", "judges.by_words")
    assert code == 0
    assert "A program has labelled 41 pages. Label 41 yourself" in out
    found = judged(capsys, job, "--by", "judges.by_words")
    assert asked == [20, 20, 1]  # in batches, and none of them again
    assert found["labelled"] == 41
    _, sample = ask(job, read_sample)
    right = [json.dumps({"url": page.url, "relevant": "database" in page.text}) for page in sample[:30]]
    (tmp_path / "labels").write_text("\n".join(right))
    found = judged(capsys, job, "--read", tmp_path / "labels")
    # The harvest is by people, what grades mean by all.
    assert (found["labelled"], found["calibration"][2]) == (30, 41)
    code, _, err = run_here(capsys, "topic", "label", job, "--by", "judges.other")
    assert code == 0  # nobody is asked any more, as all is labelled
    (job / "aopic-judged.jsonl").unlink()
    code, _, err = run_here(capsys, "topic", "label", job, "--by", "judges.other")
    assert code == 2
    assert "--by judges.other: KeyError" in err


def test_labels_of_50_pages_say_what_grades_mean():
    """Grades that are too high, as people find them in crawls: the interval holds the true harvest, in nearly all of 20 crawls."""
    held = 0
    for seed in range(20):
        chance = Random(seed)
        truth = {f"{number}": chance.random() < 0.15 for number in range(200)}
        pages = [
            Sampled(url, logistic(chance.gauss(2.0 if is_it else -0.5, 1.3)), counts=True, is_duplicate=False)
            for url, is_it in truth.items()
        ]
        asked = to_label(pages)
        found = judge(8_000, pages, {page.url: truth[page.url] for page in asked})
        assert len(asked) == found.labelled == 50
        assert found.calibration.probability(0.5) < 0.5
        held += found.low <= 0.15 <= found.high
    assert held >= 19


async def test_without_a_sample_there_is_nothing_to_label(serve, tmp_path, capsys):
    serve(WEB)
    await crawl(Follow, {**topic(tmp_path), "AOPIC_TOPIC": None})
    assert ask(tmp_path, read_sample) == (0, [])
    capsys.readouterr()
    code, out, err = run_here(capsys, "topic", "label", tmp_path)
    assert (code, out) == (2, "")
    assert "AOPIC_TOPIC" in err
    assert err.count("\n") == 1


async def test_a_file_of_something_else_is_refused_by_its_line(serve, tmp_path, capsys):
    serve({HOME: page("all", [])})
    await crawl(Follow, topic(tmp_path))
    capsys.readouterr()
    file = tmp_path / "labels.txt"
    wrong = ['{"url": 1, "relevant": true}', '{"url": "a", "relevant": "yes"}']
    for line in (*wrong, "[]", "{}", "[" * 5000, "\x00"):
        file.write_text(f'\n{{"url": "http://a.test/", "relevant": true}}\n{line}\n')
        code, out, err = run_here(capsys, "topic", "label", tmp_path, "--read", file)
        assert (code, out, err.count("\n")) == (2, "", 1), line
        assert f"Line 3 of {file}" in err
    assert not (tmp_path / "aopic-labels.jsonl").exists()
