"""Every setting of the package, in one table: its default, its unit, what it means, what it may be.

Values are read once, when the crawl starts; a wrong one raises :class:`~scrapy_aopic.exceptions.SettingError`
with the name, the value and the way out.
"""

from __future__ import annotations

import json
import logging
import math
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import translate
from functools import partial
from importlib.util import find_spec
from inspect import signature
from os import fsdecode, fsencode, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ada_url import URL
from scrapy.settings import Settings
from scrapy.utils.misc import load_object

from .core.caches import CACHES
from .core.crawl import Policy
from .core.order import ORDERS, Aopic, BatchOrder, Order
from .core.politeness import Politeness, Rule
from .core.revisits import Recrawl
from .core.window import Window, WindowKind
from .exceptions import SettingError
from .web.suffixes import registered_domain
from .web.urls import CHANGES, PLAIN_RULES, REFUSALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy.settings import BaseSettings

    from .core.ledger import Spending

logger = logging.getLogger(__name__)

_PAGES_A_MB, _HOSTS_A_MB = 400, 40
"""Page records (some 450 bytes) and back queues (some 5 KB) for a megabyte of the whole budget, of which each gets a quarter."""

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}

_FOR_EVER = 1e10
"""Seconds, or turns, beyond which nobody means a number: 300 years."""

_SHOWN = 200
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting.

    Attributes:
        check: Makes the value of what the user gave; raises an exception, of any kind, if it cannot.
        must: What the value must be, as the end of the sentence "... must be".
        meaning: One sentence for the documentation.
    """

    name: str
    default: Any
    unit: str
    check: Callable[[Any], Any]
    must: str
    meaning: str

    def read(self, settings: BaseSettings) -> Any:
        """Value in *settings*.

        Raises:
            SettingError: If it cannot be used.
        """
        given = settings.get(self.name)
        if given is None:
            given = self.default
        try:
            return self.check(given)
        except Exception as error:  # a check imports what is named, or calls methods of what it is given
            why = _why(error)
            raise SettingError(f"{self.name} ({_shown(given)}) must be {self.must}{why}.") from error


class _Reason(ValueError):
    """Why a value cannot be used, or what may have been meant, as an end of the sentence."""


def _why(error: Exception) -> str:
    while error.__cause__ is not None and not isinstance(error, _Reason):
        error = cast("Exception", error.__cause__)
    text = " ".join(str(error).split())
    return f" ({text[:_SHOWN]})" if isinstance(error, _Reason) and text else ""


def _shown(value: object) -> str:
    """*value* in one line of a message, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001  # what is wrong with the value is told in any case
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _similar(name: str, known: Iterable[str]) -> str:
    """The question for what may have been meant by *name*, ``""`` if nothing is like it."""
    found = get_close_matches(name, known, n=1, cutoff=0.75)
    return f'did you mean "{found[0]}"?' if found else ""


def _number(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, (bool, bytes, bytearray)):
            raise TypeError
        number = float(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return check


def _integer(low: int, high: int = 10**9) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        number = int(value)
        if _number(low, high)(value) != number:
            raise ValueError
        return number

    return check


def _auto(check: Callable[[Any], int]) -> Callable[[Any], int | None]:
    """``None`` for "auto", or what *check* says."""
    return lambda value: None if isinstance(value, str) and value == "auto" else check(value)


def _one_of(*names: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        if value not in names:
            raise _Reason(_similar(value, names))
        return str(value)

    return check


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, int, str)):
        if value in (True, "1", "True", "true"):
            return True
        if value in (False, "0", "False", "false"):
            return False
    raise ValueError


def _share(value: Any) -> float | None:
    return None if isinstance(value, str) and value == "equal" else _number(0, 1)(value)


def _window(value: Any) -> tuple[float, str]:
    """Size and clock of a window: a number of turns of |H|, or a time such as ``"36 hours"``."""
    if isinstance(value, bool):
        raise TypeError
    match = re.fullmatch(r"\s*([0-9.]+)\s*(?:(turn|\|H\||second|minute|hour|day|week)s?)?\s*", str(value))
    if match is None:
        raise ValueError
    size, unit = float(match[1]), match[2] or "turn"
    clock = "turns" if unit in ("turn", "|H|") else "seconds"
    size *= _SECONDS.get(unit, 1.0)
    if not 0 < size <= _FOR_EVER:
        raise ValueError
    return size, clock


