"""The paths of the dashboard, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic, sleep, thread_time
from typing import TYPE_CHECKING, Any

from scrapy_aopic.exceptions import AopicError, plainly
from scrapy_aopic.place.place import Place
from scrapy_aopic.place.stored_control import ask_of_crawl
from scrapy_aopic.view.history import Point, drawn, read_history
from scrapy_aopic.view.prometheus import CONTENT_TYPE, exposition
from scrapy_aopic.view.queries import KINDS
from scrapy_aopic.view.questions import Questions
from scrapy_aopic.view.snapshot import Snapshot, figure
from scrapy_aopic.view.stored import control_figures

from .feed import Feed, to_json
from .http_server import HttpAnswer, Site, sentence

if TYPE_CHECKING:
    from scrapy_aopic.view.why import Explanation

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/dashboard.css": ("dashboard.css", "text/css; charset=utf-8"),
    "/dashboard.js": ("dashboard.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Every file of the page, by path, and its type."""

EXPLAINER = {
    "/opic/": ("index.html", "text/html; charset=utf-8"),
    "/opic/style.css": ("style.css", "text/css; charset=utf-8"),
    "/opic/ledger.js": ("ledger.js", "text/javascript; charset=utf-8"),
    "/opic/scenes.js": ("scenes.js", "text/javascript; charset=utf-8"),
}
"""Every file of the explainer: ``docs/opic``, which a wheel has in ``static/opic``."""

_IN_DASHBOARD = b'<meta name="top-pages" content="/api/v1/top">\n</head>'
"""Inserted at the end of the explainer's head, so that its last scene shows the crawl."""

_PATIENCE = 5.0
"""Seconds that the event loop has to take a snapshot. After that it counts as not responding."""

N_TOP = 20
"""Pages that are listed."""

N_HOSTS = 50
"""Hosts that are listed."""

_TOP_EVERY = 60.0
"""Seconds for which the list of pages is remembered, as it takes a look at all of them."""

_HISTORY_EVERY = 10.0
"""Seconds for which the file of the history is not read again, however many pages are opened."""

_REST = 9
"""Times the processor time of a look for which none of its kind is taken: all looks of a kind take a tenth of a core at most."""

_MOST_LISTED = 300_000
"""Known pages up to which the most important are listed: a look at all of them takes about a third of a second of CPU."""

N_DOMAINS = 30
"""Domains that are drawn: as many as can be seen apart."""

_MOST_HOSTS = 200_000
"""Known hosts up to which domains are listed: a look at all of them takes about a second of CPU."""


@dataclass(frozen=True)
class Shown:
    """The crawl that a dashboard shows.

    Attributes:
        feed: Figures of the crawl.
        oldest_commit: Seconds since the last commit from which on the crawl counts as unhealthy.
        spider: Name of the spider.
        history: File of the history of the job, if it has one.
        job: Takes a snapshot of all shards of the job, if *feed* has only those of a worker; may raise AopicError or OSError.
        questions: Answers questions in a thread; ``None`` if the store cannot be read.
        place: Where the crawl takes orders (``scrapy aopic control``); ``None`` if it takes none.
    """

    feed: Feed
    oldest_commit: float = inf
    spider: str = ""
    history: Path | None = None
    job: Callable[[], Snapshot] | None = None
    questions: Questions | None = None
    place: Place | None = None


