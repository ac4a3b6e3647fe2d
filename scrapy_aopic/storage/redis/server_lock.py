"""One writer at a time for a job in Redis.

1. A writer has a *token*, drawn when it opens the job. Only the writer whose token is in ``head`` can commit, and only
   on top of its own last commit: the head is compared in the transaction. So a writer that was taken for dead cannot
   change anything any more, however late it wakes up.
2. The *lock* under ``owner`` keeps a second writer from opening the job while the first one lives. It expires by the
   server's clock alone, and is renewed at a third of its time, by a thread, so that no pause of the event loop ends it.
3. A writer that could not renew its lock in time stops by its own clock, even if it cannot reach the server.
4. A process that finds a lock waits until it expires, at most, to see whether it is renewed.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_aopic.core.layout import FORMAT
from scrapy_aopic.exceptions import GoneError, InUseError, LostError, StorageError, closed_on_error
from scrapy_aopic.storage.address import MAX_SHARDS, Address

from .connect import connect
from .keys import Head, Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .connection import Command, Connection

logger = logging.getLogger(__name__)


_GONE = "its keys are gone from the server"


def job_gone(job: Address, *, in_folders: bool = False) -> GoneError:
    """The error for a *job* that has disappeared during a crawl; its shards may be in job folders."""
    advice = (
        "Start the workers again with the folders that they had."
        if in_folders
        else "Put a copy back with 'scrapy aopic backup', or begin anew from the seeds."
    )
    return GoneError(
        f"The job in {job} is gone: {_GONE}, which was emptied, or they were removed, renamed or replaced by another job. {advice}"
    )


_RESTARTED = "its server was restarted, or another one took over, and may have lost the last second"

_POLL = 0.2
"""Seconds between polls of the lock of another."""

_ATTEMPTS = 20
"""Times that a renewal is tried while commits change the head."""


class LockKeeper:
    """Renews the locks of a process for shards of the job at *address*, or for that itself, by one connection and one thread.

    Attributes:
        locks: Those that are held, to be changed by whoever is :meth:`using` the connection.

    Raises:
        StorageError: If the server cannot be reached.
    """

    def __init__(self, address: Address) -> None:
        self._milliseconds = max(1, round(address.lock_timeout * 1000))
        self._connection = connect(address)
        self._using = threading.RLock()
        self.locks: list[ServerLock] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="aopic-lock", daemon=True)
        self._thread.start()

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """The connection, for this thread alone; if the run of the server has ended that it was pinned to, so have its locks."""
        with self._using:
            try:
                yield self._connection
            except LostError:
                self._connection.unpin()
                for lock in self.locks:
                    if lock.run:
                        lock.lost(_RESTARTED)
                raise

    def pin(self) -> bytes:
        """The run of the server, to which the connection is pinned from now on."""
        with suppress(LostError), self.using() as connection:
            if connection.run:
                connection.ask((b"PING",))
                return connection.run
        with self.using() as connection:
            return connection.pin()

    def _keep(self) -> None:
        wait = self._milliseconds / 3000
        while not self._ended.wait(wait):
            wait = self._milliseconds / 3000
            try:
                self._renew()
            except StorageError:  # check() knows when it is too late
                wait = min(1.0, self._milliseconds / 10_000)

    def _renew(self) -> None:
        """Renew all locks that are still this process's, with two requests."""
        for _ in range(_ATTEMPTS):
            began = time.monotonic()
            with self.using() as connection:
                if not (locks := [lock for lock in self.locks if not lock.is_lost]):
                    return
                heads, owners = [lock.keys.head for lock in locks], [lock.keys.owner for lock in locks]
                _, *found = connection.ask((b"WATCH", *heads, *owners), (b"MGET", *heads), (b"MGET", *owners))
                ours = [each for each in zip(locks, *found, strict=True) if each[0].is_ours(*each[1:])]
                renewed = [lock.renewal for lock, *_ in ours]
                if connection.transact(*renewed) is not None:
                    for lock, *_ in ours:
                        lock.was_renewed(began)
                    return

    def close(self) -> None:
        """Renew nothing any more. Idempotent."""
        self._ended.set()
        self._thread.join()
        self._connection.close()


