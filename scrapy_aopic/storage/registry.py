"""The kinds of store: those of this package in one table, those of others by import path.

1. A folder keeps the kind of store that it was made with. This package's own are recognised by their files; any other
   has its import path in the file ``backend``.
2. What a folder names is imported only if the user names it, too (``AOPIC_STORE``): a job folder may come from a
   stranger.
3. A backend is imported when it is used, so that a missing library matters only to those who need it.

To add a kind to this package: its module, a line in :data:`KINDS`, a test by
``StoreContract`` in tests/contract, and a row of the first table in docs/settings.md#stores.
A kind of another package needs no change here; docs/library.md has an example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from scrapy_aopic.exceptions import LostError, SettingError, StorageError, plainly

from .named_files import open_given
from .store_folder import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_aopic.core.ports import Store

_BACKEND_FILE = "backend"
"""Its line is the import path of the backend."""

_NAME_BYTES = 1_000
"""Bytes of the longest import path that a folder may name."""

_STORE_METHODS = ("get_many", "scan", "write", "size_bytes", "verify", "close")
"""Those of :class:`~scrapy_aopic.core.ports.Store`."""


class Backend(Protocol):
    """Opens the stores of one kind: a class of stores, or a function that makes them.

    The stores themselves promise what :class:`~scrapy_aopic.core.ports.Store` says. Optional abilities have protocols of
    their own: :class:`Compacts` and :class:`VerifiesStructure` for a store, :class:`Salvages` for a backend.
    """

    def __call__(self, folder: Path, *, memory_mb: int, read_only: bool) -> Store:
        """Open the store in *folder*; make it if there is none.

        The files ``format``, ``backend`` and ``landed`` in the folder belong to this package, all others to the store.

        Args:
            folder: May be missing: a store takes its lock first (:func:`~.lock.lock_store`), which makes it. For a view
                it is there, or there is no store.
            memory_mb: Megabytes for caches, and as many for rows that are in no table yet.
            read_only: Make a view of the store as it is now, which does not move, also while another process writes
                to it. It takes no lock, refuses writes, and needs no right to write. It changes no file, but may leave
                one of its own, such as the index that SQLite makes of its log.

        Raises:
            StorageError: If there is no store for a view, the store is in use, or it cannot be opened; the message
                names the folder.
        """


@runtime_checkable
class Compacts(Protocol):
    """A store that can be arranged after many rows were written to it."""

    def compact(self) -> None:
        """Arrange the rows as they are best read; may take long."""


@runtime_checkable
class VerifiesStructure(Protocol):
    """A store that can lose rows without a scan noticing."""

    def verify_structure(self) -> None:
        """Look for such losses; called before a copy is made, so faster than ``verify``.

        Raises:
            StorageError: If there are any.
        """


@runtime_checkable
class Locked(Protocol):
    """A store whose lock may expire, so that another process takes it over while this one lives."""

    def check_lock(self) -> None:
        """Do nothing if the store is still this process's, as far as that is known without waiting.

        Raises:
            LostError: If it is not.
        """

    @property
    def is_fading(self) -> bool:
        """Whether it may soon be lost, so that nothing new should be begun; known without waiting."""


def is_safe(store: Locked) -> bool:
    """Whether no other process can have *store* during an action that begins now; known without waiting."""
    if store.is_fading:
        return False
    try:
        store.check_lock()
    except LostError:
        return False
    return True


@runtime_checkable
class Salvages(Protocol):
    """A backend that can open damaged stores."""

    def open_for_salvage(self, folder: Path, *, memory_mb: int) -> Store:
        """Open what is left of a damaged store in *folder*, a copy whose files may be changed.

        Reads of rows that are lost may raise a :class:`~scrapy_aopic.exceptions.StorageError`, or leave them out.

        Raises:
            StorageError: If nothing is left that can be opened.
        """


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store.

    Attributes:
        name: What ``AOPIC_STORE`` calls it: a name, or an import path.
        load: Imports its backend, or raises :class:`ImportError`; ``None`` if it keeps no rows in a folder.
        file: The file that a store always has once it has been opened; empty if the folder names its kind.
        remains: Patterns of files that only such a store has, so that they say what was there if *file* is gone.
        needs: The library that its backend imports; empty if that is part of Python.
    """

    name: str
    load: Callable[[], Backend] | None
    file: str = ""
    remains: tuple[str, ...] = ()
    needs: str = ""

    def is_in(self, folder: Path) -> bool:
        """Whether the files in *folder* are those of such a store, or what is left of them."""
        if not self.file:
            return False
        return (folder / self.file).is_file() or any(any(folder.glob(each)) for each in self.remains)

    @property
    def is_foreign(self) -> bool:
        """Whether it comes from another package."""
        return "." in self.name


def _rocksdb() -> Backend:
    try:
        from .rocksdb import RocksStore  # noqa: PLC0415 (rule 3)
    except ImportError:
        raise
    except Exception as error:  # its compiled part may raise anything
        raise ImportError(f"{type(error).__name__}: {error}") from error
    return RocksStore


def _sqlite() -> Backend:
    from .sqlite import SqliteStore  # noqa: PLC0415 (rule 3)

    return SqliteStore


SERVER = "redis"
"""The kind of store that is on a server (:class:`~.address.Address`). If a job has a folder beside it, the file ``redis``
in that says where its store is."""

