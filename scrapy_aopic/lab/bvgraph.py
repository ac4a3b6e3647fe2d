"""Graphs in the compressed form of WebGraph, in which the Laboratory for Web Algorithmics publishes its crawls.

Source: P. Boldi, S. Vigna: The WebGraph framework I: compression techniques. WWW 2004; the order of the numbers and their
names are in the documentation of WebGraph's class ``BVGraph``.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np

from scrapy_aopic.exceptions import AopicError, plainly
from scrapy_aopic.storage.named_files import is_file, open_given, read_lines

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_KNOWN = {"graphclass": "it.unimi.dsi.webgraph.BVGraph", "version": "0", "endianness": "big"}
_NUMBERS = ("nodes", "arcs", "windowsize", "minintervallength", "zetak")
_CODES = {
    "OUTDEGREES": "GAMMA",
    "REFERENCES": "UNARY",
    "BLOCK_COUNT": "GAMMA",
    "BLOCKS": "GAMMA",
    "RESIDUALS": "ZETA",
}
"""The code of each part of a list of links, unless ``compressionflags`` names another."""


def read_bvgraph(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays ``indptr`` and ``indices`` (CSR, int64) of the graph at *path*, with the ``.properties`` beside it.

    Raises:
        AopicError: If one of the files cannot be read, has something that is not known, or does not fit the other.
    """
    form = _Form(path)
    page = 0
    try:
        indptr, indices = np.zeros(form.nodes + 1, np.int64), np.empty(form.arcs, np.int64)
        with open_given(path) as file:
            bits = _Bits(file, form)
            for page in range(form.nodes):
                links = _read_page(bits, form, page, indptr, indices)
                indptr[page + 1] = indptr[page] + len(links)
                indices[indptr[page] : indptr[page + 1]] = links
    except (EOFError, ValueError) as error:
        raise AopicError(
            f"{path} is damaged, or {form.path} is of another graph: the links of page {page} cannot be read."
        ) from error
    except (MemoryError, OSError) as error:
        raise AopicError(f"{path} cannot be read: {plainly(error)}.") from error
    if indptr[-1] != form.arcs:
        raise AopicError(
            f"{path} has {indptr[-1]} links, but {form.path} is of a graph with {form.arcs} (arcs)."
        )
    return {"indptr": indptr, "indices": indices}


def _read_page(
    bits: _Bits, form: _Form, page: int, indptr: NDArray[np.int64], indices: NDArray[np.int64]
) -> list[int]:
    """The links of *page*, sorted: first those that another page has, too, then intervals, then all others.

    Raises:
        EOFError: At the end of the file.
        ValueError: If they cannot be; before anything is made that is larger than the graph.
    """
    read = bits.codes
    rest = read["OUTDEGREES"]()
    _check(rest <= min(form.nodes, form.arcs - int(indptr[page])))
    links: list[int] = []
    if rest and form.window and (back := read["REFERENCES"]()):
        _check(back <= min(form.window, page))
        other = indices[indptr[page - back] : indptr[page - back + 1]].tolist()
        n_blocks, end = read["BLOCK_COUNT"](), 0
        _check(n_blocks <= len(other) + 1)
        for block in range(n_blocks):  # one is copied, the next one is not
            start, end = end, end + read["BLOCKS"]() + (block > 0)
            links += other[start:end] if block % 2 == 0 else []
        links += other[end:] if n_blocks % 2 == 0 else []
        rest -= len(links)
        _check(rest >= 0 and end <= len(other))
    if rest and form.shortest:
        end = page - 1
        for interval in range(bits.gamma()):
            start = end + 1 + bits.gamma() if interval else page + _signed(bits.gamma())
            end = start + bits.gamma() + form.shortest
            rest -= end - start
            _check(rest >= 0)
            links += range(start, end)
    link = page - 1
    for residual in range(rest):
        gap = read["RESIDUALS"]()
        link += 1 + (gap if residual else _signed(gap))
        links.append(link)
    links.sort()
    _check(not links or 0 <= links[0] <= links[-1] < form.nodes)
    return links


