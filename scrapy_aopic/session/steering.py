"""What an operator asks of the crawl while it runs, put into force: see :mod:`scrapy_aopic.core.operator_control`."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.view.snapshot import ControlFigures
from scrapy_aopic.view.stored import control_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider

    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.job.job import Job
    from scrapy_aopic.place.stored_control import ControlWatch

    from .visit import Visits

logger = logging.getLogger(__name__)

STOPPED = "aopic_stopped"
"""Reason of a spider that an operator has stopped."""


class Steering:
    """Applies the control settings of an operator to the crawl of *job*.

    Args:
        watch: Reads them; ``None`` if there can be none, because the job is gone after this run.
        close: Closes the spider, for a reason.

    Attributes:
        control: The settings in force.
        figures: These settings as figures of a snapshot.
        holds_back: Whether :meth:`wait` may say anything else than 0.
    """

    def __init__(
        self,
        spider: Spider,
        job: Job,
        visits: Visits,
        watch: ControlWatch | None,
        close: Callable[[str], None],
    ) -> None:
        self._close = close
        self._began = job.clock()
        self.control = Control()
        self.figures = ControlFigures()
        self.holds_back = False
        self._job = job
        self._visits = visits
        self._watch = watch
        self._extra = {"spider": spider}
        self._problem: StorageError | None = None
        self._next_at = 0.0
        self.look()

    def look(self) -> bool:
        """Put the present settings into force; returns whether they have changed."""
        watch = self._watch
        if watch is None:
            return False
        if watch.problem is not self._problem:
            self._problem = watch.problem
            if self._problem is not None:
                logger.error(
                    "%(problem)s The previous settings stay in force.",
                    {"problem": self._problem},
                    extra=self._extra,
                )
        control, before = watch.control, self.control
        if control.stopped_at <= self._began:  # an earlier run was
            control = replace(control, stopped_at=0.0)
        if control == before:
            return False
        self.control = control
        self.figures = control_figures(control)
        self.holds_back = bool(control.paused_since or control.connections or control.rate)
        if control.blocked.keys() != before.blocked.keys():
            self._job.crawl.block(control.blocks if control.blocked else None, self._job.clock())
        if control.stopped_at:
            self._close(STOPPED)
        logger.info(
            "Control settings now in force: %(what)s",
            {"what": "; ".join(self.figures.sentences) or "nothing"},
            extra=self._extra,
        )
        return True

    # -- what is held to it

    def wait(self, now: float) -> float:
        """Seconds from *now* before which no page may be requested, infinite if that takes another event; 0 if one may be."""
        control = self.control
        if control.paused_since:
            return inf
        # One at least, or a part of the job would stand still.
        if control.connections and self._visits.n_downloading >= max(
            int(control.connections * self._part), 1
        ):
            return inf
        return max(self._next_at - now, 0.0) if control.rate else 0.0

    def gap(self, host: str) -> float:
        """Seconds between requests to the host called *host*, at least; 0 if none is set."""
        return self.control.gap(host)

    def requested(self, now: float) -> None:
        """A page is requested."""
        rate = self.control.rate
        if rate:
            self._next_at = max(self._next_at, now) + 1 / (rate * self._part)

    @property
    def _part(self) -> float:
        """Of the job, and of its limits, that is this process's: its shards."""
        part = self._job.part
        return part.held / part.shards if part is not None and part.held else 1.0
