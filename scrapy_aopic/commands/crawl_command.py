"""``scrapy aopic crawl``: a broad crawl without a project."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from scrapy.exceptions import UsageError

from .common import check_counts, job_place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import AsyncCrawlerProcess, Crawler, CrawlerProcess
    from scrapy.settings import BaseSettings, Settings

    from scrapy_aopic.exporters import ParquetFolder
    from scrapy_aopic.place.place import Place
    from scrapy_aopic.storage.address import Address

MEANING = (
    "Crawl from some seeds, without a project. The most important pages first, politely; Ctrl-C stops it, and the same "
    "command goes on with it, also after a crash."
)

_SETTINGS: dict[str, Any] = {
    "LOG_ENABLED": True,
    "LOG_LEVEL": "WARNING",
    "LOG_FORMATTER": "scrapy_aopic.logformatter.QuietLogFormatter",
    "RETRY_GIVE_UP_LOG_LEVEL": "DEBUG",
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "SPIDER_LOADER_CLASS": "scrapy.spiderloader.DummySpiderLoader",  # as for runspider: no spider is looked for by name
    "AOPIC_REPORT": True,
    "AOPIC_ITEM_FIELDS": ("importance", "visits"),  # a URL and its earlier visits tell what was written twice
}
"""Settings that differ from Scrapy's defaults, unless the project or the command line sets them."""

_OF_REVISITS = {"AOPIC_ITEM_FIELDS": ("importance", "visits", "found")}
"""Those that differ in a crawl with rounds, or of changes."""

_NOT_APPENDED = ("json", "xml", "pickle", "marshal")
"""Formats of feeds to which nothing can be added: a file of two crawls would not be one."""

_BATCH = 10_000
"""Items in a Parquet file."""

_ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

_CONTACT = re.compile(r"(https?://)?[!-~]+\.[!-~]+")
_LONGEST_CONTACT = 200
"""Characters of a contact address: some servers refuse headers that are much longer."""

_NOTHING_FETCHED = 3
"""Exit code of a crawl that could run, and got no response at all."""

