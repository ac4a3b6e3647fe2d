"""The known part of the web as a graph in memory, for orders that look at all of it.

Needs numpy. It takes some 100 bytes for each known page and 8 for each link: for crawls of millions of pages, and to
measure other orders by, not for billions.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

Ranking: TypeAlias = "list[int]"
"""Scores by page number, in units of 2**-16 of the mean."""


class KnownGraph:
    """Pages by number, and the links between them.

    Attributes:
        keys: Page keys by number.
    """

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._sources = array("I")
        self._targets = array("I")
        self._visited: set[int] = set()

    def __len__(self) -> int:
        return len(self.keys)

    def number(self, key: bytes) -> int:
        """Number of the page under *key*; a new one if it has none."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number

    def add(self, source: bytes, targets: Sequence[bytes]) -> None:
        """Let the page under *source* link to *targets*; its links as of its first visit count."""
        number = self.number(source)
        if number in self._visited:
            return
        self._visited.add(number)
        self._targets.extend(map(self.number, targets))
        self._sources.extend([number] * len(targets))

    def frozen(self) -> FrozenGraph:
        """The graph as it is now, for a computation in another thread."""
        import numpy as np  # noqa: PLC0415  # only batch orders need it

        def copy(numbers: array[int]) -> NDArray[np.int64]:
            return np.array(numbers, dtype=np.int64)

        return FrozenGraph(len(self.keys), copy(self._sources), copy(self._targets))


class FrozenGraph:
    """*n* pages and the links ``source[i] -> target[i]``, each once and none to the page itself."""

    def __init__(self, n: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
        self.n = n
        self.source = source
        self.target = target

    def pagerank(self) -> Ranking:
        """PageRank(0.85) as scores."""
        return _scores(self.pagerank_vector(tolerance=1e-4))

    def pagerank_vector(self, *, damping: float = 0.85, tolerance: float = 1e-12) -> NDArray[np.float64]:
        """PageRank with uniform teleport, the mass of pages without links spread evenly; it sums up to 1.

        Source: Page, Brin, Motwani and Winograd, "The PageRank Citation Ranking", Stanford 1999.
        """
        import numpy as np  # noqa: PLC0415

        n, source, target = self.n, self.source, self.target
        degree = np.bincount(source, minlength=n)
        ends = degree == 0
        part = damping / np.maximum(degree, 1)
        rank: NDArray[np.float64] = np.full(n, 1 / n)
        for _ in range(200):
            flow = np.bincount(target, weights=(rank * part)[source], minlength=n)
            last, rank = rank, flow + (damping * rank[ends].sum() + 1 - damping) / n
            if np.abs(rank - last).sum() < tolerance:
                break
        return rank

    def authorities(self) -> Ranking:
        """Authority scores of HITS.

        Source: Kleinberg, "Authoritative Sources in a Hyperlinked Environment", JACM 46(5), 1999.
        """
        import numpy as np  # noqa: PLC0415

        authority = np.full(self.n, 1 / self.n)
        for _ in range(50):
            hub = np.bincount(self.source, weights=authority[self.target], minlength=self.n)
            new = np.bincount(self.target, weights=hub[self.source], minlength=self.n)
            new = new / (new.sum() or 1.0)
            if np.abs(new - authority).sum() < 1e-4:
                break
            authority = new
        return _scores(new)


def _scores(vector: NDArray[Any]) -> Ranking:
    scores: list[int] = (vector * (len(vector) << 16)).astype("int64").clip(1).tolist()
    return scores
