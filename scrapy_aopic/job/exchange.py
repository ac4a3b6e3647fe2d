"""The thread that exchanges states and letters with the other processes of a job in shards.

Rule: the event loop hands it posts and takes the states that it has read; neither waits for the other.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_aopic.exceptions import ANY_ERROR, GoneError, LostError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy_aopic.storage.redis.mailboxes import PostedLetter
    from scrapy_aopic.storage.redis.worker_registry import ClusterState, ShardState, WorkerRegistry

    from .cluster_shard import Post

_PAUSE = 0.2
"""Seconds between reads, and between posts: what a letter is late, beside the commits of sender and receiver, and a hand-over."""

_PAUSE_OF_FOLDERS = 0.5
"""The same with folders on several machines, where what is left for the server to do is mostly this: as long as a commit takes to be due."""

_SERVER_RETRY = 0.2
"""Seconds after which a server that did not reply is tried again."""


class Exchange:
    """Reads the state of all shards of a job by *registry*, and posts what it is given.

    Args:
        lock_timeout: Seconds after which others take this process for dead.

    Attributes:
        own: Shards that are held, and which time each was opened; to be kept up to date.
    """

    def __init__(self, registry: WorkerRegistry, lock_timeout: float) -> None:
        self.own: Mapping[int, int] = {}
        self._registry = registry
        self._lock_timeout = lock_timeout
        self._pause = min(_PAUSE_OF_FOLDERS if registry.home else _PAUSE, lock_timeout / 5)
        self._using = threading.Lock()
        self._posts: list[Post] = []
        self._done: list[Post] = []
        self._failed: list[Post] = []
        self._read: list[tuple[ClusterState, Mapping[int, int]]] = []
        self._error: StorageError | None = None
        self._reached_at = time.monotonic()
        self._is_new_run = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aopic-exchange", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> StorageError | None:
        """Why the server was not reached for so long that others take over, or has the job no more; ``None`` otherwise."""
        if isinstance(self._error, GoneError) or self._registry.is_over:
            return self._error
        return self._error if time.monotonic() - self._reached_at > self._lock_timeout else None

    @property
    def is_fading(self) -> bool:
        """Whether others may soon have this worker's folder, so that nothing new should be begun."""
        return bool(self._registry.home) and time.monotonic() - self._reached_at > self._lock_timeout / 2

    def post(self, post: Post) -> None:
        """Show others *post*, soon."""
        with self._using:
            self._posts.append(post)

    def take(self) -> tuple[list[tuple[ClusterState, Mapping[int, int]]], list[Post], list[Post]]:
        """The states that were read, with the shards that each was for, oldest first; posts that are done; and those that failed."""
        with self._using:
            taken = self._read, self._done, self._failed
            self._read, self._done, self._failed = [], [], []
        return taken

    def _run(self) -> None:
        while True:
            self._exchange()
            if self._ended.wait(self._pause):
                return

    def _exchange(self) -> None:
        with self._using:
            posts, self._posts = self._posts, []
        own = self.own
        try:
            if self._is_new_run:
                self._registry.begin_anew()
                self._is_new_run = False
            posts = self._usable(posts)
            cluster = self._registry.exchange(*_posted(posts), own)
        except ANY_ERROR as error:  # without this thread the job would wait for ever
            self._is_new_run |= isinstance(error, LostError)
            self._error = (
                error
                if isinstance(error, StorageError)
                else StorageError(f"The server's reply is wrong ({type(error).__name__})")
            )
            with self._using:
                self._failed += posts
            time.sleep(_SERVER_RETRY)
            return
        self._reached_at = time.monotonic()
        with self._using:
            self._done += posts
            self._read.append((cluster, own))

    def _usable(self, posts: list[Post]) -> list[Post]:
        """Those of *posts* that are of the present run of the server; the others have failed."""
        run = self._registry.run
        others = [post for post in posts if post.run not in (b"", run)]
        if others:  # of shards that are lost, or were opened before this thread has noticed
            posts = [post for post in posts if post not in others]
            with self._using:
                self._failed += others
        return posts

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Post what is left, let others know that this process is gone, and do what is *last* to be done with the registry."""
        self._ended.set()
        self._thread.join()
        with suppress(StorageError):  # others notice by themselves, and letters are sent again
            self._registry.post(*_posted(self._usable(self._posts)))
            self._registry.leave()
        last()
        self._registry.close()


def _posted(
    posts: list[Post],
) -> tuple[dict[int, ShardState], list[tuple[int, PostedLetter]], list[tuple[int, list[tuple[int, int]]]]]:
    """The states in *posts*, the letters, and which letters were read."""
    states = {post.number: post.state for post in posts if post.state is not None}
    letters = [letter for post in posts for letter in post.letters]
    return states, letters, [(post.number, post.read) for post in posts]
