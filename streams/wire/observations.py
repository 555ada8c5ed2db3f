"""The history of a delivery's attempts: what each one saw. Facts and codes, no content (D-043)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.model.observation import Stage
from streams.model.verdict import Verdict
from streams.wire.avro import Codec
from streams.wire.values import convert, fields_of

_CODEC: Final = Codec("observation")
_STAGES: Final = frozenset(Stage)
_VERDICTS: Final = frozenset(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRecord:
    """One attempt's observation with its verdict (value of `outbox.observations`).

    Attributes:
        attempt: Numbered from 1 within its budget.
        source: Who saw it; `attempt` for our own calls.
        status: HTTP status, 0 for none.
        stage: Where in the call a fault struck, None when a whole answer came.
        observed_ms: Epoch milliseconds.
    """

    activity_id: str
    tenant: str
    delivery_id: str
    target: str
    generation: int
    attempt: int
    verdict: Verdict
    code: str
    observed_ms: int
    source: str = "attempt"
    status: int = 0
    stage: Stage | None = None
    duration_ms: int = 0


def encode_observation(seen: ObservationRecord) -> bytes:
    """Write one observation."""
    return _CODEC.encode(fields_of(seen))


def decode_observation(value: bytes) -> ObservationRecord:
    """Read one observation. What a newer version calls otherwise is read as "effect unknown" (G16).

    Raises:
        RecordError: as `Codec.decode`.
    """
    record = _CODEC.decode(value)
    if record["verdict"] not in _VERDICTS:
        record["verdict"] = Verdict.AMBIGUOUS
    if record["stage"] is not None and record["stage"] not in _STAGES:
        record["stage"] = Stage.PROTOCOL
    return convert(record, ObservationRecord)
