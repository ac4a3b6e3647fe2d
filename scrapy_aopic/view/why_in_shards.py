"""Why a URL, or a host, is crawled or not, in a job of several shards: what its shard knows, and letters on their way to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.shards.letters import Letter, host_bytes
from scrapy_aopic.core.shards.mail import cut_of
from scrapy_aopic.place.stored_control import time_of
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_keys import key_of_url

from .job_view import View, on_their_way
from .why import Explanation, meant, why

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scrapy_aopic.core.operator_control import Control

    from .url_settings import CrawlRules


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
    cut = cut_of(stores, registered_domain)
    number = cut.of_host(host)
    answer = why(stores[number], question, rules, view.calibration)
    if view.saved[number] is None and any(view.saved):  # others are here
        answer.sentences.clear()
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
    domain = registered_domain(host)
    is_spread = domain in cut.spread
    what = f"{domain} is spread over shards: this host" if is_spread else f"Its registered domain, {domain},"
    where = f"{what} is in shard {number} of {len(stores)}"
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
