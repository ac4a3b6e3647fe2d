"""The settings of the package, from what a user writes to what the core is given.

* :mod:`.table`: every setting: name, default, unit, check, meaning
* :mod:`.parse`: the checks
* :mod:`.values`: the values of all settings, each read in this one place
* :mod:`.build`: the policy of a crawl from its settings

Values are read once, when the crawl starts; a wrong one raises :class:`~scrapy_aopic.exceptions.SettingError` with the
name, the value and the way out.
"""

from __future__ import annotations

from .build import (
    check_names,
    idle_options,
    is_loopback,
    page_cache,
    read_address,
    read_dashboard,
    read_normaliser,
    read_policy,
    read_politeness,
    store_memory,
    wrong_names,
)
from .parse import Listen, url_limits, url_rules
from .table import SECTIONS, SETTINGS, Setting, page_of, read
from .values import Values, read_values

__all__ = [
    "SECTIONS",
    "SETTINGS",
    "Listen",
    "Setting",
    "Values",
    "check_names",
    "idle_options",
    "is_loopback",
    "page_cache",
    "page_of",
    "read",
    "read_address",
    "read_dashboard",
    "read_normaliser",
    "read_policy",
    "read_politeness",
    "read_values",
    "store_memory",
    "url_limits",
    "url_rules",
    "wrong_names",
]
