"""The spiders of the example project."""

from __future__ import annotations
