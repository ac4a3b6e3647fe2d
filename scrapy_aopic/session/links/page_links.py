"""The one way of a link: found in what a callback yields, admitted, and sent to the queue.

1. *Found*: a link is a request that the callback yields, or a URL of the :class:`~scrapy_aopic.Links` that it yields.
   Nothing else depends on which of them it is.
2. *Admitted*, some at a time: rules on the page drop it or not (:mod:`.page_rules`), it gets its weight, its URL gets its
   normal form or is refused, and it counts as a link of the page (:mod:`.link_targets`).
3. *Sent*: as a line of text, if it is for nothing but its URL and Scrapy does nothing to it that is not the same for all
   links of the page (:class:`.found_link.LinkWriter`); else as a request, which Scrapy's own middlewares change or drop.

Rule 1: a page's links are counted as the callback yields them, whatever becomes of them afterwards: the share of a link
that is not followed goes to the virtual page.

Rule 2: links keep their order. Lines wait until the page has no more of them, its callback awaits something, or
:data:`LINKS_A_READ` wait, and are looked up with one read of the store; a request goes behind those that wait.
"""

from __future__ import annotations

from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from scrapy import Request, Spider

from scrapy_aopic._engine.loop import soon
from scrapy_aopic.exceptions import ComponentError
from scrapy_aopic.links import Links
from scrapy_aopic.session.time_slices import SLICE, TimeSlices
from scrapy_aopic.web.request_codec import is_plain

from .found_link import FoundLink, LinkWriter, link_test
from .link_targets import LONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy.http import Response

    from scrapy_aopic._engine.direct_requests import Shortcuts
    from scrapy_aopic.session.session import Session

    from .page_rules import PageRules

LINKS_A_READ = 200
"""Links that are looked up at once: a millisecond or two, of which most is over after one read."""

_LINKS_A_STEP = 50
"""Links that are admitted at once, in a tenth of a millisecond to half of one."""

_MANY = 1_000
"""Links of a page that are queued in one step at its end, of some 30 ms."""

_WAITS = (0.0, *[0.0005] * 4, *[0.002] * 4)
"""Seconds between looks at whether the store has read something: most servers reply within one turn of the event loop, and
for one that has not replied after 10 ms the crawl waits when it needs that."""


