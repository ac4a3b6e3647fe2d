"""The pictures of docs/dashboard.md: ``python benchmarks pictures``, after ``make browser``.

A headless Chromium shows the dashboard of a crawl of the demo web that has run for a minute, with gaps of ten seconds as hosts
of the real Web want them. Pictures of a page that contradicts itself (:mod:`screen`) are refused.
"""

from __future__ import annotations

import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import screen

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

SECONDS = 60
"""Of the crawl before the pictures are taken: later only few hosts have pages."""

PICTURES = {
    "dashboard-wide": (1400, "light", ("main > :first-child", "#queue")),
    "dashboard-narrow": (400, "dark", ("main > :first-child", "#speed")),
    "dashboard-hosts": (1000, "light", (".two", ".two")),
}
"""Of each picture: width, colours, and the first and the last element that are in it."""

_WIDEST = 1000
"""Pixels of a picture; wider windows are drawn smaller."""

_MARGIN = 10


def take(browser: Any, name: str) -> None:
    """Take the picture called *name*."""
    width, scheme, ends = PICTURES[name]
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": 1000})
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": height})
    time.sleep(2.5)
    box = browser.execute_script(
        "const [first, last] = [...arguments].map((each) => document.querySelector(each).getBoundingClientRect());"
        "return [first.left, first.top, first.right, last.bottom]",
        *ends,
    )
    left, top, right, bottom = box[0] - _MARGIN, box[1] - _MARGIN, box[2] + _MARGIN, box[3] + _MARGIN
    if ends[0].startswith("main"):
        left, top, right = 0, 0, width
    scale = min(_WIDEST / width, 1)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top, "scale": scale}
    file = ROOT / "docs" / f"{name}.png"
    file.write_bytes(b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})["data"]))
    _reduce(file)


def _reduce(file: Path) -> None:
    """Write *file* with 256 colours, which are enough for it, if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(file) as picture:
        reduced = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced.save(file, optimize=True)


def refuse(samples: list[screen.Sample]) -> None:
    """End with an error if what the page said while the pictures were taken contradicts itself; they are not to be kept then.

    Args:
        samples: What it said since the crawl began; the pictures are of the last ones.
    """
    wrong = set().union(*screen.contradictions(samples)[-2 * len(PICTURES) :])
    if wrong:
        sys.exit(
            f"The pictures contradict themselves ({', '.join(sorted(wrong))}): do not keep them, take others."
        )


def main() -> None:
    from support.chromium import start_chromium
    from support.dashboard import TOKEN, run_with_dashboard

    with tempfile.TemporaryDirectory() as job:
        settings = {"JOBDIR": f"{job}/broad", "CLOSESPIDER_TIMEOUT": 3600, "DOWNLOAD_DELAY": 10}
        with run_with_dashboard(["crawl", "broad"], settings, folder=ROOT / "example_project") as (_, port):
            browser = start_chromium()
            try:
                browser.get(f"http://127.0.0.1:{port}/?token={TOKEN}")
                samples = screen.sampled(port, SECONDS)
                for name in PICTURES:
                    take(browser, name)
                    samples += screen.sampled(port, 1)
                refuse(samples)
            finally:
                browser.quit()


if __name__ == "__main__":
    main()
