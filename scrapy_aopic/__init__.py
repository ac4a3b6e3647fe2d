"""Importance-first, polite, crash-safe broad crawls for Scrapy.

==============================  ==================================================================
:class:`Scheduler`              ``SCHEDULER``: the most important page that may be asked now
:class:`Addon`                  ``ADDONS``: sets all of this and the settings around it
:class:`BroadSpider`            a spider that only needs seeds, to use as it is or to inherit from
:class:`DupeFilter`             ``DUPEFILTER_CLASS``: seen fingerprints on disk, beside any scheduler
:class:`Links`                  what a callback yields for all links of its page at once
:class:`LinkExtractor`          Scrapy's, with the same results, in a fraction of its time
:class:`LinkMiddleware`         ``SPIDER_MIDDLEWARES``: tells the ledger which links a page has
:class:`ContentTypeMiddleware`  ``DOWNLOADER_MIDDLEWARES``: HTML as browsers recognise it
:class:`PolitenessMiddleware`   ``DOWNLOADER_MIDDLEWARES``: waits a multiple of each transfer's time
:class:`ImportancePipeline`     ``ITEM_PIPELINES``: importance, cash, history, visits on items
:class:`PagesPipeline`          ``ITEM_PIPELINES``: what was fetched as WARC
:class:`Progress`               ``EXTENSIONS``: the progress line
:class:`RobotsMiddleware`       ``DOWNLOADER_MIDDLEWARES``: robots.txt by RFC 9309, on disk
==============================  ==================================================================

Below them, ``core`` decides (it knows neither Scrapy nor disks) and ``storage`` remembers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .addon import Addon
    from .downloadermiddlewares.content_type import ContentTypeMiddleware
    from .downloadermiddlewares.politeness import PolitenessMiddleware
    from .downloadermiddlewares.robots import RobotsMiddleware
    from .dupefilter import DupeFilter
    from .extensions import Progress
    from .linkextractors import LinkExtractor
    from .links import Links
    from .pipelines import ImportancePipeline, PagesPipeline
    from .scheduler import Scheduler
    from .spidermiddlewares import LinkMiddleware
    from .spiders import BroadSpider

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
}

__all__ = [
    "Addon",
    "BroadSpider",
    "ContentTypeMiddleware",
    "DupeFilter",
    "ImportancePipeline",
    "LinkExtractor",
    "LinkMiddleware",
    "Links",
    "PagesPipeline",
    "PolitenessMiddleware",
    "Progress",
    "RobotsMiddleware",
    "Scheduler",
]


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that ``scrapy_aopic.core`` can be imported without Scrapy."""
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
