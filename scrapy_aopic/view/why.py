"""Why a URL, or a host, is crawled or not, in sentences, from the store of a job.

:func:`_why_url` says, in this order, and ends with the first of these that holds:

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

Dropped links are known from samples (:mod:`.dropped`), which :func:`with_dropped` searches. Links that a spider does not yield
are not recorded anywhere.

:func:`_why_host` does the same for a host.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from scrapy_aopic.core.counters import UNREADABLE
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_totals
from scrapy_aopic.core.fetched import read_fetched
from scrapy_aopic.core.layout import BEHIND, IN_TIME, LATE, Family
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import Aopic, clicks_lower
from scrapy_aopic.core.pages import MAX_HEIGHT
from scrapy_aopic.core.records import (
    FAILED,
    HOST_BYTES,
    NO_RECORD,
    QUEUED,
    VISITED,
    HostRecord,
    Page,
    front_queue_of,
    host_key,
    queue_row,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.robots.state import RobotsTxt
from scrapy_aopic.core.walk import find_order
from scrapy_aopic.place.stored_control import time_of
from scrapy_aopic.web.origins import ROBOTS_TXT, TDMREP_JSON, file_key, host_name
from scrapy_aopic.web.request_rows import url_of
from scrapy_aopic.web.tdmrep import TdmRules

from .dropped import BRIEFLY, REASONS, Sample, find
from .host_walk import state_of, why_it_waits
from .queries import wishes_of
from .stored import active_hosts
from .text import duration

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from scrapy_aopic.core.host_rules import Source
    from scrapy_aopic.core.ports import Store


_MOST_ROWS = 100_000
"""Rows of a host that are read to find out the rank of a page, at most: some tenths of a second."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@()<>\"'\[\]]+)(:[0-9]+)?")
"""A possible name of a host, with or without a port."""

_LONGEST = 300
"""Characters of a URL that are shown."""


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


class Rules(Protocol):
    """The settings of a crawl that its store does not have."""

    def key_of(self, url: str) -> tuple[str, bytes]:
        """Name of the host of *url*, and its page key."""

    def normal(self, url: str) -> Normal:
        """Apply the rules on URLs to *url*, found as a link."""

    def allow(self, host: str, what: int) -> None:
        """A seed of the job has allowed *what* of *host*."""

    def allows(self, robots_txt: bytes, url: str) -> bool:
        """Whether *robots_txt* lets the crawl fetch *url*."""

    def origin_of(self, url: str) -> str:
        """The origin whose robots.txt holds for *url*."""

    def options_of(self, host: str) -> Mapping[str, Source]:
        """The options that the host called *host* has of its own, with where they come from."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a URL or a host is crawled or not.

    Attributes:
        about: The URL, or the name of the host, as it was given.
        kind: The answer in a word or two: see the head of the module; for a host its state.
        sentences: The explanation, the answer first.
        facts: The figures in the sentences, by name.
    """

    about: str
    kind: str
    sentences: list[str]
    facts: dict[str, Any] = {}


