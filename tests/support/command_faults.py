"""Commands that are killed at any touch of a disk or a server, or given twice at once, and what must be true afterwards.

Each is killed before its first touch, its second one, and so on (:mod:`.touches`), and then given again: it must succeed, or
say in a sentence that all is done. Or it is stopped there, given again meanwhile, and goes on: one of the two must succeed,
and the other one, too, or end with a sentence. Or the connection to its server breaks in the middle of the first reply, of the
second one, and so on, and it is given again if it fails. In the end all is there, once, and nothing half-made lies beside it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import redis
from scrapy import Request

from scrapy_aopic.copies.backing_up import restore
from scrapy_aopic.core.layout import Family
from scrapy_aopic.place.cutting import open_part
from scrapy_aopic.place.folder_place import FolderPlace, seeds_folder, store_folder
from scrapy_aopic.place.seed_files import lists
from scrapy_aopic.place.server_place import ServerPlace
from scrapy_aopic.place.stored_control import read_control
from scrapy_aopic.seeds.adding import add_seeds
from scrapy_aopic.seeds.earlier_crawl import SCHEMES, read_earlier_crawl
from scrapy_aopic.storage import Address, open_store
from scrapy_aopic.storage.homes import claim, machine_path, read_homes
from scrapy_aopic.storage.redis.frozen_view import RedisView
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.view.auditing import audit_job

from . import processes
from .proxy import Proxy
from .redis_server import Server
from .stored_jobs import make_job, rows

SCRIPT = Path(__file__).with_name("touches.py")
KEY = "aopic:job"
N_PAGES = 60
SEEDS = [f"http://seed{n}.test/" for n in range(5)]
DEADLINE = 60.0
"""Seconds after which a command hangs."""

_SENTENCE = re.compile(r"(?!Usage).*\.( See scrapy aopic docs \S+)?\n")


class Place:
    """Where a command is given: a folder, and a server, which both are as they were before each attempt."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.job = folder / "job"
        self.port = server.port
        self.url = self.own_url = server.url
        self.address = Address(KEY, server.url)
        self.client = redis.Redis.from_url(server.url)
        self._kept = folder.with_name("kept")
        self._values: dict[bytes, bytes] = {}

    @property
    def on_server(self) -> str:
        """A job, as commands name it."""
        return f"{self.url}#{KEY}"

    def keep(self) -> None:
        """What is there now is there before each attempt."""
        shutil.copytree(self.folder, self._kept)
        self._values = {key: self.client.dump(key) for key in self.client.scan_iter()}

    def put_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder)
        self.client.flushall()
        for key, value in self._values.items():
            self.client.restore(key, 0, value)

    def end_leases(self) -> None:
        """As time does: nobody renews those of a process that was killed."""
        for key in self.client.scan_iter():
            if key.endswith((b"owner", b"beginning")):
                self.client.delete(key)


class Case(NamedTuple):
    """A command.

    Attributes:
        make: Lets be there what it needs.
        words: It, as it is given, with ``{job}`` for the folder, ``{on_server}`` for the job on the server, and ``{url}``.
        wrong: What is not as it must be in the end; nothing if all is.
        done: What it says, in a pattern, if there is nothing left to do for it.
    """

    make: Callable[[Place], object]
    words: str
    wrong: Callable[[Place], str]
    done: str = "nothing left to do"

    def line(self, place: Place) -> list[str]:
        return self.words.format(job=place.job, on_server=place.on_server, url=place.url).split()

    @property
    def speaks_to_server(self) -> bool:
        return "{on_server}" in self.words or "{url}" in self.words


# -- what there is, and what must be


def _make_job(place: Place) -> None:
    make_job(place.job, "sqlite", N_PAGES)
    add_seeds(FolderPlace(place.job), SEEDS)
    (place.folder / "list.csv").write_text(
        "url,score\n" + "".join(f"{url},{n}\n" for n, url in enumerate(SEEDS, 1))
    )


def _make_bare(place: Place) -> None:
    _make_job(place)
    shutil.rmtree(place.job)


