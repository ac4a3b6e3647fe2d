"""Pages that another crawl has fetched, of which nothing is known but fingerprints: a job that goes on with it does not fetch them.

They lie beside the job, in the file ``aopic-former`` of its folder or under the key ``former`` on its server: a line of JSON, then
the first 8 bytes of each fingerprint, in their order. Two of a million pages have the same 8 bytes once in 37 million crawls.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from bisect import bisect_left
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING

from w3lib.url import canonicalize_url

from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy_aopic.place.place import Place

_BYTES = 8
"""Of a fingerprint that are kept."""

_AT_ONCE = 1_000_000
"""Numbers that are put into their order at once."""

_PIECE_BYTES = 1 << 22
"""Of a value on a server: some milliseconds of it."""


def _of_scrapy_redis(method: str, url: str, body: bytes) -> bytes:
    data = {"method": method, "url": canonicalize_url(url), "body": body.hex()}
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()


def _of_scrapy(method: str, url: str, body: bytes) -> bytes:
    data = {"method": method, "url": canonicalize_url(url), "body": body.hex(), "headers": {}}
    return hashlib.sha1(json.dumps(data, sort_keys=True).encode(), usedforsecurity=False).digest()


def _of_old_scrapy(method: str, url: str, body: bytes) -> bytes:
    return hashlib.sha1(
        method.encode() + canonicalize_url(url).encode() + body, usedforsecurity=False
    ).digest()


SCHEMES: dict[str, Callable[[str, str, bytes], bytes]] = {
    "scrapy-redis": _of_scrapy_redis,
    "scrapy": _of_scrapy,
    "scrapy-2.6": _of_old_scrapy,
}
"""Fingerprints of method, URL and body: of scrapy-redis since 0.8, of Scrapy since 2.7, and of both before."""


class EarlierCrawl:
    """The pages that an earlier crawl has fetched.

    Args:
        scheme: Which of :data:`SCHEMES` their fingerprints are of.
        numbers: The beginnings of these, in their order.
    """

    def __init__(self, scheme: str, numbers: array[int]) -> None:
        self.scheme = scheme
        self._fingerprint = SCHEMES[scheme]
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def has(self, method: str, url: str, body: bytes) -> bool:
        """Whether such a request was made."""
        number = beginning(self._fingerprint(method, url, body))
        at = bisect_left(self.numbers, number)
        return at < len(self.numbers) and self.numbers[at] == number

    def pieces(self) -> Iterator[bytes]:
        """As it is kept."""
        yield json.dumps({"scheme": self.scheme, "n": len(self)}).encode() + b"\n"
        step = _PIECE_BYTES // _BYTES
        for begin in range(0, len(self), step):
            part = self.numbers[begin : begin + step]
            if sys.byteorder == "little":
                part.byteswap()
            yield part.tobytes()


def beginning(fingerprint: bytes) -> int:
    """The first 8 bytes of *fingerprint* as a number, which are kept."""
    return int.from_bytes(fingerprint[:_BYTES], "big")


def earlier_crawl_of(
    scheme: str, numbers: Iterable[int], earlier: EarlierCrawl | None = None
) -> EarlierCrawl:
    """The pages whose fingerprints begin with *numbers*, in whatever order, and those of an *earlier* crawl of the same scheme.

    It takes the memory of two such crawls and that of a million numbers.
    """
    parts, rest = [earlier.numbers if earlier is not None else array("Q")], iter(numbers)
    while part := sorted(islice(rest, _AT_ONCE)):
        parts.append(array("Q", part))
    return EarlierCrawl(scheme, array("Q", (number for number, _ in groupby(merge(*parts)))))


def write_earlier_crawl(place: Place, crawl: EarlierCrawl) -> None:
    """Let *crawl* lie beside the job at *place*, in the place of what was there.

    Raises:
        StorageError: If it cannot be written.
    """
    place.write_earlier(crawl.pieces())


def read_earlier_crawl(place: Place | None) -> EarlierCrawl | None:
    """The earlier crawl that lies beside the job at *place*; ``None`` if there is none.

    Raises:
        StorageError: If it cannot be read.
    """
    if place is None:
        return None
    data = place.read_earlier()
    return _read(place, data) if data else None


def _read(place: Place, data: bytes) -> EarlierCrawl:
    head, _, rest = data.partition(b"\n")
    try:
        fields = json.loads(head)
        numbers = array("Q", rest)
        if sys.byteorder == "little":
            numbers.byteswap()
        if fields["n"] != len(numbers):
            raise ValueError(f"{len(numbers)} of {fields['n']} fingerprints")
        return EarlierCrawl(fields["scheme"], numbers)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StorageError(
            f"The pages of the earlier crawl that lie beside the job in {place} are damaged: give them again "
            "('scrapy aopic import-redis', 'scrapy aopic seed --fetched')."
        ) from error