def _check(can_be: bool) -> None:
    if not can_be:
        raise ValueError


def _signed(number: int) -> int:
    """The number that is coded as *number*: 0, -1, 1, -2, ... for 0, 1, 2, 3, ..."""
    return number >> 1 ^ -(number & 1)


class _Form:
    """How the links of *graph* are coded, by its properties."""

    def __init__(self, graph: Path) -> None:
        self.path = graph.with_suffix(".properties")
        if not is_file(self.path):
            raise AopicError(
                f"{graph} is a compressed WebGraph by its name, and {self.path} is missing; a list of links needs another "
                "name, such as links.txt."
            )
        pairs = (line.partition("=") for line in read_lines(self.path))
        given = {"zetak": "3"} | {name.strip(): value.strip() for name, _, value in pairs}
        for name, known in _KNOWN.items():
            if given.get(name, known).rpartition(".")[2] != known.rpartition(".")[2]:
                raise AopicError(f"{self.path}: {name} ({given[name][:80]}) must be {known}.")
        for name in _NUMBERS:
            if not (text := given.get(name, "")).isdecimal() or len(text) > 18:
                raise AopicError(f"{self.path}: {name} ({text[:80]}) must be a whole number.")
        self.nodes, self.arcs, self.window, self.shortest, self.zeta_k = (
            int(given[name]) for name in _NUMBERS
        )
        self.codes = dict(_CODES)
        for flag in given.get("compressionflags", "").replace("|", " ").split():
            part, _, code = flag.rpartition("_")
            if part not in {*_CODES, "OFFSETS"} or code not in {"UNARY", "GAMMA", "DELTA", "ZETA", "NIBBLE"}:
                raise AopicError(f"{self.path}: {flag[:80]} in compressionflags is not known.")
            self.codes[part] = code


class _Bits:
    """The numbers in the bits of *file*, the highest bit of a byte first; raises as :func:`_read_page`.

    Attributes:
        codes: Reads the next number, by the part of a list of links that it belongs to.
    """

    def __init__(self, file: IO[bytes], form: _Form) -> None:
        self._file, self._zeta_k = file, form.zeta_k
        self.codes = {part: getattr(self, code.lower()) for part, code in form.codes.items()}
        self._rest = self._n = 0  # the bits that were read and are not used, as a number, and how many

    def _more(self) -> None:
        data = self._file.read(32)  # of a longer number it takes longer to cut off the first bits
        if not data:
            raise EOFError
        self._rest, self._n = (
            self._rest << 8 * len(data) | int.from_bytes(data, "big"),
            self._n + 8 * len(data),
        )

    def _plain(self, n: int) -> int:
        """The number of the next *n* bits."""
        _check(0 <= n < 64)
        while self._n < n:
            self._more()
        self._n -= n
        number = self._rest >> self._n
        self._rest ^= number << self._n
        return number

    def unary(self) -> int:
        zeros = 0
        while not self._rest:
            zeros, self._n = zeros + self._n, 0
            self._more()
        left = self._rest.bit_length() - 1
        zeros, self._n, self._rest = zeros + self._n - left - 1, left, self._rest ^ 1 << left
        return zeros

    def gamma(self) -> int:
        n = self.unary()
        return (self._plain(n) | 1 << n) - 1

    def delta(self) -> int:
        n = self.gamma()
        return (self._plain(n) | 1 << n) - 1

    def zeta(self) -> int:
        low = self.unary() * self._zeta_k
        number = self._plain(low + self._zeta_k - 1)
        return number + (1 << low) - 1 if number < 1 << low else (number << 1 | self._plain(1)) - 1

    def nibble(self) -> int:
        number = 0
        while (group := self._plain(4)) < 8:
            number = number << 3 | group
            _check(number < 1 << 63)
        return number << 3 | group - 8
