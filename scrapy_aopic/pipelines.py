"""Pipelines: the importance of an item's page, and fetched pages as WARC.

Rule 1: neither pipeline costs a page or an item. An importance that cannot be looked up is logged once, counted, and left
out. A page that cannot be written ends a crawl by :class:`scrapy_aopic.Scheduler`, which visits it again; beside another
scheduler it is logged once, counted, and left out.

Rule 2: an archive holds what was transferred, not what became of it: bodies as the server sent them,
redirects, errors and robots.txt included, each once per transfer.

Both work beside any scheduler; only :class:`scrapy_aopic.Scheduler` knows how important a page is.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from itemadapter import ItemAdapter
from scrapy import Request, signals
from scrapy import __version__ as scrapy_version
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import Response
from typing_extensions import Self

from ._engine.closing import configured
from .exceptions import StorageError, plainly
from .job.side_files import SideFiles
from .request_errors import ContentUsageError
from .session.estimates import Estimates
from .session.session import Session, has_session
from .session.visit import Visit
from .settings import read_values
from .storage.known_bodies import KnownBodies
from .version import __version__
from .web.warc import FirstRecords, WarcFile

logger = logging.getLogger(__name__)

MAX_BYTES = 1_000_000_000
"""Size of a WARC file from which on the next one is begun: what its format advises."""

_READ = (*range(200, 300), 304)
"""Statuses of pages that are written when they were read, if anything needs that."""

_MOST_WRITTEN = 20_000
"""Most numbers and URLs by which records are remembered, for what is found out later: of ten times as many pages as are in work."""

_TEXTS = {"text": "text/plain; charset=utf-8", "markdown": "text/markdown; charset=utf-8"}
"""Fields of an item with the text of its page, and its type."""

_SOFTWARE = f"scrapy-aopic/{__version__} Scrapy/{scrapy_version}"


class ImportancePipeline:
    """Adds to each item what the crawl knows of its page at this moment, as far as the item can hold it.

    ================  =====================================================================
    ``importance``    part of all importance that the page has, a float from 0 to 1
    ``cash``          units that the page holds; the visit under way distributes them later
    ``history``       units that its earlier visits distributed, inside the window
    ``visits``        its earlier visits; 0 while it is visited for the first time. With the URL it names the visit
    ``duplicate_of``  URL of the page that it was found to be the same as; ``None`` if none
    ``relevance``     how relevant it is to the topic, a float from 0 to 1; ``None`` if it is not graded
    ``found``         what the visit has found of it: ``new``, ``changed``, ``unchanged``, ``moved``, ``gone``, ``back`` or ``failed``
    ``first_seen``    when it was seen first (ISO 8601); this and the next two are ``None`` without ``AOPIC_RECRAWL``
    ``last_changed``  when it changed last (ISO 8601); ``previous_digest`` is the digest of the body before that
    ================  =====================================================================

    ``AOPIC_ITEM_FIELDS`` says which of them. A dictionary can hold any, another item the fields it declares.
    The page is the one that a plain ``Request`` for the item's field ``url`` asks for; items whose page is not known pass unchanged (stat ``aopic/items/without_page``). Needs
    :class:`scrapy_aopic.Scheduler`.
    """

    def __init__(self, crawler: Crawler, names: tuple[str, ...]) -> None:
        self._crawler = crawler
        self._names = names
        self._estimates: Estimates | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            return cls(crawler, read_values(crawler.settings).item_fields)

    def open_spider(self) -> None:
        """Find the scheduler; say so if it is one that knows no importance."""
        session = Session.of(self._crawler)
        if session is not None:
            self._estimates = Estimates(self._crawler, session)
        if has_session(self._crawler):
            return
        logger.warning(
            'ImportancePipeline knows nothing without SCHEDULER = "scrapy_aopic.Scheduler"; items pass '
            "unchanged.",
            extra={"spider": self._crawler.spider},
        )

    def process_item(self, item: Any) -> Any:
        """Return *item*, with the fields added."""
        if self._estimates is None:
            return item
        request = self._request(item)
        values = self._estimates.of(request, self._names) if request is not None else None
        if values is None:
            assert self._crawler.stats is not None
            self._crawler.stats.inc_value("aopic/items/without_page")
            return item
        adapter = ItemAdapter(item)
        for name in self._names:
            # An item without the field, a frozen one, or one that refuses the value cannot hold it.
            with suppress(AttributeError, KeyError, TypeError, ValueError):
                adapter[name] = values[name]
        return item

    def _request(self, item: Any) -> Request | None:
        """A request for the page of *item*, ``None`` if it does not say which one that is."""
        try:
            url: Any = ItemAdapter(item).get("url")
            return Request(url)
        except (AttributeError, TypeError, ValueError):  # never set; no item, or no text; a bad URL
            return None


class PagesPipeline:
    """Writes everything that is fetched over HTTP to a WARC file, with the importance of each page.

    A ``response`` record holds the body as it was transferred (``Content-Encoding`` kept,
    ``Transfer-Encoding`` undone), the ``request`` record after it what was asked. ``WARC-AOPIC-Importance``
    (0 to 1) and ``WARC-AOPIC-Cash`` (units) are those of the page when it was fetched, before the visit
    counts; they are there if :class:`scrapy_aopic.Scheduler` runs the crawl and knows the page, so not for
    robots.txt. ``WARC-Date`` is the end of the transfer, ``WARC-IP-Address`` what was connected to, which may
    be a proxy. A body of 1 kB or more that was written before, by this process or by an earlier crawl that the job
    knows (``scrapy aopic seed --fetched``), is not written again: a ``revisit`` record has the headers and names the first record. So has a 304, without naming one. ``metadata`` records that refer to the response have what is found out later:
    ``aopic-robots`` and ``aopic-content-usage``, what its owner asks (docs/robots.md), if anything; and in a crawl for a topic
    (``AOPIC_TOPIC``) ``aopic-relevance`` (0 to 1). A ``conversion`` record, which refers to it in the same way, has the ``text`` or the
    ``markdown`` of an item with the ``url`` of a page that was written lately. Not there, because Scrapy does not tell: the case and order of header names, the server's own
    reason phrase, transfers that failed. Answers from a cache are no transfers. Cookies and ``Authorization``
    headers are in the records, ``Proxy-Authorization`` is not.

    A page that ``AOPIC_CONTENT_USAGE`` skips is not written. What its owner asks may stand in the page, so with such a setting a
    page is written when it was read, and not when its transfer ended. So it is with ``AOPIC_RECRAWL``, where ``WARC-AOPIC-Found``
    says what the visit found, such as ``unchanged``.

    Files: ``AOPIC_WARC_FILE``, WARC 1.1, a gzip member per record if the name ends in ``.gz``. An existing
    file is never touched: a name that is taken gets ``-1``, ``-2`` ... before its extension, a resumed
    crawl has a file of its own, and a file of a gigabyte is followed by the next one. The two records of a transfer are handed to the operating system in one write
    when it ends, so a process that is killed leaves a file that is whole up to, at most, its last transfer.
    :class:`scrapy_aopic.Scheduler` commits a visit when the disk has its records. Beside another scheduler the disk is not
    waited for: a power failure may also cost what the operating system had not written.
    Compressing takes the event loop about a millisecond for 35 kB of HTML (measured), much less if the server
    had compressed it.

    Stats: ``aopic/warc/records`` and ``aopic/warc/bytes`` written, and ``aopic/warc/errors``, the times that
    the file could not be opened or written. An error ends a crawl by :class:`scrapy_aopic.Scheduler`; beside another
    scheduler the next transfer tries again.
    """

    def __init__(self, crawler: Crawler, template: str) -> None:
        try:
            import warcio  # noqa: F401, PLC0415  # an extra
        except ImportError:
            raise NotConfigured("PagesPipeline needs warcio: pip install warcio.") from None
        self._crawler = crawler
        self._template = template
        self._bodies = FirstRecords()
        self._known: KnownBodies | None = None
        self._ended: list[int] = []  # descriptors of full files that the disk may not have
        self._path: Path | None = None
        self._file: WarcFile | None = None
        self._estimates: Estimates | None = None
        self._session: Session | None = None
        self._side_files: SideFiles | None = None
        # ID of the response and URL, by the number of the visit, and by the URL
        self._written: dict[int | str, tuple[str, str]] = {}
        self._unread: dict[int, tuple[Response, Request]] = {}  # pages that may be skipped, by the same
        self._has_complained = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            pipeline = cls(crawler, read_values(crawler.settings).warc_file)
        crawler.signals.connect(pipeline.response_downloaded, signal=signals.response_downloaded)
        return pipeline

    def open_spider(self) -> None:
        """Open the file now, so that a wrong path shows before the first page."""
        assert self._crawler.spider is not None
        self._path = _fill(self._template, self._crawler.spider.name, datetime.now(timezone.utc))
        session = Session.of(self._crawler)
        self._estimates = Estimates(self._crawler, session) if session is not None else None
        if session is not None:
            self._side_files = session.job.side_files
            self._side_files.add(self._flush)
            self._session = session
            self._known = session.open_bodies()
            self._bodies = FirstRecords(self._known.find if self._known is not None else None)
            session.listeners.append(self._found_out)
            if session.page_robots.may_skip or session.recrawls:
                session.page_robots.when_read = self._was_read
        self._write(self._path, None)

    def close_spider(self) -> None:
        """Close the file, once the disk has it: the last commit follows."""
        if self._side_files is not None:
            with suppress(StorageError):  # which the job knows
                self._side_files.flush()()
        self._path = None
        self._drop_file()
        if self._known is not None:
            self._known.close()
        self._session = None

    def process_item(self, item: Any) -> Any:
        """Return *item* as it is, once the text that it has of its page is written."""
        fields = ItemAdapter(item)
        for name, content_type in _TEXTS.items():
            url, text = fields.get("url"), fields.get(name)
            if isinstance(url, str) and text and isinstance(text, str):
                self._write_about(url, "conversion", text.encode(errors="replace"), content_type)
        return item

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Write a transfer that has just ended, or when it is known whether its owner wants that."""
        if self._path is None or urlsplit(response.url).scheme not in {"http", "https"}:
            return
        session = self._session
        if session is not None and session.page_robots.when_read is not None and response.status in _READ:
            visit = session.visits.of(request)
            if visit is not None:
                self._write_unread(visit.number)  # which a middleware has made another request of
                self._unread[visit.number] = response, request
                return
        self._write(self._path, (response, request))

    def _was_read(self, visit: Visit) -> None:
        """The page of *visit* was read: write it, unless it is skipped."""
        transfer = self._unread.pop(visit.number, None)
        if (
            transfer is not None
            and self._path is not None
            and not isinstance(visit.unwanted, ContentUsageError)
        ):
            self._write(self._path, transfer)

    def _write_unread(self, number: int) -> None:
        """Write what was transferred for the visit with this *number*, and never read."""
        transfer = self._unread.pop(number, None)
        if transfer is None or self._path is None or self._session is None:
            return
        if not self._session.page_robots.is_skipped(*transfer):
            self._write(self._path, transfer)

    def _found_out(self, visit: Visit, facts: dict[str, str]) -> None:
        """The page of *visit* is like this: write it, if the page was."""
        block = "".join(f"{name}: {value}\r\n" for name, value in facts.items())
        self._write_about(visit.number, "metadata", block.encode(), "application/warc-fields")

    def _write_about(self, page: int | str, kind: str, block: bytes, content_type: str) -> None:
        """Write a record about the response to a visit with this number, or from this URL, if that was written."""
        response_id, url = self._written.get(page, ("", ""))
        if self._path is None or self._file is None or not response_id:
            return
        try:
            self._count(1, self._file.add_about(response_id, url, kind, block, content_type))
        except OSError as error:
            self._complain(self._path, error)
            if self._file.is_torn:
                self._drop_file()

    def _write(self, path: Path, transfer: tuple[Response, Request] | None) -> None:
        """Write *transfer*, if there is one, to the file, which is made if need be."""
        try:
            if self._file is not None and self._file.size_bytes >= MAX_BYTES:
                if self._side_files is not None:
                    self._ended.append(self._file.descriptor())
                self._drop_file()
            if self._file is None:
                assert self._crawler.spider is not None
                self._file = WarcFile(path, self._crawler.spider.name, _SOFTWARE, self._bodies)
                self._count(1, self._file.size_bytes)
            if transfer is not None:
                response, request = transfer
                estimates = self._estimates.of(request) if self._estimates is not None else None
                visit = self._session.visits.of(request) if self._session is not None else None
                found = (visit.found or {}).get("found") if visit is not None else None
                self._count(2, self._file.add(response, request, estimates, found or ""))
                for page in (response.url, *([visit.number] if visit is not None else ())):
                    self._written[page] = self._file.response_id, response.url
                    if len(self._written) > _MOST_WRITTEN:
                        del self._written[next(iter(self._written))]
        except (OSError, ValueError) as error:  # a path that no file can have is a ValueError
            self._complain(path, error)
            if self._file is not None and self._file.is_torn:
                self._drop_file()

    def _flush(self) -> list[tuple[str, int]]:
        """Flush the files to the disk, before a commit."""
        if self._session is not None:
            for number in [each for each in self._unread if self._session.visits.numbered(each) is None]:
                self._write_unread(number)  # of a type that is not wanted, say
        descriptors, self._ended = self._ended, []
        if self._path is not None and self._file is not None:
            try:
                descriptors.append(self._file.descriptor())
            except OSError as error:
                self._complain(self._path, error)
        return [(f"AOPIC_WARC_FILE ({self._path})", each) for each in descriptors]

    def _count(self, n_records: int, n_bytes: int) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("aopic/warc/records", n_records)
        self._crawler.stats.inc_value("aopic/warc/bytes", n_bytes)

    def _complain(self, path: Path, error: Exception) -> None:
        if not isinstance(error, OSError):
            error = OSError(0, "no file can have that name")
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("aopic/warc/errors")
        if self._side_files is not None:
            self._side_files.fail(f"AOPIC_WARC_FILE ({path})", error)
        elif not self._has_complained:
            self._has_complained = True
            logger.error(
                "AOPIC_WARC_FILE (%(path)s) cannot be written (%(error)s), so that pages are missing from "
                "it; further errors are only counted (aopic/warc/errors).",
                {"path": path, "error": plainly(error)},
                extra={"spider": self._crawler.spider},
            )

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # nothing is left to be written
                file.close()


def _fill(template: str, name: str, now: datetime) -> Path:
    """The path that *template* means for a crawl by the spider *name* that starts at *now*."""
    return Path(template % {"name": name, "time": now.strftime("%Y%m%dT%H%M%SZ")})
