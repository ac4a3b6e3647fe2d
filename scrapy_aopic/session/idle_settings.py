"""Says which settings of Scrapy's a user has set that change nothing, and what does instead."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.settings import SETTINGS_PRIORITIES

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_aopic.core.host_rules import HostRules

logger = logging.getLogger(__name__)

_CONNECTIONS = 'a host gets one request at a time; AOPIC_HOST_RULES = {"my.example": {"connections": 8}} gives one of your own several'
_ADDRESS = 'AOPIC_POLITENESS_KEY = "host+address" has the hosts of one address take turns'
_NO_CHANCE = "gaps are not random; AOPIC_MIN_GAP and AOPIC_MAX_GAP bound them"
_ORDER = 'AOPIC_ORDER decides which page is next, such as "breadth-first"'

_QUEUES = ("PRIORITY_QUEUE", "DISK_QUEUE", "MEMORY_QUEUE", "START_DISK_QUEUE", "START_MEMORY_QUEUE")


def warn_of_idle_slots(crawler: Crawler, rules: HostRules) -> None:
    """Warn of settings of download slots that change nothing while those of :mod:`scrapy_aopic._engine.slots` take their place.

    Who has found the option ``connections`` of *rules* is not told of it.
    """
    settings = crawler.settings
    slots = settings.getdict("DOWNLOAD_SLOTS").values()
    throttles, has_one = settings.getbool("AUTOTHROTTLE_ENABLED"), "connections" not in rules.options
    many = has_one and settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") > 1
    many_in_slots = has_one and any(int(slot.get("concurrency", 1)) > 1 for slot in slots)
    many_wanted = has_one and throttles and settings.getfloat("AUTOTHROTTLE_TARGET_CONCURRENCY") > 1
    at_random = any(slot.get("jitter") or slot.get("randomize_delay") for slot in slots)
    for name, is_idle, instead in (
        ("CONCURRENT_REQUESTS_PER_DOMAIN", many, _CONNECTIONS),
        ("DOWNLOAD_SLOTS", many_in_slots, _CONNECTIONS),
        ("AUTOTHROTTLE_TARGET_CONCURRENCY", many_wanted, _CONNECTIONS),
        ("CONCURRENT_REQUESTS_PER_IP", int(settings["CONCURRENT_REQUESTS_PER_IP"] or 0) > 0, _ADDRESS),
        ("DOWNLOAD_SLOTS", at_random, _NO_CHANCE),
        ("DOWNLOAD_DELAY_JITTER", settings.getfloat("DOWNLOAD_DELAY_JITTER") > 0, _NO_CHANCE),
        ("RANDOMIZE_DOWNLOAD_DELAY", settings.getbool("RANDOMIZE_DOWNLOAD_DELAY"), _NO_CHANCE),
    ):
        if is_idle:
            _warn(crawler, name, instead)


def warn_of_idle_queues(crawler: Crawler) -> None:
    """Warn of settings of queues that change nothing, as the scheduler of this package has others."""
    for queue in _QUEUES:
        _warn(crawler, f"SCHEDULER_{queue}", _ORDER)


def _warn(crawler: Crawler, name: str, instead: str) -> None:
    """Warn of the setting *name* if the user has set it."""
    if (crawler.settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["addon"]:
        logger.warning(
            "%(name)s = %(value)r changes nothing: %(instead)s (scrapy aopic docs settings#how-scrapys-settings-work-with-it)",
            {"name": name, "value": crawler.settings[name], "instead": instead},
            extra={"spider": crawler.spider},
        )
