"""A topic in a crawl: each page is graded once, and its links get values when its visit ends.

Rule 1: a page is read before its callback, so that ``response.meta["aopic_relevance"]`` is there for it.

Rule 2: values are worked out when all links are known, since a page may be relevant because of an item that comes last.

Rule 3: what a user's function raises costs a page its grade, or its links their values, and nothing else.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec.structs import replace
from scrapy.http import Response, TextResponse
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.misc import build_from_crawler
from scrapy.utils.response import get_base_url

from scrapy_aopic.core.focus.contextual import StandIn
from scrapy_aopic.core.focus.fixed import FocusedStrategy
from scrapy_aopic.core.focus.harvest import LATELY
from scrapy_aopic.core.focus.harvest_results import degrees_of
from scrapy_aopic.core.focus.leads import SIDE, LeadsOfPage, all_bounded, bounded_path, is_led
from scrapy_aopic.core.focus.sample import EXCERPT_CHARACTERS, Sampled
from scrapy_aopic.core.focus.shares import UNIT, shares
from scrapy_aopic.core.focus.strategies import STRATEGIES, needs_samples
from scrapy_aopic.core.focus.strategy import (
    FLOOR,
    ByFunction,
    MakeStrategy,
    PageSeen,
    Strategy,
    WithMemos,
    known_value,
)
from scrapy_aopic.core.focus.topic import RELEVANT, LinkText, Topic
from scrapy_aopic.core.focus.words import LINK_CHARACTERS, PAGE_CHARACTERS
from scrapy_aopic.core.order import LARGEST_VALUE, value_of, whole_value
from scrapy_aopic.core.records import HOST_BYTES, Link, Page
from scrapy_aopic.exceptions import ANY_ERROR, SettingError, TopicError
from scrapy_aopic.focus import LinkScorer, PageScorer, load_model, read_folder, train
from scrapy_aopic.focus.folders import samples
from scrapy_aopic.focus.tokenizers import Words
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.session.visit import PageReading, Visit
from scrapy_aopic.settings import read
from scrapy_aopic.settings.parse import TopicGiven, is_awaited, is_class_of_functions
from scrapy_aopic.web.context import PageContext, page_context, text_context
from scrapy_aopic.web.link_extraction import note_joined
from scrapy_aopic.web.meta import RELEVANCE

from .learning import Learning
from .user_functions import LONGEST, Judging, OutOfPatienceError, Valuing, part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scrapy.crawler import Crawler

    from scrapy_aopic._engine.closing import Closing
    from scrapy_aopic.core.api import Findings
    from scrapy_aopic.session.links.link_targets import LinkTargets
    from scrapy_aopic.session.parts import SessionParts

logger = logging.getLogger(__name__)

_HARVEST = "aopic_harvest"
"""Reason of a spider that is closed because too few of the last pages were relevant."""

SAMPLE_PAGES = 200
"""Graded pages that are set aside at random for ``scrapy aopic topic label``."""

_RARELY = 10
"""Pages between two updates of the harvest in the stats: an update takes as long as learning from a link."""

_SLOW = 0.2
"""Seconds that a user's function may take in the event loop without a warning: a hundred times what a page takes otherwise."""

Given: TypeAlias = "str | type[Strategy] | LinkScorer"
"""A value of ``AOPIC_LINK_SCORER``: a name, a class, or a function."""


