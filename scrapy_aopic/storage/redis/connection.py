"""A connection to a Redis or Valkey server: commands go out in one piece, and every failure is one sentence.

1. redis-py makes the connection, with everything that its URLs and parameters can say (TLS, users, sockets). Replies are
   then read from its socket by hiredis alone, because redis-py takes 5 us for each: 30 replies took 212 us of CPU, and
   take 54 us.
2. No message contains a password: servers are named by host, port and database.
3. A reply that is an error is a value, so that the other replies of the same request are read, too.
4. A connection that is *pinned* ends with the run of the server that it was pinned to: after a restart or a fail-over, the server
   may have lost what this process remembers of it.
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from contextlib import suppress
from ssl import SSLWantReadError
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from scrapy_aopic.exceptions import LostError, SettingError, StorageError, UnreachableError, plainly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from socket import socket

    from scrapy_aopic.storage.address import Address

Argument: TypeAlias = "bytes | str | int"
Command: TypeAlias = "Sequence[Argument]"
"""Part of a command."""

Reply: TypeAlias = Any
"""A server's reply: bytes, a number, ``None``, a list of these, or a :data:`ReplyError`."""

ReplyError = hiredis.ReplyError
"""A reply that is an error."""

TIMEOUT = 5.0
"""Seconds that a server may take to reply, or to take a connection, unless ``REDIS_PARAMS`` says otherwise. A server
that does its work replies within milliseconds, and a crawl stands still while it waits."""

_RECEIVE_BYTES = 1 << 18
"""Bytes that are taken from the socket at once: more than a page's links or a leaf of rows."""

_ADVICE = {
    "OOM": "the server has no memory left: give it more (maxmemory), or remove other keys",
    "READONLY": "the server is a replica, which takes no writes: let REDIS_URL name the primary",
    "LOADING": "the server is still reading its data from the disk: try again when it is done",
    "MASTERDOWN": "the server is a replica without its primary: let REDIS_URL name the primary",
    "MOVED": "the server is part of a cluster, and the job is on another node: let REDIS_URL name that, or a single server",
    "ASK": "the server is part of a cluster, and the job is on another node: let REDIS_URL name that, or a single server",
    "CLUSTERDOWN": "the cluster that the server is part of is down: let REDIS_URL name a single server",
    "SENTINEL": "this is no server of data, but a sentinel, say: let REDIS_URL name one, or see 'scrapy aopic docs many-machines#the-server'",
    "MISCONF": "the server takes no writes because it cannot save its data to the disk: see its log",
    "NOREPLICAS": "the server takes no writes because too few replicas follow it (min-replicas-to-write)",
    "NOAUTH": "the server wants a password: put it into REDIS_URL or REDIS_PARAMS",
    "WRONGPASS": "the server does not know this user and password: correct REDIS_URL or REDIS_PARAMS",
    "NOPERM": "the user in REDIS_URL may not do this: give it the rights that 'scrapy aopic docs many-machines#the-server' lists",
    "BUSY": "the server is busy with a script: end that with SCRIPT KILL",
}
"""Advice on an error, by the first word of the reply."""


def _client(address: Address) -> redis.Redis:
    """A client of redis-py for *address*, which has not connected yet.

    Raises:
        SettingError: If there can be none.
    """
    parameters = {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "retry": Retry(NoBackoff(), 0),  # redis-py's own would try for seconds, while nothing else goes on
        **address.parameters,
        # The form of replies is not the user's choice.
        "decode_responses": False,
        "protocol": 2,
    }
    made_by = parameters.pop("redis_cls", redis.Redis)
    try:
        if address.url:
            return cast("redis.Redis", made_by.from_url(address.url, **parameters))
        return cast("redis.Redis", made_by(**parameters))
    except (RedisError, ValueError, TypeError, AttributeError) as error:
        # The text of the error may have the password in it.
        raise SettingError(
            f"REDIS_URL or REDIS_PARAMS cannot be used ({type(error).__name__}): a URL is "
            "redis://[[USER]:PASSWORD@]HOST:PORT/DATABASE, with rediss:// for TLS or unix:// for a socket; a "
            "password's special characters are written as %XX."
        ) from None


