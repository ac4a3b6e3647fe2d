"""What single edits of stored rows, with right checksums, do to ``check`` and to a crawl that goes on: what a bug of ours would write.

    python benchmarks damage --edits 120 [--rng 1]

A small crawl is stopped in the middle: it has pages in every state, hosts in every place, robots.txt files, texts, links
and claims. Then one value is edited: a field of a record to another value of its type, or a row, which is removed,
emptied, filled with noise, or gets the value of another row of its kind. What can be edited follows from the store itself
(:func:`fields`), so that a field that is added later is edited, too.

Each edit is

- found: ``check`` finds it;
- refused: the crawl does not start with it, or stops, and one sentence says why;
- said: the crawl goes on, and says at its end that pages were set aside, or are left;
- harmless: nobody finds it, and the crawl fetches what it would have fetched;
- WRONG: nobody finds it, and the crawl fetches something else.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from scrapy_aopic.copies.repairing import repair_rows
from scrapy_aopic.core.api import Findings, Lease
from scrapy_aopic.core.counters import Counters
from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.duplicates import text_of
from scrapy_aopic.core.fetched import Fetched
from scrapy_aopic.core.frontier.frontier import Empty
from scrapy_aopic.core.layout import CLOCK_KEY, COUNTERS_KEY, DUE, OUTSIDERS, SHARED_GATES, TOTALS_KEY
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Outcome, Politeness, TransferResult
from scrapy_aopic.core.ports import Family, Store
from scrapy_aopic.core.records import (
    Link,
    host_key,
    pack,
    pack_host,
    pack_page,
    page_key,
    unpack,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.robots.state import RobotsTxt
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.web.request_rows import tail_of, url_of, waits_for
from scrapy_aopic.web.url_keys import key_of_url

START = 1_700_000_000.0
PAGES = 120
HOSTS = 16
_DOWN_FOR = 60.0
"""Seconds for which one host is down."""

_PATIENCE = 30 * 86_400.0
"""Seconds after which a crawl that goes on waits no longer."""


# -- the web, and a crawl of it


def url(number: int) -> str:
    return f"http://h{number % HOSTS}.test/{number}"


def link(number: int, *, again: bool = False) -> Link:
    host, key = key_of_url(url(number))
    request = url(number) + tail_of("parse", "", 1, "", is_on_purpose=False)
    return Link(key, host, request.encode(), again=again)


def links_of(number: int) -> list[int]:
    """A tree, so that a page that is lost is missed with all that is behind it, and some more links."""
    others = random.Random(number).sample(range(PAGES), 3)
    return [each for each in (2 * number + 1, 2 * number + 2, *others) if each < PAGES]


def domain_of(host: str) -> str:
    """Two hosts to a domain."""
    return f"d{int(host[1:].partition('.')[0]) // 2}.test" if host[1:2].isdigit() else host


def directory_of(request: bytes) -> bytes:
    """One of two on each host, by the last digit of the number of a page."""
    return b"%d" % (ord(url_of(request)[-1:] or "0") % 2)


def policy(**others: Any) -> Policy:
    values: dict[str, Any] = {
        "keep_links": True,
        "has_url_keys": True,
        "by_domain": True,
        "domain_of": domain_of,
        "max_active": 6,
        "waits_for": waits_for,
        "directory_of": directory_of,
        "politeness": Politeness(dead_after=2),
        **others,
    }
    return Policy(**values)


class Went(NamedTuple):
    """How a crawl went: the URLs that it fetched; the pages that it set aside; and how many are left."""

    fetched: frozenset[str]
    set_aside: int
    left: int


def crawl_on(
    store: Store, now: float, steps: int = 10 * PAGES, *, how: Policy | None = None
) -> tuple[Crawl, float, Went]:
    """Crawl on in *store* for so many steps, or to the end; nothing is written."""
    crawl = Crawl(store, how or policy(), now)
    if not crawl.is_resumed:
        crawl.seed(link(0), now)
        crawl.transferred("outsider.test", TransferResult(0.1, Outcome.ANSWER), now)
    fetched, set_aside, until = set[str](), 0, now + _PATIENCE
    for _ in range(steps):
        lease = crawl.lease(now)
        if isinstance(lease, Empty):
            break
        if not isinstance(lease, Lease):
            if not lease.instant <= until:  # type: ignore[union-attr]
                break
            now = max(now, lease.instant) + 0.001  # type: ignore[union-attr]
            continue
        if not url_of(lease.request).startswith("http"):
            crawl.release(lease, now)
            crawl.settle(lease, (), now, Findings("unreadable", is_failure=True))
            set_aside += 1
            continue
        where = url_of(lease.request)
        number = int(where.rpartition("/")[2])
        fetched.add(where)
        now += 0.01
        crawl.keep_robots(page_key(host_key(lease.host), where[:12].encode()), RobotsTxt(b"", now).to_bytes())
        if number % HOSTS == 3 and now < START + _DOWN_FOR:
            crawl.transferred(lease.host, TransferResult(0.01, Outcome.DOWN), now)
            crawl.release(lease, now)
            crawl.put_back(lease, Link(lease.key, lease.host, lease.request), now, has_failed=True)
            continue
        crawl.transferred(lease.host, TransferResult(0.01, Outcome.ANSWER), now)
        crawl.release(lease, now)
        crawl.judge(lease, text_of(b"the same words" if number % 31 == 5 else b"words of %d" % number))
        found = Findings(fetched=Fetched(200, "text/html", 1000 + number))
        if number % 17 == 3:
            found = Findings("http 404", is_failure=True, fetched=Fetched(404, "text/html", number))
        links = [link(each) for each in links_of(number)]
        if number % 40 == 9 and not lease.visits:
            links.append(link(0, again=True))
        if number % 23 == 11 or number == 5:
            found = found._replace(same_as=link((number + 1) % PAGES if number != 5 else PAGES - 1).key)
        crawl.settle(lease, links, now, found)
    else:
        until = now
    return crawl, now, Went(frozenset(fetched), set_aside, crawl.counts.queued)


def make(store: Store, *, how: Policy | None = None) -> float:
    """Crawl half of the web into *store*, which is left as by a kill; returns the instant."""
    now = START
    for _ in range(2):
        crawl, now, _ = crawl_on(store, now + 20, PAGES // 3, how=how)
        leased = [crawl.lease(now) for _ in range(2)]
        del leased  # they are in flight
        rows = crawl.take_changes(now)
        rows[Family.META][CLOCK_KEY] = pack((now, "", 0.0))
        store.write(rows, sync=True)
        crawl.changes_landed()
    return now


# -- what can be edited


class Field(NamedTuple):
    """A field of a row, or the row itself.

    Attributes:
        name: Kind of the row, and the field in it; only the kind for the row as a whole.
        family: Where the row is.
        key: Its key.
        value: The field's value.
        packed: Gives the bytes of the row with another value of the field.
    """

    name: str
    family: Family
    key: bytes
    value: Any
    packed: Callable[[Any], bytes]


def _of_struct(
    kind: str, family: Family, key: bytes, record: Any, packed: Callable[[Any], bytes]
) -> Iterator[Field]:
    def replaced(name: str) -> Callable[[Any], bytes]:
        return lambda other: packed(msgspec.structs.replace(record, **{name: other}))

    def replaced_inside(name: str, inner: str) -> Callable[[Any], bytes]:
        value = getattr(record, name)
        return lambda other: replaced(name)(value._replace(**{inner: other}))

    for name in record.__struct_fields__:
        value = getattr(record, name)
        yield Field(f"{kind}.{name}", family, key, value, replaced(name))
        for inner in getattr(value, "_fields", ()):
            each = getattr(value, inner)
            yield Field(f"{kind}.{name}.{inner}", family, key, each, replaced_inside(name, inner))


def _of_values(
    kind: str, family: Family, key: bytes, values: dict[Any, Any] | tuple[Any, ...]
) -> Iterator[Field]:
    """The values of a row of MessagePack, and those one level inside."""
    items = values.items() if isinstance(values, dict) else enumerate(values)

    def replaced(name: Any) -> Callable[[Any], bytes]:
        if isinstance(values, dict):
            return lambda other: pack({**values, name: other})
        return lambda other: pack([other if at == name else value for at, value in enumerate(values)])

    def replaced_inside(name: Any, inner: str) -> Callable[[Any], bytes]:
        return lambda other: replaced(name)({**values[name], inner: other})

    for name, value in items:
        yield Field(f"{kind}.{name}", family, key, value, replaced(name))
        for inner, each in value.items() if isinstance(value, dict) else ():
            if isinstance(inner, str):
                yield Field(f"{kind}.{name}.{inner}", family, key, each, replaced_inside(name, inner))


def kind_of(family: Family, key: bytes) -> str:
    """What the rows like the one under *key* are called."""
    if family == Family.META:
        return f"meta {key[:1].decode()}" if key[:1].isupper() else f"meta {key.decode()}"
    if family == Family.CONTENT:
        return f"content {key[:1].decode()}"
    return family.name.lower()


def fields(store: Store) -> Iterator[Field]:
    """Everything in *store* that can be edited."""
    for family in Family:
        for key, data in store.scan(family):
            kind = kind_of(family, key)
            yield Field(kind, family, key, data, bytes)
            if family == Family.PAGES:
                page = unpack_page(data)
                state = ("", "queued", "visited", "failed")[page.state]
                yield from _of_struct(f"{kind}, {state}", family, key, page, pack_page)
            elif family == Family.HOSTS or (key[:1] == OUTSIDERS and family == Family.META):
                yield from _of_struct(kind, family, key, unpack_host(data), pack_host)
            elif family == Family.META and key == COUNTERS_KEY:
                counters = msgspec.msgpack.decode(data, type=Counters)
                yield from _of_struct(kind, family, key, counters, msgspec.msgpack.encode)
            elif family == Family.META and (key in (TOTALS_KEY, CLOCK_KEY) or key[:1] == DUE):
                yield from _of_values(kind, family, key, unpack(data))
            elif family == Family.META and key[:1] == SHARED_GATES:
                yield Field(f"{kind}.opens_at", family, key, unpack(data), pack)
            elif family in (Family.ROBOTS, Family.DOMAINS):
                yield from _of_values(kind, family, key, unpack(data))


def others(value: Any) -> list[Any]:  # noqa: PLR0911  # one for each type
    """Other values of the type of *value*, as bugs make them: off by one, of the wrong sign, unit or moment, empty."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [each for each in (value + 1, value - 1, 2 * value, -value, 0, 1 << 40) if each != value]
    if isinstance(value, float):
        return [
            each
            for each in (value + 3600, 1000 * value, -value, 0.0, 1e12, math.inf, math.nan)
            if each != value
        ]
    if isinstance(value, str):
        return [each for each in ("", value + "x", value[1:], "?") if each != value]
    if isinstance(value, bytes):
        flipped = bytes((value[0] ^ 1, *value[1:])) if value else b"\1"
        return [each for each in (b"", flipped, value[1:], value + b"\0") if each != value]
    if isinstance(value, dict):
        return [dict(list(value.items())[1:])] if value else []
    if isinstance(value, (list, tuple)):
        return [tuple(value)[1:], (*value, *value)] if value else []
    return []


