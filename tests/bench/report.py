"""The table, the files beside it, and the last lines `name=value`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.plots import draw
from tests.bench.results import Calibration, Figure, Row

HEAD = ("figure", "median", "min .. max", "runs", "must", "", "beside")


def write(figure: Figure, folder: Path, facts: Mapping[str, str]) -> None:
    """Write one figure's numbers, runs included, as `NAME.json`, and draw `NAME.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    told = asdict(figure)
    told.pop("plots")
    for row, told_row in zip(figure.rows, told["rows"], strict=True):
        told_row |= {"value": row.value, "verdict": row.verdict}
    whole: dict[str, Any] = {"machine": dict(facts), **told}
    (folder / f"{figure.name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    draw(figure, folder / f"{figure.name}.png")


def text(figures: Sequence[Figure], failed: Mapping[str, str], facts: Mapping[str, str]) -> str:
    """The whole result as text, its last lines `name=value`."""
    parts = [
        "\n".join(f"{name:16} {value}" for name, value in facts.items()),
        _table([_cells(row) for figure in figures for row in figure.rows]),
        *(_about(figure) for figure in figures),
    ]
    if failed:
        parts.append("\n".join(f"NOT MEASURED {name}: {why}" for name, why in failed.items()))
    short = [row for figure in figures for row in figure.rows if row.verdict.startswith("short")]
    parts.append("\n".join(map(_short, short)) or "Nothing that was measured falls short.")
    lines = [f"{row.name}={row.value:.4g}" for figure in figures for row in figure.rows]
    lines += [f"{name}=not measured" for name in failed]
    return "\n\n".join(parts) + "\n\n" + "\n".join(lines) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    limit = "" if row.limit is None else f"{row.limit.sense} {_number(row.limit.value)}"
    return (
        row.name,
        f"{_number(row.value)} {row.unit}",
        f"{_number(min(row.runs))} .. {_number(max(row.runs))}",
        str(len(row.runs)),
        limit,
        row.verdict,
        row.note,
    )


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (HEAD, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _about(figure: Figure) -> str:
    """What was done, by whom it was received, what each process used, what the machine was worth."""
    lines = [f"{figure.name}: {figure.work}", f"  receiver: {figure.receiver}"]
    for kind, used in figure.cpu_us.items():
        each = ", ".join(f"{name} {_number(us)} us" for name, us in used.items())
        lines.append(f"  CPU each, {kind}: {each}")
    if figure.calibrations:
        lines.append(f"  calibration: {_calibration(figure.calibrations)}")
    return "\n".join(lines)


def _calibration(found: Sequence[Calibration]) -> str:
    python = [c.python_us for c in found]
    told = f"100 rounds of pure Python {_spread(python)} us"
    bare = [c.bare_us for c in found if c.bare_us]
    return f"bare loop {_spread(bare)} us a call, {told}" if bare else told


def _spread(values: Sequence[float]) -> str:
    low, high = _number(min(values)), _number(max(values))
    return f"{_number(median(values))} ({low} .. {high})"


def _short(row: Row) -> str:
    assert row.limit is not None
    must = f"{row.limit.sense} {_number(row.limit.value)} {row.unit}"
    return f"SHORT {row.name}: {_number(row.value)} {row.unit}, must be {must}: {row.verdict}"


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
