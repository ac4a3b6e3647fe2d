"""Fetches of robots.txt that redirect to each other, in any order of events, beside a walk along the redirects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.naming import case

from scrapy_aopic.core.robots.fetches import (
    MAX_BYTES,
    MAX_REDIRECTS,
    Download,
    Fetch,
    RobotsFetches,
    RobotsTarget,
    RobotsText,
    Step,
    Unreachable,
    Wait,
)
from scrapy_aopic.core.robots.state import KnownRobots, Refetching, RobotsTxt
from scrapy_aopic.exceptions import CallError

NOW = 1_000_000.0
REFETCHING = Refetching(expiry=86_400.0, retry=60.0, patience=4000.0)
TEXT, FAILURE = "text", "failure"


def known_robots(capacity: int = 1000) -> KnownRobots:
    store: dict[str, bytes] = {}
    return KnownRobots(REFETCHING, capacity, store.get, store.__setitem__)


def name(n: int) -> str:
    return f"http://h{n}.test"


def text_of(n: int) -> bytes:
    return f"disallow: /{n}".encode()


class World:
    """Origins of which each has a text, fails, or redirects to another one, maybe by way of another file.

    Args:
        ways: Of each origin: its kind, or the number of the next one and whether there is a file between.
    """

    def __init__(self, ways: list[str | tuple[int, bool]]) -> None:
        self.ways = ways
        self.known = known_robots()
        self.fetches = RobotsFetches(self.known)
        self.downloads: Counter[str] = Counter()
        self.ended: set[Fetch] = set()

    def download(self, fetch: Fetch, url: str) -> Step:
        self.downloads[url] += 1
        if url.startswith("http://between.test/"):
            n = int(url.rpartition("/")[2])
            return self.fetches.responded(
                fetch, 302, b"", RobotsTarget(f"{name(n)}/robots.txt", name(n)), NOW
            )
        n = int(url.removeprefix("http://h").partition(".")[0])
        way = self.ways[n]
        if way == TEXT:
            return self.fetches.responded(fetch, 200, text_of(n), None, NOW)
        if way == FAILURE:
            return self.fetches.responded(fetch, 503, b"", None, NOW)
        to, has_file = way
        target = (
            RobotsTarget(f"http://between.test/{to}", None)
            if has_file
            else RobotsTarget(f"{name(to)}/robots.txt", name(to))
        )
        return self.fetches.responded(fetch, 301, b"", target, NOW)

    def learn(self, origin: str) -> Generator[Fetch | None, None, RobotsTxt]:
        """What the middleware does for a page of *origin*; yields what it waits for, or ``None`` for a download."""
        robots = self.known.get_current(origin, NOW)
        if robots is not None:
            return robots
        while (fetch := self.fetches.get(origin)) is not None:
            fetch.when_ended(lambda fetch=fetch: self.ended.add(fetch))
            yield fetch
            robots = self.known.get_current(origin, NOW)
            if robots is not None:
                return robots
        fetch = self.fetches.begin(origin)
        n_downloads = 0
        step: Step = Download(fetch.url)
        while isinstance(step, (Download, Wait)):
            if isinstance(step, Download):
                n_downloads += 1
                assert n_downloads <= MAX_REDIRECTS + 1
                yield None
                step = self.download(fetch, step.url)
            else:
                step.fetch.when_ended(lambda other=step.fetch: self.ended.add(other))
                yield step.fetch
                step = self.fetches.resumed(fetch, NOW)
        robots = self.fetches.learn(fetch, step.text if isinstance(step, RobotsText) else None, NOW)
        self.fetches.end(fetch)
        return robots

    def run(self, pages: list[int], turns: list[int]) -> list[tuple[int, RobotsTxt]]:
        """Have *pages* of these origins learn their robots.txt, in an order of events by *turns*."""
        running = [(n, self.learn(name(n))) for n in pages]
        waits: dict[int, Fetch | None] = dict.fromkeys(range(len(running)))
        learned = []
        for turn in [*turns, *[0] * 1000]:
            if not waits:
                break
            free = [at for at, fetch in waits.items() if fetch is None or fetch in self.ended]
            assert free, "all wait for each other"
            at = free[turn % len(free)]
            try:
                waits[at] = next(running[at][1])
            except StopIteration as end:
                learned.append((running[at][0], end.value))
                del waits[at]
        assert not waits
        return learned

    def expected(self, n: int) -> bytes | str | None:
        """What a fetch for one origin by itself finds: a text, ``FAILURE``; ``None`` if that depends on the order."""
        n_redirects = 0
        seen = {n}
        while not isinstance(self.ways[n], str):
            to, has_file = self.ways[n]
            n_redirects += 1 + has_file
            if to in seen:
                return b""
            seen.add(to)
            n = to
        if n_redirects > MAX_REDIRECTS:
            return None  # if another fetch has come to the end before, it is not so far
        return text_of(n) if self.ways[n] == TEXT else FAILURE


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(1, 9))
    ends = st.sampled_from([TEXT, FAILURE])
    redirects = st.tuples(st.integers(0, size - 1), st.booleans())
    return World(draw(st.lists(ends | redirects | redirects, min_size=size, max_size=size)))


@given(worlds(), st.data())
def test_every_fetch_ends_with_what_its_redirects_lead_to_in_any_order_of_events(world, data):
    size = len(world.ways)
    pages = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=12))
    learned = world.run(pages, data.draw(st.lists(st.integers(0, 11), max_size=60)))
    assert len(world.fetches) == 0
    assert len(learned) == len(pages)
    for n, robots in learned:
        expected = world.expected(n)
        if expected == FAILURE:
            assert robots.text is None
            assert robots.retry_at > NOW
        elif expected is not None:
            assert robots.text == expected
    if all(world.expected(n) for n in range(size)):  # no circle, and none that is too long
        for url, n_downloads in world.downloads.items():
            assert n_downloads == 1 or "between" in url


def test_only_the_first_origin_learns_from_more_redirects_than_are_followed():
    for n_redirects, text, learned in [
        (MAX_REDIRECTS, text_of(MAX_REDIRECTS), MAX_REDIRECTS + 1),
        (MAX_REDIRECTS + 1, b"", 1),
    ]:
        world = World([*[(n, False) for n in range(1, n_redirects + 1)], TEXT])
        with case(n_redirects):
            assert [robots.text for _, robots in world.run([0], [])] == [text]
            assert [n for n in range(n_redirects + 1) if world.known.get(name(n))] == list(range(learned))


def test_a_redirect_to_what_is_known_is_not_followed():
    world = World([(1, False), TEXT, (3, False), FAILURE])
    world.run([1, 3], [])
    before = world.downloads.copy()
    learned = dict(world.run([0, 2], []))
    assert learned[0].text == text_of(1)
    assert learned[2].text is None
    assert world.downloads - before == {"http://h0.test/robots.txt": 1, "http://h2.test/robots.txt": 1}


RESPONSES = [
    (200, b"text", None, RobotsText(b"text")),
    (204, b"", None, RobotsText(b"")),
    (301, b"text", None, RobotsText(b"")),
    (304, b"", None, RobotsText(b"")),
    (404, b"text", None, RobotsText(b"")),
    (410, b"text", RobotsTarget("http://a.test/x", None), RobotsText(b"")),
    (429, b"", None, Unreachable("HTTP 429")),
    (500, b"", None, Unreachable("HTTP 500")),
    (999, b"", None, Unreachable("HTTP 999")),
    (307, b"", RobotsTarget("http://a.test/x", None), Download("http://a.test/x")),
    (308, b"", RobotsTarget("http://b.test/robots.txt", "http://b.test"), Download("http://b.test/robots.txt")),
    (302, b"", RobotsTarget("http://a.test/robots.txt", "http://a.test"), RobotsText(b"")),
]  # fmt: skip


def test_what_a_response_means():
    for status, body, target, step in RESPONSES:
        fetches = RobotsFetches(known_robots())
        with case(status, body, target):
            assert fetches.responded(fetches.begin("http://a.test"), status, body, target, NOW) == step


def test_of_a_long_text_whole_lines_are_read():
    fetches = RobotsFetches(known_robots())
    line = b"disallow: /a\r"
    step = fetches.responded(fetches.begin("http://a.test"), 200, line * 50_000, None, NOW)
    assert isinstance(step, RobotsText)
    assert MAX_BYTES - len(line) < len(step.text) <= MAX_BYTES
    assert step.text.endswith(line)


def test_a_second_fetch_of_an_origin_is_refused_in_a_sentence():
    fetches = RobotsFetches(known_robots())
    fetch = fetches.begin("http://a.test")
    with pytest.raises(CallError, match="is being fetched already"):
        fetches.begin("http://a.test")
    with pytest.raises(CallError, match="was not redirected"):
        fetches.resumed(fetch, NOW)


# -- what is known


TEXTS = st.none() | st.binary(max_size=20)


@given(TEXTS, st.floats(0, 1e10), st.integers(0, 100), st.floats(0, 1e10))
def test_what_is_known_survives_a_round_trip(text, fetched_at, failures, retry_at):
    before = RobotsTxt(text, fetched_at, failures, retry_at)
    after = RobotsTxt.from_bytes(before.to_bytes())
    kept = ("text", "fetched_at", "failures", "retry_at")
    assert [getattr(after, each) for each in kept] == [getattr(before, each) for each in kept]


DAY = 86_400.0


def test_how_long_it_holds():
    for finds, age, has_rules, is_due in [
        ([b"x"], 0.0, True, False),
        ([b"x"], DAY, True, False),
        ([b"x"], DAY + 1, False, True),
        ([b"x"], -1.0, False, True),  # the clock was put back
        ([None], 59.0, False, False),
        ([None], 60.0, False, True),
        ([b"x", None], 59.0, True, False),
        ([b"x", None], 60.0, True, False),  # the old text is not too old by itself
        ([b"", None], 59.0, True, False),
    ]:
        known = known_robots()
        for text in finds:
            robots = known.learn("http://a.test", text, NOW)
            robots.is_unused = False
        with case(finds, age):
            assert known.has_rules(robots, NOW + age) == has_rules
            assert (known.get_current("http://a.test", NOW + age) is None) == is_due


def test_an_old_text_holds_between_tries_for_30_days():
    known, origin = known_robots(), "http://a.test"
    known.learn(origin, b"x", NOW).is_unused = False
    for days in range(2, 30):
        robots = known.learn(origin, None, NOW + days * DAY)
        assert known.has_rules(robots, NOW + days * DAY + 1)
    robots = known.learn(origin, None, NOW + 30 * DAY)
    assert not known.has_rules(robots, NOW + 30 * DAY + 1)


def test_a_text_that_nothing_was_judged_by_holds_however_old_it_is():
    known = known_robots()
    robots = known.learn("http://a.test", b"x", NOW)
    assert known.has_rules(robots, NOW + 40 * DAY)
    robots.is_unused = False
    assert not known.has_rules(robots, NOW + 40 * DAY)


def test_pauses_double_up_to_the_expiry():
    for failures in [1, 7, 8, 70, 5000]:
        pauses = [REFETCHING.pause(n) for n in range(1, 8)]
        assert pauses == [60.0 * 2**n for n in range(7)], failures
        assert REFETCHING.pause(failures) == (pauses[failures - 1] if failures < 8 else DAY), failures
        assert REFETCHING._replace(patience=inf).pause(failures) <= DAY, failures


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30), st.integers(1, 8))
@example([(0, 3), (1, 3), (0, 3)], 4)
def test_the_memory_has_a_bound_and_loses_nothing(events, capacity):
    known = known_robots(capacity)
    texts: dict[str, bytes] = {}
    for n, size in events:
        texts[name(n)] = known.learn(name(n), bytes([n]) * 4096 * size, NOW).text or b""
        sizes = [1 + len(texts[origin]) // 4096 for origin in known._in_memory]
        assert sum(sizes) <= capacity or len(known) == 1

    for origin, text in texts.items():
        robots = known.get(origin)
        assert robots is not None
        assert robots.text == text
