"""Files about a store in its folder: the format of the rows, and how long the files were when the store was closed.

1. Both are small text files beside those of the store, so that they can be read without opening it: a store of another
   format is refused before its library has touched it.
2. A file is replaced completely or not at all.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from scrapy_aopic.core.layout import FORMAT
from scrapy_aopic.exceptions import SALVAGE, StorageError, closed_on_error, plainly

from .lock import lock_file, sync_folder
from .named_files import is_special, open_given, read_given

_FORMAT_FILE = "format"
"""Its line is the number of the format."""

_SIZES_FILE = "sizes.json"
"""``{"generation": text, "sizes": {name: bytes}}``; not there while the store is open."""


def format_of(folder: Path) -> int | None:
    """Number of the format of the store in *folder*; ``None`` if the folder does not name one.

    Raises:
        StorageError: If the file that should name it cannot be read.
    """
    path = folder / _FORMAT_FILE
    try:
        found = re.fullmatch(rb"(\d{1,9})\n", read_given(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"The file {path} cannot be read: {plainly(error)}.") from error
    return int(found[1]) if found is not None else None


def check_format(folder: Path, *, is_damaged: bool = False) -> None:
    """Raise an error unless the store in *folder* was written in the format of this version.

    Args:
        is_damaged: Whether a folder that names no format is accepted.
    """
    number = format_of(folder)
    if number == FORMAT or (number is None and is_damaged):
        return
    if number is None:
        raise StorageError(
            f"The file {folder / _FORMAT_FILE} is missing or damaged: it should hold the number of a format. {SALVAGE}"
        )
    raise StorageError(
        f"The job in {folder} was written in format {number}, and this scrapy-aopic reads format {FORMAT}: use the version "
        "that wrote it, or a new job folder. Nothing was changed."
    )


def write_format(folder: Path) -> None:
    """Note that the rows in *folder*, which is made if need be, have the format of this version."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / _FORMAT_FILE, f"{FORMAT}\n")


def in_use(folder: Path) -> StorageError:
    """The error for a store whose files are open elsewhere although the lock of its job is free."""
    return StorageError(
        f"The store in {folder} is in use: this process, or another, has it open; wait for its end or choose another "
        "folder."
    )


def not_made(folder: Path) -> StorageError:
    """The error for a snapshot of a store whose tables are not all there; opening it for writing makes them."""
    return StorageError(
        f"The store in {folder} is not made yet: its first crawl has only just begun, or ended before it was; "
        "start it again."
    )


def damaged(folder: Path, what: str) -> StorageError:
    """The error for a store in which *what*, a clause, shows damage."""
    return StorageError(f"The store in {folder} is damaged: {what}. {SALVAGE}")


def note_sizes(folder: Path, generation: str, sizes: dict[str, int]) -> None:
    """Note how long the files of a closed store are; this holds as long as the store has this *generation*."""
    replace_file(folder / _SIZES_FILE, json.dumps({"generation": generation, "sizes": sizes}) + "\n")


def forget_sizes(folder: Path) -> None:
    """Forget the sizes, because the store is opened: its files may grow and shrink."""
    with suppress(FileNotFoundError):
        (folder / _SIZES_FILE).unlink()
        sync_folder(folder)


def check_sizes(folder: Path, generation: str, sizes: dict[str, int]) -> None:
    """Raise an error if a file of a closed store has another length than when it was closed; libraries may not notice."""
    try:
        noted = json.loads(read_given(folder / _SIZES_FILE))
        expected = noted["sizes"].items() if noted["generation"] == generation else ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return  # the store was not closed, or only this file is damaged
    for name, size in expected:
        if sizes.get(name) != size:
            found = f"has {sizes[name]:,} bytes" if name in sizes else "is gone"
            raise damaged(folder, f"its file {name} {found}, and had {size:,} bytes when it was closed")


def replace_file(path: Path, text: str) -> None:
    """Make *text* the content of the file at *path*."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which replaces the one at *path* once it is whole and on the disk.

    Of several processes that write it at once, each has a file of its own, and the last one counts.
    """
    with unfinished(path) as (file, put):
        yield file
        put(path)


@contextmanager
def unfinished(path: Path) -> Iterator[tuple[IO[bytes], Callable[[Path], None]]]:
    """A file to write beside *path*, and what puts it in its place once it is whole; it is removed if that is not called.

    One that is left of a process that was killed is written over by the next one.
    """
    file, temporary = open_beside(path)
    is_put = False

    def put(place: Path) -> None:
        nonlocal is_put
        file.flush()
        os.fsync(file.fileno())
        if sys.platform == "win32":  # which renames no open file
            file.close()
        temporary.replace(place)  # while it is locked: nobody else may write to it
        is_put = True
        sync_folder(place.parent)

    try:
        yield file, put
    finally:
        if not is_put:
            if sys.platform == "win32":
                file.close()
            temporary.unlink(missing_ok=True)
        file.close()


def open_beside(path: Path, *, keeps: bool = False) -> tuple[IO[bytes], Path]:
    """A file that no other process writes, beside *path*, and where it is.

    Args:
        keeps: Whether it has what a process has left in it that was killed; else it is empty.
    """
    for n in count(1):
        temporary = path.parent / f"{path.name}.new{n if n > 1 else ''}"
        # Opened without being emptied, as another process may be writing to it.
        file = open(  # noqa: SIM115
            temporary, "w+b", opener=lambda name, flags: os.open(name, flags & ~os.O_TRUNC, 0o666)
        )
        # It is not there if somebody else has just put it in its place.
        with closed_on_error(file.close), suppress(FileNotFoundError):
            if lock_file(file.fileno()) and os.path.samestat(temporary.stat(), os.fstat(file.fileno())):
                if not keeps:
                    file.truncate(0)
                return file, temporary
        file.close()
    raise AssertionError


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of what is at *path* once it is whole.

    Raises:
        OSError: If it cannot be written.
    """
    try:
        with open_given(path, "wb") if is_special(path) else replacing(path) as file:
            yield file
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # and not that of a file in its place
        raise
