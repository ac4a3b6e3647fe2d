"""What revisits of a page bring besides its own changes: new pages, and new dates of pages.

Source: Dasgupta et al., "The discoverability of the web", WWW 2007: a few pages lead to most of what is new.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_aopic.core.records import Changes

DAY = 86_400.0
"""Seconds in which a page with dates is taken to bring one before any revisit."""

ENOUGH = 0.25
"""New pages expected at a visit from which it is made for them."""

_KEPT = 0.8
"""Factor at each visit by which what was brought before counts less."""

_FORGOTTEN = 0.01
"""New pages that are none any more, after about twenty visits without one."""


def learn(known: Changes, n_new: float, n_links: int, seconds: float) -> Changes:
    """*known* after a visit, *seconds* after the one before, that has brought *n_new* pages or dates with *n_links* links."""
    if not (n_new or known.brought):
        return known
    brought, brought_in = known.brought * _KEPT + n_new, known.brought_in * _KEPT + max(seconds, 0.001)
    if brought < _FORGOTTEN:
        return known._replace(brought=0.0, brought_in=0.0, n_links=0)
    return known._replace(brought=brought, brought_in=brought_in, n_links=n_links)


def expected_new(known: Changes, now: float) -> float:
    """New pages that a visit at *now* is expected to bring."""
    return known.brought / known.brought_in * max(now - known.seen_at, 0.0) if known.brought else 0.0


def seconds_until_enough(known: Changes) -> float:
    """Seconds from a visit until a page with *known* changes is worth a visit for what it brings."""
    return ENOUGH * known.brought_in / known.brought if known.brought else inf