class _Draft:
    """Collects the sentences and facts of an answer."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.sentences: list[str] = []
        self.facts: dict[str, Any] = {}

    def say(self, sentence: str, **facts: Any) -> None:
        self.sentences.append(sentence)
        self.facts |= facts

    def answer(self, kind: str) -> Explanation:
        return Explanation(about=self.about, kind=kind, sentences=self.sentences, facts=self.facts)


def why(store: Store, question: str, rules: Rules, *, in_flight: Container[bytes] = ()) -> Explanation:
    """Answer *question*: a URL, or the name of a host.

    Args:
        in_flight: Keys of the pages in flight, if a crawl runs in this process.

    Raises:
        StorageError: If the store cannot be read.
    """
    question = meant(question)
    if "://" not in question:
        return _with_options(store, _why_host(store, question, rules), rules, _host_name(question))
    answer = _why_url(store, question, rules, in_flight=in_flight)
    with suppress(ValueError):
        return _with_options(store, answer, rules, rules.key_of(rules.normal(question).url)[0])
    return answer


def _with_options(store: Store, answer: Explanation, rules: Rules, host: str) -> Explanation:
    """*answer*, with the options that *host* has of its own."""
    options = rules.options_of(host)
    if not options:
        return answer
    texts = [f"{name} {_value(source.value)} (by {source.name})" for name, source in options.items()]
    sentence = f"AOPIC_HOST_RULES gives {host} options of its own: {', '.join(texts)}."
    facts = {name: {"value": source.value, "by": source.name} for name, source in options.items()}
    first = []
    if "pages" in options and (known := _host(store, host_key(host))) is not None:
        by, most = options["pages"]
        if known.visited >= most:
            first.append(
                f"{host} has had {known.visited:,} pages, and {by} of AOPIC_HOST_RULES lets it have {most:,}: what is queued of "
                "it stays queued, and is not requested."
            )
    return replace(
        answer, sentences=[*first, *answer.sentences, sentence], facts={**answer.facts, "host_options": facts}
    )


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


# -- URLs


def _why_url(store: Store, url: str, rules: Rules, *, in_flight: Container[bytes] = ()) -> Explanation:
    """Why *url* is crawled or not; see :func:`why`."""
    said = _Draft(url)
    saved = read_totals(store)
    if saved is None:
        said.say("There is no job yet.")
        return said.answer("unknown")
    normal = rules.normal(url)
    if normal.is_for_all and (host := _host(store, host_key(host_name(normal.url)))) is not None:
        rules.allow(host.name, host.allowed)
        normal = rules.normal(url)
    found = _find(store, url, normal.url, rules)
    if found is None:
        return _why_unknown(store, saved, normal, rules, said)
    name, key, page = found
    if name != url:
        said.say(f"Its normal form is {_short(name)} (docs/urls.md).", url=name)
    said.facts["key"] = key.hex()
    host = _host(store, key[:HOST_BYTES])
    if page.state == QUEUED:
        robots = _robots(store, rules.origin_of(name))
        return _why_queued(
            store, saved, page, host, said, robots=robots, key=key, is_in_flight=key in in_flight
        )
    kind = _say_outcome(store, key, page, said)
    _say_response(page, said)
    if not page.canonical:
        _say_cash(store, saved, page, said)
    if page.changes is not None and page.changes.wakes_at:
        instant = page.changes.wakes_at
        said.say(
            f"Whether to visit it again is decided at {time_of(instant)} (AOPIC_RECRAWL).", again=instant
        )
    return said.answer(kind)


def _find(store: Store, url: str, normal: str, rules: Rules) -> tuple[str, bytes, Page] | None:
    """The page of *url*, in its normal form or as given; with the URL under which it is known."""
    for each in dict.fromkeys((normal, url)):
        try:
            _, key = rules.key_of(each)
        except ValueError:
            continue
        data = store.get_many(Family.PAGES, (key,))[0]
        if data is not None:
            stored = url_of(store.get_many(Family.REQUESTS, (key,))[0] or b"")
            return stored or each, key, unpack_page(data)
    return None


def _say_outcome(store: Store, key: bytes, page: Page, said: _Draft) -> str:
    """Say what the last visit has shown; returns the kind of the answer."""
    times = f", for the {_nth(page.visits)} time" if page.visits > 1 else ""
    when = f"at {time_of(page.visited_at)}" if page.visited_at else "at an unknown time"
    said.facts.update(visits=page.visits, visited_at=page.visited_at, outcome=page.outcome)
    root = _root(store, page)
    if page.outcome == "redirect":
        to = f" to {_short(root)}" if root else ""
        said.say(f"It was fetched {when}{times}, and redirected{to}.", root=root)
        if not root:
            said.say(
                "Where to is not kept: the target is a page of its own, as the redirect is not permanent."
            )
        return "redirect"
    if page.outcome in ("duplicate", "canonical") or root:
        of = f" of {_short(root)}" if root else ""
        said.say(f"It was fetched {when}{times}, and is a duplicate{of}.", root=root)
        if root:
            said.say("That page stands for it: links to this one pay that one.")
        return "duplicate"
    if page.outcome == "robots.txt":
        said.say(f"Its robots.txt forbids it (ROBOTSTXT_OBEY); that was found out {when}.")
        return "forbidden"
    if page.state == FAILED:
        what = _reason(page.outcome)
        said.say(f"It failed {when}{times}: {what}. It will not be fetched again.")
        _say_wishes(store, key, said)
        return "failed"
    if page.outcome:
        said.say(f"It was fetched {when}{times}: {_reason(page.outcome)}.")
    else:
        said.say(f"It was fetched {when}{times}, and is an ordinary page.")
    _say_wishes(store, key, said)
    links = store.get_many(Family.LINKS, (key,))[0]
    if links is not None:
        said.say(f"It links to {len(links) // len(key):,} pages.", links=len(links) // len(key))
    return "fetched"


def _say_response(page: Page, said: _Draft) -> None:
    """Say what the last response for *page* was, if that is known."""
    fetched = read_fetched(page.fetched)
    if fetched is None:
        return
    n_bytes = f"{fetched.size:,} bytes" if fetched.size is not None else ""
    parts = [f"status {fetched.status}", fetched.content_type, n_bytes]
    said.say(
        f"Its last response had {', '.join(filter(None, parts))}.",
        status=fetched.status,
        content_type=fetched.content_type,
        bytes=fetched.size,
    )


def _say_wishes(store: Store, key: bytes, said: _Draft) -> None:
    """Say what the owner of the page under *key* asks."""
    robots, usage = wishes_of(store, [key])[key]
    if robots:
        said.say(f"It asks robots: {_short(robots)} (AOPIC_PAGE_ROBOTS says what is obeyed).", robots=robots)
        if "nofollow" in robots.split(", "):
            said.say("So its links are not followed, unless the crawl is set to.")
    if usage:
        said.say(f"Its owner says of its use: {_short(usage)} (AOPIC_CONTENT_USAGE).", content_usage=usage)


_SENTENCES = {
    "language": "its language is none of those in AOPIC_SCOPE, so that its links are not followed, and it has no item",
    "content type": "it is of a content type that is not read (AOPIC_CONTENT_TYPES)",
    "content usage": "its owner does not want it to be used as this crawl uses it, so that no callback got it (AOPIC_CONTENT_USAGE)",
    "robots.txt unreachable": "its robots.txt is unreachable, so nothing is allowed (AOPIC_ROBOTS_TRIES)",
    "redirect to itself": "it redirects to itself, and nothing had changed when it was asked for again",
    "network": "its host is not on the Internet, or resolves to what is not (AOPIC_ALLOW_NETWORKS)",
    "service": "its port is that of another service than the web's (AOPIC_ALLOW_NETWORKS)",
    "redirected form": "a redirect would have sent to another site what was meant for the first (docs/safety.md)",
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


def _say_cash(store: Store, saved: CrawlTotals, page: Page, said: _Draft) -> None:
    estimate = saved.estimate(store)
    importance = estimate.importance(estimate.weight(page))
    cash = page.cash + saved.ledger.owed(page)
    said.say(
        f"Its importance is {importance:.2g}, where all pages together have 1; it holds {cash / TOTAL:.2g} of all cash, and "
        f"has spent {page.history / TOTAL:.2g} (its history).",
        importance=importance,
        cash=cash,
        history=page.history,
    )


def _why_queued(
    store: Store,
    saved: CrawlTotals,
    page: Page,
    host: HostRecord | None,
    said: _Draft,
    *,
    robots: RobotsTxt | None,
    key: bytes,
    is_in_flight: bool,
) -> Explanation:
    """Why a page that is queued was not fetched yet."""
    rank = _rank(store, key, page)
    is_first = rank == 1 and host is not None and host.leased_at > 0
    if is_in_flight or is_first:
        when = f"at {time_of(host.leased_at)}" if host is not None and host.leased_at else "just now"
        said.say(
            f"It was handed out {when}, and was not settled as of the last commit ({time_of(saved.saved_at)})."
        )
        if not saved.is_clean:
            said.say("If the crawl died since, it waits again.")
        return said.answer("in flight")
    _say_closed(saved, said)
    of = f" of {host.queued:,}" if host is not None else ""
    at = f"{rank:,}" if rank else f"beyond {_MOST_ROWS:,}"
    said.say(
        f"It is queued: number {at}{of} in the queue of its host, in front queue {page.front_queue} (docs/order.md).",
        rank=rank,
        front_queue=page.front_queue,
        queued_on_host=host.queued if host is not None else None,
    )
    if page.is_lowered:
        said.say(
            "It waits one front queue lower, because enough pages of its directory had been fetched when its turn came "
            "(AOPIC_DIRECTORY_PAGES).",
            is_lowered=True,
        )
    lower = 0 if page.visits else clicks_lower(page.clicks)
    if lower and isinstance(find_order(saved.order_name), Aopic):
        said.say(
            f"It waits {lower} front queues lower, because it is {page.clicks} clicks from where the crawl entered its host.",
            clicks=page.clicks,
        )
    if page.visits:
        said.say(f"It was visited {page.visits:,} times, the last time at {time_of(page.visited_at)}.")
    if robots is not None:
        _say_unreachable(robots, "Its robots.txt", host, said)
    if host is not None:
        _say_host(store, host, saved, said)
    _say_cash(store, saved, page, said)
    return said.answer("queued")


def _say_closed(saved: CrawlTotals, said: _Draft) -> None:
    """Say it if no crawl can be using the job."""
    if saved.is_clean:
        said.say(
            f"No crawl uses the job now: it was closed at {time_of(saved.saved_at)}, and what waits then waits until a crawl goes "
            "on with it."
        )


def _rank(store: Store, key: bytes, page: Page) -> int:
    """How many pages of its host are before the queued page under *key*, and 1; 0 if that are too many to count."""
    host = key[:HOST_BYTES]
    own = host + queue_row(page.front_queue, page.place)
    for number, (row, _) in enumerate(store.scan(Family.QUEUE, host), 1):
        if row >= own:
            return number
        if number == _MOST_ROWS:
            break
    return 0


def _why_unknown(store: Store, saved: CrawlTotals, normal: Normal, rules: Rules, said: _Draft) -> Explanation:
    """Why a page is not known."""
    if normal.refused:
        said.say(f"It is not queued, because {normal.refused}.", refused=normal.refused)
        if not normal.is_for_all:
            said.say("A spider that requests it on purpose, and not as a link, gets it in any case.")
        return said.answer("refused")
    if normal.url != said.about:
        said.say(f"Its normal form is {_short(normal.url)} (docs/urls.md).", url=normal.url)
    try:
        name, key = rules.key_of(normal.url)
    except ValueError:
        said.say("It is no URL of a host.")
        return said.answer("refused")
    said.facts["key"] = key.hex()
    host = _host(store, key[:HOST_BYTES])
    origin = rules.origin_of(normal.url)
    robots = _robots(store, origin)
    if normal.url == f"{origin}{ROBOTS_TXT}":
        return _why_robots(robots, host, said)
    if normal.url == f"{origin}{TDMREP_JSON}" and (tdm := _robots(store, origin, TDMREP_JSON)) is not None:
        return _why_tdmrep(tdm, said)
    if robots is not None and robots.text and not rules.allows(robots.text, normal.url):
        said.say(
            f"It is not known: {_NO_PAGE} links to it; if one did, its robots.txt would forbid it (ROBOTSTXT_OBEY)."
        )
        said.say(f"That robots.txt was fetched at {time_of(robots.fetched_at)}.")
        return said.answer("robots")
    if host is None:
        said.say(
            f"Neither it nor any other page of {name} is known: {_NO_PAGE} links there.",
            host=name,
        )
    else:
        said.say(
            f"It is not known: {_NO_PAGE} as of {time_of(saved.saved_at)} links to it.",
            host=name,
        )
        said.say(f"Of its host {host.visited:,} pages were fetched and {host.queued:,} are queued.")
    for other in _variants(normal.url):
        found = _find(store, other, other, rules)
        if found is not None:
            said.say(f"{_short(found[0])} is known, and {_STATES[found[2].state]}.", similar=found[0])
            break
    said.say(_MAYBE_DROPPED)
    return said.answer("unknown")


def _why_robots(robots: RobotsTxt | None, host: HostRecord | None, said: _Draft) -> Explanation:
    """Answer for the URL of a robots.txt, which is not a page."""
    said.say("The crawl reads it by itself, and not as a page.")
    if robots is None:
        said.say("It was not needed yet, or the crawl obeys none (ROBOTSTXT_OBEY).")
        return said.answer("unknown")
    if robots.failures:
        _say_unreachable(robots, "It", host, said)
    if robots.text is None:
        return said.answer("failed")
    what = "" if robots.text else ", and there is none, or an empty one: everything is allowed"
    said.say(f"It was fetched at {time_of(robots.fetched_at)}{what}.")
    return said.answer("fetched")


def _why_tdmrep(tdm: RobotsTxt, said: _Draft) -> Explanation:
    """Answer for the URL of a tdmrep.json that was read."""
    said.say("The crawl reads it by itself, and not as a page (AOPIC_CONTENT_USAGE).")
    rules = TdmRules(tdm.text or b"")
    what = f"has {len(rules):,} rules that count" if len(rules) else "says nothing of any page"
    said.say(f"It was fetched at {time_of(tdm.fetched_at)}, and {what}.", rules=len(rules))
    if rules.malformed:
        said.say(f"Something in it means nothing: {rules.malformed}.")
    return said.answer("fetched")


def with_dropped(answer: Explanation, samples: Mapping[str, Sample], rules: Rules) -> Explanation:
    """*answer*, with what *samples* of dropped links say of a URL that is not known."""
    if answer.kind not in ("unknown", "robots") or "://" not in answer.about:
        return answer
    found = find(samples, dict.fromkeys((answer.about, rules.normal(answer.about).url)))
    if found is not None:
        what = (
            f"A link to it on {_short(found.page)} was dropped"
            if found.page
            else "It is a seed that was dropped"
        )
        sentence = f"{what}, because {REASONS[found.reason]}."
        rest = [each for each in answer.sentences if each != _MAYBE_DROPPED and _NO_PAGE not in each]
        facts = {**answer.facts, "dropped": found.reason, "page": found.page}
        return replace(answer, kind="dropped", sentences=[sentence, *rest], facts=facts)
    if _MAYBE_DROPPED not in answer.sentences:
        return answer
    n = sum(each.n for each in samples.values())
    if not n:
        said = "No link was dropped on its way to the queue, so if a page does link to it, the spider did not yield that."
    elif all(each.is_whole for each in samples.values()):
        said = f"It is none of the {n:,} links that were dropped on their way to the queue."
    else:
        many = [f"{each.n:,} {BRIEFLY[reason]}" for reason, each in samples.items() if not each.is_whole]
        said = (
            "A link to it may have been dropped on its way to the queue: of those that were, only some are kept "
            f"({'; '.join(many)}), and it is none of these."
        )
    return replace(answer, sentences=[said if each == _MAYBE_DROPPED else each for each in answer.sentences])


_NO_PAGE = "no page that was settled"

_STATES = {QUEUED: "is queued", FAILED: "failed", VISITED: "was fetched"}
"""The first words about a page, by its state."""

_MAYBE_DROPPED = (
    "If a page does link to it, the spider or a middleware has dropped the request: bounds such as allowed_domains "
    "(offsite/filtered in the stats), DEPTH_LIMIT, AOPIC_LINK_FLOOD, or rel=nofollow where the spider obeys it."
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


# -- hosts


def _why_host(store: Store, name: str, rules: Rules) -> Explanation:
    """Why the host called *name* is requested or not; see :func:`why`."""
    said = _Draft(name)
    saved = read_totals(store)
    if saved is None:
        said.say("There is no job yet.")
        return said.answer("unknown")
    if not _HOST.fullmatch(name.strip()):
        said.say(
            "It is neither a URL that is crawled, as those begin with http:// or https://, nor the name of a host."
        )
        return said.answer("refused")
    name = _host_name(name)
    key = host_key(name)
    host = _host(store, key)
    if host is None:
        said.say(f"No page of {name} is known: {_NO_PAGE} links there.")
        for other in (name.removeprefix("www."), f"www.{name}"):
            if other != name and _host(store, host_key(other)) is not None:
                said.say(f"{other} is known.", similar=other)
        return said.answer("unknown")
    said.facts.update(host=name, queued=host.queued, visited=host.visited)
    if host.queued:
        _say_closed(saved, said)
    kind = _say_host(store, host, saved, said)
    if host.transfer:
        said.say(f"Its last transfer took {host.transfer:.2g} s.", transfer=host.transfer)
    _say_robots(store, key, host, said)
    best = next(
        (
            front_queue_of(row[HOST_BYTES:])
            for row, _ in store.scan(Family.QUEUE, key)
            if row[:HOST_BYTES] == key
        ),
        None,
    )
    if best is not None:
        said.say(f"Its best page waits in front queue {best}.", front_queue=best)
    return said.answer(kind)


def _host_name(text: str) -> str:
    """The name of a host as the crawl has it."""
    name = text.strip().rstrip(".").lower()
    if name.isascii():
        return name
    with suppress(UnicodeError):
        return name.encode("idna").decode("ascii")
    return name


def _say_host(store: Store, host: HostRecord, saved: CrawlTotals, said: _Draft) -> str:
    """Say where *host* is and why it waits; returns its state."""
    now = saved.saved_at
    wait = host.opens_at - now
    state = state_of(host, now)
    counts = f"{host.name} has {host.queued:,} queued and {host.visited:,} fetched pages"
    said.facts.update(state=state, not_before=host.opens_at)
    if host.leased_at and state in ("ready", "waiting"):
        state = "in flight"
        said.say(f"{counts}; it was being requested as of the last commit.")
    elif state == "idle":
        said.say(f"{counts}, so there is nothing to request.")
    elif state == "dead":
        said.say(
            f"{counts}; it is dead: {host.unanswered:,} transfers in a row got no response, and the crawl does not wait for it "
            f"(AOPIC_DEAD_AFTER). It is tried again at {time_of(host.opens_at)}."
        )
    elif host.row[:2] in (LATE, BEHIND):
        said.say(f"{counts}; its domain is over its budget, so others come first ({_BUDGET}).")
        state = "late"
    elif host.row[:2] == IN_TIME:
        said.say(f"{counts}; hosts with better pages come first.")
    elif wait > 0:
        said.say(
            f"{counts}; from the last commit on, at {time_of(now)}, it must be left alone for {duration(max(wait, 1))}: "
            f"{_WAITS[why_it_waits(host)]}."
        )
    else:
        better, n = _better(store, host)
        said.say(
            f"{counts}; it could be requested as of the last commit, in the order of the best pages: {better:,} of {n:,} hosts "
            "in memory have better ones.",
            better=better,
        )
    if host.errors and state != "dead":
        n_errors = f"Its last {host.errors:,} transfers" if host.errors > 1 else "Its last transfer"
        said.say(f"{n_errors} failed.", errors=host.errors)
    if host.crawl_delay:
        said.say(f"Its robots.txt has a crawl delay of {host.crawl_delay:g} s.", crawl_delay=host.crawl_delay)
    if saved.not_before > now:
        said.say(f"After a crash no request at all is made before {time_of(saved.not_before)}.")
    return state


_BUDGET = "docs/order.md"

_WAITS = {
    "gap": "the gap after its last transfer (AOPIC_POLITENESS_FACTOR)",
    "crawl delay": "the crawl delay of its robots.txt",
    "errors": "it responded with errors, after each of which the gap doubles (AOPIC_BACKOFF)",
    "down": "it did not respond, or asked for a later request (AOPIC_BACKOFF, Retry-After)",
}
"""Why a host waits, by :func:`.host_walk.why_it_waits`."""


def _say_robots(store: Store, of: bytes, host: HostRecord, said: _Draft) -> None:
    """Say it if a robots.txt of *host*, under the key *of*, was unreachable."""
    for key, data in store.scan(Family.ROBOTS, of):
        if key[:HOST_BYTES] != of:
            break
        try:
            robots = RobotsTxt.from_bytes(data)
        except NO_RECORD:
            continue
        _say_unreachable(robots, "A robots.txt of the host", host, said)


def _say_unreachable(robots: RobotsTxt, what: str, host: HostRecord | None, said: _Draft) -> None:
    """Say it if *robots*, which is called *what* and is on *host*, was unreachable."""
    if not robots.failures:
        return
    so = "nothing is allowed" if robots.text is None else "its old rules hold"
    times = f" {robots.failures:,} times in a row" if robots.failures > 1 else ""
    # Its own pause may end before its host may be requested again.
    retry_at = max(robots.retry_at, host.opens_at if host is not None else 0.0)
    said.say(
        f"{what} was unreachable{times}, so {so}; it is tried again at {time_of(retry_at)}.",
        robots_failures=robots.failures,
    )


def _better(store: Store, host: HostRecord) -> tuple[int, int]:
    """How many hosts in memory have better pages than *host* has, and how many there are."""
    active = active_hosts(store)
    return sum(each.best > host.best for each in active), len(active)


# -- reading


def _host(store: Store, key: bytes) -> HostRecord | None:
    data = store.get_many(Family.HOSTS, (key,))[0]
    return unpack_host(data) if data is not None else None


def _robots(store: Store, origin: str, path: str = ROBOTS_TXT) -> RobotsTxt | None:
    """The robots.txt of *origin* that the job has, or its file at another *path*; ``None`` if it has none."""
    data = store.get_many(Family.ROBOTS, (file_key(origin, path),))[0]
    return RobotsTxt.from_bytes(data) if data is not None else None


def _root(store: Store, page: Page) -> str:
    """URL of the page that stands for *page*; empty if it stands for itself."""
    key = b""
    for _ in range(MAX_HEIGHT):
        if not page.canonical:
            break
        key = page.canonical
        data = store.get_many(Family.PAGES, (key,))[0]
        if data is None:
            break
        page = unpack_page(data)
    return url_of(store.get_many(Family.REQUESTS, (key,))[0] or b"") if key else ""


def _short(url: str) -> str:
    return url if len(url) <= _LONGEST else f"{url[:_LONGEST]}..."


def _nth(n: int) -> str:
    """*n* as an ordinal number."""
    ending = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
