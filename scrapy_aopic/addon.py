"""One line of set-up: ``ADDONS = {"scrapy_aopic.Addon": 500}``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.extensions.spiderstate import SpiderState
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, Settings
from scrapy.utils.job import job_dir
from scrapy.utils.misc import load_object

from ._engine.feeds import part_feeds
from .downloadermiddlewares.content_type import ContentTypeMiddleware
from .downloadermiddlewares.polite_downloads import PolitenessMiddleware
from .downloadermiddlewares.robots import RobotsMiddleware
from .exceptions import ANY_ERROR
from .extensions import Progress
from .place.folder_place import worker_number
from .scheduler import Scheduler
from .settings import SETTINGS, url_limits, url_rules
from .spidermiddlewares import LinkMiddleware
from .web.url_rules import BROAD_RULES

_NEIGHBOURS: dict[str, Any] = {
    "CONCURRENT_REQUESTS": 100,  # hosts in parallel, each with one request at a time
    "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    "DOWNLOAD_DELAY": 0.001,  # with 0, Scrapy does not hold CONCURRENT_REQUESTS_PER_DOMAIN
    "DOWNLOAD_DELAY_JITTER": 0,  # the gap is a multiple of what the host took, not a guess
    "AUTOTHROTTLE_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "COOKIES_ENABLED": False,  # a session is no page
    "DOWNLOAD_TIMEOUT": 30,  # of a whole transfer, however slowly it drips
    "DOWNLOAD_MAXSIZE": 10 * 1024 * 1024,  # of a body, also once it is unpacked
    "REDIRECT_MAX_TIMES": 10,
    "REDIRECT_PRIORITY_ADJUST": 0,  # no host may have its pages first by sending them elsewhere
    "RETRY_PRIORITY_ADJUST": 0,  # a page that failed waits behind others anyway
    "METAREFRESH_MAXDELAY": 10,  # a page that reloads itself every minute is a page, and no redirect
    "REFERRER_POLICY": "strict-origin-when-cross-origin",  # as browsers: a URL may have secrets
}

_LOOKS = {"bench", "check", "fetch", "parse", "shell", "view"}
"""Commands of Scrapy that look at a page, or at what a spider makes of one."""

_NO_JOB = {"JOBDIR": None, "AOPIC_STORE": "memory", "AOPIC_SHARDS": 1}

_ROBOTS = (RobotsMiddleware, RobotsTxtMiddleware)


class Addon:
    """Sets every component and the neighbouring settings of a broad crawl, never over what the user set."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Set what is still at its default."""
        if _is_look():
            _leave_the_job_alone(settings)
        for name, value in _NEIGHBOURS.items():
            if name in settings:
                _set_default(settings, name, value)
        for each in SETTINGS.values():
            if each.alone is not None:
                _set_default(settings, each.name, each.default)
        _complete(settings)
        _set_default(settings, "SCHEDULER", Scheduler)
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", LinkMiddleware, 2000)
        settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", PolitenessMiddleware, 990)
        settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", ContentTypeMiddleware, 585)
        settings.setdefault_in_component_priority_dict("EXTENSIONS", Progress, 0)
        try:
            job_dir(cast("Settings", settings))
        except OSError:  # Scrapy's extension would raise it, too: the scheduler has a sentence for it
            settings.set_in_component_priority_dict("EXTENSIONS", SpiderState, None)
        if number := worker_number():
            part_feeds(settings, number)
        else:
            _start_workers(settings)
        listed = [load_object(each) for each in settings.getdict("DOWNLOADER_MIDDLEWARES")]
        if not any(isinstance(each, type) and issubclass(each, _ROBOTS) for each in listed):
            with suppress(KeyError):  # who has taken Scrapy's away gets none
                settings.replace_in_component_priority_dict(
                    "DOWNLOADER_MIDDLEWARES_BASE", RobotsTxtMiddleware, RobotsMiddleware
                )


def _is_look() -> bool:
    """Whether the command that runs is one of :data:`_LOOKS`, which Scrapy has taken out of ``sys.argv``."""
    words = sys.orig_argv[-len(sys.argv) :] if "scrapy.cmdline" in sys.modules else []
    return next((word for word in words if not word.startswith("-")), "") in _LOOKS


def _leave_the_job_alone(settings: BaseSettings) -> None:
    """Let a look be no part of the job of the project, which its spider would go on with, unless the command names that itself."""
    typed = SETTINGS_PRIORITIES["cmdline"]
    settings.set("AOPIC_WORKERS", 1, typed)
    if (settings.getpriority("JOBDIR") or 0) < typed:
        settings.setdict(_NO_JOB, typed)


def _start_workers(settings: BaseSettings) -> None:
    """Let workers crawl in the place of this process, which then ends, if ``AOPIC_WORKERS`` wants that."""
    if settings.get("AOPIC_WORKERS") not in {None, 1, "1"}:
        from .local_workers import run_instead  # noqa: PLC0415  (few crawls have several)

        run_instead(settings)


def _complete(settings: BaseSettings) -> None:
    """Let what a user says of URLs be different from what a broad crawl has, and not be all of it."""
    limits: dict[str, int] = SETTINGS["AOPIC_URL_LIMITS"].default
    completions: dict[str, Callable[[Any], Any]] = {
        "AOPIC_URL_RULES": lambda given: sorted(url_rules(given, BROAD_RULES)),
        "AOPIC_URL_LIMITS": lambda given: {**limits, **url_limits(given)},
    }
    for name, completed in completions.items():
        with suppress(*ANY_ERROR):  # whoever reads it says what is wrong
            settings.set(name, completed(settings[name]), settings.getpriority(name) or 0)


def _set_default(settings: BaseSettings, name: str, value: Any) -> None:
    if (settings.getpriority(name) or 0) < SETTINGS_PRIORITIES["addon"]:
        settings.set(name, value, "addon")
