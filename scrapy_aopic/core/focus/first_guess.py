"""The first guess of what a link is worth, from the topic and the grade of its page alone: all there is before anything was learned.

How well a link fits is a number if the topic was given by examples, and yes or no if by keywords; and one of a few keywords
stands somewhere around many links, whatever they lead to. So there are two guesses, of the same form.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class FirstGuess(NamedTuple):
    """Weights of the parts of a guess.

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


BY_EXAMPLES = FirstGuess(text=0.3, around=0.3, page=0.4, quoted=0.0, least=0.001, inertia=1.0)
"""For topics by examples. Around most links there is either something of the topic or nothing, so the text around says more
together with the link's own than alone: from a portal that quotes the first lines of sites, the right ones are entered
sooner."""

BY_KEYWORDS = FirstGuess(text=0.2, around=0.0, page=0.8, quoted=0.24, least=0.05, inertia=300.0)
"""Keywords judge a page better than a link: with the weights for examples, a word somewhere around a link on an irrelevant page was
worth as much as a link on a relevant page, and a crawl of some hundred pages was over before it had learned better.

Most pages have none of them, and the grade 0. A guess of 0.001 for their links is so wrong about each that leads to a page with one
of them that after a hundred pages the guess was trusted a third as much: so it is kept further from 0, and its weight is slow."""
