"""The capacity plan: what the documents show is what it says, and it says where a way ends."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from support.commands import run_aopic

from scrapy_aopic.lab.plan import (
    LOAD,
    ON_DISKS,
    ON_SERVER,
    TOPIC_ON_DISKS,
    TOPIC_ON_SERVER,
    Wanted,
    for_topic,
    plan,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_aopic("plan", *arguments, folder=ROOT)


def test_the_plan_in_the_documents_is_what_the_command_says() -> None:
    (line, said) = re.findall(r"^```text\n\$ scrapy aopic plan (.+)\n((?:.+\n)+)```", PAGE, re.MULTILINE)[0]
    assert run(*line.split()).stdout == said


def test_the_constants_in_the_documents_are_those_of_the_plan() -> None:
    section = PAGE.partition("\n## Capacity plan\n")[2].partition("\n## ")[0]
    for costs in (ON_SERVER, ON_DISKS):
        for number in (costs.worker_ms, costs.server_us, costs.server_kb, costs.server_url or costs.disk_url):
            assert re.search(rf"\b{number:g} (ms|us|kB|bytes)", section), number


def test_what_measures_the_constants_is_there() -> None:
    source = (ROOT / "scrapy_aopic" / "lab" / "plan.py").read_text(encoding="utf-8")
    for path in re.findall(r"python (benchmarks/[\w/.]+)", source + PAGE):
        assert (ROOT / path).exists(), path
    ast.parse((ROOT / "benchmarks" / "capacity.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize("costs", [ON_SERVER, ON_DISKS])
def test_more_pages_and_urls_take_more(costs) -> None:
    for name in ("rate", "urls"):
        plans = [
            plan(Wanted(**{"rate": 100.0, "urls": 1e6, name: n}), costs, largest=1e11)
            for n in (1.0, 1e3, 1e5, 1e9, 1e11)
        ]
        for less, more in pairwise(plans):
            assert more.workers >= less.workers
            assert more.server_memory >= less.server_memory
            assert more.server_cores >= less.server_cores
            assert more.worker_disk >= less.worker_disk or name == "rate"
            assert len(more.limits) >= len(less.limits)
        assert plans[0].limits == []
        assert plans[-1].limits or (name == "urls" and costs is ON_DISKS)


def test_workers_have_cores_to_spare() -> None:
    found = plan(Wanted(1000, 1e6, page_ms=10), ON_SERVER, largest=1e12)
    used = 1000 * (ON_SERVER.worker_ms + 10) / 1000 / found.workers
    assert LOAD * 0.9 < used <= LOAD
    assert found.worker_connections == -(-1000 * 0.3 // found.workers)


TOPIC_PAGE = (ROOT / "docs" / "focused.md").read_text(encoding="utf-8")


def test_what_a_topic_adds_is_what_the_documents_say() -> None:
    assert TOPIC_ON_SERVER.keys() == TOPIC_ON_DISKS.keys()
    for where, added in (("server", TOPIC_ON_SERVER), ("disks", TOPIC_ON_DISKS)):
        for name, costs in added.items():
            cells = [f"{number:g}" for number in costs]
            assert f"| {where} | `{name}` | {' | '.join(cells)} |" in TOPIC_PAGE


@pytest.mark.parametrize(("costs", "added"), [(ON_SERVER, TOPIC_ON_SERVER), (ON_DISKS, TOPIC_ON_DISKS)])
def test_a_crawl_for_a_topic_takes_more(costs, added) -> None:
    wanted = Wanted(1000, 1e8)
    plans = [
        plan(wanted, each, largest=1e12)
        for each in (costs, *(for_topic(costs, each) for each in added.values()))
    ]
    assert plans[-1].workers > plans[0].workers
    for less, more in pairwise(plans):
        assert more.workers >= less.workers
        assert more.worker_memory > plans[0].worker_memory
        assert more.server_memory >= less.server_memory
        assert more.worker_disk * more.workers >= less.worker_disk * less.workers * 0.999


def test_a_topic_is_planned_by_the_command() -> None:
    given = ("--pages-per-second", "1000", "--urls", "1e6", "--json")
    without, with_one = (json.loads(run(*given, *more).stdout) for more in ((), ("--topic", "contextual")))
    for where, each in without.items():
        assert with_one[where]["workers"] > each["workers"]
        assert with_one[where]["worker_memory"] > each["worker_memory"]
    assert run(*given, "--topic", "none").returncode == 2


def test_json_and_wrong_numbers() -> None:
    plans = json.loads(run("--pages-per-second", "100", "--urls", "1e7", "--json").stdout)
    assert plans["shards on server"]["workers"] == 1
    for arguments in (
        ("--pages-per-second", "0", "--urls", "1"),
        ("--pages-per-second", "1", "--urls", "nan"),
        ("--pages-per-second", "1", "--urls", "1", "--page-ms", "-1"),
        ("--urls", "1"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
