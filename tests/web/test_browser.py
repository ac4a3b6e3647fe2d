"""The dashboard in a real browser: ``make test-web``. Skipped where there is no Chromium.

``AOPIC_PICTURES=FOLDER`` keeps a picture of each width and colour.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from demo_web.server import Answer, Exchange, Server
from msgspec.structs import replace
from support.chromium import AXE, MARKS, start_chromium
from support.dashboard import TOKEN, Served, run_with_dashboard, serve_job
from support.short_forms import some_of
from support.small_web import ask_view, html
from support.stored_jobs import make_job
from support.waiting import wait_until

from scrapy_aopic.core.operator_control import Control
from scrapy_aopic.dashboard.report_page import report_page
from scrapy_aopic.dashboard.site import Shown, make_site
from scrapy_aopic.place.folder_place import FolderPlace
from scrapy_aopic.place.stored_control import read_control
from scrapy_aopic.view.history import FILE_NAME, History, row_of
from scrapy_aopic.view.snapshot import (
    FailureRow,
    HostCounts,
    HostRow,
    PageCounts,
    Rate,
    Snapshot,
    TransferFigures,
    Verdict,
)
from scrapy_aopic.view.stored import control_figures, snapshot_of
from scrapy_aopic.view.traps import Trap

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


def see(browser: Browser, expression: str, *arguments: object) -> Any:
    """The value of an *expression* in the page."""
    return browser.execute_script(f"return {expression}", *arguments)


def wait_for(browser: Browser, condition: str, seconds: float = 30.0) -> Any:
    """The value of the expression *condition* once it is true."""
    return wait_until(lambda: see(browser, condition), seconds, said=lambda: condition)


def text(browser: Browser, id_: str) -> str:
    found: str = see(browser, "document.getElementById(arguments[0]).innerText", id_)
    return found.replace("\xa0", " ")


def assert_clean(browser: Browser) -> None:
    """No message in the console, and nothing loaded from elsewhere."""
    assert browser.get_log("browser") == []
    loaded = see(browser, "performance.getEntriesByType('resource').map(each => each.name)")
    own = see(browser, "location.origin")
    assert loaded
    assert {name for name in loaded if not name.startswith(f"{own}/")} == set()


def assert_accessible(browser: Browser) -> None:
    """Nothing for axe, if that was installed."""
    if not AXE.exists():
        return
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(found => done(found.violations.map("
        "each => [each.impact, each.id, each.nodes.map(node => node.html.slice(0, 200)).slice(0, 3)])))"
    )
    assert found == []


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
        rows.append({"domain": "", "hosts": 40, "visited": 60, "queued": 0, "importance": 0.01})
        return {"domains": rows}

    def traps(self) -> list[Trap]:
        parts = {"visited": 20, "queued": 900, "held": 800, "visited_part": 0.12, "brought_part": 0.001}
        return [
            Trap(
                pattern=each,
                host=each,
                command=f"block {each}",
                order="block trap.test",
                deny_url="://a[.]b/",
                **parts,
            )
            for each in HOSTILE
        ]

    def hosts(self, kind: str, n: int, part: str) -> list[HostRow]:
        rows = [HostRow(name=each, visited=len(each), queued=7) for each in (f"{kind}.test", *HOSTILE)]
        return [row for row in rows if part in row.name][:n]

    def why(self, question: str) -> dict[str, Any]:
        return {"kind": question, "sentences": HOSTILE}


def served(figures: dict[str, Any], job: Path | None = None) -> Served:
    """The real page, with *figures* that a test changes, and that takes orders for *job*."""
    made = Served(every=1.0)
    made.figures = figures
    place = FolderPlace(job) if job is not None else None
    made.server.site = make_site(Shown(made.feed, oldest_commit=30, questions=Answering(), place=place))
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
        rate=Rate(seconds=10, pages=12.5, transfers=14, bytes=2e6, growth=0.5),
        hosts=HostCounts(
            known=6,
            waiting=6,
            waits={"gap": 6},
            due_in=[0, 6, 0, 0, 0, 0, 0],
            front_queues={37: 6},
            ready_queues={35: 1},
            in_flight=0,
            ceiling=20,
        ),
        outcomes=dict.fromkeys(HOSTILE, 3),
        transfers=TransferFigures(n=20, seconds=6, bytes=10**7, durations=[0, 0, 0, 20, 0, 0, 0, 0, 0]),
        slow=rows,
        failing=rows,
        waiting=rows,
        failures=[FailureRow(at=time.time(), url=each, cause=each) for each in HOSTILE],
    )
    verdict = Verdict("politeness", "Politeness is the limit.", "Politeness limits this crawl.")
    return {**msgspec.to_builtins(replace(snapshot, verdict=verdict), str_keys=True), **changes}


def open_page(browser: Browser, port: int) -> None:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(f"http://127.0.0.1:{port}/?token={TOKEN}")
    wait_for(browser, "document.querySelector('#totals dd')?.textContent")
    assert see(browser, "location.search") == ""


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A crawl of the demo web that runs, the port of its dashboard, and its job folder."""
    folder = tmp_path_factory.mktemp("crawl")
    settings = {"JOBDIR": folder, "CLOSESPIDER_TIMEOUT": 300}
    with run_with_dashboard(["crawl", "broad"], settings, folder=PROJECT) as (process, port):
        yield process, port, folder


