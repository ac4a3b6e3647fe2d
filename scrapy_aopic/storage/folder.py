"""What the folder of a store says of itself: the format of what is in it, who has it open, how long its files were.

These are small text files beside the files of the store, so that they can be read without opening it: a store of
another format is refused before its library has touched it.
"""

from __future__ import annotations

import json
import os
import re
import socket
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from scrapy_aopic.core.records import FORMAT
from scrapy_aopic.exceptions import StorageError

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT_FILE = "format"
_OWNER_FILE = "owner.json"
_SIZES_FILE = "sizes.json"


def check_format(folder: Path) -> None:
    """Raise an error unless the store in *folder* was written in the format of this version."""
    path = folder / _FORMAT_FILE
    try:
        found = re.fullmatch(rb"(\d{1,9})\n", path.read_bytes())
    except FileNotFoundError:
        written = "an older format"
    except OSError as error:
        raise StorageError(f"The file {path} cannot be read: {error}.") from error
    else:
        if found is None:
            raise StorageError(
                f"The file {path} is damaged: it should hold the number of a format. 'scrapy aopic repair' mends it."
            )
        if int(found[1]) == FORMAT:
            return
        written = f"format {int(found[1])}"
    raise StorageError(
        f"The job in {folder} was written in {written}, and this scrapy-aopic reads format {FORMAT}: use the version "
        "that wrote it, or a new job folder. Nothing was changed."
    )


def write_format(folder: Path) -> None:
    """Say that what is in *folder*, which is made if need be, has the format of this version."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / _FORMAT_FILE, f"{FORMAT}\n")


def claim(folder: Path) -> None:
    """Say that this process has the store in *folder* open; it must hold the store's lock."""
    since = datetime.now(timezone.utc).isoformat(" ", "seconds")
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    replace_file(folder / _OWNER_FILE, json.dumps(owner) + "\n")


def release(folder: Path) -> None:
    """Say that nobody has the store in *folder* open."""
    (folder / _OWNER_FILE).unlink(missing_ok=True)


def in_use(folder: Path) -> StorageError:
    """The error for a store that somebody else has open, or this process."""
    try:
        owner = json.loads((folder / _OWNER_FILE).read_text("utf-8"))
        who = f"process {owner['pid']} on {owner['host']} has had it open since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has only just begun
        who = "another process has it open"
    return StorageError(f"The store in {folder} is in use: {who}; wait for its end or choose another folder.")


def not_made(folder: Path) -> StorageError:
    """The error for a snapshot of a store whose tables are not all there; who opens it for writing makes them."""
    return StorageError(
        f"The store in {folder} is not made yet: its first crawl has only just begun, or ended before it was; "
        "start it again."
    )


def check_unused(folder: Path) -> None:
    """Raise an error if the process that said last that it has the store in *folder* open may still live."""
    try:
        owner = json.loads((folder / _OWNER_FILE).read_text("utf-8"))
        if owner["host"] == socket.gethostname() and os.name == "posix":
            os.kill(owner["pid"], 0)  # sends nothing
    except (FileNotFoundError, ProcessLookupError, ValueError, LookupError, TypeError):
        return
    except OSError:
        pass  # somebody else's process
    raise in_use(folder)


def note_sizes(folder: Path, generation: str, sizes: dict[str, int]) -> None:
    """Note how long the files of a store that was closed are; they are as long as long as it has this *generation*."""
    replace_file(folder / _SIZES_FILE, json.dumps({"generation": generation, "sizes": sizes}) + "\n")


def forget_sizes(folder: Path) -> None:
    """The store is opened: its files may become longer and shorter."""
    (folder / _SIZES_FILE).unlink(missing_ok=True)


def check_sizes(folder: Path, generation: str, sizes: dict[str, int]) -> None:
    """Raise an error if a file of a closed store is not as long as when it was closed; libraries may not notice."""
    try:
        noted = json.loads((folder / _SIZES_FILE).read_text("utf-8"))
        expected = noted["sizes"].items() if noted["generation"] == generation else ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return  # it was not closed, or only this file is damaged
    for name, size in expected:
        if sizes.get(name) != size:
            found = f"has {sizes[name]:,} bytes" if name in sizes else "is gone"
            raise StorageError(
                f"The store in {folder} is damaged: its file {name} {found}, and had {size:,} bytes when it was closed. "
                "'scrapy aopic repair' mends what can be mended."
            )


def replace_file(path: Path, text: str) -> None:
    """Make *text* the content of the file at *path*, as a whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
