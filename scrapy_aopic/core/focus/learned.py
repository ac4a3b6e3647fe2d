"""A strategy that learns from what became of earlier links, relevant or not, while the crawl goes on.

The value of a link is a logistic regression on the words of its text, of its URL, around it and above it, each field for
itself, and on a first guess from the topic and the grade of its page. Without any example the value is that guess.

Each fetched page is an example for the link that led to it. What it is worth is its grade, or that of the best page
found through it, discounted at each step: the return of reinforcement learning, handed back along the way by which pages
were found (Rennie and McCallum, ICML 1999; Watkins's maximum, as links are followed best first). One step of AdaGrad
is made for each example whose return is new, and a few for earlier ones at random (experience replay: Lin, 1992), so a
page costs the same however many were seen, and nothing needs a thread.

Rule 1: all examples count, those of irrelevant pages too: a text that leads nowhere is as good to know.

Rule 2: a page costs O(words of its links), and O(:data:`STEPS` + :data:`BACK`) steps of learning.
"""

from __future__ import annotations

import math
import struct
import zlib
from array import array
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from scrapy_aopic.core.records import PAGE_BYTES
from scrapy_aopic.exceptions import StorageError

from .classifier import logistic
from .leads import bounded
from .strategy import Strategy
from .topic import RELEVANT
from .words import place_of, url_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .strategy import Chance, PageSeen
    from .topic import LinkText, Topic

BITS = 16
"""Places of features are numbers below 2**16, which an array of 16 bits holds."""

RATE = 0.1
"""Size of the first step of each weight, in log odds."""

DISCOUNT = 0.5
"""What a page is worth of the best one that a link of it leads to: on the way to the goal, and not the goal."""

STEPS = 4
"""Earlier examples that are learned from once more with each page."""

BACK = 10
"""Pages on the way to one that a return is handed back to: at the last, a thousandth of it is left."""

REPLAY = 2_000
"""Examples that are kept, the latest: half a megabyte."""

FIRST = 20
"""Examples from which on waiting links are valued anew."""

GROWTH = 1.25
"""Factor by which the examples have grown when waiting links are valued anew."""

OFTENEST = 200
"""Examples, at most, between one time and the next."""

ANCHOR_PART, AROUND_PART, PAGE_PART = 0.3, 0.3, 0.4
"""The first guess: how well the text fits, how well it does together with what stands around it, and the grade of the page.

Around most links stands something of the topic or nothing, so it says more with the text than by itself: from a portal that
quotes the beginnings of sites, the right ones are entered sooner.
"""

_CACHE = 5_000
"""Links whose features are kept, some 5 MB: of a site's links, most are on all of its pages."""

_WORDS = 50_000
"""Words whose places are kept."""

_LEAST = 0.001
"""Guesses are kept this far from 0 and 1, where the log odds end."""

_HEAD = struct.Struct("<4sBdddIIII")
_MAGIC = b"AOLL"
_EXAMPLE = struct.Struct("<16s16sddI")
_WEIGHT_BYTES = 4 << BITS


class Said(NamedTuple):
    """What a link says, as numbers.

    Attributes:
        places: Of its features; one that counts more is there more than once.
        scale: What each of them counts, so that their vector has length 1.
        guess: The parts of the first guess that are its own.
    """

    places: array[int]
    scale: float
    guess: float


