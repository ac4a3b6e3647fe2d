"""Link graphs from files and from objects in memory, and their PageRank."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        known[self.by_distance(pages)] = True
        return known

    def by_distance(self, pages: Sequence[int]) -> NDArray[np.int64]:
        """The pages that a path of links leads to from one of *pages*, those with the shortest first."""
        known = np.zeros(len(self), bool)
        level = np.unique(np.asarray(pages, np.int64))
        levels = [level]
        while len(level):
            known[level] = True
            begins, counts = self.indptr[level].astype(np.int64), np.diff(self.indptr)[level]
            # Positions in ``indices`` of all links of the level: begin, begin + 1, ... of each page in turn.
            positions = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            level = np.unique(self.indices[positions])
            level = level[~known[level]].astype(np.int64)
            levels.append(level)
        return np.concatenate(levels)


class Directed(Protocol):
    """A graph in memory with these two, as ``networkx.DiGraph`` has them."""

    @property
    def nodes(self) -> Iterable[Any]:
        """All pages."""

    def successors(self, page: Any, /) -> Iterable[Any]:
        """The pages that *page* links to."""


def graph_of(links: Mapping[Any, Iterable[Any]] | Directed, name: str = "graph") -> Graph:
    """The graph of *links*.

    Args:
        links: The pages that each page links to, or a graph such as ``networkx.DiGraph``. Pages are numbered as they come:
            first the keys of *links*, or the nodes, then others. If they are URLs, hosts are known, and a page whose URL has
            no host has no links, to it or from it; otherwise all pages are on one host.
        name: What it is called in results.

    Raises:
        AopicError: If it has no pages, or is no such graph.
    """
    if not isinstance(links, Mapping):
        if not hasattr(links, "nodes") or not hasattr(links, "successors"):
            raise AopicError(
                f"{type(links).__name__} is no directed graph: give a mapping from each page to those that it links to, or "
                "something with nodes and successors, as networkx.DiGraph and the to_directed() of other graphs."
            )
        links = {page: links.successors(page) for page in links.nodes}
    numbers = _Numbers()
    for page in links:
        numbers.of(page)
    source, target = array("q"), array("q")
    for page, targets in links.items():
        for other in targets:
            source.append(numbers.of(page))
            target.append(numbers.of(other))
    return _of_names(name, numbers, source, target)


class _Numbers(dict[Hashable, int]):
    """Numbers of pages, by whatever they are called."""

    def of(self, page: Hashable) -> int:
        """The number of *page*: the next one, if it is new."""
        return self.setdefault(page, len(self))


def _of_names(name: str, numbers: _Numbers, source: array[int], target: array[int]) -> Graph:
    """The graph with a link from each page in *source* to the one in *target*; their hosts are known if they are URLs."""
    if not numbers:
        raise AopicError(f"{name} has no pages.")
    indptr, indices = _csr(len(numbers), source, target)
    hosts = [host_name(page) if isinstance(page, str) else "" for page in numbers]
    if not any(hosts):
        return Graph(name, indptr, indices, [_host(0)] * len(numbers))
    indptr, indices = _without(indptr, indices, np.fromiter(map(bool, hosts), bool, len(hosts)))
    return Graph(name, indptr, indices, hosts, list(map(str, numbers)))


def _csr(n: int, source: ArrayLike, target: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``indptr`` and ``indices`` of *n* pages with a link from each page in *source* to the one in *target*."""
    sources = np.asarray(source, np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))])
    return indptr, np.asarray(target, np.int64)[np.argsort(sources, kind="stable")]


def _host(number: int) -> str:
    """The name of a host that is known by its *number*: a registered domain of its own, whatever splits names into domains."""
    return f"host{number}.com"


