"""A shard whose store is lost begins anew, and the cash of the job is whole, whatever had been heard of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_crawl import NOW
from support.core_shards import ShardedJob, hosts_of, link
from support.naming import case

from scrapy_aopic.core.layout import Family
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.shard import ShardId
from scrapy_aopic.core.shards.rebuilt_mail import LostShard, start_lost_shard
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

OF = 3


def crawl(job: ShardedJob, number: int, rng: random.Random) -> None:
    """A visit in a shard, if it has a page, with links to all shards."""
    if job.shards[number].counts.queued:
        job.visit(number, *(link(host, rng.randrange(9)) for host in rng.sample(HOSTS, 4)))


HOSTS = [host for number in range(OF) for host in hosts_of(number, OF, 3)]


def known_of(job: ShardedJob, lost: int) -> LostShard:
    """What a server knows of a shard that has shown its last commit, and to which others have shown theirs."""
    got_last, got_units = job.shards[lost].mail.received_landed(), job.shards[lost].mail.units_landed()[1]
    sent, letters = {}, {}
    for number, shard in enumerate(job.shards):
        if last := shard.mail.received_landed().get(lost, 0):
            sent[number] = last, shard.mail.units_landed()[1][lost]
        if number in job.shards[lost].mail.waiting():
            found = job.shards[lost].letters(number, last, 1000)
            letters[number] = found
    return LostShard({sender: (last, got_units[sender]) for sender, last in got_last.items()}, sent, letters)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**9), n_before=st.integers(0, 12), n_after=st.integers(0, 4), kept=st.integers(0, 3)
)
def test_cash_is_whole_whatever_was_not_heard(seed, n_before, n_after, kept):
    rng = random.Random(seed)
    job = ShardedJob(OF)
    for host in HOSTS[::2]:
        job.shard_of(link(host)).seed(link(host), job.now)
    job.commit()
    for _ in range(n_before):
        crawl(job, rng.randrange(OF), rng)
        job.commit(rng.randrange(OF))
        if rng.random() < 0.5:
            job.carry()
        if rng.random() < 0.3:
            job.acknowledge()
    lost = rng.randrange(OF)
    job.commit()
    known = known_of(job, lost)
    # Letters that were written, but had no room on the server, are unknown: their cash stays with the shard.
    known = LostShard(known.got, known.sent, {to: some[:kept] for to, some in known.letters.items()})
    for _ in range(n_after):  # it is heard of no more
        crawl(job, lost, rng)
        job.commit(lost)
    job.stores[lost] = MemoryStore()
    job.stores[lost].write(
        start_lost_shard(ShardId(lost, OF), known, job.policy, job.now, job.stores[lost]), sync=True
    )
    job.reopen(lost)
    job.check()
    assert not job.shards[lost].was_clean, "its hosts are left alone as after a crash"
    job.exchange()
    assert sum(shard.ledger.totals.whole for shard in job.shards) == OF * TOTAL


def test_a_shard_of_which_nothing_was_heard_begins_like_a_new_one():
    store = MemoryStore()
    store.write(start_lost_shard(ShardId(1, 2), LostShard(), Policy(), NOW, store), sync=True)
    job = ShardedJob(2)
    job.stores[1] = store
    job.reopen(1)
    job.shards[0].seed(link(hosts_of(1, 2, 1)[0]), NOW)
    job.exchange()
    assert job.shards[1].counts.queued == 1
    assert job.shards[1].ledger.totals.whole == TOTAL


def test_what_contradicts_itself_is_refused():
    for known, said in [
        (LostShard(sent={1: (3, TOTAL + 1)}), "has sent .* units more than it received"),
        (LostShard(letters={1: [b"x"]}), "letter"),
    ]:
        with case(known, said), pytest.raises(StorageError, match=said):
            start_lost_shard(ShardId(0, 2), known, Policy(), NOW, MemoryStore())


def test_a_letter_with_another_number_is_refused():
    job = ShardedJob(2)
    job.shards[0].seed(link(hosts_of(1, 2, 1)[0]), NOW)
    job.commit()
    letters = job.shards[0].letters(1)
    with pytest.raises(StorageError, match="is not number 6"):
        start_lost_shard(
            ShardId(0, 2), LostShard(sent={1: (5, 0)}, letters={1: letters}), job.policy, NOW, MemoryStore()
        )
    assert Family.META in start_lost_shard(
        ShardId(0, 2), LostShard(letters={1: letters}), job.policy, NOW, MemoryStore()
    )
