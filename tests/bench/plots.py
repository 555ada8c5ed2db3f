"""One picture a figure, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from tests.bench.results import Bars, Figure, Lines

_COLOURS: Sequence[str] = ("#2a6fbb", "#d1702a", "#3b8f5a", "#8a56ac", "#777777", "#b8423e")


def draw(figure: Figure, file: Path) -> None:
    """Draw the figure's plots side by side into a PNG."""
    mpl.use("Agg")
    columns = len(figure.plots)
    canvas = Canvas(figsize=(6.4 * columns, 3.8), layout="constrained")
    canvas.suptitle(figure.name)
    for at, plot in enumerate(figure.plots):
        axes = canvas.add_subplot(1, columns, at + 1)
        if isinstance(plot, Bars):
            _bars(axes, plot)
        else:
            _lines(axes, plot)
    canvas.savefig(file, dpi=110, metadata={"Software": None})


def _bars(axes: Any, plot: Bars) -> None:
    labels = [label for label, runs in plot.groups.items() if runs]
    for at, label in enumerate(labels):
        runs, colour = plot.groups[label], _COLOURS[at % len(_COLOURS)]
        axes.barh(at, median(runs), color=colour, alpha=0.35, height=0.6)
        axes.plot(runs, [at] * len(runs), "o", color=colour, markersize=5)
        axes.annotate(f" {median(runs):,.4g}", (max(runs), at), va="center", fontsize=9)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(plot.unit)
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    if plot.limit is not None:
        axes.axvline(plot.limit, color="black", linestyle="--", linewidth=1)


def _lines(axes: Any, plot: Lines) -> None:
    for at, (label, (x, y)) in enumerate(plot.curves.items()):
        axes.plot(x, y, label=label, color=_COLOURS[at % len(_COLOURS)], linewidth=1.5)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.limit is not None:
        axes.axvline(plot.limit, color="black", linestyle="--", linewidth=1)
    if plot.limit_y is not None:
        axes.axhline(plot.limit_y, color="black", linestyle="--", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=9)