def _make_damaged(place: Place) -> None:
    _make_job(place)
    store = open_store(store_folder(place.job), "sqlite")
    key, _ = next(iter(store.scan(Family.PAGES)))
    store.write({Family.PAGES: {key: None}}, sync=True)
    store.close()


def _make_former(place: Place) -> None:
    requests = [Request(f"http://queued{n}.test/") for n in range(3)]
    for request in requests:
        place.client.lpush("shop:requests", json.dumps(request.to_dict() | {"body": ""}, default=str))
    place.client.sadd("shop:start_urls", *SEEDS)
    made = [*requests, *(Request(f"http://old{n}.test/") for n in range(4))]
    place.client.sadd(
        "shop:dupefilter", *(SCHEMES["scrapy-redis"](each.method, each.url, each.body).hex() for each in made)
    )


def _make_part(place: Place) -> None:
    cut = Sharding(2, "", 1)
    begin(place.address, cut, lambda: None)
    part = open_part(FolderPlace(place.job), place.address)
    claim(place.address, cut, part.name, machine_path(place.job), [])
    _make_stores(place, cut)


def _make_shards(place: Place) -> None:
    cut = Sharding(2, "")
    FolderPlace(place.job).write_sharding(cut, b"")
    _make_stores(place, cut)


def _make_on_server(place: Place) -> None:
    _make_job(place)
    restore(place.job, place.address)
    shutil.rmtree(place.job)


