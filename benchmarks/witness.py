"""A scheduler that also writes down, at once, when it settles a page: a second opinion for kill.py."""

from __future__ import annotations

import os
import time

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.scheduler import Scheduler, Visit
from scrapy_aopic.web.request_rows import url_of


class Witness(Scheduler):
    """Appends ``time<TAB>URL`` to the file named by ``AOPIC_WITNESS`` for every page it settles."""

    def _finish(self, visit: Visit, crawl: Crawl, now: float) -> None:
        super()._finish(visit, crawl, now)
        if visit.retry is None:
            descriptor = os.open(os.environ["AOPIC_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{time.time():.6f}\t{url_of(visit.lease.request)}\n".encode())
            os.close(descriptor)
