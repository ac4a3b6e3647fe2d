"""Scrapy's feeds as side files of a job: their buffers are part of no commit, unless they are emptied before it.

Scrapy writes feeds to files with a buffer of 8 kB, and logs an item that it cannot write as it logs any error of an
extension: the crawl goes on, and its page counts as visited. So the exporter's receiver of items is called from here.

Rule 1: a feed in a local file, or on standard output, is a side file (:mod:`scrapy_aopic.job.side_files`). One that cannot
be is named in one warning.

Rule 2: a run that goes on with a job goes on with its files: a line that a crash has torn is cut off, since its page is
visited again, and a table keeps its one line of column names.
"""

from __future__ import annotations

import csv
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import RawIOBase, UnsupportedOperation
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from itemadapter import ItemAdapter
from pydispatch.errors import DispatcherError
from scrapy import Spider, exporters, signals
from scrapy.extensions.feedexport import FeedExporter, FileFeedStorage, StdoutFeedStorage

from scrapy_aopic.exceptions import storage_errors
from scrapy_aopic.place.folder_place import worker_number
from scrapy_aopic.storage.lock import holding

from .private import FeedSlot, feed_slots_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from scrapy_aopic.job.side_files import SideFiles


logger = logging.getLogger(__name__)

_LOCAL = (FileFeedStorage, StdoutFeedStorage)
_UNBUFFERED = (
    exporters.JsonLinesItemExporter,
    exporters.JsonItemExporter,
    exporters.CsvItemExporter,
    exporters.XmlItemExporter,
    exporters.PickleItemExporter,
    exporters.MarshalItemExporter,
)
"""Exporters that hand each item to the file as a whole."""

_LINES = ("jsonlines", "jsonl", "jl")

_OF_PARTS = {"postprocessing", "batch_item_count"}
"""Options of a feed that cannot be one file for several workers."""

_OF_DIALECTS = ("delimiter", "quotechar", "escapechar", "doublequote", "skipinitialspace", "quoting")
"""Arguments of an exporter of tables that say how they are read."""

_LONGEST_HEADER = 10_000
"""Bytes that are read of the first line of a table: more than all names of columns together have."""

_CHUNK = 1 << 16
"""Bytes that are read at once on the way back from the end of a file."""


def watch_feeds(crawler: Crawler, side_files: SideFiles, *, is_resumed: bool, persists: bool) -> list[_Feeds]:
    """Make the feeds of *crawler* side files, as long as the result is kept.

    Args:
        is_resumed: Whether the crawl resumes a job, and is the only process that does.
        persists: Whether another crawl may go on with it later.
    """
    manager = crawler.extensions
    extensions: tuple[object, ...] = tuple(manager.middlewares) if manager is not None else ()
    return [
        _Feeds(crawler, extension, side_files, is_resumed=is_resumed, persists=persists)
        for extension in extensions
        if isinstance(extension, FeedExporter)
    ]


# -- feeds of several workers


def shared_path(uri: str, options: Mapping[str, Any]) -> Path | None:
    """The local file of a feed that all workers of a crawl write; ``None`` if each needs a part of its own."""
    is_table = options.get("format") == "csv" and options.get("fields")
    if not (is_table or options.get("format") in _LINES) or _OF_PARTS & {*filter(options.get, options)}:
        return None
    if "%(" in uri or ("://" in uri and not uri.startswith("file://")) or uri.startswith("stdout:"):
        return None
    return Path(FileFeedStorage(uri).path)


def part_feeds(settings: BaseSettings, number: int) -> None:
    """Let the worker with this *number* write a part, ``items-2.json``, of each feed that cannot be one file for all."""
    feeds = {}
    for uri, options in settings.getdict("FEEDS").items():
        name = str(uri)
        if not (name.startswith("stdout:") or shared_path(name, options)):
            head, end = os.path.splitext(name)  # noqa: PTH122 (it may be a URL)
            name = f"{head}-{number}{end}"
        feeds[name] = options
    settings.set("FEEDS", feeds, settings.getpriority("FEEDS") or 0)


