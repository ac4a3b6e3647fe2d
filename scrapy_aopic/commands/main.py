"""Scrapy's command ``aopic``: finds the subcommand, and ends with a sentence and an exit code whatever happens."""

from __future__ import annotations

import errno
import logging
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from os import strerror
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyCommand, ScrapyHelpFormatter
from scrapy.exceptions import UsageError

from scrapy_aopic.exceptions import AopicError, SettingError, plainly
from scrapy_aopic.version import DOCS, __version__
from scrapy_aopic.view.output import OutputError, drop, flush

from . import (
    backup,
    check,
    control,
    crawl_command,
    dashboard,
    demo,
    docs_command,
    export,
    hosts,
    identity_command,
    import_redis,
    move,
    report,
    salvage_command,
    seed,
    simulate,
    status,
    top,
    topic_command,
    why_command,
)
from .common import Action, Group, Names, Subcommand, complete

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from scrapy.settings import BaseSettings

_DOCS = f"{DOCS} commands"

_MODULES: tuple[Subcommand | Group, ...] = (
    demo, crawl_command, top, status, hosts, why_command, report, check, dashboard, control, backup, move,
    salvage_command, seed, export, import_redis, topic_command, simulate, identity_command,
    docs_command,
)  # fmt: skip

SUBCOMMANDS = {
    each.__name__.rpartition(".")[2].removesuffix("_command").replace("_", "-"): each for each in _MODULES
}
"""The subcommands of ``scrapy aopic``, in the order of its help."""


class AopicCommand(ScrapyCommand):
    """Scrapy's command ``aopic``, which runs the subcommands."""

    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Arguments, as shown in the usage."""
        return "|".join(SUBCOMMANDS) + " [options]"

    def short_desc(self) -> str:
        """One line for ``scrapy -h``."""
        return "Crawl the most important pages first, and look at the job folder of such a crawl"

    def long_desc(self) -> str:
        """What ``scrapy aopic -h`` says before the list of subcommands."""
        return f"{self.short_desc()}. 'scrapy aopic SUBCOMMAND -h' shows the options of a subcommand."

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add a parser for each subcommand; Scrapy's own options come after the subcommand, too."""
        parser.add_argument("--version", action="version", version=f"scrapy-aopic {__version__}")
        parser.epilog = f"Docs: {_DOCS}"
        self._add_words(parser, SUBCOMMANDS, "subcommand", "scrapy aopic", _DOCS)

    def _add_words(
        self,
        parser: argparse.ArgumentParser,
        words: Mapping[str, Subcommand | Group | Action],
        kind: str,
        before: str,
        docs: str,
    ) -> None:
        """Add a parser for each of the *words*, which come after *before*; *docs* is the address of their docs."""
        is_action = kind == "action"
        parsers = parser.add_subparsers(
            dest=kind,
            metavar="|".join(words) if is_action else kind.upper(),
            prog=before,
            parser_class=_Parser,
            required=is_action,
        )
        parsers.choices = cast("Any", Names(words, kind, "" if is_action else f" See {docs}"))
        for name, each in words.items():
            own = parsers.add_parser(
                name,
                help=each.MEANING.partition(". ")[0].rstrip("."),
                description=each.MEANING,
                epilog=f"Docs: {(own_docs := docs if is_action else f'{docs}#{name}')}",
                formatter_class=ScrapyHelpFormatter,
                conflict_handler="resolve",
            )
            own.docs = own_docs
            if (actions := getattr(each, "ACTIONS", None)) is not None:
                self._add_words(own, actions, "action", f"{before} {name}", own_docs)
            else:
                own.set_defaults(word=each, parser=own)
                cast("Subcommand | Action", each).add_options(own)
                super().add_options(own)

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Refuse a call without a subcommand, and read Scrapy's own options."""
        if opts.subcommand is None:
            raise UsageError(f"name a subcommand: {', '.join(SUBCOMMANDS)}. See {_DOCS}")
        super().process_options(args, opts)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Run the subcommand; *args* is what no parser knew."""
        parser: _Parser = opts.parser
        if args:
            parser.error(f"unknown argument: {' '.join(args)}{parser.meant(args[0])}")
        assert self.settings is not None
        run = partial(_run_on_stores, opts.word, opts, self.settings)
        try:
            self.exitcode = _run(run, parser.docs)
        except UsageError as error:
            parser.error(str(error))  # shows the usage of this subcommand


class _Parser(ScrapyArgumentParser):
    """Of a subcommand: its errors end with the address of its docs, as its help does.

    Attributes:
        docs: The address.
    """

    docs = ""

    def meant(self, unknown: str) -> str:
        """The end of a sentence about an *unknown* argument: which option was probably meant, if any."""
        name = unknown.partition("=")[0].replace("policy", "order")  # as papers and earlier versions call it
        near = get_close_matches(name, re.findall(r"--[\w-]+", self.format_help()), n=1, cutoff=0.8)
        near += ["-s AOPIC_ORDER=NAME"] * (name == "--order")
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        super().error(f"{message}{'' if message.endswith(('.', '?')) else '.'} See {self.docs}")


def _run_on_stores(word: Subcommand | Action, opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Run *word*, which may open stores of the kind that ``AOPIC_STORE`` names."""
    from scrapy_aopic.settings import wrong_names

    # whose log says it
    for _, sentence in wrong_names(settings) if word not in (crawl_command, demo) else ():
        _say(sentence)
    if settings.get("AOPIC_STORE") is not None:
        from scrapy_aopic.settings import read_values
        from scrapy_aopic.storage import use

        use(read_values(settings).store)
    if getattr(opts, "jobdir", None) is not None:
        opts.jobdir = complete(opts.jobdir, settings)
    return word.run(opts, settings)


def _run(run: Callable[[], int], docs: str) -> int:
    """Exit code of *run*; every error is one sentence, and the address of the *docs*."""
    # otherwise warnings would go to standard error
    logging.getLogger("scrapy_aopic").addHandler(logging.NullHandler())
    try:
        code = run()
        flush()
    except OutputError as error:
        drop()
        if not isinstance(error.__cause__, BrokenPipeError):  # otherwise the reader has seen enough
            _say(f"The output cannot be written: {error}.")
        return 1
    except AopicError as error:
        if isinstance(error, SettingError) and str(error).partition(" ")[0].isupper():  # it names a setting
            from scrapy_aopic.settings import page_of  # with them all settings are loaded

            docs = f"{DOCS} {page_of(error)}"
        _say(f"{error}{'' if str(error).endswith(('.', '?')) else '.'} See {docs}")
        return 1 if _is_full(error) else 2
    except OSError as error:
        about = " and ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        _say(f"This cannot be done{f' with {about}' if about else ''}: {plainly(error)}. See {docs}")
        return 1 if _is_full(error) else 2
    except KeyboardInterrupt:
        return 130  # as a shell says of a process that SIGINT ended
    return code


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _is_full(error: BaseException | None) -> bool:
    """Whether a disk that takes no more is behind *error*; some libraries only say so in words."""
    ours = (plainly(OSError(number, "")) for number in _FULL)
    words = (*map(strerror, _FULL), *ours, "disk is full")  # the last are SQLite's
    while error is not None:
        if getattr(error, "errno", None) in _FULL or any(each in str(error) for each in words):
            return True
        error = error.__cause__
    return False


def _say(sentence: str) -> None:
    with suppress(OSError):  # there is nowhere to say it
        sys.stderr.write(f"{sentence}\n".encode("utf-8", "backslashreplace").decode())
