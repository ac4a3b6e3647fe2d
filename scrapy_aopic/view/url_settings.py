"""The settings on URLs that ``why`` needs beside a store: normal form, refusals, and the user agent for robots.txt."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_aopic.settings import read_normaliser, read_values
from scrapy_aopic.web.networks import Networks
from scrapy_aopic.web.origins import origin_of
from scrapy_aopic.web.robots_parser import Rfc9309RobotParser
from scrapy_aopic.web.url_rules import FAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_aopic.core.host_rules import Source


class Normal(NamedTuple):
    """The result of the rules on URLs for one URL.

    Attributes:
        url: Its normal form.
        refused: Why it is not queued, as a clause with the setting; empty if it is queued.
        is_for_all: Whether it is refused also if a spider requests it on purpose.
    """

    url: str
    refused: str = ""
    is_for_all: bool = False


class CrawlRules:
    """The rules of a crawl with *settings*, as :func:`~.why.why` needs them.

    Page keys are those of Scrapy's own fingerprinter: pages of a crawl with another one are not found by their URL.

    Raises:
        SettingError: If a setting cannot be used.
    """

    def __init__(self, settings: Mapping[Any, Any]) -> None:
        values = read_values(settings)
        self._user_rule = values.url_rewrite
        self._networks = Networks(values.allow_networks)
        self._normalise = read_normaliser(
            values, self._rewrite if self._user_rule is not None else None, self._networks
        )
        self._scope = values.scope
        self._networks.on_change(self._normalise.forget)
        self._host_rules = values.host_rules
        self._obeys = bool(settings.get("ROBOTSTXT_OBEY"))
        self._user_agent = str(settings.get("ROBOTSTXT_USER_AGENT") or settings.get("USER_AGENT") or "*")

    def _rewrite(self, url: str) -> str | None:
        assert self._user_rule is not None
        with suppress(Exception):  # a crawl leaves the URL as it is then, too
            return self._user_rule(url)
        return url

    def normal(self, url: str) -> Normal:
        """Apply the rules on URLs to *url*, found as a link."""
        verdict = self._normalise(url)
        if not verdict.reason:
            return Normal(verdict.url)
        refused = FAULTS[verdict.reason]
        if verdict.reason == "scope" and self._scope is not None:
            refused = f"{refused}: {self._scope.why(verdict.url)}"
        return Normal(verdict.url, refused, is_for_all=verdict.reason in ("network", "service"))

    def allow(self, host: str, what: int) -> None:
        """A seed of the job has allowed *what* of *host*."""
        self._networks.admit(host, what)

    def allows(self, robots_txt: bytes, url: str) -> bool:
        """Whether *robots_txt* lets the crawl fetch *url*; it does if the crawl does not obey it."""
        return not self._obeys or Rfc9309RobotParser(robots_txt).allowed(url, self._user_agent)

    def options_of(self, host: str) -> dict[str, Source]:
        """The options that the host called *host* has of its own, with where they come from."""
        return self._host_rules.sources(host)

    def origin_of(self, url: str) -> str:
        """The origin whose robots.txt holds for *url*."""
        scheme, _, rest = url.partition("://")
        for end in "/?#":
            rest = rest.partition(end)[0]
        return origin_of(scheme, rest)
