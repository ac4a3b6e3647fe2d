"""From what a user writes to a value: the checks that the table of settings is made of.

1. A check takes anything at all, from Python or from the command line (``-s NAME=VALUE``), where lists are text with
   commas or JSON, and mappings are JSON.
2. It returns the value or raises. Any exception will do, because a check imports what is named and calls methods of what
   it is given; only the text of a :class:`Reason` is shown to the user.
3. It says itself what a value must be, so that no bound stands twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import translate
from importlib import import_module
from inspect import iscoroutinefunction, signature
from ipaddress import IPv4Network, IPv6Network, ip_network
from os import cpu_count, fsdecode, fsencode, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ada_url import URL

from scrapy_aopic.core.focus.strategies import STRATEGIES
from scrapy_aopic.core.focus.topic import RELEVANT
from scrapy_aopic.core.host_rules import HostRule, HostRules
from scrapy_aopic.core.order import ORDERS, Order
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.core.spending import SPENDING
from scrapy_aopic.exceptions import ANY_ERROR, AopicError, ExchangeError, plainly
from scrapy_aopic.storage.address import MAX_SHARDS
from scrapy_aopic.storage.named_files import is_file, is_list, read_entries, read_given
from scrapy_aopic.storage.registry import NAMES as KINDS_OF_STORE
from scrapy_aopic.storage.registry import load_backend
from scrapy_aopic.web.content_usage import TDM, TDMREP, USES
from scrapy_aopic.web.networks import Allowed
from scrapy_aopic.web.scope import LANGUAGE, Scope
from scrapy_aopic.web.suffixes import has_public_suffix, registered_domain
from scrapy_aopic.web.url_rules import CHANGES, LIMITS, PLAIN_RULES, REFUSALS

if TYPE_CHECKING:
    from scrapy_aopic.web.identity import Identity

T = TypeVar("T")

FOR_EVER = 10_000_000_000
"""Seconds, or turns, beyond which no number is meant: 300 years."""

SHOWN = 200
"""Characters of a wrong value, or of the reason why it is wrong, that a message shows."""

_MANY = 1_000_000_000
"""The largest count that a setting takes unless it says otherwise: more than a machine holds of anything."""

_SECONDS = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86_400.0,
    "week": 604_800.0,
    "month": 30 * 86_400.0,
    "year": 365 * 86_400.0,
}

_IMPORT_PATH = re.compile(r"\w+(\.\w+)+")

_HOST_NAME = re.compile(
    r"\[[0-9A-Fa-f:.]+\]|(?=.*(\.|[^\W\d_]))([\w-]+\.)*[\w-]+",  # [::1], or labels that are not one number
    re.IGNORECASE,
)
_HOST_NAME_LENGTH = 253
"""Characters of the longest host name (RFC 1035)."""

_CONTENT_TYPE = re.compile(r"[a-z0-9*][a-z0-9!#$&^_.+*-]*/[a-z0-9*][a-z0-9!#$&^_.+*-]*")


class Reason(ValueError):
    """Why a value cannot be used, or what was probably meant, as the end of a sentence."""


class Listen(NamedTuple):
    """Where a server listens.

    Attributes:
        host: Address or name; without brackets.
        port: ``None`` for the first that is free of some, 0 for any that is free.
    """

    host: str
    port: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Decides what a value means.

    Attributes:
        must: What a value must be, as the end of the sentence "... must be".
        parse: Makes the value of what the user gave; raises an exception, of any kind, if it cannot.
        unit: Of a number; empty if it has none.
    """

    must: str
    parse: Callable[[Any], Any]
    unit: str = ""


def reason(error: BaseException) -> str:
    """The reason behind *error*, in parentheses; ``""`` if it gives none."""
    while error.__cause__ is not None and not isinstance(error, Reason):
        error = error.__cause__
    text = " ".join(str(error).split())
    return f" ({text[:SHOWN]})" if isinstance(error, Reason) and text else ""


