"""How well and how fast pages with the same text are told, on a folder of HTML pages.

python benchmarks/content.py FOLDER

Prints the processor time a page takes, how alike the pairs of different pages are that are taken for nearly the same,
and what part of slightly changed pages is; beside it the same by SimHash on the same runs of words. The figures in
docs/content.md are those of twelve packages of Debian's documentation.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from time import process_time

from scrapy.http import HtmlResponse

from scrapy_aopic.core.duplicates import ALIKE, alike, sketch
from scrapy_aopic.web.page_text import MIN_TEXT, read_canonical, read_text, skim

SIMHASH_BITS = 3
CHANGES = ("date", 0.0, 0.005, 0.01, 0.02, 0.05)  # parts of the words; 0 for one word


def runs(words: list[bytes]) -> set[bytes]:
    return {b" ".join(words[at : at + 3]) for at in range(len(words) - 2)}


def simhash(words: list[bytes]) -> int:
    """64 bits, each that of most runs."""
    hashes = [int.from_bytes(blake2b(run, digest_size=8).digest(), "big") for run in runs(words)]
    return sum(1 << bit for bit in range(64) if 2 * sum(each >> bit & 1 for each in hashes) > len(hashes))


def changed(words: list[bytes], change: str | float, dice: random.Random) -> list[bytes]:
    if change == "date":
        return [
            *words,
            *f"on 2026-11-{dice.randrange(1, 30)} at {dice.randrange(24)}:{dice.randrange(60)}".encode().split(),
        ]
    result = list(words)
    for place in dice.sample(range(len(words)), max(1, int(len(words) * float(change)))):
        result[place] = f"changed{dice.randrange(10**6)}".encode()
    return result


def timed(pages: list[HtmlResponse], read: Callable[[HtmlResponse], object]) -> float:
    """Milliseconds a page."""
    begin = process_time()
    for page in pages:
        read(page)
    return (process_time() - begin) / len(pages) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args().folder
    html = {"Content-Type": "text/html; charset=utf-8"}
    pages = [HtmlResponse("http://a.test/", headers=html, body=path.read_bytes())
             for path in sorted(folder.rglob("*.htm*")) if path.is_file()]  # fmt: skip
    print(f"{len(pages)} pages, {sum(len(page.body) for page in pages) / len(pages):,.0f} bytes each")
    print(f"  parse            {timed(pages, lambda page: page.selector):.2f} ms")
    print(f"  exact            {timed(pages, read_text):.2f} ms")
    print(f"  near             {timed(pages, lambda page: read_text(page, has_sketch=True)):.2f} ms")
    print(f"  rel=canonical    {timed(pages, read_canonical):.2f} ms")

    texts = sorted({b" ".join(skim(page.body).text.split()) for page in pages})
    words = [text.split() for text in texts if len(text) >= MIN_TEXT]
    sketches, hashes = [sketch(each) for each in words], [simhash(each) for each in words]
    bands: dict[bytes, list[int]] = {}
    for number, each in enumerate(sketches):
        for at in range(0, len(each), 8):
            bands.setdefault(bytes((at,)) + each[at : at + 8], []).append(number)
    pairs = {pair for numbers in bands.values() for pair in combinations(numbers, 2)}
    by_sketch = [pair for pair in pairs if alike(sketches[pair[0]], sketches[pair[1]]) >= ALIKE]
    by_simhash = [pair for pair in combinations(range(len(words)), 2)
                  if (hashes[pair[0]] ^ hashes[pair[1]]).bit_count() <= SIMHASH_BITS]  # fmt: skip
    print(
        f"{len(words)} different texts, {len(list(filter(None, sketches)))} with a sketch; pairs by resemblance:"
    )
    for name, some in (("sketches", by_sketch), ("SimHash", by_simhash)):
        shared = [(runs(words[one]), runs(words[two])) for one, two in some]
        print(f"  {name:16} {sorted(round(len(one & two) / len(one | two), 2) for one, two in shared)}")

    dice = random.Random(1)
    with_sketch = [number for number, each in enumerate(sketches) if each]
    sample = dice.sample(with_sketch, min(1000, len(with_sketch)))
    print("changed pages that are found, by sketches and by SimHash:")
    for change in CHANGES:
        variants = [(number, changed(words[number], change, dice)) for number in sample]
        hits = sum(alike(sketch(text), sketches[number]) >= ALIKE for number, text in variants)
        others = sum(
            (simhash(text) ^ hashes[number]).bit_count() <= SIMHASH_BITS for number, text in variants
        )
        print(f"  {change!s:16} {hits / len(sample):.1%} {others / len(sample):.1%}")


if __name__ == "__main__":
    main()
