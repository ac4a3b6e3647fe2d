"""What of a page is compared with that of the visit before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http import HtmlResponse, Response

from scrapy_aopic.exceptions import SettingError
from scrapy_aopic.web.main_text import HOW_TO_INSTALL, has_extractor, main_text
from scrapy_aopic.web.page_text import comparable_text
from scrapy_aopic.web.parse_limits import root_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider


def compared_by(
    by: str | Callable[[Response], object], spider: Spider
) -> Callable[[Response], object] | None:
    """A function that gives what is compared of a response, if *by* (``Recrawl.by``) is not all bytes.

    Raises:
        SettingError: If it cannot be had.
    """
    if not isinstance(by, str):
        return by
    if by == "main text" and not has_extractor():
        raise SettingError(f'AOPIC_RECRAWL ("main text") needs trafilatura: {HOW_TO_INSTALL}, or use "text".')
    if name := by.removeprefix("spider.") if by.startswith("spider.") else "":
        if not callable(found := getattr(spider, name, None)):
            raise SettingError(f"AOPIC_RECRAWL ({by!r}): the spider {spider.name!r} has no method {name!r}.")
        return found  # type: ignore[no-any-return]
    return {"text": comparable_text, "main text": main_text_of}.get(by)


def main_text_of(response: Response) -> str:
    """Its main text; empty if it is no page of HTML, or has none."""
    return main_text(root_of(response), "txt") if isinstance(response, HtmlResponse) else ""
