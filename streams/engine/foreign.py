"""Claims that no task of ours holds: waited for until they are reported, or their lease ends (rule 5)."""

from __future__ import annotations

from collections.abc import Callable

from streams.engine.ports import Time
from streams.engine.rows import Rows
from streams.engine.watchers import Watchers
from streams.model.ledger import Phase, Row
from streams.model.verdict import Judgement
from streams.wire.commands import LateReport


class ForeignClaims:
    """The foreign claims of one partition.

    Args:
        goes_on: Whether we lead the partition and may wait at all.
    """

    def __init__(
        self, rows: Rows, watchers: Watchers, time: Time, *, goes_on: Callable[[], bool]
    ) -> None:
        self.late_reports: dict[bytes, Judgement] = {}
        self.longest_lease_ms = 0
        """Of those that were waited for: a policy may have been shortened since."""
        self._rows = rows
        self._watchers = watchers
        self._time = time
        self._goes_on = goes_on
        self._first_seen: dict[bytes, float] = {}

    async def outcome(self, key: bytes, row: Row) -> Judgement | bool | None:
        """Wait for a claim to be reported late, or for its lease to end.

        The lease runs on our own monotonic clock from first sight.

        Returns:
            The late judgement; None when the lease ended without one; True when the row moved on by
            itself; False when we no longer lead.
        """
        now = self._time.monotonic()
        self.longest_lease_ms = max(self.longest_lease_ms, row.lease_ms)
        ends = self._first_seen.setdefault(row.token, now) + row.lease_ms / 1000
        while self._goes_on():
            current = self._rows.row(key)
            if current is None or current.phase is not Phase.CLAIMED or current.token != row.token:
                self._first_seen.pop(row.token, None)
                return True
            late = self.late_reports.get(row.token)
            if late is not None:
                return late
            if self._time.monotonic() >= ends:
                return None
            await self._watchers.changed(key, within_s=ends - self._time.monotonic())
        return False

    def heard(self, report: LateReport) -> None:
        """Note a late report and wake who waits for it."""
        self.late_reports[report.token] = report.judgement
        self._watchers.wake(report.delivery_key)

    def forget(self, token: bytes) -> None:
        """Drop what was remembered of a claim that is settled."""
        self.late_reports.pop(token, None)
        self._first_seen.pop(token, None)
