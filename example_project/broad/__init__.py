"""A broad crawl of a small invented web: the example project of scrapy-aopic."""

from __future__ import annotations
