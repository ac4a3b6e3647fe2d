"""Downloader middlewares.

* :mod:`.polite_downloads`: when a request may be sent to a host
* :mod:`.proxy_waits`: which proxies must leave which hosts alone
* :mod:`.robots`: refuses what a robots.txt forbids
* :mod:`.content_type`: the class of a response by its type as browsers read it
"""

from __future__ import annotations

from .content_type import ContentTypeMiddleware
from .polite_downloads import PolitenessMiddleware
from .robots import RobotsMiddleware

__all__ = ["ContentTypeMiddleware", "PolitenessMiddleware", "RobotsMiddleware"]
