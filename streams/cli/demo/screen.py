"""How the demo looks: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streams.cli.demo.evidence import Evidence
from streams.cli.demo.plan import Plan
from streams.model.receipt import Outcome

PLAIN_S: Final = 1.0
"""Between two plain lines."""

STATES: Final = ("delivered", "waiting", "retrying", "dead")


@dataclass(frozen=True, slots=True)
class Row:
    """How far the deliveries of one behaviour are."""

    path: str
    owed: int
    states: Counter[str]
    calls: int


def rows_of(plan: Plan, seen: Evidence) -> list[Row]:
    """How far everything is, by behaviour."""
    states: dict[str, Counter[str]] = {path: Counter() for path in plan.paths}
    calls: Counter[str] = Counter()
    for name, owed in plan.owed.items():
        states[owed.path][_state(name, seen)] += 1
        calls[owed.path] += len(seen.calls.get(name, ()))
    return [Row(path, each.total(), each, calls[path]) for path, each in states.items()]


def _state(name: str, seen: Evidence) -> str:
    receipts = seen.receipts.get(name)
    if receipts:
        return "delivered" if receipts[-1].verdict is Outcome.SENT else "dead"
    return "retrying" if seen.waiting.get(name) else "waiting"


class Screen:
    """Shows how far the demo is, and what happens to it."""

    def __init__(self, *, plain: bool) -> None:
        self._console = Console(highlight=False, emoji=False, soft_wrap=True)
        self._is_plain = plain or not self._console.is_terminal
        self._started = time.monotonic()
        self._said = 0.0
        self._last = ""
        self._live: Live | None = None

    def tell(self, line: str) -> None:
        """Say what happens; stays above the table."""
        self._console.print(f"{self._at()}  {line}", markup=False)

    def print(self, line: str = "") -> None:
        """A line of the summary."""
        self._console.print(line, markup=False)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Keep a table at the bottom of the terminal meanwhile."""
        if self._is_plain:
            yield
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def update(self, plan: Plan, seen: Evidence, produced: int, worker: str) -> None:
        """Show how far it is."""
        rows = rows_of(plan, seen)
        if self._live is not None:
            self._live.update(self._table(plan, rows, produced, worker), refresh=True)
            return
        if time.monotonic() - self._said < PLAIN_S:
            return
        self._said = time.monotonic()
        line = _plain(rows, produced, len(seen.letters))
        if line != self._last:
            self._last = line
            self.tell(line)

    def _at(self) -> str:
        return f"{time.monotonic() - self._started:5.1f}s"

    def _table(self, plan: Plan, rows: list[Row], produced: int, worker: str) -> Table:
        title = f"{self._at()}   {produced} of {len(plan.records)} lines produced   worker {worker}"
        table = Table(title=title, title_justify="left", title_style="bold")
        table.add_column("the receiver answers")
        for name in ("deliveries", *STATES, "calls"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(row.path, *_cells(row))
        table.add_section()
        table.add_row("all", *_cells(_all(rows)), style="bold")
        return table


def _all(rows: list[Row]) -> Row:
    states = sum((row.states for row in rows), Counter[str]())
    return Row("all", states.total(), states, sum(row.calls for row in rows))


def _cells(row: Row) -> list[str]:
    counts = (row.owed, *(row.states[state] for state in STATES), row.calls)
    return [str(count) if count else "·" for count in counts]


def _plain(rows: list[Row], produced: int, letters: int) -> str:
    whole = _all(rows)
    states = " ".join(f"{state}={whole.states[state]}" for state in STATES)
    return f"produced={produced} {states} calls={whole.calls} dead_letters={letters}"
