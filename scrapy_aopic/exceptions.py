"""Errors of scrapy-aopic; each message names what is wrong, its value and the way out."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class AopicError(Exception):
    """Base of all errors raised by this package."""


class SettingError(AopicError, ValueError):
    """A setting has a value that cannot be used."""


class StorageError(AopicError, OSError):
    """A job folder cannot be opened, read or written."""


class LostError(StorageError):
    """A job folder that is in use was moved, deleted or replaced."""


class GoneError(LostError):
    """All of a job was taken away under a crawl, so that there is nothing to go on with."""


class InUseError(StorageError):
    """Another process has the store open."""


class UnreachableError(StorageError):
    """The server that has a job does not respond, or the connection to it broke."""


class ExchangeError(AopicError, ValueError):
    """A list of seeds cannot be used, or an export cannot be written."""


class CallError(AopicError, ValueError):
    """A crawl was called with something that cannot be right; nothing was changed."""


class TopicError(AopicError, ValueError):
    """Examples or a model of a topic cannot be used."""


_PLAINLY = {
    errno.ENOENT: "there is no such file or folder",
    errno.EACCES: "its permissions do not allow it",
    errno.EPERM: "its permissions do not allow it",
    errno.EEXIST: "there is something else of that name",
    errno.ENOTDIR: "a part of its path is no folder",
    errno.EISDIR: "it is a folder",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.ELOOP: "it is a symbolic link that may not be followed, or leads back to itself",
    errno.ENAMETOOLONG: "a name in its path is too long",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EFBIG: "the system allows no file of that size",
    errno.EROFS: "its file system is read-only",
    errno.EXDEV: "it is on another file system",
    errno.EIO: "the disk failed to read or write it",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENXIO: "it is a pipe or a socket without a reader",
    errno.ESPIPE: "it is a pipe, and would have to be read more than once",
    errno.EBUSY: "something else uses it",
    errno.EINVAL: "the system cannot do that with it",
    errno.EADDRINUSE: "another program listens there",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.ECONNREFUSED: "nothing listens there, so the server is down or elsewhere",
    errno.ECONNRESET: "the other side has closed the connection",
    errno.EPIPE: "the other side has closed the connection",
    errno.ECONNABORTED: "the connection was closed",
    errno.EHOSTUNREACH: "the host cannot be reached",
    errno.ENETUNREACH: "the network cannot be reached",
    errno.ETIMEDOUT: "it does not reply in time",
}
"""The system's errors by number, in words for a user who has named a file, a folder or an address."""

SALVAGE = "'scrapy aopic salvage' begins a new job with what can be read."
"""The way out of damage, as the end of an error."""

ANY_ERROR = (Exception, SystemExit, KeyboardInterrupt)
"""All that a user's code may raise. The last two would leave the event loop, and a process that neither crawls nor ends.

Ctrl-C arrives as a signal, for which Scrapy has a handler.
"""

_BY_KIND: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "there is no host of that name"),
    (socket.herror, "there is no host of that name"),
    (ssl.SSLZeroReturnError, _PLAINLY[errno.ECONNRESET]),
    (ssl.SSLEOFError, _PLAINLY[errno.ECONNRESET]),
    (ssl.SSLCertVerificationError, "its certificate cannot be trusted"),
    (ssl.SSLError, "TLS cannot be spoken with it"),
    *(
        (type(error), words)
        for number, words in _PLAINLY.items()
        if type(error := OSError(number, "")) is not OSError
    ),
    (ConnectionError, _PLAINLY[errno.ECONNRESET]),
    (ModuleNotFoundError, "is not installed"),
    (UnicodeError, "it is no text in UTF-8"),
    (MemoryError, "it does not fit into the memory"),
    (BaseException, "it is damaged, or of another format"),
)
"""Errors without a number of the system's by class, in words; the first that fits."""

_NUMBERED_OTHERWISE = (socket.gaierror, socket.herror, ssl.SSLError)
"""Errors whose number is not the system's."""


def plainly(error: BaseException) -> str:
    """The fault, as the end of a sentence that names the file or the address: in our words, not in a library's.

    The library's own error is still there as the cause of ours.
    """
    if isinstance(error, AopicError):
        return str(error).rstrip(".")
    if isinstance(error, OSError) and not isinstance(error, _NUMBERED_OTHERWISE) and error.errno is not None:
        return _PLAINLY.get(error.errno) or _unknown(error)
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        # Which of its own libraries is missing, for example: only the words of the system say what to do.
        return f"is installed, but cannot be imported ({' '.join(str(error).split())})"
    words = next(words for kind, words in _BY_KIND if isinstance(error, kind))
    detail = getattr(error, "verify_message", "") if isinstance(error, ssl.SSLError) else ""
    return f"{words} ({detail})" if detail else words


@contextmanager
def storage_errors(failure: str) -> Iterator[None]:
    """Raise an error of the system in the block as a :class:`StorageError`: *failure*, a clause, and why.

    One that is a :class:`StorageError` already says more, and is left alone.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{failure}: {plainly(error)}.") from error


@contextmanager
def closed_on_error(close: Callable[[], object]) -> Iterator[None]:
    """Call *close*, of what was opened before, if the block raises, whatever it raises."""
    try:
        yield
    except BaseException:
        close()
        raise


def _unknown(error: OSError) -> str:
    """The system's name for an *error* that is not in the table."""
    return (error.strerror or f"the system reports error {error.errno}").rstrip(".")


def plainly_said(text: str) -> str:
    """The words for a system error that a library has put into its own *text*; ``""`` if there is none in it."""
    return next((words for number, words in _PLAINLY.items() if os.strerror(number) in text), "")


class ComponentError(AopicError):
    """A component that is not of this package, such as a fingerprinter, raises where it must not."""
