"""The dashboard in a real browser: ``make test-web``. Skipped where there is no Chromium.

``AOPIC_PICTURES=FOLDER`` keeps a picture of each width and colour.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from demo_web.server import Answer, Exchange, Server
from msgspec.structs import replace
from support.chromium import AXE, MARKS, start_chromium
from support.dashboard import TOKEN, Served, run_with_dashboard
from support.small_web import ask_view, html

from scrapy_aopic.dashboard.site import Shown, make_site
from scrapy_aopic.dashboard.stored_job import serve
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.settings import Listen
from scrapy_aopic.view.snapshot import (
    HostCounts,
    HostRow,
    PageCounts,
    Rate,
    Snapshot,
    TransferFigures,
    Verdict,
)
from scrapy_aopic.view.stored import snapshot_of

PROJECT = Path(__file__).parents[2] / "example_project"

pytestmark = MARKS

Browser = Any

HOSTILE = [
    "<img src=x onerror=hacked=1>",
    "</script><script>hacked=1</script>",
    "javascript:hacked=1",
    "&lt;b&gt;",
    "\u202eevil",
    "x" * 3000,
]


class Over(Exception):
    """The end of a server."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = start_chromium()
    try:
        yield driver
    finally:
        driver.quit()


def resize(browser: Browser, width: int, scheme: str, height: int = 1000) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait_for(browser: Browser, condition: str, seconds: float = 30.0) -> Any:
    """The value of the expression *condition* once it is true."""
    until = time.monotonic() + seconds
    while not (value := browser.execute_script(f"return {condition}")):
        assert time.monotonic() < until, condition
        time.sleep(0.05)
    return value


def text(browser: Browser, id_: str) -> str:
    found: str = browser.execute_script("return document.getElementById(arguments[0]).innerText", id_)
    return found


def assert_clean(browser: Browser) -> None:
    """No message in the console, and nothing loaded from elsewhere."""
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
    own = browser.execute_script("return location.origin")
    assert loaded
    assert {name for name in loaded if not name.startswith(f"{own}/")} == set()


