"""The values of all settings, each read in this one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .table import SETTINGS, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy_aopic.core.host_rules import HostRules
    from scrapy_aopic.core.order import Order
    from scrapy_aopic.core.revisits import Recrawl
    from scrapy_aopic.core.window import WindowKind
    from scrapy_aopic.web.identity import Identity
    from scrapy_aopic.web.networks import Allowed
    from scrapy_aopic.web.scope import Scope

    from .parse import Listen, Shards, TopicGiven


class Values:
    """The values that *given* settings have, by their names without ``AOPIC_``, in lower case; nothing changes them.

    A value is checked when it is asked for, and then kept: a component needs only those to be right that it uses.

    Args:
        given: Scrapy's settings, or any mapping.

    Raises:
        SettingError: When a value is asked for that cannot be used.
    """

    order: type[Order]
    domain_budget: float
    virtual_share: float | None
    virtual_spending: tuple[str, frozenset[str]]
    endowment: float
    link_weights: Any
    window: tuple[float, Literal["turns", "seconds"]]
    window_kind: WindowKind
    keep_links: bool
    seeds: str
    topic: TopicGiven | None
    tokenizer: Callable[[str], Iterable[str]] | None
    focus: float
    link_scorer: Any
    min_harvest: float
    recrawl: Recrawl | None
    min_convergence: float
    politeness_factor: float
    min_gap: float
    max_gap: float
    page_seconds: float
    fast_downloads: bool
    politeness_key: frozenset[str]
    host_rules: HostRules
    backoff: float
    max_backoff: float
    later_tries: int
    max_wait: float
    page_robots: tuple[str, ...]
    content_usage: dict[str, str]
    sitemaps: bool
    allow_networks: Allowed | None
    identity: Identity | None
    store: str
    redis_key: str
    shards: Shards
    workers: int
    redis_lock_timeout: float
    durability: float
    memory_mb: int
    url_rules: frozenset[str]
    url_rewrite: Callable[[str], str | None] | None
    url_limits: dict[str, int]
    scope: Scope | None
    content_types: Callable[[str], bool]
    content_seen: str
    canonical: str
    dashboard: Listen | None
    dashboard_token: str
    dupefilter: str
    item_fields: tuple[str, ...]
    warc_file: str
    report: bool

    def __init__(self, given: Mapping[Any, Any]) -> None:
        self.__dict__["given"] = given

    given: Mapping[Any, Any]

    def __getattr__(self, name: str) -> Any:
        setting = f"AOPIC_{name.upper()}"
        if setting not in SETTINGS:
            raise AttributeError(name)
        value = self.__dict__[name] = read(self.given, setting)
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} is read from the settings, and nothing changes it.")

    def check(self) -> None:
        """Read all of them.

        Raises:
            SettingError: If one cannot be used.
        """
        for name in SETTINGS:
            getattr(self, name.removeprefix("AOPIC_").lower())


_VALUES = "_aopic_values"
"""Attribute of a crawl's settings that has their values, and ends with them."""


def read_values(settings: Mapping[Any, Any] | Values) -> Values:
    """The values of *settings*: of those of a crawl, which are frozen, the same object for all of its components."""
    if isinstance(settings, Values):
        return settings
    if not getattr(settings, "frozen", False):
        return Values(settings)
    values: Values | None = getattr(settings, _VALUES, None)
    if values is None or values.given is not settings:
        values = Values(settings)
        setattr(settings, _VALUES, values)
    return values
