"""Politeness at the downloader: when a request may be sent to a host, wherever the request comes from."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from math import isfinite
from os import urandom
from urllib.parse import urljoin
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError, DownloadTimeoutError
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import load_object
from twisted.internet.error import ConnectError
from twisted.internet.error import TimeoutError as TwistedTimeoutError
from typing_extensions import Self

from scrapy_aopic._engine.addresses import Addresses
from scrapy_aopic._engine.closing import configured
from scrapy_aopic._engine.engine import is_operated_by_hand
from scrapy_aopic._engine.network import TransferWatch
from scrapy_aopic._engine.slots import Slots
from scrapy_aopic._engine.transfers import Transfer
from scrapy_aopic.core.host_rules import NO_RULES, HostRules
from scrapy_aopic.core.politeness import Gap, Outcome, Politeness, TransferResult
from scrapy_aopic.request_errors import (
    FramingError,
    LeftAloneError,
    NetworkError,
    RedirectedFormError,
    RefusedError,
    ServiceError,
    resolved,
)
from scrapy_aopic.session.idle_settings import warn_of_idle_slots
from scrapy_aopic.session.lateness import Lateness
from scrapy_aopic.session.links.admission import is_of_seed, networks_of
from scrapy_aopic.session.outage_detector import OutageDetector
from scrapy_aopic.session.pacer import MemoryPacer, Pacer
from scrapy_aopic.session.reloads import REDIRECTS
from scrapy_aopic.session.stats import FirstOnly
from scrapy_aopic.settings import read_politeness, read_values
from scrapy_aopic.web.http_dates import read_retry_after
from scrapy_aopic.web.identity import HEADERS
from scrapy_aopic.web.meta import DONT_RETRY, NOT_YET, PROXY_FAILURES, request_origin, slot_key
from scrapy_aopic.web.origins import host_name
from scrapy_aopic.web.suffixes import registered_domain
from scrapy_aopic.web.url_rules import FAULTS

from .proxy_waits import REPEATED, ProxyWaits, restore_tries

logger = logging.getLogger(__name__)

_NAMED = 10
"""Most rules that a message names."""

_PATIENCE = 60.0
"""Seconds for which a request may wait in the downloader, even if no ordinary gap is that long; longer waits are refused."""

_DELAYED = 10
"""Transfers after which ``DOWNLOAD_DELAY`` was longer than the gap when it is said that it holds the crawl back."""

_PROXY_TRIES = 10
"""Requests in a row without any response after which what a proxy fails with counts as the silence of hosts."""

_MOST_FAILURES = 30
"""Failures of its proxies, while others bring answers, that a page waits after: of ten that take turns, two may work."""

_NOT_CONNECTED = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    ConnectError,
    ConnectionRefusedError,
)
_TIMED_OUT = (DownloadTimeoutError, TwistedTimeoutError, TimeoutError)

_NOTICED = 0.1
"""Seconds until a host notices that the transfer was ended from here: until then it may still work on the response."""


_NONCE = 64
"""Bytes by which each signature differs from all others."""


class PolitenessMiddleware:
    """Sends one request at a time to a host, or a few if a rule says so, and then leaves it alone for a multiple of the transfer's time.

    Holds for every request that reaches the downloader: scheduled ones, robots.txt, media and requests that
    callbacks make inline. ``Retry-After``, crawl delays and errors make the gap longer. Works beside any scheduler;
    only :class:`scrapy_aopic.Scheduler` also keeps requests that must wait out of the downloader, so that they do
    not take up ``CONCURRENT_REQUESTS``, and remembers the pace of hosts when the process ends.

    Order: innermost (990 in ``DOWNLOADER_MIDDLEWARES``).

    Attributes:
        addresses: Network addresses of hosts.
        pacer: Remembers the pace of hosts.
        proxies: Remembers which proxies must leave which hosts alone.
    """

    def __init__(self, crawler: Crawler, politeness: Politeness, rules: HostRules = NO_RULES) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._politeness = politeness
        # A request that waits here takes one of the CONCURRENT_REQUESTS.
        self._memory = MemoryPacer(
            replace(politeness, max_backoff=min(politeness.max_backoff, politeness.max_gap))
        )
        self.pacer: Pacer = self._memory
        self.proxies = ProxyWaits(crawler, politeness, self._memory)
        values = read_values(settings)
        self._keys = values.politeness_key
        self._identity = values.identity
        is_users = (settings.getpriority("DOWNLOAD_DELAY") or 0) > SETTINGS_PRIORITIES["addon"]
        self._delay = settings.getfloat("DOWNLOAD_DELAY")
        self._n_delayed = _DELAYED if is_users and not settings.getbool("AUTOTHROTTLE_ENABLED") else 0
        self._failures = tuple(map(load_object, settings.getlist("RETRY_EXCEPTIONS")))
        self._allowed = frozenset(map(int, settings.getlist("HTTPERROR_ALLOWED_CODES")))
        self.addresses = Addresses(settings)
        self._slots = Slots(
            crawler,
            self._ended,
            self._waits,
            self._shares,
            self._permit,
            addresses=self.addresses,
            door=self._door,
            flow=self._flow,
            default=max(politeness.max_gap, politeness.min_gap),
            is_fast=values.fast_downloads,
        )
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._long_gaps: dict[str, float] = {}  # of hosts that have sent many bytes for their rule
        if "bytes_per_second" in rules.options:
            crawler.signals.connect(self._bytes_received, signal=signals.bytes_received)
        if rules:
            crawler.signals.connect(self._closed, signal=signals.spider_closed)
        warn_of_idle_slots(crawler, rules)
        self._rules = rules
        self._lateness = Lateness(crawler)
        self._outages = OutageDetector(crawler)
        self._networks = networks_of(crawler)
        self._first = FirstOnly(logger, crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            values = read_values(crawler.settings)
            return cls(crawler, read_politeness(values, crawler.spider), values.host_rules)

    async def process_request(self, request: Request) -> Response | None:
        key = slot_key(request)
        self._check_place(key, request)
        _check_redirect(request)
        pair = self._pair(key, request)
        proxy_wait = self.proxies.wait(pair) if pair else 0.0
        if proxy_wait > 0 and (answer := self.proxies.repeat(key, pair, request)) is not None:
            self._count("aopic/politeness/repeated")
            return answer
        restore_tries(request)
        self.addresses.is_direct = not request.meta.get("proxy")
        if "address" in self._keys and "proxy" not in request.meta:
            await self.addresses.find(key)
        wait = max(self._slots.wait(key), proxy_wait) - 1
        if wait > _PATIENCE and wait > max(
            self.pacer.longest_gap(key), self._slots.delay(key), self._long_gaps.get(key, 0.0)
        ):
            self._count("aopic/politeness/refused")
            raise LeftAloneError(f"{key} must be left alone for {self.wait(key):.0f} more seconds")
        self._slots.govern(request)
        if proxy_wait > 0:
            self._slots.hold(key, proxy_wait)
        if self._slots.unguarded:
            await self._check_address(request)
        return None

    def process_response(self, request: Request, response: Response) -> Response | Awaitable[Response]:
        if REPEATED in response.flags:
            return response
        self.pacer.answered(request, response)
        if "cached" not in response.flags:
            self._note_answer(request, response)
        return self.pacer.admit(request, response)

    def _note_answer(self, request: Request, response: Response) -> None:
        """Note what *response*, which comes from the network, shows of the host of *request*."""
        if response.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            self._note_silence(request, "the proxy does not know who asks")
            self._proxy_failed(request, None)
            return
        self._outages.answered()
        if self._read(request, response)[0] == Outcome.DOWN:
            self.pacer.failed(request, None)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        # Whatever it is, Scrapy's retry middleware, the user's and errbacks have their say first.
        if isinstance(exception, LeftAloneError):
            return self.pacer.put_back(request)
        if isinstance(exception, NetworkError | ServiceError | RedirectedFormError | FramingError):
            self._note_refusal(request, exception)
        is_proxys = _is_proxys(request, exception)
        if is_proxys or isinstance(exception, self._failures):
            self._note_silence(request, f"{type(exception).__name__}: {exception}".rstrip(": ."))
        if _is_unresolved(request, exception) and self._politeness.backoff and self.pacer.is_link(request):
            request.meta.setdefault(DONT_RETRY, NOT_YET)  # dead hosts are looked up at growing intervals
        if is_proxys:
            self._proxy_failed(request, exception)
        else:
            self.pacer.failed(request, exception)
        return None

    # -- where requests may be sent

    def _check_place(self, key: str, request: Request) -> None:
        """Refuse *request* if its URL shows that it may not be sent there.

        Raises:
            NetworkError, ServiceError: If it is refused.
        """
        url, is_by_others = request.url, bool(request.meta.get("proxy"))
        if not self._networks.refusal(url, is_by_others=is_by_others):
            if named := self._networks.named(url):  # a later run does not read the list of seeds again
                self.pacer.allow(key, named)
            return
        is_typed = is_operated_by_hand(self._crawler) and "redirect_urls" not in request.meta
        # Another process may have taken up its seed, and another run may go on with its links.
        self._networks.admit(host_name(url), self.pacer.allowed(key))
        if is_of_seed(request) or is_typed:
            self.pacer.allow(key, self._networks.name(url))
        reason = self._networks.refusal(url, is_by_others=is_by_others)
        if reason:
            raise (NetworkError if reason == NetworkError.reason else ServiceError)(FAULTS[reason])

    def _door(self, request: Request) -> Callable[[str], bool] | None:
        """A function that tells whether *request* may be sent to an address; ``None`` if to any, as through a proxy."""
        return None if request.meta.get("proxy") else self._networks.door(host_name(request.url))

    async def _check_address(self, request: Request) -> None:
        """Refuse *request*, whose handler connects to whatever its host resolves to, if that is where it may not be sent.

        Raises:
            NetworkError: If it is refused.
        """
        door, url = self._door(request), urlparse_cached(request)
        if door is None or url.scheme not in self._slots.unguarded:
            return
        address = await self.addresses.find(url.hostname or "")
        if address and not door(address):
            raise NetworkError(resolved(address))

    def _proxy_failed(self, request: Request, exception: Exception | None) -> None:
        n = request.meta.get(PROXY_FAILURES, 0) + (self._outages.tries < _PROXY_TRIES)
        request.meta[PROXY_FAILURES] = n
        waits = n <= _MOST_FAILURES and self._politeness.backoff > 0  # else nothing waits for what fails
        self.pacer.failed(request, exception, waits_for_proxy=waits)
        if not waits:
            self._count("aopic/politeness/proxy_failures")
        if n > _MOST_FAILURES:
            self._first.warning(
                "proxy",
                "Proxies, at last %(proxy)s, fail for %(url)s again and again, while others bring answers: the page has its retries, "
                "and as many later tries as AOPIC_LATER_TRIES says, and does not wait for them any more. Further such requests are "
                "only counted (aopic/politeness/proxy_failures)",
                proxy=request.meta.get("proxy"),
                url=request.url,
            )

    def _note_refusal(self, request: Request, error: RefusedError) -> None:
        stat = "aopic/hostile/framing" if isinstance(error, FramingError) else "aopic/safety/refused"
        self._count(stat)
        self._first.warning(
            error.reason,
            "%(url)s is not fetched, because %(why)s; further ones are only counted (%(stat)s)",
            url=request.url,
            why=error,
            stat=stat,
        )

    def _read(self, request: Request, response: Response, ago: float = 0.0) -> tuple[Outcome, float]:
        """What *response* to *request* shows; one with a status that the spider handles is an answer like any other."""
        outcome, retry_after = read_outcome(response, ago)
        if outcome != Outcome.ANSWER and response.status in self._handled(request):
            outcome = Outcome.ANSWER
        return outcome, retry_after

    def _handled(self, request: Request) -> Collection[int]:
        """The statuses that the spider handles. Even if it handles all, 429 and 503 can still ask it to come back later."""
        codes = request.meta.get("handle_httpstatus_list")
        if codes is None:
            codes = getattr(self._crawler.spider, "handle_httpstatus_list", None)
        return self._allowed if codes is None else codes

    def _note_silence(self, request: Request, why: str) -> None:
        self._outages.failed(slot_key(request), request, why, self.pacer.n_hosts())

    def serve(self, pacer: Pacer | None) -> None:
        """Have *pacer* remember the pace of hosts from now on; ``None`` for the middleware itself."""
        self.pacer = self.proxies.pacer = self._memory if pacer is None else pacer

    def rerouted(self, request: Request, answer: Response | None) -> None:
        """What was to come by the way of *request* comes by another proxy: what its *answer*, if any, asks for is for that way."""
        key, asks = slot_key(request), answer is None or self._read(request, answer) != (Outcome.ANSWER, 0.0)
        if not asks or "proxies" in self._keys or self._pair(key, request):
            return
        self.proxies.has_others = True
        wait, gap = self.wait(key), self.pacer.lift(key, request)
        self._slots.lift(key, gap)
        if answer is not None and wait > gap:
            self.proxies.ended(self._pair(key, request), answer, TransferResult(0.0, Outcome.DOWN, wait), 0.0)

    def _pair(self, key: str, request: Request) -> str:
        """Name of the pair of the host under *key* and the proxy of *request*; empty if the host waits for all of them."""
        return "" if "proxies" in self._keys else self.proxies.pair(key, request)

    def set_crawl_delay(self, key: str, seconds: float) -> None:
        """Have *seconds* between the requests to the host of a slot, as its robots.txt, just read, asks for."""
        self._slots.hold(key, self.pacer.set_crawl_delay(key, seconds))

    def wait(self, key: str) -> float:
        """Seconds before which no request is made to the host of a slot: the crawl and the slot each have a time, and both hold."""
        waits = self.pacer.waits(key)
        return max(self._slots.wait(key), waits if isfinite(waits) else 0.0)  # infinite as the crawl stops

    def _waits(self, key: str) -> float:
        return self.pacer.waits(key)

    def _shares(self, key: str) -> Iterator[str]:
        if "domain" in self._keys:
            yield f"domain {registered_domain(key)}"
        if "address" in self._keys and (address := self.addresses.get(key)):
            yield f"address {address}"

    def _permit(self, key: str, request: Request) -> Callable[[], None] | None:
        self._sign(request)
        is_ours = self.pacer.permit(key, request)
        return None if is_ours is None else partial(self._check, key, is_ours)

    def _sign(self, request: Request) -> None:
        """Sign *request*, whose transfer begins: nothing changes it from here on, and it waits no more."""
        if self._identity is not None and request.url.startswith(("http://", "https://")):
            host = request.headers.get("Host")  # of a user's own, which the signature is to be for
            url = f"{urlparse_cached(request).scheme}://{host.decode('latin-1')}" if host else request.url
            request.headers.update(self._identity.sign(url, time.time(), urandom(_NONCE)))

    def _unsign(self, request: Request) -> None:
        """Take the signature of *request* away: what is stored of it, or made of it, is signed when that is sent."""
        for name in HEADERS if self._identity is not None else ():
            request.headers.pop(name, None)

    def _flow(self, request: Request) -> Callable[[TransferWatch], None] | None:
        return self.pacer.flow(request)

    def _check(self, key: str, is_ours: Callable[[], bool]) -> None:
        if not is_ours():
            self._count("aopic/politeness/refused")
            raise LeftAloneError(f"{key} may be crawled by another process by now")

    def _ended(self, transfer: Transfer) -> Gap:
        self._count("aopic/politeness/transfers")
        self._unsign(transfer.request)
        address, retry_after, seconds = "", 0.0, transfer.seconds
        if transfer.response is None:
            # Where there was no connection, no host has worked for it.
            seconds = (
                0.0 if isinstance(transfer.error, (*_NOT_CONNECTED, NetworkError)) else seconds + _NOTICED
            )
            is_proxys = transfer.error is not None and _is_proxys(transfer.request, transfer.error)
            is_down = transfer.error is None or is_proxys or isinstance(transfer.error, self._failures)
            outcome = _outcome_of(transfer.request, transfer.error) if is_down else Outcome.OTHER
            if outcome == Outcome.SILENT and self.pacer.is_to_blame(transfer.request):
                outcome = Outcome.OTHER
            elif is_down and outcome == Outcome.OTHER:
                outcome = self._of_proxy()
        else:
            outcome, retry_after = self._read(transfer.request, transfer.response, transfer.ago)
            if transfer.response.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
                outcome = self._of_proxy()
            address = self._note_address(transfer.key, transfer.request, transfer.response)
        if outcome == Outcome.ERROR:
            self._count("aopic/politeness/errors")
        elif outcome.is_down:
            self._count("aopic/politeness/down")
        if retry_after:
            self._count("aopic/politeness/retry_after")
        n_bytes = len(transfer.response.body) if transfer.response is not None else 0
        at_least = transfer.at_least
        if self._rules and (rule := self._rules.of(transfer.key)) is not None:
            self._count("aopic/politeness/under_rules")
            n_bytes = max(n_bytes, self._received.pop(transfer.request, 0))
            for_bytes = rule.gap_after(n_bytes)
            at_least = max(at_least, for_bytes)
            self._long_gaps.pop(transfer.key, None)
            if for_bytes > _PATIENCE:
                self._long_gaps[transfer.key] = for_bytes
        origin = request_origin(transfer.request)
        result = TransferResult(
            seconds,
            outcome,
            retry_after,
            at_least,
            address,
            origin,
            n_bytes,
            is_nowhere=self._is_nowhere(transfer),
        )
        self.proxies.transferred(transfer.key)
        if pair := self._pair(transfer.key, transfer.request):
            self.proxies.ended(pair, transfer.response, result, transfer.ago)
            # Who is silent without a proxy is so for all.
            is_of_proxy = transfer.response is not None or bool(transfer.request.meta.get("proxy"))
            result = result._replace(is_of_proxy=is_of_proxy)
        gap = self.pacer.transferred(transfer.key, result, transfer.ago)
        if self._n_delayed and gap.own in (self._delay, transfer.at_least):
            self._note_delay(transfer.key, self._politeness.of(transfer.key).factor * seconds)
        return gap

    def _note_address(self, key: str, request: Request, response: Response) -> str:
        """Note the address that *response* comes from, if that matters; returns it."""
        if "address" not in self._keys or "proxy" in request.meta or not response.ip_address:
            return ""
        address = str(response.ip_address)
        self.addresses.note(key, address)
        return address

    def _of_proxy(self) -> Outcome:
        """The outcome for a host of a transfer at which the proxy failed: a crawl that gets nothing at all must not go on for ever."""
        return Outcome.SILENT if self._outages.tries >= _PROXY_TRIES else Outcome.OTHER

    def _note_delay(self, key: str, gap: float) -> None:
        """``DOWNLOAD_DELAY`` is longer than *gap*, by what the host under *key* took: say so once, if there are few hosts."""
        self._n_delayed -= 1
        if not self._n_delayed and self.pacer.n_hosts() < self._crawler.settings.getint(
            "CONCURRENT_REQUESTS"
        ):
            logger.info(
                "DOWNLOAD_DELAY = %(delay)g holds this crawl back: it is a lower bound of the gap of each host, which would be "
                "%(gap).2f s for %(host)s by what its last page took (AOPIC_POLITENESS_FACTOR). Scrapy's project template sets it; "
                "without it, or with 0, the gap is by the host alone.",
                {"delay": self._slots.delay(key), "gap": gap, "host": key},
                extra={"spider": self._crawler.spider},
            )

    def _is_nowhere(self, transfer: Transfer) -> bool:
        """Whether *transfer* failed because there is no host of that name."""
        request = transfer.request
        return _is_unresolved(request, transfer.error) and self.addresses.is_nowhere(host_name(request.url))

    def _bytes_received(self, data: bytes, request: Request) -> None:
        """Count what arrives, as a response that is cut has it no more."""
        self._received[request] = self._received.get(request, 0) + len(data)

    def _closed(self) -> None:
        """Say which rules were for no host that was requested: maybe they are for none."""
        unused = [name for name in self._rules.all if name not in self._rules.used]
        if unused:
            more = f" and {len(unused) - _NAMED:,} more" if len(unused) > _NAMED else ""
            logger.warning(
                "AOPIC_HOST_RULES: %(names)s%(more)s matched no host in this run",
                {"names": ", ".join(unused[:_NAMED]), "more": more},
                extra={"spider": self._crawler.spider},
            )

    def _count(self, name: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(name)


def _check_redirect(request: Request) -> None:
    """Refuse to send to another site what was meant for the one that redirects there with 307 or 308: a form, for example.

    Raises:
        RedirectedFormError: If *request* would.
    """
    before = request.meta.get("redirect_urls")
    if not before or request.method in ("GET", "HEAD"):
        return
    sent_to = registered_domain(host_name(str(before[0])))
    if sent_to != registered_domain(host_name(request.url)):
        raise RedirectedFormError(
            f"a redirect would send to another site what was sent to {sent_to} with {request.method}; with "
            'meta["handle_httpstatus_list"] = [307, 308] its callback decides'
        )


def read_outcome(response: Response, ago: float = 0.0) -> tuple[Outcome, float]:
    """The outcome for the host of *response*, which came *ago* seconds ago, and the seconds of its ``Retry-After``."""
    is_redirect = response.status in REDIRECTS and _stays_there(response)
    if response.status not in (429, 503) and not is_redirect:
        return (Outcome.ERROR if response.status >= 500 else Outcome.ANSWER), 0.0
    wish = read_retry_after(response.headers.getlist(b"Retry-After"), time.time() - ago)
    if is_redirect:
        return Outcome.ANSWER, wish or 0.0
    is_down = wish is not None or response.status == 429
    return (Outcome.DOWN if is_down else Outcome.ERROR), wish or 0.0


def _stays_there(response: Response) -> bool:
    """Whether *response* redirects within its host. No host may ask for time on behalf of another one."""
    if b"Retry-After" not in response.headers:
        return False
    target = (response.headers.get(b"Location") or b"").decode("latin-1")
    try:
        return host_name(urljoin(response.url, target)) == host_name(response.url)
    except ValueError:  # it is no URL
        return False


def _is_proxys(request: Request, exception: BaseException) -> bool:
    """Whether *exception* says that the proxy of *request* failed: there was no connection to it, or none beyond it."""
    # By its name: to import a download handler takes a tenth of a second, and a crawl may use another one.
    has_no_tunnel = type(exception).__name__ == "TunnelError"
    return bool(request.meta.get("proxy")) and (has_no_tunnel or isinstance(exception, _NOT_CONNECTED))


def _is_unresolved(request: Request, error: BaseException | None) -> bool:
    """Whether *error* says that the host of *request* has no address, as far as could be found out."""
    return isinstance(error, CannotResolveHostError) and not request.meta.get("proxy")


def _outcome_of(request: Request, error: BaseException | None) -> Outcome:
    """The outcome for the host of *request* after *error* has ended its transfer."""
    if error is None or isinstance(error, _TIMED_OUT):
        return Outcome.SILENT
    if _is_proxys(request, error):
        return Outcome.OTHER
    if isinstance(error, _NOT_CONNECTED):
        return Outcome.SILENT
    return Outcome.BROKEN_AGAIN if request.meta.get("retry_times") else Outcome.BROKEN
