"""Makes one batch of all changes since the last commit, which leaves the store in a state between two steps.

At most one batch is *in flight*: taken, and neither landed nor failed. Steps may go on meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .ports import Family

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .frontier.frontier import Frontier


class Table(Protocol):
    """Rows of a family that are written behind."""

    def take(self) -> dict[bytes, bytes | None]:
        """Move all changes in flight and return them as rows."""

    def landed(self) -> None:
        """The rows in flight are in the store."""

    def failed(self) -> None:
        """The rows in flight did not reach the store: they are changes again."""


class Commits:
    """Takes the changes of all tables of a crawl.

    Args:
        frontier: The owner of some families.
        tables: The tables of the other families.
        further: More tables of families that have others already.

    Attributes:
        has_changes: Whether anything happened since the last batch was taken; set by whoever changes something.
    """

    def __init__(
        self,
        frontier: Frontier,
        tables: Mapping[Family, Table],
        further: Sequence[tuple[Family, Table]] = (),
    ) -> None:
        self.has_changes = False
        self._frontier = frontier
        self._tables = tables
        self._further = further

    def take(self, totals: Mapping[bytes, bytes]) -> dict[Family, dict[bytes, bytes | None]]:
        """All changes as one batch, with the rows *totals* of the ``META`` family."""
        self.has_changes = False
        batch = self._frontier.take_changes()
        for family, table in self._tables.items():
            batch[family] = table.take()
        for family, table in self._further:
            batch[family] = {**batch[family], **table.take()}
        batch[Family.META] = {**batch[Family.META], **totals}
        return batch

    def landed(self) -> None:
        """The batch in flight is in the store."""
        self._frontier.changes_landed()
        for table in self._all():
            table.landed()

    def failed(self) -> None:
        """The batch in flight did not reach the store; the next one will hold it too."""
        self._frontier.changes_failed()
        for table in self._all():
            table.failed()
        self.has_changes = True

    def _all(self) -> Iterator[Table]:
        yield from self._tables.values()
        yield from (table for _, table in self._further)
