"""``scrapy aopic simulate`` and what it is made of: graphs, crawls of them on a virtual clock, comparisons."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import run_here

from scrapy_aopic.core.crawl import Crawl
from scrapy_aopic.core.frontier.frontier import NotBefore
from scrapy_aopic.core.ledger import Ledger
from scrapy_aopic.core.order import ORDERS, Opic, PageView
from scrapy_aopic.core.policy import Policy
from scrapy_aopic.core.politeness import Politeness
from scrapy_aopic.core.revisits import Recrawl
from scrapy_aopic.exceptions import AopicError
from scrapy_aopic.lab import comparison
from scrapy_aopic.lab.comparison import MEANS, PARTS, draw_seed_sets
from scrapy_aopic.lab.graphs import Graph, graph_of, load_graph, pagerank
from scrapy_aopic.lab.planted import CHILDREN, KINDS, PlantedTrap
from scrapy_aopic.lab.results import half_width, student_t
from scrapy_aopic.lab.simulation import Simulation, simulate
from scrapy_aopic.lab.url_order import UrlOrder
from scrapy_aopic.lab.workers import SharedSimulation, Sharing
from scrapy_aopic.version import __version__

Command = Callable[..., tuple[int, str, str]]
Measured = Callable[..., dict[str, list[dict[str, Any]]]]

RING = [[(page + 1) % 10] for page in range(10)]
# From the first page, the third cannot be reached. Without its teleport, PageRank is a = 0.15/3 + 0.85 (b + c),
# b = 0.15/3 + 0.85 a, c = 0.15/3; so a = 0.135 / (1 - 0.85**2).
PAIR = [[1], [0], [0]]
PAIR_FIRST = 0.135 / (1 - 0.85**2)
PAIR_SECOND = 0.05 + 0.85 * PAIR_FIRST


def save(path: Path, links: list[list[int]], **arrays: Any) -> Path:
    """Write a graph as the command reads it."""
    indptr = np.cumsum([0, *map(len, links)])
    indices = np.array([target for targets in links for target in targets], np.int32)
    np.savez(path, **{"indptr": indptr, "indices": indices, **arrays})
    return path


def random_links(pages: int, rng: int) -> list[list[int]]:
    """Links with everything that may occur: self links, repeated ones, pages without any."""
    draw = np.random.default_rng(rng)
    return [draw.integers(0, pages, draw.integers(0, 6)).tolist() for _ in range(pages)]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``scrapy aopic simulate`` in this process; gives exit code, output and errors."""
    return partial(run_here, capsys, "simulate")


@pytest.fixture
def refused(command: Command) -> Callable[..., str]:
    """What the command says, as one line, to arguments that it refuses."""

    def run(*arguments: object) -> str:
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        return " ".join(err.split())

    return run


@pytest.fixture
def measured(command: Command, tmp_path: Path) -> Measured:
    """Run ``scrapy aopic simulate --json`` and give what it measured of each order."""

    def run(*arguments: object) -> dict[str, list[dict[str, Any]]]:
        file = tmp_path / "measured.jsonl"
        code, _, err = command(*arguments, "--json", file)
        assert code == 0, err
        result: dict[str, list[dict[str, Any]]] = {}
        for line in file.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            result.setdefault(run["order"], []).append(run)
        return result

    return run


def of(runs: list[dict[str, Any]], what: str) -> list[Any]:
    """*what* was measured, a value for each seed set."""
    return [run[what] for run in runs]


# Graphs and PageRank


def test_pagerank_ignores_self_links_and_repeated_ones_and_spreads_what_dangles():
    # Page 0 links to itself and to page 1, which links nowhere: a = 0.075 + 0.425 b, a + b = 1.
    assert pagerank(np.array([0, 2, 2]), np.array([0, 1])) == pytest.approx([0.5 / 1.425, 0.925 / 1.425])
    once, twice = np.array([0, 2, 3, 4]), np.array([0, 3, 4, 5])
    assert pagerank(twice, np.array([1, 2, 1, 0, 0])) == pytest.approx(pagerank(once, np.array([1, 2, 0, 0])))


