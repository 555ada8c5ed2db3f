"""What makes a delivery move: a source record, a due retry."""

from __future__ import annotations

import msgspec

from streams.engine.partition import Partition
from streams.model.activity import Activity, Recipient
from streams.model.ledger import Row
from streams.rules.decide import Turned
from streams.rules.triggers import is_wanted_by_retry, is_wanted_by_source


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """An activity and the record that carried it, as a retry record carries it on.

    Attributes:
        activity: As read.
        value: The record's value, byte for byte.
        headers: Its headers, ours taken out.
    """

    activity: Activity
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery's reason to be looked at, from one record of one assignment.

    Attributes:
        partition: The ledger partition of its activity.
        assignment: The partition's assignment in which the record was fetched (rule 9).
        key: The delivery's ledger key.
        delivery_id: Its public id.
        carried: Its activity.
        recipient: Whom it tells.
        fence: None for a source record; else the fence that the retry carries (rule 8).
        attempts: Claims so far that the retry carries.
        budget: That the retry carries; see `RetryItem`.
        admitted_ms: When its activity was first seen.
        turned: Why it must not be called at all, known before it is looked at.
        parked_ms: How long it was parked since its row was last written; no part of its age (C-17).
    """

    partition: Partition
    assignment: int
    key: bytes
    delivery_id: str
    carried: Carried
    recipient: Recipient
    fence: int | None = None
    attempts: int = 0
    budget: int | None = None
    admitted_ms: int = 0
    turned: Turned | None = None
    parked_ms: int = 0

    def wants(self, row: Row | None) -> bool:
        """Whether it may claim, given the folded row."""
        if self.fence is None:
            return is_wanted_by_source(row)
        return is_wanted_by_retry(row, fence=self.fence, attempts=self.attempts, budget=self.budget)
