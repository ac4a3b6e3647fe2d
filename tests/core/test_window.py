from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.records import Page, PageState
from scrapy_aopic.core.window import Window


def histories(window: Window, *visits: tuple[float, int]) -> list[int]:
    """History after each of the visits (instant, units) of one page, by the clock of *window*."""
    page = Page(PageState.QUEUED, 1)
    after = []
    for instant, spent in visits:
        turn, now = (instant, 0.0) if window.clock == "turns" else (0.0, instant)
        window.visit(page, spent, turn, now)
        after.append(page.history)
    return after


KINDS = ["interpolation", "fixed", "variable", "ewma"]
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
def test_interpolation_goes_on_from_its_own_estimate(clock):
    window = Window(8.0, "interpolation", clock)
    assert histories(window, (0.0, 800), (4.0, 100), (8.0, 100), (40.0, 100)) == [800, 500, 350, 25]


@CLOCKS
def test_the_fixed_window_counts_each_visit_inside_it_and_drops_the_others(clock):
    window = Window(8.0, "fixed", clock)
    found = histories(window, (0.0, 0), (3.0, 20), (7.9, 300), (8.0, 4000), (11.0, 5))
    assert found == [0, 20, 320, 4320, 4305]


@CLOCKS
@pytest.mark.parametrize(
    ("passed", "history"),
    [
        (0.0, 1000 + 60),  # the first visit stands for the whole window before it
        (2.0, 750 + 60),  # of which three quarters are still inside
        (8.0, 60),
        (16.0, 30),  # half of what came since the visit before
        (800.0, 1),  # a part of a unit is a whole one
    ],
)
def test_the_fixed_window_takes_the_part_inside_of_a_visit_that_reaches_out(clock, passed, history):
    assert histories(Window(8.0, "fixed", clock), (5.0, 1000), (5.0 + passed, 60)) == [1000, history]


def test_the_fixed_window_keeps_one_mark_outside_it():
    window, page = Window(8.0, "fixed"), Page(PageState.QUEUED, 1)
    for turn in range(100):
        window.visit(page, 1, float(turn), 0.0)
        # Visits at 1, 2 ... inside, and the instant at which the oldest of them began to save.
        assert len(page.marks) == (0 if turn == 0 else min(turn + 2, 9))
        assert page.history == (1 if turn == 0 else min(turn + 1, 8))
    assert page.marks[:2] == ((91.0, 1), (92.0, 1))


def test_the_variable_window_by_hand():
    # The first visit stands for one turn with a third of its history; then 3 visits count, over their turns.
    assert histories(Window(3, "variable"), (5.0, 900), (7.0, 60), (11.0, 20), (11.5, 10), (20.0, 70)) == [
        900,
        3 * (300 + 60) // (1 + 2),
        int(3 * (300 + 60 + 20) / (1 + 2 + 4)),
        int(3 * (60 + 20 + 10) / (2 + 4 + 0.5)),
        int(3 * (20 + 10 + 70) / (4 + 0.5 + 8.5)),
    ]


def test_the_variable_window_keeps_its_visits_and_one_mark_more():
    window, page = Window(3, "variable"), Page(PageState.QUEUED, 1)
    for turn in range(10):
        window.visit(page, 10 * turn, float(turn), 0.0)
    assert page.marks == ((6.0, 60), (7.0, 70), (8.0, 80), (9.0, 90))
    assert page.history == 240


def test_visits_of_the_variable_window_that_span_no_time_are_added_up():
    window = Window(2, "variable")
    assert histories(window, (4.0, 10), (4.0, 10), (4.0, 10), (4.0, 10)) == [10, 30, 40, 50]


@CLOCKS
def test_the_exponential_mean_by_hand(clock):
    passed, window = 8.0 * math.log(2), Window(8.0, "ewma", clock)
    # Half of the weight is left; the rate 60 / passed has the other half, in a window of 8.
    history = 500 + int(8 * 60 / passed / 2)
    assert histories(window, (5.0, 1000), (5.0 + passed, 60)) == pytest.approx([1000, history], abs=1)
    assert histories(window, (5.0, 1000), (5.0, 60)) == [1000, 1060]
    assert histories(window, (5.0, 1000), (5.0 + 8e6, 60_000_000)) == [1000, 60]