def shown(value: object) -> str:
    """*value* in one line of a message, whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except ANY_ERROR:  # the message says what is wrong in any case
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def similar(name: str, known: Iterable[str]) -> str:
    """The question whether one of *known* was meant by *name*; ``""`` if none is like it."""
    return "".join(f'did you mean "{each}"?' for each in get_close_matches(name, known, n=1, cutoff=0.75))


# Numbers


def number(low: float, high: float, of: str = "", unit: str = "") -> Check:
    """A number from *low* to *high*, *of* a unit that messages name, too, or in a *unit* that only the docs name."""
    noun = f"a number of {of}" if of else "a number"
    must = f"{noun} from {_written(low)} to {_written(high)}"
    return Check(must, lambda value: _number(value, low, high), unit or of)


def whole(low: int, high: int = _MANY, of: str = "", unit: str = "") -> Check:
    """A whole number from *low* to *high*, with units as those of :func:`number`."""

    def parse(value: Any) -> int:
        result = int(value)
        if _number(value, low, high) != result:
            raise ValueError
        return result

    noun = f"a whole number of {of}" if of else "a whole number"
    return Check(f"{noun} from {_written(low)} to {_written(high)}", parse, unit or of)


def share(value: Any) -> float | None:
    """A part of a whole; ``None`` for "equal"."""
    return None if isinstance(value, str) and value == "equal" else _number(value, 0, 1)


def durability(value: Any) -> float:
    """Seconds between commits, from milliseconds: 0 for "page", infinite for "close"."""
    if isinstance(value, str) and value in ("page", "close"):
        return 0.0 if value == "page" else math.inf
    return _number(value, 1, 60_000) / 1000


def window(value: Any) -> tuple[float, str]:
    """Size and clock of a window: a number of turns, or a time such as ``"36 hours"``."""
    size, unit = _measured(value, "turn", r"\|H\|")
    unit = unit or "turn"
    clock = "turns" if unit in ("turn", "|H|") else "seconds"
    size *= _SECONDS.get(unit, 1.0)
    if not 0 < size <= FOR_EVER:
        raise ValueError
    return size, clock


_SHORT = {name[0]: name for name in ("second", "minute", "hour", "day", "week")}
"""Units by their first letters."""


def _measured(value: Any, *further: str) -> tuple[float, str]:
    """A number and its unit, one of time or of *further* ones; empty if it has none."""
    if isinstance(value, bool):
        raise TypeError
    units = "|".join((*further, *_SECONDS))
    match = re.fullmatch(rf"\s*([0-9.]+)\s*(?:({units})s?|([smhdw]))?\s*", str(value))
    if match is None:
        raise ValueError
    return float(match[1]), match[2] or _SHORT.get(match[3], "")


def intervals(value: Any) -> tuple[float, float]:
    """The shortest and the longest of some time, in seconds; one time is both."""
    low, high = value if isinstance(value, (list, tuple)) else (value, value)
    found = [size * _SECONDS[unit or "second"] for size, unit in map(_measured, (low, high))]
    if not 1 <= found[0] <= found[1] <= FOR_EVER:
        raise ValueError
    return found[0], found[1]


_COMPARED = ("text", "main text")
_REVISITS = ("once", "every", "changed", "gone", *_COMPARED)
"""Words beside the intervals of revisits; the last ones say what is compared."""


def _is_compared(value: Any) -> bool:
    """Whether *value* says what of a page is compared: a word, a function, its import path, or a method as ``spider.NAME``."""
    is_path = isinstance(value, str) and not value[:1].isdigit() and _IMPORT_PATH.fullmatch(value)
    return bool(callable(value) or value in _COMPARED or is_path)


def recrawl(value: Any) -> Recrawl | None:
    """How pages are revisited; ``None`` for not at all."""
    with suppress(ValueError):
        return Recrawl() if _flag(value) else None
    if isinstance(value, str):
        several = _from_json(value) if value.lstrip()[:1] == "[" else texts(value)
        value = several if len(several) > 1 or several[0] in _REVISITS or "%" in value else value
    if not isinstance(value, (list, tuple)):
        value = [value, value]
    shares = [each for each in value if isinstance(each, str) and each.endswith("%")]
    compared = [each for each in value if _is_compared(each)]
    for what, given in (("thing that is compared", compared), ("share of the fetches", shares)):
        if len(given) > 1:
            raise Reason(f"it has more than one {what}")
    by = compared[0] if compared else ""
    if by and by not in _COMPARED and not str(by).startswith("spider."):
        by = function(by, 1)
    words = [each for each in value if each in (*_REVISITS, *compared, *shares)]
    times = [each for each in value if each not in words]
    n_times = len(times)
    if words and n_times == 1:
        times *= 2
    found = Recrawl(*intervals(times)) if times or not words else Recrawl()
    is_every = "every" in words
    if is_every and not times:
        raise Reason('"every" needs a time: ["1 day", "every"]')
    if n_times < 1 + is_every and (is_every or "once" in words):
        found = replace(found, min_interval=0.0)
    every = found.max_interval if is_every else 0.0
    share = _number(shares[0][:-1], 0, 100) / 100 if shares else found.share
    found = replace(found, share=share, only_changed="changed" in words, gone="gone" in words, by=by)
    return replace(found, once=is_every or "once" in words, every=every)


def spending(value: Any) -> tuple[str, frozenset[str]]:
    """What the virtual page spends on, and the domains that are chosen for it."""
    if isinstance(value, str) and value.lstrip()[:1] != "{":
        name, chosen = value, frozenset[str]()
    else:
        ((name, given),) = dict(_from_json(value)).items()
        chosen = domains(given)
    if name not in SPENDING:
        raise Reason(similar(name, SPENDING))
    if bool(chosen) != SPENDING[name].needs_chosen:
        raise Reason(f"{name} {'names no domains' if chosen else 'needs at least one domain'}")
    return name, chosen


def _number(value: Any, low: float, high: float) -> float:
    if isinstance(value, (bool, bytes, bytearray)):
        raise TypeError
    result = float(value)
    if not low <= result <= high:
        raise ValueError
    return result


def _written(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}".replace("e-0", "e-")


# Words


def one_of(*names: str) -> Check:
    """One of *names*."""

    def parse(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError
        if value not in names:
            raise Reason(similar(value, names))
        return str(value)

    *others, last = (f'"{name}"' for name in names)
    return Check(f"{', '.join(others)} or {last}", parse)


def some_of(*names: str) -> Check:
    """Any of *names*, as a tuple."""

    def parse(value: Any) -> tuple[str, ...]:
        given = tuple(name for _, name in listed(value, names))
        _known(given, names)
        return given

    return Check(f"some of {', '.join(names)}", parse)


def _flag(value: Any) -> bool:
    if isinstance(value, (bool, int, str)):
        if value in (True, "1", "True", "true"):
            return True
        if value in (False, "0", "False", "false"):
            return False
    raise ValueError


FLAG = Check("True or False", _flag)


def text(value: Any) -> str:
    """Text in which there is something to see, and nothing that cannot be seen."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    return value


