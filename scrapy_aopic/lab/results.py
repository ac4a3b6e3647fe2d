"""The results of a comparison: tables, JSON, a picture, and the statistics in them."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from .comparison import CURVE, PARTS, REFERENCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .comparison import Run, Setup

_DASHES: tuple[Literal["-", "-.", ":"], ...] = ("-", "-.", ":")
"""Styles of lines, each for ten orders: there are ten colours."""


def report(setup: Setup, seed_sets: Sequence[Sequence[int]], runs: dict[str, list[Run]]) -> dict[str, Any]:
    """Everything that was measured, as plain values for JSON."""
    result: dict[str, Any] = {
        "graph": setup.graph.name,
        "pages": len(setup.graph),
        "links": len(setup.graph.indices),
        "fetches": [done.fetches for done in next(iter(runs.values()))],
        "seed_sets": [list(seeds) for seeds in seed_sets],
        "policies": {
            name: {
                "share": {
                    str(part): [done.share[number] for done in each] for number, part in enumerate(PARTS)
                },
                "mean": [done.mean for done in each],
                "seconds": [done.seconds for done in each],
            }
            for name, each in runs.items()
        },
    }
    if setup.pacing is not None:
        result["politeness"] = {
            name: {
                "virtual_seconds": [done.virtual_seconds for done in each],
                "idle_though_due": [done.idle_though_due for done in each],
            }
            for name, each in runs.items()
            if name not in REFERENCES
        }
    return result


def format_shares(rows: dict[str, list[list[float]]]) -> str:
    """A table of rows of shares after :data:`PARTS` with their mean over the crawl, each averaged over its runs."""
    lines = [
        "| order | " + " | ".join(f"{part:.0%}" for part in PARTS) + " | mean |",
        "|---|" + "---|" * (len(PARTS) + 1),
    ]
    lines += [
        f"| {name} | " + " | ".join(f"{value:.3f}" for value in np.mean(values, axis=0)) + " |"
        for name, values in rows.items()
    ]
    return "\n".join(lines)


def format_comparison(setup: Setup, seed_sets: Sequence[Sequence[int]], runs: dict[str, list[Run]]) -> str:
    """All tables: shares, the first order against every other, and what politeness made of it."""
    fetches = sorted({done.fetches for each in runs.values() for done in each})
    head = (
        f"{setup.graph.name}: {len(setup.graph):,} pages, {len(setup.graph.indices):,} links; "
        f"seed sets: {len(seed_sets)} of {len(seed_sets[0])} pages; fetches: {fetches[0]:,}"
        + (f" to {fetches[-1]:,}" if len(fetches) > 1 else "")
    )
    parts = [head, format_shares({name: [[*r.share, r.mean] for r in each] for name, each in runs.items()})]
    first, *others = runs
    if others:
        lines = [f"| {first}, less | mean over the crawl | 95 %, paired |", "|---|---|---|"]
        for name in others:
            gain = [one.mean - other.mean for one, other in zip(runs[first], runs[name], strict=True)]
            interval = f"± {half_width(gain):.4f}" if len(gain) > 1 else "one seed set"
            lines.append(f"| {name} | {np.mean(gain):+.4f} | {interval} |")
        parts.append("\n".join(lines))
    crawls = {name: each for name, each in runs.items() if name not in REFERENCES}
    if setup.pacing is not None and crawls:
        lines = ["| order | virtual seconds | idle though due | CPU seconds |", "|---|---|---|---|"]
        for name, each in crawls.items():
            virtual, idle, seconds = np.mean(
                [(r.virtual_seconds, r.idle_though_due, r.seconds) for r in each], axis=0
            )
            lines.append(f"| {name} | {virtual:,.1f} | {idle:.3g} | {seconds:.1f} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of the mean of *values*, at least two, by Student's t."""
    n = len(values)
    return student_t(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)


def student_t(freedom: int) -> float:
    """The number within which (either sign) Student's t with *freedom* degrees lies with probability 0.95.

    By bisection of the series 26.7.3 and 26.7.4 in Abramowitz and Stegun, "Handbook of Mathematical Functions".
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        is_odd = freedom % 2
        term = math.cos(angle) if is_odd else 1.0
        total = 0.0
        for k in range(is_odd, freedom - 1, 2):
            total += term
            term *= (k + 1) / (k + 2) * math.cos(angle) ** 2
        inside = math.sin(angle) * total
        if is_odd:
            inside = (angle + inside) * 2 / math.pi
        low, high = (angle, high) if inside < 0.95 else (low, angle)
    return math.tan(low) * math.sqrt(freedom)


def plot(file: IO[bytes], kind: str, runs: dict[str, list[Run]]) -> None:
    """Draw the share over the fetches, averaged over the seed sets, as a picture of this *kind*: ``svg`` or ``png``."""
    from matplotlib import rc_context  # noqa: PLC0415  # only who draws needs it
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context({"svg.hashsalt": "scrapy-aopic", "font.size": 9}):
        figure = Figure(figsize=(7.5, 4.5), layout="constrained")
        axes = figure.add_subplot(
            xlabel="part of the fetches", ylabel="share of the reachable PageRank", xlim=(0, 1), ylim=(0, 1)
        )
        best_first = sorted(runs.items(), key=lambda item: -_mean(item[1]))
        for number, (name, each) in enumerate(best_first):
            (line,) = axes.plot(CURVE, np.mean([done.curve for done in each], axis=0), linewidth=1.4)
            line.set_label(f"{name}  {_mean(each):.3f}")
            line.set_linestyle(_DASHES[number // 10 % len(_DASHES)])  # there are ten colours
            if name == "bound":
                line.set(color="black", linestyle="--")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right upper", title="order, mean", frameon=False)
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(file, format=kind, dpi=150, metadata=metadata)


def _mean(each: list[Run]) -> float:
    return float(np.mean([done.mean for done in each]))