KINDS = {
    kind.name: kind
    for kind in (
        Kind("rocksdb", _rocksdb, "CURRENT", ("*.sst", "[0-9]*.log"), needs="rocksdict"),
        Kind("sqlite", _sqlite, "store.sqlite3", ("store.sqlite3-wal",)),
        Kind("memory", None),
        Kind(SERVER, None, "redis"),
    )
}
"""This package's own kinds, best first."""

NAMES = ("auto", *KINDS)
"""Values of ``AOPIC_STORE``, besides import paths."""

_USED: dict[str, Kind] = {}
"""Kinds from other packages that the user of this process has named."""


def use(name: str) -> None:
    """Let stores of the kind *name* be opened in this process, if it is an import path; nothing to do for other names.

    Raises:
        SettingError: If there is no such kind.
    """
    if name != "auto":
        find(name)


def find(name: str) -> Kind:
    """The kind called *name*.

    Raises:
        SettingError: If there is no such kind.
    """
    if name in KINDS:
        return KINDS[name]
    if name not in _USED:
        must = (
            f"The kind of store ({name}) must be one of {', '.join(NAMES)}, or the import path of a backend"
        )
        if "." not in name:
            raise SettingError(f"{must}.")
        try:
            backend = load_backend(name)
        except Exception as error:  # importing runs code of others
            why = " ".join(str(error).split())
            raise SettingError(f"{must} ({type(error).__name__}: {why}).") from error
        _USED[name] = Kind(name, lambda: backend)
    return _USED[name]


def load_backend(path: str) -> Backend:
    """The backend at the import path *path*.

    Raises:
        Exception: Of any kind if it cannot be imported; :class:`TypeError` if it is no backend.
    """
    module, _, name = path.rpartition(".")
    found = getattr(import_module(module), name)
    if not callable(found):
        raise TypeError(f"a {type(found).__name__} cannot be called")
    try:
        signature(found).bind("folder", memory_mb=64, read_only=False)
    except (TypeError, ValueError) as error:
        raise TypeError("it does not take a folder, memory_mb and read_only") from error
    if isinstance(found, type) and (lacks := missing(found)):
        raise TypeError(f"it has no {' and no '.join(lacks)}")
    return cast("Backend", found)


def missing(store: object) -> list[str]:
    """Methods that *store*, or its class, should have and has not."""
    return [name for name in _STORE_METHODS if not callable(getattr(store, name, None))]


def kind_of(folder: Path) -> str | None:
    """Name of the kind of the store in *folder*; ``None`` if there is none.

    Raises:
        StorageError: If the folder should say which it is, and does not.
    """
    try:
        with open_given(folder / _BACKEND_FILE) as file:
            text = file.read(_NAME_BYTES)
    except OSError:
        return next((kind.name for kind in KINDS.values() if kind.is_in(folder)), None)
    if re.fullmatch(r"\w+(\.\w+)+\n", named := text.decode("utf-8", "replace")):
        return named[:-1]
    raise StorageError(
        f"The file {folder / _BACKEND_FILE} is damaged: it should hold the import path that AOPIC_STORE had when the "
        "job began; write it anew."
    )


def kind_in(folder: Path) -> Kind | None:
    """The kind of the store in *folder*; ``None`` if there is none.

    Raises:
        StorageError: If it comes from another package, and was not named in this process.
    """
    name = kind_of(folder)
    if name is None or name in KINDS:
        return KINDS[name] if name is not None else None
    if name not in _USED:
        raise StorageError(
            f"The store in {folder} was made by {name}, which is imported only if you name it, too: set AOPIC_STORE to "
            f"it (on the command line -s AOPIC_STORE={name})."
        )
    return _USED[name]


def note_kind(folder: Path, kind: Kind) -> None:
    """Let *folder* remember its *kind* if that cannot be seen from its files."""
    if kind.is_foreign:
        replace_file(folder / _BACKEND_FILE, f"{kind.name}\n")


def make(folder: Path, kind: Kind, memory_mb: int, *, read_only: bool = False) -> Store:
    """Open the store in *folder*, which is of this *kind*.

    Raises:
        StorageError: If it cannot be opened.
    """
    backend = backend_of(folder, kind)
    try:
        store = backend(folder, memory_mb=memory_mb, read_only=read_only)
    except StorageError:
        raise
    except Exception as error:
        if not kind.is_foreign:
            raise
        raise StorageError(
            f"Cannot open the store in {folder}: {kind.name} raised {type(error).__name__}: {error}."
        ) from error
    if kind.is_foreign and (lacks := missing(store)):
        raise StorageError(
            f"Cannot open the store in {folder}: what {kind.name} made has no {' and no '.join(lacks)}."
        )
    return store


def backend_of(folder: Path, kind: Kind) -> Backend:
    """The backend of a *kind*, for the store in *folder*.

    Raises:
        StorageError: If the library is missing that it needs.
    """
    assert kind.load is not None, "a kind that keeps nothing in a folder"
    try:
        return kind.load()
    except ImportError as error:
        raise StorageError(
            f"The {kind.name} store in the folder {folder} needs {kind.needs}, which {plainly(error)}; "
            f"install {kind.needs}, or choose another folder and sqlite."
        ) from error
