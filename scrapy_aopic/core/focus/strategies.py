"""The strategies of this package by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fixed import BestFirst, Focused, SharkSearch

if TYPE_CHECKING:
    from .strategy import MakeStrategy

STRATEGIES: dict[str, MakeStrategy] = {
    "focused": Focused,
    "best-first": BestFirst,
    "shark-search": SharkSearch,
}
"""What ``AOPIC_LINK_SCORER`` takes."""