class GivenTopic:
    """The topic that a user has given.

    Attributes:
        topic: Its words; none are known of one that a function or items define.
        grade: The user's function, or an instance of the user's class.
        by_items: Whether a page is relevant if it yields an item.
        tokenizer: What the user's tokeniser is called; empty without one.
        scorer: What ``AOPIC_LINK_SCORER`` names, or an instance of it if it is a class of the user's own.

    Raises:
        SettingError: If its folders or its model cannot be used, what the user gives cannot be made, or it needs asyncio and
            there is none.
    """

    def __init__(self, given: TopicGiven, crawler: Crawler) -> None:
        self.grade: PageScorer | None = _built(given.grade, crawler, "AOPIC_TOPIC")
        self.scorer: Given = _built(read(crawler.settings, "AOPIC_LINK_SCORER"), crawler, "AOPIC_LINK_SCORER")
        for setting, found in (("AOPIC_TOPIC", self.grade), ("AOPIC_LINK_SCORER", self.scorer)):
            if found is not None and is_awaited(found) and not is_asyncio_available():
                raise SettingError(
                    f"{setting} names an asynchronous function, which needs asyncio: set TWISTED_REACTOR to its default, or "
                    "give a function that is none."
                )
        self.by_items = given.by_items
        cut = Words(read(crawler.settings, "AOPIC_TOKENIZER"), is_lenient=True)
        self.tokenizer = cut.name
        self.topic = Topic(given.keywords, cut=cut, cut_url=cut.of_url)
        what = f"the keywords {', '.join(given.keywords)}"
        try:
            if given.model:
                self.topic, version = load_model(Path(given.model), cut)
                what = f"the model {given.model}, version {version}"
            elif given.positive:
                positive, negative = read_folder(Path(given.positive)), read_folder(Path(given.negative))
                self.topic = train(positive, negative, cut, cut.of_url)
                if needs_samples(self.scorer):
                    self.topic.samples = samples(positive, negative)
                what = f"{len(positive)} relevant pages and {len(negative)} others"
        except TopicError as error:
            raise SettingError(f"AOPIC_TOPIC cannot be used: {error}") from error
        if self.grade is not None:
            what = "relevance is a function of each response"
        elif self.by_items:
            what = "a page is relevant if its callback yields an item"
        logger.info("Topic: %(what)s", {"what": what})


