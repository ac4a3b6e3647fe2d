"""The rules on URLs, in one table: what each changes or refuses, and who has it by default; docs/urls.md explains them.

A rule is a row of :data:`RULES` and the functions that it names. Rules get one part of a URL that ``ada_url`` has
parsed, with its punctuation, and never raise. The order of the rows is that in which changes are made, and in which
reasons are looked for: the first is the one that counts.

To add one: a row, the function that it names, a row in docs/urls.md, and an example in tests/components/test_urls.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import idna

from .networks import LOCAL_ENDS, Networks

if TYPE_CHECKING:
    from .scope import Scope


class Part(IntEnum):
    """A part of a URL, each with its punctuation; a URL is the concatenation of the first seven."""

    SCHEME = 0
    USERINFO = 1
    HOST = 2
    PORT = 3
    PATH = 4
    QUERY = 5
    FRAGMENT = 6
    URL = 7
    """All of it, in normal form."""

    HOST_AND_PORT = 8
    """Both, if there is a port."""


class Default(IntEnum):
    """Where a rule is in force by default."""

    ALWAYS = 0
    """On with the scheduler alone, too: changes no request as a server sees it, and refuses nothing that could be fetched."""

    BROAD = 1
    """In a broad crawl only."""

    NEVER = 2
    """Only if the user names it."""

    LIMIT = 3
    """If the user sets its limit, by a setting of its own; it has no name in ``AOPIC_URL_RULES``."""


class Parameters(NamedTuple):
    """Parameters of a query, by their names in lower case.

    Attributes:
        names: Those with one of these names.
        starts: Those whose name begins with one of these.
        drawn: Those with one of these names whose value looks drawn by lot.
        has_empty: Whether parameters of no characters are among them.
    """

    names: frozenset[str] = frozenset()
    starts: tuple[str, ...] = ()
    drawn: frozenset[str] = frozenset()
    has_empty: bool = False


class UrlFault(NamedTuple):
    """A fault for which a rule refuses a URL.

    Attributes:
        part: The part that it looks at.
        is_in: Whether the part, which is not empty, has the fault. Gets the limit first if the rule has one.
        is_in_bare: Whether a URL with no escape that is not too long can have it.
    """

    part: Part
    is_in: Callable[..., bool]
    is_in_bare: bool = True


class Rule(NamedTuple):
    """A rule on URLs.

    Attributes:
        name: In ``AOPIC_URL_RULES``, and as the reason of what it refuses.
        changes: What it makes of a part.
        cuts: What it takes out of the path; then the URL is parsed again, as there may be new dot segments.
        drops: What it takes out of the query.
        faults: What it refuses.
        limit: Name of the argument of :class:`~scrapy_aopic.web.urls.Normaliser` with the limit that the faults need.
            Without a limit there is no fault. ``last_year`` is given by the package, all others by the user.
    """

    name: str
    default: Default
    changes: Mapping[Part, Callable[[str], str]] = {}
    cuts: Callable[[str], str] | None = None
    drops: Parameters | None = None
    faults: Sequence[UrlFault] = ()
    limit: str = ""


TRACKING = {
    "Google": "gclid gclsrc dclid gbraid wbraid gad_source gad_campaignid srsltid _ga _gl",
    "Facebook, Instagram": "fbclid fb_action_ids fb_action_types fb_ref fb_source igshid",
    "X, TikTok, LinkedIn, Pinterest, Reddit": "twclid ttclid li_fat_id epik rdt_cid",
    "Microsoft, Yandex": "msclkid yclid ysclid _openstat",
    "Mailchimp, HubSpot, Marketo": "mc_cid mc_eid _hsenc _hsmi __hssc __hstc __hsfp hsctatracking mkt_tok",
    "Vero, Drip, Olytics, Klaviyo": "vero_id vero_conv __s oly_anon_id oly_enc_id _ke _kx",
    "Listrak, Dotdigital, Eloqua": "trk_contact trk_msg trk_module trk_sid dm_i elqtrack elqtrackid",
    "Adobe, Impact, Wicked Reports, Redbrain": "s_kwcid ef_id irclickid irgwc wickedid rb_clickid",
    "Matomo": "pk_campaign pk_kwd pk_keyword pk_source pk_medium pk_content pk_cid piwik_campaign piwik_kwd",
}
"""Parameters that say how a visitor came, and not which page he wants, by whose they are."""

_TRACKING = Parameters(frozenset(" ".join(TRACKING.values()).split()), ("utm_", "hsa_", "mtm_"))

# From Heritrix (StripSessionIDs, StripSessionCFIDs) and Nutch (regex-normalize).
_SESSION = Parameters(
    frozenset(("phpsessid", "jsessionid", "cfid", "cftoken", "oscsid", "zenid")),
    ("aspsessionid",),
    frozenset(("sid", "s", "sessid", "sessionid", "session_id", "bv_sessionid", "lsid", "jsid")),
)
_DRAWN = r"(?=[^&;/]*[0-9])[0-9A-Za-z]{24,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
is_drawn = re.compile(_DRAWN).fullmatch
"""Whether a value looks drawn by lot: a UUID, or at least 24 letters and digits with a digit among them."""

_SESSION_IN_PATH = re.compile(
    rf";(?:jsessionid|phpsessid)=[^;/]*|;(?:sid|sessionid)=(?:{_DRAWN})(?=[;/]|\Z)"
    # ASP.NET without cookies: /(S(24 characters))/ or, before version 2.0, /(24 characters)/
    r"|/\((?:[A-Z]\([^()/]*\))*S\([0-9a-z]{24}\)(?:[A-Z]\([^()/]*\))*\)(?=/)|/\([0-9a-z]{24}\)(?=/)",
    re.IGNORECASE,
)

# Escapes in need of a change: no escape at all, lower-case digits, or a character that needs none; and the
# characters that scrapy.Request escapes although the URL Standard does not. These are not a class of characters in the
# expression, because Python looks for alternatives that begin with a character twice as fast.
_ESCAPES = re.compile(
    r"%(?:(?![0-9A-F]{2})([0-9A-Fa-f]{2})?|(2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE]))"
    r"|\[|\]|\||\\|\^|\{|\}|`"
)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

_LABEL = re.compile(r"[a-z0-9_-]{1,63}").fullmatch
_LONGEST_NAME = 253
"""Characters of a host name, by RFC 1035."""

_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])").search

_MONTH = re.compile(
    # 2031-05, 2031/5; 203105, 20310517; 05/2031; year=2031
    r"(?<![0-9])([0-9]{4})(?:[-/_.](?:0?[1-9]|1[0-2])(?![0-9])|(?:0[1-9]|1[0-2])(?:[0-3][0-9])?(?![0-9]))"
    r"|(?<![0-9])(?:0?[1-9]|1[0-2])[-/_.]([0-9]{4})(?![0-9])|(?:year|yr)[=/]([0-9]{1,6})(?![0-9])"
)
_CALENDARS = (("calend", 1990), ("kalend", 1990), ("agenda", 1990), ("event", 0))
"""Words of calendars, and the first year that one with it may show: that of the Web; events of old times are history."""

_WEB = ("http://", "https://")
_NO_PORT = ":0"


def _nothing(_: str) -> str:
    return ""


def _without_root_dot(host: str) -> str:
    return host[:-1] if host[-1] == "." and host[-2:] not in (".", "..") else host


def _escape(match: re.Match[str]) -> str:
    """Normal form of an escape, or of a character that has to be one."""
    digits = match[1] or match[2]
    if digits is None:
        return f"%{ord(match[0]):02X}"
    character = chr(int(digits, 16))
    return character if character in _UNRESERVED else f"%{digits.upper()}"


in_one_form = partial(_ESCAPES.sub, _escape)
"""Gives all escapes of a part their normal form."""


def _without_session(path: str) -> str:
    return _SESSION_IN_PATH.sub("", path) if ";" in path or "(" in path else path


def _sorted(query: str) -> str:
    return f"?{'&'.join(sorted(query[1:].split('&')))}"


def _is_foreign(scheme: str) -> bool:
    return scheme not in _WEB


def _is_no_host(host: str) -> bool:
    """Whether *host* is neither an IPv6 address nor a name (or IPv4 address) that DNS and the downloader can carry."""
    if host[:1] == "[":
        return False
    name = host.removesuffix(".")
    if len(name) > _LONGEST_NAME or not all(map(_LABEL, name.split("."))):
        return True
    return "xn--" in name and not _is_decodable(name.encode())


def _is_decodable(name: bytes) -> bool:
    """Whether Twisted takes *name*, which has labels in Punycode: IDNA 2008, or 2003 for emoji and the like."""
    try:
        idna.decode(name)
    except UnicodeError:
        with suppress(UnicodeError):
            name.decode("idna")
            return True
        return False
    return True


def _is_no_port(port: str) -> bool:
    return port == _NO_PORT


def _may_be_inside(host: str) -> bool:
    """Whether *host* does not end as the name of a public one; nearly all do."""
    last = host[host.rfind(".") + 1 :]
    return len(last) == len(host) or last in LOCAL_ENDS or not last.isalpha()


def _is_inside(networks: Networks, host: str) -> bool:
    return _may_be_inside(host) and networks.refuses_host(host)


def _is_service(networks: Networks, host_and_port: str) -> bool:
    host, _, port = host_and_port.rpartition(":")
    return networks.refuses_port(host, int(port))


def _has_control(path: str) -> bool:
    return "%" in path and _CONTROL(path) is not None


def _has_nul(query: str) -> bool:
    return "%00" in query


def is_long(most: int, url: str) -> bool:
    """Whether *url* has more than *most* characters, without its fragment."""
    return len(url) > most and len(url.partition("#")[0]) > most


def _is_cyclic(segments: Sequence[str], most: int) -> bool:
    """Whether one to three segments come more than *most* times in a row."""
    for size in (1, 2, 3):
        run = 0
        for one, other in zip(segments, segments[size:], strict=False):
            run = run + 1 if one == other else 0
            if run >= size * most:
                return True
    return False


def _is_deep(most: int, path: str) -> bool:
    return path.count("/") > most


def _repeats(most: int, path: str) -> bool:
    return path.count("/") > most and _is_cyclic(path[1:].split("/"), most)


def _has_many_parameters(most: int, query: str) -> bool:
    return query.count("&") >= most


@lru_cache(maxsize=100)
def _last_parts(extensions: frozenset[str]) -> frozenset[str]:
    return frozenset(extension.rpartition(".")[2] for extension in extensions)


def _has_extension(extensions: frozenset[str], path: str) -> bool:
    """Whether the last segment of *path* ends in one of *extensions*, such as ``gz`` or ``tar.gz``."""
    if ";" not in path and path.rpartition(".")[2].lower() not in _last_parts(extensions):
        return False  # as of nearly all
    name = path[path.rfind("/") + 1 :]
    if ";" in name:
        name = name[: name.index(";")]
    if "." not in name:
        return False
    name = name.lower()
    last = name.rfind(".")
    return name[last + 1 :] in extensions or name[name.rfind(".", 0, last) + 1 :] in extensions


def _is_far_off(last_year: int, url: str) -> bool:
    """Whether *url* is a calendar's, of a month after *last_year* or from before the Web."""
    lower = url.lower()
    for word, first_year in _CALENDARS:
        if word in lower:
            years = (int(year) for groups in _MONTH.findall(lower) for year in groups if year)
            return any(not first_year <= year <= last_year for year in years)
    return False


