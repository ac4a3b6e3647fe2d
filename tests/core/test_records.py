from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scrapy_aopic.core.fetched import Fetched, read_fetched
from scrapy_aopic.core.frontier.heap import LazyHeap
from scrapy_aopic.core.frontier.host_state import HostState, pack_state, unpack_state
from scrapy_aopic.core.layout import ROUNDS
from scrapy_aopic.core.ledger import TOTAL
from scrapy_aopic.core.politeness import Silence
from scrapy_aopic.core.records import (
    HOST_BYTES,
    MOST_PRIORITY,
    N_FRONT_QUEUES,
    Changes,
    HostRecord,
    Page,
    PageState,
    front_queue_of,
    host_key,
    pack_host,
    pack_page,
    page_key,
    queue_row,
    repeat_key,
    unpack_host,
    unpack_page,
)
from scrapy_aopic.core.revisits.rounds import Round

UNITS = st.integers(0, TOTAL)
INSTANTS = st.floats(allow_nan=False)
PRIORITIES = st.one_of(
    st.just(0),
    st.integers(-300, 300),
    st.integers(-MOST_PRIORITY, MOST_PRIORITY),
    st.tuples(st.integers(0, 63), st.integers(-1, 1)).map(
        lambda parts: min((1 << parts[0]) + parts[1], MOST_PRIORITY)
    ),
)
FRONT_QUEUES = st.builds(
    lambda priority, number: N_FRONT_QUEUES * priority + number,
    st.one_of(PRIORITIES, PRIORITIES.map(lambda priority: -priority)),
    st.integers(0, N_FRONT_QUEUES - 1),
)
PLACES = st.integers(0, (1 << 48) - 1)
PAGES = st.builds(
    Page,
    state=st.sampled_from(PageState).map(int),
    place=PLACES,
    cash=UNITS,
    front_queue=FRONT_QUEUES,
    handed=UNITS,
    shift=st.integers(-64, 64),
    history=UNITS,
    visits=st.integers(0, 1 << 40),
    visited_turn=INSTANTS,
    visited_at=INSTANTS,
    outcome=st.text(),
    marks=st.lists(st.tuples(INSTANTS, UNITS)).map(tuple),
)
HOSTS = st.builds(
    HostRecord,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    queued=UNITS,
    visited=UNITS,
    best=st.one_of(st.none(), FRONT_QUEUES),
    not_before=INSTANTS,
    transfer=INSTANTS,
    leased_at=INSTANTS,
    row=st.binary(max_size=9),
    crawl_delay=INSTANTS,
    errors=st.integers(0, 1 << 40),
    down=st.integers(0, 1 << 40),
    address=st.text(st.characters(exclude_categories=["Cs"])),
)


@given(PAGES)
def test_a_page_is_read_as_it_was_written(page):
    assert unpack_page(pack_page(page)) == page


@given(HOSTS)
def test_a_host_is_read_as_it_was_written(host):
    assert unpack_host(pack_host(host)) == host


# A value for each field that differs from its default; a field without one fails the test below.
PAGE_FIELDS = {
    "state": PageState.VISITED.value, "place": 7, "cash": 8, "front_queue": 9, "handed": 10, "shift": -3, "score": 11,
    "is_chosen": True, "history": 12, "visits": 13, "visited_turn": 1.5, "visited_at": 2.5, "outcome": "redirect",
    "marks": ((1.0, 2),), "changes": Changes(1.0, 2.0, b"e", b"d", b"t", b"m", 3.0, 4.0, b"p", 5.0, 6.0, 7.0, 8.0, 9.0, 10, b"b"), "repeat_of": b"r", "canonical": b"c", "purpose": b"p",
    "is_claimed": True, "height": 14, "clicks": 15, "fetched": 16, "lowered": 1,
    "branch": 17,
}  # fmt: skip


@given(st.sets(st.sampled_from(Page.__struct_fields__)))
@example(set())
def test_no_field_of_a_page_is_lost_alone_or_beside_others(names):
    for each in [names] if names else [{name} for name in PAGE_FIELDS]:
        page = Page(PageState.QUEUED, 1)
        for name in each:
            assert getattr(page, name) != PAGE_FIELDS[name], name
            setattr(page, name, PAGE_FIELDS[name])
        assert unpack_page(pack_page(page)) == page, each


