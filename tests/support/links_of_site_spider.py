"""The spider of :mod:`.links_spider` that stays on hosts under ``test``."""

from __future__ import annotations

from support.links_spider import Follow as _Follow


class Follow(_Follow):
    """Follows every link of every page to such a host."""

    allowed_domains = ["test"]
