"""Runs a command of the docs, shows what it prints, and says in the docs when that was and of which commit.

    python benchmarks record farms
    python benchmarks record scrapy aopic simulate FOLDER/webkb-1997.npz --urls FOLDER/webkb-1997.urls.gz

Before each table of figures in docs/ that a command makes stands which command that is, and when it ran last:

    <!-- python benchmarks order demo · 2026-11-25 · commit 48f94b5 -->

The command is written without the folders of this machine. Where it stands in the docs so, the day and the commit are
exchanged; where it does not, the line is printed to be put there. A table that it prints takes the place of the one below
that line with the same head; all others you put there yourself.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from table import TABLE

ROOT = Path(__file__).parents[1]
RECORD = re.compile(
    r"<!-- (?P<command>\S.*?) · (?P<day>\d{4}-\d\d-\d\d) · commit (?P<commit>[0-9a-f]{7,12}) -->"
)
PROOF = re.compile(
    rf"(?:\S*/)?(?:python (?:\.\./)?(?:benchmarks (?:{'|'.join(TABLE)})\b|(?:\.\./)?tests/conformance/)|scrapy aopic simulate \S)"
)
"""How a command begins that proves something; ``make crawl`` and the like show how to use the package."""


FIGURE = re.compile(r"(?:[<>]= )?[-+~.]?\d")


class Table(NamedTuple):
    """A table of the docs, with the records right before it, and the commands of its section."""

    page: Path
    line: int
    rows: list[list[str]]
    records: list[re.Match[str]]
    commands: list[str]

    @property
    def has_figures(self) -> bool:
        """Whether a third of its cells are numbers, those of the first column aside."""
        cells = [cell for row in self.rows[1:] for cell in row[1:] if cell]
        return 3 * sum(FIGURE.match(cell) is not None for cell in cells) >= len(cells) > 0


def pages() -> list[Path]:
    """The pages that give commands as proof."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def plain(command: str) -> str:
    """*command* as the docs write it: without the folders of a machine, and without what it would say of a comment."""
    words = shlex.split(command, comments=True)
    words[0] = Path(words[0]).name
    for number, word in enumerate(words):
        for folder in ("benchmarks", "docs", "tests"):
            if word.startswith(f"{folder}/") or f"/{folder}/" in word:
                words[number] = folder + word.rpartition(folder)[2]
                break
        else:
            if word.startswith(("/", "../", "~")):
                words[number] = Path(word).name
    return shlex.join(words)


def commands(text: str) -> Iterator[tuple[int, str]]:
    """The commands of a page that prove something, each with the number of its line."""
    is_code = False
    whole = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            continue
        if RECORD.search(line):
            continue
        for code in [line.strip()] if is_code else re.findall(r"`([^`]+)`", line):
            whole += code
            if is_code and whole.endswith("\\"):
                whole = whole[:-1]
                continue
            if PROOF.match(whole):
                yield number, plain(whole)
            whole = ""


def tables(page: Path) -> Iterator[Table]:
    """The tables of *page*."""
    lines = page.read_text(encoding="utf-8").splitlines()
    given = list(commands("\n".join(lines)))
    is_code = False
    begins = [0]
    for number, line in enumerate(lines, 1):
        is_code ^= line.lstrip().startswith("```")
        if line.startswith("#") and not is_code:
            begins.append(number)
    begins.append(len(lines) + 1)
    at = 0
    while at < len(lines):
        if not lines[at].startswith("|") or is_rule(lines[at]):
            at += 1
            continue
        first = at
        while at < len(lines) and lines[at].startswith("|"):
            at += 1
        rows = [cells(line) for line in lines[first:at] if not is_rule(line)]
        begin = max(each for each in begins if each <= first + 1)
        end = min(each for each in begins if each > first + 1)
        of = [command for number, command in given if begin <= number < end]
        records: list[re.Match[str]] = []
        while (record := RECORD.fullmatch(lines[first - 1 - len(records)])) is not None:
            records.append(record)
        yield Table(page, first + 1, rows, records, of)


def is_rule(line: str) -> bool:
    return re.fullmatch(r"\|[-:| ]+", line) is not None


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def line_of(command: str) -> str:
    """The record of *command*, which has run just now."""
    git = ["git", "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    return f"<!-- {command} · {time.strftime('%Y-%m-%d')} · commit {commit} -->"


def note(command: str) -> int:
    """Exchange the records of *command* in the docs; returns how many there are."""
    found = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for record in RECORD.finditer(text):
            if record["command"] == command:
                found += 1
                text = text.replace(record[0], line_of(command))
        page.write_text(text, encoding="utf-8")
    return found


def put(command: str, printed: str) -> None:
    """Exchange the tables in the docs that *command* alone makes, if it has *printed* one with the same head."""
    made = {tuple(cells(block[0])): block for block in blocks(printed)}
    for page in pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        for table in reversed(list(tables(page))):
            if [record["command"] for record in table.records] != [command]:
                continue
            head, first = tuple(table.rows[0]), table.line - 1
            if head in made:
                lines[first : first + len(table.rows) + 1] = made[head]
            else:
                print(f"{page.name}:{table.line} has a head that was not printed: look at it yourself")
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def blocks(text: str) -> Iterator[list[str]]:
    """The lines of each table of *text*."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            yield block
            block = []


def run(words: list[str], command: str) -> None:
    """Run *words*, and bring what the docs have of *command* up to date.

    Raises:
        SystemExit: If it fails.
    """
    printed = ""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed += line
    if process.returncode:
        sys.exit(process.returncode)
    if note(command):
        put(command, printed)
    else:
        print(f"\nNo page has a table of this command; the line before one is\n{line_of(command)}")
