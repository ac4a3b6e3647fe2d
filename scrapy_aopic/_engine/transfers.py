"""One transfer of a download slot: which request it is for, when it began, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .network import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response


class Transfers(set["Request"]):
    """The requests that a slot transfers; the downloader adds one when it starts and removes it when it ends.

    It does so, and all that it has to do with the request in between, in one context.

    Attributes:
        watch: Over the transfer that was started last.
    """

    def __init__(self, ended: Callable[[Request], None]) -> None:
        super().__init__()
        self._ended = ended
        self.watch = Watch()

    def add(self, request: Request) -> None:
        super().add(request)
        self.watch = Watch()
        Watch.current.set(self.watch)

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._ended(request)


class Transfer(NamedTuple):
    """A transfer that ended.

    Attributes:
        key: Key of its slot.
        seconds: How long it took.
        ago: Seconds since it was over.
        at_least: Seconds from then for which others (AutoThrottle, ``DOWNLOAD_SLOTS``) want the slot to be left alone.
        response: The answer, if there was one.
        error: The exception that ended it, if there was one.
    """

    key: str
    request: Request
    seconds: float
    ago: float
    at_least: float
    response: Response | None
    error: BaseException | None
