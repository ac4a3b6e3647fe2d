#!/usr/bin/env python3
"""Compare the normal forms of URLs with the URL Standard's test data and with those of iipc's urlcanon.

    python tests/conformance/urls.py [--wpt FILE] [--urlcanon FOLDER]

FILE is url/resources/urltestdata.json of web-platform-tests, FOLDER a checkout of https://github.com/iipc/urlcanon.
Neither is part of this project.

Every difference is printed with the reasons why it is intended. A reason is a *view*: something that one side does to
URLs and the other does not; a difference is explained if it vanishes when both are looked at in this way, and by the
smallest set of views for which it does. Which views may explain a difference is said for each set of data.

Exit status: 0 if every difference is intended, 1 if not.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from scrapy_aopic.web.urls import JudgedUrl, Normaliser

HTTP = re.compile(r"https?://", re.IGNORECASE)
PARTS = re.compile(r"(https?://)([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)


UNINTENDED = "NOT INTENDED"


class Case(NamedTuple):
    """*expected* is ``None`` if there is no normal form."""

    given: str
    expected: str | None


View: TypeAlias = tuple[str, Callable[[str], str]]
"""What one side does, and how to look at both so that it does not matter."""

Reason: TypeAlias = tuple[str, Callable[[Case], bool]]
"""Why one side has a normal form and the other has none, and what must be true of the case."""


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


def unescaped(text: str) -> str:
    """Without any escapes, however often they were escaped themselves."""
    data = text.encode()
    while unquote_to_bytes(data) != data:
        data = unquote_to_bytes(data)
    return data.decode("latin-1")


def sorted_query(query: str) -> str:
    return "?" + "&".join(sorted(query[1:].split("&"))) if query else ""


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

SESSIONS = (
    "sessions are cut off",
    both(
        on_part(3, lambda text: re.sub(r";jsessionid=\w+|/\(.*\)(?=/)", "", text)),
        on_part(4, lambda text: re.sub(r"(?<=[?&])(jsessionid|PHPSESSID|sid|ASPSESSIONID\w+|CFID|CFTOKEN)=[^&]*&?", "", text)),
    ),
)  # fmt: skip

THEIRS: dict[str, View] = {
    "unescape": (
        "theirs undoes all escapes, reserved characters too",
        both(on_part(3, unescaped), both(on_part(4, unescaped), on_part(5, unescaped))),
    ),
    "sort": ("theirs sorts the parameters", on_part(4, sorted_query)),
    "slashes": ("theirs takes several slashes for one", on_part(3, lambda text: re.sub(r"/+", "/", text))),
    "dots": ("theirs cuts off any number of dots around a host", on_part(2, lambda text: text.strip("."))),
}
"""What urlcanon's semantic and Google's canonicalisations do to URLs and we do not."""

AGGRESSIVE: dict[str, View] = {
    "https": ("theirs takes https for http", lambda url: url.replace("https:", "http:", 1)),
    "www": ("theirs cuts www off", on_part(2, lambda text: re.sub(r"^www\d*\.", "", text))),
    "end": ("theirs cuts off the slash at the end", on_part(3, lambda text: text.rstrip("/") or "/")),
    "case": ("theirs takes capitals for small letters", str.lower),
}
"""What urlcanon's aggressive canonicalisation does beyond that."""

PATHS: dict[str, View] = {
    "backslash": ("theirs leaves backslashes to another function", lambda url: url.replace("\\", "/")),
}


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

NO_SCHEME: Reason = (
    "theirs takes text without a scheme for a URL",
    lambda case: re.match(r"\s*[a-z\t]+:", case.given, re.IGNORECASE) is None,
)
NO_URL: Reason = ("theirs takes what is no URL by the URL Standard", lambda _: True)
NAME: Reason = (
    "theirs is no address; ours is a name, because its last label is no number",
    lambda case: re.search(r"\.?0{2,}x\w*/$", case.given) is not None,
)