_LONGEST_NAME = 60
"""Characters of a seed in the name of a job folder."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "seeds",
        metavar="SEEDS",
        nargs="*",
        help="URL, or list of seeds (one URL a line, or a table .csv or .parquet with a column url)",
    )
    parser.add_argument(
        "--contact",
        metavar="ADDRESS",
        help="who crawls, for the hosts to see: a web page or an e-mail address",
    )
    parser.add_argument(
        "--domains",
        metavar="LIST",
        action="append",
        default=[],
        help="stay in these domains, such as example.org,example.com, or those that a file lists, one a line",
    )
    parser.add_argument(
        "--scope",
        metavar="NAME",
        default="everywhere",
        help="links to follow: everywhere (default); domain or host, which are those of the seeds; or elsewhere, out of "
        "the domain of their page",
    )
    parser.add_argument(
        "--allow",
        metavar="REGEX",
        action="append",
        default=[],
        help="follow only links whose URL matches; may be repeated",
    )
    parser.add_argument(
        "--deny",
        metavar="REGEX",
        action="append",
        default=[],
        help="follow no links whose URL matches; may be repeated",
    )
    parser.add_argument(
        "--topic",
        metavar="WORDS",
        help='pages about this first, such as "harvest, boat", and how relevant each is (AOPIC_TOPIC with these keywords, '
        "AOPIC_ORDER focused)",
    )
    parser.add_argument(
        "--job",
        metavar="FOLDER",
        type=job_place,
        help="job folder, or redis://HOST:PORT/DATABASE#KEY (default: a folder in crawls/ that is named after the seeds)",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="a round: visit each page once more that was fetched before, beside new ones, and end; one that was stopped goes on",
    )
    parser.add_argument(
        "--every",
        metavar="TIME",
        type=_time,
        help='rounds as with --again, for as long as the crawl runs; one begins each TIME, such as "1 day"',
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        type=_time,
        help='with --again or --every: only pages that were not visited for so long, such as "12 hours"',
    )
    parser.add_argument(
        "--changed-only",
        action="store_true",
        help="an item for each new page and each change, and none for an unchanged page; without --again pages are visited as "
        "they change, for as long as the crawl runs (AOPIC_RECRAWL)",
    )
    parser.add_argument(
        "--gone",
        action="store_true",
        help="an item for each page that is gone since its last visit, too, and for each that has come back",
    )
    parser.add_argument(
        "--pages", metavar="N", type=int, help="stop after N responses; robots.txt does not count"
    )
    parser.add_argument("--seconds", metavar="N", type=int, help="stop after N seconds")
    parser.add_argument(
        "--workers",
        metavar="N",
        help="crawl with N processes, or one for each core with auto; a new job with several may later have any number "
        "(AOPIC_WORKERS)",
    )
    add_output(parser)
    parser.add_argument(
        "--fields", metavar="LIST", help="what an item holds (default: url,title,language,type)"
    )
    parser.add_argument(
        "--warc", metavar="FOLDER", type=Path, help="write everything that is fetched as WARC"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where items go."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        default=[],
        help="add an item for each page to FILE: .jsonl, .csv or .parquet; - for standard output, as -:jsonl",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy import signals
    from scrapy.utils.log import configure_logging

    from scrapy_aopic.local_workers import Workers, wants_workers
    from scrapy_aopic.place.folder_place import worker_number
    from scrapy_aopic.settings import read_values
    from scrapy_aopic.spiders import BroadSpider, check_option

    is_worker = worker_number() > 0
    arguments = _check_arguments(opts)
    tables = _set_up(opts, check_option("fields", arguments["fields"]), settings)
    job = _Job(opts, settings, arguments)
    folder = job.place.folder
    if not (opts.seeds or read_values(settings).seeds or folder is None or folder.exists()):
        raise UsageError("give at least one seed: a URL, or a file with one URL a line")
    if is_worker:
        return _crawl_as_worker(settings, {**arguments, "seeds": job.urls}, tables)
    for each in tables:
        each.open()
    begun = job.seeds_at.has_job()
    if not begun:
        job.begin()
    elif job.lists:
        job.say(
            f"{', '.join(job.lists)} was read when the job began; 'scrapy aopic seed {job.seeds_at}' adds seeds."
        )
    job.say(
        f"{'Going on with' if begun else 'Beginning'} the crawl in {job.place}. Ctrl-C stops it, and the same command goes "
        f"on; 'scrapy aopic top {job.place}' shows the most important pages so far."
    )
    if wants_workers(settings):
        configure_logging(cast("Settings", settings))
        workers = Workers(settings, most_pages=opts.pages)
        code = workers.run()
        n, stats = workers.sums["pages"], {"finish_reason": workers.reason or "finished", **workers.stats}
    else:
        process = _process(settings)
        crawler = process.create_crawler(BroadSpider)
        received = _Received(crawler, opts.pages)
        for each in tables:
            crawler.signals.connect(each.slot_closed, signal=signals.feed_slot_closed)
        process.crawl(crawler, **arguments, seeds=job.urls)
        process.start()
        assert crawler.stats is not None
        code, n, stats = int(process.bootstrap_failed), received.n, crawler.stats.get_stats()
    for each in tables:
        each.close()
    if code:
        return code
    is_shared = read_values(settings).shards.n > 1
    job.say_round(stats, in_rounds=bool(opts.again or opts.every))
    why = "" if n else _why_nothing(stats, is_shared=is_shared)
    if not why:
        return 0
    url = job.urls[0] if job.urls else "URL"
    job.say(f"Nothing was fetched: {why}. 'scrapy aopic why {job.place} {url}' says why a page was not.")
    return _NOTHING_FETCHED


def _crawl_as_worker(settings: BaseSettings, arguments: dict[str, Any], tables: list[ParquetFolder]) -> int:
    """Crawl as one of several workers, whose parent does and says what there is one of."""
    from scrapy import signals

    from scrapy_aopic.spiders import BroadSpider

    process = _process(settings)
    crawler = process.create_crawler(BroadSpider)
    for each in tables:
        crawler.signals.connect(each.slot_closed, signal=signals.feed_slot_closed)
    process.crawl(crawler, **arguments)
    process.start()
    return int(process.bootstrap_failed)


def _why_nothing(stats: Mapping[str, Any], *, is_shared: bool) -> str:
    """Why a run with these *stats* has fetched nothing; ``""`` if it was interrupted, even at its start, or the job was complete.

    Args:
        is_shared: Whether other workers may have fetched all that there was.
    """
    if stats.get("finish_reason", "shutdown") == "shutdown":
        return ""
    refused = "aopic/urls/refused/"
    counts = {
        "seeds that were dropped": stats.get("aopic/seeds/dropped", 0),
        "URLs that were refused": sum(n for name, n in stats.items() if name.startswith(refused)),
        "pages that robots.txt forbids": (forbidden := stats.get("aopic/outcomes/robots.txt", 0)),
        "pages that failed": stats.get("aopic/pages/failed", 0) - forbidden,
        "pages that still wait": stats.get("aopic/job/queued", 0),
    }
    found = [f"{what}: {n:,}" for what, n in counts.items() if n > 0]
    if not found and (is_shared or stats.get("aopic/job/visited")):
        return ""
    return ", ".join(found) or "there was nothing to fetch"


def _check_arguments(opts: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the spider, but for its seeds."""
    from scrapy_aopic.exceptions import SettingError
    from scrapy_aopic.spiders import BroadSpider, check_option

    arguments = {
        "domains": ",".join(opts.domains),
        "scope": opts.scope,
        "allow": opts.allow,
        "deny": opts.deny,
        "fields": BroadSpider.fields if opts.fields is None else opts.fields,
    }
    try:
        for name, value in arguments.items():
            check_option(name, value, f"--{name}")
        for seed in opts.seeds:
            if not check_option("seeds", [seed], "SEEDS"):
                raise UsageError(f"SEEDS ({seed!r}) must not be empty")
        BroadSpider(**arguments, seeds=[seed for seed in opts.seeds if "://" in seed]).check()
    except SettingError as error:
        raise UsageError(str(error).removesuffix(".")) from error
    check_counts(opts, "pages", "seconds")
    return arguments


