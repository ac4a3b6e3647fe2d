"""Crawl behind a logging proxy, kill the crawler with SIGKILL, resume it, and judge what the server saw.

    python benchmarks/kill.py --proxy http://127.0.0.1:8998 --log LOG.tsv --seeds SEEDS.txt [--kills 2] [--pages 5000]

The proxy's log has a line a request: start, end, host, path, status, requests to the host under way (tab-separated,
seconds since 1970), as written by ``demo_web.server`` (for example
``python -m demo_web --log LOG.tsv`` in example_project). A page that is fetched again must have been in flight at
a kill: not settled (its callback, items and links were not done), or settled within the time that AOPIC_DURABILITY
gives a commit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

from demo_web.server_log import audit, read_log

PROJECT = Path(__file__).parents[1] / "example_project"


def size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxy", required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument(
        "--after", type=float, default=15, help="seconds from the first request of each run to its end"
    )
    parser.add_argument(
        "--pages", type=int, default=5000, help="visited pages after which the last run stops"
    )
    parser.add_argument("--job", type=Path, required=True, help="job folder, new")
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--set", action="append", default=[], help="more settings, NAME=VALUE")
    args = parser.parse_args()

    scrapy = [sys.executable, "-m", "scrapy"]
    settings = {
        "SCHEDULER": "witness.Witness",
        "JOBDIR": args.job.resolve(),
        "LOG_LEVEL": "WARNING",
        "AOPIC_POLITENESS_FACTOR": args.factor,
    }
    command = [*scrapy, "crawl", "broad", "-a", f"seeds={args.seeds.resolve()}"]
    for name, value in [*settings.items(), *(pair.split("=", 1) for pair in args.set)]:
        command += ["-s", f"{name}={value}"]
    witness = args.job.parent.resolve() / f"{args.job.name}.settled"
    environment = {
        **os.environ,
        "http_proxy": args.proxy,
        "HTTP_PROXY": args.proxy,
        "PYTHONPATH": str(Path(__file__).parent),
        "AOPIC_WITNESS": str(witness),
    }

    def crawl(*more: str) -> subprocess.Popen[bytes]:
        log = (args.job.parent / f"{args.job.name}.log").open("ab")
        return subprocess.Popen([*command, *more], cwd=PROJECT, env=environment, stderr=log)

    def ask(question: str) -> dict[str, object]:
        answer = subprocess.run(
            [*scrapy, "aopic", question, str(args.job.resolve()), "--json"],
            capture_output=True,
            check=False,
            cwd=PROJECT,
        )
        print(f"  {question}: exit code {answer.returncode}", flush=True)
        result: dict[str, object] = json.loads(answer.stdout)
        return result

    kills: list[float] = []
    for number in range(args.kills):
        before = size(args.log)
        process = crawl()
        while process.poll() is None and size(args.log) == before:
            time.sleep(0.05)
        time.sleep(args.after)
        process.send_signal(signal.SIGKILL)
        kills.append(time.time())
        process.wait()
        result = ask("check")
        print(
            f"kill {number + 1}: {result['visited']} visited, {result['queued']} queued, holds: {result['holds']}"
        )
    done = int(str(result["visited"]))
    process = crawl("-s", f"CLOSESPIDER_PAGECOUNT={max(args.pages - done, 1)}")
    process.wait()
    result = ask("check")
    print(
        f"end: {result['visited']} visited, {result['failed']} failed, {result['queued']} queued, holds: {result['holds']}"
    )

    entries = read_log(args.log)
    polite = audit(entries, args.factor, 0.0, 60.0)
    print(
        f"{polite.n_requests} requests to {polite.n_hosts} hosts: {polite.n_overlaps} parallel, {polite.n_short_gaps} early, "
        f"smallest gap {polite.smallest_ratio:.2f} times the transfer"
    )
    for violation in polite.violations:
        print(f"  {violation}")
    settled: dict[str, list[float]] = defaultdict(list)
    for line in witness.read_text(encoding="utf-8").splitlines():
        instant, url = line.split("\t")
        settled[url].append(float(instant))
    late = [
        min(kill - instant for kill in kills if kill >= instant)
        for instants in settled.values()
        if len(instants) > 1
        for instant in instants[:-1]
    ]
    fetched = Counter((entry.host, entry.target) for entry in entries if entry.status and entry.status < 400)
    again = sum(n - 1 for (_, target), n in fetched.items() if target != "/robots.txt")
    print(
        f"{len(fetched)} pages answered, {again} of them again; pages settled before a kill and again after it: {len(late)}"
        + (f", the oldest {1000 * max(late):.0f} ms before" if late else "")
    )
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
