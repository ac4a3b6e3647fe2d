"""``scrapy aopic train``: a topic learned from folders of pages, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_json, as_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

    from scrapy_aopic.focus.quality import Quality

MEANING = (
    "Learn a topic from two folders of saved pages, for AOPIC_TOPIC. It says how well pages are distinguished that were not "
    "learned from (5 folds), and by which words."
)

_WORDS = 15
"""Words of each kind that are shown: a screen."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "positive", metavar="POSITIVE", type=Path, help="folder of relevant pages, one in each file"
    )
    parser.add_argument("negative", metavar="NEGATIVE", type=Path, help="folder of other pages")
    parser.add_argument(
        "-o", dest="model", metavar="MODEL", type=Path, default=Path("topic.aopic"),
        help="file to write (default: topic.aopic)",
    )  # fmt: skip
    add_json(parser)


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.focus.folders import read_folder, train
    from scrapy_aopic.focus.model import save_model
    from scrapy_aopic.focus.quality import cross_validated
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read
    from scrapy_aopic.view.text import n_of

    positive, negative = read_folder(opts.positive), read_folder(opts.negative)
    cut = Words(read(settings, "AOPIC_TOKENIZER"))
    topic = train(positive, negative, cut)
    quality = cross_validated(positive, negative, cut)
    version = save_model(topic, opts.model, cut.name)
    parts: dict[str, float] = {}
    for page in (*positive, *negative):
        for word, part in topic.explain(page.text):
            parts[word] = parts.get(word, 0.0) + part
    by_part = sorted(parts, key=lambda word: -parts[word])
    speaking_for = [word for word in by_part[:_WORDS] if parts[word] > 0]
    speaking_against = [word for word in by_part[: -_WORDS - 1 : -1] if parts[word] < 0]
    if opts.json:
        found = {
            "model": str(opts.model),
            "version": version,
            "quality": quality._asdict() if quality is not None else None,
            "for": speaking_for,
            "against": speaking_against,
        }
        write(as_json(found, is_ascii=False))
        return 0
    write(
        f"{opts.model}, version {version}: {n_of(len(positive), 'relevant page')}, {n_of(len(negative), 'other')}"
    )
    if quality is None:
        write("Too few pages to say how good it is: five of each kind are needed.")
    else:
        write(f"On pages that were not learned from: {in_words(quality)}")
    write(f"For it speak: {', '.join(speaking_for)}")
    write(f"Against it:   {', '.join(speaking_against)}")
    return 0


def in_words(quality: Quality) -> str:
    """*quality* as a line."""
    chance = quality.relevant / (quality.relevant + quality.others)
    return (
        f"average precision {quality.average_precision:.2f} (by chance {chance:.2f}), "
        f"precision {quality.precision:.2f}, recall {quality.recall:.2f}"
    )
