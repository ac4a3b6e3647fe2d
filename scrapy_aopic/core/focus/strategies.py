"""The strategies of this package by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .learned import Learned
from .published.context_graph import ContextGraph
from .published.fixed import BestFirst, Otie
from .published.jlse import Ata, Jlse
from .published.jlse_as_printed import AtaAsPrinted, JlseAsPrinted

if TYPE_CHECKING:
    from .strategy import MakeStrategy

STRATEGIES: dict[str, MakeStrategy] = {
    "contextual": Learned,
    "best-first": BestFirst,
    "otie": Otie,
    "context-graph": ContextGraph,
    "ata": Ata,
    "ata-paper": AtaAsPrinted,
    "jlse": Jlse,
    "jlse-paper": JlseAsPrinted,
}
"""The names that ``AOPIC_LINK_SCORER`` accepts, and what makes each strategy."""


def needs_samples(scorer: object) -> bool:
    """Whether *scorer*, which ``AOPIC_LINK_SCORER`` names, is a strategy that learns from samples before a crawl."""
    strategy = STRATEGIES.get(scorer) if isinstance(scorer, str) else scorer
    return bool(getattr(strategy, "needs_samples", False))
