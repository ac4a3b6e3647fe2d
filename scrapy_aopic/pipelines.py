"""What leaves a crawl beside its links: how important an item's page is, and what was fetched, as WARC.

Rule 1: neither pipeline costs a page or an item. What cannot be looked up or written is logged once, counted,
and left out.

Rule 2: an archive holds what was transferred, not what became of it: bodies as the server sent them,
redirects, errors and robots.txt included, each once per transfer.

Both work beside any scheduler; only :class:`scrapy_aopic.Scheduler` knows how important a page is.

Source: "The WARC Format 1.1" (ISO 28500:2017).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import datetime, timezone
from http import HTTPStatus
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit
from uuid import uuid4

from itemadapter import ItemAdapter
from scrapy import Request, signals
from scrapy import __version__ as scrapy_version
from scrapy.exceptions import NotConfigured

from . import __version__
from ._engine.closing import configured
from .scheduler import Scheduler
from .settings import read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import FileIO

    from scrapy.crawler import Crawler
    from scrapy.http import Headers, Response
    from typing_extensions import Self

    from .core.records import Page

logger = logging.getLogger(__name__)


class _Estimates:
    """What the scheduler of *crawler* knows of the pages of requests."""

    def __init__(self, crawler: Crawler, scheduler: Scheduler) -> None:
        self._crawler = crawler
        self._scheduler = scheduler
        self._has_complained = False

    def of(self, request: Request, *, has_twin: bool = False) -> dict[str, Any] | None:
        """Values by the names that ``AOPIC_ITEM_FIELDS`` allows; ``None`` if the page is not known.

        Args:
            has_twin: Whether ``duplicate_of`` is wanted, which takes more look-ups than the others.
        """
        try:
            page = self._page(request)
            job = self._scheduler.job
            if page is None or job is None:
                return None
            twin = {"duplicate_of": self._scheduler.duplicate_of(request) or None} if has_twin else {}
            return {
                "importance": self._scheduler.importance(page),
                "cash": job.crawl.ledger.cash(page),
                "history": page.history,
                "visits": page.visits,
                **twin,
            }
        except Exception:  # a store that fails, or a user's fingerprinter: see rule 1
            if not self._has_complained:
                self._has_complained = True
                logger.exception(
                    "The page of %(request)s cannot be looked up, so that its importance is left out; no "
                    "more such errors will be logged",
                    {"request": request},
                    extra={"spider": self._crawler.spider},
                )
            return None

    def _page(self, request: Request) -> Page | None:
        page = self._scheduler.page_of(request)
        if page is not None:
            return page
        # A middleware may have changed what the page is found by: its download slot, its headers. Once the
        # page is downloaded, its mark is no proof: inline requests with "meta=response.meta" carry it, too.
        visit = self._scheduler.visit_of(request)
        job = self._scheduler.job
        if visit is None or job is None or not visit.is_downloading:
            return None
        return job.crawl.page(visit.lease.key)


class ImportancePipeline:
    """Adds to each item what the crawl knows of its page at this moment, as far as the item can hold it.

    ================  =====================================================================
    ``importance``    part of all importance that the page has, a float from 0 to 1
    ``cash``          units that the page holds; the visit under way distributes them later
    ``history``       units that its earlier visits distributed, inside the window
    ``visits``        its earlier visits; 0 while it is visited for the first time
    ``duplicate_of``  URL of the page that it was found to be the same as; ``None`` if none
    ================  =====================================================================

    ``AOPIC_ITEM_FIELDS`` says which of them. A dictionary can hold any, another item the fields it declares.
    The page is the one that a plain ``Request`` for the item's ``AOPIC_ITEM_URL_FIELD`` asks for; items whose
    page is not known pass unchanged (stat ``aopic/items/without_page``). Needs
    :class:`scrapy_aopic.Scheduler`.
    """

    def __init__(self, crawler: Crawler, names: tuple[str, ...], url_field: str) -> None:
        self._crawler = crawler
        self._names = names
        self._url_field = url_field
        self._estimates: _Estimates | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        settings = crawler.settings
        with configured(crawler):
            return cls(crawler, read(settings, "AOPIC_ITEM_FIELDS"), read(settings, "AOPIC_ITEM_URL_FIELD"))

    def open_spider(self) -> None:
        """Find the scheduler; say so if it is one that knows no importance."""
        scheduler = Scheduler.of(self._crawler)
        if scheduler is not None:
            self._estimates = _Estimates(self._crawler, scheduler)
            return
        logger.warning(
            'ImportancePipeline knows nothing without SCHEDULER = "scrapy_aopic.Scheduler"; items pass '
            "unchanged.",
            extra={"spider": self._crawler.spider},
        )

    def process_item(self, item: Any) -> Any:
        """The same *item*, which may hold more than before."""
        if self._estimates is None:
            return item
        request = self._request(item)
        has_twin = "duplicate_of" in self._names
        values = self._estimates.of(request, has_twin=has_twin) if request is not None else None
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
            url: Any = ItemAdapter(item).get(self._url_field)
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
    be a proxy. Not there, because Scrapy does not tell: the case and order of header names, the server's own
    reason phrase, transfers that failed. Answers from a cache are no transfers. Cookies and ``Authorization``
    headers are in the records, ``Proxy-Authorization`` is not.

    Files: ``AOPIC_WARC_FILE``, WARC 1.1, a gzip member per record if the name ends in ``.gz``. An existing
    file is never touched: a name that is taken gets ``-1``, ``-2`` ... before its extension, and a resumed
    crawl has a file of its own. The two records of a transfer are handed to the operating system in one write
    when it ends, so a process that is killed leaves a file that is whole up to, at most, its last transfer.
    The disk is not waited for: a power failure may also cost what the operating system had not written.
    Compressing takes the event loop about a millisecond for 35 kB of HTML (measured), much less if the server
    had compressed it.

    Stats: ``aopic/warc/records`` and ``aopic/warc/bytes`` written, and ``aopic/warc/errors``, the times that
    the file could not be opened or written. After an error the next transfer tries again.
    """

    def __init__(self, crawler: Crawler, template: str) -> None:
        try:
            import warcio  # noqa: F401, PLC0415  # an extra
        except ImportError:
            raise NotConfigured("PagesPipeline needs warcio; install scrapy-aopic[warc].") from None
        self._crawler = crawler
        self._template = template
        self._path: Path | None = None
        self._file: _WarcFile | None = None
        self._estimates: _Estimates | None = None
        self._has_complained = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        with configured(crawler):
            pipeline = cls(crawler, read(crawler.settings, "AOPIC_WARC_FILE"))
        crawler.signals.connect(pipeline.response_downloaded, signal=signals.response_downloaded)
        return pipeline

    def open_spider(self) -> None:
        """Open the file now, so that a wrong path shows before the first page."""
        assert self._crawler.spider is not None
        self._path = _fill(self._template, self._crawler.spider.name, datetime.now(timezone.utc))
        scheduler = Scheduler.of(self._crawler)
        self._estimates = _Estimates(self._crawler, scheduler) if scheduler is not None else None
        self._write(self._path, None)

    def close_spider(self) -> None:
        """Close the file."""
        self._path = None
        self._drop_file()

    def process_item(self, item: Any) -> Any:
        """The same *item*: what is written does not depend on items."""
        return item

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Write a transfer that has just ended."""
        if self._path is not None and urlsplit(response.url).scheme in {"http", "https"}:
            self._write(self._path, (response, request))

    def _write(self, path: Path, transfer: tuple[Response, Request] | None) -> None:
        """Write *transfer*, if there is one, to the file, which is made if need be."""
        try:
            if self._file is None:
                assert self._crawler.spider is not None
                self._file = _WarcFile(path, self._crawler.spider.name)
                self._count(1, self._file.size_bytes)
            if transfer is not None:
                response, request = transfer
                estimates = self._estimates.of(request) if self._estimates is not None else None
                self._count(2, self._file.add(response, request, estimates))
        except (OSError, ValueError) as error:  # a path that no file can have is a ValueError
            self._complain(path, error)
            if self._file is not None and self._file.is_torn:
                self._drop_file()

    def _count(self, n_records: int, n_bytes: int) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("aopic/warc/records", n_records)
        self._crawler.stats.inc_value("aopic/warc/bytes", n_bytes)

    def _complain(self, path: Path, error: Exception) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("aopic/warc/errors")
        if not self._has_complained:
            self._has_complained = True
            logger.error(
                "AOPIC_WARC_FILE (%(path)s) cannot be written (%(error)s), so that pages are missing from "
                "it; further errors are only counted (aopic/warc/errors).",
                {"path": path, "error": error},
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


class _WarcFile:
    """A new WARC file, unbuffered, that only ever holds whole records while the process lives.

    Attributes:
        size_bytes: Size up to the end of the last whole record.
        is_torn: Whether a write failed and what it left could not be removed; then nothing must follow.

    Raises:
        OSError: If the file cannot be made or its first record not be written.
    """

    def __init__(self, path: Path, spider: str) -> None:
        self.size_bytes = 0
        self.is_torn = False
        self._file = _create(path)
        path = Path(str(self._file.name))
        self._records = _Records(gzip=path.name.lower().endswith(".gz"))
        fields = {
            "software": f"scrapy-aopic/{__version__} Scrapy/{scrapy_version}",
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "spider": spider,
        }
        self._id = self._records.add(
            "warcinfo",
            [("WARC-Filename", path.name), ("WARC-Date", _now())],
            "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode(),
            "application/warc-fields",
        )
        try:
            self._append(self._records.take())
        except OSError:
            with suppress(OSError):
                self.close()
                path.unlink()  # it was made a moment ago and holds nothing
            raise

    def add(self, response: Response, request: Request, estimates: dict[str, float] | None) -> int:
        """Write the two records of a transfer; returns the bytes that they take.

        Raises:
            OSError: If they cannot be written; then neither is in the file, unless it :attr:`is_torn`.
        """
        common = [
            ("WARC-Date", _now()),
            ("WARC-Target-URI", urldefrag(response.url)[0]),
            ("WARC-Warcinfo-ID", self._id),
        ]
        if response.ip_address is not None:
            common.append(("WARC-IP-Address", str(response.ip_address)))
        fields = [*common, ("WARC-Payload-Digest", self._records.digest(response.body))]
        if "dataloss" in response.flags:
            fields.append(("WARC-Truncated", "disconnect"))
        elif "download_stopped" in response.flags:
            fields.append(("WARC-Truncated", "unspecified"))
        if estimates is not None:
            fields += [
                ("WARC-AOPIC-Importance", repr(estimates["importance"])),
                ("WARC-AOPIC-Cash", str(estimates["cash"])),
            ]
        response_id = self._records.add(
            "response", fields, _response_bytes(response), "application/http; msgtype=response"
        )
        fields = [
            *common,
            ("WARC-Concurrent-To", response_id),
            ("WARC-Payload-Digest", self._records.digest(request.body)),
        ]
        self._records.add(
            "request", fields, _request_bytes(request, response.url), "application/http; msgtype=request"
        )
        data = self._records.take()
        self._append(data)
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self.is_torn = True
            self._file.truncate(self.size_bytes)
            self._file.seek(self.size_bytes)
            self.is_torn = False
            raise
        self.size_bytes += len(data)


class _Records:
    """Makes WARC records; needs warcio.

    The block of a record is given as bytes. warcio would rather be given headers, but rewrites those that
    are not ASCII.
    """

    def __init__(self, *, gzip: bool) -> None:
        from warcio.recordloader import ArcWarcRecord  # noqa: PLC0415  # an extra
        from warcio.statusandheaders import StatusAndHeaders  # noqa: PLC0415
        from warcio.utils import Digester  # noqa: PLC0415
        from warcio.warcwriter import WARCWriter  # noqa: PLC0415

        self._record = ArcWarcRecord
        self._headers = StatusAndHeaders
        self._digester = Digester
        self._buffer = BytesIO()
        self._writer = WARCWriter(self._buffer, gzip=gzip, warc_version="1.1")

    def digest(self, payload: bytes) -> str:
        """*payload* as the value of ``WARC-Payload-Digest``."""
        digester = self._digester("sha1")
        digester.update(payload)
        return str(digester)

    def add(self, kind: str, fields: Iterable[tuple[str, str]], block: bytes, content_type: str) -> str:
        """Add a record to those that :meth:`take` returns; returns its ID."""
        record_id = f"<urn:uuid:{uuid4()}>"
        headers = self._headers(
            "",
            [("WARC-Type", kind), ("WARC-Record-ID", record_id), *fields],
            protocol=self._writer.warc_version,
        )
        self._writer.write_record(
            self._record("warc", kind, headers, BytesIO(block), None, content_type, len(block))
        )
        return record_id

    def take(self) -> bytes:
        """The records added since the last time, as they are written to a file."""
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return data


def _create(path: Path) -> FileIO:
    """Make a file at *path*, or at the first numbered path beside it that is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    extension = (
        Path(path.name[:-3]).suffix + path.name[-3:] if path.name.lower().endswith(".gz") else path.suffix
    )
    stem = path.name.removesuffix(extension)
    for number in count(1):
        with suppress(FileExistsError):
            return path.open("xb", buffering=0)
        path = path.with_name(f"{stem}-{number}{extension}")
    raise AssertionError  # count() has no end


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _response_bytes(response: Response) -> bytes:
    """*response* as an HTTP message whose body is not chunked."""
    # The status line of HTTP/2 has neither a version nor a phrase; readers of WARC know only those of HTTP/1.
    protocol = (
        response.protocol if response.protocol and response.protocol.startswith("HTTP/1.") else "HTTP/1.1"
    )
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = "Unknown"
    has_length = bool(response.body) or "Content-Length" in response.headers  # 204 and 304 have none
    return _message(
        f"{protocol} {response.status} {phrase}", response.headers, response.body, has_length=has_length
    )


def _request_bytes(request: Request, url: str) -> bytes:
    """*request* for *url* as the HTTP message that a server gets, whatever a proxy got."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = request.headers.copy()
    headers.pop("Proxy-Authorization", None)  # a secret, and not for the server
    headers.setdefault("Host", parts.netloc.rpartition("@")[2])
    has_length = bool(request.body) or request.method in {"POST", "PUT"}
    return _message(f"{request.method} {target} HTTP/1.1", headers, request.body, has_length=has_length)


def _message(start: str, headers: Headers, body: bytes, *, has_length: bool) -> bytes:
    """An HTTP message; what *headers* say of the length or the framing of *body* is replaced."""
    lines = [start.encode()]
    for name, values in headers.items():
        if name not in {b"Content-Length", b"Transfer-Encoding"}:
            lines += (name + b": " + b" ".join(value.splitlines()) for value in values)
    if has_length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])
