"""What one attempt saw: a status, or a fault and the stage it struck in. A fact, not a judgement."""

from __future__ import annotations

import msgspec

from streams.model.words import Word


class Stage(Word):
    """Where in a call a fault struck, in the order of a call.

    Everything up to and including `TLS` is *before*: no byte of the request can have reached the
    target (C-05). Everything from `WRITE` on is *after*: the effect is unknown.
    """

    ADDRESS = "address"
    """The URL or an address it resolves to is not allowed to be called (C-10)."""
    POOL = "pool"
    """No connection of the target came free in time."""
    NAME = "name"
    """The name did not resolve."""
    CONNECT = "connect"
    """The connection did not come to stand."""
    TLS = "tls"
    """The TLS handshake failed."""
    WRITE = "write"
    """The request may have left in part or whole; it could not be written to its end."""
    READ = "read"
    """The request left; no whole answer came: reset, closed, or the deadline passed."""
    PROTOCOL = "protocol"
    """The request left; what came back is not an HTTP answer, or breaks a bound."""


BEFORE = frozenset({Stage.ADDRESS, Stage.POOL, Stage.NAME, Stage.CONNECT, Stage.TLS})
"""Stages in which no byte of the request can have reached the target."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A call that brought no whole answer.

    Attributes:
        stage: Where in the call it struck.
        code: Stable, content-free code, e.g. `connect_refused`, `read_timeout` (`docs/codes.md`).
    """

    stage: Stage
    code: str

    @property
    def is_before(self) -> bool:
        """Whether it is proved that no byte of the request reached the target."""
        return self.stage in BEFORE


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt saw: a status or a fault, never both.

    Attributes:
        status: The final HTTP status (100..599 is not judged here), or None when a fault struck.
        fault: The fault, or None when a whole status line and head came.
        retry_after: Every `Retry-After` value of the answer, in order, undecoded as latin-1 text.
        provider_message_id: What the target's `message_id_from` names, at most 128 characters (D-071).
        duration_ms: Wall time of the call.
    """

    status: int | None = None
    fault: Fault | None = None
    retry_after: tuple[str, ...] = ()
    provider_message_id: str | None = None
    duration_ms: int = 0

    def __post_init__(self) -> None:
        if (self.status is None) == (self.fault is None):
            raise ValueError("an observation is a status or a fault, never both and never neither")
