"""Counts what the simulation did, so that the summary says how much was tried."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.sim.world import World


@dataclass
class Tally:
    """What all schedules of this run came to."""

    schedules: int = 0
    records: int = 0
    calls: int = 0
    forgotten: int = 0
    expired: int = 0
    parked: int = 0
    seconds: float = 0.0

    def add(self, world: World) -> None:
        """Count one schedule that held."""
        self.schedules += 1
        self.records += len(world.oracle.log)
        self.calls += len(world.script.calls)
        self.forgotten += world.oracle.burials
        self.expired += world.oracle.expired
        self.parked += world.oracle.parked
        self.seconds += world.loop.time()

    def __str__(self) -> str:
        return (
            f"simulation: {self.schedules:,} seeded schedules, {self.records:,} ledger records, "
            f"{self.calls:,} calls, {self.parked:,} parked, {self.expired:,} expired, "
            f"{self.forgotten:,} forgotten, {self.seconds / 3600:,.1f} h of virtual time"
        )


TALLY = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def sim_tally(request: pytest.FixtureRequest) -> Tally:
    """Shared by all schedules of a run."""
    tally = Tally()
    request.config.stash[TALLY] = tally
    return tally


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many schedules ran."""
    tally = config.stash.get(TALLY, None)
    if tally is not None:
        terminalreporter.write_line(str(tally))
