"""What Prometheus sees of a crawl: a real server scrapes one of the demo web, and evaluates the alert rules of docs/monitoring/.

    python benchmarks/scraped.py [--seconds 60]

Needs Prometheus (Debian's ``prometheus``). Prints how many scrapes there were and failed, how many samples a scrape has and how
long it took, the state of each rule, and visited pages as Prometheus and the dashboard have them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    opts = parser.parse_args()
    from support.dashboard import TOKEN, run_with_dashboard
    from support.prometheus import Prometheus

    with tempfile.TemporaryDirectory() as folder:
        settings = {"JOBDIR": Path(folder, "job"), "CLOSESPIDER_TIMEOUT": opts.seconds + 120}
        with run_with_dashboard(["crawl", "broad"], settings, folder=ROOT / "example_project") as (_, port):
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


if __name__ == "__main__":
    main()
