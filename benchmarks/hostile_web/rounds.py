"""A real crawl, with the add-on, of a web of a thousand hosts that misbehave at random, and a judgement of it.

    python benchmarks hostile_web [--minutes 30] [--seconds N] [--hosts 1000] [--seed 1] [--folder FOLDER] [--set NAME=VALUE]
    python benchmarks hostile_web --heavy 1 --hosts 600          # pages of 3 MB with 20,000 links and 500,000 <p>

What every host does with a request is drawn from a grammar (``grammar.py``) of status lines, headers, bodies, charsets,
content codings, framings, timings, ends of connections, redirects, cookies, robots.txt and sitemaps, and follows from
--seed and the URL.

What must hold:

* the crawl is closed in order, its exit code is 0, and ``scrapy aopic check`` finds that every invariant holds;
* no traceback in its log has a frame of scrapy_aopic, and nothing is counted as an error of the scheduler;
* the event loop is never late by more than 100 ms through us: a signal looks at the stack of a loop that is late, and
  time for which the system ran other processes, or Python collected garbage, does not count;
* in the log of the servers no host is asked twice at once, and each gap is the factor times the transfer before it;
* memory is flat: the mean of the last fifth of the time is at most 1.25 times that of the second fifth (not judged
  below five minutes), and never above --most-mb: with ``AOPIC_MEMORY_MB`` at its default.

Exit status: 0 if all of it holds, 1 if not.
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
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "example_project")]
from demo_web.server_log import audit
from grammar import Misbehaviour
from server import Raw

FACTOR, MAX_GAP = 2.0, 3.0
TOLERANCE = 0.02
"""Seconds that a gap may lack: the clocks of two processes, and the timers of an event loop."""

LONG = 300
"""Seconds from which on memory is judged."""


def settings_of(folder: Path, seconds: float, timeout: float) -> dict[str, Any]:
    return {
        "ADDONS": '{"scrapy_aopic.Addon": 500}',
        "EXTENSIONS": '{"crawl.Watchdog": 0}',
        "HOSTILE_REPORT": folder / "report.json",
        "JOBDIR": folder / "job",
        "CLOSESPIDER_TIMEOUT": seconds,
        "DOWNLOAD_TIMEOUT": timeout,
        "COOKIES_ENABLED": True,
        "AOPIC_SITEMAPS": True,
        "AOPIC_CONTENT_SEEN": "near",
        "AOPIC_KEEP_LINKS": True,
        "AOPIC_POLITENESS_FACTOR": FACTOR,
        "AOPIC_MAX_GAP": MAX_GAP,
        "AOPIC_BACKOFF": 0.2,
        "AOPIC_MAX_BACKOFF": 5,
        "AOPIC_MAX_WAIT": 0.5,
        "LOG_LEVEL": "INFO",
        "LOG_FILE": folder / "log",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
    }


def run(folder: Path, web: Misbehaviour, options: argparse.Namespace) -> tuple[int, Raw]:
    """Crawl; returns the exit code, and the server with its log."""
    settings = settings_of(folder, options.seconds, options.timeout) | dict(
        pair.split("=", 1) for pair in options.set
    )
    script = Path(__file__).with_name("crawl.py")
    line = [sys.executable, "-m", "scrapy", "runspider", str(script), "-a", f"hosts={options.hosts}"]
    line += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    server = Raw(web.plan)
    with server.run_in_thread() as url:
        path = os.pathsep.join([str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **os.environ,
            "http_proxy": url,
            "https_proxy": url,
            "no_proxy": "",
            "PYTHONPATH": path,
        }
        code = subprocess.run(line, env=environment, cwd=folder, check=False).returncode
    return code, server


# What a callback of the spider raises passes through our middleware.
_OURS_OR_SPIDER = re.compile(r'File ".*[/\\](scrapy_aopic|hostile_web)[/\\]').search


def tracebacks(log: Path) -> Counter[str]:
    """Tracebacks with a frame of ours and none of the spider's inside of it, by their last line and our last frame."""
    found: Counter[str] = Counter()
    block: list[str] = []
    for line in [*log.read_text(errors="replace").splitlines(), "2"]:
        if re.match(r"\d{4}-\d\d-\d\d |2$", line):
            frames = [each.strip() for each in block if each.strip().startswith('File "')]
            last: str = next((each for each in reversed(frames) if _OURS_OR_SPIDER(each)), "")
            is_download = bool(block) and block[-1].startswith(
                "scrapy.exceptions."
            )  # passes through a fast handler
            if re.search(r"[/\\]scrapy_aopic[/\\]", last) and not is_download:
                found[f"{block[-1].strip()[:200]} in {last}"] += 1
            block = []
        elif block or line.startswith("Traceback"):
            block.append(line)
    return found


