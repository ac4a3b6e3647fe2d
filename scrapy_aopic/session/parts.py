"""What the parts of a session share, so that each is given it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scrapy import Spider
from scrapy.crawler import Crawler

from scrapy_aopic._engine.engine import Engine
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.job.job import Job
from scrapy_aopic.view.dropped import Dropped
from scrapy_aopic.web.page_keys import PageKeys

from .bodies import Bodies
from .error_handler import ErrorHandler
from .links.admission import Admission
from .queued import QueuedRequests
from .redirect_cookies import RedirectCookies
from .reloads import Reloads
from .stats import Stats
from .visit import Visits


@dataclass(frozen=True, slots=True, eq=False)
class SessionParts:
    """The objects that most parts of a session work with; the attributes of a session that have these names are the same.

    Attributes:
        engine: Wakes the engine.
        requests: Makes requests of bytes, and bytes of requests.
        reloads: Knows pages that lead to themselves.
        cookies: Keeps the cookies of redirect chains.
        recrawl: How pages are revisited, ``None`` for not at all.
        longest_of: Seconds after a visit within which a page of the host with some name is to be visited again.
    """

    crawler: Crawler
    spider: Spider
    engine: Engine
    job: Job
    stats: Stats
    errors: ErrorHandler
    keys: PageKeys
    admission: Admission
    dropped: Dropped
    visits: Visits
    requests: QueuedRequests
    reloads: Reloads
    cookies: RedirectCookies
    bodies: Bodies
    recrawl: Recrawl | None
    longest_of: Callable[[str], float]
