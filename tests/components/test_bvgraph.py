"""Compressed WebGraphs are read: written here by the paper, with every code, and damaged."""

from __future__ import annotations

import re
import tracemalloc
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.lab.graphs import load_graph

BASE = {
    "nodes": "0",
    "arcs": "0",
    "windowsize": "7",
    "minintervallength": "4",
    "compressionflags": "",
    "zetak": "3",
}
DEFAULTS = {
    "OUTDEGREES": "GAMMA",
    "REFERENCES": "UNARY",
    "BLOCK_COUNT": "GAMMA",
    "BLOCKS": "GAMMA",
    "RESIDUALS": "ZETA",
}


def unary(n: int) -> str:
    return "0" * n + "1"


def gamma(n: int) -> str:
    return unary((n + 1).bit_length() - 1) + f"{n + 1:b}"[1:]


def delta(n: int) -> str:
    return gamma((n + 1).bit_length() - 1) + f"{n + 1:b}"[1:]


def zeta(n: int, k: int) -> str:
    """In minimal binary code among the numbers with as many digits in base 2^k."""
    h = ((n + 1).bit_length() - 1) // k
    rest, numbers = n + 1 - 2 ** (h * k), 2 ** (h * k + k) - 2 ** (h * k)
    bits = (numbers - 1).bit_length()
    short = 2**bits - numbers
    width, value = (bits - 1, rest) if rest < short else (bits, rest + short)
    return unary(h) + (f"{value:0{width}b}" if width else "")


def nibble(n: int) -> str:
    *first, last = f"{n:o}"
    return "".join(f"0{int(digit):03b}" for digit in first) + f"1{int(last):03b}"


def natural(n: int) -> int:
    return 2 * n if n >= 0 else -2 * n - 1


def encode(graph: list[list[int]], draw: Random, properties: dict[str, str]) -> bytes:
    """The bits of *graph*, with references drawn at random."""
    window, shortest, k = (int(properties[name]) for name in ("windowsize", "minintervallength", "zetak"))
    names = DEFAULTS | dict(
        flag.rsplit("_", 1) for flag in properties["compressionflags"].replace("|", " ").split()
    )
    codes = {"UNARY": unary, "GAMMA": gamma, "DELTA": delta, "ZETA": lambda n: zeta(n, k), "NIBBLE": nibble}
    code = {part: codes[name] for part, name in names.items() if part != "OFFSETS"}
    bits = []
    for page, links in enumerate(graph):
        bits.append(code["OUTDEGREES"](len(links)))
        extra = sorted(links)
        if links and window:
            back = draw.randint(0, min(window, page))
            bits.append(code["REFERENCES"](back))
            if back:
                runs = [
                    (kept, len(list(run)))
                    for kept, run in groupby(graph[page - back], set(links).__contains__)
                ]
                blocks = [*([0] if runs and not runs[0][0] else []), *(length for _, length in runs)][:-1]
                bits.append(code["BLOCK_COUNT"](len(blocks)))
                bits += [code["BLOCKS"](length - (at > 0)) for at, length in enumerate(blocks)]
                extra = sorted(set(links) - set(graph[page - back]))
        if extra and shortest:
            runs_of = [
                [each for _, each in run]
                for _, run in groupby(enumerate(extra), lambda pair: pair[1] - pair[0])
            ]
            intervals = [run for run in runs_of if len(run) >= shortest]
            bits.append(gamma(len(intervals)))
            for before, interval in pairwise([None, *intervals]):
                left = natural(interval[0] - page) if before is None else interval[0] - before[-1] - 2
                bits += [gamma(left), gamma(len(interval) - shortest)]
                extra = [link for link in extra if link not in interval]
        for before, link in pairwise([None, *extra]):
            bits.append(code["RESIDUALS"](natural(link - page) if before is None else link - before - 1))
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return int(f"1{text}", 2).to_bytes(len(text) // 8 + 1, "big")[1:]


def draw_graph(draw: Random, n: int) -> list[list[int]]:
    """Pages with intervals, with links of the pages before, with others, and with none."""
    graph: list[list[int]] = []
    for page in range(n):
        links = set(draw.choices(range(n), k=draw.choice([0, 1, 3])))
        if draw.random() < 0.6:
            links |= {
                link for link in (graph or [[]])[-draw.randint(1, min(page, 3) or 1)] if draw.random() < 0.8
            }
        if draw.random() < 0.4:
            begin = draw.randrange(n)
            links |= set(range(begin, min(n, begin + draw.randint(1, 12))))
        graph.append(sorted(links) if draw.random() < 0.9 else [])
    return graph


def save(folder: Path, data: bytes, **properties: Any) -> Path:
    lines = [f"{name}={value}" for name, value in {**BASE, **properties}.items() if value is not None]
    (folder / "web.properties").write_text("\n".join(["#BVGraph properties", *lines, ""]), encoding="utf-8")
    (folder / "web.graph").write_bytes(data)
    return folder / "web.graph"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"graphclass": "class it.unimi.dsi.webgraph.BVGraph", "version": 0, "offsetstep": 1, "zetak": None},
        {"windowsize": 0, "minintervallength": 0},
        {"windowsize": 1, "minintervallength": 2, "zetak": 1},
        {
            "windowsize": 30,
            "zetak": 5,
            "compressionflags": "OUTDEGREES_DELTA | REFERENCES_GAMMA | OFFSETS_DELTA",
        },
        {
            "compressionflags": "REFERENCES_DELTA|BLOCK_COUNT_UNARY|BLOCKS_DELTA|RESIDUALS_DELTA",
            "endianness": "big",
        },
        {"compressionflags": "BLOCK_COUNT_DELTA | RESIDUALS_NIBBLE", "minintervallength": 3},
        {"compressionflags": "RESIDUALS_GAMMA | BLOCKS_UNARY"},
    ],
)
def test_a_graph_is_read_as_it_was_written(tmp_path, form):
    for rng in range(5):
        draw = Random(rng)
        graph = draw_graph(draw, draw.choice([1, 2, 60, 300]))
        properties = {**BASE, **{name: str(value) for name, value in form.items() if value is not None}}
        path = save(
            tmp_path,
            encode(graph, draw, properties),
            **{**form, "nodes": len(graph), "arcs": sum(map(len, graph))},
        )
        read = load_graph(path)
        assert read.name == "web"
        assert [read.out_links(page) for page in range(len(read))] == graph


