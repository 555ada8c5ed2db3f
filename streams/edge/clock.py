"""Time and chance, as one value that tests and simulations replace."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Clock:
    """The wall clock, the monotonic clock, and the two kinds of chance."""

    _random: random.Random = field(default_factory=random.Random)

    def now_ms(self) -> int:
        """Wall clock, epoch milliseconds: for due dates and ages, never for being right."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back: for leases and deadlines."""
        return time.monotonic()

    def jitter(self) -> float:
        """Uniform in 0..1."""
        return self._random.random()

    def token(self) -> bytes:
        """16 bytes that nobody chose before: names one append. No secret.

        From a generator seeded by the system: `os.urandom` cost 3 % of a delivery (py-spy).
        """
        return self._random.randbytes(16)
