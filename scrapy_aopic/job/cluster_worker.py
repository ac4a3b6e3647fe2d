"""A worker of a job in several shards, which holds some of them: its part of the work that waits in all of them.

Rule 1: there is no coordinator. Each worker sees the same list of workers and shards, and computes from it who should have which
(:mod:`.dealing`). It hands over what others should have, and takes free ones; the lock of each store decides between two workers.

Rule 2: a shard whose commit was refused is dropped, and the crawl goes on with the others. Any other error of a store ends the
crawl, as it does for a job in one piece.

Rule 3: a worker is done when no shard of the job has anything to do, and no letter is on its way: see
:attr:`~scrapy_aopic.storage.redis.worker_registry.ClusterState.is_quiet`. Until then it stays, because letters may arrive, or the
shards of a worker that dies.

Rule 4: the worker with shard 0 takes up lists of seeds, because that shard's commits hold their offsets; its letters bring seeds
to the others.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from math import inf
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from scrapy_aopic.core.ledger import NOWHERE, Sums
from scrapy_aopic.core.shard import ShardId
from scrapy_aopic.core.shards.spread import DomainCounts, counts_of, counts_without
from scrapy_aopic.exceptions import (
    GoneError,
    InUseError,
    LostError,
    StorageError,
    UnreachableError,
    closed_on_error,
)
from scrapy_aopic.place.folder_place import command_began
from scrapy_aopic.place.shard_places import OnServer, ShardPlaces, ShardStore

from .clock import ServerTime, SharedClock, read_mark
from .cluster_shard import ClusterShard, Post
from .commit_thread import JointCommits
from .dealing import deal, good_hosts
from .exchange import Exchange
from .shard_router import ShardRouter
from .shared_learning import SharedLearning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from scrapy_aopic.core.api import Lease
    from scrapy_aopic.core.policy import Policy
    from scrapy_aopic.core.ports import Store
    from scrapy_aopic.seeds.server_seeds import ServerSeeds
    from scrapy_aopic.storage import Address
    from scrapy_aopic.storage.redis.worker_registry import ClusterState, ShardState

    from .side_files import SideFiles

logger = logging.getLogger(__name__)

_OPENED_AT_ONCE = 16
"""Shards that are being opened, at most, one after another: each takes some milliseconds to a second of a thread."""

_CLOSED_AT_ONCE = 32
"""Shards that are closed at the same time, a thread each."""

_LEAST_PAGES = 1_000
"""Page records that each shard keeps in memory at least."""

_LEAST_HOSTS = 200
"""Hosts that each shard keeps in memory at least."""

_COMMIT_SECONDS = 0.005
"""Seconds of the event loop that commits may take at once to begin and to end; that of one shard takes up to three times as
long."""

_PATIENCE = 5.0
"""Seconds for which work must be dealt unevenly before a shard is handed over, unless a worker has none."""

_IDLE = 10.0
"""Seconds without work that are worth a line in the log."""

_PAUSE = 0.005
"""Seconds between polls of the shards, which cost a few microseconds each."""


class PartOfJob(NamedTuple):
    """The part of a job in shards that a process has.

    Attributes:
        shards: Number of shards of the job.
        held: Number of those that this process has.
        workers: Number of processes that crawl the job.
    """

    shards: int
    held: int
    workers: int


class ClusterWorker:
    """This worker's part of the job at *address*. It has the calls of :class:`.only_worker.OnlyWorker`.

    Args:
        folder: Job folder of the worker, if it has one.
        shards: Their number in the whole job.
        places: Where they are; by default on the server. They are closed by :meth:`release`, or if this cannot be opened.
        executor: Its thread writes commits.
        interval: Seconds between commits of a shard.
        server_seeds: The seeds that wait on the server.
        topic: The number of the topic that pages are graded for, so that workers share what they learn; ``None`` for none.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(
        self,
        folder: Path | None,
        policy: Policy,
        address: Address,
        shards: int,
        *,
        places: ShardPlaces | None,
        executor: Executor,
        side_files: SideFiles,
        interval: float,
        server_seeds: ServerSeeds | None,
        topic: int | None,
    ) -> None:
        self._folder = folder
        self._name = str(address)
        self._server_seeds = server_seeds
        if server_seeds is not None:
            server_seeds.polls = False  # the states of the shards show what waits
        self._address = address
        self._n_shards = shards
        self._interval = interval
        self._failure: StorageError | None = None
        # Instants since which shards cannot be used or opened.
        self._failing_since: dict[int, float] = {}
        self._opening: dict[int, Future[ClusterShard | None]] = {}
        self._n_opened = 0
        # A number for each opening of a shard: it may be handed over and opened again, and letters are read for one opening.
        self._opening_numbers: dict[int, int] = {}
        # The same, of shards that other workers know to be open here: letters from here to these need not go by the server.
        self._announced: dict[int, int] = {}
        self._cluster: ClusterState | None = None
        self._is_quiet = False
        self._not_yet_owned: set[int] = set()
        self._tick_at = 0.0
        self.n_landed = 0
        self.slowest = 0.0
        self._even_at = self._idle_since = self._met_at = 0.0
        self._met: list[str] = []
        self._logged_share = (-1, -1)
        self._logged_unowned: list[int] = []
        # Shards whose turn in this round of commits is to come.
        self._to_commit: list[ClusterShard] = []
        self.learning: SharedLearning | None = None
        with ExitStack() as opened:
            self._places = places or OnServer(folder, address, shards)
            opened.callback(self._places.close)
            self._registry = self._places.registry
            most = len(self._places.reach)
            # Their states of an earlier run do not count: seeds may have come since then, or hosts be due.
            self._not_yet_owned.update(self._places.reach)
            self._policy = replace(
                policy,
                page_cache=max(policy.page_cache // most, _LEAST_PAGES),
                max_active=max(policy.max_active // most, _LEAST_HOSTS),
            )
            opened.callback(self._registry.close)
            self.clock = SharedClock(ServerTime(*self._registry.now()))
            if (recrawl := policy.recrawl) is not None and recrawl.once and not recrawl.every:
                given = self._registry.begin_round(self.clock(), self._places.last_round, command_began())
                self._policy = replace(self._policy, recrawl=replace(recrawl, given=given))
            self.crawl = ShardRouter(shards, policy, self.clock)
            self.shards = self.crawl.held
            self._joint_commits = JointCommits(executor.submit, self._places.write, side_files)
            self._opener = ThreadPoolExecutor(1, "aopic-shards")
            opened.callback(self._opener.shutdown)
            if topic is not None:
                self.learning = SharedLearning(address, self._registry.token, self.crawl.harvest, topic)
                opened.callback(self.learning.close)
            self._exchange = Exchange(self._registry, address.lock_timeout)
            self._opened = opened.pop_all()

    # -- state

    @property
    def is_broken(self) -> bool:
        """Whether the crawl has to end, because of :attr:`failure`."""
        return self._failure is not None

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot be used; ``None`` if it can."""
        return self._failure or self._places.failure or self._exchange.failure

    @property
    def is_behind(self) -> bool:
        """Whether nothing may be leased, because no shard is held, the last commits of all are too old, or the folder may soon be lost."""
        held, now = self.shards.values(), self.clock()
        return self._exchange.is_fading or all(each.commits.is_behind and each.has_work(now) for each in held)

    def permit(self, host: str, lease: Lease | None) -> Callable[[], bool] | None:
        """See :meth:`.job.Job.permit`."""
        is_safe = self.crawl.permit(host, lease)
        return partial(self._is_safe, is_safe) if is_safe is not None else None

    def _is_safe(self, is_shard_safe: Callable[[], bool]) -> bool:
        return not self._exchange.is_fading and self._places.failure is None and is_shard_safe()

    @property
    def is_quiet(self) -> bool:
        """Whether no shard of the job had anything to do, wherever it is, and no letter or list of seeds was on its way."""
        last = self._cluster
        if not self._is_quiet or last is None or self._not_yet_owned:
            return False
        takes_seeds = self._server_seeds is not None or self._address.folder is not None
        if last.seed_lists and takes_seeds and last.is_owned[0]:
            return False
        # Commits since then may have written letters that no other worker has seen.
        return all(held.state.head == last.heads[number] for number, held in self.shards.items())

    @property
    def part(self) -> PartOfJob:
        """This worker's part of the job, as of the last exchange."""
        workers = len(self._cluster.workers) if self._cluster is not None else 1
        return PartOfJob(self._n_shards, len(self.shards), workers)

    def size_bytes(self) -> int | None:
        """``None``: that takes many questions to the server."""
        return None

    # -- what is due

    def tick(self, steps: int) -> bool:
        """Do what is due; see :meth:`.job.Job.tick`."""
        now = self.clock()
        if now < self._tick_at or self._failure is not None:
            return False
        self._tick_at = now + _PAUSE
        if steps > 1 and (held := self.shards.get(0)) is not None and not held.is_leaving:
            held.steps += steps - 1  # seeds that were taken up
        try:
            return self._tick(now)
        except StorageError as error:
            self._failure = error
            return True

    def _tick(self, now: float) -> bool:
        is_news = self._add_opened()
        clusters, done, failed = self._exchange.take()
        for post in done:
            self._letters_sent(post)
        for post in failed:
            held = self.shards.get(post.number)
            if held is not None and held.run == post.run:
                held.post_failed(post)
        for cluster, own in clusters:
            is_news |= self._take_state(cluster, own)
        self._commit(now)
        for held in self._usable_shards():
            with self._isolating(held):
                is_news |= self._do_what_is_due(held, now, is_seen=bool(clusters))
        if clusters:
            self._balance(clusters[-1][0])
        return is_news

    def _commit(self, now: float) -> None:
        """Begin and end commits, shard by shard, for some milliseconds; the next tick goes on with the next shard.

        When all shards have had their turn, the commits that have begun are written.
        """
        if not self._to_commit:
            self._to_commit = [*self.shards.values()]
        until = time.perf_counter() + _COMMIT_SECONDS
        while self._to_commit and time.perf_counter() < until:
            held = self._to_commit.pop()
            is_there = self.shards.get(held.number) is held and held.failure is None
            # these make their last commit by themselves
            if is_there and not (held.is_leaving and held.is_free):
                with self._isolating(held):
                    held.tick(now)
        if not self._to_commit:
            self._joint_commits.flush()

    def _do_what_is_due(self, held: ClusterShard, now: float, *, is_seen: bool) -> bool:
        """Do what is due for *held*; returns whether letters were read."""
        if held.is_leaving and held.is_free:
            if held.end():
                self._hand_over(held)
            return False
        has_read = held.read(self.clock) > 0
        if held.has_post or is_seen:
            self._send_letters(held)
        return has_read

    def _usable_shards(self) -> Iterator[ClusterShard]:
        """Each shard that is held, as long as it can be used; one that cannot is dropped, or ends the crawl."""
        for held in list(self.shards.values()):
            if (failure := held.failure) is None:
                self._failing_since.pop(held.number, None)
                yield held
            else:
                self._drop(held, failure)

    @contextmanager
    def _isolating(self, held: ClusterShard) -> Iterator[None]:
        """Have an error stop *held* alone, which this process may have lost without knowing it yet.

        Then letters that its next owner has sent or removed look like damage. A moment later its lock shows which it was:
        see :meth:`_drop`.
        """
        try:
            yield
        except StorageError as error:
            held.mark_broken(error)

    def rank(self) -> None:
        """Nothing: no order of a job in shards looks at the whole graph."""

    # -- states of the other shards

    def _take_state(self, cluster: ClusterState, own: Mapping[int, int]) -> bool:
        """Take note of the state of the *cluster* that was read for the shards *own*; returns whether it woke anything."""
        self.clock.adjust(ServerTime(cluster.now, cluster.sent_at, cluster.received_at))
        was_quiet, self._is_quiet, self._cluster = self._is_quiet, cluster.is_quiet, cluster
        if self.learning is not None:
            self.learning.workers = len(cluster.workers)
        if self._server_seeds is not None and 0 in self.shards:
            self._server_seeds.heard_of(cluster.seed_lists)
        self._not_yet_owned -= {number for number, is_owned in enumerate(cluster.is_owned) if is_owned}
        whole, spread = _sums_of(cluster.states)
        for number, held in self.shards.items():
            # Also to one whose commit has just failed, and is tried again: they are not brought once more.
            if held.run in (b"", cluster.run) and own.get(number) == self._opening_numbers.get(number):
                held.deliver(cluster.letters.get(number, ()))
        for held in self._usable_shards():
            number = held.number
            if held.run not in (b"", cluster.run):
                continue
            with self._isolating(held):
                held.acknowledged(cluster.states)
            held.compare(cluster.states.get(number))
            self._tell_sums(held, whole, spread)
        return (self._is_quiet and not was_quiet) or bool(cluster.letters)

    def _tell_sums(self, held: ClusterShard, whole: Sums, spread: Mapping[str, DomainCounts]) -> None:
        """Tell *held* the sums of all other shards, and the counts of domains; *whole* and *spread* have those of the job."""
        last = self._cluster
        if last is None or not last.states:
            return
        state = last.states.get(held.number)
        if state is not None:
            whole, spread = whole.less(Sums(*state.sums)), counts_without(spread, state.spread)
        held.shard.learn(whole, spread)

    def _balance(self, cluster: ClusterState) -> None:
        """Hand over shards, or take some, among the workers that reach the same ones (:mod:`.dealing`)."""
        held, reach, home, own = self.shards, self._places.reach, self._registry.home, self._registry.token
        tokens = [token for token, worker in cluster.workers.items() if worker["home"] == home]
        holders = {number: self._holder(number, cluster) for number in reach}
        waiting = {number: state.waiting for number, state in cluster.states.items()}
        ranks = {number: state.ranks for number, state in cluster.states.items()}
        if tokens != self._met:
            self._met, self._met_at = tokens, cluster.received_at
        # What waits when workers have just met is what one of them has found, and says little of what they will have to do.
        is_known = len(tokens) > 1 and cluster.received_at - self._met_at > _PATIENCE
        dealt = deal(holders, good_hosts(waiting, ranks) if is_known else {}, tokens)
        given = [number for number in held if holders[number] == own != dealt[number]]
        if not given:
            self._even_at = cluster.received_at
        has_all = {*tokens} <= {*holders.values()}
        if "" in holders.values() or (has_all and cluster.received_at - self._even_at < _PATIENCE):
            given = []
        for number in given:
            held[number].is_leaving = True
        for number in reach if not given else ():
            if dealt[number] != own or holders[number] is not None:
                continue
            if number in held:
                held[number].is_leaving = held[number].has_ended
            elif len(self._opening) < _OPENED_AT_ONCE:
                self._opening[number] = self._opener.submit(self._open, number)
        if self._opening:
            return
        self._log_share(sum(not each.is_leaving for each in held.values()), len(cluster.workers))
        self._say_why_idle(waiting, len(cluster.workers), cluster.received_at)
        unowned = [n for n in range(self._n_shards) if n not in reach and not cluster.is_owned[n]]
        if unowned != self._logged_unowned:
            self._logged_unowned = unowned
            if unowned:
                self._opener.submit(self._places.log_unowned, unowned)

    def _holder(self, number: int, cluster: ClusterState) -> str | None:
        """The worker that has a shard, as far as this one knows; ``None`` if it is free, or this one is about to hand it over."""
        own = self._registry.token
        if number in self.shards:
            return None if self.shards[number].is_leaving else own
        if number in self._opening or not cluster.is_owned[number]:
            return own if number in self._opening else None
        state = cluster.states.get(number)
        return state.worker if state is not None and state.worker != own else ""

    def _say_why_idle(self, waiting: Mapping[int, int], n_workers: int, now: float) -> None:
        """Log, once for each time, why this worker has had nothing to do for some seconds while others have."""
        held = self.shards.values()
        elsewhere = [number for number, n in waiting.items() if n and number not in self.shards]
        is_busy = any(waiting.get(each.number) or not each.is_free for each in held)
        if not elsewhere or is_busy or not self._idle_since:
            self._idle_since = now
        elif now - self._idle_since > _IDLE:
            self._idle_since = inf
            why = "all hosts of a registered domain are in one unless AOPIC_HOST_RULES spreads it"
            if n_workers > self._n_shards:
                why = (
                    f"there are {n_workers} workers and {self._n_shards} shards. For more, stop the crawl, and go on with NEW, which "
                    f"'scrapy aopic salvage {quote(self._name)} NEW --shards {2 * n_workers}' makes"
                )
            logger.info(
                "This worker has nothing to fetch: no host of its %(held)d shards may be requested. %(n)d hosts of other workers' may, in "
                "shards %(shards)s; a shard is not divided, and %(why)s",
                {
                    "why": why,
                    "held": len(held),
                    "n": sum(waiting[number] for number in elsewhere),
                    "shards": ", ".join(map(str, sorted(elsewhere))),
                },
            )

    def _log_share(self, n_held: int, n_workers: int) -> None:
        if (n_held, n_workers) == self._logged_share:
            return
        self._logged_share = n_held, n_workers
        logger.info(
            "This worker holds %(held)d of %(shards)d shards of the crawl in %(folder)s; workers: %(workers)d",
            {"held": n_held, "shards": self._n_shards, "folder": self._name, "workers": n_workers},
        )

    def _open(self, number: int) -> ClusterShard | None:
        """Open a shard, in a thread; ``None`` if another worker was faster."""
        try:
            store = self._places.open_store(number, self._cluster, self.clock)
            self._advance_clock(store)
            phase = int(self._registry.token[:4], 16) / 0x10000  # workers commit one after another
            held = ClusterShard(
                store,
                replace(self._policy, order=copy(self._policy.order)),
                self.clock,
                ShardId(number, self._n_shards),
                name=str(self._address.of_shard(number)),
                interval=self._interval,
                shift=phase * self._interval,
                joint=self._joint_commits,
                worker=self._registry.token,
            )
        except (InUseError, LostError):
            return None
        if self._address.folder is not None:  # its letters stay on this machine
            held.shard.mail.level = 0
        with closed_on_error(held.close):
            if number == 0 and self._server_seeds is not None:
                self._server_seeds.begin_anew()
        return held

    def _advance_clock(self, store: ShardStore) -> None:
        """The clock is no earlier than at the last commit of *store*, which is closed if it cannot be read."""
        with closed_on_error(store.close):
            if mark := read_mark(store):
                self.clock.advance(mark[0])

    def _add_opened(self) -> bool:
        """Take the shards that were opened; returns whether there are any."""
        is_news = False
        for number, opening in list(self._opening.items()):
            if not opening.done():
                continue
            del self._opening[number]
            try:
                held = opening.result()
            except StorageError as error:
                # The server was there a moment ago, so that a connection that breaks is no reason to give up.
                is_hopeless = not self._n_opened and not isinstance(error, UnreachableError)
                if is_hopeless or self._fails_too_long(number):
                    raise
                continue
            if held is None:
                continue
            is_news = True
            self._failing_since.pop(number, None)
            self._n_opened += 1
            self._opening_numbers[number] = self._n_opened
            self.shards[number] = held
            if self._cluster is not None:
                self._tell_sums(held, *_sums_of(self._cluster.states))
            if held.shard.is_resumed and not held.shard.was_clean:
                logger.info(
                    "Shard %(number)d of the crawl in %(folder)s was not closed: what was in flight is queued again, and its "
                    "hosts are left alone for a while",
                    {"number": number, "folder": self._name},
                )
            self._note_own()
            self.crawl.came(held, self.clock())
        return is_news

    def _note_own(self) -> None:
        self._exchange.own = {number: self._opening_numbers[number] for number in self.shards}

    def _send_letters(self, held: ClusterShard) -> None:
        if post := held.take_post(self._route):
            self._exchange.post(post)

    def _route(self, to: int) -> int | str:
        """The way of letters to the shard *to*; see :meth:`~.cluster_shard.ClusterShard.take_post`."""
        if (opened := self._announced.get(to)) is not None:
            return opened
        # One that is open here waits until others know that.
        return self._cluster.boxes.get(to, "") if self._cluster is not None and to not in self.shards else ""

    def _letters_sent(self, post: Post) -> None:
        """Hand in the letters of *post* to shards of this process, now that the server has the rest."""
        for to, letter in post.near:
            receiver = self.shards.get(to)
            if receiver is not None and receiver.run == post.run:
                receiver.hand_in(letter)
        if post.state is not None and self.shards.get(post.number) is post.sender:
            self._announced[post.number] = self._opening_numbers[post.number]

    # -- shards go

    def _remove(self, held: ClusterShard) -> None:
        del self.shards[held.number]
        self._announced.pop(held.number, None)
        self.n_landed += held.commits.n_landed
        self.slowest = max(self.slowest, held.commits.slowest)
        self._note_own()

    def _hand_over(self, held: ClusterShard) -> None:
        """Let others have *held*, whose last commit has landed."""
        self._send_letters(held)
        self._remove(held)
        self._opener.submit(held.close)

    def _drop(self, held: ClusterShard, error: StorageError) -> None:
        """*held* cannot be used because of *error*: end the crawl, or go on without it.

        It goes on if the shard was lost, or a connection broke: the next worker that opens it finds its last commit.
        """
        if isinstance(error, GoneError):
            self._failure = error
            return
        is_dropped = isinstance(error, LostError) or (held.is_broken and isinstance(error, UnreachableError))
        if not is_dropped:
            # Rows that another worker has changed meanwhile look damaged; the lock soon shows it. And a server that is
            # restarted takes no commit for a moment.
            if self._fails_too_long(held.number):
                self._failure = error
            elif not held.is_broken:
                held.retry()
            return
        logger.warning(
            "%(error)s This worker goes on %(rest)s",
            {
                "error": error,
                "rest": "with its other shards" if len(self.shards) > 1 else "as soon as a shard is free",
            },
        )
        self._failing_since.pop(held.number, None)
        self._remove(held)
        self._opener.submit(held.close)

    def _fails_too_long(self, number: int) -> bool:
        """Whether a shard could not be used or opened for so long that neither locks nor a restart of the server explain it."""
        since = self._failing_since.setdefault(number, time.monotonic())
        return time.monotonic() - since > self._address.lock_timeout

    def close(self, inspect: Callable[[Store], None] | None) -> None:
        """Commit what is left of all shards, waiting for it, and let others have them; see :meth:`.job.Job.close`.

        Nothing is tried if the server is gone, or a shard that only this worker has.
        """
        over = self.crawl.round if self.is_quiet and not self.crawl.has_work(self.clock()) else None
        for number, opening in self._opening.items():
            with suppress(StorageError):
                if (late := opening.result()) is not None:
                    self.shards[number] = late  # to be closed like the others, not like one that crashed
        self._opening = {}
        error = self.failure
        ending = [each for each in self.shards.values() if not (error or each.is_broken or each.is_lost)]
        for held in ending:
            held.has_ended = True
            held.commits.begin(is_clean=True)
        for held in self.shards.values():
            if held in ending:
                held.commits.land()
                while isinstance(held.failure, UnreachableError) and not held.is_lost:
                    time.sleep(_PAUSE)
                    held.commits.commit(is_clean=True)
                if held.failure is None:
                    with self._isolating(held):
                        self._send_letters(held)
                        continue
            if not held.is_lost:
                error = error or held.failure
        # At once: each may have to find out that the server is gone.
        with ThreadPoolExecutor(_CLOSED_AT_ONCE) as closing:
            deque(closing.map(ClusterShard.close, self.shards.values()), maxlen=0)

        def end_round() -> None:
            if over is not None and error is None:
                self._registry.end_round(over.number, over.began, self.clock())

        self._exchange.close(end_round)
        if error is not None:
            raise error
        if inspect is not None:
            logger.info(
                "AOPIC_REPORT shows nothing of a job in shards: 'scrapy aopic status %(folder)s' does",
                {"folder": self._name},
            )

    def release(self) -> None:
        """Leave the job."""
        self._opened.close()


def _sums_of(states: Mapping[int, ShardState]) -> tuple[Sums, dict[str, DomainCounts]]:
    """The sums of all shards with *states*, and what they have of the domains that are spread over them."""
    sums = reduce(Sums.plus, (Sums(*state.sums) for state in states.values()), NOWHERE)
    return sums, counts_of(state.spread for state in states.values())