@pytest.mark.parametrize(
    ("width", "scheme"),
    # No colour moves anything: one width in the dark, and the others in long runs.
    some_of([(width, scheme) for scheme in ("light", "dark") for width in (400, 1000, 1600)], 4),
)
def test_a_live_crawl_at_each_width_in_each_colour(browser, crawl, width, scheme):
    resize(browser, width, scheme)
    open_page(browser, crawl[1])
    wait_for(browser, "document.querySelector('#plot polyline')")
    open_sections(browser)
    wait_for(browser, "document.querySelector('#pages tbody tr')")
    wait_for(browser, "document.querySelector('#domain-rows tbody tr')")
    headline = wait_for(browser, "document.getElementById('headline').textContent")
    assert headline.endswith(".")
    assert len(headline.split()) <= 12
    assert wait_for(browser, "document.getElementById('verdict').textContent").endswith((".", "?"))
    assert text(browser, "state").startswith("● Running for") or text(browser, "state").startswith(
        "Running for"
    )
    assert see(browser, "document.querySelectorAll('#four > div').length") == 4
    scroll_to(browser, "fronts")
    assert 1 <= wait_for(browser, "document.querySelectorAll('#fronts i').length") <= 64
    assert see(browser, "document.documentElement.scrollWidth") == width
    back = see(browser, "getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 384) == (scheme == "light")
    assert_clean(browser)
    if folder := os.environ.get("AOPIC_PICTURES"):
        height = see(browser, "document.documentElement.scrollHeight")
        resize(browser, width, scheme, height)
        time.sleep(1.5)
        browser.save_screenshot(str(Path(folder) / f"dashboard-{width}-{scheme}.png"))
        resize(browser, width, scheme)
    assert_accessible(browser)


def press(browser: Browser, selector: str) -> None:
    """Press a button once it is there, wherever the page is scrolled to."""
    wait_for(browser, f"document.querySelector('{selector}') !== null")
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def scroll_to(browser: Browser, id_: str) -> None:
    """Bring an element into sight: out of it, nothing changes."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", id_)


def open_sections(browser: Browser) -> None:
    browser.execute_script("for (const each of document.querySelectorAll('main > details')) each.open = true")


def test_figures_move_while_it_runs_and_stay_when_it_ends(browser, crawl):
    process, port, folder = crawl
    resize(browser, 1400, "light")
    open_page(browser, port)
    visited = "Number(document.querySelectorAll('#totals dd')[0].textContent.replaceAll(',', ''))"
    first = see(browser, visited)
    wait_for(browser, f"{visited} > {first}")
    process.send_signal(signal.SIGINT)
    wait_for(
        browser, "document.getElementById('state').textContent.startsWith('The crawl is over: shutdown')", 60
    )
    process.wait(60)
    assert see(browser, visited) >= first
    assert_clean(browser)
    known = ask_view(folder, snapshot_of)
    with serve_job(FolderPlace(folder)) as stored:
        open_page(browser, stored)
        shown = text(browser, "totals").replace(",", "").split()
        for name, n in [("pages", known.pages.visited + known.pages.failed), ("failed", known.visits.failed)]:
            assert shown[shown.index(name) + 1] == str(n)
        assert f"{known.pages.queued:,}" in text(browser, "four")
        assert text(browser, "headline") == f"Ended: a signal stopped it. {known.pages.queued:,} pages wait."
        assert "with the same job folder, goes on where it was" in text(browser, "verdict")
        assert shown[shown.index("hosts") + 1] == str(known.hosts.known)
        assert text(browser, "state").startswith("As of the last commit")
        assert_clean(browser)


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


def test_the_verdict_changes_when_the_web_stalls(browser, tmp_path):
    web = Stalling()
    resize(browser, 1400, "light")
    with (
        Server(web.answer).run_in_thread() as server,
        run_with_dashboard(
            ["runspider", str(Path(__file__).parents[1] / "support" / "follow_spider.py")],
            {"SCHEDULER": "scrapy_aopic.Scheduler", "AOPIC_POLITENESS_FACTOR": 2, "ROBOTSTXT_OBEY": False},
            folder=tmp_path,
            http_proxy=server.url,
        ) as (_, port),
    ):
        open_page(browser, port)
        hosts = "Number(document.querySelectorAll('#totals dd')[3].textContent.replaceAll(',', ''))"
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


@pytest.fixture
def page(browser: Browser) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(job: Path | None = None, **changes: Any) -> Served:
        made.append(served(some_figures(**changes), job))
        open_page(browser, made[-1].port)
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("width", [400, 1400])
def test_a_report_is_the_page_from_a_file_with_nothing_that_asks(browser, tmp_path, width):
    job = tmp_path / "</script><script>hacked=1</script><!--<script>" / "job"
    job.parent.mkdir(parents=True)
    make_job(job, "sqlite", 60)
    rows = (Snapshot(at=at, rate=Rate(seconds=60, pages=at)) for at in (10.0, 20.0, 30.0))
    for row in rows:
        History(job / FILE_NAME).append(row_of(row))
    other = tmp_path / "other"
    make_job(other, "sqlite", 7)
    report = tmp_path / "report.html"
    report.write_bytes(report_page(FolderPlace(job), FolderPlace(other)))
    resize(browser, width, "light")
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(report.as_uri())
    wait_for(browser, "document.querySelector('#totals dd')?.textContent")
    open_sections(browser)
    wait_for(browser, "document.querySelectorAll('#pages tbody tr').length === 20")
    wait_for(browser, "document.querySelectorAll('#domain-rows tbody tr').length === 31")
    assert text(browser, "traps-note") == "none"
    compared = "return [...document.querySelectorAll('#compared-rows tbody tr')].map(each => [...each.children].map(cell => cell.textContent))"
    assert ["pages queued", "60", "7"] in browser.execute_script(compared)
    assert str(other) in see(browser, "document.getElementById('compared-rows').textContent")
    assert see(browser, "document.querySelectorAll('#compared-rows polyline').length") == 2
    assert str(job) in text(browser, "facts")
    assert not browser.find_element("id", "failures").is_displayed()  # a stored job has none
    assert see(browser, "document.querySelectorAll('#plot polyline').length") == 2
    browser.find_element("css selector", "#by option[value=queued]").click()
    wait_for(browser, "document.querySelectorAll('#rows tbody tr').length === 50")
    asking = "return [...document.querySelectorAll('input, a, button:not(thead *)')].filter(each => each.checkVisibility()).map(each => each.outerHTML)"
    skip, hosts = browser.execute_script(asking)
    assert "#main" in skip
    assert "#hosts" in hosts
    assert see(browser, "typeof hacked") == "undefined"
    assert see(browser, "document.documentElement.scrollWidth") == width
    assert see(browser, "performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []
    assert_accessible(browser)


@pytest.mark.parametrize("width", [400, 1400])
def test_hostile_text_is_only_text(browser, page, width):
    resize(browser, width, "light")
    page(refused={HOSTILE[0]: 1}, problem=HOSTILE[1])
    open_sections(browser)
    wait_for(browser, "document.querySelector('#pages tbody tr')")
    wait_for(browser, "document.querySelector('#domain-rows tbody tr')")
    browser.find_element("id", "of").send_keys(HOSTILE[1] + "\n")
    wait_for(browser, "document.querySelector('#answer p:nth-child(3)')")
    for place in ("answer", "rows", "failed", "classes", "pages", "domain-rows", "traps"):
        body = text(browser, place)
        assert all(each in body for each in HOSTILE[:4])
    assert see(browser, "typeof hacked") == "undefined"
    assert see(browser, "document.querySelectorAll('main img, main script, main a, iframe').length") == 0
    assert see(browser, "document.documentElement.scrollWidth") == width
    assert_clean(browser)


def test_the_verdict_is_said_again_only_when_what_limits_changes(browser, page):
    resize(browser, 400, "dark")
    served = page()
    assert wait_for(browser, "document.getElementById('spoken').textContent").startswith("Politeness")
    spoken = "return document.getElementById('spoken').textContent"
    headline = "Politeness limits this crawl, and its queue lasts 9 h."
    served.figures["verdict"] = {"limit": "politeness", "sentence": "40 hosts.", "headline": headline}
    wait_for(browser, f"document.getElementById('headline').textContent === '{headline}'")
    assert browser.execute_script(spoken) == "Politeness limits this crawl."
    assert see(browser, "document.querySelector('#headline em.waiting').textContent") == "Politeness"
    served.figures["verdict"] = {"limit": "network", "sentence": "x", "headline": "Nothing answers: 3 hosts."}
    wait_for(browser, "document.getElementById('spoken').textContent === 'Nothing answers: 3 hosts.'")
    assert see(browser, "document.querySelector('#headline em.failed').textContent") == "Nothing answers"


def test_the_page_can_be_used_by_keyboard(browser, page):
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
    assert {"Hosts", "OPIC explained", "by", "part", "of", "rows"} <= set(seen)
    assert any(each.startswith("Order and cash") for each in seen)
    assert see(browser, "[...document.querySelectorAll('table')].every(each => each.caption)")
    assert see(browser, "[...document.querySelectorAll('th')].every(each => each.scope)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_explainer_is_a_part_of_it_and_shows_the_crawl(browser, page, scheme):
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
    assert see(browser, "typeof hacked") == "undefined"
    assert see(browser, "document.documentElement.scrollWidth") == 400
    assert_clean(browser)
    assert_accessible(browser)


def test_a_page_that_is_opened_in_the_background_shows_traps_at_once(browser, page):
    hidden = {"source": "Object.defineProperty(document, 'hidden', {get: () => true})"}
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", hidden)
    try:
        page()
        wait_for(browser, "document.getElementById('traps-note').textContent.includes('evil took 12')")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_what_politeness_costs_the_order_and_what_was_dropped(browser, page):
    resize(browser, 1000, "light")
    total, dropped = 2**53 - 1, {"flood": 1234}
    ledger = {"total": total, "pages": total, "virtual": 0, "history": 0, "turns": 4.0, "convergence": 0.25}
    ledger |= {"distributed": 4 * total, "virtual_distributed": total // 4}
    served = page(dropped=dropped, ledger=ledger, regret=1.0)
    assert "must wait for its host; the next one is worth 4 times less than it." in text(browser, "regret")
    assert "worth 2 times less than the best that waited, on average." in text(browser, "regret")
    cells = see(browser, "[...document.querySelectorAll('#fronts i')].map(each => each.className)")
    assert [n for n, each in enumerate(cells) if "best" in each] == [0]
    assert [n for n, each in enumerate(cells) if "ready" in each] == [37 - 35]
    open_sections(browser)
    assert "beyond the links of AOPIC_URL_LIMITS \u2013 dropped links" in text(browser, "refused")
    assert "1,234" in text(browser, "refused")
    assert "no importance would move by more than 25 % of all importance" in text(browser, "cash")
    assert "4 times what pages hold" in text(browser, "ledger")
    wait_for(browser, "document.querySelector('#domain-rows tbody tr')")
    assert "all others" in text(browser, "domain-rows")
    assert (
        "took 12 % of all fetches (20) and brought 0.1 % of all importance; 900 wait, 800 of them behind others."
        in text(browser, "traps")
    )
    assert '"deny_urls": ["://a[.]b/"]' in text(browser, "traps")
    assert "evil took 12 % of all fetches" in text(browser, "traps-note")
    served.figures["ledger"] = {**ledger, "virtual": -5}
    scroll_to(browser, "cash")
    wait_for(
        browser, "document.getElementById('cash').innerText.startsWith('5 units of cash are missing')", 5
    )
    assert_clean(browser)


def test_one_speed_stands_everywhere_and_no_host_is_counted_twice(browser, page):
    """The speed of ten seconds in the tile and in the plot; 6 hosts that wait are not 12."""
    resize(browser, 1000, "light")
    served = page()
    served.figures |= {"at": served.figures["at"] + 10}
    wait_for(browser, "document.querySelector('#plot polyline.fetched')")
    label = see(browser, "document.querySelector('#plot svg').getAttribute('aria-label')")
    assert "Now: 12.5 fetched a second of 20 that politeness allowed" in label
    four = text(browser, "four")
    assert four.startswith("12.5\n") or "\n12.5\n" in four
    assert "over 10 s; politeness allowed 20" in four
    assert "0 in flight, 0 ready, 6 waiting (6 gap)" in four
    assert text(browser, "waits") == "Of hosts in memory must be left alone: 6 for up to 10 s."
    for name in ("fetched", "allowed"):
        heights = see(
            browser, "document.querySelector('#plot polyline.' + arguments[0]).getAttribute('points')", name
        )
        assert len({each.partition(",")[2] for each in heights.split()}) == 1
    # Of pages that are visited again; what is forbidden or gone has a number of its own.
    visits = {"all": 60, "failed": 3, "gone": 6}
    served.figures |= {"at": served.figures["at"] + 10, "visits": visits}
    wait_for(browser, "document.getElementById('four').innerText.includes('visits a second')")
    four = text(browser, "four")
    assert "5 %\nof all visits. Beside these, 10 % are forbidden or gone" in four.replace("failed\n", "")
    assert "60" in text(browser, "totals")


def test_hosts_are_found_sorted_and_say_why(browser, page):
    resize(browser, 1000, "light")
    page()
    names = "[...document.querySelectorAll('#rows tbody th')].map(each => each.innerText)"
    assert see(browser, names) == HOSTILE
    browser.find_element("css selector", "#by option[value=queued]").click()
    wait_for(browser, f"{names}[0] === 'queued.test'")
    assert "as of the last commit" in text(browser, "rows-note")
    press(browser, "#rows thead th:nth-child(3) button")
    sizes = see(
        browser,
        "[...document.querySelectorAll('#rows tbody tr')].map(each => Number(each.children[2].innerText.replace(',', '')))",
    )
    assert sizes == sorted(sizes, reverse=True)
    assert see(browser, "document.querySelectorAll('#rows th')[2].ariaSort") == "descending"
    browser.find_element("id", "part").send_keys("evil\n")
    wait_for(browser, f"{names}.length === 1")
    line = "getComputedStyle(document.querySelector('#rows tbody button')).textDecorationLine"
    assert see(browser, line) == "underline"  # a name can be seen to open something
    press(browser, "#rows tbody button")
    wait_for(browser, "document.querySelectorAll('#answer p').length > 3")
    assert see(browser, "document.getElementById('reply').open")
    assert_accessible(browser)
    assert_clean(browser)


def test_what_an_operator_asks_and_how_relevant_pages_are(browser, page):
    resize(browser, 400, "dark")
    served = page()
    assert text(browser, "orders") == ""
    assert see(browser, "document.getElementById('topic').hidden")
    served.figures |= {
        "control": {"sentences": ["paused since noon: no page is requested", f"blocked: {HOSTILE[0]}"]},
        "topic": {"pages": 1000, "relevant": 400, "harvest": 0.4, "lately": 0.123},
    }
    wait_for(browser, "document.querySelectorAll('#orders li').length === 2")
    assert HOSTILE[0] in text(browser, "orders")
    assert "12.3 %" in text(browser, "totals")
    open_sections(browser)
    assert (
        "last 500 pages that were read, 12.3 % are relevant (95 %: 9.71 % to 15.5 %), and of all 40 %"
        in text(browser, "harvest")
    )
    rows = [line.split("\t") for line in text(browser, "relevance").splitlines()]
    assert ["relevant", "400", ""] in rows
    assert ["not relevant, or duplicates", "600", ""] in rows
    assert see(browser, "document.documentElement.scrollWidth") == 400
    assert_accessible(browser)
    served.figures["control"] = {}
    wait_for(browser, "!document.getElementById('orders').childNodes.length")
    assert_clean(browser)


def test_orders_do_what_control_does_are_undone_and_stand_in_the_history(browser, page, tmp_path):
    """By mouse and by keyboard; each is in the file that ``scrapy aopic control`` writes."""
    from selenium.webdriver.common.keys import Keys

    resize(browser, 1000, "light")
    place = FolderPlace(tmp_path)
    served = page(tmp_path, store={"name": "job"})

    def shown() -> Control:
        """What is set now; the page shows it, as that of a crawl does."""
        control = read_control(place)
        served.figures["control"] = msgspec.to_builtins(control_figures(control))
        return control

    def pressed(button: str, what: str) -> Control:
        press(browser, button)
        wait_for(browser, f"document.getElementById('ordered').textContent.startsWith('Asked: {what}.')")
        control = shown()
        n = len(control.asked)
        wait_for(browser, f"document.querySelectorAll('#orders details li').length === {n}")
        return control

    assert pressed("#pause", "pause").paused_since
    assert text(browser, "pause") == "Go on"
    browser.find_element("id", "pause").send_keys(Keys.ENTER)
    wait_for(browser, "document.getElementById('ordered').textContent.startsWith('Asked: resume.')")
    assert not shown().paused_since
    assert pressed("#slower", "rate 6.3").rate == 6.3
    assert pressed("#orders > button", "rate 0").rate == 0
    browser.find_element("id", "of").send_keys("http://www.slow.test/1\n")
    wait_for(browser, "document.getElementById('reply').open")
    browser.find_element("id", "gap").send_keys("7\n")
    wait_for(
        browser, "document.getElementById('ordered').textContent.startsWith('Asked: slow 7 www.slow.test.')"
    )
    assert shown().slowed["www.slow.test"].gap == 7
    browser.find_element("id", "of").send_keys(Keys.ENTER)
    wait_for(browser, "document.getElementById('reply').open")
    assert [*pressed("#block", "block www.slow.test").blocked] == ["www.slow.test"]
    assert not pressed("#orders > button", "unblock www.slow.test").blocked
    assert pressed("#traps button", "block trap.test").blocked
    assert [*pressed("#traps button:nth-of-type(2)", "deny ://a[.]b/").denied] == ["://a[.]b/"]
    assert not pressed("#orders > button:nth-of-type(2)", "allow ://a[.]b/").denied
    press(browser, "#stop")
    browser.switch_to.alert.accept()
    wait_for(browser, "document.getElementById('ordered').textContent.startsWith('Asked: stop.')")
    assert shown().stopped_at
    wait_for(browser, "document.querySelectorAll('#orders details li').length === 11")
    press(browser, "#orders summary")
    past = text(browser, "orders")
    assert [past.find(each) for each in ("stop\n", "block trap.test\n", "rate 6.3\n", " pause")] == sorted(
        past.find(each) for each in ("stop\n", "block trap.test\n", "rate 6.3\n", " pause")
    )
    assert_clean(browser)
    assert_accessible(browser)
    served.figures["is_live"] = False  # of a job that does not run there are none
    wait_for(browser, "document.getElementById('steer').hidden")
    assert not see(browser, "document.querySelector('#orders > button')")


def test_the_values_of_a_moment_are_read_by_pointer_and_by_keys(browser, page):
    """In ranges of time, by status and by media type; a recrawl has its curves, and nothing is cut at 400 pixels."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    resize(browser, 400, "light")
    fetched = [{"at": time.time(), "url": each, "status": 200, "size": 1000} for each in HOSTILE]
    workers = [{"worker": f"here:{n}", "shards": 2 * (n < 3), "rate": 2.0} for n in (1, 2, 3)]
    shards = [{"shard": n, "worker": f"here:{1 + n // 2}", "queued": 9, "is_idle": n > 1} for n in range(4)]
    served = page(fetched=fetched)
    began = served.figures["at"]

    def moves_on(seconds: float, times: int, **more: Any) -> None:
        parts = {"statuses": {"2xx": 40 * times, "4xx": 10 * times}, "media": {"html": 5000 * times}}
        served.figures |= {"at": began + seconds, **parts, **more}
        wait_for(
            browser, f"document.querySelector('#plot svg').ariaLabel.includes('to {clock(began + seconds)}')"
        )

    def clock(at: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(at))

    served.figures["at"] += 5  # a plot needs two points
    wait_for(browser, "document.querySelector('#plot svg')")
    moves_on(90, 1)
    moves_on(100, 2)
    bands = "[...document.querySelectorAll('#plot svg text')].map(each => each.textContent).join()"
    assert "as before" not in see(browser, bands)
    plot = browser.find_element("id", "plot")
    plot.send_keys(Keys.ARROW_LEFT)
    values = text(browser, "values")
    assert values.startswith(f"{clock(began + 100)}: fetched a second 20 politeness allowed, 12.5 fetched; ")
    assert "hosts 0 in flight, 0 ready, 6 waiting; pages queued 10 queued" in values
    assert "answers a second 4 2xx, 0 3xx, 1 4xx" in values
    assert "bytes a second 500 HTML, 0 images" in values
    plot.send_keys(Keys.ARROW_LEFT)
    assert text(browser, "values").startswith(clock(began + 90))
    plot.send_keys(Keys.ESCAPE)
    assert text(browser, "values").startswith("Speeds are over the ten seconds")
    ActionChains(browser).move_to_element(plot).perform()
    assert "answers a second" in text(browser, "values")
    first = "document.querySelector('#plot svg').ariaLabel.slice(5, 13)"
    assert see(browser, first) == clock(began)
    browser.find_element("css selector", "#range option[value='60']").click()
    assert see(browser, first) == clock(began + 90)
    moves_on(110, 3, found={"unchanged": 3, "changed": 1})
    moves_on(120, 4, found={"unchanged": 6, "changed": 2})
    assert "importance gathered" in see(browser, bands)
    plot.send_keys(Keys.ARROW_LEFT)
    assert "75 as before" in text(browser, "values")
    assert HOSTILE[0] in text(browser, "fetched-rows")
    served.figures |= {
        "is_live": False,
        "shards": {"n": 4, "held": 4, "alive": 3, "each": shards, "workers": workers},
    }
    rows = wait_for(browser, "document.getElementById('workers').innerText")
    for said in ("at work", "idle: its 18 pages must wait", "idle: no shard is free"):
        assert said in rows
    open_sections(browser)
    right = "Math.max(...[...document.querySelectorAll('.scroll td, .scroll th')].map(each => each.getBoundingClientRect().right))"
    assert see(browser, right) <= 400
    assert see(browser, "typeof hacked") == "undefined"
    assert_clean(browser)
    assert_accessible(browser)
