"""``scrapy aopic topic``: learns what a topic is, says how good that is, and asks people for labels of sampled pages."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from textwrap import fill
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import flush, write

from .common import Action, add_jobdir, add_json, as_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from scrapy.settings import BaseSettings

    from scrapy_aopic.core.focus.sample import Sampled
    from scrapy_aopic.focus.labels import Judged
    from scrapy_aopic.focus.quality import Quality

MEANING = "Train and evaluate the model of a topic for AOPIC_TOPIC, and label pages that a crawl for a topic has set aside."

_WORDS = 15
"""Words of each kind that are shown: a screen."""

_SHOWN = 600
"""Characters of a page's text that are shown: some eight lines of a terminal."""

_BATCH = 20
"""Pages that a judge is asked about at once; each answer is kept before the next batch."""

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


# -- train, and evaluate


def _add_folders(parser: argparse.ArgumentParser, *, are_both_needed: bool = True) -> None:
    parser.add_argument(
        "positive", metavar="POSITIVE", type=Path, help="folder of relevant pages, one in each file"
    )
    parser.add_argument(
        "negative",
        metavar="NEGATIVE",
        type=Path,
        nargs=None if are_both_needed else "?",
        help="folder of other pages"
        + ("" if are_both_needed else " (default: 90 of the open web, which come with the package)"),
    )
    add_json(parser)


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_folders(parser, are_both_needed=False)
    parser.add_argument(
        "-o", dest="model", metavar="MODEL", type=Path, default=Path("topic.aopic"),
        help="file to write (default: topic.aopic)",
    )  # fmt: skip


def _train(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.focus.background import PAGES
    from scrapy_aopic.focus.folders import read_folder, train
    from scrapy_aopic.focus.model import save_model
    from scrapy_aopic.focus.quality import held_out, quality
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read_values

    positive = read_folder(opts.positive)
    negative = read_folder(opts.negative) if opts.negative is not None else []
    cut = Words(read_values(settings).tokenizer)
    topic = train(positive, negative, cut)
    grades = held_out(positive, negative, cut)
    tried = quality(*grades) if grades is not None else None
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
            "quality": tried._asdict() if tried is not None else None,
            "for": speaking_for,
            "against": speaking_against,
        }
        write(as_json(found, is_ascii=False))
        return 0
    write(_model_in_words(opts, version, len(positive), len(negative) or PAGES))
    if tried is None:
        write("Too few pages to say how good it is: two of each kind are needed.")
    else:
        write(f"On pages that were not learned from: {_quality_in_words(tried)}")
    write(f"For it speak: {', '.join(speaking_for)}")
    write(f"Against it:   {', '.join(speaking_against)}")
    return 0


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="file that 'train' has written")
    _add_folders(parser)


