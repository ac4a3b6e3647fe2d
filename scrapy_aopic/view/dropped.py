"""Links and seeds that were dropped before they reached the queue, and why: a sample of each reason, so that ``why`` can answer.

Rule 1: it is bounded. Of each reason :data:`MOST` URLs are kept, those with the smallest checksums (a bottom-k sample: Cohen and
Kaplan, 2007). So each URL that was dropped has the same chance however often it was, and as long as no more than
that were dropped, all are known.

Rule 2: it is no part of the job. Nothing is read from its file by a crawl but the sample itself, which goes on over the runs;
a file that cannot be read or written costs a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from heapq import heappush, heapreplace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from scrapy_aopic.exceptions import plainly
from scrapy_aopic.storage.named_files import read_given

logger = logging.getLogger(__name__)

FILE_NAME = "aopic-dropped.json"
"""Name of the file in the job folder."""

MOST = 1000
"""URLs that are kept of each reason: some 200 kB."""

_LONGEST = 500
"""Characters of a URL that is kept; longer ones are counted only."""

REASONS = {
    "duplicate": "that page is the same as another one, whose links are followed (AOPIC_CONTENT_SEEN)",
    "nofollow": "that page asks robots not to follow its links (AOPIC_PAGE_ROBOTS)",
    "language": "that page is in a language that is out of scope (AOPIC_SCOPE)",
    "weight": "it weighs nothing on that page (AOPIC_LINK_WEIGHTS)",
    "flood": "that page has more links than are followed (AOPIC_URL_LIMITS: links)",
    "costly": "that page took more of the processor than AOPIC_PAGE_SECONDS; the rest of its links is left out",
    "offsite": "its host is none of the spider's allowed_domains",
    "depth": "it is too many links away from where the crawl began (DEPTH_LIMIT)",
    "host depth": "it is more links away from where the crawl began than its host allows (depth of AOPIC_HOST_RULES)",
    "length": "its URL is too long (URLLENGTH_LIMIT)",
    "middleware": "a spider middleware or allowed_domains dropped the request, or put another one in its place",
    "signal": "a handler of the signal request_scheduled, or a scheduler of your own, dropped the request",
    "unreadable": "this spider cannot make the request that was imported",
    "error": "an error lost it, which the log has",
}
"""Sentences for ``why`` about a link or a seed that was dropped, by reason."""


BRIEFLY = {
    "duplicate": "on duplicates (AOPIC_CONTENT_SEEN)",
    "nofollow": "on pages that ask robots not to follow links (AOPIC_PAGE_ROBOTS)",
    "language": "on pages in other languages (AOPIC_SCOPE)",
    "weight": "of weight 0 (AOPIC_LINK_WEIGHTS)",
    "flood": "beyond the links of AOPIC_URL_LIMITS",
    "costly": "of pages that took too long (AOPIC_PAGE_SECONDS)",
    "offsite": "to hosts that are none of the allowed_domains",
    "depth": "beyond DEPTH_LIMIT",
    "host depth": "beyond the depth of their hosts (AOPIC_HOST_RULES)",
    "length": "beyond URLLENGTH_LIMIT",
    "middleware": "by a spider middleware",
    "signal": "by a handler of request_scheduled",
    "unreadable": "that the spider cannot make",
    "error": "that an error lost",
}
"""The reasons in a few words."""


class Drop(NamedTuple):
    """Why a link, or a seed, was dropped.

    Attributes:
        page: URL of the page that has the link; ``""`` for a seed.
    """

    reason: str
    page: str


class Sample(msgspec.Struct):
    """URLs that were dropped for one reason.

    Attributes:
        n: How many links were, repeated ones included.
        is_whole: Whether all of their URLs are here.
        pages: By URL, the page on which it was found first.
    """

    n: int = 0
    is_whole: bool = True
    pages: dict[str, str] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Sample]).decode


class Dropped:
    """The samples of a job, with the file at *path*, if there is one.

    The event loop notes what is dropped; other threads may look things up meanwhile.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        found = read_dropped(path) if path is not None else None
        self.samples = found or {}
        self._heaps = {
            reason: sorted((-crc32(url.encode()), url) for url in sample.pages)
            for reason, sample in self.samples.items()
        }
        self._n_saved = self.n if found is not None else -1
        self._has_failed = False

    @property
    def counts(self) -> dict[str, int]:
        """Links that were dropped, by reason."""
        return {reason: sample.n for reason, sample in self.samples.items()}

    @property
    def n(self) -> int:
        """Links that were dropped."""
        return sum(sample.n for sample in self.samples.values())

    def note(self, reason: str, url: str, page: str) -> None:
        """A link with *url* on the *page*, or with ``""`` a seed, was dropped for a *reason* of :data:`REASONS`."""
        sample = self.samples.get(reason)
        if sample is None:
            self._heaps[reason] = []
            sample = self.samples[reason] = Sample()
        sample.n += 1
        url = url.partition("#")[0]  # which no request has
        if url in sample.pages:
            return
        if len(url) > _LONGEST:
            sample.is_whole = False
            return
        sample.is_whole &= reason != "costly"  # further links were not looked at
        heap = self._heaps[reason]
        entry = -crc32(url.encode("utf-8", "replace")), url
        if len(heap) < MOST:
            heappush(heap, entry)
        else:
            sample.is_whole = False
            if entry < heap[0]:
                return
            del sample.pages[heapreplace(heap, entry)[1]]
        sample.pages[url] = page[:_LONGEST]

    def packed(self) -> bytes | None:
        """The samples to write; ``None`` if there is nothing new, or no file."""
        n = self.n
        if self._path is None or n == self._n_saved:
            return None
        self._n_saved = n
        return _encode(self.samples)

    def write(self, data: bytes) -> None:
        """Write *data*, of :meth:`packed`; waits for the disk, so it is called in a thread."""
        if self._path is None or self._has_failed:
            return
        part = self._path.with_name(self._path.name + ".part")
        try:
            part.write_bytes(data)
            part.replace(self._path)
        except OSError as error:
            self._has_failed = True
            logger.warning(
                "What is known of dropped links cannot be written: %(error)s. 'scrapy aopic why' will not find them.",
                {"error": plainly(error)},
            )


def read_dropped(path: Path) -> dict[str, Sample] | None:
    """The samples in the file at *path*; ``None`` if it is not there, or not whole."""
    try:
        return _decode(read_given(path))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        logger.warning(
            "What is known of dropped links cannot be read from %(path)s (%(error)s) and begins anew.",
            {"path": path, "error": plainly(error)},
        )
        return None


def dropped_in(job_folder: Path) -> dict[str, Sample] | None:
    """The samples of the job in *job_folder*, also those of its workers, if it has several; ``None`` if none is there."""
    found: dict[str, Sample] = {}
    each = [*map(read_dropped, (job_folder / FILE_NAME, *job_folder.glob(f"aopic-workers/*/{FILE_NAME}")))]
    if not any(samples is not None for samples in each):
        return None
    for samples in each:
        for reason, sample in (samples or {}).items():
            whole = found.setdefault(reason, Sample())
            whole.n += sample.n
            whole.is_whole &= sample.is_whole
            whole.pages = {**sample.pages, **whole.pages}
    return found


def find(samples: Mapping[str, Sample], urls: Iterable[str]) -> Drop | None:
    """Why the link with one of *urls* was dropped, as *samples* know."""
    for url in urls:
        for reason, sample in samples.items():
            page = sample.pages.get(url.partition("#")[0])
            if page is not None:
                return Drop(reason, page)
    return None
