"""Python processes of their own, as those of ``subprocess``, without the second that each needs to start.

They are forked off a process that has imported everything (``fork_server.py``), one for each process that runs tests, and
so are the workers that they start. All else is real: memory, folder, environment, files, signals, exit code.
``AOPIC_FORK=0`` starts each anew, as do systems that cannot fork, and an environment with other settings of Python.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from threading import Lock, Thread
from types import SimpleNamespace
from typing import IO, Any, NamedTuple, cast

from typing_extensions import Self

FORKS = hasattr(os, "fork") and os.environ.get("AOPIC_FORK") != "0"


class _ForkServer:
    """The process that forks; it ends with this one, which is why its end of the socket is never closed."""

    def __init__(self, module: str) -> None:
        self._orders, its_end = socket.socketpair()
        self._lock = Lock()
        script = Path(__file__).with_name("fork_server.py")
        command = [sys.executable, str(script), str(its_end.fileno()), module, *sys.path]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with its_end:
            self._process = subprocess.Popen(
                command, env=environment, stdin=DEVNULL, pass_fds=[its_end.fileno()]
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._orders.close()
        self._process.wait()

    def fork(self, order: dict[str, Any], files: list[int]) -> socket.socket:
        """A new process; where it is told of by lines: its process id, and its exit code when it has ended."""
        with self._lock:
            return _fork(self._orders, order, files)


class _ForkServerOfAll(NamedTuple):
    """The process off which this one was forked, which takes orders of all that it has forked."""

    orders: socket.socket

    def fork(self, order: dict[str, Any], files: list[int]) -> socket.socket:
        """As that of the other one; each order is sent at once."""
        return _fork(self.orders, order, files)


def _fork(orders: socket.socket, order: dict[str, Any], files: list[int]) -> socket.socket:
    mine, its_end = socket.socketpair()
    with its_end:
        socket.send_fds(orders, [b"."], [*files, its_end.fileno()])
    mine.sendall(json.dumps(order).encode() + b"\n")
    return mine


_servers: dict[str, _ForkServer | _ForkServerOfAll] = {}
"""By the module that they have imported; that of all others has the name ``""``."""


def fork_workers(orders: socket.socket) -> None:
    """Let the workers that this process starts be forked, too, by who takes *orders*."""
    _servers[""] = _ForkServerOfAll(orders)
    local_workers: Any = import_module("scrapy_aopic.local_workers")
    local_workers.subprocess = SimpleNamespace(Popen=start, PIPE=PIPE)


def _of_python(environment: dict[str, str]) -> dict[str, str]:
    """What an interpreter reads when it starts."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("PYTHON") and name not in {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    }


def _set(limit: tuple[str, int]) -> None:
    import resource

    resource.setrlimit(getattr(resource, limit[0]), (limit[1], limit[1]))


class Process:
    """A process that was forked, to be used as a ``subprocess.Popen``."""

    def __init__(
        self,
        server: _ForkServer | _ForkServerOfAll,
        line: list[str],
        *,
        cwd: str | Path,
        env: dict[str, str],
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        text: bool = False,
        limit: tuple[str, int] | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = line
        self.returncode: int | None = None
        its_ends: list[int] = []

        def make(kind: Any, number: int) -> IO[Any] | None:
            """What is read here of what it writes."""
            if kind == PIPE:
                mine, its_own = os.pipe()
                its_ends.append(its_own)
                return open(mine, "r" if text else "rb")  # noqa: PTH123
            if kind == DEVNULL:
                its_ends.append(os.open(os.devnull, os.O_WRONLY))
            else:
                its_ends.append(
                    os.dup(its_ends[0] if kind == STDOUT else number if kind is None else kind.fileno())
                )
            return None

        self.stdin: IO[Any] | None = None
        self.stdout, self.stderr = make(stdout, 1), make(stderr, 2)
        if stdin == PIPE:
            its_own, mine = os.pipe()
            its_ends.append(its_own)
            self.stdin = open(mine, "wb")  # noqa: PTH123, SIM115
        order = {"line": line[1:], "folder": str(Path(cwd).absolute()), "environment": env, "limit": limit,
                 "has_session": start_new_session}  # fmt: skip
        with server.fork(order, its_ends) as told:
            self._told = told.makefile("rb", buffering=0)  # so that what was not read yet can be selected
        for each in its_ends:
            os.close(each)
        self.pid = int(self._told.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.stdout, self.stderr):
            if each is not None:
                each.close()
        self.wait()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """All that it writes, when it has ended."""
        said: dict[str, Any] = {}

        def read(name: str, file: IO[Any]) -> None:
            said[name] = file.read()

        pipes = {"stdout": self.stdout, "stderr": self.stderr}
        readers = [
            Thread(target=read, args=each, daemon=True) for each in pipes.items() if each[1] is not None
        ]
        for each in readers:
            each.start()
        self.wait(timeout)
        for each in readers:
            each.join()
        for file in pipes.values():
            if file is not None:
                file.close()
        return said.get("stdout"), said.get("stderr")


def start(
    line: list[str],
    *,
    cwd: str | Path = ".",
    env: dict[str, str] | None = None,
    imported: str = "",
    **options: Any,
) -> Process:
    """A new process of Python, a ``subprocess.Popen`` or what can be used as one.

    Args:
        line: The interpreter of this process, and a module after ``-m``, code after ``-c``, or the path of a script.
        cwd: Its folder.
        env: Its environment; that of this process, if none is given.
        imported: The only module that it has when it begins, so that it must import all else by itself, as one that is
            started anew does.
        options: ``stdin`` (which is a pipe, or what the system has), ``stdout``, ``stderr``, ``text`` and
            ``start_new_session`` of ``subprocess.Popen``; and ``limit``, a limit of the system by the name that it has in
            ``resource``, with its value.
    """
    if env is None:
        env = dict(os.environ)
    assert line[0] == sys.executable
    if not FORKS or _of_python(env) != _of_python(dict(os.environ)):
        if limit := options.pop("limit", None):
            options["preexec_fn"] = lambda: _set(limit)
        return cast("Process", subprocess.Popen(line, cwd=cwd, env=env, **options))
    if imported not in _servers:
        _servers[imported] = _ForkServer(imported)
    return Process(_servers[imported], line, cwd=cwd, env=env, **options)


def run(
    line: list[str],
    *,
    timeout: float | None = None,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """What ``subprocess.run`` gives, of a process that is made by :func:`start`."""
    if capture_output:
        options.update(stdout=PIPE, stderr=PIPE)
    with start(line, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(line, process.wait(), out, err)
    if check:
        done.check_returncode()
    return done


def run_and_read(line: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As :func:`run`, with its output and its errors as text; five minutes are enough unless a *timeout* is given."""
    return run(line, capture_output=True, text=True, **{"timeout": 300, **options})
