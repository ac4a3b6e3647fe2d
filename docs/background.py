"""Make scrapy_aopic/focus/background.bin of saved pages, one in each file, of the open web.

    python docs/background.py FOLDER

The pages are of the test collections of Mozilla's readability and of trafilatura: half in English, the others in a dozen
languages. Of each word only the place and the number of pages that have it is kept.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from zlib import compress

from scrapy_aopic.core.focus.words import word_place, words
from scrapy_aopic.focus.background import ENTRY, FILE, PAGES
from scrapy_aopic.focus.folders import read_folder

MOST_WORDS = 2_000

pages = read_folder(Path(sys.argv[1]))
chance = random.Random(0)  # noqa: S311 - to be repeated
counts = Counter(
    place
    for page in chance.sample(pages, PAGES)
    for place in {word_place("page", word) for word in words(page.text)}
)
commonest = sorted(sorted(counts, key=lambda place: (-counts[place], place))[:MOST_WORDS])
FILE.write_bytes(compress(b"".join(ENTRY.pack(place, counts[place]) for place in commonest), 9))
