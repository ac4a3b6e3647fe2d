"""Importance-first, polite, crash-safe broad crawls for Scrapy.

==============================  ==================================================================
:func:`open_job`                a job as data: its figures, pages, links, hosts, and why
:class:`Scheduler`              ``SCHEDULER``: the most important page whose host is ready
:class:`Addon`                  ``ADDONS``: sets all of this and the settings around it
:class:`BroadSpider`            a spider that only needs seeds, to use as it is or to inherit from
:class:`DupeFilter`             ``DUPEFILTER_CLASS``: seen fingerprints on disk, beside any scheduler
:class:`Links`                  all links of a page at once, for a callback to yield
:class:`LinkExtractor`          Scrapy's, with the same results, in a fraction of its time
:class:`LinkMiddleware`         ``SPIDER_MIDDLEWARES``: tells the ledger which links a page has
:class:`ContentTypeMiddleware`  ``DOWNLOADER_MIDDLEWARES``: HTML as browsers recognise it
:class:`PolitenessMiddleware`   ``DOWNLOADER_MIDDLEWARES``: waits a multiple of each transfer's time
:class:`ImportancePipeline`     ``ITEM_PIPELINES``: importance, cash, history, visits on items
:class:`PagesPipeline`          ``ITEM_PIPELINES``: fetched pages as WARC
:class:`Progress`               ``EXTENSIONS``: the progress line
:class:`RobotsMiddleware`       ``DOWNLOADER_MIDDLEWARES``: robots.txt by RFC 9309, on disk
==============================  ==================================================================

These names are promised; docs/api.md says what else is.

Scrapy's side, where those classes are:

* :mod:`.addon`: ``Addon``
* :mod:`.components`: finds the components of a crawl, or adds those that are missing
* :mod:`.scheduler`: ``Scheduler``
* :mod:`.spidermiddlewares`: ``LinkMiddleware``
* :mod:`.downloadermiddlewares`: politeness, robots.txt and content types
* :mod:`.dupefilter`: ``DupeFilter``
* :mod:`.pipelines`: ``ImportancePipeline`` and ``PagesPipeline``
* :mod:`.extensions`: ``Progress``
* :mod:`.exporters`: an exporter of items as CSV that is safe to open in a spreadsheet
* :mod:`.reader`: ``open_job``
* :mod:`.logformatter`: a log formatter for broad crawls
* :mod:`.spiders`: ``BroadSpider``
* :mod:`.links`: ``Links``
* :mod:`.linkextractors`: ``LinkExtractor``
* :mod:`.request_errors`: exceptions that errbacks get for refused requests
* :mod:`.exceptions`: all other errors
* :mod:`.stats_table`: every stat, in one table
* :mod:`.settings`: every setting, in one table
* :mod:`.commands`: ``scrapy aopic``
* :mod:`.local_workers`: several processes for one crawl
* :mod:`.version`: the version

Behind it:

* :mod:`.core`: decides; it knows neither Scrapy nor disks nor clocks
* :mod:`.storage`: remembers: RocksDB, SQLite, Redis, memory
* :mod:`.place`: where a job is: a folder or a server
* :mod:`.job`: runs a job on its stores
* :mod:`.seeds`: starts a job, or adds to it
* :mod:`.session`: a crawl inside Scrapy
* :mod:`.focus`: a topic from what a user gives
* :mod:`.view`: shows a job: figures, reports, tables, why
* :mod:`.dashboard`: shows it in a browser
* :mod:`.copies`: backups and moves of jobs, and what is left of damaged ones
* :mod:`.web`: URLs, pages and requests as such
* :mod:`.lab`: experiments on link graphs
* :mod:`._engine`: private names of Scrapy
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .addon import Addon as Addon
    from .downloadermiddlewares.content_type import ContentTypeMiddleware as ContentTypeMiddleware
    from .downloadermiddlewares.polite_downloads import PolitenessMiddleware as PolitenessMiddleware
    from .downloadermiddlewares.robots import RobotsMiddleware as RobotsMiddleware
    from .dupefilter import DupeFilter as DupeFilter
    from .extensions import Progress as Progress
    from .linkextractors import LinkExtractor as LinkExtractor
    from .links import Links as Links
    from .pipelines import ImportancePipeline as ImportancePipeline
    from .pipelines import PagesPipeline as PagesPipeline
    from .reader import open_job as open_job
    from .scheduler import Scheduler as Scheduler
    from .spidermiddlewares import LinkMiddleware as LinkMiddleware
    from .spiders import BroadSpider as BroadSpider

_WHERE = {
    "Addon": "addon",
    "BroadSpider": "spiders",
    "ContentTypeMiddleware": "downloadermiddlewares",
    "DupeFilter": "dupefilter",
    "ImportancePipeline": "pipelines",
    "LinkExtractor": "linkextractors",
    "LinkMiddleware": "spidermiddlewares",
    "Links": "links",
    "PagesPipeline": "pipelines",
    "PolitenessMiddleware": "downloadermiddlewares",
    "Progress": "extensions",
    "RobotsMiddleware": "downloadermiddlewares",
    "Scheduler": "scheduler",
    "open_job": "reader",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that ``scrapy_aopic.core`` can be imported without Scrapy."""
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is promised, for whoever asks for a list."""
    return [*__all__, "__version__"]
