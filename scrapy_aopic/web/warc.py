"""Transfers as WARC: each request and response once, as far as Scrapy reports them.

Rule 1: a file holds complete records only. An incomplete record is removed before the next one is written.

Rule 2: an existing file is never touched.

Rule 3: a body that was written before is not written again: the record is a *revisit* that names the first one.

Source: "The WARC Format 1.1" (ISO 28500:2017).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime, timezone
from http import HTTPStatus
from io import BytesIO, FileIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urlsplit
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.http import Headers, Response


_SMALL = 1024
"""Bytes of a body below which a revisit is not smaller than the response."""

_MOST_BODIES = 25_000
"""Bodies that are remembered: some 20 MB."""

_LONGEST_URL = 1000
"""Characters of a URL whose body is remembered."""

_TRUNCATED = {"dataloss": "disconnect", "download_stopped": "unspecified"}
"""Why a body is not complete, by a flag of its response."""

_PROFILES = "http://netpreserve.org/warc/1.1/revisit/"

Fields = list[tuple[str, str]]


class FirstRecords:
    """Remembers in which record a body was written first; those that were met least lately are forgotten.

    Args:
        earlier: Gives record (``""`` if it is not known), URL and date of a body with a digest that an earlier crawl has written.
    """

    def __init__(self, earlier: Callable[[str], tuple[str, str, str] | None] | None = None) -> None:
        self._earlier = earlier
        self._first: OrderedDict[str, Fields] = OrderedDict()

    def find(self, digest: str) -> Fields | None:
        """The fields of a revisit that name the first record of the body with this *digest*; ``None`` if there is none."""
        if digest in self._first:
            self._first.move_to_end(digest)
        elif self._earlier is not None and (found := self._earlier(digest)) is not None:
            self.add(digest, *found)
        return self._first.get(digest)

    def add(self, digest: str, record_id: str, url: str, date: str) -> None:
        """The body with this *digest*, from *url*, was written in the record with *record_id*."""
        if len(url) > _LONGEST_URL:
            return
        self._first[digest] = [
            *([("WARC-Refers-To", record_id)] if record_id else []),
            ("WARC-Refers-To-Target-URI", url),
            ("WARC-Refers-To-Date", date),
        ]
        if len(self._first) > _MOST_BODIES:
            self._first.popitem(last=False)


class WarcFile:
    """A new WARC file, unbuffered, that only ever holds whole records while the process lives.

    Args:
        path: Its path; if there is a file already, a numbered path beside it is used.
        spider: Name of the spider, for the first record.
        software: Names and versions of the crawling software, for the first record.
        bodies: Those that were written before, to this file or to others.

    Attributes:
        size_bytes: Size up to the end of the last whole record.
        response_id: ID of the last response that was written.
        is_torn: Whether a write failed and what it left could not be removed; then nothing must follow.

    Raises:
        OSError: If the file cannot be made or its first record not be written.
    """

    def __init__(self, path: Path, spider: str, software: str, bodies: FirstRecords) -> None:
        self.size_bytes = 0
        self.is_torn = False
        self.response_id = ""
        self._bodies = bodies
        self._file = _create(path)
        path = Path(str(self._file.name))
        self._records = _Records(gzip=path.name.lower().endswith(".gz"))
        fields = {
            "software": software,
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

    def add(
        self, response: Response, request: Request, estimates: dict[str, float] | None, found: str = ""
    ) -> int:
        """Write the two records of a transfer, which has *found* that of its page; returns the bytes that they take.

        Raises:
            OSError: If they cannot be written; then neither is in the file, unless it :attr:`is_torn`.
        """
        date, url = _now(), urldefrag(response.url)[0]
        common = [("WARC-Date", date), ("WARC-Target-URI", url), ("WARC-Warcinfo-ID", self._id)]
        if response.ip_address is not None:
            common.append(("WARC-IP-Address", str(response.ip_address)))
        digest = self._records.digest(response.body)
        block = _response_bytes(response)
        truncated = next((why for flag, why in _TRUNCATED.items() if flag in response.flags), "")
        may_recur = len(response.body) >= _SMALL and not truncated
        first = self._bodies.find(digest) if may_recur else None
        kind, fields = "response", [*common, ("WARC-Payload-Digest", digest)]
        if response.status == HTTPStatus.NOT_MODIFIED:
            kind, fields = "revisit", [*common, ("WARC-Profile", f"{_PROFILES}server-not-modified")]
        elif first is not None:
            kind = "revisit"
            fields += [("WARC-Profile", f"{_PROFILES}identical-payload-digest"), *first]
            block = block[: -len(response.body)]
        if truncated:
            fields.append(("WARC-Truncated", truncated))
        if estimates is not None:
            fields += [
                ("WARC-AOPIC-Importance", repr(estimates["importance"])),
                ("WARC-AOPIC-Cash", str(estimates["cash"])),
            ]
        if found:
            fields.append(("WARC-AOPIC-Found", found))
        response_id = self._records.add(kind, fields, block, "application/http; msgtype=response")
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
        self.response_id = response_id
        if may_recur and first is None:
            self._bodies.add(digest, response_id, url, date)
        return len(data)

    def add_about(self, response_id: str, url: str, kind: str, block: bytes, content_type: str) -> int:
        """Write a record about the response of this ID, from *url*; returns the bytes that it takes.

        Raises:
            OSError: As for :meth:`add`.
        """
        fields = [
            ("WARC-Date", _now()),
            ("WARC-Target-URI", urldefrag(url)[0]),
            ("WARC-Warcinfo-ID", self._id),
            ("WARC-Refers-To", response_id),
        ]
        self._records.add(kind, fields, block, content_type)
        data = self._records.take()
        self._append(data)
        return len(data)

    def descriptor(self) -> int:
        """A descriptor of the file, which the caller closes."""
        return os.dup(self._file.fileno())

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
        # Of what it knows as a revisit, warcio would write no block; to a warcinfo it adds as little.
        written_as = "warcinfo" if kind == "revisit" else kind
        self._writer.write_record(
            self._record("warc", written_as, headers, BytesIO(block), None, content_type, len(block))
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
