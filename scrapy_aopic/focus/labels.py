"""Labels that people give to the pages set aside by a crawl, and the harvest by them.

A label belongs to a URL. Files are JSON lines, one object for each page, with ``url`` and ``relevant``: true, false, or
null as long as the page has no label. Other names, such as ``text``, which is there for people to read, are ignored.

Rule: pages are shown for labelling without the crawl's grade, because people tend to agree with a grade.
"""

from __future__ import annotations

import json
from hashlib import sha256
from io import TextIOWrapper
from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import TopicError, plainly
from scrapy_aopic.storage.named_files import open_given
from scrapy_aopic.storage.store_folder import writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scrapy_aopic.core.focus.sample import Sampled

FILE_NAME = "aopic-labels.jsonl"
"""Name of the file of labels in a job folder."""

_MOST_LINES = 100_000
"""Lines of a file of labels that are read: 50 times as many as a sample has pages."""

_MOST_CHARACTERS = 100_000
"""Characters of a line that are read: 20 times as many as one for a page of a sample has."""

_SURE = 1.959964
"""Standard deviations of a normal distribution that hold 95 % of it, to both sides."""


class Judged(NamedTuple):
    """The harvest by labels beside that by the crawl's own grades.

    Attributes:
        pages: Pages that the sample was drawn from.
        set_aside: Pages of the sample.
        labelled: Of these, labelled ones; duplicates of other pages need no label.
        relevant: Of the labelled ones, relevant ones.
        harvest: Part of the labelled ones that is relevant; 0 without any.
        low, high: Interval that holds the harvest of all pages with a probability of 95 % (:func:`wilson`).
        counted: Part of the labelled ones that counts as relevant by the crawl's grade.
        missed: Labelled pages that are relevant, and do not count.
        wrong: Labelled pages that are not relevant, and count.
    """

    pages: int
    set_aside: int
    labelled: int
    relevant: int
    harvest: float
    low: float
    high: float
    counted: float
    missed: int
    wrong: int


def wilson(relevant: int, n: int) -> tuple[float, float]:
    """Interval of 95 % for a part of which *relevant* of *n* were found (Wilson, JASA 22, 1927)."""
    if not n:
        return 0.0, 1.0
    part, square = relevant / n, _SURE * _SURE
    middle = (part + square / (2 * n)) / (1 + square / n)
    half = _SURE / (1 + square / n) * sqrt(part * (1 - part) / n + square / (4 * n * n))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def judge(pages: int, sample: Sequence[Sampled], labels: Mapping[str, bool]) -> Judged:
    """The harvest by *labels* of a *sample* that was drawn from *pages* pages."""
    told = [
        (page.counts, not page.is_duplicate and labels[page.url])
        for page in sample
        if page.is_duplicate or page.url in labels
    ]
    n, relevant = len(told), sum(truth for _, truth in told)
    counted = sum(counts for counts, _ in told)
    return Judged(
        pages,
        len(sample),
        n,
        relevant,
        relevant / n if n else 0.0,
        *wilson(relevant, n),
        counted / n if n else 0.0,
        sum(truth and not counts for counts, truth in told),
        sum(counts and not truth for counts, truth in told),
    )


def to_label(sample: Iterable[Sampled]) -> list[Sampled]:
    """The pages of *sample* that people can label, each URL once, in the order in which they are to be shown.

    The order has nothing to do with when or why pages were fetched, so that the first of them are a sample, too; and it
    is the same each time.
    """
    pages = {page.url: page for page in sample if not page.is_duplicate}
    return sorted(pages.values(), key=lambda page: sha256(page.url.encode()).digest())


def read_labels(path: Path) -> dict[str, bool]:
    """Labels by URL from the file at *path*; lines without a label are left out, and of several for a page the last counts.

    Raises:
        TopicError: If it cannot be read, or a line is not such an object; it names the line.
    """
    labels = {}
    try:
        with TextIOWrapper(open_given(path), encoding="utf-8") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_CHARACTERS), ""), 1):
                if number > _MOST_LINES:
                    raise TopicError(f"{path} has more than {_MOST_LINES:,} lines: it is no file of labels.")
                if not line.strip():
                    continue
                label = _label(line)
                if label is None:
                    raise TopicError(
                        f"Line {number} of {path} is no label: a line is an object of JSON with the url of a page, and with "
                        "relevant, which is true, false or null."
                    )
                url, relevant = label
                if relevant is not None:
                    labels[url] = relevant
    except OSError as error:
        raise TopicError(f"The labels {path} cannot be read: {plainly(error)}.") from error
    except UnicodeDecodeError:
        raise TopicError(f"The labels {path} are no text in UTF-8.") from None
    return labels


def _label(line: str) -> tuple[str, bool | None] | None:
    try:
        found = json.loads(line)
        url, relevant = found["url"], found["relevant"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    is_label = isinstance(url, str) and (relevant is None or isinstance(relevant, bool))
    return (url, relevant) if is_label else None


def write_labels(path: Path, labels: Mapping[str, bool]) -> None:
    """Write *labels* to *path*, at once or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    _write(path, ({"url": url, "relevant": relevant} for url, relevant in labels.items()))


def write_sample(path: Path, pages: Iterable[Sampled], labels: Mapping[str, bool]) -> None:
    """Write *pages* to *path* to be labelled, with the *labels* that are known, at once or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    _write(path, ({"url": page.url, "relevant": labels.get(page.url), "text": page.text} for page in pages))


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    with writing(path) as file:
        file.writelines(
            json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
            for row in islice(rows, _MOST_LINES)
        )