def prepare_feeds(settings: BaseSettings) -> None:
    """Make the files that all workers are about to write end with a whole line, or empty those that are overwritten.

    Raises:
        StorageError: If one cannot be changed.
    """
    for uri, options in settings.getdict("FEEDS").items():
        path = shared_path(str(uri), options)
        if path is not None and path.is_file() and path.stat().st_size:
            with storage_errors(f"The feed {uri} cannot be written"):
                if options.get("overwrite"):
                    path.write_bytes(b"")
                else:
                    _end_last_line(path, is_table=options["format"] == "csv", is_torn=True)


class _SharedFile(RawIOBase):
    """The file at *path*, to which several processes add items, each as a whole; what a kill has torn is cut off by the next.

    Args:
        has_header: Whether what is written first is the names of columns, which only an empty file takes.
    """

    def __init__(self, path: Path, *, is_table: bool, has_header: bool) -> None:
        self._path = path
        self._is_table = is_table
        self._is_header = has_header
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        """Add an item, or the names of columns."""
        with holding(self._descriptor):
            size = os.fstat(self._descriptor).st_size
            if size:
                os.lseek(self._descriptor, size - 1, os.SEEK_SET)
            if size and os.read(self._descriptor, 1) != b"\n":
                _end_last_line(self._path, is_table=self._is_table, is_torn=True)
            if not (self._is_header and size):
                left = bytes(data)
                while left:
                    left = left[os.write(self._descriptor, left) :]
        self._is_header = False
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


class _SharedFeed(FileFeedStorage):
    """The storage of a feed that several workers write."""

    def __init__(self, path: Path, *, is_table: bool, has_header: bool) -> None:
        super().__init__(str(path))
        self._open = partial(_SharedFile, path, is_table=is_table, has_header=has_header)

    def open(self, spider: Spider) -> IO[bytes]:
        del spider
        return cast("IO[bytes]", self._open())


