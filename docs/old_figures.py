"""List the figures of the docs that are older than the last change of what they measure.

    python docs/old_figures.py          # page, line, commit of the figures, and a file that has changed since
    python docs/old_figures.py PAGE ... # of these pages alone

A figure has the day and the commit at which it was measured: in the comment before a table, as ``python benchmarks record``
writes it, or in brackets. What it measures is a matter of its command (:data:`MEASURED`). Comments and docstrings move no
figure, so only what Python makes of a file counts.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

STAMP = re.compile(r"(20\d\d-\d\d-\d\d)(?: ·|,) commit ([0-9a-f]{7,40})")
_COMMAND = re.compile(r"<!-- (?:python benchmarks |scrapy aopic |python tests/conformance/)([\w-]+)")

_ORDER = (
    "core",
    *(
        f":!scrapy_aopic/core/{name}"
        for name in ("focus", "revisits", "robots", "shards", "audit.py", "salvage.py", "damaged.py")
    ),
)
_STORES = ("storage", "job", "copies", "core/layout.py", "core/records.py")
_CRAWL = (
    "core",
    "_engine",
    "session",
    "storage",
    "job",
    "web",
    "scheduler.py",
    "links.py",
    "linkextractors.py",
)

MEASURED: dict[str, tuple[str, ...]] = {
    "simulate": (*_ORDER, "lab/simulation.py"),
    "order": (*_ORDER, "lab/simulation.py"),
    "farms": (*_ORDER, "lab/planted.py", "lab/site_traps.py"),
    "freshness": ("core/revisits",),
    "focused": ("core/focus", "focus"),
    "memory": ("storage", "core/layout.py", "core/records.py", "core/window.py", "core/tables.py"),
    "redis": ("storage/redis",),
    "kills": _STORES,
    "power": _STORES,
    "damage": (*_STORES, "core/salvage.py", "core/damaged.py"),
    "politeness": ("core/politeness.py", "core/frontier", "_engine/slots.py"),
    "urls": ("web/urls.py", "web/url_rules.py", "web/url_keys.py"),
    "order-evidence.md": _ORDER,
    "workers": ("core", "job", "storage", "session"),
}
"""Files and folders of the package that the figures of a command are of; of any other command those that a page goes through."""


class Old(NamedTuple):
    """Figures that are older than what they measure."""

    page: str
    line: int
    day: str
    commit: str
    changed: str


@cache
def change_since(commit: str, measured: tuple[str, ...]) -> str:
    """A file of what is *measured* whose code has changed since *commit*, or that there is no such commit; ``""`` if none has."""
    paths = (path if path.startswith(":") else f"scrapy_aopic/{path}" for path in measured)
    try:
        changes = _git("diff", "--raw", "--no-abbrev", "--no-renames", commit, "HEAD", "--", *paths)
    except subprocess.CalledProcessError:
        return "there is no such commit"
    for line in changes.splitlines():
        facts, path = line.split("\t")
        before, after = facts.split()[2:4]
        if {before, after} & {"0" * len(before)} or _code(before, path) != _code(after, path):
            return f"{path} has changed"
    return ""


@cache
def _code(blob: str, path: str) -> str:
    text = _git("cat-file", "blob", blob)
    if not path.endswith(".py"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603, S607  # git
    return done.stdout


def old_figures(pages: list[Path]) -> list[Old]:
    """Those of *pages*, but for :file:`decisions.md`, whose figures say what was known when it was decided."""
    found = []
    for page in pages:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            command = _COMMAND.match(line)
            measured = MEASURED.get(command[1] if command else page.name, _CRAWL)
            for day, commit in STAMP.findall(line):
                if page.name != "decisions.md" and (changed := change_since(commit, measured)):
                    found.append(Old(page.name, number, day, commit, changed))
    return found


def main(names: list[str]) -> None:
    pages = [ROOT / "docs" / name for name in names] or sorted((ROOT / "docs").glob("*.md"))
    for page, line, day, commit, changed in old_figures(pages):
        print(f"{page}:{line}: figures of {day}, commit {commit}: {changed}")


if __name__ == "__main__":
    main(sys.argv[1:])
