"""Options of single hosts, and the rules that give them.

A rule is written for a *name* or for a *pattern*. A name stands for the host of that name and for all hosts below it, as in
:mod:`.operator_control`; a pattern has ``*``, ``?`` or ``[...]``, as file names do. Several rules may hold for a host. Each option then
comes from the first of these that has it:

1. the rule of the host's own name, that of the nearest name above it, and so on;
2. the patterns that match, in the order in which they are written.

What none of them has is as in the rest of the crawl.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, NamedTuple

_REMEMBERED = 50_000
"""Hosts whose options are remembered, some 10 MB: to look them up takes a few microseconds, and more with many patterns."""


class HostRule(NamedTuple):
    """Options that differ for some hosts; ``None`` for those that do not.

    Attributes:
        factor, min_gap, max_gap: As in :class:`~.politeness.Politeness`.
        connections: Transfers from the host that may be under way at once.
        bytes_per_second: Bytes of a transfer for each second of the gap after it, which is no shorter.
        revisit: Shortest and longest time between two visits of a page, in seconds.
        budget: Part of all fetches that a registered domain may take.
        worth: Seeds' cash that the first page of the host gets when the crawl learns of it.
        pages: Pages of the host that are visited at most, failed ones included.
        depth: Links from a seed to a page of the host, at most.
        spread: Whether each host of a registered domain may be in another shard of the job.
    """

    factor: float | None = None
    min_gap: float | None = None
    max_gap: float | None = None
    connections: int | None = None
    bytes_per_second: float | None = None
    revisit: tuple[float, float] | None = None
    budget: float | None = None
    worth: float | None = None
    pages: int | None = None
    depth: int | None = None
    spread: bool | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options that it has, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def gap_after(self, n_bytes: int) -> float:
        """Seconds for which the host is left alone at least after a transfer of *n_bytes*."""
        return n_bytes / self.bytes_per_second if self.bytes_per_second else 0.0


class Source(NamedTuple):
    """Where an option of a host comes from: the *name* or pattern of a rule, and the *value* there."""

    name: str
    value: Any


class HostRules:
    """The rules of a crawl, by *names* and by *patterns*; see the head of this module.

    Attributes:
        of: The options of the host of a name, ``None`` if no rule applies to it.
        options: The options that at least one rule sets.
        used: Names and patterns that applied to a host given to :attr:`of`.
    """

    def __init__(
        self, names: Mapping[str, HostRule] | None = None, patterns: Iterable[tuple[str, HostRule]] = ()
    ) -> None:
        self._names = dict(names or {})
        self._patterns = [(text, re.compile(translate(text)).match, rule) for text, rule in patterns]
        self.options = frozenset(option for rule in self.all.values() for option in rule.options)
        self.used: set[str] = set()
        self.of = lru_cache(_REMEMBERED)(self._of)

    def __reduce__(self) -> tuple[type[HostRules], tuple[Any, ...]]:
        return HostRules, (self._names, [(text, rule) for text, _, rule in self._patterns])

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._names or self._patterns)

    @property
    def all(self) -> dict[str, HostRule]:
        """All rules, by name or pattern."""
        return {**self._names, **{text: rule for text, _, rule in self._patterns}}

    @property
    def budgets(self) -> dict[str, float]:
        """Budgets by name: those of registered domains, which are no patterns."""
        return {name: rule.budget for name, rule in self._names.items() if rule.budget is not None}

    @property
    def spread(self) -> frozenset[str]:
        """Registered domains of which each host may be in another shard."""
        return frozenset(name for name, rule in self._names.items() if rule.spread)

    def holding(self, host: str) -> Iterator[tuple[str, HostRule]]:
        """The rules that hold for *host* with their names, those first that take precedence."""
        name = host
        while name:
            if name in self._names:
                yield name, self._names[name]
            name = name.partition(".")[2]
        for text, matches, rule in self._patterns:
            if matches(host):
                yield text, rule

    def sources(self, host: str) -> dict[str, Source]:
        """Each option of *host*, with where it comes from."""
        found: dict[str, Source] = {}
        for name, rule in self.holding(host):
            for option, value in rule.options.items():
                found.setdefault(option, Source(name, value))
        return found

    def giving(self, option: str) -> Callable[[str], Any] | None:
        """Gives the *option* of the host of a name, ``None`` if no rule sets it there; ``None`` if no rule sets it at all."""
        return (lambda host: getattr(self.of(host), option, None)) if option in self.options else None

    def _of(self, host: str) -> HostRule | None:
        names = [name for name, _ in self.holding(host)]
        self.used.update(names)
        options = {option: source.value for option, source in self.sources(host).items()}
        return HostRule(**options) if names else None


NO_RULES = HostRules()
"""All hosts are treated alike."""
