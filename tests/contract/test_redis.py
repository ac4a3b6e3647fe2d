"""The store in Redis, on a real server of the tests' own."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import ssl
import sys
from contextlib import closing, nullcontext
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from support.naming import case
from support.proxy import Proxy
from support.redis_server import WHY_NOT, Server, find_server
from support.short_forms import some_of
from support.store_contract import StoreContract, check_transfers, number, write, write_transfers

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import LostError, SettingError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

if find_server() is None:
    pytest.skip(WHY_NOT, allow_module_level=True)
redis = pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.storage.address import Address
from scrapy_aopic.storage.redis import server_lock
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.frozen_view import RedisView
from scrapy_aopic.storage.redis.store import RedisStore

URL = "AOPIC_TEST_REDIS_URL"
"""Environment variable by which processes of a test find its server."""

LOCK_TIMEOUT = 1.0
"""Seconds: what a test waits after it has killed a process."""


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL, server.url)
        yield server


@pytest.fixture
def client(server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


def address(folder: Path) -> Address:
    """Where the job is that a test thinks of as *folder*."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return Address(f"{digest}:{folder.name}", os.environ[URL], lock_timeout=LOCK_TIMEOUT)


class TestRedisStore(StoreContract):
    def make_store(self, folder: Path, *, read_only: bool = False) -> Store:
        return RedisView(address(folder)) if read_only else RedisStore(address(folder))

    def damage(self, folder: Path, value: bytes) -> None:
        with redis.Redis.from_url(os.environ[URL]) as client:
            n_found = 0
            start = f"{{{address(folder).key}}}:".encode()
            for name in client.scan_iter(start + b"[0-9]*", count=1_000):
                for key, stored in client.hgetall(name).items():
                    if stored.startswith(value):
                        middle = len(value) // 2
                        changed = bytes((value[middle] ^ 1,))
                        client.hset(name, key, stored[:middle] + changed + stored[middle + 1 :])
                        n_found += 1
            assert n_found

    def test_a_batch_that_does_not_fit_on_the_disk_is_not_stored(self, folder):
        """It is the server's memory that is full."""
        with redis.Redis.from_url(os.environ[URL]) as client:
            store = self.make_store(folder)
            write_transfers(store, n_batches=3)
            reported = [3]
            client.config_set("maxmemory", client.info("memory")["used_memory"] + (2 << 20))
            try:
                with pytest.raises(StorageError, match=r"Cannot write .* no memory left: .*maxmemory"):
                    write_transfers(store, 1_000, padding=20_000, report=reported.append)
                assert check_transfers(store) == reported[-1] > 3
            finally:
                client.config_set("maxmemory", 0)
            write_transfers(store, n_batches=3)
            store.close()
        with closing(self.make_store(folder)) as store:
            assert check_transfers(store) == reported[-1] + 3

    @pytest.mark.slow
    def test_a_writer_that_slept_through_its_lease_changes_nothing_any_more(self, folder):
        with self._child("write", folder) as child:
            assert child.stdout is not None
            list(islice(child.stdout, 5))
            child.send_signal(signal.SIGSTOP)
            with closing(self.make_store(folder)) as store:  # waits for the end of the lock
                before = check_transfers(store)
                assert before >= 5
                write_transfers(store, n_batches=10)
                child.send_signal(signal.SIGCONT)
                child.communicate()
                assert child.returncode == 1
                write_transfers(store, n_batches=10)
                assert check_transfers(store) == before + 20
        with closing(self.make_store(folder)) as store:
            assert check_transfers(store) == before + 20

    @pytest.mark.slow
    @pytest.mark.parametrize("most_rows", some_of([2, 5]))
    def test_leaves_are_cut_and_joined(self, folder, monkeypatch, most_rows):
        """A random walk over leaves so small that nearly every batch changes which there are."""
        from scrapy_aopic.storage.redis import leaves

        for name, value in (
            ("MOST", most_rows),
            ("_BULK", most_rows),
            ("_CUT", most_rows),
            ("_FEW", most_rows // 2),
        ):
            monkeypatch.setattr(leaves, f"{name}_ROWS", value)
        monkeypatch.setattr(leaves, "_JOINED_ROWS", most_rows)
        monkeypatch.setattr(
            sys.modules[__name__], "LOCK_TIMEOUT", 10.0
        )  # a busy machine outlasts a short one
        self.test_a_random_walk_agrees_with_the_model()
        self.test_a_view_shows_the_moment_it_was_made(self.make_store(folder), folder)


def test_a_writer_whose_head_was_taken_is_told_so_at_its_next_batch(tmp_path, client):
    """Whoever took it, and however long its lock lasts."""
    with closing(RedisStore(address(tmp_path))) as store:
        write(store, Family.META, {b"a": b"1"})
        head = f"{{{address(tmp_path).key}}}:head"
        mine = client.get(head).split()
        client.set(head, b" ".join((mine[0], b"another", mine[2])))
        for _ in range(2):
            with pytest.raises(LostError, match="no longer this process's: another process has opened it"):
                write(store, Family.META, {b"a": b"2"})
        with pytest.raises(LostError):
            store.check_lock()
        assert store.get_many(Family.META, [b"a"]) == [b"1"]


def test_a_lease_that_cannot_be_renewed_fades_before_it_ends(server, monkeypatch):
    """By the clock of the lock, which a test may set: nothing new is begun in its second half."""
    now = [0.0]

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(server_lock, "time", Clock)
    with Proxy(server.port) as between:
        store = RedisStore(Address("fading", between.url, lock_timeout=60.0))
        between.stall()
        found = []
        for now[0] in (0.0, 29.0, 31.0, 59.0):
            store.check_lock()
            found.append(store.is_fading)
        now[0] = 61.0
        with pytest.raises(LostError, match="the server was not reached for 60 s"):
            store.check_lock()
        between.heal()
        store.close()
    assert found == [False, False, True, True]


def test_nobody_waits_for_what_is_prefetched_before_it_is_wanted(server):
    with (
        Proxy(server.port) as between,
        closing(RedisStore(Address("ahead", between.url, lock_timeout=60.0))) as store,
    ):
        write(store, Family.PAGES, {b"a": b"1"})
        between.stall()
        request = store.prefetch(Family.PAGES, [b"a", b"b"])
        assert not store.has_come(request)
        between.heal()
        assert store.get_many(Family.PAGES, [b"b", b"a"]) == [None, b"1"]
        assert store.has_come(request)
        between.stall()  # what is here already needs no server
        assert store.has_come(store.prefetch(Family.PAGES, []))
        between.heal()
        request = store.prefetch(Family.PAGES, [b"a", b"b"])
        while not store.has_come(request):
            pass
        between.stall()
        assert store.get_many(Family.PAGES, [b"b", b"a"]) == [None, b"1"]
        between.heal()


def test_a_connection_that_breaks_loses_what_is_prefetched_and_no_more(server):
    with (
        Proxy(server.port) as between,
        closing(RedisStore(Address("cut", between.url, lock_timeout=60.0))) as store,
    ):
        write(store, Family.PAGES, {b"a": b"1"})
        for _ in range(3):
            between.stall()
            request = store.prefetch(Family.PAGES, [b"a"])
            between.cut()
            while not store.has_come(request):
                pass
            between.heal()
            assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]
            assert store.get_many(Family.PAGES, [b"a", b"b"]) == [b"1", None]
        between.hang_up(3)
        store.prefetch(Family.PAGES, [b"a"])
        assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]