def texts(value: Any) -> list[str]:
    """The texts in *value*: a collection of them, or one text with commas or in JSON."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip()[:1] == "[" else value.split(",")
    if not isinstance(value, Collection) or isinstance(value, (Mapping, bytes, bytearray, memoryview)):
        raise TypeError
    if not all(isinstance(each, str) for each in value):
        raise TypeError
    return [name for each in value if (name := each.strip())]


def listed(value: Any, words: Collection[str] = ()) -> list[tuple[str, str]]:
    """The names in *value*, where one may be that of a file with one a line; each with where it stands there, ``""`` if it does not.

    A file is what ends like a list (``.txt``), or is there and has no name that a domain may have, and is none of these *words*.
    """
    names = []
    for text in texts(value):
        path = Path(text)
        if text in words or (not is_list(text) and (has_public_suffix(text) or not is_file(path))):
            names.append(("", text))
            continue
        try:
            found = [(f"{text}, {where}", name) for where, name in read_entries(path)]
        except ExchangeError as error:
            raise Reason(plainly(error)) from error
        if not found:
            raise Reason(f"{text} lists nothing")
        names += found
    return names


def each_listed(value: Any, parse: Callable[[str], T]) -> list[T]:
    """Parse each name that *value* lists; a wrong one in a file is refused with its place."""
    return [_each(where, name, parse) for where, name in listed(value)]


def _each(where: str, name: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(name)
    except ValueError as error:
        if not where:
            raise
        if isinstance(error, AopicError):  # which names it
            raise Reason(f"{where}: {plainly(error)}") from error
        why = f": {error}" if isinstance(error, Reason) and str(error) else ""
        raise Reason(f"{where}: {shown(name)}{why}") from error


def _known(names: Iterable[str], allowed: Collection[str]) -> None:
    for name in names:
        if name not in allowed:
            raise Reason(similar(name, allowed))


# Servers


_LOOPBACK = "127.0.0.1"

MAX_WORKERS = 64
"""Processes of one crawl on a machine, at most: each takes some 150 MB."""

_PORTS = 65_535
"""The highest port."""

PORT = whole(2, _PORTS)
"""A port that cannot be meant as a flag."""


def listen(value: Any) -> Listen | None:
    """Where to listen; ``None`` for nowhere."""
    with suppress(ValueError):
        return Listen(_LOOPBACK) if _flag(value) else None
    if not isinstance(value, str) or ":" not in value:
        port: int = PORT.parse(value)
        return Listen(_LOOPBACK, port)
    host, _, digits = value.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[0-9]{1,5}", digits) or int(digits) > _PORTS:
        raise Reason(f"a port is a number from 0 to {_PORTS:,}")
    if not re.fullmatch(r"[\w.:-]+", host, re.ASCII):
        raise ValueError
    return Listen(host, int(digits))


class Shards(NamedTuple):
    """Shards of a job.

    Attributes:
        n: Their number.
        folders: Job folders that get as many of them each; 0 if they are all in one place.
    """

    n: int
    folders: int


def shards(value: Any) -> Shards:
    """A number of shards, or of folders and of shards in each."""
    folders, _, each = str(value).rpartition("x")
    given = whole(1, MAX_SHARDS)
    if not folders:
        return Shards(given.parse(value), 0)
    n: int = whole(2, MAX_SHARDS).parse(given.parse(folders) * given.parse(each))
    return Shards(n, int(folders))


def workers(value: Any) -> int:
    """A number of processes: of "auto", one for each core."""
    number: int = whole(1, MAX_WORKERS).parse(
        min(cpu_count() or 1, MAX_WORKERS) if value == "auto" else value
    )
    return number


_TOKEN = re.compile(r"[\w.~-]{16,128}", re.ASCII)


def token(value: Any) -> str:
    """A token of the user's own; ``""`` for none."""
    if value == "auto":
        return ""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError
    return value


