"""Which links a crawl follows, by lists of hosts, by patterns and by the languages of pages: one look into a dictionary for each host, however many there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from .origins import host_name

LANGUAGE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
"""A language in lower case, such as ``de`` or ``pt-br``."""


class Scope:
    """What is in scope; a name stands for the host of that name and for all hosts below it, so that ``de`` is a country.

    Of the names that cover a host the nearest one counts. A host that none covers is in scope if nothing is allowed by name.

    Args:
        allow, deny: Names of hosts.
        allow_urls: Patterns of which one must be found in a URL, if there are any.
        deny_urls: Patterns of which none may be found.
        languages: Languages of pages, in lower case; none for any.
    """

    def __init__(
        self,
        allow: Collection[str] = (),
        deny: Collection[str] = (),
        allow_urls: Sequence[re.Pattern[str]] = (),
        deny_urls: Sequence[re.Pattern[str]] = (),
        languages: Collection[str] = (),
    ) -> None:
        self.languages = frozenset(languages)
        self._allow, self._deny = frozenset(allow), frozenset(deny)
        self._allow_urls, self._deny_urls = allow_urls, deny_urls
        self._has_patterns = bool(allow_urls or deny_urls)

    def is_outside(self, host: str) -> bool:
        """Whether the host of a name is out of scope."""
        name = self._nearest(host)
        return name in self._deny if name else bool(self._allow)

    def _nearest(self, host: str) -> str:
        """The nearest name that covers *host*; empty if none does."""
        name = host
        while name and name not in self._allow and name not in self._deny:
            name = name.partition(".")[2]
        return name

    def is_unwanted(self, url: str) -> bool:
        """Whether *url* is out of scope by the patterns."""
        if not self._has_patterns:
            return False
        if self._allow_urls and not any(pattern.search(url) for pattern in self._allow_urls):
            return True
        return any(pattern.search(url) for pattern in self._deny_urls)

    def is_foreign(self, declared: str) -> bool:
        """Whether none of the languages in *declared*, such as ``de-AT, en``, is wanted; a wanted one stands for all kinds of it.

        RFC 5646 has the tags, RFC 4647 (basic filtering) says which are kinds of another.
        """
        for each in declared.lower().replace("_", "-").split(","):
            tag = each.strip()
            while tag:
                if tag in self.languages:
                    return False
                tag = tag.rpartition("-")[0]
        return bool(self.languages)

    def why(self, url: str) -> str:
        """Why *url*, in normal form, is out of scope, as a clause; empty if it is not."""
        host = host_name(url)
        if self.is_outside(host):
            name = self._nearest(host)
            return f'"deny" has {name}' if name else f'"allow" has no name that covers {host}'
        if not self.is_unwanted(url):
            return ""
        found = next((each.pattern for each in self._deny_urls if each.search(url)), None)
        return f'"deny_urls" has {found!r}' if found is not None else '"allow_urls" has no pattern for it'
