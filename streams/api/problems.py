"""What goes wrong, as RFC 9457 problems: a status, a stable code, one sentence, never content."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from streams.errors import StreamsError

MEDIA_TYPE = "application/problem+json"


class Problem(StreamsError):  # noqa: N818 - what RFC 9457 calls it
    """An answer other than the one asked for.

    Attributes:
        status: HTTP status.
        code: Stable, for programs; the problem's type is `urn:outbox:problem:CODE`.
        detail: What rule was broken and what to do, for people.
        headers: Further headers of the answer.
    """

    def __init__(
        self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})

    def answer(self, request_id: str) -> JSONResponse:
        """The problem as an answer."""
        body: dict[str, Any] = {
            "type": f"urn:outbox:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
        }
        return JSONResponse(body, self.status, self.headers, media_type=MEDIA_TYPE)


def not_found(what: str) -> Problem:
    """404: what another tenant owns is answered exactly so (C-13)."""
    return Problem(404, "not_found", f"There is no such {what}.")
