"""Peers: whole crawls of one web, ours beside other crawlers, each as its documentation writes a crawl that follows all links.

The web is served by nginx from loopback addresses, a host each, so that none needs a proxy. The programs of the others
are in benchmarks/peers; what they need is installed below the virtual environment, and what cannot be had is left out.
What is measured are whole processes, by what the system says when they end; between two crawls that differ in nothing
but the number of pages, so that starting costs nothing.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import spiders
from crawls import ADDON, NEIGHBOURS
from measure import HERE, Absent, number, with_spread
from peers import redis, without_redis
from scrapy.crawler import CrawlerProcess
from stage import STOCK
from webs import Web

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measure import Runner
    from scrapy import Spider

PROGRAMS = HERE.parent / "peers"
INSTALLED = Path(sys.prefix) / "peers"

CONCURRENCY = 32
"""Requests at a time, of each crawler."""

_HOSTS, _LINKS, _KILOBYTES, _EACH = 100, 40, 9, 50
"""Of the web, the last being the pages of a host."""

_FEWER = 5
"""Times as many pages the longer one of two crawls has."""

_ADDRESS = "127.0.1.{}"

_PYTHON, _NODE = INSTALLED / "python", {"crawlee": INSTALLED / "crawlee", "spider": INSTALLED / "spider"}


class Peer(NamedTuple):
    """A crawler.

    Attributes:
        program: The command that crawls; behind it come the number of pages, a file of seeds, and the concurrency. For
            Scrapy the kind of :func:`scrapy`.
        install: The name of what it needs (:data:`INSTALLS`); "" for nothing.
        lacks: What it does not do of what a broad crawl needs, or not here.
        option: What comes behind all that.
    """

    program: tuple[str, ...] | str
    install: str
    lacks: str
    option: str = ""


_REST = "hosts, politeness, order, robots.txt"


def _python(name: str) -> tuple[str, ...]:
    return str(_PYTHON / "bin" / "python"), str(PROGRAMS / name)


def _node(name: str) -> tuple[str, ...]:
    return "node", str(PROGRAMS / name)


PEERS = {
    "scrapy-aopic, Links": Peer("addon-links", "", ""),
    "scrapy-aopic, requests": Peer("addon", "", ""),
    "Scrapy in memory": Peer("stock", "", "durable, politeness, order, robots.txt"),
    "Scrapy with JOBDIR": Peer("jobdir", "", "durable if killed, politeness, order, robots.txt"),
    "scrapy-redis": Peer("redis", "scrapy-redis", "what is in flight, hosts, politeness, order, robots.txt"),
    "Crawlee for Python in memory": Peer(_python("crawlee_parsel.py"), "python", f"durable, {_REST}"),
    "Crawlee for Python with files": Peer(_python("crawlee_parsel.py"), "python", _REST, "--keep"),
    "Crawlee for Node in memory": Peer(_node("crawlee_cheerio.cjs"), "crawlee", f"durable, {_REST}"),
    "Crawlee for Node with files": Peer(_node("crawlee_cheerio.cjs"), "crawlee", _REST, "--keep"),
    "spider-rs for Node": Peer(
        _node("spider_rs.cjs"), "spider", "durable, links to other hosts, politeness, order, robots.txt"
    ),
    "a loop over aiohttp and lexbor": Peer(
        _python("aiohttp_loop.py"), "python", f"durable, {_REST}, retries"
    ),
    "a loop in Go": Peer((str(INSTALLED / "go" / "loop"),), "go", f"durable, {_REST}, retries, a parser"),
}

_PIP = "install --quiet --disable-pip-version-check crawlee[parsel]>=1,<2 aiohttp selectolax"
_NPM = ("npm", "install", "--silent", "--no-save", "--prefix")
INSTALLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "python": (
        (sys.executable, "-m", "venv", str(_PYTHON)),
        (str(_PYTHON / "bin" / "pip"), *_PIP.split()),
    ),
    "crawlee": ((*_NPM, str(_NODE["crawlee"]), "@crawlee/cheerio@3"),),
    # Later releases have no program for Linux.
    "spider": (
        (*_NPM, str(_NODE["spider"]), *(f"@spider-rs/{each}@0.0.157" for each in ("spider-rs", "spider-rs-linux-x64-gnu"))),
    ),
    "go": (("go", "build", "-o", str(INSTALLED / "go" / "loop"), str(PROGRAMS / "loop.go")),),
}  # fmt: skip
"""Commands that install what a peer needs, by name; each in a folder of this name in :data:`INSTALLED`."""


def why_not(need: str, *, installs: bool) -> str:
    """Install what is called *need*, if it is not there; returns why that cannot be done, "" if it is there."""
    if need == "scrapy-redis":
        return without_redis().rstrip(".")
    stamp = INSTALLED / f"{need}.installed"
    newest = max(path.stat().st_mtime for path in (Path(__file__), *PROGRAMS.iterdir()))
    if not need or (stamp.exists() and stamp.stat().st_mtime > newest):
        return ""
    if not installs:
        return "it is not installed, and --most installs nothing"
    INSTALLED.mkdir(exist_ok=True)
    try:
        for command in INSTALLS[need]:
            subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        return f"there is no {error.filename} to install it with"
    except subprocess.CalledProcessError as error:
        return f"it cannot be installed: {(error.stderr or error.stdout).strip()[-200:]}"
    stamp.touch()
    return ""


@contextmanager
def served(folder: Path, hosts: int) -> Iterator[str]:
    """Serve a web of *hosts* hosts, written to *folder*, by nginx; what its URLs begin with."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        raise Absent(
            "There is no nginx to serve the web of the peers: install it; nginx-light of Debian is enough."
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    addresses = [_ADDRESS.format(host) for host in range(hosts)]
    site = f"http://{_ADDRESS}:{port}"
    web = Web(hosts, _LINKS, _KILOBYTES, site=site, each=_EACH)
    for host, address in enumerate(addresses):
        pages = folder / address / "p"
        pages.mkdir(parents=True)
        for page in range(_EACH):
            (pages / str(page)).write_bytes(web.body(host, page))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        "daemon off;",
        f"user {getpass.getuser()};" if os.geteuid() == 0 else "",  # else nobody, who may not read the folder
        f"pid {folder}/pid; error_log {folder}/errors;",
        "events { worker_connections 2048; }",
        "http { access_log off; keepalive_requests 1000000;",
        *(f"{kind}_temp_path {folder}/{kind};" for kind in kinds),
        "server {",
        *(f"listen {address}:{port};" for address in addresses),
        f'default_type "text/html; charset=utf-8"; root {folder}/$server_addr; }} }}',
    ]
    (folder / "nginx.conf").write_text("\n".join(lines), "utf-8")
    command = [program, "-e", f"{folder}/errors", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    server = subprocess.Popen(command)
    try:
        _wait_for(server, addresses[-1], port)
        yield site
    finally:
        server.terminate()
        server.wait()


def _wait_for(server: subprocess.Popen[bytes], address: str, port: int) -> None:
    for _ in range(200):
        with socket.socket() as client:
            if client.connect_ex((address, port)) == 0:
                return
        if server.poll() is not None:
            break
        time.sleep(0.05)
    raise Absent("nginx does not start.")


# -- inside a task


def crawl(*, name: str, site: str, hosts: int, pages: int) -> dict[str, Any]:
    """What a page more costs the crawler of this *name*, by two crawls of which the longer one has *pages* pages.

    Returns:
        ``ms`` of CPU a page, of all processes; ``rate``, pages a second; ``memory``, the most MB of its largest process.
    """
    few, many = (_run(PEERS[name], site, hosts, n) for n in (pages // _FEWER, pages))
    more = max(many["pages"] - few["pages"], 1)  # with --most the first requests are all there are
    return {
        "ms": (many["cpu"] - few["cpu"]) / more * 1000,
        "rate": more / max(many["seconds"] - few["seconds"], 0.001),
        "memory": many["memory"],
    }


def _run(peer: Peer, site: str, hosts: int, pages: int) -> dict[str, Any]:
    """Crawl in a process of its own, and see what it and all that it has started took."""
    with tempfile.TemporaryDirectory(prefix="aopic-peer-") as folder:
        if isinstance(peer.program, str):
            what = {"kind": peer.program, "pages": pages, "site": site, "hosts": hosts}
            command = [sys.executable, str(HERE), "--task", "other_crawlers:scrapy", json.dumps(what)]
        else:
            seeds = Path(folder, "seeds")
            seeds.write_text("\n".join(f"{site.format(host)}/p/0" for host in range(hosts)), "utf-8")
            command = [*peer.program, str(pages), str(seeds), str(CONCURRENCY)]
            command += [peer.option] * bool(peer.option)
        paths = os.pathsep.join(str(each / "node_modules") for each in _NODE.values())
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(PROGRAMS / "watched.py"), *command],
            cwd=folder,
            env={**os.environ, "NODE_PATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "pages": json.loads(found["said"])["pages"]}


def scrapy(*, kind: str, pages: int, site: str, hosts: int) -> dict[str, Any]:
    """Crawl with Scrapy in this folder: ``addon-links``, ``addon``, ``stock``, ``jobdir`` or ``redis``."""
    ours = {**ADDON, "AOPIC_ALLOW_NETWORKS": "all", "JOBDIR": "job", "CONCURRENT_REQUESTS": CONCURRENCY}
    del ours["AOPIC_POLITENESS_FACTOR"]  # ours is as polite as it is by default
    stock = {**STOCK, **NEIGHBOURS}
    spider: type[Spider] = spiders.Batch if kind == "addon-links" else spiders.Broad
    if kind == "redis":
        with redis() as (settings, _):
            return _scrapy_crawl({**NEIGHBOURS, **settings}, spider, pages, site, hosts)
    others = {"stock": stock, "jobdir": {**stock, "JOBDIR": "job"}}
    return _scrapy_crawl(others.get(kind, ours), spider, pages, site, hosts)


def _scrapy_crawl(
    settings: dict[str, Any], spider: type[Spider], pages: int, site: str, hosts: int
) -> dict[str, Any]:
    process = CrawlerProcess(
        {
            **settings,
            # Files that say what robots may do count as pages there.
            "CLOSESPIDER_PAGECOUNT": pages + (hosts if settings.get("ROBOTSTXT_OBEY", True) else 0),
            "LOG_LEVEL": "ERROR",
            "TELNETCONSOLE_ENABLED": False,
        }
    )
    crawler = process.create_crawler(spider)
    process.crawl(crawler, hosts=hosts, site=site)
    process.start()
    assert crawler.stats is not None
    return {"pages": crawler.stats.get_value("downloader/response_status_count/200", 0)}


HEAD = """\
| crawler | ms CPU/page | ratio | pages/s | memory, MB | what it does not do |
|---|---:|---:|---:|---:|---|"""


def part(run: Runner) -> None:
    """All peers that can be had, by turns."""
    names = []
    for name, peer in PEERS.items():
        reason = why_not(peer.install, installs=not run.options.most)
        if reason:
            run.note(f"{name} is left out: {reason}.")
        else:
            names.append(name)
    hosts = min(_HOSTS, max(run.options.pages // 15, 1))
    with tempfile.TemporaryDirectory(prefix="aopic-web-") as folder, served(Path(folder), hosts) as site:
        what = {"site": site, "hosts": hosts, "pages": run.options.pages}
        rounds = dict(
            zip(
                names,
                run.rounds(*(("other_crawlers:crawl", {**what, "name": name}) for name in names)),
                strict=True,
            )
        )
    ours = [found["ms"] for found in rounds[names[0]]]
    table = [HEAD]
    for name, found in rounds.items():
        theirs = [each["ms"] for each in found]
        ratio = ""
        if name != names[0]:
            run.add_paired("peers", f"{names[0]}, to {name}", "ms CPU/page", ours, theirs)
            ratio = with_spread(run.rows[-1].ratio, run.rows[-1].spread)
        cells = [
            name,
            with_spread(median(theirs), (min(theirs), max(theirs))),
            ratio,
            number(median(each["rate"] for each in found)),
            number(max(each["memory"] for each in found)),
            PEERS[name].lacks,
        ]
        table.append(f"| {' | '.join(cells)} |")
    run.note("\n" + "\n".join(table))
