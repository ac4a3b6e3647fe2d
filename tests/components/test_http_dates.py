"""Dates as servers write them, and when a page changed by the clock of its server."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import example, given
from hypothesis import strategies as st
from support.hostile_input import DATE_PIECES

from scrapy_aopic.web.http_dates import changed_at, read_date

NOW = 1_800_000_000.0
YEAR = 365 * 86_400.0

TEXTS = st.binary(max_size=300) | st.lists(st.sampled_from(DATE_PIECES), max_size=12).map(b"".join)


def header(instant: float) -> bytes:
    return formatdate(instant, usegmt=True).encode()


def test_every_form_of_a_date_is_read():
    for text in [
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sunday, 06-Nov-94 08:49:37 GMT",
        b"Sun Nov  6 08:49:37 1994",
        b"Sun, 06 Nov 1994 09:49:37 +0100",
        b"Sun, 6 Nov 1994 08:49:37 -0000",
    ]:
        assert read_date(text) == 784_111_777.0


def test_what_is_no_date_is_none():
    for text in [b"", b"now", b"0", b"784111777", b"Sun, 06 Nov 1994 08:49:37 GMT" + b" " * 300]:
        assert read_date(text) is None


@given(st.integers(0, 4_000_000_000), st.integers(0, int(30 * YEAR)))
def test_the_age_of_a_page_is_what_its_server_says_whatever_its_clock_is(clock, age):
    assert changed_at(header(clock), header(clock + age), NOW) == NOW - age


@given(TEXTS, TEXTS)
@example(header(0), header(NOW))
@example(header(315_532_800), header(NOW))
@example(header(NOW + 1), header(NOW))
@example(b"", header(NOW))
@example(header(NOW), b"")
@example(header(NOW), b"Fri, 31 Dec 9999 23:59:59 GMT")
def test_whatever_a_server_sends_no_page_is_older_than_the_web_or_changes_in_the_future(modified, date):
    changed = changed_at(modified, date, NOW)
    assert changed == 0.0 or 659_000_000 <= changed <= NOW
    if not changed:
        return
    sent, then = read_date(date), read_date(modified)
    assert sent is not None
    assert then is not None
    assert changed == NOW - (sent - then)


def test_a_date_that_cannot_be_true_says_nothing():
    for modified, date in [(0, NOW), (315_532_800, NOW), (NOW + 1, NOW), (NOW - 40 * YEAR, NOW)]:
        assert changed_at(header(modified), header(date), NOW) == 0.0


def test_the_first_page_of_the_web_counts_and_so_does_the_longest_date():
    assert changed_at(header(659_000_000), header(NOW), NOW) == 659_000_000
    assert changed_at(header(658_999_999), header(NOW), NOW) == 0.0
    assert read_date(header(NOW).ljust(256)) == NOW
    assert read_date(header(NOW).ljust(257)) is None