def test_a_writer_whose_keys_are_gone_is_told_so(tmp_path, client):
    with closing(RedisStore(address(tmp_path))) as store:
        client.flushdb()
        with pytest.raises(LostError, match="its keys are gone"):
            write(store, Family.META, {b"a": b"1"})
        assert client.dbsize() == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.97, 0.83, 0.5, 0.21])
def test_a_server_that_lost_its_tail_has_whole_batches_and_its_writer_is_told(tmp_path, part):
    with Server(tmp_path / "server") as server:
        where = Address("job", server.url, lock_timeout=LOCK_TIMEOUT)
        with closing(RedisStore(where)) as store:
            write_transfers(store, n_batches=60)
            server.kill()
            file = server.append_only_file()
            os.truncate(file, int(file.stat().st_size * part))
            server.start()
            with pytest.raises(LostError, match=r"lost what it last took .*and number 60 had landed"):
                write_transfers(store, n_batches=1)
        with closing(RedisStore(where)) as store:
            found = check_transfers(store)
            assert found in range(int(60 * part) - 10, 60)
            store.verify()
            write_transfers(store, n_batches=5)
            assert check_transfers(store) == found + 5


@pytest.mark.slow
def test_a_server_that_is_killed_and_restarted_has_every_batch(tmp_path):
    with Server(tmp_path / "server", appendfsync="always") as server:
        where = Address("job", server.url)
        with closing(RedisStore(where)) as store:
            for n in range(1, 6):
                write_transfers(store, n_batches=10)
                server.kill()
                server.start()
                assert check_transfers(store) == 10 * n


