"""When a delivery is tried again, or that it is not: the bounds of a policy applied (spec §2).

There is one scheduler and no hidden inner loop (O-001): whatever retries, asks here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.model.policy import Policy
from streams.rules.retry_after import wait_ms

ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
ELAPSED_EXHAUSTED: Final = "elapsed_exhausted"
RETRY_AFTER_TOO_LONG: Final = "retry_after_too_long"
EXPIRED: Final = "expired"


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt may start at `due_ms` (epoch milliseconds), not before."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt; `code` says which bound was met (`docs/codes.md`)."""

    code: str


def delay_ms(policy: Policy, attempts: int) -> int:
    """The delay after `attempts` claims: `first_delay_ms`, doubling up to `max_delay_ms`."""
    # Past this many doublings the ceiling holds anyway; a large count must not build a large int.
    doublings = min(max(attempts - 1, 0), policy.max_delay_ms.bit_length())
    return min(policy.first_delay_ms << doublings, policy.max_delay_ms)


def schedule(
    policy: Policy,
    *,
    attempts: int,
    first_claim_ms: int,
    admitted_ms: int,
    now_ms: int,
    jitter: float,
    retry_after: tuple[str, ...] = (),
) -> Retry | GiveUp:
    """Say when the next attempt may start, or why there is none.

    `Retry-After` lengthens the delay and never shortens it; jitter comes on top (D-018, D-019).
    A start that a bound forbids is never moved forward to fit under it (C-06).

    Args:
        policy: The target's bounds.
        attempts: Claims spent in this budget, the last one included.
        first_claim_ms: When this budget's first claim was made.
        admitted_ms: What the delivery's age counts from, parked time taken off (C-17).
        now_ms: Epoch milliseconds.
        jitter: Uniform in 0..1; the share of `policy.jitter_ms` that is added.
        retry_after: `Judgement.retry_after`.
    """
    assert 0.0 <= jitter <= 1.0, "jitter is a share: it lies in 0..1, so that it can only add"
    if attempts >= policy.max_attempts:
        return GiveUp(ATTEMPTS_EXHAUSTED)
    own_ms = delay_ms(policy, attempts)
    asked_ms = wait_ms(retry_after, now_ms) or 0
    earliest_ms = now_ms + int(jitter * policy.jitter_ms)
    due_ms = earliest_ms + max(own_ms, asked_ms)
    last_start_ms = first_claim_ms + policy.max_elapsed_ms
    if earliest_ms + own_ms > last_start_ms:
        return GiveUp(ELAPSED_EXHAUSTED)
    if due_ms > last_start_ms:
        return GiveUp(RETRY_AFTER_TOO_LONG)
    if due_ms > admitted_ms + policy.max_age_ms:
        return GiveUp(EXPIRED)
    return Retry(due_ms)
