"""Pictures of what ``benchmarks/focused.py --json`` has kept: harvest along the crawl, and harvest against PageRank recall.

python benchmarks/focus_webs/pictures.py corpus.json docs/focus/corpus.svg
python benchmarks/focus_webs/pictures.py dial.json docs/focus/dial.svg
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

STEP = 10
"""Fetches between two points of a curve, as in ``benchmarks/focused.py``."""

Found = dict[str, Any]
"""An outcome, as ``benchmarks/focused.py --json`` keeps it."""

FIRST = 5
"""Points of a curve that are left out, as a part of 40 pages says little."""


def draw(found: dict[str, dict[str, list[Found]]], path: Path) -> None:
    """Draw what is in *found*: curves of strategies, or the frontier of the two measures along the dial."""
    pooled: dict[str, list[Found]] = {}
    for of in found.values():
        for policy, each in of.items():
            pooled.setdefault(policy, []).extend(each)
    with rc_context({"svg.hashsalt": "scrapy-aopic", "font.size": 9}):
        figure = Figure(figsize=(7.5, 4.2), layout="constrained")
        if all(policy.startswith("focus ") for policy in pooled):
            _dial(figure, pooled)
        else:
            _curves(figure, pooled)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _curves(figure: Figure, pooled: dict[str, list[Found]]) -> None:
    axes = figure.add_subplot(xlabel="fetches", ylabel="part that is relevant")
    order = sorted(pooled, key=lambda policy: -_mean(pooled[policy], "mean"))
    for number, policy in enumerate(order):
        curves = [each["curve"] for each in pooled[policy]]
        curve = [statistics.mean(parts) for parts in zip(*curves, strict=True)][FIRST:]
        at = range((FIRST + 1) * STEP, (FIRST + 1 + len(curve)) * STEP, STEP)
        (line,) = axes.plot(list(at), curve, linewidth=1.4, linestyle=("-", "--")[number // 10])
        line.set_label(f"{policy}  {_mean(pooled[policy], 'mean'):.3f}")
        if policy == "one-step oracle":
            line.set(color="black", linestyle=":")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", title="strategy, mean harvest", frameon=False)


def _dial(figure: Figure, pooled: dict[str, list[Found]]) -> None:
    axes = figure.add_subplot(
        xlabel="mean harvest", ylabel="PageRank recall of relevant pages at 500 fetches"
    )
    points = [(_mean(each, "mean"), _mean(each, "ranked")) for each in pooled.values()]
    axes.plot(*zip(*points, strict=True), marker="o", markersize=4, linewidth=1)
    for policy, point in zip(pooled, points, strict=True):
        axes.annotate(policy.removeprefix("focus "), point, xytext=(5, 3), textcoords="offset points")
    axes.grid(alpha=0.3)


def _mean(each: list[Found], name: str) -> float:
    return float(statistics.mean(outcome[name] for outcome in each))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("found", type=Path, help="what --json has kept")
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    draw(json.loads(given.found.read_text(encoding="utf-8")), given.picture)
