"""Where pages are in WARC files, by a CDXJ file, which cdxj-indexer and other tools make.

Each line is a key, a time of 14 digits and an object of JSON: ``org,example)/ 20261126040000 {"url": ...}``.

Source: "CDXJ: a format for web archive indexes" (pywb, CDXJ 1.0).
"""

from __future__ import annotations

import gzip
from collections.abc import Collection
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from scrapy_aopic.exceptions import ExchangeError, plainly


class WarcPlace(NamedTuple):
    """Where a record is.

    Attributes:
        warc_file: Name of its file, as the index has it.
        warc_offset: Bytes in the file before it.
        warc_length: Bytes that it takes there; compressed, if the file is.
    """

    warc_file: str
    warc_offset: int | None
    warc_length: int | None


NOT_THERE = WarcPlace("", None, None)


class _Line(msgspec.Struct):
    url: str
    filename: str = ""
    offset: int = -1
    length: int | None = None
    mime: str = ""


_decode = msgspec.json.Decoder(_Line, strict=False).decode  # numbers are texts there

_REVISIT = "warc/revisit"
"""Type of a record without a body."""


def find_records(index: Path, urls: Collection[str]) -> dict[str, WarcPlace]:
    """The last record with a body of each of *urls* in the CDXJ file *index*, as far as there is one.

    Raises:
        ExchangeError: If it cannot be read, or has another format.
    """
    found: dict[str, tuple[bytes, WarcPlace]] = {}
    number = 0
    try:
        with cast("IO[bytes]", gzip.open(index) if index.suffix == ".gz" else index.open("rb")) as file:
            for line in file:
                number += 1
                if line.startswith(b"!") or not line.strip():  # a header
                    continue
                _, at, data = line.split(b" ", 2)
                record = _decode(data)
                last = found.get(record.url)
                if record.url not in urls or record.mime == _REVISIT or (last is not None and at < last[0]):
                    continue
                found[record.url] = at, WarcPlace(record.filename, record.offset, record.length)
    except (OSError, EOFError) as error:
        raise ExchangeError(f"{index} cannot be read: {plainly(error)}.") from error
    except (ValueError, msgspec.DecodeError) as error:
        raise ExchangeError(f"{index} is no CDXJ file: line {number} is not of that format.") from error
    return {url: place for url, (_, place) in found.items()}
