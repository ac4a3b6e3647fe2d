"""Tables of what is not timed are the same in every run, so the docs must say what the code says now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import record
from made_up import make_graph


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of *text*."""
    return [
        record.cells(line) for line in text.splitlines() if line.startswith("|") and not record.is_rule(line)
    ]


def published(page: str, command: str) -> list[list[str]]:
    """The rows of the first table in the docs that *command* makes."""
    tables = record.tables(ROOT / "docs" / page)
    return next(table.rows for table in tables if command in [each["command"] for each in table.records])


def said(name: str, *options: str) -> str:
    command = [sys.executable, str(ROOT / "benchmarks"), name, *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_farms_beside_honest_sites_take_what_the_docs_say():
    command = "python benchmarks farms"
    # Of all farms trees of domains, three links to them, and without gaps, as in the table: most of its cells are theirs.
    found = {
        row[0]: float(row[7])
        for row in rows(said("farms", "--kinds", "tree", "--on", "domains", "--entries", "3"))
        if row[5] == "none"
    }
    three = {row[0]: float(row[3]) for row in published("order-evidence.md", command)[1:]}
    assert found.keys() == three.keys()
    assert found["seeds"] <= three["seeds"]
    assert three["behind a link"] - 0.001 <= found["behind a link"] <= three["behind a link"]
    assert found["directory"] == three["directory"]


@pytest.mark.slow
def test_the_order_of_a_crawl_is_the_same_in_every_run(tmp_path):
    """Python goes through a set of bytes in another order in each run; the order of a crawl must not follow from it."""
    make_graph(tmp_path, "made", pages=150, hosts=40)
    graph, urls = tmp_path / "made.npz", tmp_path / "made.urls.gz"
    line = [sys.executable, "-m", "scrapy", "aopic", "simulate", str(graph), "--urls", str(urls)]
    line += ["--order", "aopic", "--workers", "1", "--shards", "2", "--late", "20", "--fetches", "135"]
    first, second = (
        subprocess.run(
            line, capture_output=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert b"1 worker" in first
