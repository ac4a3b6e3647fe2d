"""Responses of the class that a browser would give them, where Scrapy takes their ``Content-Type`` at its word."""

from __future__ import annotations

import logging

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import HtmlResponse, JsonResponse, Response, TextResponse, XmlResponse
from scrapy.responsetypes import responsetypes
from typing_extensions import Self
from w3lib.encoding import resolve_encoding

from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.web.content_types import content_type, declared_type
from scrapy_aopic.web.parse_limits import guessed_charset

logger = logging.getLogger(__name__)

_OF_SCRAPY = frozenset({Response, TextResponse, HtmlResponse, XmlResponse, JsonResponse})
"""Classes that are replaced: those of a download handler have what ours lack."""


class ContentTypeMiddleware:
    """Makes an HTML response of one that browsers treat as HTML though its type is a list, missing, or says nothing.

    A huge response that states no charset gets the one that is guessed by a part of it.

    Order: 585, where bodies are unpacked (``HttpCompressionMiddleware``), and before they are looked at
    (``MetaRefreshMiddleware``).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._first = FirstOnly(logger, crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        declared = declared_type(response.headers)
        if (declared.essence and not declared.is_odd) or type(response) not in _OF_SCRAPY:
            return _in_charset(response)
        kind = content_type(response)
        cls = responsetypes.from_mimetype(kind)
        charset = resolve_encoding(declared.charset) if declared.charset else None
        if not isinstance(response, cls):
            read = _as(response, cls, charset) if issubclass(cls, TextResponse) else response
        elif charset is not None and isinstance(response, TextResponse):
            read = _as(response, type(response), charset)
        else:
            read = response
        if declared.is_odd or read is not response:
            self._note(response, kind)
        return read if charset is not None else _in_charset(read)

    def _note(self, response: Response, kind: str) -> None:
        """Count *response*, which is read as of type *kind*; the first one is logged."""
        self._first.count("aopic/types/guessed")
        stated = b", ".join(response.headers.getlist("Content-Type")).decode("latin-1")
        self._first.warning(
            "odd",
            "%(url)s says %(stated)s of its type and is read as %(kind)s, as browsers do; further such responses are "
            "only counted (aopic/types/guessed)",
            url=response.url,
            stated=f'"{stated}"' if stated else "nothing",
            kind=kind,
        )


def _in_charset(response: Response) -> Response:
    """*response* in the charset that is guessed for it, if Scrapy would take long for that."""
    if not isinstance(response, TextResponse) or type(response) not in _OF_SCRAPY:
        return response
    charset = guessed_charset(response)
    return response if charset is None else _as(response, type(response), charset)


def _as(response: Response, cls: type[TextResponse], charset: str | None) -> TextResponse:
    """*response* as one of *cls* in *charset*, or in what Scrapy guesses; ``replace`` would guess in any case."""
    known = {name: getattr(response, name) for name in response.attributes if name != "encoding"}
    return cls(**known, encoding=charset)