class Edit(NamedTuple):
    """An edit of the field called *name* to *value*: *batch* makes it."""

    name: str
    how: str
    batch: dict[Family, dict[bytes, bytes | None]]


def edits_of(store: Store, field: Field, dice: random.Random) -> list[Edit]:
    """The edits that are made of *field* of *store*."""
    found = [
        Edit(field.name, f"{field.value!r:.60} -> {other!r:.60}", {field.family: {field.key: data}})
        for other in others(field.value)
        if (data := _packed(field, other)) is not None
    ]
    if "." not in field.name:  # a row
        found.append(Edit(field.name, "removed", {field.family: {field.key: None}}))
        noise = dice.randbytes(max(len(field.value), 1))
        found.append(Edit(field.name, "noise", {field.family: {field.key: noise}}))
        like = [
            (key, value)
            for key, value in store.scan(field.family)
            if kind_of(field.family, key) == field.name and key != field.key
        ]
        if like:
            key, value = dice.choice(like)
            found.append(Edit(field.name, "that of another row", {field.family: {field.key: value}}))
            both = {field.key: value, key: field.value}
            if value != field.value:
                found.append(Edit(field.name, "changed places with another row", {field.family: both}))
    return [each for each in found if _changes(store, each)]


def _packed(field: Field, other: Any) -> bytes | None:
    try:
        return field.packed(other)
    except (OverflowError, TypeError, ValueError):
        return None


