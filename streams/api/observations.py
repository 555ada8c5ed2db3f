"""`GET …/deliveries/{id}/observations`: a delivery's history, and what its events add up to (D-048..055)."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

from starlette.routing import Route

from streams.api.asking import Answer, Asking, Desk
from streams.api.auth import READ, owned
from streams.api.histories import Entry, Histories
from streams.api.problems import Problem
from streams.api.shapes import SeenDelivery
from streams.model.observed import Merged, Standing
from streams.rules.merge import merge
from streams.wire.observations import PROVIDER, ObservationRecord, event_of

LIMIT: Final = 200
LIMIT_MAX: Final = 1_000
CURSOR_PATTERN: Final = "^[A-Za-z0-9_-]{16}$"
PATH: Final = "/api/v2/notifications/deliveries/{delivery_id}/observations"

NOT_READY: Final = Problem(
    503,
    "histories_rebuilding",
    "The histories are being read from Kafka.",
    {"retry-after": "2"},
)


def routes(desk: Desk, histories: Histories) -> list[Route]:
    """The one route of this module; scope `notification:read`."""

    async def observations(asking: Asking) -> Answer:
        """A page of a delivery's history, and the merged state beside it."""
        seen = desk.view.db.delivery(asking.path("delivery_id"))
        delivery = owned(seen, asking.tenant, "delivery")
        limit = asking.number("limit", LIMIT, 1, LIMIT_MAX)
        after = _read_cursor(asking.text("cursor"))
        if not histories.is_ready:
            raise NOT_READY
        entries = histories.entries(delivery.delivery_id)
        own = [entry for entry in entries if entry.seen.tenant == asking.tenant]
        return Answer(body=shown(delivery, own, limit=limit, after=after))

    return [Route(PATH, desk.endpoint(observations, READ, frozenset({"limit", "cursor"})))]


def shown(
    delivery: SeenDelivery, entries: list[Entry], *, limit: int = LIMIT, after: bytes = b""
) -> dict[str, Any]:
    """The answer: a page of the history, and the merged state of the present generation beside it.

    `status` is the ledger's and `sent` there means accepted (D-048); `downstream` is the providers'.
    """
    events = [event for entry in entries if (event := event_of(entry.seen)) is not None]
    merged = merge(events, generation=delivery.generation)
    page = [entry for entry in entries if entry.place > after]
    more = len(page) > limit
    page = page[:limit]
    return {
        "delivery_id": delivery.delivery_id,
        "activity_id": delivery.activity_id,
        "status": delivery.status,
        "generation": delivery.generation,
        "provider_message_id": delivery.provider_message_id,
        "downstream": _merged(merged),
        "observations": [_entry(entry.seen) for entry in page],
        "next_cursor": urlsafe_b64encode(page[-1].place).decode() if more else None,
    }


def _merged(merged: Merged) -> dict[str, Any]:
    return {
        **_standing(merged.standing),
        "subjects": [
            {"subject": name, **_standing(each)} for name, each in merged.subjects.items()
        ],
        "events": merged.events,
        "repeats": merged.repeats,
    }


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state,
        "engagement": standing.engagement,
        "about": standing.about or None,
        "provider_code": standing.provider_code or None,
        "summary": standing.summary or None,
        "provider_ms": standing.provider_ms or None,
    }


def _entry(seen: ObservationRecord) -> dict[str, Any]:
    """One entry; the fields of an attempt and those of a provider's event are never mixed."""
    common = {
        "source": seen.source,
        "observed_ms": seen.observed_ms,
        "generation": seen.generation,
    }
    if seen.source != PROVIDER:
        return common | {
            "worker": seen.worker,
            "budget": seen.budget,
            "attempt": seen.attempt,
            "phase": seen.phase,
            "verdict": seen.verdict,
            "code": seen.code,
            "http_status": seen.status or None,
            "stage": seen.stage,
            "failure_phase": seen.failure_phase,
            "duration_ms": seen.duration_ms,
            "provider_message_id": seen.provider_message_id,
        }
    return common | {
        "provider": seen.provider,
        "event_id": seen.event_id,
        "provider_event_id": seen.provider_event_id or None,
        "kind": seen.kind,
        "subject": seen.subject or None,
        "state": seen.state,
        "engagement": seen.engagement,
        "about": seen.about or None,
        "provider_code": seen.provider_code or None,
        "summary": seen.summary,
        "provider_ms": seen.provider_ms or None,
    }


def _read_cursor(text: str | None) -> bytes:
    """The place of a cursor, twelve bytes; empty for none."""
    if text is None:
        return b""
    if not re.fullmatch(CURSOR_PATTERN, text):
        raise Problem(400, "cursor_invalid", "cursor must be the next_cursor of an earlier page.")
    return urlsafe_b64decode(text)
