"""Whether our extractors find what Scrapy's finds on real pages, and what each of them costs.

    python benchmarks/links.py FOLDER [--pages 10000] [--seed 1] [--selectolax]

FOLDER has saved web pages, at any depth; pages are drawn from it at random. Each is read as if it had come from
``http://NAME.test/PATH``, with NAME the folder's first level, without a header that says its encoding. For each set of
options Scrapy's LinkExtractor, ours, and the URLs of ``Links`` are compared, link by link: URL, text, fragment, nofollow.
Each difference is printed.

Then the CPU time of the three is measured on the same trees by turns, page by page, for all options' default; beside it the time
that the tree takes. Ratios are those of sums; behind them the lowest and the highest of ten parts of the pages. With
``--selectolax`` (``pip install selectolax``) also that of finding links with lexbor, for which no tree is needed.

Exit status: 0 if nothing differs, 1 if something does.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import process_time_ns
from typing import Any
from urllib.parse import quote

from scrapy.http import HtmlResponse
from scrapy.linkextractors import LinkExtractor as ScrapyLinkExtractor
from scrapy.utils.response import get_base_url

from scrapy_aopic import LinkExtractor, Links
from scrapy_aopic.web.link_extraction import LinkJoiner

OPTIONS: dict[str, dict[str, Any]] = {
    "no options": {},
    "regions": {"restrict_css": ["p", "div a"], "restrict_xpaths": "//td"},
    "text": {"restrict_text": r"[A-Z]", "restrict_css": "div"},
    "domains": {"deny_domains": ["debian.org", "org"], "deny_extensions": ["html"]},
    "all elements": {"tags": ["a", "area", "img", "link", "frame", "iframe"], "attrs": ["href", "src"]},
    "every link": {"unique": False, "deny_extensions": []},
}
PARTS = 10
A_PAGE_OF_40 = range(30, 51)
SMALLEST = 200
"""Bytes; what is smaller says only where a page is."""


def response(path: Path, folder: Path) -> HtmlResponse:
    site, *rest = path.relative_to(folder).parts
    return HtmlResponse(f"http://{quote(site.lower())}.test/{quote('/'.join(rest))}", body=path.read_bytes())


# -- what they find


def differences(page: HtmlResponse) -> list[str]:
    found = []
    for name, options in OPTIONS.items():
        try:
            expected: Any = ScrapyLinkExtractor(**options).extract_links(page)
        except Exception as error:  # noqa: BLE001  # it is to be compared, whatever it is
            expected = repr(error)
        ours = LinkExtractor(**options).extract_links(page)
        if ours != expected:
            pairs = zip(expected, ours, strict=False) if isinstance(expected, list) else ()
            first = next(((one, other) for one, other in pairs if one != other), (expected, ours))
            found.append(f"{page.url}, {name}: Scrapy's {first[0]!r:.300}, ours {first[1]!r:.300}")
            continue
        if "unique" in options:
            continue
        given = {
            key.replace("restrict_css", "css").replace("restrict_xpaths", "xpath"): value
            for key, value in options.items()
        }
        urls = [link.url for link in expected]
        if (got := list(Links(page, **given).urls())) != urls:
            found.append(f"{page.url}, {name}: Links has {set(got) ^ set(urls)}")
        wanted = [link.url for link in expected if not link.nofollow]
        if (got := list(Links(page, **given, nofollow=False).urls())) != wanted:
            found.append(f"{page.url}, {name}, nofollow=False: Links has {set(got) ^ set(wanted)}")
    return found


# -- what they cost


def lexbor() -> Callable[[HtmlResponse], list[str]]:
    """Links found with lexbor's parser, joined as ours are, without filters; the page needs no tree of lxml."""
    from selectolax.lexbor import LexborHTMLParser  # optional

    def find(page: HtmlResponse) -> list[str]:
        joiner = LinkJoiner(page.url, get_base_url(page), page.encoding)
        links = [
            node.attributes.get("href") for node in LexborHTMLParser(page.text).css("a[href], area[href]")
        ]
        return list(dict.fromkeys(url for link in links if (url := joiner.join(link or "")) is not None))

    return find


