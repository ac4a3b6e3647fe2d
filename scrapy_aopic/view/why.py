"""Why a URL, or a host, is crawled or not, in sentences, from the store of a job.

:meth:`_Question.of_url` says, in this order, and ends with the first of these that holds:

==============  =====================================================================================
kind            the page
==============  =====================================================================================
``redirect``    was fetched and led to another one
``duplicate``   was fetched and has the text of another one, or says that it is another one
``forbidden``   was not fetched, because its robots.txt forbids it
``failed``      was fetched, or was to be, and that failed
``fetched``     was fetched
``in flight``   was handed out and not settled as of the last commit
``queued``      waits in the queue
``refused``     is not known, and a rule on URLs refuses it
``robots``      is not known, and the robots.txt that the job has would forbid it
``dropped``     is not known, and it is a seed, or a link to it, that was dropped on its way to the queue
``unknown``     is not known
==============  =====================================================================================

Dropped links are known from samples (:mod:`.dropped`), which :func:`say_dropped` searches. Links that a spider does not yield
are not recorded anywhere.

:meth:`_Question.of_host` does the same for a host.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from scrapy_aopic.core.counters import UNREADABLE
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.domain import domain_key, unpack_domain
from scrapy_aopic.core.fetched import read_fetched
from scrapy_aopic.core.focus.calibration import UNCHECKED, Calibration
from scrapy_aopic.core.focus.leads import unpack_lead
from scrapy_aopic.core.layout import BEHIND, IN_TIME, LATE, LEADS, STRATEGY_KEY, Family
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.mirrors import MIRRORED
from scrapy_aopic.core.order import BRANCH_PAGES, LARGEST_VALUE, Aopic, clicks_lower, relevance_of, value_of
from scrapy_aopic.core.records import (
    FAILED,
    HOST_BYTES,
    IN_PRIORITY,
    NO_RECORD,
    PRIORITY_BITS,
    QUEUED,
    VISITED,
    HostRecord,
    Page,
    front_queue_of,
    host_key,
    queue_row,
    unpack,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits.found import found_last, is_gone
from scrapy_aopic.core.robots.state import RobotsTxt
from scrapy_aopic.core.walk import find_order
from scrapy_aopic.place.stored_control import time_of
from scrapy_aopic.web.origins import ROBOTS_TXT, TDMREP_JSON, file_key, host_name
from scrapy_aopic.web.request_rows import url_of
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.tdmrep import TdmRules
from scrapy_aopic.web.url_keys import key_of_url

from .dropped import BRIEFLY, REASONS, Sample, find
from .host_walk import state_of, why_it_waits
from .queries import count_links, gists_of, roots_of, urls_of, wishes_of
from .stored import active_hosts
from .text import checked, duration, n_of
from .traps import deny_url_of, pattern_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_aopic.core.ports import Store

    from .url_settings import CrawlRules, Normal


_MOST_ROWS = 100_000
"""Rows of a host that are read to find out the rank of a page, at most: some tenths of a second."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@()<>\"'\[\]]+)(:[0-9]+)?")
"""A possible name of a host, with or without a port."""

_LONGEST = 300
"""Characters of a URL that are shown."""


class Explanation(msgspec.Struct, kw_only=True):
    """Why a URL or a host is crawled or not.

    Attributes:
        about: The URL, or the name of the host, as it was given.
        kind: The answer in a word or two: see the head of the module; for a host its state.
        sentences: The explanation, the answer first.
        facts: The figures in the sentences, by name.
    """

    about: str
    kind: str = "unknown"
    sentences: list[str] = []
    facts: dict[str, Any] = {}

    def say(self, sentence: str, **facts: Any) -> None:
        """Add a *sentence*, and the figures in it."""
        self.sentences.append(sentence)
        self.facts |= facts


