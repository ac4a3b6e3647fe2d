"""Downloader middlewares: politeness, robots.txt, and content types."""

from __future__ import annotations

from .content_type import ContentTypeMiddleware
from .politeness import PolitenessMiddleware
from .robots import RobotsMiddleware

__all__ = ["ContentTypeMiddleware", "PolitenessMiddleware", "RobotsMiddleware"]
