"""How far the lists of seeds of a job were taken up, as it is committed with what their rows changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import SEEDS_KEY, Family
from scrapy_aopic.core.records import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_aopic.core.ports import Store


class Offsets:
    """Bytes taken up of each list by its name, in three states: now, in the commit under way, and as it landed last."""

    def __init__(self, taken: dict[str, int]) -> None:
        self._now = taken
        self._in_commit: dict[str, int] = {}
        self._landed = dict(taken)

    def __getitem__(self, name: str) -> int:
        return self._now.get(name, 0)

    @property
    def names(self) -> set[str]:
        """Lists of which something was taken up, and that are not forgotten."""
        return {*self._now}

    def add(self, name: str, n: int) -> None:
        """Another *n* bytes of the list *name* were taken up."""
        self._now[name] = self._now.get(name, 0) + n

    def is_landed(self, name: str) -> bool:
        """Whether the store holds all that was taken up of the list *name*."""
        return self._landed.get(name, 0) >= self._now.get(name, 0)

    def forget(self, names: Iterable[str]) -> None:
        """The lists *names* are gone for good."""
        for name in names:
            self._now.pop(name, None)

    def take(self) -> bytes:
        """All of them for a commit, which :meth:`land` says is stored."""
        self._in_commit = dict(self._now)
        return pack(self._in_commit)

    def land(self) -> None:
        """What was taken last is stored."""
        self._landed = self._in_commit


def read_offsets(store: Store) -> Offsets:
    """Those of the last commit in *store*."""
    data = store.get_many(Family.META, (SEEDS_KEY,))[0]
    return Offsets(unpack(data) if data is not None else {})
