"""What leaves and rows are like in the replies of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scrapy_aopic.core.ports import Family

from .keys import unseal
from .leaves import Leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .connection import Argument, Link, Reply
    from .keys import Keys
    from .leaves import Rows

_T = TypeVar("_T")

AT_ONCE = 500
"""Leaves in a request that reads very many: half a megabyte of replies, and a millisecond of the server."""


def chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """*items* in their order, *size* at a time."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def ask_for_leaves(keys: Keys) -> list[Sequence[Argument]]:
    """Commands whose replies :func:`read_leaves` reads."""
    return [(b"SMEMBERS", keys.separators[family]) for family in Family]


def read_leaves(replies: Sequence[Reply]) -> dict[Family, Leaves]:
    """The leaves of all families; how many rows they have is not known yet."""
    return {family: Leaves(dict.fromkeys(reply, 1)) for family, reply in zip(Family, replies, strict=True)}


def read_values(
    keys: Keys, family: Family, groups: Iterable[Sequence[bytes]], replies: Iterable[Reply]
) -> dict[bytes, bytes | None]:
    """Values by key, of what the server replied for *groups* of keys.

    Raises:
        StorageError: If one is not as it was written.
    """
    found: dict[bytes, bytes | None] = {}
    for group, reply in zip(groups, replies, strict=True):
        for key, stored in zip(group, reply, strict=True):
            if stored is None:
                found[key] = None
            elif (value := unseal(family, key, stored)) is not None:
                found[key] = value
            else:
                raise keys.damaged(f"the row of {family.name} under {key.hex()} is not as it was written")
    return found


def read_rows(keys: Keys, family: Family, reply: Reply) -> Rows:
    """The rows of a leaf, of what the server said of it.

    Raises:
        StorageError: If one is not as it was written.
    """
    pairs = iter(reply)
    rows: Rows = {}
    for key, stored in zip(pairs, pairs, strict=True):
        value = unseal(family, key, stored)
        if value is None:
            raise keys.damaged(f"the row of {family.name} under {key.hex()} is not as it was written")
        rows[key] = value
    return rows


def measure(link: Link, keys: Keys, leaves: Mapping[Family, Leaves]) -> int:
    """Bytes of the server's memory that *leaves* take."""
    asked = [
        (b"MEMORY", b"USAGE", keys.leaf(family, each)) for family in Family for each in leaves[family].filled
    ]
    return sum(n or 0 for part in chunks(asked, AT_ONCE) for n in link.ask(*part))


def forget_view(link: Link, keys: Keys, view: bytes) -> None:
    """Remove what the server keeps for a *view*.

    Raises:
        StorageError: If the server cannot be reached.
    """
    (names,) = link.ask((b"SMEMBERS", keys.saved(view)))
    for part in chunks([*names], AT_ONCE):
        link.ask((b"UNLINK", *(keys.old(view, name) for name in part)))
    link.ask((b"UNLINK", keys.saved(view), keys.view(view)), (b"SREM", keys.views, view))
