"""URLs in normal form, and the reason why one is not worth a place in the queue; docs/urls.md has every rule.

Parsing, host names and serialisation are those of the URL Standard (``ada_url``); the rest are rules of our own.
Nothing here raises, whatever the text: a URL that cannot be used is a value with a reason, too.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import idna
from ada_url import normalize_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

CHANGES = ("fragment", "userinfo", "root-dot", "percent", "empty-query", "session", "tracking", "sort")
"""Rules that change a URL, in the order in which they are documented."""

REFUSALS = ("scheme", "host", "port", "control", "calendar")
"""Rules that refuse one, besides the limits."""

BROAD_RULES = tuple(name for name in (*CHANGES, *REFUSALS) if name != "sort")
"""What a broad crawl wants, and the add-on sets."""

PLAIN_RULES = ("fragment", "userinfo", "root-dot", "scheme", "host", "port")
"""Those that neither change what a server is asked for, nor refuse what can be."""

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

_TRACKING = frozenset(" ".join(TRACKING.values()).split())
_TRACKING_STARTS = ("utm_", "hsa_", "mtm_")

# Parameters that are a session whatever their value, and those that are one if the value looks drawn by lot. From
# Heritrix (StripSessionIDs, StripSessionCFIDs) and Nutch (regex-normalize).
_SESSION = frozenset(("phpsessid", "jsessionid", "cfid", "cftoken", "oscsid", "zenid"))
_SESSION_STARTS = ("aspsessionid",)
_SESSION_MAYBE = frozenset(("sid", "s", "sessid", "sessionid", "session_id", "bv_sessionid", "lsid", "jsid"))
_DRAWN = r"(?=[^&;/]*[0-9])[0-9A-Za-z]{24,}|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_IS_DRAWN = re.compile(_DRAWN).fullmatch
_SESSION_IN_PATH = re.compile(
    rf";(?:jsessionid|phpsessid)=[^;/]*|;(?:sid|sessionid)=(?:{_DRAWN})(?=[;/]|\Z)"
    # ASP.NET without cookies: /(S(24 characters))/ or, before version 2.0, /(24 characters)/
    r"|/\((?:[A-Z]\([^()/]*\))*S\([0-9a-z]{24}\)(?:[A-Z]\([^()/]*\))*\)(?=/)|/\([0-9a-z]{24}\)(?=/)",
    re.IGNORECASE,
)

# What ada_url makes of an http URL; each part has its punctuation, so that a URL is their concatenation.
_HREF = re.compile(r"(https?://)([^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)(:[0-9]+)?(/[^?#]*)(\?[^#]*)?(#.*)?")

# What most URLs look like: nothing in them has another form, whoever looks for one. A host whose last label begins
# with a digit may be a number, and one with "xn--" must be decodable.
_PLAIN = re.compile(
    r"https?://((?:(?!xn--)[a-z0-9][a-z0-9-]*\.)*(?!xn--)[a-z][a-z0-9-]*)((?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?)"
)

_LABEL = re.compile(r"[a-z0-9_-]{1,63}").fullmatch

# Escapes in need of a change: no escape at all, lower-case digits, or a character that needs none; and the
# characters that scrapy.Request escapes although the URL Standard does not.
_ESCAPES = re.compile(
    r"%(?:(?![0-9A-F]{2})([0-9A-Fa-f]{2})?|(2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE]))|[\[\]|\\^{}`]"
)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

_CONTROL = re.compile(r"%(?:[01][0-9A-Fa-f]|7[Ff])").search

_CALENDARS = ("calend", "kalend", "agenda")
_MONTH = re.compile(
    # 2031-05, 2031/5; 203105, 20310517; 05/2031; year=2031
    r"(?<![0-9])([0-9]{4})(?:[-/_.](?:0?[1-9]|1[0-2])(?![0-9])|(?:0[1-9]|1[0-2])(?:[0-3][0-9])?(?![0-9]))"
    r"|(?<![0-9])(?:0?[1-9]|1[0-2])[-/_.]([0-9]{4})(?![0-9])|(?:year|yr)[=/]([0-9]{1,6})(?![0-9])"
)
_FIRST_YEAR = 1990

REMEMBERED = 20_000
"""URLs of which is remembered what was worked out: some 8 MB."""

_LONGEST = 65_536
_LONGEST_OTHER = 4096
"""Characters of a URL that is parsed, if they are all ASCII and if not."""

SHORT = 500
"""Characters of the longest URL that is remembered."""


class Verdict(NamedTuple):
    """What is to be done with a URL.

    Attributes:
        url: Its normal form; the text itself if it has none.
        reason: Why it is not to be queued, in one word; ``""`` if it is.
    """

    url: str
    reason: str = ""


class Normaliser:
    """Gives a URL its normal form, or says why it is not to be queued. Never raises if *rewrite* does not.

    A normal form is its own normal form, and :class:`scrapy.Request` leaves it as it is.

    Args:
        rules: Names from :data:`CHANGES` and :data:`REFUSALS`.
        rewrite: Rule of the user: gets a URL in normal form and returns another one, or ``None`` to refuse it.
        max_length: Longest URL, without its fragment; this limit and the next three do not count if they are 0.
        max_depth: Most segments of the path.
        max_repeats: Most times in a row that a segment, or a cycle of two or three, may come.
        max_parameters: Most parameters of the query.
        extensions: Endings of file names, in lower case and without their dot, that are refused.
        last_year: Last year that calendars are followed into; ``None`` for any.
    """

    def __init__(
        self,
        rules: Iterable[str] = BROAD_RULES,
        *,
        rewrite: Callable[[str], str | None] | None = None,
        max_length: int = 2083,
        max_depth: int = 20,
        max_repeats: int = 3,
        max_parameters: int = 20,
        extensions: frozenset[str] = frozenset(),
        last_year: int | None = None,
    ) -> None:
        on = frozenset(rules)
        self._fragment = "fragment" in on
        self._userinfo = "userinfo" in on
        self._root_dot = "root-dot" in on
        self._percent = "percent" in on
        self._empty_query = "empty-query" in on
        self._session = "session" in on
        self._tracking = "tracking" in on
        self._sort = "sort" in on
        self._scheme = "scheme" in on
        self._host = "host" in on
        self._port = "port" in on
        self._control = "control" in on
        self._last_year = last_year if "calendar" in on else None
        self._cleans_query = self._empty_query or self._session or self._tracking
        self._judged = lru_cache(REMEMBERED)(
            self._judge
        )  # most links are to pages that others link to as well
        self._rewrite = rewrite
        self._max_length = max_length
        self._max_depth = max_depth
        self._max_repeats = max_repeats
        self._max_parameters = max_parameters
        self._extensions = extensions

    def __call__(self, url: str) -> Verdict:
        """What is to be done with *url*."""
        judge = self._judged if len(url) <= SHORT else self._judge
        verdict = judge(url)
        if self._rewrite is None or verdict.reason in ("invalid", "scheme"):
            return verdict
        rewritten = self._rewrite(verdict.url)
        if rewritten is None:
            return Verdict(verdict.url, "user")
        return verdict if rewritten == verdict.url else self._judge(rewritten)

    def _judge(self, url: str) -> Verdict:
        if self._is_long(url):  # before anything looks at all of it
            return Verdict(url, "length")
        plain = _PLAIN.fullmatch(url)
        if plain is not None and plain[2]:
            return Verdict(url, next(self._faults(url, plain[1], "", plain[2], ""), ""))
        text = url
        while True:
            try:
                href = normalize_url(text)
            except ValueError:
                return Verdict(url, "invalid")
            match = _HREF.fullmatch(href)
            if match is None:
                return Verdict(url, "scheme" if self._scheme else "")
            scheme, userinfo, host, port, path, query, fragment = match.groups("")
            if self._percent:
                path = _ESCAPES.sub(_escape, path)
            cut = _SESSION_IN_PATH.sub("", path) if self._session and (";" in path or "(" in path) else path
            if cut == path:
                break
            text = f"{scheme}{userinfo}{host}{port}{cut}{query}{fragment}"  # may have new dot segments
        if self._root_dot and host[-1:] == "." and host[-2:] not in (".", ".."):
            host = host[:-1]
        if query:
            query = self._query(query)
        if self._userinfo:
            userinfo = ""
        if self._fragment:
            fragment = ""
        url = f"{scheme}{userinfo}{host}{port}{path}{query}{fragment}"
        return Verdict(url, next(self._faults(url, host, port, path, query), ""))

    def _is_long(self, url: str) -> bool:
        return 0 < self._max_length < len(url) and len(url.partition("#")[0]) > self._max_length

    def _query(self, query: str) -> str:
        """Normal form of *query*, which begins with its question mark."""
        if self._percent:
            query = _ESCAPES.sub(_escape, query)
        parameters = query[1:].split("&")
        if self._cleans_query:
            parameters = [parameter for parameter in parameters if not self._drops(parameter)]
            if not parameters:
                return ""
        if self._sort:
            parameters.sort()
        return f"?{'&'.join(parameters)}"

    def _drops(self, parameter: str) -> bool:
        name, _, value = parameter.partition("=")
        if not parameter:
            return self._empty_query
        name = name.lower()
        if self._tracking and (name in _TRACKING or name.startswith(_TRACKING_STARTS)):
            return True
        return self._session and (
            name in _SESSION
            or name.startswith(_SESSION_STARTS)
            or (name in _SESSION_MAYBE and _IS_DRAWN(value) is not None)
        )

    def _faults(self, url: str, host: str, port: str, path: str, query: str) -> Iterator[str]:
        """Reasons not to queue *url*, which is in normal form, the plainest first."""
        if self._host and not _is_host(host):
            yield "host"
        if self._port and port == ":0":
            yield "port"
        if self._control and "%" in url and (_CONTROL(path) or "%00" in query):
            yield "control"
        if self._is_long(url):
            yield "length"
        depth = path.count("/")
        if 0 < self._max_depth < depth:
            yield "depth"
        if 0 < self._max_repeats < depth and _is_cyclic(path[1:].split("/"), self._max_repeats):
            yield "repeats"
        if 0 < self._max_parameters <= query.count("&"):
            yield "parameters"
        if self._extensions and self._has_extension(path):
            yield "extension"
        if self._last_year is not None and _is_far_off(url, self._last_year):
            yield "calendar"

    def _has_extension(self, path: str) -> bool:
        """Whether the last segment ends in one of the extensions, such as ``gz`` or ``tar.gz``."""
        name = path[path.rfind("/") + 1 :].partition(";")[0]
        if "." not in name:
            return False
        endings = name.lower().split(".")
        return endings[-1] in self._extensions or ".".join(endings[-2:]) in self._extensions


def is_parsable(url: str) -> bool:
    """Whether any parser may be given *url*, which a stranger wrote.

    Python brings host names to a normal form (NFKC) whenever it splits a URL, and takes a time for some that is
    quadratic in their length: 0.01 s for what is allowed here, and minutes for a megabyte. None of these is a page:
    escaped, it is longer than any that servers take.
    """
    return len(url) <= (_LONGEST if url.isascii() else _LONGEST_OTHER)


def plain_host(url: str) -> str:
    """Host of *url* if it is plain: in normal form for us, the URL Standard and w3lib; ``""`` if it may be not."""
    plain = _PLAIN.fullmatch(url)
    return plain[1] if plain is not None and plain[2] else ""


def _escape(match: re.Match[str]) -> str:
    """Normal form of an escape, or of a character that has to be one."""
    digits = match[1] or match[2]
    if digits is None:
        return f"%{ord(match[0]):02X}"
    character = chr(int(digits, 16))
    return character if character in _UNRESERVED else f"%{digits.upper()}"


@lru_cache(maxsize=10_000)
def _is_host(host: str) -> bool:
    """Whether *host* is an IPv6 address, or a name (or IPv4 address) that DNS and the downloader can carry."""
    if host[:1] == "[":
        return True
    name = host.removesuffix(".")
    if len(name) > 253 or not all(map(_LABEL, name.split("."))):
        return False
    return "xn--" not in name or _is_decodable(name.encode())


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


def _is_cyclic(segments: Sequence[str], most: int) -> bool:
    """Whether one to three segments come more than *most* times in a row."""
    for size in (1, 2, 3):
        run = 0
        for one, other in zip(segments, segments[size:], strict=False):
            run = run + 1 if one == other else 0
            if run >= size * most:
                return True
    return False


def _is_far_off(url: str, last_year: int) -> bool:
    """Whether *url* is a calendar's, of a month after *last_year* or from before the Web."""
    lower = url.lower()
    is_calendar = any(word in lower for word in _CALENDARS)
    if not is_calendar and "event" not in lower:
        return False
    first_year = _FIRST_YEAR if is_calendar else 0  # events of old times may be history
    years = (int(year) for groups in _MONTH.findall(lower) for year in groups if year)
    return any(not first_year <= year <= last_year for year in years)
