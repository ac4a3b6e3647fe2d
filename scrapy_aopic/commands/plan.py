"""``scrapy aopic plan``: what a crawl by many machines takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scrapy.exceptions import UsageError

from scrapy_aopic.view.output import write

from .common import add_json

if TYPE_CHECKING:
    import argparse

    from scrapy.settings import BaseSettings

MEANING = "What a crawl by several machines takes. Workers, cores, memory, disks and network, by what was measured on small ones."

_MONTH = 30 * 86_400
"""Seconds."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    speed = parser.add_mutually_exclusive_group(required=True)
    speed.add_argument("--pages-per-second", metavar="N", type=float, help="how fast")
    speed.add_argument("--pages-per-month", metavar="N", type=float, help="the same, of 30 days")
    parser.add_argument("--urls", metavar="N", type=float, required=True, help="URLs that the job will know")
    parser.add_argument(
        "--transfer", metavar="SECONDS", type=float, default=0.3, help="of a page (default: %(default)s)"
    )
    parser.add_argument(
        "--page-kb",
        metavar="KB",
        type=float,
        default=30.0,
        help="of a page, as transferred (default: %(default)s)",
    )
    parser.add_argument(
        "--page-ms",
        metavar="MS",
        type=float,
        default=0.0,
        help="CPU of your callbacks and pipelines for a page, beyond following its links (default: %(default)s)",
    )
    parser.add_argument(
        "--server-gb",
        metavar="GB",
        type=float,
        default=256.0,
        help="memory of your largest server (default: %(default)s)",
    )
    parser.add_argument(
        "--topic",
        choices=("graded", "focused", "contextual"),
        help="for a crawl for a topic: with the strategy contextual, the default, or another one that learns; with focused, or "
        "another one that does not; or graded, in an order that does not go by it",
    )


def run(opts: argparse.Namespace, _: BaseSettings) -> int:
    from dataclasses import asdict

    from scrapy_aopic.lab.plan import (
        ON_DISKS,
        ON_SERVER,
        TOPIC_ON_DISKS,
        TOPIC_ON_SERVER,
        Wanted,
        for_topic,
        format_plans,
        plan,
    )

    numbers = {
        "--pages-per-second": opts.pages_per_second,
        "--pages-per-month": opts.pages_per_month,
        "--urls": opts.urls,
        "--transfer": opts.transfer,
        "--page-kb": opts.page_kb,
        "--server-gb": opts.server_gb,
    }
    for name, value in numbers.items():
        if value is not None and not 0 < value < 1e15:
            raise UsageError(f"{name} ({value:g}) must be above 0")
    if not 0 <= opts.page_ms < 1e6:
        raise UsageError(f"--page-ms ({opts.page_ms:g}) must be 0 or more")
    rate = opts.pages_per_second or opts.pages_per_month / _MONTH
    wanted = Wanted(rate, opts.urls, opts.transfer, opts.page_kb, opts.page_ms)
    on_server, on_disks = ON_SERVER, ON_DISKS
    if opts.topic:
        on_server = for_topic(on_server, TOPIC_ON_SERVER[opts.topic])
        on_disks = for_topic(on_disks, TOPIC_ON_DISKS[opts.topic])
    plans = {
        name: plan(wanted, costs, largest=opts.server_gb * 1e9)
        for name, costs in (("shards on server", on_server), ("shards on disks", on_disks))
    }
    if opts.json:
        write(json.dumps({name: asdict(each) for name, each in plans.items()}, indent=1))
    else:
        write(format_plans(wanted, plans))
    return 0