def _durability(value: Any) -> float:
    """Seconds between commits: 0 for "page", infinite for "close"."""
    if isinstance(value, str) and value in ("page", "close"):
        return 0.0 if value == "page" else math.inf
    return _number(1, 60_000)(value) / 1000


def _list(value: Any) -> list[str]:
    """The texts in *value*: a collection of them, or one text with commas or in JSON."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip()[:1] == "[" else value.split(",")
    if not isinstance(value, Collection) or isinstance(value, (Mapping, bytes, bytearray, memoryview)):
        raise TypeError
    if not all(isinstance(each, str) for each in value):
        raise TypeError
    return [name for each in value if (name := each.strip())]


def _known(names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise _Reason(_similar(name, allowed))


def _names(*allowed: str) -> Callable[[Any], tuple[str, ...]]:
    def check(value: Any) -> tuple[str, ...]:
        names = tuple(_list(value))
        _known(names, allowed)
        return names

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def _path(value: Any) -> str:
    if isinstance(value, bytes) or "\0" in fspath(value):
        raise ValueError
    return fsdecode(fsencode(value))  # which text with lone surrogates is not


def _template(value: Any) -> str:
    """A path into which the name of the spider and the time are filled."""
    template = _path(value)
    if "%" in re.sub(r"%(%|\((name|time)\)s)", "", template):
        raise ValueError
    if not template.strip() or template[-1] in "/\\" or Path(template).name in ("", ".."):
        raise ValueError
    return template


def _load(value: Any) -> Any:
    """The object at an import path, or one that was given as such."""
    if isinstance(value, str) and not re.fullmatch(r"\w+(\.\w+)+", value):
        raise ValueError
    try:
        return load_object(value)
    except Exception as error:
        raise _Reason(f"{type(error).__name__}: {error}") from error


def _order(value: Any) -> type[Order]:
    """Class of an order, by its name here or by its import path."""
    if isinstance(value, str) and value in ORDERS:
        return ORDERS[value]
    if isinstance(value, str) and "." not in value:
        raise _Reason(_similar(value, ORDERS))
    found = _load(value)
    if not (isinstance(found, type) and issubclass(found, Order)):
        raise TypeError
    try:
        found()
    except Exception as error:  # it is abstract, or wants arguments
        raise _Reason(f"{type(error).__name__}: {error}") from error
    return found


def _weights(value: Any) -> Any:
    """``None`` for equal weights, weights by kind of link, or a function."""
    if isinstance(value, str) and value == "equal":
        return None
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        value = json.loads(value)
    elif isinstance(value, str) and "=" in value:
        value = dict(part.split("=") for part in value.split(","))
    if isinstance(value, Mapping):
        if not value or not all(isinstance(name, str) for name in value):
            raise ValueError
        weights = {name.strip(): _number(0, 1000)(weight) for name, weight in value.items()}
        _known(weights, ("internal", "external", "nofollow"))
        return weights
    return _function(value, 2)


def _function(value: Any, n: int) -> Any:
    """A function of *n* arguments, or its import path."""
    found = _load(value)
    if not callable(found):
        raise TypeError
    try:
        wants = signature(found)
    except (TypeError, ValueError):  # written in C, and not described
        return found
    try:
        wants.bind(*[None] * n)
    except TypeError as error:
        raise _Reason(f"it does not take {n} argument{'s' * (n > 1)}") from error
    return found


def _keys(value: Any) -> frozenset[str]:
    """What counts as one for politeness; the host does in any case."""
    keys = frozenset(_list(value.replace("+", ",") if isinstance(value, str) else value))
    if not keys:
        raise ValueError
    _known(keys, ("host", "domain", "address"))
    return keys | {"host"}


def _rule(value: Any) -> Rule:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError
    _known(value, Rule._fields)
    limits = {"factor": 1e6, "min_gap": 86400, "max_gap": 86400}
    return Rule(**{name: _number(0, limits[name])(number) for name, number in value.items()})


def _host_rules(value: Any) -> tuple[tuple[re.Pattern[str], Rule], ...]:
    """Patterns of host names, and what is different for the hosts that match."""
    given = json.loads(value) if isinstance(value, str) else value
    if not isinstance(given, (Mapping, list, tuple)):
        raise TypeError
    rules = dict(given)
    if not all(isinstance(pattern, str) and pattern for pattern in rules):
        raise TypeError
    return tuple((re.compile(translate(pattern.lower())), _rule(each)) for pattern, each in rules.items())


def _domains(value: Any) -> frozenset[str]:
    return frozenset(map(_domain, _list(value)))


def _domain(name: str) -> str:
    """Normal form of the host *name*, as that of the URLs that it is compared with."""
    name = name.removesuffix(".")
    if (
        not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|(?=.*(\.|[^\W\d_]))([\w-]+\.)*[\w-]+", name, re.IGNORECASE)
        or len(name) > 253
    ):
        raise ValueError
    host = URL(f"http://{name}/").hostname
    if name.isascii() and host != name.lower():  # 1.2 would be 1.0.0.2
        raise ValueError
    return host


def url_rules(value: Any, base: Iterable[str] = PLAIN_RULES) -> frozenset[str]:
    """Names of rules on URLs: all that are on, or what is different from *base*, with a plus or a minus."""
    names = _list(value)
    signs = {name[0] for name in names} & {"+", "-"}
    if not signs:
        rules = frozenset(names)
    elif all(name[0] in signs for name in names):
        rules = frozenset(base).union(name[1:] for name in names if name[0] == "+")
        rules -= {name[1:] for name in names if name[0] == "-"}
        names = [name[1:] for name in names]
    else:
        raise ValueError
    _known(names, (*CHANGES, *REFUSALS))
    return rules


def _rewrite(value: Any) -> Callable[[str], str | None] | None:
    """A function on URLs, from its import path or from pairs of a regular expression and its replacement."""
    if isinstance(value, str):
        if not value.strip():
            return None
        if value.lstrip()[0] != "[":
            return cast("Callable[[str], str | None]", _function(value, 1))
        value = json.loads(value)
    if callable(value):
        return cast("Callable[[str], str | None]", _function(value, 1))
    if not isinstance(value, (list, tuple)) or not all(isinstance(pair, (list, tuple)) for pair in value):
        raise TypeError
    pairs = []
    for pattern, replacement in value:
        if not isinstance(replacement, str):
            raise TypeError
        try:
            pairs.append((re.compile(pattern), replacement))
            pairs[-1][0].sub(replacement, "")  # a bad reference to a group is found without a match
        except (re.error, IndexError) as error:
            raise _Reason(str(error)) from error
    if not pairs:
        return None

    def rewrite(url: str) -> str:
        for pattern, replacement in pairs:
            url = pattern.sub(replacement, url)
        return url

    return rewrite


def _extensions(value: Any) -> frozenset[str]:
    extensions = frozenset(name.lower().removeprefix(".") for name in _list(value))
    if not all(re.fullmatch(r"[a-z0-9_~-]+(\.[a-z0-9_~-]+)?", name) for name in extensions):
        raise ValueError
    return extensions


def _types(value: Any) -> Callable[[str], bool]:
    """Whether a content type, in lower case and without parameters, is one of *value*; each is if there are none."""
    patterns = [name.lower() for name in _list(value)]
    if not all(
        re.fullmatch(r"[a-z0-9*][a-z0-9!#$&^_.+*-]*/[a-z0-9*][a-z0-9!#$&^_.+*-]*", pattern)
        for pattern in patterns
    ):
        raise ValueError
    if not patterns:
        return lambda _: True
    is_one = re.compile("|".join(map(translate, patterns))).match
    return lambda kind: is_one(kind) is not None


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "AOPIC_WINDOW", 8, "turns, time or visits", _window,
            'a number of turns of |H| such as 8, or a time such as "36 hours" or "30 days"',
            "How much of a page's past counts as its history: virtual time by a number (one turn: as much cash was "
            "distributed as all pages hold), wall-clock time by a number with a unit; for the variable window a "
            "number of visits.",
        ),
        Setting(
            "AOPIC_WINDOW_KIND", "interpolation", "", _one_of("interpolation", "fixed", "variable", "ewma"),
            '"interpolation", "fixed", "variable" or "ewma"',
            "How the history is estimated: from one number a page, interpolated or as a mean of rates whose weights "
            "fall exponentially (ewma), or from every visit in the window (fixed), or from the last visits (variable).",
        ),
        Setting(
            "AOPIC_ORDER", "aopic", "", _order,
            f"one of {', '.join(ORDERS)}, or the import path of a subclass of scrapy_aopic.core.order.Order",
            "Which page is next (docs/order.md); a job keeps the order that it began with.",
        ),
        Setting(
            "AOPIC_DOMAIN_BUDGET", 0.004, "part", _number(0, 1), "a number from 0 to 1",
            "Part of all fetches that a registered domain may take if one other domain links to it; it grows with the "
            "number of such domains to the power of 1.5. What lies behind one link between domains, however many "
            "domains that is, may take five times as much. A domain may also take the part of all seeds that it has; "
            "what is over that is deferred. 0 for no budgets.",
        ),
        Setting(
            "AOPIC_VIRTUAL_SHARE", 0.15, "part", _share,
            'a number from 0 to 1, or "equal" for 1/(links + 1)',
            "Part of each distribution that goes to the virtual page; with 0.15 importance tends to "
            "PageRank(0.85).",
        ),
        Setting(
            "AOPIC_VIRTUAL_SPENDING", "endowment", "", _one_of("endowment", "unvisited", "visited", "chosen"),
            '"endowment", "unvisited", "visited" or "chosen"',
            "What the virtual page spends its cash on: endowments of visited pages' links (best order), or the "
            "same for each unvisited page (broaden), each visited page, or each page of chosen domains (focus).",
        ),
        Setting(
            "AOPIC_VIRTUAL_DOMAINS", (), "", _domains,
            'a list of domains such as ["example.com", "example.org"]',
            'Registered domains, or hosts, that "chosen" is about.',
        ),
        Setting(
            "AOPIC_ENDOWMENT", 6.0, "seeds' cash", _number(0, 1e6), "a number from 0 to 1,000,000",
            "Cash that the virtual page adds to what a visited page distributes, in units of a seed's cash; it "
            "falls with the visited pages of the host. 0 for plain OPIC.",
        ),
        Setting(
            "AOPIC_POLITENESS_FACTOR", 10.0, "times", _number(0, 1e6), "a number from 0 to 1,000,000",
            "A host is left alone this many times as long as its last transfer took.",
        ),
        Setting(
            "AOPIC_MIN_GAP", 0.0, "seconds", _number(0, 86400), "a number of seconds from 0 to 86,400",
            "Shortest time between the end of a transfer from a host and the next request to it; "
            "DOWNLOAD_DELAY is a floor, too.",
        ),
        Setting(
            "AOPIC_MAX_GAP", 60.0, "seconds", _number(0, 86400), "a number of seconds from 0 to 86,400",
            "Longest time that a slow transfer makes the next request to its host wait.",
        ),
        Setting(
            "AOPIC_POLITENESS_KEY", "host", "", _keys, 'some of host, domain, address, such as "host+address"',
            "What is asked for one page at a time, and then left alone: each host, and all hosts of a registered "
            "domain or of a network address together if you say so (docs/politeness.md).",
        ),
        Setting(
            "AOPIC_HOST_RULES", {}, "", _host_rules,
            'a mapping such as {"*.example.com": {"factor": 20, "min_gap": 5, "max_gap": 120}}',
            "What is different for hosts whose names match a pattern, the first that matches (docs/politeness.md).",
        ),
        Setting(
            "AOPIC_BACKOFF", 5.0, "seconds", _number(0, 86400), "a number of seconds from 0 to 86,400",
            "Shortest gap after an error of a host, doubled by each further one in a row; 0 to take no note of errors.",
        ),
        Setting(
            "AOPIC_MAX_BACKOFF", 86_400.0, "seconds", _number(0, 1e7),
            "a number of seconds from 0 to 10,000,000",
            "Longest gap that errors make.",
        ),
        Setting(
            "AOPIC_MAX_RETRY_AFTER", 86_400.0, "seconds", _number(0, 1e7),
            "a number of seconds from 0 to 10,000,000",
            "Longest time that a host may ask to be left alone, by Retry-After or Crawl-delay.",
        ),
        Setting(
            "AOPIC_DEAD_AFTER", 5, "requests", _integer(2, 10**6), "a whole number from 2 to 1,000,000",
            "Requests in a row without an answer, or with one that asks to come later, after which a host is dead: the "
            "crawl does not wait for it any more.",
        ),
        Setting(
            "AOPIC_MAX_WAIT", 3600.0, "seconds", _number(0, 1e7), "a number of seconds from 0 to 10,000,000",
            "Longest time that a crawl waits with nothing else to do because all hosts that have pages must be left "
            "alone; it closes if that would be longer. 0 for any time.",
        ),
        Setting(
            "AOPIC_DURABILITY", 500, "milliseconds", _durability,
            '"page", "close" or a number of milliseconds from 1 to 60,000',
            "How soon finished work is on the disk: at once (a commit follows the other), within about this time "
            "(group commit), or only when the crawl closes or much is waiting. Work that a crash undoes is done "
            "again; nothing is lost.",
        ),
        Setting(
            "AOPIC_STORE", "auto", "", _one_of("auto", "rocksdb", "sqlite", "memory"),
            '"auto", "rocksdb", "sqlite" or "memory"',
            "Where the crawl is remembered; auto is RocksDB, or SQLite where RocksDB is not installed. Without "
            "JOBDIR it is a temporary folder, or memory if you say so.",
        ),
        Setting(
            "AOPIC_MEMORY_MB", 256, "megabytes", _integer(16, 10**7),
            "a whole number of megabytes from 16 to 10,000,000",
            "Memory for the crawl's state, however much of it is on the disk: a quarter each for the store's cache, "
            "its write buffers, page records and back queues.",
        ),
        Setting(
            "AOPIC_PAGE_CACHE", "auto", "pages", _auto(_integer(100)),
            '"auto" or a whole number from 100 to 1,000,000,000',
            "Page records kept in memory; they answer most duplicate links without the disk. Automatically 400 for "
            "each of AOPIC_MEMORY_MB.",
        ),
        Setting(
            "AOPIC_CACHE_POLICY", "clock", "", _one_of(*CACHES), '"lru", "clock", "random" or "static"',
            "Which page records leave the memory when there are more (docs/caches.md).",
        ),
        Setting(
            "AOPIC_ACTIVE_HOSTS", "auto", "hosts", _auto(_integer(1)),
            '"auto" or a whole number from 1 to 1,000,000,000',
            "Hosts with a back queue in memory; others wait on the disk. Automatically 40 for each of AOPIC_MEMORY_MB.",
        ),
        Setting(
            "AOPIC_LINK_WEIGHTS", "equal", "", _weights,
            '"equal", weights such as "internal=1, external=2, nofollow=0", or the import path of a function of the '
            "request and the response",
            "How a page's cash is shared among its links: the same for each, or in proportion to weights (docs/order.md).",
        ),
        Setting(
            "AOPIC_RECRAWL", False, "", _flag, "True or False",
            "Whether visited pages come back, for as long as the crawl runs (docs/order.md).",
        ),
        Setting(
            "AOPIC_RECRAWL_MIN_INTERVAL", 86_400, "seconds", _number(1, _FOR_EVER),
            "a number of seconds from 1 to 10,000,000,000",
            "Time that passes between two visits of a page at least.",
        ),
        Setting(
            "AOPIC_RECRAWL_MAX_INTERVAL", 7_776_000, "seconds", _number(1, _FOR_EVER),
            "a number of seconds from 1 to 10,000,000,000",
            "Time after which a page has a claim on a tenth of the repeated visits, however little cash it holds.",
        ),
        Setting(
            "AOPIC_RECRAWL_SHARE", 0.5, "part", _number(0, 1), "a number from 0 to 1",
            "Part of the fetches that goes to visited pages while new ones wait.",
        ),
        Setting(
            "AOPIC_KEEP_LINKS", False, "", _flag, "True or False",
            "Whether the links of each visited page are kept, for `scrapy aopic export --links`; 16 bytes a link on "
            "the disk, before compression.",
        ),
        Setting(
            "AOPIC_MAX_LINKS", 10_000, "links", _integer(1), "a whole number from 1 to 1,000,000,000",
            "Distinct links of one page that share its cash; further ones are queued without.",
        ),
        Setting(
            "AOPIC_LINK_FLOOD", 0, "links", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Links of one page after which further ones are dropped; 0 for none. The add-on sets 50,000.",
        ),
        Setting(
            "AOPIC_URL_RULES", PLAIN_RULES, "", url_rules,
            f"some of {', '.join((*CHANGES, *REFUSALS))}; or what is different from the default, such as "
            '"+sort, -fragment"',
            "Rules by which the URLs of links get a normal form or are refused before they are queued; the add-on sets "
            "all but sort (docs/urls.md).",
        ),
        Setting(
            "AOPIC_URL_REWRITE", (), "", _rewrite,
            "a list of pairs of a regular expression and its replacement, or the import path of a function of a URL "
            "that returns one, or None to refuse it",
            "Your own rules on URLs, after the others (docs/urls.md).",
        ),
        Setting(
            "AOPIC_MAX_URL_LENGTH", 0, "characters", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Longest URL of a link that is queued, without its fragment; 0 for any length. The add-on sets 2,083.",
        ),
        Setting(
            "AOPIC_MAX_PATH_DEPTH", 0, "segments", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Most segments of the path of a link that is queued; 0 for any number. The add-on sets 20.",
        ),
        Setting(
            "AOPIC_MAX_REPEATS", 0, "times", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Most times in a row that a segment of the path of a link, or a cycle of two or three, may come; 0 for any "
            "number. The add-on sets 3.",
        ),
        Setting(
            "AOPIC_MAX_PARAMETERS", 0, "parameters", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Most parameters in the query of a link that is queued; 0 for any number. The add-on sets 20.",
        ),
        Setting(
            "AOPIC_SKIP_EXTENSIONS", (), "", _extensions, 'a list of endings of file names such as ["pdf", "tar.gz"]',
            "Links whose path ends in one of these are not queued; the add-on sets those of Scrapy's LinkExtractor.",
        ),
        Setting(
            "AOPIC_CONTENT_TYPES", (), "", _types, 'a list of content types such as ["text/*", "application/xml"]',
            "Of links, answers of another type are not read, and their pages have failed; all are read if it is empty. "
            "The add-on sets HTML, XML and plain text.",
        ),
        Setting(
            "AOPIC_CONTENT_SEEN", "exact", "", _one_of("off", "exact", "near"), '"off", "exact" or "near"',
            "Which pages are duplicates: none, those with the text and the links of a page seen before, or those with "
            "nearly that text, too (docs/content.md).",
        ),
        Setting(
            "AOPIC_FOLLOW_DUPLICATES", True, "", _flag, "True or False",
            "Whether the links of duplicates are followed; the add-on sets False.",
        ),
        Setting(
            "AOPIC_SAME_WORDS", 1000, "pages", _integer(0), "a whole number from 0 to 1,000,000,000",
            "Pages of a registered domain with the same text and other links that are pages of their own; further ones "
            "are duplicates, because a site can make them up without end. 0 for any number.",
        ),
        Setting(
            "AOPIC_CANONICAL", "known", "", _one_of("off", "known", "domain", "any"),
            '"off", "known", "domain" or "any"',
            "Which rel=canonical counts: none, one that names a page of the same registered domain, or any.",
        ),
        Setting(
            "AOPIC_SEEDS", "", "", _path, "the path of a list of seeds",
            "List of seeds that a job starts from, with or without scores; it is read when the job begins, and not "
            "when it goes on.",
        ),
        Setting(
            "AOPIC_DUPEFILTER", "exact", "", _one_of("exact", "bloom"), '"exact" or "bloom"',
            "How scrapy_aopic.DupeFilter remembers fingerprints beside another scheduler: exactly on disk, or in a "
            "Bloom filter that takes some unseen URLs for seen, so that they are never crawled.",
        ),
        Setting(
            "AOPIC_BLOOM_ERROR_RATE", 0.001, "part", _number(1e-9, 0.5), "a number from 1e-9 to 0.5",
            "Part of the unseen URLs that the Bloom filter loses, up to its first capacity; some times that as it grows.",
        ),
        Setting(
            "AOPIC_BLOOM_CAPACITY", 1_000_000, "URLs", _integer(1000, 10**10),
            "a whole number from 1,000 to 10,000,000,000",
            "URLs that the Bloom filter is first laid out for; it grows beyond.",
        ),
        Setting(
            "AOPIC_ITEM_FIELDS", ("importance",), "",
            _names("importance", "cash", "history", "visits", "duplicate_of"),
            "some of importance, cash, history, visits, duplicate_of",
            "What ImportancePipeline adds to items that can hold it.",
        ),
        Setting(
            "AOPIC_ITEM_URL_FIELD", "url", "", _text, "the name of a field",
            "Field of an item that holds the URL of its page, for ImportancePipeline.",
        ),
        Setting(
            "AOPIC_WARC_FILE", "crawls/%(name)s-%(time)s.warc.gz", "", _template,
            "the path of a file with nothing to fill in but %(name)s and %(time)s; a percent sign is written %%",
            "Where PagesPipeline writes what was fetched; %(name)s is the spider, %(time)s the start of the crawl.",
        ),
        Setting(
            "AOPIC_ROBOTS_EXPIRY", 86_400, "seconds", _number(1, 2_592_000), "a number of seconds from 1 to 2,592,000",
            "Time after which a robots.txt is asked for again.",
        ),
        Setting(
            "AOPIC_ROBOTS_RETRY", 60, "seconds", _number(0, 86_400), "a number of seconds from 0 to 86,400",
            "Time after which a robots.txt that is unreachable is asked for again; it doubles with each try.",
        ),
        Setting(
            "AOPIC_ROBOTS_TRIES", 8, "tries", _integer(1), "a whole number from 1 to 1,000,000,000",
            "Tries in a row that find a robots.txt unreachable until the pages that wait for it fail.",
        ),
        Setting(
            "AOPIC_ROBOTS_CACHE", 1000, "files", _integer(1), "a whole number from 1 to 1,000,000,000",
            "Parsed robots.txt files kept in memory; a large one counts once more for every 4 KiB.",
        ),
        Setting(
            "AOPIC_SITEMAPS", False, "", _flag, "True or False",
            "Whether the sitemaps that a robots.txt names are seeds, and the pages that they name are their links.",
        ),
        Setting(
            "AOPIC_PROGRESS", True, "", _flag, "True or False",
            "Whether a progress line is shown while the crawl runs; never when standard error is no terminal.",
        ),
        Setting(
            "AOPIC_REPORT", False, "", _flag, "True or False",
            "Whether the most important pages and an audit are printed when the crawl closes.",
        ),
    )
}  # fmt: skip


def read(settings: BaseSettings, name: str) -> Any:
    """Checked value of the setting *name*.

    Raises:
        SettingError: If it cannot be used.
    """
    return SETTINGS[name].read(settings)


def check_names(settings: BaseSettings) -> None:
    """Look for names that are no settings but seem to be meant as such.

    Raises:
        SettingError: If there is one that begins with ``AOPIC_``.
    """
    stock = Settings()
    names = sorted(str(name) for name in settings if name not in SETTINGS and name not in stock)
    for name in names:
        if name.upper().startswith("AOPIC_"):
            question = _similar(name.upper(), SETTINGS)
            raise SettingError(
                f"{name} is no setting of scrapy-aopic{f' ({question})' * bool(question)}; docs/settings.md lists them."
            )
        if found := get_close_matches(name, SETTINGS, n=1, cutoff=0.9):
            logger.warning(
                "%(name)s means nothing to scrapy-aopic; did you mean %(found)s?",
                {"name": name, "found": found[0]},
            )


def read_politeness(settings: BaseSettings, spider: object = None) -> Politeness:
    """The politeness that *settings* and *spider* ask for; ``DOWNLOAD_DELAY`` is a floor of the gap.

    Raises:
        SettingError: If one of them cannot be used.
    """
    floor = settings.getfloat("DOWNLOAD_DELAY")
    return Politeness(
        factor=read(settings, "AOPIC_POLITENESS_FACTOR"),
        min_gap=max(read(settings, "AOPIC_MIN_GAP"), floor),
        max_gap=read(settings, "AOPIC_MAX_GAP"),
        backoff=read(settings, "AOPIC_BACKOFF"),
        max_backoff=read(settings, "AOPIC_MAX_BACKOFF"),
        max_wish=read(settings, "AOPIC_MAX_RETRY_AFTER"),
        dead_after=read(settings, "AOPIC_DEAD_AFTER"),
        rule=_rule_of(read(settings, "AOPIC_HOST_RULES"), getattr(spider, "politeness", None), floor),
    )


def _rule_of(
    rules: tuple[tuple[re.Pattern[str], Rule], ...], ask: Callable[[str], Any] | None, floor: float
) -> Callable[[str], Rule | None] | None:
    """What is different for a host: what *ask*, a method of the spider, says, or else the first rule that fits."""
    complained = False

    def rule_of(host: str) -> Rule | None:
        nonlocal complained
        rule = None
        if ask is not None:
            try:
                given = ask(host)
                rule = _rule(given) if given is not None else None
            except Exception:
                if not complained:
                    complained = True
                    logger.exception(
                        'The spider\'s politeness(%(host)r) must return None or a mapping such as {"min_gap": 5}; the '
                        "settings hold instead. No more such errors will be logged.",
                        {"host": host},
                    )
        if rule is None:
            rule = next((rule for pattern, rule in rules if pattern.match(host)), None)
        return rule and rule._replace(min_gap=None if rule.min_gap is None else max(rule.min_gap, floor))

    return rule_of if rules or ask is not None else None


def _read_recrawl(values: dict[str, Any]) -> Recrawl | None:
    low, high = values["AOPIC_RECRAWL_MIN_INTERVAL"], values["AOPIC_RECRAWL_MAX_INTERVAL"]
    if high < low:
        raise SettingError(
            f"AOPIC_RECRAWL_MAX_INTERVAL ({high:g}) must be at least AOPIC_RECRAWL_MIN_INTERVAL ({low:g})."
        )
    return Recrawl(low, high, values["AOPIC_RECRAWL_SHARE"]) if values["AOPIC_RECRAWL"] else None


def _read_window(settings: BaseSettings) -> Window:
    kind = cast("WindowKind", read(settings, "AOPIC_WINDOW_KIND"))
    if kind == "variable":
        visits = replace(
            SETTINGS["AOPIC_WINDOW"],
            check=_integer(1, 10**6),
            must="a whole number of visits such as 8, because AOPIC_WINDOW_KIND is 'variable'",
        )
        return Window(visits.read(settings), kind)
    size, clock = read(settings, "AOPIC_WINDOW")
    return Window(size, kind, clock)


def page_cache(settings: BaseSettings) -> int:
    """Page records, or fingerprints, to keep in memory."""
    given: int | None = read(settings, "AOPIC_PAGE_CACHE")
    memory_mb: int = read(settings, "AOPIC_MEMORY_MB")
    return given or _PAGES_A_MB * memory_mb


def store_memory(settings: BaseSettings) -> int:
    """Megabytes for the cache of the store, and as many for its write buffers."""
    memory_mb: int = read(settings, "AOPIC_MEMORY_MB")
    return max(memory_mb // 4, 8)


def read_policy(settings: BaseSettings, spider: object = None) -> Policy:
    """How *settings*, and *spider*, want the crawl's cash spent and its hosts treated.

    Raises:
        SettingError: If one of all settings cannot be used.
    """
    values = {name: setting.read(settings) for name, setting in SETTINGS.items()}
    check_names(settings)
    order = values["AOPIC_ORDER"]()
    if isinstance(order, BatchOrder) and find_spec("numpy") is None:
        raise SettingError(
            f"AOPIC_ORDER ({settings.get('AOPIC_ORDER')!r}) needs numpy; install scrapy-aopic[simulate]."
        )
    if values["AOPIC_VIRTUAL_SPENDING"] == "chosen" and not values["AOPIC_VIRTUAL_DOMAINS"]:
        raise SettingError(
            f"AOPIC_VIRTUAL_DOMAINS ({settings.get('AOPIC_VIRTUAL_DOMAINS')!r}) must name the domains that "
            "AOPIC_VIRTUAL_SPENDING = 'chosen' is about."
        )
    if isinstance(order, Aopic):
        order.budget = values["AOPIC_DOMAIN_BUDGET"]
    return Policy(
        order=order,
        domain_of=registered_domain,
        chosen=values["AOPIC_VIRTUAL_DOMAINS"],
        keep_links=values["AOPIC_KEEP_LINKS"],
        is_near=values["AOPIC_CONTENT_SEEN"] == "near",
        same_words=values["AOPIC_SAME_WORDS"],
        recrawl=_read_recrawl(values),
        window=_read_window(settings),
        politeness=read_politeness(settings, spider),
        by_domain="domain" in values["AOPIC_POLITENESS_KEY"],
        by_address="address" in values["AOPIC_POLITENESS_KEY"],
        connections=settings.getint("CONCURRENT_REQUESTS"),
        share=values["AOPIC_VIRTUAL_SHARE"],
        endowment=values["AOPIC_ENDOWMENT"],
        spending=cast("Spending", values["AOPIC_VIRTUAL_SPENDING"]),
        max_active=values["AOPIC_ACTIVE_HOSTS"] or _HOSTS_A_MB * values["AOPIC_MEMORY_MB"],
        page_cache=page_cache(settings),
        cache=partial(CACHES[values["AOPIC_CACHE_POLICY"]], random.Random(0).random),  # noqa: S311 (no secret)
        commit_within=max(1.0, 2 * values["AOPIC_DURABILITY"]),
    )
