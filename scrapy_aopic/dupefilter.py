"""A duplicate filter that keeps its fingerprints on disk, for use beside any scheduler.

:class:`scrapy_aopic.Scheduler` needs none: its page table is the seen-set.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.job import job_dir
from scrapy.utils.request import RequestFingerprinterProtocol, referer_str
from twisted.internet.defer import Deferred
from typing_extensions import Self

from ._engine.closing import Closing
from .core.ports import Family, Store
from .exceptions import SettingError, StorageError, plainly
from .settings import check_names, page_cache, read_address, read_values, store_memory
from .storage import Address, lock_job, open_store
from .storage.opening import open_store_at
from .storage.registry import SERVER
from .storage.store_folder import replacing

logger = logging.getLogger(__name__)

_BLOOM_FILE = "aopic-seen.bloom"

_NO_MORE = " - no more duplicates will be shown (see DUPEFILTER_DEBUG)"

ERROR_RATE = 0.001
"""Part of the unseen URLs that a Bloom filter within its first capacity takes for seen."""

CAPACITY = 10_000_000
"""URLs for which a Bloom filter is first laid out, in some 25 MB. It grows beyond that, and then loses more."""

_WRITE_EVERY = 500
"""New fingerprints that are kept in memory before they are written: the most that a killed process forgets."""


class Seen(Protocol):
    """A set of fingerprints."""

    def add(self, fingerprint: bytes) -> bool:
        """Add *fingerprint*; whether it was there."""

    def close(self) -> None:
        """Write what must outlive the process."""


class DiskSeen:
    """Exact: every fingerprint is in a store on disk or on a server, the most recently used ones also in memory (LRU)."""

    def __init__(
        self, folder: Path | None, address: Address | None, kind: str, capacity: int, memory_mb: int
    ) -> None:
        self._temporary: Path | None = None
        if address is None and folder is None and kind != "memory":
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="scrapy-aopic-"))
        self._store: Store = (
            open_store_at(address)
            if address is not None
            else open_store(folder / "aopic-seen" if folder is not None else None, kind, memory_mb=memory_mb)
        )
        self._capacity = capacity
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        self._fresh: dict[bytes, bytes | None] = {}

    def add(self, fingerprint: bytes) -> bool:
        """Add *fingerprint*; whether it was there."""
        recent = self._recent
        if fingerprint in recent:
            recent.move_to_end(fingerprint)
            return True
        is_known = (
            fingerprint in self._fresh or self._store.get_many(Family.PAGES, (fingerprint,))[0] is not None
        )
        if not is_known:
            self._fresh[fingerprint] = b""
            if len(self._fresh) >= _WRITE_EVERY:
                self._write(sync=False)
        recent[fingerprint] = None
        if len(recent) > self._capacity:
            recent.popitem(last=False)
        return is_known

    def _write(self, *, sync: bool) -> None:
        self._store.write({Family.PAGES: self._fresh}, sync=sync)
        self._fresh = {}

    def close(self) -> None:
        """Write the rest and release the store."""
        try:
            self._write(sync=True)
        finally:
            self._store.close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)


class BloomSeen:
    """Approximate: a Bloom filter in memory, written when it is closed.

    It takes :data:`ERROR_RATE` of the unseen fingerprints for seen; those pages are never crawled.
    """

    def __init__(self, folder: Path | None) -> None:
        try:
            from pybloom_live import ScalableBloomFilter  # noqa: PLC0415  # an extra
        except ImportError:
            raise SettingError(
                'AOPIC_DUPEFILTER ("bloom") needs pybloom-live: pip install pybloom-live, or use "exact".'
            ) from None
        self._lock = lock_job(folder / "aopic-seen", "duplicate filter") if folder is not None else None
        self._filter: Any = None
        if self._lock is not None and (path := self._lock.around.where / _BLOOM_FILE).exists():
            try:
                with path.open("rb") as file:
                    self._filter = ScalableBloomFilter.fromfile(file)
            except Exception as error:  # it unpacks whatever bytes there are
                self._lock.release()
                raise StorageError(
                    f"The Bloom filter {self._lock.around.path / _BLOOM_FILE} cannot be read, because {plainly(error)}: remove it to "
                    "begin with an empty one."
                ) from error
        if self._filter is None:
            self._filter = ScalableBloomFilter(initial_capacity=CAPACITY, error_rate=ERROR_RATE)

    def add(self, fingerprint: bytes) -> bool:
        """Add *fingerprint*; whether it, or one that the filter cannot distinguish from it, was there."""
        return bool(self._filter.add(fingerprint))

    def close(self) -> None:
        """Write the filter to the job folder."""
        if self._lock is None:
            return
        try:
            self._lock.check()
            with replacing(self._lock.around.where / _BLOOM_FILE) as file:
                self._filter.tofile(file)
        finally:
            self._lock.release()


class DupeFilter(BaseDupeFilter):
    """Filters requests whose fingerprint was seen, without keeping all fingerprints in memory.

    ``DUPEFILTER_CLASS = "scrapy_aopic.DupeFilter"`` with any scheduler. With ``JOBDIR`` the fingerprints outlive
    the process. ``AOPIC_DUPEFILTER = "bloom"`` trades exactness for memory: see docs/settings.md for what is lost.
    """

    def __init__(self, crawler: Crawler, count: Callable[[str, int], object] | None = None) -> None:
        settings = crawler.settings
        assert crawler.request_fingerprinter is not None
        self._crawler = crawler
        self._count = count
        self._fingerprinter: RequestFingerprinterProtocol = crawler.request_fingerprinter
        self._debug = settings.getbool("DUPEFILTER_DEBUG")
        self._has_logged = False
        self._seen: Seen | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self) -> Deferred[None] | None:
        """Open the set of fingerprints.

        If a setting or the job folder cannot be used, the log says which and why, and the spider is closed.
        """
        try:
            self._seen = self._open_seen()
        except (SettingError, StorageError) as error:
            Closing(self._crawler).refuse(error)
        return None

    def _open_seen(self) -> Seen:
        settings = self._crawler.settings
        check_names(settings)
        folder = Path(path) if (path := job_dir(settings)) else None
        values = read_values(settings)
        if values.dupefilter == "bloom":
            return BloomSeen(folder)
        address: Address | None = None
        kind = values.store
        if kind == SERVER:
            spider = self._crawler.spider
            of_job = read_address(values, spider.name if spider is not None else "")
            address = replace(of_job, key=f"{of_job.key}:seen")
        return DiskSeen(folder, address, kind, page_cache(values), store_memory(values))

    def request_seen(self, request: Request) -> bool:
        """Whether the fingerprint of *request* was seen; it is from now on."""
        if self._seen is None:  # it could not be opened, and the spider is about to close
            return True
        return self._seen.add(self._fingerprinter.fingerprint(request))

    def close(self, reason: str) -> Deferred[None] | None:
        """Write what must outlive the process; the fingerprints stay in the job folder."""
        if self._seen is not None:
            self._seen.close()
            self._seen = None
        return None

    def log(self, request: Request, spider: Spider) -> None:
        """Log that *request* was filtered, the first time or, with ``DUPEFILTER_DEBUG``, each time."""
        if self._debug or not self._has_logged:
            self._has_logged = True
            logger.debug(
                "Filtered duplicate request: %(request)s (referer: %(referer)s)%(more)s",
                {
                    "request": request,
                    "referer": referer_str(request),
                    "more": "" if self._debug else _NO_MORE,
                },
                extra={"spider": spider},
            )
        self.count()

    @property
    def is_silent(self) -> bool:
        """Whether it logs no request any more."""
        return self._has_logged and not self._debug

    def count(self, n: int = 1) -> None:
        """Count *n* requests that were filtered."""
        if self._count is None:
            assert self._crawler.stats is not None
            self._count = self._crawler.stats.inc_value
        self._count("dupefilter/filtered", n)
