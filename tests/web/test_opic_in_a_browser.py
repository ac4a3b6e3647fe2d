"""The explainer (docs/opic) in a headless Chromium: with ``pip install playwright`` and Debian's ``chromium``."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

EXPLAINER = Path(__file__).parents[2] / "docs" / "opic"
ADDRESS = (EXPLAINER / "index.html").as_uri()
CHROMIUM = os.environ.get("AOPIC_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SCENES = ("coins", "bank", "next", "change", "hosts", "draw", "mine")
HOSTILE = 'http://x/"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202egnp.exe'

api = pytest.importorskip(
    "playwright.sync_api", reason="Playwright (pip install playwright) is not installed"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="Chromium is not installed (AOPIC_CHROMIUM names another one)"
    ),
]


def in_browser(act: Callable[[Any], Any], *, fragment: str = "", **how: Any) -> Any:
    """What *act* returns for the explainer in a page of its own, which must neither complain nor load anything else."""
    said, loaded = [], []

    def run() -> Any:
        with api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_context(**{"viewport": {"width": 1000, "height": 900}, **how}).new_page()
            page.set_default_timeout(20_000)
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("request", lambda request: loaded.append(request.url))
            page.goto(ADDRESS + fragment)
            result = act(page)
            browser.close()
            return result

    with ThreadPoolExecutor(1) as thread:  # Playwright refuses a thread in which an event loop runs
        result = thread.submit(run).result()
    assert said == []
    assert {url.partition("#")[0] for url in loaded if not url.startswith("data:")} == {
        f"{EXPLAINER.as_uri()}/{name}" for name in ("index.html", "style.css", "ledger.js", "scenes.js")
    }
    return result


def press(page: Any, scene: str, name: str) -> None:
    page.click(f"#{scene} button:text-is('{name}')")


def said(page: Any, scene: str) -> str:
    return str(page.inner_text(f"#{scene} .said"))


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_scene_fits_and_runs(width: int, scheme: str) -> None:
    def act(page: Any) -> None:
        for scene in ("coins", "bank", "next", "hosts", "draw"):
            before = said(page, scene)
            press(page, scene, "Step")
            assert said(page, scene) != before
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(251, 250, 246)" if scheme == "light" else "rgb(20, 23, 29)"
        )
        assert [page.locator(f"#{scene} h2").count() for scene in SCENES] == [1] * len(SCENES)

    in_browser(act, viewport={"width": width, "height": 800}, color_scheme=scheme)


def test_without_the_bank_the_cash_of_dead_ends_is_lost_and_with_it_none_is() -> None:
    def act(page: Any) -> None:
        def bar() -> str:
            return str(page.get_attribute("#bank [data-bar] svg", "aria-label"))

        for _ in range(12):
            press(page, "bank", "Step")
        assert "lost" not in bar()
        page.uncheck("#bank input")
        for _ in range(30):
            press(page, "bank", "Step")
        page.wait_for_selector("#bank [data-bar] svg[aria-label*='lost']")
        lost = int(re.findall(r"lost ([\d,]+)", bar())[0].replace(",", ""))
        assert lost > 3000

    in_browser(act, reduced_motion="reduce")


def test_greedy_comes_closest_and_says_so() -> None:
    def act(page: Any) -> None:
        press(page, "next", "Run to the end")
        times = [float(each) for each in re.findall(r"([\d.]+) times", said(page, "next"))]
        assert all(each > 1.2 for each in times)
        assert len(times) == 2

    in_browser(act)


def test_nothing_moves_where_that_is_not_wanted_or_before_it_is_asked_for() -> None:
    def act(page: Any) -> tuple[int, int]:
        page.wait_for_timeout(300)
        at_first = page.locator(".coin").count()
        press(page, "coins", "Step")
        return at_first, page.locator(".coin").count()

    assert in_browser(act, reduced_motion="reduce") == (0, 0)
    at_first, moving = in_browser(act)
    assert at_first == 0
    assert moving == 3  # two links and the virtual page


def test_all_of_it_can_be_done_by_keyboard() -> None:
    def act(page: Any) -> None:
        page.focus("#coins [role=button] >> nth=3")
        page.keyboard.press("Enter")
        assert said(page, "coins").startswith("Page 4 adds 1,000 coins")
        page.focus("#change input")
        before = said(page, "change")
        page.keyboard.press("ArrowLeft")
        assert said(page, "change") != before
        assert page.get_attribute("#change input", "aria-valuetext") == "4 turns"
        page.focus("#draw [role=button] >> nth=2")
        page.keyboard.press("Enter")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Enter")
        assert said(page, "draw") == "Page 3 now links to page 2."
        page.keyboard.press("Delete")
        assert said(page, "draw").startswith("Page 2 and its links are gone")
        assert page.locator("#draw [role=button]").count() == 6
        page.fill("#draw textarea", "1: 2\n2: 1 <b>")
        page.press("#draw textarea", "Tab")
        page.keyboard.press("Enter")
        assert "is not of the form" in page.inner_text("#draw .wrong")
        page.fill("#draw textarea", "1: 2\n2: 3\n3: 1")
        page.press("#draw textarea", "Tab")
        page.keyboard.press("Enter")
        assert said(page, "draw") == "The web has 3 pages and 3 links."

    in_browser(act)


def test_webs_are_drawn_by_mouse_and_shared_by_address() -> None:
    def act(page: Any) -> str:
        canvas = page.locator("#draw .canvas")
        canvas.scroll_into_view_if_needed()
        press(page, "draw", "The example")
        box = canvas.bounding_box()
        page.mouse.click(box["x"] + 15, box["y"] + 15)
        assert said(page, "draw").startswith("Page 8 is new.")
        page.locator("#draw [role=button]").nth(7).click()
        page.locator("#draw [role=button]").nth(0).click()
        assert said(page, "draw") == "Page 8 now links to page 1."
        disc = page.locator("#draw [role=button]").nth(6).bounding_box()
        page.mouse.move(disc["x"] + disc["width"] / 2, disc["y"] + disc["height"] / 2)
        page.mouse.down()
        page.mouse.move(disc["x"] + 60, disc["y"] + 60, steps=5)
        page.mouse.up()
        assert said(page, "draw") == "Page 7 is moved."
        return str(page.evaluate("location.hash"))

    fragment = in_browser(act)
    assert fragment.startswith("#web=")
    links = in_browser(lambda page: page.input_value("#draw textarea"), fragment=fragment)
    assert links.endswith("7: 1 5\n8: 1")


@pytest.mark.parametrize("fragment", ["#web=1,1/%3Cscript%3E", "#coins", "#web=" + "9" * 5000])
def test_an_address_that_holds_no_web_shows_the_example(fragment: str) -> None:
    assert in_browser(lambda page: page.locator("#draw [role=button]").count(), fragment=fragment) == 7


def test_hostile_strings_of_a_file_are_shown_and_do_nothing(tmp_path: Path) -> None:
    good = {"url": HOSTILE, "importance": 0.25, "cash": 1, "history": 3, "visits": 2, "state": HOSTILE}
    (tmp_path / "top.json").write_text(json.dumps([good, good | {"url": "x" * 10**5}]), encoding="utf-8")
    (tmp_path / "bad.json").write_text(HOSTILE, encoding="utf-8")

    def act(page: Any) -> None:
        page.set_input_files("#mine-file", tmp_path / "top.json")
        page.wait_for_selector("#mine td.name")
        text = page.inner_text("#mine td.name >> nth=0")
        assert '<img src=x onerror="window.hacked=1"><script>' in text
        assert "\\u{202e}gnp.exe" in text
        assert page.evaluate("window.hacked") is None
        assert page.locator("#mine img, #mine script, #mine a").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.set_input_files("#mine-file", tmp_path / "bad.json")
        page.wait_for_selector("#mine .said:has-text('is not JSON')")
        assert page.locator("#mine td").count() == 0

    in_browser(act, viewport={"width": 400, "height": 800})


AXE = os.environ.get("AOPIC_AXE")


@pytest.mark.skipif(AXE is None, reason="AOPIC_AXE does not name axe.min.js (npm install axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme: str) -> None:
    def act(page: Any) -> Any:
        for scene in ("coins", "bank", "hosts", "draw"):
            press(page, scene, "Step")
        for summary in page.locator("summary").all():
            summary.click()
        page.evaluate(Path(AXE or "").read_text(encoding="utf-8"))
        found = page.evaluate("axe.run({preload: false})")
        return [(each["id"], each["impact"], each["nodes"][0]["html"][:150]) for each in found["violations"]]

    assert in_browser(act, reduced_motion="reduce", color_scheme=scheme) == []
