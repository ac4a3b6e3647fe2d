"""The tokeniser: the package's own, or a function of the user's (``AOPIC_TOKENIZER``).

Rule: weights learned with one tokeniser mean nothing with another, so a model names the one that it was trained with.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from scrapy_aopic.core.focus.words import LONGEST_WORD, PAGE_CHARACTERS, url_words, words
from scrapy_aopic.exceptions import ANY_ERROR, TopicError

logger = logging.getLogger(__name__)


class Tokenizer(Protocol):
    """A function of the user's: the words of a text, in any form that is to count as one word."""

    def __call__(self, text: str, /) -> Iterable[str]: ...


class Words:
    """Cuts text into words by the function *cut*, or as the package does if there is none.

    Args:
        is_lenient: Whether a text on which *cut* fails is cut as the package does, with a warning for the first one, so that a
            crawl goes on. Otherwise a failure is a :class:`~scrapy_aopic.exceptions.TopicError`.

    Attributes:
        name: Name of the tokeniser in a model; empty for the package's own.
        is_plain: Whether it is the package's own.
    """

    def __init__(self, cut: Tokenizer | None = None, *, is_lenient: bool = False) -> None:
        self._cut = cut
        self._is_lenient = is_lenient
        self._has_failed = False
        self.is_plain = cut is None
        self.name = import_path(cut) if cut is not None else ""

    def __call__(self, text: str, limit: int = PAGE_CHARACTERS) -> list[str]:
        """The words of the first *limit* characters of *text*.

        Raises:
            TopicError: If the tokeniser fails, or gives anything but texts, and it is not lenient.
        """
        if self._cut is None:
            return words(text, limit)
        try:
            return [word[:LONGEST_WORD] for word in map(_as_text, self._cut(text[:limit])) if word]
        except ANY_ERROR as error:
            what = (
                f"The tokeniser {self.name} (AOPIC_TOKENIZER) gives no words: {type(error).__name__}: {error}"
            )
            if not self._is_lenient:
                raise TopicError(f"{what}.") from error
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "%(what)s; such texts are cut as without it, and further ones are not logged",
                    {"what": what},
                )
            return words(text, limit)

    def of_url(self, path: str) -> list[str]:
        """The words of a URL's *path* and query, without numbers; a user's tokeniser gets them with spaces between them.

        Raises:
            TopicError: As above.
        """
        found = url_words(path)
        return found if self._cut is None or not found else self(" ".join(found))


def import_path(given: object) -> str:
    """What *given*, a function or class of the user's, is kept under with what was learned by it."""
    return f"{getattr(given, '__module__', '')}.{getattr(given, '__qualname__', '')}"


def _as_text(word: object) -> str:
    if not isinstance(word, str):
        raise TypeError(f"{word!r} is no text")
    return word
