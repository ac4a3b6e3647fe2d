"""What counts as unchanged on real pages, by each of what AOPIC_RECRAWL can compare.

    python benchmarks unchanged DIR [--pages 200] [--rng 1]      # DIR has HTML files, at any depth

Of each page a second version is made by one edit, and compared with the first as a revisit does it, by bytes, text, main text, and
a function of a spider, which gives the headings. Pages without a main text of 200 characters are left out.

* ``the same`` is no edit; ``tags``: a comment, and classes of other names; ``advertisement``: another one, in a box beside the
  text; ``date``: that of today, and how long the page took, in the footer; ``counter``: visitors, in the footer; ``menu``: one more
  entry; ``related``: other pages that may be of interest, below the text; ``inside``: an advertisement that is a paragraph within
  the text; ``updated``: a line with time and views above the text, which says what it is by nothing but its words;
* ``sentence``: one more in the longest paragraph; ``word``: another one there; ``heading``: the last one has another word.

All but the last three leave what a reader is after.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import options
from lxml import html  # type: ignore[import-untyped]
from scrapy import Spider
from scrapy.http import HtmlResponse, Response

from scrapy_aopic.session.compared import compared_by


class Headings(Spider):
    """A spider that says what counts: the headings."""

    name = "headings"

    def headings(self, response: Response) -> list[str]:
        return response.xpath("//h1//text() | //h2//text() | //h3//text()").getall()


def _tags(root: Any, n: int) -> None:
    root.body.append(html.HtmlComment(f" built {n} "))
    for each in root.xpath("//*[@class]"):
        each.set("class", f"{each.get('class')} v{n}")


def _advertisement(root: Any, n: int) -> None:
    root.body.insert(
        0, _element(f'<aside class="ad"><a href="/offer/{n}">Buy {n} lamps today, and save half.</a></aside>')
    )


def _date(root: Any, n: int) -> None:
    root.body.append(_element(f"<footer><p>2026-11-{n % 30 + 1:02}, made in 0.{n} s</p></footer>"))


def _counter(root: Any, n: int) -> None:
    root.body.append(_element(f'<footer><p>You are visitor number <span id="count">{n}</span>.</p></footer>'))


def _menu(root: Any, n: int) -> None:
    entries = "".join(f'<li><a href="/{at}">Section {at}</a></li>' for at in (1, 2, n))
    root.body.insert(0, _element(f"<nav><ul>{entries}</ul></nav>"))


def _related(root: Any, n: int) -> None:
    links = "".join(
        f'<li><a href="/story/{at}">Another story, number {at}</a></li>' for at in range(n, n + 4)
    )
    root.body.append(_element(f'<div class="related"><h4>You may also like</h4><ul>{links}</ul></div>'))


def _inside(root: Any, n: int) -> None:
    _longest(root).addnext(
        _element(f"<div><p>Buy {n} lamps today at the shop, and save half of the price.</p></div>")
    )


def _updated(root: Any, n: int) -> None:
    root.body.insert(0, _element(f"<p>Last updated today at 10:{n}, read {n},318 times</p>"))


def _sentence(root: Any, n: int) -> None:
    paragraph = _longest(root)
    paragraph.text = f"This sentence is number {n} of those that were added. {paragraph.text or ''}"


def _word(root: Any, n: int) -> None:
    paragraph = _longest(root)
    words = (paragraph.text or "").split()
    words[len(words) // 2 : len(words) // 2 + 1] = [f"word{n}"]
    paragraph.text = " ".join(words)


def _heading(root: Any, n: int) -> None:
    headings = root.xpath("//h1 | //h2 | //h3")
    (headings[-1] if headings else _longest(root)).text = f"Another heading {n}"


def _longest(root: Any) -> Any:
    """The paragraph with the most text of its own."""
    return max(root.xpath("//p"), key=lambda each: len(each.text or ""))


def _element(text: str) -> Any:
    return html.fragment_fromstring(text)


EDITS: dict[str, Callable[[Any, int], None]] = {
    "the same": lambda root, n: None,
    "tags": _tags,
    "advertisement": _advertisement,
    "date": _date,
    "counter": _counter,
    "menu": _menu,
    "related": _related,
    "inside": _inside,
    "updated": _updated,
    "sentence": _sentence,
    "word": _word,
    "heading": _heading,
}

WAYS = {"bytes": "", "text": "text", "main text": "main text", "headings": "spider.headings"}


def version(page: bytes, edit: str, n: int) -> HtmlResponse:
    """The *page* with the *n*-th form of an *edit*."""
    root = html.document_fromstring(page)
    EDITS[edit](root, n)
    return HtmlResponse(
        "http://a.test/dir/page.html", body=html.tostring(root, encoding="utf-8"), encoding="utf-8"
    )


def main() -> None:
    args = options.read(__doc__, "folder", Path, pages=200, rng=1)
    dice = random.Random(args.rng)
    files = sorted(path for path in args.folder.rglob("*.*htm*") if path.is_file())
    dice.shuffle(files)
    by = {
        name: compared_by(way, Headings()) or (lambda response: response.body) for name, way in WAYS.items()
    }
    same = {edit: dict.fromkeys(WAYS, 0) for edit in EDITS}
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    sizes: list[int] = []

    def digests(response: HtmlResponse) -> dict[str, bytes]:
        found = {}
        for name, function in by.items():
            began = time.process_time()
            value = function(response)
            taken[name].append(time.process_time() - began)
            data = value if isinstance(value, bytes) else f"{value}".encode()
            found[name] = blake2b(data, digest_size=8).digest()
        return found

    for path in files:
        page = path.read_bytes()
        try:
            root = html.document_fromstring(page)
            is_wanted = bool(root.xpath("//p[string-length(text()) > 40]")) and root.body is not None
        except (ValueError, html.etree.ParserError):
            continue
        first = version(page, "the same", 1) if is_wanted else None
        if first is None or len(f"{by['main text'](first)}") < 200:
            continue
        sizes.append(len(page))
        for edit in EDITS:
            one, two = digests(version(page, edit, 17)), digests(version(page, edit, 18))
            for name in WAYS:
                same[edit][name] += one[name] == two[name]
        if len(sizes) == args.pages:
            break
    print(f"{len(sizes)} pages of {statistics.median(sizes) / 1000:.0f} kB in the median\n")
    print(f"| compared | {' | '.join(EDITS)} | ms a page |\n|---|{'---:|' * (len(EDITS) + 1)}")
    for name in WAYS:
        parts = " | ".join(f"{same[edit][name] / len(sizes):.2f}" for edit in EDITS)
        print(f"| {name} | {parts} | {1000 * statistics.mean(taken[name]):.2f} |")


if __name__ == "__main__":
    main()
