from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.politeness import Politeness

SECONDS = st.floats(0, 86400)


@pytest.mark.parametrize(
    ("transfer", "gap"),
    [(0.0, 0.5), (0.01, 0.5), (0.05, 0.5), (0.2, 2.0), (5.9, 59.0), (6.0, 60.0), (600.0, 60.0)],
)
def test_a_host_is_left_alone_ten_times_as_long_as_a_transfer_took_within_bounds(transfer, gap):
    assert Politeness(10.0, 0.5, 60.0).gap(transfer) == pytest.approx(gap)


def test_a_transfer_that_a_clock_measured_backwards_took_no_time():
    assert Politeness(10.0, 0.5, 60.0).gap(-3.0) == 0.5


def test_the_lower_bound_holds_even_above_the_upper_one():
    assert Politeness(10.0, 90.0, 60.0).gap(0.1) == 90.0
    assert Politeness(10.0, 90.0, 60.0).gap(1000.0) == 90.0


def test_without_a_factor_only_the_lower_bound_counts():
    assert Politeness(0.0, 2.0, 60.0).gap(1000.0) == 2.0


def test_after_a_crash_a_host_waits_as_if_its_transfer_had_lasted_to_the_end():
    politeness = Politeness(10.0, 0.0, 60.0)
    assert politeness.pause_after_crash(now=500.0, leased_at=100.0, last_seen=103.0) == 530.0
    assert politeness.pause_after_crash(now=500.0, leased_at=100.0, last_seen=200.0) == 560.0


@given(st.floats(0, 100), SECONDS, SECONDS, SECONDS, SECONDS)
def test_a_longer_transfer_never_makes_a_shorter_gap(factor, low, high, one, other):
    politeness = Politeness(factor, low, high)
    shorter, longer = sorted((one, other))
    assert low <= politeness.gap(shorter) <= politeness.gap(longer) <= max(low, high)


@given(SECONDS, SECONDS, SECONDS)
def test_no_transfer_that_the_dead_process_may_have_ended_asks_for_a_longer_pause(
    leased_at, ended, last_seen
):
    politeness = Politeness()
    leased_at, ended, last_seen = sorted((leased_at, ended, last_seen))
    now = last_seen + 1
    assert politeness.pause_after_crash(now, leased_at, last_seen) >= now + politeness.gap(ended - leased_at)