def _make_stores(place: Place, cut: Sharding) -> None:
    job = FolderPlace(place.job)
    for folder in job.stores(cut):
        made = place.folder / "made"
        make_job(made, "sqlite", N_PAGES // 2)
        store_folder(made).rename(folder)
        shutil.rmtree(made)


def _waiting(place: Place) -> list[str]:
    """The URLs of the seeds that wait in the folder."""
    return [
        json.loads(line)[0]
        for path in lists(seeds_folder(place.job))
        for line in path.read_text().splitlines()
    ]


def _waiting_on_server(place: Place) -> list[str]:
    keys = Keys(place.address)
    names = place.client.smembers(keys.seed_lists)
    data = [b"".join(place.client.lrange(keys.seed_list(name), 0, -1)) for name in names]
    return [json.loads(line)[0] for each in data for line in each.splitlines()]


def _rows_on_server(place: Place) -> list[Any]:
    with closing(RedisView(place.address)) as store:
        return [list(store.scan(family)) for family in Family]


def _odd_files(place: Place) -> list[str]:
    """Files that are not whole, or are nobody's."""
    odd = (".part", ".new", ".copy", ".tmp")
    return sorted(
        str(path.relative_to(place.folder)) for path in place.folder.rglob("*") if path.name.endswith(odd)
    )


def _odd_keys(place: Place) -> list[bytes]:
    """Keys that are kept for ever beside those that have a meaning."""
    begin = b"{%s}:" % KEY.encode()
    known = re.compile(
        re.escape(begin)
        + rb"(head|moved|seeds|seeds:[^:]*\.jsonl|control|former|cut|suffixes|states|log|logged|leaves:\d+|\d:.*|homes.*|s\d+:head|run)",
        re.DOTALL,
    )
    found = [key for key in place.client.scan_iter(match=begin + b"*") if place.client.ttl(key) == -1]
    return sorted(key for key in found if not known.fullmatch(key))


def _differs(found: object, wanted: object) -> str:
    return "" if found == wanted else f"{found!r}, and not {wanted!r}"


def _former_of(place: FolderPlace | ServerPlace) -> int:
    former = read_earlier_crawl(place)
    return len(former) if former is not None else 0


IMPORTED = sorted([*SEEDS, *(f"http://queued{n}.test/" for n in range(3))])


def _exported(place: Place) -> tuple[int, int]:
    with (place.folder / "pages.csv").open(newline="") as file:
        urls = [row["url"] for row in csv.DictReader(file)]
    return len(urls), len({*urls})


def _moved(place: Place) -> object:
    old, new = FolderPlace(place.job), FolderPlace(place.folder / "new")
    return old.shards_here(), new.shards_here(), new.read_part(), read_homes(place.address).of


def _split(place: Place) -> object:
    """Whether the shards are at home in the two parts, and those of each."""
    old, new = FolderPlace(place.job), FolderPlace(place.folder / "new")
    names = [part and part.name for part in (old.read_part(), new.read_part())]
    return [*read_homes(place.address).of.values()] == names, old.shards_here(), new.shards_here()


def _salvaged(place: Place) -> tuple[bool, int]:
    found = audit_job(FolderPlace(place.folder / "new"))
    return not found.violations, found.pages


def _left(place: Place) -> object:
    return _odd_files(place), _odd_keys(place)


def _case(
    make: Callable[[Place], object],
    words: str,
    *what: tuple[Callable[[Place], object], object],
    done: str = "nothing left to do",
) -> Case:
    """A command after which each of *what*, a function of the place, gives what stands beside it."""

    def wrong(place: Place) -> str:
        ends = ((find(place), wanted(place) if callable(wanted) else wanted) for find, wanted in what)
        return "; ".join(filter(None, (_differs(*each) for each in (*ends, (_left(place), ([], []))))))

    return Case(make, words, wrong, done)


_rows: Callable[[Place], list[Any]] = lambda place: rows(place.job)
_in_folder: Callable[[Place], FolderPlace] = lambda place: FolderPlace(place.job)
_on_server: Callable[[Place], ServerPlace] = lambda place: ServerPlace(place.address)

CASES: dict[str, Case] = {
    "seed": _case(_make_bare, "seed {job} list.csv", (_waiting, SEEDS)),
    "seed-server": _case(_make_bare, "seed {on_server} list.csv", (_waiting_on_server, SEEDS)),
    "control": _case(_make_job, "control {job} rate 5", (lambda place: read_control(_in_folder(place)).rate, 5.0)),
    "control-server": _case(lambda _: None, "control {on_server} rate 5", (lambda place: read_control(_on_server(place)).rate, 5.0)),
    "import-redis": _case(
        _make_former, "import-redis {job} shop --from {url}",
        (lambda place: sorted(_waiting(place)), IMPORTED), (lambda place: _former_of(_in_folder(place)), 4),
    ),
    "import-redis-server": _case(
        _make_former, "import-redis {on_server} shop --from {url}",
        (lambda place: sorted(_waiting_on_server(place)), IMPORTED), (lambda place: _former_of(_on_server(place)), 4),
    ),
    "export": _case(_make_job, "export {job} --pages pages.csv", (_exported, (N_PAGES, N_PAGES))),
    "backup": _case(_make_job, "backup {job} copy", (lambda place: rows(place.folder / "copy"), _rows), done="copy exists; remove it"),
    "restore": _case(_make_job, "backup {job} {on_server}", (_rows_on_server, _rows), (_waiting_on_server, SEEDS), done="There is a job in"),
    "salvage": _case(_make_damaged, "salvage {job} new", (_salvaged, (True, N_PAGES)), done="new exists; remove it"),
    "salvage-shards": _case(_make_damaged, "salvage {job} new --shards 2", (_salvaged, (True, N_PAGES)), done="new exists; remove it"),
    "move": _case(_make_part, "move {job} new -s REDIS_URL={url}", (_moved, ([], [0, 1], None, {}))),
    "move-shard": _case(_make_shards, "move {job} new --shards 1 --server {on_server}", (_split, (True, [0], [1]))),
    "move-to-server": _case(
        _make_job, "move {job} {on_server}", (_rows_on_server, lambda place: rows(place.folder.with_name("kept") / "job")),
        (_waiting_on_server, SEEDS), (lambda place: _in_folder(place).has_job(), False),
    ),
    "move-to-folder": _case(
        _make_on_server, "move {on_server} {job}", (lambda place: sum(map(len, _rows(place))) > N_PAGES, True),
        (_waiting, SEEDS), (lambda place: sorted(place.client.keys("*")), [b"{%s}:moved" % KEY.encode()]),
    ),
}  # fmt: skip
"""By name."""


# -- the faults


class _Command:
    def __init__(self, place: Place, line: list[str], at: int = 0, number: int = 0) -> None:
        self._n = place.folder.with_name("touches")
        self._n.unlink(missing_ok=True)
        self.process = processes.start(
            [
                sys.executable, str(SCRIPT), str(at), str(int(number)), str(self._n), "aopic", *line, "-s",
                "AOPIC_REDIS_LOCK_TIMEOUT=1",
            ],
            cwd=place.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.said = ""

    def end(self) -> int:
        try:
            _, self.said = self.process.communicate(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise AssertionError("hangs") from None
        assert self.process.returncode is not None
        return self.process.returncode

    @property
    def n_touches(self) -> int:
        """How often it has touched a disk or a server, if it has ended by itself."""
        return int(self._n.read_text())

    def is_stopped(self) -> bool:
        """Wait until it has got its signal, or has ended; returns whether it is stopped."""
        while self.process.poll() is None:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
                if state == "T":
                    return True
            time.sleep(0.002)
        return False


def _judge(command: _Command) -> str:
    """What is wrong with what *command* says, which has ended: it is a sentence, if it is anything."""
    if "Traceback" in command.said or (command.process.returncode and not _SENTENCE.fullmatch(command.said)):
        return f"it says {command.said!r}"
    return ""


def _again(place: Place, case: Case) -> str:
    """Give a command again that has failed; what is wrong then."""
    place.end_leases()
    again = _Command(place, case.line(place))
    code = again.end()
    if wrong := _judge(again):
        return wrong
    if code and not re.search(case.done, again.said):
        return f"given again, it says {again.said!r}"
    place.end_leases()
    return _wrong(case, place)


def killed(place: Place, case: Case, at: int) -> tuple[bool, str]:
    """Kill the command at a touch, and give it again; whether it was killed, and what is wrong then."""
    place.put_back()
    if _Command(place, case.line(place), at, signal.SIGKILL).end() != -signal.SIGKILL:
        return False, ""
    return True, _again(place, case)


def twice(place: Place, case: Case, at: int) -> tuple[bool, str]:
    """Stop the command at a touch, give it again, and let it go on; whether it was stopped, and what is wrong then."""
    place.put_back()
    one = _Command(place, case.line(place), at, signal.SIGSTOP)
    if not one.is_stopped():
        one.end()
        return False, ""
    other = _Command(place, case.line(place))
    try:
        codes = [other.end()]
    finally:
        one.process.send_signal(signal.SIGCONT)
        codes.append(one.end())
    if wrong := _judge(one) or _judge(other):
        return True, wrong
    if 0 not in codes:
        return True, f"none of the two succeeds: {one.said!r}, {other.said!r}"
    return True, _wrong(case, place)


def cut(place: Place, case: Case, at: int) -> tuple[bool, str]:
    """Let only half of a reply of the server reach the command; whether there was one, and what is wrong then."""
    place.put_back()
    with Proxy(place.port) as proxy:
        place.url = proxy.url
        try:
            proxy.halve_reply(at)
            one = _Command(place, case.line(place))
            code = one.end()
            if not proxy.has_halved:
                return False, ""
        finally:
            place.url = place.own_url
    if wrong := _judge(one):
        return True, wrong
    return True, _again(place, case) if code else _wrong(case, place)


def _wrong(case: Case, place: Place) -> str:
    try:
        return case.wrong(place)
    except Exception as error:  # noqa: BLE001 (that is a result, too)
        return f"{type(error).__name__}: {error}"


WAYS = {"killed": killed, "twice": twice, "cut": cut}


def find_wrong(folder: Path, name: str, way: str, *, each: int = 1, last: int = 0) -> tuple[int, list[str]]:
    """Let the fault happen at touches of a command: how many were tried, and what is wrong.

    Args:
        each: Every so many of all touches.
        last: Or only so many at the end.
    """
    (folder / "place").mkdir(parents=True)
    with Server(folder / "server") as server:
        place, case = Place(folder / "place", server), CASES[name]
        case.make(place)
        place.keep()
        found: list[str] = []
        n, first = 0, 1
        if last:
            place.put_back()
            command = _Command(place, case.line(place))
            assert command.end() == 0, command.said
            first = max(command.n_touches - last + 1, 1)
        for at in count(first, each):
            happened, wrong = WAYS[way](place, case, at)
            if not happened:
                break
            n += 1
            if wrong:
                found.append(f"{name}, {way}, at {at}: {wrong}")
        return n, found