class _Places(dict[str, int]):
    """Places of the words of a *field*, as far as they are remembered."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __missing__(self, word: str) -> int:
        if len(self) >= _WORDS:
            self.clear()
        place = self[word] = place_of(self._field, word) & (1 << BITS) - 1
        return place


class _Example:
    """A fetched page, as an example for the link that led to it.

    Attributes:
        said: What the link says.
        prior: Log odds of the first guess.
        worth: The return, 0 to 1.
        parent: Key of the page with the link.
    """

    __slots__ = ("parent", "prior", "said", "worth")

    def __init__(self, said: Said, prior: float, worth: float, parent: bytes) -> None:
        self.said = said
        self.prior = prior
        self.worth = worth
        self.parent = parent


class Learned(Strategy):
    """Values links by what became of earlier ones with the same words, of both kinds.

    Attributes:
        n_learned: Examples so far.
    """

    learns: ClassVar[bool] = True
    discount: ClassVar[float] = DISCOUNT

    def __init__(self, topic: Topic, chance: Chance) -> None:
        self._topic = topic
        self._chance = chance
        self._said: dict[LinkText, Said] = {}
        self._places = {name: _Places(name) for name in ("anchor", "url", "around", "heading")}
        self._begin()

    def _begin(self) -> None:
        """Know nothing."""
        self._weights = array("f", bytes(_WEIGHT_BYTES))
        self._squares = array("f", bytes(_WEIGHT_BYTES))
        self._bias = 0.0
        self._trust = 1.0
        self._slopes = 1.0
        self._examples: dict[bytes, _Example] = {}
        self._order: list[_Example] = []
        self.n_learned = 0
        self._version = 0
        self._due = FIRST

    # -- values

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        part = PAGE_PART * page.grade
        return [self._value(self._features(link, page.grade, page.key), part) for link in links]

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float:
        return self._value(self._features(link, parent_grade, parent), PAGE_PART * parent_grade)

    @property
    def version(self) -> int:
        return self._version

    def _value(self, said: Said, part: float) -> float:
        weight = self._weights.__getitem__
        x = self._bias + self._trust * _log_odds(said.guess + part)
        return logistic(x + said.scale * sum(map(weight, said.places)))

    def _features(self, link: LinkText, grade: float, parent: bytes) -> Said:
        """What a *link* says on the page with the key *parent*, graded *grade*: here the same on all."""
        del grade, parent
        return self._read(link)

    def _read(self, link: LinkText) -> Said:
        known = self._said.get(link)
        if known is None:
            if len(self._said) >= _CACHE:
                self._said.clear()
            kept = bounded(link)
            words = self._topic.words
            anchor, url, around = words(kept.anchor), url_words(kept.path), words(kept.around)
            places = array("H")
            for name, found in (
                ("anchor", anchor),
                ("url", url),
                ("around", around),
                ("heading", words(kept.heading)),
            ):
                places.extend(set(map(self._places[name].__getitem__, found)))
            fit = self._topic.fit
            text = anchor + url
            guess = ANCHOR_PART * fit(text) + AROUND_PART * fit(text + around)
            known = self._said[link] = Said(places, _scale(places), guess)
        return known

    # -- learning

    def learn(self, page: PageSeen) -> None:
        if page.link is None:
            return
        worth = (
            page.grade if page.is_relevant or page.grade < RELEVANT else 0.0
        )  # a duplicate is worth nothing
        said = self._features(page.link, page.parent_grade, page.parent)
        prior = _log_odds(said.guess + PAGE_PART * page.parent_grade)
        self._add(page.key, _Example(said, prior, worth, page.parent))
        self._hand_back(page.key)
        for _ in range(STEPS):
            self._step(self._order[self._chance.randrange(len(self._order))])
        if self.n_learned >= self._due:
            self._version += 1
            self._due = self.n_learned + _until(self.n_learned)

    def _add(self, key: bytes, example: _Example) -> None:
        if len(self._order) < REPLAY:
            self._order.append(example)
        else:
            self._order[self.n_learned % REPLAY] = example
        self._examples[key] = example
        if len(self._examples) > REPLAY:
            del self._examples[next(iter(self._examples))]
        self.n_learned += 1

    def _hand_back(self, key: bytes) -> None:
        """Learn from the page under *key*, and from those on the way to it that are worth more now."""
        example: _Example | None = self._examples[key]
        worth = 0.0
        for _ in range(BACK):
            if example is None or (worth and example.worth >= worth):
                return
            example.worth = max(example.worth, worth)
            self._step(example)
            worth = self.discount * example.worth
            example = self._examples.get(example.parent)

    def _step(self, example: _Example) -> None:
        """One step towards what *example* is worth."""
        said, weights, squares = example.said, self._weights, self._squares
        x = self._bias + self._trust * example.prior
        error = logistic(x + said.scale * sum(map(weights.__getitem__, said.places))) - example.worth
        slope = error * said.scale
        square = slope * slope
        if square:
            step = RATE * slope
            for place in said.places:
                squares[place] = total = squares[place] + square
                weights[place] -= step / math.sqrt(total)
        self._bias -= 0.05 * error
        slope = error * example.prior
        self._slopes += slope * slope
        self._trust -= 0.1 * slope / math.sqrt(self._slopes)

    # -- what is kept with the job

    def pack(self) -> bytes:
        examples = [(key, example) for key, example in self._examples.items() if len(key) == PAGE_BYTES]
        numbers = zlib.compress(self._weights.tobytes() + self._squares.tobytes(), 1)  # mostly zeros
        head = _HEAD.pack(
            _MAGIC,
            BITS,
            self._bias,
            self._trust,
            self._slopes,
            self.n_learned,
            self._version,
            len(examples),
            len(numbers),
        )
        parts = [head, numbers]
        for key, example in examples:
            said = example.said
            parts += (
                _EXAMPLE.pack(
                    key,
                    example.parent.ljust(PAGE_BYTES, b"\0"),
                    example.prior,
                    example.worth,
                    len(said.places),
                ),
                said.places.tobytes(),
            )
        return b"".join(parts)

    def restore(self, data: bytes) -> None:
        try:
            self._restore(memoryview(data))
        except (struct.error, zlib.error, ValueError) as error:
            self._begin()
            raise StorageError(f"what it has learned is damaged ({error})") from None

    def _restore(self, data: memoryview) -> None:
        magic, bits, self._bias, self._trust, self._slopes, self.n_learned, self._version, n, size = (
            _HEAD.unpack_from(data)
        )
        if magic != _MAGIC or bits != BITS:
            raise ValueError("it is of another version")
        at = _HEAD.size + size
        numbers = zlib.decompressobj().decompress(data[_HEAD.size : at], 2 * _WEIGHT_BYTES)
        if len(numbers) != 2 * _WEIGHT_BYTES:
            raise ValueError("weights are missing")
        self._weights = array("f", numbers[:_WEIGHT_BYTES])
        self._squares = array("f", numbers[_WEIGHT_BYTES:])
        floats = (self._bias, self._trust, self._slopes, *self._weights, *self._squares)
        if not all(map(math.isfinite, floats)) or min(self._squares) < 0 or self._slopes <= 0:
            raise ValueError("its numbers cannot be right")
        if n > REPLAY:
            raise ValueError("it has too many examples")
        for _ in range(n):
            key, parent, prior, worth, n_places = _EXAMPLE.unpack_from(data, at)
            at += _EXAMPLE.size
            places = array("H", bytes(data[at : at + 2 * n_places]))
            at += 2 * n_places
            if len(places) != n_places or not (math.isfinite(prior) and 0.0 <= worth <= 1.0):
                raise ValueError("its examples cannot be right")
            self._examples[key] = _Example(Said(places, _scale(places), 0.0), prior, worth, parent)
        if at != len(data):
            raise ValueError("it has another length than it says")
        self._order = list(self._examples.values())
        self.n_learned = max(self.n_learned, n)
        self._due = self.n_learned + _until(self.n_learned)


def _until(n: int) -> int:
    """Examples after the *n*-th until waiting links are valued anew."""
    return min(max(int(n * (GROWTH - 1.0)), FIRST), OFTENEST)


def _scale(places: array[int]) -> float:
    return 1.0 / math.sqrt(len(places) or 1)


def _log_odds(guess: float) -> float:
    part = min(max(guess, _LEAST), 1.0 - _LEAST)
    return math.log(part / (1.0 - part))
