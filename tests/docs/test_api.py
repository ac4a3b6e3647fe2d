"""docs/api.md lists names that exist, all of those that the package exports, and all that examples import."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import scrapy_aopic
import scrapy_aopic.core

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def promised() -> dict[str, set[str]]:
    """The names in the table of the page, by module."""
    rows = re.findall(r"^\| `(scrapy_aopic[\w.]*)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {module: set(re.findall(r"`([A-Za-z]\w+)`", names)) for module, names in rows}


@pytest.mark.parametrize(("module", "names"), promised().items())
def test_every_promised_name_exists(module: str, names: set[str]) -> None:
    assert names
    there = importlib.import_module(module)
    assert {name for name in names if not hasattr(there, name)} == set()


@pytest.mark.parametrize("module", [scrapy_aopic, scrapy_aopic.core], ids=lambda module: module.__name__)
def test_every_exported_name_is_promised_and_no_other(module: object) -> None:
    name, exported = getattr(module, "__name__", ""), set(getattr(module, "__all__", ()))
    assert promised()[name] == exported


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_import_only_what_is_promised(path: Path) -> None:
    names = promised()
    for source in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "scrapy_aopic":
                module = node.module or ""
                missing = {alias.name for alias in node.names} - names.get(module, set())
                assert not missing, f"list them in docs/api.md as names of {module}"
