"""Which folder has which shard, by a server, and who may show what it is like."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from support import redis_server

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.exceptions import LostError, StorageError
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.disk_workers import InHomes, assign, claim, read_homes, read_lost_shard, registry_of
from scrapy_aopic.storage.redis.connection import Connection
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.mailboxes import PostedLetter
from scrapy_aopic.storage.redis.server_lock import ServerLock
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.storage.redis.worker_registry import ShardState, WorkerRegistry
from scrapy_aopic.view.auditing import audit_books
from scrapy_aopic.view.text_report import format_audit

if redis_server.find_server() is None:
    pytest.skip(redis_server.WHY_NOT, allow_module_level=True)
pytest.importorskip("hiredis")
redis = pytest.importorskip("redis")

CUT = Sharding(5, "list", 2)


@pytest.fixture
def address(server) -> Address:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    address = Address("job", server.url, lock_timeout=2.0)
    begin(address, CUT, lambda: None)
    return address


def state(number: int, **units: dict[int, int]) -> ShardState:
    sent, got = units.get("sent", {}), units.get("got", {})
    lasts = (dict.fromkeys(sent, 2), dict.fromkeys(got, 1))
    return ShardState(f"token {number}", "worker", True, [0] * 6, *lasts, [1, 2, 3, 4], sent, got)


def lock_of(address: Address, name: str) -> ServerLock:
    return ServerLock(address.of_home(name), Keys(address.of_home(name)), task="crawl")


def test_the_first_folders_share_all_shards_and_keep_them(address):
    assert claim(address, CUT, "a", "m:/a", ()).of == dict.fromkeys((0, 1, 2), "a")
    assert claim(address, CUT, "b", "m:/b", ()).of == {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}
    assert claim(address, CUT, "c", "m:/c", ()).of == {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}
    homes = claim(address, CUT, "a", "m:/moved", (0, 1, 2, 4))
    assert homes.of[4] == "b", "what lies in a folder that is not the home does not count"
    assert homes.place(0) == "m:/moved (a)"
    assert homes.place(9) == "no folder yet"


def test_a_claim_whose_connection_breaks_does_not_overrun_another_one(address, monkeypatch):
    watch, transact = Connection.watch, Connection.transact
    to_break, to_pass = [1], [1]

    def watched(link: Connection, *keys: bytes) -> None:
        watch(link, *keys)
        if to_break:
            to_break.pop()
            link.close()

    def transacted(link: Connection, *commands: Any) -> Any:
        if to_pass:
            to_pass.pop()
            assert claim(address, CUT, "b", "m:/b", ()).of == dict.fromkeys((0, 1, 2), "b")
        return transact(link, *commands)

    monkeypatch.setattr(Connection, "watch", watched)
    monkeypatch.setattr(Connection, "transact", transacted)
    assert claim(address, CUT, "a", "m:/a", ()).of == {0: "b", 1: "b", 2: "b", 3: "a", 4: "a"}


def test_a_server_that_has_lost_all_homes_learns_them_from_the_folders(address):
    assert claim(address, CUT, "b", "m:/b", (3, 4)).of == {3: "b", 4: "b"}
    assert claim(address, CUT, "a", "m:/a", (0,)).of == {0: "a", 3: "b", 4: "b"}


def test_only_the_lease_that_was_taken_last_shows_anything(address):
    claim(address, CUT, "a", "m:/a", ())
    claim(address, CUT, "b", "m:/b", ())
    with closing(lock_of(address, "a")) as lock:
        with pytest.raises(StorageError, match=r"home a\) is in use"):
            lock_of(address, "a")
        with closing(WorkerRegistry(address, 5, InHomes(address, 5, lock, "a"))) as registry:
            registry.read({})  # to know who is where
            registry.post({0: state(7)}, [(4, PostedLetter(0, 1, b"x"))], [])
            look = registry.read({0: 1})
            assert (look.heads[0], look.is_owned) == ("token 7", [True, True, True, False, False])
            assert look.boxes == {}, "what is for a folder that is away waits with its sender"
            with redis.Redis.from_url(address.url) as client:
                client.delete("{job}:ha:owner")  # its time has passed
            with (
                closing(lock_of(address, "a")),
                pytest.raises(LostError, match="another process has opened it"),
            ):
                registry.post({0: state(8)}, [(4, PostedLetter(0, 2, b"y"))], [])
    with closing(registry_of(address, CUT)) as registry:
        assert registry.read({}, joins=False).heads[0] == "token 7"
        with pytest.raises(StorageError, match="Only a worker with a lock"):
            registry.post({0: state(9)}, [], [])
    assert [*read_lost_shard(address, CUT, 0).letters.values()] == [[b"x"]]


def test_traces_of_a_lost_shard_are_what_others_have_heard(address):
    claim(address, CUT, "a", "m:/a", ())
    claim(address, CUT, "b", "m:/b", ())
    with closing(lock_of(address, "a")) as one, closing(lock_of(address, "b")) as other:
        with closing(WorkerRegistry(address, 5, InHomes(address, 5, one, "a"))) as registry:
            registry.read({})
            letters = [(3, PostedLetter(0, number, b"%d" % number)) for number in (2, 3, 5)]
            registry.post({0: state(7, sent={3: 50}, got={4: 40})}, letters, [])
        with closing(WorkerRegistry(address, 5, InHomes(address, 5, other, "b"))) as registry:
            registry.read({})
            registry.post({3: state(9, got={0: 30})}, [(0, PostedLetter(3, 1, b"z"))], [])
    record = read_lost_shard(address, CUT, 0)
    assert record.got == {4: (1, 40)}
    assert record.sent == {3: (1, 30)}
    assert record.letters == {3: [b"2", b"3"]}
    assert record.state is not None
    assert record.state.counts == [1, 2, 3, 4]
    assert read_lost_shard(address, CUT, 2).state is None


def test_who_may_have_heard_more_of_a_lost_shard_is_awaited(address):
    claim(address, CUT, "a", "m:/a", ())
    claim(address, CUT, "b", "m:/b", ())
    with (
        closing(lock_of(address, "a")) as lock,
        closing(WorkerRegistry(address, 5, InHomes(address, 5, lock, "a"))) as registry,
    ):
        registry.read({})
        sent = {1: 50, 2: 50, 3: 50, 4: 50}  # letters 1 and 2 to each
        states = {other: state(7, got={0: 30}) for other in (1, 2, 3)}
        letters = [(3, PostedLetter(0, 2, b"x"))]
        registry.post({0: state(7, sent=sent), **states}, letters, [])
        assign(address, [0], "c", "m:/c", anew=True)
        # Of 3 the server has what it may have heard, and 4 was never open.
        assert read_lost_shard(address, CUT, 0).unsure == {1: "worker", 2: "worker"}
        registry.post({1: state(8, got={0: 50})}, [], [])
        record = read_lost_shard(address, CUT, 0)
        assert (record.unsure, record.sent[1]) == ({2: "worker"}, (1, 50))
    assign(address, [2], "c", "m:/c", anew=True)
    assert read_lost_shard(address, CUT, 0).unsure == {}, "nobody will ever know more"


def test_a_shard_is_assigned_and_may_begin_anew(address):
    claim(address, CUT, "a", "m:/a", ())
    with (
        closing(lock_of(address, "a")) as lock,
        closing(WorkerRegistry(address, 5, InHomes(address, 5, lock, "a"))) as registry,
    ):
        registry.post({0: state(7)}, [], [])
    assign(address, [0], "b", "m:/b")
    assert read_homes(address).of[0] == "b"
    assert read_homes(address).anew == {}
    assign(address, [0, 1], "c", "m:/c", anew=True)
    homes = read_homes(address)
    assert (homes.of[0], homes.of[1], homes.anew) == ("c", "c", {0: 7, 1: 0})


def held(cash: int, sent: dict[int, tuple[int, int]], got: dict[int, tuple[int, int]]) -> ShardState:
    """The state of a shard with *cash* and a book of numbers and units."""
    lasts = [{shard: each[0] for shard, each in book.items()} for book in (sent, got)]
    units = [{shard: each[1] for shard, each in book.items()} for book in (sent, got)]
    return ShardState("h 1", "w", True, [0, 0, 0, 0, 5, cash - 5], *lasts, [1, 2, 3, 4], *units)


def test_books_are_audited():
    for states, said in [
        ({}, ""),
        ({0: held(TOTAL - 9, {1: (2, 9)}, {}), 1: held(TOTAL + 4, {}, {0: (1, 4)})}, ""),
        ({0: held(TOTAL - 9, {1: (2, 9)}, {})}, ""),
        ({0: held(TOTAL - 8, {1: (2, 9)}, {})}, "shard 0: it holds"),
        ({0: held(TOTAL - 9, {1: (2, 9)}, {}), 1: held(TOTAL + 4, {}, {0: (2, 4)})}, "2 letters from shard 0, of 2, and 5"),
        ({0: held(TOTAL - 3, {1: (1, 3)}, {}), 1: held(TOTAL + 4, {}, {0: (2, 4)})}, "2 letters from shard 0, of 1, and -1"),
        ({1: held(TOTAL + 4, {}, {0: (2, 4)})}, "and of 0 letters between them is"),
    ]:  # fmt: skip
        result = audit_books(states, 2)
        assert bool(said) != result.holds, (states, said)
        assert said in format_audit(result), (states, said)
