"""The first guess of what a link is worth, from the topic and the grade of its page alone: all there is before anything was learned.

How well a link fits is a number if the topic was given by examples, and yes or no if by keywords; and one of a few keywords
stands somewhere around many links, whatever they lead to. So there are two guesses, of the same form.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class FirstGuess(NamedTuple):
    """How much each part counts.

    Attributes:
        text: How well the link's text and URL fit.
        around: How well these do together with what stands around the link.
        page: The grade of its page.
        quoted: How well it fits with what stands around it, instead of the grade: what a page quotes of another one is worth
            something if the page itself is not relevant, and else nothing, as then nearly all of its text fits.
        least: How far from 0 and 1 a guess is kept, where the log odds end.
        inertia: How slowly the guess is trusted less, or more: the sum of squared slopes that its weight begins with.
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
            own: How well the link's text and URL fit.
            together: How well these do together with what stands around it.
        """
        guess = self.text * own + self.around * together + max(self.quoted * together, self.page * grade)
        part = min(max(guess, self.least), 1.0 - self.least)
        return math.log(part / (1.0 - part))


BY_EXAMPLES = FirstGuess(text=0.3, around=0.3, page=0.4, quoted=0.0, least=0.001, inertia=1.0)
"""Around most links stands something of the topic or nothing, so it says more with the text than by itself: from a portal that
quotes the beginnings of sites, the right ones are entered sooner."""

BY_KEYWORDS = FirstGuess(text=0.2, around=0.0, page=0.8, quoted=0.24, least=0.05, inertia=300.0)
"""Keywords judge a page better than a link: with the weights for examples, a word somewhere around a link on an irrelevant page was
worth as much as a link on a relevant page, and a crawl of some hundred pages was over before it had learned better.

Most pages have none of them, and the grade 0. A guess of 0.001 for their links is so wrong about each that leads to a page with one
of them that after a hundred pages the guess was trusted a third as much: so it is kept further from 0, and its weight is slow."""