def assert_accessible(browser: Browser) -> None:
    """Nothing serious or critical for axe, if that was installed."""
    if not AXE.exists():
        return
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(found => done(found.violations.map("
        "each => [each.impact, each.id, each.nodes.map(node => node.html.slice(0, 200)).slice(0, 3)])))"
    )
    assert [each for each in found if each[0] in {"serious", "critical"}] == []


class Answering:
    """Answers with hostile text."""

    def top_pages(self, _: int) -> list[dict[str, Any]]:
        return [
            {"url": each, "importance": 0.1, "cash": 1, "history": 3, "visits": 1, "state": each}
            for each in HOSTILE
        ]

    def top_domains(self, _: int, *, has_importance: bool) -> dict[str, Any]:
        assert has_importance
        rows = [
            {"domain": each, "hosts": 2, "visited": 100 // n, "queued": 7, "importance": 0.3 / n}
            for n, each in enumerate(HOSTILE, 1)
        ]
        traps = [{"host": each, "visited": 20, "queued": 900, "is_late": True} for each in HOSTILE]
        rows.append({"domain": "", "hosts": 40, "visited": 60, "queued": 0, "importance": 0.01})
        return {"domains": rows, "traps": traps}

    def why(self, question: str) -> dict[str, Any]:
        return {"kind": question, "sentences": HOSTILE}


def served(figures: dict[str, Any]) -> Served:
    """The real page, with *figures* that a test changes."""
    made = Served(every=1.0)
    made.figures = figures
    made.server.site = make_site(Shown(made.feed, oldest_commit=30, questions=Answering()))
    return made


def some_figures(**changes: Any) -> dict[str, Any]:
    rows = [
        HostRow(name=name, state="waiting", why="gap", wait=3.0, transfer=0.3, queued=7) for name in HOSTILE
    ]
    snapshot = Snapshot(
        at=time.time(),
        is_live=True,
        spider=HOSTILE[0],
        pages=PageCounts(known=30, queued=10, visited=15, failed=5, in_flight=1),
        rate=Rate(seconds=60, pages=12.5, transfers=14, bytes=2e6, growth=0.5),
        hosts=HostCounts(
            known=6,
            waiting=6,
            waits={"gap": 6},
            due_in=[0, 6, 0, 0, 0, 0, 0],
            front_queues={37: 6},
            ready_queues={35: 1},
            ceiling=20,
        ),
        outcomes=dict.fromkeys(HOSTILE, 3),
        transfers=TransferFigures(n=20, seconds=6, bytes=10**7, durations=[0, 0, 0, 20, 0, 0, 0, 0, 0]),
        slow=rows,
        failing=rows,
        waiting=rows,
    )
    verdict = Verdict("politeness", "Politeness is the limit: 12.5 pages/s.")
    return {**msgspec.to_builtins(replace(snapshot, verdict=verdict), str_keys=True), **changes}


def open_page(browser: Browser, port: int) -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{port}/?token={TOKEN}")
    wait_for(browser, "document.querySelector('#figures dd')?.textContent")
    assert browser.execute_script("return location.search") == ""


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A crawl of the demo web that runs, the port of its dashboard, and its job folder."""
    folder = tmp_path_factory.mktemp("crawl")
    settings = {"JOBDIR": folder, "CLOSESPIDER_TIMEOUT": 300}
    with run_with_dashboard(["crawl", "broad"], settings, folder=PROJECT) as (process, port):
        yield process, port, folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_live_crawl_at_each_width_in_each_colour(
    browser: Browser, crawl: tuple[Any, int, Path], width: int, scheme: str
) -> None:
    resize(browser, width, scheme)
    open_page(browser, crawl[1])
    wait_for(browser, "document.querySelector('#plot polyline')")
    browser.execute_script("document.getElementById('load-top').click()")
    wait_for(browser, "document.querySelector('#pages tbody tr')")
    assert wait_for(browser, "document.getElementById('verdict').textContent").endswith(".")
    assert text(browser, "state") == "Running"
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    back = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 384) == (scheme == "light")
    assert_clean(browser)
    if folder := os.environ.get("AOPIC_PICTURES"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        resize(browser, width, scheme, height)
        time.sleep(1.5)
        browser.save_screenshot(str(Path(folder) / f"dashboard-{width}-{scheme}.png"))
        resize(browser, width, scheme)
    assert_accessible(browser)


N_HOSTS = 40


class Stalling:
    """A web of which every page is an ordinary one until it stalls, and then takes as long as that lasts."""

    def __init__(self) -> None:
        self.goes_on = Event()
        self.goes_on.set()

    def answer(self, exchange: Exchange) -> Answer:
        host = int(exchange.host.removeprefix("h").partition(".")[0])
        time.sleep(0.1)
        self.goes_on.wait(60)
        links = [f"http://h{(host + n) % N_HOSTS}.test/{time.monotonic_ns()}" for n in range(1, 5)]
        return Answer(headers={"Content-Type": "text/html"}, body=html(links))


def test_the_verdict_changes_when_the_web_stalls(browser: Browser, tmp_path: Path) -> None:
    web = Stalling()
    resize(browser, 1400, "light")
    with (
        Server(web.answer).run_in_thread() as server,
        run_with_dashboard(
            ["runspider", str(Path(__file__).parents[1] / "support" / "follow_spider.py")],
            {
                "SCHEDULER": "scrapy_aopic.Scheduler",
                "AOPIC_POLITENESS_FACTOR": 2,
                "ROBOTSTXT_OBEY": False,
            },
            folder=tmp_path,
            http_proxy=server.url,
        ) as (_, port),
    ):
        open_page(browser, port)
        hosts = "Number(document.querySelectorAll('#figures dd')[4].textContent.replaceAll(',', ''))"
        wait_for(browser, f"{hosts} === {N_HOSTS}")
        assert "transfers under way" not in text(browser, "verdict")
        web.goes_on.clear()
        said = wait_for(
            browser, "document.getElementById('verdict').textContent.match(/none of .* for ([0-9]+) s/)"
        )
        assert int(said[1]) <= 5  # 2 or 3 of a process that gets its time
        web.goes_on.set()
        wait_for(browser, "!/none of/.test(document.getElementById('verdict').textContent)")
        assert_clean(browser)


def test_figures_move_while_it_runs_and_stay_when_it_ends(
    browser: Browser, crawl: tuple[Any, int, Path]
) -> None:
    process, port, folder = crawl
    resize(browser, 1400, "light")
    open_page(browser, port)
    visited = "Number(document.querySelectorAll('#figures dd')[1].textContent.replaceAll(',', ''))"
    first = browser.execute_script(f"return {visited}")
    wait_for(browser, f"{visited} > {first}")
    process.send_signal(signal.SIGINT)
    wait_for(
        browser, "document.getElementById('state').textContent.startsWith('The crawl is over: shutdown')", 60
    )
    process.wait(60)
    assert browser.execute_script(f"return {visited}") >= first
    assert_clean(browser)
    known = ask_view(folder, snapshot_of)
    over = Event()

    def sleep(seconds: float) -> None:
        if over.wait(seconds / 10):
            raise Over

    addresses: list[str] = []
    settings = {"AOPIC_DASHBOARD_TOKEN": TOKEN}

    def run() -> None:
        with suppress(Over):
            serve(FolderPlace(folder), Listen("127.0.0.1", 0), settings, say=addresses.append, sleep=sleep)

    server = Thread(target=run)
    server.start()
    try:
        until = time.monotonic() + 20
        while not addresses:
            assert time.monotonic() < until
            time.sleep(0.01)
        open_page(browser, int(re.findall(r":(\d+)/", addresses[0])[0]))
        shown = text(browser, "figures").replace(",", "").split()
        for name in ("visited", "failed", "queued"):
            assert shown[shown.index(name) + 1] == str(getattr(known.pages, name))
        assert shown[shown.index("hosts") + 1] == str(known.hosts.known)
        assert text(browser, "state").startswith("As of the last commit")
        assert_clean(browser)
    finally:
        over.set()
        server.join()


@pytest.fixture
def page(browser: Browser) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(**changes: Any) -> Served:
        made.append(served(some_figures(**changes)))
        open_page(browser, made[-1].port)
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("width", [400, 1400])
def test_hostile_text_is_only_text(browser: Browser, page: Callable[..., Served], width: int) -> None:
    resize(browser, width, "light")
    page(refused={HOSTILE[0]: 1}, problem=HOSTILE[1])
    browser.execute_script("document.getElementById('load-top').click()")
    wait_for(browser, "document.querySelector('#pages tbody tr')")
    browser.execute_script("document.getElementById('load-domains').click()")
    wait_for(browser, "document.querySelector('#domain-rows tbody tr')")
    browser.find_element("id", "of").send_keys(HOSTILE[1] + "\n")
    wait_for(browser, "document.querySelector('#answer p:nth-child(3)')")
    for place in ("answer", "slow", "failing", "waiting", "classes", "pages", "domain-rows", "traps"):
        body = text(browser, place)
        assert all(each in body for each in HOSTILE[:4])
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert (
        browser.execute_script(
            "return document.querySelectorAll('main img, main script, main a, iframe').length"
        )
        == 0
    )
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    assert_clean(browser)


def test_the_verdict_is_said_again_only_when_what_limits_changes(
    browser: Browser, page: Callable[..., Served]
) -> None:
    resize(browser, 400, "dark")
    served = page()
    assert wait_for(browser, "document.getElementById('said').textContent").startswith("Politeness")
    served.figures["verdict"] = {"limit": "politeness", "sentence": "Politeness is the limit: 13 pages/s."}
    wait_for(browser, "document.getElementById('verdict').textContent.includes('13 pages/s')", 3)
    assert "12.5" in browser.execute_script("return document.getElementById('said').textContent")
    served.figures["verdict"] = {"limit": "network", "sentence": "Nothing answers."}
    wait_for(browser, "document.getElementById('said').textContent === 'Nothing answers.'", 3)
    assert browser.execute_script("return document.getElementById('verdict').className") == "verdict bad"


def test_the_page_can_be_used_by_keyboard(browser: Browser, page: Callable[..., Served]) -> None:
    from selenium.webdriver.common.keys import Keys

    resize(browser, 1400, "light")
    page()
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the figures"
    seen = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        seen.append(active.get_attribute("id") or active.text or active.tag_name)
    assert {"Speed", "load-top", "of", "slow"} <= set(seen)
    assert browser.execute_script(
        "return [...document.querySelectorAll('table')].every(each => each.caption)"
    )
    assert browser.execute_script("return [...document.querySelectorAll('th')].every(each => each.scope)")


def test_it_says_when_the_crawl_is_gone(browser: Browser, page: Callable[..., Served]) -> None:
    served = page()
    served.feed.close("finished")
    wait_for(
        browser, "document.getElementById('state').textContent.startsWith('The crawl is over: finished')"
    )
    assert json.dumps(served.figures["pages"]["visited"]) in text(browser, "figures")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_explainer_is_a_part_of_it_and_shows_the_crawl(
    browser: Browser, page: Callable[..., Served], scheme: str
) -> None:
    resize(browser, 400, scheme)
    page()
    browser.find_element("link text", "OPIC explained").click()
    wait_for(browser, "document.querySelector('#coins svg') !== null")
    (button,) = (
        each
        for each in browser.find_elements("css selector", "#mine button")
        if each.text == "Show this crawl"
    )
    button.click()
    wait_for(browser, "document.querySelector('#mine td.name') !== null")
    assert len(browser.find_elements("css selector", "#mine tbody tr")) == len(HOSTILE)
    assert HOSTILE[0][:20] in text(browser, "mine")
    assert "of all importance" in text(browser, "mine")
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert browser.execute_script("return document.documentElement.scrollWidth") == 400
    assert_clean(browser)
    assert_accessible(browser)


@pytest.mark.long
def test_a_tab_that_watches_for_long_does_not_grow(browser: Browser) -> None:
    """As many snapshots as of ten minutes, in some twenty seconds; ``benchmarks/tab_memory.py`` takes the ten minutes."""

    class Moving(Served):
        most = 0

        def take(self) -> Any:
            if self.taken >= self.most:
                return None
            self.figures["at"] += 1.0
            return super().take()

    resize(browser, 1400, "light")
    made = Moving(every=0.03)
    made.most = 1
    made.figures = some_figures()
    made.server.site = make_site(Shown(made.feed, oldest_commit=30, questions=Answering()))
    try:
        open_page(browser, made.port)
        browser.execute_cdp_cmd("Performance.enable", {})

        def after(frames: int) -> dict[str, float]:
            until = time.monotonic() + 120
            made.most = frames
            while made.taken < frames:
                assert time.monotonic() < until
                time.sleep(0.05)
            time.sleep(0.5)  # the page has taken the last one, and nothing comes meanwhile
            browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
            metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            return {each["name"]: each["value"] for each in metrics}

        early, late = after(150), after(600)
        assert wait_for(
            browser, "document.querySelector('#plot polyline')?.getAttribute('points').length > 1000"
        )
        assert late["Nodes"] <= early["Nodes"] + 50
        assert late["JSEventListeners"] == early["JSEventListeners"]
        assert late["JSHeapUsedSize"] < early["JSHeapUsedSize"] + 1_000_000
    finally:
        made.close()


def test_what_politeness_costs_the_order_where_cash_goes_and_what_was_dropped(
    browser: Browser, page: Callable[..., Served]
) -> None:
    resize(browser, 1400, "light")
    total, dropped = 2**53 - 1, {"flood": 1234}
    ledger = {
        "total": total,
        "pages": total,
        "virtual": 0,
        "history": 0,
        "turns": 0.5,
        "convergence": 2.0,
    }
    ledger |= {"distributed": total // 2, "virtual_distributed": total // 4}
    served = page(dropped=dropped, ledger=ledger, regret=1.25)
    assert "in front queue 37, and the best of a host that is ready in 35: politeness costs 2 queues" in text(
        browser, "regret"
    )
    assert "lay 1.25 front queues below the best" in text(browser, "regret-mean")
    assert "beyond AOPIC_LINK_FLOOD \u2013 dropped links" in text(browser, "refused")
    assert "1,234" in text(browser, "refused")
    assert "0.5 times what pages hold" in text(browser, "flow")
    served.figures |= {
        "at": served.figures["at"] + 10,
        "ledger": {**ledger, "distributed": total // 2 + total // 10},
    }
    wait_for(
        browser,
        "/0.6 times what pages hold, 1 % of it a second/.test(document.getElementById('flow').innerText)",
        5,
    )
    browser.execute_script("document.getElementById('load-domains').click()")
    wait_for(browser, "document.querySelectorAll('#map rect').length")
    areas = browser.execute_script(
        "return [...document.querySelectorAll('#map rect')].map(each => each.getAttribute('width') * each.getAttribute('height'))"
    )
    size = browser.execute_script("return document.getElementById('map').clientWidth") * 256
    fetched = [100 // n for n in range(1, len(HOSTILE) + 1)] + [60]
    for area, n in zip(areas, fetched, strict=True):
        assert area == pytest.approx(size * n / sum(fetched), rel=1e-6)
    assert "all others" in text(browser, "domain-rows")
    shades = browser.execute_script(
        "return [...document.querySelectorAll('#map rect')].map(each => Number(each.getAttribute('fill-opacity')))"
    )
    average = 0.3 / 100 * sum(fetched)  # of the importance of a fetched page
    assert shades[0] == pytest.approx(0.6 + 0.2 * math.log2(average), abs=0.01)
    assert shades[-1] == 0.15 < min(shades[:-1])
    assert f"\t{average:.2f}".rstrip("0") in text(browser, "domain-rows")
    assert_clean(browser)


def test_what_an_operator_asks_and_how_relevant_pages_are(
    browser: Browser, page: Callable[..., Served]
) -> None:
    resize(browser, 400, "dark")
    served = page()
    assert text(browser, "asked") == ""
    assert browser.execute_script("return document.getElementById('topic').hidden")
    served.figures |= {
        "control": {"sentences": ["paused since noon: no page is requested", f"blocked: {HOSTILE[0]}"]},
        "topic": {"pages": 1000, "relevant": 400, "harvest": 0.4, "lately": 0.123},
    }
    wait_for(browser, "document.querySelectorAll('#asked li').length === 2", 5)
    assert HOSTILE[0] in text(browser, "asked")
    assert "12.3 %" in text(browser, "figures")
    assert "12.3 % are relevant, and of all 40 %" in text(browser, "harvest")
    rows = [line.split("\t") for line in text(browser, "relevance").splitlines()]
    assert ["relevant", "400", ""] in rows
    assert ["not relevant, or duplicates", "600", ""] in rows
    assert browser.execute_script("return document.documentElement.scrollWidth") == 400
    assert_accessible(browser)
    served.figures["control"] = {}
    wait_for(browser, "!document.getElementById('asked').childNodes.length", 5)
    assert_clean(browser)
