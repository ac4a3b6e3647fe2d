"""The version of this package and the addresses of its docs, where all of its modules can import them."""

from __future__ import annotations

__version__ = "0.1.0"
"""The version in pyproject.toml."""

ADDRESS = "https://scrapy-aopic.example"
"""The address in pyproject.toml below which everything of the project is; no public one is chosen yet."""

DOCS = f"{ADDRESS}/docs"
"""The address of the folder ``docs``, whose ``page.md`` is ``page.html`` there."""
