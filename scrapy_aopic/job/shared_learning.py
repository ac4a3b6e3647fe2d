"""Exchange of lessons about the topic between the workers of a job in shards: see :mod:`scrapy_aopic.core.focus.lessons`.

Rule 1: a thread sends and reads lessons; the event loop waits for neither, and the lessons that wait in memory are bounded.

Rule 2: lessons that are lost on the way are not sent again: others follow. While the server is out of reach, a worker goes on
with what it knows; whether it may crawl at all is decided elsewhere.

Rule 3: the worker with shard 0 stores its knowledge for workers that start later, from time to time and at its end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_aopic.core.focus.harvest import LATELY, Harvest
from scrapy_aopic.core.focus.lessons import (
    MOST_GRADES,
    MOST_LESSONS,
    Lessons,
    part_told,
    read_lessons,
    write_lessons,
)
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.redis.shared_lessons import Heard, LessonBoard

if TYPE_CHECKING:
    from scrapy_aopic.core.focus.strategy import Chance, PageSeen
    from scrapy_aopic.storage import Address

_PAUSE = 0.5
"""Seconds between turns of the thread: what a lesson is late, which is little beside the time in which a strategy learns."""

_KEEP = 10.0
"""Seconds between two times at which what was learned is kept, some 100 kB: what comes in between is in the stream."""

_MOST_RECEIVED = 2_000
"""Lessons of others that wait to be learned from, at most: the latest."""


class HarvestOfJob(Harvest):
    """How many pages of the whole job were relevant, as this worker knew about half a second ago.

    Attributes:
        noted: For each page of this worker that others do not know of yet, whether it is relevant.
    """

    def __init__(self) -> None:
        super().__init__()
        self._n_heard = 0
        self.noted: deque[bool] = deque(maxlen=MOST_GRADES)

    def note(self, *, is_relevant: bool) -> None:
        """Note a page that was graded here; it counts once all workers know of it."""
        self.noted.append(is_relevant)

    def hear(self, pages: int, relevant: int, lately: int, n_heard: int) -> None:
        """There are so many *pages*, and the last *n_heard* bits of *lately* say whether the last ones are relevant."""
        self.pages, self.relevant, self._last, self._n_heard = pages, min(relevant, pages), lately, n_heard

    @property
    def n_lately(self) -> int:
        return self._n_heard


class SharedLearning:
    """Lessons of this worker, called *worker*, for the others, and theirs for it.

    Args:
        harvest: Harvest of the job; kept up to date here.
        topic: The number of its topic: nothing is learned from workers with another one.

    Attributes:
        known: The knowledge that the job had when this worker began; empty for none.
        workers: Their number, which the owner keeps up to date.
        of_other_topic: The name of a worker that crawls for another topic; empty for none so far.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address, worker: str, harvest: HarvestOfJob, topic: int) -> None:
        self.workers = 1
        self.of_other_topic = ""
        self._worker = worker
        self._topic = topic
        self._harvest = harvest
        self._board = LessonBoard(address)
        self._place, self.known = self._board.known()
        self._lately = self._n_lately = 0
        self._using = threading.Lock()
        self._to_send: deque[PageSeen] = deque(maxlen=MOST_LESSONS)
        self._received: deque[PageSeen] = deque(maxlen=_MOST_RECEIVED)
        self._news: tuple[int, int, int, int] | None = None
        self._to_keep: tuple[bytes, bytes] | None = None
        self._kept_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aopic-lessons", daemon=True)
        self._thread.start()

    # -- for the event loop

    def tell(self, page: PageSeen, chance: Chance) -> None:
        """Maybe let others learn from *page*, too."""
        if self.workers > 1 and chance.random() >= part_told(self.workers):
            return
        with self._using:
            self._to_send.append(page)

    def hear(self) -> PageSeen | None:
        """A page of another worker to learn from; ``None`` if there is none."""
        with self._using:
            return self._received.popleft() if self._received else None

    def look(self) -> bool:
        """Take note of how many pages are relevant; returns whether that is news."""
        if self._news is None:
            return False
        with self._using:
            news, self._news = self._news, None
        self._harvest.hear(*news)
        return True

    @property
    def is_due(self) -> bool:
        """Whether what was learned should be kept again."""
        return time.monotonic() - self._kept_at >= _KEEP

    def keep(self, known: bytes) -> None:
        """Keep what is *known* for workers that start later."""
        self._kept_at = time.monotonic()
        with self._using:
            self._to_keep = self._place, known

    # -- the thread

    def _run(self) -> None:
        while True:
            with suppress(StorageError):
                while self._turn():
                    pass
            if self._ended.wait(_PAUSE):
                return

    def _turn(self) -> bool:
        """Look, and tell; returns whether there is more to hear at once."""
        heard = self._board.look(self._place)
        self._take(heard)
        with self._using:
            pages, to_keep = list(self._to_send), self._to_keep
            self._to_send.clear()
            self._to_keep = None
        grades = [self._harvest.noted.popleft() for _ in range(len(self._harvest.noted))]
        if pages or grades:
            entry = write_lessons(Lessons(self._worker, self._topic, grades, pages))
            self._board.tell(entry, len(grades), sum(grades))
        if to_keep is not None:
            self._board.keep(*to_keep)
        return heard.has_more

    def _take(self, heard: Heard) -> None:
        self._place = heard.place
        pages: list[PageSeen] = []
        for entry in heard.entries:
            lessons = read_lessons(entry)
            if lessons is None:
                continue
            for grade in lessons.grades:
                self._lately = (self._lately << 1 | grade) & (1 << LATELY) - 1
            self._n_lately = min(self._n_lately + len(lessons.grades), LATELY)
            if lessons.topic != self._topic:
                self.of_other_topic = lessons.teacher
            elif lessons.teacher != self._worker:
                pages += lessons.pages
        with self._using:
            self._received.extend(pages)
            if heard.entries:
                self._news = heard.pages, heard.relevant, self._lately, self._n_lately

    def close(self) -> None:
        """Tell what is left, and look once more. Idempotent."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        with suppress(StorageError):
            self._turn()
            self._turn()  # so that the harvest is that with what was left
        self._board.close()