# Paths and objects


def path(value: Any) -> str:
    """A path, of a file that need not exist."""
    if isinstance(value, bytes) or "\0" in fspath(value):
        raise ValueError
    return fsdecode(fsencode(value))  # which text with lone surrogates is not


def template(value: Any) -> str:
    """A path into which the name of the spider and the time are filled."""
    result = path(value)
    if "%" in re.sub(r"%(%|\((name|time)\)s)", "", result):
        raise ValueError
    if not result.strip() or result[-1] in "/\\" or Path(result).name in ("", ".."):
        raise ValueError
    return result


def load(value: Any) -> Any:
    """The object at an import path, or one that is given as such."""
    if not isinstance(value, str):
        if not callable(value):
            raise TypeError
        return value
    if not _IMPORT_PATH.fullmatch(value):
        raise ValueError
    module, _, name = value.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except ANY_ERROR as error:
        raise Reason(f"{type(error).__name__}: {error}") from error


def _is_named(value: Any, known: Collection[str]) -> bool:
    """Whether *value* is one of the names *known*, and not what :func:`load` takes, such as an import path."""
    if isinstance(value, str) and "." not in value and value not in known:
        raise Reason(similar(value, known))
    return isinstance(value, str) and value in known


def function(value: Any, n: int, *, or_class: bool = False) -> Any:
    """A function of *n* arguments, or a class whose instances are one if that will do, or its import path."""
    found = load(value)
    if not callable(found):
        raise TypeError
    called = found
    if or_class and is_class_of_functions(found):
        called, n = found.__call__, n + 1  # an instance of it is called
    try:
        wanted = signature(called)
    except (TypeError, ValueError):  # written in C, and without a description
        return found
    try:
        wanted.bind(*[None] * n)
    except TypeError as error:
        n -= called is not found
        raise Reason(f"it does not take {n} argument{'s' * (n > 1)}") from error
    return found


def tokenizer(value: Any) -> Any:
    """A function of a text, or ``None``."""
    return None if value is None or value == "" else function(value, 1)


def is_class_of_functions(found: Any) -> bool:
    """Whether *found* is a class whose instances can be called."""
    return isinstance(found, type) and any("__call__" in vars(base) for base in found.__mro__)