def _time(text: str) -> str:
    from scrapy_aopic.settings.parse import intervals

    try:
        intervals(text)
    except (ValueError, TypeError) as error:
        raise ArgumentTypeError(f'{text!r} must be a time such as "12 hours"') from error
    return text


def _set_up(opts: argparse.Namespace, fields: tuple[str, ...], settings: BaseSettings) -> list[ParquetFolder]:
    """Set what the options say in *settings*; items have *fields*. Returns the folders of Parquet files to write."""
    from scrapy_aopic.place.folder_place import worker_number
    from scrapy_aopic.settings import read_values

    if opts.topic is not None:
        settings.set("AOPIC_TOPIC", {"keywords": opts.topic}, "cmdline")
        settings.set("AOPIC_ORDER", "focused", "cmdline")
    has_revisits = opts.again or opts.every or opts.changed_only or opts.gone
    defaults = _SETTINGS | (_OF_REVISITS if has_revisits else {})
    if read_values(settings).topic is not None:
        defaults["AOPIC_ITEM_FIELDS"] += ("relevance",)
    for name, value in defaults.items():
        if settings.getpriority(name) in (None, 0, _priority("command")):
            settings.set(name, value, "command")
    _set_user_agent(opts.contact, settings)
    is_plain = not settings.getdict("ITEM_PIPELINES")  # otherwise a pipeline of the user may add fields
    _set_components(opts, settings)
    _set_revisits(opts, settings)
    if opts.workers is not None:
        settings.set("AOPIC_WORKERS", opts.workers, "cmdline")
    if opts.seconds is not None and not worker_number():
        settings.set("CLOSESPIDER_TIMEOUT", opts.seconds, "cmdline")
    if not opts.output:
        return []
    added = read_values(settings).item_fields
    return _set_feeds(opts.output, (*fields, *added) if fields and is_plain else (), settings)