def test_hosts_come_from_the_graph_from_an_array_or_from_urls(tmp_path):
    graph = save(tmp_path / "graph.npz", PAIR, host=np.array([4, 4, 5]))
    assert len(set(load_graph(graph).hosts)) == 2
    np.save(tmp_path / "hosts.npy", np.array([0, 1, 2]))
    assert len(set(load_graph(graph, hosts=tmp_path / "hosts.npy").hosts)) == 3
    urls = "http://a.test/1\nhttp://b.test:80/?q\nhttp://a.test/2\n"
    (tmp_path / "urls").write_text(urls, encoding="utf-8")
    (tmp_path / "urls.gz").write_bytes(gzip.compress(urls.encode()))
    for name in ("urls", "urls.gz"):
        assert load_graph(graph, urls=tmp_path / name).hosts == ["a.test", "b.test", "a.test"]
    assert len(set(load_graph(save(tmp_path / "without.npz", PAIR)).hosts)) == 1
    (tmp_path / "links.txt").write_text("0 1\n1 0\n", encoding="utf-8")
    graph = load_graph(tmp_path / "links.txt", urls=tmp_path / "urls")
    assert [graph.out_links(page) for page in range(len(graph))] == [[1], [0], []]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.txt", "# Nodes: 4\n0\t1\textra\n0\t3\n\n3\t0\n% one more\n1\t0\n"),
        ("list.edges", "3 0 {}\n1 0 {'weight': 2}\n0 1\n0 3\n"),
    ],
)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_graphs_are_read_from_text(tmp_path, name, text, *, is_compressed):
    path = tmp_path / (f"{name}.gz" if is_compressed else name)
    path.write_bytes(gzip.compress(text.encode()) if is_compressed else text.encode())
    graph = load_graph(path)
    assert graph.name == name.partition(".")[0]
    assert [graph.out_links(page) for page in range(len(graph))] == [[1, 3], [0], [], [0]]
    np.save(tmp_path / "hosts.npy", np.array([0, 1, 2, 0]))
    assert len(set(load_graph(path, hosts=tmp_path / "hosts.npy").hosts)) == 3


WEB = {"http://a.test/": ["http://b.test/", "mailto:b@b.test"], "http://b.test/": ["http://a.test/"]}


class Directed:
    """A graph as networkx has it."""

    nodes = list(WEB)
    successors = staticmethod(WEB.__getitem__)


def test_pages_that_are_urls_are_on_their_hosts(tmp_path, command, refused):
    path = tmp_path / "links.txt"
    path.write_text("".join(f"{page} {other}\n" for page, others in WEB.items() for other in others))
    for graph in (load_graph(path), graph_of(WEB), graph_of(Directed())):
        hosts = {"http://a.test/": "a.test", "http://b.test/": "b.test", "mailto:b@b.test": ""}
        assert dict(zip(graph.urls, graph.hosts, strict=True)) == hosts
        assert [graph.out_links(page) for page in range(3)] == [[1], [0], []]
    code, out, err = command(path, "--seed-pages", "http://b.test/", "--order", "opic")
    assert code == 0, err
    assert "3 pages, 2 links, skipped without a host: 1" in out
    assert "has pages with names" in refused(path, "--urls", path)


def test_pages_may_be_called_anything():
    graph = graph_of({"news": [("a", 1), "home"], "home": ["news"], ("a", 1): []}, "mine")
    assert graph.name == "mine"
    assert [graph.out_links(page) for page in range(3)] == [[2, 1], [0], []]
    assert set(graph.hosts) == {"host0.com"}
    (run,) = comparison.compare(comparison.Setup(graph), ["aopic"], {"first": [0]})
    assert (run.fetches, run.violations) == (3, [])


@pytest.mark.parametrize(
    ("links", "message"),
    [({}, "graph has no pages"), (["a", "b"], "list is no directed graph"), (42, "as networkx.DiGraph")],
)
def test_what_is_no_graph_is_refused(links, message):
    with pytest.raises(AopicError, match=message):
        graph_of(links)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("links.txt", "# nothing\n", "links.txt has no links; it must have one a line"),
        ("links.txt", "0 1\n2\n", "line 2 must be two pages with blanks or a tab between them; it is '2'"),
        ("links.txt", "a b\n\x00 \x01\n", "line 2 must be two pages"),
        ("links.txt", "0 9999\n", "the highest of their numbers is 9999; number pages from 0 on"),
        ("web.graph", "\x00 \x01\n", "line 1 must be two pages"),
    ],
)
def test_a_text_that_is_no_graph_is_refused_with_the_reason(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(AopicError, match=re.escape(message)):
        load_graph(tmp_path / name)


@pytest.mark.parametrize("seeds", [[0], [3], [0, 7], [9, 9]])
def test_reachable_pages_are_those_that_a_crawl_visits(tmp_path, seeds):
    links = random_links(40, rng=8)
    reachable = load_graph(save(tmp_path / "graph.npz", links)).reachable(seeds)
    assert 1 < reachable.sum() < 40
    visited = list(simulate(links.__getitem__, lambda _: "a.test", seeds, 100, Policy()))
    assert sorted(visited) == np.flatnonzero(reachable).tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"indptr": None}, "no array 'indptr'"),
        ({"indices": None}, "no array 'indices'"),
        ({"indices": np.array([1, 0, 3])}, "holds page 3, but pages are numbered from 0 to 2"),
        ({"indices": np.array([1, 0, -1])}, "holds page -1"),
        ({"indices": np.array([1.0, 0.0, 0.0])}, "indices must be one row of whole numbers"),
        ({"indptr": np.array([0, 1, 2, 4])}, "indptr must rise from 0 to the number of links, 3"),
        ({"indptr": np.array([0, 2, 1, 3])}, "falls in between"),
        ({"indptr": np.array([0])}, "indptr has 1 numbers"),
        ({"host": np.array([0, 1])}, "2 numbers in host, but the graph has 3 pages"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused_with_the_reason(refused, tmp_path, arrays, message):
    path = tmp_path / "graph.npz"
    whole = {"indptr": np.array([0, 1, 2, 3]), "indices": np.array([1, 0, 0]), **arrays}
    np.savez(path, **{name: array for name, array in whole.items() if array is not None})
    said = refused(path, "--seed-pages", 0)
    assert message in said
    assert str(path) in said


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--urls", b"http://a.test/\nhttp://b.test/\n", "2 lines, but the graph has 3 pages"),
        ("--urls", b"/a\n/b\nc.test\n", "has no URL with a host; line 1 is '/a'"),
        ("--hosts", b"no array", "cannot be read as an .npy file"),
    ],
)
def test_wrong_hosts_are_refused_with_the_reason(refused, tmp_path, option, content, message):
    (tmp_path / "hosts").write_bytes(content)
    graph = save(tmp_path / "graph.npz", PAIR)
    assert message in refused(graph, "--seed-pages", 0, option, tmp_path / "hosts")


