"""Files that are read from and written to where only fsspec knows the way: object stores, SFTP, WebHDFS and others, by their URLs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from scrapy_aopic.exceptions import ExchangeError, plainly
from scrapy_aopic.storage.named_files import open_given


def is_remote(target: str) -> bool:
    """Whether *target* is a URL, and no path."""
    return "://" in target


def find_filesystem(target: str) -> tuple[Any, str]:
    """The file system of fsspec for the URL *target*, and the path on it.

    Raises:
        ExchangeError: If fsspec, or what it needs for such URLs, is not installed.
    """
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ExchangeError(f"{target} needs fsspec, which {plainly(error)}: pip install fsspec.") from error
    try:
        filesystem, path = url_to_fs(target)
    except (ImportError, OSError, ValueError) as error:  # its message says what is missing
        raise ExchangeError(f"{target} cannot be reached: {' '.join(str(error).split())}.") from error
    return filesystem, str(path)


@contextmanager
def _errors(url: str, verb: str) -> Iterator[None]:
    try:
        yield
    except ExchangeError:
        raise
    except Exception as error:  # each kind of file system has errors of its own
        raise ExchangeError(
            f"{url} cannot be {verb}: {' '.join(str(error).split()) or type(error).__name__}."
        ) from error


@contextmanager
def fetching(source: str) -> Iterator[IO[bytes]]:
    """The file at the URL *source*, to be read.

    Raises:
        ExchangeError: If it cannot be read.
    """
    filesystem, path = find_filesystem(source)
    with _errors(source, "read"), filesystem.open(path, "rb") as file:
        yield file


@contextmanager
def opening(source: str) -> Iterator[IO[bytes]]:
    """The file that a user calls *source*, a path or a URL for fsspec, to be read.

    Raises:
        ExchangeError: If it cannot be read.
    """
    try:
        with fetching(source) if is_remote(source) else open_given(Path(source)) as file:
            yield file
    except OSError as error:
        raise ExchangeError(f"{source} cannot be read: {plainly(error)}.") from error


def version_of(source: str) -> str:
    """A text that changes with the file at the URL *source*.

    Raises:
        ExchangeError: If there is no such file.
    """
    filesystem, path = find_filesystem(source)
    with _errors(source, "read"):
        return str(filesystem.ukey(path))


@contextmanager
def sending(target: str) -> Iterator[IO[bytes]]:
    """A file to write, which is sent to the URL *target* once it is whole.

    fsspec can also open a remote file to be written, but may leave half of one behind after an error.

    Raises:
        ExchangeError: If it cannot be sent.
    """
    filesystem, path = find_filesystem(target)
    with TemporaryDirectory() as folder:
        whole = Path(folder, "export")
        with whole.open("w+b") as file:
            yield file
        with _errors(target, "written"):
            filesystem.put_file(str(whole), path)