def _set_revisits(opts: argparse.Namespace, settings: BaseSettings) -> None:
    """Set how pages are visited again, by the options if they say it, in *settings*."""
    from scrapy_aopic.core.revisits import Recrawl
    from scrapy_aopic.settings import read_values

    if opts.older_than and not (opts.again or opts.every):
        raise UsageError("--older-than needs --again or --every")
    how = read_values(settings).recrawl or Recrawl()
    words: list[object] = [f"{100 * how.share:g} %", *filter(None, [how.by])]
    words += ["changed"] * (opts.changed_only or how.only_changed) + ["gone"] * (opts.gone or how.gone)
    if opts.again or opts.every:
        times = [each for each in (opts.older_than, opts.every) if each]
        settings.set("AOPIC_RECRAWL", [*times, "every" if opts.every else "once", *words], "cmdline")
    elif opts.changed_only or opts.gone:
        settings.set("AOPIC_RECRAWL", [how.min_interval, how.max_interval, *words], "cmdline")


def _priority(name: str) -> int:
    from scrapy.settings import SETTINGS_PRIORITIES

    return SETTINGS_PRIORITIES[name]


def _is_given(settings: BaseSettings, name: str) -> bool:
    """Whether the project or the command line sets *name*."""
    return (settings.getpriority(name) or 0) >= _priority("project")


def _set_user_agent(contact: str | None, settings: BaseSettings) -> None:
    from scrapy_aopic.settings.parse import shown
    from scrapy_aopic.version import __version__

    if contact is None:
        if not _is_given(settings, "USER_AGENT"):
            raise UsageError(
                "say who crawls, so that the people behind a host can reach you: --contact with a web page such as "
                "https://example.org/crawler, or an e-mail address (or set USER_AGENT)"
            )
        return
    if (settings.getpriority("USER_AGENT") or 0) >= _priority("cmdline"):
        raise UsageError("give --contact or USER_AGENT, not both")
    if (
        not _CONTACT.fullmatch(contact)
        or len(contact) > _LONGEST_CONTACT
        or ("@" in contact) == ("://" in contact)
    ):
        raise UsageError(
            f"--contact ({shown(contact)}) must be a web page such as https://example.org/crawler, or an e-mail address"
        )
    plus = "+" if "://" in contact else ""
    settings.set("USER_AGENT", f"scrapy-aopic/{__version__} ({plus}{contact})", "cmdline")


def _set_components(opts: argparse.Namespace, settings: BaseSettings) -> None:
    from scrapy.utils.misc import load_object

    from scrapy_aopic.addon import Addon
    from scrapy_aopic.pipelines import ImportancePipeline, PagesPipeline
    from scrapy_aopic.scheduler import Scheduler

    if _is_given(settings, "SCHEDULER"):
        try:
            parents = load_object(settings["SCHEDULER"]).__mro__
        except (AttributeError, ImportError, NameError, ValueError):
            parents = ()
        if Scheduler not in parents:  # issubclass() is true of whatever has the methods of a scheduler
            raise UsageError(
                f"SCHEDULER ({settings['SCHEDULER']}) must be scrapy_aopic.Scheduler; to crawl with another one, run "
                "scrapy_aopic.BroadSpider in a project"
            )
    settings.setdefault_in_component_priority_dict("ADDONS", Addon, 500)
    settings.setdefault_in_component_priority_dict("ITEM_PIPELINES", ImportancePipeline, 300)
    if opts.warc is not None:
        _check_warc()
        settings.setdefault_in_component_priority_dict("ITEM_PIPELINES", PagesPipeline, 800)
        folder = str(opts.warc).replace("%", "%%")
        settings.set("AOPIC_WARC_FILE", f"{folder}/%(name)s-%(time)s.warc.gz", "cmdline")


def _check_warc() -> None:
    from importlib.util import find_spec

    if find_spec("warcio") is None:
        raise UsageError("--warc needs warcio: pip install warcio")


