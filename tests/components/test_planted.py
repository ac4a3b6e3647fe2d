"""Traps that are planted on a graph: where their pages are, and what they link to."""

from __future__ import annotations

import numpy as np
import pytest

from scrapy_aopic.lab.graphs import Graph
from scrapy_aopic.lab.planted import Planted, PlantedSite, PlantedTrap

URLS = ("http://www.site.org/", "http://www.site.org/a/b")


def planted(**how: object) -> Planted:
    graph = Graph("two", np.array([0, 1, 1]), np.array([1]), ["www.site.org"] * 2, URLS)
    return Planted(graph, PlantedTrap("binary-tree", **how), [1])  # type: ignore[arg-type]


def test_each_page_of_a_binary_tree_links_to_two_new_ones():
    web = planted()
    assert [web.out_links(page) for page in (0, 1, 2, 3)] == [[1], [2], [3, 4], [5, 6]]
    assert {web.host_of(page) for page in range(9)} == {"www.site.org"}


def test_and_back_to_the_page_that_leads_to_it_and_to_the_entry():
    web = planted(links_back=True)
    assert [web.out_links(page) for page in (2, 3, 6)] == [[3, 4, 1], [5, 6, 2, 1], [11, 12, 3, 1]]


@pytest.mark.parametrize(
    ("directories", "paths"),
    [
        ("root", ["/trap-0", "/trap-1", "/trap-4"]),
        ("one", ["/trap/0", "/trap/1", "/trap/4"]),
        ("own", ["/trap-0/", "/trap-1/", "/trap-4/"]),
        ("nested", ["/trap/0/", "/trap/0/1/", "/trap/0/1/4/"]),
    ],
)
def test_paths_are_where_they_are_said_to_be(directories, paths):
    web = planted(directories=directories)
    assert [web.url_of(page) for page in (2, 3, 6)] == [f"http://www.site.org{path}" for path in paths]
    assert [web.url_of(page) for page in (0, 1)] == list(URLS)


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("facets", ["/shop?a=1&b=0&c=0&d=0&e=0&f=0", "/shop?a=2&b=0&c=0&d=0&e=0&f=0"]),
        ("history", ["/index.php?title=1&diff=1", "/index.php?title=1&diff=2"]),
        ("calendar", ["/calendar/2023/3/", "/calendar/2024/2/"]),
        ("soft404", ["/no-such-page/about/", "/no-such-page/blog/"]),
        ("paging", ["/list?page=2&sort=date", "/list?page=3&sort=date"]),
        ("mirror", ["/mirror/"]),
    ],
)
def test_traps_of_real_sites_have_links_and_urls_of_their_make(kind, paths):
    graph = Graph("two", np.array([0, 1, 2]), np.array([1, 0]), ["www.site.org"] * 2, URLS)
    web = PlantedSite(graph, PlantedTrap(kind), [1])
    (entry,) = set(web.out_links(1)) - {0}
    found = [page for page in web.out_links(entry) if page > 1 and page != entry]
    assert [web.url_of(page) for page in found[: len(paths)]] == [
        f"http://www.site.org{path}" for path in paths
    ]
    assert web.out_links(entry) == web.out_links(entry)
    assert web.host_of(found[0]) == "www.site.org"