def measure(
    pages: list[HtmlResponse], ways: dict[str, Callable[[HtmlResponse], Any]], *, fresh: frozenset[str]
) -> list[Counter[str]]:
    """Nanoseconds for each way and part of the pages; the ways in *fresh* get a response that nothing has read yet."""
    parts = [Counter[str]() for _ in range(PARTS)]
    names = list(ways)
    for number, page in enumerate(pages):
        times = parts[number * PARTS // len(pages)]
        times["pages"] += 1
        read = page.copy()
        began = process_time_ns()
        _ = read.selector.root
        times["tree"] += process_time_ns() - began
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            given = page.copy() if name in fresh else read
            began = process_time_ns()
            found = ways[name](given)
            times[name] += process_time_ns() - began
            times["links"] += len(found) if name == names[0] else 0
    return parts


def report(title: str, parts: list[Counter[str]], names: list[str]) -> None:
    total = sum(parts, Counter())
    n_pages = total["pages"]
    if not n_pages:
        return
    print(f"\n{title}: {n_pages:,} pages, {total['links'] / n_pages:.0f} links each\n")
    print("| | us a page | to Scrapy's | with the tree, us a page | to Scrapy's |\n|---|--:|--:|--:|--:|")
    peer = names[0]
    for name in ("tree", *names):
        tree = 0 if name in {"tree", "lexbor"} else 1

        alone = [times[name] / max(times[peer], 1) for times in (total, *filter(None, parts))]
        whole = [
            (times[name] + tree * times["tree"]) / max(times[peer] + times["tree"], 1)
            for times in (total, *filter(None, parts))
        ]
        print(
            f"| {name} | {total[name] / n_pages / 1e3:.0f} | {alone[0]:.3f} ({min(alone[1:]):.3f} to {max(alone[1:]):.3f}) "
            f"| {(total[name] + tree * total['tree']) / n_pages / 1e3:.0f} | {whole[0]:.3f} ({min(whole[1:]):.3f} to {max(whole[1:]):.3f}) |"
        )


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, metavar="FOLDER")
    options.add_argument("--pages", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--selectolax", action="store_true")
    given = options.parse_args()
    logging.disable(logging.DEBUG)
    paths = sorted(
        path for path in given.folder.rglob("*.*htm*") if path.is_file() and path.stat().st_size >= SMALLEST
    )
    if not paths:
        options.error(f"{given.folder} has no page (*.htm, *.html, *.xhtml)")
    chosen = Random(given.seed).sample(paths, min(given.pages, len(paths)))

    differing = n_links = 0
    for path in chosen:
        page = response(path, given.folder)
        n_links += len(page.xpath("//a"))
        for line in (found := differences(page)):
            print(line)
        differing += bool(found)
    print(
        f"{len(chosen):,} pages with {n_links:,} <a>, {len(OPTIONS)} sets of options: {differing:,} pages with a difference"
    )

    ways: dict[str, Callable[[HtmlResponse], Any]] = {
        "Scrapy's LinkExtractor": ScrapyLinkExtractor().extract_links,
        "our LinkExtractor": LinkExtractor().extract_links,
        "URLs of Links": lambda page: list(Links(page).urls()),
    }
    if given.selectolax:
        ways["lexbor"] = lexbor()
    pages = [response(path, given.folder) for path in chosen[:2000]]
    for page in pages[:100]:
        for way in ways.values():
            way(page)
    report("All", measure(pages, ways, fresh=frozenset({"lexbor"})), list(ways))
    usual = [page for page in pages if len(list(Links(page).urls())) in A_PAGE_OF_40]
    report("Pages of 30 to 50 links", measure(usual, ways, fresh=frozenset({"lexbor"})), list(ways))
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
