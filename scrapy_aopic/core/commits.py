"""Makes one batch of all changes since the last commit, which leaves the store in a state between two steps.

At most one batch is *in flight*: taken, and neither landed nor failed. Steps may go on meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .ports import Family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Table(Protocol):
    """Rows of a family that are written behind."""

    family: Family

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""

    def landed(self) -> None:
        """The rows in flight are in the store."""

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""


class Commits:
    """Takes the changes of all tables of a crawl.

    Args:
        tables: Those with rows of one family share no key.

    Attributes:
        has_changes: Whether anything happened since the last batch was taken; set by whoever changes something.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.has_changes = False
        self._tables = tables

    def take(self, totals: Mapping[bytes, bytes]) -> dict[Family, dict[bytes, bytes | None]]:
        """All changes as one batch, with the rows *totals* of the ``META`` family."""
        self.has_changes = False
        batch: dict[Family, dict[bytes, bytes | None]] = {Family.META: {**totals}}
        for table in self._tables:
            rows = table.take()
            if (before := batch.setdefault(table.family, rows)) is not rows:
                before.update(rows)
        return batch

    def landed(self) -> None:
        """The batch in flight is in the store."""
        for table in self._tables:
            table.landed()

    def failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""
        for table in self._tables:
            table.failed()
        self.has_changes = True
