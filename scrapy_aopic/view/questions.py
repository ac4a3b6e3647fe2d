"""Questions that take a look at the store: answered from a snapshot of it, in the thread that was asked."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from scrapy_aopic.place.file_formats import CHUNK
from scrapy_aopic.place.stored_control import read_control
from scrapy_aopic.web.suffixes import registered_domain

from .dropped import Sample, dropped_in
from .job_view import View, open_view
from .queries import each_site, hosts_by, hosts_in, top_pages
from .shard_states import read_states
from .traps import Trap, find_traps
from .url_settings import CrawlRules
from .why import Explanation, say_dropped
from .why_in_shards import say_control, why_in_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy_aopic.place.place import Place

    from .snapshot import HostRow

_LONGEST = 8192
"""Characters of a question: more than a URL that is crawled has."""


class Questions:
    """Answers for the job at *job*, in one piece or in shards.

    Args:
        settings: The settings of its crawl, for the rules on URLs.
        dropped: Returns samples of dropped links, ``None`` for none; by default those in the job folder.
    """

    def __init__(
        self,
        job: Place,
        settings: Mapping[Any, Any],
        dropped: Callable[[], Mapping[str, Sample] | None] | None = None,
    ) -> None:
        self._dropped = dropped or self._read_dropped
        self._job = job
        self._settings = settings
        self._rules: CrawlRules | None = None

    def top_pages(self, n: int) -> list[dict[str, Any]]:
        """The *n* most important pages.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return [row._asdict() for row in top_pages(view, n)]

    def top_domains(self, n: int, *, has_importance: bool = False) -> dict[str, Any]:
        """How fetches are spread over domains; see :func:`top_domains`.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return top_domains(view, n, has_importance=has_importance)

    def traps(self) -> list[Trap]:
        """Parts of sites that may be traps.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return find_traps(view, str(self._job))

    def hosts(self, kind: str, n: int, part: str) -> list[HostRow]:
        """The *n* hosts that come first of a *kind*, of those with *part* in their names.

        Raises:
            StorageError: If the store cannot be read.
        """
        with open_view(self._job) as view:
            return hosts_by(view, kind, n, part)

    def _read_dropped(self) -> Mapping[str, Sample] | None:
        folder = self._job.folder
        return dropped_in(folder) if folder is not None else None

    def why(self, question: str) -> Explanation:
        """Why a URL, or a host, is crawled or not.

        Raises:
            StorageError: If the store cannot be read.
            SettingError: If the rules of the crawl cannot be known.
        """
        rules = self._rules = self._rules or CrawlRules(self._settings)
        with open_view(self._job) as view:
            states = read_states(self._job)
            found = why_in_shards(view, question[:_LONGEST], rules, states.workers() if states else None)
        samples = self._dropped()
        if samples is not None:
            say_dropped(found, samples, rules)
        say_control(found, rules, read_control(self._job))
        return found


def top_domains(view: View, n: int, *, has_importance: bool = False) -> dict[str, Any]:
    """How fetches are spread over domains.

    Looks at all hosts, and with *has_importance* at all pages.

    Returns:
        ``domains``: the *n* registered domains of which most pages were fetched, most fetched first, and one row, without a
        name, for all others: ``domain``, ``hosts``, ``visited`` (or failed), ``queued`` and ``importance``, that of their
        pages together, which is ``None`` unless *has_importance*.
    """
    found: dict[str, list[int]] = {}
    for host in hosts_in(view):
        sums = found.setdefault(registered_domain(host.name), [0, 0, 0])
        sums[0] += 1
        sums[1] += host.visited
        sums[2] += host.queued
    importance = _importance(view) if has_importance else None
    sorted_ = sorted(found.items(), key=lambda pair: (-pair[1][1], -pair[1][2], pair[0]))
    rows = [
        _row(name, sums, importance.get(name, 0.0) if importance is not None else None)
        for name, sums in sorted_[:n]
    ]
    if len(sorted_) > n:
        rest = dict(sorted_[n:])
        left = sum(importance.get(name, 0.0) for name in rest) if importance is not None else None
        rows.append(_row("", [sum(column) for column in zip(*rest.values(), strict=True)], left))
    return {"domains": rows}


def _importance(view: View) -> dict[str, float]:
    """The importance of all pages of each registered domain added up, as a part of that of all pages."""
    found: dict[str, float] = {}
    for row in chain.from_iterable(each_site(view, CHUNK)):
        domain = registered_domain(row.host)
        found[domain] = found.get(domain, 0.0) + row.importance
    return found


def _row(name: str, sums: Iterable[int], importance: float | None) -> dict[str, Any]:
    hosts, visited, queued = sums
    return {"domain": name, "hosts": hosts, "visited": visited, "queued": queued, "importance": importance}
