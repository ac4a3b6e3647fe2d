"""How good a trained topic is on pages that it has not learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.focus.calibration import UNCHECKED, Calibration, unchecked_by, wilson
from scrapy_aopic.core.focus.topic import RELEVANT

from .folders import ExamplePage, train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tokenizers import Words


_MOST_TRIED = 200
"""Examples of a kind that are graded by what others teach when a crawl begins, some seconds."""

_FOLDS = 5
"""Parts that examples are cut into to grade each by a classifier that has learned from the others."""


class Quality(NamedTuple):
    """How well grades distinguish relevant pages from others.

    Attributes:
        relevant, others: Pages of each kind.
        average_precision: Mean, over the relevant pages, of the part of the pages graded at least as high that are
            relevant; the part of relevant pages among all is what chance gets.
        precision: Part of the pages that count as relevant (grade 0.5) that are; 0 if none does.
        recall: Part of the relevant pages that count as relevant.
        recall_low, recall_high: Interval that holds the recall of all relevant pages with a probability of 95 %: the fewer
            there were, the wider.
    """

    relevant: int
    others: int
    average_precision: float
    precision: float
    recall: float
    recall_low: float
    recall_high: float


def quality(relevant: Sequence[float], others: Sequence[float]) -> Quality:
    """Quality of the grades of *relevant* pages, of which there is at least one, and of *others*."""
    above = [
        sum(each >= grade for each in relevant)
        / (sum(each >= grade for each in relevant) + sum(each >= grade for each in others))
        for grade in relevant
    ]
    hits, false = (sum(grade >= RELEVANT for grade in grades) for grades in (relevant, others))
    return Quality(
        len(relevant),
        len(others),
        sum(above) / len(above),
        hits / (hits + false) if hits + false else 0.0,
        hits / len(relevant),
        *wilson(hits, len(relevant)),
    )


def unlabelled(
    positive: Sequence[ExamplePage], negative: Sequence[ExamplePage], cut: Words | None = None
) -> Calibration:
    """What grades mean without labels, by some of the examples."""
    grades = held_out(positive[:_MOST_TRIED], negative[:_MOST_TRIED], cut)
    return unchecked_by(grades[0]) if grades is not None else UNCHECKED


def held_out(
    positive: Sequence[ExamplePage], negative: Sequence[ExamplePage], cut: Words | None = None
) -> tuple[list[float], list[float]] | None:
    """Grades of the relevant pages and of the others, each by what four fifths that it is not of teach; ``None`` with one of a kind.

    With fewer than five of a kind, each has learned from all but one of them.
    """
    folds = min(_FOLDS, len(positive), len(negative) or _FOLDS)
    if folds < 2:
        return None
    grades: tuple[list[float], list[float]] = ([], [])
    for fold in range(folds):
        rest, others = (
            [page for number, page in enumerate(pages) if number % folds != fold]
            for pages in (positive, negative)
        )
        topic = train(rest, others, cut)
        for found, pages in zip(grades, (positive, negative), strict=True):
            found += [topic.grade(page.text) for page in pages[fold::folds]]
    return grades
