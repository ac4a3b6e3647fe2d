"""What limits a crawl: each sentence of the verdict, from two snapshots made by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.naming import case

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
    VisitCounts,
    forecast,
    visits_of,
)
from scrapy_aopic.view.snapshot_stats import stats_of
from scrapy_aopic.view.text import duration, roughly, short_summary, size, summary
from scrapy_aopic.view.verdict import LIMITS, Judge, _fits, verdict

NOW = Snapshot(
    at=1010.0,
    is_live=True,
    pages=PageCounts(known=900, queued=500, visited=575, failed=25, in_flight=40),
    visits=VisitCounts(all=600, failed=25),
    rate=Rate(seconds=10.0, pages=20.0, transfers=20.0, down=0.2, in_use=15.0, callbacks=5.0, behind=0.0),
    hosts=HostCounts(known=60, ready=5, waiting=40, in_flight=15, seen=60, ceiling=40.0, waits={"gap": 40}),
    connections=Connections(limit=100, in_use=15, callbacks=5),
    transfers=TransferFigures(n=600, seconds=60.0, down=12),
    store=StoreState(commits=10, last_commit=0.1, commit_age=0.3),
    machine=Machine(loop_lag=0.005, cpu=0.3),
)
"""A crawl that nothing limits: hosts could have had twice as many pages, and nothing of ours is busy."""

POLITE = HostCounts(
    known=60, waiting=40, in_flight=15, seen=55, ceiling=21.0, waits={"gap": 38, "crawl delay": 2}
)


def at_work(in_use: int = 15, callbacks: int = 5, *, limit: int = 100, **rate: Any) -> dict[str, Any]:
    """Requests under way and pages in callbacks, all the time."""
    return {
        "connections": Connections(limit=limit, in_use=in_use, callbacks=callbacks),
        "rate": replace(NOW.rate, in_use=in_use, callbacks=callbacks, **rate),
    }


def seen(**changes: Any) -> Snapshot:
    """:data:`NOW` with *changes*."""
    return replace(NOW, **changes)


CASES: list[tuple[Limit, dict[str, Any], str]] = [
    ("none", {}, "5 hosts are ready, and 85 of 100 connections are free"),
    ("done", {"pages": PageCounts(known=400, visited=400)}, "Done: nothing is queued. To visit its pages again: the same command with --again."),
    ("pause", {"pages": PageCounts(known=400, visited=400), "revisit_at": 1060.0}, "pages may be due from 1970-01-01 00:17:40"),
    ("done", {"pages": PageCounts(queued=7, dead=7), "hosts": HostCounts(dead=1)}, "Only 1 dead host has pages left: 7."),
    # Whose first commit hangs, or whose spider has asked for nothing yet.
    ("disk", {"pages": PageCounts(), "store": StoreState(is_behind=True, commit_age=9.0)}, "no page is requested until the next one"),
    ("none", {"pages": PageCounts()}, "No page is queued yet."),
    ("stopped", {"is_live": False}, "runs elsewhere, or its process died"),
    ("stopped", {"is_live": False, "is_closed": True}, "the crawl was closed"),
    ("elsewhere", {"is_live": False, "shards": ShardFigures(n=4, held=3, alive=1, on_the_way=1)},
     "1 worker crawls 3 of 4 shards; what limits each of them its own dashboard shows. 1 letter between shards is on the way."),
    ("stopped", {"is_live": False, "shards": ShardFigures(n=4, held=0, alive=0)}, "No worker crawls this job now"),
    ("paused", {"control": ControlFigures(paused_since=950.0)}, "Paused by an operator 60 s ago: 'scrapy aopic control JOBDIR resume'"),
    ("done", {"pages": PageCounts(known=9, queued=9, dead=2, blocked=7)},
     "Only hosts that are blocked or have had all of their pages (7 pages), or are dead (2), have pages left."),
    ("control", {"control": ControlFigures(rate=21.0)},
     "at most 21 pages a second, and 5 hosts could be requested. 'scrapy aopic control JOBDIR'"),
    ("none", {"control": ControlFigures(rate=40.0)}, ""),
    ("control", {"control": ControlFigures(connections=15)}, "at most 15 transfers at once, and 5 hosts could be requested."),
    ("none", {"control": ControlFigures(connections=50)}, ""),
    ("politeness", {"control": ControlFigures(connections=15), "hosts": POLITE}, ""),
    ("pause", {"not_before": 1018.0}, "Waiting 8 s after a crash."),
    ("network", at_work(down=14.0), "140 of the last 200 transfers got no response"),
    ("none", at_work(transfers=0.8, down=0.5), ""),  # at the end, some of the few hosts that are left are dead
    ("network", {"transfers": TransferFigures(n=600, seconds=60.0, quiet=2.4)},
     "none of 15 transfers under way has ended for 2 s. Is there a network"),
    # Of a slow web, few would have ended by now.
    ("none", {"transfers": TransferFigures(n=600, seconds=6000.0, quiet=9.0), **at_work(20)}, ""),
    ("network", {"hosts": HostCounts(waiting=5, waits={"down": 5}), "connections": Connections(limit=100),
                 "waiting": [HostRow(name="a", wait=90.0), HostRow(name="b", wait=59.0)]},
     "Nothing answers: 5 hosts with pages did not respond. Next try in 59 s."),
    ("disk", {"store": StoreState(is_behind=True, commit_age=4.25), **at_work(behind=0.8)}, "the last commit that landed is 4.2 s old"),
    ("disk", at_work(behind=0.6), "60 % of the last seconds no page was requested, as a commit had not landed"),
    ("politeness", {"hosts": POLITE, **at_work(behind=0.6)}, ""),  # another disk would wait for the same hosts
    ("none", {"store": StoreState(commits=11, last_commit=2.4)}, ""),  # a slow commit keeps nobody
    # A loop that is late begins commits late, and notes late that they have landed.
    ("spider", {"machine": Machine(loop_lag=0.9, cpu=0.1), **at_work(behind=0.4),
                "store": StoreState(commits=11, last_commit=1.9, is_behind=True, commit_age=4.0)},
     "block the event loop, which is 0.90 s late while the process uses 0.10 of a core"),
    # Others have the processor: nothing blocks the loop.
    ("machine", {"machine": Machine(loop_lag=0.2, cpu=0.15, starved=0.33)},
     "uses 0.15 of a core and waits for one 33 % of the time, as others use it, and the event loop is 0.20 s late. A less"),
    ("machine", {"machine": Machine(cpu=0.96, standstill=2.04)},
     " No request was made for 2.0 s though a host was due."),
    ("machine", {"machine": Machine(cpu=0.96)}, "uses 0.96 of a core. Less work in callbacks would help."),
    ("politeness", {"machine": Machine(loop_lag=0.2, cpu=0.96), "hosts": POLITE}, ""),  # nor would another machine wait less
    ("politeness", {"machine": Machine(cpu=0.96), "hosts": replace(NOW.hosts, ceiling=24.0)}, ""),  # five of sixty, for a moment
    ("machine", at_work(15, limit=20), "It does not get to 5 hosts that could be requested: is the engine paused?"),
    ("connections", at_work(96), "96 of 100 are busy, and 5 more hosts wait"),
    ("politeness", {"hosts": POLITE, **at_work(96)}, "Politeness is the limit"),
    ("machine", {"machine": Machine(loop_lag=0.4, cpu=0.7)}, "0.70 of a core, and the event loop is 0.40 s late"),
    # Others take the processor.
    ("machine", {"machine": Machine(cpu=0.4, starved=0.55)},
     "uses 0.40 of a core and waits for one 55 % of the time, as others use it. A less busy machine would help."),
    ("connections", at_work(100), "all 100 are busy, and 5 more hosts wait for one. Raise CONCURRENT_REQUESTS"),
    ("politeness", {"hosts": POLITE, **at_work(101)}, ""),  # no other host could be requested
    ("politeness", {"hosts": POLITE},
     ("Politeness is the limit: 40 hosts must be left alone, "
      "38 for the gap after each transfer (AOPIC_POLITENESS_FACTOR, DOWNLOAD_DELAY), 2 for the crawl delay of their "
      "robots.txt; 15 are requested. More hosts would help; shorter gaps only if the hosts are yours.")),
    ("politeness", {"hosts": HostCounts(in_flight=3, seen=3)}, "every host that has pages is at work, and 3 are requested"),
    # The end of a crawl: the few hosts that are left.
    ("politeness", {"hosts": replace(POLITE, known=1200, waiting=3, in_flight=1, waits={"errors": 3})},
     ("3 hosts must be left alone after errors (AOPIC_BACKOFF), and 1 is requested. "
      "Only 4 of 1,200 known hosts have pages. More hosts would help.")),
    ("connections", at_work(3, 0, limit=4), "3 of 4 are busy, and 5 more hosts wait for one"),
    ("connections", at_work(1, 0, limit=1), "all 1 are busy"),
    ("spider", at_work(15, 60), "60 pages wait for callbacks, items or links"),
    ("spider", {"hosts": POLITE, **at_work(15, 60)}, ""),
    ("spider", {"hosts": HostCounts(dry=2), **at_work(0, 3)}, "3 pages wait for callbacks, items or links"),
    ("politeness", {"hosts": POLITE, **at_work(0, 3)}, ""),  # something else is at work
    # Callbacks of a busy process wait for the processor.
    ("machine", {"machine": Machine(cpu=0.84), **at_work(15, 70)},
     "0.84 of a core, and 70 pages wait for their callbacks, items or links"),
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
        found = verdict(seen(**changes))
        assert (found.limit, words in found.sentence) == (limit, True), (limit, changes, words, found)


def test_the_headline_has_twelve_words_at_most():
    for growth, tail, queue in [
        (None, [], ""),
        (0.05, [], ""),
        (0.5, [], ", and its queue grows"),
        (-0.05, [], ""),  # it may be chance, and would be hours
        (-0.2, [], ", and its queue lasts 2 min"),
        (-0.2, [1200.0, 900.0, 300.0], ": 2 hosts last 20 min"),
    ]:
        for limit, changes, _ in CASES:
            now = seen(**changes)
            now = replace(now, rate=replace(now.rate, growth=growth), hosts=replace(now.hosts, tail=tail))
            headline = verdict(now).headline
            with case(limit, changes, growth, queue):
                assert 0 < len(headline.split()) <= 12
                assert headline.endswith(".")
                if limit in HEADLINES and not headline.startswith(("Nothing answers", "Starting")):
                    assert headline == f"{HEADLINES[limit]}{queue * bool(now.pages.queued)}."


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
    closed = seen(is_live=False, is_closed=True, reason=reason)
    found = verdict(closed)
    assert found.headline == headline
    assert f"({reason})" in found.sentence or not reason
    how = "The command that started it, with the same job folder, goes on where it was: 500 pages"
    assert how in found.sentence
    assert "limited" not in found.sentence
    by_disk = replace(closed, limit="disk")
    assert ", when the disk limited it. " in verdict(by_disk).sentence


def test_every_reason_of_ours_that_the_docs_name_has_words_but_that_of_a_setting_which_lets_no_crawl_begin():
    docs = (Path(__file__).parents[2] / "docs" / "stats.md").read_text(encoding="utf-8")
    reasons = set(re.findall(r"`(aopic_[a-z]+)`", docs)) - {"aopic_setting"}
    assert len(reasons) > 7
    for reason in reasons:
        closed = seen(is_live=False, is_closed=True, reason=reason)
        assert reason not in verdict(closed).headline


def test_every_limit_has_a_case():
    assert {limit for limit, _, _ in CASES} == set(get_args(Limit))
    assert set(LIMITS) < set(get_args(Limit))


SMALL = st.integers(0, 12)
LOOKS = st.builds(
    lambda hosts, work, pages, growth, load, unused, behind: {
        "hosts": HostCounts(
            known=99,
            ready=hosts[0],
            waiting=hosts[1],
            in_flight=hosts[2],
            waits={"gap": hosts[1]},
            ceiling=2 + unused,
            tail=[float(hosts[1])] if hosts[1] else [],
        ),
        "pages": PageCounts(known=pages + 9, queued=pages, visited=9),
        "machine": Machine(cpu=load[0], loop_lag=load[1]),
        "store": StoreState(is_behind=behind > 0.5, commit_age=behind),
        **at_work(*work, limit=16, pages=2.0, growth=growth, behind=behind),
    },
    st.tuples(SMALL, SMALL, SMALL),
    st.tuples(st.integers(0, 16), SMALL),
    SMALL,
    st.sampled_from([None, -0.5, 0.0, 2.0]),
    st.tuples(st.sampled_from([0.1, 0.6, 0.95]), st.sampled_from([0.01, 0.5])),
    SMALL,
    st.sampled_from([0.0, 0.4, 0.9]),
)
"""What a snapshot shows."""


@given(st.lists(LOOKS, min_size=1, max_size=12))
def test_no_sentence_contradicts_a_figure_and_no_limit_comes_and_goes(history):
    judge, named = Judge(), ("", 0.0)
    for n, look in enumerate(history):
        now = seen(at=1000.0 + 3 * n, **look)
        now = replace(now, forecast=forecast(now.pages, now.rate, tail=now.hosts.tail))
        found = judge(now)
        hosts, work, late = now.hosts, now.connections, now.machine.loop_lag
        if found.limit in ("machine", "disk"):
            assert hosts.ready or work.callbacks or work.in_use >= 8
        if found.limit == "connections":
            assert f"{work.in_use} of 16 are busy" in found.sentence or "all 16 are busy" in found.sentence
            assert work.in_use >= 8
            assert hosts.ready
        if found.limit == "politeness":
            left_alone = hosts.waiting + hosts.in_flight
            assert hosts.ready * 4 < left_alone or hosts.ready < min(4, left_alone)
        if found.limit == "spider" and late < 0.1:
            assert work.callbacks
        growth, lasts = now.rate.growth, now.forecast.seconds
        assert (", and its queue grows" in found.headline) <= bool(growth and growth > 0)
        assert (re.search(r"hosts? lasts? ", found.headline) is not None) <= ([lasts] == hosts.tail)
        if ", and its queue lasts" in found.headline:
            assert growth < 0
            assert f"lasts {roughly(lasts)}." in found.headline
        assert lasts is None or lasts >= max(hosts.tail, default=0.0) or not now.pages.queued
        if found.limit != named[0]:
            may_be_held = {named[0], found.limit} <= {*LIMITS, "none", "control"}
            ruled_out = may_be_held and not _fits(named[0], now)
            assert not may_be_held or ruled_out or now.at - named[1] >= 3.0
            named = (found.limit, now.at)


def test_another_limit_is_named_once_it_has_held_for_ten_seconds_or_the_figures_rule_out_the_one_before():
    busy, some, few = at_work(100), at_work(70), at_work(20)
    for history, limits in [
        ([busy, some, busy, some, some], ["connections"] * 5),  # five looks, three seconds apart
        ([busy, some, some, some, some, some], ["connections"] * 5 + ["none"]),
        ([busy, few, busy], ["connections", "none", "none"]),
        (
            [busy, {"hosts": POLITE, **some}, {"hosts": POLITE, **few}],
            ["connections", "politeness", "politeness"],
        ),
        ([{"hosts": POLITE}, {}, {}], ["politeness"] * 3),  # five hosts of sixty are ready for a moment
        (
            [{"hosts": POLITE}, {"hosts": replace(POLITE, waiting=4, in_flight=1, ready=2, ceiling=60.0)}],
            ["politeness"] * 2,
        ),
        ([busy, {"control": ControlFigures(paused_since=950.0)}], ["connections", "paused"]),
    ]:
        judge = Judge()
        found = [judge(seen(**each, at=1010.0 + 3 * n)) for n, each in enumerate(history)]
        assert [each.limit for each in found] == limits, history


def test_of_two_hosts_one_may_be_ready_by_chance_without_another_limit():
    """A tail of two hosts that take turns is limited by politeness all the time."""
    judge = Judge()
    hosts = [HostCounts(known=20, seen=20, ready=n, waiting=2 - n, ceiling=20.0) for n in (0, 1, 0, 1)]
    work = Connections(limit=100, in_use=0, callbacks=0)
    said = [judge(seen(at=float(at), hosts=each, connections=work)).limit for at, each in enumerate(hosts)]
    assert set(said) == {"politeness"}


@pytest.mark.parametrize(("late", "is_silent"), [(0.01, True), (0.7, False)])
def test_a_late_event_loop_is_no_silent_network(late, is_silent):
    """It hears late of the ends of transfers."""
    past = TransferFigures(n=600, seconds=60.0, quiet=4.0)
    now = seen(**at_work(40), transfers=past, machine=Machine(loop_lag=late, cpu=0.05, starved=0.9))
    assert (verdict(now).limit == "network") == is_silent


def test_a_queue_lasts_until_the_host_with_most_pages_has_had_them():
    now = seen(rate=replace(NOW.rate, growth=-1.0))
    assert "lasts 25 s" in verdict(now).headline
    tail = [1200.0, 900.0, 30.0]
    assert ": 2 hosts last 20 min" in verdict(replace(now, hosts=replace(now.hosts, tail=tail))).headline
    end = forecast(now.pages, now.rate, tail=tail)
    assert end.seconds == 1200.0
    why = "a tail of 2 hosts has most of what is left, a page after each gap; to block some, or"
    assert end.because.startswith(why)


@pytest.mark.parametrize(
    ("growth", "tail", "seconds", "words"),
    [
        (0.05, [40.0], None, "the queue stays about as long as it is, so nothing says when it ends"),
        (0.5, [40.0], None, "the queue grows by 0.5 pages for each visit, so no end is in sight"),
        (None, [], None, "no page was fetched in the last seconds"),
        # With a gap of more than the window.
        (None, [40.0], 40.0, "a tail of 1 host has most of what is left"),
        (-0.5, [], 50.0, "the queue is empty then if it shrinks on"),
    ],
)
def test_a_forecast_is_made_only_if_something_says_it(growth, tail, seconds, words):
    end = forecast(NOW.pages, replace(NOW.rate, growth=growth), tail=tail)
    assert end.seconds == seconds
    assert words in end.because


def test_a_snapshot_alone_has_a_verdict_too():
    assert verdict(Snapshot(at=0.0)).limit == "done"
    polite = Snapshot(at=0.0, is_live=True, pages=PageCounts(queued=1), hosts=POLITE)
    assert verdict(polite).limit == "politeness"


def test_a_line_has_progress_and_verdict():
    now = seen(hosts=POLITE, forecast=Forecast(seconds=7800.0, because="CLOSESPIDER_TIMEOUT ends it"))
    now = replace(now, verdict=Verdict("politeness", "Politeness is the limit."))
    line = summary(now)
    assert line == (
        "600 pages (+200 in 10 s, 20.0/s) · 4 % failed · 500 queued, 60 hosts: 0 ready, 40 waiting · "
        "Politeness is the limit. · ends in 2 h 10 min: CLOSESPIDER_TIMEOUT ends it"
    )
    focused = replace(now, topic=TopicFigures(pages=1000, relevant=400, harvest=0.4, lately=0.25))
    line = summary(replace(focused, verdict=now.verdict))
    assert "waiting · 25 % relevant lately, 40 % of all, unchecked · Politeness" in line


def test_what_owners_forbid_and_what_is_gone_is_no_failure_and_a_recrawl_counts_visits():
    pages = PageCounts(known=100, visited=95, failed=5)
    outcomes = {"page": 85, "not found": 3, "robots.txt": 6, "no answer": 4, "5xx": 2}
    now = seen(pages=pages, visits=visits_of(pages, outcomes))
    assert summary(now).startswith(
        "100 pages (+200 in 10 s, 20.0/s) · 6 % failed · 9 % forbidden or gone · 0 queued"
    )
    again = replace(now, visits=visits_of(pages, {"page": 500, "not found": 50, "no answer": 50}))
    assert summary(again).startswith(
        "100 pages in 600 visits (+200 in 10 s, 20.0/s) · 8 % failed · 8 % forbidden"
    )
    assert "100 pages in 600 visits · 20.0/s" in short_summary(again, 200)
    assert visits_of(pages, {}) == VisitCounts(all=100, failed=5)  # only pages are known


def test_a_short_line_leaves_out_what_matters_least():
    now = seen(hosts=POLITE, started_at=910.0)
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
        (0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (90000, "1 d 1 h"), (86400, "1 d"),
    ]:  # fmt: skip
        assert duration(seconds) == words, (seconds, words)


def test_how_long_a_queue_lasts_is_rounded_as_on_the_dashboard():
    for seconds, words in [(84.1, "84 s"), (643, "11 min"), (25e3, "7 h"), (2e5, "2 days")]:
        assert roughly(seconds) == words, (seconds, words)


def test_sizes_in_words():
    for n, words in [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (25e6, "25 MB"), (3e12, "3.0 TB")]:
        assert size(n) == words, (n, words)


def test_one_limit_at_a_time_is_in_the_stats():
    values = stats_of(replace(NOW, verdict=Verdict("disk", "")))
    limits = {name.rpartition("/")[2]: value for name, value in values.items() if "/limits/" in name}
    assert limits == {limit: int(limit == "disk") for limit in LIMITS}
