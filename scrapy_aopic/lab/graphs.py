"""Link graphs as files, and their PageRank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scrapy_aopic.core.graph import FrozenGraph
from scrapy_aopic.exceptions import AopicError, plainly
from scrapy_aopic.storage.named_files import open_given, read_lines
from scrapy_aopic.web.origins import host_name


@dataclass(frozen=True)
class Graph:
    """A link graph in CSR form: page *p* links to ``indices[indptr[p]:indptr[p + 1]]``.

    Attributes:
        name: Where it came from.
        hosts: Host name of each page; ``""`` for one that is in no crawl, as its URL has none.
        urls: URL of each page, if URLs are known.
    """

    name: str
    indptr: NDArray[np.integer[Any]]
    indices: NDArray[np.integer[Any]]
    hosts: Sequence[str]
    urls: Sequence[str] = ()

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """Numbers of the pages with a host: those that a crawl may know."""
        return np.flatnonzero(np.fromiter(map(bool, self.hosts), bool, len(self)))

    def __len__(self) -> int:
        """Pages."""
        return len(self.indptr) - 1

    def out_links(self, page: int) -> list[int]:
        """Pages that *page* links to."""
        links: list[int] = self.indices[self.indptr[page] : self.indptr[page + 1]].tolist()
        return links

    def host_of(self, page: int) -> str:
        """Host of *page*."""
        return self.hosts[page]

    def url_of(self, page: int) -> str:
        """URL of *page*; ``""`` if URLs are not known."""
        return self.urls[page] if self.urls else ""

    def reachable(self, pages: Sequence[int]) -> NDArray[np.bool_]:
        """For each page, whether a path of links leads there from one of *pages*."""
        known = np.zeros(len(self), bool)
        level = np.unique(np.asarray(pages, np.int64))
        while len(level):
            known[level] = True
            begins, counts = self.indptr[level].astype(np.int64), np.diff(self.indptr)[level]
            # Positions in ``indices`` of all links of the level: begin, begin + 1, ... of each page in turn.
            positions = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            level = np.unique(self.indices[positions])
            level = level[~known[level]]
        return known


def load_graph(path: str | Path, *, hosts: str | Path | None = None, urls: str | Path | None = None) -> Graph:
    """Read a graph.

    Args:
        path: An ``.npz`` file with the arrays ``indptr``, ``indices`` and, if hosts are known, ``host``: the number
            of the host of each page. Without any hosts all pages are on one.
        hosts: An ``.npy`` file with such an array.
        urls: A text file, which may be gzipped, with the URL of each page, one a line. A page whose URL has no host has
            no links, to it or from it.

    Raises:
        AopicError: If something in the files cannot be used.
    """
    path = Path(path)
    arrays = _read_arrays(path)
    indptr, indices = arrays["indptr"], arrays["indices"]
    _check_links(path, indptr, indices)
    n = len(indptr) - 1
    if urls is not None:
        urls = Path(urls)
        lines = [line.strip() for line in read_lines(urls)]
        _check_length(urls, "lines", len(lines), n)
        names = [host_name(url) for url in lines]
        if not any(names):
            raise AopicError(f"{urls} has no URL with a host; line 1 is {repr(lines[0][:_SHOWN])[:_SHOWN]}.")
        indptr, indices = _without(indptr, indices, np.fromiter(map(bool, names), bool, n))
        return Graph(path.stem, indptr, indices, names, lines)
    where, name = (path, "host") if hosts is None else (Path(hosts), "the array")
    numbers = arrays.get("host", np.zeros(n, int)) if hosts is None else _read_numbers(where)
    _check_integers(where, name, numbers)
    _check_length(where, f"numbers in {name}", len(numbers), n)
    # Each is a registered domain of its own, whatever splits names into domains.
    return Graph(path.stem, indptr, indices, [f"host{number}.com" for number in numbers.tolist()])


_SHOWN = 200
"""Characters of a wrong line that are shown."""


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with open_given(path) as file, np.load(file) as data:
            arrays = {name: data[name] for name in ("indptr", "indices", "host") if name in data}
    except Exception as error:  # whatever the bytes make numpy raise
        raise AopicError(
            f"{path} cannot be read as an .npz file, because {plainly(error)}: "
            "numpy.savez(FILE, indptr=..., indices=...) writes one."
        ) from error
    for name in ("indptr", "indices"):
        if name not in arrays:
            raise AopicError(f"{path} has no array {name!r}; a graph needs indptr and indices (CSR).")
        _check_integers(path, name, arrays[name])
    return arrays


def _read_numbers(path: Path) -> NDArray[Any]:
    try:
        with open_given(path) as file:
            numbers: NDArray[Any] = np.load(file)
    except Exception as error:  # whatever the bytes make numpy raise
        raise AopicError(
            f"{path} cannot be read as an .npy file, because {plainly(error)}: numpy.save(FILE, numbers) writes one."
        ) from error
    return numbers


def _check_links(path: Path, indptr: NDArray[Any], indices: NDArray[Any]) -> None:
    if len(indptr) < 2:
        raise AopicError(f"{path}: indptr has {len(indptr)} numbers; a graph of n pages needs n + 1, n > 0.")
    n, falls = len(indptr) - 1, bool((np.diff(indptr) < 0).any())
    if indptr[0] != 0 or indptr[-1] != len(indices) or falls:
        raise AopicError(
            f"{path}: indptr must rise from 0 to the number of links, {len(indices)}; it goes from {indptr[0]} to "
            f"{indptr[-1]}" + (", and falls in between." if falls else ".")
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise AopicError(f"{path}: indices holds page {wrong}, but pages are numbered from 0 to {n - 1}.")


def _check_integers(path: Path, name: str, array: NDArray[Any]) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        kind = (
            f"{array.ndim} dimensions of {array.dtype}" if isinstance(array, np.ndarray) else "several arrays"
        )
        raise AopicError(f"{path}: {name} must be one row of whole numbers; it has {kind}.")


def _check_length(path: Path, what: str, n: int, pages: int) -> None:
    if n != pages:
        raise AopicError(
            f"{path}: {n} {what}, but the graph has {pages} pages; it must be one for each page."
        )


def _without(
    indptr: NDArray[Any], indices: NDArray[Any], is_known: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The links between pages that are known."""
    if is_known.all():
        return indptr, indices
    kept = np.repeat(is_known, np.diff(indptr)) & is_known[indices]
    return np.concatenate([[0], np.cumsum(kept)])[indptr], indices[kept]


def pagerank(
    indptr: NDArray[np.integer[Any]], indices: NDArray[np.integer[Any]], damping: float = 0.85
) -> NDArray[np.float64]:
    """PageRank with uniform teleport, dangling mass spread evenly; self links and repeated ones do not count."""
    n = len(indptr) - 1
    source = np.repeat(np.arange(n), np.diff(indptr))
    links = np.unique(source * n + np.asarray(indices, np.int64))
    source, target = np.divmod(links, n)
    others = source != target
    return FrozenGraph(n, source[others], target[others]).pagerank_vector(damping=damping)
