"""The registry's records: targets as operators put them, and what we ourselves know of one."""

from __future__ import annotations

from typing import Final

from streams.model.target import TargetRecord, TargetState
from streams.wire.avro import Codec
from streams.wire.values import convert, fields_of

__all__ = [
    "TargetRecord",
    "TargetState",
    "decode_target",
    "decode_target_state",
    "encode_target",
    "encode_target_state",
]

_TARGET: Final = Codec("target")
_STATE: Final = Codec("target-state")


def encode_target(target: TargetRecord) -> bytes:
    """Write a registered target."""
    return _TARGET.encode(fields_of(target))


def decode_target(value: bytes) -> TargetRecord:
    """Read a registered target.

    Raises:
        RecordError: as `Codec.decode`; `record_invalid` for a value that breaks its type.
    """
    return convert(_TARGET.decode(value), TargetRecord)


def encode_target_state(state: TargetState) -> bytes:
    """Write what is known of a target."""
    return _STATE.encode(fields_of(state))


def decode_target_state(value: bytes) -> TargetState:
    """Read what is known of a target.

    Raises:
        RecordError: as `Codec.decode`.
    """
    return convert(_STATE.decode(value), TargetState)