class Connection:
    """A connection to the server at *address*; one thread uses it at a time.

    A connection that the server has dropped meanwhile (it may close idle ones) is made again once.

    Attributes:
        n_opened: Connections that were made; a new one watches nothing.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._client = _client(address)
        self._connection: Any = None
        self._socket: socket | None = None
        self._reader = hiredis.Reader()
        self._owed: deque[deque[Reply]] = deque()  # where each reply to what was sent ahead goes
        self._run = b""
        self.n_opened = 0
        self._watched = 0  # the connection on which :meth:`watch` was called since the last transaction
        self._connect()

    def _connect(self) -> None:
        self._open()
        if self._run and (run := self._read_run()) != self._run:
            self.close()
            raise LostError(
                f"The store in {self._address} is no longer this process's: its server was restarted, or another one took "
                f"over (run {run.decode('ascii', 'replace')[:8]}), and may have lost the last second."
            )

    def _open(self) -> None:
        self.close()
        try:
            # By the pool, so that a pool's own ways to find a server apply.
            self._connection = self._client.connection_pool.make_connection()
            self._connection.connect()
        except (RedisError, OSError) as error:
            self._connection = None
            raise self.unreachable("connect to", error) from error
        except TypeError as error:
            option = str(error).rpartition(" ")[2]
            raise StorageError(
                f"{self._address} has an option that redis-py does not know: {option}."
            ) from error
        self._socket = getattr(self._connection, "_sock", None)
        if self._socket is None:
            raise StorageError("This version of redis-py does not show its socket; install redis 5 to 8.")
        self._reader = hiredis.Reader()
        self._owed.clear()
        self.n_opened += 1

    def pin(self, run: bytes = b"") -> bytes:
        """Use only the run *run* of the server, by default the present one; returns its name.

        Raises:
            LostError: If another run is there.
            StorageError: If the server cannot be reached.
        """
        self._run = run
        if run or self._socket is None:
            self._connect()
        self._run = self._run or self._read_run()
        return self._run

    @property
    def run(self) -> bytes:
        """The run of the server that it is pinned to; empty if it is not."""
        return self._run

    def unpin(self) -> None:
        """Use any run of the server from now on."""
        self._run = b""

    def _read_run(self) -> bytes:
        """Which run of the server the connection is to: one of its own if the server does not say."""
        try:
            (info,) = self._exchange(((b"INFO", b"server"),))
        except OSError as error:
            self.close()
            raise self.unreachable("read", error) from error
        if isinstance(info, bytes):
            for line in info.splitlines():
                if line.startswith(b"run_id:"):
                    return line.partition(b":")[2]
        return secrets.token_hex(8).encode()

    def ask(self, *commands: Command) -> list[Reply]:
        """The replies to *commands*, which may be sent twice if the connection breaks: only reads, and the like.

        Raises:
            StorageError: If the server cannot be reached, or replies with an error.
        """
        return self.checked(self.inquire(*commands))

    def ask_at_once(self, *commands: Command) -> list[Reply]:
        """Like :meth:`ask`, as one transaction."""
        return self.checked(self.ask((b"MULTI",), *commands, (b"EXEC",))[-1])

    def walk(self, begin: Command, end: Command) -> Iterator[list[bytes]]:
        """The parts of what ``SCAN`` or ``SSCAN`` finds: a command of *begin*, a cursor and *end*; some may come twice.

        Raises:
            StorageError: As :meth:`ask` does.
        """
        cursor = b"0"
        while True:
            ((cursor, found),) = self.ask((*begin, cursor, *end))
            yield found
            if cursor == b"0":
                return

    def inquire(self, *commands: Command) -> list[Reply]:
        """Like :meth:`ask`, but return errors among the replies.

        Raises:
            StorageError: If the server cannot be reached.
        """
        try:
            return self._exchange(commands)
        except OSError:
            self._connect()
            try:
                return self._exchange(commands)
            except OSError as error:
                self.close()
                raise self.unreachable("read", error) from error

    def watch(self, *keys: bytes) -> None:
        """Have the next :meth:`transact` do nothing if one of *keys* may have changed until then.

        Raises:
            StorageError: If the server cannot be reached.
        """
        self.ask((b"WATCH", *keys))
        self._watched = self.n_opened

    def transact(self, *commands: Command) -> list[Reply] | None:
        """The replies to *commands* as one transaction; ``None`` if a key that is watched has changed.

        They are sent once: on another connection nothing would be watched. So nothing is done, either, if a request since
        :meth:`watch` has opened another one.

        Raises:
            StorageError: If the server cannot be reached, or refuses one of them; what was done is then unknown.
        """
        watched, self._watched = self._watched, 0
        if watched not in {0, self.n_opened}:
            return None
        *_, done = self.write((b"MULTI",), *commands, (b"EXEC",))
        return self.checked(done, "write to") if done is not None else None

    def write(self, *commands: Command) -> list[Reply]:
        """The replies to *commands*, which are sent once, as none of them is an error; those in a transaction may be.

        Raises:
            StorageError: If the server cannot be reached, or refuses one of them; what was done is then unknown.
        """
        try:
            replies = self.tell(*commands)
        except OSError as error:
            raise self.unreachable("write to", error) from error
        return self.checked(replies, "write to")

    def checked(self, replies: Iterable[Reply], action: str = "read") -> list[Reply]:
        """Return *replies* to an *action*, of a transaction for example, none of which is an error.

        Raises:
            StorageError: If one is.
        """
        found = list(replies)
        for reply in found:
            if isinstance(reply, ReplyError):
                raise self.error(action, str(reply))
        return found

    def tell(self, *commands: Command) -> list[Reply]:
        """The replies to *commands*, which are sent once; errors among them are not raised.

        Raises:
            OSError: If the connection broke; which commands were run is then unknown.
        """
        try:
            return self._exchange(commands)
        except OSError:
            self.close()
            raise

    def _exchange(self, commands: Iterable[Command]) -> list[Reply]:
        packed = list(map(hiredis.pack_command, map(tuple, commands)))
        sock = self._socket
        if sock is None:
            raise ConnectionError("the connection is closed")
        if not packed:
            return []
        sock.sendall(b"".join(packed))
        self._read_ahead(sock)
        replies: list[Reply] = []
        self._read(sock, replies, len(packed))
        return replies

    def _read(self, sock: socket, replies: list[Reply] | deque[Reply], n: int) -> None:
        """Take the next *n* replies."""
        get, take = self._reader.gets, replies.append
        while n:
            reply = get()
            if reply is not False:
                take(reply)
                n -= 1
                continue
            data = sock.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)

    # -- replies that are taken later

    def send_ahead(self, lane: deque[Reply], *commands: Command) -> None:
        """Send *commands* without waiting: their replies go to *lane*, in order, when :meth:`came` finds them.

        Raises:
            OSError: If the connection broke; then none of what was sent ahead has a reply.
        """
        try:
            if self._socket is None:
                raise ConnectionError("the connection is closed")
            self._socket.sendall(b"".join(map(hiredis.pack_command, map(tuple, commands))))
        except OSError:
            self.close()
            raise
        self._owed.extend([lane] * len(commands))

    def came(self, n: int, lane: deque[Reply], *, waits: bool = False) -> list[Reply] | None:
        """The next *n* replies of *lane*; ``None`` if they are not here yet, unless one *waits* for them.

        Raises:
            OSError: If the connection broke; then none of what was sent ahead has a reply.
        """
        sock = self._socket
        if sock is None:
            raise ConnectionError("the connection is closed")
        try:
            if waits:
                self._read_ahead(sock)
            elif len(lane) < n:
                self._look(sock)
        except OSError:
            self.close()
            raise
        return [lane.popleft() for _ in range(n)] if len(lane) >= n else None

    def _read_ahead(self, sock: socket) -> None:
        """Take all replies that are owed."""
        while self._owed:
            self._read(sock, self._owed[0], 1)
            self._owed.popleft()

    def _look(self, sock: socket) -> None:
        """Take the replies that are here."""
        seconds = sock.gettimeout()
        sock.settimeout(0)
        try:
            self._read_ahead(sock)
        except (BlockingIOError, SSLWantReadError):
            pass
        finally:
            sock.settimeout(seconds)

    def error(self, action: str, cause: str) -> StorageError:
        """The error for an *action* on the store that failed because of *cause*: a reply, or a message of the system."""
        # what any server of data knows
        word = re.sub(r"^ERR unknown command .(GET|SET|SCAN)\b.*", "SENTINEL", cause).partition(" ")[0]
        why = _ADVICE.get(word, cause.rstrip("."))
        # it was restarted, and will soon be there
        kind = UnreachableError if word == "LOADING" else StorageError
        return kind(f"Cannot {action} the store in {self._address}: {why}.")

    def unreachable(self, action: str, error: Exception) -> UnreachableError:
        """The error for an *action* on the store that failed because of *error*, which the system raised."""
        return UnreachableError(str(self.error(action, _cause(error))))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._connection, self._socket = self._connection, None, None
        self._owed.clear()
        if connection is not None:
            with suppress(RedisError, OSError):
                connection.disconnect()


def _cause(error: BaseException) -> str:
    """The message of *error*, as the end of a sentence."""
    if isinstance(error, TimeoutError | redis.exceptions.TimeoutError):
        return "the server does not reply; is it up, and is the network fast enough for socket_timeout (REDIS_PARAMS)?"
    behind = error
    while not (isinstance(behind, OSError) and not isinstance(behind, RedisError)) and behind.__context__:
        behind = behind.__context__  # redis-py puts the words of the system into its own
    if isinstance(behind, OSError):
        return plainly(behind)
    text = " ".join(str(error).split()) or type(error).__name__
    words = {
        redis.exceptions.AuthenticationError: "NOAUTH " if "required" in text else "WRONGPASS ",
        redis.exceptions.BusyLoadingError: "LOADING ",
    }
    for kind, word in words.items():
        if isinstance(error, kind):
            return word + text
    return text