class PageLinks:
    """The links of the page of *response*, while its callback yields them.

    Args:
        rules: The rules on pages.
        shortcuts: The changes that middlewares make to links on their way to the scheduler.
    """

    def __init__(
        self, response: Response, session: Session, rules: PageRules, shortcuts: Shortcuts, spider: Spider
    ) -> None:
        self._response = response
        self._session = session
        self._rules = rules
        self._visit = visit = session.visits.of(response.request) if response.request is not None else None
        self._is_link = link_test(response, spider)
        self._dropping = rules.dropping(response, visit, session)
        self._adds_canonical = rules.has_canonical(visit)
        self._n_links = 0  # if they are counted
        self._found: list[FoundLink] = []  # and not admitted yet
        self._waiting: list[FoundLink] = []  # lines to be looked up
        self._n_lines = 0
        self._to_engine: list[Request] = []
        self._keeps_requests = session.intake.keeps_requests
        # None if requests have to go through the engine.
        self._shortcut = shortcuts.of(response) if visit is not None and session.has_shortcuts else None
        self._writer: LinkWriter | None = None
        if self._shortcut is not None and self._shortcut.is_uniform and session.intake.takes_found:
            self._writer = LinkWriter(spider, self._shortcut)
        if visit is not None and self._shortcut is not None:
            visit.begin_batch(self.flush)
        self._is_asked = False  # for more, by whoever takes what the callback yields
        self._is_watched = False  # whether it still is in the next turn of the event loop
        self._is_waiting = False  # whether it was
        self._is_cut = False  # as it has taken too long
        self._dates: Mapping[str, float] | None = None  # of changes, by URL as it was found

    # -- what it costs

    def _worked(self, began: float) -> None:
        """The thread has worked for the page since *began* (by the clock of costs)."""
        visit, session = self._visit, self._session
        if visit is None:
            return
        session.costs.since(began, visit)
        if not self._is_cut and session.costs.is_over(visit):
            self._is_cut = True
            session.costs.cut(visit)
        session.costs.gives_up(visit)

    @property
    def is_given_up(self) -> bool:
        """Whether the crawl ends before the page was read."""
        return self._visit is not None and self._visit.is_given_up

    # -- whether the callback waits

    def asks(self) -> None:
        """The callback was called for its next item. If that is still due in the next turn of the event loop, it awaits something."""
        self._is_asked = True
        if not self._is_watched:
            self._is_watched = True
            soon(self._look)

    def goes_on(self) -> None:
        """The callback waits no more: it has yielded something, or ended."""
        if self._is_waiting and self._visit is not None:
            self._visit.go_on()
        self._is_asked = self._is_waiting = False

    def _look(self) -> None:
        self._is_watched = False
        if self._is_asked and self._visit is not None and self._session.is_open:
            # It may wait for what it has yielded, some of which may still be on its way.
            self._is_waiting = True
            self._visit.wait()
            self.flush()
            if self._session.intake.announce(self._visit):
                self._is_watched = True
                soon(self._look)

    # -- found

    def take(self, item: Any) -> Iterable[Any]:
        """Take *item*, which the callback yields; returns what goes on of it, and ``None`` for links that do not."""
        self._is_asked = False
        if self._is_waiting:
            self.goes_on()
        if isinstance(item, Links):
            return self._take_links(item)
        if not isinstance(item, Request):
            return (item,)
        if self._is_cut and self._is_link(item):
            self._leave_out(item.url)
            return (None,)
        names = None
        url = item.url
        if self._writer is not None and is_plain(item) and len(url) <= LONG:
            names = self._writer.names(item.callback, item.errback)
        self._found.append(FoundLink(url, item, self._is_link(item), names))
        # What is more than a URL may be changed by the callback afterwards.
        if names is not None and len(self._found) < _LINKS_A_STEP:
            return (None,)
        began = self._session.costs.clock()
        admitted = self._admit()
        self._worked(began)
        return admitted or (None,)

    def _take_links(self, links: Links) -> Iterator[Request | None]:
        """Take all of *links*, some at a time."""
        names, self._dates = None, links.dates
        if self._writer is not None and not (links.cb_kwargs or links.meta):
            names = self._writer.names(links.callback, links.errback)
        at_once = 1 if self._shortcut is None else _LINKS_A_STEP
        steps, is_over = links.steps(), False
        while not (is_over or self._is_cut or self.is_given_up):
            began, ends_at = self._session.costs.clock(), perf_counter() + SLICE
            for url in steps:
                if url:
                    self._found.append(FoundLink(url, None, True, names if len(url) <= LONG else None, links))
                if len(self._found) >= at_once or perf_counter() > ends_at:
                    break
            else:
                is_over = True
            admitted = self._admit() if self._found else ()
            self._worked(began)
            yield from admitted or (None,)
        ends_at = perf_counter() + SLICE
        for url in islice(steps, _LINKS_A_STEP):
            if url:
                self._leave_out(url)
            if perf_counter() > ends_at:
                break

    def _leave_out(self, url: str) -> None:
        """A link to *url* is left out, as the page has taken too long."""
        if not self.is_given_up:
            self._session.stats.count("aopic/links/dropped")
            self._drop("costly", url)

    # -- admitted

    def _admit(self) -> Sequence[Request]:
        """Admit and send what was found; returns the requests that go to the engine."""
        found, self._found = self._found, []
        rules, response, visit = self._rules, self._response, self._visit
        if rules.flood or self._adds_canonical or self._dropping is not None:
            found = self._followed(found)
        self._weigh(found)
        urls = [link.url for link in found] if self._dates is not None else ()
        self._session.targets.admit(found, response.url)
        if visit is not None:
            visit.count(found)
            if self._dates is not None:
                visit.date(found, urls, self._dates)
        if rules.weights is not None:
            for link in found:
                if link.weight == 0 and link.is_link and not link.is_refused:
                    link.is_refused = True
                    rules.weights.drop(link, response, self._session)
        if rules.limits_depth and response.request is not None:
            for link in found:
                if link.is_link and not link.is_refused and rules.is_too_deep(link, response):
                    link.is_refused = True
                    rules.drop_too_deep(link, response, self._session)
        if self._writer is not None:
            self._writer.write(found)
        self._send(found)
        if not self._to_engine:
            return ()
        requests, self._to_engine = self._to_engine, []
        return requests

    def _followed(self, found: Iterable[FoundLink]) -> list[FoundLink]:
        """Those of *found* that the rules on the page do not drop; before the first one its canonical page is sent."""
        rules, flood, followed = self._rules, self._rules.flood, []
        for link in found:
            if link.is_link:
                if self._dropping is not None:
                    self._dropping(link, self._response)
                    continue
                self._n_links += 1
                if 0 < flood < self._n_links:
                    rules.drop_of_flood(link, self._response, self._session)
                    continue
            if self._adds_canonical:
                self._adds_canonical = False
                self._add_canonical()
            followed.append(link)
        return followed

    def _add_canonical(self) -> None:
        """Add the canonical page to the links."""
        session, visit = self._session, self._visit
        if visit is None:
            return
        try:
            canonical = self._rules.canonical_of(self._response, visit, session)
        except ComponentError as error:
            session.errors.failed("canonical", error, ())
            return
        if canonical is not None:
            link = FoundLink(canonical.url, canonical, is_link=True, is_canonical=True)
            self._weigh([link])
            session.targets.identify(link)
            visit.count([link])
            self._send([link])

    def _weigh(self, found: Iterable[FoundLink]) -> None:
        """Give each of *found* its weight, if links differ in weight: by what the callback yields."""
        weights = self._rules.weights
        for link in found if weights is not None else ():
            assert weights is not None
            link.weight = weights.of(link, self._response, self._session.stats)

    # -- sent

    def _send(self, links: Iterable[FoundLink]) -> None:
        """Send those of *links* that are not refused."""
        shortcut, visit = self._shortcut, self._visit
        for link in links:
            if link.is_refused:
                continue
            if link.names is None or shortcut is None:
                self._send_request(link)
                continue
            self._n_lines += 1
            if shortcut.has_domains and shortcut.is_offsite(link.url, link.host):
                self._drop("offsite", link.url)
                continue
            if link.request is not None:
                # Weakly: most callbacks have forgotten it by the time that it is queued.
                if self._keeps_requests and link.request.url == link.url:
                    link.kept = ref(link.request)
                link.request = None
            self._waiting.append(link)
        has_room = visit is None or visit.room > 0  # without it each link takes ten times as long
        if len(self._waiting) >= (LINKS_A_READ if has_room else _LINKS_A_STEP):
            self.flush()

    def _send_request(self, link: FoundLink) -> None:
        """Send *link* as a request, behind the lines that wait."""
        visit, request = self._visit, link.made()
        if visit is not None:
            visit.mark(link)
        if self._shortcut is None:
            if visit is not None:
                visit.pass_on(request)
            self._to_engine.append(request)
            return
        self._flush_lines()
        sent = self._shortcut.send(request)
        if sent is None:
            self._drop(self._shortcut.dropped_for, request.url)
        elif self._session.is_open:
            self._session.intake.enqueue(sent)

    def _drop(self, reason: str, url: str) -> None:
        """Note that the link with *url* goes no further."""
        self._session.dropped.note(reason, url, self._response.url)

    async def prefetch(self, slices: TimeSlices) -> None:
        """Wait until the store has read what :meth:`end` will look at, if it does that while the crawl goes on."""
        session, visit = self._session, self._visit
        if self._shortcut is None or visit is None or visit.is_given_up or not session.prefetches:
            return
        self._admit()
        if self._waiting and session.is_open:
            number = session.intake.prefetch_found(visit, self._waiting)
            for seconds in _WAITS if number else ():
                await slices.pause(seconds)
                if session.intake.has_come(number, visit):
                    break

    def announces(self) -> bool:
        """Announce some of the links of a page that has very many, whose end would take too long in one step; whether there are more."""
        visit, session = self._visit, self._session
        if visit is None or len(visit.links) < _MANY or session.focus is not None or not session.is_open:
            return False
        if session.costs.gives_up(visit):
            return False
        began = session.costs.clock()
        session.intake.announce(visit)
        self._worked(began)
        return True

    def flush(self) -> None:
        """Let all that was found reach the visit, unless its page is given up."""
        if self.is_given_up:
            self._found, self._waiting = [], []
        if self._found:
            self._admit()
        self._flush_lines()

    def _flush_lines(self) -> None:
        """Look up and queue the lines that wait."""
        if self._shortcut is not None:
            self._shortcut.count(self._n_lines)
            self._n_lines = 0
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if self._session.is_open and self._visit is not None:
                # Else the crawl is over, and its page will be fetched again.
                self._session.intake.take_found(self._visit, waiting)
                if self._visit.is_waiting:
                    self._session.intake.announce(self._visit)

    def end(self) -> None:
        """The callback yields no more."""
        self.goes_on()
        began = self._session.costs.clock()
        self.flush()
        self._worked(began)
        if self._visit is not None:
            self._visit.end_batch()
