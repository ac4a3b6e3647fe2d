"""Deals the shards of a job to its workers, by the work that waits in each.

Rule 1: every worker computes the whole deal from what all see, and does its own part of it; there is no coordinator.

Rule 2: a shard counts for the hosts that could be requested from it at once, beside its part of a few for each worker: where workers
keep up with what waits, all have as many shards, give or take one; where one does not, others take over from it. Of the hosts only
the best count, for all: else a worker would fetch what is worth little while another cannot get through what is worth most.

Rule 3: a shard that has a worker stays, unless the deal is far from even: what would be better by a little is not worth a hand-over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

_HOSTS = 16
"""Hosts for each worker that shards count for though nothing waits: a worker that keeps up has a few for a moment."""

_GOOD = 0.25
"""Part of the hosts with known ranks that count, the best of them, and those that are as good as the last of these."""

_EVEN = 0.76
"""Least part of the most loaded worker's load that another one has if nothing is to be moved to it."""


def good_hosts(waiting: Mapping[int, int], ranks: Mapping[int, Mapping[int, int]]) -> Mapping[int, float]:
    """What counts of the hosts that wait in each shard, together as many as wait.

    Args:
        waiting: Hosts of shards that could be requested.
        ranks: How many of them, as far as that is known, have each rank; the best is the lowest.
    """
    known = sorted(chain(*(Counter(each).elements() for each in ranks.values())))
    if not known:  # all are over their budgets
        return waiting
    last = known[int(_GOOD * (len(known) - 1))]
    good = {number: sum(n for rank, n in ranks[number].items() if rank <= last) for number in waiting}
    one = sum(waiting.values()) / sum(good.values())
    return {number: n * one for number, n in good.items()}


def deal(
    holders: Mapping[int, str | None], waiting: Mapping[int, float], workers: Sequence[str]
) -> dict[int, str]:
    """The worker that each shard should have.

    Args:
        holders: The worker of each shard; ``None`` if it is free. One of a stranger stays.
        waiting: Hosts of shards that could be requested, as far as they count.
    """
    least_weight = _HOSTS * len(workers) / len(holders)
    weights = {number: least_weight + waiting.get(number, 0) for number in holders}
    dealt = {number: worker for number, worker in holders.items() if worker is not None}
    loads = dict.fromkeys(workers, 0.0)
    for number, worker in dealt.items():
        if worker in loads:
            loads[worker] += weights[number]

    def move(number: int, least: str) -> None:
        if (giver := dealt.get(number)) is not None:
            loads[giver] -= weights[number]
        loads[least] += weights[number]
        dealt[number] = least

    for number in sorted(holders.keys() - dealt.keys(), key=lambda number: (-weights[number], number)):
        move(number, min(workers, key=loads.__getitem__))
    even = _EVEN
    while True:
        least = min(workers, key=loads.__getitem__)
        movable = [
            number
            for number in sorted(dealt)
            if loads[least] + weights[number] < even * loads.get(dealt[number], 0)
        ]
        if not movable:
            return dealt
        most = max(loads[dealt[number]] for number in movable)
        half = (most - loads[least]) / 2

        def fit(number: int, half: float = half) -> tuple[bool, float]:
            """The heaviest that leaves its worker with more comes first, for few hand-overs, or else the lightest."""
            return weights[number] > half, abs(half - weights[number])

        move(min((number for number in movable if loads[dealt[number]] == most), key=fit), least)
        even = 1.0  # once something is moved, all is made even
