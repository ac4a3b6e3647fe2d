"""Keywords of a topic as people mean them: other forms of a word, phrases, and words that speak against it.

A word of a page counts for a keyword if it begins with what all forms of the keyword have in common, its stem. So no word of
a page is stemmed, and nothing has to be known of the page's language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from scrapy_aopic.exceptions import TopicError

from .words import is_joined

LEAST = 4
"""Letters of a stem; with fewer it begins too many other words."""

_HANGUL = "\uac00", "\ud7a3"
_LEAST_HANGUL = 2
"""Syllables of a Korean word to which particles may be added."""

_WORDS = 50_000
"""Words of pages of which is remembered for which keywords they count, some 6 MB."""

_PATTERN = re.compile(r"(?i)(-?)\s*(url|title):\s*(.*)")
_LONGEST = 500
"""Characters of a title that are looked at."""


class _Phrase(NamedTuple):
    """A keyword.

    Attributes:
        sign: 1, or -1 if it speaks against the topic.
        parts: Numbers of what its words have to match, one after the other.
        end: For a single character that is a word, the number for words that it ends; else -1.
    """

    sign: int
    parts: tuple[int, ...]
    end: int = -1


class _Pattern(NamedTuple):
    """What is to be in the URL or the title of a page; ``*`` stands for any characters.

    Attributes:
        sign: 1, or -1 if it speaks against the topic.
        where: ``url`` or ``title``.
        text: In lower case.
    """

    sign: int
    where: str
    text: str


class _Matches(dict[str, "tuple[int, ...]"]):
    """The numbers of the patterns that words match, as far as they are remembered."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self._lengths: list[int] = []

    def number(self, how: str, text: str) -> int:
        """The number of a pattern: a word that ``is`` *text*, ``begins`` or ``ends`` with it."""
        number = self.numbers.setdefault((how, text), len(self.numbers))
        self._lengths = sorted({len(text) for how, text in self.numbers if how == "begins"})
        return number

    def __missing__(self, word: str) -> tuple[int, ...]:
        if len(self) >= _WORDS:
            self.clear()
        may_be = [("is", word), ("ends", word[-1:])]
        may_be += [("begins", word[:n]) for n in self._lengths if n <= len(word)]
        found = self[word] = tuple([self.numbers[each] for each in may_be if each in self.numbers])
        return found


