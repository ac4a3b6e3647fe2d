"""What Prometheus sees of a crawl: a real server scrapes one of the demo web, and evaluates the alert rules of docs/monitoring/.

    python benchmarks/scraped.py [--seconds 60]

Needs Prometheus (Debian's ``prometheus``). Prints how many scrapes there were and failed, how many samples a scrape has and how
long it took, the state of each rule, and visited pages as Prometheus and the dashboard have them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
TOKEN = "a-token-of-the-benchmark"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    opts = parser.parse_args()
    from support.prometheus import Prometheus

    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job")
        settings = {"JOBDIR": job, "AOPIC_DASHBOARD": "127.0.0.1:0", "AOPIC_DASHBOARD_TOKEN": TOKEN}
        settings["CLOSESPIDER_TIMEOUT"] = str(opts.seconds + 120)
        process = subprocess.Popen(
            [sys.executable, "-m", "scrapy", "crawl", "broad"]
            + [part for name, value in settings.items() for part in ("-s", f"{name}={value}")],
            cwd=ROOT / "example_project",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        found = (re.search(r"Dashboard: http://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
        port = int(next(match[1] for match in found if match))
        Thread(target=process.stderr.read, daemon=True).start()
        server = Prometheus(Path(folder), port, TOKEN)
        try:
            time.sleep(opts.seconds)
            over = f"[{int(opts.seconds)}s]"
            print(
                f"{server.value(f'count_over_time(up{over})'):.0f} scrapes, "
                f"{server.value(f'sum_over_time(up{over})'):.0f} of them good; "
                f"{server.value('scrape_samples_scraped'):.0f} samples in the last; "
                f"{1000 * (server.value(f'avg_over_time(scrape_duration_seconds{over})') or 0):.1f} ms each, "
                f"{1000 * (server.value(f'max_over_time(scrape_duration_seconds{over})') or 0):.1f} ms the longest"
            )
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/v1/snapshot", headers={"Authorization": f"Bearer {TOKEN}"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                shown = json.load(response)["pages"]["visited"]
            print(
                f"visited: {server.value('aopic_job_visited'):,.0f} by the last scrape, {shown:,} in the dashboard"
            )
            for rule in server.rules:
                took = 1000 * rule["evaluationTime"]
                print(
                    f"{rule['name']:20} {rule['health']:4} {rule['state']:9} {took:.2f} ms {rule.get('lastError', '')}"
                )
        finally:
            server.close()
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
