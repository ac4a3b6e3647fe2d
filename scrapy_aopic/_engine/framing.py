"""The chunks of a body, in one pass over each read, and with one call for it.

Twisted's decoder, and what Scrapy has behind it, make a dozen calls for each chunk. Chunks of one byte then take 8 us each:
10 million of them, 60 MB, more than a minute of the event loop. A read has at most 64 kB, so one pass bounds what it takes, and
who sends much framing for little content is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from twisted.web.http import _DataLoss

from scrapy_aopic.request_errors import FramingError

_CHUNK = re.compile(rb"\r\n([0-9A-Fa-f]+)(?:;[\t -\[\]-~\x80-\xFF]*)?\r\n")
"""What stands before a chunk: the end of the one before it, size, extensions (RFC 9112, 7.1)."""

_LONGEST_LINE = 1024
"""Bytes of such a line, as Twisted has it."""

_LONGEST_TRAILER = 64 * 1024
"""Bytes of the headers behind a body, as Twisted has it."""

MOST_FRAMING = 64 * 1024
"""Bytes of framing that any body may have; more must not be more than :data:`_TIMES` the content."""

_TIMES = 4


class ChunkedDecoder:
    """Takes the place of ``twisted.web.http._ChunkedTransferDecoder``: the same content, and errors for the same data.

    Args:
        take: Is given the content of each read, if it has any.
        finish: Is given what comes behind the body.
        refuse: Is told that there is too much framing; nothing follows.
    """

    def __init__(
        self,
        take: Callable[[bytes], None],
        finish: Callable[[bytes], None],
        *,
        refuse: Callable[[FramingError], None],
    ) -> None:
        self._take = take
        self._finish = finish
        self._refuse = refuse
        self._rest = b"\r\n"  # what has not come to its end: a line before a chunk, or the trailer
        self._left: int | None = 0  # bytes of the chunk that are to come; ``None`` behind the last one
        self._is_over = False
        self._n_bytes = 0
        self._n_content = 0

    def dataReceived(self, data: bytes) -> None:
        """Take *data*.

        Raises:
            ValueError: If these are no chunks, after what was before was given on.
        """
        if self._is_over:
            raise RuntimeError("There is nothing behind the end of a body")
        self._n_bytes += len(data)
        parts: list[bytes] = []
        try:
            behind = self._read(self._rest + data, parts)
        finally:
            if parts:
                content = b"".join(parts)
                self._n_content += len(content)
                self._take(content)
        n_framing = self._n_bytes - self._n_content
        if behind is not None:
            self._is_over = True
            self._finish(behind)
        elif n_framing > max(MOST_FRAMING, _TIMES * self._n_content):
            self._is_over = True
            self._refuse(
                FramingError(
                    f"its first {self._n_content} bytes come in chunks with {n_framing} bytes of framing"
                )
            )

    def noMoreData(self) -> None:
        """The connection has ended.

        Raises:
            _DataLoss: If the body has not.
        """
        if not self._is_over:
            raise _DataLoss

    def _read(self, data: bytes, parts: list[bytes]) -> bytes | None:
        """Add the content of *data* to *parts*; gives what is behind the body, ``None`` if that is not over."""
        at, self._rest = 0, b""
        while self._left is not None:
            if self._left:
                part = data[at : at + self._left]
                if not part:
                    return None
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                continue
            found = _CHUNK.match(data, at)
            end = found.end() - 2 if found else data.find(b"\r\n", at + 2)
            if (end if end >= 0 else len(data) - 1) - at - 2 >= _LONGEST_LINE:
                raise ValueError(f"The line before a chunk is longer than {_LONGEST_LINE} bytes")
            if found is None:
                if end >= 0 or (len(data) >= at + 2 and not data.startswith(b"\r\n", at)):
                    raise ValueError(f"This is no size of a chunk: {data[at + 2 : at + 100]!r}")
                self._rest = data[at:]
                return None
            at, self._left = found.end(), int(found[1], 16) or None
        if data.startswith(b"\r\n", at):
            return data[at + 2 :]
        end = data.find(b"\r\n\r\n", at)
        if (end if end >= 0 else len(data)) - at + 2 > _LONGEST_TRAILER:
            raise ValueError(f"The headers behind a body are longer than {_LONGEST_TRAILER} bytes")
        if end >= 0:
            return data[end + 4 :]
        self._rest = data[at:]
        return None