def test_nothing_that_is_known_of_how_a_page_changes_is_lost():
    for name in Changes._fields:
        changes = Changes()._replace(**{name: getattr(PAGE_FIELDS["changes"], name)})
        assert changes != Changes()
        page = Page(PageState.VISITED, 1, changes=changes)
        assert unpack_page(pack_page(page)) == page, name


def test_units_that_outgrow_64_bits_in_a_long_crawl_of_a_few_pages_are_read_as_they_were_written():
    for more in ({}, {"changes": PAGE_FIELDS["changes"], "marks": ((1.5, 1 << 80),), "canonical": b"c"}):
        for n in (1 << 63, 1 << 64, 1 << 70, (1 << 64) - 1):
            page = Page(PageState.VISITED, 1, handed=n, history=n, **more)
            assert unpack_page(pack_page(page)) == page, (n, more)


def test_visits_of_a_fixed_window_that_outgrow_64_bits_together_are_read_as_they_were_written():
    marks = tuple((float(turn), TOTAL) for turn in range(5000))
    page = Page(PageState.VISITED, 1, history=5000 * TOTAL, visits=5000, marks=marks)
    assert unpack_page(pack_page(page)) == page


@given(st.integers(1, (1 << 32) - 1), st.integers(0, 63), st.integers(1, 255))
def test_the_branch_of_a_page_and_how_much_lower_it_waits_are_read_as_they_were_written(
    branch, lowered, clicks
):
    page = Page(PageState.QUEUED, 1, clicks=clicks, lowered=lowered, branch=branch)
    assert unpack_page(pack_page(page)) == page


def test_a_page_that_only_waits_takes_no_more_bytes_than_promised():
    page = Page(PageState.QUEUED, 1_000_000, cash=TOTAL >> 24, front_queue=30)
    assert len(pack_page(page)) <= 18


KINDS = ["", "text/html", "application/pdf", "image/*", "application/*", "*/*"]


@given(st.integers(0, 999), st.sampled_from(KINDS), st.none() | st.integers(0, 1 << 33))
def test_a_response_is_read_as_it_was_written(status, content_type, size):
    fetched = Fetched(status, content_type, size)
    page = Page(PageState.VISITED, 1, visits=1, clicks=255, fetched=fetched.to_number())
    assert unpack_page(pack_page(page)) == page
    assert read_fetched(page.fetched) == fetched


def test_what_has_no_place_in_a_record_is_kept_as_the_nearest_that_has():
    for fetched, kept in [
        (Fetched(200, "application/vnd.unheard-of", 1), Fetched(200, "application/*", 1)),
        (Fetched(200, "x" * 10_000, 1), Fetched(200, "*/*", 1)),
        (Fetched(99_999, "text/html", 1 << 70), Fetched(1023, "text/html", (1 << 34) - 3)),
        (Fetched(-1, "text/html", None), Fetched(0, "text/html", None)),
    ]:
        assert read_fetched(fetched.to_number()) == kept, fetched
        page = Page(PageState.VISITED, 1, visits=1, fetched=fetched.to_number())
        assert unpack_page(pack_page(page)) == page, fetched


def test_a_number_that_no_response_has_is_none():
    assert read_fetched(0) is None
    assert read_fetched(-1) is None
    assert read_fetched(2 + (127 << 11)) is None


def test_an_ordinary_response_takes_no_more_bytes_than_promised():
    visited = Page(PageState.VISITED, 1, visits=1, visited_turn=0.5, clicks=4)
    before = len(pack_page(visited))
    for fetched in (
        Fetched(200, "text/html", (1 << 20) - 1),
        Fetched(301, "text/html"),
        Fetched(200, "application/pdf"),
    ):
        visited.fetched = fetched.to_number()
        assert len(pack_page(visited)) - before <= 4
    visited.fetched = Fetched(404, "text/html", 1 << 30).to_number()
    assert len(pack_page(visited)) - before == 8