def why(store: Store, question: str, rules: CrawlRules, calibration: Calibration = UNCHECKED) -> Explanation:
    """Answer *question*: a URL, or the name of a host, with what grades for the topic mean by *calibration*.

    Raises:
        StorageError: If the store cannot be read.
    """
    question = meant(question)
    answer, saved = Explanation(about=question), read_totals(store)
    if saved is None:
        answer.say("There is no job yet.")
    else:
        asked = _Question(store, saved, rules, answer)
        asked.calibration = calibration
        answer.kind = asked.of_url(question) if "://" in question else asked.of_host(question)
    _say_options(store, answer, rules)
    return answer


def _say_options(store: Store, answer: Explanation, rules: CrawlRules) -> None:
    """Say which options the host has of its own that the question is about."""
    host = host_of(answer.about, rules)
    options = rules.options_of(host) if host else {}
    if not options:
        return
    texts = [f"{name} {_value(source.value)} (by {source.name})" for name, source in options.items()]
    facts = {name: {"value": source.value, "by": source.name} for name, source in options.items()}
    answer.say(f"AOPIC_HOST_RULES gives {host} options of its own: {', '.join(texts)}.", host_options=facts)
    known = _host(store, host_key(host))
    if "pages" in options and known is not None and known.visited >= options["pages"].value:
        by, most = options["pages"]
        answer.sentences.insert(
            0,
            f"{host} has had {known.visited:,} pages, and {by} of AOPIC_HOST_RULES lets it have {most:,}: what is queued of "
            "it stays queued, and is not requested.",
        )


def host_of(about: str, rules: CrawlRules) -> str:
    """Name of the host that a question is about; empty if it is about no URL of a host."""
    if "://" not in about:
        return _host_name(about)
    with suppress(ValueError):
        return key_of_url(rules.normal(about).url)[0]
    return ""


def _value(value: float | tuple[float, float]) -> str:
    """The value of an option, in words."""
    if isinstance(value, tuple):
        return " to ".join(dict.fromkeys(map(duration, value)))
    return f"{value:,.10g}"


def meant(question: str) -> str:
    """*question* as a URL if it is one without its scheme, such as ``example.com/page``."""
    question = question.strip()
    host, slash, _ = question.partition("/")
    return f"http://{question}" if slash and _HOST.fullmatch(host) else question


