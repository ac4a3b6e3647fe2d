"""Whether the pages of a job can be visited again as often as its settings ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .queries import hosts_in
from .text import duration

if TYPE_CHECKING:
    from scrapy_aopic.core.host_rules import HostRules
    from scrapy_aopic.core.politeness import Politeness
    from scrapy_aopic.core.revisits import Recrawl

    from .job_view import View

_DAY = 86_400.0


class Deadline(NamedTuple):
    """Pages that are to be visited again in time.

    Attributes:
        host: Whose they are; empty for those of all hosts.
        pages: How many of them were visited; before anything of their host was, those that are queued.
        wanted: Visits a day that this takes.
        possible: Visits a day that the gaps of the host allow; of all hosts, those that the crawl has made.
    """

    host: str
    pages: int
    wanted: float
    possible: float


def deadlines(
    view: View, recrawl: Recrawl, rules: HostRules, politeness: Politeness, rate: float
) -> list[Deadline]:
    """All hosts together, of which the crawl makes *rate* visits a second, and each host that is too slow, the worst first."""
    pages, wanted, slow = 0, 0.0, []
    for host in hosts_in(view):
        n, own = host.visited or host.queued, recrawl.under(rules.of(host.name))
        gap = max(politeness.of(host.name).gap(host.transfer), politeness.crawl_delay(host))
        possible = _DAY * politeness.at_once(host) / max(host.transfer + gap, 1e-3)
        each = Deadline(host.name, n, n * _DAY / (own.every or own.max_interval), possible)
        pages, wanted = pages + n, wanted + each.wanted
        if each.wanted > possible:
            slow.append(each)
    slow.sort(key=lambda each: each.possible / each.wanted)
    return [Deadline("", pages, wanted, rate * _DAY), *slow]


def format_deadlines(found: list[Deadline], share: float, n: int) -> str:
    """*found* by :func:`deadlines` in sentences, *n* hosts at most; *share* is the part of visits that are revisits."""
    whole, *slow = found
    verdict = f"the least important ones come {whole.wanted / max(whole.possible, 1e-9):,.1f} times as late."
    if whole.wanted <= whole.possible:
        verdict = f"that holds{' once no new pages wait' * (whole.wanted > share * whole.possible)}."
    lines = [
        f"{each.host}: {each.pages:,} pages take {each.wanted:,.0f} visits a day, and its gaps allow {each.possible:,.0f}: "
        f"{duration(each.pages * _DAY / each.possible)} can be held."
        for each in slow[:n]
    ]
    text = (
        f"{whole.pages:,} pages take {whole.wanted:,.0f} revisits a day (AOPIC_RECRAWL, and revisit in AOPIC_HOST_RULES). The "
        f"crawl makes {whole.possible:,.0f} visits a day, {share:.0%} of them revisits while new pages wait: "
    )
    return "\n".join([text + (verdict if whole.possible else "its speed is not known yet."), *lines])
