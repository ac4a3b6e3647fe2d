"""Loop: for how long this package keeps Scrapy's event loop from doing anything else."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator

    from measure import Runner


class Watch:
    """Time that is spent in this package, by call and by turn of the event loop (one of its callbacks).

    A turn may have many calls, such as one for each link of a page, and Scrapy's code and the spider's in between, which
    does not count. Turns without a call do not count either.
    """

    def __init__(self) -> None:
        self.calls: list[float] = []
        self.turns: list[float] = []
        self.cpu_turns: list[float] = []
        self._depth = 0
        self._seconds = self._cpu = 0.0

    def enter(self) -> None:
        """A call begins."""
        self._depth += 1
        if self._depth == 1:
            self._cpu_began = time.thread_time()
            self._began = time.perf_counter()

    def leave(self) -> None:
        """The last call that began has ended."""
        self._depth -= 1
        if self._depth == 0:
            seconds = time.perf_counter() - self._began
            self._seconds += seconds
            self._cpu += time.thread_time() - self._cpu_began
            self.calls.append(seconds)

    def turn(self, handle: asyncio.Handle) -> None:
        """Run a callback of the event loop."""
        self._seconds = self._cpu = 0.0
        _run(handle)
        if self._seconds:
            self.turns.append(self._seconds)
            self.cpu_turns.append(self._cpu)

    def found(self) -> dict[str, float]:
        """In milliseconds."""
        found = {}
        for name, times in (("call", self.calls), ("turn", self.turns), ("cpu", self.cpu_turns)):
            times.sort()
            found[f"{name}_p999"] = times[int(len(times) * 0.999)] * 1000
            found[f"{name}_longest"] = times[-1] * 1000
        return {**found, "n_turns": len(self.turns)}


_run = asyncio.Handle._run


class _Theirs:
    """What a callback yields; meanwhile the time is not ours."""

    def __init__(self, result: AsyncIterator[Any], watch: Watch) -> None:
        self._result = result
        self._watch = watch

    def __aiter__(self) -> _Theirs:
        return self

    async def __anext__(self) -> Any:
        self._watch.leave()
        try:
            return await self._result.__anext__()
        finally:
            self._watch.enter()


class _Step:
    """Awaits a step of a generator; each part of it from one turn of the loop to the next is a call."""

    def __init__(self, step: Any, watch: Watch) -> None:
        self._step = step
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        step, watch = self._step.__await__(), self._watch
        error: BaseException | None = None
        while True:
            watch.enter()
            try:
                waited = step.send(None) if error is None else step.throw(error)
                error = None
            except StopIteration as end:
                return end.value
            finally:
                watch.leave()
            try:
                yield waited
            except BaseException as raised:  # noqa: BLE001 - passed on
                error = raised


def watch() -> Watch:
    """Watch all that Scrapy calls in this package."""
    from scrapy_aopic import LinkMiddleware, PolitenessMiddleware, RobotsMiddleware, Scheduler
    from scrapy_aopic._engine.slots import PoliteSlot, Slots
    from scrapy_aopic.session.dispatch import Dispatch
    from scrapy_aopic.session.responses import Responses
    from scrapy_aopic.session.session import Session

    found = Watch()
    for cls, names in (
        (Scheduler, ("next_request", "enqueue_request", "has_pending_requests")),
        (Session, ("_beat_alone",)),
        (Dispatch, ("_transferred", "_finished")),
        (Responses, ("_headers_received", "_response_received")),
        (LinkMiddleware, ("process_spider_input", "process_spider_exception")),
        (PolitenessMiddleware, ("process_request", "process_response", "process_exception")),
        (RobotsMiddleware, ("process_request",)),
        (PoliteSlot, ("download_delay", "free_transfer_slots", "_end")),
        (Slots, ("_downloaded",)),
    ):
        for name in names:
            _time(cls, name, found)
    _time_steps(LinkMiddleware, found)

    def run(handle: asyncio.Handle) -> None:
        found.turn(handle)

    asyncio.Handle._run = run  # type: ignore[method-assign, assignment]
    return found


def _time(cls: Any, name: str, watch: Watch) -> None:
    method = getattr(cls, name)
    takes = inspect.signature(method).parameters

    def timed(*args: Any, **kwargs: Any) -> Any:
        watch.enter()
        try:
            return method(*args, **{key: value for key, value in kwargs.items() if key in takes})
        finally:
            watch.leave()

    setattr(cls, name, timed)


def _time_steps(cls: Any, watch: Watch) -> None:
    """Time the steps of the generator through which a page's links pass, without those of the callback inside."""
    generator = cls.process_spider_output

    async def process_spider_output(self: Any, response: Any, result: Any) -> Any:
        steps = generator(self, response, _Theirs(result, watch))
        while True:
            try:
                each = await _Step(steps.__anext__(), watch)
            except StopAsyncIteration:
                return
            yield each

    cls.process_spider_output = process_spider_output


def part(run: Runner) -> None:
    """The event loop in whole crawls, by the clock and by CPU time."""
    for hosts, links, wanted in ((1000, 40, 20), (100, 5000, 50)):
        pages = run.options.pages if links < 1000 else max(run.options.pages // 10, hosts)
        for kind, words in (("ours-links", "Links"), ("ours", "Requests")):
            what = {"hosts": hosts, "links": links, "pages": pages, "kind": kind, "watches": True}
            found = run.by_turns(("crawls:crawl", what))[0]
            name = f"pages of {links:,} links, {words}"
            run.add(
                "loop",
                f"blocked in a turn, {name}, 99.9th percentile",
                "ms",
                found["turn_p999"],
                wanted=wanted,
            )
            run.add("loop", f"the same in CPU time, {name}", "ms CPU", found["cpu_p999"])
            run.add("loop", f"longest turn, {name}", "ms", found["turn_longest"])
            run.add("loop", f"a call, {name}, 99.9th percentile", "ms", found["call_p999"])
