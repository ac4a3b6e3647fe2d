"""The version of this package, where all of its modules can import it."""

from __future__ import annotations

__version__ = "0.1.0"
"""The version in pyproject.toml."""