class _Question:
    """A question about a page or a host of a job, and what its *answer* says so far.

    Args:
        saved: The totals of the job as of its last commit.

    Attributes:
        calibration: What grades for the topic mean.
    """

    def __init__(self, store: Store, saved: CrawlTotals, rules: CrawlRules, answer: Explanation) -> None:
        self._store = store
        self._saved = saved
        self.calibration = UNCHECKED
        self._rules = rules
        self._answer = answer
        self._say = answer.say

    def of_url(self, url: str) -> str:
        """Why *url* is crawled or not."""
        normal = self._rules.normal(url)
        if normal.is_for_all and (host := _host(self._store, host_key(host_name(normal.url)))) is not None:
            self._rules.allow(host.name, host.allowed)
            normal = self._rules.normal(url)
        found = self._find(normal.url, url)
        if found is None:
            return self._of_unknown(normal)
        name, key, page = found
        if name != url:
            self._say(f"Its normal form is {_short(name)} ({_RULES}).", url=name)
        self._answer.facts["key"] = key.hex()
        if page.state == QUEUED:
            return self._of_queued(name, key, page)
        kind = self._say_outcome(key, page)
        self._say_topic(key, page)
        self._say_response(page)
        if not page.canonical:
            self._say_cash(page)
        self._say_changes(page)
        if page.changes is not None and (again := page.changes.wakes_at):
            self._say(
                f"Whether to visit it again is decided at {time_of(again)} (AOPIC_RECRAWL).", again=again
            )
        return kind

    def _find(self, *urls: str) -> tuple[str, bytes, Page] | None:
        """The page of the first of *urls* that has one; with the URL under which it is known, and its key."""
        for each in dict.fromkeys(urls):
            try:
                _, key = key_of_url(each)
            except ValueError:
                continue
            data = self._store.get_many(Family.PAGES, (key,))[0]
            if data is not None:
                stored = url_of(self._store.get_many(Family.REQUESTS, (key,))[0] or b"")
                return stored or each, key, unpack_page(data)
        return None

    def _say_outcome(self, key: bytes, page: Page) -> str:
        """Say what the last visit has shown; returns the kind of the answer."""
        times = f", for the {_nth(page.visits)} time" if page.visits > 1 else ""
        when = f"at {time_of(page.visited_at)}" if page.visited_at else "at an unknown time"
        self._answer.facts.update(visits=page.visits, visited_at=page.visited_at, outcome=page.outcome)
        roots = list(roots_of(self._store, {key: page}).values())
        root = urls_of(self._store, roots)[roots[0]] if roots else ""
        if page.outcome == "redirect":
            to = f" to {_short(root)}" if root else ""
            self._say(f"It was fetched {when}{times}, and redirected{to}.", root=root)
            if not root:
                self._say("Where to is not kept, as the redirect is not permanent: it is another page.")
            return "redirect"
        if page.outcome in ("duplicate", "canonical") or root:
            of = f" of {_short(root)}" if root else ""
            self._say(f"It was fetched {when}{times}, and is a duplicate{of}.", root=root)
            if root:
                self._say("That page stands for it: links to this one pay that one.")
            return "duplicate"
        if page.outcome == "robots.txt":
            self._say(f"Its robots.txt forbids it (ROBOTSTXT_OBEY); that was found out {when}.")
            return "forbidden"
        if page.state == FAILED:
            so = 'is revisited with "gone" (AOPIC_RECRAWL)' if is_gone(page) else "will not be fetched again"
            self._say(f"It failed {when}{times}: {_reason(page.outcome)}. It {so}.")
            self._say_wishes(key)
            return "failed"
        if page.outcome:
            self._say(f"It was fetched {when}{times}: {_reason(page.outcome)}.")
        else:
            self._say(f"It was fetched {when}{times}, and is an ordinary page.")
        self._say_wishes(key)
        if (n_links := count_links(self._store, [key])[0]) is not None:
            self._say(f"It links to {n_of(n_links, 'page')}.", links=n_links)
        return "fetched"

    def _say_response(self, page: Page) -> None:
        """Say what the last response for *page* was, if that is known."""
        fetched = read_fetched(page.fetched)
        if fetched is None:
            return
        n_bytes = f"{fetched.size:,} bytes" if fetched.size is not None else ""
        parts = [f"status {fetched.status}", fetched.content_type, n_bytes]
        self._say(
            f"Its last response had {', '.join(filter(None, parts))}.",
            status=fetched.status,
            content_type=fetched.content_type,
            bytes=fetched.size,
        )

    def _say_changes(self, page: Page) -> None:
        """Say what the last visit of *page* had found, if changes are looked for."""
        found = found_last(page)
        if page.changes is None or not found.last_changed:
            return
        since = f", seen first at {time_of(found.first_seen)}" if found.first_seen else ""
        what = "it was first found so" if found.what == "gone" else "it changed last"
        self._say(
            f"Its last visit found it {found.what}{since}; {what} at {time_of(found.last_changed)}.",
            found=found.what,
            first_seen=found.first_seen,
            last_changed=found.last_changed,
            previous_digest=found.previous_digest.hex(),
        )

    def _say_topic(self, key: bytes, page: Page) -> None:
        """Say how relevant a page is to the topic, or seems to be, by what, and which page said so."""
        order = find_order(self._saved.order_name)
        if order is None or not order.values_links or not page.score & LARGEST_VALUE:
            return
        value = value_of(page.score)
        if page.state != QUEUED:
            if relevance_of(page) is not None:
                probability = self.calibration.probability(value, gists_of(self._store, [key])[key])
                self._say(
                    f"Its grade for the topic was {value:.2f} ('scrapy aopic why --grade' says by which words): it is relevant with a "
                    f"probability of {probability:.2f}, {checked(self.calibration.labels, 'JOBDIR')}.",
                    relevance=probability,
                    grade=value,
                )
            return
        strategy = ""
        with suppress(*NO_RECORD):
            strategy = str(unpack(self._store.get_many(Family.META, (STRATEGY_KEY,))[0] or b"")[0])
        by = f", by the strategy {strategy}" if strategy else ""
        self._say(f"Its value for the topic is {value:.2f}{by}.", value=value, strategy=strategy)
        lead = unpack_lead(self._store.get_many(Family.CONTENT, (LEADS + key,))[0])
        if lead is not None:
            parent = urls_of(self._store, [lead.parent])[lead.parent]
            anchor = lead.link.anchor if lead.link is not None else lead.words
            said = f' by the link "{_short(anchor)}"' if anchor else ""
            self._say(
                f"It has this value from {_short(parent)}, whose grade was {lead.grade:.2f}{said}.",
                parent=parent,
                parent_relevance=lead.grade,
                anchor=anchor,
            )

    def _say_wishes(self, key: bytes) -> None:
        """Say what the owner of the page under *key* asks."""
        robots, usage = wishes_of(self._store, [key])[key]
        if robots:
            self._say(
                f"It asks robots: {_short(robots)} (AOPIC_PAGE_ROBOTS says what is obeyed).", robots=robots
            )
            if "nofollow" in robots.split(", "):
                self._say("So its links are not followed, unless the crawl is set to.")
        if usage:
            self._say(
                f"Its owner says of its use: {_short(usage)} (AOPIC_CONTENT_USAGE).", content_usage=usage
            )

    def _say_cash(self, page: Page) -> None:
        estimate = self._saved.estimate()
        importance = estimate.importance(estimate.weight(page))
        cash = page.cash + self._saved.ledger.owed(page)
        self._say(
            f"Its importance is {importance:.2g}, where all pages together have 1; it holds {cash / TOTAL:.2g} of all cash, and "
            f"has spent {page.history / TOTAL:.2g} (its history).",
            importance=importance,
            cash=cash,
            history=page.history,
        )

    def _of_queued(self, name: str, key: bytes, page: Page) -> str:
        """Why a page that is queued was not fetched yet."""
        rank, host = self._rank(key, page), _host(self._store, key[:HOST_BYTES])
        if rank == 1 and host is not None and host.leased_at:
            self._say(
                f"It was handed out at {time_of(host.leased_at)}, and was not settled as of the last commit "
                f"({time_of(self._saved.saved_at)})."
            )
            if not self._saved.is_clean:
                self._say("If the crawl died since, it waits again.")
            return "in flight"
        self._say_closed()
        of = f" of {host.queued:,}" if host is not None else ""
        at = f"{rank:,}" if rank else f"beyond {_MOST_ROWS:,}"
        self._say(
            f"It is queued: number {at}{of} in the queue of its host, in {_queue(page.front_queue)} ({_ORDER}).",
            rank=rank,
            priority=page.priority,
            front_queue=page.front_queue & IN_PRIORITY,
            queued_on_host=host.queued if host is not None else None,
        )
        self._say_topic(key, page)
        if page.lowered == 1:
            self._say(
                f"It waits one front queue lower, because enough pages of its directory had been fetched when its turn came ({_ORDER}).",
                lowered=1,
            )
        elif page.lowered >= MIRRORED:
            self._say_mirrored(name)
        elif page.lowered:
            deny_url = deny_url_of(pattern := pattern_of(name), [name])
            self._say(
                f"It waits {page.lowered} front queues lower, because there are many pages like {pattern} that lead to each other, as "
                "facets and calendars do, or many that nothing but single links leads to from one page, as in an endless tree: of either, "
                f"what is beyond {BRANCH_PAGES} pages and a hundredth of its host's fetches waits ({_ORDER}); a link from elsewhere moves "
                "it up again."
                + (
                    f' If it is a trap, "deny_urls": [{json.dumps(deny_url)}] in AOPIC_SCOPE keeps later runs away.'
                    if deny_url
                    else ""
                ),
                lowered=page.lowered,
                deny_url=deny_url,
            )
        lower = 0 if page.visits else clicks_lower(page.clicks)
        if lower and isinstance(find_order(self._saved.order_name), Aopic):
            self._say(
                f"It waits {lower} front queues lower, because it is {page.clicks} clicks from where the crawl entered its host.",
                clicks=page.clicks,
            )
        if page.visits:
            self._say(f"It was visited {page.visits:,} times, the last time at {time_of(page.visited_at)}.")
        robots = _robots(self._store, self._rules.origin_of(name))
        if robots is not None:
            self._say_unreachable(robots, "Its robots.txt", host)
        if host is not None:
            self._say_host(host)
        self._say_cash(page)
        return "queued"

    def _say_mirrored(self, url: str) -> None:
        """Say that *url*, which waits lower, is known at an origin that has the same pages."""
        data = self._store.get_many(Family.DOMAINS, (domain_key(registered_domain(host_name(url))),))[0]
        mains = (unpack_domain(data).mirrors if data is not None else None) or {}
        origin = self._rules.origin_of(url)
        main = mains.get(origin, origin)
        group = [main, *(each for each, of in mains.items() if of == main)]
        self._say(
            f"It waits behind all others, because {' and '.join(group)} have the same pages, and it was fetched from another of "
            "these, or waits at the first (scrapy aopic docs content#mirrors).",
            lowered=MIRRORED,
            mirrors=group,
        )

    def _say_closed(self) -> None:
        """Say it if no crawl can be using the job."""
        if self._saved.is_clean:
            self._say(
                f"No crawl uses the job now: it was closed at {time_of(self._saved.saved_at)}, and what waits then waits until a crawl goes "
                "on with it."
            )

    def _rank(self, key: bytes, page: Page) -> int:
        """How many pages of its host are before the queued page under *key*, and 1; 0 if that are too many to count."""
        host = key[:HOST_BYTES]
        own = host + queue_row(page.front_queue, page.place)
        for number, (row, _) in enumerate(self._store.scan(Family.QUEUE, host), 1):
            if row >= own:
                return number
            if number == _MOST_ROWS:
                break
        return 0

    def _of_unknown(self, normal: Normal) -> str:
        """Why a page is not known."""
        if normal.refused:
            self._say(f"It is not queued, because {normal.refused}.", refused=normal.refused)
            if not normal.is_for_all:
                self._say("A spider that requests it on purpose, and not as a link, gets it in any case.")
            return "refused"
        if normal.url != self._answer.about:
            self._say(f"Its normal form is {_short(normal.url)} ({_RULES}).", url=normal.url)
        try:
            name, key = key_of_url(normal.url)
        except ValueError:
            self._say("It is no URL of a host.")
            return "refused"
        self._answer.facts["key"] = key.hex()
        host = _host(self._store, key[:HOST_BYTES])
        origin = self._rules.origin_of(normal.url)
        robots = _robots(self._store, origin)
        if normal.url == f"{origin}{ROBOTS_TXT}":
            return self._of_robots(robots, host)
        if (
            normal.url == f"{origin}{TDMREP_JSON}"
            and (tdm := _robots(self._store, origin, TDMREP_JSON)) is not None
        ):
            return self._of_tdmrep(tdm)
        if robots is not None and robots.text and not self._rules.allows(robots.text, normal.url):
            self._say(
                f"It is not known: {_NO_PAGE} links to it; if one did, its robots.txt would forbid it (ROBOTSTXT_OBEY)."
            )
            self._say(f"That robots.txt was fetched at {time_of(robots.fetched_at)}.")
            return "robots"
        if host is None:
            self._say(f"Neither it nor any other page of {name} is known: {_NO_PAGE} links there.", host=name)
        else:
            self._say(
                f"It is not known: {_NO_PAGE} as of {time_of(self._saved.saved_at)} links to it.", host=name
            )
            self._say(f"Pages of its host: {host.visited:,} fetched, {host.queued:,} queued.")
        for other in _variants(normal.url):
            found = self._find(other)
            if found is not None:
                self._say(f"{_short(found[0])} is known, and {_STATES[found[2].state]}.", similar=found[0])
                break
        self._say(_MAYBE_DROPPED)
        return "unknown"

    def _of_robots(self, robots: RobotsTxt | None, host: HostRecord | None) -> str:
        """Answer for the URL of a robots.txt, which is not a page."""
        self._say("The crawl reads it by itself, and not as a page.")
        if robots is None:
            self._say("It was not needed yet, or the crawl obeys none (ROBOTSTXT_OBEY).")
            return "unknown"
        if robots.failures:
            self._say_unreachable(robots, "It", host)
        if robots.text is None:
            return "failed"
        what = "" if robots.text else ", and there is none, or an empty one: everything is allowed"
        self._say(f"It was fetched at {time_of(robots.fetched_at)}{what}.")
        return "fetched"

    def _of_tdmrep(self, tdm: RobotsTxt) -> str:
        """Answer for the URL of a tdmrep.json that was read."""
        self._say("The crawl reads it by itself, and not as a page (AOPIC_CONTENT_USAGE).")
        rules = TdmRules(tdm.text or b"")
        what = f"has {n_of(len(rules), 'valid rule')}" if len(rules) else "says nothing of any page"
        self._say(f"It was fetched at {time_of(tdm.fetched_at)}, and {what}.", rules=len(rules))
        if rules.malformed:
            self._say(f"Something in it means nothing: {rules.malformed}.")
        return "fetched"

    # -- hosts

    def of_host(self, name: str) -> str:
        """Why the host called *name* is requested or not."""
        if not _HOST.fullmatch(name.strip()):
            self._say(
                "It is neither a URL that is crawled, as those begin with http:// or https://, nor the name of a host."
            )
            return "refused"
        name = _host_name(name)
        key = host_key(name)
        host = _host(self._store, key)
        if host is None:
            self._say(f"No page of {name} is known: {_NO_PAGE} links there.")
            for other in (name.removeprefix("www."), f"www.{name}"):
                if other != name and _host(self._store, host_key(other)) is not None:
                    self._say(f"{other} is known.", similar=other)
            return "unknown"
        self._answer.facts.update(host=name, queued=host.queued, visited=host.visited)
        if host.queued:
            self._say_closed()
        kind = self._say_host(host)
        if host.transfer:
            self._say(f"Its last transfer took {host.transfer:.2g} s.", transfer=host.transfer)
        self._say_robots(key, host)
        first = next((row for row, _ in self._store.scan(Family.QUEUE, key)), b"")
        if first[:HOST_BYTES] == key:
            best = front_queue_of(first[HOST_BYTES:])
            self._say(
                f"Its best page waits in {_queue(best)}.",
                priority=best >> PRIORITY_BITS,
                front_queue=best & IN_PRIORITY,
            )
        return kind

    def _say_host(self, host: HostRecord) -> str:
        """Say where *host* is and why it waits; returns its state."""
        now = self._saved.saved_at
        wait = host.opens_at - now
        state = state_of(host, now)
        counts = f"{host.name} has {host.queued:,} queued and {host.visited:,} fetched pages"
        self._answer.facts.update(state=state, not_before=host.opens_at)
        if host.leased_at and state in ("ready", "waiting"):
            state = "in flight"
            self._say(f"{counts}; it was being requested as of the last commit.")
        elif state == "idle":
            self._say(f"{counts}, so there is nothing to request.")
        elif state == "dead":
            self._say(
                f"{counts}; it is dead: {host.unanswered:,} transfers in a row got no response, and the crawl does not wait "
                f"for it. It is tried again at {time_of(host.opens_at)}."
            )
        elif host.row[:2] in (LATE, BEHIND):
            self._say(f"{counts}; its domain is over its budget, so others come first ({_ORDER}).")
            state = "late"
        elif host.row[:2] == IN_TIME:
            self._say(f"{counts}; hosts with better pages come first.")
        elif wait > 0:
            self._say(
                f"{counts}; from the last commit on, at {time_of(now)}, it must be left alone for {duration(max(wait, 1))}: "
                f"{_WAITS[why_it_waits(host)]}."
            )
        else:
            hosts = active_hosts(self._store)
            levels = [each.best for each in hosts if each.best is not None]
            better, n = sum(host.best is None or each > host.best for each in levels), len(hosts)
            self._say(
                f"{counts}; it could be requested as of the last commit, in the order of the best pages: {better:,} of {n:,} hosts "
                "in memory have better ones.",
                better=better,
            )
        if host.errors and state != "dead":
            n_errors = f"Its last {host.errors:,} transfers" if host.errors > 1 else "Its last transfer"
            self._say(f"{n_errors} failed.", errors=host.errors)
        if host.crawl_delay:
            self._say(
                f"Its robots.txt has a crawl delay of {host.crawl_delay:g} s.", crawl_delay=host.crawl_delay
            )
        if self._saved.not_before > now:
            self._say(f"After a crash no request at all is made before {time_of(self._saved.not_before)}.")
        return state

    def _say_robots(self, of: bytes, host: HostRecord) -> None:
        """Say it if a robots.txt of *host*, under the key *of*, was unreachable."""
        for key, data in self._store.scan(Family.ROBOTS, of):
            if key[:HOST_BYTES] != of:
                break
            try:
                robots = RobotsTxt.from_bytes(data)
            except NO_RECORD:
                continue
            self._say_unreachable(robots, "A robots.txt of the host", host)

    def _say_unreachable(self, robots: RobotsTxt, what: str, host: HostRecord | None) -> None:
        """Say it if *robots*, which is called *what* and is on *host*, was unreachable."""
        if not robots.failures:
            return
        so = "nothing is allowed" if robots.text is None else "its old rules hold"
        times = f" {robots.failures:,} times in a row" if robots.failures > 1 else ""
        # Its own pause may end before its host may be requested again.
        retry_at = max(robots.retry_at, host.opens_at if host is not None else 0.0)
        self._say(
            f"{what} was unreachable{times}, so {so}; it is tried again at {time_of(retry_at)}.",
            robots_failures=robots.failures,
        )


