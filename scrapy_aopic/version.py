"""The version of this package and the addresses of its docs, where all of its modules can import them."""

from __future__ import annotations

__version__ = "0.1.0"
"""The version in pyproject.toml."""

DOCS = "scrapy aopic docs"
"""The command that shows the docs, which messages name: there is no public address yet, and the package has the pages."""
