"""What the shards of a job on a server see of each other."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from support import redis_server
from support.redis_server import Server

from scrapy_aopic.core.ports import Family
from scrapy_aopic.exceptions import LostError, StorageError, UnreachableError
from scrapy_aopic.storage import Address
from scrapy_aopic.storage.opening import open_store_at
from scrapy_aopic.storage.redis.connect import connect
from scrapy_aopic.storage.redis.mailboxes import PostedLetter
from scrapy_aopic.storage.redis.sharding import Sharding, begin, read_sharding
from scrapy_aopic.storage.redis.worker_registry import ClusterState, ShardState, WorkerRegistry
from scrapy_aopic.view.shard_states import ShardStates

redis = redis_server.needed()


@pytest.fixture
def address(server) -> Address:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return Address("job", server.url, lock_timeout=2.0)


def state(
    head: str = "h",
    *,
    is_idle: bool = True,
    sent: dict[int, int] | None = None,
    got: dict[int, int] | None = None,
) -> ShardState:
    return ShardState(head, "worker", is_idle, [0] * 6, sent or {}, got or {}, [0] * 4)


def test_a_job_is_quiet_when_no_shard_has_work_and_no_letter_is_on_its_way():
    for states, is_quiet in [
        ({0: state(), 1: state()}, True),
        ({0: state()}, False),  # one was never opened
        ({0: state(), 1: state("older")}, False),  # it has made a commit since
        ({0: state(), 1: state(is_idle=False)}, False),
        ({0: state(sent={1: 3}), 1: state(got={0: 3})}, True),
        ({0: state(sent={1: 3}), 1: state(got={0: 2})}, False),
        ({0: state(sent={1: 3}), 1: state()}, False),
        # As many were sent as were received, but not the same ones.
        ({0: state(sent={1: 3}, got={1: 1}), 1: state(sent={0: 2}, got={0: 4})}, False),
    ]:
        cluster = ClusterState(0.0, {}, states, ["h", "h"], [True, True])
        assert cluster.is_quiet is is_quiet, states


def test_shards_of_workers_with_one_name_are_counted_by_worker():
    """Containers may have the same host name and the same number of the process."""
    workers = {token: {"host": "crawler", "pid": 1, "since": 0.0} for token in ("a", "b", "c")}
    states = {number: state()._replace(worker=token) for number, token in enumerate("aabab")}
    is_owned = [True, True, True, True, False, True]  # the last one was never committed
    cluster = ClusterState(9.0, workers, states, ["h"] * 6, is_owned)
    shown = ShardStates(Address("job"), Sharding(6, "list"), cluster)
    rows = [(row.worker, row.shards, row.seconds) for row in shown.worker_rows()]
    assert rows == [("crawler:1", 3, 9), ("crawler:1", 1, 9), ("crawler:1", 0, 9)]
    assert shown.workers() == [*["crawler:1"] * 4, "", "a worker"]


def test_one_of_several_processes_makes_a_job(address):
    prepared, began = [], []

    def make() -> None:
        began.append(begin(address, Sharding(4, "list"), lambda: prepared.append(1)))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (prepared, sorted(began)) == ([1], [False] * 7 + [True])
    assert read_sharding(address) == Sharding(4, "list")


def test_who_fails_to_make_a_job_leaves_it_to_others(address):
    def fail() -> None:
        raise StorageError("no seeds")

    with pytest.raises(StorageError, match="no seeds"):
        begin(address, Sharding(4, "list"), fail)
    assert read_sharding(address) is None
    assert begin(address, Sharding(4, "list"), lambda: None)


def test_letters_come_once_to_who_has_opened_a_shard_and_again_to_the_next(address):
    begin(address, Sharding(2, "list"), lambda: None)
    with closing(WorkerRegistry(address, 2)) as one, closing(WorkerRegistry(address, 2)) as other:
        letters = [PostedLetter(0, number, b"text %d" % number) for number in (1, 2, 10)]
        other.exchange({1: state()._replace(worker=other.token)}, [], [], {1: 1})
        assert one.read({0: 1}).boxes == {1: other.token}
        one.post({0: state(sent={1: 10})}, [(1, letter) for letter in letters], [])
        assert one.read({0: 1}).letters == {}
        found = other.read({1: 1})
        assert found.letters == {1: letters}
        assert found.states[0] == state(sent={1: 10})
        assert other.read({1: 1}).letters == {}, "they were brought"
        assert other.read({1: 2}).letters == {1: letters}, "it was opened anew, and may have forgotten them"
        other.post({}, [], [(1, [(0, 1), (0, 2)])])
        assert other.read({1: 3}).letters == {1: letters}, "they go with the bundle that they came in"
        other.post({}, [], [(1, [(0, 1), (0, 2), (0, 10)])])
        assert other.read({1: 4}).letters == {}


def test_a_look_reads_what_was_shown_since_the_last_one(address, monkeypatch):
    begin(address, Sharding(40, "list"), lambda: None)
    with closing(WorkerRegistry(address, 40)) as one, closing(WorkerRegistry(address, 40)) as other:
        shown = {number: state(f"h {number}") for number in range(40)}
        one.exchange(shown, [], [], {})
        assert other.read({}).states == shown
        read, exchange = [], other._connection._exchange
        monkeypatch.setattr(
            other._connection,
            "_exchange",
            lambda commands: (read.extend(replies := exchange(commands)), replies)[1],
        )
        for number in (7, 8):
            shown[number] = state("news")
            one.exchange({number: shown[number]}, [], [], {})
        assert other.read({}).states == shown
        assert repr(read).count("worker") < 10, "of 40 states two are new"
        for n in range(100):  # more than the log keeps
            shown[n % 40] = state(f"news {n}")
            one.exchange({n % 40: shown[n % 40]}, [], [], {})
        assert other.read({}).states == shown
        with redis.Redis.from_url(address.url) as client:
            client.delete("{job}:log", "{job}:logged", "{job}:states")
        assert other.read({}).states == {}, "the server has lost them"
        one.exchange(shown, [], [], {})
        assert other.read({}).states == shown


@pytest.mark.slow
def test_a_worker_that_says_nothing_is_taken_for_dead(address):
    begin(address, Sharding(2, "list"), lambda: None)
    with closing(WorkerRegistry(address, 2)) as one, closing(WorkerRegistry(address, 2)) as other:
        one.read({})
        assert list(other.read({}).workers) == [one.token, other.token]
        while one.token in other.read({}).workers:
            pass
        assert list(other.read({}).workers) == [other.token]
        one.read({})
        assert one.token in other.read({}).workers
        one.leave()
        assert one.token not in other.read({}).workers


def test_what_is_pinned_ends_with_the_run_of_the_server(tmp_path):
    # A server that was restarted may have lost its last second, and what others said in it.
    with Server(tmp_path, appendfsync="always") as server:
        address = Address("job", server.url, lock_timeout=30.0)
        begin(address, Sharding(2, "list"), lambda: None)
        link = connect(address)
        with closing(link), closing(WorkerRegistry(address, 2)) as registry:
            run = link.pin()
            assert registry.read({}).run == registry.run == run
            with redis.Redis.from_url(server.url) as client:
                client.client_kill_filter(_type="normal", skipme=True)
            assert link.ask((b"PING",)) == [b"PONG"], "a connection that broke is made again"
            store = open_store_at(address.of_shard(0), is_one_of_many=True)
            server.kill()
            server.start()
            for _ in range(2):
                with pytest.raises(LostError, match="was restarted"):
                    link.ask((b"PING",))
                with pytest.raises(LostError, match="was restarted"):
                    store.get_many(Family.META, [b"any"])
                with pytest.raises(LostError, match="was restarted"):
                    registry.post({0: state()}, [], [])
            registry.begin_anew()
            assert registry.read({}).run == registry.run != run
            link.unpin()
            assert link.ask((b"PING",)) == [b"PONG"]
            store.close()
            assert registry.read({}).is_owned == [False, False], "its lock is given back all the same"


def test_a_server_that_does_not_say_which_run_it_is_may_be_any(address, server):
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "crawler", "on", ">secret", "~*", "+@all", "-info")
    url = server.url.replace("//", "//crawler:secret@")
    with closing(connect(Address("job", url))) as link:
        link.pin()
        assert link.ask((b"PING",)) == [b"PONG"]
        link.close()
        with pytest.raises(LostError):
            link.ask((b"PING",))


def test_a_letter_is_brought_again_if_the_connection_broke_before_it_was_read(address, monkeypatch):
    begin(address, Sharding(2, "list"), lambda: None)
    with closing(WorkerRegistry(address, 2)) as registry:
        letter = PostedLetter(0, 1, b"letter")
        registry.exchange({1: state()._replace(worker=registry.token)}, [], [], {})
        registry.post({}, [(1, letter)], [])
        ask = registry._connection.ask

        def breaks(*commands):
            ask(*commands)
            raise UnreachableError("the connection broke")

        monkeypatch.setattr(registry._connection, "ask", breaks)
        with pytest.raises(UnreachableError):
            registry.read({1: 1})
        monkeypatch.undo()
        assert registry.read({1: 1}).letters == {1: [letter]}
        assert registry.read({1: 1}).letters.get(1, []) == []
