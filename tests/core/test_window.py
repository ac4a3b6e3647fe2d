from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.records import Page, State
from scrapy_aopic.core.window import Window


def histories(window: Window, *visits: tuple[float, int]) -> list[int]:
    """History after each of the visits (instant, units) of one page, by the clock of *window*."""
    page = Page(State.QUEUED, 1)
    after = []
    for instant, spent in visits:
        turn, now = (instant, 0.0) if window.clock == "turns" else (0.0, instant)
        window.visit(page, spent, turn, now)
        after.append(page.history)
    return after


CLOCKS = pytest.mark.parametrize("clock", ["turns", "seconds"])


@CLOCKS
@pytest.mark.parametrize(
    ("passed", "history"),
    [
        (0.0, 1000 + 60),  # S == 0: all of the past counts
        (2.0, 750 + 60),  # S < T: H (T - S) / T + C
        (6.0, 250 + 60),
        (7.996, 0 + 60),  # a part of a unit is none
        (8.0, 60),  # S == T: C
        (16.0, 30),  # S > T: C T / S
        (800.0, 0),
    ],
)
def test_the_interpolated_history_by_hand(clock, passed, history):
    assert histories(Window(8.0, "interpolation", clock), (5.0, 1000), (5.0 + passed, 60)) == [1000, history]


@CLOCKS
@pytest.mark.parametrize("kind", ["interpolation", "fixed"])
def test_the_history_after_the_first_visit_is_what_it_spent(clock, kind):
    assert histories(Window(8.0, kind, clock), (1e6, 1000)) == [1000]


@CLOCKS
def test_interpolation_goes_on_from_its_own_estimate(clock):
    window = Window(8.0, "interpolation", clock)
    assert histories(window, (0.0, 800), (4.0, 100), (8.0, 100), (40.0, 100)) == [800, 500, 350, 25]


@CLOCKS
def test_the_fixed_window_counts_each_visit_inside_it_and_drops_the_others(clock):
    window = Window(8.0, "fixed", clock)
    assert histories(window, (0.0, 1), (3.0, 20), (7.9, 300), (8.0, 4000), (20.0, 5)) == [1, 21, 321, 4320, 5]


def test_the_fixed_window_keeps_no_mark_that_has_left_it():
    window, page = Window(8.0, "fixed"), Page(State.QUEUED, 1)
    for turn in range(100):
        window.visit(page, 1, float(turn), 0.0)
        assert len(page.marks) == page.history == min(turn + 1, 8)
    assert page.marks[0] == (92.0, 1)


def test_interpolation_keeps_no_marks_of_a_crawl_that_had_a_fixed_window():
    page = Page(State.QUEUED, 1)
    Window(8.0, "fixed").visit(page, 1000, 1.0, 0.0)
    Window(8.0, "interpolation").visit(page, 60, 5.0, 0.0)
    assert (page.history, page.marks) == (560, ())


@pytest.mark.parametrize("kind", ["interpolation", "fixed"])
def test_a_visit_is_noted_by_both_clocks(kind):
    page = Page(State.QUEUED, 1)
    Window(8.0, kind).visit(page, 1000, 1.5, 1e9)
    Window(8.0, kind).visit(page, 1000, 2.5, 2e9)
    assert (page.visits, page.visited_turn, page.visited_at) == (2, 2.5, 2e9)


def test_a_pause_shifts_no_estimate_by_turns_but_does_by_seconds():
    def after_a_pause(clock: str) -> int:
        page = Page(State.QUEUED, 1)
        window = Window(8.0, "interpolation", clock)
        window.visit(page, 1000, 1.0, 100.0)
        window.visit(page, 10, 1.0, 100.0 + 86400)
        return page.history

    assert (after_a_pause("turns"), after_a_pause("seconds")) == (1010, 0)


@pytest.mark.parametrize(("kind", "history"), [("interpolation", 1060), ("fixed", 1060)])
def test_a_clock_that_goes_back_counts_as_no_time(kind, history):
    assert histories(Window(8.0, kind, "seconds"), (100.0, 1000), (40.0, 60)) == [1000, history]


INSTANTS = st.floats(0, 1e10)


@given(
    st.builds(
        Window,
        st.floats(1e-3, 1e9),
        st.sampled_from(["interpolation", "fixed"]),
        st.sampled_from(["turns", "seconds"]),
    ),
    st.lists(st.tuples(INSTANTS, INSTANTS, st.integers(0, TOTAL)), min_size=1, max_size=20),
)
def test_a_history_is_a_whole_number_between_nothing_and_all_that_was_spent(window, visits):
    page, spent = Page(State.QUEUED, 1), 0
    for turn, now, units in visits:
        window.visit(page, units, turn, now)
        spent += units
        assert isinstance(page.history, int)
        # A double has 53 bits, so each step may round up by one part in 2**53.
        assert 0 <= page.history <= spent + (spent >> 48) + 1
