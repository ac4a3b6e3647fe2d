"""Pages set aside for people to label: each as likely as any other, bounded, and whole after a restart."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.focus.calibration import wilson
from scrapy_aopic.core.focus.sample import (
    EXCERPT_CHARACTERS,
    URL_CHARACTERS,
    LabelSample,
    Sampled,
    read_sample,
    read_samples,
)
from scrapy_aopic.core.ports import Family
from scrapy_aopic.focus.labels import judge, to_label
from scrapy_aopic.storage.memory import MemoryStore


def page(number: int, *, counts: bool = False, is_duplicate: bool = False, text: str = "text") -> Sampled:
    return Sampled(f"http://a.test/{number}", 0.9 if counts else 0.1, counts, is_duplicate, text)


def offer(sample: LabelSample, page: Sampled) -> bool:
    return sample.offer(page, lambda: page.text)


def commit(sample: LabelSample, store: MemoryStore) -> None:
    store.write({Family.META: sample.table.take()}, sync=False)
    sample.table.landed()


def drawn(sizes: tuple[int, ...], pages: int, seed: int) -> tuple[int, list[Sampled]]:
    """The sample of a job that is reopened with each of *sizes*, after as many of *pages* each time."""
    store = MemoryStore()
    chance = Random(seed)
    for run, size in enumerate(sizes):
        sample = LabelSample(store)
        sample.begin(size, chance)
        for number in range(run * pages // len(sizes), (run + 1) * pages // len(sizes)):
            offer(sample, page(number))
        commit(sample, store)
    return read_sample(store)


def test_each_page_is_as_likely_as_any_other():
    for sizes in [(10,), (10, 10, 10), (10, 50)]:
        times = 2_000
        counts: Counter[str] = Counter()
        for seed in range(times):
            n, sample = drawn(sizes, 40, seed)
            assert (n, len(sample), len({each.url for each in sample})) == (40, 10, 10), sizes
            counts.update(each.url for each in sample)
        assert len(counts) == 40, sizes
        assert max(abs(n - times / 4) for n in counts.values()) < 5 * (times / 4 * 3 / 4) ** 0.5, sizes


def test_all_pages_of_a_short_crawl_are_in_its_sample():
    n, sample = drawn((100,), 30, 0)
    assert (n, len(sample)) == (30, 30)


def test_none_are_set_aside_if_none_are_wanted():
    assert drawn((0,), 30, 0) == (0, [])


@given(st.text(), st.text(max_size=5_000))
def test_what_is_kept_is_bounded_and_can_be_shown(url, text):
    store = MemoryStore()
    sample = LabelSample(store)
    sample.begin(2, Random(0))
    assert offer(sample, Sampled(url, 0.5, True, False, text))
    assert offer(sample, Sampled("u" * 10_000, 0.5, True, False, "t" * 100_000))
    commit(sample, store)
    for each in read_sample(store)[1]:
        assert len(each.url) <= URL_CHARACTERS
        assert len(each.text) <= EXCERPT_CHARACTERS
        assert (each.url + each.text).isprintable()


def test_what_a_terminal_would_obey_is_taken_out():
    store = MemoryStore()
    sample = LabelSample(store)
    sample.begin(1, Random(0))
    offer(
        sample,
        Sampled("http://a.test/\x1b[2J", 0.5, True, False, "bread\n\n\x1b]0;title\x07 \u202erolls\ud800"),
    )
    commit(sample, store)
    [found] = read_sample(store)[1]
    assert found.url == "http://a.test/ [2J"
    assert found.text.split() == ["bread", "]0;title", "rolls"]


def test_damaged_rows_are_left_out():
    store = MemoryStore()
    sample = LabelSample(store)
    sample.begin(5, Random(0))
    for number in range(5):
        offer(sample, page(number))
    commit(sample, store)
    store.write({Family.META: {b"H\0\0\0\2": b"\xff", b"H\0\0\0\3": b"\x91\x01"}}, sync=False)
    assert [each.url[-1] for each in read_sample(store)[1]] == ["0", "1", "4"]


def test_the_interval_is_wilsons():
    # Newcombe, Statistics in Medicine 17, 1998, table I, method 3.
    for found, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(found, n) == pytest.approx((low, high), abs=0.0001)
    assert wilson(0, 0) == (0.0, 1.0)


def test_labels_are_compared_with_what_counts():
    sample = [page(n, counts=n < 6) for n in range(10)] + [page(10, is_duplicate=True), page(11)]
    labels = {f"http://a.test/{n}": n >= 4 for n in range(10)} | {"http://a.test/99": True}
    judged = judge(1000, sample, labels)
    assert judged[:4] == (1000, 12, 11, 6)
    assert judged.low < judged.harvest < judged.high
    assert judged.harvest == pytest.approx(6 / 11, abs=0.1)
    assert judged.counted == 6 / 12
    assert (judged.missed, judged.wrong) == (4, 4)


def test_pages_are_shown_in_an_order_of_their_own():
    sample = [page(n) for n in range(50)]
    shown = to_label([*sample, page(50, is_duplicate=True), page(3)])
    assert shown == to_label(sample[::-1])
    assert sorted(shown) == sorted(sample)
    assert abs(sum(int(each.url[14:]) for each in shown[:20]) / 20 - 24.5) < 8


def samples_of(*sizes: int, size: int = 20) -> list[MemoryStore]:
    """Stores of shards that have graded so many pages, and set up to *size* of each aside."""
    stores = []
    for shard, n in enumerate(sizes):
        store = MemoryStore()
        sample = LabelSample(store)
        sample.begin(size, Random(shard))
        for number in range(n):
            offer(sample, Sampled(f"http://s{shard}.test/{number}", 0.5, True, False, ""))
        store.write({Family.META: sample.table.take()}, sync=True)
        stores.append(store)
    return stores


def test_the_samples_of_shards_are_one_in_which_each_page_is_as_likely():
    stores = samples_of(30, 60, 0, 90)
    found = [0, 0, 0, 0]
    for seed in range(400):
        pages, sample = read_samples(stores, Random(seed))
        assert pages == 180
        assert len({page.url for page in sample}) == len(sample) == 20
        for page in sample:
            found[int(page.url[8])] += 1
    assert [part / sum(found) for part in found] == pytest.approx([1 / 6, 1 / 3, 0, 1 / 2], abs=0.02)


def test_the_sample_of_few_pages_of_shards_is_all_of_them():
    pages, sample = read_samples(samples_of(3, 5), Random(0))
    assert (pages, len(sample)) == (8, 8)
    assert read_samples(samples_of(7), Random(0))[0] == 7
    assert read_samples(samples_of(0, 0), Random(0)) == (0, [])
