"""``scrapy aopic import-redis``: go on with a crawl of scrapy-redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.view.output import write

from .common import add_jobdir, complete_address, crawl_settings, server_beside

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = (
    "Take over the queue and the dupefilter of a crawl with scrapy-redis. The old crawl must be stopped; its keys are only "
    "read. Nothing is unpickled."
)

_KEYS = {
    "queue": ("SCHEDULER_QUEUE_KEY", "%(spider)s:requests"),
    "start_urls": ("REDIS_START_URLS_KEY", "%(name)s:start_urls"),
    "dupefilter": ("SCHEDULER_DUPEFILTER_KEY", "%(spider)s:dupefilter"),
}
"""Settings of scrapy-redis that name keys, and their defaults."""

_SCHEMES = ("scrapy-redis", "scrapy", "scrapy-2.6")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobdir(parser)
    parser.add_argument(
        "spider", metavar="SPIDER", help="name of the spider, by which scrapy-redis names its keys"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="server of the old crawl: redis://HOST:PORT/DATABASE (default: the one that the settings name, or else the one of a job on a server)",
    )
    parser.add_argument("--queue", metavar="KEY", help="key of its queue (default: SPIDER:requests)")
    parser.add_argument(
        "--start-urls", metavar="KEY", help="key of its start URLs (default: SPIDER:start_urls)"
    )
    parser.add_argument(
        "--dupefilter", metavar="KEY", help="key of its fingerprints (default: SPIDER:dupefilter)"
    )
    parser.add_argument(
        "--fingerprints", choices=_SCHEMES, default="", help="what made them (default: as the queue shows)"
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out requests that cannot be taken over, instead of refusing all",
    )


def run(opts: argparse.Namespace, settings: BaseSettings) -> int:
    from scrapy_aopic.seeds.scrapy_redis import OldCrawl, import_crawl
    from scrapy_aopic.settings import read_values
    from scrapy_aopic.storage.address import Address
    from scrapy_aopic.view.text import n_of
    from scrapy_aopic.web.networks import Networks

    server = opts.source or server_beside(opts.jobdir, settings)
    source = complete_address(Address("scrapy-redis", server), settings)
    keys = {}
    for name, (setting, default) in _KEYS.items():
        given = getattr(opts, name)
        pattern = str(settings.get(setting) or default) if given is None else given
        keys[name] = pattern.replace("%(spider)s", opts.spider).replace("%(name)s", opts.spider)
    old = OldCrawl(source, keys["queue"], keys["start_urls"], keys["dupefilter"])
    networks = Networks(read_values(crawl_settings(settings)).allow_networks)
    done = import_crawl(
        old, opts.jobdir, networks, scheme=opts.fingerprints, skip_bad=opts.skip_bad, progress=True
    )
    left = f" Left out: {done.bad:,}. The first: {done.first_bad}." if done.bad else ""
    write(
        f"{n_of(done.requests, 'request')} and {n_of(done.start_urls, 'start URL')} of {opts.spider} added to the crawl of "
        f"{opts.jobdir}, and {n_of(done.fetched, 'page')} that it has fetched, not to be fetched again.{left}"
    )
    if done.refused:
        write(
            f"Refused as long as AOPIC_ALLOW_NETWORKS does not allow their hosts, which are not on the Internet, or their ports: "
            f"{n_of(done.refused, 'request')}. The first: {done.first_refused}. They are kept, and fetched by the first run with a "
            "setting that does."
        )
    return 0