def test_a_view_that_has_died_costs_the_writer_nothing_any_more(tmp_path, client):
    where = address(tmp_path)
    with closing(RedisStore(where)) as store:
        rows = {number(n): b"before" for n in range(500)}
        write(store, Family.PAGES, rows)
        n_keys = client.dbsize()
        view = RedisView(where)
        write(store, Family.PAGES, dict.fromkeys(rows, b"after"))
        assert client.dbsize() > n_keys + 5
        client.delete(next(client.scan_iter("*}:view:*")))  # as its end does that was not renewed
        write(store, Family.PAGES, {number(0): b"last"})
        assert client.dbsize() == n_keys
        with pytest.raises(StorageError, match=r"view .* has ended"):
            view.get_many(Family.PAGES, [number(0)])
        view.close()


# What is wrong with a server is one sentence that says what to do, without a password.


def test_a_server_that_is_not_there(tmp_path):
    with pytest.raises(
        StorageError,
        match=r"^Cannot connect to the store in redis://127.0.0.1:1/0#job: nothing listens there",
    ):
        RedisStore(Address("job", "redis://127.0.0.1:1"))


def test_a_server_that_wants_a_password(tmp_path):
    with Server(tmp_path, requirepass="right") as server:
        for secret, said in (("", "wants a password"), (":geheim", "does not know this user and password")):
            url = server.url.replace("//", f"//{secret}@") if secret else server.url
            with pytest.raises(StorageError, match=said) as caught:
                RedisStore(Address("job", url))
            assert "geheim" not in f"{caught.value}{caught.value.__cause__}"
        for parameters in ({"password": "right"}, {"username": "default", "password": "right"}):
            RedisStore(Address("job", server.url, parameters)).close()


def test_a_user_with_too_few_rights(tmp_path, server, client):
    client.execute_command(
        "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+@connection", "+@transaction"
    )
    url = server.url.replace("//", "//reader:pw@")
    with pytest.raises(StorageError, match="may not do this: give it the rights"):
        RedisStore(Address(str(tmp_path.name), url))


