"""An invented web in which everything relevant lies behind pages that say nothing of it.

Each of 240 hosts sells things of one of 12 topics. From its home page, which says nothing of the topic, one or more levels of
catalogs lead to lists, and these to the things. What catalogs are called is the same on all hosts of a family, whatever they sell,
and beside them each host has as many pages about itself, its jobs and its news. Every page links to the home page and to the
sections; hosts link to each other by their names only.
"""

from __future__ import annotations

from random import Random

from scrapy_aopic.core.focus.topic import LinkText

from . import Web, leaf

N_HOSTS, N_TOPICS = 240, 12
FAMILIES = (
    ("Products", "products", "Category", "category", "List", "list", "item"),
    ("Catalog", "catalog", "Department", "department", "Page", "page", "detail"),
    ("Shop", "shop", "Range", "range", "Overview", "overview", "article"),
    ("Browse", "browse", "Section", "section", "Results", "results", "view"),
)
DECOYS = ("About", "Careers", "News")
LISTS, THINGS, OTHERS = 4, 10, 12


def load(depth: int, seed: int = 0) -> Web:
    """The web with *depth* levels of catalogs."""
    chance = Random(f"tunnels {depth} {seed}")
    general = [_word(chance) for _ in range(1500)]
    of_topic = [[_word(chance) for _ in range(60)] for _ in range(N_TOPICS)]
    names = [f"{_word(chance)} {_word(chance)}".title() for _ in range(N_HOSTS)]
    pages: list[_Page] = []
    hosts = [_Host(number, depth, pages, chance) for number in range(N_HOSTS)]
    for host in hosts:
        for other in chance.sample(range(N_HOSTS), 5):
            pages[host.home].links.append((hosts[other].home, names[other]))
    leaves = []
    for page in pages:
        n = chance.randrange(80, 200)
        topical = of_topic[page.host % N_TOPICS]
        said = [
            chance.choice(topical)
            if chance.random() < page.density
            else general[int(1500 * chance.random() ** 2)]
            for _ in range(n)
        ]
        links: dict[int, LinkText] = {}
        for at, (target, name) in enumerate(page.links):
            anchor = name
            if name == "*":  # a thing's name: half of them say what it is
                kind = chance.choice(topical) if chance.random() < 0.5 else ""
                anchor = f"{_word(chance).title()} {chance.randrange(1000)} {kind}".strip()
            before = page.links[at - 1][1] if at and page.links[at - 1][1] != "*" else ""
            path = pages[target].path
            links.setdefault(target, LinkText(anchor, before, page.title, path))
        url = f"http://host{page.host}.test{page.path}"
        leaves.append(leaf(url, f"{page.title} {' '.join(said)}", list(links.items())))
    topics = {}
    for topic in range(N_TOPICS):
        labels = [page.is_thing and page.host % N_TOPICS == topic for page in pages]
        topics[f"topic {topic}"] = labels, of_topic[topic][:5]
    return Web(leaves, topics, [host.home for host in hosts])


class _Page:
    def __init__(self, host: int, path: str, title: str, density: float, *, is_thing: bool = False) -> None:
        self.host, self.path, self.title, self.density, self.is_thing = host, path, title, density, is_thing
        self.links: list[tuple[int, str]] = []


class _Host:
    """Makes the pages of a host."""

    def __init__(self, number: int, depth: int, pages: list[_Page], chance: Random) -> None:
        self._number, self._pages, self._chance = number, pages, chance
        catalog, folder, level, levels, listing, listings, self._thing = FAMILIES[
            number // N_TOPICS % len(FAMILIES)
        ]
        self._names = level, levels, listing, listings
        self.home = self._page("/", "Welcome")
        nav = [(self.home, "Home")]
        root = self._page(f"/{folder}/", catalog)
        sections = [(root, catalog)]
        for decoy in DECOYS:
            section = self._page(f"/{decoy.lower()}/", decoy)
            sections.append((section, decoy))
            for _ in range(OTHERS):
                n = chance.randrange(1000)
                page = self._page(f"/{decoy.lower()}/{n}", f"{decoy} {n}")
                pages[section].links.append((page, f"More {n}"))
                if chance.random() < 0.3:
                    further = self._page(f"/{decoy.lower()}/{n}/more", f"{decoy} {n}, continued")
                    pages[page].links.append((further, "Read on"))
        chance.shuffle(sections)
        self._level(root, depth)
        last = len(pages)
        for page in range(self.home, last):
            pages[page].links[:0] = [each for each in nav + sections if each[0] != page]

    def _page(self, path: str, title: str, density: float = 0.0, *, is_thing: bool = False) -> int:
        self._pages.append(_Page(self._number, path, title, density, is_thing=is_thing))
        return len(self._pages) - 1

    def _level(self, parent: int, depth: int) -> None:
        level, levels, listing, listings = self._names
        pages, chance = self._pages, self._chance
        if depth > 1:
            for number in range(2):
                page = self._page(f"/{levels}/{chance.randrange(1000)}", level)
                pages[parent].links.append((page, f"{level} {number + 1}"))
                self._level(page, depth - 1)
            return
        for number in range(LISTS):
            page = self._page(f"/{listings}/{chance.randrange(1000)}", listing, 0.02)
            pages[parent].links.append((page, f"{listing} {number + 1}"))
            for _ in range(THINGS):
                thing = self._page(
                    f"/{self._thing}/{chance.randrange(10000)}", "Details", 0.15, is_thing=True
                )
                pages[page].links.append((thing, "*"))


def _word(chance: Random) -> str:
    return "".join(
        chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(chance.choice((2, 3, 3)))
    )
