"""How a visit ended, of all that was noted while it was under way."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.revisits import Content

if TYPE_CHECKING:
    from .visit import Visit

_GONE = (404, 410)
"""Statuses of a repeated visit that retire the page; of others nothing follows, it may be there the next time."""


class Outcome(NamedTuple):
    """How a visit ended.

    Attributes:
        reason: Why the page is no ordinary one, in a few words; ``""`` for an ordinary one.
        is_failure: Whether the page will not be visited any more.
        content: What the response says of the page's content, if pages are visited again.
    """

    reason: str
    is_failure: bool
    content: Content | None


def outcome_of(visit: Visit, *, recrawls: bool) -> Outcome:
    """How *visit*, with which the engine is done, ended.

    A page without a response failed, unless it led elsewhere; so did one with an error as status, unless its callback
    found links on it. A page that was visited before only fails if it is gone for good.

    Args:
        recrawls: Whether pages are visited again.
    """
    reason, is_failure = "", False
    if visit.status is None:
        reason = visit.reason or ("redirect" if visit.is_redirect else "no answer")
        is_failure = not visit.is_redirect
    elif visit.status >= 400 and not visit.n_links:
        reason, is_failure = f"http {visit.status}", True
    if visit.is_duplicate:
        reason = reason or "duplicate"
    content = visit.content
    if recrawls and visit.lease.visits:
        if is_failure and visit.status not in _GONE:
            return Outcome(reason, is_failure=False, content=Content(is_missing=True))
        content = content or Content()
    return Outcome(reason, is_failure, content)
