"""A small site, and a crawl of it with the settings of a plug-in, in each way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.small_site import answer

from scrapy_aopic.testing.server import Server


@pytest.fixture
def site() -> Iterator[Server]:
    server = Server(answer)
    with server.run_in_thread():
        yield server