def is_awaited(found: Any) -> bool:
    """Whether what *found* gives when it, or an instance of it, is called has to be awaited."""
    called = getattr(found, "__call__", None)  # noqa: B004 - not whether it can be called
    return iscoroutinefunction(found) or iscoroutinefunction(called)


class TopicGiven(NamedTuple):
    """A topic as a user gives it; one of these.

    Attributes:
        keywords: Words and phrases.
        positive, negative: Folders of relevant pages, or one of these, and of others; there need be no others.
        model: File of a trained model.
        grade: Function of a response.
        by_items: Whether a page is relevant if it yields an item.
        threshold: Probability from which on a page counts as relevant, above 0 to 1.
        calibration: Job folder, or file of one, whose labels say what grades mean, instead of those of the job itself.
    """

    keywords: tuple[str, ...] = ()
    positive: str = ""
    negative: str = ""
    model: str = ""
    grade: Callable[[Any], float] | None = None
    by_items: bool = False
    threshold: float = RELEVANT
    calibration: str = ""


_TOPIC_KEYS = ({"keywords"}, {"positive", "negative"}, {"positive"}, {"model"}, {"function"})


def topic(value: Any) -> TopicGiven | None:
    """The topic; ``None`` for none."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value == "items":
        return TopicGiven(by_items=True)
    if isinstance(value, str):
        value = json.loads(value, object_pairs_hook=_Pairs)
    given = dict(value)
    threshold = given.pop("threshold", RELEVANT)
    if isinstance(threshold, bool) or not 0.0 < threshold <= 1.0:
        raise Reason(f"the threshold {threshold!r} is no probability above 0, up to 1")
    calibration = str(fspath(given.pop("calibration", "")))
    if calibration and not Path(calibration).exists():
        raise Reason(f"there is no file or folder {calibration}")
    return _topic(given)._replace(threshold=threshold, calibration=calibration)


def _topic(given: dict[str, Any]) -> TopicGiven:
    if set(given) not in _TOPIC_KEYS:
        raise ValueError
    if "function" in given:
        return TopicGiven(grade=function(given["function"], 1, or_class=True))
    if "keywords" in given:
        keywords = given["keywords"]
        keywords = tuple(keywords.split(",") if isinstance(keywords, str) else keywords)
        if not keywords or not all(isinstance(each, str) for each in keywords):
            raise ValueError
        for each in keywords:
            if not any(map(str.isalnum, each)):
                raise Reason(f"the keyword {each!r} can match nothing: it has no letter")
        return TopicGiven(keywords)
    paths = {name: str(fspath(path)) for name, path in given.items()}
    for name, path in paths.items():
        if name == "model" and not Path(path).is_file():
            raise Reason(f"there is no file {path}")
        if name != "model" and not Path(path).exists():
            raise Reason(f"there is no folder {path}")
    return TopicGiven(
        positive=paths.get("positive", ""), negative=paths.get("negative", ""), model=paths.get("model", "")
    )


def link_scorer(value: Any) -> Any:
    """Name of a strategy, or a function of a page and its links."""
    if _is_named(value, STRATEGIES):
        return value
    found = function(value, 2, or_class=True)
    if is_awaited(found):
        raise Reason(
            "links are valued by a plain function: let an asynchronous one grade pages, in AOPIC_TOPIC"
        )
    return found


def order(value: Any) -> type[Order]:
    """Class of an order, from its name or its import path."""
    if _is_named(value, ORDERS):
        return ORDERS[value]
    found = load(value)
    if not (isinstance(found, type) and issubclass(found, Order)):
        raise TypeError
    try:
        found()
    except ANY_ERROR as error:  # it is abstract, or takes arguments
        raise Reason(f"{type(error).__name__}: {error}") from error
    return found


def store(value: Any) -> str:
    """Name of a kind of store, or the import path of a backend, by which a job folder remembers it."""
    if _is_named(value, KINDS_OF_STORE):
        return str(value)
    if isinstance(value, str) and not _IMPORT_PATH.fullmatch(value):
        raise ValueError
    name = value if isinstance(value, str) else f"{value.__module__}.{value.__qualname__}"
    try:
        backend = load_backend(name)
    except ANY_ERROR as error:
        raise Reason(f"{type(error).__name__}: {error}") from error
    if backend is not value and not isinstance(value, str):
        raise Reason(f"{name} is another object, so a job folder could not remember it")
    return name


def redis_key(value: Any) -> str:
    """The prefix of a job's keys in Redis; ``%(spider)s`` stands for the name of the spider."""
    if not (isinstance(value, str) and re.fullmatch(r"[^\s{}]{1,150}", value)):
        raise ValueError
    return value


