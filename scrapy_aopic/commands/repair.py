"""``scrapy aopic repair``: a whole job from a damaged one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "Make a whole job of a damaged one that no crawl uses. Says what was lost; the damaged store is kept beside the new one."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from scrapy_aopic.copies.repairing import repair
    from scrapy_aopic.view.text_report import format_repair

    found = repair(opts.jobdir, progress=True)
    for each in found:
        if each.shard >= 0:
            letters = f"; letters of it that are lost: {each.letters:,}" if each.letters else ""
            write(f"Shard {each.shard} was repaired{letters}.")
        keys = "" if opts.jobdir.folder is not None else "the keys that begin with "
        write(format_repair(each.done, f"{keys}{each.kept}"))
    if not found:
        write("Every invariant holds: there is nothing to repair.")
    return 0
