"""Rows that are asked for before they are wanted: nobody ever sees one as it was before a write."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from support.redis_server import WHY_NOT, find_server

from scrapy_aopic.core.ports import Family

if TYPE_CHECKING:
    from collections.abc import Iterator

if find_server() is None:
    pytest.skip(WHY_NOT, allow_module_level=True)
pytest.importorskip("redis")
pytest.importorskip("hiredis")

from scrapy_aopic.storage.address import Address
from scrapy_aopic.storage.redis import leaves
from scrapy_aopic.storage.redis.store import RedisStore


@pytest.fixture
def store(server) -> Iterator[RedisStore]:
    with closing(RedisStore(Address(os.urandom(6).hex(), server.url))) as store:
        yield store


def wait_for(store: RedisStore, number: int) -> None:
    """Take in what comes until the request with that *number* has."""
    while not store.has_come(number):
        time.sleep(0.001)


@pytest.mark.parametrize("seed", range(8))
def test_reads_agree_with_a_dict_whatever_was_asked_for_before(store, monkeypatch, seed):
    for name, rows in (("MOST", 6), ("_BULK", 6), ("_CUT", 4), ("_FEW", 2), ("_JOINED", 5)):
        monkeypatch.setattr(leaves, f"{name}_ROWS", rows)  # so that leaves are cut and joined all the time
    rng = random.Random(seed)
    model: dict[Family, dict[bytes, bytes]] = {}
    families = (Family.PAGES, Family.CONTENT)
    keys = [b"%02d" % n for n in range(60)]
    number = 0
    for step in range(300):
        family = rng.choice(families)
        rows = model.setdefault(family, {})
        some = rng.sample(keys, rng.randrange(1, 12))
        match rng.randrange(5):
            case 0:
                changes = {key: rng.choice((None, b"%d" % step)) for key in some}
                store.write({family: changes}, sync=False)
                rows.update({key: value for key, value in changes.items() if value is not None})
                for key, value in changes.items():
                    if value is None:
                        rows.pop(key, None)
            case 1 | 2:
                number = store.prefetch(family, some)
            case 3:
                wait_for(store, number)
            case _:
                assert store.get_many(family, some) == [rows.get(key) for key in some]
    for family, rows in model.items():
        assert dict(store.scan(family)) == rows
