"""Examples of a topic: folders of pages, one in each file, as a browser or ``wget`` saves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scrapy.http import HtmlResponse

from scrapy_aopic.core.focus.topic import Samples, Topic
from scrapy_aopic.core.focus.words import LINK_CHARACTERS
from scrapy_aopic.exceptions import TopicError, plainly
from scrapy_aopic.storage.named_files import open_given
from scrapy_aopic.web.context import page_context

from .background import background
from .tokenizers import Words

_MOST_BYTES = 2_000_000
"""Bytes of a file that are read; of its text, no more counts than of a page in a crawl."""

_MOST_FILES = 20_000
"""Files of a folder that are read: far more than a topic needs."""


class ExamplePage(NamedTuple):
    """An example: its file, its text, and its title."""

    path: Path
    text: str
    title: str = ""


def read_folder(folder: Path) -> list[ExamplePage]:
    """The pages in *folder* and below it, in the order of their names; hidden files are none. Or the one page in a file.

    Raises:
        TopicError: If it has none, or they cannot be read.
    """
    if not folder.exists():
        raise TopicError(f"{folder} is not there, and should be a folder with saved pages, one in each file.")
    try:
        paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))[:_MOST_FILES]
        found = [_read(path) for path in paths if path.is_file() and not path.name.startswith(".")]
    except OSError as error:
        raise TopicError(f"{folder} cannot be read: {plainly(error)}.") from error
    pages = [page for page in found if page.text]
    if not pages:
        raise TopicError(f"{folder} has no page with any text: save some there, one in each file.")
    return pages


def _read(path: Path) -> ExamplePage:
    with open_given(path) as file:
        return ExamplePage(path, *_said(file.read(_MOST_BYTES)))


def _said(data: bytes) -> tuple[str, str]:
    """The text and the title of a page with these bytes; they may be plain text, too."""
    if not data.strip():
        return "", ""
    page = HtmlResponse("http://example.org/", body=data)
    try:
        title = page.selector.root.findtext(".//title") or ""
        return page_context(page.selector.root, page.url).text, title[:LINK_CHARACTERS]
    except (LookupError, ValueError):  # an unknown charset, as in a crawl
        return "", ""


def train(
    positive: Sequence[ExamplePage], negative: Sequence[ExamplePage] = (), cut: Words | None = None
) -> Topic:
    """A topic that has learned from relevant pages and from others, *cut* into words; the same from the same pages.

    Args:
        negative: Beside them stand pages of the open web (:mod:`.background`), unless *cut* is a user's: what a crawl meets is
            more than any folder shows.

    Raises:
        TopicError: If a page is among both, or there are no others and *cut* is a user's.
    """
    paths = {page.text: page.path for page in negative}
    for page in positive:
        if page.text in paths:
            raise TopicError(
                f"{page.path} and {paths[page.text]} are the same page: it is either relevant or not. Remove one."
            )
    cut = cut if cut is not None else Words()
    topic = Topic(cut=cut, cut_url=cut.of_url)
    if not negative and not cut.is_plain:
        raise TopicError("With a tokeniser of your own (AOPIC_TOKENIZER), name a folder of other pages, too.")
    given, others = ([topic.features(page.text) for page in pages] for pages in (positive, negative))
    beside = background() if cut.is_plain else []
    topic.pages.fit(
        [*((each, True) for each in given), *((each, False) for each in others or beside)],
        [(each, False) for each in beside if others],
    )
    return topic


def samples(positive: Sequence[ExamplePage], negative: Sequence[ExamplePage]) -> Samples:
    """The samples for :mod:`~scrapy_aopic.core.focus.published.jlse_as_printed`. The texts of links to saved pages are not known, so
    the titles of these pages take their place."""
    graded = [*((page, True) for page in positive), *((page, False) for page in negative)]
    return Samples(
        [(page.text, is_relevant) for page, is_relevant in graded],
        [(page.title, is_relevant) for page, is_relevant in graded],
        stop_words(),
    )


def stop_words() -> frozenset[str]:
    """English and Chinese words that say nothing: those of stopwords-iso, which an extra installs."""
    from stopwordsiso import stopwords  # noqa: PLC0415  # an extra

    return frozenset(stopwords(["en", "zh"]))