def _changes(store: Store, edit: Edit) -> bool:
    return any(
        store.get_many(family, (key,))[0] != value
        for family, rows in edit.batch.items()
        for key, value in rows.items()
    )


def copy_of(store: Store) -> MemoryStore:
    copy = MemoryStore()
    copy.write({family: dict(store.scan(family)) for family in Family}, sync=False)
    return copy


# -- the judge


def is_found(store: Store) -> bool:
    """Whether ``check`` finds something."""
    try:
        return not audit_store(store).holds
    except StorageError:
        return True


def judge(store: Store, edit: Edit, now: float, honest: Went) -> str:
    """What becomes of *edit* in a copy of *store*."""
    copy = copy_of(store)
    copy.write(edit.batch, sync=False)
    if is_found(copy):
        return "found"
    try:
        _, _, went = crawl_on(copy, now)
    except StorageError:
        return "refused"
    except Exception as error:  # noqa: BLE001  # any other one is what is looked for
        return f"WRONG: {type(error).__name__}: {error}"
    if went.set_aside or went.left:
        return "said"
    return "harmless" if went.fetched == honest.fetched else "WRONG"


def left_by_repair(store: Store, edit: Edit) -> list[str]:
    """What does not hold in what a repair makes of a copy of *store* with *edit*."""
    copy, target = copy_of(store), MemoryStore()
    copy.write(edit.batch, sync=False)
    repair_rows(copy, target)
    return audit_store(target).violations


def draw(store: Store, n: int, dice: random.Random) -> list[Edit]:
    """*n* edits, of each field about as many as of any other."""
    by_name: dict[str, list[Field]] = {}
    for field in fields(store):
        by_name.setdefault(field.name, []).append(field)
    names, drawn = sorted(by_name), list[Edit]()
    while len(drawn) < n:
        dice.shuffle(names)
        for name in names:
            if found := edits_of(store, dice.choice(by_name[name]), dice):
                drawn.append(dice.choice(found))
    return drawn[:n]


def report(n: int, seed: int) -> int:
    """Print what becomes of *n* edits; returns how many are wrong."""
    store = MemoryStore()
    now = make(store)
    _, _, honest = crawl_on(copy_of(store), now)
    counts = Counter[str]()
    for edit in draw(store, n, random.Random(seed)):
        verdict = judge(store, edit, now, honest)
        if verdict != "found":
            print(f"{verdict}: {edit.name}: {edit.how}")
        counts[verdict.partition(":")[0]] += 1
    print(f"{n} edits: {', '.join(f'{name} {n}' for name, n in sorted(counts.items()))}")
    return counts["WRONG"]
