"""A job as data: its figures, pages, links and hosts for Python, pandas, Polars, DuckDB and Arrow."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from scrapy.settings import BaseSettings, Settings
from scrapy.utils.project import get_project_settings

from .commands.common import complete, crawl_settings, job_place
from .place.file_formats import CHUNK
from .view.columns import Row, Rows, columns_of
from .view.job_view import View, open_view
from .view.queries import (
    LinkRow,
    PageRow,
    SiteRow,
    changes_in,
    each_link,
    each_site,
    facts_of,
    instants_of,
    pages_in,
    top_pages,
)
from .view.questions import Questions
from .view.stored import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from .place.place import Place
    from .view.snapshot import Snapshot
    from .view.why import Explanation


def open_job(path: str | PathLike[str], settings: Mapping[str, Any] | None = None) -> JobReader:
    """Read the job at *path*, which a crawl may be using::

        job = scrapy_aopic.open_job("crawls/news")
        for page in job.top(10):
            print(page.importance, page.url)
        pages = pandas.DataFrame.from_arrow(job.pages())

    Args:
        path: The job folder, or ``redis://HOST:PORT/DATABASE#KEY`` for a job on a server.
        settings: Those of its crawl, for :meth:`JobReader.why` and for what a server needs beside its address; by default
            those of the project around the working directory, or of the add-on if there is none.

    Raises:
        StorageError: If there is a file at *path*, or no key is given and there is not exactly one job on the server.
        SettingError: If a setting for the server cannot be used.
    """
    given = settings if isinstance(settings, BaseSettings) else None
    if given is None:
        given = get_project_settings() if settings is None else Settings(dict(settings))
    return JobReader(complete(job_place(fspath(path)), given), crawl_settings(given))


class JobReader:
    """What :func:`open_job` gives: each call reads the job as of its last commit, and holds nothing open afterwards.

    Every method, and every walk through rows, raises a :class:`~scrapy_aopic.exceptions.StorageError` if there is no job, or it
    cannot be read.
    """

    def __init__(self, place: Place, settings: BaseSettings) -> None:
        self._place = place
        self._questions = Questions(place, settings)

    def status(self, *, counts: bool = False) -> Snapshot:
        """Its figures.

        Args:
            counts: Whether to count what no commit counts (``Snapshot.counted``), which takes a look at all pages and hosts.
        """
        return read_snapshot(self._place, counts=counts)

    def top(self, n: int = 20, *, everything: bool = False, by: str = "importance") -> list[PageRow]:
        """The *n* most important pages, best first; redirects, errors and pages that failed only with *everything*."""
        with open_view(self._place) as view:
            return top_pages(view, n, everything=everything, by=by)

    def pages(self) -> Rows[PageRow]:
        """All pages that it knows, host by host."""
        return self._rows(PageRow, pages_in)

    def changes(self, since: str | datetime | int = "") -> Rows[PageRow]:
        """Pages that are new, changed, moved or gone, each as of its last commit; also while the crawl runs::

            changes = job.changes(cursor)
            for page in changes:
                ...
            cursor = changes.cursor  # to be stored with what was made of them

        Args:
            since: Where to begin: the ``cursor`` after an earlier walk, a time, or the number of a round, 0 for the last one.
                Empty for all of them. Of several changes of a page since then, the last one is given, once.

        Raises:
            ExchangeError: On the way through the rows, if *since* is nothing of this job.
        """

        def chunks() -> Iterator[Sequence[PageRow]]:
            with open_view(self._place) as view:
                after = instants_of(view, since)
                yield from changes_in(view, CHUNK, after)
                rows.cursor = ",".join(map(repr, after))

        rows = self._rows(PageRow, pages_in)
        rows.chunks = chunks
        return rows

    def hosts(self) -> Rows[SiteRow]:
        """All hosts, with what their pages have together."""
        return self._rows(SiteRow, each_site)

    def links(self) -> Rows[LinkRow]:
        """All links that were kept.

        Raises:
            ExchangeError: On the way through the rows, if none were (``AOPIC_KEEP_LINKS``).
        """
        return self._rows(LinkRow, each_link)

    def why(self, question: str) -> Explanation:
        """Why a URL, or the host of that name, is crawled, waits, failed, or is not known."""
        return self._questions.why(question)

    def _rows(self, kind: type[Row], read: Callable[[View, int], Iterator[Sequence[Row]]]) -> Rows[Row]:
        def chunks() -> Iterator[Sequence[Row]]:
            with open_view(self._place) as view:
                yield from read(view, CHUNK)

        def facts() -> dict[str, str]:
            with open_view(self._place) as view:
                return facts_of(view)

        return Rows(columns_of(kind), chunks, facts)
