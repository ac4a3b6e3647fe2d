"""Downloader middlewares: politeness, and robots.txt."""

from __future__ import annotations

from .politeness import PolitenessMiddleware
from .robots import RobotsMiddleware

__all__ = ["PolitenessMiddleware", "RobotsMiddleware"]
