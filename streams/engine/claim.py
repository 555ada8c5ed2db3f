"""The right to make one attempt."""

from __future__ import annotations

import msgspec

from streams.model.ledger import Row


class Claim(msgspec.Struct, frozen=True):
    """The right to make one attempt, folded as valid.

    Attributes:
        key: The delivery's ledger key.
        row: The row as folded, its fence set.
        epoch: The epoch under which it was appended; reports go under it.
        started: Monotonic seconds when the claim was asked for.
        mine: False for a foreign claim that is being adopted.
    """

    key: bytes
    row: Row
    epoch: int
    started: float
    mine: bool = True
