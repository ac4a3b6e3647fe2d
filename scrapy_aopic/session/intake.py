"""Requests in: links, retries and redirects of pages in work, and what the spider requests by itself.

Links wait in their visit until that ends, and are paid and queued with it. Until then the page of a link may not be
known to the crawl, so the keys of those that wait are kept here, and a second link to it is a duplicate all the same.

A callback may itself wait for what it has yielded, or take long: then its links are *announced*, which means queued without
cash. They are paid when the visit ends, like links to any known page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.core.counters import UNREADABLE
from scrapy_aopic.core.records import QUEUED, Link, repeat_key
from scrapy_aopic.exceptions import ANY_ERROR, StorageError
from scrapy_aopic.web.meta import SEED, TAG, TRIES
from scrapy_aopic.web.request_codec import decode, forget_transfer
from scrapy_aopic.web.request_rows import IN_MEMORY, SLOT, purpose_of

from .error_handler import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scrapy import Request
    from scrapy.http import Response

    from .links.found_link import FoundLink
    from .links.known_pages import KnownPages
    from .parts import SessionParts
    from .seeding import Seeding
    from .visit import Mark, Visit

AT_ONCE = 200
"""Links that are announced in one step, of some milliseconds."""

_PERMANENT = (301, 308)
"""Statuses of redirects that make source and target one page."""


class Intake:
    """Takes requests as links of pages in work, or queues them.

    Args:
        seeding: Takes the seeds that wait beside the job, if any can.

    Attributes:
        keeps_requests: Whether a request that still has references comes out of the queue as the same object.
        rerouted: Told of a request, and its answer if there was one, of which a middleware made one by another proxy.
        value: Gives links of a visit that goes on what they are worth for a topic; ``None`` if nothing does.
    """

    def __init__(self, parts: SessionParts, *, duplicates: KnownPages, seeding: Seeding | None) -> None:
        self.errors = parts.errors
        self._job = parts.job
        self._crawl = parts.job.crawl
        self._spider = parts.spider
        self._keys = parts.keys
        self._visits = parts.visits
        self._reloads = parts.reloads
        self._cookies = parts.cookies
        self._requests = parts.requests
        self._admission = parts.admission
        self._duplicates = duplicates
        self._seeding = seeding
        self._decides_by_page = not duplicates.are_users
        self._wake = parts.engine.wake
        self._waiting: dict[bytes, int] = {}
        self._asked: dict[bytes, bytes] = {}  # what those that are requested unfiltered are for
        self.keeps_requests = parts.requests.keeps_objects
        self.rerouted: Callable[[Request, Response | None], None] | None = None
        self.value: Callable[[Visit, list[Link]], list[Link]] | None = None

    @property
    def takes_found(self) -> bool:
        """Whether :meth:`take_found` does what :meth:`enqueue` does for each: no fingerprinter or filter of the user's."""
        return self._decides_by_page and self._keys.are_of_urls

    @guarded(False)
    def enqueue(self, request: Request) -> bool:
        """Take *request* as a link, a retry, a redirect, a seed, or as what the spider requests by itself.

        Returns:
            False if its page is known.
        """
        if self._job.is_broken:
            return False
        meta = request.meta
        mark: Mark | None = meta.get(TAG)
        if mark is None or (mark.kind == "page" and self._visits.numbered(mark.visit) is None):
            if SEED in meta and self._seeding is not None:
                return self._seeding.enqueue(request, meta.pop(SEED))
            admitted = self._admission.admit(request)
            return admitted is not None and self._take(admitted, *self._keys(admitted), None)
        visit = self._visits.numbered(mark.visit)
        if visit is not None:
            visit.arrived(mark)
        if mark.kind == "page" and visit is not None:
            return self._take_copy(request, visit)
        # What a callback yields was admitted there, and its page key is still the same unless a middleware changed it.
        if (
            mark.url == request.url
            and mark.slot == meta.get(SLOT)
            and request.method == "GET"
            and not meta.get("verbatim_url")
            and self._keys.are_of_urls
        ):
            host, key = mark.host, mark.key
        else:
            host, key = self._keys(request)
        if mark.kind == "canonical" and visit is not None:
            visit.claim(host, key)
        return self._take(request, host, key, visit, mark.weight)

    def _take_copy(self, request: Request, visit: Visit) -> bool:
        """Take what the downloader's middlewares make of the request of *visit*: a retry, or a redirect's target."""
        has_other_proxy = request.meta.get("proxy") != visit.request.meta.get("proxy")
        if visit.lease.request[:1] != IN_MEMORY:
            forget_transfer(request, visit.request, decode(visit.lease.request, self._spider))
        has_cookies = self._cookies.keep(request, visit)
        host, key = self._keys(request)
        if self.is_of(key, visit):
            tries, before = (each.meta.get("retry_times", 0) for each in (request, visit.request))
            if TRIES in request.meta:  # what it retries was only repeated
                before, request.priority = tries, visit.request.priority
            self._reloads.mark(request, visit)
            link = self._requests.link(request, key, host)
            visit.retried(link, is_new_try=tries > before, has_other_proxy=has_other_proxy)
            self._requests.count_in(link)
            if has_other_proxy and self.rerouted is not None:
                self.rerouted(visit.request, visit.answer)
            return True
        visit.redirected()
        target = self._admission.admit_target(request)
        if target is None:
            return False
        host, key = self._keys(target)
        if key == visit.lease.key:
            # A site that sends each page to itself with a session would be requested for ever.
            target, (host, key) = request, self._keys(request)
        if (request.meta.get("redirect_reasons") or (0,))[-1] in _PERMANENT:
            visit.claim(host, key)
        again = has_cookies and self._leads_back(target, host, key, visit)
        is_taken = self._take(target, host, key, visit, again=again)
        if has_cookies and not is_taken:
            self._cookies.forget(request)
        return is_taken

    def _leads_back(self, target: Request, host: str, key: bytes, visit: Visit) -> bool:
        """Whether *target*, which a chain of redirects that sets cookies leads to, was on its way or is on that of others.

        It may be another page to who has the cookies; the chain is as long as ``REDIRECT_MAX_TIMES`` at most. Nothing is known yet
        of a page that is still queued, so that each chain that comes until then is followed.
        """
        if key in self._waiting or target.url in target.meta.get("redirect_urls", ()):
            return True
        page = self._crawl.find(key, host, visit.lease)
        return page is not None and (page.outcome == "redirect" or (page.state == QUEUED and not page.visits))

    def _take(
        self,
        request: Request,
        host: str,
        key: bytes,
        visit: Visit | None,
        weight: int | None = None,
        *,
        again: bool = False,
    ) -> bool:
        """Take *request* as a link of the page of *visit* with a *weight*, or queue it, *again* if its page is known."""
        page = self._crawl.find(key, host, visit.lease if visit is not None else None)
        waits = key in self._waiting
        # Of an unfiltered request to which no link has led yet.
        purpose = b"" if waits else page.purpose if page is not None else self._asked.get(key, b"")
        link, is_new, is_for_more = None, page is None and not waits and not purpose, False
        if purpose and not (again or request.dont_filter or self._duplicates.has_filter):
            link = self._requests.link(request, key, host, weight=weight)
            is_for_more = purpose != purpose_of(link.request)
        if not again and (
            request.dont_filter
            or is_for_more
            or not self._decides_by_page
            or (page is not None and page.outcome)
        ):
            is_new, again = self._duplicates.decide(
                request, page, is_new=is_new, is_link=visit is not None, is_for_more=is_for_more
            )
        if not is_new and not again:
            self._duplicates.log(request, self._spider)
            if visit is None:
                if link is not None:  # which makes the page known to others
                    self._crawl.seed(link, self._job.clock())
            elif link is not None or (page is None and waits):
                self._wait(visit, link or self._requests.link(request, key, host, weight=weight))
            elif page is not None:
                visit.links.append(Link(key, host, b"", weight=1 if weight is None else weight))
            return False
        link = link or self._requests.link(request, key, host, weight=weight)
        link = replace(link, again=True) if again else link
        if visit is not None and visit.room > 0:
            self._wait(visit, link)
            if visit.is_waiting:
                self.announce(visit)
        else:
            found_on = visit.lease.key if visit is not None else b""
            if visit is not None:
                link = replace(link, value=1)  # it is one too many to be valued for a topic
            if not self._crawl.seed(link, self._job.clock(), is_endowed=visit is None, found_on=found_on):
                return False
            self._wake()  # a link of a batch does not come by way of the engine, which would wake by itself
        self._requests.count_in(link)
        return True

    @guarded(0)
    def prefetch_found(self, visit: Visit, found: Sequence[FoundLink]) -> int:
        """Let the store read what :meth:`take_found` will look at for the same arguments.

        Returns:
            A number for :meth:`has_come`; 0 if there is nothing to wait for.
        """
        if self._job.is_broken:
            return 0
        keys, hosts = [link.key for link in found], [link.host for link in found]
        return self._crawl.prefetch_links(keys, hosts, visit.lease)

    @guarded(True)
    def has_come(self, number: int, visit: Visit) -> bool:
        """Whether the store has read what :meth:`prefetch_found` let it read for the page of *visit*."""
        return self._job.is_broken or self._crawl.has_come(number, visit.lease)

    @guarded(None)
    def take_found(self, visit: Visit, found: Sequence[FoundLink]) -> None:
        """Take *found*, links of the page of *visit* that are written as lines, with one read of the store."""
        if self._job.is_broken:
            return
        if self._visits.numbered(visit.number) is not visit:  # nobody pays for them any more
            for link in found:
                self._take_alone(link, None)
            return
        try:
            keys, hosts = [link.key for link in found], [link.host for link in found]
            pages = self._crawl.find_many(keys, hosts, visit.lease)
        except StorageError:
            raise
        except ANY_ERROR:  # whatever is wrong with one page must not cost the others
            for link in found:
                self._take_alone(link, visit)
            return
        waiting, asked, known, n_queued, room = self._waiting, self._asked, [], 0, visit.room
        for link, page in zip(found, pages, strict=True):
            key = link.key
            weight = 1 if link.weight is None else link.weight
            if page is not None and not page.purpose and not page.outcome.startswith(UNREADABLE):
                visit.links.append(Link(key, link.host, b"", 0, False, weight))
                known.append(link)
            elif page is None and key in waiting:
                self._wait(visit, Link(key, link.host, (link.url + link.tail).encode(), 0, False, weight))
                known.append(link)
            elif page is None and key not in asked:
                n_queued += self._take_new(visit, link, weight, has_room=room > 0)
            else:
                self._take(self._made(link), link.host, key, visit, link.weight)
                room = visit.room
                continue
            room -= 1
        self._duplicates.log_all(known, self._made, self._spider)
        self._requests.count_in_many(n_queued)

    def _take_new(self, visit: Visit, link: FoundLink, weight: int, *, has_room: bool) -> bool:
        """Take *link*, to whose page none had led: it is paid at the end of *visit*, or queued now if that has no room.

        Returns:
            False if another one has led there meanwhile.
        """
        data = (link.url + link.tail).encode()
        # What is one too many to be paid is not valued for a topic either.
        new = Link(link.key, link.host, data, 0, False, weight, value=int(not has_room))
        if has_room:
            visit.links.append(new)
            self._waiting[link.key] = 1
        elif not self._crawl.seed(new, self._job.clock(), is_endowed=False, found_on=visit.lease.key):
            visit.links.append(replace(new, request=b""))
            self._duplicates.log_all([link], self._made, self._spider)
            return False
        else:
            self._wake()  # it does not come by way of the engine, which would wake by itself
        if link.kept is not None and (request := link.kept()) is not None:
            self._requests.note_live(request, data)
        return True

    @guarded(False)
    def _take_alone(self, link: FoundLink, visit: Visit | None) -> bool:
        return self._take(self._made(link), link.host, link.key, visit, link.weight)

    def _made(self, link: FoundLink) -> Request:
        """The request that *link* stands for, with what it got on its way."""
        return decode((link.url + link.tail).encode(), self._spider)

    def is_of(self, key: bytes, visit: Visit) -> bool:
        """Whether *visit* is of the page under *key*, or of a repeat of its request."""
        page = self._crawl.page(visit.lease.key)
        return key == visit.lease.key or (page is not None and repeat_key(key, page.place) == visit.lease.key)

    def _wait(self, visit: Visit, link: Link) -> None:
        """Let *link* wait for the end of *visit*."""
        visit.links.append(link)
        if link.is_unfiltered:
            self._asked.setdefault(link.key, purpose_of(link.request))
        else:
            self._waiting[link.key] = self._waiting.get(link.key, 0) + 1

    @guarded(False)
    def announce(self, visit: Visit) -> bool:
        """Queue what waits for the end of *visit*, which may wait for that itself, as much as one step can; whether there is more."""
        waited = links = visit.links[:AT_ONCE]
        if visit.retry is not None:
            links = [*links, replace(visit.retry, again=True, is_unfiltered=True)]
        if not links or self._job.is_broken:
            return False
        if self.value is not None:
            links = self.value(visit, links)
        announced = self._crawl.announce(visit.lease, links, self._job.clock(), visit.n_links)
        self._requests.drop_unqueued(links, self._crawl)
        still_wait = visit.announce(announced, len(waited))  # pages of other shards, which stay unknown here
        out = []
        for link in waited:
            if link.key in still_wait:
                still_wait.remove(link.key)
            else:
                out.append(link)
        self._count_out(out)
        self._wake()
        return bool(visit.links)

    def wait_no_more(self, visit: Visit) -> list[Link]:
        """*visit* ended: returns all its links, those that were announced before the others."""
        links = [*visit.announced.values(), *visit.links] if visit.announced else visit.links
        self._count_out(links)
        return links

    def _count_out(self, links: Iterable[Link]) -> None:
        """*links* wait for no visit any more."""
        waiting = self._waiting
        for link in links:
            if link.is_unfiltered:
                self._asked.pop(link.key, None)
            elif link.request:  # else its page was known
                if waiting[link.key] == 1:
                    del waiting[link.key]
                else:
                    waiting[link.key] -= 1
