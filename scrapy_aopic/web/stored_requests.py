"""Whether a stored request can be read, and belongs to the page under whose key it is stored, without a spider.

The host of a page is in its key in every job. The rest of the key follows from the URL in most jobs, which say so
(:data:`~scrapy_aopic.core.layout.KEYS_KEY`); if a user's own fingerprinter made it, only that could tell.

Whether the spider has the callback is not checked, as no spider is loaded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy_aopic.core.layout import KEYS_KEY, URL_KEYS, Family
from scrapy_aopic.core.records import HOST_BYTES, Page, host_key, repeat_key
from scrapy_aopic.exceptions import ANY_ERROR

from .request_rows import IN_MEMORY, SEEDED_LINE, SLOT, is_packed, url_of, values_of
from .url_keys import key_of_parts, key_of_url

if TYPE_CHECKING:
    from scrapy_aopic.core.walk import Reader

_ATTRIBUTES = frozenset(
    (
        "url",
        "callback",
        "method",
        "headers",
        "body",
        "cookies",
        "meta",
        "encoding",
        "priority",
        "dont_filter",
        "errback",
        "flags",
        "cb_kwargs",
    )
)
"""``scrapy.Request.attributes``, of a request that is of no class of the user's: a job is also read where Scrapy is not installed."""

_N_LINES = 6

_NAME = rb"(?:[A-Za-z_]\w*)?"
_LINES = re.compile(
    rb"(https?://[!-~]+)(?:\n%b(?:\n%b(?:\n\d*(?:\n[ -~]*(?:\n[1s]?)?)?)?)?)?" % (_NAME, _NAME)
)
"""Matches most requests, which are lines that begin with the URL."""


class RequestReader:
    """Says what is wrong with the request of a page: a :data:`~scrapy_aopic.core.walk.WrongRequest`.

    Args:
        has_url_keys: Whether page keys are made of URLs.
    """

    def __init__(self, *, has_url_keys: bool) -> None:
        self._has_url_keys = has_url_keys

    @classmethod
    def of(cls, store: Reader) -> RequestReader:
        """The reader for the job in *store*."""
        return cls(has_url_keys=store.get_many(Family.META, (KEYS_KEY,))[0] == URL_KEYS)

    def __call__(self, key: bytes, request: bytes, page: Page) -> str:
        """The fault of *request*, of *page* under *key*, as a sentence; ``""`` if it has none."""
        try:
            plain = _LINES.fullmatch(request) if self._has_url_keys and not page.repeat_of else None
            if plain is not None and key_of_url(plain[1].decode())[1] == key:  # as it is for most pages
                return ""
            return self._wrong(key, request, page)
        except ANY_ERROR as error:
            return f"cannot be read ({type(error).__name__}: {error})"

    def _wrong(self, key: bytes, data: bytes, page: Page) -> str:  # noqa: PLR0911  # one for each reason
        if not data:
            return "is empty"
        if data[:1] == IN_MEMORY:  # it had to be kept by its process, and so had its slot
            return "" if urlsplit(url_of(data)).scheme else "has no URL"
        values = values_of(data)
        if not isinstance(values, dict):
            return "cannot be read"
        _check_lines(data)
        if "_class" not in values and (others := values.keys() - _ATTRIBUTES):
            return f"has {min(others, key=str)!r}, which no request has"
        url, meta = values["url"], values.get("meta") or {}
        slot = meta.get(SLOT)
        name = str(slot) if slot is not None else urlsplit(url).hostname or ""
        if not urlsplit(url).scheme:
            return f"has no URL: {url!r}"
        if host_key(name) != key[:HOST_BYTES]:
            return f"is for the host {name!r}, which is another one"
        if not self._has_url_keys:
            return ""
        _, right = key_of_parts(
            name,
            url,
            values.get("method", "GET"),
            values.get("body") or b"",
            is_verbatim=bool(meta.get("verbatim_url")),
        )
        if page.repeat_of:
            right = repeat_key(right, page.place)
        return "" if right == key else f"is that of another page: {url}"


def _check_lines(data: bytes) -> None:
    """Raise an error if *data* are lines that this package never writes."""
    if is_packed(data):
        return
    lines = data.decode().split("\n")
    _, callback, errback, depth, _, purpose, *rest = *lines, *[""] * (_N_LINES - len(lines))
    if rest or purpose not in ("", "1", SEEDED_LINE):
        raise ValueError("it has other lines than those of a request")
    for name in (callback, errback):
        if name and not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a callback")
    if depth:
        int(depth)
