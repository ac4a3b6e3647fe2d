"""Exceptions that errbacks get for requests that the crawl refuses, with short reasons for outcomes and stats.

The rules that refuse a URL are in :mod:`scrapy_aopic.web.url_rules`.
"""

from __future__ import annotations

from scrapy.exceptions import IgnoreRequest


class LeftAloneError(IgnoreRequest):
    """A host must be left alone, for longer than a request may wait in the downloader, because another process may have it, or as the crawl ends."""


class RefusedError(IgnoreRequest):
    """A request, or the answer to it, that the crawl does not want.

    Attributes:
        reason: Why, in a few words: the outcome of the page.
    """

    reason = ""


class ForbiddenError(RefusedError):
    """robots.txt forbids it."""

    reason = "robots.txt"


class NothingAllowedError(RefusedError):
    """robots.txt cannot be had, and so nothing is allowed."""

    reason = "robots.txt unreachable"


class UnwantedTypeError(RefusedError):
    """The answer is of a type that is not read."""

    reason = "content type"


class ContentUsageError(RefusedError):
    """The owner of the page does not want it to be used as the crawl uses it."""

    reason = "content usage"


class ReloadError(RefusedError):
    """The page only redirects to itself, and nothing had changed when it was requested again."""

    reason = "redirect to itself"


class NetworkError(RefusedError):
    """Its host is not on the Internet, or its name resolves to what is not."""

    reason = "network"


def resolved(address: str) -> str:
    """Why a name is refused that resolves to *address*."""
    return f"its host resolves to {address}, which is not on the Internet (AOPIC_ALLOW_NETWORKS)"


class ServiceError(RefusedError):
    """Its port is that of another service than the web's."""

    reason = "service"


class RedirectedFormError(RefusedError):
    """A redirect would send to another site what was meant for this one."""

    reason = "redirected form"


class FramingError(RefusedError):
    """The answer comes in chunks that are so small that to read them would stop everything."""

    reason = "framing"


class CodingsError(RefusedError):
    """The answer is packed so often that to unpack it would stop everything."""

    reason = "codings"


class AttributesError(RefusedError):
    """The page has an element with so many attributes that parsing it would block the event loop."""

    reason = "attributes"


def reason_of(exception: Exception) -> str:
    """A short name of what ended a request."""
    return exception.reason if isinstance(exception, RefusedError) else type(exception).__name__
