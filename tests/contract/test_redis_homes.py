"""Which folder has which shard, by a server, and who may show what it is like."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from support import redis_server

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.shards.cut import ShardId
from scrapy_aopic.exceptions import InUseError, LostError
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.folder_workers import await_end, registry_of
from scrapy_aopic.storage.homes import assign, claim, read_homes, read_lost_shard
from scrapy_aopic.storage.redis.connection import Connection
from scrapy_aopic.storage.redis.mailboxes import PostedLetter
from scrapy_aopic.storage.redis.sharding import Sharding, begin
from scrapy_aopic.storage.redis.worker_registry import ShardState, WorkerRegistry
from scrapy_aopic.view.auditing import audit_books
from scrapy_aopic.view.text_report import format_audit

redis = redis_server.needed()

CUT = Sharding(6, "list", 3)


@pytest.fixture
def address(server) -> Address:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    address = Address("job", server.url, lock_timeout=2.0)
    begin(address, CUT, lambda: None)
    return address


def state(worker: str, number: int, **units: dict[int, int]) -> ShardState:
    sent, got = units.get("sent", {}), units.get("got", {})
    lasts = (dict.fromkeys(sent, 2), dict.fromkeys(got, 1))
    return ShardState(f"token {number}", worker, True, [0] * 6, *lasts, [1, 2, 3, 4], sent, got)


def worker_of(address: Address, name: str, path: str = "") -> WorkerRegistry:
    """A worker with the folder called *name*."""
    return registry_of(address, CUT, {}, name, path or f"m:/{name}")


def test_the_first_folders_share_all_shards_and_keep_them(address):
    assert claim(address, CUT, "a", "m:/a", ()).of == {0: "a", 1: "a"}
    assert claim(address, CUT, "b", "m:/b", ()).of == {0: "a", 1: "a", 2: "b", 3: "b"}
    claim(address, CUT, "c", "m:/c", ())
    assert "d" not in claim(address, CUT, "d", "m:/d", ()).of.values()
    homes = claim(address, CUT, "a", "m:/moved", (0, 1, 2, 4))
    assert homes.of[4] == "c", "what lies in a folder that is not the home does not count"
    assert homes.where([0]) == "at home in m:/moved (a)"
    assert homes.where([9]) == "at home in no folder yet"


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
            assert claim(address, CUT, "b", "m:/b", ()).of == dict.fromkeys((0, 1), "b")
        return transact(link, *commands)

    monkeypatch.setattr(Connection, "watch", watched)
    monkeypatch.setattr(Connection, "transact", transacted)
    assert claim(address, CUT, "a", "m:/a", ()).of == {0: "b", 1: "b", 2: "a", 3: "a"}


def test_a_server_that_has_lost_all_homes_learns_them_from_the_folders(address):
    assert claim(address, CUT, "b", "m:/b", (3, 4)).of == {3: "b", 4: "b"}
    assert claim(address, CUT, "a", "m:/a", (0,)).of == {0: "a", 3: "b", 4: "b"}


def test_of_a_folder_and_its_copy_only_one_is_crawled(address):
    with closing(worker_of(address, "a")) as first, closing(worker_of(address, "a", "m:/copy")) as second:
        first.read({})
        with pytest.raises(InUseError, match=r"The folder m:/a is in use: .*, of which m:/copy has a copy"):
            await_end(second, {"a"}, 0.2, "m:/copy")
        await_end(second, {"a"}, 0.2, "m:/a")
        await_end(second, {"b"}, 0.2)
        first.leave()
        await_end(second, {"a"}, 0.2, "m:/copy")


def test_a_worker_that_was_silent_for_too_long_shows_nothing_more(address, monkeypatch):
    with closing(worker_of(address, "a")) as registry:
        registry.exchange({0: state(registry.token, 7)}, [], [], {})
        now = registry._now()
        monkeypatch.setattr(registry, "_now", lambda: now + address.lock_timeout + 0.1)
        with pytest.raises(LostError, match=r"The shards in m:/a are no longer this process's"):
            registry.exchange({0: state(registry.token, 8)}, [], [], {})
        assert registry.is_over
    with closing(registry_of(address, CUT)) as looker:
        assert looker.read({}, joins=False).heads[0] == "token 7"


def test_who_looks_sees_what_workers_have_that_live(address):
    with closing(worker_of(address, "a")) as one, closing(worker_of(address, "b")) as other:
        one.exchange({0: state(one.token, 7)}, [], [], {})
        other.exchange({1: state(other.token, 8)}, [], [], {})
        look = one.read({})
        assert look.is_owned == [False, True, *[False] * 4], "the own ones say their locks"
        assert look.boxes == {1: other.token}
        other.leave()
        look = one.read({})
        assert look.is_owned[1] is False
        assert look.boxes == {}, "what is for a folder that is away waits with its sender"


def test_traces_of_a_lost_shard_are_what_others_have_heard(address):
    with closing(worker_of(address, "a")) as one, closing(worker_of(address, "b")) as other:
        other.exchange({3: state(other.token, 9, got={0: 30})}, [], [], {})
        one.read({})  # to know who is where
        letters = [(3, PostedLetter(0, number, b"%d" % number)) for number in (2, 3, 5)]
        one.post({0: state(one.token, 7, sent={3: 50}, got={4: 40})}, letters, [])
        assign(address, [0], "c", "m:/c", anew=True)
        known, own, awaited = read_lost_shard(address, ShardId(0, 6), [other.token])
        assert (known.got, known.sent, known.letters) == ({4: (1, 40)}, {3: (1, 30)}, {3: [b"2", b"3"]})
        assert own is not None
        assert own.counts == [1, 2, 3, 4]
        assert awaited == []
        assert read_lost_shard(address, ShardId(0, 6), [])[2] == [3], (
            "it may have applied more than it has shown"
        )
        assert read_lost_shard(address, ShardId(2, 6), [other.token])[1:] == (None, [])
        assign(address, [3], "c", "m:/c", anew=True)
        assert read_lost_shard(address, ShardId(0, 6), [])[2] == [], "nobody will ever know more"


def test_a_shard_is_assigned_and_may_begin_anew(address):
    claim(address, CUT, "a", "m:/a", ())
    with closing(worker_of(address, "a")) as registry:
        registry.post({0: state(registry.token, 7), 1: state(registry.token, 5)}, [], [])
    assign(address, [0], "b", "m:/b")
    assert read_homes(address).of[0] == "b"
    assert read_homes(address).anew == {}
    assign(address, [0, 1], "c", "m:/c", anew=True)
    homes = read_homes(address)
    assert (homes.of[0], homes.of[1], homes.anew) == ("c", "c", {0: 7, 1: 5})


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
