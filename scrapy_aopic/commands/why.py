"""``scrapy aopic why``: why a URL, or a host, is crawled or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, crawl_settings

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Why a URL or a host is crawled, waits, failed, or is not known. As of the last commit, also while the crawl runs."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument("questions", metavar="URL_OR_HOST", nargs="+", help="a URL, or the name of a host")


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    import msgspec

    from scrapy_aopic.place.stored_control import read_control
    from scrapy_aopic.view.answers import why_in_shards, with_control
    from scrapy_aopic.view.dropped import FILE_NAME, read_dropped
    from scrapy_aopic.view.job_view import open_view
    from scrapy_aopic.view.shard_states import read_states
    from scrapy_aopic.view.url_settings import CrawlRules
    from scrapy_aopic.view.why import with_dropped

    rules = CrawlRules(crawl_settings(settings))
    with open_view(opts.jobdir) as view:
        states = read_states(opts.jobdir)
        workers = states.workers() if states is not None else None
        dropped = read_dropped(opts.jobdir.folder / FILE_NAME) if opts.jobdir.folder is not None else None
        answers = [why_in_shards(view, question, rules, workers) for question in opts.questions]
    if dropped is not None:
        answers = [with_dropped(answer, dropped, rules) for answer in answers]
    control = read_control(opts.jobdir)
    answers = [with_control(answer, rules, control) for answer in answers]
    if opts.json:
        write(json.dumps([msgspec.to_builtins(answer) for answer in answers], indent=1))
    else:
        texts = ["\n  ".join((f"{answer.about}: {answer.kind}", *answer.sentences)) for answer in answers]
        write("\n".join(texts))
    return 0
