"""The results of a comparison: tables, lines of JSON, a picture, and the statistics in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal

import msgspec
import numpy as np

from scrapy_aopic.exceptions import AopicError, plainly
from scrapy_aopic.storage.named_files import read_lines

from .comparison import CURVE, MEANS, PARTS, Run, Setup

_DASHES: tuple[Literal["-", "-.", ":"], ...] = ("-", "-.", ":")
"""Styles of lines, each for ten orders: there are ten colours."""

_HEADS = " | ".join(f"mean, first {part:.0%}" if part < 1 else "mean" for part in MEANS)
"""Heads of the columns of means."""


def as_json(run: Run) -> bytes:
    """All that was measured by *run*, as a line of JSON."""
    return msgspec.json.encode(run) + b"\n"


def read_runs(
    path: Path, setup: Setup, orders: Sequence[str], seed_sets: Mapping[str, Sequence[int]]
) -> list[Run]:
    """The runs that :func:`as_json` wrote to *path*, of the same *seed_sets*; those of the same *orders* are called "before".

    Raises:
        AopicError: If the file cannot be read, or does not have a run of each order from each seed set.
    """
    found: dict[tuple[str, str], dict[str, Run]] = {}
    for number, line in enumerate(read_lines(path), 1):
        try:
            run = msgspec.json.decode(line, type=Run)
        except msgspec.MsgspecError as error:
            raise AopicError(
                f"{path}, line {number} is no result of simulate --json: {plainly(error)}."
            ) from error
        found.setdefault((run.order, run.trap), {})[run.seed_set] = run
    runs = []
    for (order, _), by_name in found.items():
        for name, seeds in seed_sets.items():
            same, n = by_name.get(name), setup.n_fetches(seeds)
            if same is None or (same.graph, same.seeds, same.fetches) != (setup.graph.name, list(seeds), n):
                raise AopicError(
                    f"{path} has no crawl of {setup.graph.name} in the order {order} from the seeds of seed set {name} with "
                    f"{n} fetches: it must have been made with the same options."
                )
            runs.append(replace(same, order=f"{order} before" if order in orders else order))
    return runs


def by_order(runs: Iterable[Run], trap: str = "") -> dict[str, list[Run]]:
    """The runs of each order with *trap*, or without any."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.trap == trap:
            found.setdefault(run.order, []).append(run)
    return found


def format_traps(runs: Sequence[Run]) -> str:
    """A table of what each trap took, and of what it changed in the mean over the crawl."""
    lines = [
        "| order | trap | hosts | entries | part of the fetches | at most | missed after twice as many | mean gathered, with less without |",
        "|---|---|---|---|---|---|---|---|",
    ]
    without = by_order(runs)
    for trap in dict.fromkeys(run.trap for run in runs if run.trap):
        for name, each in by_order(runs, trap).items():
            taken = [run.trapped for run in each]
            change = [run.mean[1.0] - clean.mean[1.0] for run, clean in zip(each, without[name], strict=True)]
            missed = np.mean([run.missed for run in each])
            part = f"{np.mean(taken):.4f}" + (f" ± {half_width(taken):.4f}" if len(taken) > 1 else "")
            lines.append(f"| {name} | {trap} | {part} | {max(taken):.4f} | {missed:.4f} | {paired(change)} |")
    return "\n".join(lines)


def format_shares(rows: dict[str, Sequence[tuple[dict[float, float], dict[float, float]]]]) -> str:
    """A table of shares and of their means, averaged over the runs of each row."""
    lines = [
        "| order | " + " | ".join(f"{part:.0%}" for part in PARTS) + f" | {_HEADS} |",
        "|---|" + "---|" * (len(PARTS) + len(MEANS)),
    ]
    for name, runs in rows.items():
        values = np.mean([[*share.values(), *mean.values()] for share, mean in runs], axis=0)
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return "\n".join(lines)


def format_comparison(runs: dict[str, list[Run]]) -> str:
    """All tables: shares, the first order against every other, and what politeness made of it."""
    first, *others = runs
    one = runs[first][0]
    seeds = _span([len(done.seeds) for done in runs[first]])
    head = (
        f"{one.graph}: {one.pages:,} pages, {one.links:,} links"
        + (f", skipped without a host: {one.skipped:,}" if one.skipped else "")
        + "; "
        f"seed sets: {len(runs[first])} of {seeds} pages; fetches: {_span([done.fetches for done in runs[first]])}"
    )
    parts = [head, format_shares({name: [(r.share, r.mean) for r in each] for name, each in runs.items()})]
    if others:
        lines = [f"| {first}, less | {_HEADS} |", "|---|" + "---|" * len(MEANS)]
        for name in others:
            pairs = list(zip(runs[first], runs[name], strict=True))
            gains = [paired([own.mean[part] - other.mean[part] for own, other in pairs]) for part in MEANS]
            lines.append(f"| {name} | {' | '.join(gains)} |")
        parts.append("\n".join(lines))
    named = [done.seed_set for done in runs[first] if not done.seed_set.isdigit()]
    if named:
        lines = [f"| mean from | {' | '.join(named)} |", "|---|" + "---|" * len(named)]
        for name, each in runs.items():
            means = {done.seed_set: done.mean[1.0] for done in each}
            lines.append(f"| {name} | {' | '.join(f'{means[seed_set]:.3f}' for seed_set in named)} |")
        parts.append("\n".join(lines))
    paced = {name: each for name, each in runs.items() if any(done.virtual_seconds for done in each)}
    if paced:
        lines = ["| order | virtual seconds | idle though due | CPU seconds |", "|---|---|---|---|"]
        for name, each in paced.items():
            virtual, idle, seconds = np.mean(
                [(r.virtual_seconds, r.idle_though_due, r.seconds) for r in each], axis=0
            )
            lines.append(f"| {name} | {virtual:,.1f} | {idle:.3g} | {seconds:.1f} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _span(numbers: Sequence[int]) -> str:
    """The least and the largest of *numbers*, or the only one."""
    low, high = min(numbers), max(numbers)
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def paired(differences: Sequence[float]) -> str:
    """The mean of *differences*, one a seed set, with its 95 % confidence interval if there are at least two."""
    interval = f" ± {half_width(differences):.4f}" if len(differences) > 1 else ""
    return f"{np.mean(differences):+.4f}{interval}"


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
    return float(np.mean([done.mean[1.0] for done in each]))
