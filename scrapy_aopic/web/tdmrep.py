"""The ``/.well-known/tdmrep.json`` of an origin: for which of its paths rights to text and data mining are reserved.

1. It is a list of rules, each with a ``location``, a ``tdm-reservation`` of 1 or 0 and perhaps a ``tdm-policy``. A location
   is written and compared like the path of a rule in a robots.txt, with ``*`` and ``$``.
2. The first rule whose location matches counts, and no other, even if its reservation is neither 1 nor 0: then nothing is
   said. If none matches, nothing is said either.
3. What is no list says nothing; of a list, what is no rule is left out.
4. What a page, or its header, says comes before it (:mod:`.content_usage`).

It may have been written to be expensive, so what is compared with each URL is bounded as in a robots.txt.

Sources: "TDM Reservation Protocol", final report of the W3C community group, 2024, section "TDM File on the Origin Server".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from scrapy_aopic.core.printable import printable
from scrapy_aopic.core.robots.rules import LONGEST_RULE, PER_RULE, WILDCARDS, Pattern, path_of, pattern_of

from .content_usage import POLICY, RESERVATION

_BYTE_ORDER_MARK = "\ufeff".encode()

_SHOWN = 100
"""Characters that are shown of a location."""


class _Rule(NamedTuple):
    location: Pattern
    said: Mapping[str, str]


class TdmRules:
    """The rules in a *text*, in time linear in its bytes.

    Attributes:
        malformed: What means nothing; ``""`` if all of it means something.
    """

    def __init__(self, text: bytes) -> None:
        self.malformed = ""
        self._rules = list(self._read(text.removeprefix(_BYTE_ORDER_MARK)))

    def __len__(self) -> int:
        """Rules that count."""
        return len(self._rules)

    def find(self, url: str) -> Mapping[str, str]:
        """What is said of *url*, by the name of the header that would say the same; empty for nothing."""
        if not self._rules:  # as of most origins
            return {}
        path = path_of(url)
        return next((rule.said for rule in self._rules if rule.location.fits(path)), {})

    def _read(self, text: bytes) -> Iterator[_Rule]:
        if not text.strip():  # there is no such file
            return
        try:
            rules: Any = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            rules = None
        if not isinstance(rules, list):
            self.malformed = "no list of rules"
            return
        budget = WILDCARDS
        for rule in rules:
            location = rule.get("location") if isinstance(rule, dict) else None
            if (
                not isinstance(location, str)
                or location[:1] not in ("/", "*")
                or len(location) > LONGEST_RULE
            ):
                self.malformed = "a rule without a location that begins with / or *"
                continue
            path = location.encode("utf-8", "surrogatepass").decode("latin-1")
            budget -= len(path) + PER_RULE
            if budget < 0:
                self.malformed = f"more rules than are read, from {_shown(location)}"
                return
            said = _said(rule)
            if not said:
                self.malformed = f"a {RESERVATION} that is neither 1 nor 0, of {_shown(location)}"
            yield _Rule(pattern_of(path), said)


def _shown(location: str) -> str:
    """*location* as it may be shown on a terminal."""
    return printable(location[:_SHOWN])


def _said(rule: Mapping[str, Any]) -> Mapping[str, str]:
    """What *rule* says; empty if its reservation means nothing."""
    reservation, policy = rule.get(RESERVATION), rule.get(POLICY)
    if not isinstance(reservation, (int, str)) or str(reservation) not in {"0", "1"}:
        return {}
    return {RESERVATION: str(reservation)} | ({POLICY: policy} if isinstance(policy, str) else {})
