"""``scrapy aopic evaluate``: how good a topic's model is on pages that it has not learned from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_json, as_json
from .train import in_words

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Say how good a model of a topic is, on folders of pages that it has not learned from."


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="file that 'scrapy aopic train' has written"
    )
    parser.add_argument(
        "positive", metavar="POSITIVE", type=Path, help="folder of relevant pages, one in each file"
    )
    parser.add_argument("negative", metavar="NEGATIVE", type=Path, help="folder of other pages")
    add_json(parser)


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.focus.folders import read_folder
    from scrapy_aopic.focus.model import load_model
    from scrapy_aopic.focus.quality import measure
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read
    from scrapy_aopic.view.text import n_of

    model = load_model(opts.model, Words(read(settings, "AOPIC_TOKENIZER")))
    quality = measure(model.topic, read_folder(opts.positive), read_folder(opts.negative))
    if opts.json:
        write(as_json({"version": model.version, **quality._asdict()}))
    else:
        write(
            f"{opts.model}, version {model.version}: {n_of(quality.relevant, 'relevant page')}, {n_of(quality.others, 'other')}"
        )
        write(in_words(quality).capitalize())
    return 0
