"""A run of the suite: the stage, its scale, and what figures share so that it is measured once."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench.preload import known_rows
from tests.bench.receivers import Place, receiver
from tests.bench.stage import Stage, World, in_flight

if TYPE_CHECKING:
    from tests.bench.deliveries import Measured


@dataclass(slots=True)
class Suite:
    """Figures get this and nothing else.

    Attributes:
        scale: Of the amount of work; 1 is what the issue asks for.
        closing: What lives until the end of the suite is entered here.
        measured: The deliveries' runs, for the three figures that read them, and `latency`'s rate.
    """

    stage: Stage
    scale: float
    closing: AsyncExitStack
    measured: Measured | None = None
    wanted: frozenset[str] = frozenset()
    _known: World | None = None
    _began: float = field(default_factory=time.monotonic)

    def some(self, whole: int, *, least: int = 1) -> int:
        """So much of the work at this scale."""
        return max(least, round(whole * self.scale))

    def runs(self, whole: int) -> int:
        """So many runs; one where the scale is for trying the code out."""
        return whole if self.scale >= 0.2 else 1

    def say(self, line: str) -> None:
        """Tell on standard error how it goes on."""
        print(f"[{time.monotonic() - self._began:6.1f} s] {line}", file=sys.stderr, flush=True)

    @asynccontextmanager
    async def receiver(self, *, logs: bool = False, slow: bool = False) -> AsyncIterator[Place]:
        """A receiver for one figure."""
        folder = self.stage.make_folder("receiver")
        async with receiver(folder, logs=logs, slow=slow) as place:
            yield place

    @property
    def known_deliveries(self) -> int:
        """A million, at this scale."""
        return self.some(1_000_000, least=2_000) // 10 * 10

    async def known_world(self) -> World:
        """The world whose ledger knows a million deliveries, made once and kept to the end."""
        if self._known is None:
            self.say(f"preloading a ledger of {self.known_deliveries:,} deliveries")
            world = await self.closing.enter_async_context(self.stage.world(**in_flight(64)))
            rows = known_rows(self.known_deliveries, int(time.time() * 1000))
            await world.preload(world.topics.ledger, rows)
            self._known = world
        return self._known
