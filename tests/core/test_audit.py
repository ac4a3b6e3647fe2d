"""Each single thing that can be wrong with a store is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.core_crawl import Job, link

from scrapy_aopic.core.audit import audit
from scrapy_aopic.core.layout import COUNTERS_KEY, TOTALS_KEY
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.ports import Family
from scrapy_aopic.core.records import (
    HOST_BYTES,
    HostRecord,
    Link,
    Page,
    PageState,
    host_key,
    pack_host,
    pack_page,
    queue_row,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUED, VISITED, FAILED = link("busy", 1), link("busy", 0), link("dead", 0)
SHELVED, PARKED = link("shelved", 0), link("parked", 1)
BUSY = QUEUED.key[:HOST_BYTES]


@pytest.fixture
def store() -> MemoryStore:
    """A crawl with pages in each state and hosts in each place, which holds."""
    job = Job(link("parked", 0), max_active=1)
    lease = job.lease()
    job.release(lease, gap=100.0)
    job.settle(lease)
    job.seed(FAILED)
    job.visit(is_failure=True)
    job.seed(VISITED)
    job.visit(QUEUED)
    job.seed(PARKED, SHELVED)
    job.commit()
    assert [page_of(job.store, key).state for key in (QUEUED, VISITED, FAILED)] == list(PageState)
    rows = [host_of(job.store, key.key[:HOST_BYTES]).row[:1] for key in (QUEUED, SHELVED, PARKED)]
    assert rows == [b"A", b"F", b"P"]
    return job.store


def page_of(store: MemoryStore, of: Link) -> Page:
    return unpack_page(store.get_many(Family.PAGES, [of.key])[0] or b"")


def host_of(store: MemoryStore, key: bytes) -> HostRecord:
    return unpack_host(store.get_many(Family.HOSTS, [key])[0] or b"")


def row_of(store: MemoryStore, of: Link) -> bytes:
    page = page_of(store, of)
    return of.key[:HOST_BYTES] + queue_row(page.front_queue, page.place)


def index_row(store: MemoryStore, of: Link) -> bytes:
    key = of.key[:HOST_BYTES]
    return host_of(store, key).row + key


def change_row(store: MemoryStore, family: Family, key: bytes, value: bytes | None) -> None:
    store.write({family: {key: value}}, sync=True)


def change_page(store: MemoryStore, of: Link, **values: Any) -> None:
    change_row(store, Family.PAGES, of.key, pack_page(msgspec.structs.replace(page_of(store, of), **values)))


def change_host(store: MemoryStore, of: Link, **values: Any) -> None:
    key = of.key[:HOST_BYTES]
    change_row(store, Family.HOSTS, key, pack_host(msgspec.structs.replace(host_of(store, key), **values)))


def totals_of(store: MemoryStore) -> dict[str, Any]:
    return msgspec.msgpack.decode(store.get_many(Family.META, [TOTALS_KEY])[0])


def change_totals(store: MemoryStore, **values: Any) -> None:
    change_row(store, Family.META, TOTALS_KEY, msgspec.msgpack.encode({**totals_of(store), **values}))


def change_ledger(store: MemoryStore, **values: Any) -> None:
    change_totals(store, ledger={**totals_of(store)["ledger"], **values})


def change_new(store: MemoryStore, **values: Any) -> None:
    change_ledger(store, new={**totals_of(store)["ledger"]["new"], **values})


def add(store: MemoryStore, of: Link, **more: int) -> None:
    page = page_of(store, of)
    change_page(store, of, **{name: getattr(page, name) + n for name, n in more.items()})


def change_queue(store: MemoryStore, of: Link, to: Link | None) -> None:
    """Put another page into the row of a page in the queue, or none."""
    change_row(store, Family.QUEUE, row_of(store, of), to and to.key[HOST_BYTES:])


def drop_place(store: MemoryStore, of: Link) -> None:
    change_row(store, Family.META, index_row(store, of), None)


def move_row(store: MemoryStore, of: Link, level: int) -> None:
    """Put the page into a wrong front queue, consistently but for its cash."""
    page, old = page_of(store, of), row_of(store, of)
    change_row(store, Family.QUEUE, old, None)
    change_page(store, of, front_queue=level)
    change_row(store, Family.QUEUE, of.key[:HOST_BYTES] + queue_row(level, page.place), of.key[HOST_BYTES:])


def test_a_sound_store_holds_and_is_counted(store):
    result = audit(store)
    assert result.holds
    assert result.violations == []
    assert (result.pages, result.queued, result.visited, result.failed, result.hosts) == (6, 3, 2, 1, 4)
    assert result.cash + result.virtual == TOTAL


def test_an_empty_store_holds():
    result = audit(MemoryStore())
    assert result.holds
    assert (result.pages, result.virtual) == (0, TOTAL)


def by(change: Callable[..., None], *args: Any, **values: Any) -> Callable[[MemoryStore], None]:
    """What makes a *change* to a store."""
    return lambda store: change(store, *args, **values)


CORRUPTIONS: dict[str, tuple[Callable[[MemoryStore], None], str]] = {
    "a unit too many": (by(add, VISITED, cash=1), "1 too many"),
    "a unit too few": (by(add, QUEUED, cash=-1), "-1 too many"),
    "a unit of the virtual page": (lambda store: change_ledger(store, virtual=totals_of(store)["ledger"]["virtual"] + 1), "1 too many"),
    "a debt": (lambda store: (add(store, VISITED, cash=-5), add(store, FAILED, cash=5)), "holds -5 units"),
    "handed out to nobody": (by(change_ledger, handed=[1, 0, 0, 0]), "3 too many"),
    "a history": (by(add, VISITED, history=1), "histories add up"),
    "a sum of histories": (by(change_ledger, history=0), "histories add up"),
    "members of a class": (by(change_ledger, members=[4, 2, 0, 0]), "classes have [3, 2, 0, 0] pages, not [4, 2, 0, 0]"),
    "the cash of new pages": (by(change_new, cash=7), "units, not 7"),
    "new members of a class": (by(change_new, members=[3, 1, 0, 0]), "classes have [3, 2, 0, 0] new pages, not [3, 1, 0, 0]"),
    "a page from the future": (by(change_totals, order=5), "newer than the last commit"),
    "a page without a request": (by(change_row, Family.REQUESTS, QUEUED.key, None), f"page {QUEUED.key.hex()} waits, and has no request"),
    "a missing page": (by(change_row, Family.PAGES, QUEUED.key, None), "belongs to no queued page"),
    "a missing queue row": (by(change_queue, QUEUED, None), f"queued page {QUEUED.key.hex()} has no queue row"),
    "an extra queue row": (by(change_row, Family.QUEUE, BUSY + queue_row(5, 1), QUEUED.key[HOST_BYTES:]), "belongs to no queued page"),
    "a queue row of a visited page": (by(change_queue, VISITED, VISITED), "belongs to no queued page"),
    "a queue row of a page that nobody knows": (by(change_row, Family.QUEUE, BUSY + queue_row(5, 1), b"nobody's"),
     "belongs to no queued page"),
    "a queue row of another page": (by(change_queue, QUEUED, VISITED), "has no queue row"),
    "a level that is not that of the row": (by(add, QUEUED, front_queue=-1), "has no queue row"),
    "a level that is not that of the cash": (lambda store: move_row(store, QUEUED, page_of(store, QUEUED).front_queue - 1),
     f"page {QUEUED.key.hex()} waits in front queue 28, not 29"),
    "a shift": (by(change_page, QUEUED, shift=1), "waits in front queue 29, not 30"),
    "a queued page that is said to be visited": (by(change_page, QUEUED, state=PageState.VISITED), "belongs to no queued page"),
    "a visited page that is said to be queued": (by(change_page, VISITED, state=PageState.QUEUED), "has no queue row"),
    "a visited page that is said to have failed": (by(change_page, VISITED, state=PageState.FAILED),
     "2 visited are recorded, but 1 are stored"),
    "a visit that is forgotten": (by(change_page, VISITED, visits=0), "classes have"),
    "a state that is none": (by(change_page, VISITED, state=0), "has state 0"),
    "the count of queued pages": (by(change_totals, queued=4), "4 queued are recorded, but 3"),
    "the count of visited pages": (by(change_totals, visited=1), "1 visited are recorded, but 2"),
    "the count of failed pages": (by(change_totals, failed=0), "0 failed are recorded, but 1"),
    "the count of hosts": (by(change_totals, hosts=5), "5 hosts are recorded, but 4"),
    "the count of shelved hosts": (by(change_totals, shelved={}), "hosts are said to be shelved"),
    "the count of parked hosts": (by(change_totals, parked=0), "0 hosts are said to be parked"),
    "a page that cannot be understood": (by(change_row, Family.PAGES, QUEUED.key, b"\xc1"),
     f"the record of page {QUEUED.key.hex()} cannot be understood"),
    "a host that cannot be understood": (by(change_row, Family.HOSTS, BUSY, b"\xc1"),
     f"the record of host {BUSY.hex()} cannot be understood"),
    "a host whose pages are gone": (by(change_row, Family.PAGES, SHELVED.key, None), "host shelved"),
    "a host's queued pages": (by(change_host, QUEUED, queued=2), f"host busy ({BUSY.hex()}) says 2 queued pages, but has 1"),
    "a host's visited pages": (by(change_host, QUEUED, visited=0), "says 0 visited pages, but has 1"),
    "a missing host": (by(change_row, Family.HOSTS, BUSY, None), "says 0 queued pages, but has 1"),
    "a host that is shelved too low": (by(change_host, SHELVED, best=28), "host shelved is shelved below its best page"),
    "a host that is parked too low": (by(change_host, PARKED, best=3), "below its best page"),
    "a host that waits nowhere": (by(change_host, QUEUED, row=b""), "host busy has pages queued"),
    "a host that says it waits in another place": (by(change_host, SHELVED, row=b"F\x01"), "host shelved has pages queued, but no place"),
    "a place of a host without queued pages": (by(change_host, FAILED, row=b"A"), "host dead has nothing queued, but an index row"),
    "a missing place of an active host": (by(drop_place, QUEUED), "host busy has pages queued, but no place"),
    "a missing place of a shelved host": (by(drop_place, SHELVED), "host shelved has pages queued, but no place"),
    "a missing place of a parked host": (by(drop_place, PARKED), "host parked has pages queued, but no place"),
    "a place too many": (by(change_row, Family.META, b"A" + SHELVED.key[:HOST_BYTES], b""), "4 places for 3 hosts"),
    "a place of nobody": (by(change_row, Family.META, b"Anobody's", b""), "4 places for 3 hosts"),
    "a host with another name": (by(change_host, QUEUED, name="other"), "has another name than the one that its key was made of"),
    "a page that waits in no front queue": (by(change_page, QUEUED, front_queue=1 << 80), "which there is not"),
    "a page that failed and holds cash": (lambda store: (add(store, FAILED, cash=1), add(store, VISITED, cash=-1)),
     "failed, but holds 1 units"),
    "a page that waits for nobody": (by(change_page, QUEUED, is_claimed=True), "and there are none"),
    "a request without a page": (by(change_row, Family.REQUESTS, link("busy", 9).key, b"busy/9"), "is gone, and its request is there"),
    "the count of visits": (by(change_totals, visits=4), "4 pages are said to be visited or to have failed, but 3 are"),
    "a gate that cannot be understood": (by(change_row, Family.META, b"G" + bytes(8), b"\xc1"), "cannot be understood"),
    "a row of no index": (by(change_row, Family.META, b"Zrow", b""), "is of no index"),
    "counters that cannot be understood": (by(change_row, Family.META, COUNTERS_KEY, b"\xc1"),
     "the counters of all runs cannot be understood"),
    "links of a page that was not visited": (by(change_row, Family.LINKS, QUEUED.key, VISITED.key), "are of no page that was visited"),
    "half a link": (by(change_row, Family.LINKS, VISITED.key, VISITED.key[1:]), "ends in the middle of one"),
    "pages without totals": (by(change_row, Family.META, TOTALS_KEY, None), "there are pages but no totals"),
}  # fmt: skip


@pytest.mark.parametrize(("corrupt", "named"), CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_what_is_wrong_is_found_and_named(store, corrupt, named):
    corrupt(store)
    result = audit(store)
    assert not result.holds
    assert result.n_violations == len(result.violations) >= 1
    assert any(named in violation for violation in result.violations), result.violations


def test_each_kind_of_page_and_host_is_looked_at(store):
    """A record that is missing is found whatever its page's state is, a wrong count wherever its host waits."""
    for of in (QUEUED, VISITED, FAILED):
        record = store.get_many(Family.PAGES, [of.key])[0]
        change_row(store, Family.PAGES, of.key, None)
        assert not audit(store).holds
        change_row(store, Family.PAGES, of.key, record)
    for of in (QUEUED, FAILED, SHELVED, PARKED):
        visited = host_of(store, of.key[:HOST_BYTES]).visited
        change_host(store, of, visited=visited + 1)
        assert not audit(store).holds
        change_host(store, of, visited=visited)
    assert audit(store).holds


def test_only_the_first_of_many_violations_are_kept_but_all_are_counted():
    job = Job(*(link("a", number) for number in range(2500)))
    job.commit()
    for number in range(2500):
        change_row(job.store, Family.REQUESTS, link("a", number).key, None)
    result = audit(job.store)
    assert result.n_violations == 2500
    assert len(result.violations) == 20


def test_names_of_hosts_may_contain_what_looks_like_a_place_to_fill_in():
    job = Job(link("{0}{name}"))
    job.commit()
    change_host(job.store, link("{0}{name}"), queued=2)
    assert any("host {0}{name} (" in violation for violation in audit(job.store).violations)


def test_cash_handed_to_a_class_is_counted_for_pages_that_have_not_heard_of_it():
    job = Job(*(link("a", number) for number in range(5)), spending="unvisited")
    lease = job.lease()
    job.commit()
    result = audit(job.store)
    assert result.cash + result.virtual == TOTAL
    assert result.virtual < 5
    assert lease.host == "a"


def test_a_key_that_is_no_place_is_no_concern_of_the_audit(store):
    change_row(store, Family.META, b"note", b"anything")
    assert audit(store).holds
    assert host_key("busy") == BUSY
