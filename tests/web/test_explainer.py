"""The explainer (docs/opic), opened as a file in a headless Chromium: ``make test-web``. Skipped where there is none."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chromium import AXE, MARKS, start_chromium
from support.waiting import wait_until

EXPLAINER = Path(__file__).parents[2] / "docs" / "opic"
ADDRESS = (EXPLAINER / "index.html").as_uri()
SCENES = ("coins", "bank", "next", "change", "hosts", "draw", "mine")
HOSTILE = 'http://x/"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202egnp.exe'


pytestmark = MARKS


class Explainer:
    """The explainer in a browser of its own."""

    def __init__(self) -> None:
        self.driver: Any = start_chromium("--window-size=1500,1100", logs=("browser", "performance"))
        self._actions = pytest.importorskip("selenium.webdriver").ActionChains

    def open(
        self, fragment: str = "", *, width: int = 1000, scheme: str = "light", motion: str = "no-preference"
    ) -> None:
        driver = self.driver
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wishes = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get("about:blank")  # so that another fragment is another page
        driver.get(ADDRESS + fragment)
        # On a loaded machine it may come back while the blank page is still there.
        self.wait_for("location.protocol === 'file:' && document.readyState === 'complete'")

    def find(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, scene: str, name: str) -> None:
        (button,) = (each for each in self.find(f"#{scene} button") if each.text == name)
        self.show(button)
        button.click()

    def show(self, element: Any) -> None:
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)

    def said(self, scene: str) -> str:
        return str(self.find(f"#{scene} .said")[0].text)

    def keys(self, *names: str) -> None:
        from selenium.webdriver.common.keys import Keys

        actions = self._actions(self.driver)
        for name in names:
            if name == "BACK_TAB":
                actions.key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT)
            else:
                actions.send_keys(getattr(Keys, name))
        actions.perform()

    def focus(self, selector: str, n: int = 0) -> None:
        self.run("arguments[0].focus()", self.find(selector)[n])

    def type(self, selector: str, text: str) -> None:
        (field,) = self.find(selector)
        field.clear()
        field.send_keys(text)

    @property
    def mouse(self) -> Any:
        return self._actions(self.driver, duration=50)

    def wait_for(self, condition: str) -> None:
        wait_until(lambda: self.run(f"return {condition}"), said=lambda: condition)

    def assert_clean(self) -> None:
        """It has said nothing, and has loaded nothing but its own files."""
        assert self.driver.get_log("browser") == []
        events = [json.loads(each["message"])["message"] for each in self.driver.get_log("performance")]
        loaded = {
            each["params"]["request"]["url"].partition("#")[0]
            for each in events
            if each["method"] == "Network.requestWillBeSent"
        }
        own = {
            f"{EXPLAINER.as_uri()}/{name}" for name in ("index.html", "style.css", "ledger.js", "scenes.js")
        }
        assert {url for url in loaded if not url.startswith(("data:", "about:"))} == own


@pytest.fixture(scope="module")
def browser() -> Iterator[Explainer]:
    explainer = Explainer()
    yield explainer
    explainer.driver.quit()


@pytest.fixture
def page(browser: Explainer) -> Iterator[Explainer]:
    yield browser
    browser.assert_clean()


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_scene_fits_and_runs(page, width, scheme):
    page.open(width=width, scheme=scheme)
    for scene in ("coins", "bank", "next", "hosts", "draw"):
        before = page.said(scene)
        page.press(scene, "Step")
        assert page.said(scene) != before
        assert page.run("return document.documentElement.scrollWidth") <= width
    colour = page.run("return getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(251, 250, 246)" if scheme == "light" else "rgb(20, 23, 29)")
    assert [len(page.find(f"#{scene} h2")) for scene in SCENES] == [1] * len(SCENES)


def test_without_the_bank_the_cash_of_dead_ends_is_lost_and_with_it_none_is(page):
    def bar() -> str:
        return str(page.find("#bank [data-bar] svg")[0].get_attribute("aria-label"))

    page.open(motion="reduce")
    for _ in range(12):
        page.press("bank", "Step")
    assert "lost" not in bar()
    page.find("#bank input")[0].click()
    for _ in range(30):
        page.press("bank", "Step")
    assert int(re.findall(r"lost ([\d,]+)", bar())[0].replace(",", "")) > 3000


def test_greedy_comes_closest_and_says_so(page):
    page.open()
    page.press("next", "Run to the end")
    times = [float(each) for each in re.findall(r"([\d.]+) times", page.said("next"))]
    assert all(each > 1.2 for each in times)
    assert len(times) == 2


def test_nothing_moves_where_that_is_not_wanted_or_before_it_is_asked_for(page):
    coins = {}
    for motion in ("reduce", "no-preference"):
        page.open(motion=motion)
        time.sleep(0.3)
        assert page.find(".coin") == []
        step = "const coins = document.getElementById('coins'); coins.querySelector('button.main').click();"
        coins[motion] = page.run(f"{step} return coins.querySelectorAll('.coin').length")
    assert coins == {"reduce": 0, "no-preference": 2}  # a coin for each link; scene 1 has no virtual page


def test_answers_of_the_exercises_are_what_the_scenes_show(page):
    """One that is wrong would be learned by a class."""
    page.open()
    answers = page.run("return document.querySelector('#exercises').textContent.replace(/\\s+/g, ' ')")
    hand = page.run(
        "const web = new Opic.Web([[1], [0, 2], [0]], {bank: false}); [0, 1, 2].forEach(page => web.visit(page));"
        "const first = [web.pages.map((_, page) => Number(web.cash(page))), web.pages.map(page => Number(page.history)), web.importance()];"
        "for (let n = 0; n < 3000; n += 1) web.step(); return [...first, web.importance()]"
    )
    assert hand[:3] == [[3000, 0, 0], [1000, 2000, 2000], [0.5, 0.25, 0.25]]
    assert hand[3] == pytest.approx([0.4, 0.4, 0.2], abs=0.001)
    ratios = page.run(
        "return Array.from({length: 20}, (_, n) => { const links = Opic.randomLinks(24, n + 1), truth = Opic.pagerank(links);"
        "const [greedy, ...others] = ['greedy', 'random', 'cycle'].map(policy => { const web = new Opic.Web(links, {seed: n + 1});"
        "for (let step = 0; step < 480; step += 1) web.step(policy); return Opic.distance(web.importance(), truth); });"
        "return others.map(each => each / greedy); })"
    )
    for name, column in zip(("random", "cycle"), zip(*ratios, strict=True), strict=True):
        assert re.search(rf"{name} (is )?{min(column):.1f} to {max(column):.1f} times", answers)
    ring = page.run("return Opic.pagerank([[1, 2], [2], [3], [4], [0]])")
    assert [f"{100 * each:.1f}" for each in ring] == ["21.5", "12.1", "22.5", "22.1", "21.8"]
    assert "12.1 %; page 3 is paid by two pages, 22.5 %" in answers
    assert "22.1, 21.8 and 21.5 %" in answers
    farm = page.run(
        "return [0, 1, 5, 10].map(n => Opic.pagerank([[1], [2], [3], [4], [0], Array.from({length: n}, (_, page) => page + 6),"
        "...Array.from({length: n}, () => [5])])[5])"
    )
    assert [f"{100 * each:.2g}" for each in farm] == ["2.9", "14", "26", "32"]
    for index, arrival, span in ((4, 62, "3.5 % and 4.2 %"), (2, 27, "3.0 % and 5.0 %"), (5, 188, "")):
        page.run(
            "const range = document.querySelector('#change input'); range.value = arguments[0];"
            "range.dispatchEvent(new Event('input'))",
            index,
        )
        assert f"comes within a tenth of the new PageRank after {arrival} visits" in page.said("change")
        assert f"In the last 300 visits it is between {span}" in page.said("change")
        assert str(arrival) in answers
        assert span in answers


def test_all_of_it_can_be_done_by_keyboard(page):
    page.open()
    page.focus("#coins [role=button]", 3)
    page.keys("ENTER")
    assert page.said("coins").startswith("Page 4 adds 1,000 coins")
    page.focus("#change input")
    before = page.said("change")
    page.keys("ARROW_LEFT")
    assert page.said("change") != before
    assert page.find("#change input")[0].get_attribute("aria-valuetext") == "4 turns"
    page.focus("#draw [role=button]", 2)
    page.keys("ENTER", "BACK_TAB", "ENTER")
    assert page.said("draw") == "Page 3 now links to page 2."
    page.keys("DELETE")
    assert page.said("draw").startswith("Page 2 and its links are gone")
    assert len(page.find("#draw [role=button]")) == 6
    page.type("#draw textarea", "1: 2\n2: 1 <b>")
    page.keys("TAB", "ENTER")
    assert "is not of the form" in page.find("#draw .wrong")[0].text
    page.type("#draw textarea", "1: 2\n2: 3\n3: 1")
    page.keys("TAB", "ENTER")
    assert page.said("draw") == "The web has 3 pages and 3 links."


def test_webs_are_drawn_by_mouse_and_shared_by_address(page):
    page.open()
    page.press("draw", "The example")
    (canvas,) = page.find("#draw .canvas")
    page.show(canvas)
    size = canvas.size
    corner = (20 - size["width"] // 2, 20 - size["height"] // 2)  # from the middle
    page.mouse.move_to_element_with_offset(canvas, *corner).click().perform()
    assert page.said("draw").startswith("Page 8 is new.")
    for n in (7, 0):
        page.mouse.move_to_element(page.find("#draw [role=button]")[n]).click().perform()
    assert page.said("draw") == "Page 8 now links to page 1."
    disc = page.find("#draw [role=button]")[6]
    drag = page.mouse.move_to_element(disc).click_and_hold()
    drag.move_to_element_with_offset(canvas, 40, 50).release().perform()
    assert page.said("draw") == "Page 7 is moved."
    fragment = page.run("return location.hash")
    assert fragment.startswith("#web=")
    page.open(fragment)
    links = page.find("#draw textarea")[0].get_attribute("value")
    assert links.endswith("7: 1 5\n8: 1")


@pytest.mark.parametrize("fragment", ["#web=1,1/%3Cscript%3E", "#coins", "#web=" + "9" * 5000])
def test_an_address_that_holds_no_web_shows_the_example(page, fragment):
    page.open(fragment)
    assert len(page.find("#draw [role=button]")) == 7


def test_hostile_strings_of_a_file_are_shown_and_do_nothing(page, tmp_path):
    good = {"url": HOSTILE, "importance": 0.25, "cash": 1, "history": 3, "visits": 2, "state": HOSTILE}
    (tmp_path / "top.json").write_text(json.dumps([good, good | {"url": "x" * 10**5}]), encoding="utf-8")
    (tmp_path / "bad.json").write_text(HOSTILE, encoding="utf-8")
    page.open(width=400)
    (field,) = page.find("#mine-file")
    field.send_keys(str(tmp_path / "top.json"))
    page.wait_for("document.querySelector('#mine td.name') !== null")
    text = page.find("#mine td.name")[0].text
    assert '<img src=x onerror="window.hacked=1"><script>' in text
    assert "\\u{202e}gnp.exe" in text
    assert page.run("return window.hacked") is None
    assert page.find("#mine img, #mine script, #mine a") == []
    assert page.run("return document.documentElement.scrollWidth") <= 400
    field.send_keys(str(tmp_path / "bad.json"))
    page.wait_for("/is not JSON/.test(document.querySelector('#mine .said').textContent)")
    assert page.find("#mine td") == []


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: make browser does that if there is npm"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, scheme):
    page.open(scheme=scheme, motion="reduce")
    for scene in ("coins", "bank", "hosts", "draw"):
        page.press(scene, "Step")
    for summary in page.find("summary"):
        page.show(summary)
        summary.click()
    page.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    page.run(AXE.read_text(encoding="utf-8"))
    found = page.driver.execute_async_script(
        "const done = arguments[0]; axe.run(document, {preload: false}).then(found => done(found.violations.map("
        "each => [each.impact, each.id, each.nodes.map(node => node.html.slice(0, 200)).slice(0, 3)])))"
    )
    assert found == []
