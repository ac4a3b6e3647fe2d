"""The pictures of docs/dashboard.md: ``python benchmarks pictures``, after ``make browser``; or of eight situations, into a FOLDER.

A headless Chromium shows the dashboard of a crawl of the demo web that has run for a minute, with gaps of ten seconds as hosts
of the real Web want them. Pictures of a page that contradicts itself (:mod:`screen`) are refused.

``python benchmarks pictures FOLDER`` shows crawls that were recorded (``tests/golden/screen``) at each width and in both colours,
to be looked at one by one.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Any, cast

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


SITUATIONS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "start": ("politeness", 4, {}),
    "steady": ("politeness", None, {}),
    "trap": ("politeness", None, {"trap": True}),
    "tail": ("tail", None, {}),
    "end": ("end", None, {}),
    "starved": ("starved", None, {}),
    "network": ("network", None, {}),
    "workers": ("politeness", None, {"workers": 3}),
}
"""Of each situation: the record, how many of its samples, and what is added to it."""

WIDTHS = (400, 1000, 1600)


def recorded(kind: str) -> list[screen.Sample]:
    """What a dashboard showed of the crawl of this *kind*, once a second."""
    data = gzip.decompress((ROOT / "tests" / "golden" / "screen" / f"{kind}.jsonl.gz").read_bytes())
    return [json.loads(line) for line in data.splitlines()]


class Answering:
    """Answers for a crawl that is only a record."""

    def __init__(self, has_trap: bool) -> None:
        self._has_trap = has_trap

    def traps(self) -> list[dict[str, Any]]:
        pattern, host = "calendar.endless.example/calendar/*", "calendar.endless.example"
        trap = {
            "pattern": pattern,
            "host": host,
            "visited": 2588,
            "queued": 98,
            "held": 80,
            "visited_part": 0.135,
        }
        command = f"scrapy aopic control crawls/broad block {host}"
        more = {"brought_part": 0.008, "order": f"block {host}", "command": command}
        more["deny_url"] = r"://calendar\.endless\.example/calendar/"
        return [{**trap, **more}] if self._has_trap else []


def _workers(n: int) -> dict[str, Any]:
    parts = ((700, 50), (400, 40), (200, 20), (96, 13), (3, 4))  # together what the record has
    shards = [
        {"shard": k, "worker": f"here:{k // 2}", "queued": queued, "visited": visited, "is_idle": k == 4}
        for k, (queued, visited) in enumerate(parts)
    ]
    rows = [
        {"worker": f"here:{k}", "shards": 2 - (k == n - 1), "seconds": 60.0, "rate": 3.1} for k in range(n)
    ]
    return {"n": 5, "held": 5, "alive": n, "each": shards, "workers": rows}


def judged(samples: list[screen.Sample]) -> list[screen.Sample]:
    """*samples* with what is said of them today."""
    import msgspec

    from scrapy_aopic.view.snapshot import Snapshot, forecast
    from scrapy_aopic.view.verdict import Judge

    judge, found = Judge(), []
    for sample in samples:
        now = msgspec.convert(sample, Snapshot, str_keys=True)
        told = forecast(now.pages, now.rate, tail=now.hosts.tail)
        is_limited = not now.is_live or "CLOSESPIDER" in now.forecast.because
        more = {"verdict": judge(now), "forecast": now.forecast if is_limited else told}
        found.append({**sample, **msgspec.to_builtins(more, str_keys=True)})
    return found


def _filled(sample: screen.Sample) -> screen.Sample:
    """*sample* with what a record leaves out, since it says nothing of a limit: made up, in keeping with the rest."""
    pages = sample["pages"]
    n, failed = pages["visited"], pages["failed"]
    answers = {"2xx": n * 9 // 10, "3xx": n // 10, "4xx": failed // 2, "none": failed - failed // 2}
    urls = [f"http://{row['name']}/{k}" for k, row in enumerate(sample["waiting"])] or ["http://a.example/"]
    causes = ("not found", "http 503", "no answer")[: min(failed, 3)]
    made_up = {
        "visits": sample.get("visits")
        or {"all": n + failed, "failed": failed // 2, "gone": failed - failed // 2},
        "statuses": answers,
        "outcomes": {"page": answers["2xx"], "redirect": answers["3xx"], "not found": answers["4xx"]},
        "media": {"html": 9000 * n, "image": 700 * n, "application": 300 * n},
        "fetched": [{"at": sample["at"], "url": url, "status": 200, "size": 9000} for url in urls[:n]],
        "failures": [
            {"at": sample["at"], "url": url, "cause": cause} for url, cause in zip(urls, causes, strict=False)
        ],
    }
    return {**sample, **made_up}


def picture_situations(browser: Any, folder: Path) -> None:
    """Take the pictures of :data:`SITUATIONS`, at each width and in both colours."""
    import msgspec
    from support.dashboard import TOKEN, Served

    from scrapy_aopic.dashboard.site import Shown, make_site
    from scrapy_aopic.view.history import point_of
    from scrapy_aopic.view.snapshot import Snapshot

    for name, (kind, n, more) in SITUATIONS.items():
        samples = judged(recorded(kind)[:n])
        refuse(samples)
        served = Served(every=0.5)
        samples = [_filled(each) for each in samples]
        now = {**samples[-1], "store": {**samples[-1].get("store", {}), "name": "crawls/broad"}}
        if "workers" in more:
            now["shards"] = {**_workers(more["workers"]), "held": 2}
        shown = Shown(
            served.feed,
            questions=cast("Any", Answering("trap" in more)),
            job=partial(
                msgspec.convert, {**now, "shards": _workers(more.get("workers", 0))}, Snapshot, str_keys=True
            ),
        )
        served.server.site = make_site(shown)
        served.figures = now
        served.feed._points.extend(
            point_of(msgspec.convert(each, Snapshot, str_keys=True)) for each in samples
        )
        try:
            for scheme in ("light", "dark"):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                for width in WIDTHS:
                    metrics = {"width": width, "deviceScaleFactor": 1, "mobile": False}
                    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": 1000})
                    browser.get(f"http://127.0.0.1:{served.port}/?token={TOKEN}")
                    time.sleep(1.5)
                    if "trap" in more:
                        browser.execute_script("document.getElementById('may-be-traps').open = true")
                    height = min(browser.execute_script("return document.documentElement.scrollHeight"), 4000)
                    browser.execute_cdp_cmd(
                        "Emulation.setDeviceMetricsOverride", {**metrics, "height": height}
                    )
                    time.sleep(0.5)
                    browser.save_screenshot(str(folder / f"{name}-{width}-{scheme}.png"))
        finally:
            served.close()


def main() -> None:
    from support.chromium import start_chromium
    from support.dashboard import TOKEN, run_with_dashboard

    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        browser = start_chromium()
        try:
            picture_situations(browser, folder)
        finally:
            browser.quit()
        return
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