def test_what_a_page_of_its_kind_does_not_need_is_left_out():
    waiting = Page(PageState.QUEUED, 1, score=1)
    visited = Page(PageState.VISITED, 1, score=1, visits=1, visited_turn=0.5)
    assert len(pack_page(waiting)) == 10
    assert len(pack_page(visited)) == 12 + 3 + 2 + 18
    assert len(pack_page(Page(PageState.FAILED, 1, visits=1, outcome="http 404"))) > len(pack_page(visited))


def test_trailing_defaults_of_a_host_are_left_out():
    assert len(pack_host(HostRecord("a"))) == 3
    assert len(pack_host(HostRecord("a", queued=1))) == 4
    assert len(pack_host(HostRecord("a", best=0))) == 6


def test_what_a_host_is_silent_about_is_written():
    host = HostRecord(
        "a", broken=3, silent={"https://a": Silence(4, 5.5), "": Silence(0, 6.0, True)}, held_until=5.5
    )
    assert unpack_host(pack_host(host)) == host
    assert (host.opens_at, host.unanswered) == (5.5, 4)


def test_what_a_host_has_in_memory_only_is_not_written():
    host = HostState(
        "a", back_queue=[b"row and page"], is_whole=True, phase=3, heap=LazyHeap(), rank=b"r", domain=b"d",
        is_located=True, gates=(b"g",), entered=(b"g",), tried={b"p"}, looked_up_to=b"r", passed_over=("o",), heard_at=1.0,
        transfers={b"p": 1.0}, at_once=2, rests_until=1.0,
    )  # fmt: skip
    assert unpack_host(pack_state(host)) == HostRecord("a")
    assert unpack_state(pack_state(host)) == HostState("a")
    ours = set(HostState.__struct_fields__) - set(HostRecord.__struct_fields__) - {"in_flight"}
    assert [name for name in ours if getattr(host, name) == getattr(HostState("a"), name)] == []


def test_leased_pages_can_be_taken_again_from_a_host_that_was_written():
    host = HostState("a", best=3, in_flight={b"one": 9, b"two": 5})
    assert unpack_host(pack_state(host)).best == 9
    assert unpack_host(pack_state(HostState("a", best=30, in_flight={b"one": 9}))).best == 30
    assert host.best == 3


def test_a_host_name_that_is_no_text_still_has_a_key():
    assert len(host_key("\udcff")) == HOST_BYTES


def test_keys_stay_as_they_are_because_stores_are_full_of_them():
    assert host_key("example.org").hex() == "24dab28d73e82db5"
    assert page_key(b"h" * 8, b"fingerprint").hex() == "6868686868686868" + "899c2000b4172447"
    assert queue_row(40, 258).hex() == "57" + "0000000000000102"
    assert queue_row(64 * 2 + 40, 258).hex() == "07fd" + "57" + "0000000000000102"
    assert queue_row(64 * -300 + 40, 258).hex() == "81012c" + "57" + "0000000000000102"
    assert repeat_key(b"h" * 8 + b"p" * 8, 258).hex() == "6868686868686868" + "b8b361c1f0399ccd"
    assert Round(258, 0.0).row()[0] == ROUNDS + b"\0\0\1\2"


@given(st.lists(st.tuples(FRONT_QUEUES, PLACES), max_size=30))
def test_queue_rows_sort_best_front_queue_first_and_first_in_first_out_inside_it(places):
    in_order = sorted(places, key=lambda place: (-place[0], place[1]))
    assert sorted(queue_row(*place) for place in places) == [queue_row(*place) for place in in_order]


@given(st.sets(FRONT_QUEUES, min_size=2, max_size=30))
def test_no_beginning_of_a_queue_row_is_that_of_another_front_queue(front_queues):
    starts = [queue_row(each, 0)[:-8] for each in front_queues]
    assert not [one for one in starts for other in starts if one is not other and other.startswith(one)]


@given(FRONT_QUEUES, PLACES)
def test_a_queue_row_says_its_front_queue(level, order):
    assert front_queue_of(queue_row(level, order)) == level
