"""Tables of what is not timed are the same in every run, so the docs must say what the code says now."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.proofs import ROOT, make_graph, record

BENCHMARKS = ROOT / "benchmarks"


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of *text*."""
    return [
        record.cells(line) for line in text.splitlines() if line.startswith("|") and not record.is_rule(line)
    ]


def published(page: str, command: str) -> list[list[str]]:
    """The rows of the first table in the docs that *command* makes."""
    tables = record.tables(ROOT / "docs" / page)
    return next(table.rows for table in tables if command in [each["command"] for each in table.records])


def said(script: str, *options: str, **environment: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout


@pytest.mark.slow
def test_farms_beside_honest_sites_take_what_the_docs_say():
    command = "python benchmarks/traps.py --beside --orders aopic --sizes 400"
    options = command.split()[2:]
    # Of all farms trees of domains, three links to them, and without gaps, as in the table: most of its cells are theirs.
    found = {
        row[1]: float(row[8])
        for row in rows(said("traps.py", *options, "--kinds", "tree", "--on", "domains", "--entries", "3"))
        if row[6] == "none"
    }
    three = {row[0]: float(row[3]) for row in published("order.md", command)[1:]}
    assert found.keys() == three.keys()
    assert found["seeds"] <= three["seeds"]
    assert three["behind a link"] - 0.001 <= found["behind a link"] <= three["behind a link"]
    assert found["directory"] == three["directory"]


@pytest.mark.long
def test_one_copy_of_a_page_takes_what_the_docs_say():
    command = "python benchmarks/theft.py --sets 3 --copies 1 5 50"
    text = said("theft.py", "--sets", "3", "--copies", "1", "--attacks", "copy", "redirect", "--mirrors", "0")
    found = re.findall(r"1 copies +([\d.]+)% \( *([\d.]+)%\) +[\d.]+% +([\d.]+)% +100%", text)
    figures = [
        re.findall(r"(\d+) %", f"{row[2]} {row[4]}")
        for row in published("content.md", command)
        if row[1] == "1" and row[0] in {"copies that are fetched first", "behind permanent redirects"}
    ]
    (copy, redirect), (copied, redirected) = found, figures
    assert [f"{float(each):.0f}" for each in copy] == copied
    assert [f"{float(redirect[0]):.0f}", f"{float(redirect[2]):.0f}"] == redirected


@pytest.mark.slow
def test_the_order_of_a_crawl_is_the_same_in_every_run(tmp_path: Path):
    """Python goes through a set of bytes in another order in each run; the order of a crawl must not follow from it."""
    make_graph(tmp_path, "made", pages=500, hosts=120)
    options = [
        "--urls",
        str(tmp_path / "made.urls.gz"),
        "--shards",
        "2",
        "--workers",
        "1",
        "--fetches",
        "450",
    ]
    options += ["--sets", "1", "--seeds", "3"]
    runs = [
        said("shards.py", str(tmp_path / "made.npz"), *options, PYTHONHASHSEED=str(seed)) for seed in (1, 2)
    ]
    first, second = ([line.split()[:-1] for line in run.splitlines()] for run in runs)  # the last one is time
    assert first == second
