"""A headless Chromium for tests, where there is one: ``make browser`` installs what else they need."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = Path(sys.prefix) / "web" / "node_modules" / "axe-core" / "axe.min.js"
"""The rules of axe-core, which ``make browser`` puts there if there is npm."""

MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("selenium") is None, reason="selenium is not installed: make browser does that"
    ),
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="there is no Chromium: apt-get install chromium chromium-driver"
    ),
]
"""Those of a module that needs it."""


def start_chromium(*arguments: str, logs: tuple[str, ...] = ("browser",)) -> Any:
    """Start one with *arguments*; returns its driver, which is to be ended by ``quit()``.

    Args:
        logs: What can be read with ``get_log``.
    """
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    always = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    )
    for each in (*always, *arguments):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
