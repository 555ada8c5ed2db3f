"""The history of a delivery: what each attempt saw, what providers told later. No content (D-043)."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from operator import getitem
from typing import TYPE_CHECKING, Any, Final

from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Stage
from streams.model.observed import About, Downstream, Engagement, ProviderEvent
from streams.model.verdict import Verdict
from streams.wire.avro import Codec, Written, field_writers, flat_encoder
from streams.wire.values import convert

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTEMPT: Final = "attempt"
"""`source` of what an attempt of ours saw."""

ADOPTED: Final = "adopted"
"""`source` of an attempt whose worker is gone: settled by another one."""

DECISION: Final = "decision"
"""`source` of an end without a call: unknown target, expired."""

PROVIDER: Final = "provider"
"""`source` of a provider's event."""

MESSAGE_ID_HEADER: Final = "message-id"
"""Stands in the record of an attempt that brought a message id: readers find those without decoding."""

_CODEC: Final = Codec("observation")
_write: Final = flat_encoder("observation")
_STAGES: Final = frozenset(Stage)
_VERDICTS: Final = frozenset(Verdict)
_PHASES: Final = frozenset(FailurePhase)
_STATES: Final = frozenset(Downstream)
_ENGAGEMENTS: Final = frozenset(Engagement)
_ABOUTS: Final = frozenset(About)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRecord:
    """One entry of a delivery's history (value of `outbox.observations`, key: the delivery id).

    Attributes:
        target: A registered target's name; empty for an inbox, whose URL can itself be a credential.
        generation: Which intended effect this is.
        attempt: Numbered from 1 within its budget; 0 where there was none.
        source: `attempt`, `adopted`, `decision` or `provider`.
        status: HTTP status, 0 for none.
        stage: Where in the call a fault struck, None when a whole answer came.
        observed_ms: Epoch milliseconds.
        budget: Counts the redrives, from 1.
        phase: Where the delivery stood afterwards; empty for a provider's event.
        worker: Which worker, or API replica, wrote it.
        event_id: See `ProviderEvent`, like all that follow.
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
    source: str = ATTEMPT
    status: int = 0
    stage: Stage | None = None
    duration_ms: int = 0
    budget: int = 1
    phase: str = ""
    failure_phase: FailurePhase | None = None
    provider_message_id: str | None = None
    worker: str = ""
    provider: str = ""
    event_id: str = ""
    provider_event_id: str = ""
    kind: str = ""
    subject: str = ""
    state: Downstream = Downstream.UNKNOWN
    engagement: Engagement = Engagement.NONE
    about: About = About.NOTHING
    provider_code: str = ""
    summary: str = ""
    provider_ms: int = 0


def encode_observation(seen: ObservationRecord) -> bytes:
    """Write one observation."""
    return _write(seen)


def decode_observation(value: bytes) -> ObservationRecord:
    """Read one observation. What a newer version calls otherwise is read as "effect unknown" (G16).

    Raises:
        RecordError: as `Codec.decode`.
    """
    record = _CODEC.decode(value)
    _known(record, "verdict", _VERDICTS, Verdict.AMBIGUOUS)
    _known(record, "stage", _STAGES, Stage.PROTOCOL)
    _known(record, "failure_phase", _PHASES, FailurePhase.AMBIGUOUS_POST_CALL)
    _known(record, "state", _STATES, Downstream.UNKNOWN)
    _known(record, "engagement", _ENGAGEMENTS, Engagement.NONE)
    _known(record, "about", _ABOUTS, About.NOTHING)
    return convert(record, ObservationRecord)


def _known(record: dict[str, Any], field: str, names: frozenset[Any], otherwise: object) -> None:
    if record[field] is not None and record[field] not in names:
        record[field] = otherwise


def event_of(seen: ObservationRecord) -> ProviderEvent | None:
    """The provider's event that a history's entry holds; None for an entry of our own."""
    if seen.source != PROVIDER:
        return None
    return ProviderEvent(
        event_id=seen.event_id,
        provider=seen.provider,
        provider_event_id=seen.provider_event_id,
        kind=seen.kind,
        subject=seen.subject,
        state=seen.state,
        engagement=seen.engagement,
        about=seen.about,
        provider_code=seen.provider_code,
        summary=seen.summary,
        provider_ms=seen.provider_ms,
        observed_ms=seen.observed_ms,
        generation=seen.generation,
    )


class AttemptEncoder:
    """A fast writer of a worker's own observations: one is written for each delivery.

    Most of a record recurs (verdict, code, phase, worker) and is written once; only ids and times are
    written anew. Byte for byte what `encode_observation` writes (tests/unit/wire/test_observations.py).
    """

    __slots__ = ("_end", "_head", "_long", "_middle", "_optional", "_tail", "_text")

    def __init__(self, worker: str) -> None:
        self._head, fields = field_writers("observation")
        self._text, self._long = fields["activity_id"], fields["observed_ms"]
        self._optional = fields["provider_message_id"]
        self._middle = _together(fields, MIDDLE)
        self._tail = _together(fields, TAIL)
        own = {f.name: f.default for f in dataclass_fields(ObservationRecord)} | {"worker": worker}
        names = list(fields)
        self._end = b"".join(fields[n][own[n]] for n in names[names.index("worker") :])

    def encode(
        self,
        ids: tuple[str, str, str, str],
        middle: tuple[int, int, str, Verdict, str, int, Stage | None],
        times: tuple[int, int],
        tail: tuple[int, Phase, FailurePhase | None],
        provider_message_id: str | None,
    ) -> bytes:
        """Write one.

        Args:
            ids: Activity ID, tenant, delivery id, target.
            middle: The fields of `MIDDLE`.
            times: Duration, and time of observation, in milliseconds.
            tail: The fields of `TAIL`.
            provider_message_id: As kept from the answer.
        """
        text, long = self._text, self._long
        return b"".join(
            (
                self._head,
                text[ids[0]],
                text[ids[1]],
                text[ids[2]],
                text[ids[3]],
                self._middle[middle],
                long[times[0]],
                long[times[1]],
                self._tail[tail],
                self._optional[provider_message_id],
                self._end,
            )
        )


MIDDLE: Final = ("generation", "attempt", "source", "verdict", "code", "status", "stage")
TAIL: Final = ("budget", "phase", "failure_phase")
"""Fields that stand side by side in the schema and take few values together."""


def _together(fields: Mapping[str, Written], names: tuple[str, ...]) -> Written:
    """How these fields together are written."""
    writers = [fields[name] for name in names]
    return Written(lambda values: b"".join(map(getitem, writers, values)))