def explain(case: Case, judged: JudgedUrl, views: dict[str, View], reasons: Iterable[Reason]) -> str | None:
    """Why *judged* may differ from what is expected; ``""`` if it does not, ``None`` if it may not."""
    ours = None if judged.reason else judged.url
    if ours == case.expected:
        return ""
    if judged.reason in REFUSED:
        reason, is_so = REFUSED[judged.reason]
        return reason if is_so(judged.url) else None
    if ours is None or case.expected is None:
        return next((reason for reason, holds in reasons if holds(case)), None)
    for size in range(1, len(views) + 1):
        for names in combinations(views, size):
            one, other = ours, case.expected
            for name in names:
                view = views[name][1]
                one, other = one if name in OURS else view(one), view(other)
            if one == other:
                return "; ".join(views[name][0] for name in names)
    return None


def compare(
    title: str,
    cases: list[Case],
    views: dict[str, View],
    *reasons: Reason,
    normalise: Callable[[str], JudgedUrl] = Normaliser(),  # noqa: B008
) -> bool:
    """Print how *cases* differ; returns whether every difference is intended."""
    counts: Counter[str] = Counter()
    print(f"\n## {title}\n")
    for case in cases:
        judged = normalise(case.given)
        reason = explain(case, judged, views, reasons)
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


def urlcanon_cases(folder: Path) -> dict[str, list[Case]]:
    def load(name: str) -> Any:
        return json.loads((folder / "testdata" / f"{name}.json").read_text(encoding="latin-1"))

    def text(value: str) -> str:
        return value.encode("latin-1").decode()  # the files are bytes, written as if they were Latin-1

    def is_text(value: str) -> bool:
        with suppress(UnicodeError):
            text(value)
            return True
        print(f"left out, because it is not UTF-8: {value!a}")
        return False

    def cases(pairs: dict[str, str]) -> list[Case]:
        return [Case(text(given), text(expected)) for given, expected in pairs.items() if is_text(given)]

    def http(pairs: dict[str, str]) -> dict[str, str]:
        return {given: expected for given, expected in pairs.items() if HTTP.match(expected)}

    hosts = load("funky_ipv4")
    paths = load("path_dots")["special"]
    return {
        "whatwg": cases(http(load("supplemental_whatwg"))),
        "ipv4": [Case(f"http://{host}/", f"http://{ip}/" if ip else None) for host, ip in hosts.items()],
        "paths": [Case(f"http://h{path}", f"http://h{expected}") for path, expected in paths.items()],
        "semantic": cases(http(load("semantic_precise"))),
        "google": cases(http(load("surt")["google"])),
        "aggressive": cases(http(load("aggressive"))),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wpt", type=Path, metavar="FILE")
    parser.add_argument("--urlcanon", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if args.wpt is None and args.urlcanon is None:
        parser.error("give --wpt or --urlcanon, or both")
    is_good = True
    if args.wpt is not None:
        cases = wpt_cases(args.wpt)
        bare = Normaliser((), max_length=0, max_depth=0, max_repeats=0, max_parameters=0)
        is_good &= compare("URL Standard, without our rules", cases, {}, normalise=bare)
        is_good &= compare("URL Standard, with our rules", cases, OURS)
    if args.urlcanon is not None:
        data = urlcanon_cases(args.urlcanon)
        loose = {**OURS, "session": SESSIONS, **THEIRS}
        is_good &= compare("urlcanon, whatwg", data["whatwg"], OURS, NO_URL)
        is_good &= compare("urlcanon, IPv4 addresses", data["ipv4"], {}, NAME)
        is_good &= compare("urlcanon, paths with dots", data["paths"], PATHS)
        is_good &= compare("urlcanon, semantic_precise", data["semantic"], loose, NO_SCHEME, NO_URL)
        is_good &= compare("urlcanon, google", data["google"], loose, NO_SCHEME, NO_URL)
        is_good &= compare(
            "urlcanon, aggressive", data["aggressive"], {**AGGRESSIVE, **loose}, NO_SCHEME, NO_URL
        )
    print("\nEvery difference is intended." if is_good else "\nThere are differences that are not intended.")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
