"""``scrapy aopic label``: how many of a crawl's pages are relevant, by people."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from textwrap import fill
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import flush, write

from .common import add_jobdir, add_json, as_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from scrapy.settings import BaseSettings

    from scrapy_aopic.core.focus.sample import Sampled
    from scrapy_aopic.focus.labels import Judged

MEANING = (
    "Label pages that a crawl for a topic set aside at random, and say how many of all its pages are relevant by these labels. "
    "Also while the crawl runs, as of its last commit."
)

_SHOWN = 600
"""Characters of a page's text that are shown: some eight lines of a terminal."""

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "--labels", metavar="FILE", type=Path,
        help="file that labels are kept in (default: aopic-labels.jsonl in the job folder)",
    )  # fmt: skip
    parser.add_argument(
        "--write",
        metavar="FILE",
        type=Path,
        help="write the pages to be labelled as JSON lines, and ask nothing",
    )
    parser.add_argument(
        "--read", metavar="FILE", type=Path, help="take labels from such a file, and ask nothing"
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.core.focus.sample import read_samples
    from scrapy_aopic.exceptions import TopicError
    from scrapy_aopic.focus.labels import FILE_NAME, judge, read_labels, to_label, write_labels, write_sample
    from scrapy_aopic.view.job_view import open_view

    kept = opts.labels
    if kept is None:
        if opts.jobdir.folder is None:
            raise UsageError("name a file for the labels of a job on a server: --labels FILE")
        kept = opts.jobdir.folder / FILE_NAME
    with open_view(opts.jobdir) as view:
        # The same one at each call, as long as the crawl stands still.
        pages, sample = read_samples(view.stores, Random(0))  # noqa: S311 - of nothing secret
    if not sample:
        raise TopicError(
            f"The job {opts.jobdir} has set no pages aside: that needs AOPIC_TOPIC, and AOPIC_AUDIT_PAGES above 0."
        )
    wanted = to_label(sample)
    labels = read_labels(kept) if kept.exists() else {}
    if opts.read:
        labels.update(read_labels(opts.read))
        write_labels(kept, labels)
    if opts.write:
        write_sample(opts.write, wanted, labels)
    if not (opts.read or opts.write or opts.json) and sys.stdin is not None and sys.stdin.isatty():
        _ask([page for page in wanted if page.url not in labels], labels, kept)
    judged = judge(pages, sample, labels)
    if opts.json:
        write(as_json(judged._asdict()))
    else:
        write("\n".join(in_words(judged)))
    return 0


def _ask(pages: Sequence[Sampled], labels: dict[str, bool], kept: Path) -> None:
    """Ask about *pages*, and keep each answer at once."""
    from scrapy_aopic.focus.labels import write_labels

    for number, page in enumerate(pages, 1):
        write(f"\n{number} of {len(pages)}: {page.url}\n{fill(page.text[:_SHOWN], 100)}")
        while True:
            write("Relevant? y, n, s to skip, q to end")
            flush()
            answer = (sys.stdin.readline() or "q").strip().lower()
            if answer in {"q", "quit"}:
                return
            if answer in _ANSWERS:
                labels[page.url] = _ANSWERS[answer]
                write_labels(kept, labels)
            if answer in _ANSWERS or answer in {"s", "skip"}:
                break
    if not pages:
        write("All pages that were set aside are labelled.")


def in_words(judged: Judged) -> list[str]:
    """*judged* as lines."""
    lines = [
        f"{judged.set_aside:,} of {judged.pages:,} graded pages were set aside, {judged.labelled:,} are labelled"
    ]
    if not judged.labelled:
        return [*lines, "Nothing can be said of the harvest before pages are labelled."]
    mistakes = f"{judged.missed} relevant ones it has missed, {judged.wrong} it has counted wrongly"
    return [
        *lines,
        f"harvest by labels      {judged.harvest:7.1%}   95 %: {judged.low:.1%} to {judged.high:.1%}",
        f"the crawl says of them {judged.counted:7.1%}   {mistakes}",
    ]
