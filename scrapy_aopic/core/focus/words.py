"""Text as features: words of any script without a dictionary, hashed to a fixed number of places.

Rule 1: time is linear in what is read, and no more than *limit* characters of a text are read.

Rule 2: the same text has the same features in every process (CRC-32, never ``hash``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeAlias
from unicodedata import normalize
from zlib import crc32

Features: TypeAlias = "dict[int, float]"
"""Places and what stands there; of length 1 as a vector, or empty."""

BITS = 18
"""Places are numbers below 2**18: some 50,000 distinct words collide once in six words."""

LONGEST_WORD = 40
"""Characters of a word that count; what is longer is seldom one."""

_WORDS = 50_000
"""Words of a field whose places are remembered, some 6 MB."""

_FEW = 10
"""Words of a text that are replaced one by one, as each moves all that is behind it."""

_OTHERS = 10_000
"""Words with something that is not ASCII whose parts are remembered, some 2 MB: to find them takes ten times as long."""

_FIELDS = 8
"""Fields of which places are remembered; a topic has one."""

PAGE_CHARACTERS = 100_000
"""Characters of a page's text that are read: some 16,000 words."""

LINK_CHARACTERS = 500
"""Characters of each text around a link that are read."""

_JOINED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Thai, Lao, Khmer, kana and Han: scripts that do not part words by spaces."""

_RUN = re.compile(rf"([{_JOINED}]+)|[^\W{_JOINED}]+")

_HAS_JOINED = re.compile(f"[{_JOINED}]")
_WORD = re.compile(r"\w+")

_BETWEEN = "".join(
    chr(code).lower() if chr(code).isalnum() or chr(code) == "_" else " " for code in range(128)
).encode() + bytes(range(128, 256))
"""Lower case, and spaces for what parts words, in ASCII: to split there takes half the time of a regular expression."""

_SIGNS = "\xa0\xab\xbb\xa9\xae\xb7\u2013\u2014\u2018\u2019\u201c\u201d\u2022"
"""Characters that separate words in most texts that are otherwise ASCII: no-break spaces, quotation marks, dashes, signs."""

_MARK = "\1"
"""Stands between texts that are cut together; a control character, which hardly a text has."""

_BETWEEN_OR_MARK = _BETWEEN[:1] + _MARK.encode() + _BETWEEN[2:]

_BETWEEN_LETTERS = {code: " " for code in range(128) if not chr(code).isalpha()}
"""Translates all ASCII characters but letters to spaces, for a URL without capital letters."""

_AT_ONCE = 200
"""Characters without a space that are brought to their normal form at once; few words are longer."""

_URL_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[^\W\d_a-zA-Z]+")
"""A word of a URL: parted by anything but letters, and before a capital letter."""


def words(text: str, limit: int = PAGE_CHARACTERS) -> list[str]:
    """The words of *text*, in NFKC, in lower case; of scripts without spaces every two neighbouring characters."""
    found = _words(_parted(text[:limit], _BETWEEN))
    if max(map(len, found), default=0) > LONGEST_WORD:
        found = [word[:LONGEST_WORD] for word in found]
    return found


def all_words(texts: Sequence[str]) -> list[list[str]]:
    """The words of each of *texts*, as :func:`words` has them, but for their length; of a page's pieces in a third of its time."""
    parts = _parted(_MARK.join(texts), _BETWEEN_OR_MARK).split(_MARK)
    if len(parts) != len(texts):  # one of them has the mark
        return list(map(words, texts))
    return [part.split() if part.isascii() else _words(part) for part in parts]


def _parted(text: str, between: bytes) -> str:
    """*text* with what parts words replaced: as bytes, as that takes a tenth of the time."""
    if not text.isascii():
        for sign in _SIGNS:
            if sign in text:
                text = text.replace(sign, " ")
    return text.encode("utf-8", "surrogatepass").translate(between).decode("utf-8", "surrogatepass")


def _words(parted: str) -> list[str]:
    """The words of a text in which those of ASCII are *parted* by spaces; what is not ASCII is cut further here.

    That is little of most texts, and takes ten times as long.
    """
    found = parted.split()
    if parted.isascii():
        return found
    others = [place for place, word in enumerate(found) if not word.isascii()]
    if len(others) > _FEW:
        return list(chain.from_iterable([(word,) if word.isascii() else _parts(word) for word in found]))
    for place in reversed(others):
        found[place : place + 1] = _parts(found[place])
    return found


def _parts(word: str) -> tuple[str, ...]:
    """The words of what has no space, and something that is not ASCII; of short ones, the last are remembered."""
    return _remembered_parts(word) if len(word) <= LONGEST_WORD else tuple(_other_words(word))


def is_joined(word: str) -> bool:
    """Whether *word* has a character of a script that does not part words by spaces."""
    return _HAS_JOINED.search(word) is not None


def compatible(text: str) -> str:
    """*text* in NFKC; a long one in parts, as marks that combine take a time that grows with the square of their number."""
    if len(text) <= _AT_ONCE:
        return normalize("NFKC", text)
    return "".join(
        [normalize("NFKC", text[begin : begin + _AT_ONCE]) for begin in range(0, len(text), _AT_ONCE)]
    )


def _other_words(text: str) -> list[str]:
    """The words of any *text*."""
    text = compatible(text).casefold()
    if not is_joined(text):
        return _WORD.findall(text)
    found = []
    for match in _RUN.finditer(text):
        run = match[0]
        if match[1] is None or len(run) == 1:
            found.append(run)
        else:
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
    return found


@lru_cache(_OTHERS)
def _remembered_parts(word: str) -> tuple[str, ...]:
    return tuple(_other_words(word))


def url_words(path: str) -> list[str]:
    """The words of a URL's *path* and query, without numbers, in lower case."""
    path = path[:LINK_CHARACTERS]
    if path.isascii() and path.islower():
        found = path.translate(_BETWEEN_LETTERS).split()
        return found if len(path) <= LONGEST_WORD else [word[:LONGEST_WORD] for word in found]
    return [word[:LONGEST_WORD].casefold() for word in _URL_WORD.findall(path)]


class WordPlaces(dict[str, int]):
    """Places of words in a *field*: hashes, remembered for the latest words; two words may share a place.

    Args:
        bits: Places are numbers below ``2**bits``.
    """

    def __init__(self, field: str, bits: int = BITS) -> None:
        self._seed = crc32(field.encode())
        self._last = (1 << bits) - 1

    def __missing__(self, word: str) -> int:
        if len(word) > LONGEST_WORD:
            return self[word[:LONGEST_WORD]]
        if len(self) >= _WORDS:
            self.clear()
        hashed = crc32(word.encode("utf-8", "surrogatepass"), self._seed)
        place = self[word] = hashed >> 32 - BITS & self._last
        return place


places_in = lru_cache(_FIELDS)(WordPlaces)
"""The places of words in a field, as they are remembered."""


def word_place(field: str, word: str) -> int:
    """Place of a *word* in a *field*; other words may have the same."""
    return places_in(field)[word]


def features(fields: Iterable[tuple[str, Iterable[str]]]) -> Features:
    """Features of the words of named *fields*: 1 + log of how often each occurs, scaled to a vector of length 1.

    A word counts for another one in each field, so that ``security`` in a link's text is not that of its URL.
    """
    values: Features = {}
    for name, found in fields:
        places = places_in(name)
        for word, n in Counter(found).items():
            place = places[word]
            values[place] = values.get(place, 0.0) + (1.0 + math.log(n) if n > 1 else 1.0)
    length = math.sqrt(sum([value * value for value in values.values()]))
    return {place: value / length for place, value in values.items()} if length else {}
