"""Divides the rows of a job in one piece among stores of shards, each to be taken over by a new shard (:mod:`.salvage`).

Rule 1: a row goes where its host, its domain or the page that it is about belongs (:mod:`.shards.cut`). What counts for the whole job goes
to the first shard, and what each shard has of its own, such as the rounds, to all.

Rule 2: what names pages without their shards is left out: kept links, which the next visit of a page brings again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from . import layout, walk
from .duplicates import pages_of
from .layout import Family
from .records import HOST_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .damaged import DamagedStore
    from .ports import Store
    from .shards.cut import Cut

_HOSTS = 100_000
"""Hosts whose shards are remembered, some 10 MB: rows lie by hosts, but for those of texts."""

_OF_JOB = (layout.SEEDS_KEY, layout.SAMPLED, layout.SAMPLE_KEY, layout.HARVEST_KEY)
"""Beginnings of the keys in ``META`` of what counts for the whole job."""

_OF_HOSTS = (layout.OUTSIDERS, layout.DIRECTORIES, layout.BRANCHES)
"""Letters of the rows in ``META`` that are about a host."""


def split(
    source: DamagedStore,
    targets: Sequence[Store],
    cut: Cut,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """Write each row of *source* to those of *targets*, one for each shard and all empty, that need it.

    Args:
        cut: Which shard each host is in; one that is spread has its record, with all that was charged to it, in one.
        progress: Called with the number of further rows.
    """
    splitting = _Splitting(source, cut)
    for family in Family:
        if family == Family.LINKS:
            continue
        for chunk in walk.chunks(source.scan(family)):
            parts: list[dict[bytes, bytes]] = [{} for _ in targets]
            for key, value in chunk:
                for number in splitting.shards_of(family, key, value):
                    parts[number][key] = value
            for target, rows in zip(targets, parts, strict=True):
                if rows:
                    target.write({family: rows}, sync=False)
            progress(len(chunk))


class _Splitting:
    def __init__(self, source: DamagedStore, cut: Cut) -> None:
        self._source, self._cut, self._all = source, cut, range(cut.own.of)
        self._of_host = lru_cache(_HOSTS)(self._look_up)

    def shards_of(self, family: Family, key: bytes, value: bytes) -> Sequence[int]:
        """Numbers of the shards to which a row goes."""
        if family == Family.DOMAINS:
            return (self._cut.of_domain(key),)
        if family == Family.CONTENT:
            if key[:1] == layout.SHARES:
                return ()
            return self._of_host((pages_of(key, value) or [key[1:]])[0][:HOST_BYTES])
        if family != Family.META:
            return self._of_host(key[:HOST_BYTES])
        if key[:1] in _OF_HOSTS:
            return self._of_host(key[1 : 1 + HOST_BYTES])
        return (0,) if key.startswith(_OF_JOB) else self._all

    def _look_up(self, host: bytes) -> Sequence[int]:
        """The shard of the host under a key, if its name can be read."""
        rows = ((Family.HOSTS, host), (Family.META, layout.OUTSIDERS + host))
        found = (walk.read_host(self._source.get_many(family, (key,))[0]) for family, key in rows)
        record = next(filter(None, found), None)
        return () if record is None else (self._cut.of_host(record.name),)
