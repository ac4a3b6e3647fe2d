"""A damaged job on a server, in one piece or in shards, made whole; see :mod:`.repair` for one in a folder.

Rule 1: the leases of all stores are held meanwhile, so that no worker crawls what is being repaired.

Rule 2: what is left is copied to this machine and repaired here, shard by shard, after the mail between shards was made to agree.
The new stores are put onto the server beside the damaged ones, and take their places in one transaction; the damaged ones stay
under other numbers.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.rebuild import Repaired
from scrapy_aopic.core.saved import read_saved
from scrapy_aopic.core.shards.mending import mend_mail
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.place.cutting import check_suffixes
from scrapy_aopic.storage import exists, make_store
from scrapy_aopic.storage.opening import open_store_of_shard
from scrapy_aopic.storage.redis.keys import Keys
from scrapy_aopic.storage.redis.membership import read_cut
from scrapy_aopic.storage.redis.replacing import (
    Move,
    beside,
    has_store,
    kept_beside,
    put_in_place,
    remove_store,
)
from scrapy_aopic.storage.redis.salvage import copy_remains
from scrapy_aopic.storage.redis.writer_lease import Lease
from scrapy_aopic.view.auditing import audit_store
from scrapy_aopic.web.suffixes import registered_domain

from .repair import repair_rows
from .restore import copy_rows

if TYPE_CHECKING:
    from scrapy_aopic.core.ports import Family, Store
    from scrapy_aopic.storage import Address


class RepairedStore(NamedTuple):
    """What was done with one store.

    Attributes:
        shard: Its number; -1 for that of a job in one piece.
        done: What was made of it.
        letters: Letters to other shards that are lost.
        kept: Where the damaged one is kept: what its keys begin with.
    """

    shard: int
    done: Repaired
    letters: int
    kept: str


def repair_on_server(job: Address) -> list[RepairedStore]:
    """Repair the job at *job*, which no crawl uses; leave alone what holds.

    Raises:
        StorageError: If a worker crawls it, there is none, its shards are on disks, or the server cannot be reached.
    """
    if not exists(job):
        raise StorageError(f"There is no job in {job}.")
    cut = read_cut(job)
    if cut is not None and cut.disks:
        raise StorageError(
            f"The shards of the job in {job} are on the disks of its workers: repair each there, as 'scrapy aopic repair "
            "JOBDIR/aopic-home/0'; 'scrapy aopic status' shows where they are."
        )
    if cut is not None:
        check_suffixes(job, cut)
    places = [job.of_shard(number) for number in range(cut.shards)] if cut is not None else [job]
    with ExitStack() as opened:
        for place in places:
            opened.callback(Lease(place, Keys(place), task="repair").close)
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="scrapy-aopic-")))
        stores, gaps = [], []
        for number, place in enumerate(places):
            store = make_store(folder / str(number), place)
            opened.callback(store.close)
            stores.append(store)
            gaps.append(_copy(place, store))
        lost = mend_mail(stores, registered_domain) if cut is not None else {}
        found: list[RepairedStore] = []
        moves: list[Move] = []
        for number, (place, store) in enumerate(zip(places, stores, strict=True)):
            if not any(gaps[number].values()) and number not in lost and _holds(store):
                continue
            done, move = _repair(store, gaps[number], place, folder / f"{number}.new")
            moves.append(move)
            assert move.kept is not None
            kept = Keys(move.kept).head.removesuffix(b"head").decode()
            found.append(RepairedStore(place.shard, done, lost.get(number, 0), kept))
        if moves:
            put_in_place(moves, forget_mail=cut.shards if cut is not None else 0)
    return found


def _copy(place: Address, store: Store) -> dict[Family, int]:
    def write(family: Family, rows: dict[bytes, bytes]) -> None:
        store.write({family: {**rows}}, sync=False)

    return copy_remains(place, write)


def _holds(store: Store) -> bool:
    try:
        return read_saved(store) is not None and audit_store(store).holds
    except StorageError:
        return False


def _repair(store: Store, gaps: dict[Family, int], place: Address, folder: Path) -> tuple[Repaired, Move]:
    """Make a whole store of what is left in *store*, beside *place*."""
    kept = next(each for n in count(1) if not has_store(each := kept_beside(place, n)))
    made = beside(place)
    remove_store(made)
    with closing(make_store(folder, place)) as new:
        done = repair_rows(store, new)
        done.gaps = {family.name: n for family, n in gaps.items() if n}
        with closing(open_store_of_shard(made)) as copy:
            copy_rows(new, copy, lambda _: None)
    return done, Move(made, place, kept)
