"""The registry's records: targets as operators put them, and what we ourselves know of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from streams.wire.avro import Codec
from streams.wire.values import convert, fields_of

_TARGET: Final = Codec("target")
_STATE: Final = Codec("target-state")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecord:
    """A registered target (value of `outbox.targets`, key `tenant/name`). Not yet validated.

    Attributes:
        policy: Name of the policy; `policy_overrides` are its fields that differ.
        verdicts: Status -> verdict, overriding the table (C-04).
        retryable: The statuses that may be retried: None is the table's, an empty one the strict
            rule of O-027.
        headers: Further request headers. No credentials: `secret_refs` names those (D-042).
        secret_refs: Signing secrets, newest first; several at once while rotating (C-09).
        signing: Signature scheme, empty for none.
        rate_per_s: Calls per second and worker; 0 is no limit.
        message_id_from: Header name or JSON pointer of the provider message id (D-071), or empty.
        enabled: False: its deliveries are parked.
    """

    name: str
    tenant: str
    url: str
    idempotent: bool = False
    policy: str = "notification"
    policy_overrides: dict[str, int] = field(default_factory=dict)
    verdicts: dict[int, str] = field(default_factory=dict)
    retryable: tuple[int, ...] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    secret_refs: tuple[str, ...] = ()
    signing: str = ""
    rate_per_s: float = 0.0
    message_id_from: str = ""
    http2: bool = False
    enabled: bool = True
    updated_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState:
    """What we ourselves know of a target (key `tenant/name/state`): a 410 disables it (spec §3)."""

    disabled: bool
    code: str
    at_ms: int


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