def test_a_few_links_are_coded_as_the_paper_codes_them(tmp_path):
    # Gamma: 1 is 010, 0 is 1, 4 is 00101. Page 0: two links, no reference, no interval, 0 + 0, then one skipped to 2.
    # Page 1: none. Page 2: two links, the list of page 0 (unary 2 is 001), no blocks: all of it.
    text = "01111100101010110011"
    data = int(text.ljust(24, "0"), 2).to_bytes(3, "big")
    graph = load_graph(save(tmp_path, data, nodes=3, arcs=4))
    assert [graph.out_links(page) for page in range(3)] == [[0, 2], [], [0, 2]]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"graphclass": "it.unimi.dsi.webgraph.EFGraph"},
            "graphclass (it.unimi.dsi.webgraph.EFGraph) must be it.unimi",
        ),
        ({"version": 1}, "version (1) must be 0"),
        ({"endianness": "little"}, "endianness (little) must be big"),
        ({"nodes": None}, "nodes () must be a whole number"),
        ({"arcs": "many"}, "arcs (many) must be a whole number"),
        ({"windowsize": "-1"}, "windowsize (-1) must be a whole number"),
        ({"zetak": "9" * 30}, f"zetak ({'9' * 30}) must be a whole number"),
        (
            {"compressionflags": "BLOCKS_DELTA|RESIDUALS_GOLOMB"},
            "RESIDUALS_GOLOMB in compressionflags is not known",
        ),
        ({"compressionflags": "INTERVALS_DELTA"}, "INTERVALS_DELTA in compressionflags is not known"),
    ],
)
def test_what_properties_say_and_is_not_known_is_named(tmp_path, properties, message):
    with pytest.raises(AopicError, match=re.escape(f"{tmp_path / 'web.properties'}: {message}")):
        load_graph(save(tmp_path, b"\xff", **{"nodes": 8, **properties}))


def test_without_properties_the_name_is_explained(tmp_path):
    path = save(tmp_path, b"0 1")
    (tmp_path / "web.properties").unlink()
    with pytest.raises(AopicError, match=r"web\.properties is missing; a list of links needs another name"):
        load_graph(path)


@pytest.mark.parametrize(
    ("data", "properties", "message"),
    [
        (b"", {"nodes": 1}, "the links of page 0 cannot be read"),
        (b"\xff", {"nodes": 9}, "the links of page 8 cannot be read"),
        (b"\xff", {"nodes": 8, "arcs": 1}, "web.graph has 0 links, but"),
        (b"\xff", {"nodes": 8, "arcs": 10**17}, "cannot be read: it does not fit into the memory"),
        (b"\xff", {"nodes": 10**17}, "cannot be read: it does not fit into the memory"),
        (b"\xff", {"nodes": 8, "zetak": 0, "arcs": 8}, "has 0 links"),
        (bytes(100_000), {"nodes": 8, "arcs": 8}, "the links of page 0 cannot be read"),
        (b"\0" * 30 + b"\xff" * 100, {"nodes": 8, "arcs": 8}, "the links of page 0 cannot be read"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(tmp_path, data, properties, message):
    with pytest.raises(AopicError, match=re.escape(message)):
        load_graph(save(tmp_path, data, **properties))


@pytest.mark.parametrize("flags", ["", "RESIDUALS_NIBBLE|BLOCKS_UNARY", "RESIDUALS_DELTA|OUTDEGREES_DELTA"])
def test_a_damaged_graph_is_refused_or_another_one_and_takes_no_more_memory(tmp_path, flags):
    draw = Random(3)
    graph = draw_graph(draw, 200)
    form = {"nodes": str(len(graph)), "arcs": str(sum(map(len, graph))), "compressionflags": flags}
    good = encode(graph, draw, BASE | form)
    refused = 0
    tracemalloc.start()
    try:
        for _ in range(60):
            data = bytearray(good)
            for _ in range(draw.randint(1, 3)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            try:
                read = load_graph(
                    save(tmp_path, bytes(data[: draw.choice([None, draw.randrange(len(data))])]), **form)
                )
            except AopicError:
                refused += 1
            else:
                assert [len(read), len(read.indices)] == [200, int(form["arcs"])]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert refused > 40
