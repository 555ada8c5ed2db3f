"""The OpenAPI document's schemas and examples."""

from __future__ import annotations

from typing import Any, Final

from streams.api.jobs import RATE_PER_S_MAX
from streams.api.shapes import JobEnd, Reach, Status
from streams.model.ledger import FailurePhase, Phase
from streams.rules.decide import EffectMode

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "integer", "description": "Epoch milliseconds."}
REASON: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 512,
    "pattern": r"\S",
    "description": "Why; stored redacted (D-074).",
}


def or_null(schema: Schema) -> Schema:
    """The schema, or null for "not yet" and "none"."""
    return {**schema, "type": [schema["type"], "null"]}


def one_of(words: Any) -> Schema:
    """One of some words."""
    return {"type": "string", "enum": [str(word) for word in words]}


def an_object(properties: dict[str, Schema], example: Any = None) -> Schema:
    """An object of exactly these properties."""
    shape: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return shape if example is None else {**shape, "examples": [example]}


def ref(name: str) -> Schema:
    """A schema by name."""
    return {"$ref": f"#/components/schemas/{name}"}


DELIVERY_EXAMPLE: Final = {
    "delivery_id": "dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f",
    "activity_id": "https://a.example/activities/1",
    "target": "crm",
    "status": "failed",
    "reach": "never",
    "phase": "dead",
    "attempts": 5,
    "generation": 1,
    "failure_phase": "ambiguous_post_call",
    "code": "attempts_exhausted",
    "cause": "http_500",
    "http_status": 500,
    "reconciliation_required": False,
    "effect_unknown": True,
    "provider_message_id": None,
    "dead_letter_id": "dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f.1",
    "admitted_ms": 1767225600000,
    "first_claim_ms": 1767225600010,
    "claimed_ms": 1767225615010,
    "due_ms": None,
    "settled_ms": 1767225615060,
}
DELIVERY: Final = an_object(
    {
        "delivery_id": TEXT,
        "activity_id": TEXT,
        "target": {**TEXT, "description": "A name, or an inbox URL, masked."},
        "status": one_of(Status),
        "reach": one_of(Reach),
        "phase": one_of(Phase),
        "attempts": NUMBER,
        "generation": NUMBER,
        "failure_phase": or_null(TEXT),
        "code": or_null(TEXT),
        "cause": or_null(TEXT),
        "http_status": or_null(NUMBER),
        "reconciliation_required": FLAG,
        "effect_unknown": FLAG,
        "provider_message_id": or_null(TEXT),
        "dead_letter_id": or_null(TEXT),
        "admitted_ms": TIME,
        "first_claim_ms": or_null(TIME),
        "claimed_ms": or_null(TIME),
        "due_ms": or_null(TIME),
        "settled_ms": or_null(TIME),
    },
    DELIVERY_EXAMPLE,
)
LETTER: Final = an_object(
    {
        "dead_letter_id": TEXT,
        "delivery_id": TEXT,
        "activity_id": TEXT,
        "provider_id": TEXT,
        "integration_id": TEXT,
        "target": TEXT,
        "failure_phase": one_of(FailurePhase),
        "code": TEXT,
        "cause": or_null(TEXT),
        "summary": {**TEXT, "description": "One line of codes and counts."},
        "attempts": NUMBER,
        "generation": NUMBER,
        "reconciliation_required": FLAG,
        "state": one_of(("open", "resolved")),
        "created_ms": TIME,
        "resolved_ms": or_null(TIME),
        "resolution": {
            "oneOf": [
                {"type": "null"},
                an_object({"audit_id": TEXT, "effect_mode": one_of(EffectMode), "asked_ms": TIME}),
            ]
        },
    },
    {
        "dead_letter_id": "dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f.1",
        "delivery_id": "dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f",
        "activity_id": "https://a.example/activities/1",
        "provider_id": "http",
        "integration_id": "crm",
        "target": "crm",
        "failure_phase": "rejected_permanent",
        "code": "http_400",
        "cause": "http_400",
        "summary": "HTTP 400 after 1 attempt: http_400",
        "attempts": 1,
        "generation": 1,
        "reconciliation_required": False,
        "state": "open",
        "created_ms": 1767225615060,
        "resolved_ms": None,
        "resolution": None,
    },
)
ACTIVITY: Final = an_object(
    {
        "activity_id": TEXT,
        "tenant": TEXT,
        "queue": TEXT,
        "ledger_entry_id": or_null(TEXT),
        "first_seen_ms": TIME,
        "reach": one_of(Reach),
        "owed": NUMBER,
        "unclaimed": {**NUMBER, "description": "Deliveries not yet claimed: queued, not listed."},
        "counts": an_object({status.value: NUMBER for status in Status}),
        "deliveries": {"type": "array", "items": ref("Delivery")},
        "is_truncated": FLAG,
    }
)
TARGET: Final = an_object(
    {
        "name": TEXT,
        "tenant": TEXT,
        "url": {**TEXT, "description": "Masked: a URL can be the credential."},
        "idempotent": FLAG,
        "policy": TEXT,
        "policy_overrides": {"type": "object", "additionalProperties": NUMBER},
        "verdicts": {"type": "object", "additionalProperties": TEXT},
        "retryable": {"type": ["array", "null"], "items": NUMBER},
        "header_names": {"type": "array", "items": TEXT},
        "signing": TEXT,
        "secret_refs": {"type": "array", "items": TEXT},
        "rate_per_s": {"type": "number"},
        "http2": FLAG,
        "enabled": FLAG,
        "parked": FLAG,
        "disabled_code": or_null(TEXT),
        "updated_ms": TIME,
    }
)
FILTER: Final[Schema] = {
    "type": "object",
    "description": "All that is given must fit; at least one is.",
    "properties": {
        "target": {**TEXT, "description": "A name, or an inbox URL."},
        "code": TEXT,
        "failure_phase": TEXT,
        "activity_id": TEXT,
        "created_from_ms": TIME,
        "created_to_ms": TIME,
    },
    "minProperties": 1,
    "additionalProperties": False,
}
JOB: Final = an_object(
    {
        "job_id": TEXT,
        "state": one_of(("running", *JobEnd)),
        "effect_mode": one_of(EffectMode),
        "filter": FILTER,
        "rate_per_s": NUMBER,
        "redriven": {**NUMBER, "description": "Letters that it asked for."},
        "left": {
            "type": ["integer", "null"],
            "description": "Letters that wait; null where this replica does not know.",
        },
        "started_ms": TIME,
        "ended_ms": or_null(TIME),
    },
    {
        "job_id": "019b3c1f2b6a4f6d9a7be1a2b3c4d5e6",
        "state": "running",
        "effect_mode": "reconcile_replay",
        "filter": {"target": "crm", "code": "http_503"},
        "rate_per_s": 10,
        "redriven": 120,
        "left": 880,
        "started_ms": 1767225615060,
        "ended_ms": None,
    },
)
JOB_REQUEST: Final[Schema] = {
    "type": "object",
    "properties": {
        "reason": REASON,
        "effect_mode": one_of(EffectMode),
        "filter": FILTER,
        "rate_per_s": {"type": "integer", "minimum": 1, "maximum": RATE_PER_S_MAX, "default": 10},
    },
    "required": ["reason", "effect_mode", "filter"],
    "additionalProperties": False,
    "examples": [
        {
            "reason": "CRM was down, ticket 123",
            "effect_mode": "reconcile_replay",
            "filter": {"target": "crm", "code": "http_503"},
            "rate_per_s": 20,
        }
    ],
}
CONTENT: Final = an_object(
    {
        "audit_id": TEXT,
        "delivery_id": TEXT,
        "activity_id": TEXT,
        "reveal": one_of(("masked",)),
        "content_type": TEXT,
        "bytes": {**NUMBER, "description": "Of the whole body."},
        "content": {"description": "JSON or text with secrets masked; else size and SHA-256."},
    },
    {
        "audit_id": "019b3c1f2b6a4f6d9a7be1a2b3c4d5e6",
        "delivery_id": "dlv_5f0c7a52d1f44d1f8f4e6a0b1c2d3e4f",
        "activity_id": "https://a.example/activities/1",
        "reveal": "masked",
        "content_type": "application/activity+json",
        "bytes": 88,
        "content": {"type": "Create", "object": {"type": "Note", "api_key": "***"}},
    },
)
PROBLEM: Final[Schema] = {
    "type": "object",
    "description": "RFC 9457.",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": NUMBER,
        "detail": TEXT,
        "code": {**TEXT, "description": "Stable, for programs."},
        "request_id": TEXT,
    },
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "examples": [
        {
            "type": "urn:outbox:problem:already_resolved",
            "title": "Conflict",
            "status": 409,
            "detail": "The dead letter is resolved already.",
            "code": "already_resolved",
            "request_id": "0d8e4c1f2b6a4f6d9a7be1a2b3c4d5e6",
        }
    ],
}
ITEMS_CURSOR: Final = {
    "description": "Give it back as `cursor` for the next page; null at the end.",
    "type": ["string", "null"],
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Delivery": DELIVERY,
    "DeliveryPage": an_object(
        {"items": {"type": "array", "items": ref("Delivery")}, "next_cursor": ITEMS_CURSOR}
    ),
    "DeadLetter": LETTER,
    "DeadLetterPage": an_object(
        {
            "items": {"type": "array", "items": ref("DeadLetter")},
            "limit": NUMBER,
            "offset": NUMBER,
            "next_cursor": ITEMS_CURSOR,
        }
    ),
    "Activity": ACTIVITY,
    "Target": TARGET,
    "TargetList": an_object({"items": {"type": "array", "items": ref("Target")}}),
    "RedriveRequest": an_object(
        {
            "reason": REASON,
            "effect_mode": {
                **one_of(EffectMode),
                "description": "reconcile_replay while the effect is uncertain (same generation and"
                " webhook-id); new_external_send where a second effect is wanted.",
            },
        },
        {"reason": "CRM was down, ticket 123", "effect_mode": "reconcile_replay"},
    ),
    "Redrive": an_object(
        {
            "audit_id": TEXT,
            "dead_letter_id": TEXT,
            "delivery": {"oneOf": [{"type": "null"}, ref("Delivery")]},
        }
    ),
    "Cancel": an_object(
        {"audit_id": TEXT, "delivery": {"oneOf": [{"type": "null"}, ref("Delivery")]}}
    ),
    "Content": CONTENT,
    "Job": JOB,
    "JobList": an_object({"items": {"type": "array", "items": ref("Job")}}),
    "JobRequest": JOB_REQUEST,
    "SwitchRequest": an_object({"reason": REASON}, {"reason": "maintenance until noon"}),
    "Problem": PROBLEM,
}
