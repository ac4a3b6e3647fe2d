"""What users inherit from can be looked at: page objects, contracts and other tools evaluate annotations at run time."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

import scrapy_aopic

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"


def bases(source: str) -> Iterator[type]:
    """Classes of the package that classes in *source* inherit from."""
    tree = ast.parse(source)
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scrapy_aopic"):
            module = import_module(node.module or "")
            found |= {alias.asname or alias.name: getattr(module, alias.name) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (
                found[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in found
            )


def inherited() -> set[type]:
    """What the package offers, and what the docs and ``typing/api.py`` inherit from, or say may be inherited from."""
    offered = [getattr(scrapy_aopic, name) for name in scrapy_aopic.__all__]
    classes = {each for each in offered if isinstance(each, type)}
    classes.update(bases((TESTS / "typing" / "api.py").read_text(encoding="utf-8")))
    for page in [*DOCS.glob("*.md"), TESTS.parent / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            classes.update(bases(block))
        for name in re.findall(r"subclass of `?scrapy_aopic\.([\w.]+\w)", text):
            module, _, name_of_class = f"scrapy_aopic.{name}".rpartition(".")
            classes.add(getattr(import_module(module), name_of_class))
    return {each for cls in classes for each in cls.__mro__ if each.__module__.startswith("scrapy_aopic")}


def functions(cls: type) -> Iterator[tuple[str, FunctionType]]:
    """Functions that *cls* defines for others, whatever kind of method each is."""
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
        if isinstance(function, FunctionType) and (not name.startswith("_") or name.startswith("__")):
            yield name, function


def test_there_are_some():
    names = {cls.__name__ for cls in inherited()}
    assert names >= {"BroadSpider", "Scheduler", "Links", "Opic", "Strategy"}


def test_annotations_can_be_evaluated():
    for cls in inherited():
        inspect.get_annotations(cls, eval_str=True)  # those of its own: a base may be Scrapy's
        for _, function in functions(cls):
            get_type_hints(function)
            inspect.signature(function)
