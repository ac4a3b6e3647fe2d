"""Crawls for a topic beside a breadth-first crawl, on the demo web: ``make focus``, about a minute.

Some hosts of the demo web are about astronomy, a twentieth of all, and what they say of it lies behind two pages that do not. The
crawl is given four keywords, two of which are the topic's. Which pages are relevant is asked of the web itself, by the log of its
server, and not of the crawl. Few requests are made at once, so that the order decides, and not which hosts may be asked.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import demo_web
from demo_web.server_log import read_log

HERE = Path(__file__).parent
TOPIC = "astronomy"
KEYWORDS = '{"keywords": ["comet", "galaxy", "stars", "telescope"]}'
CRAWLS = {
    "breadth-first": {"AOPIC_ORDER": "breadth-first"},
    "focused, best-first": {"AOPIC_ORDER": "focused", "AOPIC_LINK_SCORER": "best-first"},
    "focused": {"AOPIC_ORDER": "focused"},
}
STEPS = 4
"""Times at which harvest is shown: the quarters of the crawl."""


def crawl(settings: dict[str, str], pages: int, seconds: float, topic: str = TOPIC) -> list[bool]:
    """Whether each page is about the *topic*, in the order in which they were fetched."""
    with TemporaryDirectory(prefix="focus-") as folder:
        log, seeds = Path(folder, "web.log"), Path(folder, "seeds.txt")
        web = demo_web.DemoWeb(has_topics=True)
        seeds.write_text("\n".join(web.seeds), encoding="utf-8")
        settings = {
            "AOPIC_TOPIC": KEYWORDS,
            "AOPIC_STORE": "memory",
            "AOPIC_REPORT": "False",
            "CONCURRENT_REQUESTS": "4",
            "AOPIC_POLITENESS_FACTOR": "2",
            "CLOSESPIDER_PAGECOUNT": str(pages * 6 // 5),  # errors and redirects count there
            "CLOSESPIDER_TIMEOUT": str(seconds),
            "LOG_LEVEL": "ERROR",
            **settings,
        }
        command = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={seeds}"]
        command += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        with demo_web.served(log=log, has_topics=True) as proxy:
            subprocess.run(command, cwd=HERE, env={**os.environ, "http_proxy": proxy}, check=True)  # noqa: S603 (our own words)
        entries = [entry for entry in read_log(log) if entry.target != "/robots.txt" and entry.status == 200]
        entries.sort(key=lambda entry: entry.start)
        return [web.topic(f"http://{entry.host}{entry.target}") == topic for entry in entries]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500, help="pages of each crawl (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of each crawl at most (%(default)s)")
    options = parser.parse_args()
    steps = [options.pages * step // STEPS for step in range(1, STEPS + 1)]
    web = demo_web.DemoWeb(has_topics=True)
    all_relevant = sum(web.topic(url) == TOPIC for url in web.urls())
    sys.stdout.write(
        f"{all_relevant:,} of {web.n_urls:,} pages are about {TOPIC}; of the first N that were fetched:\n\n"
    )
    sys.stdout.write(f"{'':24}" + "".join(f"{f'N = {step}':>12}" for step in steps) + "     seconds\n")
    is_short = False
    for name, settings in CRAWLS.items():
        began = time.monotonic()
        found = crawl(settings, options.pages, options.seconds)
        shown = "".join(
            f"{sum(found[:step]) / step:>12.1%}" if len(found) >= 0.95 * step else f"{'-':>12}"
            for step in steps
        )
        sys.stdout.write(f"{name:24}{shown}{time.monotonic() - began:>12.0f}\n")
        sys.stdout.flush()
        is_short = is_short or "-" in shown
    if is_short:
        sys.stdout.write(
            f"\n- : the crawl fetched fewer pages in {options.seconds:g} s, on a busy machine for example.\n"
        )


if __name__ == "__main__":
    main()
