"""Text of strangers as it may be shown: a terminal, a log and a page obey some characters instead of showing them."""

from __future__ import annotations


def printable(text: str, instead: str = " ") -> str:
    """*text* with *instead* of control characters, surrogates, marks of direction and whatever else has no picture."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else instead for each in text])