def _set_feeds(output: list[str], fields: tuple[str, ...], settings: BaseSettings) -> list[ParquetFolder]:
    """Have items with *fields* written to *output*; if they are empty, whatever fields the items have.

    Returns:
        Those of *output* that are folders of Parquet files.
    """
    from scrapy.utils.conf import feed_process_params_from_cli

    from scrapy_aopic.exporters import ParquetFolder
    from scrapy_aopic.place.file_formats import is_parquet

    if "csv" not in settings.getdict("FEED_EXPORTERS"):
        exporters = {**settings.getdict("FEED_EXPORTERS"), "csv": "scrapy_aopic.exporters.TableExporter"}
        settings.set("FEED_EXPORTERS", exporters, "cmdline")
    tables = [uri for uri in dict.fromkeys(output) if is_parquet(uri)]
    for uri in tables:
        if "://" in uri:
            raise UsageError(f"--output ({uri}): write to a local folder, and copy its files")
    folders = [ParquetFolder(Path(uri), fields) for uri in tables]
    feeds = feed_process_params_from_cli(settings, [uri for uri in output if uri not in tables])
    for each in folders:
        feeds[each.feed] = {"format": "jsonlines", "batch_item_count": _BATCH, "store_empty": False}
    for uri, feed in feeds.items():
        if feed.get("format") in _NOT_APPENDED:
            raise UsageError(
                f"--output ({uri}): a crawl that goes on adds to its items, which is impossible in {feed['format']}; use "
                "jsonl, csv or parquet"
            )
        if feed.get("format") == "csv" and fields:
            feed["fields"] = list(fields)
            _check_columns(uri, feed)
        if uri == "stdout:":  # one thing at a time
            settings.set("AOPIC_REPORT", False, "command")
    settings.set("FEEDS", feeds, "cmdline")
    return folders


def _check_columns(uri: str, feed: Mapping[str, Any]) -> None:
    """Raise an error if there is a table at *uri* to which items of *feed* cannot be added.

    Raises:
        UsageError: If it has other columns, or cannot be read.
    """
    from scrapy_aopic._engine.feeds import columns_of, read_columns
    from scrapy_aopic.exceptions import plainly

    if "://" in uri:
        return
    try:
        found = read_columns(Path(uri), feed)
    except OSError as error:
        raise UsageError(f"--output ({uri}) cannot be read: {plainly(error)}") from error
    fields = columns_of(feed)
    if found and fields and found != fields:
        raise UsageError(
            f"--output ({uri}) begins with {','.join(found)[:200]!r}, and the items of this crawl have the fields "
            f"{','.join(fields)}: use another file"
        )


class _Job:
    """Where a crawl is remembered, and what it begins with.

    Attributes:
        place: Where it is, or its part of this machine.
        seeds_at: Where its lists of seeds wait.
        urls: Seeds that are URLs, which the spider requests.
        lists: Seeds that are lists, which are read once, when the job begins.
    """

    def __init__(self, opts: argparse.Namespace, settings: BaseSettings, arguments: dict[str, Any]) -> None:
        from scrapy_aopic.place.folder_place import FolderPlace
        from scrapy_aopic.place.server_place import ServerPlace
        from scrapy_aopic.settings import read_address, read_values
        from scrapy_aopic.spiders import BroadSpider
        from scrapy_aopic.storage.registry import SERVER

        self.urls = [seed for seed in opts.seeds if "://" in seed]
        self.lists = [seed for seed in opts.seeds if "://" not in seed]
        self._is_quiet = not settings.getbool("LOG_ENABLED")
        name = _name(opts.seeds, arguments)
        self.place: Place = opts.job or FolderPlace(Path(settings.get("JOBDIR") or Path("crawls") / name))
        if isinstance(self.place, ServerPlace):  # Scrapy has a setting for each
            self.place = ServerPlace(_on_server(self.place.address, name, settings))
        elif read_values(settings).store == SERVER and not opts.job:
            self.place = ServerPlace(_on_server(None, name, settings))
        else:
            self.place.check()
            settings.set("JOBDIR", str(self.place), "cmdline")
        self.seeds_at = self.place
        if read_values(settings).shards.folders:
            self.seeds_at = ServerPlace(read_address(settings, BroadSpider.name))

    def begin(self) -> None:
        """Make its folder, if it is in one, and let the lists of seeds wait in it.

        Raises:
            ExchangeError, StorageError: If there can be no such folder, or one of the lists cannot be used or put there.
        """
        from scrapy_aopic.exceptions import storage_errors
        from scrapy_aopic.place.seed_files import START
        from scrapy_aopic.seeds.adding import add_seeds

        if (folder := self.place.folder) is not None:
            with storage_errors(f"The job folder {folder} cannot be made"):
                folder.mkdir(parents=True, exist_ok=True)
        if self.lists:
            add_seeds(self.seeds_at, self.lists, name=START, progress=True)

    def say_round(self, stats: Mapping[str, Any], *, in_rounds: bool) -> None:
        """Say what the last round has found, or else what revisits have in the run with these *stats*."""
        from scrapy_aopic.core.revisits.rounds import Round
        from scrapy_aopic.exceptions import StorageError
        from scrapy_aopic.view.job_view import open_view
        from scrapy_aopic.view.queries import rounds_in
        from scrapy_aopic.view.text import round_sentence

        found = {name.rpartition("/")[2]: n for name, n in stats.items() if name.startswith("aopic/recrawl/")}
        last = Round(0, 0.0, known=found.get("visits", 0) + found.get("failed", 0), found=found)
        if in_rounds:
            with suppress(StorageError), open_view(self.place) as view:  # shards on disks are elsewhere
                last = rounds_in(view)[-1]
        if last.known or last.number:
            self.say(round_sentence(last))

    def say(self, sentence: str) -> None:
        """Tell the user, who may be reading standard output as data."""
        if not self._is_quiet:
            sys.stderr.write(f"{sentence}\n")


