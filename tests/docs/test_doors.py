"""The docstring of a folder's ``__init__.py`` names every file and folder in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.import_graph import tree_of

import scrapy_aopic

PACKAGE = Path(scrapy_aopic.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def rooms(folder: Path) -> set[str]:
    """The modules and packages directly in *folder*, by name."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_a_folder_names_each_of_its_files():
    for folder in FOLDERS:
        text = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
        named = set(re.findall(r"^(?:\* )?:mod:`\.(\w+)`:? +\S", text, re.MULTILINE))
        door = (folder / "__init__.py").relative_to(PACKAGE.parent).as_posix()
        missing = [f"* :mod:`.{name}`: what it does" for name in sorted(rooms(folder) - named)]
        gone = [f"* :mod:`.{name}`" for name in sorted(named - rooms(folder))]
        assert (missing, gone) == ([], []), f"the docstring of {door} lacks, and has too many:"
