"""What a farm of stuffed pages wins in a crawl for a topic: the demo web with such a farm in it.

    python benchmarks/stuffed_farm.py [--pages 500]

Each page of the farm repeats the topic's keywords and links to fifty further ones, without end. It is one host, twenty hosts of
one domain, or twenty domains; its first page is a seed, or linked to by the home pages of some of the web's sites (``--links``), of as
many domains of it as there are such links.
The part of the first pages that are the farm's is asked of the server; the others are crawled as by ``make focus``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1] / "example_project"))

import demo_web
from demo_web.server import Answer, Exchange, Server

KEYWORDS = ["comet", "galaxy", "stars", "telescope"]
FARMS = {
    "one host": ["www.farm-0.test"],
    # Under a suffix of the public list: of others, each host is taken for a domain of its own.
    "twenty hosts of a domain": [f"h{number}.example.com" for number in range(20)],
    "twenty domains": [f"www.farm-{number}.test" for number in range(20)],
}


def stuffed(host: str, target: str, hosts: list[str]) -> Answer:
    """A page of the farm."""
    number = int(target.rpartition("/")[2] or 0)
    links = [
        f"http://{hosts[(number + n) % len(hosts)]}/{KEYWORDS[n % 4]}/{50 * number + n}" for n in range(1, 51)
    ]
    anchors = "".join(f'<a href="{link}">{" ".join(KEYWORDS)}</a> ' for link in links)
    text = " ".join(KEYWORDS * 200)
    body = f"<html><title>{host} {number}</title><p>{text} {number}</p>{anchors}</html>"
    return Answer(200, {"Content-Type": "text/html"}, body.encode())


def crawl(hosts: list[str], pages: int, settings: dict[str, str], n_links: int) -> tuple[int, int, int]:
    """Pages fetched, those of the farm, and relevant ones of the others."""
    web = demo_web.DemoWeb(has_topics=True)
    farm = set(hosts)
    sites = [urlsplit(seed if "//" in seed else f"//{seed}").hostname for seed in web.seeds]
    linked = dict(zip(sites[:n_links], hosts * n_links, strict=False))

    def answer(exchange: Exchange) -> Answer:
        if exchange.host not in farm:
            if exchange.target != "/" or exchange.host not in linked:
                return web.answer(exchange)
            found = web.answer(replace(exchange, headers={}))  # not compressed
            link = f'<a href="http://{linked[exchange.host]}/">{" ".join(KEYWORDS)}</a>'
            return replace(found, body=found.body.replace(b"</body>", link.encode() + b"</body>"))
        return (
            Answer(404)
            if exchange.target == "/robots.txt"
            else stuffed(exchange.host, exchange.target, hosts)
        )

    server = Server(answer)
    with TemporaryDirectory(prefix="farm-") as folder, server.run_in_thread() as running:
        seeds = Path(folder, "seeds.txt")
        entry = [] if linked else [f"http://{hosts[0]}/"]
        seeds.write_text("\n".join([*web.seeds, *entry]), encoding="utf-8")
        settings = {
            "AOPIC_TOPIC": json.dumps({"keywords": KEYWORDS}),
            "AOPIC_ORDER": "focused",
            "AOPIC_STORE": "memory",
            "AOPIC_REPORT": "False",
            "CONCURRENT_REQUESTS": "4",
            "AOPIC_POLITENESS_FACTOR": "2",
            "CLOSESPIDER_PAGECOUNT": str(pages),
            "LOG_LEVEL": "ERROR",
            **settings,
        }
        command = [sys.executable, "-m", "scrapy", "crawl", "broad", "-a", f"seeds={seeds}"]
        command += [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        project = Path(demo_web.__file__).parents[1]
        subprocess.run(command, cwd=project, env={**os.environ, "http_proxy": running.url}, check=True)
        fetched = [each for each in server.entries if each.target != "/robots.txt" and each.status == 200]
    others = [each for each in fetched if each.host not in farm]
    relevant = sum(web.topic(f"http://{each.host}{each.target}") == "astronomy" for each in others)
    return len(fetched), len(fetched) - len(others), relevant


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=500, help="pages of each crawl (%(default)s)")
    parser.add_argument(
        "--links", type=int, default=0, help="links to the farm; with %(default)s it is a seed"
    )
    parser.add_argument("--focus", default="0.9,0.5,0", help="AOPIC_FOCUS, with commas (%(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="end of each crawl (%(default)s)")
    options = parser.parse_args()
    for focus in options.focus.split(","):
        for name, hosts in FARMS.items():
            settings = {"AOPIC_FOCUS": focus, "CLOSESPIDER_TIMEOUT": str(options.seconds)}
            n, of_farm, relevant = crawl(hosts, options.pages, settings, options.links)
            sys.stdout.write(
                f"AOPIC_FOCUS {focus:4} {name:26}{of_farm / n:7.1%} of {n} pages are the farm's, {relevant} of the others "
                "relevant\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