_SENTENCES = {
    "language": "its language is not one of those in AOPIC_SCOPE, so its links are not followed, and it has no item",
    "content type": "it is of a content type that is not read (AOPIC_CONTENT_TYPES)",
    "content usage": "its owner does not want it to be used as this crawl uses it, so that no callback got it (AOPIC_CONTENT_USAGE)",
    "robots.txt unreachable": "its robots.txt is unreachable, so nothing is allowed (AOPIC_MAX_WAIT)",
    "redirect to itself": "it redirects to itself, and nothing had changed when it was asked for again",
    "network": "its host is not on the Internet, or resolves to what is not (AOPIC_ALLOW_NETWORKS)",
    "service": "its port is that of another service than the web's (AOPIC_ALLOW_NETWORKS)",
    "redirected form": "a redirect would have sent a form to another site (scrapy aopic docs safety#what-hosts-get-to-know-of-each-other)",
    "no answer": "there was no response, or a middleware dropped the request",
}


def _reason(outcome: str) -> str:
    """*outcome* of a page, in words."""
    name, _, rest = outcome.partition(": ")
    if name == UNREADABLE:
        return f"its stored request cannot be made ({rest or 'the reason is not kept'})"
    if outcome.startswith("http "):
        return f"the server responded with status {outcome[5:]}"
    return _SENTENCES.get(outcome) or f"there was no response ({outcome})"


