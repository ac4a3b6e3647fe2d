"""The strategies of this package by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .context_graph import ContextGraph
from .contextual import Contextual
from .fixed import BestFirst, FocusedStrategy, Otie
from .jlse import Ata, Jlse
from .jlse_as_printed import AtaAsPrinted, JlseAsPrinted
from .learned import Learned

if TYPE_CHECKING:
    from .strategy import MakeStrategy

STRATEGIES: dict[str, MakeStrategy] = {
    "focused": FocusedStrategy,
    "learned": Learned,
    "contextual": Contextual,
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