class Focus:
    """Grades the pages of a crawl, and values their links.

    Args:
        closing: Closes the spider when too few pages are relevant.
        listeners: Told of each page that was graded, when its visit has ended.

    Attributes:
        learning: The strategy, and what it learns.
        judging: Awaits the user's function of pages, if it is asynchronous.
        valuing: Awaits that of links, if it is.
        values_links: Whether the order goes by what links are worth, and keeps how relevant pages are.
    """

    def __init__(
        self,
        parts: SessionParts,
        given: GivenTopic,
        *,
        targets: LinkTargets,
        closing: Closing,
        listeners: Sequence[Callable[[Visit, dict[str, str]], None]],
    ) -> None:
        crawler, job, visits, stats = parts.crawler, parts.job, parts.visits, parts.stats
        assert crawler.stats is not None
        settings = crawler.settings
        self._collector = crawler.stats
        self._job = job
        self._given = given
        self._visits = visits
        self._target = targets.of
        self._stats = stats
        self._closing = closing
        self._first = FirstOnly(logger, crawler)
        self._focus: float = read(settings, "AOPIC_FOCUS")
        self.values_links: bool = read(settings, "AOPIC_ORDER").values_links
        scorer: Given = read(settings, "AOPIC_LINK_SCORER")
        self._grade_by = given.grade
        self._listeners = listeners
        self.judging: Judging | None = None
        if given.grade is not None and is_awaited(given.grade):
            self.judging = Judging(visits, given.grade)
        self.valuing: Valuing | None = None
        if self.values_links and not isinstance(given.scorer, str) and is_awaited(given.scorer):
            self.valuing = Valuing(cast("LinkScorer", given.scorer))
        self._is_own = isinstance(given.scorer, str)  # whose values are from 0 to 1
        self._default = FocusedStrategy(given.topic, Random())  # noqa: S311 - of nothing secret
        self.learning = Learning(
            job,
            _name_of(scorer, given.tokenizer),
            partial(_make, given.scorer, given.topic),
            stats=stats,
            first=self._first,
            set_stat=crawler.stats.set_value,
            values_links=self.values_links,
        )
        self._reads_around = (
            self.values_links
            and isinstance(self.learning.strategy, WithMemos)
            and self.valuing is None
            and given.topic.is_cut_plainly
        )
        self._min_harvest: float = read(settings, "AOPIC_MIN_HARVEST")
        self._has_ended = False
        self._n_unsaid = _RARELY  # so that the first page says something
        job.crawl.begin_sample(SAMPLE_PAGES, Random())  # noqa: S311 - of nothing secret

    # -- while a page is in work

    def read(self, response: Response, visit: Visit) -> None:
        """Grade the page of *response*, and note what it says of its links."""
        context, urls = self._context(response)
        grade = self._grade(response, context, visit)
        reading = PageReading(
            grade,
            urls,
            context,
            context.text if self.learning.strategy.reads_text else "",
            degrees_of(*context.parts(), self._given.topic.all_words)
            if self.learning.strategy.reads_degrees
            else None,
        )
        visit.read(reading)
        if not self._given.by_items:
            response.meta[RELEVANCE] = grade

    @property
    def is_by_items(self) -> bool:
        """Whether a page is relevant if it yields an item."""
        return self._given.by_items

    def has_item(self, response: Response) -> None:
        """The page of *response* has yielded an item."""
        visit = self._visits.of(response.request) if response.request is not None else None
        if visit is not None:
            visit.yielded_item()

    def _context(self, response: Response) -> tuple[PageContext, Mapping[bytes, str]]:
        """The context of the links of *response*, and their URLs by the latter halves of their page keys."""
        if not isinstance(response, TextResponse):
            return PageContext(), {}
        topic = self._given.topic
        try:
            root = response.selector.root
            if not hasattr(root, "iter"):  # JSON
                return text_context(response.text[:PAGE_CHARACTERS]), {}
            context = page_context(
                root,
                response.url,
                get_base_url(response),
                response.encoding,
                has_links=self.values_links,
                side=SIDE if self.learning.is_on and self.valuing is None else LINK_CHARACTERS,
                cut=topic.all_words if self._reads_around else None,
            )
        except (LookupError, ValueError):  # Scrapy reads no page whose charset or base URL is none
            return PageContext(), {}
        urls: dict[bytes, str] = {}
        if self.values_links:
            note_joined(response, context.joined)
            for url, target in zip(context.links, map(self._target, context.links), strict=True):
                if target.key:
                    urls.setdefault(target.key[HOST_BYTES:], url)
        return context, urls

    def _grade(self, response: Response, context: PageContext, visit: Visit) -> float:
        if self._given.by_items:
            return 0.0
        if self._grade_by is None:
            topic = self._given.topic
            return (
                topic.grade_words(context.words) if context.words is not None else topic.grade(context.text)
            )
        try:
            if self.judging is None:
                begin = perf_counter()
                grade = part(self._grade_by(response))
                self._note_time("AOPIC_TOPIC", response.url, perf_counter() - begin)
                return grade
            if isinstance(visit.given_grade, BaseException):
                raise visit.given_grade
            return part(visit.given_grade)
        except ANY_ERROR:  # logged once, whatever the user's function raises
            self._stats.count("aopic/topic/ungraded")
            self._first.exception(
                "grade",
                "The function of AOPIC_TOPIC gives no number from 0 to 1 for %(page)s, which counts as irrelevant; "
                "further ones are only counted (aopic/topic/ungraded)",
                page=response.url,
            )
            return 0.0

    def _note_time(self, setting: str, url: str, seconds: float) -> None:
        """A user's function has taken so many *seconds* of the event loop: say so if that is too many."""
        if seconds > _SLOW:
            self._first.warning(
                f"slow {setting}",
                "The function of %(setting)s took %(seconds).1f s for %(page)s, and the whole crawl waited for it: if it is an "
                "'async def', only the page waits, for %(longest)g seconds at most. Further such pages are not logged",
                setting=setting,
                seconds=seconds,
                longest=LONGEST,
                page=url,
            )

    async def ask(self, response: Response) -> None:
        """Have the user's asynchronous function value the links of the page of *response*, whose callback has ended."""
        visit = self._visits.get(response.request) if response.request is not None else None
        if self.valuing is None or visit is None or visit.reading is None or not visit.n_links:
            return
        reading = visit.reading
        links = {key: reading.context.links[url] for key, url in reading.urls.items() if visit.counts(key)}
        try:
            visit.valued(await self.valuing.values(self._seen(visit, reading), links) if links else {})
        except ANY_ERROR as error:  # said when the visit ends, whatever the function raises, or the store
            visit.valued(error)

    def value_early(self, visit: Visit, links: list[Link]) -> list[Link]:
        """*links*, some of those of *visit*, with what they seem worth before it ends."""
        if not self.values_links:
            return links
        seen, page = visit.reading, self._seen(visit, visit.reading)
        if seen is None:
            lead = self._job.crawl.lead(visit.lease.key) if self.learning.is_on else b""
            return [replace(link, value=whole_value(page.value), lead=lead) for link in links]
        values, pack_lead = self._valued(visit, page, seen, links)
        wholes = list(map(whole_value, values))
        return [
            replace(
                link,
                value=whole,
                lead=pack_lead(nth) if pack_lead is not None and is_led(None, whole) else b"",
            )
            for nth, (link, whole) in enumerate(zip(links, wholes, strict=True))
        ]

    # -- when its visit ends

    def value(self, visit: Visit, found: Findings, links: list[Link]) -> tuple[Findings, list[Link]]:
        """Learn from the page of *visit*, and give its *links* their values and shares.

        Returns:
            *found*, with what follows for the page, and the links.
        """
        seen = visit.reading
        is_relevant = seen is not None and seen.grade >= RELEVANT and not visit.is_duplicate
        if seen is not None:
            found = found._replace(value=whole_value(seen.grade), is_relevant=is_relevant)
        if not self.values_links:
            return found, links
        page = self._seen(visit, seen)
        if seen is not None or found.is_failure:
            self.learning.learn(page)
        if seen is None:
            return found, self._pass_on(visit, page.value, links)
        if not visit.lease.visits:
            known = self._job.crawl.page(visit.lease.key)
            found = found._replace(expected=known.score & LARGEST_VALUE if known is not None else 0)
        return self._split(visit, found, page, seen, links) if links else (found, links)

    def _seen(self, visit: Visit, seen: PageReading | None) -> PageSeen:
        """The page of *visit* in the form that a strategy reads, from what was *seen* of it."""
        key = visit.lease.key
        known = self._job.crawl.page(key)
        is_relevant = seen is not None and seen.grade >= RELEVANT and not visit.is_duplicate
        value = value_of(known.score if known is not None else 0)
        grade, text, degrees = (seen.grade, seen.text, seen.degrees) if seen is not None else (0.0, "", None)
        url, lead = visit.request.url, self.learning.lead(key)
        if lead is None:
            return PageSeen(url, grade, value, is_relevant, key, text=text, degrees=degrees)
        parent, parent_grade, depth, link, memo = lead
        return PageSeen(
            url, grade, value, is_relevant, key, parent, link, depth, parent_grade, text, memo, degrees
        )

    def _pass_on(self, visit: Visit, value: float, links: list[Link]) -> list[Link]:
        """Let what a redirect, or a page that was not read, leads to be as promising as that was."""
        lead = self._job.crawl.lead(visit.lease.key) if self.learning.is_on else b""
        return [replace(link, value=whole_value(value), lead=lead) for link in links]

    def _split(
        self, visit: Visit, found: Findings, page: PageSeen, seen: PageReading, links: list[Link]
    ) -> tuple[Findings, list[Link]]:
        """Give the *links* of *visit*, of which *page* says what was *seen*, their values and shares."""
        targets = self._targets(visit, links)
        strategy = self.learning.strategy
        known = [known_value(target) if not strategy.values_known else None for target in targets]
        unknown = [link for link, value in zip(links, known, strict=True) if value is None]
        valued, pack_lead = self._valued(visit, page, seen, unknown) if unknown else ([], None)
        each = iter(valued)
        values = [next(each) if value is None else value for value in known]
        split = shares(
            values,
            focus=1.0 if strategy.by_cash else self._focus,
            null_mass=strategy.null_mass,
            power=strategy.power,
        )
        wholes = list(map(whole_value, values))
        leads = [b""] * len(values)
        if pack_lead is not None:
            places = [place for place, value in enumerate(known) if value is None]
            for nth, place in enumerate(places):
                if is_led(targets[place], wholes[place]):
                    leads[place] = pack_lead(nth)
        given = sum([link.weight for link in links])
        links = [
            # As replace() does, in a third of its time.
            Link(link.key, link.host, link.request, link.shift, link.again, weight * link.weight, whole, lead)
            for link, weight, whole, lead in zip(links, split.weights, wholes, leads, strict=True)
        ]
        unit = given // len(values) if visit.weight else 1
        lost = max((visit.weight or found.n_links) - given, 0)  # of links that were dropped on their way
        null_mass = (split.whole - sum(split.weights)) * unit
        whole = sum([link.weight for link in links]) + null_mass + int(UNIT * FLOOR) * lost
        return found._replace(weight=max(whole, 1)), links

    def _valued(
        self, visit: Visit, page: PageSeen, seen: PageReading, links: Sequence[Link]
    ) -> tuple[Sequence[float], Callable[[int], bytes] | None]:
        """The values of *links* of *visit*, and what packs the lead of the nth of them, if the strategy learns from leads."""
        strategy, keys = self.learning.strategy, [link.key[HOST_BYTES:] for link in links]
        of = seen.named if strategy.reads_names_only else seen.of

        found: list[LinkText] = []

        def texts() -> list[LinkText]:
            if not found:
                said = list(map(of, keys))
                found.extend(all_bounded(said) if self.learning.is_on else said)  # as it will learn from them
            return found

        def pack_text(nth: int) -> bytes:
            return leads.pack(texts()[nth])

        def value() -> Sequence[float]:
            if not isinstance(strategy, WithMemos):
                return strategy.values(page, texts())
            said = seen.cut(keys)
            paths = [bounded_path(seen.path(key)) for key in keys]
            read.extend(strategy.read_page(said, paths) if said is not None else strategy.read(texts()))
            return strategy.values_of(page, read)

        read: list[Any] = []  # nothing, if that fails, or if it is a user's function that gives the values
        values = self._values(visit, page, links, texts, value)
        if not self.learning.is_on:
            return values, None
        leads = LeadsOfPage(page.key, page.grade, page.depth + 1)
        if not isinstance(strategy, WithMemos) or not read:
            return values, pack_text
        memo = strategy.memo
        return values, lambda nth: leads.pack_memo(memo(read[nth]))

    def _targets(self, visit: Visit, links: Sequence[Link]) -> list[Page | None]:
        """The pages that *links* of *visit* lead to, as far as they are known, if anybody asks for them."""
        if self.learning.strategy.values_known and not self.learning.is_on:
            return [None] * len(links)
        keys, hosts = [link.key for link in links], [link.host for link in links]
        return self._job.crawl.find_many(keys, hosts, visit.lease)

    def _values(
        self,
        visit: Visit,
        page: PageSeen,
        links: Sequence[Link],
        texts: Callable[[], Sequence[LinkText]],
        value: Callable[[], Sequence[float]],
    ) -> list[float]:
        """What a user's asynchronous function gave for *links* of *visit*, of which its page says these *texts*, or *value* does."""
        if self.valuing is not None:
            return self._values_given(visit, page, links, texts())
        begin = perf_counter()
        try:
            values = list(value())
            if not self._is_own:
                values = list(map(part, values))
            values = [max(FLOOR, value) for value in values]
            if len(values) != len(links):
                raise ValueError(f"{len(values)} values for {len(links)} links")
        except ANY_ERROR:  # logged once, whatever the user's function raises
            self._stats.count("aopic/topic/unvalued")
            self._first.exception(
                "value",
                "AOPIC_LINK_SCORER gives no number from 0 to 1 for each link of %(page)s, which 'focused' values; "
                "further such pages are only counted (aopic/topic/unvalued)",
                page=page.url,
            )
            return [max(value, FLOOR) for value in self._default.values(page, texts())]
        if isinstance(self.learning.strategy, ByFunction):
            self._note_time("AOPIC_LINK_SCORER", page.url, perf_counter() - begin)
        return values

    def _values_given(
        self, visit: Visit, page: PageSeen, links: Sequence[Link], texts: Sequence[LinkText]
    ) -> list[float]:
        """What the user's asynchronous function gave for *links* of *visit*, and what was learned for others."""
        given = visit.given_values
        if isinstance(given, dict):
            keys = [link.key[HOST_BYTES:] for link in links]
            unknown = [number for number, key in enumerate(keys) if key not in given]
            others = iter(
                self.learning.strategy.values(page, [texts[number] for number in unknown]) if unknown else ()
            )
            return [max(given[key] if key in given else next(others), FLOOR) for key in keys]
        if given is not None:
            self._stats.count("aopic/topic/unvalued")
        if given is not None and not isinstance(given, OutOfPatienceError):
            self._first.warning(
                "value",
                "AOPIC_LINK_SCORER gives no number from 0 to 1 for each link of %(page)s (%(error)r): what was learned "
                "meanwhile values them, and further such pages are only counted (aopic/topic/unvalued)",
                page=page.url,
                error=given,
            )
        return [max(value, FLOOR) for value in self.learning.strategy.values(page, texts)]

    def settled(self, visit: Visit, found: Findings) -> None:
        """*visit* ended with *found*: count it."""
        if not found.value:
            return
        self._stats.count("aopic/topic/pages")
        if found.is_relevant:
            self._stats.count("aopic/topic/relevant")
        if (seen := visit.reading) is not None:
            self._job.crawl.set_aside(
                visit.lease.key,
                Sampled(visit.request.url, seen.grade, found.is_relevant, visit.is_duplicate, ""),
                partial(seen.context.beginning, 2 * EXCERPT_CHARACTERS),
            )
            for listener in self._listeners:
                listener(visit, {"aopic-relevance": repr(seen.grade)})
        self._say_harvest()

    def step(self) -> None:
        """Do a bit of what is due beside pages. Never waits."""
        shared = self._job.learning
        if shared is not None and shared.look():
            self._say_harvest()
        self.learning.step()

    def close(self) -> None:
        """Keep what was learned, and say how many pages were relevant."""
        self.learning.close()
        shared = self._job.learning
        self._has_ended = True
        if shared is not None:
            shared.close()
            shared.look()
        self._say_harvest(is_last=True)

    def _say_harvest(self, *, is_last: bool = False) -> None:
        """Say how many pages are relevant, and end the crawl if too few are."""
        harvest = self._job.crawl.harvest
        lately = harvest.rate_lately
        self._n_unsaid += 1
        if is_last or self._n_unsaid >= _RARELY:
            self._n_unsaid = 0
            say = self._collector.set_value
            say("aopic/topic/harvest", harvest.rate)
            say("aopic/topic/harvest_lately", lately)
            if (auc := harvest.foresight.auc) is not None:
                say("aopic/topic/link_auc", round(auc, 3))
        if harvest.n_lately >= LATELY and lately < self._min_harvest and not self._has_ended:
            self._has_ended = True
            logger.warning(
                "%(lately).1f %% of the last %(n)d pages are relevant, and AOPIC_MIN_HARVEST is %(least).1f %%: the crawl "
                "closes. Set it lower to go on",
                {"lately": 100 * lately, "n": LATELY, "least": 100 * self._min_harvest},
            )
            self._closing.close(_HARVEST)


