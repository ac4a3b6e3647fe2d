"""A strategy that learns from what became of earlier links, relevant or not, while the crawl goes on.

The value of a link is a logistic regression on the words of its text, of its URL, around it and above it, each field for
itself, and on a first guess from the topic and the grade of its page. Without any example the value is that guess.

"Catalog" may lead to something on a page that does not mention the topic, "Details" only on one that does. So each word
is a feature twice: alone, and together with how relevant its page is, in thirds. Each host is a feature, too: further
links to a host where nothing was found are worth less, whatever they say, and where much was found, more. So a host whose
catalog leads to other things costs a few pages, not the whole catalog.

Each fetched page is an example for the link that led to it. What it is worth is its grade (squared, if the topic was given by
examples, because a classifier that has seen few of them is wrong about most of the pages that it puts just above the middle),
or that of the best page found through it, discounted at each step: the return of reinforcement learning, handed back along the way by which pages
were found (Rennie and McCallum, ICML 1999; Watkins's maximum, as links are followed best first). One step of AdaGrad
is made for each example whose return is new, and, if its value was wrong, for a few earlier ones at random (experience
replay: Lin, 1992), so a page costs the same however many were seen, and nothing needs a thread.

Rule 1: all examples count, those of irrelevant pages too: a text that leads nowhere is as good to know.

Rule 2: a page costs O(words of its links), and O(:data:`STEPS` + :data:`BACK`) steps of learning.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias, cast
from zlib import crc32

from scrapy_aopic.core.records import HOST_BYTES, PAGE_BYTES
from scrapy_aopic.exceptions import StorageError

from .classifier import logistic
from .leads import bounded
from .model_weights import BITS, WordWeights
from .strategy import MOST_OF_MEMO, Chance, PageSeen, Strategy
from .topic import RELEVANT, LinkText, PageWords, Topic
from .words import WordPlaces


class FirstGuess(NamedTuple):
    """The first guess of what a link is worth: weights of its parts, which are all there is before anything was learned.

    How well a link fits is a number if the topic was given by examples, and yes or no if by keywords; and one of a few keywords
    stands somewhere around many links, whatever they lead to. So there are two guesses, of the same form.

    Attributes:
        text: Of the match of the link's text and URL.
        around: Of the match of these together with the text around the link.
        page: Of the grade of its page.
        quoted: Of the match with the text around it, in place of the grade: a quotation of another page is informative if the
            page itself is not relevant; on a relevant page nearly all text matches, so it says nothing.
        least: Distance that a guess keeps from 0 and 1, where the log odds are infinite.
        inertia: Sum of squared slopes with which the guess's own weight begins: the larger, the slower it changes.
    """

    text: float
    around: float
    page: float
    quoted: float
    least: float
    inertia: float

    def log_odds(self, own: float, together: float, grade: float) -> float:
        """The guess for a link on a page with this *grade*, as log odds.

        Args:
            own: How well the link's text and URL match the topic.
            together: How well these match together with the text around the link.
        """
        guess = self.text * own + self.around * together + max(self.quoted * together, self.page * grade)
        part = min(max(guess, self.least), 1.0 - self.least)
        return math.log(part / (1.0 - part))


_BY_EXAMPLES = FirstGuess(text=0.3, around=0.3, page=0.4, quoted=0.0, least=0.001, inertia=1.0)
"""For topics by examples. Around most links there is either something of the topic or nothing, so the text around says more
together with the link's own than alone: from a portal that quotes the first lines of sites, the right ones are entered
sooner."""

_BY_KEYWORDS = FirstGuess(text=0.2, around=0.0, page=0.8, quoted=0.24, least=0.05, inertia=300.0)
"""Keywords judge a page better than a link: with the weights for examples, a word somewhere around a link on an irrelevant page was
worth as much as a link on a relevant page, and a crawl of some hundred pages was over before it had learned better.

