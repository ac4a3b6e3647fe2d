"""Whether the spider can make what waits in a job: with another spider than before, all of it would be set aside as failed."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.records import HOST_BYTES
from scrapy_aopic.exceptions import ANY_ERROR, StorageError
from scrapy_aopic.web.request_codec import is_callback
from scrapy_aopic.web.request_rows import values_of

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.place.place import Place

_LOOKED_AT = 100
"""Requests that are looked at, in each shard: some milliseconds."""


def check_queue(place: Place, spider: Spider) -> None:
    """Do nothing if *spider* has the callbacks of some of the requests that wait in the job at *place*, or none wait.

    Raises:
        StorageError: If it has those of none.
    """
    missing = ""
    # What cannot be opened or read is said by whoever opens it to crawl.
    with suppress(StorageError), closing(place.each_snapshot()) as stores:
        for data in chain.from_iterable(map(_waiting, stores)):
            if not (missing := _missing_in(data, spider)):
                return
    if missing:
        raise StorageError(
            f"What waits in the job in {place} is not for this spider: {spider.name!r} has no callback {missing!r}, nor that of any other "
            "request that was looked at. Crawl it with the spider that began it, give this one the callback, or choose another JOBDIR. Nothing "
            "was changed."
        )


def _waiting(store: Store) -> list[bytes | None]:
    return store.get_many(
        Family.REQUESTS,
        [row[:HOST_BYTES] + page for row, page in islice(store.scan(Family.QUEUE), _LOOKED_AT)],
    )


def _missing_in(data: bytes | None, spider: Spider) -> str:
    """A callback or errback of the request written as *data* that *spider* has not; empty if there is none, or it cannot be read."""
    with suppress(*ANY_ERROR):
        values = values_of(data or b"")
        names = [values[name] for name in ("callback", "errback") if name in values]
        return next((name for name in names if not is_callback(spider, name)), "")
    return ""
