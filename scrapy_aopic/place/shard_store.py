"""What a process needs of the store of a shard, wherever that lies."""

from __future__ import annotations

from typing import Protocol

from scrapy_aopic.core.ports import Store


class ShardStore(Store, Protocol):
    """The store of a shard, which nobody else may change."""

    @property
    def run(self) -> bytes:
        """The run of the server that has its rows: it is lost after that, and what other runs have said of it does not count.

        Empty if its rows are on a disk of this machine.
        """

    @property
    def head(self) -> bytes:
        """What names its last commit, as no other commit is named."""

    def check_lock(self) -> None:
        """Do nothing if nobody else may change it, as far as that is known without waiting.

        Raises:
            LostError: If it is lost to somebody else.
        """

    @property
    def is_fading(self) -> bool:
        """Whether it may soon be lost, so that nothing new should be begun."""
