"""Whether the dashboard's sentence agrees with its figures: crawls of the demo web, looked at once a second.

    python benchmarks screen [--kinds demo tail starved] [--seconds 100] [--keep FOLDER] [--cpu]

``demo`` is the crawl of ``scrapy aopic demo``; in ``tail`` twenty hosts have all pages, so that they are waited for from the
first minute on; in ``starved`` three other processes want the same core. ``politeness``,
``connections``, ``spider``, ``disk``, ``network`` and ``control`` are crawls with that limit, and ``end`` is one that ends. ``--keep`` records what is seen, for ``tests/benchmarks/test_histories.py``.
``--cpu`` measures what an open page costs: per cent of a core that a headless Chromium with it takes, all processes but that of
the browser's own address bar, and one with an empty page beside it. A look contradicts itself if

* the word on the queue is not that of the queue ten seconds before;
* the machine or the disk is named though no host is ready, nothing is in callbacks and few transfers are under way;
  connections, though half of them are free; politeness, though most hosts could be asked;
* a limit is named for less than ten seconds;
* the end is forecast before the host with the most pages can have had them, or sentence and forecast say two times;
* when twice the time of the forecast was over, half of the pages still waited.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "example_project"), str(ROOT)]

import msgspec
import options
import workers

WINDOW = 10.0
"""Seconds that sentence, tiles and plot are of."""

_SLACK = 1.5
"""Seconds by which a look and the window of its figures may be apart."""

_OVER = {"done", "paused", "pause", "stopped", "elsewhere"}
"""What is said of a crawl that nothing can limit now: at once, and not after ten seconds."""

Sample = dict[str, Any]

_LEFT_OUT = (
    "slow",
    "failing",
    "failures",
    "outcomes",
    "ledger",
    "refused",
    "dropped",
    "deferred",
    "shards",
    "order",
    "topic",
)
"""Parts of a sample that say nothing of the limit, and are not recorded."""


class SlowPipeline:
    """Holds each item for long."""

    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(30.0)
        return item


class SlowDisk:
    """An extension with which each commit takes four seconds, once the crawl has begun."""

    def __init__(self) -> None:
        from scrapy_aopic.storage.rocksdb import RocksStore

        write, slow_from = RocksStore.write, time.monotonic() + 8.0

        def slow(store: Any, *rows: Any, **options: Any) -> None:
            time.sleep(4.0 * (time.monotonic() > slow_from))
            write(store, *rows, **options)

        setattr(RocksStore, "write", slow)  # noqa: B010 - a name that mypy has not


SETTINGS: dict[str, dict[str, Any]] = {
    "politeness": {"DOWNLOAD_DELAY": 10},
    "connections": {"CONCURRENT_REQUESTS": 2},
    "spider": {"ITEM_PIPELINES": '{"screen.SlowPipeline": 1}', "CONCURRENT_REQUESTS": 16},
    "end": {"CLOSESPIDER_TIMEOUT": 12},
    "disk": {"EXTENSIONS": '{"screen.SlowDisk": 0}'},
}
"""Of the crawls of a kind."""


def contradictions(samples: list[Sample]) -> list[set[str]]:
    """What each of *samples*, snapshots of one run as JSON, one a second, says against its own figures or those before."""
    return [set(_against(samples, n)) for n in range(len(samples))]


def _against(samples: list[Sample], n: int) -> Iterator[str]:
    now = samples[n]
    limit, headline = now["verdict"]["limit"], now["verdict"]["headline"]
    window = [each for each in samples[: n + 1] if now["at"] - each["at"] <= WINDOW + _SLACK]
    hosts, work, forecast = now["hosts"], now["connections"], now["forecast"]
    if limit not in _OVER:
        length = (now["rate"] or {"seconds": 0.0})["seconds"]
        ago = [each for each in window if now["at"] - each["at"] >= length - _SLACK] or [now]
        changes = [now["pages"]["queued"] - each["pages"]["queued"] for each in ago]
        growth = (now["rate"] or {}).get("growth") or 0.0
        if ("grows" in headline or "grows" in forecast["because"] or growth > 0) and max(changes) < 0:
            yield "queue"
        if ("lasts" in headline or "shrinks" in headline or growth < 0) and min(changes) > 0:
            yield "queue"
    few = work and work["in_use"] < max(3, work["limit"] / 2)
    if limit in ("machine", "disk") and few and not (hosts["ready"] or work["callbacks"]):
        yield "limit"
    if limit == "connections" and (2 * work["in_use"] < work["limit"]):
        yield "limit"
    if limit == "politeness" and hosts["ready"] > hosts["waiting"] + hosts["in_flight"] and few:
        yield "limit"
    since = next((k for k in range(n, -1, -1) if samples[k]["verdict"]["limit"] != limit), None)
    if since is not None and n + 1 < len(samples) and samples[n + 1]["verdict"]["limit"] != limit:
        until = samples[n + 1]
        is_over = {limit, until["verdict"]["limit"]} & _OVER
        if not is_over and until["at"] - samples[since + 1]["at"] < WINDOW - _SLACK:
            yield "changes"
    if forecast["seconds"] and "CLOSESPIDER" not in forecast["because"]:
        seconds = forecast["seconds"]
        if hosts["tail"] and seconds < hosts["tail"][0] - 1:
            yield "forecast"
        later = next((each for each in samples[n:] if each["at"] >= now["at"] + 2 * seconds + WINDOW), None)
        if later is not None and 2 * later["pages"]["queued"] >= now["pages"]["queued"]:
            yield "hindsight"


@contextmanager
def _crawl(kind: str, folder: str) -> Iterator[int]:
    """A crawl of a *kind*, in *folder*: the port of its dashboard."""
    import demo_web
    from demo_web.server import Answer, Server
    from support.dashboard import run_with_dashboard

    from scrapy_aopic.place.folder_place import FolderPlace
    from scrapy_aopic.place.stored_control import change_control

    with ExitStack() as stack:
        settings = {"JOBDIR": f"{folder}/{kind}", "CLOSESPIDER_TIMEOUT": 3600, "AOPIC_MAX_WAIT": 600}
        settings |= SETTINGS.get(kind, {})
        arguments, environment = ["crawl", "broad"], {}
        if kind == "tail":
            web = demo_web.DemoWeb(n_hosts=20, n_pages=1500)
            arguments += ["-a", f"seeds={','.join(web.seeds)}"]
            environment["http_proxy"] = stack.enter_context(demo_web.served(n_hosts=20, n_pages=1500))
        if kind == "starved":
            cores = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, cores)
            os.sched_setaffinity(0, {max(cores)})
            for _ in range(3):
                burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                stack.callback(burner.wait)
                stack.callback(burner.kill)
        if kind == "network":
            web, over = demo_web.DemoWeb(), time.monotonic() + 20
            server = Server(
                lambda exchange: web.answer(exchange) if time.monotonic() < over else Answer(abort=True)
            )
            arguments += ["-a", f"seeds={','.join(web.seeds)}"]
            environment["http_proxy"] = stack.enter_context(server.run_in_thread()).url
        _, port = stack.enter_context(
            run_with_dashboard(arguments, settings, folder=ROOT / "example_project", **environment)
        )
        if kind == "control":
            change_control(FolderPlace(Path(folder) / kind), lambda control: control.limited(rate=5.0))
        yield port


def sampled(port: int, seconds: float) -> list[Sample]:
    """What the dashboard on *port* says once a second for so many *seconds*, or until the crawl is over."""
    from support.dashboard import get

    samples: list[Sample] = []
    until = time.monotonic() + seconds
    with suppress(OSError):
        while time.monotonic() < until:
            answer = get(port, "/api/v1/snapshot")
            if answer.status == 200:
                samples.append(json.loads(answer.text))
            time.sleep(1.0)
    return samples


def _command(process: int) -> bytes:
    """The command line of a *process*."""
    return Path(f"/proc/{process}/cmdline").read_bytes()


def page_costs(port: int, seconds: float) -> list[float]:
    """Per cent of a core that browsers with the dashboard on *port* and with an empty page take in so many *seconds*."""
    from support.chromium import start_chromium
    from support.dashboard import TOKEN

    def taken(browser: Any) -> float:
        processes = workers.family(browser.service.process.pid)
        return sum(workers.cpu(each) for each in processes if b"--top-chrome-webui" not in _command(each))

    with ExitStack() as stack:
        browsers = []
        for url in (f"http://127.0.0.1:{port}/?token={TOKEN}", "about:blank"):
            browsers.append(start_chromium("--window-size=1400,1000"))
            stack.callback(browsers[-1].quit)
            browsers[-1].get(url)
        time.sleep(15.0)  # a browser does this and that after its start
        before = [*map(taken, browsers)]
        time.sleep(seconds)
        return [100 * (taken(each) - had) / seconds for each, had in zip(browsers, before, strict=True)]


def main() -> None:
    from scrapy_aopic.place.folder_place import FolderPlace
    from scrapy_aopic.view.stored import read_snapshot

    os.environ["AOPIC_FORK"] = "0"  # a crawl that is starved has its processor from this process
    given = options.read(__doc__, kinds=["demo", "tail", "starved"], seconds=100.0, keep="", cpu=False)
    print("| crawl | looks | contradict themselves | of these |\n|---|---:|---:|---|")
    n_looks, n_wrong = 0, 0
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as folder, _crawl(kind, folder) as port:
            if given.cpu:
                costs = "{:.2f} % of a core, an empty page {:.2f} %".format(*page_costs(port, given.seconds))
                print(f"| {kind} | | | {costs}, load {os.getloadavg()[0]:.0f} |")
                continue
            samples = sampled(port, given.seconds)
            if kind == "end":
                last = read_snapshot(FolderPlace(Path(folder) / kind))
                samples += [msgspec.to_builtins(last, str_keys=True)] * 3
        if given.keep:
            rows = [{name: part for name, part in each.items() if name not in _LEFT_OUT} for each in samples]
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            Path(given.keep, f"{kind}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        found = contradictions(samples)
        wrong = sum(map(bool, found))
        kinds = Counter(each for names in found for each in names)
        of_these = ", ".join(f"{n} {name}" for name, n in kinds.most_common())
        print(f"| {kind} | {len(samples)} | {wrong} | {of_these} |", flush=True)
        n_looks, n_wrong = n_looks + len(samples), n_wrong + wrong
    print(f"| all | {n_looks} | {n_wrong} | |")


if __name__ == "__main__":
    main()
