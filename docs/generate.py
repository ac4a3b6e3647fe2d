"""Write the parts of the documentation that follow from the code.

    python docs/generate.py            write them
    python docs/generate.py --check    only say what would change; exit code 1 if anything would

A part stands between ``<!-- generated: NAME ARGUMENT -->`` and ``<!-- end -->``. ``tests/docs`` checks that all are up
to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "tests"),
    str(ROOT / "benchmarks"),
]  # the package beside this file, whatever is installed; and what has tables of its own

import monitoring
import table
from patterns.listing import load, result

from scrapy_aopic.settings import SECTIONS, Setting
from scrapy_aopic.stats_table import OWN, SCRAPY

if TYPE_CHECKING:
    from collections.abc import Callable

PART = re.compile(r"(<!-- generated: (\S+)(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)


# The settings and stats, each at an address of its own


def settings_list(section: str) -> str:
    """The settings of a *section*, each with a heading."""
    lines: list[str] = []
    for each in SECTIONS[section]:
        unit = f" {each.unit}" if each.unit else ""
        lines += [
            "",
            f"#### {each.name}",
            f"Default: `{_default(each.default)}`{unit}. It must be {each.must}. {_meaning(each)}",
        ]
    return "\n".join([*lines[1:], ""])


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


def stats_list(which: str) -> str:
    """The stats of this package ("own"), or those of Scrapy that it sets ("scrapy"), a line each."""
    lines = [
        f'- <a id="{each.metric}"></a>`{each.name}` ({each.kind} of {each.unit}): {each.meaning}.'
        for each in {"own": OWN, "scrapy": SCRAPY}[which]
    ]
    return "\n".join([*lines, ""])


# The tables of Scrapy's patterns


def patterns_table(_: str) -> str:
    """The patterns of ``tests/patterns`` that are not the same as in Scrapy, by group, and how many are."""
    lines: list[str] = []
    heading = ""
    same = sum(not each.differs for each in load().values())
    lines += ["", f"{same} of {len(load())} are the same in all of these ways. These are not:"]
    for each in load().values():
        if each.differs and each.group != heading:
            heading = each.group
            lines += ["", f"### {heading}", "", "| pattern | beside Scrapy | |", "|---|---|---|"]
        lines += [_row(each.text, result(other), other.note) for other in each.differs]
    return "\n".join([*lines[1:], ""])


# Files that tests run


def file_part(name: str) -> str:
    """The Python file *name*, but for its first sentence."""
    source = (ROOT / name).read_text(encoding="utf-8")
    return f"```python\n{source[source.index('from __future__') :]}```\n"


def alerts(_: str) -> str:
    """What to do at each alert."""
    return monitoring.run_book()


def benchmarks_table(_: str) -> str:
    """All benchmarks."""
    return table.markdown()


IS_RELEASED = False
"""Whether a package index has the package (docs/releasing.md)."""


def install(folder: str) -> str:
    """How to install the package, by the pip in *folder*."""
    venv = f"python3 -m venv {folder.removesuffix('/bin/')} && " if folder else ""
    if IS_RELEASED:
        return f"```sh\n{venv}{folder}pip install scrapy-aopic\n```\n"
    return f"No package index has it yet. In a checkout:\n\n```sh\n{venv}{folder}pip install .\n```\n"


PARTS: dict[str, Callable[[str], str]] = {
    "alerts": alerts,
    "benchmarks": benchmarks_table,
    "file": file_part,
    "install": install,
    "patterns": patterns_table,
    "settings": settings_list,
    "stats": stats_list,
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
