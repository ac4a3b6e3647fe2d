"""What may be queued, under which URL, and which responses are read: the rules on URLs and types in a crawl."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import ReferenceType, WeakKeyDictionary, ref

from scrapy.settings import SETTINGS_PRIORITIES

from scrapy_aopic.exceptions import ANY_ERROR
from scrapy_aopic.request_errors import UnwantedTypeError
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.settings import read_normaliser, read_values
from scrapy_aopic.web.content_types import declared_type
from scrapy_aopic.web.networks import Networks
from scrapy_aopic.web.request_rows import PURPOSE, SEEDED
from scrapy_aopic.web.url_rules import FAULTS
from scrapy_aopic.web.urls import JudgedUrl, Normaliser

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http.headers import Headers

logger = logging.getLogger(__name__)

_CANNOT_BE = ("invalid", "scheme", "host", "port")
"""Reasons to refuse a row of a list of seeds: no errback would hear of the failure."""


_NETWORKS: WeakKeyDictionary[Crawler, ReferenceType[Networks]] = WeakKeyDictionary()


def networks_of(crawler: Crawler) -> Networks:
    """Where *crawler* may go: one for what queues requests and for what sends them, which have to keep it.

    Raises:
        SettingError: If its setting cannot be used.
    """
    known = _NETWORKS.get(crawler)
    networks = known() if known is not None else None
    if networks is None:
        networks = Networks(read_values(crawler.settings).allow_networks)
        _NETWORKS[crawler] = ref(networks)
    return networks


def is_of_seed(request: Request) -> bool:
    """Whether *request* is a seed: what an operator has named, and not where a host has redirected it.

    Elsewhere on itself, where the seed has named it, a host may do that anyway, but for another port of a service.
    """
    return request.meta.get(PURPOSE) == SEEDED and not request.meta.get("redirect_urls")


class Admission:
    """Gives links the normal form of their URL, and turns away those that are not worth fetching.

    What the spider requests on purpose (:func:`~.found_link.link_test`) is marked, and left as it is except for the
    spelling of its host. Refusals are counted, and the first for each reason is logged.

    Raises:
        SettingError: If one of its settings cannot be used.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        values = read_values(settings)
        self.is_read = values.content_types
        """Whether a response of a content type is read."""
        self._user_rewrite = values.url_rewrite
        self._first = FirstOnly(logger, crawler)
        self.refused: dict[str, int] = {}
        """URLs that were turned away, by reason; once a job is open, those of all of its runs."""
        addon = SETTINGS_PRIORITIES["addon"]
        self.lacks_cookies = (
            not settings.getbool("COOKIES_ENABLED") and settings.getpriority("COOKIES_ENABLED") == addon
        )
        rules = values.url_rules
        self._has_schemes = "scheme" in rules
        rewrite = self._rewrite if self._user_rewrite is not None else None
        self.networks = networks_of(crawler)
        self._normalise = read_normaliser(values, rewrite, self.networks)
        self._judge_anew: Callable[[str], JudgedUrl] = self._normalise if rewrite else self._normalise.judge
        self._denied: re.Pattern[str] | None = None
        self.networks.on_change(self._normalise.forget)
        # One host must have one name, or two requests would be sent to it at once.
        self._spell = Normaliser(
            rules & {"root-dot"}, rewrite=rewrite, max_length=0, max_depth=0, max_repeats=0, max_parameters=0
        )

    def deny(self, denied: re.Pattern[str] | None) -> None:
        """Turn away links to the URLs that *denied* finds, as an operator wants, and no longer to those denied before."""
        self._denied = denied
        self.networks.forget()

    def judge_link(self, url: str) -> JudgedUrl:
        """Judges the URL of a link, which the caller remembers if it can; nothing is counted."""
        return self._unless_denied(self._judge_anew(url))

    def _unless_denied(self, judged: JudgedUrl) -> JudgedUrl:
        if self._denied is None or judged.reason or not self._denied.search(judged.url):
            return judged
        return JudgedUrl(judged.url, "denied")

    def admit_link(self, request: Request, page: str) -> Request | None:
        """*request*, a link of the page with the URL *page*, as it is to be queued; ``None`` if it is turned away."""
        request.meta.pop(PURPOSE, None)  # a callback may have copied the meta of its page
        judged = self._unless_denied(self._normalise(request.url))
        if not judged.reason and judged.url == request.url:
            return request
        return self._follow(judged, request, page)

    @property
    def has_own_rule(self) -> bool:
        """Whether the user has a rule of their own (``AOPIC_URL_REWRITE``)."""
        return self._user_rewrite is not None

    def admit_judged(self, url: str, judged: JudgedUrl, page: str) -> bool:
        """Whether *url*, that of a link of the page with the URL *page*, is queued as it was *judged*, which is counted."""
        if judged.reason:
            self._refuse(judged, page)
            return False
        if judged.url != url:
            self._first.count("aopic/urls/changed")
        return True

    def admit(self, request: Request, page: str = "") -> Request | None:
        """*request*, which the spider makes on purpose, as it is to be queued; ``None`` if it is turned away.

        Args:
            page: URL of the page for which a callback yields it, ``""`` if none does.
        """
        # A callback may have copied the meta of its page.
        is_seed = not page and (request.meta.get(PURPOSE) == SEEDED or request.meta.get("is_start_request"))
        request.meta[PURPOSE] = SEEDED if is_seed else True
        if is_of_seed(request):
            self.networks.name(request.url)
        elif (page or "redirect_urls" in request.meta) and not request.errback:
            # An errback hears of it when it is to be sent, and what no page led to may be allowed by a later run.
            reason = self.networks.refusal(request.url, is_by_others=bool(request.meta.get("proxy")))
            if reason:
                self._refuse(JudgedUrl(request.url, reason), page)
                return None
        if self.lacks_cookies and (request.cookies or "cookiejar" in request.meta):
            self._miss_cookies(request)
        if request.method not in ("GET", "HEAD") or request.meta.get("verbatim_url"):
            return request
        return self._follow(self._judge(request, page), request, page)

    def _follow(self, judged: JudgedUrl, request: Request, page: str) -> Request | None:
        """*request* with the URL that *judged* wants; ``None`` if it is refused."""
        if judged.reason:
            self._refuse(judged, page)
            return None
        if judged.url == request.url:
            return request
        self._first.count("aopic/urls/changed")
        return request.replace(url=judged.url)

    def admit_target(self, request: Request) -> Request | None:
        """*request*, the target of a redirect, which is what the request was that was redirected."""
        return self.admit(request) if request.meta.get(PURPOSE) else self.admit_link(request, "")

    def admit_url(self, url: str) -> str | None:
        """Normal form of *url*, a row of a list of seeds; ``None`` if it is turned away."""
        judged = self._normalise(url)
        self.networks.name(judged.url)
        if judged.reason in (*_CANNOT_BE, "user"):
            self._refuse(judged, "")
            return None
        if judged.url != url:
            self._first.count("aopic/urls/changed")
        return judged.url

    def is_wanted(self, headers: Headers) -> bool:
        """Whether a response with *headers* may be of a content type that is read: if they say nothing, its body shows."""
        kind = declared_type(headers).essence
        return not kind or self.is_read(kind)

    def unwanted(self, url: str, content_type: str) -> UnwantedTypeError:
        """The error for the response from *url*, whose *content_type* is not read; the first one is logged."""
        self._first.warning(
            "content type",
            "Skipped the body of %(url)s: its content type %(kind)s is not in AOPIC_CONTENT_TYPES; later ones are only counted "
            "(aopic/outcomes/content type)",
            url=url,
            kind=content_type,
        )
        return UnwantedTypeError(f"{url} is {content_type}, which AOPIC_CONTENT_TYPES leaves out")

    def note_answer(self, request: Request, headers: Headers) -> None:
        """Warn if the response to *request*, such as a form that logs in, has cookies in its *headers*: they are not kept."""
        if self.lacks_cookies and request.method != "GET" and "Set-Cookie" in headers:
            self._miss_cookies(request)

    def _miss_cookies(self, request: Request) -> None:
        self._first.warning(
            "cookies",
            "%(url)s needs cookies, and they are neither sent nor kept, because the add-on turns them off: set "
            "COOKIES_ENABLED = True to log in. Further such requests are not logged",
            url=request.url,
        )

    def _judge(self, request: Request, page: str) -> JudgedUrl:
        """What is to be done with *request*, which the spider makes on purpose."""
        url = request.url
        if not url.startswith(("http://", "https://", "data:")) and page.startswith("http"):
            # The author of a page must not be able to make a crawler read local files, whatever the callback does.
            return JudgedUrl(url, "scheme" if self._has_schemes and not request.dont_filter else "")
        judged = self._spell(url)
        if judged.reason == "user" and not request.dont_filter:
            return judged
        return JudgedUrl(url if judged.reason == "invalid" else judged.url)  # the errback gets the failure

    def _refuse(self, judged: JudgedUrl, page: str) -> None:
        """Count a URL that is turned away; the first for each reason is logged."""
        reason = judged.reason
        self._first.count(f"aopic/urls/refused/{reason}")
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self._first.warning(
            reason,
            "%(url)s%(where)s is not queued, because %(why)s; further ones are only counted "
            "(aopic/urls/refused/%(reason)s)",
            url=judged.url,
            where=f" on {page}" if page else "",
            why=FAULTS[reason],
            reason=reason,
        )

    def _rewrite(self, url: str) -> str | None:
        """The user's rule on *url*; no change if it fails, which is counted and logged once."""
        assert self._user_rewrite is not None
        try:
            rewritten = self._user_rewrite(url)
            if rewritten is not None and not isinstance(rewritten, str):
                raise TypeError(f"{rewritten!r} is neither a URL nor None")
        except ANY_ERROR:  # logged once, whatever the user's function raises
            self._first.count("aopic/urls/unrewritten")
            self._first.exception(
                "rewrite",
                "AOPIC_URL_REWRITE fails on %(url)s, which is not rewritten; further ones are only counted "
                "(aopic/urls/unrewritten)",
                url=url,
            )
            return url
        return rewritten
