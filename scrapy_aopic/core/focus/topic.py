"""A topic: how relevant a page is by its words, and how well the text of a link fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from zlib import crc32

from .classifier import Classifier
from .keywords import Keywords
from .words import LINK_CHARACTERS, Features, all_words, features, url_words, word_place, words

RELEVANT = 0.5
"""Grade from which on a page counts as relevant: what a classifier finds more likely than not."""

_DENSE = 100
"""Words among which one keyword makes a page half relevant; a shorter page counts as having this many."""


class CutText(Protocol):
    """Cuts the first *limit* characters of a text into words."""

    def __call__(self, text: str, limit: int = ..., /) -> list[str]: ...


class LinkText(NamedTuple):
    """The texts that a page has about a link.

    Attributes:
        anchor: Its text, or that of its image, and its title.
        around: The text before and after it.
        heading: The heading above it.
        path: Path and query of its URL.
    """

    anchor: str
    around: str = ""
    heading: str = ""
    path: str = ""


class Samples(NamedTuple):
    """Samples from which :mod:`.published.jlse_as_printed` learns before a crawl.

    Attributes:
        pages: Texts of pages, and whether each is relevant.
        anchors: Texts of links to them, each as relevant as the page that it leads to.
        stop_words: Words that are ignored.
    """

    pages: Sequence[tuple[str, bool]]
    anchors: Sequence[tuple[str, bool]]
    stop_words: Collection[str] = ()


class PageWords(NamedTuple):
    """The words of a page, cut once, and which of them belong to its links.

    Attributes:
        words: All of them, in their order.
        links: For each link, six positions in *words*: begin of the words before it, begin and end of its own, end of the
            words after it, begin and end of those of the heading above it.
        titles: Titles of links, by the number of the link; their words are not among those of the page.
    """

    words: list[str]
    links: list[tuple[int, int, int, int, int, int]]
    titles: Mapping[int, str]

    def own(self, link: int) -> str:
        """The words of the *link* of this number itself."""
        _, begin, end, *_ = self.links[link]
        return self.titles.get(link) or " ".join(self.words[begin:end])


class Topic:
    """A topic, by examples if it has learned from some of both kinds, else by keywords.

    Args:
        keywords: Words and phrases of the topic (:class:`.keywords.Keywords`).
        pages: The classifier that has learned from examples.
        cut: Cuts text into words; if it has a true ``is_plain``, as :func:`.words.words` does.
        cut_url: Cuts path and query of a URL into words.
        stem: What forms of a keyword begin with. Not asked if *cut* is a user's, which may have forms of its own.

    Attributes:
        words: *cut*. It cuts all text of a topic, also that from which a strategy learns.
        url_words: *cut_url*.
        is_cut_plainly: Whether the words of a text are those of its parts, one part after the other.
        is_by_keywords: Whether links are matched by keywords; several texts then match as well as the best of them.
        keywords: The keywords; none if there are none.
        samples: Samples for a strategy that needs them; ``None`` if there are none.

    Raises:
        TopicError: If a keyword can match nothing.
    """

    def __init__(
        self,
        keywords: Iterable[str] = (),
        pages: Classifier | None = None,
        cut: CutText = words,
        cut_url: Callable[[str], list[str]] = url_words,
        stem: Callable[[str], str] = str,
    ) -> None:
        self.words = cut
        self.url_words = cut_url
        self.is_cut_plainly: bool = cut is words or getattr(cut, "is_plain", False)
        self.keywords = Keywords(keywords, cut, stem if self.is_cut_plainly else None)
        self.is_by_keywords = bool(self.keywords)
        self.pages = pages if pages is not None else Classifier()
        self.samples: Samples | None = None

    def all_words(self, texts: Sequence[str]) -> list[list[str]]:
        """The words of each of *texts*, of which one page has several: faster than one by one."""
        return all_words(texts) if self.is_cut_plainly else list(map(self.words, texts))

    @property
    def has_examples(self) -> bool:
        """Whether it has learned from relevant pages and from others."""
        return min(self.pages.seen) >= 1.0

    @property
    def sign(self) -> int:
        """A number, below 2**32, that tells it from other topics, and by what words are cut from other cuts."""
        return crc32(
            repr((sorted(self.keywords.read), getattr(self.words, "name", ""))).encode(),
            crc32(self.pages.pack()),
        )

    def features(self, text: str) -> Features:
        """The features of a page with this *text*."""
        return features([("page", self.words(text))])

    def learn(self, examples: Iterable[tuple[str, bool]]) -> None:
        """Learn from *examples*, texts of pages, each with whether it is relevant, and forget earlier ones."""
        self.pages.fit([(self.features(text), relevant) for text, relevant in examples])

    def grade(self, text: str) -> float:
        """How relevant a page with this *text* is, 0 to 1."""
        return self.grade_words(self.words(text))

    def grade_words(self, found: Sequence[str]) -> float:
        """How relevant a page with the words *found* is, 0 to 1."""
        return self.pages.score_words(found) if self.has_examples else self._density(found)

    def grade_page(self, found: Sequence[str], url: str, title: Callable[[], str]) -> float:
        """The same of the page with this *url* and *title*: by patterns of keywords, if some speak for it or against it."""
        named = self.keywords.named(url, title)
        grade = self.grade_words(found)
        return grade if not named else max(grade, RELEVANT) if named > 0 else 0.0

    def explain(self, text: str) -> list[tuple[str, float]]:
        """The learned log odds that each word of a page with this *text* adds, the largest first."""
        found = self.words(text)
        values = features([("page", found)])
        parts = {word: self.pages.part(values, word_place("page", word)) for word in set(found)}
        return sorted(parts.items(), key=lambda part: (-abs(part[1]), part[0]))

    def match(self, link: LinkText) -> float:
        """How well the text and the URL of *link* match the topic, 0 to 1; 0 if they say nothing."""
        return self.fit(self.words(link.anchor, LINK_CHARACTERS) + self.url_words(link.path))

    def fit(self, found: Sequence[str]) -> float:
        """How well a link with the words *found* matches the topic, 0 to 1."""
        if self.is_by_keywords:
            return float(self.keywords.count(found) > 0)
        return self.pages.score_link(found) if found and self.has_examples else 0.0

    def fits_by(self, found: Sequence[str]) -> bool:
        """Whether the words *found* on a page may make any link of it fit better: by keywords, most pages have none of them."""
        return (self.has_examples and not self.is_by_keywords) or self.keywords.may_be_in(found)

    def _density(self, found: Sequence[str]) -> float:
        """Grade by keywords: 1/2 if they are one word in :data:`_DENSE`."""
        n = self.keywords.count(found)
        density = _DENSE * n / max(len(found), _DENSE)
        return density / (1.0 + density)
