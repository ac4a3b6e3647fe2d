"""``scrapy aopic why``: why a URL, or a host, is crawled or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, as_json, crawl_settings

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Why a URL or a host is crawled, waits, failed, or is not known. As of the last commit, also while the crawl runs."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument("questions", metavar="URL_OR_HOST", nargs="+", help="a URL, or the name of a host")


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.view.questions import Questions

    questions = Questions(opts.jobdir, crawl_settings(settings))
    answers = [questions.why(question) for question in opts.questions]
    if opts.json:
        write(as_json(answers))
    else:
        texts = ["\n  ".join((f"{answer.about}: {answer.kind}", *answer.sentences)) for answer in answers]
        write("\n".join(texts))
    return 0