Most pages have none of them, and the grade 0. A guess of 0.001 for their links is so wrong about each that leads to a page with one
of them that after a hundred pages the guess was trusted a third as much: so it is kept further from 0, and its weight is slow."""


DISCOUNT = 0.8
"""Part of the worth of the best page that it links to which a page is worth: with half, the first of three links to a relevant page
would be worth an eighth."""

LEVELS = 3
"""Degrees of relevance of a page that are distinguished."""

_HOST_WEIGHT = 3
"""Weight of the host's feature, in words."""

_LAST = (1 << BITS) - 1

STEPS = 2
"""Earlier examples that are learned from once more with each page whose value was :data:`WRONG`. With each page, or with twice as
many, a crawl finds no more."""

BACK = 10
"""Pages on the way to one that a return is handed back to: at the last, a thousandth of it is left."""

WRONG = 0.05
"""Error from which on words are learned from: of most links it is known by then that they lead nowhere. With a fifth of that a page
costs more steps, and finds no more."""

REPLAY = 2_000
"""Examples that are kept, the latest: half a megabyte."""

FIRST = 20
"""Examples after which waiting links are valued again for the first time."""

GROWTH = 1.25
"""Factor by which the examples grow between two times at which waiting links are valued again."""

ANCHOR_WORDS, HEADING_WORDS = 13, 10
"""Words of the link and of the heading above it that count: as many as a lead keeps of them."""

_OFTENEST = 200
"""Most examples between two such times."""

_CACHE = 5_000
"""Links whose features are kept, some 5 MB: of a site's links, most are on all of its pages."""

_TEXTS = 5_000
"""Texts of one field whose words and places are kept: anchors, headings and paths that many links have."""

_HEAD = struct.Struct("<4sBdddIIIB")
_MAGIC = b"AOLN"
_EXAMPLE = struct.Struct("<16s16sddBiI")
_MEMO = struct.Struct("<Iff")

MOST_PLACES = (MOST_OF_MEMO - _MEMO.size) // 2
"""WordPlaces of words that are kept of a link, more than the texts that are kept of it elsewhere have words."""

Fits: TypeAlias = "tuple[float, float]"
"""How well a link matches the topic alone, and together with the text around it, 0 to 1."""

Said: TypeAlias = "tuple[Sequence[int], Fits]"
"""A link as numbers: places of its words, below 2**16, and how well it matches the topic."""


class Where(NamedTuple):
    """Features of the page that a link is on.

    Attributes:
        level: Table in which the link's words count besides the first.
        host: Place of the page's host.
    """

    level: int
    host: int


class _Texts(dict[str, "tuple[list[str], list[int], float]"]):
    """The words of texts of one field, their places, and whether they have a keyword, as far as they are remembered.

    Attributes:
        places: Of the words of this field.
    """

    def __init__(self, topic: Topic, cut: Callable[[str], list[str]], field: str) -> None:
        self._cut = cut
        self._fit = topic.fit if topic.is_by_keywords else None
        self.places = WordPlaces(field, BITS)

    def __missing__(self, text: str) -> tuple[list[str], list[int], float]:
        if len(self) >= _TEXTS:
            self.clear()
        words = self._cut(text)
        fit = self._fit(words) if self._fit is not None else 0.0
        found = self[text] = words, list(set(map(self.places.__getitem__, words))), fit
        return found


class _Example:
    """A fetched page, as an example for the link that led to it.

    Attributes:
        places: Of the words of the link.
        where: What counts of the page that it is on.
        prior: Log odds of the first guess.
        worth: The return, 0 to 1.
        parent: Key of the page with the link.
    """

    __slots__ = ("parent", "places", "prior", "where", "worth")

    def __init__(self, places: array[int], where: Where, prior: float, worth: float, parent: bytes) -> None:
        self.places = places
        self.where = where
        self.prior = prior
        self.worth = worth
        self.parent = parent