class ServerLock:
    """The right to change the job at *address*, until it is closed or lost.

    Args:
        task: The purpose for which it is taken, for messages of other processes.
        waits: Whether to wait until a lock expires that may not be renewed any more.
        is_pinned: Whether it ends with the run of the server: see rule 4 of :mod:`.connection`.
        keeper: Renews it; by default one of its own.

    Attributes:
        head: The value of ``head``, with the token of this lock; the store counts its commits here.
        is_new: Whether there was no job.
        run: Run of the server, if it is pinned.

    Raises:
        InUseError: If another has the job open.
        StorageError: If the server does not work.
    """

    def __init__(
        self,
        address: Address,
        keys: Keys,
        *,
        task: str,
        waits: bool = True,
        is_pinned: bool = False,
        keeper: LockKeeper | None = None,
    ) -> None:
        self._address = address
        self.keys = keys
        self._milliseconds = max(1, round(address.lock_timeout * 1000))
        self._token = secrets.token_hex(8)
        since = datetime.now(timezone.utc).isoformat(" ", "seconds")
        owner = {
            "token": self._token,
            "task": task,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": since,
        }
        self._owner = json.dumps(owner).encode()
        self._process = os.getpid()
        self._why_lost = ""
        self.run = b""
        self._is_closed = False
        self._keeper = keeper or LockKeeper(address)
        self._is_alone = keeper is None
        with closed_on_error(self._end):
            if is_pinned:
                self.run = self._keeper.pin()
            self._wait(waits=waits)
            self.head, self.is_new = self._fence()
            self._number = self.head.number
        with self._keeper.using():
            self._keeper.locks.append(self)

    def _wait(self, *, waits: bool) -> None:
        """Take the lock; if it *waits*, wait until another one expires that is not renewed."""
        taken = (b"SET", self.keys.owner, self._owner, b"NX", b"PX", self._milliseconds)
        before: tuple[bytes, int] | None = None
        while True:
            began = time.monotonic()
            # The reply may be lost, and the lock be ours.
            with self._keeper.using() as connection:
                owner, left = connection.ask(taken, (b"GET", self.keys.owner), (b"PTTL", self.keys.owner))[1:]
            if owner == self._owner:
                self._until = began + self._milliseconds / 1000
                return
            if owner is None:
                continue
            if not waits or left < 0 or (before is not None and (owner != before[0] or left > before[1])):
                raise self._in_use(owner)
            if before is None:
                logger.info(
                    "The store in %(store)s was opened by another process, which may have died: waiting up to %(left).0f s "
                    "to see whether it has",
                    {"store": self._address, "left": left / 1000},
                )
            before = owner, left
            time.sleep(min(_POLL, left / 1000 + 0.001))

    def _in_use(self, data: bytes) -> InUseError:
        try:
            owner = json.loads(data)
            who = f"process {owner['pid']} on {owner['host']} has had it open since {owner['since']} ({owner['task']})"
        except (ValueError, LookupError, TypeError):
            who = "another process has it open"
        return InUseError(
            f"The store in {self._address} is in use: {who}; wait for its end or choose another key for this job."
        )

    def _fence(self) -> tuple[Head, bool]:
        """Put the token into the head, so that no other writer can commit; returns the head, and whether it is new."""
        for _ in range(_ATTEMPTS):
            with self._keeper.using() as connection:
                _, data = connection.ask((b"WATCH", self.keys.head), (b"GET", self.keys.head))
                before = self.keys.read_head(data)
                head = Head(FORMAT, self._token, before.number if before is not None else 0)
                if connection.transact((b"SET", self.keys.head, head.packed())) is not None:
                    return head, before is None
        raise StorageError(f"The store in {self._address} is in use: another process keeps committing to it.")

    def next_head(self) -> Head:
        """The head after the next commit, if that lands; no commit that was tried before had its number."""
        self._number += 1
        return self.head._replace(number=self._number)

    def check(self) -> None:
        """Check that the job is still ours, as far as is known without asking the server.

        Raises:
            LostError: If it is not.
        """
        if self._why_lost:
            raise self.lost(self._why_lost)
        if self.is_over:
            raise self.lost(
                f"the server was not reached for {self._milliseconds / 1000:g} s, so another process may have it"
            )

    @property
    def is_lost(self) -> bool:
        """Whether it is known that the job is no longer ours."""
        return bool(self._why_lost)

    @property
    def is_over(self) -> bool:
        """Whether it could not be renewed for so long that another process may have the job."""
        return time.monotonic() > self._until

    @property
    def is_fading(self) -> bool:
        """Whether half of it has passed without a renewal, so that nothing new should be begun.

        A transfer that is under way then has the other half to end before another process can have the job. A lock that can be
        renewed never gets there.
        """
        return time.monotonic() > self._until - self._milliseconds / 2000

    def lost(self, why: str) -> LostError:
        """The error for a job that is no longer ours, because of *why*, a clause."""
        self._why_lost = why
        if why == _GONE and self._address.shard <= MAX_SHARDS:
            return job_gone(self._address.of_shard(-1))
        return LostError(
            f"The store in {self._address} is no longer this process's: {why}; what was not committed is done again by "
            "whoever goes on."
        )

    @property
    def renewal(self) -> Command:
        """The command that renews it."""
        return (b"SET", self.keys.owner, self._owner, b"PX", self._milliseconds)

    def was_renewed(self, began: float) -> None:
        """It was, by a request that *began* then."""
        self._until = began + self._milliseconds / 1000

    def is_ours(self, data: bytes | None, owner: bytes | None) -> bool:
        """Whether it may be renewed, with a head of *data* and that *owner* on the server; if not, it may be lost."""
        try:
            why = self._why_not_ours(data)
        except StorageError:  # what is there is no head: whoever reads it says so
            return False
        if why or (owner is not None and owner != self._owner):
            self._why_lost = why or "another process has opened it"
        return not self._why_lost

    def _why_not_ours(self, data: bytes | None) -> str:
        head = self.keys.read_head(data)
        if head is None:
            return _GONE
        return "another process has opened it" if head.token != self._token else ""

    def why_refused(self, data: bytes | None) -> str:
        """Why a commit on top of :attr:`head` is refused by a head of *data*; empty if it is not."""
        if why := self._why_not_ours(data):
            return why
        found = self.keys.read_head(data)
        if found is None or found.number == self.head.number:
            return ""
        if found.number > self.head.number:
            return f"a commit that was given up has landed late (number {found.number:,}, after {self.head.number:,})"
        return (
            f"the server has lost what it last took (its last commit is number {found.number:,}, and number "
            f"{self.head.number:,} had landed), maybe because it was restarted"
        )

    def close(self) -> None:
        """Let others have the job. Idempotent."""
        if self._is_closed or os.getpid() != self._process:  # a forked child has not got it
            return
        self._is_closed = True
        with self._keeper.using():
            self._keeper.locks.remove(self)
        for _ in range(2):  # at another run of the server for the second time
            with suppress(StorageError, OSError), self._keeper.using() as connection:
                _, owner = connection.ask((b"WATCH", self.keys.owner), (b"GET", self.keys.owner))
                if owner == self._owner:
                    connection.transact((b"DEL", self.keys.owner))
                break
        self._end()

    def _end(self) -> None:
        if self._is_alone:
            self._keeper.close()
