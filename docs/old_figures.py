"""List the figures of the docs that are older than the last change of what they measure.

    python docs/old_figures.py          # page, line, commit of the figures, and what has changed since
    python docs/old_figures.py PAGE ... # of these pages alone

A figure has the day and the commit at which it was measured: in the comment before a table, as ``python benchmarks record``
writes it, or in brackets. What it measures is a matter of its page (:data:`MEASURED`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

STAMP = re.compile(r"(20\d\d-\d\d-\d\d)(?: ·|,) commit ([0-9a-f]{7,40})")

_CORE = (
    "scrapy_aopic/core/ledger.py",
    "scrapy_aopic/core/order.py",
    "scrapy_aopic/core/pages.py",
    "scrapy_aopic/core/settling.py",
)

MEASURED: dict[str, tuple[str, ...]] = {
    "order-evidence.md": (*_CORE, "scrapy_aopic/core/branches.py", "scrapy_aopic/core/revisits"),
    "focused-evidence.md": (*_CORE, "scrapy_aopic/core/focus"),
    "order.md": _CORE,
    "content.md": ("scrapy_aopic/core/duplicates.py", "scrapy_aopic/core/merging.py"),
    "contact.md": ("scrapy_aopic/web/identity.py",),
    "links.md": ("scrapy_aopic/web/link_extraction.py", "scrapy_aopic/session/links"),
    "many-machines.md": ("scrapy_aopic/job", "scrapy_aopic/core/shards", "scrapy_aopic/storage/redis"),
    "politeness.md": (
        "scrapy_aopic/core/politeness.py",
        "scrapy_aopic/core/frontier",
        "scrapy_aopic/_engine/slots.py",
    ),
}
"""Files and folders that the figures of a page are of; of any other page all of the package."""


class Old(NamedTuple):
    """Figures that are older than what they measure."""

    page: str
    line: int
    day: str
    commit: str
    n_changes: int


@cache
def changes_since(commit: str, measured: tuple[str, ...]) -> int:
    """Commits since *commit* that changed what is *measured*; -1 if there is no such commit."""
    words = ("git", "rev-list", "--count", f"{commit}..HEAD", "--", *measured)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # git
    return int(done.stdout) if done.returncode == 0 else -1


def old_figures(pages: list[Path]) -> list[Old]:
    """Those of *pages*, but for :file:`decisions.md`, whose figures say what was known when it was decided."""
    found = []
    for page in pages:
        measured = MEASURED.get(page.name, ("scrapy_aopic",))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for day, commit in STAMP.findall(line):
                if page.name != "decisions.md" and (n := changes_since(commit, measured)):
                    found.append(Old(page.name, number, day, commit, n))
    return found


def main(names: list[str]) -> None:
    pages = [ROOT / "docs" / name for name in names] or sorted((ROOT / "docs").glob("*.md"))
    for page, line, day, commit, n in old_figures(pages):
        what = f"{n} commits have changed what they measure" if n > 0 else "there is no such commit"
        print(f"{page}:{line}: figures of {day}, commit {commit}: {what}")


if __name__ == "__main__":
    main(sys.argv[1:])
