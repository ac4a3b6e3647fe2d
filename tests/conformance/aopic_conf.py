"""Pytest plugin: puts our classes where Scrapy's own test suite expects the stock ones.

The suite asserts the timing of requests that nothing holds back, so politeness is off by default.
"""

from __future__ import annotations

import os

from scrapy.settings import default_settings

for _name in ("SCHEDULER", "DUPEFILTER_CLASS"):
    if _path := os.environ.get(f"CONF_{_name}"):
        setattr(default_settings, _name, _path)
default_settings.AOPIC_POLITENESS_FACTOR = 0  # type: ignore[attr-defined]
default_settings.AOPIC_BACKOFF = 0  # type: ignore[attr-defined]
default_settings.AOPIC_STORE = os.environ.get("CONF_STORE", "memory")  # type: ignore[attr-defined]
