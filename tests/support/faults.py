"""What may happen to workers that share a crawl, to their server, and to the network between them.

Each fault is a function of the workers and of a random generator, which is called in the middle of a crawl. It returns the
instants (``time.monotonic``) between which and the next request a page may have been fetched once more. When it returns,
the crawl ends by itself.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from .proxy import Proxy
from .redis_server import Server
from .workers import DEADLINE, Verdict, Workers, judge, running

Fault = Callable[[Workers, random.Random], list[float]]


def _kill(workers: Workers, n: int, rng: random.Random) -> list[float]:
    killed = rng.sample(workers.alive, n)
    for process in killed:
        process.kill()
    at = time.monotonic()
    for process in killed:
        process.wait()
    return [at]


def kill_one(workers: Workers, rng: random.Random) -> list[float]:
    """``kill -9`` of a worker."""
    return _kill(workers, 1, rng)


def kill_two(workers: Workers, rng: random.Random) -> list[float]:
    """The same of two at once."""
    return _kill(workers, 2, rng)


def kill_all(workers: Workers, rng: random.Random) -> list[float]:
    """The same of all at once; two others are started."""
    killed = _kill(workers, len(workers.alive), rng)
    for _ in range(2):
        workers.start()
    return killed


def freeze(workers: Workers, rng: random.Random) -> list[float]:
    """A worker stops for two lock timeouts, as a virtual machine may, and goes on."""
    frozen = rng.choice(workers.alive)
    frozen.send_signal(signal.SIGSTOP)
    at = time.monotonic()
    time.sleep(2 * workers.lock_timeout)
    frozen.send_signal(signal.SIGCONT)
    return [at, time.monotonic()]


def _stop(workers: Workers) -> int:
    """Wait until all workers have stopped; returns how many."""
    stopped = workers.alive
    for process in stopped:
        process.wait(DEADLINE)
    workers.stopped += stopped
    return len(stopped)


def kill_server(workers: Workers, rng: random.Random) -> list[float]:
    """``kill -9`` of the server, which is back when all workers have stopped, as they do after the lock timeout."""
    del rng
    workers.redis.kill()
    at = time.monotonic()
    n = _stop(workers)
    workers.redis.start()
    for _ in range(n):
        workers.start()
    return [at]


def restart_server(workers: Workers, rng: random.Random) -> list[float]:
    """``kill -9`` of the server, which is back at once."""
    del rng
    workers.redis.kill()
    at = time.monotonic()
    workers.redis.start()
    return [at, time.monotonic()]


def shut_server_down(workers: Workers, rng: random.Random) -> list[float]:
    """``SHUTDOWN`` of the server, which is back soon."""
    workers.redis.stop()
    at = time.monotonic()
    time.sleep(rng.uniform(0, workers.lock_timeout / 3))
    workers.redis.start()
    return [at, time.monotonic()]


def cut_log(workers: Workers, rng: random.Random) -> list[float]:
    """``kill -9`` of the server, whose log has lost its end when it is back at once."""
    workers.redis.kill()
    at = time.monotonic()
    file = workers.redis.append_only_file()
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - rng.randrange(len(data) // 8)])
    workers.redis.start()
    return [at, time.monotonic()]


def fail_over(workers: Workers, rng: random.Random) -> list[float]:
    """The server is killed, and a replica takes over that has not heard the last of it."""
    replica = workers.stack.enter_context(Server(workers.redis.log.parent.parent / "replica"))
    with (
        Proxy(workers.redis.port) as between,
        redis.Redis.from_url(workers.redis.url) as old,
        redis.Redis.from_url(replica.url) as link,
    ):
        old.config_set("repl-diskless-sync-delay", 0)
        link.replicaof("127.0.0.1", str(between.port))
        while link.info("replication").get("master_link_status") != "up":
            time.sleep(0.01)
        time.sleep(rng.uniform(0.1, 0.5))
        between.stall()
        time.sleep(rng.uniform(0.05, 0.3))
        workers.redis.kill()
        at = time.monotonic()
        link.replicaof("NO", "ONE")
    workers.redis = replica
    for proxy in workers.proxies:
        proxy.move(replica.port)
    return [at, time.monotonic()]


def cut_network(workers: Workers, rng: random.Random) -> list[float]:
    """Between one worker and the server nothing gets through for two lock timeouts: connections are reset."""
    cut = rng.choice(workers.alive)
    workers.proxy_of(cut).cut()
    at = time.monotonic()
    cut.wait(DEADLINE)
    workers.stopped.append(cut)
    return [at, time.monotonic()]


def stall_network(workers: Workers, rng: random.Random) -> list[float]:
    """The same, but nothing is said; later, all of it gets through."""
    cut = rng.choice(workers.alive)
    workers.proxy_of(cut).stall()
    at = time.monotonic()
    time.sleep(2 * workers.lock_timeout)
    workers.proxy_of(cut).heal()
    workers.stopped.append(cut)  # as it may
    return [at, time.monotonic()]


def blink(workers: Workers, rng: random.Random) -> list[float]:
    """All connections of all workers are reset, and can be made again."""
    del rng
    for proxy in workers.proxies:
        proxy.move(workers.redis.port)
    return [time.monotonic()]


def lose_reply(workers: Workers, rng: random.Random) -> list[float]:
    """The server carries out a commit, and its reply is lost, five times."""
    proxy = workers.proxy_of(rng.choice(workers.begun))
    for n in range(1, 6):
        proxy.lose_reply(b"\r\nEXEC\r\n")
        until = time.monotonic() + workers.lock_timeout
        while len(proxy.lost) < n and time.monotonic() < until:
            time.sleep(0.005)
    assert proxy.lost, "no commit was made"
    return proxy.lost  # each may cost what was in flight, and on a busy machine they are seconds apart


def fill_memory(workers: Workers, rng: random.Random) -> list[float]:
    """The server has no memory left; it gets more when all workers have stopped."""
    del rng
    with redis.Redis.from_url(workers.redis.url) as link:
        link.config_set("maxmemory", 1)
        at = time.monotonic()
        n = _stop(workers)
        link.config_set("maxmemory", 0)
    for _ in range(n):
        workers.start()
    return [at]


def come_and_go(workers: Workers, rng: random.Random) -> list[float]:
    """Another two workers are started, and then three are stopped, one after the other."""
    for _ in range(2):
        workers.start()
        time.sleep(rng.uniform(0.3, 1.0))
    workers.wait_for_all()
    for process in workers.alive[:3]:
        process.send_signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.5))
    return []


KILLS = 15
"""That :func:`kill_often` makes."""


def kill_often(workers: Workers, rng: random.Random) -> list[float]:
    """``kill -9`` of any process, 15 times: a worker, which another one takes the place of, or the server, or both."""
    kills: list[float] = []
    for _ in range(KILLS):
        until = time.monotonic() + rng.uniform(0.2, 2.5)
        while time.monotonic() < until:
            # One that lost the server for too long has stopped, and one that has nothing left to do.
            for process in workers.all:
                if process not in workers.stopped and process.poll() is not None:
                    workers.stopped.append(process)
            time.sleep(0.01)
        victim = rng.random()
        if victim < 0.8 and workers.alive:
            kills += _kill(workers, 1, rng)
        if victim > 0.7:
            workers.redis.kill()
            kills.append(time.monotonic())
            time.sleep(rng.choice([0.0, rng.uniform(0.0, 1.5 * workers.lock_timeout)]))
            workers.redis.start()
        while len(workers.alive) < 3:
            workers.start()
    return kills


FAULTS: dict[str, Fault] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kill_one, kill_two, kill_all, freeze, kill_server, restart_server, shut_server_down, cut_log,
        fail_over, cut_network, stall_network, blink, lose_reply, fill_memory, come_and_go, kill_often,
    )
}  # fmt: skip
"""All of them, by name."""


OUTAGES = {restart_server, shut_server_down, cut_log, fail_over, blink, kill_often}
"""Faults in which the server is away for a moment, of which a worker need not stop."""


_WHEN: dict[Fault, tuple[int, int]] = {kill_often: (10, 60), come_and_go: (40, 100)}
"""After how many of some 320 requests a fault begins, at least and at most, if not in the middle."""


def crawl_through(folder: Path, fault: Fault, seed: object, **settings: Any) -> tuple[Workers, Verdict]:
    """Have three workers crawl a small web while *fault* happens; returns what there is to see of it."""
    rng = random.Random(f"{fault.__name__} {seed}")
    first, last = _WHEN.get(fault, (40, 220))
    if fault is lose_reply:
        # Several in a row may keep a worker from the server for two seconds on a busy machine: it rightly stops after the lock timeout.
        settings["lock_timeout"] = max(settings["lock_timeout"], 10.0)
    if fault is come_and_go:
        settings.setdefault("delay", 0.15)  # so that those who come find something to do
    with running(folder, fsync="everysec", **settings) as workers:
        for _ in range(3):
            workers.start()
        workers.wait_for(rng.randrange(first, last))
        faults = fault(workers, rng)
        if fault in OUTAGES:
            # One that was just starting may have stopped; if all were, somebody has to go on.
            workers.stopped += workers.all
            for process in workers.all:
                process.wait(DEADLINE)
            if any(process.returncode not in {0, -signal.SIGKILL} for process in workers.all):
                workers.start()
        workers.wait()
        return workers, judge(workers, faults)


CONTROLS: dict[str, tuple[Fault, dict[str, Any]]] = {
    "freeze-unfenced": (freeze, {"spider": Path(__file__).parent / "unfenced_spider.py"}),
    "cut-log-unpinned": (cut_log, {"spider": Path(__file__).parent / "unpinned_spider.py"}),
}
"""Faults, and workers that lack what makes them harmless."""
