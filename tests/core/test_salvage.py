"""A job is damaged in every way: what can be read of it is in a new one, which is whole, and fetches nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from support.core_crawl import NOW, Job, link
from support.core_shards import ShardedJob, hosts_of

from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_damaged_totals, read_totals
from scrapy_aopic.core.damaged import DamagedStore
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.focus.harvest import Harvest, read_harvest
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.layout import (
    BRANCHES,
    DIRECTORIES,
    HARVEST_KEY,
    KEYS_KEY,
    OUTBOX,
    OUTSIDERS,
    SEEDS_KEY,
    SHARED_GATES,
    SHARES,
    STRATEGY_KEY,
    TOTALS_KEY,
    URL_KEYS,
)
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.order import order_name
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, TransferResult
from scrapy_aopic.core.ports import Family, Store, StorePart
from scrapy_aopic.core.records import (
    HOST_BYTES,
    HostRecord,
    Link,
    Page,
    PageState,
    host_key,
    pack,
    pack_host,
    pack_page,
    unpack_host,
)
from scrapy_aopic.core.revisits import Recrawl, Version, rounds
from scrapy_aopic.core.revisits.rounds import Round
from scrapy_aopic.core.salvage import Salvage, Salvaged, together
from scrapy_aopic.core.shard import Shard
from scrapy_aopic.core.shards.all_shards import audit_shards
from scrapy_aopic.core.shards.cut import WHOLE, Cut, ShardId
from scrapy_aopic.core.shards.spread import counts_of
from scrapy_aopic.core.splitting import Splitting
from scrapy_aopic.core.walk import read_page
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

N = 60
POLICY = Policy(max_active=3, keep_links=True, directory_of=lambda request: request[:3])


def make(*, recrawl: bool = False, domain_of: Callable[[str], str] = str) -> MemoryStore:
    """A job with visited, queued and failed pages, some merged into others, and hosts of every kind."""
    how = {"max_active": 3, "keep_links": True, "directory_of": POLICY.directory_of, "domain_of": domain_of}
    job = Job(recrawl=Recrawl(share=0.3) if recrawl else None, **how)
    job.seed(*(link(f"h{n % 7}", n) for n in range(5)))
    dice = random.Random(5)
    for step in range(30):
        lease = job.lease()
        links = [link(f"h{n % 7}", n, priority=n % 3 - 1) for n in dice.sample(range(N), 4)]
        same_as = link("h0", 0).key if step in (9, 17) else b""
        job.crawl.judge(lease, text_of(b"text %d" % step))
        job.crawl.transferred(lease.host, TransferResult(0.01, Outcome.ANSWER), job.now)
        job.finish(lease, *links, is_failure=step % 6 == 5, version=Version(b"%d" % step), same_as=same_as)
        job.now += 1
    job.crawl.set_crawl_delay("h3", 7.5, job.now)
    job.crawl.transferred("outsider.test", TransferResult(0.01, Outcome.ANSWER), job.now)
    job.crawl.keep_robots(link("h1", 0).key, b"robots of h1")
    job.commit()
    return job.store


def pages_of(store: Store) -> dict[bytes, Page]:
    found = {key: read_page(data) for key, data in store.scan(Family.PAGES)}
    return {key: page for key, page in found.items() if page is not None}


def drop(store: MemoryStore, family: Family, n: int) -> None:
    keys = [key for key, _ in store.scan(family)]
    store.write({family: dict.fromkeys(random.Random(n).sample(keys, min(n, len(keys))))}, sync=True)


def garble(store: MemoryStore) -> None:
    keys = [key for key, _ in store.scan(Family.PAGES)]
    store.write({Family.PAGES: dict.fromkeys(keys[::9], b"\xc1")}, sync=True)


DAMAGES: dict[str, Callable[[MemoryStore], None]] = {
    "none": lambda store: None,
    **{f"rows of {family.name}": lambda store, family=family: drop(store, family, 7) for family in Family},
    **{f"all {family.name}": lambda store, family=family: drop(store, family, 10_000) for family in Family},
    "totals": lambda store: store.write({Family.META: {TOTALS_KEY: b"\x81"}}, sync=True),
    "no records": garble,
}


def salvaged(damaged: Store) -> tuple[MemoryStore, Salvaged]:
    target, source = MemoryStore(), DamagedStore(damaged)
    saved = read_damaged_totals(source.get_many(Family.META, (TOTALS_KEY,))[0])
    host_of = lambda request: request.split(b"/")[0].decode()
    work = Salvage(source, target, POLICY, NOW + 100, saved=saved, host_of=host_of, shard=WHOLE)
    return target, work.run()


def cut(n: int, *damaged: Store, policy: Policy = POLICY) -> tuple[list[MemoryStore], Salvaged]:
    """The same in *n* shards, of a job that is in as many as there are stores."""
    of, targets, rows = len(damaged), [MemoryStore() for _ in range(n)], MemoryStore()
    parts = [StorePart(rows, number) for number in range(n + of)]
    old, new = (Cut(ShardId(0, shards), policy.domain_of, policy.spread) for shards in (of, n))
    splitting = Splitting(parts, old, new)
    for number, store in enumerate(damaged):
        splitting.add(DamagedStore(store), number)
    splitting.finish()
    host_of = lambda request: request.split(b"/")[0].decode()
    found = []
    for number, (part, target) in enumerate(zip(parts, targets, strict=False)):
        saved = read_damaged_totals(part.get_many(Family.META, (TOTALS_KEY,))[0])
        shard = ShardId(number, n)
        work = Salvage(
            DamagedStore(part), target, policy, NOW + 100, saved=saved, host_of=host_of, shard=shard, was=old
        )
        found.append(work.run())
    return targets, together(found)


@pytest.mark.crossed
@pytest.mark.parametrize("recrawl", [False, True], ids=["once", "recrawl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_left_is_cut_into_whole_shards_with_all_that_one_piece_would_have(damage, *, recrawl):
    store = make(recrawl=recrawl)
    branch = BRANCHES + host_key("h1") + bytes(4)
    store.write({Family.META: {SEEDS_KEY: pack({}), branch: pack((3, 1))}}, sync=True)
    DAMAGES[damage](store)
    hosts = {key for key, _ in store.scan(Family.HOSTS)}
    whole, one = salvaged(store)
    shards, result = cut(3, store)
    assert audit_shards(shards, POLICY.domain_of).violations == []
    found: dict[bytes, Page] = {}
    for number, shard in enumerate(shards):
        books = audit(shard)
        assert (books.violations, books.cash + books.virtual) == ([], TOTAL)
        own = Cut(ShardId(number, 3), POLICY.domain_of)
        names = [unpack_host(data).name for _, data in shard.scan(Family.HOSTS)]
        assert all(own.of_host(name) == number for name in names)
        found |= pages_of(shard)
    in_one = {key: page for key, page in pages_of(whole).items() if key[:HOST_BYTES] in hosts}
    assert found.keys() == in_one.keys()
    waits = {key for key, page in found.items() if page.state == PageState.QUEUED}
    waits_in_one = {key for key, page in in_one.items() if page.state == PageState.QUEUED}
    assert waits >= waits_in_one
    assert len(waits - waits_in_one) <= result.uncertain, "what waits is counted for the whole job only"
    if damage == "none":
        assert result == one
        for family in (Family.ROBOTS, Family.REQUESTS):
            assert sorted(row for shard in shards for row in shard.scan(family)) == [*whole.scan(family)]
        for letter in (OUTSIDERS, DIRECTORIES, BRANCHES):
            rows_in_one = [row for row in whole.scan(Family.META) if row[0][:1] == letter]
            assert rows_in_one
            of_shards = (row for shard in shards for row in shard.scan(Family.META))
            assert rows_in_one == sorted(row for row in of_shards if row[0][:1] == letter)
        assert [SEEDS_KEY in dict(shard.scan(Family.META)) for shard in shards] == [True, False, False]
        for shard in shards[1:]:
            shards[0].write({Family.CONTENT: dict(shard.scan(Family.CONTENT))}, sync=True)
        wanted = [row for row in whole.scan(Family.CONTENT) if row[0][:1] != SHARES]
        assert [*shards[0].scan(Family.CONTENT)] == wanted


def test_a_job_in_one_piece_is_cut_so_that_a_domain_is_spread_over_its_shards():
    policy = replace(POLICY, domain_of=lambda _: "d", spread=frozenset({"d"}))
    store = make(domain_of=policy.domain_of)
    one, (shards, result) = salvaged(store)[1], cut(3, store, policy=policy)
    assert result == one
    assert audit_shards(shards, policy.domain_of).violations == []
    assert all(audit(shard).violations == [] for shard in shards)
    hosts = [{unpack_host(data).name for _, data in shard.scan(Family.HOSTS)} for shard in shards]
    assert sum(map(bool, hosts)) > 1
    assert set.union(*hosts) == {f"h{n}" for n in range(7)}
    opened = [Shard(shard, policy, NOW + 200, ShardId(number, 3)) for number, shard in enumerate(shards)]
    counts = counts_of(shard.spread for shard in opened)["d"]
    assert (counts.visited, counts.seeds) == (
        sum(shard.counts.visited + shard.counts.failed for shard in opened),
        5,
    )


def visit_some(job: ShardedJob, web: dict[bytes, list[Link]], n: int) -> list[bytes]:
    """Visit up to *n* pages of *web*, of all shards by turns; returns their keys."""
    fetched: list[bytes] = []
    for _ in range(50 * n):
        for shard in job.shards[: n - len(fetched)]:
            lease = shard.lease(job.now)
            if isinstance(lease, Lease):
                shard.release(lease, job.now)
                shard.settle(lease, web[lease.key], job.now, Findings())
                fetched.append(lease.key)
        job.now += 1
    return fetched


@pytest.mark.parametrize("spread", [frozenset(), frozenset({"d1"})], ids=["plain", "spread"])
def test_a_job_in_shards_is_cut_anew_with_what_is_under_way_in_letters(spread):
    dice, links = random.Random(2), [link(f"h{n % 20}.d{n % 7}", n) for n in range(140)]
    web, seeds = {each.key: dice.sample(links, 5) for each in links}, links[:6]
    domain_of = lambda host: host.partition(".")[2]
    job = ShardedJob(4, domain_of=domain_of, spread=spread)
    for seed in seeds:
        job.shards[0].seed(seed, job.now)
    job.exchange()
    fetched: list[bytes] = []
    for of in (16, 3, 1):
        fetched += visit_some(job, web, 12)
        job.commit()
        job.carry()  # these letters are applied, but their senders keep them
        job.commit()
        fetched += (last := visit_some(job, web, 12))
        job.commit()
        in_outboxes = sum(len(list(store.scan(Family.META, OUTBOX, b"N"))) for store in job.stores)
        assert 0 < audit_shards(job.stores, domain_of).letters < in_outboxes
        before = {key: page for store in job.stores for key, page in pages_of(store).items()}
        linked = {to.key for key in fetched for to in web[key]}
        assert linked > before.keys() & linked, "letters have links to pages that nobody else knows"
        stores, result = cut(of, *job.stores, policy=job.policy)
        counts = {name: each[:2] for name, each in counts_of(shard.spread for shard in job.shards).items()}
        job = ShardedJob(of, domain_of=domain_of, spread=spread if of > 1 else frozenset())
        job.stores = stores
        for number in range(of):
            job.reopen(number)
        job.check()
        assert result.letters > 0
        counts_now = counts_of(shard.spread for shard in job.shards)
        assert of == 1 or counts == {name: each[:2] for name, each in counts_now.items()}
        now = {key: page for store in stores for key, page in pages_of(store).items()}
        assert sum(len(pages_of(store)) for store in stores) == len(now), "each page in one shard"
        assert {key for key, page in now.items() if page.visits} == {*fetched}
        assert now.keys() == before.keys() | linked
        for pages in map(pages_of, stores):  # what is worth more than another page of its shard still is
            unpaid = pages.keys() - {to.key for key in last for to in web[key]} - {seed.key for seed in seeds}
            waits = [key for key in unpaid if not pages[key].visits]
            times = [pages[key].cash / before[key].cash for key in waits]
            assert not times or max(times) - min(times) < 1e-6
    while found := visit_some(job, web, 20):
        fetched += found
        job.exchange()
    reached, left = set[bytes](), [seed.key for seed in seeds]
    while left:
        if (key := left.pop()) not in reached:
            reached.add(key)
            left += [to.key for to in web[key]]
    assert sorted(fetched) == sorted(reached), "each once"


@pytest.mark.parametrize("n", [1, 3])
def test_what_shards_say_of_themselves_is_that_of_the_new_job(n):
    gate, olds, waits = SHARED_GATES + bytes(8), [MemoryStore(), MemoryStore()], link(hosts_of(1, 2, 1)[0], 1)
    for number, store in enumerate(olds):
        harvest = Harvest()
        for _ in range(number + 1):
            harvest.note(is_relevant=True)
        each = [Round(1, 5.0, 9.0, 3, {"new": 2}), Round(2, 10.0 + number, 20.0 * number, 1)]
        totals = CrawlTotals(order_name(POLICY.order), 7.0 - number, 30.0)
        totals.ledger.handed = (100, 0, 0, 0)
        rows = {gate: pack(9.0 - number), HARVEST_KEY: harvest.pack(), KEYS_KEY: URL_KEYS}
        rows |= {TOTALS_KEY: totals.pack(), SEEDS_KEY: pack({"list": number}), STRATEGY_KEY: b"%d" % number}
        store.write({Family.META: {**rows, **dict(one.row() for one in each)}}, sync=True)
    page = pack_page(Page(PageState.QUEUED, 1, 4000, handed=40))
    host = pack_host(HostRecord(waits.host))
    rows_of_page = {Family.PAGES: {waits.key: page}, Family.REQUESTS: {waits.key: waits.request}}
    olds[1].write({**rows_of_page, Family.HOSTS: {waits.key[:HOST_BYTES]: host}}, sync=True)
    stores, _ = cut(n, *olds)
    found = rounds.together(each for store in stores for each in rounds.read_rounds(store))
    assert found == [Round(1, 5.0, 9.0, 6, {"new": 4}), Round(2, 10.0, 0.0, 2)]
    assert sum(read_harvest(store).pages for store in stores) == 3
    (cash,) = [page.cash for store in stores for page in pages_of(store).values()]
    assert cash == pytest.approx(4060 * n / 2 / 2, abs=1), "with what it is owed"
    for number, store in enumerate(stores):
        meta, saved = dict(store.scan(Family.META)), read_totals(store)
        assert meta[gate] == pack(9.0)
        assert meta[KEYS_KEY] == URL_KEYS
        assert meta[STRATEGY_KEY] == b"%d" % (number % 2)
        assert meta.get(SEEDS_KEY) == (pack({"list": number}) if number < 2 else None)
        assert saved is not None
        assert saved.created_at == 6.0


def crawl_on(store: MemoryStore) -> set[bytes]:
    """Crawl the job in *store* to its end; returns what was fetched."""
    crawl, now, fetched = Crawl(store, POLICY, NOW + 1000), NOW + 1000, set()
    for _ in range(20 * N):
        lease = crawl.lease(now)
        if isinstance(lease, NotBefore):
            now = max(now, lease.instant) + 0.01
        elif isinstance(lease, Lease):
            fetched.add(lease.key)
            crawl.release(lease, now)
            crawl.settle(lease, (), now)
    store.write(crawl.take_changes(now, is_clean=True), sync=True)
    return fetched


@pytest.mark.crossed
@pytest.mark.parametrize("recrawl", [False, True], ids=["once", "recrawl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_left_becomes_a_whole_job_that_fetches_what_waits_and_nothing_else(damage, *, recrawl):
    store = make(recrawl=recrawl)
    before = pages_of(store)
    DAMAGES[damage](store)
    target, result = salvaged(store)
    found = audit(target)
    assert found.violations == []
    assert found.cash + found.virtual == TOTAL
    said = result.waiting, result.fetched, result.hosts
    assert (found.queued, found.visited + found.failed, found.hosts) == said
    left, new = pages_of(store), pages_of(target)
    requests = {key for key, _ in store.scan(Family.REQUESTS)}
    hosts = {key for key, _ in store.scan(Family.HOSTS)}
    for key, page in left.items():
        if page.state != PageState.QUEUED or page.visits:
            is_known = key in requests or key[:HOST_BYTES] in hosts
            assert (new[key].visits > 0) == is_known, "it is known as fetched"
        elif key in requests:
            assert new[key].state == PageState.QUEUED, "nothing that waits is lost"
    assert result.unrequested == sum(
        page.state == PageState.QUEUED and not page.visits and key not in requests
        for key, page in left.items()
    )
    if "QUEUE" not in damage and "totals" not in damage and "META" not in damage:
        waiting = {key for key, page in before.items() if page.state == PageState.QUEUED}
        assert result.uncertain == 0
        assert {key for key, page in new.items() if page.state == PageState.QUEUED} <= waiting
    waiting = {key for key, page in new.items() if page.state == PageState.QUEUED}
    assert crawl_on(target) == waiting
    found = audit(target)
    assert (found.violations, found.queued) == ([], 0)


def test_a_sound_job_loses_nothing_but_its_history():
    store = make(recrawl=True)
    target, result = salvaged(store)
    old, new = pages_of(store), pages_of(target)
    assert old.keys() == new.keys()
    assert not any((result.missing, result.unrequested, result.unnamed, result.uncertain, result.gaps))
    for key, page in old.items():
        other = new[key]
        for name in ["state", "place", "shift", "priority", "outcome", "visited_at", "fetched", "clicks"]:
            assert getattr(page, name) == getattr(other, name), name
        assert page.changes == other.changes or page.canonical
        if page.state == PageState.QUEUED:
            assert other.cash == pytest.approx(page.cash // 2, abs=2)
    for family in (Family.REQUESTS, Family.ROBOTS, Family.LINKS, Family.CONTENT):
        rows = dict(store.scan(family))
        kept = dict(target.scan(family))
        assert kept == {
            key: value for key, value in rows.items() if family != Family.CONTENT or key[:1] in b"PTBSNLW"
        }
        assert rows
    of_both = [list(each.scan(Family.META, DIRECTORIES, b"M")) for each in (target, store)]
    assert of_both[0] == of_both[1] != []
    assert sum(data.count(b"outsider.test") for _, data in target.scan(Family.META)) == 1
    hosts = {key: unpack_host(data) for key, data in target.scan(Family.HOSTS)}
    for key, data in store.scan(Family.HOSTS):
        host = unpack_host(data)
        assert hosts[key].not_before >= host.not_before
        assert (hosts[key].transfer, hosts[key].crawl_delay) == (host.transfer, host.crawl_delay)
    assert hosts[host_key("h3")].crawl_delay == 7.5


def test_a_page_whose_record_is_lost_is_known_by_its_queue_row():
    store = make()
    before = pages_of(store)
    drop(store, Family.PAGES, 10_000)
    target, result = salvaged(store)
    after = pages_of(target)
    wait = [{key: page.state == PageState.QUEUED for key, page in each.items()} for each in (before, after)]
    assert wait[0] == wait[1]
    assert (result.uncertain, result.missing) == (0, 0)


def test_pages_that_may_have_been_fetched_wait_behind_all_others():
    store = make()
    drop(store, Family.PAGES, 7)
    drop(store, Family.QUEUE, 1)
    target, result = salvaged(store)
    assert result.uncertain > 0
    cash = sorted(page.cash for page in pages_of(target).values() if page.state == PageState.QUEUED)
    assert cash[: result.uncertain] == [0] * result.uncertain < cash[result.uncertain :]


def test_pages_that_only_the_totals_know_of_are_said_to_be_missing():
    store = make()
    keys = [key for key, _ in store.scan(Family.PAGES)][:9]
    store.write({Family.PAGES: dict.fromkeys(keys), Family.REQUESTS: dict.fromkeys(keys)}, sync=True)
    assert salvaged(store)[1].missing == 9


@pytest.mark.parametrize(("place", "source"), [(300, 2000), (2000, 300), (900, 1500), (0, 2900), (2900, 0)])
def test_rows_in_the_wrong_place_are_left_out(place, source):
    """As if a block of 100 rows had been written over another one."""
    keys = [b"%08d" % n for n in range(3000)]
    damaged = [*keys[:place], *keys[source : source + 100], *keys[place + 100 :]]

    class Misplaced(MemoryStore):
        def scan(
            self, family: Family, start: bytes = b"", stop: bytes | None = None
        ) -> Iterator[tuple[bytes, bytes]]:
            return iter([(key, b"") for key in damaged])

    found = [key for key, _ in DamagedStore(Misplaced()).scan(Family.PAGES)]
    assert found == [*keys[:place], *keys[place + 100 :]]


class Holes:
    """A store in which some rows cannot be read."""

    def __init__(self, store: Store, bad: set[bytes]) -> None:
        self._store, self._bad = store, bad

    def get_many(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._bad.intersection(keys):
            raise StorageError("hole")
        return self._store.get_many(family, keys)

    def scan(
        self, family: Family, start: bytes = b"", stop: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._store.scan(family, start, stop):
            if key in self._bad:
                raise StorageError("hole")
            yield key, value


def test_holes_are_jumped_over():
    store = make()
    keys = [key for key, _ in store.scan(Family.PAGES)]
    bad = set(keys[3:40:12])
    target, result = salvaged(Holes(store, bad))  # type: ignore[arg-type]
    assert audit(target).violations == []
    kept = {key for key, _ in target.scan(Family.PAGES)}
    assert kept.isdisjoint(bad)
    assert len(keys) - len(bad) >= len(kept) >= len(keys) - 4 * len(bad)
    assert result.gaps["PAGES"] == len(bad)
