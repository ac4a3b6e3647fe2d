"""``python other_system.py SYSTEM COMMAND ...``: ``scrapy aopic`` commands on a Linux that is taken for another system.

What SYSTEM, ``win32`` or ``darwin``, does not have is taken away: modules, names of ``os`` and ``signal``, and ``/proc``. On
``win32`` a name with a character such as ``:`` is an error, and so is to rename onto a file, to open a folder, and to move or
delete what this process has open. Scrapy, Twisted and Python's own modules are imported before that. Each COMMAND is a list
in JSON. Text files of the package that are opened without an encoding are an error.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import json
import multiprocessing.connection  # noqa: F401 (chooses by system)
import os
import pkgutil
import re
import select
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import scrapy
from scrapy import cmdline
from scrapy.utils.reactor import install_reactor

UNIX_MODULES = ("fcntl", "grp", "posix_ipc", "pty", "pwd", "resource", "syslog", "termios", "tty")
UNIX_NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: (
        "O_DIRECTORY", "O_NOFOLLOW", "chown", "fchmod", "fchown", "fdatasync", "fork", "getegid", "geteuid",
        "getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo", "posix_fadvise", "pread", "pwrite",
        "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname",
    ),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "alarm", "setitimer"),
    select: ("epoll", "poll"),
}  # fmt: skip
LINUX_NAMES: dict[ModuleType, tuple[str, ...]] = {
    os: ("posix_fadvise", "sched_getaffinity", "fdatasync"),
    select: ("epoll",),
}
OTHERS = (
    "hiredis", "numpy", "psutil", "pyarrow.parquet", "redis", "rocksdict", "twisted.internet.endpoints",
    "twisted.internet.process", "twisted.web.client",
)  # fmt: skip
"""Packages of others, which have files of their own for each system."""

_list_open, _follow = os.listdir, os.readlink


def _taken_away(names: dict[ModuleType, tuple[str, ...]]) -> None:
    for module, gone in names.items():
        for name in gone:
            if hasattr(module, name):
                delattr(module, name)


def _without_proc(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, "There is no /proc", str(path))
        return function(path, *args, **kwargs)

    return checked


def _open_paths() -> set[str]:
    paths = set()
    for each in _list_open("/proc/self/fd"):
        with suppress(OSError):  # it listed itself, too
            paths.add(_follow(f"/proc/self/fd/{each}"))
    return paths


def _as_windows(function: Callable[..., Any], *, is_exclusive: bool = False) -> Callable[..., Any]:
    """*function*, which moves or deletes, fails as it does on Windows; one that *is_exclusive* replaces nothing."""

    def checked(path: Any, *args: Any, **kwargs: Any) -> Any:
        whole = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
        for each in _open_paths():
            if each == whole or each.startswith(f"{whole}/"):
                raise PermissionError(errno.EACCES, "This process has it open", str(path))
        if is_exclusive and os.path.lexists(args[0]):
            raise FileExistsError(errno.EEXIST, "It exists", str(args[0]))
        return function(path, *args, **kwargs)

    return checked


def _audited_anywhere(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], str) and args[0].startswith("/proc/"):
        raise FileNotFoundError(errno.ENOENT, "There is no /proc", args[0])


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if event in {"open", "os.mkdir", "os.rename"}:
        for path in args[: 2 if event == "os.rename" else 1]:
            if isinstance(path, str) and re.search(r'[<>:"|?*\\]', path):
                raise OSError(errno.EINVAL, "No name of a file", path)
    if event == "open" and isinstance(args[0], str) and isinstance(args[2], int) and Path(args[0]).is_dir():
        raise PermissionError(errno.EACCES, "A folder cannot be opened", args[0])


def _become_windows() -> None:
    import fcntl

    msvcrt = ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, n: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN if mode else fcntl.LOCK_EX | fcntl.LOCK_NB)

    vars(msvcrt).update(LK_UNLCK=1, LK_NBLCK=0, locking=locking)
    sys.modules["msvcrt"] = msvcrt
    for name in UNIX_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    asyncio.WindowsSelectorEventLoopPolicy = asyncio.DefaultEventLoopPolicy  # type: ignore[attr-defined]
    _taken_away(UNIX_NAMES)
    for name in ("remove", "unlink", "replace", "rmdir"):
        setattr(os, name, _as_windows(getattr(os, name)))
    os.rename = _as_windows(os.rename, is_exclusive=True)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # chosen when it is imported
    sys.addaudithook(_audited)


def _run(command: list[str]) -> None:
    try:
        cmdline.execute(["scrapy", "aopic", *command])
    except SystemExit as end:
        if end.code:
            raise


def main() -> None:
    system, *commands = sys.argv[1:]
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    of_scrapy = [module.name for module in pkgutil.walk_packages(scrapy.__path__, "scrapy.")]
    for name in (*OTHERS, *(each for each in of_scrapy if "__main__" not in each)):
        with suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(name)
    assert not [name for name in sys.modules if name.startswith("scrapy_aopic")]
    warnings.filterwarnings("error", category=EncodingWarning, module="scrapy_aopic")
    _taken_away(LINUX_NAMES)
    if system == "win32":
        _become_windows()
    for name in ("stat", "lstat", "listdir", "scandir"):
        setattr(os, name, _without_proc(getattr(os, name)))
    sys.addaudithook(_audited_anywhere)
    sys.platform = system

    import scrapy_aopic

    for module in pkgutil.walk_packages(scrapy_aopic.__path__, "scrapy_aopic."):
        if not module.name.startswith("scrapy_aopic.example"):
            importlib.import_module(module.name)
    for command in commands:
        _run(json.loads(command))


if __name__ == "__main__":
    main()
