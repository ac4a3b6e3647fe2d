"""What limits a crawl: each sentence of the verdict, from two snapshots made by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scrapy_aopic.view.snapshot import (
    Connections,
    ControlFigures,
    Forecast,
    HostCounts,
    HostRow,
    Limit,
    Machine,
    PageCounts,
    Rate,
    ShardFigures,
    Snapshot,
    StoreState,
    TopicFigures,
    TransferFigures,
    Verdict,
    forecast,
)
from scrapy_aopic.view.snapshot_stats import stats_of
from scrapy_aopic.view.text import duration, roughly, short_summary, size, summary
from scrapy_aopic.view.verdict import LIMITS, Judge, verdict

BEFORE = Snapshot(
    at=1000.0,
    is_live=True,
    pages=PageCounts(known=900, queued=500, visited=380, failed=20, in_flight=40),
    rate=Rate(seconds=60.0, pages=20.0),
    hosts=HostCounts(known=60, ready=5, waiting=40, in_flight=15, seen=60, ceiling=25.0, waits={"gap": 40}),
    connections=Connections(limit=100, in_use=15, callbacks=5),
    transfers=TransferFigures(n=400, seconds=40.0, down=10),
    store=StoreState(commits=10, last_commit=0.1, commit_age=0.3),
    machine=Machine(late_seconds=1.0, late_samples=100, cpu_seconds=10.0),
)
"""A crawl that nothing limits."""

POLITE = HostCounts(
    known=60, waiting=40, in_flight=15, seen=55, ceiling=25.0, waits={"gap": 38, "crawl delay": 2}
)


def ten_seconds_later(**changes: Any) -> Snapshot:
    """A snapshot ten seconds after :data:`BEFORE`, in which 200 transfers ended and a third of a core was used."""
    machine = Machine(late_seconds=1.5, late_samples=200, cpu_seconds=13.0)
    later = {
        "at": 1010.0,
        "pages": replace(BEFORE.pages, visited=575, failed=25),
        "transfers": TransferFigures(n=600, seconds=60.0, down=12),
        "machine": machine,
    }
    return replace(BEFORE, **{**later, **changes})


CASES: list[tuple[Limit, dict[str, Any], str]] = [
    ("none", {}, "5 hosts are ready, and 85 of 100 connections are free"),
    ("done", {"pages": PageCounts(known=400, visited=400)}, "Done: nothing is queued."),
    ("done", {"pages": PageCounts(queued=7, dead=7), "hosts": HostCounts(dead=1)}, "Only 1 dead host has pages left: 7."),
    ("stopped", {"is_live": False}, "runs elsewhere, or its process died"),
    ("stopped", {"is_live": False, "is_closed": True}, "the crawl was closed"),
    (
        "elsewhere",
        {"is_live": False, "shards": ShardFigures(n=4, held=3, alive=1, on_the_way=1)},
        "1 worker crawls 3 of 4 shards; what limits each of them its own dashboard shows. 1 letter between shards is on the way.",
    ),
    ("stopped", {"is_live": False, "shards": ShardFigures(n=4, held=0, alive=0)}, "No worker crawls this job now"),
    ("paused", {"control": ControlFigures(paused_since=950.0)}, "Paused by an operator 60 s ago: 'scrapy aopic control JOBDIR resume'"),
    (
        "done",
        {"pages": PageCounts(known=9, queued=9, dead=2, blocked=7)},
        "Only hosts that are blocked or have had all of their pages (7 pages), or are dead (2), have pages left.",
    ),
    (
        "control",
        {"control": ControlFigures(rate=21.0)},
        "at most 21 pages a second, and 5 hosts could be requested. 'scrapy aopic control JOBDIR'",
    ),
    ("none", {"control": ControlFigures(rate=40.0)}, ""),
    ("control", {"control": ControlFigures(connections=15)}, "at most 15 transfers at once, and 5 hosts could be requested."),
    ("none", {"control": ControlFigures(connections=50)}, ""),
    ("politeness", {"control": ControlFigures(connections=15), "hosts": POLITE}, ""),
    ("pause", {"not_before": 1018.0}, "Waiting 8 s after a crash."),
    ("network", {"transfers": TransferFigures(n=600, down=150)}, "140 of the last 200 transfers got no response"),
    (
        "network",
        {"transfers": TransferFigures(n=600, seconds=60.0, quiet=2.4)},
        "none of 15 transfers under way has ended for 2 s. Is there a network",
    ),
    (
        "none",  # of a slow web, few would have ended by now
        {
            "transfers": TransferFigures(n=600, seconds=6000.0, quiet=9.0),
            "connections": Connections(limit=100, in_use=20),
        },
        "",
    ),
    (
        "network",
        {
            "transfers": BEFORE.transfers,
            "hosts": HostCounts(waiting=5, waits={"down": 5}),
            "connections": Connections(limit=100),
            "waiting": [HostRow(name="a", wait=90.0), HostRow(name="b", wait=59.0)],
        },
        "Nothing answers: 5 hosts with pages did not respond. Next try in 59 s.",
    ),
    ("disk", {"store": StoreState(is_behind=True, commit_age=4.25)}, "the last commit that landed is 4.2 s old"),
    ("disk", {"store": StoreState(commits=11, last_commit=2.4)}, "the last commit took 2.4 s."),
    (
        "spider",  # a loop that is late begins commits late, and notes late that they have landed
        {
            "machine": Machine(late_seconds=91.0, late_samples=200, cpu_seconds=11.0),
            "store": StoreState(commits=11, last_commit=1.9, is_behind=True, commit_age=4.0),
        },
        "block the event loop, which is 0.90 s late",
    ),
    (
        "machine",  # others have the processor: nothing blocks the loop
        {"machine": Machine(late_seconds=21, late_samples=200, cpu_seconds=11.5, starved_seconds=3.3)},
        "uses 0.15 of a core and waits for one 33 % of the time, as others use it, and the event loop is 0.20 s late. A less",
    ),
    ("machine", {"machine": Machine(late_seconds=1, late_samples=200, cpu_seconds=19.6)}, "uses 0.96 of a core."),
    (
        "machine",
        {"machine": Machine(late_seconds=1.5, late_samples=200, cpu_seconds=18.4)},
        "the process uses 0.84 of a core, and does not get to 5 hosts that could be requested",
    ),
    (
        "machine",
        {"connections": Connections(limit=20, in_use=15)},
        "5 hosts could be requested and 5 connections are free, but the process, which uses 0.30 of a core",
    ),
    ("connections", {"connections": Connections(limit=100, in_use=96)}, "96 of 100 are busy, and 5 more hosts wait"),
    ("politeness", {"connections": Connections(limit=100, in_use=96), "hosts": POLITE}, "Politeness is the limit"),
    (
        "machine",
        {"machine": Machine(late_seconds=41.0, late_samples=200, cpu_seconds=17.0)},
        "0.70 of a core, and the event loop is 0.40 s late",
    ),
    (
        "machine",  # others take the processor
        {"machine": Machine(late_seconds=1.5, late_samples=200, cpu_seconds=14.0, starved_seconds=5.5)},
        "uses 0.40 of a core and waits for one 55 % of the time, as others use it. A less busy machine would help.",
    ),
    (
        "machine",
        {"machine": Machine(late_seconds=41.0, late_samples=200, cpu_seconds=12.0, starved_seconds=4.0)},
        "uses 0.20 of a core and waits for one 40 % of the time, as others use it, and the event loop is 0.40 s late",
    ),
    (
        "spider",
        {"machine": Machine(late_seconds=91.0, late_samples=200, cpu_seconds=11.0)},
        "block the event loop, which is 0.90 s late while the process uses 0.10 of a core",
    ),
    ("connections", {"connections": Connections(limit=100, in_use=100)}, "all 100 are busy, and 5 more hosts wait"),
    (
        "connections",
        {"connections": Connections(limit=100, in_use=101), "hosts": POLITE},
        "all 100 are busy. Raise CONCURRENT_REQUESTS",
    ),
    (
        "politeness",
        {"hosts": POLITE},
        ("Politeness is the limit: 40 hosts must be left alone, "
        "38 for the gap after each transfer (AOPIC_POLITENESS_FACTOR, DOWNLOAD_DELAY), 2 for the crawl delay of their "
        "robots.txt; 15 are requested. More hosts would help; shorter gaps only if the hosts are yours."),
    ),
    ("politeness", {"hosts": HostCounts(in_flight=3, seen=3)}, "every host that has pages is at work, and 3 are requested"),
    (
        "politeness",  # the end of a crawl: the few hosts that are left
        {"hosts": replace(POLITE, known=1200, waiting=3, in_flight=1, waits={"down": 3})},
        ("3 hosts must be left alone after transfers without a response (AOPIC_BACKOFF), and 1 is requested. "
        "Only 4 of 1,200 known hosts have pages. More hosts would help."),
    ),
    ("connections", {"connections": Connections(limit=4, in_use=3)}, "3 of 4 are busy, and 5 more hosts wait for one"),
    ("connections", {"connections": Connections(limit=1, in_use=1)}, "all 1 are busy"),
]  # fmt: skip

HEADLINES = {
    "politeness": "Politeness limits this crawl",
    "connections": "Too few connections limit this crawl",
    "spider": "The spider limits this crawl",
    "disk": "The disk limits this crawl",
    "machine": "This machine limits the crawl",
    "network": "The network limits this crawl",
    "control": "An operator limits this crawl",
    "none": "Nothing limits this crawl",
}


def test_each_limit_is_named_with_its_figures():
    for limit, changes, words in CASES:
        found = verdict(BEFORE, ten_seconds_later(**changes))
        assert found.limit == limit, (limit, changes, words)
        assert words in found.sentence, (limit, changes, words)


def test_the_headline_has_twelve_words_at_most():
    for growth, queue in [
        (None, ""),
        (0.0, ""),
        (0.5, ", and its queue grows"),
        (-0.001, ", and its queue lasts 7 h"),
    ]:
        for limit, changes in [case[:2] for case in CASES]:
            now = ten_seconds_later(rate=Rate(seconds=60.0, pages=20.0, growth=growth), **changes)
            headline = verdict(BEFORE, now).headline
            assert 0 < len(headline.split()) <= 12, (limit, changes, growth, queue)
            assert headline.endswith("."), (limit, changes, growth, queue)
            if limit in HEADLINES and not headline.startswith("Nothing answers"):
                assert headline == f"{HEADLINES[limit]}{queue}.", (limit, changes, growth, queue)


@pytest.mark.parametrize(
    ("reason", "headline"),
    [
        ("", "Ended. 500 pages wait."),
        ("finished", "Ended: the spider had nothing to do. 500 pages wait."),
        ("shutdown", "Ended: a signal stopped it. 500 pages wait."),
        ("closespider_timeout", "Ended: its time was up. 500 pages wait."),
        ("aopic_unreachable", "Ended: hosts do not answer. 500 pages wait."),
        ("out_of_money", "Ended: out_of_money. 500 pages wait."),
    ],
)
def test_a_crawl_that_was_closed_says_why_what_waits_and_how_to_go_on(reason, headline):
    closed = replace(BEFORE, is_live=False, is_closed=True, reason=reason)
    found = verdict(closed, closed)
    assert found.headline == headline
    assert f"({reason})" in found.sentence or not reason
    assert (
        "The command that started it, with the same job folder, goes on where it was: 500 pages"
        in found.sentence
    )
    assert "limited" not in found.sentence
    by_disk = replace(closed, limit="disk")
    assert ", when the disk limited it. " in verdict(by_disk, by_disk).sentence


def test_every_reason_of_ours_that_the_docs_name_has_words_but_that_of_a_setting_which_lets_no_crawl_begin():
    docs = (Path(__file__).parents[2] / "docs" / "stats.md").read_text(encoding="utf-8")
    reasons = set(re.findall(r"`(aopic_[a-z]+)`", docs)) - {"aopic_setting"}
    assert len(reasons) > 7
    for reason in reasons:
        closed = replace(BEFORE, is_live=False, is_closed=True, reason=reason)
        assert reason not in verdict(closed, closed).headline


def test_every_limit_has_a_case():
    assert {limit for limit, _, _ in CASES} == set(get_args(Limit))
    assert set(LIMITS) < set(get_args(Limit))


def test_callbacks_that_hold_pages_are_the_spiders():
    for then, now, hosts, limit in [
        (60, 60, BEFORE.hosts, "spider"),
        (5, 60, BEFORE.hosts, "none"),  # a moment is no bottleneck
        (2, 3, HostCounts(dry=2), "spider"),  # nothing else is at work
        (2, 3, POLITE, "politeness"),
    ]:
        before = replace(BEFORE, connections=Connections(limit=100, callbacks=then))
        found = verdict(
            before, ten_seconds_later(connections=Connections(limit=100, callbacks=now), hosts=hosts)
        )
        assert found.limit == limit, (then, now, hosts, limit)


def test_callbacks_of_a_busy_process_wait_for_the_processor():
    before = replace(BEFORE, connections=Connections(limit=100, callbacks=60))
    machine = Machine(late_seconds=1.5, late_samples=200, cpu_seconds=18.4)
    found = verdict(
        before, ten_seconds_later(connections=Connections(limit=100, callbacks=70), machine=machine)
    )
    assert found.limit == "machine"
    assert "70 pages wait for their callbacks, items or links" in found.sentence


SMALL = st.integers(0, 12)
SEEN = st.builds(
    lambda hosts, work, pages, growth, cpu, late, commit: {
        "hosts": HostCounts(
            known=99, ready=hosts[0], waiting=hosts[1], in_flight=hosts[2], waits={"gap": hosts[1]}
        ),
        "connections": Connections(limit=16, in_use=work[0], callbacks=work[1]),
        "pages": PageCounts(known=pages + 9, queued=pages, visited=9),
        "rate": Rate(seconds=60.0, pages=2.0, growth=growth),
        "machine": (cpu, late),
        "store": StoreState(
            commits=commit, last_commit=commit * 0.3, is_behind=commit > 9, commit_age=commit
        ),
    },
    st.tuples(SMALL, SMALL, SMALL),
    st.tuples(st.integers(0, 16), SMALL),
    SMALL,
    st.sampled_from([None, -0.5, 0.0, 2.0]),
    st.sampled_from([0.1, 0.6, 0.95]),
    st.sampled_from([0.01, 0.5]),
    SMALL,
)
"""What a snapshot shows, with the load of the process since the one before: CPU seconds a second, and how late its loop is."""


@given(st.lists(SEEN, min_size=1, max_size=12))
def test_no_sentence_contradicts_a_figure_and_no_limit_comes_and_goes(history):
    judge, before, named = Judge(), BEFORE, ("", 0.0)
    for seen in history:
        cpu, late = seen.pop("machine")
        then = before.machine
        assert then is not None
        machine = Machine(
            cpu_seconds=then.cpu_seconds + 3 * cpu,
            late_samples=then.late_samples + 30,
            late_seconds=then.late_seconds + 30 * late,
        )
        now = replace(before, at=before.at + 3.0, machine=machine, **seen)
        found = judge(before, now)
        hosts, work = now.hosts, now.connections
        assert work is not None
        if found.limit in ("machine", "disk"):
            assert hosts.ready or work.callbacks or work.in_use >= 8
        if found.limit == "connections":
            assert f"{work.in_use} of 16 are busy" in found.sentence or "all 16 are busy" in found.sentence
            assert work.in_use >= 8
        if found.limit == "politeness":
            assert hosts.ready * 4 < hosts.waiting + hosts.in_flight
        if found.limit == "spider" and late < 0.1:
            assert work.callbacks
        growth = now.rate.growth if now.rate is not None else None
        assert (", and its queue grows" in found.headline) <= bool(growth and growth > 0)
        assert (", and its queue lasts" in found.headline) <= bool(growth and growth < 0)
        if found.limit != named[0]:
            may_be_held = {named[0], found.limit} <= {*LIMITS, "none"} and verdict(
                before, now
            ).limit != "network"
            assert not may_be_held or now.at - named[1] >= 3.0
            named = (found.limit, now.at)
        before = now


def test_another_limit_is_named_once_it_has_held_for_ten_seconds_or_the_figures_rule_out_the_one_before():
    busy = {"connections": Connections(limit=100, in_use=100)}
    some = {"connections": Connections(limit=100, in_use=70)}
    few = {"connections": Connections(limit=100, in_use=20)}
    for history, limits in [
        ([busy, some, busy, some, some], ["connections"] * 5),  # five looks, three seconds apart
        ([busy, some, some, some, some, some], ["connections"] * 5 + ["none"]),
        ([busy, few, busy], ["connections", "none", "connections"]),
        (
            [busy, {"hosts": POLITE, **some}, {"hosts": POLITE, **few}],
            ["connections", "connections", "politeness"],
        ),
        ([{"hosts": POLITE}, {}, {}], ["politeness"] * 3),  # five hosts of sixty are ready for a moment
        ([busy, {"control": ControlFigures(paused_since=950.0)}], ["connections", "paused"]),
    ]:
        judge = Judge()
        found = [
            judge(BEFORE, replace(ten_seconds_later(**each), at=1010.0 + 3 * n))
            for n, each in enumerate(history)
        ]
        assert [each.limit for each in found] == limits, history


def test_a_queue_lasts_until_the_host_with_most_pages_has_had_them():
    now = ten_seconds_later(rate=Rate(seconds=60.0, pages=20.0, growth=-1.0))
    assert "lasts 25 s" in verdict(BEFORE, now).headline
    tail = replace(now, hosts=replace(now.hosts, tail=[1200.0, 900.0, 30.0]))
    assert "lasts 20 min" in verdict(BEFORE, tail).headline
    end = forecast(tail.pages, tail.rate, tail=tail.hosts.tail)
    assert end.seconds == 1200.0
    assert end.because == "2 hosts have most of what is left then, a page after each gap"


def test_a_snapshot_alone_has_a_verdict_too():
    assert verdict(BEFORE, BEFORE).limit == "none"
    polite = ten_seconds_later(hosts=POLITE)
    assert verdict(polite, polite).limit == "politeness"
    assert verdict(Snapshot(at=0.0), Snapshot(at=0.0)).limit == "done"


def test_a_few_failed_transfers_may_be_chance():
    now = ten_seconds_later(transfers=TransferFigures(n=402, down=12))
    assert verdict(BEFORE, now).limit == "none"


def test_a_line_has_progress_and_verdict():
    now = ten_seconds_later(
        hosts=POLITE, forecast=Forecast(seconds=7800.0, because="CLOSESPIDER_TIMEOUT ends it")
    )
    now = replace(now, verdict=Verdict("politeness", "Politeness is the limit."))
    line = summary(now)
    assert line == (
        "600 pages (+1,200 in 60 s, 20.0/s) · 4 % failed · 500 queued, 60 hosts: 0 ready, 40 waiting · "
        "Politeness is the limit. · ends in 2 h 10 min: CLOSESPIDER_TIMEOUT ends it"
    )
    focused = replace(now, topic=TopicFigures(pages=1000, relevant=400, harvest=0.4, lately=0.25))
    line = summary(replace(focused, verdict=now.verdict))
    assert "waiting · 25 % relevant lately, 40 % of all · Politeness" in line


def test_a_short_line_leaves_out_what_matters_least():
    now = ten_seconds_later(hosts=POLITE, started_at=910.0)
    now = replace(now, is_live=True, verdict=Verdict("politeness"))
    line = "600 pages · 20.0/s · limited by politeness · 500 queued · 4.2 % failed · 0 of 60 hosts ready · 1 min 40 s"
    assert short_summary(now, len(line)) == line
    assert short_summary(now, len(line) - 1) == line.removesuffix(" · 1 min 40 s")
    assert short_summary(now, 20) == "600 pages · 20.0/s"
    assert short_summary(now, 1) == "600 pages"
    stored = replace(now, is_live=False, started_at=None, limit="disk")
    assert " · limited by the disk · " in short_summary(stored, 100)


def test_durations_in_words():
    for seconds, words in [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (3661, "1 h 1 min"),
        (90000, "1 d 1 h"),
        (86400, "1 d"),
    ]:
        assert duration(seconds) == words, (seconds, words)


def test_how_long_a_queue_lasts_is_rounded_as_on_the_dashboard():
    for seconds, words in [(84.1, "84 s"), (643, "11 min"), (25e3, "7 h"), (2e5, "2 days")]:
        assert roughly(seconds) == words, (seconds, words)


def test_sizes_in_words():
    for n, words in [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (25e6, "25 MB"), (3e12, "3.0 TB")]:
        assert size(n) == words, (n, words)


def test_one_limit_at_a_time_is_in_the_stats():
    values = stats_of(replace(BEFORE, verdict=Verdict("disk", "")))
    limits = {name.rpartition("/")[2]: value for name, value in values.items() if "/limits/" in name}
    assert limits == {limit: int(limit == "disk") for limit in LIMITS}