class _Feeds:
    """The feeds of one *exporter*."""

    def __init__(
        self,
        crawler: Crawler,
        exporter: FeedExporter,
        side_files: SideFiles,
        *,
        is_resumed: bool,
        persists: bool,
    ) -> None:
        self._crawler = crawler
        self._exporter = exporter
        self._export: Callable[[Any, Spider], Any] = exporter.item_scraped
        self._side_files = side_files
        self._is_resumed = is_resumed
        self._persists = persists
        self._ended: list[FeedSlot] = []
        self._unsafe: set[str] = set()
        self._columns: list[tuple[FeedSlot, list[str]]] = []
        connect = crawler.signals.connect
        connect(self._opened, signal=signals.spider_opened)
        try:
            crawler.signals.disconnect(self._export, signal=signals.item_scraped)
        except DispatcherError:  # a subclass that gets its items in another way
            pass
        else:
            connect(self._scraped, signal=signals.item_scraped)
        side_files.add(self._flush)

    # -- what Scrapy tells

    def _opened(self) -> None:
        """The exporter has its feeds."""
        slots = feed_slots_of(self._exporter)
        if slots is None:
            logger.warning(
                "This Scrapy has no FeedExporter.slots, which the scheduler needs to write items before the visits of their "
                "pages are committed: a process that is killed may lose the last items of its feeds."
            )
            return
        for slot in slots:
            self._begin(slot)

    def _scraped(self, item: Any, spider: Spider) -> Any:
        """Let the exporter write *item*."""
        before = feed_slots_of(self._exporter)
        if self._columns:
            self._compare(item)
        done: Any = None
        try:
            done = self._export(item, spider)
        except OSError as error:
            self._find_failed(before or (), error)
        after = feed_slots_of(self._exporter)
        if before is not None and after is not None and before != after:
            self._ended += [slot for slot in before if slot not in after]
            for slot in after:
                if slot not in before:
                    self._begin(slot)
        return done  # that of a subclass may be awaited

    # -- beginning with a file

    def _begin(self, slot: FeedSlot) -> None:
        """A feed, or another part of it, is about to be written."""
        if why := self._why_unsafe(slot):
            if slot.uri_template not in self._unsafe and self._persists:
                logger.warning(
                    "The feed %(feed)s may lose items of pages that are not visited again, if the process is killed: "
                    "%(why)s. Write JSON lines or CSV to a local file, and convert or send that when it is complete; "
                    "with batch_item_count no more than a batch is lost",
                    {"feed": slot.uri_template, "why": why},
                    extra={"spider": self._crawler.spider},
                )
            self._unsafe.add(slot.uri_template)
            return
        if isinstance(slot.storage, FileFeedStorage):
            path = Path(slot.storage.path)
            try:
                if worker_number() and shared_path(
                    slot.uri_template, {**slot.feed_options, "format": slot.format}
                ):
                    self._share(slot, path)
                else:
                    self._go_on_with(slot, path)
            except OSError as error:
                self._fail(slot, error)

    def _why_unsafe(self, slot: FeedSlot) -> str:
        """Why *slot* may hold items back in a buffer that :meth:`_flush` does not reach; empty if it does not."""
        if not isinstance(slot.storage, _LOCAL):
            return "it is stored when it is complete, and may replace what an earlier run has stored"
        if slot.feed_options.get("postprocessing"):
            return "its post-processing holds items back"
        exporter = self._exporter.exporters.get(slot.format)
        if not (isinstance(exporter, type) and issubclass(exporter, _UNBUFFERED)):
            return f'its format "{slot.format}" may hold items back'
        return ""

    def _share(self, slot: FeedSlot, path: Path) -> None:
        """Let *slot* add its items to the file at *path*, to which other workers add theirs."""
        is_table = slot.format == "csv"
        if is_table:
            self._go_on_with_table(slot, path)
        has_header = is_table and slot.feed_options["item_export_kwargs"].get("include_headers_line", True)
        slot.storage = _SharedFeed(path, is_table=is_table, has_header=has_header)

    def _go_on_with(self, slot: FeedSlot, path: Path) -> None:
        """Prepare the file at *path*, if there is one, for the items of *slot*."""
        if not path.is_file() or not path.stat().st_size:
            return
        extra = {"spider": self._crawler.spider}
        if slot.feed_options.get("overwrite"):
            if self._is_resumed and self._persists:
                logger.warning(
                    "The feed %(feed)s is overwritten, so the items of pages that were visited before are gone: without "
                    '"overwrite" (with -o, and not -O) items are added to the file',
                    {"feed": slot.uri},
                    extra=extra,
                )
            return
        exporter = self._exporter.exporters[slot.format]
        is_table = issubclass(exporter, exporters.CsvItemExporter)
        if is_table or issubclass(exporter, exporters.JsonLinesItemExporter):
            n_cut = _end_last_line(path, is_table=is_table, is_torn=self._is_resumed)
            if n_cut:
                logger.warning(
                    "The last line of the feed %(feed)s was incomplete: its %(bytes)d bytes are cut off, and its page is "
                    "visited again",
                    {"feed": slot.uri, "bytes": n_cut},
                    extra=extra,
                )
        if is_table:
            self._go_on_with_table(slot, path)

    def _go_on_with_table(self, slot: FeedSlot, path: Path) -> None:
        """Let the table at *path* keep its one line of column names, if the items of *slot* have these columns."""
        options, arguments = slot.feed_options, slot.feed_options["item_export_kwargs"]
        found = read_columns(path, options)
        if not found or not arguments.get("include_headers_line", True):
            return
        fields = columns_of(options)
        if fields is not None and fields != found:
            logger.warning(
                "The table %(feed)s has the columns %(found)s, and the items of this crawl have %(fields)s: their names are "
                "written again, in the middle of the file. Use another file",
                {"feed": slot.uri, "found": ",".join(found), "fields": ",".join(fields)},
                extra={"spider": self._crawler.spider},
            )
            return
        slot.feed_options = {**options, "item_export_kwargs": {**arguments, "include_headers_line": False}}
        if fields is None:  # those of the first item, in the run that began the file
            slot.feed_options["fields"] = found
            self._columns.append((slot, found))

    def _compare(self, item: Any) -> None:
        """Say which fields of *item*, the first of this run, have no column in a table of an earlier one."""
        columns, self._columns = self._columns, []
        for slot, found in columns:
            if missing := [name for name in ItemAdapter(item).field_names() if name not in found]:
                logger.warning(
                    "The table %(feed)s has no column for %(missing)s, so these fields of items are left out. Use another file",
                    {"feed": slot.uri, "missing": ", ".join(missing)},
                    extra={"spider": self._crawler.spider},
                )

    # -- before a commit

    def _flush(self) -> list[tuple[str, int]]:
        """Write the items that are buffered; see :meth:`scrapy_aopic.job.side_files.SideFiles.add`."""
        found: list[tuple[str, int]] = []
        ended, self._ended = self._ended, []
        for slot in (*ended, *(feed_slots_of(self._exporter) or ())):
            if slot.file is None or slot.uri_template in self._unsafe:
                continue
            try:
                if slot.file.closed:
                    self._check_ended(slot)
                    descriptor = os.open(cast("FileFeedStorage", slot.storage).path, os.O_RDONLY)
                else:
                    slot.file.flush()
                    descriptor = os.dup(slot.file.fileno())
            except (FileNotFoundError, UnsupportedOperation):
                continue  # whoever wants it has taken it away; or it is in memory
            except (OSError, ValueError) as error:
                self._fail(slot, error)
            else:
                found.append((_name(slot), descriptor))
        return found

    def _check_ended(self, slot: FeedSlot) -> None:
        """Raise an error if Scrapy could not write the end of *slot*, which it only counts."""
        assert self._crawler.stats is not None
        if self._crawler.stats.get_value(f"feedexport/failed_count/{type(slot.storage).__name__}"):
            raise OSError(0, "its last items were not written, and the log says why")

    def _find_failed(self, slots: Sequence[FeedSlot], error: OSError) -> None:
        """One of *slots* could not be written because of *error*."""
        for slot in slots:
            is_it = error.filename is not None if slot.file is None else not _takes_more(slot.file)
            if is_it:
                self._fail(slot, error)
        self._side_files.fail(", ".join(map(_name, slots)), error)

    def _fail(self, slot: FeedSlot, error: Exception) -> None:
        self._side_files.fail(_name(slot), error)
        slot.store_empty = False
        # Nothing is committed any more, and Scrapy would complain at each item, and again when it closes the file.
        with suppress(OSError, ValueError, AttributeError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, cast("IO[bytes]", slot.file).fileno())
            os.close(nothing)