def test_pages_without_a_host_are_in_no_crawl_and_counted(command, measured, refused, tmp_path):
    links = [[1, 3], [2, 3], [0, 1], [0]]
    graph, urls = save(tmp_path / "graph.npz", links), tmp_path / "urls"
    urls.write_text("http://a.test/0\nhttp://a.test/1\nmailto:b@a.test\nhttp://c.test/3\n", encoding="utf-8")
    loaded = load_graph(graph, urls=urls)
    assert [loaded.out_links(page) for page in range(4)] == [[1, 3], [3], [], [0]]
    (run,) = measured(graph, "--urls", urls, "--seeds", 3, "--seed-sets", 1, "--order", "opic")["opic"]
    assert sorted(run["seeds"]) == [0, 1, 3]
    assert (run["fetches"], run["skipped"]) == (3, 1)
    _, out, _ = command(graph, "--urls", urls, "--seed-pages", 0, "--order", "opic")
    assert "4 pages, 4 links, skipped without a host: 1" in out
    assert "the URL of page 2 has no host" in refused(graph, "--urls", urls, "--seed-pages", 2)


def test_seed_sets_have_names_and_list_numbers_or_urls(command, measured, tmp_path):
    graph, urls = save(tmp_path / "graph.npz", PAIR), tmp_path / "urls"
    urls.write_text("http://a.test/?a=0\nhttp://a.test/1\nhttp://c.test/\n", encoding="utf-8")
    listed = tmp_path / "pages.txt"
    listed.write_text("http://a.test/1\n2\n", encoding="utf-8")
    arguments = (graph, "--urls", urls, "--order", "opic", "--order", "bound")
    arguments += ("--seed-pages", "home=http://a.test/?a=0,2", "--seed-pages", f"others={listed}")
    runs = measured(*arguments)
    for name in ("opic", "bound"):
        assert of(runs[name], "seed_set") == ["home", "others"]
        assert of(runs[name], "seeds") == [[0, 2], [1, 2]]
    _, out, _ = command(*arguments)
    means = [f"{mean['1.0']:.3f}" for mean in of(runs["opic"], "mean")]
    assert "| mean from | home | others |\n" in out
    assert f"| opic | {' | '.join(means)} |\n" in out


def test_results_are_written_as_they_come(command, tmp_path, monkeypatch):
    file, seen = tmp_path / "results.jsonl", []
    run = comparison.run

    def after_looking(*args: Any) -> comparison.Run:
        seen.append(len(file.read_text(encoding="utf-8").splitlines()))
        return run(*args)

    monkeypatch.setattr(comparison, "run", after_looking)
    graph = save(tmp_path / "graph.npz", RING)
    command(graph, "--seeds", 2, "--seed-sets", 2, "--order", "opic", "--order", "bound", "--json", file)
    assert seen == [0, 1, 2, 3]