def load_graph(path: str | Path, *, hosts: str | Path | None = None, urls: str | Path | None = None) -> Graph:
    """Read a graph.

    Args:
        path: By the end of its name, in front of a ``.gz``:

            * ``.npz``: the arrays ``indptr``, ``indices`` and, if hosts are known, ``host``: the number of the host of each
              page;
            * anything else: a link a line, from one page to another, with blanks or a tab between them. What stands behind them
              does not count, nor do lines that begin with ``#`` or ``%``. Pages are numbers from 0 on, or names, as for
              :func:`graph_of`.

            Without any hosts all pages are on one.
        hosts: An ``.npy`` file with the number of the host of each page.
        urls: A text file, which may be gzipped, with the URL of each page, one a line. A page whose URL has no host has
            no links, to it or from it.

    Raises:
        AopicError: If something in the files cannot be used.
    """
    path = Path(path)
    text = path.name.removesuffix(".gz")
    if text.endswith(".npz"):
        arrays = _read_arrays(path)
    else:
        read = _read_links(path)
        if isinstance(read, Graph):
            if hosts or urls:
                raise AopicError(
                    f"{path} has pages with names, and hosts and URLs can be given only for numbers."
                )
            return read
        arrays = read
    indptr, indices = arrays["indptr"], arrays["indices"]
    _check_links(path, indptr, indices)
    n = len(indptr) - 1
    name = Path(text).stem
    if urls is not None:
        urls = Path(urls)
        lines = [line.strip() for line in read_lines(urls)]
        if not text.endswith(".npz") and len(lines) > n:  # the last pages have no links, so no list has them
            indptr, n = np.append(indptr, np.repeat(indptr[-1], len(lines) - n)), len(lines)
        _check_length(urls, "lines", len(lines), n)
        names = [host_name(url) for url in lines]
        if not any(names):
            raise AopicError(f"{urls} has no URL with a host; line 1 is {repr(lines[0][:_SHOWN])[:_SHOWN]}.")
        indptr, indices = _without(indptr, indices, np.fromiter(map(bool, names), bool, n))
        return Graph(name, indptr, indices, names, lines)
    where, what = (path, "host") if hosts is None else (Path(hosts), "the array")
    numbers = arrays.get("host", np.zeros(n, int)) if hosts is None else _read_numbers(where)
    _check_integers(where, what, numbers)
    _check_length(where, f"numbers in {what}", len(numbers), n)
    return Graph(name, indptr, indices, list(map(_host, numbers.tolist())))


_SPARSE = 100
"""Numbers for each link that a list of links may skip: a larger number is rather a name, and takes memory for all below it."""


_DIGITS = 19
"""Digits from which on a number does not fit into an array."""


_NO_TEXT = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
"""What no list of links has, but other files: control characters, and bytes that are not UTF-8."""


def _read_links(path: Path) -> dict[str, NDArray[Any]] | Graph:
    """The arrays of a list of links between numbers; if there are any other names, their graph."""
    numbers, source, target = _Numbers(), array("q"), array("q")
    for at, line in enumerate(read_lines(path), 1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or line.startswith(("#", "%")):
            continue
        if len(cells) < 2 or _NO_TEXT.search(line):
            raise AopicError(
                f"{path}, line {at} must be two pages with blanks or a tab between them; it is {repr(line.strip()[:_SHOWN])[:_SHOWN]}."
            )
        source.append(numbers.of(cells[0].strip()))
        target.append(numbers.of(cells[1].strip()))
    are_numbers = all(str(page).isdecimal() and len(str(page)) < _DIGITS for page in numbers)
    if not numbers or not are_numbers:
        if not numbers:
            raise AopicError(
                f"{path} has no links; it must have one a line, two pages with blanks or a tab between them."
            )
        return _of_names(Path(path.name.removesuffix(".gz")).stem, numbers, source, target)
    values = np.fromiter(map(int, map(str, numbers)), np.int64, len(numbers))
    n = int(values.max(initial=-1)) + 1
    if n > _SPARSE * (len(source) + 1):
        raise AopicError(
            f"{path} has {len(numbers)} pages, and the highest of their numbers is {n - 1}; number pages from 0 on, or put a "
            "letter in front, which makes names of them."
        )
    indptr, indices = _csr(n, values[source], values[target])
    return {"indptr": indptr, "indices": indices}


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
