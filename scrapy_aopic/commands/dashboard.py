"""``scrapy aopic dashboard``: a job in the browser, as of its last commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import flush, write

from .common import add_jobdir, crawl_settings

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Show a job in the browser, as of its last commit: one that runs, was stopped, or has crashed. "
    "Ends with Ctrl-C; nothing in the job is changed."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen (default: the first free port of this machine from 6810 to 6829)",
    )
    parser.add_argument(
        "--open", action="store_true", dest="opens", help="open the page in your browser at once"
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.dashboard.serving import serve
    from scrapy_aopic.exceptions import AopicError, SettingError, plainly
    from scrapy_aopic.settings import Listen, read

    try:
        where: Listen | None = read({"AOPIC_DASHBOARD": opts.listen or True}, "AOPIC_DASHBOARD")
    except SettingError as error:
        raise UsageError(f"--listen must be HOST:PORT, not {opts.listen!r}") from error
    if where is None:
        raise UsageError(f"--listen must be HOST:PORT, not {opts.listen!r}")

    def say(address: str) -> None:
        write(f"{address}\nCtrl-C ends it.")
        flush()
        if opts.opens:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(opts.jobdir, where, crawl_settings(settings), say=say)
    except OSError as error:
        if isinstance(error, AopicError):
            raise
        at = f"{where.host}:{where.port}" if where.port is not None else where.host
        raise AopicError(f"--listen ({at}) cannot be listened on: {plainly(error)}.") from error
    return 0
