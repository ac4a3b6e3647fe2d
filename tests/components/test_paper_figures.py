"""``benchmarks/focused.py --paper``, small: the strategies of the paper on JLSE beside its figures, on a few sites of HTML."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from random import Random

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def focused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("benchmark_of_topics", BENCHMARKS / "focused.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sites(folder: Path) -> Path:
    """Four sites of 80 pages, of which one is about databases, one half is, and two say nothing of them."""
    chance = Random(1)
    general = [f"word{number}" for number in range(200)]
    topical = [
        "table",
        "column",
        "index",
        "record",
        "schema",
        "mysql",
        "postgresql",
        "sqlite",
        "transaction",
        "rows",
    ]
    for number, part in enumerate((1.0, 0.5, 0.0, 0.0)):
        site = folder / "sites" / f"site{number}"
        site.mkdir(parents=True)
        for page in range(80):
            is_relevant = page / 80 < part
            text = chance.choices(topical if is_relevant else general, k=10) + chance.choices(general, k=90)
            links = [0, *range(page * 4 + 1, page * 4 + 5)] if page else range(1, 80)
            said = [f"{'schema' if link / 80 < part else 'bread'} {link}" for link in links]
            anchors = "".join(
                f'<li><a href="{link or "index"}.html">{name}</a>'
                for link, name in zip(links, said, strict=True)
            )
            body = f"<title>{text[0]}</title><p>{' '.join(text)}</p><ul>{anchors}</ul>"
            (site / f"{page or 'index'}.html").write_text(body)
    return folder


def rows(
    focused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, list[str]]:
    """What the command prints at its end, by strategy."""
    monkeypatch.setattr(sys, "argv", ["focused.py", *words])
    focused.main()
    table = capsys.readouterr().out.partition("\n\n")[2].splitlines()[2:]
    return {row[:14].strip(): re.findall(r"[+-]?[\d.]+", row[14:]) for row in table}


def test_the_five_strategies_stand_beside_the_figures_of_the_paper(
    focused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (str(sites(tmp_path)), "--paper", "--tune", "--count-examples", "--sets", "2", "--fetches", "100")
    found = rows(focused, monkeypatch, capsys, *given, "--examples", "20", "--others", "20")
    assert list(found) == focused.PAPER
    for name, (harvest, recall) in focused.PUBLISHED.items():
        numbers = list(map(float, found[name]))
        assert numbers[:2] == list(harvest)
        assert numbers[6:8] == list(recall)
        assert 0.0 < numbers[4] <= 1.0
    # Whatever the figures are, the default is ahead of a crawl for no topic.
    assert float(found["contextual"][2]) > float(found["breadth-first"][4])
    found = rows(focused, monkeypatch, capsys, *given, "--examples", "20", "--others", "20", "--cf")
    assert list(found) == ["cf 150", "cf 50", "cf 100", "cf 200"]
