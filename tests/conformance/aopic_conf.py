"""Pytest plugin: puts our classes where Scrapy's own test suite expects the stock ones, while pytest runs.

The suite asserts the timing of requests that nothing holds back, so politeness is off by default.
"""

from __future__ import annotations

import os

import pytest
from scrapy.settings import default_settings

DEFAULTS = {"AOPIC_POLITENESS_FACTOR": 0, "AOPIC_BACKOFF": 0}


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    named = {
        name: os.environ[f"CONF_{name}"]
        for name in ("SCHEDULER", "DUPEFILTER_CLASS")
        if os.environ.get(f"CONF_{name}")
    }
    for name, value in {**DEFAULTS, **named, "AOPIC_STORE": os.environ.get("CONF_STORE", "memory")}.items():
        patch.setattr(default_settings, name, value, raising=False)
