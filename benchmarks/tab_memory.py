"""Whether a browser's tab that shows the dashboard of a crawl grows.

    python benchmarks/tab_memory.py [--minutes 10]

Crawls the demo web with a dashboard, opens that in a headless Chromium (``make browser`` installs what that needs), and prints
every half minute, after its garbage was collected, how large the tab's heap is, and how many nodes and listeners it has. The
last line compares the average of the last quarter of the time with that of the second quarter, as the plot fills in the first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
NAMES = ("JSHeapUsedSize", "Nodes", "JSEventListeners", "Documents")
EVERY = 30.0
"""Seconds between samples."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    opts = parser.parse_args()
    from support.chromium import start_chromium
    from support.dashboard import TOKEN, run_with_dashboard

    with tempfile.TemporaryDirectory() as folder:
        settings = {"JOBDIR": folder, "CLOSESPIDER_TIMEOUT": 60 * opts.minutes + 120}
        with run_with_dashboard(["crawl", "broad"], settings, folder=ROOT / "example_project") as (_, port):
            browser = start_chromium()
            try:
                browser.get(f"http://127.0.0.1:{port}/?token={TOKEN}")
                browser.execute_cdp_cmd("Performance.enable", {})
                samples = []
                began = time.monotonic()
                while time.monotonic() - began < 60 * opts.minutes:
                    time.sleep(EVERY)
                    browser.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
                    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
                    now = {each["name"]: each["value"] for each in metrics if each["name"] in NAMES}
                    samples.append(now)
                    visited = browser.execute_script(
                        "return document.querySelectorAll('#totals dd')[0].textContent"
                    )
                    print(
                        f"{(time.monotonic() - began) / 60:5.1f} min  heap {now['JSHeapUsedSize'] / 1e6:6.2f} MB  "
                        f"nodes {now['Nodes']:6.0f}  listeners {now['JSEventListeners']:4.0f}  visited {visited}",
                        flush=True,
                    )
                # A few seconds on a busy machine may have one to three samples.
                quarter = max(len(samples) // 4, 1)
                for name in NAMES:
                    early = mean(each[name] for each in samples[quarter : 2 * quarter] or samples)
                    late = mean(each[name] for each in samples[-quarter:])
                    print(
                        f"{name}: {early:,.0f} in the second quarter, {late:,.0f} in the last ({late / early:.3f})"
                    )
            finally:
                browser.quit()


if __name__ == "__main__":
    main()
