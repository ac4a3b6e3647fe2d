"""From settings to what the core is given: politeness, window, revisits, sizes of memory, and the policy that has them all.

*settings* are Scrapy's, or a plain dictionary where there is no Scrapy, or the values that either has.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from difflib import get_close_matches
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from scrapy_aopic.core import duplicates
from scrapy_aopic.core.focus.strategies import STRATEGIES, needs_samples
from scrapy_aopic.core.order import Aopic, BatchOrder, Focused, Order
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.core.window import Window
from scrapy_aopic.exceptions import ANY_ERROR, SettingError
from scrapy_aopic.storage.address import Address
from scrapy_aopic.version import DOCS
from scrapy_aopic.web.networks import Networks
from scrapy_aopic.web.request_rows import directory_of, group_of, purpose_of, waits_for
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_keys import key_at
from scrapy_aopic.web.url_rules import LIMITS
from scrapy_aopic.web.urls import Normaliser

from .parse import Listen, TopicGiven, similar, whole
from .parse import pace as parse_pace
from .table import SETTINGS
from .values import Values, read_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy_aopic.core.host_rules import HostRule, HostRules

    Given: TypeAlias = Mapping[Any, Any] | Values

logger = logging.getLogger(__name__)

_PAGES_A_MB = 400
"""Page records for each megabyte of ``AOPIC_MEMORY_MB``, of which they get a quarter: some 450 bytes each."""

_HOSTS_A_MB = 40
"""Back queues for each megabyte of ``AOPIC_MEMORY_MB``, of which they get a quarter: some 5 KB each."""

_LEAST_STORE_MB = 8
"""Megabytes that the cache of the store gets at least."""

_MAX_VISITS = 1_000_000
"""Visits in a variable window at most: more than any page gets."""

_YEARS_AHEAD = 2
"""Years from now up to which the pages of calendars are followed: events are announced that early, as a rule."""

_LEAST_COMMIT_WITHIN = 1.0
"""Seconds for which pages are leased in any case after the last commit that landed; a busy disk takes that long at times."""

_NEARLY = 0.9
"""Likeness (difflib's ratio) to a setting's name from which a name is probably a slip of the pen."""


def check_names(settings: Mapping[Any, Any]) -> None:
    """Look for names that are no settings but were probably meant as such; the second kind is only a warning, given once.

    Raises:
        SettingError: If there is one that begins with ``AOPIC_``.
    """
    is_new = _looked_at.get(id(settings)) is not settings
    with suppress(TypeError):  # a plain dictionary is looked at once
        _looked_at[id(settings)] = settings
    for name, sentence in wrong_names(settings, has_others=is_new):
        if _is_ours(name):
            raise SettingError(sentence)
        logger.warning("%(sentence)s", {"sentence": sentence})


_looked_at: WeakValueDictionary[int, Mapping[Any, Any]] = WeakValueDictionary()
"""Settings that were checked: each component of a crawl checks them."""


def wrong_names(settings: Mapping[Any, Any], *, has_others: bool = True) -> Iterator[tuple[str, str]]:
    """Names in *settings* that are no settings but were probably meant as such, each with a sentence about it.

    Args:
        has_others: Whether those are looked for that do not begin with ``AOPIC_``, which takes milliseconds.
    """
    for name in sorted(_names_given(settings)):
        if _is_ours(name):
            meant = name.upper().replace("POLICY", "ORDER")  # as papers and earlier versions call it
            hint = f" ({question})" if (question := similar(meant, SETTINGS)) else ""
            yield name, f"{name} is no setting of scrapy-aopic{hint}; '{DOCS} settings' lists them."
        elif has_others and (found := get_close_matches(name, SETTINGS, n=1, cutoff=_NEARLY)):
            yield name, f"{name} means nothing to scrapy-aopic; did you mean {found[0]}?"


def _is_ours(name: str) -> bool:
    return name.upper().startswith("AOPIC_")


def _names_given(settings: Mapping[Any, Any]) -> Iterator[str]:
    """Names in *settings* that are no settings of this package, without those that are only there by default."""
    priority = getattr(settings, "getpriority", None)  # Scrapy's settings know who set them
    for name in map(str, settings):
        if name not in SETTINGS and (priority is None or priority(name)):
            yield name


def read_dashboard(settings: Given) -> Listen | None:
    """Where the dashboard listens; ``None`` if there is to be none.

    Raises:
        SettingError: If a setting cannot be used, or other machines could reach it without a token of the user's.
    """
    values = read_values(settings)
    where = values.dashboard
    if where is not None and not is_loopback(where.host) and not values.dashboard_token:
        raise SettingError(
            f"AOPIC_DASHBOARD ({values.given.get('AOPIC_DASHBOARD')!r}) is an address that other machines can reach, so "
            "AOPIC_DASHBOARD_TOKEN must be set to a token of your own."
        )
    return where


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach an address of *host*."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


_REDIS = {"REDIS_URL": "url", "REDIS_HOST": "host", "REDIS_PORT": "port", "REDIS_DB": "db"}
"""Settings of scrapy-redis, and the parameters that they stand for."""


def read_address(settings: Given, spider: str = "") -> Address:
    """Where the store of a job on a server is: ``REDIS_URL`` and the like mean what they mean to scrapy-redis.

    Args:
        spider: Name of the spider.

    Raises:
        SettingError: If one of them cannot be used.
    """
    values = read_values(settings)
    given = values.given
    named = given.get("REDIS_PARAMS") or {}
    try:
        parameters = dict(json.loads(named) if isinstance(named, str) else named)
    except (TypeError, ValueError):  # the value is not shown, for it may have the password in it
        raise SettingError(
            'REDIS_PARAMS must be a dictionary, such as {"password": ...}, or one as JSON.'
        ) from None
    parameters |= {short: given[name] for name, short in _REDIS.items() if given.get(name)}
    url = parameters.pop("url", "")
    if isinstance(parameters.get("redis_cls"), str):
        parameters["redis_cls"] = _load_client(parameters["redis_cls"])
    for name in ("encoding", "decode_responses"):
        parameters.pop(name, None)  # of no concern to rows, which are bytes
    return Address(
        values.redis_key.replace("%(spider)s", re.sub(r"[\s{}]", "_", spider)),
        str(url),
        parameters,
        lock_timeout=values.redis_lock_timeout,
    )


def _load_client(path: str) -> object:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"redis_cls in REDIS_PARAMS ({path!r}) cannot be imported: {error}.") from error


def read_politeness(settings: Given, spider: object = None) -> Politeness:
    """The politeness that *settings* and *spider* ask for; ``DOWNLOAD_DELAY`` is a lower bound of the gap.

    Raises:
        SettingError: If one of them cannot be used.
    """
    values = read_values(settings)
    floor = float(values.given.get("DOWNLOAD_DELAY", 0.0))
    return Politeness(
        factor=values.politeness_factor,
        min_gap=max(values.min_gap, floor),
        max_gap=values.max_gap,
        backoff=values.backoff,
        max_backoff=values.max_backoff,
        max_wish=values.max_backoff,
        rule=_rule_of(values.host_rules, getattr(spider, "politeness", None), floor),
        connections=values.host_rules.giving("connections"),
    )


def _rule_of(
    rules: HostRules, ask: Callable[[str], Any] | None, floor: float
) -> Callable[[str], HostRule | None] | None:
    """The options of a host: those of *rules*, overridden by those of *ask*, a method of the spider."""
    complained = False

    def rule_of(host: str) -> HostRule | None:
        nonlocal complained
        rule = rules.of(host)
        if ask is not None:
            try:
                given = ask(host)
                own = parse_pace(given) if given is not None else None
            except ANY_ERROR:
                own = None
                if not complained:
                    complained = True
                    logger.exception(
                        'The spider\'s politeness(%(host)r) must return None or a mapping such as {"min_gap": 5}; the '
                        "settings hold instead. No more such errors will be logged.",
                        {"host": host},
                    )
            if own is not None:
                rule = rule._replace(**own.options) if rule is not None else own
        if rule is None or rule.min_gap is None or rule.min_gap >= floor:
            return rule
        return rule._replace(min_gap=floor)

    return rule_of if rules or ask is not None else None


def idle_options(policy: Policy, shards: int) -> Iterator[str]:
    """Options of ``AOPIC_HOST_RULES`` that change nothing with the other settings and *shards*, each with what it needs."""
    if policy.recrawl is None and "revisit" in policy.rules.options:
        yield "revisit needs AOPIC_RECRAWL"
    if not policy.order.uses_domains and "budget" in policy.rules.options:
        yield "budget needs an order with budgets (AOPIC_ORDER)"
    if shards == 1 and policy.rules.spread:
        yield "spread needs a job in shards (AOPIC_WORKERS, AOPIC_SHARDS)"


def _read_window(values: Values) -> Window:
    kind = values.window_kind
    if kind == "variable":
        must = "a whole number of visits such as 8, because AOPIC_WINDOW_KIND is 'variable'"
        visits = replace(SETTINGS["AOPIC_WINDOW"], check=replace(whole(1, _MAX_VISITS), must=must))
        return Window(visits.read(values.given), kind)
    size, clock = values.window
    return Window(size, kind, clock)


def page_cache(settings: Given) -> int:
    """Page records, or fingerprints, to keep in memory."""
    return _PAGES_A_MB * read_values(settings).memory_mb


def max_active_of(settings: Given) -> int:
    """Hosts whose back queues are kept in memory."""
    return _HOSTS_A_MB * read_values(settings).memory_mb


def store_memory(settings: Given) -> int:
    """Megabytes for the cache of the store, and as many for its write buffers."""
    return max(read_values(settings).memory_mb // 4, _LEAST_STORE_MB)


def read_normaliser(
    settings: Given, rewrite: Callable[[str], str | None] | None, networks: Networks | None = None
) -> Normaliser:
    """The normaliser of the URLs of links, by *settings*.

    Args:
        rewrite: The user's own rule (``AOPIC_URL_REWRITE``), if there is one; it must not raise.
        networks: Where the crawl may go; ``None`` to read that from the settings, too.

    Raises:
        SettingError: If a setting cannot be used.
    """
    values = read_values(settings)
    if networks is None:
        networks = Networks(values.allow_networks)
    return Normaliser(
        values.url_rules,
        networks=None if networks.are_all_open else networks,
        scope=values.scope,
        rewrite=rewrite,
        **{f"max_{name}": values.url_limits.get(name, 0) for name in LIMITS},
        extensions=_no_pages() if "extension" in values.url_rules else frozenset(),
        last_year=datetime.now(tz=timezone.utc).year + _YEARS_AHEAD,
    )


def _no_pages() -> frozenset[str]:
    """Endings of the names of files that are no pages, without the dot in front: those that Scrapy's link extractor leaves out."""
    from scrapy.linkextractors import IGNORED_EXTENSIONS  # noqa: PLC0415  # simulations do without Scrapy

    return frozenset(IGNORED_EXTENSIONS)


def _check_samples(scorer: object, topic: TopicGiven | None) -> None:
    if topic is None or not topic.negative:
        raise SettingError(
            f"AOPIC_LINK_SCORER ({scorer!r}) learns from sample pages before the crawl: give AOPIC_TOPIC two folders of "
            'them, {"positive": "pages/yes", "negative": "pages/no"}.'
        )
    if find_spec("stopwordsiso") is None:
        raise SettingError(f"AOPIC_LINK_SCORER ({scorer!r}) needs stopwordsiso: pip install stopwordsiso.")


def _make_order(values: Values) -> Order:
    """The order that is wanted, with its figures."""
    given = values.given
    kind = values.order
    if kind.values_links and values.topic is None:
        raise SettingError(
            f"AOPIC_ORDER ({given.get('AOPIC_ORDER')!r}) needs a topic: set AOPIC_TOPIC, for example to "
            '{"keywords": ["database", "sql"]}.'
        )
    if values.min_harvest and values.topic is None:
        raise SettingError(
            f"AOPIC_MIN_HARVEST ({given.get('AOPIC_MIN_HARVEST')!r}) is about pages that are relevant to a topic: set "
            "AOPIC_TOPIC, too."
        )
    if issubclass(kind, Focused):
        scorer = values.link_scorer
        if needs_samples(scorer):
            _check_samples(given.get("AOPIC_LINK_SCORER"), values.topic)
        strategy = STRATEGIES[scorer] if isinstance(scorer, str) else scorer
        focused: Order = kind(
            0.0 if getattr(strategy, "by_cash", False) else values.focus, values.domain_budget
        )
        return focused
    order: Order = kind()
    if isinstance(order, Aopic):
        order.budget = values.domain_budget
    return order


def _check_spending(name: str, values: Values) -> None:
    """Refuse to spend on pages that cannot spend it on."""
    how = SPENDING[name]
    if how.needs_revisits and values.recrawl is None:
        raise SettingError(
            f'AOPIC_VIRTUAL_SPENDING = "{name}" pays visited pages, which keep it all if no page is visited again: set '
            'AOPIC_RECRAWL, too, or use "unvisited" or "endowment".'
        )
    if how.classes and "pages" in values.host_rules.options:
        raise SettingError(
            f'AOPIC_VIRTUAL_SPENDING = "{name}" pays pages one by one, also those of hosts that have had all their "pages" '
            '(AOPIC_HOST_RULES), where they keep it: leave one of the two away, or use "budget" in place of "pages".'
        )


def read_policy(settings: Given, spider: object = None) -> Policy:
    """The policy of a crawl by *settings* and *spider*: how it spends cash and treats hosts.

    Raises:
        SettingError: If any setting of the package cannot be used.
    """
    values = read_values(settings)
    values.check()
    given = values.given
    check_names(given)
    read_dashboard(values)
    order = _make_order(values)
    if isinstance(order, BatchOrder) and find_spec("numpy") is None:
        raise SettingError(f"AOPIC_ORDER ({given.get('AOPIC_ORDER')!r}) needs numpy: pip install numpy.")
    spending, chosen = values.virtual_spending
    _check_spending(spending, values)
    return Policy(
        order=order,
        domain_of=registered_domain,
        waits_for=waits_for,
        directory_of=directory_of,
        group_of=group_of,
        purpose_of=purpose_of,
        key_at=key_at,
        chosen=chosen,
        keep_links=values.keep_links,
        is_near=values.content_seen == "near",
        same_words=duplicates.SAME_WORDS,
        recrawl=values.recrawl,
        rules=values.host_rules,
        window=_read_window(values),
        politeness=read_politeness(values, spider),
        by_domain="domain" in values.politeness_key,
        by_address="address" in values.politeness_key,
        connections=int(given.get("CONCURRENT_REQUESTS", 0)),
        share=values.virtual_share,
        endowment=values.endowment,
        spending=spending,
        max_active=max_active_of(values),
        page_cache=page_cache(values),
        networks=blake2b(repr(given.get("AOPIC_ALLOW_NETWORKS")).encode(), digest_size=8).digest(),
        commit_within=max(_LEAST_COMMIT_WITHIN, 2 * values.durability),
    )
