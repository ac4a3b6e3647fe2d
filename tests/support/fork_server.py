"""A process that has imported what a crawl needs, and becomes the processes that tests start, by forking.

``python fork_server.py FD MODULE PATH...`` imports along that path, only MODULE if it is not empty, and takes orders at that
socket: one byte, with the standard output, the standard error, maybe the standard input, and a socket of the new process. By
the latter, the order is read, and the process id and the exit code are told. It ends with the process at the other end.
:mod:`support.processes` gives the orders; what was forked gives them at a socket that all have, for its workers.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

MORE = (
    "scrapy.cmdline",
    "scrapy.linkextractors.lxmlhtml",
    "scrapy.utils._remote_control",
    "twisted.internet.asyncioreactor",
)


def import_all() -> None:
    """Import what nearly every crawl imports; what is not installed, is not."""
    import scrapy.commands
    from scrapy.settings import default_settings

    import scrapy_aopic

    packages = (scrapy.commands, scrapy_aopic)
    modules = [each.name for of in packages for each in pkgutil.walk_packages(of.__path__, f"{of.__name__}.")]
    for value in vars(default_settings).values():
        several = (*value, *value.values()) if isinstance(value, dict) else (value,)
        modules += [
            each.rpartition(".")[0]
            for each in several
            if isinstance(each, str) and each.startswith("scrapy.")
        ]
    for name in (*MORE, *modules):
        if name.startswith("scrapy_aopic.lab"):
            continue  # it imports NumPy, which starts threads, and threads are not forked
        with suppress(ImportError):
            import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "each process installs its own"
    gc.collect()
    gc.freeze()


def next_order(orders: socket.socket, for_workers: socket.socket) -> dict[str, Any]:
    """What this process, a new one, shall be; those that were forked give their orders *for_workers*."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([orders, for_workers, woken], [], [])
        if woken in ready:
            woken.recv(1000)
            tell_ends(running)
        asked = next((each for each in (orders, for_workers) if each in ready), None)
        if asked is None:
            continue
        told, files, _, _ = socket.recv_fds(asked, 1, 4)
        if not told:
            os._exit(0)
        with socket.socket(fileno=files.pop()) as asker:
            with asker.makefile("rb") as lines:
                order: dict[str, Any] = json.loads(lines.readline() or b"{}")
            process = os.fork() if order else -1  # else the asker was killed before it had said what
            if process > 0:
                with suppress(BrokenPipeError):  # it was killed meanwhile
                    asker.sendall(b"%d\n" % process)
                running[process] = asker.dup()
        if not process:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for each in (orders, for_workers, woken, wake, *running.values()):
                each.close()
            for number, file in zip((1, 2, 0), files, strict=False):
                os.dup2(file, number)
        for file in files:
            os.close(file)
        if not process:
            return order


def tell_ends(running: dict[int, socket.socket]) -> None:
    """Tell who asks for them which processes have ended, and how."""
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        with running.pop(process) as asker, suppress(BrokenPipeError):  # nobody waits for it any more
            asker.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def be(order: dict[str, Any], of_python: list[str]) -> int:
    """Be what was ordered, with the rest of the path *of_python*; gives the exit code."""
    if order["has_session"]:
        os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    if order["limit"] is not None:
        import resource

        name, value = order["limit"]
        resource.setrlimit(getattr(resource, name), (value, value))
    first, *arguments = order["line"]
    what = arguments.pop(0) if first in {"-m", "-c"} else first
    home = {"-m": str(Path.cwd()), "-c": ""}.get(first, str(Path(what).parent))
    path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = dict.fromkeys([home, *path, *of_python])
    sys.argv[:] = [first, *arguments]
    sys.orig_argv[1:] = order["line"]
    try:
        if first == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), vars(main))
        else:
            runpy.run_path(what, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def main() -> None:
    """Serve; a new process does what was ordered, and ends as Python does, but does not clear its memory first.

    That would take more time than all the rest, as nothing of it is shared any more.
    """
    of_python = sys.path[1:]
    module, path = sys.argv[2], sys.argv[3:]
    sys.path[:] = [*path, *of_python]
    if module:
        import_module(module)
    else:
        import_all()
        from support import processes

    workers, for_workers = socket.socketpair()
    order = next_order(socket.socket(fileno=int(sys.argv[1])), for_workers)
    if module or order["environment"].get("AOPIC_FORK") == "0":
        workers.close()
    else:
        processes.fork_workers(workers)
    code = be(order, of_python)
    threading._shutdown()  # type: ignore[attr-defined]  # as in ``multiprocessing``
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError as error:
        code = 120
        sys.stderr.write(f"Exception ignored in: {sys.stdout}\n{error}\n")
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
