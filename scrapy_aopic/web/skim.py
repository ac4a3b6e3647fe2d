"""Finds the text, the links and the data of a page of HTML in its bytes, without a parser.

A parser takes twice as long, most of it for a tree that nothing else needs if no link of the page is followed. The result
serves to compare pages with each other, so it need not be what a browser finds, but:

1. The same bytes give the same result; pages that differ only in white space, comments, tags and attributes have one text.
2. No link is overlooked, whatever is around it: pages with the same words may differ in a single link.
3. It takes time linear in the bytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_SPECIAL = 10_000
"""Comments, scripts, styles, templates, forms, frames and elements of the head of a page that are looked at by themselves, which
takes 5 ms; further ones are taken for what is shown."""

# These are looked for in lower case; most tags are ruled out by their first letter.
_SPECIAL = re.compile(rb"<(?=[!stlfi])(?:!--|(script|style|template|link|form|i?frame)(?=[\s/>]))")
_ENDS = {name: re.compile(rb"</" + name + rb"(?=[\s/>])") for name in (b"script", b"style", b"template")}
_TAG = re.compile(rb"<[a-z/!?][^<>]*>")
_NEIGHBOUR = re.compile(rb"\srel\s*=\s*[\"']?(?:next|prev)[\"'\s/>]")

# And these in the page as it is.

_VALUE = rb"\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s<>\"']+)"
_HREF = re.compile(rb"href" + _VALUE)
_HREF_OF_ANY_CASE = re.compile(rb"href" + _VALUE, re.IGNORECASE)  # takes four times as long
_ADDRESS = re.compile(rb"(?:[^<>\"']|\"[^\"]*\"|'[^']*')*?\b(?:action|src)" + _VALUE, re.IGNORECASE)

# Scripts that are data: JSON by their type, or the state that a page begins with (Next.js, Nuxt, Redux, ...).
_STATE = re.compile(
    rb"\s*(?:(?:window|self|globalThis|var|let|const)\b[^=;(){}]{1,100}=\s*(?:[{\[(]|JSON\.parse|function)"
    rb"|\(?self\.__next_f\b)"
)


class Skimmed(NamedTuple):
    """The text, links and data of a page, as they stand there.

    Attributes:
        text: The page without tags, comments, scripts, styles and templates, with ASCII letters in lower case; white space
            is left as it is.
        links: Values, with their quotes, of ``href`` in any element but a ``link`` that is neither ``rel="next"`` nor ``"prev"``,
            of ``action`` in forms, and of ``src`` in frames.
        data: Scripts that hold data.
    """

    text: bytes
    links: list[bytes]
    data: list[bytes]


def skim(html: bytes) -> Skimmed:
    """Skim *html*, of which at most :data:`MAX_SPECIAL` elements are looked at by themselves."""
    shown: list[bytes] = []
    links: list[bytes] = []
    data: list[bytes] = []
    # What comes from *at* on is shown, as far as nothing is found from *begin* on that hides it.
    at = begin = 0
    has_end = True  # whether there may be one of a comment
    lower = html.lower()
    for _ in range(MAX_SPECIAL):
        if (found := _SPECIAL.search(lower, begin)) is None:
            break
        begin = found.end()
        name = found[1]
        if name is None:
            end = html.find(b"-->", begin) if has_end else -1
            if end < 0:
                has_end = False
                continue
            end += 3
        elif name in _ENDS:
            closing = _ENDS[name].search(lower, begin)
            end = len(html) if closing is None else closing.start()
            if name == b"script":
                tag, _, content = html[begin:end].partition(b">")
                if content and (b"json" in tag.lower() or _STATE.match(content)):
                    data.append(content)
        elif name == b"link":
            end = html.find(b">", begin) + 1 or len(html)
            if _NEIGHBOUR.search(lower, begin, end):
                continue
        else:
            address = _ADDRESS.match(html, begin)
            if address is not None:
                links.append(address[1])
            continue
        shown.append(html[at : found.start()])
        at = begin = end
    shown.append(html[at:])
    rest = b" ".join(shown)
    lower = rest.lower()
    href = _HREF if rest.count(b"href") == lower.count(b"href") else _HREF_OF_ANY_CASE
    return Skimmed(b" ".join(_TAG.split(lower)), links + href.findall(rest), data)
