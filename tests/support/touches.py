"""``scrapy`` in a process that gets a signal just before it touches a disk or a server for the n-th time.

    python touches.py N SIGNAL FILE ARGUMENTS...

A *touch* opens a file to write, makes, renames or removes one or a folder, or sends something to a Redis server. FILE holds
the number of touches when the process has ended by itself. What SQLite and RocksDB write is no touch: ``kill_points.py``
has kills there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from scrapy_aopic.storage.redis.connection import Connection

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


class Touches:
    """Counts touches, and sends *number* to this process before the one numbered *at*, from 1."""

    def __init__(self, at: int, number: int) -> None:
        self.n = 0
        self._at = at
        self._number = number
        sys.addaudithook(self._heard)
        exchange = Connection._exchange

        def exchanged(link: Connection, commands: Any) -> Any:
            self.touch()
            return exchange(link, commands)

        Connection._exchange = exchanged  # type: ignore[assignment,method-assign]

    def touch(self) -> None:
        self.n += 1
        if self.n == self._at:
            os.kill(os.getpid(), self._number)

    def _heard(self, event: str, values: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and values[2] & _WRITES and values[0] != "/dev/null"):
            self.touch()


def main() -> int:
    """Run it."""
    from scrapy.cmdline import execute

    at, number, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    touches = Touches(at, number)
    code: Any = 0
    try:
        execute(["scrapy", *sys.argv[4:]])
    except SystemExit as end:
        code = end.code
    n = touches.n
    file.write_text(str(n))
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
