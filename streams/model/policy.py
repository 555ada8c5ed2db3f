"""How often, how long and how patiently a delivery is tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MARGIN_MS: Final = 2_000
"""What must lie between call timeout and lease: the time a claim may take until the call starts (C-07)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The bounds of a delivery (spec §2, C-02). All times in milliseconds.

    Attributes:
        name: `activity` or `notification`, or `custom` where a target overrides fields.
        max_attempts: Claims in one budget, >= 1.
        first_delay_ms: Delay before the second attempt; doubles with each further one.
        max_delay_ms: Ceiling of that doubling.
        max_elapsed_ms: A retry that would start later than this after the first claim is not scheduled.
        timeout_ms: Deadline of the whole call: name, connect, TLS, headers, body.
        lease_ms: How long a claim stands; `timeout_ms + MARGIN_MS <= lease_ms`.
        max_age_ms: Unsettled at this age after admission: dead-lettered, `expired` (C-17).
        jitter_ms: Upper bound of the uniform jitter added to each delay.
        max_connections: Connections to one target, per worker process.
        max_idle: Idle connections kept to one target, per worker process.

    Raises:
        ValueError: naming the rule broken.
    """

    name: str
    max_attempts: int
    first_delay_ms: int
    max_delay_ms: int
    max_elapsed_ms: int
    timeout_ms: int
    lease_ms: int
    max_age_ms: int
    jitter_ms: int = 500
    max_connections: int = 20
    max_idle: int = 5

    def __post_init__(self) -> None:
        rules = (
            (self.max_attempts >= 1, "max_attempts must be at least 1"),
            (self.first_delay_ms >= 1, "first_delay_ms must be at least 1"),
            (
                self.max_delay_ms >= self.first_delay_ms,
                "max_delay_ms must not be below first_delay_ms",
            ),
            (self.max_elapsed_ms >= 1, "max_elapsed_ms must be at least 1"),
            (self.timeout_ms >= 1, "timeout_ms must be at least 1"),
            (
                self.timeout_ms + MARGIN_MS <= self.lease_ms,
                f"timeout_ms + {MARGIN_MS} ms of margin must not exceed lease_ms",
            ),
            (self.max_age_ms >= self.lease_ms, "max_age_ms must not be below lease_ms"),
            (self.jitter_ms >= 0, "jitter_ms must not be negative"),
            (self.max_connections >= 1, "max_connections must be at least 1"),
            (
                0 <= self.max_idle <= self.max_connections,
                "max_idle must lie between 0 and max_connections",
            ),
        )
        for holds, rule in rules:
            if not holds:
                raise ValueError(f"policy {self.name!r}: {rule}")


SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

ACTIVITY: Final = Policy(
    name="activity",
    max_attempts=12,
    first_delay_ms=SECOND,
    max_delay_ms=HOUR,
    max_elapsed_ms=24 * HOUR,
    timeout_ms=30 * SECOND,
    lease_ms=45 * SECOND,
    max_age_ms=48 * HOUR,
)
"""Defaults of the `activity` policy (spec §2)."""

NOTIFICATION: Final = Policy(
    name="notification",
    max_attempts=5,
    first_delay_ms=SECOND,
    max_delay_ms=MINUTE,
    max_elapsed_ms=15 * MINUTE,
    timeout_ms=20 * SECOND,
    lease_ms=30 * SECOND,
    max_age_ms=HOUR,
)
"""Defaults of the `notification` policy (D-014..017)."""
