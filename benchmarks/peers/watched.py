"""Runs a command and says what it took: python -I -S watched.py COMMAND ...

A process of its own, because Linux counts the memory of the process that starts a command as the command's.
Printed are, as JSON, the last line that the command printed, seconds of CPU of all of its processes, seconds by the clock,
and the most memory of the largest of them in MB. Exit status: that of the command.
"""

from __future__ import annotations

import json
import os
import sys
import time

began = time.perf_counter()
reader, writer = os.pipe()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
os.close(writer)
with os.fdopen(reader) as said:
    lines = said.read().splitlines()
_, status, used = os.wait4(pid, 0)
found = {
    "said": lines[-1] if lines else "",
    "cpu": used.ru_utime + used.ru_stime,
    "seconds": time.perf_counter() - began,
    "memory": used.ru_maxrss / 1024,
}
print(json.dumps(found))
sys.exit(os.waitstatus_to_exitcode(status))