class Keywords:
    """Counts keywords among the words of a text.

    Args:
        given: Words and phrases. ``-`` before one: it speaks against the topic. ``*`` behind one: words that begin with its last
            word count. In double quotes: only this form counts. ``url:`` or ``title:`` before one: a page counts if it is in its
            URL or title, where ``*`` stands for any characters.
        cut: Cuts text into words.
        stem: Gives the letters that all forms of a word begin with; without it, words count only as they are given.

    Attributes:
        read: How each keyword was read, for people.

    Raises:
        TopicError: If one can match nothing, or all speak against the topic.
    """

    def __init__(
        self, given: Iterable[str], cut: Callable[[str], list[str]], stem: Callable[[str], str] | None
    ) -> None:
        self._matches = _Matches()
        self._cut, self._stem = cut, stem
        self._patterns: list[_Pattern] = []
        phrases = []
        for text in dict.fromkeys(given):
            if (found := _PATTERN.fullmatch(text.strip())) is None:
                phrases.append(self._phrase(text))
                continue
            if not found[3].strip("* "):
                raise TopicError(f"The keyword {text!r} names nothing that is to be in the {found[2]}.")
            self._patterns.append(_Pattern(-1 if found[1] else 1, found[2].lower(), found[3].casefold()))
        signs = [*(each.sign for each in phrases), *(each.sign for each in self._patterns)]
        if signs and max(signs) < 0:
            raise TopicError("All keywords speak against the topic: at least one has to speak for it.")
        self._phrases = list(dict.fromkeys(phrases))
        texts = {
            n: f"{text}*" if how == "begins" else text for (how, text), n in self._matches.numbers.items()
        }
        self.read = [
            "-" * (phrase.sign < 0) + " ".join(texts[part] for part in phrase.parts)
            for phrase in self._phrases
        ] + [f"{'-' * (sign < 0)}{where}:{text}" for sign, where, text in self._patterns]

    def __bool__(self) -> bool:
        return bool(self._phrases or self._patterns)

    def _phrase(self, given: str) -> _Phrase:
        text = given.strip()
        sign = -1 if text.startswith("-") else 1
        text = text.removeprefix("-").strip()
        found = self._cut(text)
        if not found:
            raise TopicError(f"The keyword {given!r} can match nothing: it has no word.")
        first, last, number = 0, len(found) - 1, self._matches.number
        if self._stem is None or text.startswith('"'):
            return _Phrase(sign, tuple([number("is", word) for word in found]))
        if not last and len(found[0]) == 1 and is_joined(found[0]):
            return _Phrase(sign, (number("begins", found[0]),), number("ends", found[0]))
        parts = []
        for at, word in enumerate(found):
            # in a text, it is one of the next word's pair, or of the last one's
            if len(word) == 1 and is_joined(word):
                how = "begins" if at == last else "ends" if at == first else "is"
                parts.append(number(how, word))
            elif at == last and text.endswith("*"):
                parts.append(number("begins", word))
            else:
                begin = self._begin(word)
                parts.append(number("begins", begin) if begin else number("is", word))
        return _Phrase(sign, tuple(parts))

    def _begin(self, word: str) -> str:
        """What forms of *word* begin with; empty if it has none that are known."""
        if is_joined(word) or not word.isalpha():
            return ""
        if all(_HANGUL[0] <= character <= _HANGUL[1] for character in word):
            return word if len(word) >= _LEAST_HANGUL else ""
        assert self._stem is not None
        begins = (self._stem(word), word)
        return next((begin for begin in begins if len(begin) >= LEAST), "")

    def named(self, url: str, title: Callable[[], str]) -> int:
        """How many patterns speak for a page with this *url* and *title*, less those that speak against it."""
        n = 0
        for sign, where, text in self._patterns:
            said = (url if where == "url" else title()[:_LONGEST]).casefold()
            n += sign * _has(said, text.split("*"))
        return n

    def may_be_in(self, found: Iterable[str]) -> bool:
        """Whether any of the words *found* may be of a keyword. O(words), each of them looked up once."""
        return any(map(self._matches.__getitem__, found))

    def count(self, found: Sequence[str]) -> int:
        """How often the topic's words and phrases occur among *found*, less those that speak against it; 0 at least."""
        if not self._phrases or not self.may_be_in(found):  # as on most pages
            return 0
        said = list(map(self._matches.__getitem__, found))
        each = Counter(number for numbers in said for number in numbers)
        n = 0
        for sign, parts, end in self._phrases:
            if len(parts) > 1:
                n += sign * _sequences(parts, said)
            else:
                n += sign * each[parts[0]]
                if each[end]:
                    n += sign * _ends(parts[0], end, said)
        return max(n, 0)


def _has(said: str, parts: Iterable[str]) -> bool:
    """Whether *said* has all *parts*, one behind the other."""
    at = 0
    for part in parts:
        if (found := said.find(part, at)) < 0:
            return False
        at = found + len(part)
    return True


def _sequences(parts: tuple[int, ...], said: Sequence[tuple[int, ...]]) -> int:
    """How often words match *parts*, one after the other."""
    places = [at for at, numbers in enumerate(said[: len(said) - len(parts) + 1]) if parts[0] in numbers]
    return sum(all(part in said[at + nth] for nth, part in enumerate(parts)) for at in places)


def _ends(begin: int, end: int, said: Sequence[tuple[int, ...]]) -> int:
    """How often a single character stands at the end of what was cut into pairs: the next pair does not begin with it."""
    return sum(
        end in numbers and begin not in numbers and not (at < len(said) and begin in said[at])
        for at, numbers in enumerate(said, 1)
    )