def _on_server(given: Address | None, name: str, settings: BaseSettings) -> Address:
    """Where the job that is *given*, or else the one called *name*, is on a server; *settings* say so, too, from now on."""
    from scrapy_aopic.settings import read_address
    from scrapy_aopic.spiders import BroadSpider
    from scrapy_aopic.storage.registry import SERVER

    settings.set("AOPIC_STORE", SERVER, "cmdline")
    key = ""
    if given is not None:
        key = given.key
        if given.url not in {"redis:", "redis://"}:
            settings.set("REDIS_URL", given.url, "cmdline")
    if key or not _is_given(settings, "AOPIC_REDIS_KEY"):
        settings.set("AOPIC_REDIS_KEY", key or f"aopic:{name}", "cmdline")
    return read_address(settings, BroadSpider.name)


def _name(seeds: list[str], arguments: dict[str, Any]) -> str:
    """Name of the job of a crawl from *seeds*: the same for the same crawl."""
    from scrapy_aopic.web.origins import host_name

    first = seeds[0] if seeds else ""
    word = re.sub(r"[^\w.-]", "-", (host_name(first) if "://" in first else Path(first).stem))[:_LONGEST_NAME]
    scope = {name: value for name, value in arguments.items() if name != "fields"}
    return f"{word or 'crawl'}-{blake2b(repr((seeds, scope)).encode(), digest_size=4).hexdigest()}"


def _process(settings: BaseSettings) -> CrawlerProcess | AsyncCrawlerProcess:
    """A process as ``scrapy crawl`` has it."""
    from scrapy.crawler import AsyncCrawlerProcess, CrawlerProcess

    is_async = settings["TWISTED_REACTOR"] == _ASYNCIO_REACTOR and not settings.getbool(
        "FORCE_CRAWLER_PROCESS"
    )
    needs_async = not settings.getbool("TWISTED_REACTOR_ENABLED", True)
    return (AsyncCrawlerProcess if is_async or needs_async else CrawlerProcess)(cast("Settings", settings))


class _Received:
    """Counts the responses of a crawl, and closes the spider after *most*; ``CLOSESPIDER_PAGECOUNT`` also counts each robots.txt.

    Attributes:
        n: Responses so far, without robots.txt and the like.
    """

    def __init__(self, crawler: Crawler, most: int | None) -> None:
        from scrapy import signals

        from scrapy_aopic._engine.closing import Closing

        self.n = 0
        self._most = most
        self._closing = Closing(crawler)
        crawler.signals.connect(self._received, signal=signals.response_received)

    def _received(self, request: Request) -> None:
        from scrapy_aopic.web.origins import FILES, origin_of_file

        self.n += origin_of_file(request.url, *FILES) is None
        if self.n == self._most:
            self._closing.close("closespider_pagecount")
