"""What is written down is written down once: letters, keys, and every field of the totals."""

from __future__ import annotations

from dataclasses import fields

import pytest
from support.naming import case

from scrapy_aopic.core import layout
from scrapy_aopic.core.crawl_totals import CrawlTotals, read_damaged_totals, read_totals
from scrapy_aopic.core.layout import FORMAT, TOTALS_KEY, Family
from scrapy_aopic.core.ledger import Totals
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.memory import MemoryStore

META = (layout.ACTIVE, layout.SHELVED, layout.PARKED, layout.DEAD, layout.OUTSIDERS, layout.SHARED_GATES,
        layout.WAKES, layout.DUE, layout.SAMPLED, layout.DIRECTORIES)  # fmt: skip
CONTENT = (
    layout.TEXTS, layout.FIRST_OF_TEXT, layout.BANDS, layout.SITE_TEXTS, layout.VARIETIES, layout.CLAIMS,
    layout.LEADS, layout.WISHES, layout.OWN_CLAIMS, layout.FOREIGN_CLAIMS,
)  # fmt: skip
NAMES = (layout.TOTALS_KEY, layout.SEEDS_KEY, layout.CLOCK_KEY, layout.COUNTERS_KEY, layout.KEYS_KEY)

OTHER = {
    "order_name": "other", "created_at": 1.5, "saved_at": 2.5, "ledger": Totals(virtual=7, members=[1, 2, 3, 4]), "window": (3.0, "fixed", "turns"),
    "shelved": {b"F\0\1": 3}, "rates": [0.5] * 12, "is_clean": True, "format": FORMAT,
}  # fmt: skip


def store_with(data: bytes) -> MemoryStore:
    store = MemoryStore()
    store.write({Family.META: {TOTALS_KEY: data}}, sync=True)
    return store


def test_no_letter_and_no_name_of_a_row_stands_for_two_things():
    assert len(set(META)) == len(META)
    assert len(set(CONTENT)) == len(CONTENT)
    assert all(letter.isupper() and len(letter) == 1 for letter in (*META, *CONTENT))
    assert len(set(NAMES)) == len(NAMES)
    assert all(name.islower() for name in NAMES)


def test_every_letter_of_a_row_is_in_the_table_of_the_module():
    assert layout.__doc__ is not None
    for letter in META:
        assert f"``{letter.decode()}``" in layout.__doc__


def test_every_field_of_the_totals_outlives_a_commit():
    for name in [each.name for each in fields(CrawlTotals)]:
        plain = CrawlTotals("order", 1.0, 2.0)
        default = next(each for each in fields(CrawlTotals) if each.name == name).default
        value = OTHER[name] if name in OTHER else default + 3
        saved = CrawlTotals(**{"order_name": "order", "created_at": 1.0, "saved_at": 2.0, name: value})
        assert name == "format" or getattr(saved, name) != getattr(plain, name), name
        assert read_totals(store_with(saved.pack())) == saved, name


def test_damaged_totals_are_said_to_be_damaged():
    for data in [b"", b"\x81", b"\xc0", b"\x80", b"\x81\xa6format\x01"]:
        with case(data):
            with pytest.raises(StorageError, match=r"totals of this job are damaged: .* salvage"):
                read_totals(store_with(data))
            assert read_damaged_totals(data) is None