def _takes_more(file: IO[bytes]) -> bool:
    try:
        file.flush()
    except (OSError, ValueError):
        return False
    return True


def _name(slot: FeedSlot) -> str:
    return f"The feed {slot.uri}"


def columns_of(options: Mapping[str, Any]) -> list[str] | None:
    """Names of the columns of a table with these *options* of a feed; ``None`` if the first item gives them."""
    fields = options.get("fields")
    if not fields:
        return None
    return list(map(str, fields.values() if isinstance(fields, Mapping) else fields))


def read_columns(path: Path, options: Mapping[str, Any]) -> list[str]:
    """Names of the columns of the table at *path*, of a feed with these *options*; none if it is empty, or not there.

    Raises:
        OSError: If it cannot be read.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        text = file.read(_LONGEST_HEADER).decode(options.get("encoding") or "utf-8", "replace")
    arguments = options.get("item_export_kwargs") or {}
    dialect = {name: arguments[name] for name in _OF_DIALECTS if name in arguments}
    with suppress(csv.Error):
        return next(csv.reader(text.removeprefix("\ufeff").splitlines(keepends=True), **dialect), [])
    return []


def _end_last_line(path: Path, *, is_table: bool, is_torn: bool) -> int:
    """Make the file at *path* end with the end of a line.

    Args:
        is_table: Whether its first line is the names of columns, so that single lines cannot be parsed alone.
        is_torn: Whether a last line without an end may be cut off, unless it is complete.

    Returns:
        Number of bytes that were cut off.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return 0
        file.seek(0)
        is_windows = file.readline(_LONGEST_HEADER).endswith(b"\r\n")
        end = b"\r\n" if is_table and is_windows else b"\n"  # fields may have the other one in them
        begin = _last(file, end, size)
        file.seek(begin)
        is_whole = (is_table and not begin) or (not is_table and _is_json(file.read()))
        if is_whole or not is_torn:
            file.seek(size)
            file.write(end if begin or not is_table else b"\r\n")
            return 0
        file.truncate(begin)
        return size - begin


def _last(file: IO[bytes], end: bytes, size: int) -> int:
    """Position behind the last *end* in *file*; 0 if there is none."""
    at = size
    while at > 0:
        begin = max(at - _CHUNK, 0)
        file.seek(begin)
        found = file.read(at - begin + len(end) - 1).rfind(end)
        if found >= 0:
            return begin + found + len(end)
        at = begin
    return 0


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