def make_site(shown: Shown) -> Site:
    """The dashboard of a crawl."""
    feed, questions = shown.feed, shown.questions
    history = ChartHistory(feed.points, shown.history)
    paths: dict[str, Callable[[Mapping[str, str]], HttpAnswer]] = {
        path: partial(_file, path) for path in _FILES
    }
    paths.update({path: partial(_explainer, *file) for path, file in EXPLAINER.items()})
    lists = _Lists(feed, questions)
    paths["/api/v1/snapshot"] = lambda _: _snapshot(feed)
    paths["/api/v1/history"] = lambda _: HttpAnswer(to_json(history.points()))
    paths["/metrics"] = lambda _: _metrics(feed, shown.spider)
    paths["/api/v1/top"] = _OneAtATime(lists.pages, _TOP_EVERY).show
    paths["/api/v1/domains"] = _OneAtATime(lists.domains, _TOP_EVERY).show
    paths["/api/v1/traps"] = _OneAtATime(lists.traps, _TOP_EVERY).show
    paths["/api/v1/hosts"] = _OneAtATime(lists.hosts).show
    paths["/api/v1/job"] = lambda _: _job(feed, shown.job)
    paths["/api/v1/why"] = _OneAtATime(partial(_why, questions)).show
    return Site(
        feed,
        paths,
        {"/healthz": lambda _: health(feed, shown.oldest_commit), "/readyz": lambda _: readiness(feed)},
        {"/api/v1/control": partial(_control, shown.place)} if shown.place is not None else {},
    )


def static_file(path: str) -> bytes:
    """The file of the page that is at *path*."""
    return (files(__package__) / "static" / _FILES[path][0]).read_bytes()


def _file(path: str, _: Mapping[str, str]) -> HttpAnswer:
    return HttpAnswer(static_file(path), _FILES[path][1])


def _explainer(name: str, content_type: str, _: Mapping[str, str]) -> HttpAnswer:
    folder = files(__package__) / "static" / "opic"
    if not folder.is_dir():  # not installed from a wheel, but the source tree itself
        folder = Path(__file__).parents[2] / "docs" / "opic"
    try:
        body = (folder / name).read_bytes()
    except OSError:
        return sentence(404, "This installation is without the explainer; it is a part of the documentation.")
    return HttpAnswer(body.replace(b"</head>", _IN_DASHBOARD, 1), content_type)


def _snapshot(feed: Feed) -> HttpAnswer:
    frame = feed.fresh(_PATIENCE)
    return HttpAnswer(frame.json) if frame is not None else _SILENT


def _metrics(feed: Feed, spider: str) -> HttpAnswer:
    frame = feed.fresh(_PATIENCE)
    if frame is None:
        return _SILENT
    return HttpAnswer(exposition(frame.seen.stats, spider).encode(), CONTENT_TYPE)


_SILENT = sentence(503, "The event loop of the crawl does not answer.")


def health(feed: Feed, oldest_commit: float) -> HttpAnswer:
    """Whether the crawl is alive: its event loop answers, and its work gets to the store."""
    if feed.reason:
        return sentence(503, "The crawl is over.")
    frame = feed.recent(_PATIENCE)
    if frame is None:
        return _SILENT
    age = frame.seen.now.store.commit_age
    if age is not None and age > oldest_commit:
        return sentence(503, "The last commit is too old.")
    return sentence(200, "ok")


def readiness(feed: Feed) -> HttpAnswer:
    """Whether the crawl makes requests: its store is open, and no pause after a crash is left."""
    frame = feed.recent(_PATIENCE) if not feed.reason else None
    if frame is None:
        return sentence(503, "not ready")
    now = frame.seen.now
    if not now.is_live or now.not_before > now.at + monotonic() - frame.instant:
        return sentence(503, "not ready")
    return sentence(200, "ready")


def _job(feed: Feed, look: Callable[[], Snapshot] | None) -> HttpAnswer:
    """The snapshot of the whole job: that of the process, unless it has but a part."""
    return _snapshot(feed) if look is None else HttpAnswer(_answered(look))


def _answered(look: Callable[[], object]) -> bytes:
    """What *look* finds, as JSON, or the error that it raises, as a problem."""
    try:
        return to_json(look())
    except (AopicError, OSError) as error:
        return to_json({"problem": f"{plainly(error)}."})


def _control(place: Place, query: Mapping[str, str]) -> HttpAnswer:
    """Ask of the crawl what stands in the *query*, written as after ``scrapy aopic control JOBDIR``."""
    action, *values = query.get("do", "").split() or [""]
    return HttpAnswer(_answered(lambda: {"control": control_figures(ask_of_crawl(place, action, values))}))


