"""Put deliberate bugs into a copy of the package, one at a time, and see whether a test fails.

    python benchmarks/mutants.py [a file, or words of what was broken]

Each bug is a replacement of text that stands in its file once, and the tests that ought to notice it. A test that
does not end has noticed it, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_PATIENCE = 240.0  # seconds: several times what the tests of any bug take


class Bug(NamedTuple):
    """What is broken, where, how, and the arguments of pytest that should find it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


BUGS = [
    # -- ledger
    Bug("remainder of a division dropped", "core/ledger.py", "totals.virtual += amount - sum(paid)",
        "totals.virtual += amount - (shared if is_paying else 0)", "core/test_ledger.py"),
    Bug("old history not subtracted", "core/ledger.py", "totals.history -= page.history", "pass", "core/test_ledger.py"),
    Bug("a page that failed keeps its cash", "core/ledger.py", "units, page.cash = page.cash, 0", "units = page.cash",
        "core/test_ledger.py"),
    Bug("united pages: history not moved", "core/ledger.py", "other.history += page.history", "pass",
        "core/test_unite.py"),
    Bug("united pages: still a member of its class", "core/ledger.py",
        "page.cash = page.history = 0\n        self._count(page, -1)", "page.cash = page.history = 0",
        "core/test_unite.py"),
    Bug("revived page in no class", "core/ledger.py", 'page.canonical = b""\n        self._join(page)',
        'page.canonical = b""', "core/test_unite.py core/test_crawl.py"),
    # -- crawl
    Bug("seen, but not queued", "core/crawl.py",
        "self.frontier.insert(link.key, link.host, page.level, page.order, now)", "pass", "core/test_crawl.py"),
    Bug("put back, but not queued", "core/crawl.py",
        "self.frontier.put_back(lease.key, page.level, page.order, now)", "pass", "core/test_crawl.py"),
    Bug("cash for a failed page is lost", "core/crawl.py",
        "link.weight if target is None or target.state != FAILED or link.again else 0", "link.weight",
        "core/test_crawl.py"),
    Bug("no pause after a crash", "core/crawl.py",
        'self._not_before = max(self._not_before, pause)', "pass", "core/test_walk.py core/test_crawl.py"),
    Bug("leased hosts asked at once after a crash", "core/crawl.py",
        "self.frontier.defer_all(key, politeness.of(host.name).pause_after_crash(now, leased_at, seen))", "pass",
        "core/test_walk.py"),
    Bug("a failed commit counts as landed", "core/crawl.py", "        for table in self._tables():\n            table.failed()",
        "        for table in self._tables():\n            table.landed()", "core/test_walk.py"),
    Bug("a claim believed after another visit", "core/crawl.py", "source.visits == claim.visits", "True",
        "core/test_unite.py core/test_model.py"),
    Bug("united with a page that was not visited", "core/crawl.py", "if page.visits:\n            self._unite(",
        "if True:\n            self._unite(", "core/test_unite.py core/test_model.py"),
    Bug("cash for a united page whose root failed is lost", "core/crawl.py", "self.ledger.forfeit(units)", "pass",
        "core/test_unite.py"),
    Bug("endless chains of redirects not cut", "core/crawl.py", "if page.height >= MAX_HEIGHT:", "if False:",
        "core/test_unite.py"),
    Bug("the first page with a text not given up", "core/crawl.py", "contents.forget(first)", "break",
        "core/test_unite.py"),
    # -- pages that come back
    Bug("pages that are gone come back", "core/crawl.py", "self._wheel.set(key, page, 0.0)", "pass",
        "core/test_revisits.py core/test_crawl.py core/test_model.py"),
    Bug("no shortest interval", "core/recrawl.py", "return max(min(interval * _FIRST_LOOK, self.max_interval), self.min_interval)",
        "return min(interval * _FIRST_LOOK, self.max_interval)", "core/test_revisits.py core/test_model.py"),
    Bug("visited pages cost nothing", "core/recrawl.py", "self._tokens = max(self._tokens - 1, 0.0)", "pass",
        "core/test_revisits.py"),
    Bug("a page that is due forgotten by a restart", "core/recrawl.py",
        "self._index.put(DUE + key, pack((level, visited_at)))", "pass", "core/test_revisits.py core/test_crawl.py"),
    Bug("evidence of earlier visits not added", "core/recrawl.py",
        "doubts = [doubt + old for doubt, old in zip(doubts, _UNPACK(evidence), strict=True)]", "pass",
        "core/test_revisits.py"),
    Bug("a page counted again at each visit", "core/recrawl.py",
        "changed = [part - old for part, old in zip(changed, self._share(evidence), strict=True)]", "pass",
        "core/test_revisits.py"),
    Bug("a rate given up for all pages to come", "core/recrawl.py", "max(count + part, _LEAST)", "count + part",
        "core/test_revisits.py"),
    Bug("pages counted without end", "core/recrawl.py", "if (total := sum(self.counts)) > _MEMORY:",
        "if (total := sum(self.counts)) > math.inf:", "core/test_revisits.py"),
    Bug("rates forgotten by a restart", "core/crawl.py", 'Rates(saved["rates"]) if saved else Rates()', "Rates()",
        "core/test_revisits.py"),
    Bug("Last-Modified ignored at the first visit", "core/recrawl.py", 'if age > _JUST_NOW else b""', 'if False else b""',
        "core/test_revisits.py"),
    Bug("Last-Modified ignored at later visits", "core/recrawl.py",
        "elif max(_JUST_NOW, interval / 100) < age <= interval:", "elif False:", "core/test_revisits.py"),
    Bug("Last-Modified of just now believed", "core/recrawl.py",
        "elif max(_JUST_NOW, interval / 100) < age <= interval:", "elif 0 <= age <= interval:", "core/test_revisits.py"),
    Bug("Last-Modified from before the last visit believed", "core/recrawl.py",
        "elif max(_JUST_NOW, interval / 100) < age <= interval:", "elif max(_JUST_NOW, interval / 100) < age:",
        "core/test_revisits.py"),
    Bug("no answer taken for a change", "core/recrawl.py", "        if content.is_missing:\n            return known\n", "",
        "core/test_revisits.py"),
    Bug("304 forgets what the page was", "core/recrawl.py", "        if content.is_same:\n            return known\n", "",
        "core/test_revisits.py"),
    Bug("a freed host not told", "core/crawl.py", "self._wheel.freed(host)", "pass", "core/test_revisits.py"),
    Bug("a freed host told, and not noted", "core/recrawl.py",
        "if (top := self._top(host)) is not None:\n            self._free.push(host, top[0])", "pass", "core/test_revisits.py"),
    Bug("a freed host told to one lane only", "core/recrawl.py", "self._overdue.freed(host)", "pass", "core/test_revisits.py"),
    Bug("a host stays where its best page was", "core/recrawl.py",
        "            elif top[0] != place:\n                heads.pop()\n                heads.push(host, top[0])\n", "",
        "core/test_revisits.py"),
    Bug("of too many due pages the worst stay", "core/recrawl.py", "key=self._places.__getitem__)[n:]",
        "key=self._places.__getitem__, reverse=True)[n:]", "core/test_revisits.py"),
    Bug("overdue pages have no turn", "core/recrawl.py", "if self._n_let_in % _OVERDUE_TURN else", "if True else",
        "core/test_revisits.py"),
    Bug("a long crawl of new pages pays for any number of visits", "core/recrawl.py",
        "min(self._tokens + self._share, _MAX_TOKENS)", "self._tokens + self._share", "core/test_revisits.py"),
    Bug("visited pages forgotten in the pause after a crash", "core/crawl.py",
        "if now < self._not_before:\n            return self.when()", "if now < self._not_before:\n            return Empty()",
        "core/test_revisits.py"),
    # -- frontier, gates, politeness
    Bug("lost wake-up: a host does not wait for its time", "core/frontier.py",
        "        self.gates.leave(key, host, now)\n        self.hosts.put(key, host)\n        self._place(key, host, now)",
        "        self.gates.leave(key, host, now)\n        self.hosts.put(key, host)", "core/test_frontier.py"),
    Bug("lost wake-up: parked hosts", "core/frontier.py",
        "                self._unpark_at[place] = self._first_parked(place)",
        '                self._unpark_at[place] = float("inf")', "core/test_frontier.py core/test_walk.py"),
    Bug("a gate not looked at before a lease", "core/frontier.py", "                or self.gates.shut(host, now)\n", "",
        "core/test_gates.py core/test_frontier.py"),
    Bug("crawl delay not kept after a crash", "core/frontier.py",
        "self.crashed_at + self.politeness.floor(host)", "0.0", "core/test_frontier.py core/test_crawl.py"),
    Bug("host from the disk asked at once after a crash", "core/frontier.py",
        "self._keep_off(host)\n        self.active[key] = host", "self.active[key] = host",
        "core/test_frontier.py core/test_crawl.py"),
    Bug("host in memory asked at once after a crash", "core/frontier.py",
        "            self._keep_off(host)\n", "", "core/test_frontier.py core/test_crawl.py"),
    Bug("better shelved hosts forgotten", "core/frontier.py", "insort(known, row)\n            if", "if",
        "core/test_frontier.py"),
    Bug("front queue off by one", "core/order.py", "level = cash.bit_length() + shift", "level = cash.bit_length() + shift + 1",
        "core/test_frontier.py core/test_order.py core/test_walk.py"),
    Bug("order inside a queue reversed", "core/records.py", "_pack_row(N_FRONT_QUEUES - 1 - level, order)",
        "_pack_row(N_FRONT_QUEUES - 1 - level, (1 << 64) - 1 - order)", "core/test_records.py core/test_frontier.py"),
    Bug("back-off doubles once too often", "core/politeness.py", "min(pace.errors - 1, _MAX_DOUBLINGS)",
        "min(pace.errors, _MAX_DOUBLINGS)", "core/test_politeness.py"),
    Bug("no longest gap", "core/politeness.py",
        "return min(max(self.factor * max(transfer, 0.0), self.min_gap), max(self.max_gap, self.min_gap))",
        "return max(self.factor * max(transfer, 0.0), self.min_gap)", "core/test_politeness.py"),
    Bug("connections for slow hosts not counted back", "core/gates.py", "self._held[number] -= 1", "pass",
        "core/test_gates.py"),
    # -- content, windows, tables
    Bug("a later page with a text taken for the first", "core/content.py", "                if owner is None:\n", "                if True:\n",
        "core/test_content.py core/test_unite.py"),
    Bug("a claim never settled", "core/content.py", "self._claims.delete(_CLAIM + other + claim.page)", "pass",
        "core/test_content.py core/test_unite.py"),
    Bug("window one visit short", "core/window.py", "return marks[-k - 1 :]", "return marks[-k:]", "core/test_window.py"),
    Bug("failed commit overwrites newer rows", "core/tables.py", "self._fresh = {**self._in_flight, **self._fresh}",
        "self._fresh = {**self._fresh, **self._in_flight}", "core/test_tables.py"),
    Bug("a record on its way to the store leaves the memory", "core/tables.py",
        "return record if record is not None else self._in_flight.get(key)", "return record", "core/test_tables.py core/test_crawl.py"),
    Bug("a new record never leaves", "core/tables.py", "self._cache.add(new)\n        self._evict()",
        "self._evict()", "core/test_tables.py"),
    Bug("a page that was missing stays so", "core/tables.py", "        self._absent.difference_update(self._in_flight)\n", "",
        "core/test_tables.py core/test_crawl.py"),
    Bug("CLOCK forgets its marks", "core/caches.py", "            ring.append(key)\n", "            return key\n",
        "core/test_caches.py"),
    Bug("cash handed out is not folded in after a restart", "core/ledger.py",
        "self._has_handed = any(totals.handed)", "self._has_handed = False", "core/test_crawl.py core/test_walk.py core/test_model.py"),
    Bug("of a page's new links only the last of a host is queued", "core/crawl.py",
        "if host not in new:",
        "if True:", "core/test_crawl.py"),
    Bug("a page with marks written as if it had none", "core/records.py", "        or page.marks\n", "",
        "core/test_records.py"),
    Bug("depth of a link not kept", "requests.py", 'depth = str(meta["depth"])', "pass", "components/test_requests.py"),
    # -- job, robots.txt, scheduler
    Bug("landed before it is written", "job.py", "self._writer.submit(self._store.write, batch, sync=True)",
        "self._writer.submit(batch.clear)", "crash/test_power.py"),
    Bug("clock goes back with the machine's", "job.py", "max(wall, marked)", "wall", "components/test_clock.py"),
    Bug("clock jumps with the machine's", "job.py", "is_same_boot = boot and boot == _boot_id()", "is_same_boot = False",
        "components/test_clock.py"),
    Bug("torn state committed at the end", "job.py", "            if not self.is_torn:\n                self._commit(is_clean=True)",
        "            if True:\n                self._commit(is_clean=True)", "components/test_store_faults.py"),
    Bug("robots.txt never asked for again", "robots.py", "0 <= age <= expiry", "0 <= age", "components/test_robots.py"),
    Bug("what is known of robots.txt not kept", "robots.py", "crawl.keep_robots(_key(origin), robots.to_bytes())", "pass",
        "components/test_robots.py"),
    Bug("a request in memory taken for one of another process", "scheduler.py",
        "            self._unwritten[data] = request\n", "            self._unwritten[data[:9]] = request\n",
        "components/test_scheduler.py"),
    Bug("a page set aside stays leased", "scheduler.py", "        crawl.release(lease, now)\n        crawl.settle(lease, (), now,",
        "        crawl.settle(lease, (), now,", "components/test_scheduler.py"),
]  # fmt: skip


