"""The OpenAPI 3.1 document of the operator API."""

from __future__ import annotations

from typing import Any, Final

from streams.api.auth import ADMIN, READ
from streams.api.listing import CURSOR_PATTERN, LIMIT_MAX, OFFSET_MAX
from streams.api.openapi_schemas import SCHEMAS, Schema, one_of, ref
from streams.api.problems import MEDIA_TYPE
from streams.api.routes import BASE, LetterState
from streams.api.shapes import Status
from streams.api.tokens import PATTERN

VERSION: Final = "2"
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 2048}
_PROBLEMS: Final = {
    400: "A parameter or the body breaks a rule.",
    401: "No valid bearer token.",
    403: "The token lacks the scope, or is not for that tenant.",
    404: "There is none, or it is another tenant's, or it is kept no more.",
    409: "Settled, resolved or ended already, nothing that could be reopened, or not read as far as"
    " `at-least` says.",
    413: "The body is too large.",
    422: "The body is not what is asked for.",
    429: "Too many requests with this token.",
    503: "The audit cannot be written, or the read model is being built: nothing was changed.",
}


def _query(name: str, schema: Schema, text: str) -> Schema:
    return {"name": name, "in": "query", "schema": schema, "description": text}


def _path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _number(least: int, most: int, default: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


_TENANT: Final = {
    "name": "X-Tenant-ID",
    "in": "header",
    "schema": {"type": "string"},
    "description": "One of the token's tenants; needed where it has several.",
}
_AT_LEAST: Final = _query(
    "at-least",
    {"type": "string", "pattern": PATTERN},
    "An `offset-token`: wait, at most 10 s, until what it names is visible.",
)
_CURSOR: Final = _query(
    "cursor", {"type": "string", "pattern": CURSOR_PATTERN}, "`next_cursor` of the page before."
)
_LIMIT: Final = _query("limit", _number(1, LIMIT_MAX, 50), "Rows of a page.")
_DELIVERY_FILTERS: Final = [
    _query("activity_id", _TEXT, "Of this activity."),
    _query("status", one_of(Status), "In this status."),
    _query("target", _TEXT, "To this target: its name, or the inbox URL in full."),
    _LIMIT,
    _CURSOR,
]
_LETTER_FILTERS: Final = [
    _query("state", one_of(LetterState), "Open or resolved ones only."),
    _LIMIT,
    _query("offset", _number(0, OFFSET_MAX, 0), "Rows to pass over; `cursor` costs less."),
    _CURSOR,
]
_KNOWN: Final = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "The `etag` of an earlier answer: 304 where this one would say the same.",
}
_READ_HEADERS: Final = {
    "as-of": {
        "schema": {"type": "string"},
        "description": "How many seconds the read model is behind the log, at most.",
    },
    "offset-token": {
        "schema": {"type": "string"},
        "description": "How far it has read, for `at-least`.",
    },
    "x-request-id": {"schema": {"type": "string"}, "description": "Names the request."},
}


def _answers(status: dict[int, str], schema: str, *problems: int) -> Schema:
    good = {
        str(code): {
            "description": text,
            "headers": _READ_HEADERS,
            "content": {"application/json": {"schema": ref(schema)}},
        }
        for code, text in status.items()
    }
    bad = {
        str(code): {
            "description": _PROBLEMS[code],
            "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
        }
        for code in sorted({400, 401, 403, 409, 429, 503, *problems})
    }
    return good | bad


def _get(
    name: str,
    summary: str,
    schema: str,
    parameters: list[Schema],
    *problems: int,
    scope: str = READ,
) -> Schema:
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "parameters": [_TENANT, *parameters, _AT_LEAST, _KNOWN],
            "responses": _answers({200: "As asked."}, schema, *problems)
            | {"304": {"description": "What `If-None-Match` names is what would be answered."}},
            "security": [{"bearer": [scope]}],
        }
    }


_DONE: Final = {
    200: "Done, and visible.",
    202: "Written; the owner has not answered yet: ask Location.",
}


def _post(
    name: str,
    about: tuple[str, str],
    schemas: tuple[str, str],
    parameters: list[Schema],
    done: dict[int, str] | None = None,
) -> Schema:
    asked, answered = schemas
    return {
        "post": {
            "operationId": name,
            "summary": about[0],
            "description": about[1],
            "parameters": [_TENANT, *parameters, _AT_LEAST],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": ref(asked)}},
            },
            "responses": _answers(done or _DONE, answered, 404, 413, 422),
            "security": [{"bearer": [ADMIN]}],
        }
    }


