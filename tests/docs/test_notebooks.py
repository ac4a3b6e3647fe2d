"""The notebooks of the docs run, print what is printed there, and lead to pages that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("docs", "notebooks").glob("*.ipynb"))
SHORT = {"--seconds 20": "--seconds 3"}
"""What makes a notebook short, for what stands in it."""


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_prints_what_it_shows(notebook, tmp_path, monkeypatch, capsys):
    from matplotlib import pyplot  # every process imports this file, and one draws

    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    pyplot.close("all")  # the oldest matplotlib opens one
    names: dict[str, Any] = {}
    for cell in cells(notebook, "code"):
        code = "".join(cell["source"])
        for long, short in SHORT.items():
            code = code.replace(long, short)
        exec(code, names)
        printed = capsys.readouterr().out
        shown = "".join(text for each in cell["outputs"] for text in each.get("text", ()))
        if "varies" in cell["metadata"].get("tags", ()):
            assert len(printed.splitlines()) >= 3
        else:
            assert printed == shown, "if that is meant: python docs/run_notebooks.py"
        assert bool(pyplot.get_fignums()) == any(
            "image/png" in each.get("data", ()) for each in cell["outputs"]
        )
        pyplot.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_links_of_a_notebook_lead_to_pages(notebook):
    text = "".join(line for cell in cells(notebook, "markdown") for line in cell["source"])
    pages = re.findall(r"\]\((?!#)([^)#]+)", text)
    assert pages
    assert [page for page in pages if not (notebook.parent / page).is_file()] == []
