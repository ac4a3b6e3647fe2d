"""A small site, and a crawl of it with the settings of a plug-in, in each way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demo_web.server import Server
from support.small_site import answer


@pytest.fixture
def site() -> Iterator[Server]:
    server = Server(answer)
    with server.run_in_thread():
        yield server
