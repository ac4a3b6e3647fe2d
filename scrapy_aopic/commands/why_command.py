"""``scrapy aopic why``: why a URL, or a host, is crawled or not, or why a page is graded as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, as_json, crawl_settings

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Why a URL or a host is crawled, waits, failed, or is not known. As of the last commit, also while the crawl runs. With "
    "--grade: why a page is graded as it is."
)

_WORDS = 20
"""Words of a page that are shown: a screen."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser, nargs="?")
    add_json(parser)
    parser.add_argument("questions", metavar="URL_OR_HOST", nargs="*", help="a URL, or the name of a host")
    parser.add_argument(
        "--grade",
        metavar=("MODEL", "PAGE"),
        nargs=2,
        type=Path,
        help="instead of a job: how relevant the model that 'topic train' has written takes a saved page to be, and by which "
        "words",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    if opts.grade is not None and opts.jobdir is None:
        model, page = opts.grade
        _grade(model, page, opts, settings)
        return 0
    if opts.grade is not None or not opts.questions:
        raise UsageError("give JOBDIR and a URL or a host, or --grade MODEL PAGE")
    from scrapy_aopic.view.questions import Questions

    questions = Questions(opts.jobdir, crawl_settings(settings))
    answers = [questions.why(question) for question in opts.questions]
    if opts.json:
        write(as_json(answers))
    else:
        texts = ["\n  ".join((f"{answer.about}: {answer.kind}", *answer.sentences)) for answer in answers]
        write("\n".join(texts))
    return 0


def _grade(model: Path, page: Path, opts: argparse.Namespace, settings: BaseSettings) -> None:
    """Say why *model* grades the saved *page* as it does."""
    from scrapy_aopic.focus.folders import read_folder
    from scrapy_aopic.focus.model import load_model
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read_values

    topic, version = load_model(model, Words(read_values(settings).tokenizer))
    text = read_folder(page)[0].text
    grade, parts = topic.grade(text), topic.explain(text)[:_WORDS]
    if opts.json:
        write(as_json({"version": version, "grade": grade, "words": dict(parts)}, is_ascii=False))
        return
    write(f"{page}: {grade:.3f} by {model}, version {version}")
    write(
        f"{'':>8}  words that count most; together with {topic.pages.bias:+.2f} for any page, they are its log odds"
    )
    for word, part in parts:
        write(f"{part:+8.3f}  {word}")
