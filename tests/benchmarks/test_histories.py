"""Crawls with a known limit, as ``python benchmarks screen --keep`` recorded them, judged again.

Each file of ``tests/golden/screen`` has what a dashboard showed once a second, without what says nothing of the limit.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scrapy_aopic.view.snapshot import Snapshot
from scrapy_aopic.view.verdict import Judge

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from pictures import refuse
from screen import contradictions

RECORDED = Path(__file__).parents[1] / "golden" / "screen"

LIMITS = {
    "politeness": "politeness", "tail": "politeness", "starved": "machine", "connections": "connections",
    "spider": "spider", "disk": "disk", "network": "network", "control": "control", "end": "stopped",
}  # fmt: skip
"""What limited the crawl at the end of each record."""


def recorded(kind: str) -> list[dict[str, Any]]:
    """What a dashboard showed of the crawl of this *kind*, with what is said of it today."""
    lines = gzip.decompress((RECORDED / f"{kind}.jsonl.gz").read_bytes()).splitlines()
    judge, samples = Judge(), []
    for line in lines:
        sample = json.loads(line)
        found = judge(msgspec.convert(sample, Snapshot, str_keys=True))
        samples.append({**sample, "verdict": msgspec.to_builtins(found)})
    return samples


@pytest.mark.parametrize("kind", LIMITS)
def test_the_limit_of_a_recorded_crawl_is_named_and_nothing_contradicts_it(kind):
    samples = recorded(kind)
    assert [sample["verdict"]["limit"] for sample in samples][-3:] == [LIMITS[kind]] * 3
    assert not set().union(*contradictions(samples)) - {"hindsight"}  # which a forecast cannot have
    if kind == "tail":
        assert " last" in samples[-1]["verdict"]["headline"]


def test_pictures_of_a_page_that_contradicts_itself_are_refused():
    samples = recorded("politeness")
    refuse(samples)
    verdict = {"limit": "machine", "sentence": "", "headline": "This machine limits the crawl."}
    with pytest.raises(SystemExit, match=r"contradict themselves \(limit"):
        refuse([*samples[:-1], {**samples[-1], "verdict": verdict}])