def main() -> int:
    words = " ".join(sys.argv[1:]).lower()
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("scrapy_aopic", "tests", "example_project", "benchmarks"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "crawls"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "first"}
        print("| where | what was broken | found by | seconds |\n|---|---|---|---|", flush=True)
        for bug in BUGS:
            if words not in f"{bug.file} {bug.what}".lower():
                continue
            path = copy / "scrapy_aopic" / bug.file
            text = path.read_text("utf-8")
            if text.count(bug.old) != 1:
                raise SystemExit(
                    f"{bug.file} has {text.count(bug.old)} places, not 1, for the bug {bug.what!r}: {bug.old}"
                )
            path.write_text(text.replace(bug.old, bug.new), "utf-8")
            tests = [f"tests/{each}" for each in bug.tests.split()]
            begin = time.monotonic()
            command = [sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", *tests]
            by, is_found = _run(command, copy, environment)
            seconds = time.monotonic() - begin
            path.write_text(text, "utf-8")
            if not is_found:
                survivors.append(bug)
            print(f"| {bug.file} | {bug.what} | {by} | {seconds:.0f} |", flush=True)
    print(f"{len(survivors)} not found")
    return 1 if survivors else 0


def _run(command: list[str], copy: Path, environment: dict[str, str]) -> tuple[str, bool]:
    """Run tests in *copy*; returns the name of the first that fails or does not end, and whether there is one."""
    with (copy / "output").open("w+", encoding="utf-8") as output:
        try:
            code: int | None = subprocess.run(
                command,
                cwd=copy,
                env=environment,
                stdout=output,
                stderr=output,
                check=False,
                timeout=_PATIENCE,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        output.seek(0)
        lines = output.read().splitlines()
    if code == 0:
        return "**nothing**", False
    if code is None:
        return f"{lines[-1].split()[0].rpartition('::')[2]}, which does not end", True
    if code not in (1, 2):
        raise SystemExit(f"pytest could not run: {lines[-1]}")
    failed = [line.split(" - ")[0] for line in lines if line.startswith("FAILED")]
    return failed[0].rpartition("::")[2] if failed else "an error", True


if __name__ == "__main__":
    sys.exit(main())
