"""Labels that people give to the pages set aside by a crawl, and the harvest by them.

A label belongs to a URL. Files are JSON lines, one object for each page, with ``url`` and ``relevant``: true, false, or
null as long as the page has no label. Other names, such as ``text``, which is there for people to read, are ignored.

Rule: pages are shown for labelling without the crawl's grade, because people tend to agree with a grade.
"""

from __future__ import annotations

import json
from hashlib import sha256
from io import TextIOWrapper
from itertools import islice, pairwise
from math import sqrt
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.focus.calibration import GIST_BYTES, SURE, Calibration, directions, log_odds
from scrapy_aopic.core.focus.classifier import Example, descend
from scrapy_aopic.exceptions import TopicError, plainly
from scrapy_aopic.storage.named_files import open_given
from scrapy_aopic.storage.store_folder import writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from scrapy_aopic.core.focus.sample import Sampled

JUDGED = "aopic-judged.jsonl"
"""Name of the file of labels by a program, beside that of people's."""

_MOST_LINES = 100_000
"""Lines of a file of labels that are read: 50 times as many as a sample has pages."""

_MOST_CHARACTERS = 100_000
"""Characters of a line that are read: 20 times as many as one for a page of a sample has."""

MOST_LABELS = 50
"""Pages of a sample that people are asked about: five minutes."""

_NONE: Mapping[str, bool] = MappingProxyType({})

_STRATA = 1, 3, 7
"""Ends of the parts, by grade, of the pages that are not among the best graded ones: of the lower ones fewer are labelled, as fewer
are relevant. With equal parts, harvests said are worse."""

_WORDS, _SHIFT = 4.0, 2.0
"""Standard deviations of the log odds that the gist of a page adds, and of the shift, before labels are known."""

_SLOPE = -1
"""Place of the log odds of the grade beside those of a gist."""

_FOLDS = 5
"""Parts of the labels, each of which is tried by what the others say."""