def _is_outside(scope: Scope, host: str) -> bool:
    return scope.is_outside(host)


def _is_unwanted(scope: Scope, url: str) -> bool:
    return scope.is_unwanted(url)


RULES = (
    Rule("fragment", Default.ALWAYS, {Part.FRAGMENT: _nothing}),
    Rule("userinfo", Default.ALWAYS, {Part.USERINFO: _nothing}),
    Rule("root-dot", Default.ALWAYS, {Part.HOST: _without_root_dot}),
    Rule("percent", Default.BROAD, {Part.PATH: in_one_form, Part.QUERY: in_one_form}),
    Rule("empty-query", Default.BROAD, drops=Parameters(has_empty=True)),
    Rule("session", Default.BROAD, cuts=_without_session, drops=_SESSION),
    Rule("tracking", Default.BROAD, drops=_TRACKING),
    Rule("sort", Default.NEVER, {Part.QUERY: _sorted}),
    Rule("scheme", Default.ALWAYS, faults=[UrlFault(Part.SCHEME, _is_foreign, is_in_bare=False)]),
    Rule("host", Default.ALWAYS, faults=[UrlFault(Part.HOST, _is_no_host)]),
    Rule("port", Default.ALWAYS, faults=[UrlFault(Part.PORT, _is_no_port)]),
    Rule("network", Default.LIMIT, faults=[UrlFault(Part.HOST, _is_inside)], limit="networks"),
    Rule("service", Default.LIMIT, faults=[UrlFault(Part.HOST_AND_PORT, _is_service)], limit="networks"),
    Rule(
        "scope",
        Default.LIMIT,
        faults=[UrlFault(Part.HOST, _is_outside), UrlFault(Part.URL, _is_unwanted)],
        limit="scope",
    ),
    Rule(
        "control",
        Default.BROAD,
        faults=[
            UrlFault(Part.PATH, _has_control, is_in_bare=False),
            UrlFault(Part.QUERY, _has_nul, is_in_bare=False),
        ],
    ),
    Rule("length", Default.LIMIT, faults=[UrlFault(Part.URL, is_long, is_in_bare=False)], limit="max_length"),
    Rule("depth", Default.LIMIT, faults=[UrlFault(Part.PATH, _is_deep)], limit="max_depth"),
    Rule("repeats", Default.LIMIT, faults=[UrlFault(Part.PATH, _repeats)], limit="max_repeats"),
    Rule(
        "parameters",
        Default.LIMIT,
        faults=[UrlFault(Part.QUERY, _has_many_parameters)],
        limit="max_parameters",
    ),
    Rule("extension", Default.BROAD, faults=[UrlFault(Part.PATH, _has_extension)], limit="extensions"),
    Rule("calendar", Default.BROAD, faults=[UrlFault(Part.URL, _is_far_off)], limit="last_year"),
)
"""All rules."""

