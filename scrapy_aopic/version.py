"""The version of this package and the addresses of its docs, where all of its modules can import them."""

from __future__ import annotations

__version__ = "0.1.0"
"""The version in pyproject.toml."""

DOCS = "docs"
"""Where messages say that the docs are: the folder of a checkout, as there is no public address yet."""
