"""``scrapy aopic explain``: why a page is graded as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_json, as_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Say how relevant a saved page is to the topic of a model, and which of its words say so."

_WORDS = 20
"""Words that are shown: a screen."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="file that 'scrapy aopic train' has written"
    )
    parser.add_argument("page", metavar="PAGE", type=Path, help="file with a page, as a browser saves it")
    add_json(parser)


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.focus.folders import read_page
    from scrapy_aopic.focus.model import load_model
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read

    topic, version = load_model(opts.model, Words(read(settings, "AOPIC_TOKENIZER")))
    text = read_page(opts.page).text
    grade, parts = topic.grade(text), topic.explain(text)[:_WORDS]
    if opts.json:
        write(as_json({"version": version, "grade": grade, "words": dict(parts)}, is_ascii=False))
        return 0
    write(f"{opts.page}: {grade:.3f} by {opts.model}, version {version}")
    write(
        f"{'':>8}  words that count most; together with {topic.pages.bias:+.2f} for any page, they are its log odds"
    )
    for word, part in parts:
        write(f"{part:+8.3f}  {word}")
    return 0
