#!/usr/bin/env python3
"""Compare the normal forms of URLs with the URL Standard's test data.

    python tests/conformance/urls.py --wpt FILE

FILE is url/resources/urltestdata.json of web-platform-tests, which is not part of this project.

Every difference is printed with the reasons why it is intended. A reason is a *view*: something that our rules do to
URLs and the URL Standard does not; a difference is explained if it vanishes when the same is done to what is expected, and by
the smallest set of views for which it does.

Exit status: 0 if every difference is intended, 1 if not.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias

from scrapy_aopic.web.urls import JudgedUrl, Normaliser

HTTP = re.compile(r"https?://", re.IGNORECASE)
PARTS = re.compile(r"(https?://)([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)


UNINTENDED = "NOT INTENDED"


class Case(NamedTuple):
    """*expected* is ``None`` if there is no normal form."""

    given: str
    expected: str | None


View: TypeAlias = tuple[str, Callable[[str], str]]
"""What our rules do, and the same to what is expected."""


def on_part(number: int, change: Callable[[str], str]) -> Callable[[str], str]:
    """A view on one part of a URL: 2 is the authority, 3 the path, 4 the query, 5 the fragment."""

    def view(url: str) -> str:
        match = PARTS.fullmatch(url)
        if match is None:
            return url
        parts = list(match.groups(""))
        parts[number - 1] = change(parts[number - 1])
        return "".join(parts)

    return view


def both(one: Callable[[str], str], other: Callable[[str], str]) -> Callable[[str], str]:
    return lambda url: other(one(url))


def normal_escapes(text: str) -> str:
    found = []
    for piece in re.findall(r"%[0-9A-Fa-f]{2}|.", text, re.DOTALL):
        character = chr(int(piece[1:], 16)) if len(piece) == 3 else piece
        if character.isascii() and (character.isalnum() or character in "-._~"):
            found.append(character)
        elif len(piece) == 3:
            found.append(piece.upper())
        else:
            found.append(f"%{ord(piece):02X}" if piece in "%[]|\\^{}`" else piece)
    return "".join(found)


OURS: dict[str, View] = {
    "fragment": ("fragments are cut off", on_part(5, lambda _: "")),
    "userinfo": ("user and password are cut off", on_part(2, lambda text: text.rpartition("@")[2])),
    "root-dot": ("the dot at the end of a host is cut off", on_part(2, lambda text: re.sub(r"\.(?=:|$)", "", text))),
    "percent": ("escapes have a normal form", both(on_part(3, normal_escapes), on_part(4, normal_escapes))),
    "empty-query": (
        "empty parameters and an empty query are cut off",
        on_part(4, lambda text: "?".join(["", "&".join(filter(None, text[1:].split("&")))]).removesuffix("?")),
    ),
}  # fmt: skip
"""What we do to URLs and the URL Standard does not; so these are applied to what is expected, and not to ours."""


def is_odd_host(url: str) -> bool:
    """Whether the host has a label that no DNS name has, or one in Punycode, which may be wrong."""
    match = re.match(r"https?://(?:[^/?#]*@)?([^/?#:]*)", url)
    labels = match[1].removesuffix(".").split(".") if match is not None else [""]
    return any(
        re.fullmatch(r"[\w-]{1,63}", label, re.ASCII) is None or label[:4] == "xn--" for label in labels
    )


def has_control(url: str) -> bool:
    return re.search("%(?i:[01][0-9a-f]|7f)", url) is not None


def is_cyclic(url: str) -> bool:
    return re.search(r"((/[^/]*)+)\1\1\1", url) is not None


REFUSED: dict[str, tuple[str, Callable[[str], bool]]] = {
    "host": ("refused: a host that cannot be asked for", is_odd_host),
    "port": ("refused: port 0", lambda url: ":0/" in url),
    "control": ("refused: control characters", has_control),
    "repeats": ("refused: a path that repeats itself", is_cyclic),
}
"""What we refuse and others do not, with what must be true of the URL, in normal form."""


def explain(case: Case, judged: JudgedUrl, views: dict[str, View]) -> str | None:
    """Why *judged* may differ from what is expected; ``""`` if it does not, ``None`` if it may not."""
    ours = None if judged.reason else judged.url
    if ours == case.expected:
        return ""
    if judged.reason in REFUSED:
        reason, is_so = REFUSED[judged.reason]
        return reason if is_so(judged.url) else None
    if ours is None or case.expected is None:
        return None
    for size in range(1, len(views) + 1):
        for names in combinations(views, size):
            expected = case.expected
            for name in names:
                expected = views[name][1](expected)
            if ours == expected:
                return "; ".join(views[name][0] for name in names)
    return None


def compare(
    title: str,
    cases: list[Case],
    views: dict[str, View],
    normalise: Callable[[str], JudgedUrl] = Normaliser(),  # noqa: B008
) -> bool:
    """Print how *cases* differ; returns whether every difference is intended."""
    counts: Counter[str] = Counter()
    print(f"\n## {title}\n")
    for case in cases:
        judged = normalise(case.given)
        reason = explain(case, judged, views)
        if reason != "":
            print(f"{case.given!a}\n    theirs {case.expected!a}\n    ours   {tuple(judged)!a}")
            print(f"    {reason or UNINTENDED}")
        counts[UNINTENDED if reason is None else reason or "the same"] += 1
    print(f"\n{title}: {len(cases)} cases")
    for reason, count in counts.most_common():
        print(f"  {count:4} {reason}")
    return not counts[UNINTENDED]


def wpt_cases(path: Path) -> list[Case]:
    """The absolute http and https URLs; Scrapy joins relative ones before they get here."""
    cases = []
    for test in json.loads(path.read_text(encoding="utf-8")):
        if isinstance(test, dict) and test["base"] is None:
            given, expected = test["input"], test.get("href")
            if HTTP.match(expected or "") or (
                expected is None and re.match(r"\s*https?:", given, re.IGNORECASE)
            ):
                cases.append(Case(given, expected))
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wpt", type=Path, metavar="FILE", required=True)
    cases = wpt_cases(parser.parse_args().wpt)
    bare = Normaliser((), max_length=0, max_depth=0, max_repeats=0, max_parameters=0)
    is_good = compare("URL Standard, without our rules", cases, {}, normalise=bare)
    is_good &= compare("URL Standard, with our rules", cases, OURS)
    print("\nEvery difference is intended." if is_good else "\nThere are differences that are not intended.")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
