"""How the log of the test server is judged and read."""

from __future__ import annotations

import math

import pytest
from demo_web.server_log import Entry, audit, read_log


def entry(start: float, end: float, host: str = "a.example", target: str = "/") -> Entry:
    return Entry(start, end, host, target, 200, 1)


def test_an_empty_log_is_polite():
    found = audit([], 10)
    assert (found.n_requests, found.n_hosts, found.is_polite) == (0, 0, True)
    assert found.smallest_ratio == math.inf


def test_gaps_are_measured_against_the_request_before():
    found = audit([entry(0.0, 1.0), entry(11.0, 11.5), entry(16.5, 16.6)], 10)
    assert found.is_polite
    assert (found.n_requests, found.n_hosts, found.smallest_ratio) == (3, 1, 10.0)

    found = audit([entry(0.0, 1.0), entry(10.0, 10.5, target="/b"), entry(15.5, 15.6)], 10)
    assert (found.n_overlaps, found.n_short_gaps, found.smallest_ratio) == (0, 1, 9.0)
    assert found.violations == (
        "a.example: /b starts 9.000 s after the end of /, which took 1.000 s; 10.000 s were due",
    )


def test_hosts_are_judged_apart_and_in_any_order():
    found = audit([entry(11.0, 11.1), entry(0.5, 1.5, "b.example"), entry(0.0, 1.0)], 10)
    assert found.is_polite
    assert (found.n_requests, found.n_hosts) == (3, 2)


def test_requests_at_the_same_time_are_overlaps_and_have_no_gap():
    found = audit([entry(0.0, 10.0, target="/long"), entry(1.0, 2.0), entry(1.5, 3.0), entry(2.0, 4.0)], 1)
    # The pairs: the long one with each other one, 1.0-2.0 with 1.5-3.0, 1.5-3.0 with 2.0-4.0.
    assert (found.n_overlaps, found.n_short_gaps, found.smallest_ratio) == (5, 0, math.inf)
    assert found.violations[0] == "a.example: / starts 9.000 s before the end of /long"
    assert not found.is_polite


def test_a_gap_begins_at_the_latest_end():
    found = audit([entry(0.0, 10.0), entry(1.0, 2.0), entry(12.0, 12.1)], 1)
    assert (found.n_overlaps, found.n_short_gaps, found.smallest_ratio) == (1, 1, 0.2)


@pytest.mark.parametrize(
    ("gap", "floor", "cap", "tolerance", "n_short_gaps"),
    [
        (9.5, 0.0, math.inf, 0.0, 1),
        (9.5, 0.0, math.inf, 0.5, 0),
        (9.5, 0.0, 9.5, 0.0, 0),
        (9.0, 0.0, 9.5, 0.0, 1),
        (10.0, 12.0, math.inf, 0.0, 1),
        (12.0, 12.0, math.inf, 0.0, 0),
    ],
)
def test_the_gap_that_is_due_has_a_floor_a_cap_and_a_tolerance(gap, floor, cap, tolerance, n_short_gaps):
    log = [entry(0.0, 1.0), entry(1.0 + gap, 20.0)]
    assert audit(log, 10, floor, cap, tolerance=tolerance).n_short_gaps == n_short_gaps


def test_a_request_of_no_duration_has_no_ratio():
    assert audit([entry(1.0, 1.0), entry(1.0, 2.0)], 10) == audit([entry(5.0, 5.0), entry(5.0, 5.5)], 10)
    assert audit([entry(1.0, 1.0), entry(1.0, 2.0)], 10).is_polite


def test_the_smallest_share_is_of_what_was_due_for_whatever_reason():
    log = [entry(0.0, 1.0), entry(4.0, 5.0, target="/later"), entry(9.0, 10.0)]
    found = audit(log, 2, rest=lambda entry: 5.0 if entry.target == "/later" else 0.0)
    assert (found.n_short_gaps, found.smallest_share, found.smallest_ratio) == (1, 0.8, 3.0)
    assert audit(log, 0).smallest_share == math.inf


def test_only_the_first_violations_are_told():
    found = audit([entry(n, n + 0.5, target=f"/{n}") for n in range(100)], 10)
    assert found.n_short_gaps == 99
    assert [text.split()[1] for text in found.violations] == [f"/{n}" for n in range(1, 11)]


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("1.5\t2.0\ta.example\t/\t200\t1\n3.5\t4.0\ta.exam", encoding="utf-8")
    assert read_log(path) == [Entry(1.5, 2.0, "a.example", "/", 200, 1)]


def test_another_file_is_no_log(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("1.5\t2.0\ta.example\t/\t200\t1\nfoo\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2 is not a line of a server log: 'foo\\n'"):
        read_log(path)