def say_dropped(answer: Explanation, samples: Mapping[str, Sample], rules: CrawlRules) -> None:
    """Say what *samples* of dropped links tell of a URL that is not known."""
    if answer.kind not in ("unknown", "robots") or "://" not in answer.about:
        return
    found = find(samples, dict.fromkeys((answer.about, rules.normal(answer.about).url)))
    if found is not None:
        what = (
            f"A link to it on {_short(found.page)} was dropped"
            if found.page
            else "It is a seed that was dropped"
        )
        rest = [each for each in answer.sentences if each != _MAYBE_DROPPED and _NO_PAGE not in each]
        answer.kind, answer.sentences = "dropped", [f"{what}, because {REASONS[found.reason]}.", *rest]
        answer.facts.update(dropped=found.reason, page=found.page)
    if _MAYBE_DROPPED not in answer.sentences:
        return
    n = sum(each.n for each in samples.values())
    if not n:
        said = "No link was dropped on its way to the queue, so if a page does link to it, the spider did not yield that."
    elif all(each.is_whole for each in samples.values()):
        said = f"It is not among the {n:,} links that were dropped on their way to the queue."
    else:
        many = [f"{each.n:,} {BRIEFLY[reason]}" for reason, each in samples.items() if not each.is_whole]
        said = (
            "A link to it may have been dropped on its way to the queue: of those that were, only some are kept "
            f"({'; '.join(many)}), and it is not among them."
        )
    answer.sentences = [said if each == _MAYBE_DROPPED else each for each in answer.sentences]


