"""``scrapy aopic SUBCOMMAND``: what is done with a job from the command line, a file a subcommand.

To add one: a file with what :class:`.common.Subcommand` asks for, a line in :data:`.main.SUBCOMMANDS`, and a section in
``docs/commands.md``.

Rule: Scrapy loads these files at every call of any of its commands, so whatever takes time to load is imported by the
functions that need it.
"""

from __future__ import annotations

from .main import SUBCOMMANDS, AopicCommand

__all__ = ["SUBCOMMANDS", "AopicCommand"]
