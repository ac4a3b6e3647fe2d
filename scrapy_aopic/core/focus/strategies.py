"""The strategies of this package by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fixed import BestFirst, Focused, SharkSearch
from .jlse import Ata, Jlse, JlseAsPrinted
from .learned import Learned

if TYPE_CHECKING:
    from .strategy import MakeStrategy

STRATEGIES: dict[str, MakeStrategy] = {
    "focused": Focused,
    "learned": Learned,
    "best-first": BestFirst,
    "shark-search": SharkSearch,
    "ata": Ata,
    "jlse": Jlse,
    "jlse-paper": JlseAsPrinted,
}
"""What ``AOPIC_LINK_SCORER`` takes."""
