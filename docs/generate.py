"""Write the parts of the documentation that follow from the code.

    python docs/generate.py            write them
    python docs/generate.py --check    only say what would change; exit code 1 if anything would

A part stands between ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- end -->``. ``tests/docs`` checks that all are up
to date.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests"),
]  # the package beside this file, whatever is installed; and the patterns

import monitoring
from patterns.listing import load, result

from scrapy_aopic.settings import SECTIONS, Setting
from scrapy_aopic.stats_table import OWN, SCRAPY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = ROOT / "scrapy_aopic"
PART = re.compile(r"(<!-- generated: (\S+)(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)


# The modules and their imports


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a source file; one for all that read it, so nobody may change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, ast.Module]:
    """Trees of the modules of the package by file, without those that only document a folder."""
    trees = {path.relative_to(PACKAGE).as_posix(): tree_of(path) for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        name: tree
        for name, tree in trees.items()
        if Path(name).name != "__init__.py"
        or any(
            isinstance(node, (ast.FunctionDef, ast.ImportFrom)) and not _is_future(node) for node in tree.body
        )
    }


def _is_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def imports(name: str, *, for_types: bool = False) -> set[str]:
    """Files of the package that the file *name* imports when it runs, wherever in it; and those *for_types* only."""
    tree = modules()[name]
    here = ["scrapy_aopic", *Path(name).parts[:-1]]
    return {
        found
        for node in (ast.walk(tree) if for_types else _run_nodes(tree))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (found := _file_of(node, here, alias.name)) is not None and found != name
    }


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        is_for_types = (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        )
        if not is_for_types:
            yield child
            yield from _run_nodes(child)


def _file_of(node: ast.ImportFrom, here: list[str], name: str) -> str | None:
    parts = here[: len(here) - node.level + 1] if node.level else []
    parts = parts + (node.module.split(".") if node.module else [])
    if parts[:1] != ["scrapy_aopic"]:
        return None
    folder = "/".join(parts[1:])
    inside = f"{folder}/{name}" if folder else name
    for file in (
        f"{inside}.py",
        f"{inside}/__init__.py",
        f"{folder}.py",
        f"{folder}/__init__.py".lstrip("/"),
    ):
        if file in modules():
            return file
    return None


def room_of(name: str, folder: str) -> str:
    """The file or folder directly in *folder* that the file *name* is, or is in."""
    rest = name.removeprefix(f"{folder}/") if folder else name
    first, _, more = rest.partition("/")
    return f"{first}/" if more else first


def arrows(folder: str) -> dict[str, set[str]]:
    """What each file or folder directly in *folder* (``""`` for the package) imports of the others."""
    prefix = f"{folder}/" if folder else ""
    inside = [name for name in modules() if name.startswith(prefix)]
    found: dict[str, set[str]] = {room_of(name, folder): set() for name in inside}
    for name in inside:
        for other in imports(name):
            if other.startswith(prefix):
                found[room_of(name, folder)].add(room_of(other, folder))
    return {room: others - {room} for room, others in found.items()}


def _node(room: str) -> str:
    return re.sub(r"\W", "_", room.removesuffix(".py").rstrip("/"))


def imports_picture(folder: str) -> str:
    """The files and folders directly in *folder*, with an arrow for what imports what."""
    rooms = arrows(folder)
    lines = ["```mermaid", "flowchart TB"]
    lines += [f'  {_node(room)}["{room}"]' for room in rooms]
    for room, others in rooms.items():
        if others:
            lines.append(f"  {_node(room)} --> {' & '.join(_node(each) for each in rooms if each in others)}")
    return "\n".join([*lines, "```", ""])


# The tables of settings


def settings_table(section: str) -> str:
    """The settings of a *section*."""
    lines = ["| name | default | unit | meaning | must be |", "|---|---|---|---|---|"]
    lines += [
        _row(f"`{each.name}`", f"`{_default(each.default)}`", each.unit, _meaning(each), each.must)
        for each in SECTIONS[section]
    ]
    return "\n".join([*lines, ""])


def _meaning(setting: Setting) -> str:
    alone = "" if setting.alone is None else f" Without the add-on: `{_default(setting.alone)}`."
    return f"{setting.meaning}{alone}"


def _default(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:_}" if type(value) is int else repr(value)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


# The tables of stats


def stats_table(which: str) -> str:
    """The stats of this package ("own"), or those of Scrapy that it sets ("scrapy")."""
    lines = ["| stat | kind | unit | set by | meaning |", "|---|---|---|---|---|"]
    lines += [
        _row(f"`{each.name}`", each.kind, each.unit, each.by, each.meaning)
        for each in {"own": OWN, "scrapy": SCRAPY}[which]
    ]
    return "\n".join([*lines, ""])


# The tables of Scrapy's patterns


def patterns_table(_: str) -> str:
    """The patterns of ``tests/patterns`` by group, each with whether it is the same as in Scrapy."""
    lines: list[str] = []
    heading = ""
    for each in load().values():
        if each.group != heading:
            heading = each.group
            lines += ["", f"### {heading}", "", "| pattern | beside Scrapy | |", "|---|---|---|"]
        said = [(result(other), other.note) for other in each.differs] or [("same", "")]
        lines += [_row(each.text, *cells) for cells in said]
    return "\n".join([*lines[1:], ""])


# Files that tests run


def file_part(name: str) -> str:
    """The Python file *name*, but for its first sentence."""
    source = (ROOT / name).read_text(encoding="utf-8")
    return f"```python\n{source[source.index('from __future__') :]}```\n"


def alerts(_: str) -> str:
    """What to do at each alert."""
    return monitoring.run_book()


PARTS: dict[str, Callable[[str], str]] = {
    "alerts": alerts,
    "file": file_part,
    "imports": imports_picture,
    "patterns": patterns_table,
    "settings": settings_table,
    "stats": stats_table,
}


def generate(text: str) -> str:
    """*text* with all its generated parts as they are to be now."""
    return PART.sub(lambda match: match[1] + PARTS[match[2]](match[3] or "") + match[5], text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 if something is out of date"
    )
    options = parser.parse_args()
    stale = []
    wanted = {ROOT / "docs" / name: make() for name, make in monitoring.FILES.items()}
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *wanted]):
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        new = wanted[path] if path in wanted else generate(old)
        if new != old:
            stale.append(path.relative_to(ROOT).as_posix())
            if not options.check:
                path.write_text(new, encoding="utf-8")
    for name in stale:
        print(f"{name} {'is out of date' if options.check else 'was written'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
