"""The log of single requests in a broad crawl."""

from __future__ import annotations

import logging
from typing import Any

from scrapy.logformatter import LogFormatter, LogFormatterResult


class QuietLogFormatter(LogFormatter):
    """``LOG_FORMATTER``: a page that cannot be downloaded is no error of the crawl, so it is logged at level DEBUG.

    In a broad crawl a part of all hosts is dead at any time; ``scrapy aopic status`` counts them.
    """

    def download_error(self, *args: Any, **kwargs: Any) -> LogFormatterResult:
        return {**super().download_error(*args, **kwargs), "level": logging.DEBUG}
