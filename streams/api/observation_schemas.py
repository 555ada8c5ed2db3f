"""What OpenAPI says of histories and of provider events: `Parts.more_paths`."""

from __future__ import annotations

from typing import Any, Final

from streams.api import observations, provider_events
from streams.api.auth import READ
from streams.api.openapi_schemas import NUMBER, TEXT, TIME, Schema, an_object, one_of, or_null, ref
from streams.api.problems import MEDIA_TYPE
from streams.api.shapes import Status
from streams.api.tokens import PATTERN
from streams.model.ledger import FailurePhase, Phase
from streams.model.observation import Stage
from streams.model.observed import About, Downstream, Engagement
from streams.model.verdict import Verdict
from streams.wire.observations import ADOPTED, ATTEMPT, DECISION, PROVIDER


def _maybe(words: Any) -> Schema:
    return {"type": ["string", "null"], "enum": [*(str(word) for word in words if word), None]}


_STANDING: Final[dict[str, Schema]] = {
    "state": one_of(Downstream),
    "engagement": one_of(Engagement),
    "about": _maybe(About),
    "provider_code": or_null(TEXT),
    "summary": or_null(TEXT),
    "provider_ms": or_null(TIME),
}
_COMMON: Final[dict[str, Schema]] = {"observed_ms": TIME, "generation": NUMBER}
_ATTEMPT: Final = an_object(
    {
        "source": one_of([ATTEMPT, ADOPTED, DECISION]),
        **_COMMON,
        "worker": TEXT,
        "budget": NUMBER,
        "attempt": NUMBER,
        "phase": one_of(Phase),
        "verdict": one_of(Verdict),
        "code": TEXT,
        "http_status": or_null(NUMBER),
        "stage": _maybe(Stage),
        "failure_phase": _maybe(FailurePhase),
        "duration_ms": NUMBER,
        "provider_message_id": or_null(TEXT),
    }
)
_EVENT: Final = an_object(
    {
        "source": one_of([PROVIDER]),
        **_COMMON,
        "provider": TEXT,
        "event_id": TEXT,
        "provider_event_id": or_null(TEXT),
        "kind": TEXT,
        "subject": or_null(TEXT),
        "state": one_of(Downstream),
        "engagement": one_of(Engagement),
        "about": _maybe(About),
        "provider_code": or_null(TEXT),
        "summary": TEXT,
        "provider_ms": or_null(TIME),
    }
)
_HISTORY: Final = an_object(
    {
        "delivery_id": TEXT,
        "activity_id": TEXT,
        "status": one_of(Status),
        "generation": NUMBER,
        "provider_message_id": or_null(TEXT),
        "downstream": an_object(
            {
                **_STANDING,
                "subjects": {"type": "array", "items": an_object({"subject": TEXT, **_STANDING})},
                "events": NUMBER,
                "repeats": NUMBER,
            }
        ),
        "observations": {"type": "array", "items": {"oneOf": [_ATTEMPT, _EVENT]}},
        "next_cursor": or_null(TEXT),
    }
)
_TAKEN: Final = an_object(
    dict.fromkeys(("accepted", "repeated", "unmatched", "unread", "beyond_bound"), NUMBER),
    {"accepted": 1, "repeated": 0, "unmatched": 0, "unread": 0, "beyond_bound": 0},
)


def _answers(good: str, schema: Schema, problems: dict[int, str]) -> Schema:
    return {
        good: {"description": "Done.", "content": {"application/json": {"schema": schema}}},
        **{
            str(status): {
                "description": text,
                "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
            }
            for status, text in problems.items()
        },
    }


def _parameter(name: str, place: str, schema: Schema, *, required: bool = False) -> Schema:
    return {"name": name, "in": place, "required": required, "schema": schema}


def paths() -> dict[str, Schema]:
    """The path items of `observations.routes` and `provider_events.routes`."""
    limit = {"type": "integer", "minimum": 1, "maximum": observations.LIMIT_MAX}
    return {
        observations.PATH: {
            "get": {
                "operationId": "listObservations",
                "summary": "A delivery's history, append-only, and what providers' events add up to",
                "parameters": [
                    _parameter("X-Tenant-ID", "header", TEXT),
                    _parameter("delivery_id", "path", TEXT, required=True),
                    _parameter("limit", "query", limit),
                    _parameter(
                        "cursor",
                        "query",
                        {"type": "string", "pattern": observations.CURSOR_PATTERN},
                    ),
                    _parameter("at-least", "query", {"type": "string", "pattern": PATTERN}),
                ],
                "responses": _answers(
                    "200",
                    _HISTORY,
                    {
                        400: "A parameter breaks a rule.",
                        401: "No valid bearer token.",
                        403: "The token lacks the scope, or is not for that tenant.",
                        404: "There is none, or it is another tenant's.",
                        409: "The read model has not read as far as `at-least` says.",
                        429: "Too many requests with this token.",
                        503: "The histories are being read from Kafka.",
                    },
                ),
                "security": [{"bearer": [READ]}],
            }
        },
        provider_events.PATH: {
            "post": {
                "operationId": "takeProviderEvents",
                "summary": "Events of a provider, signed by its key (Standard Webhooks)",
                "parameters": [
                    _parameter("provider", "path", TEXT, required=True),
                    _parameter("webhook-id", "header", TEXT),
                    _parameter("webhook-timestamp", "header", TEXT),
                    _parameter("webhook-signature", "header", TEXT),
                ],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {}},
                        "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
                    }
                },
                "responses": _answers(
                    "202",
                    _TAKEN,
                    {
                        400: "The body is neither JSON nor a form.",
                        401: "Not signed by a key of that provider, or not lately.",
                        413: f"Over {provider_events.BODY_BYTES_MAX} bytes.",
                        503: "The events could not be written: send them again.",
                    },
                ),
                "security": [],
            }
        },
    }