def _evaluate(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.focus.folders import read_folder
    from scrapy_aopic.focus.model import load_model
    from scrapy_aopic.focus.quality import quality
    from scrapy_aopic.focus.tokenizers import Words
    from scrapy_aopic.settings import read_values

    model = load_model(opts.model, Words(read_values(settings).tokenizer))
    found = quality(
        *(
            [model.topic.grade(page.text) for page in read_folder(each)]
            for each in (opts.positive, opts.negative)
        )
    )
    if opts.json:
        write(as_json({"version": model.version, **found._asdict()}))
    else:
        write(_model_in_words(opts, model.version, found.relevant, found.others))
        write(_quality_in_words(found).capitalize())
    return 0


def _model_in_words(opts: argparse.Namespace, version: str, relevant: int, others: int) -> str:
    from scrapy_aopic.view.text import n_of

    return f"{opts.model}, version {version}: {n_of(relevant, 'relevant page')}, {n_of(others, 'other')}"


def _quality_in_words(quality: Quality) -> str:
    recall = f"recall {quality.recall:.2f} (95 %: {quality.recall_low:.2f} to {quality.recall_high:.2f})"
    if not quality.others:
        return recall
    chance = quality.relevant / (quality.relevant + quality.others)
    return (
        f"average precision {quality.average_precision:.2f} (by chance {chance:.2f}), "
        f"precision {quality.precision:.2f}, {recall}"
    )


# -- label


def _add_label(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)
    parser.add_argument(
        "--labels", metavar="FILE", type=Path,
        help="file that labels are kept in, beside what they say of grades (default: aopic-labels.jsonl in the job folder)",
    )  # fmt: skip
    parser.add_argument(
        "--by", metavar="NAME",
        help="have a function or a BatchJudge of yours label the whole sample, by its import path, and ask nothing",
    )  # fmt: skip
    parser.add_argument(
        "--write", metavar="FILE", type=Path,
        help="write the pages to be labelled as JSON lines, and ask nothing",
    )  # fmt: skip
    parser.add_argument(
        "--read", metavar="FILE", type=Path, help="take labels from such a file, and ask nothing"
    )


def _label(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.core.focus.sample import read_samples
    from scrapy_aopic.exceptions import TopicError
    from scrapy_aopic.focus.labels import JUDGED, judge, read_labels, to_label, write_labels, write_sample
    from scrapy_aopic.place.calibration_file import CALIBRATION, LABELS, write_calibration
    from scrapy_aopic.view.job_view import open_view

    kept = opts.labels
    if kept is None:
        if opts.jobdir.folder is None:
            raise UsageError("name a file for the labels of a job on a server: --labels FILE")
        kept = opts.jobdir.folder / LABELS
    with open_view(opts.jobdir) as view:
        # The same one at each call, as long as the crawl stands still.
        pages, sample = read_samples(view.stores, Random(0))  # noqa: S311 - of nothing secret
    if not sample:
        raise TopicError(f"The job {opts.jobdir} has set no pages aside: that needs AOPIC_TOPIC.")
    wanted = to_label(sample)
    labels, beside = read_labels(kept) if kept.exists() else {}, kept.with_name(JUDGED)
    by_program = read_labels(beside) if beside.exists() else {}
    if opts.read:
        labels.update(read_labels(opts.read))
        write_labels(kept, labels)
    if opts.write:
        write_sample(opts.write, wanted, labels)
    if opts.by:
        left = [page for page in sample if not page.is_duplicate and page.url not in by_program]
        for at in range(0, len(left), _BATCH):
            by_program |= _judged_by(opts.by, left[at : at + _BATCH])
            write_labels(beside, by_program)
    if not (opts.by or opts.read or opts.write or opts.json) and sys.stdin is not None and sys.stdin.isatty():
        _ask([page for page in wanted if page.url not in labels], labels, kept)
    judged = judge(pages, sample, labels, by_program)
    if judged.labelled:
        write_calibration(kept.with_name(CALIBRATION), judged.calibration)
    if opts.json:
        write(as_json(judged._asdict()))
    else:
        write("\n".join(_judged_in_words(judged)))
        n = sum([page.url not in labels for page in wanted])
        if by_program and n:
            write(
                f"A program has labelled {len(by_program):,} pages. Label {n} yourself, by the same command without --by: of "
                "rare pages, a program that is wrong about a tenth counts more than twice as many."
            )
    return 0


def _judged_by(name: str, pages: Sequence[Sampled]) -> dict[str, bool]:
    """The labels of *pages* by the judge of the user's with this *name*.

    Raises:
        TopicError: If it cannot be used, or fails.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from scrapy_aopic.exceptions import ANY_ERROR, TopicError
    from scrapy_aopic.focus.batches import JudgedPage, judged
    from scrapy_aopic.settings.parse import load

    try:
        found = load(name)
        given = [JudgedPage(page.url, page.text) for page in pages]
        asked = judged(found().judge if isinstance(found, type) else found, given)
        with ThreadPoolExecutor(1) as thread:  # which has no event loop yet, whoever calls this
            grades = thread.submit(asyncio.run, asked).result()
    except ANY_ERROR as error:
        raise TopicError(f"--by {name}: {type(error).__name__}: {error}") from error
    return {page.url: grade >= 0.5 for page, grade in zip(pages, grades, strict=True)}


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
        write("All pages that are to be labelled are.")


def _judged_in_words(judged: Judged) -> list[str]:
    from scrapy_aopic.view.text import checked

    lines = [
        f"{judged.set_aside:,} of {judged.pages:,} graded pages were set aside, {judged.labelled:,} are labelled"
    ]
    if not judged.labelled:
        return [*lines, "Nothing can be said of the harvest before pages are labelled."]
    mistakes = f"{judged.missed} relevant ones it has missed, {judged.wrong} it has counted wrongly"
    return [
        *lines,
        f"harvest by labels      {judged.harvest:7.1%}   95 %: {judged.low:.1%} to {judged.high:.1%}",
        f"harvest by grades      {judged.counted:7.1%}   {mistakes}",
        f"Relevance goes by {checked(judged.calibration.labels)} from now on; in a crawl that runs, from its next start on.",
    ]


ACTIONS = {
    "train": Action(
        "Learn a topic from two folders of saved pages. It says how well pages are distinguished that were not learned from "
        "(5 folds), and by which words.",
        _add_train,
        _train,
    ),
    "evaluate": Action(
        "Say how good a model is, on folders of pages that it has not learned from.", _add_evaluate, _evaluate
    ),
    "label": Action(
        "Label pages that a crawl set aside at random, and say how many of all its pages are relevant by these labels. Also "
        "while the crawl runs, as of its last commit.",
        _add_label,
        _label,
    ),
}
"""The words after ``topic``."""
