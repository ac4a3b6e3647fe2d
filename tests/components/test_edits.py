"""What a bug of ours would write, with right checksums: ``check`` finds it, or it is on a list, and costs no page in silence."""

from __future__ import annotations

import importlib.util
import random
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from support.short_forms import some_of

from scrapy_aopic.storage.memory import MemoryStore
from scrapy_aopic.web import stored_requests

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "edits.py"
spec = importlib.util.spec_from_file_location("benchmark_of_edits", SCRIPT)
edits: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(edits)

NOT_FOUND: list[tuple[str, str, str]] = [
    (
        "a page that does not wait: front queue, place, shift, score and number of hand-outs",
        r"pages, (visited|failed)\.(front_queue|place|shift|score)|pages, failed\.(handed|is_chosen)",
        "they mean nothing before it waits again, and are set then",
    ),
    (
        "a waiting page: score, and a shift by which its front queue stays the same",
        r"pages, queued\.(score|shift)",
        "the links that were counted are in no row; another front queue is found",
    ),
    (
        "a page: time and turn of its last visit",
        r"pages, \w+\.(visited_at|visited_turn)",
        "any moment from the beginning to the last commit is possible",
    ),
    (
        "a page: hops of those that were merged with it",
        r"pages, \w+\.height",
        "it is an upper bound; one that is too low is found",
    ),
    (
        "a page: clicks",
        r"pages, \w+\.clicks",
        "the pages that link to it are in no row",
    ),
    (
        "a page: its branch",
        r"pages, queued\.branch",
        "the page that it is behind is in no row",
    ),
    (
        "a page: the response to its last visit",
        r"pages, (queued|visited|failed)\.fetched",
        "any response is possible; one of a page that was never visited is found",
    ),
    (
        "a page that was visited: whether others wait to be merged with it",
        r"pages, (queued|visited|failed)\.is_claimed",
        "they are looked for, and there are none",
    ),
    (
        "a page: outcome",
        r"pages, \w+\.outcome",
        "visits are counted by class of outcome, so that one that is too many in its class is found, and no other",
    ),
    (
        "a host: how it has answered, when it may be asked, what it is allowed, its address",
        r"(hosts|meta C)(\.(address|allowed|best|broken|crawl_delay|down|errors|held_until|leased_at|not_before|silent|transfer))?",
        "any number, and any time that a setting can lead to, is possible",
    ),
    (
        "a directory, a branch: how many of its pages were fetched, and none at all",
        r"meta [LB]",
        "the URLs of pages are in their requests alone; what no crawl counts is found",
    ),
    (
        "a gate that several hosts share",
        r"meta G(\.opens_at)?",
        "any time that a setting can lead to is possible, and none at all",
    ),
    (
        "a robots.txt: another text, an earlier time",
        r"robots(\.\d)?",
        "the text that the server sent is in no other row",
    ),
    (
        "links of a page",
        r"links",
        "the page that had them is in no other row; those of a page that was not visited are found",
    ),
    (
        "a request: another one for the same page",
        r"requests",
        "its callback, depth and the like are in no other row; where page keys are not made of URLs, any one for the same host",
    ),
    (
        "a domain: supporters, and what was charged to those that led to it",
        r"domains\.(1|3|4|5)",
        "the links that were counted are in no row",
    ),
    (
        "two pages of a host whose rows changed places",
        r"pages, changed places with another row",
        "sums are compared; if neither of them waits, no other row shows which is which",
    ),
    (
        "two domains whose rows changed places",
        r"domains, changed places with another row",
        "sums are compared; which domain a host counts for may be said by another list of suffixes by now",
    ),
    (
        "a text, or a page that had it first",
        r"content \w",
        "the page that had it is in no other row; that of a page that is not there is found",
    ),
    (
        "the counters of all runs",
        r"meta counters(\.\w+)*",
        "but for visits by class and sums of themselves they are figures that decide nothing",
    ),
    (
        "what page keys are made of",
        r"meta keys",
        "it was said once; without it requests are read, but not compared with the keys of their pages",
    ),
    (
        "the clock",
        r"meta clock(\.\d)?|meta totals\.(saved_at|created_at|crashed_at|not_before|commit_within|is_clean)",
        "any moment near the last commit, or before it where it is one of the past, is possible",
    ),
    (
        "sums of all cash ever spent, virtual time, and the last number of a page",
        r"meta totals\.(clock|order|ledger\.(distributed|virtual_distributed|turn|newcomers|elsewhere))",
        "what they were counted of is gone; what is less than the pages show is found",
    ),
    (
        "rates of change, and the window",
        r"meta totals\.(rates|window)",
        "any numbers that are no less than 0 are possible",
    ),
    (
        "the name of the order",
        r"meta totals\.order_name",
        "it may be one of your own; the crawl refuses one that is not set",
    ),
]
"""What ``check`` cannot always find: what it is, by a pattern of its names, or of one with what is done to it, and why. docs/after-a-crash.md has the same table."""


@pytest.fixture(scope="module")
def stored() -> tuple[MemoryStore, float, Any]:
    """A job in the middle, the instant, and how it goes on."""
    store = MemoryStore()
    now = edits.make(store)
    assert edits.audit_store(store).violations == []
    _, _, honest = edits.crawl_on(edits.copy_of(store), now)
    assert not honest.set_aside
    assert not honest.left
    return store, now, honest


def of_each_field(store: MemoryStore, n: int) -> list[Any]:
    """Up to *n* edits of a row of each kind, and of each of its fields."""
    dice = random.Random(n)
    found = []
    by_name = groupby(sorted(edits.fields(store), key=lambda each: each.name), key=lambda each: each.name)
    for _, fields in by_name:
        each = edits.edits_of(store, dice.choice(list(fields)), dice)
        found += dice.sample(each, min(n, len(each)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("n", some_of([2, 100]))
def test_an_edit_of_any_field_is_found_or_on_the_list_and_costs_no_page_in_silence(
    stored: tuple[MemoryStore, float, Any], n: int
) -> None:
    store, now, honest = stored
    drawn = of_each_field(store, n)
    assert len(drawn) > 150  # of each field of each kind of row
    lists = [pattern for _, pattern, _ in NOT_FOUND]
    for edit in drawn:
        verdict = edits.judge(store, edit, now, honest)
        assert not verdict.startswith("WRONG"), (verdict, edit.name, edit.how)
        names = edit.name, f"{edit.name}, {edit.how}"
        is_listed = any(re.fullmatch(pattern, name) for pattern in lists for name in names)
        assert verdict == "found" or is_listed, (verdict, edit.name, edit.how)


@pytest.mark.slow
def test_a_repair_mends_what_is_found(stored: tuple[MemoryStore, float, Any]) -> None:
    store, _, _ = stored
    for edit in of_each_field(store, 1)[::3]:
        assert edits.left_by_repair(store, edit) == [], (edit.name, edit.how)


def test_the_docs_say_what_is_not_found() -> None:
    page = (ROOT / "docs" / "after-a-crash.md").read_text(encoding="utf-8")
    for what, _, why in NOT_FOUND:
        assert f"| {what} | {why} |" in page


def test_requests_have_what_scrapys_have() -> None:
    assert set(Request.attributes) == stored_requests._ATTRIBUTES
