"""Batches of several stores on one server in one transaction: all land that can, and each fails for itself."""

from __future__ import annotations

import os
import random
import re
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.proxy import Proxy
from support.redis_server import WHY_NOT, Server, find_server
from support.short_forms import some_of

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import LostError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from socket import socket

if find_server() is None:
    pytest.skip(WHY_NOT, allow_module_level=True)
redis = pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.storage.address import Address
from scrapy_aopic.storage.redis import leaves as redis_leaves
from scrapy_aopic.storage.redis.connection import Connection
from scrapy_aopic.storage.redis.frozen_view import RedisView
from scrapy_aopic.storage.redis.store import RedisStore, StoreGroup

N = 3
"""Stores that are written to together."""


@pytest.fixture
def job(server) -> Address:
    return Address(os.urandom(6).hex(), server.url)


@contextmanager
def opened(job: Address, group: StoreGroup, n: int = N) -> Iterator[list[RedisStore]]:
    """The stores of the shards of *job*, which share the connections of *group*, as those of a worker do."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(closing(RedisStore(job.of_shard(number), is_one_of_many=True, group=group)))
            for number in range(n)
        ]


@pytest.fixture
def stores(job, together) -> Iterator[list[RedisStore]]:
    with opened(job, together) as stores:
        yield stores


@pytest.fixture
def together(job) -> Iterator[StoreGroup]:
    with closing(StoreGroup(job)) as together:
        yield together


def write(
    together: StoreGroup, stores: Sequence[RedisStore], value: bytes, keys: Sequence[bytes] = (b"key",)
) -> list[StorageError | None]:
    return together.write([(store, {Family.PAGES: dict.fromkeys(keys, value)}) for store in stores])


def values(stores: Sequence[RedisStore], key: bytes = b"key") -> list[bytes | None]:
    return [store.get_many(Family.PAGES, [key])[0] for store in stores]


@contextmanager
def requests() -> Iterator[list[list[Any]]]:
    """The words of each request that this thread makes meanwhile."""
    found: list[list[Any]] = []
    own = threading.current_thread()
    exchange = Connection._exchange

    def noted(link: Connection, commands: Any) -> Any:
        if threading.current_thread() is own:  # and not one that renews a lock
            found.append([each[0] for each in commands])
        return exchange(link, commands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_exchange", noted)
        yield found


def test_it_is_one_transaction_and_one_request(stores, together):
    assert write(together, stores, b"1") == [None] * N
    with requests() as found:
        assert write(together, stores, b"2") == [None] * N
    (only,) = found
    assert only[0] == b"EXEC", "the rest is sent before the lock is taken"
    assert only.count(b"WATCH") == 1, "and for the next one"
    assert only.count(b"GET") == N
    assert values(stores) == [b"2"] * N


def test_connections_of_a_worker_do_not_grow_with_its_shards(server, job, together):
    with redis.Redis.from_url(server.url) as client:
        before = {each["id"] for each in client.client_list()}
        with opened(job, together, 40) as stores:
            assert write(together, stores, b"1") == [None] * 40
            assert values(stores) == [b"1"] * 40
            after = [each for each in client.client_list() if each["id"] not in before]
            assert len(after) <= 2, after  # to read and to write; that for locks was there before


def test_rows_that_are_read_ahead_come_to_the_store_that_asked(stores, together):
    """Their replies come by one connection, between those of others."""
    keys = [b"%d" % n for n in range(5)]
    for number, store in enumerate(stores):
        assert write(together, [store], b"%d" % number, keys) == [None]
    for store in stores:
        assert store.prefetch(Family.PAGES, keys[:3])
        assert store.prefetch(Family.PAGES, keys[3:])
    for number, store in reversed([*enumerate(stores)]):
        found = store.get_many(Family.PAGES, [keys[4], b"none", keys[0]])
        assert found == [b"%d" % number, None, b"%d" % number]


def test_all_locks_are_renewed_but_those_that_are_lost(server, together, job):
    address = replace(job, lock_timeout=1.0)
    with closing(StoreGroup(address)) as group, opened(address, group) as stores:
        with redis.Redis.from_url(server.url) as client:
            client.delete(stores[0].keys.head, stores[0].keys.owner)
            client.set(stores[1].keys.owner, b"somebody else's")
            for _ in range(3):
                for store in stores[2:]:  # until it has been renewed
                    client.pexpire(store.keys.owner, 50_000)
                    while client.pttl(store.keys.owner) > 1_000:
                        pass
        with pytest.raises(LostError, match="gone"):
            stores[0].check_lock()
        with pytest.raises(LostError, match="another process has opened it"):
            stores[1].check_lock()
        assert write(group, stores[2:], b"1") == [None] * (N - 2)


def test_it_looks_first_if_it_cannot_know_what_it_finds(stores, together):
    assert write(together, stores[:1], b"0") == [None]
    with requests() as found:
        assert write(together, stores[:2], b"1") == [None] * 2
    first, second = found
    assert first.count(b"WATCH") == 1
    assert first.count(b"GET") == 2
    assert second[0] == b"EXEC"
    with requests() as found:
        assert write(together, stores, b"2") == [None] * N
    assert len(found) == 2, "one of the stores has not taken part yet"
    with requests() as found:
        assert write(together, stores[1:], b"3") == [None] * (N - 1)
        assert write(together, stores, b"4") == [None] * N
    assert len(found) == 2, "all that have taken part are watched"
    stores[1].write({Family.PAGES: {b"key": b"alone"}}, sync=True)
    with requests() as found:
        assert write(together, stores[1:], b"5") == [None] * (N - 1)
    assert len(found) == 2, "it has written another commit since"
    assert values(stores) == [b"4", b"5", b"5"]
    with requests() as found:
        assert write(together, stores, b"6") == [None] * N
    assert len(found) == 1


def test_leaves_that_grow_too_large_cost_no_request_of_their_own(stores, together):
    """They are read with the commit that finds them too large, and cut by the next one."""
    rng = random.Random(1)
    keys = [b"%05d" % n for n in range(20_000)]
    known: dict[bytes, bytes] = {}
    with requests() as found:
        for n in range(60):
            some = rng.sample(keys, 150)
            assert write(together, stores, b"%d" % n, some) == [None] * N
            known.update(dict.fromkeys(some, b"%d" % n))
    assert len(found) < 1.2 * 60
    for store in stores:
        assert dict(store.scan(Family.PAGES)) == known
        store.verify()
        leaves = store.leaves[Family.PAGES]
        assert max(leaves._counts.values()) <= 2 * redis_leaves.MOST_ROWS
        assert len(leaves.filled) > 60


@pytest.mark.parametrize("n_before", range(2))
def test_a_store_that_another_process_has_opened_takes_no_part(server, stores, together, n_before):
    for _ in range(n_before):
        assert write(together, stores, b"0") == [None] * N
    with redis.Redis.from_url(server.url) as client:
        head = stores[1].keys.head
        mine = client.get(head).split()
        client.set(head, b" ".join((mine[0], b"another", mine[2])))
    failures = write(together, stores, b"1")
    assert failures[::2] == [None, None]
    assert isinstance(failures[1], LostError)
    assert "another process has opened it" in str(failures[1])
    before = b"0" if n_before else None
    assert values(stores) == [b"1", before, b"1"]
    assert write(together, stores[::2], b"2") == [None] * 2
    assert values(stores) == [b"2", before, b"2"]


@pytest.mark.parametrize("n_before", range(2))
def test_a_store_whose_head_is_damaged_takes_no_part(server, stores, together, n_before):
    for _ in range(n_before):
        assert write(together, stores, b"0") == [None] * N
    with redis.Redis.from_url(server.url) as client:
        client.set(stores[1].keys.head, b"nonsense")
    failures = write(together, stores, b"1")
    assert failures[::2] == [None, None]
    assert "is damaged: its head is b'nonsense'" in str(failures[1])
    assert values(stores[::2]) == [b"1"] * 2


def test_a_store_that_is_closed_or_broken_takes_no_part(server, stores, together):
    stores[0].close()
    with redis.Redis.from_url(server.url) as client:
        client.set(stores[1].keys.leaf(Family.PAGES, b""), b"of another kind")
    failures = write(together, stores, b"1")
    assert failures[2] is None
    assert "is closed; open it again" in str(failures[0])
    assert "could not carry out a part of a commit" in str(failures[1])
    assert values(stores[2:]) == [b"1"]
    assert "takes no more writes" in str(write(together, stores, b"2")[1])


@pytest.mark.parametrize("n_more", [2, redis_leaves.MOST_ROWS], ids=["cut by the next one", "cut at once"])
def test_a_leaf_that_is_damaged_is_a_matter_of_its_store_only(server, stores, together, n_more):
    keys = [b"%03d" % n for n in range(redis_leaves.MOST_ROWS)]
    more = [b"more%03d" % n for n in range(n_more)]
    assert write(together, stores, b"before", keys) == [None] * N
    assert write(together, stores, b"before", more) == [None] * N
    leaf = stores[0].keys.leaf(Family.PAGES, stores[0].leaves[Family.PAGES].of(b"more"))
    with redis.Redis.from_url(server.url) as client:
        client.hset(leaf, keys[-1], b"nonsense")
    failures = write(together, stores, b"after", more)
    assert failures[1:] == [None] * (N - 1)
    if failures[0] is None:  # it was read when the commit had landed
        assert values(stores[:1], more[0]) == [b"after"]
        failures = write(together, stores, b"after", more)
    assert "was changed since it was written" in str(failures[0])
    assert failures[1:] == [None] * (N - 1)
    assert values(stores[1:], more[0]) == [b"after"] * (N - 1)


def test_a_view_shows_each_store_as_it_was(job, stores, together):
    keys = [b"%04d" % n for n in range(1000)]
    assert write(together, stores, b"before", keys) == [None] * N
    with closing(RedisView(job.of_shard(1))) as view:
        for _ in range(2):
            assert write(together, stores, b"after", keys[::2]) == [None] * N
        assert {*dict(view.scan(Family.PAGES)).values()} == {b"before"}
    scan = stores[2].scan(Family.PAGES)
    assert next(scan) == (keys[0], b"after")
    assert write(together, stores, b"last", keys) == [None] * N
    assert {value for _, value in scan} == {b"before", b"after"}
    assert values(stores, keys[1]) == [b"last"] * N


@pytest.mark.parametrize("n_lost", [1, 2])
@pytest.mark.parametrize("has_landed", [True, False])
def test_a_reply_that_is_lost_is_found_out_for_each(stores, together, monkeypatch, has_landed, n_lost):
    assert write(together, stores, b"1") == [None] * N
    tell = Connection.tell
    lost: list[Connection] = []

    def told(link: Connection, *commands: Any) -> Any:
        if commands[0][0] != b"EXEC" or len(lost) == n_lost:
            return tell(link, *commands)
        lost.append(link)
        if has_landed:
            tell(link, *commands)
        link.close()
        raise ConnectionResetError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "tell", told)
        failures = write(together, stores, b"2")
    # The connection may have been dropped while it was not used: that is no failure yet.
    if has_landed or n_lost == 1:
        assert failures == [None] * N
    else:
        assert all("Cannot write to the store" in str(each) for each in failures)
    assert values(stores) == [b"2" if has_landed or n_lost == 1 else b"1"] * N
    assert write(together, stores, b"3") == [None] * N
    for store in stores:
        store.verify()


def test_nobody_reads_until_it_is_known_whether_a_commit_has_landed(stores, together, monkeypatch):
    """Its reply is lost, and it has moved rows to another leaf."""
    keys = [b"%03d" % n for n in range(redis_leaves.MOST_ROWS)]
    for some in (keys, [b"more", b"most"], keys[:1]):  # the next one cuts the leaf
        assert write(together, stores, b"1", some) == [None] * N
    n_leaves = len(stores[0].leaves[Family.PAGES].filled)
    found: list[bytes | None] = []
    reader = threading.Thread(target=lambda: found.extend(values(stores, b"most")))
    tell = Connection.tell

    def told(connection: Connection, *commands: Any) -> Any:
        replies = tell(connection, *commands)
        if commands[0][0] != b"EXEC" or reader.ident is not None:
            return replies
        reader.start()
        reader.join(0.1)  # it waits for longer
        connection.close()
        raise ConnectionResetError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "tell", told)
        assert write(together, stores, b"2", keys[:1]) == [None] * N
    reader.join()
    assert len(stores[0].leaves[Family.PAGES].filled) > n_leaves
    assert found == [b"1"] * N


class Network:
    """Between commits and the server: what happens to each ``EXEC`` is drawn from *fates*, one after another.

    Attributes:
        on_the_way: Connections over which one was sent that the server has not read yet.
    """

    def __init__(self, fates: Iterable[str]) -> None:
        self._fates = iter(fates)
        self._tell = Connection.tell
        self.on_the_way: list[socket] = []

    def tell(self, link: Connection, *commands: Any) -> Any:
        fate = next(self._fates, "") if commands[0][0] == b"EXEC" else ""
        if not fate:
            return self._tell(link, *commands)
        if fate == "reply lost":
            self._tell(link, *commands)
        if fate == "late":
            assert link._socket is not None
            self.on_the_way.append(link._socket)
            link._connection._sock = None  # which stays open
        if fate == "after one that was late" and self.on_the_way:
            self.arrive()
        link.close()
        raise TimeoutError("nobody replied")

    def arrive(self) -> None:
        """What was sent first arrives, and is carried out if it can be."""
        with closing(self.on_the_way.pop(0)) as way:
            way.sendall(b"*1\r\n$4\r\nEXEC\r\n")
            way.settimeout(5)
            said = b"\r\n"
            while not re.search(rb"\r\n\*(\d|-1)", said):
                said += way.recv(1 << 16)


@contextmanager
def network(fates: Iterable[str]) -> Iterator[Network]:
    """The server is reached by a network that treats commits like that."""
    between = Network(fates)

    def tell(link: Connection, *commands: Any) -> Any:
        return between.tell(link, *commands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "tell", tell)
        try:
            yield between
        finally:
            for way in between.on_the_way:
                way.close()


def test_a_commit_that_lands_late_is_not_taken_for_the_next_one(stores, together):
    """It was given up, the next one has more in it, and its reply is lost, too."""
    assert write(together, stores, b"1") == [None] * N
    with network(["late", "lost", "after one that was late"]):
        assert all("Cannot write to" in str(each) for each in write(together, stores, b"2"))
        assert None not in write(together, stores, b"3", (b"key", b"another"))
    assert values(stores) == [b"2"] * N
    failures = write(together, stores, b"4")
    assert all(isinstance(each, LostError) for each in failures)
    assert "has landed late" in str(failures[0])


def test_a_commit_that_lands_late_does_nothing_once_it_was_made_again(stores, together):
    assert write(together, stores, b"1") == [None] * N
    with network(["late"]) as between:
        assert write(together, stores, b"2") == [None] * N
        between.arrive()
    assert values(stores) == [b"2"] * N
    assert write(together, stores, b"3") == [None] * N
    assert values(stores) == [b"3"] * N


class Written:
    """What *store* has if everything is kept that it says.

    Attributes:
        rows: It has these, if nothing has failed since.
        failed: Rows that are to be written once more.
        maybe: It may have these instead of *rows*, because a batch failed.
    """

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.rows: dict[bytes, bytes | None] = {}
        self.failed: dict[bytes, bytes | None] = {}
        self.maybe: list[dict[bytes, bytes | None]] = []

    def is_as_it_may_be(self) -> None:
        found = dict(self.store.scan(Family.PAGES))
        assert found in [
            {key: value for key, value in each.items() if value is not None}
            for each in (self.rows, *self.maybe)
        ]
        self.rows = {**found}
        self.failed, self.maybe = {}, []
        self.store.verify()


@pytest.mark.parametrize("seed", some_of(range(8), 2))
def test_a_batch_is_stored_as_a_whole_or_said_not_to_be(job, monkeypatch, seed):
    """Replies are lost, requests are lost or late, and stores go to somebody else and come back."""
    for name, rows in (("MOST", 6), ("_BULK", 10), ("_CUT", 4), ("_FEW", 2), ("_JOINED", 5)):
        monkeypatch.setattr(redis_leaves, f"{name}_ROWS", rows)
    rng = random.Random(seed)
    fates = ["", "", "", "lost", "reply lost", "late", "after one that was late"]
    with (
        ExitStack() as stack,
        closing(StoreGroup(job)) as together,
        network(iter(lambda: rng.choice(fates), None)) as between,
    ):

        def open_(number: int) -> RedisStore:
            return stack.enter_context(
                closing(RedisStore(job.of_shard(number), is_one_of_many=True, group=together))
            )

        shards = [Written(open_(number)) for number in range(N)]
        for step in range(100):
            some = rng.sample(range(N), rng.randrange(1, N + 1))
            batches = []
            for shard in (shards[number] for number in some):
                keys = rng.sample([b"%02d" % n for n in range(40)], rng.randrange(8))
                shard.failed = shard.failed | {key: rng.choice((None, b"%d" % step)) for key in keys}
                batches.append((shard.store, {Family.PAGES: shard.failed}))
            for number, failure in zip(some, together.write(batches), strict=True):
                shard = shards[number]
                if failure is None:
                    shard.maybe = [shard.rows | shard.failed]
                    shard.rows = shard.maybe[0]
                    shard.is_as_it_may_be()
                    continue
                shard.maybe.append(shard.rows | shard.failed)
                if isinstance(failure, LostError) or rng.random() < 0.1:
                    shard.store.close()
                    shard.store = open_(number)
                    shard.is_as_it_may_be()
            if between.on_the_way and rng.random() < 0.2:
                between.arrive()


def test_stores_come_and_go_between_commits(server, job, stores, together):
    assert write(together, stores, b"1") == [None] * N
    stores[0].close()
    with requests() as found:
        assert write(together, stores[1:], b"2") == [None] * (N - 1)
    assert len(found) == 1
    with redis.Redis.from_url(server.url) as client:
        client.delete(stores[1].keys.owner)  # its lock expires
    with (
        closing(StoreGroup(job)) as others,
        closing(RedisStore(job.of_shard(0), is_one_of_many=True, group=others)) as handed_over,
        closing(RedisStore(job.of_shard(1), is_one_of_many=True, group=others)) as taken,
    ):
        assert write(others, [handed_over, taken], b"3") == [None] * 2
        failures = write(together, stores, b"4")
        assert "is closed" in str(failures[0])
        assert isinstance(failures[1], LostError)
        assert failures[2] is None
        assert write(others, [handed_over, taken], b"5") == [None] * 2
        assert values([handed_over, taken, stores[2]]) == [b"5", b"5", b"4"]
    back = RedisStore(job.of_shard(0), is_one_of_many=True, group=together)
    with closing(back):
        for n in (6, 7):
            assert write(together, [back, stores[2]], b"%d" % n) == [None] * 2
        with requests() as found:
            assert write(together, [back, stores[2]], b"8") == [None] * 2
        assert len(found) == 1
        assert values([back, stores[2]]) == [b"8"] * 2


def test_a_server_that_was_restarted_is_no_longer_that_of_any(tmp_path):
    with Server(tmp_path, appendfsync="always") as own:
        job = Address("job", own.url)
        with closing(StoreGroup(job)) as together, opened(job, together) as stores:
            assert write(together, stores, b"1") == [None] * N
            own.kill()
            assert all(isinstance(each, StorageError) for each in write(together, stores, b"2"))
            own.start()
            assert all(isinstance(each, LostError) for each in write(together, stores, b"2"))
            again = [
                RedisStore(job.of_shard(number), is_one_of_many=True, group=together) for number in (7, 8)
            ]
            # Of both runs: those of the run that is there are stored.
            failures = write(together, [stores[0], *again], b"3")
            assert isinstance(failures[0], LostError)
            assert failures[1:] == [None] * 2
            assert values(again) == [b"3"] * 2
            for store in again:
                store.close()


def test_a_server_that_has_no_memory_left_takes_nothing_of_any(tmp_path):
    with Server(tmp_path) as own:
        job = Address("job", own.url)
        with (
            closing(StoreGroup(job)) as together,
            opened(job, together) as stores,
            redis.Redis.from_url(own.url) as client,
        ):
            assert write(together, stores, b"1") == [None] * N
            client.config_set("maxmemory", 1)
            failures = write(together, stores, b"2")
            assert all("no memory left" in str(each) for each in failures)
            client.config_set("maxmemory", 0)
            assert values(stores) == [b"1"] * N
            assert write(together, stores, b"2") == [None] * N


def test_a_connection_that_breaks_between_two_commits_is_made_again(server):
    with Proxy(server.port) as between:
        job = Address(os.urandom(6).hex(), between.url, lock_timeout=60.0)
        with closing(StoreGroup(job)) as together, opened(job, together) as stores:
            assert write(together, stores, b"1") == [None] * N
            between.cut()
            between.heal()
            assert write(together, stores, b"2") == [None] * N
            assert values(stores) == [b"2"] * N


@pytest.mark.parametrize("seed", some_of(range(6)))
def test_a_random_walk_agrees_with_dicts(job, monkeypatch, seed):
    """Over leaves so small that nearly every commit cuts and joins some; stores take part or not, and are opened again."""
    for name, rows in (("MOST", 6), ("_BULK", 10), ("_CUT", 4), ("_FEW", 2), ("_JOINED", 5)):
        monkeypatch.setattr(redis_leaves, f"{name}_ROWS", rows)
    rng = random.Random(seed)
    families = (Family.PAGES, Family.QUEUE)
    keys = [b"%02d" % n for n in range(80)]
    models: list[dict[Family, dict[bytes, bytes]]] = [{family: {} for family in families} for _ in range(N)]
    for _ in range(4):
        with closing(StoreGroup(job)) as together, opened(job, together) as stores, ExitStack() as views:
            for step in range(60):
                numbers = rng.sample(range(N), rng.randrange(1, N + 1))
                batches = []
                for number in numbers:
                    changes: dict[Family, dict[bytes, bytes | None]] = {
                        family: {
                            key: rng.choice((None, b"%d" % step))
                            for key in rng.sample(keys, rng.randrange(12))
                        }
                        for family in families
                    }
                    batches.append((stores[number], changes))
                    change(models[number], changes)
                if len(batches) == 1 and rng.random() < 0.5:
                    stores[numbers[0]].write(batches[0][1], sync=True)
                else:
                    assert together.write(batches) == [None] * len(batches)
                if rng.random() < 0.05:
                    view = views.enter_context(closing(RedisView(job.of_shard(rng.randrange(N)))))
                    views.callback(same, view, dict(view.scan(Family.PAGES)))
            for store, model in zip(stores, models, strict=True):
                for family in families:
                    assert dict(store.scan(family)) == model[family]
                store.verify()


def change(model: dict[Family, dict[bytes, bytes]], changes: dict[Family, dict[bytes, bytes | None]]) -> None:
    for family, rows in changes.items():
        for key, value in rows.items():
            if value is None:
                model[family].pop(key, None)
            else:
                model[family][key] = value


def same(view: RedisView, rows: dict[bytes, bytes]) -> None:
    assert dict(view.scan(Family.PAGES)) == rows
