"""Adds seeds to a job at any time: makes cash of scores, and writes rows that a running crawl takes up.

Rule: a row is ``[URL, worth]`` as a line of JSON: worth in seeds' cash, or null for what every seed gets. One that is more than
a URL has the request as a third part: bytes as :mod:`scrapy_aopic.web.request_rows` writes them, in base 64.

:mod:`.seed_lists` reads what users give, :mod:`scrapy_aopic.place.seed_files` keeps what waits, and :mod:`.inbox` takes it up.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import ExchangeError, StorageError, plainly
from scrapy_aopic.place.remote_files import is_remote
from scrapy_aopic.place.seed_files import put_list
from scrapy_aopic.storage.known_bodies import add_bodies
from scrapy_aopic.view.text import n_of
from scrapy_aopic.web.networks import Allowed, Networks

from .checking import CheckedRows, checking
from .earlier_crawl import earlier_crawl_of, read_earlier_crawl, write_earlier_crawl
from .public_lists import ListedPage
from .seed_lists import Row, check, read_seeds, url_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from scrapy_aopic.place.place import Place


_NOTHING = Allowed()


class Seed(NamedTuple):
    """A page to begin with.

    Attributes:
        worth: Its cash in units of a seed's cash; ``None`` for a seed without a score.
        request: All of its request, if that is more than its URL.
    """

    url: str
    worth: float | None
    request: bytes = b""

    def line(self) -> str:
        """As it waits."""
        more = (b64encode(self.request).decode(),) if self.request else ()
        return json.dumps((self.url, self.worth, *more)) + "\n"


class Added(NamedTuple):
    """The result of :func:`add_seeds`.

    Attributes:
        rows: Seeds that wait now, or pages that count as fetched.
        bad: Rows left out because something is wrong with them.
        first_bad: What is wrong with the first of them.
        left_out: All rows left out, by reasons.
        bodies: Bodies that the job knows of earlier crawls; ``None`` unless fetched pages were given to a job in a folder.
    """

    rows: int
    bad: int
    first_bad: str
    left_out: dict[str, int]
    bodies: int | None = None


def add_seeds(
    place: Place,
    sources: Sequence[str],
    *,
    name: str = "",
    skip_bad: bool = False,
    progress: bool = False,
    score: str = "",
    fetched: bool = False,
    allowed: Allowed | None = _NOTHING,
) -> Added:
    """Let all seeds that *sources* name wait for the job at *place*, or none of them if one cannot be used.

    A list with scores gets as much cash as a list of that length without; it is shared in proportion to the scores. A call that
    is killed has kept the rows that it had checked: the same call goes on behind them.

    Args:
        sources: URLs, and lists: paths, or URLs for fsspec.
        name: Name of the list that is made, for one that replaces what was added before under the same name.
        skip_bad: Leave out bad rows instead of refusing all.
        score: The column of the scores, if it is not the usual one.
        fetched: Whether the pages are no seeds, but were fetched by an earlier crawl: then the job does not fetch them.
        allowed: Where the crawl may go beside the Internet: lists that others publish open no other hosts.

    Raises:
        ExchangeError: If a list cannot be read, has a bad row, or nothing is left.
        StorageError: If a server does not take them.
    """
    from tqdm import tqdm  # noqa: PLC0415  (only when a line may be shown)

    earlier = read_earlier_crawl(place) if fetched else None
    scheme = earlier.scheme if earlier is not None else "scrapy" if fetched else ""
    options = ("" if place.folder else str(place), score, allowed)
    try:
        with (
            checking(place.kept_folder(), sources, options, scheme) as checked,
            place.adding_seeds() as folder,
        ):
            for source in sources:
                rows = _rows(source, score, Networks(allowed))
                checked.add(source, tqdm(rows, unit=" rows", disable=None if progress else True, leave=False))
            _require(checked, sources, skip_bad=skip_bad)
            added = Added(checked.n, checked.bad, checked.first_bad, dict(checked.left_out))
            if not fetched:
                put_list(folder, (Seed(*seed).line() for seed in checked.seeds()), name)
                return added
            if path := place.bodies_file():
                added = added._replace(bodies=add_bodies(path, checked.bodies()))
            write_earlier_crawl(place, earlier_crawl_of(scheme, checked.numbers(), earlier))
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise ExchangeError(f"Seeds cannot be added to {place}: {plainly(error)}.") from error
    return added


def _rows(source: str, score: str, networks: Networks) -> Iterator[Row]:
    if source.lower().startswith(("http://", "https://")):
        return iter((check(source, ListedPage("the URL", source), networks),))
    if not is_remote(source) and not Path(source).exists():
        raise ExchangeError(f"{source} is neither a file nor a URL with http:// or https://.")
    return read_seeds(source, score, networks)


def _require(checked: CheckedRows, sources: Sequence[str], *, skip_bad: bool) -> None:
    """Raise what is wrong with *sources* as a whole.

    Raises:
        ExchangeError: If there are bad rows, which are not to be skipped, or no others.
    """
    if checked.bad and not skip_bad:
        raise ExchangeError(
            f"{checked.first_bad}. Bad rows: {checked.bad} of {checked.n + checked.left_out.total()}, so none was taken: correct "
            "them, or leave them out with scrapy aopic seed --skip-bad."
        )
    if not checked.n:
        why = f" Left out: {said(checked.left_out)}." if checked.left_out else ""
        raise ExchangeError(f"There are no seeds in {', '.join(sources)}.{why}")


def said(left_out: Mapping[str, int]) -> str:
    """Rows that were *left_out*, by reasons, in words."""
    return ", ".join(
        f"{n_of(n, 'row')} {reason}" for reason, n in sorted(left_out.items(), key=lambda each: -each[1])
    )


def read_row(line: bytes) -> Seed:
    """The seed that waits as *line*.

    Raises:
        ValueError: If it is no seed.
    """
    row = json.loads(line)
    if not (isinstance(row, list) and len(row) in (2, 3)):
        raise ValueError(f"{line[:200]!r} is no row")
    url, worth, *more = row
    if error := url_error(url):
        raise ValueError(error)
    if worth is not None and not (isinstance(worth, (int, float)) and 0 <= worth < math.inf):
        raise ValueError(f"{worth!r} is no worth of {url}")
    return Seed(url, worth, b64decode(more[0], validate=True) if more else b"")