class Judged(NamedTuple):
    """The harvest by labels beside that by the crawl's own grades.

    Attributes:
        pages: Pages that the sample was drawn from.
        set_aside: Pages of the sample.
        labelled: Of these, labelled ones; duplicates of other pages need no label.
        relevant: Of the labelled ones, relevant ones.
        harvest: Part of all pages that is relevant (:func:`judge`); 0 without any label.
        low, high: Interval that holds it with a probability of 95 %.
        counted: Part of the sample that counts as relevant by the crawl's grade.
        missed: Labelled pages that are relevant, and do not count.
        wrong: Labelled pages that are not relevant, and count.
        calibration: What grades mean by the labels.
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
    calibration: Calibration


def calibrate(told: Sequence[tuple[Sampled, bool, float]]) -> Calibration:
    """What grades and gists mean by labels: *told* has each labelled page, whether it is relevant, and its weight.

    What labels do not say is as likely as before: a slope of 1 and a shift of -1, with standard deviations of 1 and 2.
    """
    examples = []
    for page, is_relevant, weight in told:
        odds = log_odds(page.grade)
        x = {at: _WORDS * each for at, each in enumerate(directions(page.gist)) if each}
        x[_SLOPE] = odds
        square = _SHIFT * _SHIFT + sum([value * value for value in x.values()])
        examples.append(Example(x, is_relevant, weight, square, odds - 1.0))
    weights, shift, _ = descend(examples, _SHIFT)
    gist = [round(_WORDS * weights.get(at, 0.0), 6) for at in range(GIST_BYTES)]
    return Calibration(1.0 + weights.get(_SLOPE, 0.0), shift - 1.0, len(told), tuple(gist))


def _tried(told: Sequence[tuple[Sampled, bool, float]]) -> dict[str, float]:
    """The probability of each labelled page of *told*, by its URL, by the labels of four fifths of which it is none."""
    found = {}
    for fold in range(_FOLDS):
        meaning = calibrate([each for at, each in enumerate(told) if at % _FOLDS != fold])
        for page, _, _ in told[fold::_FOLDS]:
            found[page.url] = meaning.probability(page.grade, page.gist)
    return found


def judge(
    pages: int, sample: Sequence[Sampled], labels: Mapping[str, bool], judged: Mapping[str, bool] = _NONE
) -> Judged:
    """The harvest by *labels* of a *sample* that was drawn from *pages* pages, with those that a program has *judged*.

    What grades mean is learned from both. The harvest goes by people's labels, if there are some: of rare pages, a program that
    is wrong about a tenth counts more than twice as many.

    The labelled pages of each part of the sample (:func:`_strata`) stand for that part. The harvest is the mean probability of
    all pages of the sample, and what this is wrong about in the mean (a difference estimator); for a labelled page, by the
    labels of others.
    """
    told, every = _told(sample, labels or judged), _told(sample, {**judged, **labels})
    n, known = len(told), [each for each in every if not each[0].is_duplicate]
    meaning, tried = calibrate(known), _tried(known)

    def part(page: Sampled) -> float:
        known = tried.get(page.url)
        seems = known if known is not None else meaning.probability(page.grade, page.gist)
        return 0.0 if page.is_duplicate else seems

    errors = [(weight, truth - part(page)) for page, truth, weight in told]
    size = len(sample) or 1
    wrong = sum([weight * error for weight, error in errors])
    harvest = min(max((sum(map(part, sample)) + wrong) / size, 0.0), 1.0)
    # Of the labels, where not all pages of a part have one, and of the sample; as if one more page were half wrong.
    spread = sum([weight * (weight - 1.0) * (error * error + 0.03) for weight, error in errors]) / size**2
    half = SURE * sqrt(spread + (harvest * (1.0 - harvest) + 0.25 / size) / size) if n else 1.0
    return Judged(
        pages,
        len(sample),
        n,
        sum([truth for _, truth, _ in told]),
        harvest if n else 0.0,
        max(harvest - half, 0.0),
        min(harvest + half, 1.0),
        sum([page.counts for page in sample]) / size,
        sum([truth and not page.counts for page, truth, _ in told]),
        sum([page.counts and not truth for page, truth, _ in told]),
        meaning,
    )


def _told(sample: Sequence[Sampled], labels: Mapping[str, bool]) -> list[tuple[Sampled, bool, float]]:
    """The labelled pages of *sample*, whether each is relevant, and how many pages it stands for; a duplicate is not relevant."""
    told = []
    for stratum in _strata(sample):
        known = [page for page in stratum if page.is_duplicate or page.url in labels]
        told += [
            (page, not page.is_duplicate and labels[page.url], len(stratum) / len(known)) for page in known
        ]
    return told


def _strata(sample: Iterable[Sampled]) -> list[list[Sampled]]:
    """*sample* in parts by grade: the best graded, as many as half of those that people are asked about, and the rest."""
    pages = sorted(sample, key=lambda page: (-page.grade, _shuffled(page)))
    best, n = MOST_LABELS // 2, len(pages)
    bounds = [best + max(n - best, 0) * part // _STRATA[-1] for part in (0, *_STRATA)]
    return [pages[:best], *(pages[begin:end] for begin, end in pairwise(bounds) if begin < min(end, n))]


def _shuffled(page: Sampled) -> bytes:
    return sha256(page.url.encode()).digest()


def to_label(sample: Iterable[Sampled], n: int = MOST_LABELS) -> list[Sampled]:
    """The *n* pages of *sample* that people are to label, each URL once, in the order in which they are to be shown.

    Half are the best graded, where mistakes cost most; half are spread over the grades of the rest. Their order says nothing,
    and is the same each time.
    """
    pages = {page.url: page for page in sample if not page.is_duplicate}
    best, *others = _strata(pages.values())
    rest = [row for part in others for row in enumerate(sorted(part, key=_shuffled))]
    asked = [*best, *(page for _, page in sorted(rest, key=itemgetter(0)))]
    return sorted(asked[:n], key=_shuffled)


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
