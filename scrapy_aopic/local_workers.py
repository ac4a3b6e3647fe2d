"""Several workers for one crawl: this process starts them, watches them, and starts those again that are killed.

Rule 1: the parent holds nothing of the job but its lock. A worker that was killed has lost what was in flight, as after any
crash, and others take its shards. If the parent is killed, the workers settle and end; the same command goes on.

Rule 2: what counts the crawl counts all workers: the parent adds up what they report, and asks them to end.

Rule 3: each line that a worker logs is a line of the parent's log, with the worker's number before it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from pprint import pformat
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, cast

from scrapy.utils.log import get_scrapy_root_handler

from ._engine.feeds import prepare_feeds
from .dashboard.serving import serve
from .exceptions import AopicError, SettingError, StorageError, plainly
from .place.folder_place import WORKER, FolderPlace, check_job_folder, store_folder, worker_number
from .session.worker_link import COUNTS, MARK
from .settings import read_address, read_values
from .stats_table import find
from .storage import Address, closing_all, lock_job
from .storage.folder_workers import board_address, clear_board, forget_worker, is_locked
from .storage.registry import SERVER
from .view.shard_states import read_states
from .view.snapshot_stats import stats_of
from .view.stored import read_snapshot
from .view.text import n_of
from .view.text_report import print_report

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_LOOK = 0.05
"""Seconds between looks at the workers."""

_PATIENCE = 1.0
"""Seconds for the last lines of a worker that has ended."""

_MOST_DEATHS = 3
"""Times that a worker may be killed, one after another, before it has fetched anything."""

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_LIMITS = tuple(
    f"CLOSESPIDER_{name}"
    for name in ("PAGECOUNT", "ITEMCOUNT", "ERRORCOUNT", "TIMEOUT", "TIMEOUT_NO_ITEM", "PAGECOUNT_NO_ITEM")
)
"""Scrapy's limits of a crawl."""

_OF_EACH = re.compile(r"elapsed_time_seconds|memusage/\w+|request_depth_max|\w+_per_minute")
"""Stats of Scrapy's that say something of each worker, and have no sum."""

_OF_PARENT = (
    "--logfile=", "--pidfile=", "-s", "LOG_FILE=", "-s", "LOGSTATS_INTERVAL=0", "-s", "AOPIC_REPORT=False", "-s", "AOPIC_DASHBOARD=False",
    *(part for name in _LIMITS for part in ("-s", f"{name}=0")),
)  # fmt: skip
"""Options that leave to the parent what there is one of."""


def wants_workers(settings: BaseSettings) -> bool:
    """Whether *settings* want this process to start workers.

    Raises:
        SettingError: If it cannot.
    """
    values = read_values(settings)
    if values.workers == 1 or worker_number():
        return False
    if values.store in {SERVER, "memory"}:
        raise SettingError(
            f'AOPIC_WORKERS ({values.workers}) starts workers that share a job folder, and AOPIC_STORE is "{values.store}": set '
            "AOPIC_WORKERS = 1, and start as many crawls as you want workers, or leave the other setting out."
        )
    return True


@dataclass
class _Worker:
    """One worker.

    Attributes:
        figures: What it has reported.
        deaths: Times that it was killed before it had fetched anything, one after another.
    """

    number: int
    process: subprocess.Popen[bytes]
    deaths: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    readers: list[threading.Thread] = field(default_factory=list)