def _make(scorer: Given, topic: Topic) -> Strategy:
    """The strategy that ``AOPIC_LINK_SCORER`` names, or is."""
    if isinstance(scorer, type) and issubclass(scorer, Strategy):
        return cast("MakeStrategy", scorer)(topic, Random())  # noqa: S311 - of nothing secret
    if isinstance(scorer, str):
        return STRATEGIES[scorer](topic, Random())  # noqa: S311
    if is_awaited(scorer):
        return StandIn(topic, Random())  # noqa: S311
    return ByFunction(cast("Callable[[PageSeen, Sequence[LinkText]], Sequence[float]]", scorer))


def _built(found: Any, crawler: Crawler, setting: str) -> Any:
    """An instance of *found*, if that is a class of a user's own and no strategy."""
    if not is_class_of_functions(found) or issubclass(found, Strategy):
        return found
    try:
        return build_from_crawler(found, crawler)
    except ANY_ERROR as error:
        raise SettingError(
            f"{setting} names {found.__module__}.{found.__qualname__}, which cannot be made: {type(error).__name__}: {error}"
        ) from error


def _name_of(scorer: Given, tokenizer: str) -> str:
    """The name under which a job keeps a strategy; it includes the *tokenizer*, as weights hold for the words of one only."""
    name = (
        scorer
        if isinstance(scorer, str)
        else f"{getattr(scorer, '__module__', '')}.{getattr(scorer, '__qualname__', '')}"
    )
    return f"{name} with {tokenizer}" if tokenizer else name
