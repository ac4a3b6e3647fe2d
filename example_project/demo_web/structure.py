"""What follows from the seed: pages in trees, fame, links, and what is wrong with some of them."""

from __future__ import annotations

from array import array
from bisect import bisect
from itertools import accumulate
from random import Random
from typing import NamedTuple

from .grammar import FIRST, N_HOSTS, N_PAGES, SECOND, SECTIONS, SEED, Host, hosts, path_below, sentences

N_CHILDREN = 12  # longer lists are split over more levels, as with paging
N_SECTIONS = 6
N_SEEDS = 10
TRAP_NAME = "calendar.endless-days.example"
TRAP_START = "/calendar/2026/11/"

Place = int
NAV, TRAIL, TEXT, CHILD, RELATED, OTHER = range(6)  # where on a page a link stands, in document order


class Link(NamedTuple):
    place: Place
    href: str
    text: str
    target: int = -1  # a page, or -1 for what is none: documents, mail addresses, dangling, the trap
    is_followed: bool = True


class Structure:
    """Hosts, pages and links; a page is a number, and what is drawn once is drawn at the start.

    Args:
        seed: What everything follows from.
        n_hosts: Hosts in all, the dead one and the trap included; 20 to some 4,000.
        n_pages: Pages in all; at least four a host.

    Attributes:
        seeds: URLs to begin a crawl with.
        sentences: What all text is made of.
        trap: URL of a calendar without end.
        redirects: Pages that redirect, and to which page.
        failing: Pages that fail, and with which status.
    """

    def __init__(self, seed: int = SEED, n_hosts: int = N_HOSTS, n_pages: int = N_PAGES) -> None:
        if not 20 <= n_hosts <= len(FIRST) * len(SECOND):
            limit = len(FIRST) * len(SECOND)
            raise ValueError(
                f"n_hosts ({n_hosts}) must be between 20 (one for every fault) and {limit} (names)."
            )
        if n_pages < 4 * n_hosts:
            raise ValueError(f"n_pages ({n_pages}) must be at least four a host, that is {4 * n_hosts}.")
        self.seed = seed
        self.n_hosts = n_hosts
        self.n_urls = n_pages
        self.trap = f"http://{TRAP_NAME}{TRAP_START}"
        random = Random(seed)  # noqa: S311 - a web to be repeated, not a secret
        self.sentences = sentences(random)
        self.hosts = hosts(random, n_hosts - 1, n_pages)
        self.host_of = array("H")
        self.paths: list[str] = []
        self.titles: list[str] = []
        self._fame: list[float] = []
        self._parent = array("l")
        self._children: dict[int, list[int]] = {}
        for index, host in enumerate(self.hosts):
            self._grow(random, index, host)
        self.by_name = {host.name: host for host in self.hosts}
        self.by_url = {
            self.hosts[host].name + path: page
            for page, (host, path) in enumerate(zip(self.host_of, self.paths, strict=True))
        }
        self._cumulated_fame = list(
            accumulate(
                fame * self.hosts[host].fame for fame, host in zip(self._fame, self.host_of, strict=True)
            )
        )
        self.redirects: dict[int, int] = {}
        self.failing: dict[int, int] = {}
        self._looping: set[int] = set()
        self._spoil(random)
        self._referred: dict[int, list[int]] = {}
        self._trap_links: set[int] = set()
        self._refer(random)
        self.seeds = self._choose_seeds(random)

    def _grow(self, random: Random, index: int, host: Host) -> None:
        """Add the pages of *host*: a tree of home page, sections and what is below them."""
        host.first = len(self.paths)
        host.n_sections = min(N_SECTIONS, host.size // 5)
        names = random.sample(SECTIONS, host.n_sections)
        if names and host.robots in {"private", "delay"}:
            names[-1] = "private"
        taken = {"/", *(f"/{name}/" for name in names)}
        # A page is drawn as parent as often as it is listed: once, and once more for every child.
        parents = [host.first + 1 + i for i in range(host.n_sections)] * 3 or [host.first]
        for local in range(host.size):
            page = host.first + local
            parent = host.first
            if local == 0:
                path, title = "/", host.title
            elif local <= host.n_sections:
                path, title = f"/{names[local - 1]}/", names[local - 1].capitalize()
            else:
                parent = random.choice(parents)
                if len(self._children.get(parent, ())) >= N_CHILDREN:
                    parent = page - 1 if page - 1 > host.first + host.n_sections else parents[-1]
                path, title = path_below(random, self.paths[parent], local)
                if path in taken:
                    path = path_below(random, self.paths[parent], local, is_item=True)[0]
                taken.add(path)
                parents += (parent, page)
            self.host_of.append(index)
            self.paths.append(path)
            self.titles.append(title)
            self._parent.append(parent)
            if local > host.n_sections:
                self._children.setdefault(parent, []).append(page)
            fame = min(random.paretovariate(1.1), 150.0)
            if path.startswith("/private/"):
                fame *= 0.2
            self._fame.append(fame + 3.0 if local == 0 else fame)
        host.cumulated_fame = list(accumulate(self._fame[host.first : host.first + host.size]))

    def _spoil(self, random: Random) -> None:
        """Turn leaves of the trees into redirects and errors, so that nothing gets lost behind them."""
        leaves = [
            page
            for page in range(len(self.paths))
            if page not in self._children
            and page > self._home(page) + self.hosts[self.host_of[page]].n_sections
            and not self.hosts[self.host_of[page]].is_dead
        ]
        n_failing = max(4, self.n_urls // 500)
        n_redirects = max(6, self.n_urls * 3 // 100)
        spoilt = random.sample(leaves, n_failing + n_redirects)
        for number, page in enumerate(spoilt[:n_failing]):
            self.failing[page] = 500 if number % 2 else 503
        first, second, chained, *moved = spoilt[n_failing:]
        self.redirects = dict.fromkeys(spoilt[n_failing:], -1)
        for page in (chained, *moved):
            is_across = random.random() < 0.2
            target = page
            while not self._is_ordinary(target):
                target = self._draw(random) if is_across else self.hosts[self.host_of[page]].draw(random)
                if not is_across and random.random() < 0.1:
                    is_across = True  # a host may have nothing else that is ordinary
            self.redirects[page] = target
        self.redirects[moved[0]] = chained
        self.redirects[first], self.redirects[second] = second, first
        self._looping = {first, second}

    def _refer(self, random: Random) -> None:
        """Let every host be known by someone, and a handful of pages lead into the trap."""
        allowed = [
            page
            for page in range(len(self.paths))
            if self._is_ordinary(page)
            and self.hosts[self.host_of[page]].robots != "all"
            and not self.paths[page].startswith("/private/")
        ]
        for host in self.hosts:
            for page in random.sample(allowed, 2):
                self._referred.setdefault(page, []).append(host.first)
        self._trap_links = set(random.sample(allowed, 5))
        n_hosts = len(self.hosts)
        for index, host in enumerate(self.hosts):
            reach = range(index - n_hosts // 10, index + n_hosts // 10)
            near = [number % n_hosts for number in reach if number != index]
            fame = [self.hosts[number].fame * self.hosts[number].cumulated_fame[-1] for number in near]
            host.friends = random.choices(near, weights=fame, k=random.randint(3, 8))

    def _choose_seeds(self, random: Random) -> list[str]:
        """Choose home pages of hosts that are neither famous nor unknown."""
        hosts = [
            host
            for host in sorted(self.hosts, key=lambda host: -host.fame * host.cumulated_fame[-1])
            if host.robots in {"none", "private"} and not host.is_dead
        ]
        known = [host for host in hosts[len(hosts) // 4 : len(hosts) * 2 // 3] if host.size > 2] or hosts
        return [f"http://{host.name}/" for host in random.sample(known, min(N_SEEDS, len(known)))]

    def _home(self, page: int) -> int:
        return self.hosts[self.host_of[page]].first

    def _is_ordinary(self, page: int) -> bool:
        return (
            page not in self.redirects
            and page not in self.failing
            and not self.hosts[self.host_of[page]].is_dead
        )

    def _draw(self, random: Random) -> int:
        """Draw a page of the whole web by fame."""
        total = self._cumulated_fame[-1]
        return bisect(self._cumulated_fame, random.random() * total, hi=self.n_urls - 1)

    # What is known about it

    def urls(self) -> list[str]:
        """List the URLs of all pages, those included that redirect, fail or are forbidden."""
        return [self.url(page) for page in range(len(self.paths))]

    def graph(self) -> tuple[list[str], list[list[int]]]:
        """Build the link graph that the true PageRank is computed from.

        It has the pages that are answered with HTML, and redirects, with one link each. What never leads to
        a page is left out, with the links to it: failing pages, the dead host, the loop, the trap. So are
        repeated links, links to the page itself, and those marked ``nofollow``. Pages that ``robots.txt``
        forbids are in it: they are important whether or not a crawler may visit them.

        Returns:
            The URLs, and for each the positions of the distinct URLs it links to, in document order.
        """
        pages = [
            page
            for page in range(len(self.paths))
            if page not in self.failing
            and page not in self._looping
            and not self.hosts[self.host_of[page]].is_dead
        ]
        position = {page: number for number, page in enumerate(pages)}
        outlinks: list[list[int]] = []
        for page in pages:
            if page in self.redirects:
                targets = [self.redirects[page]]
            else:
                links = self.links(page, self.random_of(self.url(page)))
                targets = [link.target for link in links if link.is_followed and link.target != page]
            outlinks.append([position[target] for target in dict.fromkeys(targets) if target in position])
        return [self.url(page) for page in pages], outlinks

    def url(self, page: int) -> str:
        return f"http://{self.hosts[self.host_of[page]].name}{self.paths[page]}"

    def random_of(self, url: str) -> Random:
        return Random(f"{self.seed} {url}")  # noqa: S311 - text to be repeated, not a secret

    def links(self, page: int, random: Random) -> list[Link]:
        """Draw the links of an ordinary page, in document order."""
        host = self.hosts[self.host_of[page]]
        home = host.first
        nav = range(home, home + 1 + host.n_sections)
        if host.first % 2:
            links = [Link(NAV, self.paths[target], self.titles[target], target) for target in nav]
        else:
            links = [Link(NAV, self.url(target), self.titles[target], target) for target in nav]
        if page != home:
            links.append(self._link(random, TRAIL, page, self._parent[page]))

        elsewhere = [*self._referred.get(page, ())]
        for _ in range(random.randint(3, 8) + (6 if host.size < 4 else 0)):
            if random.random() < 0.85:
                elsewhere.append(self.hosts[random.choice(host.friends)].draw(random))
            else:
                elsewhere.append(self._draw(random))
        links += [self._link(random, TEXT, page, target) for target in elsewhere]
        links += [self._link(random, CHILD, page, target) for target in self._children.get(page, ())]
        related = [host.draw(random) for _ in range(random.randint(4, 8))]
        if page in nav:  # the latest pages, whatever their fame
            related += [home + random.randrange(host.size) for _ in range(6)]
        links += [self._link(random, RELATED, page, target) for target in related]
        return links + self._odd_links(page, random)

    def _odd_links(self, page: int, random: Random) -> list[Link]:
        """Draw the links that a crawler must not follow blindly."""
        host = self.hosts[self.host_of[page]]
        links: list[Link] = []
        if random.random() < 0.3:
            links.append(Link(OTHER, "#notes", "Notes", page))
        if random.random() < 0.4:
            for _ in range(random.randint(1, 3)):
                target = random.randrange(len(self.paths))
                links.append(self._link(random, OTHER, page, target)._replace(is_followed=False))
        if random.random() < 0.5:
            name = f"{random.choice(SECTIONS)}-{random.randint(0, min(host.size, 9_999))}"
            kind = random.choice(("jpg", "jpg", "pdf"))
            links.append(Link(OTHER, f"/media/{name}.{kind}", f"{name} ({kind})"))
        if random.random() < 0.45:
            place = host if random.random() < 0.7 else random.choice(self.hosts)
            href = f"http://{place.name}/withdrawn-{random.randint(100, 999)}.html"
            links.append(Link(OTHER, href, "An older version"))
        if random.random() < 0.3:
            links.append(Link(OTHER, f"mailto:office@{host.name}", "Write to us"))
        if page in self._trap_links:
            links.append(Link(OTHER, self.trap, "What happens today"))
        return links

    def _link(self, random: Random, place: Place, page: int, target: int) -> Link:
        """Write a link from *page* to *target* in one of the ways that occur."""
        path = self.paths[target]
        form = random.random()
        if self.host_of[page] != self.host_of[target]:
            href = self.url(target)
            if form < 0.05:
                href = href.removeprefix("http:")
        elif form < 0.6:
            href = path
        elif form < 0.8:
            href = _relative(self.paths[page], path)
        else:
            href = self.url(target)
        if form > 0.97:
            href += "#part-2"
        return Link(place, href, self.titles[target], target)


def _relative(base: str, target: str) -> str:
    """Write the path *target* relative to the path *base*."""
    folders, (*target_folders, leaf) = base.split("/")[:-1], target.split("/")
    n_common = 0
    for folder, target_folder in zip(folders, target_folders, strict=False):
        if folder != target_folder:
            break
        n_common += 1
    parts = [".."] * (len(folders) - n_common) + [*target_folders[n_common:], leaf]
    return "/".join(parts) or "./"
