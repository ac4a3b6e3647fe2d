"""``scrapy aopic check``: whether every invariant of a job holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, as_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Audit every invariant of a job. The exit code is 0 only if all hold. Also while the crawl runs, on the state of its "
    "last commit."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    add_json(parser)


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from dataclasses import asdict

    from scrapy_aopic.view.auditing import audit_job
    from scrapy_aopic.view.text_report import format_audit

    result = audit_job(opts.jobdir, progress=True)
    if opts.json:
        write(as_json({**asdict(result), "holds": result.holds}))
    else:
        write(format_audit(result))
    return 0 if result.holds else 1
