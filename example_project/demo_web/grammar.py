"""What the demo web is drawn from: sizes, names, words, and hosts with their habits."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote

SEED = 2003  # the year of the AOPIC paper
N_HOSTS = 400
N_PAGES = 12_000
"""Hosts and pages unless others are asked for."""

FIRST = [
    "alder", "amber", "ash", "barley", "birch", "bramble", "brook", "calder", "cedar", "clover", "copper",
    "cove", "elder", "ember", "fen", "finch", "flint", "fox", "gannet", "garnet", "glen", "harbour",
    "hazel", "heron", "hollow", "iris", "juniper", "kestrel", "lantern", "larch", "linden", "lowland",
    "maple", "marsh", "meadow", "merlin", "mill", "moor", "moss", "north", "oak", "opal", "orchard",
    "otter", "pebble", "pine", "quarry", "raven", "reed", "rowan", "saffron", "sedge", "silver", "slate",
    "sorrel", "sparrow", "spring", "stone", "swift", "tern", "thistle", "thorn", "tide", "umber", "vale",
    "violet", "walnut", "west", "willow", "winter", "wren", "yarrow",
]  # fmt: skip
SECOND = [
    "academy", "almanac", "archive", "atlas", "bakery", "books", "brewery", "bulletin", "chapel",
    "college", "courier", "crafts", "dairy", "energy", "ferry", "forum", "foundry", "gallery", "garden",
    "gazette", "herald", "hospital", "institute", "journal", "kitchen", "laboratory", "library", "lodge",
    "market", "mercury", "museum", "music", "nursery", "observer", "optics", "pharmacy", "post",
    "pottery", "press", "railway", "records", "review", "school", "seeds", "society", "studio", "survey",
    "theatre", "times", "tools", "trust", "university", "weekly", "wharf", "workshop", "yard",
]  # fmt: skip
SUBDOMAINS = ["www", "blog", "docs", "shop", "news", "wiki", "data", "forum", "people", "static"]
SECTIONS = [
    "news", "catalogue", "guides", "people", "projects", "events", "notes", "maps", "reports", "letters",
    "courses", "recipes",
]  # fmt: skip
ADJECTIVES = [
    "ancient", "brief", "broken", "careful", "common", "early", "eastern", "empty", "faded", "final",
    "forgotten", "gentle", "hidden", "hollow", "late", "local", "lost", "modern", "narrow", "naïve",
    "open", "patient", "plain", "quiet", "rare", "second", "shared", "small", "steady", "twin", "unlikely",
    "useful", "western", "young",
]  # fmt: skip
NOUNS = [
    "anchor", "apple", "autumn", "bell", "boat", "bridge", "café", "candle", "canal", "chart", "clock",
    "coast", "dialect", "engine", "ferry", "field", "garden", "glacier", "harvest", "honey", "instrument",
    "island", "kite", "ladder", "lamp", "letter", "lighthouse", "loom", "map", "market", "mosaic",
    "mountain", "needle", "orchard", "paper", "pigment", "planet", "railway", "recipe", "river", "roof",
    "salt", "shadow", "signal", "song", "spindle", "telescope", "tide", "timber", "tower", "valley",
    "violin", "voyage", "weather", "window", "workshop",
]  # fmt: skip
TOPICS = {
    "astronomy": ["comet", "nebula", "orbit", "eclipse", "galaxy", "asteroid", "parallax", "quasar"],
    "weaving": ["warp", "weft", "heddle", "shuttle", "selvedge", "tapestry", "bobbin", "treadle"],
}
"""Topics, if the web is to have some, and the nouns that pages about them use."""
VERBS = [
    "describes", "explains", "follows", "mentions", "outlives", "precedes", "questions", "recalls",
    "repairs", "replaces", "resembles", "supports", "surprises",
]  # fmt: skip
ENDINGS = [
    "in the first year", "as Zoë Ångström noted", "although nobody counted", "for want of a better word",
    "at the usual place", "“more or less”", "before the river froze", "and the reverse is rarely true",
    "according to the parish register", "which took three summers", "on both sides of the valley",
]  # fmt: skip


@dataclass(slots=True)
class Host:
    """A host and what is drawn once for it; its pages are numbered from ``first`` on, the home page first."""

    name: str
    title: str
    size: int
    latency: float
    fame: float
    first: int = 0
    n_sections: int = 0
    robots: str = "none"  # "none" (404), "private", "all", "delay", "error"
    encoding: str = "utf-8"
    is_gzipped: bool = False
    is_dead: bool = False
    friends: list[int] = field(default_factory=list)  # hosts near it that its pages like to link to
    cumulated_fame: list[float] = field(default_factory=list)  # of its pages, for drawing among them

    def draw(self, random: Random) -> int:
        """Draw one of its pages by fame."""
        total = self.cumulated_fame[-1]
        return self.first + bisect(self.cumulated_fame, random.random() * total, hi=self.size - 1)


def sentences(random: Random) -> list[str]:
    """Make the sentences that all text is made of."""
    return [
        f"The {random.choice(ADJECTIVES)} {random.choice(NOUNS)} {random.choice(VERBS)} "
        f"the {random.choice(ADJECTIVES)} {random.choice(NOUNS)}, {random.choice(ENDINGS)}."
        for _ in range(500)
    ]


def topic_sentences(random: Random, topic: str) -> list[str]:
    """Make the sentences of pages about *topic*."""
    return [
        f"The {random.choice(ADJECTIVES)} {random.choice(TOPICS[topic])} {random.choice(VERBS)} "
        f"the {random.choice(ADJECTIVES)} {random.choice(NOUNS)}, {random.choice(ENDINGS)}."
        for _ in range(200)
    ]


def hosts(random: Random, n_hosts: int, n_pages: int) -> list[Host]:
    """Draw the hosts, without their pages."""
    hosts = [
        Host(name, title, size, _latency(random), min(random.paretovariate(1.0), 80.0))
        for (name, title), size in zip(_names(random, n_hosts), _sizes(random, n_hosts, n_pages), strict=True)
    ]
    for host in hosts:
        host.is_gzipped = random.random() < 0.25
        host.robots = "private" if random.random() < 0.4 else "none"
    # The odd ones are neither among the largest, where they would spoil the web, nor too small to be met.
    by_size = sorted(hosts, key=lambda host: -host.size)
    middle = by_size[len(hosts) // 20 : len(hosts) // 2]
    forbidden, delayed, broken, latin, windows, dead = random.sample(middle, 6)
    forbidden.robots = "all"
    delayed.robots = "delay"
    broken.robots = "error"
    latin.encoding = "iso-8859-1"
    windows.encoding = "windows-1252"
    dead.is_dead = True
    return hosts


def _names(random: Random, n_hosts: int) -> list[tuple[str, str]]:
    """Draw names and titles; some registered domains have several hosts."""
    pairs = random.sample([(first, second) for first in FIRST for second in SECOND], n_hosts)
    n_shared = max(2, n_hosts // 50)
    names: list[tuple[str, str]] = []
    for number, (first, second) in enumerate(pairs):
        domain = f"{first}-{second}.{'example' if random.random() < 0.75 else 'test'}"
        title = f"{first} {second}".title()
        if number < n_shared:
            names += [
                (f"{subdomain}.{domain}", f"{title} {subdomain.title()}".removesuffix(" Www"))
                for subdomain in random.sample(SUBDOMAINS, random.randint(3, 8))
            ]
        else:
            names.append((f"www.{domain}" if random.random() < 0.7 else domain, title))
        if len(names) >= n_hosts:
            break
    random.shuffle(names)
    return names[:n_hosts]


def _sizes(random: Random, n_hosts: int, n_pages: int) -> list[int]:
    """Draw heavy-tailed sizes between 1 and a twentieth of the web that sum to *n_pages*."""
    shares = [random.lognormvariate(0.0, 1.6) for _ in range(n_hosts)]
    largest = max(8, n_pages // min(20, n_hosts // 2))

    def scaled(factor: float) -> list[int]:
        return [min(largest, max(1, int(share * factor))) for share in shares]

    low, high = 0.0, float(n_pages)
    for _ in range(40):
        middle = (low + high) / 2
        if sum(scaled(middle)) <= n_pages:
            low = middle
        else:
            high = middle
    sizes = scaled(low)
    n_left = n_pages - sum(sizes)
    smallest = 2  # hosts of one page stay that small as long as others can grow
    while n_left:
        n_before = n_left
        for index in random.sample(range(n_hosts), n_hosts):
            if n_left and smallest <= sizes[index] < largest:
                sizes[index] += 1
                n_left -= 1
        if n_left == n_before:
            smallest = 1
    return sizes


def _latency(random: Random) -> float:
    """Draw the seconds that a host takes for an answer."""
    kind = random.random()
    if kind < 0.08:
        return random.uniform(0.2, 0.6)
    if kind < 0.20:
        return random.uniform(0.03, 0.08)
    return random.uniform(0.002, 0.015)


def path_below(random: Random, parent: str, number: int, *, is_item: bool = False) -> tuple[str, str]:
    """Draw path and title of a page below the page at *parent*."""
    folder = parent.rpartition("/")[0] + "/"
    if parent.endswith(".html"):
        folder = parent.removesuffix(".html") + "/"
    kind = random.random()
    if is_item or kind < 0.05:
        return f"{folder}item?id={number}&view=full", f"Item {number}"
    words = f"{random.choice(ADJECTIVES)} {random.choice(NOUNS)}"
    slug = quote(words.replace(" ", "-"))
    return f"{folder}{slug}{'/' if kind > 0.8 else '.html'}", words.capitalize()
