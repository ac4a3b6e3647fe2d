"""Divides the rows of a job among stores of shards, each to be taken over by a new shard (:mod:`.salvage`): of a job in one piece, or in
any number of shards, whose stores are read one after the other.

Rule 1: a row goes where its host, its domain or the page that it is about belongs (:mod:`.shards.cut`). What counts for the whole job, such
as the totals, is added up, and goes to the first shard, or to all if each needs it.

Rule 2: what names pages without their shards, or with those of before, is left out: kept links, which the next visit of a page brings
again, and merges.

Rule 3: a letter that its shard has not applied goes to all shards that have a page it is about. Letters that were applied are dropped.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING

from msgspec.structs import replace

from . import layout, walk
from .crawl_totals import read_damaged_totals, together
from .domain import domain_key, joined, pack_domain, unpack_domain
from .duplicates import pages_of
from .focus.harvest import Harvest, read_harvest
from .layout import Family
from .records import HOST_BYTES, NO_RECORD, pack_page
from .revisits import rounds
from .shards.letters import host_name, read_letter
from .shards.mail import Got, read_counts, read_outbox, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .crawl_totals import CrawlTotals
    from .damaged import DamagedStore
    from .ports import Store
    from .shards.cut import Cut

_HOSTS = 100_000
"""Hosts whose shards are remembered, some 10 MB: rows lie by hosts, but for those of texts."""

_ADDED_UP = (
    layout.TOTALS_KEY, layout.KEYS_KEY, layout.HARVEST_KEY, layout.ROUNDS, layout.SHARED_GATES, layout.RECEIVED, layout.OUTBOX,
)  # fmt: skip
"""Beginnings of the keys in ``META`` of what is put together of all old shards."""

_OF_SHARD = (layout.SEEDS_KEY, layout.SAMPLED, layout.SAMPLE_KEY)
"""Of what one new shard has as the old one of its number had it."""

_OF_HOSTS = (layout.OUTSIDERS, layout.DIRECTORIES, layout.BRANCHES)
"""Letters of the rows in ``META`` that are about a host."""


class Splitting:
    """Divides the stores of a job.

    Args:
        parts: One for each new shard, all empty, and behind them one for each old one, for what it says of itself.
        old, new: Which shard each host is in, before and from now on; a domain that is spread has its record, with all that was
            charged to it, in one.

    Raises:
        StorageError: If the mail or the rounds of an old shard are damaged.
    """

    def __init__(self, parts: Sequence[Store], old: Cut, new: Cut) -> None:
        self._all, self._parts, self._olds = parts, parts[: new.own.of], parts[new.own.of :]
        self._old, self._new = old, new
        self._spread = {*map(domain_key, old.spread)}

    def add(
        self, source: DamagedStore, number: int, progress: Callable[[int], object] = lambda _: None
    ) -> None:
        """Divide the rows of *source*, that of the old shard *number*; *progress* is called with the number of further rows."""
        n, own = self._new.own.of, self._old.in_shard(number)
        said_by_it, of_host = (n + number,), lru_cache(_HOSTS)(partial(self._shard_of, source))
        of_key = {layout.CLOCK_KEY: range(n), layout.STRATEGY_KEY: range(number, n, own.own.of)}

        def shards_of(family: Family, key: bytes, value: bytes) -> Sequence[int]:
            if family == Family.META and key.startswith(_ADDED_UP):
                return said_by_it
            if family == Family.DOMAINS:  # of those of other shards, it knows only what was charged here
                mine = (self._new.of_domain(key),) if own.is_own(key) else ()
                return said_by_it if key in self._spread else mine
            if family == Family.CONTENT:
                about = (pages_of(key, value) or [key[1:]])[0]
                return of_host(about[:HOST_BYTES]) if key[:1] != layout.SHARES else ()
            if family != Family.META:
                return of_host(key[:HOST_BYTES])
            if key[:1] in _OF_HOSTS:
                return of_host(key[1 : 1 + HOST_BYTES])
            return range(number, n)[:1] if key.startswith(_OF_SHARD) else of_key.get(key, ())

        saved = read_damaged_totals(source.get_many(Family.META, (layout.TOTALS_KEY,))[0])
        for family in Family:
            if family == Family.LINKS:
                continue
            is_owed = family == Family.PAGES and (saved is None or any(saved.ledger.handed))
            for chunk in walk.chunks(source.scan(family)):
                parts: list[dict[bytes, bytes]] = [{} for _ in self._all]
                for key, value in chunk:
                    row = _paid(value, saved) if is_owed else value
                    for each in shards_of(family, key, value):
                        parts[each][key] = row
                for part, rows in zip(self._all, parts, strict=True):
                    if rows:
                        part.write({family: rows}, sync=False)
                progress(len(chunk))

    def _shard_of(self, source: DamagedStore, host: bytes) -> Sequence[int]:
        """The shard of the host under a key, if its name can be read."""
        rows = ((Family.HOSTS, host), (Family.META, layout.OUTSIDERS + host))
        found = (walk.read_host(source.get_many(family, (key,))[0]) for family, key in rows)
        record = next(filter(None, found), None)
        return () if record is None else (self._new.of_host(record.name),)

    def finish(self) -> None:
        """Put together what all old shards say of themselves."""
        meta, olds = Family.META, self._olds
        states = [old.get_many(meta, (layout.TOTALS_KEY, layout.KEYS_KEY)) for old in olds]
        known = [(saved, keys) for data, keys in states if (saved := read_damaged_totals(data)) is not None]
        rows: dict[bytes, bytes] = {}
        if known:
            rows[layout.TOTALS_KEY] = together([saved for saved, _ in known]).pack()
        marks = {keys for _, keys in known}
        if len(marks) == 1 and (mark := marks.pop()) is not None:
            rows[layout.KEYS_KEY] = mark
        for old in olds:
            for gate, opens_at in old.scan(meta, layout.SHARED_GATES, bytes((layout.SHARED_GATES[0] + 1,))):
                rows[gate] = max(rows.get(gate, b""), opens_at)  # times sort as they are packed
        found = rounds.together(each for old in olds for each in rounds.read_rounds(old))
        begun = [rounds.Round(each.number, each.began, each.ended) for each in found]
        for number, part in enumerate(self._parts):
            own = begun if number else found
            part.write({meta: {**rows, **dict(each.row() for each in own)}}, sync=False)
        harvest = reduce(Harvest.plus, map(read_harvest, olds))
        if harvest.pages:
            self._parts[0].write({meta: {layout.HARVEST_KEY: harvest.pack()}}, sync=False)
        for key in self._spread:
            known_by = [data for old in olds if (data := old.get_many(Family.DOMAINS, (key,))[0]) is not None]
            with suppress(*NO_RECORD):  # nothing to reduce is a TypeError
                domain = pack_domain(reduce(joined, map(unpack_domain, known_by)))
                self._parts[self._new.of_domain(key)].write({Family.DOMAINS: {key: domain}}, sync=False)
        self._divide_letters()

    def _divide_letters(self) -> None:
        for to, receiver in enumerate(self._olds):
            got = read_counts(receiver)[1]
            for sender, old in enumerate(self._olds):
                applied = got.get(sender, Got()).last
                for number, data in read_outbox(old, to):
                    if number > applied:
                        row = row_of(layout.OUTBOX, to, number) + sender.to_bytes(2, "big")
                        hosts = map(host_name, read_letter(data, self._old.in_shard(to)).hosts)
                        for shard in {*map(self._new.of_host, hosts)}:
                            self._parts[shard].write({Family.META: {row: data}}, sync=False)


def _paid(value: bytes, saved: CrawlTotals | None) -> bytes:
    """The record of a page with what it is owed by the totals of its shard, so that others owe it nothing."""
    page = walk.read_page(value)
    if page is None:
        return value
    owed = saved.ledger.owed(page) if saved is not None else 0
    return pack_page(replace(page, cash=page.cash + owed, handed=0))
