"""Examples of a topic: folders of pages, one in each file, as a browser or ``wget`` saves them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy.http import HtmlResponse

from scrapy_aopic.core.focus.topic import Topic
from scrapy_aopic.core.focus.words import url_words, words
from scrapy_aopic.exceptions import TopicError, plainly
from scrapy_aopic.storage.given import open_given
from scrapy_aopic.web.context import page_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy_aopic.core.focus.topic import CutText

ROUNDS = 5
"""Times that each example is learned from: with a few dozen, once is not enough to use what they say."""

_MOST_BYTES = 2_000_000
"""Bytes of a file that are read; of its text, no more counts than of a page in a crawl."""

_MOST_FILES = 20_000
"""Files of a folder that are read: far more than a topic needs."""


class Page(NamedTuple):
    """An example: its file, and its text."""

    path: Path
    text: str


def read_folder(folder: Path) -> list[Page]:
    """The pages in *folder* and below it, in the order of their names; hidden files are none.

    Raises:
        TopicError: If it has none, or they cannot be read.
    """
    pages = []
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise TopicError(f"{folder} is {what}, and should be a folder with saved pages, one in each file.")
    try:
        for path in sorted(folder.rglob("*"))[:_MOST_FILES]:
            if path.is_file() and not path.name.startswith("."):
                with path.open("rb") as file:
                    text = _text(file.read(_MOST_BYTES))
                if text:
                    pages.append(Page(path, text))
    except OSError as error:
        raise TopicError(f"The folder {folder} cannot be read: {plainly(error)}.") from error
    if not pages:
        raise TopicError(
            f"The folder {folder} has no pages with any text: save some there, one in each file."
        )
    return pages


def read_page(path: Path) -> Page:
    """The page in the file at *path*.

    Raises:
        TopicError: If it cannot be read, or has no text.
    """
    try:
        with open_given(path) as file:
            page = Page(path, _text(file.read(_MOST_BYTES)))
    except OSError as error:
        raise TopicError(f"The page {path} cannot be read: {plainly(error)}.") from error
    if not page.text:
        raise TopicError(f"The page {path} has no text.")
    return page


def _text(data: bytes) -> str:
    """The text of a page with these bytes; they may be plain text, too."""
    if not data.strip():
        return ""
    page = HtmlResponse("http://example.org/", body=data)
    try:
        return page_context(page.selector.root, page.url).text
    except (LookupError, ValueError):  # a charset that is none, as in a crawl
        return ""


def train(
    positive: Sequence[Page],
    negative: Sequence[Page],
    cut: CutText = words,
    cut_url: Callable[[str], list[str]] = url_words,
) -> Topic:
    """A topic that has learned from relevant pages and from others; the same from the same pages."""
    topic = Topic(cut=cut, cut_url=cut_url)
    chance = random.Random(0)  # noqa: S311 - an order to be repeated, not a secret
    examples = [*_graded(positive, 1.0), *_graded(negative, 0.0)]
    for _ in range(ROUNDS):
        chance.shuffle(examples)
        for text, grade in examples:
            topic.learn_page(text, grade)
    return topic


def _graded(pages: Iterable[Page], grade: float) -> list[tuple[str, float]]:
    return [(page.text, grade) for page in pages]