class Workers:
    """The workers of the crawl that this process was asked for, with *settings*.

    Args:
        most_pages: Responses after which the crawl ends, without robots.txt and the like; ``None`` for no limit.

    Attributes:
        stats: The sums of the stats of all workers that have ended by themselves.
        sums: The sums of what is limited, of all workers so far.
        reason: Why the workers were asked to end; empty if they were not.

    Raises:
        StorageError, SettingError: If the job folder, or a feed, cannot be used.
    """

    def __init__(self, settings: BaseSettings, *, most_pages: int | None = None) -> None:
        self.stats: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.reason = ""
        self._settings = settings
        self._most_pages = most_pages
        self._gone: Counter[str] = Counter()
        self._workers: dict[int, _Worker] = {}
        self._to_start = [*range(1, read_values(settings).workers + 1)]
        self._n_signals = 0
        self._code = 0
        self._began, self._began_at = time.monotonic(), time.time()
        # Items so far, when the last one came, and after how many responses.
        self._last_item = (0, self._began, 0)
        self._shown: tuple[float, int] | None = None
        self._line = ""
        self._writing = threading.Lock()
        self._is_over = threading.Event()
        with ExitStack() as opened:
            self._given = settings.get("JOBDIR")
            folder = Path(self._given or opened.enter_context(TemporaryDirectory(prefix="scrapy-aopic-")))
            check_job_folder(folder)
            self._place = FolderPlace(folder)
            opened.enter_context(lock_job(store_folder(folder), "crawl"))
            for former in sorted(self._place.of_worker(1).parent.glob("*")):
                if is_locked(store_folder(former)):
                    self._log(
                        logging.WARNING,
                        "Worker %(number)s of a command that was killed still has the job in %(folder)s: waiting until it has settled",
                        number=former.name,
                        folder=folder,
                    )
                while is_locked(store_folder(former)):
                    time.sleep(_LOOK)
            clear_board(folder)
            prepare_feeds(settings)
            self._opened = opened.pop_all()

    def run(self) -> int:
        """Crawl; returns the exit code."""
        with self._opened:
            before = {number: signal.signal(number, self._take_signal) for number in _SIGNALS}
            dashboard = threading.Thread(target=self._serve, name="aopic-dashboard", daemon=True)
            dashboard.start()
            try:
                while self._look():
                    time.sleep(_LOOK)
            finally:
                for worker in self._workers.values():
                    worker.process.kill()
                for number, handler in before.items():
                    signal.signal(number, handler)
                self._is_over.set()
                dashboard.join()
            self._log(
                logging.INFO, "The crawl by all workers ended (%(reason)s)", reason=self.reason or "finished"
            )
            # Not the sum of what workers say: a shard of one that has ended may have been another's later.
            with suppress(StorageError):
                for name, n in stats_of(read_snapshot(self._place)).items():
                    if name.startswith("aopic/job/") and isinstance(n, int):
                        self.stats[name] = n
            if self._settings.getbool("STATS_DUMP"):
                self._log(logging.INFO, "Sums of their stats:\n%(stats)s", stats=pformat(dict(self.stats)))
            try:
                if read_values(self._settings).report and self._place.has_job():
                    with closing_all(self._place.open_snapshots()) as stores:
                        print_report(self._place if self._given else None, *stores)
            except StorageError as error:  # as after a disk that was full before all stores were made
                self._log(logging.ERROR, "%(error)s", error=error)
                self._code = 1
        return self._code

    @property
    def _board(self) -> Address:
        """Where the workers of the job hear of each other."""
        part, server = self._place.read_part(), read_address(self._settings)
        return replace(server, key=part.job.partition("#")[2]) if part else board_address(self._place.folder)

    def _look(self) -> bool:
        """Do what is due; returns whether the crawl goes on."""
        if self._n_signals and not self.reason:
            self._end("shutdown")
        for worker in list(self._workers.values()):
            if (code := worker.process.poll()) is not None:
                self._take_end(worker, code)
        self.sums = self._gone.copy()
        for worker in self._workers.values():
            self.sums.update({name: worker.figures.get(name, 0) for name in COUNTS})
        if not self.reason:
            if reason := self._reached():
                self._end(reason)
            # The first one makes the job.
            while self._to_start and not self.reason and (self._to_start[0] == 1 or self._place.has_job()):
                self._start(self._to_start.pop(0))
            self._show_progress()
        return bool(self._workers)

    def _start(self, number: int, deaths: int = 0) -> None:
        line = [sys.executable, *sys.orig_argv[1:], *_OF_PARENT]
        process = subprocess.Popen(  # noqa: S603 (the command of this process)
            [*line, *(() if self._given else ("-s", f"JOBDIR={self._place}"))],
            env={**os.environ, WORKER: f"{number} {self._began_at}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent
        )
        self._workers[number] = worker = _Worker(number, process, deaths)
        for read in (self._pass_output_on, self._pass_log_on):
            worker.readers.append(threading.Thread(target=read, args=(worker,), daemon=True))
            worker.readers[-1].start()

    def _take_end(self, worker: _Worker, code: int) -> None:
        """*worker* has ended with an exit *code*, or was killed."""
        for reader in worker.readers:
            reader.join(_PATIENCE)  # a process that it has started may keep a pipe open
        del self._workers[worker.number]
        self._gone.update({name: worker.figures.get(name, 0) for name in COUNTS})
        self.stats.update({name: n for name, n in worker.figures.get("stats", {}).items() if _adds_up(name)})
        reason = worker.figures.get("reason", "")
        if code < 0 and reason:  # it was killed when it had nothing left to do
            code = 0
        if self.reason:
            self._code = max(self._code, code)
        elif code > 0:
            self._code = code
            self._end(reason or "aopic_workers")
        elif code < 0:
            self._replace(worker, signal.Signals(-code).name)
        elif reason in {"", "finished"}:
            self._to_start.clear()
        else:
            self._end(reason)

    def _replace(self, worker: _Worker, by: str) -> None:
        """Start *worker* again, which was killed *by* a signal, unless that happens again and again."""
        deaths = 0 if worker.figures.get("pages") else worker.deaths + 1
        with suppress(StorageError):  # then it is noticed later
            forget_worker(self._board, worker.process.pid)
        if deaths < _MOST_DEATHS:
            self._log(
                logging.WARNING,
                "Worker %(number)d was killed (%(by)s) and is started again: what it had in flight is fetched again",
                number=worker.number,
                by=by,
            )
            self._start(worker.number, deaths)
            return
        self._log(
            logging.ERROR,
            "Worker %(number)d was killed (%(by)s) %(deaths)d times before it had fetched a page, so the crawl ends. Is there too "
            "little memory for so many workers (AOPIC_WORKERS)?",
            number=worker.number,
            by=by,
            deaths=deaths,
        )
        self._code = 1
        self._end("aopic_workers")

    def _end(self, reason: str) -> None:
        """Ask all workers to end, because of *reason*."""
        self.reason = reason
        for worker in self._workers.values():
            with suppress(OSError):  # it has ended
                assert worker.process.stdin is not None
                worker.process.stdin.write(f"{reason}\n".encode())
                worker.process.stdin.flush()

    def _take_signal(self, number: int, _: object) -> None:
        """Settle at the first signal, with the next look: a pipe may be in the middle of a write. Stop at once at the second one."""
        self._n_signals += 1
        if self._n_signals > 1:
            for worker in self._workers.values():
                worker.process.kill()

    def _reached(self) -> str:
        """The reason to end that the sums of all workers give; empty if there is none."""
        now, sums = time.monotonic(), self.sums
        responses, items = sums["response_received_count"], sums["item_scraped_count"]
        if items > self._last_item[0]:
            self._last_item = items, now, responses
        so_far = (
            responses, items, sums["spider_exceptions/count"], now - self._began,
            now - self._last_item[1], responses - self._last_item[2],
        )  # fmt: skip
        for name, value in zip(_LIMITS, so_far, strict=True):
            if 0 < self._settings.getfloat(name) <= value:
                return name.lower()
        is_enough = self._most_pages is not None and sums["pages"] >= self._most_pages
        return "closespider_pagecount" if is_enough else ""

    # -- what is shown

    def _pass_output_on(self, worker: _Worker) -> None:
        for line in cast("IO[bytes]", worker.process.stdout):
            with self._writing, suppress(OSError):
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()

    def _pass_log_on(self, worker: _Worker) -> None:
        for line in cast("IO[bytes]", worker.process.stderr):
            said, mark, figures = line.partition(MARK.encode())
            if mark:
                with suppress(ValueError):  # torn, if it was killed
                    worker.figures = json.loads(figures)
            if said:
                self._write(f"[worker {worker.number}] {said.decode('utf-8', 'replace').rstrip()}\n")

    def _write(self, text: str, line: str = "") -> None:
        """Write *text* to the log, and then the progress *line* of a terminal."""
        handler = get_scrapy_root_handler()
        stream = handler.stream if isinstance(handler, logging.StreamHandler) else sys.stderr
        with self._writing, suppress(OSError):
            if self._line or line:
                sys.stderr.write(f"\r\x1b[K{line}")
                sys.stderr.flush()
            self._line = line
            stream.write(text)
            stream.flush()

    def _log(self, level: int, sentence: str, **arguments: object) -> None:
        self._write("")  # the line makes room
        logger.log(level, sentence, arguments)

    def _show_progress(self) -> None:
        """Show how far the crawl is, on a terminal every second."""
        is_terminal, every = sys.stderr.isatty(), self._settings.getfloat("LOGSTATS_INTERVAL")
        now = time.monotonic()
        at, n_before = self._shown or (self._began, -1)
        if not every or now - at < (1.0 if is_terminal else every):
            return
        with suppress(StorageError):  # which the workers log
            if (states := read_states(self._place, self._board)) is None:
                return
            rows = states.rows()
            done = sum(row.visited + row.failed for row in rows)
            rate = f" · {(done - n_before) / (now - at):,.1f}/s" if n_before >= 0 else ""
            workers = n_of(len(states.cluster.workers), "worker")
            line = f"{n_of(done, 'page')}{rate} · {sum(row.queued for row in rows):,} queued · {workers}"
            self._shown = now, done
            if is_terminal:
                self._write("", line[: get_terminal_size().columns - 1])
            else:
                self._log(logging.INFO, "%(line)s", line=line)

    def _serve(self) -> None:
        """Serve the dashboard of the whole job, if one is set."""
        where = read_values(self._settings).dashboard
        if where is None:
            return
        while not self._is_over.wait(1.0):
            with suppress(StorageError, _OverError):  # its stores are being made
                try:
                    serve(self._place, where, self._settings, say=self._say_address, sleep=self._sleep)
                except OSError as error:
                    if isinstance(error, StorageError):
                        raise
                    why = plainly(error)
                    self._log(
                        logging.WARNING,
                        "There is no dashboard, as AOPIC_DASHBOARD cannot be listened on: %(why)s",
                        why=why,
                    )
                    return

    def _say_address(self, address: str) -> None:
        self._log(logging.WARNING, "Dashboard: %(address)s", address=address)

    def _sleep(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _OverError


def _adds_up(name: str) -> bool:
    """Whether the stat called *name* of all workers is the sum of theirs, which a speed, a mean and a maximum are not."""
    return ((stat := find(name)) is None or stat.kind == "counter") and not _OF_EACH.fullmatch(name)


class _OverError(Exception):
    """The crawl is over."""


def run_instead(settings: BaseSettings) -> None:
    """Crawl by workers if *settings* want that, in the place of the crawl that is about to begin, and end the process."""
    try:
        if not wants_workers(settings) or "scrapy.cmdline" not in sys.modules:
            return
        code = Workers(settings).run()
    except AopicError as error:
        logger.error("%(error)s The crawl does not start.", {"error": error})
        code = 1
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
