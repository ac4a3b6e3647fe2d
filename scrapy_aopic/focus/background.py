"""Pages of the open web that are relevant to hardly any topic: they stand beside the other pages that a user gives, or alone.

What is kept is in how many of 90 pages each of their commonest words is, as places, and no text: docs/background.py makes it.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32, decompress

if TYPE_CHECKING:
    from scrapy_aopic.core.focus.words import Features

PAGES = 90
"""Pages that were counted, and that are made of the counts."""

ENTRY = struct.Struct("<IB")
"""Place of a word, and the number of pages that have it."""

FILE = Path(__file__).with_name("background.bin")


@cache
def background() -> list[Features]:
    """Features of :data:`PAGES` pages that have the counted words as often, in no other connection; always the same."""
    counts = list(ENTRY.iter_unpack(decompress(FILE.read_bytes())))
    pages = []
    for number in range(PAGES):
        found = [place for place, n in counts if crc32(b"%d %d" % (number, place)) * PAGES < n << 32]
        pages.append(dict.fromkeys(found, 1.0 / math.sqrt(len(found) or 1)))
    return pages