def test_a_replica_and_a_node_of_a_cluster(tmp_path, server):
    with (
        Server(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica,
        Server(tmp_path / "node", cluster_enabled="yes", appendonly="no") as node,
    ):
        with pytest.raises(StorageError, match=r"is a replica, .*let REDIS_URL name the primary"):
            RedisStore(Address("job", replica.url))
        with pytest.raises(StorageError, match=r"cluster .*let REDIS_URL name a single server"):
            RedisStore(Address("job", node.url))


def test_a_server_that_does_not_reply(tmp_path, server):
    with closing(RedisStore(Address("slow", server.url, {"socket_timeout": 1.0}, lock_timeout=4))) as store:
        os.kill(server.process_id, signal.SIGSTOP)
        try:
            with pytest.raises(StorageError, match="does not reply"):
                store.get_many(Family.PAGES, [b"a"])
        finally:
            os.kill(server.process_id, signal.SIGCONT)
        assert store.get_many(Family.PAGES, [b"a"]) == [None]


def test_a_server_that_is_away_for_less_than_the_time_of_the_lock_is_waited_for(server, client):
    with (
        Proxy(server.port) as between,
        closing(RedisStore(Address("away", between.url, lock_timeout=60))) as store,
    ):
        store.write({Family.PAGES: {b"a": b"1"}}, sync=True)
        between.hang_up(5)
        assert store.get_many(Family.PAGES, [b"a"]) == [b"1"]
        between.hang_up(5)
        store.write({Family.PAGES: {b"a": b"2"}}, sync=True)
        between.hang_up(5)
        assert [*store.scan(Family.PAGES)] == [(b"a", b"2")]


def test_no_error_of_a_network_is_said_to_be_one_of_a_file(server):
    def kinds(kind: type[BaseException]) -> set[type[BaseException]]:
        return {kind, *(each for below in kind.__subclasses__() for each in kinds(below))}

    errors = [
        made
        for kind in kinds(ConnectionError)
        | kinds(TimeoutError)
        | kinds(ssl.SSLError)
        | kinds(redis.RedisError)
        if kind.__module__ in {"builtins", "ssl"}
        or (kind.__module__.startswith("redis.") and not issubclass(kind, redis.exceptions.AskError))
        for made in (
            kind("closed"),
            *((kind(1, "closed"), kind(8, "closed")) if issubclass(kind, ssl.SSLError) else ()),
        )
    ]
    errors += [
        ConnectionError("closed"),
        EOFError(),
        socket.gaierror(-2, "unknown"),
        socket.herror(1, "unknown"),
    ]
    assert len(errors) > 40
    with closing(connect(Address("away", server.url))) as connection:
        for error in errors:
            behind = redis.ConnectionError("closed")
            behind.__context__ = error
            for each in (error, behind):
                with case(repr(error), repr(each)):
                    said = str(connection.unreachable("read", each))
                    assert said.startswith("Cannot read the store in redis://")
                    assert not re.search(r"damaged|permissions|pipe|Errno|_ssl|file|folder", said), said


def test_a_url_that_is_none_is_not_shown():
    with pytest.raises(SettingError, match="REDIS_URL or REDIS_PARAMS cannot be used") as caught:
        RedisStore(Address("job", "redis://:pass/word@host:port"))
    assert "word@" not in str(caught.value)
    with pytest.raises(SettingError, match="without spaces and braces"):
        RedisStore(Address("a job", "redis://127.0.0.1"))


@pytest.mark.parametrize("is_fenced", [True, False])
def test_only_the_fence_keeps_a_writer_that_was_taken_for_dead_from_harm(
    tmp_path, client, monkeypatch, is_fenced
):
    """Without it, which is the control, its next batch lands on top of what it has never seen."""
    if not is_fenced:
        monkeypatch.setattr(server_lock.ServerLock, "why_refused", lambda self, data: "")
        monkeypatch.setattr(server_lock.ServerLock, "check", lambda self: None)
    where = address(tmp_path)
    with closing(RedisStore(where)) as late:
        write_transfers(late, n_batches=5)
        client.delete(f"{{{where.key}}}:owner")  # as if it had slept through its lock
        with closing(RedisStore(where)) as next_one:
            write_transfers(next_one, n_batches=5)
            with pytest.raises(LostError) if is_fenced else nullcontext():
                write_transfers(late, n_batches=5)
            harmed = False
            try:
                found = check_transfers(next_one)
                next_one.verify()
            except (AssertionError, StorageError):
                harmed = True
            assert (harmed or found != 10) != is_fenced