_REDRIVE: Final = (
    "Reopen a dead letter",
    (
        "Writes the audit record and the command in one transaction (D-065) and waits for the ledger."
        " Nothing is sent by itself: after it, produce the original activity again from its source, with"
        " the same content (D-069, D-075)."
    ),
)


_CANCEL: Final = (
    "Take a delivery back",
    (
        "Before it is settled. A call in flight is waited for, and what it comes to stands: 409 where that"
        " settled it. A delivery that was never claimed has no id yet; park its target instead."
    ),
)
_JOB: Final = (
    "Redrive all letters that a filter finds open",
    (
        "Each with an audit record of its own, no faster than said. It goes on without its caller and after a"
        " restart; those that are given up after its start are not its own."
    ),
)
_REVEAL: Final = [
    _query("reveal", {"type": "string", "const": "masked"}, "There is no other way.")
    | {"required": True},
    _query(
        "reason",
        {"type": "string", "minLength": 1, "maxLength": 512},
        "Stands in the audit, redacted.",
    ),
]


def _operations() -> dict[str, Schema]:
    """Cancel, content and bulk redrive."""
    one, job = _path("delivery_id"), _path("job_id")
    list_jobs = _get("listRedriveJobs", "The tenant's jobs, the newest first", "JobList", [])
    start = _post(
        "startRedriveJob", _JOB, ("JobRequest", "Job"), [], {202: "Started: ask Location."}
    )
    return {
        f"{BASE}/deliveries/{{delivery_id}}:cancel": _post(
            "cancelDelivery", _CANCEL, ("SwitchRequest", "Cancel"), [one]
        ),
        f"{BASE}/deliveries/{{delivery_id}}/content": _get(
            "revealContent",
            "What is delivered, masked; audited before it is answered (D-044..047)",
            "Content",
            [one, *_REVEAL],
            404,
            scope=ADMIN,
        ),
        f"{BASE}/redrive-jobs": list_jobs | start,
        f"{BASE}/redrive-jobs/{{job_id}}": _get(
            "getRedriveJob", "One job, and how far it is", "Job", [job], 404
        ),
        f"{BASE}/redrive-jobs/{{job_id}}:stop": _post(
            "stopRedriveJob",
            ("Stop a job", "What it reopened stays so. Audited."),
            ("SwitchRequest", "Job"),
            [job],
        ),
    }


def _paths() -> dict[str, Schema]:
    switch = ("SwitchRequest", "Target")
    name, letter = [_path("name")], [_path("dead_letter_id")]
    one = _path("delivery_id")
    return {
        f"{BASE}/deliveries": _get(
            "listDeliveries", "Deliveries, the newest first", "DeliveryPage", _DELIVERY_FILTERS
        ),
        f"{BASE}/deliveries/{{delivery_id}}": _get(
            "getDelivery", "One delivery", "Delivery", [one], 404
        ),
        f"{BASE}/activities/{{activity_id}}": _get(
            "getActivity",
            "An activity: which of its deliveries are done, not yet, or never (O-022)",
            "Activity",
            [_path("activity_id")],
            404,
        ),
        f"{BASE}/dead-letters": _get(
            "listDeadLetters", "Dead letters, the newest first", "DeadLetterPage", _LETTER_FILTERS
        ),
        f"{BASE}/dead-letters/{{dead_letter_id}}": _get(
            "getDeadLetter", "One dead letter", "DeadLetter", letter, 404
        ),
        f"{BASE}/dead-letters/{{dead_letter_id}}:redrive": _post(
            "redrive", _REDRIVE, ("RedriveRequest", "Redrive"), letter
        ),
        f"{BASE}/targets": _get("listTargets", "The tenant's targets", "TargetList", []),
        f"{BASE}/targets/{{name}}": _get("getTarget", "One target", "Target", name, 404),
        f"{BASE}/targets/{{name}}:enable": _post(
            "enableTarget", ("Release a target", "Also after a 410. Audited."), switch, name
        ),
        f"{BASE}/targets/{{name}}:disable": _post(
            "disableTarget", ("Park a target", "Nothing is lost or spent. Audited."), switch, name
        ),
        f"{BASE}/targets/{{name}}:pause": _post(
            "pauseTarget", ("Park a target", "The same as `:disable`."), switch, name
        ),
    } | _operations()


def document(more_paths: dict[str, Schema] | None = None) -> dict[str, Any]:
    """The whole document.

    Args:
        more_paths: Path items of routes that are described elsewhere.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "outbox: operator API",
            "version": VERSION,
            "description": "Deliveries, dead letters and targets of a tenant. No answer holds a"
            " message body, a provider's answer or a credential.",
        },
        "security": [{"bearer": [READ]}],
        "paths": _paths() | (more_paths or {}),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "Token or JWT."}
            },
        },
    }
