#!/usr/bin/env python3
"""Ask the parser of robots.txt that a crawl uses what others say of the same files.

Two things are read by their paths, and none of them is kept here:

* ``--cases``: the published test cases of Google's parser, ``robots_test.cc`` of github.com/google/robotstxt;
* ``--files``: a folder of real robots.txt files, named after their hosts, such as ``tests/test_data`` of
  github.com/scrapy/protego. Each must be parsed; with ``--reference PROGRAM`` each is also judged by both.

``PROGRAM FILE AGENT URL`` ends with status 0 if the file allows the URL, and with 1 if it does not, as the program
that comes with Google's parser does.

Exit status: 1 if a file could not be parsed, else 0; differences are printed, and explained in README.md.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

from w3lib.url import safe_url_string

from scrapy_aopic.web.robots_parser import Rfc9309RobotParser

AGENTS, URLS = 5, 20
"""Of each file, so many agents that it names and so many URLs that it is about; and the agent ``anybot``."""

_LITERAL = r'"(?:[^"\\]|\\.)*"'
_TEXT = rf"(?:{_LITERAL}\s*)+"
_ASSIGNED = re.compile(rf"(?:absl::string_view|std::string)\s+(\w+)\s*=\s*({_TEXT});")
_EXPECTED = re.compile(
    rf"EXPECT_(TRUE|FALSE)\(\s*IsUserAgentAllowed\(\s*({_TEXT}|\w+),\s*({_TEXT}|\w+),\s*({_TEXT}|\w+)\s*\)\)"
)


class Case(NamedTuple):
    """What a parser must say."""

    name: str
    text: str
    agent: str
    url: str
    is_allowed: bool


def literal(source: str) -> str:
    """The value of adjacent string literals of C++."""
    parts = (part[1:-1] for part in re.findall(_LITERAL, source))
    return "".join(parts).encode("latin-1", "backslashreplace").decode("unicode_escape")


def cases(source: str) -> tuple[list[Case], int]:
    """The cases in Google's tests, and how many could not be read because they compute their texts."""
    found: list[Case] = []
    n_unread = 0
    for test in re.split(r"^TEST\(", source, flags=re.MULTILINE)[1:]:
        name = re.match(r"\w+, (\w+)", test)
        assert name is not None
        if "StrAppend" in test:
            n_unread += test.count("EXPECT_")
            continue
        values: dict[str, str] = {}
        for match in re.finditer(f"{_ASSIGNED.pattern}|{_EXPECTED.pattern}", test):
            variable, text, truth, *arguments = match.groups()
            if variable:
                values[variable] = literal(text)
            else:
                body, agent, url = (
                    literal(each) if each.startswith('"') else values[each] for each in arguments
                )
                found.append(Case(name[1], body, agent, url, truth == "TRUE"))
    return found, n_unread


def check_cases(path: Path) -> None:
    """Print which of Google's cases come out otherwise here."""
    found, n_unread = cases(path.read_text(encoding="utf-8"))
    differing = [
        case
        for case in found
        if Rfc9309RobotParser(case.text.encode()).allowed(case.url, case.agent) != case.is_allowed
    ]
    for case in differing:
        print(
            f"  {case.name}: {case.agent!r} {case.url!r} must be {'allowed' if case.is_allowed else 'forbidden'}"
        )
    print(
        f"Google's cases: {len(found)} read, {len(differing)} differ; {n_unread} compute their text and are not read"
    )


def questions(path: Path) -> Iterator[tuple[str, str]]:
    """Agents and URLs that the file at *path* is about."""
    text = path.read_bytes().decode("utf-8-sig", errors="ignore")
    agents = dict.fromkeys(re.findall(r"(?im)^[ \t]*user-agent[ \t]*:[ \t]*([a-z_-]+)[ \t]*\r?$", text))
    paths = dict.fromkeys(re.findall(r"(?im)^[ \t]*(?:dis)?allow[ \t]*:[ \t]*([/*][^\s#]*)", text))
    urls = dict.fromkeys(
        safe_url_string(f"http://{path.name}/" + each.replace("*", "x").rstrip("$").removeprefix("/") + end)
        for each, end in product(paths, ("", "x"))
    )
    return product(["anybot", *islice(agents, AGENTS)], islice(urls, URLS))


def check_files(folder: Path, reference: str) -> int:
    """Print what comes out otherwise than by the program *reference*; returns the files that were not parsed."""
    n: Counter[str] = Counter()
    asked: list[tuple[Path, str, str, bool]] = []
    for path in sorted(folder.iterdir()):
        try:
            rules = Rfc9309RobotParser(path.read_bytes())
            asked += [(path, agent, url, rules.allowed(url, agent)) for agent, url in questions(path)]
        except Exception as error:  # noqa: BLE001  # whatever it is, that file is one that a crawl stumbles over
            n["not parsed"] += 1
            print(f"  {path.name} cannot be parsed: {error!r}")
        n["files"] += 1
    print(f"Real files: {n['files']} read, {n['not parsed']} of them not parsed")
    if not reference:
        return n["not parsed"]

    def judge(question: tuple[Path, str, str, bool]) -> bool:
        path, agent, url, _ = question
        done = subprocess.run([reference, path, agent, url], capture_output=True, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{reference} {path} {agent} {url} ended with status {done.returncode}: {done.stderr!r}")
        return done.returncode == 0

    with ThreadPoolExecutor(2) as pool:
        for (path, agent, url, ours), theirs in zip(asked, pool.map(judge, asked), strict=True):
            if ours != theirs:
                n["stricter" if theirs else "laxer"] += 1
                n[f"file {path.name}"] += 1
                print(f"  {path.name}: {agent} {url} is {'allowed' if ours else 'forbidden'} here only")
    n_files = sum(name.startswith("file ") for name in n)
    print(
        f"Questions: {len(asked)}, and {n['stricter'] + n['laxer']} answers differ, in {n_files} files: {n['stricter']} "
        f"are stricter here, {n['laxer']} laxer"
    )
    return n["not parsed"]


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--cases", type=Path, metavar="FILE", help="robots_test.cc")
    options.add_argument("--files", type=Path, metavar="FOLDER", help="folder of robots.txt files")
    options.add_argument(
        "--reference", default="", metavar="PROGRAM", help="what the files are judged by, too"
    )
    given = options.parse_args()
    if given.cases:
        check_cases(given.cases)
    return int(bool(given.files and check_files(given.files, given.reference)))


if __name__ == "__main__":
    sys.exit(main())
