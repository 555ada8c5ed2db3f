"""What a soak found, for people (Markdown) and for machines (JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.soak.judge import Judged

ROWS_MAX: Final = 120
"""Samples that are kept in the JSON, evenly spread."""

_BYTES: Final = ("rss", "store", "topic bytes", "ledger bytes")

_HEAD: Final = """# Soak

Written by `make soak`; repeat it with

    {command}

A steady {per_s:g} activities a second for {minutes:g} minutes against a real Kafka and three workers:
most are taken at once, some are slow, fail and are tried again, fan out, go to a target that is not
idempotent, are produced twice, or die and are redriven by an operator. The dedupe window is
{window_s:g} s, so tombstones come all the while; compaction and retention act within minutes, so topics
must stay as they are. `w3` is killed at times (SIGKILL) and comes back with its store; `w1` and `w2`
live throughout.

A figure is flat when the median of the last third is no higher than that of the middle third, but for a
tolerance per kind of figure (`tests/soak/judge.py`); the first third is warming up.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """One run.

    Attributes:
        facts: The machine, the numbers of the run and what it came to, as they are to be shown.
        judged: Empty where the run was too short to be judged.
        broken: A line for each promise that was broken.
        samples: Seconds since the start, and the figures then.
    """

    command: str
    minutes: float
    per_s: float
    window_s: float
    facts: Mapping[str, str]
    judged: Sequence[Judged]
    broken: Sequence[str]
    samples: Sequence[tuple[float, Mapping[str, float]]]

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept and every judged figure stayed flat."""
        return not self.broken and all(one.is_flat for one in self.judged)


def markdown(soak: Soak) -> str:
    """The page `docs/soak.md`."""
    lines = [_HEAD.format(**{name: getattr(soak, name) for name in _NUMBERS}), "## The run"]
    lines += [
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in soak.facts.items()),
    ]
    lines += ["", "## The figures", *table(soak.judged)]
    if soak.broken:
        lines += ["", "## Broken", *(f"- {line}" for line in soak.broken)]
    return "\n".join(lines) + "\n"


_NUMBERS: Final = ("command", "minutes", "per_s", "window_s")


def table(judged: Sequence[Judged]) -> list[str]:
    """One row a figure."""
    return [
        "| figure | middle third | last third | highest | slope of the second half | flat |",
        "|---|---:|---:|---:|---:|---|",
        *(
            f"| {one.name} | {shown(one.name, one.middle)} | {shown(one.name, one.last)} |"
            f" {shown(one.name, one.highest)} | {shown(one.name, one.per_hour, sign='+')}/h |"
            f" {'yes' if one.is_flat else '**no**'} |"
            for one in judged
        ),
    ]


def shown(name: str, value: float, sign: str = "") -> str:
    """A figure with its unit."""
    if name.rpartition(": ")[2] in _BYTES:
        return f"{value / 1024**2:{sign}.1f} MiB"
    return f"{value:{sign}.0f}"


def write(soak: Soak, folder: Path) -> list[Path]:
    """Write `soak.md` and `soak.json`; give their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    step = max(1, len(soak.samples) // ROWS_MAX)
    told = asdict(soak) | {"samples": list(soak.samples[::step])}
    (folder / "soak.md").write_text(markdown(soak))
    (folder / "soak.json").write_text(json.dumps(told, indent=1) + "\n")
    return [folder / "soak.md", folder / "soak.json"]
