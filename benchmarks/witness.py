"""A scheduler that also writes down, at once, when it settles a page: a second opinion for kill.py."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from scrapy_aopic.scheduler import Scheduler
from scrapy_aopic.session.dispatch import Dispatch
from scrapy_aopic.session.session import Session
from scrapy_aopic.web.request_rows import url_of

if TYPE_CHECKING:
    from scrapy_aopic.session.visit import Visit


class _Dispatch(Dispatch):
    def end(self, visit: Visit, now: float) -> None:
        super().end(visit, now)
        if visit.retry is None:
            descriptor = os.open(os.environ["AOPIC_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, f"{time.time():.6f}\t{url_of(visit.lease.request)}\n".encode())
            os.close(descriptor)


class _Session(Session):
    dispatch_class = _Dispatch


class Witness(Scheduler):
    """Appends ``time<TAB>URL`` to the file named by ``AOPIC_WITNESS`` for every page it settles."""

    session_class = _Session
