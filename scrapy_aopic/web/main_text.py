"""The text of a page that a reader is after, without menus, adverts and footers; trafilatura finds it."""

from __future__ import annotations

import logging
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

from scrapy_aopic.core.printable import printable
from scrapy_aopic.exceptions import ANY_ERROR, plainly

logger = logging.getLogger(__name__)

HOW_TO_INSTALL = "pip install trafilatura"


def has_extractor() -> bool:
    """Whether there is what finds it."""
    return find_spec("trafilatura") is not None


def main_text(root: Any, form: str) -> str:
    """The main text of the page whose tree has this *root*, in a *form* that trafilatura knows; empty if none is found.

    As ``"txt"`` a paragraph is a line; as ``"markdown"`` it has headings, lists, tables and marks, too.

    It takes some 30 ms for a page of 30 kB, so it is called in a thread.
    """
    from trafilatura import extract  # noqa: PLC0415  # an extra, and slow to import

    try:
        found = extract(deepcopy(root), output_format=form, include_comments=False) or ""
    except ANY_ERROR as error:  # whatever a page makes a heuristic do
        logger.warning("The text of a page cannot be found, so its item has none: %s", plainly(error))
        return ""
    return "\n".join(map(printable, found.splitlines()))
