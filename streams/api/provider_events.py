"""Provider events in: signed, bounded, read by a shape, matched to a delivery, appended (D-048..056).

Nothing is changed by what is not proved to come from the provider: it is counted, and answered 401 in
one way, whatever was wrong. A signed body's bad items spoil no good ones. A repeated event is taken
and changes nothing, so a provider may try again as often as it likes.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streams.api.histories import Histories, Reference
from streams.api.observations import NOT_READY
from streams.api.problems import Problem
from streams.api.providers import UNKNOWN, Provider
from streams.api.shapes import SeenDelivery
from streams.model.verdict import Verdict
from streams.rules.providers import Told, read_events
from streams.wire.observations import PROVIDER, ObservationRecord, encode_observation
from streams.wire.signatures.verifying import Proof

log = structlog.get_logger(__name__)

PATH: Final = "/api/v2/notifications/provider-events/{provider}"

BODY_BYTES_MAX: Final = 64 * 1024

EVENTS_OF_A_DELIVERY_MAX: Final = 1_000
"""Different events kept of one delivery; what goes beyond is counted and changes nothing."""

LOOKS: Final = 4
LOOK_S: Final = 0.5
"""How often, and after what wait, a message id is looked for again that is not known: a provider's first
event can be here before the history of the call that it is about."""

YOUNG_MS: Final = 60_000
"""An event older than this is not waited for: it belongs to somebody else's message."""

REFUSED: Final = Problem(
    401, "signature_invalid", "The request must be signed by the provider's key, just now."
)


class Deliveries(Protocol):
    """Knows deliveries by their public ids; `View.db` does."""

    def delivery(self, delivery_id: str) -> SeenDelivery | None:
        """A delivery, whosever it is."""