def test_a_newcomer_has_the_history_of_its_class_until_its_second_visit():
    for kind in KINDS:
        page, window = Page(PageState.QUEUED, 1), Window(8.0, kind)
        window.visit(page, 50, 3.0, 0.0, 800)
        assert page.history == 800, kind
        window.visit(page, 50, 11.0, 0.0, 1_000_000)
        # 50 units in the window's length; the class counts no more, but for one of the turns of the variable window.
        assert page.history == {"variable": 8 * (100 + 50) // 9, "ewma": 325}.get(kind, 50), kind


def test_a_kind_of_one_number_keeps_no_marks_of_a_crawl_that_kept_visits():
    for kind in ["interpolation", "ewma"]:
        page = Page(PageState.QUEUED, 1)
        Window(8.0, "fixed").visit(page, 500, 1.0, 0.0)
        Window(8.0, "fixed").visit(page, 500, 1.0, 0.0)
        assert page.marks, kind
        Window(8.0, kind).visit(page, 60, 1.0, 0.0)
        assert (page.history, page.marks) == (1060, ()), kind


def test_a_window_shorter_than_the_clock_can_tell_is_possible():
    for kind in KINDS:
        page, window = Page(PageState.QUEUED, 1), Window(1.0 if kind == "variable" else 1e-9, kind, "seconds")
        for now in (1e10, 1e10 + 1, 1e10 + 2):
            window.visit(page, 1000, 0.0, now)
        assert page.visits == 3, kind


def test_a_visit_is_noted_by_both_clocks():
    for kind in KINDS:
        page = Page(PageState.QUEUED, 1)
        Window(8.0, kind).visit(page, 1000, 1.5, 1e9)
        Window(8.0, kind).visit(page, 1000, 2.5, 2e9)
        assert (page.visits, page.visited_turn, page.visited_at) == (2, 2.5, 2e9), kind


def test_a_pause_shifts_no_estimate_by_turns_but_does_by_seconds():
    def after_a_pause(clock: str) -> int:
        page = Page(PageState.QUEUED, 1)
        window = Window(8.0, "interpolation", clock)
        window.visit(page, 1000, 1.0, 100.0)
        window.visit(page, 10, 1.0, 100.0 + 86400)
        return page.history

    assert (after_a_pause("turns"), after_a_pause("seconds")) == (1010, 0)


def test_a_clock_that_goes_back_counts_as_no_time():
    for kind in ["interpolation", "fixed", "ewma"]:
        assert histories(Window(8.0, kind, "seconds"), (100.0, 1000), (40.0, 60)) == [1000, 1060], kind


def test_a_job_that_changes_its_window_goes_on_from_the_histories_that_it_has():
    for before in [Window(8.0, kind, clock) for kind in KINDS for clock in ("turns", "seconds")]:
        for kind in KINDS:
            page = Page(PageState.QUEUED, 1)
            for turn in range(1, 50):
                before.visit(page, 100, float(turn), 1e9 + turn)
            Window(8.0, kind).visit(page, 100, 50.0, 1e9 + 50)
            assert page.history == pytest.approx(800, rel=0.1), (kind, before)


INSTANTS = st.floats(0, 1e10)


@given(
    st.builds(
        Window,
        st.floats(1e-3, 1e9),
        st.sampled_from(["interpolation", "fixed", "ewma"]),
        st.sampled_from(["turns", "seconds"]),
    ),
    st.lists(st.tuples(INSTANTS, INSTANTS, st.integers(0, TOTAL)), min_size=1, max_size=20),
)
def test_a_history_is_a_whole_number_between_nothing_and_all_that_was_spent(window, visits):
    page, spent = Page(PageState.QUEUED, 1), 0
    for turn, now, units in visits:
        window.visit(page, units, turn, now)
        spent += units
        assert isinstance(page.history, int)
        # A double has 53 bits, so each step may round up by one part in 2**53.
        assert 0 <= page.history <= spent + (spent >> 48) + 1


@pytest.mark.slow
@given(st.integers(1, 20), st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1)), min_size=1, max_size=30))
def test_a_page_of_the_variable_window_has_at_most_all_cash_in_each_turn(visits, passed):
    window, page, turn = Window(visits, "variable"), Page(PageState.QUEUED, 1), 0.0
    for turns, part in passed:
        turn += turns
        window.visit(page, int(part * min(turns, 1.0) * TOTAL), turn, 0.0)
        assert isinstance(page.history, int)
        assert 0 <= page.history <= visits * TOTAL * (1 + 1e-6)


STEPS = st.lists(st.floats(0.01, 30), min_size=100, max_size=120)


@pytest.mark.slow
@given(st.sampled_from(KINDS), st.integers(1, 12), st.integers(0, 10**12), STEPS)
def test_of_a_steady_inflow_every_kind_makes_the_rate_times_the_window(kind, size, first, steps):
    window, page, rate, now = Window(size, kind), Page(PageState.QUEUED, 1), 10**9, 3.0
    window.visit(page, first, now, now)
    for passed in [*steps, 40 * size]:  # in the end, the first visit has left every window
        now += passed
        window.visit(page, int(rate * passed), now, now)
    assert page.history == pytest.approx(rate * size, rel=1e-6)
    assert window.history(page, int(rate * 0.7), now + 0.7, now + 0.7) == pytest.approx(rate * size, rel=1e-6)


@given(st.integers(0, 10**12), st.floats(0.5, 40), st.lists(st.floats(0.01, 1), min_size=1, max_size=20))
def test_the_exponential_mean_does_not_depend_on_how_a_steady_inflow_is_cut_into_visits(first, span, parts):
    def after(cuts: list[float]) -> int:
        page, now = Page(PageState.QUEUED, 1), 0.0
        window = Window(8.0, "ewma")
        window.visit(page, first, now, 0.0)
        for cut in cuts:
            now += span * cut / sum(cuts)
            window.visit(page, int(10**9 * span * cut / sum(cuts)), now, 0.0)
        return page.history

    assert after(parts) == pytest.approx(after([1.0]), rel=1e-6)


def test_what_a_page_is_expected_to_get_does_not_depend_on_the_chance_of_its_last_cash():
    """Of two pages with the same past, one has got nothing since its last visit and the other twice its share."""
    for kind in ["interpolation", "fixed", "ewma"]:
        window = Window(8.0, kind)
        page = Page(PageState.VISITED, 0)
        for turn in range(30):
            window.visit(page, 100, float(turn), 0.0)
        poor, rich = (window.expected(page, cash, 29.5, 0.0) for cash in (0, 100))
        assert 40 <= poor <= rich <= 60, kind


def test_a_page_that_was_not_visited_for_a_whole_window_is_expected_to_get_what_it_got():
    page = Page(PageState.VISITED, 0, visits=9, history=800, visited_turn=10.0)
    assert Window().expected(page, 123, 18.0, 0.0) == 123
