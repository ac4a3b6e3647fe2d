"""SlotTransfers of a download slot: the set that the downloader keeps of them, and what one was like in the end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from scrapy import Request
from scrapy.http import Response

from .network import TransferWatch


class SlotTransfers(set["Request"]):
    """Stands in for ``Slot.transferring``: the downloader adds a request when its transfer starts, and removes it at
    the end.

    It does both, and all in between, in one context, so that the connection finds the watch by a context variable.

    Args:
        ended: Is told of the end of a request, with its watch and the instant at which it started.
        permit: Gives, for a request that is started, what raises if it may not be sent any more once its connection is at hand;
            ``None`` if it always may. Raises nothing itself.
        door: Gives, for a request that is started, what says of an address whether it may be sent there; ``None`` if anywhere.
        flow: Gives what is told of its data as it comes; ``None`` for nobody.
    """

    def __init__(
        self,
        ended: Callable[[Request, TransferWatch, float], None],
        permit: Callable[[Request], Callable[[], None] | None],
        door: Callable[[Request], Callable[[str], bool] | None],
        flow: Callable[[Request], Callable[[TransferWatch], None] | None],
    ) -> None:
        super().__init__()
        self._ended = ended
        self._permit = permit
        self._door = door
        self._flow = flow
        self._watches: dict[Request, tuple[TransferWatch, float]] = {}

    def add(self, request: Request) -> None:
        super().add(request)
        watch = TransferWatch(self._permit(request), self._door(request), self._flow(request))
        self._watches[request] = (watch, monotonic())
        TransferWatch.current.set(watch)

    def remove(self, request: Request) -> None:
        super().remove(request)
        watch, began = self._watches.pop(request)
        watch.door = None  # what else is done in its context is no transfer
        watch.pause(False)  # its connection may be kept
        try:
            self._ended(request, watch, began)
        finally:
            watch.release()


class Transfer(NamedTuple):
    """A transfer that ended.

    Attributes:
        key: Key of its slot.
        seconds: How long it took.
        ago: Seconds since it was over.
        at_least: Seconds from its end for which others (AutoThrottle, ``DOWNLOAD_SLOTS``) want the slot left alone.
        response: The response, if there was one.
        error: The exception that ended it, if there was one.
    """

    key: str
    request: Request
    seconds: float
    ago: float
    at_least: float
    response: Response | None
    error: BaseException | None
