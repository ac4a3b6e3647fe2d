"""``scrapy aopic check``: whether every invariant of a job holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, add_json, snapshot

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

    from tqdm import tqdm

    from scrapy_aopic.core.audit import Audit
    from scrapy_aopic.core.saved import read_saved
    from scrapy_aopic.exceptions import StorageError
    from scrapy_aopic.view.auditing import audit_job, audit_store, format_whole
    from scrapy_aopic.view.text_report import format_audit

    if opts.jobdir.read_cut() is not None:
        whole = audit_job(opts.jobdir)
        write(json.dumps(asdict(whole), indent=1) if opts.json else format_whole(whole))
        return 0 if whole.holds else 1
    with snapshot(opts.jobdir) as store:
        try:
            store.verify()
            saved = read_saved(store)
            with tqdm(
                total=saved.pages if saved is not None else 0, unit=" pages", unit_scale=True, disable=None
            ) as line:
                result = audit_store(store, line.update)
        except StorageError as error:
            result = Audit()
            result.expect(False, "{} 'scrapy aopic repair' saves what can be saved.", error)
    if opts.json:
        write(json.dumps({**asdict(result), "holds": result.holds}, indent=1))
    else:
        write(format_audit(result))
    return 0 if result.holds else 1
