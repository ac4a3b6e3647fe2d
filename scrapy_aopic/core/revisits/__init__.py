"""When a visited page is worth another visit, and which of them is next.

A visited page waits for its next visit with the priority cash x phi(D S): cash is what it is expected to have got
since its last visit, D the rate at which it changes, S the time since it was last seen, and
phi(x) = (1 - (1 + x) e^-x) / x what one more visit is worth for the freshness of its copy. That is compared with the
cash of pages that were never visited. phi is largest near D S = 1.8: a page that has surely not changed yet, and one
that changes faster than it can be followed, both count for less.

* :mod:`.rates`: learns D from what the visits find; its uncertainty matters as much as its mean, so D is a distribution,
  and phi its mean over it
* :mod:`.hints`: how far the dates that others give of changes, such as sitemaps, are to be believed
* :mod:`.fruit`: how many new pages a page brings, for which a share of the revisits is made
* :mod:`.worth`: multiplies
* :mod:`.wake_times`: when a page wakes, to have its priority computed again: each time S has grown by half, at instants that the store remembers
* :mod:`.due`: pages whose priority was computed wait until a visit is paid for; the frontier has them from then on
* :mod:`.revisits`: does the computing and the letting in
* :mod:`.intervals`: how often
* :mod:`.rounds`: numbers and reports of rounds, in which each page is visited once more
* :mod:`.found`: what a visit has found, in a word, and when it changed last

Sources: Cho and Garcia-Molina, "Effective Page Refresh Policies for Web Crawlers", TODS 28(4), 2003, and "Estimating
Frequency of Change", TOIT 3(3), 2003; Azar et al., "Tractable near-optimal policies for crawling", PNAS 2018.
"""

from __future__ import annotations

from .intervals import Recrawl
from .rates import Rates, Version

__all__ = ["Rates", "Recrawl", "Version"]