_NO_PAGE = "no page that was settled"

_STATES = {QUEUED: "is queued", FAILED: "failed", VISITED: "was fetched"}
"""The first words about a page, by its state."""

_MAYBE_DROPPED = (
    "If a page does link to it, the spider or a middleware has dropped the request: bounds such as allowed_domains "
    "(offsite/filtered in the stats), DEPTH_LIMIT, AOPIC_URL_LIMITS, or a weight of 0 (AOPIC_LINK_WEIGHTS)."
)
"""The sentence about an unknown URL if there are no samples."""


def _variants(url: str) -> list[str]:
    """URLs that a person may have meant by *url*."""
    scheme, _, rest = url.partition("://")
    other = f"{'http' if scheme == 'https' else 'https'}://{rest}"
    path = rest.partition("?")[0]
    slash = f"{scheme}://{path[:-1] if path.endswith('/') else path + '/'}"
    host, _, tail = rest.partition("/")
    www = f"{scheme}://{host.removeprefix('www.') if host.startswith('www.') else 'www.' + host}/{tail}"
    return [other, slash, www]


def _host_name(text: str) -> str:
    """The name of a host as the crawl has it."""
    name = text.strip().rstrip(".").lower()
    if name.isascii():
        return name
    with suppress(UnicodeError):
        return name.encode("idna").decode("ascii")
    return name


