"""``scrapy aopic repair``: a whole job from a damaged one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.job.output import write

from .common import add_jobdir, in_folder

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Make a whole job of a damaged one that no crawl uses. Says what was lost; the damaged store is kept beside the new one."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.job.repair import repair
    from scrapy_aopic.job.report import format_repair

    done, kept = repair(in_folder(opts.jobdir, "repair"), progress=True)
    if done is None:
        write("Every invariant holds: there is nothing to repair.")
    else:
        write(format_repair(done, kept))
    return 0