# What is said of links, hosts and URLs


def weights(value: Any) -> Any:
    """``None`` for equal weights, weights by kind of link, or a function."""
    if isinstance(value, str) and value == "equal":
        return None
    if isinstance(value, Mapping) or (isinstance(value, str) and ("=" in value or value.lstrip()[:1] == "{")):
        if not (
            result := _by_name(
                value, number(0, 1000), ("internal", "external", "nofollow", "ugc", "sponsored")
            )
        ):
            raise ValueError
        return result
    return function(value, 2)


def _by_name(value: Any, check: Check, names: Collection[str]) -> dict[str, Any]:
    """Values by some of *names*: a mapping, one in JSON, or text such as "depth=30, repeats=0"."""
    if isinstance(value, str):
        is_json = value.lstrip()[:1] == "{"
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        value = _from_json(value) if is_json else _Pairs([(name.strip(), each) for name, _, each in parts])
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError
    result = {name.strip(): check.parse(each) for name, each in value.items()}
    _known(result, names)
    return result


def url_limits(value: Any) -> dict[str, int]:
    """Limits of URLs, and of the links of a page, by their names; 0 for none."""
    return _by_name(value, whole(0), (*LIMITS, "links"))


def keys(value: Any) -> frozenset[str]:
    """The kinds of things that share one gap; a host always has one."""
    result = frozenset(texts(value.replace("+", ",") if isinstance(value, str) else value))
    if not result:
        raise ValueError
    _known(result, ("host", "domain", "address", "proxies"))
    return result | {"host"}


_PACE = {
    "factor": number(0, 1_000_000),
    "min_gap": number(0, 86_400, of="seconds"),
    "max_gap": number(0, 86_400, of="seconds"),
}
"""The options of the pace of a host: a method ``politeness`` of the spider may give these."""

_HOST_OPTIONS = {
    **_PACE,
    "connections": whole(1, _MANY),
    "bytes_per_second": number(1, 1_000_000_000_000),
    "revisit": Check('seconds, a time such as "1 hour", or the shortest and the longest of two', intervals),
    "budget": number(0, 1),
    "worth": number(0, 1_000_000),
    "pages": whole(1, _MANY),
    "depth": whole(0, _MANY),
    "spread": FLAG,
}
"""All options of a host, which are those of :class:`~scrapy_aopic.core.host_rules.HostRule`."""

_MOST_PATTERNS = 1000
"""Patterns of host names: each host that is new is compared with all of them, which takes a millisecond."""


def pace(value: Any) -> HostRule:
    """The options of a host's pace, from a mapping."""
    return _host_rule("it", value, _PACE)


def _host_rule(name: str, value: Any, known: Mapping[str, Check]) -> HostRule:
    """The options in *value*, those of the hosts that *name* stands for."""
    if not isinstance(value, Mapping):
        raise Reason(f"{name} needs a mapping of options, not {type(value).__name__}")
    options = {}
    for option, given in value.items():
        check = known.get(option) if isinstance(option, str) else None
        if check is None:
            hint = similar(str(option), known) or f"they are {', '.join(known)}"
            raise Reason(f"{name} has {shown(option)[:_BRIEF]}, which is no option: {hint}")
        try:
            options[option] = check.parse(given)
        except ANY_ERROR as error:
            raise Reason(f"{name}: {option} is {shown(given)[:_BRIEF]}, and must be {check.must}") from error
    return HostRule(**options)


_BRIEF = 60
"""Characters of a wrong value that stand within a reason."""


