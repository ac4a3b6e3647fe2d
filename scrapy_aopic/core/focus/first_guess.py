"""The first guess of what a link is worth, from the topic and the grade of its page alone: all there is before anything was learned.

How well a link fits is a number if the topic was given by examples, and yes or no if by keywords; and one of a few keywords
stands somewhere around many links, whatever they lead to. So there are two guesses, of the same form.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_LEAST = 0.001
"""Guesses are kept this far from 0 and 1, where the log odds end."""


class Hints(NamedTuple):
    """What a link says for itself.

    Attributes:
        beside: What counts beside the grade of its page.
        instead: What counts in its place, if that is more.
    """

    beside: float
    instead: float


class FirstGuess(NamedTuple):
    """How much each part counts.

    Attributes:
        text: How well the link's text and URL fit.
        around: How well these do together with what stands around the link.
        page: The grade of its page.
        quoted: How well it fits with what stands around it, instead of the grade: what a page quotes of another one is worth
            something if the page itself is not relevant, and else nothing, as then nearly all of its text fits.
    """

    text: float
    around: float
    page: float
    quoted: float

    def hints(self, text: float, around: float) -> Hints:
        """What a link says whose text fits so well, and so well together with what stands around it."""
        return Hints(self.text * text + self.around * around, self.quoted * around)

    def log_odds(self, hints: Hints, grade: float) -> float:
        """The guess for a link with these *hints* on a page with this *grade*, as log odds."""
        guess = hints.beside + max(hints.instead, self.page * grade)
        part = min(max(guess, _LEAST), 1.0 - _LEAST)
        return math.log(part / (1.0 - part))


BY_EXAMPLES = FirstGuess(text=0.3, around=0.3, page=0.4, quoted=0.0)
"""Around most links stands something of the topic or nothing, so it says more with the text than by itself: from a portal that
quotes the beginnings of sites, the right ones are entered sooner."""

BY_KEYWORDS = FirstGuess(text=0.2, around=0.0, page=0.8, quoted=0.24)
"""Keywords judge a page better than a link: with the weights for examples, a word somewhere around a link on an irrelevant page was
worth as much as a link on a relevant page, and a crawl of some hundred pages was over before it had learned better."""
