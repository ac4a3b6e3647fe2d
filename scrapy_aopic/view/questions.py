"""Questions that take a look at the store: answered from a snapshot of it, in the thread that was asked.

Of a job of several shards the shard of a host says what it knows of it, and letters on their way to it are looked through.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from scrapy_aopic.core.shards.cut import Cut, ShardId
from scrapy_aopic.core.shards.letters import Letter, host_bytes
from scrapy_aopic.place.file_formats import CHUNK
from scrapy_aopic.place.stored_control import read_control, time_of
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_keys import key_of_url

from .dropped import Sample, dropped_in
from .job_view import View, on_their_way, open_view
from .queries import each_site, hosts_by, hosts_in, top_pages
from .shard_states import read_states
from .traps import Trap, find_traps
from .url_settings import CrawlRules
from .why import Explanation, meant, say_dropped, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from scrapy_aopic.core.operator_control import Control
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


def why_in_shards(
    view: View, question: str, rules: CrawlRules, workers: Sequence[str] | None = None
) -> Explanation:
    """Answer *question*, a URL or the name of a host, for the job in *view*; for one store it is :func:`scrapy_aopic.view.why.why`.

    Args:
        workers: The worker of each shard, if that is known; empty for a shard that no worker has.

    Raises:
        StorageError: If a store cannot be read.
    """
    stores = view.stores
    if len(stores) == 1:
        return why(stores[0], question, rules, view.calibration)
    question = meant(question)
    host, keys = _subject(question, rules)
    number = Cut(ShardId(0, len(stores)), registered_domain).of_host(host)
    answer = why(stores[number], question, rules, view.calibration)
    letters, units = [], 0
    for letter in on_their_way(stores, number):
        if (about := _units_in(letter, host, keys)) is not None:
            letters.append((letter.sender, letter.number))
            units += about
    answer.facts.update(shard=number, letters=letters)
    if letters:
        ways = _ways(letters, number)
        answer.facts["units"] = units
        if answer.kind == "unknown":
            answer.kind, what = "in a letter", "It" if keys else "A page of it"
            answer.sentences = [
                f"{what} is {ways}: a page that was settled links to it, and its shard knows it when it has read that."
            ]
        elif keys:
            answer.say(f"More cash for it, {units / view.total:.2g} of all, is {ways}.")
    if answer.kind == "unknown" and keys:
        answer.say("Links that were dropped are known to the dashboard of the worker that dropped them.")
    where = f"Its registered domain, {registered_domain(host)}, is in shard {number} of {len(stores)}"
    if workers is None:
        answer.say(f"{where}{', whose store is not here' * (view.saved[number] is None)}.")
    elif workers[number]:
        answer.say(f"{where}, which {workers[number]} crawls.")
    else:
        answer.say(f"{where}, which no worker crawls now.")
    return answer


def say_control(answer: Explanation, rules: CrawlRules, control: Control) -> None:
    """Say first what an operator asks of the crawl, if that concerns *answer*."""
    host, _ = _subject(answer.about, rules)
    sentences = []
    if control.paused_since:
        sentences.append(f"The crawl is paused by an operator since {time_of(control.paused_since)}.")
    if name := control.blocks(host):
        since = time_of(control.blocked[name])
        sentences.append(
            f"An operator has blocked {name} at {since}: what is queued stays queued, and nothing of it is requested."
        )
    if (denied := control.denies()) and denied.search(rules.normal(answer.about).url):
        if answer.kind == "unknown":
            answer.kind, answer.sentences = "refused", []
        sentences.append("An operator has denied such URLs: no links to them are followed.")
    if gap := control.gap(host):
        sentences.append(f"An operator asked for at least {gap:g} s between requests to it.")
    answer.sentences[:0] = sentences


def _subject(question: str, rules: CrawlRules) -> tuple[str, set[bytes]]:
    """Name of the host in *question*, and the keys of the page, as given and in its normal form."""
    if "://" not in question:
        return question.strip().lower(), set()
    host, keys = "", set()
    for url in dict.fromkeys((question, rules.normal(question).url)):
        try:
            host, key = key_of_url(url)
        except ValueError:
            continue
        keys.add(key)
    return host, keys


def _units_in(letter: Letter, host: str, keys: set[bytes]) -> int | None:
    """Cash that *letter* brings to the pages under *keys*, if it is about them; without any, if it is about pages of *host*."""
    if not keys:
        return 0 if host_bytes(host) in letter.hosts else None
    units = [each.units for each in letter.payments if letter.link(each.target).key in keys]
    units += [0 for each in letter.seeds if letter.link(each.target).key in keys]
    units += [each.units for each in letter.bequests if each.root in keys]
    return sum(units) if units else None


def _ways(letters: Sequence[tuple[int, int]], to: int) -> str:
    """Where *letters* to the shard *to* are, in words."""
    senders = sorted({sender for sender, _ in letters})
    if len(letters) == 1:
        return f"in a letter from shard {senders[0]} to shard {to}"
    some = "shard" if len(senders) == 1 else "shards"
    return f"in {len(letters)} letters from {some} {', '.join(map(str, senders))} to shard {to}"
