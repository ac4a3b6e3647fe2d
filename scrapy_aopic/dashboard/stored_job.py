"""Serves a job as of its last commit, whether a crawl uses it or not.

The store is opened for a moment when a client asks, at most every :data:`~scrapy_aopic.view.stored_watch.EVERY` seconds, so a
crawl that runs is not disturbed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy_aopic.settings import Listen, read_dashboard
from scrapy_aopic.view.history import FILE_NAME
from scrapy_aopic.view.questions import Questions
from scrapy_aopic.view.snapshot_stats import stats_of
from scrapy_aopic.view.stored_watch import EVERY, StoredWatch

from .feed import Feed, FeedItem
from .serving import BEAT, start
from .site import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.place.place import Place


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
    watch = StoredWatch(job)
    watch.snapshot()

    def look() -> FeedItem:
        now = watch.snapshot()
        return FeedItem(now, stats_of(now))

    feed = Feed(look, every=EVERY)
    shown = Shown(
        feed,
        history=job.folder / FILE_NAME if job.folder is not None else None,
        questions=Questions(job, settings),
    )
    serving = start(shown, where, settings)
    try:
        say(serving.address)
        while True:
            feed.beat()
            sleep(BEAT)
    finally:
        feed.close("this dashboard was closed")
        serving.server.close()
