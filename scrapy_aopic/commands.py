"""``scrapy aopic top|status|check JOBDIR``: ask a job folder, also while its crawl runs."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    import argparse

    from .core.ports import Store


class AopicCommand(ScrapyCommand):
    """Ask the job folder of an AOPIC crawl."""

    requires_project = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        """Arguments, as shown in the usage."""
        return "[options] top|status|check JOBDIR"

    def short_desc(self) -> str:
        """One line for ``scrapy -h``."""
        return "Ask the job folder of an AOPIC crawl"

    def long_desc(self) -> str:
        """What the three questions are."""
        return (
            "top: the most important pages (or hosts) with importance, cash and history. "
            "status: counts, front and back queues, the ledger. "
            "check: audit every invariant; exit code 0 only if all hold. "
            "All of them also work while the crawl runs, on the state of its last commit."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of all questions."""
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="write JSON instead of text")
        parser.add_argument("-n", "--number", type=int, default=20, help="rows of top (default: 20)")
        parser.add_argument("--hosts", action="store_true", help="top: hosts instead of pages")
        parser.add_argument("--all", action="store_true", help="top: also redirects and pages that failed")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Answer the question in *args*."""
        if len(args) != 2 or args[0] not in ("top", "status", "check"):
            raise UsageError("give one of top, status, check and a job folder")
        if opts.number < 1:
            raise UsageError(f"--number ({opts.number}) must be at least 1")
        from .exceptions import StorageError  # noqa: PLC0415  # scrapy loads this file at every call
        from .job import store_folder  # noqa: PLC0415
        from .storage import open_snapshot  # noqa: PLC0415

        try:
            store = open_snapshot(store_folder(Path(args[1])))
            try:
                self.exitcode = {"top": _top, "status": _status, "check": _check}[args[0]](store, opts)
            finally:
                store.close()
        except StorageError as error:
            sys.stderr.write(f"{error}\n")
            self.exitcode = 2


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


def _top(store: Store, opts: argparse.Namespace) -> int:
    from .queries import format_hosts, format_pages, top_hosts, top_pages  # noqa: PLC0415

    rows = top_hosts(store, opts.number) if opts.hosts else top_pages(store, opts.number, everything=opts.all)
    if opts.json:
        _write(json.dumps(rows, indent=1))
    else:
        _write((format_hosts if opts.hosts else format_pages)(rows))
    return 0


def _status(store: Store, opts: argparse.Namespace) -> int:
    from .queries import status  # noqa: PLC0415

    state = status(store)
    if opts.json:
        _write(json.dumps(state, indent=1))
    else:
        for name in ("created_at", "saved_at"):
            state[name] = datetime.fromtimestamp(state[name], timezone.utc).isoformat(" ", "seconds")
        _write(_lines(state))
    return 0


def _lines(state: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in state.items():
        label = f"{indent}{str(name).replace('_', ' ')}"
        if isinstance(value, dict):
            lines.append(f"{label}:")
            lines.append(_lines(value, indent + "  ") if value else f"{indent}  none")
        else:
            lines.append(
                f"{label}: {value:,}"
                if isinstance(value, (int, float)) and not isinstance(value, bool)
                else f"{label}: {value}"
            )
    return "\n".join(lines)


def _check(store: Store, opts: argparse.Namespace) -> int:
    from dataclasses import asdict  # noqa: PLC0415

    from .core.audit import audit  # noqa: PLC0415

    result = audit(store)
    if opts.json:
        _write(json.dumps({**asdict(result), "holds": result.holds}, indent=1))
    else:
        for sentence in result.violations:
            _write(sentence)
        _write(
            f"{result.pages:,} pages ({result.queued:,} queued, {result.visited:,} visited, {result.failed:,} failed) "
            f"on {result.hosts:,} hosts; cash of pages {result.cash:,} + virtual page {result.virtual:,} = "
            f"{result.cash + result.virtual:,} units: "
            + ("every invariant holds" if result.holds else f"{result.n_violations} violations")
        )
    return 0 if result.holds else 1
