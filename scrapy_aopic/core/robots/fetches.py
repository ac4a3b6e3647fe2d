"""Fetches in progress of a file that each origin has one of, such as robots.txt: redirects between origins, and fetches that
wait for each other.

1. An origin has at most one fetch in progress. Requests that need its robots.txt wait for the end of that fetch.
2. Up to :data:`MAX_REDIRECTS` redirects are followed, to other hosts too (RFC 9309, 2.3.1.2). The result holds for every
   origin whose robots.txt was on the way.
3. A redirect to the robots.txt of another origin is not followed if that robots.txt is known: its text is taken. If it is
   being fetched, this fetch waits for it.
4. Redirects in a circle lead to no file, and so do more than :data:`MAX_REDIRECTS`. A fetch that would wait for one
   that waits for it is such a circle. Then only the first origin gets a result: the others may have redirects left.

The caller downloads. It starts with :attr:`Fetch.url`, hands each response to :meth:`RobotsFetches.responded`, and
carries out the step that it gets, until that is :class:`RobotsText` or :class:`Unreachable`.
:meth:`RobotsFetches.learn` and :meth:`RobotsFetches.end` finish a fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.exceptions import CallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .state import KnownRobots, RobotsTxt

ROBOTS_TXT = "/robots.txt"

MAX_REDIRECTS = 5
"""Redirects that are followed, as RFC 9309 asks for at least."""

MAX_BYTES = 500 * 1024
"""Bytes of a robots.txt that are read, as RFC 9309 asks for at least."""


class Fetch:
    """The fetch of the file at *path* of an *origin*.

    Attributes:
        origins: Those whose file it came by; the first one is that for which it was begun.
        follows: The fetch of another origin that it waits for.
    """

    __slots__ = ("_path", "_waiting", "follows", "n_redirects", "origins", "target")

    def __init__(self, origin: str, path: str) -> None:
        self._path = path
        self.origins = [origin]
        self.follows: Fetch | None = None
        self.target: RobotsTarget | None = None
        self.n_redirects = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def url(self) -> str:
        """The first URL to download."""
        return f"{self.origins[0]}{self._path}"

    def when_ended(self, call: Callable[[], None]) -> None:
        """Have *call* called at its end."""
        self._waiting.append(call)

    def depends_on(self, other: Fetch) -> bool:
        """Whether it cannot end before *other* does."""
        fetch: Fetch | None = self
        while fetch is not None and fetch is not other:
            fetch = fetch.follows
        return fetch is other

    def wake(self) -> None:
        """Call all that wait for its end."""
        for call in self._waiting:
            call()


class RobotsTarget(NamedTuple):
    """Where a redirect leads.

    Attributes:
        origin: The origin whose file of the same path *url* is; ``None`` if it is another file.
    """

    url: str
    origin: str | None


class Download(NamedTuple):
    """A step: download *url*, and hand over the response."""

    url: str


class Wait(NamedTuple):
    """A step: wait for the end of *fetch*, then call :meth:`RobotsFetches.resumed`."""

    fetch: Fetch


class RobotsText(NamedTuple):
    """The last step: this is the text; empty if there is no such file."""

    text: bytes


class Unreachable(NamedTuple):
    """The last step: robots.txt cannot be had now, for this reason."""

    reason: str


Step = Download | Wait | RobotsText | Unreachable


class RobotsFetches:
    """All fetches that are under way.

    Attributes:
        known: What is known of all origins.
        path: Path of the file that is fetched.
    """

    def __init__(self, known: KnownRobots, path: str = ROBOTS_TXT) -> None:
        self.known = known
        self.path = path
        self._of_origin: dict[str, Fetch] = {}

    def __len__(self) -> int:
        """Origins whose file is being fetched."""
        return len(self._of_origin)

    def get(self, origin: str) -> Fetch | None:
        """The fetch for *origin*, if one is under way."""
        return self._of_origin.get(origin)

    def begin(self, origin: str) -> Fetch:
        """Begin a fetch for *origin*, for which none is under way.

        Raises:
            CallError: If one is.
        """
        if origin in self._of_origin:
            raise CallError(
                f"The {self.path} of {origin} is being fetched already: wait for the end of that fetch."
            )
        fetch = self._of_origin[origin] = Fetch(origin, self.path)
        return fetch

    def responded(
        self, fetch: Fetch, status: int, body: bytes, target: RobotsTarget | None, now: float
    ) -> Step:
        """The next step after a response.

        Args:
            target: Where the response redirects to, if it is a redirect to an HTTP URL.
            now: Seconds since the epoch.
        """
        if status == 429 or status >= 500:
            return Unreachable(f"HTTP {status}")
        if 300 <= status < 400 and target is not None:
            fetch.target = target
            return self.resumed(fetch, now)
        return RobotsText(_cut(body) if 200 <= status < 300 else b"")

    def resumed(self, fetch: Fetch, now: float) -> Step:
        """The next step for the last redirect of *fetch*, now that the fetch that it waited for has ended."""
        fetch.follows = None
        target = fetch.target
        if target is None:
            raise CallError(f"The fetch of {fetch.url} was not redirected, so it waits for no other one.")
        if target.origin is not None:
            other = self._of_origin.get(target.origin)
            if other is not None and other.depends_on(fetch):
                return self._give_up(fetch)  # a circle
            if other is not None:
                fetch.follows = other
                return Wait(other)
            known = self.known.get_current(target.origin, now)
            if known is not None:
                if known.text is None or not self.known.has_rules(known, now):
                    return Unreachable(f"so is that of {target.origin}")
                return RobotsText(known.text)
            fetch.origins.append(target.origin)
            self._of_origin[target.origin] = fetch
        fetch.n_redirects += 1
        return self._give_up(fetch) if fetch.n_redirects > MAX_REDIRECTS else Download(target.url)

    def _give_up(self, fetch: Fetch) -> RobotsText:
        for origin in fetch.origins[1:]:
            del self._of_origin[origin]
        del fetch.origins[1:]
        return RobotsText(b"")

    def learn(self, fetch: Fetch, text: bytes | None, now: float) -> RobotsTxt:
        """Take note of the *text* that *fetch* has found, ``None`` if it failed.

        Returns:
            What is now known of the origin for which the fetch was begun.
        """
        robots, *_ = [self.known.learn(origin, text, now) for origin in fetch.origins]
        return robots

    def end(self, fetch: Fetch) -> None:
        """Forget *fetch*, whatever came of it, and wake all that wait for it."""
        for origin in fetch.origins:
            del self._of_origin[origin]
        fetch.wake()


def _cut(body: bytes) -> bytes:
    """The complete lines within the part of *body* that is read: half a rule would forbid too much."""
    if len(body) <= MAX_BYTES:
        return body
    body = body[:MAX_BYTES]
    return body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