def test_traps_of_each_kind_are_planted_and_what_they_take_is_shown(command, measured, tmp_path):
    graph = save(tmp_path / "graph.npz", random_links(200, rng=3), host=np.arange(200) % 5)
    arguments = (graph, "--seed-sets", 2, "--order", "breadth-first", "--order", "bound")
    site_traps = tuple(word for kind in KINDS if kind not in CHILDREN for word in ("--trap", kind))
    arguments += tuple(word for kind in CHILDREN for word in ("--trap", kind))
    (*clean_and_trapped,) = measured(*arguments, *site_traps)["breadth-first"]
    clean = [run for run in clean_and_trapped if not run["trap"]]
    assert of(clean, "trapped") == [0, 0]
    for kind in KINDS:
        trapped = [run for run in clean_and_trapped if run["trap"] == f"{kind} | real-host | 3"]
        for run, without in zip(trapped, clean, strict=True):
            assert 0 < run["trapped"] < 1
            assert 0 <= run["missed"] < 1
            assert run["mean"]["1.0"] < without["mean"]["1.0"]
            assert run["violations"] == []
    _, out, _ = command(*arguments, "--trap-on", "one host", "--entries", 1)
    assert out.count(" | one host | 1 | 0.") == len(CHILDREN)
    _, out, _ = command(*arguments, "--trap-directories", "nested", "--trap-links-back")
    assert "| chain, nested, links back | real-host | 3 | 0." in out
    _, out, _ = command(*arguments, "--beside", tmp_path / "measured.jsonl")
    rows = [line for line in out.splitlines() if " | chain | real-host | 3 | " in line]
    assert [row.split(" | ")[0] for row in rows] == ["| breadth-first", "| breadth-first before"]
    assert rows[1] == rows[0].replace("breadth-first", "breadth-first before")


def test_results_are_compared_with_those_of_before(command, refused, tmp_path):
    graph, file = save(tmp_path / "graph.npz", random_links(60, rng=3)), tmp_path / "before.jsonl"
    command(graph, "--seed-sets", 2, "--order", "opic", "--order", "bound", "--json", file)
    code, out, _ = command(graph, "--seed-sets", 2, "--order", "opic", "--beside", file)
    assert code == 0
    assert f"| opic before | {' | '.join(['+0.0000 ± 0.0000'] * 4)} |" in out
    assert "| bound | -0." in out
    (tmp_path / "other").write_text("{}\n", encoding="utf-8")
    for arguments, name in (
        (["--seed-sets", 3], file),
        (["--seed-sets", 2, "--fetches", 9], file),
        (["--seed-sets", 2], tmp_path / "other"),
        (["--seed-sets", 2], tmp_path / "nowhere"),
    ):
        assert str(name) in refused(graph, *arguments, "--order", "opic", "--beside", name), arguments