_NAMED = tuple(rule for rule in RULES if rule.default != Default.LIMIT)

CHANGES = tuple(rule.name for rule in _NAMED if not rule.faults)
"""Names of the rules that change a URL."""

REFUSALS = tuple(rule.name for rule in _NAMED if rule.faults)
"""Names of those that refuse one, besides the limits."""

LIMITS = ("length", "depth", "repeats", "parameters")
"""Names of the rules that refuse a URL with more than a number of something."""

PLAIN_RULES = tuple(rule.name for rule in _NAMED if rule.default == Default.ALWAYS)
"""Names of those that are in force with the scheduler alone."""

BROAD_RULES = tuple(rule.name for rule in _NAMED if rule.default != Default.NEVER)
"""Names of those that are in force in a broad crawl."""

FAULTS = {
    "invalid": "it is no URL",
    "scheme": "it is neither http nor https (AOPIC_URL_RULES: scheme)",
    "host": "no host can have that name (AOPIC_URL_RULES: host)",
    "port": "no host can have that port (AOPIC_URL_RULES: port)",
    "network": "its host is not on the Internet (AOPIC_ALLOW_NETWORKS)",
    "service": "its port is that of another service than the web's (AOPIC_ALLOW_NETWORKS)",
    "scope": "it is out of scope (AOPIC_SCOPE)",
    "control": "it has an escaped control character (AOPIC_URL_RULES: control)",
    "length": "it is too long (AOPIC_URL_LIMITS: length)",
    "depth": "its path has too many segments (AOPIC_URL_LIMITS: depth)",
    "repeats": "its path repeats itself (AOPIC_URL_LIMITS: repeats)",
    "parameters": "it has too many parameters (AOPIC_URL_LIMITS: parameters)",
    "extension": "of the end of its path (AOPIC_URL_RULES: extension)",
    "calendar": "it is a calendar's, of a month too far away (AOPIC_URL_RULES: calendar)",
    "user": "your own rule says so (AOPIC_URL_REWRITE)",
    "denied": "an operator has denied it ('scrapy aopic control JOB' shows the pattern)",
}
"""Why a URL is refused, in words, with the setting that says so."""
