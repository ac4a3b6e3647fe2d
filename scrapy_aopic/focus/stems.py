"""What the forms of a keyword begin with, whatever its language: by the stemmers of Snowball."""

from __future__ import annotations

from scrapy_aopic.core.focus.keywords import LEAST

_LATIN = (
    "english", "german", "french", "spanish", "italian", "portuguese", "dutch", "swedish", "finnish", "polish", "czech",
    "hungarian", "romanian", "turkish",
)  # fmt: skip
"""They share a script, and a few keywords hardly tell them apart: so two of them have to agree that a word has an ending."""

_OTHERS = ("russian", "greek", "arabic", "hindi")
"""Each leaves words of other scripts as they are."""

_LEAST_PART = 0.6
"""Part of a word that a stem keeps, or it is of another language."""


def stem(word: str) -> str:
    """The letters that the forms of *word* have in common at their beginning."""
    from snowballstemmer import stemmer  # type: ignore[import-untyped]  # noqa: PLC0415  # takes 60 ms

    def begins(languages: tuple[str, ...]) -> list[str]:
        found = [_common(word, stemmer(language).stemWord(word)) for language in languages]
        return sorted(
            [begin for begin in found if len(begin) >= max(LEAST, _LEAST_PART * len(word))], key=len
        )

    others, latin = begins(_OTHERS), begins(_LATIN)
    # The Portuguese one leaves the first half of -ção and -ções.
    return min([word, *others[:1], *latin[1:2]], key=len).rstrip("ãõ")


def _common(word: str, other: str) -> str:
    """What both begin with."""
    n = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(other))
    return word[:n]
