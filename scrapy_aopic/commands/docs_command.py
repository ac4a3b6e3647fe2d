"""``scrapy aopic docs``: the pages of the docs for users, which are in the package, so that no address is needed."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.version import DOCS
from scrapy_aopic.view.output import write

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from scrapy.settings import BaseSettings

MEANING = (
    "Show a page of the docs, or the part of it about a setting, a stat or a command. Without a name, list the pages; "
    "with other words, list the places that have them all."
)

_SHORT = 500
"""Characters of a text so short that a word in it says little of what it is about."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="page, PAGE#PLACE, setting, stat, command, or words to look for",
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    pages = _pages()
    name = " ".join(opts.name).removesuffix(".").removeprefix("docs/")
    page, place = (*name.replace(".md", "").split("#", 1), "")[:2]
    if not name:
        write("\n".join(f"{DOCS} {each:<17} {_lines(path)[0][2:]}" for each, path in pages.items()))
    elif page in pages:
        write(_part(pages[page], place))
    else:
        found = [(each, line) for each, path in pages.items() for line in _lines(path) if _is_of(line, name)]
        write(
            "\n\n".join(_part(pages[each], _place(line)) for each, line in found) or _with_words(pages, name)
        )
    return 0


def _pages() -> dict[str, Path]:
    """The pages for users by their names, as the first one lists them: a wheel has them in the package, a checkout beside it."""
    package = Path(__file__).parents[1]
    folder = next(each for each in (package / "docs", package.parent / "docs") if each.is_dir())
    names = re.findall(r"\]\(([\w-]+)\.md", (folder / "index.md").read_text(encoding="utf-8"))
    return {name: path for name in ("index", *names) if (path := folder / f"{name}.md").exists()}


def _lines(path: Path) -> list[str]:
    """Those of a page, without comments."""
    return re.sub(
        r"^<!--.*?-->\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    ).splitlines()


def _place(line: str) -> str:
    """The place that *line* begins, as links name it; empty if it begins none."""
    if given := re.search(r'<a id="(\S+?)">', line):
        return given[1]
    return re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") if line.startswith("#") else ""


def _is_of(line: str, name: str) -> bool:
    """Whether *line* begins what is said of the setting, stat, metric or command *name*."""
    begins = rf'(#+ |- <a id="\S+?"></a>)`?{re.escape(name)}`?( \(.*)?'
    return _place(line) == name.lower() or re.fullmatch(begins, line, re.IGNORECASE) is not None


def _part(path: Path, place: str) -> str:
    """The text of a page, or of what begins at the *place*, and where all of it is."""
    lines = _lines(path)
    if place:
        begins = [number for number, line in enumerate(lines) if _place(line) == place.lower()]
        if not begins:
            near = get_close_matches(place, filter(None, map(_place, lines)), n=1, cutoff=0)
            raise UsageError(f"{path.stem} has no place {place!r}; did you mean {path.stem}#{near[0]}?")
        first, rest = lines[begins[0]], lines[begins[0] + 1 :]
        ends = rf"#{{1,{len(first) - len(first.lstrip('#'))}}} " if first.startswith("#") else "- |#|$"
        lines = [first, *takewhile(lambda line: not re.match(ends, line), rest)]
    return "\n".join([*lines, "", f"({path})"])


def _with_words(pages: dict[str, Path], words: str) -> str:
    """Places that have all *words*: first those with most of them in their heading, and then those that are most about them."""
    wanted = [word.rstrip("s") for word in words.lower().split()]
    found = []
    for page, path in pages.items():
        for place, text in _texts(page, path):
            if all(word in f"{place} {text}" for word in wanted):
                about = sum(map(text.count, wanted)) / (len(text) + _SHORT)
                found.append((-sum(word in place for word in wanted), -about, f"{DOCS} {place}"))
    if not found:
        raise UsageError(f"no page has {words!r}; {DOCS!r} lists the pages")
    return "\n".join(place for *_, place in sorted(found)[:10])


def _texts(page: str, path: Path) -> Iterator[tuple[str, str]]:
    """Each place of a page, as the command names it, and its text in small letters."""
    place, text = page, ""
    for line in _lines(path):
        if begins := _place(line):
            yield place, text
            place, text = f"{page}#{begins}", ""
        text += f"{line.lower()}\n"
    yield place, text
