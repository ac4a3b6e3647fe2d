"""The topic and the judge of links that a user has given, ready to be used.

Rule: what cannot be used is an error of its setting before the crawl begins.
"""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.misc import build_from_crawler

from scrapy_aopic.core.focus.calibration import UNCHECKED, Calibration
from scrapy_aopic.core.focus.strategies import STRATEGIES, needs_samples
from scrapy_aopic.core.focus.strategy import ByFunction, MakeStrategy, Strategy
from scrapy_aopic.core.focus.topic import Topic
from scrapy_aopic.exceptions import ANY_ERROR, SettingError, TopicError
from scrapy_aopic.focus import LinkScorer, PageScorer, load_model, read_folder, train
from scrapy_aopic.focus.background import PAGES
from scrapy_aopic.focus.folders import samples
from scrapy_aopic.focus.quality import unlabelled
from scrapy_aopic.focus.stems import stem
from scrapy_aopic.focus.tokenizers import Words, import_path
from scrapy_aopic.place.calibration_file import CALIBRATION, read_calibration, write_calibration
from scrapy_aopic.settings import read_values
from scrapy_aopic.settings.parse import TopicGiven, is_awaited, is_class_of_functions

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

FEW = 10
"""Relevant examples below which grades are a guess: on topics held out, average precision is .32 with 3, .40 with 10, .53 with 30."""

Given: TypeAlias = "str | type[Strategy] | LinkScorer"
"""A value of ``AOPIC_LINK_SCORER``: a name, a class, or a function."""


class GivenTopic:
    """The topic that a user has given.

    Args:
        folder: The job folder, where labels may say what grades mean.

    Attributes:
        topic: Its words; none are known of one that a function or items define.
        grade: The user's function, or an instance of the user's class.
        by_items: Whether a page is relevant if it yields an item.
        calibration: What grades mean to people.
        scorer: What ``AOPIC_LINK_SCORER`` names, or an instance of it if it is a class of the user's own.
        scorer_name: The name under which a job keeps a strategy; it includes the tokeniser, as weights hold for the words of
            one only.

    Raises:
        SettingError: If its folders or its model cannot be used, what the user gives cannot be made, or it needs asyncio and
            there is none.
    """

    def __init__(self, given: TopicGiven, crawler: Crawler, folder: Path | None = None) -> None:
        self.grade: PageScorer | None = _built(given.grade, crawler, "AOPIC_TOPIC")
        scorer = read_values(crawler.settings).link_scorer
        self.scorer: Given = _built(scorer, crawler, "AOPIC_LINK_SCORER")
        if self.grade is not None and is_awaited(self.grade) and not is_asyncio_available():
            raise SettingError(
                "AOPIC_TOPIC names an asynchronous function, which needs asyncio: set TWISTED_REACTOR to its default, or "
                "name a plain function."
            )
        self.by_items = given.by_items
        self._threshold = given.threshold
        cut = Words(read_values(crawler.settings).tokenizer, is_lenient=True)
        self.scorer_name = scorer if isinstance(scorer, str) else import_path(scorer)
        if cut.name:
            self.scorer_name += f" with {cut.name}"
        what, unchecked = "", UNCHECKED
        try:
            self.calibration = read_calibration(Path(given.calibration) if given.calibration else folder)
            self.topic = Topic(given.keywords, cut=cut, cut_url=cut.of_url, stem=stem)
            if given.keywords:
                what = f"the keywords {', '.join(self.topic.keywords.read)}"
            if given.model:
                self.topic, version = load_model(Path(given.model), cut)
                what = f"the model {given.model}, version {version}"
            elif given.positive:
                positive = read_folder(Path(given.positive))
                negative = read_folder(Path(given.negative)) if given.negative else []
                self.topic = train(positive, negative, cut)
                unchecked = UNCHECKED if self.calibration.labels else unlabelled(positive, negative, cut)
                if needs_samples(self.scorer):
                    self.topic.samples = samples(positive, negative)
                what = f"{len(positive)} relevant pages and {len(negative) or PAGES} others"
                if not negative:
                    what += " of the open web, which come with the package"
                if len(positive) < FEW:
                    what += (
                        f": so few are a first guess only, and {FEW} would tell far better what is relevant"
                    )
        except TopicError as error:
            raise SettingError(f"AOPIC_TOPIC cannot be used: {error}") from error
        self._note_unchecked(unchecked, folder)
        if self.grade is not None:
            what = "relevance is a function of each response"
        elif self.by_items:
            what = "a page is relevant if its callback yields an item"
        logger.info("Topic: %(what)s", {"what": what})

    def _note_unchecked(self, found: Calibration, folder: Path | None) -> None:
        """Let grades mean what was *found* as long as there are no labels, also for whoever reads the job in *folder*."""
        if self.calibration.labels or self.calibration == found:
            return
        self.calibration = found
        if folder is not None and folder.is_dir():
            write_calibration(folder / CALIBRATION, found)

    def counts(self, grade: float, gist: bytes) -> bool:
        """Whether a page with this *grade* and *gist* is relevant to people."""
        return self.calibration.probability(grade, gist) >= self._threshold

    @property
    def has_own_scorer(self) -> bool:
        """Whether a class or function of the user's values links, which may give anything."""
        return not isinstance(self.scorer, str)

    def new_strategy(self) -> Strategy:
        """A strategy as ``AOPIC_LINK_SCORER`` names it, or is one."""
        scorer = self.scorer
        if isinstance(scorer, str):
            return self.strategy_named(scorer)
        if isinstance(scorer, type) and issubclass(scorer, Strategy):
            return cast("MakeStrategy", scorer)(self.topic, Random())  # noqa: S311 - of nothing secret
        return ByFunction(scorer)

    def strategy_named(self, name: str) -> Strategy:
        """The strategy of the package with this *name*."""
        return STRATEGIES[name](self.topic, Random())  # noqa: S311


def _built(found: Any, crawler: Crawler, setting: str) -> Any:
    """An instance of *found*, if that is a class of a user's own and no strategy."""
    if not is_class_of_functions(found) or issubclass(found, Strategy):
        return found
    try:
        return build_from_crawler(found, crawler)
    except ANY_ERROR as error:
        raise SettingError(
            f"{setting} names {found.__module__}.{found.__qualname__}, which cannot be made: {type(error).__name__}: {error}"
        ) from error
