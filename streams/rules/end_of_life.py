"""When an activity may be forgotten (design §3): its rows become tombstones together."""

from __future__ import annotations

from typing import Final

from streams.model.ledger import ActivityRow, Phase, Row

LOOK_AGAIN_MS: Final = 24 * 60 * 60 * 1_000
"""An activity that is kept for a dead letter or an open delivery is looked at again a day later."""


def keep_until(
    activity: ActivityRow | None, rows: list[Row], *, now_ms: int, dedupe_window_ms: int
) -> int | None:
    """Until when an activity is to be kept; None when it may be forgotten now.

    It may be once none of its deliveries is open or unclaimed, none is an unresolved dead letter, and
    the dedupe window has passed since the last one was settled: a repetition that comes later is older
    than the window itself and is not sent (`admission`/`expired`).

    Args:
        activity: None where its own row was forgotten, and that of a delivery was not.
        rows: Of its deliveries.
    """
    settled = [row for row in rows if row.phase in (Phase.SENT, Phase.SKIPPED)]
    owed = 0 if activity is None else activity.deliveries
    if len(settled) < max(owed, len(rows)):
        return now_ms + LOOK_AGAIN_MS
    seen_ms = 0 if activity is None else activity.first_seen_ms
    last_ms = max((row.settled_ms for row in settled), default=seen_ms)
    ends_ms = last_ms + dedupe_window_ms
    return ends_ms if now_ms < ends_ms else None
