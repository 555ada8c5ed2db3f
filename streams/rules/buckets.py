"""Where a waiting retry waits: few delay topics of fixed length, memory for the rest (design §5).

Every record of a bucket stays exactly the bucket's length from its own timestamp, so order in the
topic is order of waking and the head tells all: no long wait stands in front of a short one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BUCKETS: Final = (
    ("1s", 1_000),
    ("5s", 5_000),
    ("30s", 30_000),
    ("2m", 120_000),
    ("10m", 600_000),
    ("1h", 3_600_000),
)
"""Name and length in milliseconds of each bucket, shortest first; topics are named after them."""

_LENGTHS_MS: Final = dict(BUCKETS)

_LONGEST_MS: Final = BUCKETS[-1][1]

_DESCENT: Final = 22
"""Hops that a wait under an hour can need: 5 of 10 m, 4 of 2 m, 3 of 30 s, 5 of 5 s, 4 of 1 s, and
one for what is left under a second."""


@dataclass(frozen=True, slots=True)
class Fire:
    """It is due: hand it on."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep it in memory until `until_ms` (epoch milliseconds)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Hop:
    """Write it to `bucket` and let go of it."""

    bucket: str


def bucket_for(wait_ms: int) -> str:
    """The largest bucket that is not longer than the wait; the smallest if none is."""
    fitting = [name for name, length_ms in BUCKETS if length_ms <= wait_ms]
    return fitting[-1] if fitting else BUCKETS[0][0]


def wake_ms(bucket: str, timestamp_ms: int) -> int:
    """When a record of `bucket` written at `timestamp_ms` wakes.

    Raises:
        KeyError: there is no such bucket; bucket names come from our own topics only.
    """
    return timestamp_ms + _LENGTHS_MS[bucket]


def hop(
    due_ms: int, woke_ms: int, held_bytes: int, record_bytes: int, max_held_bytes: int
) -> Fire | Hold | Hop:
    """Say what becomes of a record that woke at `woke_ms`: never fired before it is due.

    Time that is left is spent in memory while `held_bytes` and the record stay within the bound,
    and in a further bucket otherwise. A record that woke late, past `due_ms`, is fired at once.
    """
    if woke_ms >= due_ms:
        return Fire()
    if held_bytes + record_bytes <= max_held_bytes:
        return Hold(due_ms)
    return Hop(bucket_for(due_ms - woke_ms))


def hops_max(wait_ms: int) -> int:
    """How many times a record of this wait can be written to a bucket, with no memory at all.

    An hour each while an hour is left, then the descent: 46 for 24 h, the elapsed limit of the
    `activity` policy.
    """
    return wait_ms // _LONGEST_MS + _DESCENT