class EventLog(Protocol):
    """Appends to `outbox.observations`."""

    async def append(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Append partition, key and value of each; done when all are durable.

        Raises:
            Problem: 503, where one is not.
        """


class EventCounts:
    """What came in, by provider and outcome. Labels: configured names, and a closed set."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._events = Counter(
            "outbox_provider_events",
            "Provider events, or requests refused, by outcome",
            ["provider", "outcome"],
            registry=registry,
        )

    def add(self, provider: str, outcome: str, count: int = 1) -> None:
        """Count `count` more."""
        if count:
            self._events.labels(provider, outcome).inc(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What the route needs of the world.

    Attributes:
        pause: Waits so many seconds.
        replica: Names this process in what it writes.
    """

    providers: Mapping[str, Provider]
    deliveries: Deliveries
    histories: Histories
    events: EventLog
    counts: EventCounts
    now_ms: Callable[[], int]
    pause: Callable[[float], Awaitable[None]]
    replica: str


def routes(intake: Intake) -> list[Route]:
    """The one route of this module. It asks for no bearer token: the signature is the proof."""

    async def provider_events(request: Request) -> Response:
        name = request.path_params["provider"]
        provider = intake.providers.get(name)
        label = UNKNOWN if provider is None else name
        try:
            body = await _body(request)
        except Problem as problem:
            intake.counts.add(label, problem.code)
            raise
        if provider is None:
            intake.counts.add(UNKNOWN, "unknown_provider")
            raise REFUSED
        now_ms = intake.now_ms()
        proof = provider.verifier.verify(
            request.headers, body, now_s=now_ms // 1_000, window=provider.window
        )
        if proof is not Proof.GOOD:
            intake.counts.add(name, proof)
            log.warning("provider_event.refused", provider=name, why=proof.value)
            raise REFUSED
        if not intake.histories.is_ready:
            raise NOT_READY
        parsed = _parsed(request.headers.get("content-type", ""), body)
        if parsed is None:
            intake.counts.add(name, "malformed")
            raise Problem(400, "body_invalid", "The body must be JSON, or a form.")
        return JSONResponse(await _take(intake, provider, parsed, now_ms), 202)

    return [Route(PATH, provider_events, methods=["POST"])]


async def _body(request: Request) -> bytes:
    """The body, never more of it than may be.

    Raises:
        Problem: 413.
    """
    too_large = Problem(413, "too_large", f"The body must be at most {BODY_BYTES_MAX} bytes.")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and (len(declared) > 9 or int(declared) > BODY_BYTES_MAX):
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_BYTES_MAX:
                raise too_large
    except ClientDisconnect:
        raise Problem(400, "body_incomplete", "The body must arrive whole.") from None
    return bytes(body)


def _parsed(content_type: str, body: bytes) -> Any:
    """JSON as Python has it, or a form's fields; None for what is neither."""
    if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        try:
            return dict(parse_qsl(body.decode(), max_num_fields=200))
        except ValueError:
            return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


async def _take(intake: Intake, provider: Provider, body: object, now_ms: int) -> dict[str, int]:
    """Read, match and append; say how many of each."""
    reading = read_events(provider.shape, provider.name, body, observed_ms=now_ms)
    matched = await _matched(intake, provider.tenant, reading.told, now_ms)
    tally = Tally[str]({"unread": reading.unread, "unmatched": len(reading.told) - len(matched)})
    known: dict[str, set[str]] = {}
    records = []
    for told, reference in matched:
        seen = known.get(reference.delivery_id)
        if seen is None:
            entries = intake.histories.entries(reference.delivery_id)
            seen = {entry.seen.event_id for entry in entries if entry.seen.event_id}
            known[reference.delivery_id] = seen
        outcome = _outcome(told, seen)
        tally[outcome] += 1
        if outcome == "accepted":
            seen.add(told.event.event_id)
            records.append(_record(told, reference, provider, intake.replica))
    if records:
        await intake.events.append(records)
    for outcome, count in tally.items():
        intake.counts.add(provider.name, outcome, count)
    names = ("accepted", "repeated", "unmatched", "unread", "beyond_bound")
    return {name: tally[name] for name in names}


def _outcome(told: Told, seen: set[str]) -> str:
    if told.event.event_id in seen:
        return "repeated"
    return "accepted" if len(seen) < EVENTS_OF_A_DELIVERY_MAX else "beyond_bound"


async def _matched(
    intake: Intake, tenant: str, told: Sequence[Told], now_ms: int
) -> list[tuple[Told, Reference]]:
    """The events whose delivery is known, and is the provider's tenant's."""
    for look in range(LOOKS):
        found = [(each, _reference(intake, tenant, each)) for each in told]
        missing = [each for each, reference in found if reference is None]
        if look + 1 == LOOKS or not any(_is_awaited(each, now_ms) for each in missing):
            break
        await intake.pause(LOOK_S)
    return [(each, reference) for each, reference in found if reference is not None]


def _is_awaited(told: Told, now_ms: int) -> bool:
    """Whether its delivery may still come to be known. Without a time it may be as old as can be."""
    return bool(told.message_id) and told.event.provider_ms > now_ms - YOUNG_MS


def _reference(intake: Intake, tenant: str, told: Told) -> Reference | None:
    """By our own id, where it came back; else by the provider's."""
    if told.delivery_id:
        seen = intake.deliveries.delivery(told.delivery_id)
        if seen is None or seen.tenant != tenant or told.generation > seen.generation:
            return None
        return Reference(
            tenant=tenant,
            delivery_id=seen.delivery_id,
            activity_id=seen.activity_id,
            generation=told.generation,
            partition=seen.partition,
        )
    return intake.histories.by_message_id(tenant, told.message_id) if told.message_id else None


def _record(
    told: Told, reference: Reference, provider: Provider, replica: str
) -> tuple[int, bytes, bytes]:
    event = told.event
    value = encode_observation(
        ObservationRecord(
            activity_id=reference.activity_id,
            tenant=reference.tenant,
            delivery_id=reference.delivery_id,
            target="",
            generation=reference.generation,
            attempt=0,
            # Accepted it was, or nobody could tell of it; what an attempt saw stands in its own entry.
            verdict=Verdict.SENT,
            code="",
            observed_ms=event.observed_ms,
            source=PROVIDER,
            worker=replica,
            provider=provider.name,
            event_id=event.event_id,
            provider_event_id=event.provider_event_id,
            kind=event.kind,
            subject=event.subject,
            state=event.state,
            engagement=event.engagement,
            about=event.about,
            provider_code=event.provider_code,
            summary=event.summary,
            provider_ms=event.provider_ms,
        )
    )
    return reference.partition, reference.delivery_id.encode(), value
