"""Serves a job as of its last commit, whether a crawl is using it or not.

The store is opened for a moment when somebody looks, at most every :data:`_EVERY` seconds, so a crawl that runs is not
disturbed.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy_aopic.exceptions import AopicError, StorageError
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.settings import read, read_dashboard
from scrapy_aopic.view.dropped import FILE_NAME as DROPPED
from scrapy_aopic.view.dropped import read_dropped
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.merged import whole_snapshot
from scrapy_aopic.view.verdict import verdict
from scrapy_aopic.view.views import opened_views

from .feed import Feed, Seen
from .guard import Guard, new_token
from .questions import Questions, asked_of
from .running_job import address_of, figures_of, listen, point_of
from .site import make_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.place.place import Place
    from scrapy_aopic.settings import Listen
    from scrapy_aopic.view.dropped import Sample
    from scrapy_aopic.view.snapshot import Snapshot

_EVERY = 2.0
"""Seconds between two looks at a store: opening one takes some 20 ms."""

_BEAT = 0.25
"""Seconds between looks at whether somebody waits."""

_MINUTE = 60.0
"""Seconds that a speed is of at most."""

_JOB = ("queued", "visited", "failed")


class StoredJob:
    """Looks at a stored job again and again.

    Args:
        job: Where it is.
    """

    def __init__(self, job: Place) -> None:
        self._job = job
        self._earlier: deque[tuple[float, int]] = deque()
        self._last: dict[str, Any] | None = None
        self._stats: dict[str, Any] = {}

    def look(self) -> Seen:
        """The figures of the last commit; those of the look before, and what is wrong, if there are none now.

        Raises:
            StorageError: At the first look, if there is no job, or it cannot be read.
        """
        try:
            now = self.snapshot()
        except AopicError as error:
            if self._last is None:
                raise
            figures = {**self._last, "problem": str(error)}
            return Seen(figures, point_of(figures), self._stats)
        figures = figures_of(now, verdict(now, now))
        figures["rate"] = self._rate(now)
        figures["dropped"] = {reason: each.n for reason, each in (_dropped(self._job) or {}).items()}
        figures.update(asked_of(self._job))
        self._last = figures
        self._stats = {f"aopic/job/{name}": getattr(now.pages, name) for name in _JOB}
        self._stats |= {"aopic/job/hosts": now.hosts.known, "aopic/job/dead_hosts": now.hosts.dead}
        self._stats |= {
            "aopic/cash/virtual": now.ledger.virtual,
            "aopic/cash/turns": now.ledger.turns,
            "aopic/cash/convergence": now.ledger.convergence,
        }
        return Seen(figures, point_of(figures), self._stats)

    def snapshot(self) -> Snapshot:
        """The figures of the last commit.

        Raises:
            StorageError: If there is no job, or it cannot be read.
        """
        with opened_views(self._job) as stores:
            found = whole_snapshot(stores, name=str(self._job))
        if found is None:
            raise StorageError(f"There is no job in {self._job} yet; start a crawl with it first.")
        return found

    def _rate(self, now: Snapshot) -> dict[str, float | None] | None:
        """How fast another process crawls, as its commits show; ``None`` if there were no two of them."""
        done = now.pages.visited + now.pages.failed
        earlier = self._earlier
        if not earlier or earlier[-1][0] != now.at:
            earlier.append((now.at, done))
        while now.at - earlier[0][0] > _MINUTE:
            earlier.popleft()
        seconds = now.at - earlier[0][0]
        if seconds <= 0 or now.is_closed:
            return None
        return {
            "seconds": seconds,
            "pages": (done - earlier[0][1]) / seconds,
            "transfers": None,
            "bytes": None,
            "growth": None,
        }


def _looks(job: Place) -> tuple[Callable[[], Seen], Callable[[], dict[str, Any]] | None]:
    """What looks at *job*, and what looks at all shards of one that is cut into some."""
    if isinstance(job, ServerPlace):
        from .sharded_job import WholeDashboard, WholeJob  # noqa: PLC0415  # needs a package that other jobs do not

        if job.read_cut() is not None:
            whole = WholeJob(job.address)
            return WholeDashboard(
                whole, StoredJob(job).snapshot, str(job), asked=partial(asked_of, job)
            ).look, whole.look
    return StoredJob(job).look, None


def _dropped(job: Place) -> Mapping[str, Sample] | None:
    """Samples of the links that the crawl dropped; ``None`` of a job on a server, whose workers have them."""
    return read_dropped(job.folder / DROPPED) if job.folder is not None else None


def serve(
    job: Place,
    where: Listen,
    settings: Mapping[Any, Any],
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Serve *job* at *where* until *sleep* raises an exception.

    Args:
        say: Is given the address once it is served.

    Raises:
        SettingError: If a setting cannot be used, or other machines could reach it without a token of the user's.
        StorageError: If there is no job, or it cannot be read.
        OSError: If nothing can listen there.
    """
    read_dashboard({**settings, "AOPIC_DASHBOARD": f"{where.host}:{where.port or 0}"})
    look, whole = _looks(job)
    look()
    server = listen(where)
    token = read(settings, "AOPIC_DASHBOARD_TOKEN") or new_token()
    guard = Guard(token, where.host, port=server.port)
    feed = Feed(look, every=_EVERY)
    site = make_site(
        feed,
        oldest_commit=float("inf"),
        history=job.folder / FILE_NAME if job.folder is not None else None,
        questions=Questions(job, settings, partial(_dropped, job)),
        whole=whole,
    )
    server.start(site, guard)
    try:
        say(address_of(server, where, token))
        while True:
            feed.beat()
            sleep(_BEAT)
    finally:
        feed.close("this dashboard was closed")
        server.close()
