"""How a crawl spends its cash and treats its hosts: one frozen value, which any number of crawls may share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .host_rules import NO_RULES, HostRules
from .ledger import ENDOWMENT, SHARE
from .order import Aopic, BatchOrder, Order, order_name
from .politeness import Politeness
from .revisits.intervals import Recrawl
from .window import Window


@dataclass(frozen=True, slots=True)
class Policy:
    """How a crawl spends its cash and treats its hosts; see docs/settings.md for each.

    Attributes:
        order: Which page is next.
        window: How much of a page's past is its history.
        politeness: How long hosts are left alone.
        share: Part of each distribution that goes to the virtual page, 0 to 1; ``None`` for 1/(links + 1).
        endowment: Cash that the virtual page adds to what a page distributes, in seeds' worth.
        spending: On what the virtual page spends; a name in :data:`~scrapy_aopic.core.spending.SPENDING`.
        recrawl: How pages are revisited; ``None`` to visit each page once.
        rules: What is different for single hosts, but for their pace, which *politeness* knows.
        domain_of: Registered domain of a host name.
        spread: Names of registered domains of which each host may be in another shard (:mod:`.shards.cut`).
        waits_for: Name of the origin (scheme, name and port) that a request, as bytes, is for; and whether it is a link, which
            waits while that is silent, and was not made on purpose.
        directory_of: The directory, inside its host, that a request, as bytes, is for; empty if it is in none. Orders with
            ``directory_pages`` count fetched pages by it; ``None`` to count none.
        group_of: What the URL of a request, as bytes, has in common with others of its make; empty for nothing. Orders with
            ``branch_pages`` count such pages as one branch if they lead to each other.
        purpose_of: What a request, as bytes, is for, beside its URL: equal bytes for equal purposes; empty for none, or if it
            cannot be known.
        key_at: Page key of a request, as bytes, if it were for nothing but its URL, at the origin of a name; empty if it has no URL.
            Orders with ``mirror_pages`` find mirrors by it; ``None`` to find none.
        chosen: Registered domains, or hosts, that the virtual page spends on if *spending* needs them (``needs_chosen``).
        keep_links: Whether the links of each visited page are kept.
        is_near: Whether pages with nearly the same text count as the same, too.
        same_words: Pages of one registered domain with the same words and other links that count as different ones,
            0 for any number.
        by_domain: Whether hosts of one registered domain count as one for politeness.
        by_address: Whether hosts of one network address do.
        looks_up: Whether the caller looks up the address of a host before it is leased; so it is if *by_address*.
        connections: Transfers that may be under way at once, 0 for any number.
        max_active: Hosts kept in memory.
        page_cache: Page records kept in memory.
        has_url_keys: Whether each page key is made of its URL, so that ``check`` can tell whose a request is.
        networks: Digest of what may be connected to. Pages that were refused under another one wait again when a job is opened.
        commit_within: Seconds; no page is leased later than this after the last commit that landed, so that a
            crash leaves no request older than that unknown.
    """

    order: Order = field(default_factory=Aopic)
    window: Window = field(default_factory=Window)
    politeness: Politeness = field(default_factory=Politeness)
    share: float | None = SHARE
    endowment: float = ENDOWMENT
    spending: str = "endowment"
    recrawl: Recrawl | None = None
    rules: HostRules = NO_RULES
    domain_of: Callable[[str], str] = str
    spread: frozenset[str] = frozenset()
    waits_for: Callable[[bytes], tuple[str, bool]] = lambda _: ("", True)
    directory_of: Callable[[bytes], bytes] | None = None
    group_of: Callable[[bytes], bytes] = lambda _: b""
    purpose_of: Callable[[bytes], bytes] = lambda _: b""
    key_at: Callable[[bytes, str], bytes] | None = None
    chosen: frozenset[str] = frozenset()
    keep_links: bool = False
    is_near: bool = False
    same_words: int = 0
    by_domain: bool = False
    by_address: bool = False
    looks_up: bool = False
    connections: int = 0
    max_active: int = 10_000
    page_cache: int = 100_000
    has_url_keys: bool = False
    networks: bytes = b""
    commit_within: float = 1.0

    @property
    def why_not_in_shards(self) -> str:
        """Why no job in shards can be crawled by it; empty if one can."""
        if self.by_address:
            return (
                "AOPIC_POLITENESS_KEY has 'address', but hosts of one address may be in several shards, which cannot wait for "
                "each other: leave it out, or set AOPIC_SHARDS = 1."
            )
        if self.by_domain and self.spread:
            return (
                f"AOPIC_POLITENESS_KEY has 'domain', but hosts of {min(self.spread)} are in several shards, which cannot wait for each "
                'other: leave it out, or begin another job without "spread" in AOPIC_HOST_RULES.'
            )
        if isinstance(self.order, BatchOrder):
            return (
                f"AOPIC_ORDER ({order_name(self.order)}) looks at the whole graph, of which a shard has a part: use another order, "
                "or AOPIC_SHARDS = 1."
            )
        return ""

    def is_chosen(self, host: str) -> bool:
        """Whether the virtual page spends on the pages of *host* if it spends on chosen domains."""
        return bool(self.chosen) and (host in self.chosen or self.domain_of(host) in self.chosen)
