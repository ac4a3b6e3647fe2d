"""Deals the shards of a job to its workers, by the work that waits in each.

Rule 1: every worker computes the whole deal from what all see, and does its own part of it; there is no coordinator.

Rule 2: a shard counts as one, and as one more for each few hosts that could be requested from it at once: where workers keep up with
what waits, all have as many shards, give or take one; where one does not, others take over from it.

Rule 3: a shard that has a worker stays, unless the deal is far from even: what would be better by a little is not worth a hand-over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_HOSTS = 8
"""Hosts that could be requested which count like a shard: a worker that keeps up has a few for a moment."""

_EVEN = 0.76
"""Least part of the most loaded worker's load that another one has if nothing is to be moved to it."""


def deal(
    holders: Mapping[int, str | None], waiting: Mapping[int, int], workers: Sequence[str]
) -> dict[int, str]:
    """The worker that each shard should have.

    Args:
        holders: The worker of each shard; ``None`` if it is free. One of a stranger stays.
        waiting: Hosts of shards that could be requested.
    """
    weights = {number: 1 + waiting.get(number, 0) // _HOSTS for number in holders}
    dealt = {number: worker for number, worker in holders.items() if worker is not None}
    loads = dict.fromkeys(workers, 0)
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
        lightest = sorted(dealt, key=lambda number: (weights[number], number))
        movable = [
            number
            for number in lightest
            if loads[least] + weights[number] < even * loads.get(dealt[number], 0)
        ]
        if not movable:
            return dealt
        move(max(movable, key=lambda number: loads[dealt[number]]), least)
        even = 1.0  # once something is moved, all is made even