def judge_memory(samples: list[list[float]], seconds: float, most: float) -> list[str]:
    wrong = []
    peak = max((mb for _, mb, _ in samples), default=0.0)
    fifth = len(samples) // 5
    parts = [[mb for _, mb, _ in samples[part * fifth : (part + 1) * fifth]] for part in range(5)]
    means = [sum(part) / max(len(part), 1) for part in parts]
    print(
        f"memory: {', '.join(f'{mean:.0f}' for mean in means)} MB by fifths of the time, at most {peak:.0f}"
    )
    if seconds >= LONG and means[4] > 1.25 * means[1]:
        wrong.append(f"memory grew from {means[1]:.0f} to {means[4]:.0f} MB")
    if peak > most:
        wrong.append(f"memory was {peak:.0f} MB")
    return wrong


def _own(call: dict[str, Any]) -> float:
    """Seconds of a call of the event loop in which we ran."""
    return float((call["seconds"] - call["waited"] - call["collected"]) * call["ours"])


def judge(folder: Path, code: int, server: Raw, options: argparse.Namespace) -> list[str]:
    """Print what was found; returns what must not be."""
    wrong = [f"the exit code is {code}"] if code else []
    report = json.loads((folder / "report.json").read_text())
    stats = report["stats"]
    if report["reason"] not in ("closespider_timeout", "finished", "aopic_unreachable"):
        wrong.append(f"the spider was closed with {report['reason']}")
    answers = Counter(entry.status for entry in server.entries)
    n_pages = stats.get("aopic/pages/visited", 0)
    print(
        f"{len(server.entries):,} requests to {len({entry.host for entry in server.entries}):,} hosts, {answers[0]:,} without "
        f"an answer in order; {n_pages:,} pages visited, {stats.get('aopic/pages/failed', 0):,} failed"
    )
    if n_pages < options.least_pages:
        wrong.append(f"only {n_pages} pages were visited")
    for name, value in sorted(stats.items()):
        if name.startswith(("aopic/outcomes/", "aopic/errors", "log_count/", "downloader/exception_type")):
            print(f"  {name}: {value}")

    found = tracebacks(folder / "log")
    for text, n in found.most_common(10):
        print(f"  {n} x {text}")
    wrong += [f"{found.total()} tracebacks of ours"] if found else []
    wrong += [f"{stats['aopic/errors']} errors of the scheduler"] if "aopic/errors" in stats else []

    calls = sorted(report["calls"], key=_own, reverse=True)
    ours = [call for call in calls if _own(call) > options.most_stall]
    print(
        f"the event loop was late by more than 0.1 s {len(report['late'])} times, at most {max(report['late'], default=0):.2f} s, "
        f"with all that else ran on this machine; {len(ours)} times through us"
    )
    for call in calls[:8]:
        parts = ", ".join(f"{name} {call[name]:.2f}" for name in ("seconds", "ran", "waited", "collected"))
        print(f"  {_own(call):.3f} s of ours at {call['at']:.1f} s ({parts}): {call['seen'][:2]}")
    wrong += [f"{len(ours)} stalls of ours"] if ours else []

    polite = audit(server.entries, FACTOR, cap=MAX_GAP, tolerance=TOLERANCE)
    print(
        f"politeness: {polite.n_overlaps} overlaps, {polite.n_short_gaps} short gaps, smallest share {polite.smallest_share:.3f}"
    )
    for text in polite.violations:
        print(f"  {text}")
    wrong += [] if polite.is_polite else ["gaps were not kept"]

    wrong += judge_memory(report["memory"], options.seconds, options.most_mb)

    check = subprocess.run(
        [sys.executable, "-m", "scrapy", "aopic", "check", str(folder / "job")],
        capture_output=True,
        text=True,
        check=False,
    )
    print(check.stdout.strip()[-400:], check.stderr.strip()[-400:])
    wrong += [f"check ends with {check.returncode}"] if check.returncode else []
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seconds", type=float, help="instead of minutes")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=4, help="DOWNLOAD_TIMEOUT (%(default)s s)")
    parser.add_argument("--most-mb", type=float, default=600, help="most memory (%(default)s MB)")
    parser.add_argument(
        "--least-pages", type=int, default=100, help="least pages to be visited (%(default)s)"
    )
    parser.add_argument("--most-stall", type=float, default=0.1, help="longest stall of ours (%(default)s s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one more setting of the crawl"
    )
    parser.add_argument("--heavy", type=float, default=0.0, help="share of heavy pages, 0 to 1 (%(default)s)")
    parser.add_argument("--heavy-mb", type=float, default=3.0, help="what they have (%(default)s MB)")
    parser.add_argument("--folder", type=Path, help="folder to make for job and log; else they are removed")
    options = parser.parse_args()
    options.seconds = options.seconds or 60 * options.minutes
    web = Misbehaviour(
        options.seed,
        options.hosts,
        slowest=min(2.0, options.timeout * 0.6),
        heavy=options.heavy,
        heavy_mb=options.heavy_mb,
    )
    with tempfile.TemporaryDirectory(prefix="hostile-web-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=bool(not options.folder))
        began = time.monotonic()
        code, server = run(folder, web, options)
        print(f"seed {options.seed}, {options.hosts} hosts, {time.monotonic() - began:.0f} s")
        wrong = judge(folder, code, server, options)
    print("; ".join(wrong) or "all of it holds")
    return 1 if wrong else 0