class Learned(Strategy):
    """Values links by what became of earlier ones with the same words, of both kinds.

    It keeps a memo of each waiting link in place of its texts: shorter, and not to be cut into words again.

    Attributes:
        n_learned: Examples so far.
        has_examples: Whether the topic was given by examples.
    """

    learns: ClassVar[bool] = True
    values_known: ClassVar[bool] = False

    def __init__(self, topic: Topic, chance: Chance) -> None:
        super().__init__(topic, chance)
        self._chance = chance
        self.has_examples = topic.has_examples
        self._guess = _BY_EXAMPLES if topic.has_examples else _BY_KEYWORDS
        self._said: dict[LinkText, Said] = {}
        words = topic.words
        self._anchors = _Texts(topic, words, "anchor")
        self._paths = _Texts(topic, topic.url_words, "url")
        self._headings = _Texts(topic, words, "heading")
        self._sign = topic.sign
        self._around = WordPlaces("around", BITS)
        self._begin()

    def _begin(self) -> None:
        """Know nothing."""
        self._tables = [WordWeights() for _ in range(LEVELS + 1)]
        self._bias = 0.0
        self._trust = 1.0
        self._slopes = self._guess.inertia
        self._examples: dict[bytes, _Example] = {}
        self._order: list[_Example] = []
        self.n_learned = 0
        self._version = 0
        self._due = FIRST

    # -- values

    def values(self, page: PageSeen, links: Sequence[LinkText]) -> list[float]:
        return self.values_of(page, self.read(links))

    def values_of(self, page: PageSeen, read: Sequence[Said]) -> list[float]:
        """The value, 0 to 1, of each link of *page* of which this was *read*."""
        log_odds, grade = self._guess.log_odds, page.grade
        # Few are different, as most links say nothing of the topic.
        priors = {fits: log_odds(*fits, grade) for fits in {fits for _, fits in read}}
        return self._values([(places, priors[fits]) for places, fits in read], self._where(grade, page.key))

    def revalue(self, parent_grade: float, link: LinkText, parent: bytes = b"") -> float | None:
        return self._value(parent_grade, self.read([link])[0], parent)

    def revalue_memo(self, parent_grade: float, memo: bytes, parent: bytes = b"") -> float | None:
        """As :meth:`revalue`, for a link with this *memo*; ``None`` if that is of another strategy."""
        said = self._remembered(memo)
        return self._value(parent_grade, said, parent) if said is not None else None

    def _value(self, grade: float, said: Said, page: bytes) -> float:
        """The value of a link, read as *said*, on the page with the key *page* and this *grade*."""
        places, fits = said
        return self._values([(places, self._guess.log_odds(*fits, grade))], self._where(grade, page))[0]

    @property
    def version(self) -> int:
        return self._version

    def _values(self, links: Iterable[tuple[Sequence[int], float]], where: Where) -> list[float]:
        """Probability that each of *links*, of one page, leads to a relevant page: by its words' places and a first guess."""
        level, host = where
        weights = self._tables[0].values
        weight_of, weight_on = weights.__getitem__, self._tables[level].values.__getitem__
        of_host = _HOST_WEIGHT * weights[host]
        bias, trust = self._bias, self._trust
        root = math.sqrt
        values = []
        for places, prior in links:
            x = of_host + sum(map(weight_of, places)) + sum(map(weight_on, places))
            values.append(logistic(bias + trust * prior + x / root(2 * len(places) + _HOST_WEIGHT)))
        return values

    def _where(self, grade: float, page: bytes) -> Where:
        """Features of the page with the key *page* and this *grade*."""
        return Where(min(int(grade * LEVELS), LEVELS - 1) + 1, crc32(page[:HOST_BYTES]) & _LAST)

    # -- what links say

    def read(self, links: Sequence[LinkText]) -> list[Said]:
        """Turn *links* into numbers; the latest texts are remembered."""
        found = list(map(self._said.get, links))
        new = {number: bounded(links[number]) for number, said in enumerate(found) if said is None}
        if len(self._said) + len(new) > _CACHE:
            self._said.clear()
        all_around = self.topic.all_words([text.around for text in new.values()])
        for (number, text), around in zip(new.items(), all_around, strict=True):
            found[number] = self._said[links[number]] = self._said_by(text, around)
        return cast("list[Said]", found)

    def _said_by(self, link: LinkText, around: list[str]) -> Said:
        """Turn *link* with the words *around* it into numbers."""
        anchor, _, heading, path = link
        words, of_anchor, _ = self._anchors[anchor]
        of_around = set(map(self._around.__getitem__, around))
        places = [*of_anchor, *self._paths[path][1], *of_around, *self._headings[heading][1]]
        return places, self._fits(words, path, around)

    def read_page(self, said: PageWords, paths: Sequence[str]) -> list[Said]:
        """Read links with these *paths* from the words of their page in *said*, which is faster than from their texts."""
        words, links, titles = said
        of_around = list(map(self._around.__getitem__, words))
        place_of_anchor, place_of_heading = (
            self._anchors.places.__getitem__,
            self._headings.places.__getitem__,
        )
        may_fit = self.topic.fits_by(words)
        headings: dict[tuple[int, int], list[int]] = {}
        read: list[Said] = []
        for number, (before, begin, end, behind, above, below) in enumerate(links):
            own = words[begin : min(end, begin + ANCHOR_WORDS)]
            if number in titles:
                own = [*self.topic.words(titles[number]), *own][:ANCHOR_WORDS]
            of_heading = headings.get((above, below))
            if of_heading is None:
                of_heading = list(
                    set(map(place_of_heading, words[above : min(below, above + HEADING_WORDS)]))
                )
                headings[above, below] = of_heading
            path = paths[number]
            _, of_path, fit = self._paths[path]
            places = [
                *set(map(place_of_anchor, own)),
                *of_path,
                *{*of_around[before:begin], *of_around[end:behind]},
                *of_heading,
            ]
            fits = (fit, fit)
            if may_fit or number in titles:
                fits = self._fits(own, path, words[before:begin] + words[end:behind])
            read.append((places, fits))
        return read

    def _fits(self, words: list[str], path: str, around: list[str]) -> Fits:
        """How well a link with this *path*, with *words* in its text and words *around* it, matches the topic."""
        of_path, _, fit_of_path = self._paths[path]
        fit = self.topic.fit
        if self.topic.is_by_keywords:
            own = max(fit(words), fit_of_path)
            return own, max(own, fit(around))
        words = words + of_path
        own = fit(words)
        return own, fit(words + around) if around else own

    def memo(self, read: Said) -> bytes:
        """A link, as *read*, in at most :data:`.strategy.MOST_OF_MEMO` bytes."""
        places, fits = read
        return _MEMO.pack(self._sign, *fits) + array("H", places[:MOST_PLACES]).tobytes()

    def _remembered(self, memo: bytes) -> Said | None:
        """The link that *memo* was made of, as numbers; ``None`` if this strategy did not make it.

        A memo for another topic, which the job had before, does not tell how well the link matches this one.
        """
        if len(memo) < _MEMO.size or len(memo) % 2:
            return None
        sign, own, together = _MEMO.unpack_from(memo)
        if not (0.0 <= own <= 1.0 and 0.0 <= together <= 1.0):
            return None
        fits = (own, together) if sign == self._sign else (0.0, 0.0)
        return array("H", memo[_MEMO.size :]), fits

    # -- learning

    def learn(self, page: PageSeen) -> None:
        said = self._remembered(page.memo) if page.memo else None
        if said is None:
            if page.link is None:
                return
            said = self.read([page.link])[0]
        places, fits = said
        # A duplicate is worth nothing.
        worth = self._worth(page.grade) if page.is_relevant or page.grade < RELEVANT else 0.0
        prior = self._guess.log_odds(*fits, page.parent_grade)
        where = self._where(page.parent_grade, page.parent)
        self._add(page.key, _Example(array("H", places), where, prior, worth, page.parent))
        error = self._hand_back(page.key)
        for _ in range(STEPS if abs(error) >= WRONG else 0):
            self._step(self._order[self._chance.randrange(len(self._order))])
        if self.n_learned >= self._due:
            self._version += 1
            self._due = self.n_learned + _until(self.n_learned)

    def _worth(self, grade: float) -> float:
        """Worth of a page with this *grade*, 0 to 1."""
        return grade * grade if self.has_examples else grade

    def _add(self, key: bytes, example: _Example) -> None:
        if len(self._order) < REPLAY:
            self._order.append(example)
        else:
            self._order[self.n_learned % REPLAY] = example
        self._examples[key] = example
        if len(self._examples) > REPLAY:
            del self._examples[next(iter(self._examples))]
        self.n_learned += 1

    def _hand_back(self, key: bytes) -> float:
        """Learn from the page under *key*, and from those on the way to it that are worth more now; how wrong its value was."""
        example = self._examples[key]
        error = self._step(example)
        for _ in range(BACK - 1):
            worth = DISCOUNT * example.worth
            before = self._examples.get(example.parent)
            if before is None or before.worth >= worth:
                break
            example = before
            example.worth = worth
            self._step(example)
        return error

    def _step(self, example: _Example) -> float:
        """One step towards what *example* is worth; how much too large its value was."""
        places, (level, host) = example.places, example.where
        (value,) = self._values([(places, example.prior)], example.where)
        error = value - example.worth
        if abs(error) >= WRONG:
            slope = error / math.sqrt(2 * len(places) + _HOST_WEIGHT)
            self._tables[0].descend(places, slope)
            self._tables[level].descend(places, slope)
            self._tables[0].descend((host,) * _HOST_WEIGHT, slope)
        self._bias -= 0.05 * error
        slope = error * example.prior
        self._slopes += slope * slope
        self._trust -= 0.1 * slope / math.sqrt(self._slopes)
        return error

    # -- what is kept with the job

    def pack(self) -> bytes:
        examples = [(key, example) for key, example in self._examples.items() if len(key) == PAGE_BYTES]
        n, n_tables = len(examples), len(self._tables)
        numbers = (self._bias, self._trust, self._slopes, self.n_learned, self._version)
        parts = [_HEAD.pack(_MAGIC, BITS, *numbers, n, n_tables), *[table.pack() for table in self._tables]]
        for key, example in examples:
            parts += (
                _EXAMPLE.pack(
                    key,
                    example.parent.ljust(PAGE_BYTES, b"\0"),
                    example.prior,
                    example.worth,
                    *example.where,
                    len(example.places),
                ),
                example.places.tobytes(),
            )
        return b"".join(parts)

    def restore(self, data: bytes) -> None:
        try:
            self._restore(memoryview(data))
        except (struct.error, ValueError):
            self._begin()
            raise StorageError("what it has learned is damaged") from None

    def _restore(self, data: memoryview) -> None:
        magic, bits, self._bias, self._trust, self._slopes, self.n_learned, self._version, n, n_tables = (
            _HEAD.unpack_from(data)
        )
        if magic != _MAGIC or bits != BITS or n_tables != len(self._tables):
            raise ValueError("it is of another version")
        if not all(map(math.isfinite, (self._bias, self._trust, self._slopes))) or self._slopes <= 0:
            raise ValueError("its numbers cannot be right")
        data = data[_HEAD.size :]
        for number in range(n_tables):
            self._tables[number], data = WordWeights.unpack(data)
        at = 0
        if n > REPLAY:
            raise ValueError("it has too many examples")
        for _ in range(n):
            key, parent, prior, worth, level, host, n_places = _EXAMPLE.unpack_from(data, at)
            at += _EXAMPLE.size
            places = array("H", bytes(data[at : at + 2 * n_places]))
            at += 2 * n_places
            if (
                len(places) != n_places
                or not (math.isfinite(prior) and 0.0 <= worth <= 1.0)
                or not 1 <= level <= LEVELS
                or not 0 <= host <= _LAST
            ):
                raise ValueError("its examples cannot be right")
            self._examples[key] = _Example(places, Where(level, host), prior, worth, parent)
        if at != len(data):
            raise ValueError("it has another length than it says")
        self._order = list(self._examples.values())
        self.n_learned = max(self.n_learned, n)
        self._due = self.n_learned + _until(self.n_learned)


def _until(n: int) -> int:
    """Examples after the *n*-th until waiting links are valued again."""
    return min(max(int(n * (GROWTH - 1.0)), FIRST), _OFTENEST)
