"""The demo web: an invented web for trying a crawler: some hundred hosts, thousands of pages, no internet.

Rule 1: everything follows from the seed. The structure (hosts, pages, fame, faults) is drawn at the start;
links and text of a page are drawn from seed and URL whenever it is asked for, so that memory stays small
and two webs of the same seed answer with the same bytes.

Rule 2: fame makes links. Hosts and pages have a fame drawn from a Pareto distribution, independent of size
and depth; a link to elsewhere is drawn by host fame x page fame, one within the host by page fame. It is
preferential attachment with the end result drawn first, so that in-degree and PageRank are heavy-tailed,
and the important pages are not simply the home pages near the seeds. Most links to elsewhere stay in the
neighbourhood (hosts stand on a circle), so that the web has regions and is not known after ten pages.

Rule 3: it misbehaves as the web does. There are slow hosts, a dead one, redirects (also across hosts, a
chain and a loop), errors, dangling links, forbidden sections, odd encodings, and a calendar without end.

What is drawn is in :mod:`.grammar` (hosts, names, words), what follows from it in :mod:`.structure` (pages, links, faults),
what a crawler gets in :mod:`.responses`; :mod:`.server` is an HTTP server
for any web, whose log :mod:`.server_log` judges; :mod:`.command` is ``python -m demo_web``.

All names end in ``.example`` or ``.test`` (RFC 2606), so that no crawler can reach a real host by them.
"""

from __future__ import annotations

from .command import main, served
from .grammar import N_HOSTS, N_PAGES, SEED
from .responses import DemoWeb

__all__ = ["N_HOSTS", "N_PAGES", "SEED", "DemoWeb", "main", "served"]
