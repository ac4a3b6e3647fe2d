"""``spider.state``, which Scrapy's own extension keeps in a job folder, kept as safely as the job.

Scrapy overwrites the old file. If that fails, as on a full disk, a broken file is left: the next run has no state, and
at its end the file is empty. A crawl that is refused because another one has the job would write there, too.
"""

from __future__ import annotations

import logging
import pickle
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import Spider, signals
from scrapy.extensions.spiderstate import SpiderState

from scrapy_aopic.exceptions import ANY_ERROR, plainly
from scrapy_aopic.place.folder_place import STATE_FILE
from scrapy_aopic.storage.store_folder import replacing

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_aopic.storage.lock import Lock

logger = logging.getLogger(__name__)


class StateKeeper:
    """Takes over from Scrapy's extension before the spider is opened.

    Args:
        lock: The lock of the job, which is released when the state is written; ``None`` if the crawl was refused.
    """

    def __init__(self, crawler: Crawler, lock: Lock | None) -> None:
        self._lock = lock
        crawler.signals.connect(self._opened, signal=signals.spider_opened)
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def replacing(cls, crawler: Crawler, lock: Lock | None) -> StateKeeper | None:
        """One in the place of Scrapy's own extension, if that is in use."""
        manager = crawler.extensions
        for extension in manager.middlewares if manager is not None else ():
            if type(extension) is SpiderState:
                crawler.signals.disconnect(extension.spider_opened, signal=signals.spider_opened)
                crawler.signals.disconnect(extension.spider_closed, signal=signals.spider_closed)
                return cls(crawler, lock)
        return None

    def _opened(self, spider: Spider) -> None:
        state: object = {}
        if self._lock is not None:
            path = self._lock.around.where / STATE_FILE
            try:
                if path.exists():
                    with path.open("rb") as file:
                        state = pickle.load(file)  # noqa: S301 (as Scrapy does)
            except ANY_ERROR as error:  # whatever the bytes make it raise
                self._put_aside(spider, self._lock, error)
        spider.state = state  # type: ignore[attr-defined]

    def _put_aside(self, spider: Spider, lock: Lock, error: BaseException) -> None:
        path = lock.around.where / STATE_FILE
        aside = next(
            each for n in count(1) if not (each := path.with_name(f"{STATE_FILE}.broken-{n}")).exists()
        )
        path.replace(aside)
        # What the spider has put into its state, it knows itself; what the bytes are like, it need not.
        is_spiders = isinstance(error, (ImportError, AttributeError))
        what = f"{type(error).__name__}: {error}" if is_spiders else plainly(error)
        logger.warning(
            "%(path)s cannot be read (%(error)s): it is put aside as %(name)s, and the spider begins with an empty state",
            {"path": lock.around.path / STATE_FILE, "error": what, "name": aside.name},
            extra={"spider": spider},
        )

    def _closed(self, spider: Spider) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            lock.check()
            with replacing(lock.around.where / STATE_FILE) as file:
                pickle.dump(spider.state, file, protocol=4)  # type: ignore[attr-defined]
        except ANY_ERROR as error:  # whatever a user's state makes it raise
            logger.error(
                "The state of the spider cannot be written to %(path)s, which was left unchanged: %(error)r",
                {"path": Path(lock.around.path, STATE_FILE), "error": error},
                extra={"spider": spider},
            )
        finally:
            lock.release()