_ORDER = "scrapy aopic docs order#the-default"
_RULES = "scrapy aopic docs urls#rules-that-change-a-url"

_WAITS = {
    "gap": "the gap after its last transfer (AOPIC_POLITENESS_FACTOR)",
    "crawl delay": "the crawl delay of its robots.txt",
    "errors": "it responded with errors, after each of which the gap doubles (AOPIC_BACKOFF)",
    "down": "it did not respond, or asked for a later request (AOPIC_BACKOFF, Retry-After)",
}
"""Why a host waits, by :func:`.host_walk.why_it_waits`."""


def _host(store: Store, key: bytes) -> HostRecord | None:
    data = store.get_many(Family.HOSTS, (key,))[0]
    return unpack_host(data) if data is not None else None


def _queue(front_queue: int) -> str:
    """The front queue, as words."""
    priority = front_queue >> PRIORITY_BITS
    return f"front queue {front_queue & IN_PRIORITY}" + (f" of the priority {priority}" if priority else "")


def _robots(store: Store, origin: str, path: str = ROBOTS_TXT) -> RobotsTxt | None:
    """The robots.txt of *origin* that the job has, or its file at another *path*; ``None`` if it has none."""
    data = store.get_many(Family.ROBOTS, (file_key(origin, path),))[0]
    return RobotsTxt.from_bytes(data) if data is not None else None


def _short(url: str) -> str:
    return url if len(url) <= _LONGEST else f"{url[:_LONGEST]}..."


def _nth(n: int) -> str:
    """*n* as an ordinal number."""
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
