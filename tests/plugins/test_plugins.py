"""Plug-ins of others on loopback: the same items as with stock Scrapy, which each of them was written for.

``pip install --editable . --group plugins`` installs them; what is not there is skipped. Their warnings are their own.
"""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from demo_web.server import Answer, Exchange, Server
from support import processes, redis_server
from support.chromium import CHROMIUM
from support.small_site import EACH_WAY, STOCK, TITLES, Follow, N, page, run, titles

from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.view.job_view import open_view
from scrapy_aopic.view.queries import hosts_by

BUSY = 3
"""Seconds for which a page keeps its browser busy."""

pytestmark = pytest.mark.filterwarnings("ignore")

# scrapy-playwright


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@EACH_WAY
async def test_scrapy_playwright_shows_what_scripts_make(site, way):
    pytest.importorskip("scrapy_playwright")
    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    items, _ = await run(
        Follow,
        way,
        {
            "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
            "PLAYWRIGHT_LAUNCH_OPTIONS": {
                "executable_path": CHROMIUM,
                "args": ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"],
            },
        },
        meta={"playwright": True},
        start_urls=[site.url],
    )
    assert titles(items) == [f"{title} seen" for title in TITLES]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_pages_that_need_a_browser_are_crawled_as_the_docs_say(tmp_path):
    """The recipe as it stands there; each page keeps its browser busy for longer than its server takes."""
    pytest.importorskip("scrapy_playwright")
    text = (Path(__file__).parents[2] / "docs" / "how-to.md").read_text(encoding="utf-8")
    recipe = text.partition("## Pages that need a browser")[2].partition("\n## ")[0]
    (tmp_path / "browser.py").write_text(recipe.split("```python\n")[1].split("```")[0], encoding="utf-8")
    command = shlex.split(recipe.split("```sh\n")[1].split("```")[0])

    asked: list[str] = []

    def answer(exchange: Exchange) -> Answer:
        if not (exchange.target == "/" or exchange.target[1:].isdigit()):
            return Answer(404)
        asked.append(exchange.target)
        busy = f"const end = Date.now() + {1000 * BUSY}; while (Date.now() < end);"
        links = "".join(f"'<a href=/{n}>{n}</a>' + " for n in range(1, 4))
        body = f"<title>page</title><script>{busy} document.write({links} '')</script>"
        return Answer(headers={"Content-Type": "text/html"}, body=body.encode())

    server = Server(answer)
    with server.run_in_thread():
        options = {
            "executable_path": CHROMIUM,
            "args": ["--no-sandbox", "--disable-gpu", "--no-proxy-server"],
        }
        more = ["-s", f"PLAYWRIGHT_LAUNCH_OPTIONS={json.dumps(options)}", "-s", "CLOSESPIDER_PAGECOUNT=4"]
        command[command.index("seeds=https://example.org/")] = f"seeds=http://127.0.0.1:{server.port}/"
        done = processes.run_and_read([sys.executable, "-m", *command, *more], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(asked) >= 2, done.stderr  # a script has made the links
    with open_view(FolderPlace(tmp_path / "crawls" / "browser")) as view:
        (row,) = hosts_by(view, "slow", 1)
    assert 0 < row.transfer < BUSY


# scrapy-impersonate


@EACH_WAY
async def test_scrapy_impersonate_sends_what_a_browser_sends(site, way):
    pytest.importorskip("scrapy_impersonate")
    handler = "scrapy_impersonate.ImpersonateDownloadHandler"
    items, _ = await run(
        Follow,
        way,
        {"DOWNLOAD_HANDLERS": {"http": handler, "https": handler}, "USER_AGENT": None},
        meta={"impersonate": "chrome"},
        start_urls=[site.url],
    )
    assert titles(items) == TITLES
    assert all("Chrome/" in item["agent"] for item in items)


# spidermon


@EACH_WAY
async def test_spidermon_judges_the_crawl(site, way, tmp_path):
    pytest.importorskip("spidermon")
    from spidermon import Monitor, MonitorSuite
    from spidermon.core.actions import Action

    judged: list[str] = []

    class Items(Monitor):
        def test_number(self):
            assert self.data.stats["item_scraped_count"] == N

        def test_more(self):
            assert self.data.stats["item_scraped_count"] > N

    class Note(Action):
        def run_action(self) -> None:
            judged.extend(f"failed {each.monitor.name}" for each in self.result.monitor_results if each.error)
            judged.extend(
                f"passed {each.monitor.name}" for each in self.result.monitor_results if not each.error
            )

    class Suite(MonitorSuite):
        monitors = [Items]
        monitors_finished_actions = [Note]

    schema = {"$schema": "http://json-schema.org/draft-07/schema", "type": "object", "required": ["url"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    items, crawler = await run(
        Follow,
        way,
        {
            "EXTENSIONS": {"spidermon.contrib.scrapy.extensions.Spidermon": 500},
            "SPIDERMON_ENABLED": True,
            "SPIDERMON_SPIDER_CLOSE_MONITORS": [Suite],
            "ITEM_PIPELINES": {"spidermon.contrib.scrapy.pipelines.ItemValidationPipeline": 800},
            "SPIDERMON_VALIDATION_SCHEMAS": [str(tmp_path / "schema.json")],
        },
        start_urls=[site.url],
    )
    assert titles(items) == TITLES
    assert sorted(judged) == ["failed Items/test_more", "passed Items/test_number"]
    assert crawler.stats is not None
    assert crawler.stats.get_value("spidermon/validation/items") == N


# scrapy-redis' spiders


@pytest.mark.slow  # such a spider looks for URLs only when the crawl is idle
@pytest.mark.skipif(redis_server.find_server() is None, reason=redis_server.WHY_NOT)
@EACH_WAY
async def test_a_spider_of_scrapy_redis_takes_its_urls_from_the_server(site, server, client, way):
    spiders = pytest.importorskip("scrapy_redis.spiders")

    class Pushed(spiders.RedisSpider):
        name = "pushed"
        redis_key = "pushed:urls"
        max_idle_time = 1
        parse = Follow.parse
        meta: dict[str, Any] = {}

    client.lpush("pushed:urls", json.dumps({"url": site.url}))
    # What comes by such a list is no seed: anybody may have pushed it.
    settings = {"REDIS_URL": server.url, "SPIDER_MIDDLEWARES": {}, "AOPIC_ALLOW_NETWORKS": ["127.0.0.1"]}
    items, _ = await run(Pushed, way, settings)
    assert titles(items) == TITLES
    assert client.llen("pushed:urls") == 0


# scrapy-zyte-api


@pytest.fixture
def api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A made-up Zyte API, and what it was asked for."""
    asked: list[dict[str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(query)
            number = query["url"].rpartition("/")[2] or "0"
            reply = {
                "url": query["url"],
                "statusCode": 200,
                "httpResponseBody": base64.b64encode(page(int(number)).encode()).decode(),
                "httpResponseHeaders": [{"name": "content-type", "value": "text/html"}],
            }
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/", asked
    server.shutdown()
    server.server_close()
    thread.join()


@EACH_WAY
async def test_scrapy_zyte_api_fetches_through_its_server(api, way):
    pytest.importorskip("scrapy_zyte_api")
    url, asked = api
    items, _ = await run(
        Follow,
        way,
        {"ADDONS": {"scrapy_zyte_api.Addon": 400}, "ZYTE_API_URL": url, "ZYTE_API_KEY": "made-up"},
        start_urls=["http://far.test/"],
    )
    assert titles(items) == TITLES
    assert sorted(query["url"] for query in asked) == sorted({item["url"] for item in items})


# What does not run on today's Scrapy, whatever the scheduler


ONCE: dict[str, Any] = {"scrapy_crawl_once.CrawlOnceMiddleware": 100}


@pytest.mark.parametrize(
    ("module", "settings", "said"),
    [
        (
            "scrapy_deltafetch",
            {"SPIDER_MIDDLEWARES": {"scrapy_deltafetch.DeltaFetch": 100}, "DELTAFETCH_ENABLED": True},
            "doesn't support asynchronous spider output",
        ),
        (
            "scrapy_crawl_once",
            {"SPIDER_MIDDLEWARES": ONCE, "DOWNLOADER_MIDDLEWARES": ONCE},
            "cannot import name 'request_fingerprint'",
        ),
    ],
    ids=["scrapy-deltafetch", "scrapy-crawl-once"],
)
async def test_these_do_not_run_with_stock_scrapy(module, settings, said):
    """If this fails, a release of theirs runs again, and belongs into the table like the others."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    with pytest.raises((ImportError, TypeError), match=said):
        await run(Follow, STOCK, settings, start_urls=["http://127.0.0.1:1/"])