def example(page: str, name: str) -> str:
    """The example of Python in *page* of the docs that has *name*."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if name in code)
    return code


def test_the_examples_of_the_docs_run(tmp_path, monkeypatch, capsys):
    save(tmp_path / "GRAPH.npz", random_links(50, rng=2))
    (tmp_path / "urls").write_text("".join(f"http://a.test/{'b/' * (n % 4)}{n}\n" for n in range(50)))
    (tmp_path / "near.py").write_text(example("library.md", "class NearTheRoot"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code = example("simulate.md", 'load_graph("GRAPH.npz")')
    assert len([line for line in code.splitlines() if line]) == 5
    exec(code, {})
    lines = capsys.readouterr().out.splitlines()
    orders = [[order, f"{n}"] for n in range(10) for order in ("aopic", "opic")]
    assert [line.split()[:2] for line in lines] == orders
    near = comparison.Setup(load_graph("GRAPH.npz", urls="urls"))
    orders, chain = ["near.NearTheRoot", "aopic"], PlantedTrap("chain", entries=1)
    one, trapped, other, _ = comparison.compare(near, orders, {"first": [0]}, traps=[chain])
    assert one.mean != other.mean
    assert trapped.trapped > 0
    assert one.violations == trapped.violations == []


def test_a_graph_of_networkx_is_compared_as_the_docs_show(capsys):
    networkx = pytest.importorskip("networkx")
    exec(example("simulate.md", "import networkx"), {})
    compared = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert compared == ["aopic", "breadth-first", "bound"]
    with pytest.raises(AopicError, match="Graph is no directed graph"):
        graph_of(networkx.path_graph(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fetches", "0"], "--fetches (0) must be at least 1"),
        (["--seeds", "0"], "--seeds (0) must be at least 1"),
        (["--seeds", "4"], "must be at most the pages of the graph in "),
        (["--seed-sets", "0"], "--seed-sets (0) must be at least 1"),
        (
            ["--seed-pages", "0,3"],
            "--seed-pages (0,3): '3' is neither a number of a page, 0 to 2, nor the URL of one",
        ),
        (["--seed-pages", "1=0", "--seed-pages", "2"], "there are two seed sets called 1"),
        (["--seed-pages", "0,x"], "--seed-pages (0,x): 'x' is neither"),
        (["--seed-pages", "nowhere.txt"], "--seed-pages (nowhere.txt) cannot be used"),
        (["--trap", "net"], "--trap (net) must be one of chain, tree"),
        (["--trap", "tree", "--trap-directories", "two"], "--trap-directories (two) must be one of root"),
        (["--trap", "tree", "--trap-on", "mars"], "--trap-on (mars) must be one of real-host"),
        (
            ["--trap", "tree", "--seed-pages", "2", "--entries", "4"],
            "A trap with 4 entries cannot be planted",
        ),
        (["--rng", "-1"], "--rng (-1) must be at least 0"),
        (["--jobs", "0"], "--jobs (0) must be at least 1"),
        (["--connections", "0"], "--connections (0) must be at least 1"),
        (["--transfer", "0"], "--transfer (0.0) must be"),
        (["--order", "best-first"], "best-first"),
        (["-s", "AOPIC_VIRTUAL_SHARE=2"], "AOPIC_VIRTUAL_SHARE ('2') must be"),
        (["--plot", "shares.pdf"], "must end in .svg or .png"),
        (["--json", "nowhere/shares.jsonl"], "there is no folder nowhere"),
        (["--seed-page-numbers", "3"], "--seed-page-numbers"),
        (["--workers", "0"], "--workers (0) must be at least 1"),
        (["--workers", "9", "--shards", "8"], "--workers (9) must be at most --shards (8)"),
        (["--workers", "2", "--politeness"], "--workers cannot be combined with --politeness"),
        (["--workers", "2", "--order", "bound"], "--workers: bound looks at the whole graph"),
        (["--workers", "2", "--order", "pagerank"], "--workers: pagerank looks at the whole graph"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(refused, tmp_path, arguments, message):
    assert message in refused(save(tmp_path / "graph.npz", PAIR), *arguments)


@pytest.mark.parametrize("module", ["numpy", "matplotlib"])
def test_what_must_be_installed_is_told(refused, tmp_path, monkeypatch, module):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find(name))
    said = refused(tmp_path / "graph.npz", "--plot", tmp_path / "shares.svg")
    assert f"simulate needs {module}: pip install {module}" in said


# Shares


def test_shares_are_parts_of_the_rank_of_the_pages_that_can_be_reached(measured, tmp_path):
    graph = save(tmp_path / "pair.npz", PAIR)
    result = measured(graph, "--seed-pages", "1", "--order", "aopic", "--order", "bound")
    first = PAIR_FIRST / (PAIR_FIRST + PAIR_SECOND)
    assert list(result) == ["aopic", "bound"]
    for name, share in (("aopic", 1 - first), ("bound", first)):
        (run,) = result[name]
        assert run["graph"] == "pair"
        assert (run["pages"], run["links"], run["skipped"]) == (3, 3, 0)
        assert run["seeds"] == [1]
        assert run["fetches"] == 2
        assert run["share"] == {str(part): pytest.approx(share) for part in PARTS}
        means = {"0.1": share, "0.2": share, "0.3": share, "1.0": (share + 1) / 2}
        assert run["mean"] == pytest.approx(means)
        assert run["curve"][0] == 0
        assert run["curve"][-1] == 1
        assert run["violations"] == []
        assert run["version"] == __version__
        assert run["virtual_seconds"] == 0


@pytest.mark.parametrize(("fetches", "made"), [(None, 10), (5, 5), (20, 10)])
def test_parts_are_those_of_the_fetches(measured, tmp_path, fetches, made):
    limit = [] if fetches is None else ["--fetches", fetches]
    ring = save(tmp_path / "ring.npz", RING)
    (run,) = measured(ring, "--seed-pages", 3, "--order", "aopic", *limit)["aopic"]
    assert run["fetches"] == made
    # Every page of a ring has a tenth.
    assert run["share"] == pytest.approx({str(part): max(int(part * made), 1) / 10 for part in PARTS})
    means = {str(part): (max(int(part * made), 1) + 1) / 20 for part in MEANS}
    assert run["mean"] == pytest.approx(means)


def test_the_greedy_reference_takes_the_best_page_that_is_known(measured, tmp_path):
    # The seed links to page 1 and to page 2, behind which stands page 3, to which all others link.
    links = [[1, 2], [], [3], [], *([3] for _ in range(6))]
    graph = save(tmp_path / "graph.npz", links)
    result = measured(graph, "--seed-pages", 0, "--order", "true-pagerank", "--order", "bound")
    rank = pagerank(np.cumsum([0, *map(len, links)]), np.array([t for ts in links for t in ts]))
    true = rank[:4] / rank[:4].sum()
    assert true[3] == max(true)
    assert true[1] == true[2]
    for name, order in (("true-pagerank", [0, 1, 2, 3]), ("bound", [3, 1, 2, 0])):
        mean = np.cumsum(true[order]).mean()
        assert result[name][0]["mean"]["1.0"] == pytest.approx(mean)


def test_without_an_order_all_orders_and_references_run(measured, tmp_path):
    graph = save(tmp_path / "graph.npz", random_links(30, rng=4))
    result = measured(graph, "--seeds", 2, "--seed-sets", 2)
    orders = [name for name, order in ORDERS.items() if not order.values_links]  # a graph has no topic
    assert list(result) == [*orders, "bound", "true-pagerank"]
    for name, runs in result.items():
        assert of(runs, "seed_set") == ["0", "1"]
        for run, best in zip(runs, result["bound"], strict=True):
            for what in ("share", "mean"):
                for part, value in run[what].items():
                    assert 0 < value <= best[what][part] + 1e-12, name


@pytest.mark.slow
def test_the_same_numbers_come_from_the_same_rng_and_from_several_processes(measured, tmp_path):
    graph = save(tmp_path / "graph.npz", random_links(60, rng=5))
    command = (graph, "--seeds", 3, "--order", "aopic", "--politeness", "--rng")
    one, same, other = (
        measured(*command, rng, "--seed-sets", sets, "--jobs", jobs)["aopic"]
        for rng, sets, jobs in ((7, 3, 1), (7, 2, 2), (8, 2, 1))
    )
    for what in ("seeds", "mean", "virtual_seconds"):
        assert of(one[:2], what) == of(same, what)
        assert of(one[:2], what) != of(other, what)


def test_workers_visit_every_page_and_one_with_one_shard_in_the_same_order(measured, tmp_path):
    links, n = random_links(300, 5), 300
    graph = save(tmp_path / "graph", links, host=np.arange(n) // 3).with_suffix(".npz")
    common = (graph, "--order", "aopic", "--seed-sets", 2, "--late", 10)
    alone = measured(*common, "--workers", 1, "--shards", 1)
    assert of(alone["aopic, 1 worker"], "mean") == of(alone["aopic"], "mean")
    shared = measured(*common, "--workers", 2, "--workers", 8, "--shards", 16)
    assert [*shared] == ["aopic", "aopic, 2 workers", "aopic, 8 workers"]
    for each in shared.values():
        # Of pages that can be reached, all were visited: after half of the fetches, less than the whole is there.
        assert all(0.3 < run["share"]["0.5"] < 1.0 for run in each)
        assert of(each, "mean") != of(shared["aopic"], "mean") or each is shared["aopic"]


def test_shares_of_a_crawl_by_workers_end_with_all_that_can_be_reached():
    links = random_links(200, 6)
    sharing = Sharing("aopic", workers=4, shards=8, late=7)
    simulation = SharedSimulation(
        links.__getitem__, lambda page: f"h{page % 40}", [0, 1], 200, policy=Policy, sharing=sharing
    )
    known, reached = {0, 1}, [0, 1]
    while reached:
        new = {*links[reached.pop()]} - known
        known |= new
        reached += new
    visited = [*simulation.run()]
    assert sorted(visited) == sorted(known)
    assert simulation.violations() == []


@pytest.mark.slow
def test_settings_of_the_crawls_come_from_the_command_line(measured, tmp_path):
    graph = save(tmp_path / "graph.npz", random_links(300, rng=6), host=np.arange(300) % 7)
    plain, endowed = (
        measured(graph, "--order", "aopic", "--rng", 2, "-s", f"AOPIC_ENDOWMENT={endowment}")["aopic"]
        for endowment in (0, 6)
    )
    assert of(plain, "seeds") == of(endowed, "seeds")
    assert of(plain, "mean") != of(endowed, "mean")
    assert plain[0]["settings"]["AOPIC_ENDOWMENT"] == "0"


class ByUrl(UrlOrder, Opic):
    """By the last digits of the URL, which are behind its directory."""

    def front_queue(self, page: PageView, cash: int) -> int:
        return int(self.url(page).removeprefix(self.directory(page) + "/").partition("?")[0])


def test_an_order_of_one_s_own_sees_urls_and_directories(tmp_path):
    links, seeds = random_links(300, rng=7), [3, 14, 15]
    worth = [7 * page % 60 for page in range(300)]
    urls = tmp_path / "urls"
    urls.write_text("".join(f"http://a.test/{page}/{worth[page]}?/\n" for page in range(300)))
    graph = load_graph(save(tmp_path / "graph.npz", links), urls=urls)
    simulation = Simulation(graph.out_links, graph.hosts.__getitem__, seeds, 300, Policy(order=ByUrl()))
    assert isinstance(simulation.policy.order, ByUrl)
    simulation.policy.order.begin(graph.url_of, simulation.pages)
    waiting, known, expected = list(seeds), set(seeds), []
    while waiting:
        # The first that was found, of those of the same worth.
        expected.append(page := max(waiting, key=worth.__getitem__))
        waiting.remove(page)
        waiting += dict.fromkeys(target for target in links[page] if target not in known)
        known |= {*links[page]}
    assert [visit.page for visit in simulation.run()] == expected
    assert len(expected) > 200
    assert simulation.violations() == []


def test_the_table_compares_the_first_order_with_the_others(command, tmp_path):
    graph = save(tmp_path / "pair.npz", PAIR)
    code, out, err = command(graph, "--seed-pages", 1, "--order", "aopic", "--order", "bound")
    assert code == 0
    first = PAIR_FIRST / (PAIR_FIRST + PAIR_SECOND)
    assert f"| aopic | {(f'{1 - first:.3f} | ') * 10}{1 - first / 2:.3f} |" in out
    gain = 1 - 2 * first  # of the first fetch; half of that of both
    assert f"| bound | {(f'{gain:+.4f} | ') * 3}{gain / 2:+.4f} |" in out
    assert err == ""  # no progress bar where there is no terminal


def test_the_interval_is_that_of_student():
    quantiles = {1: 12.706, 2: 4.303, 3: 3.182, 9: 2.262, 10: 2.228, 30: 2.042}  # of any table
    assert {n: student_t(n) for n in quantiles} == pytest.approx(quantiles, abs=5e-4)
    assert half_width([1.0, 3.0]) == pytest.approx(12.706, abs=5e-4)  # deviation sqrt(2), two values


def test_seed_sets_are_of_different_pages():
    graph = Graph("", np.zeros(21, int), np.array([], int), ["a.test"] * 20)
    for seeds in draw_seed_sets(graph, 15, 4, rng=1).values():
        assert len(set(seeds)) == 15
    assert list(draw_seed_sets(graph, 5, 3).items())[:2] == list(draw_seed_sets(graph, 5, 2).items())


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begin"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plot_is_written(command, tmp_path, suffix, begin):
    pytest.importorskip("matplotlib")
    graph, path = save(tmp_path / "ring.npz", RING), tmp_path / f"shares.{suffix}"
    code, out, err = command(graph, "--seeds", 2, "--order", "aopic", "--plot", path)
    assert code == 0, err
    assert path.read_bytes().startswith(begin)
    assert "bound" not in out  # drawn in any case, but told only if asked for


# Crawls on the virtual clock


def test_pages_may_be_functions_without_end():
    visited = list(simulate(lambda page: [2 * page + 1, 2 * page + 2], str, [0], 50, Policy()))
    assert len(set(visited)) == 50
    assert all(page == 0 or (page - 1) // 2 in visited[:place] for place, page in enumerate(visited))


def simulation_of(
    links: list[list[int]], policy: Policy | None = None, host: Callable[[int], str] = str, **how: Any
) -> Simulation:
    """A crawl of all pages, from the first; each is on a *host* of its own, and takes a second, unless it is said."""
    how = {"transfer": lambda _: 1.0, **how}
    return Simulation(links.__getitem__, host, [0], len(links), policy or Policy(), **how)


def test_one_host_is_asked_one_page_after_the_other_with_the_gap_between():
    policy = Policy(politeness=Politeness(factor=10, min_gap=0, max_gap=15))
    transfer = [1.0, 2.0, 3.0].__getitem__
    simulation = simulation_of([[1, 2], [], []], policy, lambda _: "a.test", transfer=transfer, connections=5)
    assert [tuple(visit) for visit in simulation.run()] == [(0, 0, 1), (1, 11, 13), (2, 28, 31)]
    assert simulation.now == 31
    assert simulation.idle_though_due == 0
    assert simulation.violations() == []


def test_connections_bound_the_transfers_that_are_under_way():
    simulation = simulation_of([[1, 2, 3, 4], [], [], [], []], connections=3)
    assert sorted(visit.begin for visit in simulation.run()) == [0, 1, 1, 1, 2]
    assert simulation.idle_though_due == 0


@pytest.mark.crossed
@pytest.mark.parametrize("connections", [1, 3, 50])
@pytest.mark.parametrize("max_active", [1, 4, 10_000])
def test_hosts_are_never_asked_twice_at_once_nor_left_waiting_for_nothing(connections, max_active):
    links = random_links(400, rng=9)
    transfers = np.random.default_rng(3).lognormal(0, 0.5, 400).tolist()
    policy = Policy(politeness=Politeness(factor=2), max_active=max_active)
    simulation = Simulation(
        links.__getitem__,
        lambda page: f"h{page % 13}",
        [0, 1, 2],
        300,
        policy,
        transfer=transfers.__getitem__,
        connections=connections,
    )
    visits = list(simulation.run())
    assert len(visits) == 300
    by_host: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for visit in visits:
        by_host[visit.page % 13].append((visit.begin, visit.end))
    for times in by_host.values():
        for (begin, end), (following, _) in pairwise(sorted(times)):
            assert following >= end + 2 * (end - begin) - 1e-9
    # A host that waits on the disk is woken up to 1 ms late, for each of its visits.
    late = 0 if max_active == 10_000 else 0.001 * len(visits)
    assert 0 <= simulation.idle_though_due * connections * simulation.now <= late
    assert simulation.violations() == []


def test_idle_connections_are_noticed(monkeypatch):
    lease = Crawl.lease
    monkeypatch.setattr(
        Crawl, "lease", lambda self, now: NotBefore(7.0) if 1 <= now < 7 else lease(self, now)
    )
    simulation = simulation_of([[1, 2], [], []], connections=2)
    assert [visit.begin for visit in simulation.run()] == [0, 7, 7]
    # Of 2 x 8 seconds, both connections were left idle from 1 to 7, though both hosts were due.
    assert simulation.idle_though_due == pytest.approx(12 / 16)


def test_a_host_that_is_asked_too_early_is_noticed(command, tmp_path, monkeypatch):
    monkeypatch.setattr(Crawl, "defer", lambda *_: None)
    graph = save(tmp_path / "ring.npz", RING)
    code, _, err = command(graph, "--order", "aopic", "--seed-pages", 0, "--politeness")
    assert code == 1
    assert "aopic, seed set 0: host host0.com got a request at" in err


def test_politeness_is_told_in_table_and_json(command, measured, tmp_path):
    graph = save(tmp_path / "ring.npz", RING, host=np.arange(10) % 2)
    sets, orders = ("--seeds", 2, "--seed-sets", 2), ("--order", "aopic", "--order", "bound")
    arguments = (graph, "--politeness", *sets, *orders)
    result = measured(*arguments, "--transfer", 1, "-s", "AOPIC_POLITENESS_FACTOR=3")
    assert of(result["bound"], "virtual_seconds") == [0, 0]
    seconds = of(result["aopic"], "virtual_seconds")
    assert of(result["aopic"], "idle_though_due") == [0, 0]
    assert all(each > 0 for each in seconds)
    twice = measured(*arguments, "--transfer", 2, "-s", "AOPIC_POLITENESS_FACTOR=3")["aopic"]
    assert of(twice, "virtual_seconds") == pytest.approx([2 * each for each in seconds])
    _, out, _ = command(*arguments)
    assert "| order | virtual seconds | idle though due |" in out


def test_a_crawl_that_puts_off_what_it_could_do_does_not_hang(monkeypatch):
    monkeypatch.setattr(Crawl, "lease", lambda _, now: NotBefore(now))
    simulation = simulation_of(RING)
    assert list(simulation.run()) == []
    assert any("nothing was leased" in sentence for sentence in simulation.violations())


# What must hold at the end


@pytest.mark.crossed
@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"share": None},
        {"endowment": 0.0},
        {"spending": "unvisited"},
        {"spending": "visited", "recrawl": Recrawl()},
        {"page_cache": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("fetches", [1, 50, 2000])
def test_the_books_of_crawl_and_witness_agree(change, fetches):
    links = random_links(1500, rng=1)
    simulation = Simulation(
        links.__getitem__, lambda page: f"h{page % 40}", [5, 5, 6], fetches, replace(Policy(), **change)
    )
    assert len(list(simulation.run())) in (fetches, sum(simulation.crawl.counts[:3]))
    assert simulation.violations() == []


def lose_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = Ledger.visit
    monkeypatch.setattr(
        Ledger, "visit", lambda *args, **kwargs: [max(units - 1, 0) for units in visit(*args, **kwargs)]
    )


def pay_one_page_with_the_other_s_cash(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = Ledger.admit
    units = iter([1, -1])
    monkeypatch.setattr(
        Ledger, "admit", lambda self, page, cash=0: admit(self, page, cash + (next(units, 0) if cash else 0))
    )


@pytest.mark.parametrize("bug", [lose_a_unit, pay_one_page_with_the_other_s_cash])
def test_books_that_disagree_are_told_and_the_exit_code_is_1(command, tmp_path, monkeypatch, bug):
    bug(monkeypatch)
    graph = save(tmp_path / "graph.npz", [[1, 2], [], []])
    code, out, err = command(graph, "--order", "aopic", "--seed-pages", 0)
    assert code == 1
    assert ("aopic, seed set 0: page 0 paid" in err) == (bug is lose_a_unit)
    assert ("aopic, seed set 0: all cash is" in err) == (bug is lose_a_unit)
    assert ("aopic, seed set 0: page 1 received" in err) == (bug is not lose_a_unit)
    assert "| aopic |" in out
