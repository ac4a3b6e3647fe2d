"""How a visit ended, of all that was noted while it was under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.api import Findings
from scrapy_aopic.core.revisits import Version

if TYPE_CHECKING:
    from .visit import Visit

_GONE = (404, 410)
"""Statuses of a repeated visit that retire the page; of others nothing follows, it may be there the next time."""


def findings_of(visit: Visit, *, recrawls: bool) -> Findings:
    """How *visit*, with which the engine is done, ended.

    A page without a response failed, unless it led elsewhere; so did one with an error as status, unless its callback
    found links on it. A page that was visited before only fails if it is gone for good.

    Args:
        recrawls: Whether pages are visited again.
    """
    outcome, is_failure = "", False
    if visit.status is None:
        outcome = visit.reason or ("redirect" if visit.is_redirect else "no answer")
        is_failure = not visit.is_redirect
    elif visit.status >= 400 and not visit.n_links:
        outcome, is_failure = f"http {visit.status}", True
    if visit.is_duplicate:
        outcome = outcome or "duplicate"
    version = visit.version
    if recrawls and visit.lease.visits:
        version = version or Version()
        if is_failure and visit.status not in _GONE:
            is_failure, version = False, Version(is_missing=True)
    return Findings(
        outcome,
        is_failure,
        visit.n_links,
        visit.weight,
        version,
        visit.same_as,
        visit.is_if_same,
        visit.same_host,
    )
