"""One shard of several: an :mod:`.open_shard` with mail, which can be handed over.

Rule 1: only what its last commit holds is posted: see :mod:`scrapy_aopic.storage.redis.worker_registry`.

Rule 2: a shard that is handed over first settles what is in flight; its last commit is a clean one, so that its hosts need
no pause with the next worker. One that was lost is dropped without a commit.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from scrapy_aopic.core.layout import OUTBOX, Family
from scrapy_aopic.exceptions import StorageError
from scrapy_aopic.storage.redis.mailboxes import PostedLetter
from scrapy_aopic.storage.redis.worker_registry import ShardState

from .open_shard import OpenShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Batch
    from scrapy_aopic.core.shard import Shard, ShardId
    from scrapy_aopic.place.shard_places import ShardStore

    from .clock import JobClock
    from .commit_thread import JointCommits

P = ParamSpec("P")
T = TypeVar("T")

_READ_SECONDS = 0.01
"""Seconds of the event loop that letters to a shard may take at once; one letter takes up to twice as long."""

_EXPECTED = 4
"""Letters of one sender, one after another, for which the store reads at once; there is seldom more than one."""

_EXPECTED_SECONDS = 0.1
"""Seconds for which letters wait for that, so that the event loop need not: many times what a server takes."""

_SEND_AGAIN = 30.0
"""Seconds after which letters are sent again of which none was acknowledged: many times what a commit takes."""

_COMMIT_RETRY = 0.2
"""Seconds between tries to make a commit that has failed."""

_AT_ONCE = 16
"""Letters to one shard that are sent at once, of those that are no longer in memory."""

_WINDOW = 64
"""Letters to one shard that may be on the server at once: many times those of the second that an answer takes. So a shard
that no worker has open for long fills neither the server nor the memory of others; the rest waits in their stores."""


class ClusterShard(OpenShard):
    """The shard *shard_id* of a job, whose *store* is the caller's own.

    Args:
        policy: How its cash is spent; not shared with other shards.
        name: Its name in messages.
        joint: Writes its commits together with those of other shards.
        interval: Seconds between commits.
        shift: Seconds by which its commits are shifted: all commits with the same one are due at the same instants.
        worker: Token of this process.

    Attributes:
        has_ended: Whether its last commit was begun; nothing may be changed any more then.
        wakes_at: Nothing can be leased from it before this instant, unless something changes.
        steps: Steps of its crawl that its commits have not been told of.
        state: Its state at its last commit.
        run: See :class:`~scrapy_aopic.place.shard_places.ShardStore`.

    Raises:
        StorageError: If it cannot be opened; the store is closed then.
    """

    def __init__(
        self,
        store: ShardStore,
        policy: Policy,
        clock: JobClock,
        shard_id: ShardId,
        *,
        name: str,
        joint: JointCommits,
        interval: float,
        shift: float,
        worker: str,
    ) -> None:
        super().__init__(
            store, store, policy, clock, shard_id, name=name, joint=joint, interval=interval, shift=shift
        )
        self.has_ended = False
        self.wakes_at = 0.0
        self.steps = 0
        self._worker = worker
        self._fenced = store
        self.run = store.run
        self._retry_at = 0.0
        self._taken: dict[tuple[int, int], bytes] = {}
        self._letters: dict[tuple[int, int], bytes] = {}
        self._sent: dict[int, int] = {}
        self._first: dict[int, tuple[int, float]] = {}
        self._routes: dict[int, int | str] = {}
        self._inbox: dict[tuple[int, int], bytes] = {}
        self._expected = 0.0
        self._request = 0
        self._n_landed = 0  # commits until letters were last read
        self._from_server: set[tuple[int, int]] = set()
        self._to_remove: set[tuple[int, int]] = set()
        self._is_idle = self._look_idle(self.commits.taken_at)
        self._sums, self._waiting = self.shard.sums, self.shard.n_waiting
        self._spread, self._ranks = self.shard.spread, self.shard.waiting_ranks
        self.state: ShardState = self._read_state()
        self._is_state_new = True
        self.commits.on_taken, self.commits.on_landed = self._note_taken, self._note_landed

    def ask(self, method: Callable[Concatenate[Shard, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of *method* of its crawl.

        A shard that raises a :class:`StorageError` is not used again: this process may have lost it without knowing yet, so that
        others have changed its rows.
        """
        try:
            return method(self.shard, *args, **kwargs)
        except StorageError as error:
            self.mark_broken(error)
            raise

    # -- state

    @property
    def is_usable(self) -> bool:
        """Whether it may be changed."""
        return not (self.has_ended or self.is_broken)

    @property
    def has_post(self) -> bool:
        """Whether others should be shown something."""
        return self._is_state_new or bool(self._to_remove)

    @property
    def is_ready(self) -> bool:
        """Whether a page may be leased, as far as store and commits are concerned."""
        if self.is_leaving or self.commits.is_behind or self.is_fading:
            return False
        return self.failure is None

    @property
    def is_free(self) -> bool:
        """Whether nothing of it is in flight."""
        return not len(self.shard.leases)

    def has_work(self, now: float) -> bool:
        """Whether it has pages to fetch, letters to apply, or changes to store that are not stored yet."""
        return bool(self._inbox) or super().has_work(now)

    def touch(self) -> None:
        """Something changes."""
        self.steps += 1
        self.wakes_at = 0.0

    def tick(self, now: float) -> None:
        """Let a commit begin or end, if it is time; none begins while there is nothing to do, so that all can see that."""
        if self.has_work(now):
            self.commits.tick(self.steps)
            self.steps = 0

    # -- hand-over

    def end(self) -> bool:
        """Make the last commit; returns whether it has landed. Called until it has."""
        if not self.has_ended:
            self.commits.tick(0)
            if self.commits.is_writing:
                return False
            self.has_ended = True
            self.commits.take(is_clean=True)
        self.commits.look()
        return not self.commits.is_writing and self.failure is None

    def retry(self) -> None:
        """Try again to make a commit that has failed, now and then."""
        if self.commits.is_writing:
            self.commits.look()
        elif time.monotonic() > self._retry_at:
            self._retry_at = time.monotonic() + _COMMIT_RETRY
            self.commits.take(is_clean=self.has_ended)

    # -- mail

    def _note_taken(self, batch: Batch) -> None:
        """A commit of *batch* was taken."""
        self._taken = {
            (int.from_bytes(row[1:3], "big"), int.from_bytes(row[3:], "big")): data
            for row, data in batch[Family.META].items()
            if row[:1] == OUTBOX and data is not None
        }
        self._is_idle = self._look_idle(self.commits.taken_at)
        self._sums, self._waiting = self.shard.sums, self.shard.n_waiting
        self._spread, self._ranks = self.shard.spread, self.shard.waiting_ranks

    def _note_landed(self) -> None:
        """It is stored."""
        waiting = self.shard.mail.waiting()
        for (to, number), data in self._taken.items():
            if number < waiting.get(to, (number, 0))[0] + _WINDOW:
                self._letters[to, number] = data
        self._taken = {}
        self.state = self._read_state()
        self._is_state_new = True
        got = self.shard.mail.received_landed()
        for sender, number in list(self._inbox):
            if number <= got.get(sender, 0):
                del self._inbox[sender, number]
        applied = {(sender, number) for sender, number in self._from_server if number <= got.get(sender, 0)}
        self._from_server -= applied
        self._to_remove |= applied

    def _look_idle(self, now: float) -> bool:
        return not len(self.shard.leases) and not self.shard.has_work(now)

    def _read_state(self) -> ShardState:
        return ShardState(
            self._fenced.head.decode(),
            self._worker,
            self._is_idle,
            self._sums,
            self.shard.mail.sent_landed(),
            self.shard.mail.received_landed(),
            self.shard.counts,
            *self.shard.mail.units_landed(),
            self._waiting,
            self._spread,
            self._ranks,
        )

    def deliver(self, letters: Iterable[PostedLetter]) -> None:
        """Take *letters* of the server in, to be read by and by."""
        for letter in letters:
            self._inbox.setdefault((letter.sender, letter.number), letter.data)
            self._from_server.add((letter.sender, letter.number))

    def hand_in(self, letter: PostedLetter) -> None:
        """Take in the *letter* of another shard of this process."""
        if letter.number >= self.shard.mail.expected(letter.sender):
            self._inbox.setdefault((letter.sender, letter.number), letter.data)

    def read(self, clock: Callable[[], float]) -> int:
        """Apply some of the letters that can be; returns how many.

        Raises:
            StorageError: If one cannot be read.
        """
        n_landed = self.commits.n_landed
        if not self._inbox or self.has_ended or (self.commits.is_behind and n_landed == self._n_landed):
            # some are read after each commit: one may always take longer than a lease may wait for it
            return 0
        if self.shard.prefetches and not self._has_expected():
            return 0
        n, until = 0, time.perf_counter() + _READ_SECONDS
        self._n_landed = n_landed
        for sender in {sender for sender, _ in self._inbox}:
            while (data := self._inbox.get((sender, self.shard.mail.expected(sender)))) is not None:
                self.shard.receive((data,), clock())
                self.touch()
                n += 1
                if time.perf_counter() > until:
                    return n
        return n

    def _has_expected(self) -> bool:
        """Let the store read what the letters are about that come next; whether it has, or took too long for those before."""
        if not self._expected:
            for sender in {sender for sender, _ in self._inbox}:
                first = self.shard.mail.expected(sender)
                for number in range(first, first + _EXPECTED):
                    if (data := self._inbox.get((sender, number))) is None:
                        break
                    self._request = max(self._request, self.shard.expect(data))
                    self._expected = time.perf_counter() + _EXPECTED_SECONDS
        if not self._expected or (
            not self.shard.has_come(self._request) and time.perf_counter() < self._expected
        ):
            return False
        self._expected, self._request = 0.0, 0
        return True

    def acknowledged(self, states: Mapping[int, ShardState]) -> None:
        """Other shards have *states*, and so have received letters of this one.

        Raises:
            StorageError: If one has a letter that was never written.
        """
        if self.has_ended:
            return
        for other, (first, _) in self.shard.mail.waiting().items():
            state = states.get(other)
            number = state.got.get(self.number, 0) if state is not None else 0
            if number >= first:
                self.shard.acknowledged(other, number)
                self.wakes_at = 0.0
        waiting = self.shard.mail.waiting()
        for to, number in list(self._letters):
            if number < waiting.get(to, (number + 1, 0))[0]:
                del self._letters[to, number]

    def compare(self, state: ShardState | None) -> None:
        """Others see *state*: show the right one again if a worker that held the shard before has shown its own late."""
        if state is None or state.head != self.state.head:
            self._is_state_new = True

    def take_post(self, route_to: Callable[[int], int | str]) -> Post:
        """Take the part of the last commit that others have not been shown yet.

        Args:
            route_to: The way of letters to a shard at present: the number of its opening if this process has it, too; a name
                if they go by the server; ``""`` if they wait.

        Raises:
            StorageError: If a letter cannot be read.
        """
        post = Post(self)
        now = time.monotonic()
        for to, (first, end) in self.shard.mail.waiting().items():
            if not (route := route_to(to)):
                continue
            if self._routes.get(to, route) != route:
                self._sent[to] = first - 1  # what was sent the other way may be lost with it
            self._routes[to] = route
            letters = post.near if isinstance(route, int) else post.letters
            if self._first.get(to, (0, 0.0))[0] != first:
                self._first[to] = first, now
            elif now - self._first[to][1] > _SEND_AGAIN:
                self._first[to] = first, now
                self._sent[to] = first - 1
            begin = max(self._sent.get(to, 0), first - 1) + 1
            last = min(end, first + _WINDOW - 1)
            while begin <= last and (data := self._letters.get((to, begin))) is not None:
                letters.append((to, PostedLetter(self.number, begin, data)))
                begin += 1
            if begin <= last:
                some = self.shard.letters(to, begin - 1, _AT_ONCE)
                letters += [(to, PostedLetter(self.number, n, data)) for n, data in enumerate(some, begin)]
                begin += len(some)
            self._sent[to] = begin - 1
        post.read, self._to_remove = sorted(self._to_remove), set()
        if self._is_state_new or post.near:
            post.state, self._is_state_new = self.state, False
        return post

    def post_failed(self, post: Post) -> None:
        """*post* may not have reached the server: it is to be posted again."""
        for to, letter in (*post.letters, *post.near):
            self._sent[to] = min(self._sent.get(to, 0), letter.number - 1)
        self._to_remove |= {*post.read}
        self._is_state_new = True


class Post:
    """News of one shard for the others.

    Attributes:
        sender: The shard, as it was opened.
        number: Which shard.
        run: Run of the server on which it was opened.
        letters: Letters to shards of other processes.
        near: Letters to shards of this process. They are handed in when the rest is posted, so that no shard hears of this one
            before its state is shown.
        read: Letters to it, by sender and number, that are in a commit that has landed.
        state: Its state at its last commit, if that is new.
    """

    __slots__ = ("letters", "near", "number", "read", "run", "sender", "state")

    def __init__(self, sender: ClusterShard) -> None:
        self.sender, self.number, self.run = sender, sender.number, sender.run
        self.letters: list[tuple[int, PostedLetter]] = []
        self.near: list[tuple[int, PostedLetter]] = []
        self.read: list[tuple[int, int]] = []
        self.state: ShardState | None = None

    def __bool__(self) -> bool:
        return bool(self.letters or self.near or self.read or self.state)