def host_rules(value: Any) -> HostRules:
    """Options of hosts, by name or pattern: a mapping, or a file of JSON."""
    given = _from_json(value)
    if not isinstance(given, (Mapping, list, tuple)):
        raise TypeError
    rules: dict[str, HostRule] = {}
    for text, options in given.items() if isinstance(given, Mapping) else given:
        if not isinstance(text, str):
            raise TypeError
        for where, each in listed([text]) or [("", text)]:
            name = _each(where or "rules", each, _host_or_pattern)
            rule = _host_rule(name, options, _HOST_OPTIONS)
            if name in rules:
                raise Reason(f"{name} stands there twice")
            for option in ("budget", "spread"):
                if option in rule.options and not _is_registered(name):
                    raise Reason(
                        f"{name} is no registered domain, such as example.com, so it has no {option}"
                    )
            rules[name] = rule
    patterns = [(name, rule) for name, rule in rules.items() if _is_pattern(name)]
    if len(patterns) > _MOST_PATTERNS:
        raise Reason(
            f"{len(patterns):,} patterns are too many: example.com stands for all hosts below it, too"
        )
    return HostRules({name: rule for name, rule in rules.items() if not _is_pattern(name)}, patterns)


def _from_json(value: Any) -> Any:
    """*value*, or what the JSON in it says, or in the file that it names."""
    if isinstance(value, (str, Path)) and not str(value).lstrip().startswith(("{", "[")):
        path = Path(value)
        if not is_file(path):
            raise Reason(f"there is no file {shown(str(value))[:_BRIEF]}")
        try:
            value = read_given(path).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise Reason(f"{path} cannot be read: {plainly(error)}") from error
    try:
        return json.loads(value, object_pairs_hook=_Pairs) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise Reason(f"it is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error


def scope(value: Any) -> Scope | None:
    """Which links are followed: a mapping, or a file of JSON; ``None`` if it is empty."""
    given = _from_json(value)
    if not isinstance(given, Mapping):
        raise TypeError
    for name in given:
        if name not in _SCOPE:
            raise Reason(
                similar(str(name), _SCOPE) or f"{shown(name)[:_BRIEF]} is none of {', '.join(_SCOPE)}"
            )
    parts = {name: _part_of_scope(name, each) for name, each in given.items()}
    both = parts.get("allow", frozenset()) & parts.get("deny", frozenset())
    if both:
        raise Reason(f"{min(both)} is both allowed and denied")
    return Scope(**parts) if parts else None


_SCOPE = ("allow", "deny", "allow_urls", "deny_urls", "languages")


def _part_of_scope(name: str, value: Any) -> Any:
    """The names of hosts, the patterns or the languages that a scope has under *name*."""
    if name == "languages":
        found = [
            each.lower().replace("_", "-") for each in texts([value] if isinstance(value, str) else value)
        ]
        wrong = next((each for each in found if not LANGUAGE.fullmatch(each)), None)
        if wrong is not None or not found:
            what = shown(wrong)[:_BRIEF] if wrong is not None else "nothing"
            raise Reason(f'languages: {what} is no language, such as "de" or "pt-BR"')
        return frozenset(found)
    parts: Any
    if name in ("allow", "deny"):
        parts = frozenset(_each(where or name, each, domain) for where, each in listed(value))
    else:
        try:
            parts = tuple(re.compile(each) for each in texts([value] if isinstance(value, str) else value))
        except re.error as error:
            raise Reason(f"{name}: {error}") from error
    if name.startswith("allow") and not parts:
        raise Reason(f"{name} lists nothing: leave it out to allow all")
    return parts


class _Pairs(dict[str, Any]):
    """An object of JSON, or the like, in which no name stands twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        if len(self) < len(pairs):
            names = [name for name, _ in pairs]
            raise Reason(f"{next(name for name in names if names.count(name) > 1)} stands there twice")


def _is_pattern(name: str) -> bool:
    return any(each in name for each in "*?[") and not _ADDRESS.fullmatch(name)


_ADDRESS = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\]")
"""An address of IPv6, which has brackets as a pattern does, and a colon, as no pattern does."""


def _host_or_pattern(text: str) -> str:
    """The normal form of a name, or of a pattern of names, whose labels without wildcards have their normal forms, too."""
    if not _is_pattern(text):
        try:
            return domain(text)
        except ValueError:
            raise Reason("no host has such a name") from None
    if not text.isascii():
        raise Reason("patterns must be written in ASCII, as host names are sent")
    return text.lower()


def _is_registered(name: str) -> bool:
    """Whether *name* is a registered domain: what hosts below it count for."""
    if _is_pattern(name) or registered_domain(name) != name:
        return False
    return not has_public_suffix(name) or registered_domain(f"x.{name}") == name


def domains(value: Any) -> frozenset[str]:
    """Normal forms of the names of domains or hosts."""
    return frozenset(each_listed(value, domain))


def domain(name: str) -> str:
    """The normal form of a host *name*, which is that of the URLs that it is compared with."""
    name = name.removesuffix(".")
    if not _HOST_NAME.fullmatch(name) or len(name) > _HOST_NAME_LENGTH:
        raise ValueError
    host = URL(f"http://{name}/").hostname
    if name.isascii() and host != name.lower():  # 1.2 would be 1.0.0.2
        raise ValueError
    return host


def networks(value: Any) -> Allowed | None:
    """Networks that are allowed beside the Internet; ``None`` for all."""
    names = [name for _, name in listed(value, ("all",))]
    if "all" in names:
        if len(names) > 1:
            raise Reason('"all" stands alone')
        return None
    found: list[IPv4Network | IPv6Network] = []
    hosts, ports = set(), set()
    for name in names:
        if name[:1] == ":" and name[1:].isdecimal():
            ports.add(whole(0, _PORTS).parse(name[1:]))
            continue
        try:
            found.append(ip_network(name.strip("[]")))
        except ValueError as error:
            if "/" in name:
                raise Reason(str(error)) from error
            try:
                hosts.add(domain(name.removeprefix(".")))
            except ValueError:
                raise Reason(f"{shown(name)} is neither a network, a name nor a port") from error
    return Allowed(tuple(found), frozenset(hosts), frozenset(ports))


def identity(value: Any) -> Identity | None:
    """Who signs requests; ``None`` for nobody."""
    if not isinstance(value, (str, Path)):
        raise Reason("it is no path")
    if not str(value):
        return None
    from scrapy_aopic.web.identity import Identity  # noqa: PLC0415  # most crawls need no cryptography of their own

    try:
        return Identity.read(value)
    except ValueError as error:  # ours, or that of a path with a zero in it
        raise Reason(str(error)) from None


def uses(value: Any) -> dict[str, str]:
    """How wishes are obeyed, by the uses of content that they are about: ``obey`` or ``skip``; and whether a file is fetched."""
    result = _by_name(value, one_of("obey", "skip", "fetch"), (*USES, TDM, TDMREP))
    for name, way in result.items():
        if (way == "fetch") != (name == TDMREP):
            raise Reason(
                f"{TDMREP} can be fetched, and uses are to be obeyed or pages skipped, but not {name}={way}"
            )
    return result


def url_rules(value: Any, base: Iterable[str] = PLAIN_RULES) -> frozenset[str]:
    """Names of rules on URLs: all that are on, or with a plus or a minus what is different from *base*."""
    names = texts(value)
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


def rewrite(value: Any) -> Callable[[str], str | None] | None:
    """A function on URLs, from its import path or from pairs of a regular expression and its replacement."""
    if isinstance(value, str) and not value.strip():
        return None
    if callable(value) or (isinstance(value, str) and value.lstrip()[0] != "["):
        return cast("Callable[[str], str | None]", function(value, 1))
    value = json.loads(value) if isinstance(value, str) else value
    if not isinstance(value, (list, tuple)) or not all(isinstance(pair, (list, tuple)) for pair in value):
        raise TypeError
    pairs = [_pair(*pair) for pair in value]
    return _rewriting(pairs) if pairs else None


def _pair(pattern: Any, replacement: Any) -> tuple[re.Pattern[str], str]:
    if not isinstance(replacement, str):
        raise TypeError
    try:
        compiled = re.compile(pattern)
        compiled.sub(replacement, "")  # a bad reference to a group is found even without a match
    except (re.error, IndexError) as error:
        raise Reason(str(error)) from error
    return compiled, replacement


def _rewriting(pairs: list[tuple[re.Pattern[str], str]]) -> Callable[[str], str]:
    def rewritten(url: str) -> str:
        for pattern, replacement in pairs:
            url = pattern.sub(replacement, url)
        return url

    return rewritten


def types(value: Any) -> Callable[[str], bool]:
    """Whether a content type, in lower case and without parameters, is one of *value*; any is if *value* is empty."""
    patterns = [name.lower() for name in texts(value)]
    if not all(map(_CONTENT_TYPE.fullmatch, patterns)):
        raise ValueError
    if not patterns:
        return lambda _: True
    is_one = re.compile("|".join(map(translate, patterns))).match
    return lambda kind: is_one(kind) is not None
