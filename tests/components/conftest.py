"""A small web for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.small_web import Web, html

from scrapy_aopic.testing.server import Answer, Exchange, Server


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, Any]], Web]]:
    """Serve pages behind a proxy that all crawls of the test use."""
    with ExitStack() as stack:

        def start(pages: dict[str, Any]) -> Web:
            def answer(exchange: Exchange) -> Answer:
                page = pages.get(f"http://{exchange.host}{exchange.target}")
                if callable(page):
                    page = page(exchange)
                if page is None:
                    return Answer(404)
                if isinstance(page, Answer):
                    return page
                return Answer(headers={"Content-Type": "text/html"}, body=html(page))

            server = Server(answer)
            running = stack.enter_context(server.run_in_thread())
            monkeypatch.setenv("http_proxy", running.url)
            return Web(server, pages)

        yield start