def _why(questions: Questions | None, query: Mapping[str, str]) -> Explanation:
    question = query.get("of", "").strip()
    if questions is None:
        raise AopicError("This cannot be answered for a job without a folder.")
    if not question:
        raise AopicError("A URL or the name of a host is needed.")
    return questions.why(question)


class _Lists:
    """Lists that take a look at the whole store, of a job that is not too large for that.

    Raises:
        AopicError: From each of them, if there is no store, or if it cannot be read.
        OSError: The same.
    """

    def __init__(self, feed: Feed, questions: Questions | None) -> None:
        self._feed = feed
        self._questions = questions

    def _asked(self) -> Questions:
        if self._questions is None:
            raise AopicError("They cannot be listed for a job without a folder.")
        return self._questions

    def _known(self, path: str) -> int:
        """How many pages, or hosts, the job knows."""
        frame = self._feed.fresh(_PATIENCE)
        return int(figure(frame.seen.now, path) or 0) if frame is not None else 0

    def pages(self, _: Mapping[str, str]) -> dict[str, Any]:
        questions = self._asked()
        if self._known("pages.known") > _MOST_LISTED:
            raise AopicError(f"The job has more than {_MOST_LISTED:,} pages: 'scrapy aopic top' lists them.")
        return {"pages": questions.top_pages(N_TOP)}

    def domains(self, _: Mapping[str, str]) -> dict[str, Any]:
        questions = self._asked()
        if self._known("hosts.known") > _MOST_HOSTS:
            raise AopicError(f"The job has more than {_MOST_HOSTS:,} hosts, too many to look at all of them.")
        return questions.top_domains(N_DOMAINS, has_importance=self._known("pages.known") <= _MOST_LISTED)

    def traps(self, _: Mapping[str, str]) -> dict[str, Any]:
        if self._questions is None or self._known("hosts.known") > _MOST_HOSTS:
            return {"traps": []}
        return {"traps": self._questions.traps()}

    def hosts(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The first :data:`N_HOSTS` of a kind, or with a part in their names."""
        kind, part = query.get("by", "queued"), query.get("find", "").strip().lower()
        questions = self._asked()
        if kind not in KINDS:
            raise AopicError(f"Hosts are listed by {', '.join(KINDS)}.")
        if self._known("hosts.known") > _MOST_HOSTS:
            raise AopicError(f"The job has more than {_MOST_HOSTS:,} hosts: 'scrapy aopic hosts' lists them.")
        return {"hosts": questions.hosts(kind, N_HOSTS, part)}


class _OneAtATime:
    """Takes a look for one client at a time, and not again for *seconds*.

    Between two looks it rests for :data:`_REST` times the processor time of the last one, for as long as clients ask without a pause.
    """

    def __init__(self, look: Callable[[Mapping[str, str]], object], seconds: float = 0.0) -> None:
        self._look = look
        self._seconds = seconds
        self._lock = Lock()
        self._until = self._rests_until = 0.0
        self._body = b""

    def show(self, query: Mapping[str, str]) -> HttpAnswer:
        with self._lock:
            if monotonic() >= self._until:
                sleep(max(self._rests_until - monotonic(), 0.0))
                began = thread_time()
                self._body = _answered(partial(self._look, query))
                self._until = monotonic() + self._seconds
                self._rests_until = monotonic() + _REST * (thread_time() - began)
            return HttpAnswer(self._body)


class ChartHistory:
    """The points of a crawl over time.

    Args:
        seen: Returns the points of this run.
        path: File of the history; ``None`` for none.
    """

    def __init__(self, seen: Callable[[], list[Point]], path: Path | None) -> None:
        self._seen = seen
        self._path = path
        self._lock = Lock()
        self._until = 0.0
        self._written: list[Point] = []

    def points(self) -> list[Point]:
        """Points, oldest first."""
        with self._lock:
            if self._path is not None and monotonic() >= self._until:
                with suppress(OSError):
                    self._written = drawn(read_history(self._path))
                self._until = monotonic() + _HISTORY_EVERY
            written = self._written
        last = written[-1]["at"] or 0.0 if written else 0.0
        return [*written, *(point for point in self._seen() if (point.get("at") or 0.0) > last)]
