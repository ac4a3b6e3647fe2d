"""The parts of Scrapy's engine that are touched although no documentation promises them, as types.

Scrapy may rename any of them, so :class:`~.engine.Engine` looks for those that a crawl can do without.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, MutableSequence, MutableSet

    from scrapy import Request
    from scrapy.core.downloader import Slot
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedExporter


class NextCall(Protocol):
    """``engine._slot.nextcall``."""

    def schedule(self) -> None:
        """Have the engine request more from the scheduler, soon."""


class EngineSlot(Protocol):
    """``engine._slot``.

    Attributes:
        close_if_idle: Whether the spider is closed when nothing is left to do: not in ``scrapy shell``.
        inprogress: Popped requests whose callbacks, pipelines and links are not all done.
    """

    close_if_idle: bool
    inprogress: MutableSet[Request]
    nextcall: NextCall


class ScrapyEngine(Protocol):
    """``crawler.engine``.

    Attributes:
        _start: What is left of what the spider's ``start()`` yields; ``None`` if nothing is.
    """

    _start: AsyncIterator[object] | None


class Middlewares(Protocol):
    """A manager of middlewares.

    Attributes:
        middlewares: From the engine's side inwards.
        methods: Bound methods of the middlewares by their name.
    """

    middlewares: tuple[object, ...]
    methods: dict[str, MutableSequence[Callable[..., object]]]

    def _add_middleware(self, middleware: object) -> None:
        """Add *middleware* as the innermost one."""


class Handlers(Protocol):
    """``downloader.handlers``.

    Attributes:
        _handlers: Download handlers that were made, by their scheme.
    """

    _handlers: dict[str, object]

    def _get_handler(self, scheme: str) -> object:
        """The download handler for *scheme*; ``None`` if there is none."""


class Downloader(Protocol):
    """``engine.downloader``.

    Attributes:
        active: Popped requests that the downloader, its middlewares included, is not done with.
        slots: Download slots by their key.
    """

    active: MutableSet[Request]
    slots: dict[str, Slot]
    middleware: Middlewares
    handlers: Handlers

    def _process_queue(self, slot: Slot) -> None:
        """Start what waits in *slot*, as far as it may start."""

    def _start_slot_gc(self) -> None:
        """Forget slots that are empty, every minute."""


class FeedSlot(Protocol):
    """One of ``FeedExporter.slots``: a feed, or the part of it that is being written.

    Attributes:
        file: What is written to; ``None`` before the first item.
        storage: What has made it.
        uri: Where it is.
        uri_template: What the settings call it.
        format: Its format, as the settings call it.
        feed_options: What the settings say of it.
        store_empty: Whether its file is made although it has no items.
    """

    file: IO[bytes] | None
    storage: object
    uri: str
    uri_template: str
    format: str
    feed_options: dict[str, Any]
    store_empty: bool


def feed_slots_of(exporter: FeedExporter) -> list[FeedSlot] | None:
    """The feeds that *exporter* is writing; ``None`` if it does not tell."""
    slots = getattr(exporter, "slots", None)
    names = FeedSlot.__annotations__
    if not isinstance(slots, list) or not all(hasattr(slot, name) for slot in slots[:1] for name in names):
        return None
    return cast("list[FeedSlot]", slots)


def engine_slot_of(crawler: Crawler) -> EngineSlot | None:
    """The slot of the running engine; ``None`` before its spider is opened and after it is closed."""
    return cast("EngineSlot | None", getattr(crawler.engine, "_slot", None))


def engine_of(crawler: Crawler) -> ScrapyEngine:
    """The engine, which must have been made."""
    return cast("ScrapyEngine", crawler.engine)


def downloader_of(crawler: Crawler) -> Downloader:
    """The downloader of the engine, which must have been made."""
    return cast("Downloader", getattr(crawler.engine, "downloader", None))


def spider_middlewares_of(crawler: Crawler) -> Middlewares:
    """The spider middlewares of the engine, which must have been made."""
    scraper = getattr(crawler.engine, "scraper", None)
    return cast("Middlewares", getattr(scraper, "spidermw", None))
