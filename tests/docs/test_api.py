"""docs/api-reference.md lists names that exist, all of those that the package exports, and all that examples import."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import scrapy_aopic
import scrapy_aopic.core

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api-reference.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def promised() -> dict[str, set[str]]:
    """The names in the table of the page, by module."""
    rows = re.findall(r"^\| `(scrapy_aopic[\w.]*)` \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {module: set(re.findall(r"`([A-Za-z]\w+)`", names)) for module, names in rows}


def test_every_promised_name_exists():
    for module, names in promised().items():
        assert names, module
        there = importlib.import_module(module)
        assert {name for name in names if not hasattr(there, name)} == set(), module


def test_every_exported_name_is_promised_and_no_other():
    for module in (scrapy_aopic, scrapy_aopic.core):
        assert promised()[module.__name__] == set(module.__all__)


def test_examples_import_only_what_is_promised():
    names = promised()
    for path in DOCUMENTS:
        for source in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            for node in ast.walk(ast.parse(source)):
                module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
                if isinstance(node, ast.ImportFrom) and module.partition(".")[0] == "scrapy_aopic":
                    missing = {alias.name for alias in node.names} - names.get(module, set())
                    assert not missing, (
                        f"{path.name}: list them in docs/api-reference.md as names of {module}"
                    )
