"""One request: who asks for what, and its parameters checked. Nothing is guessed, nothing ignored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from streams.api.auth import Caller
from streams.api.problems import Problem
from streams.api.tokens import Positions, read_token
from streams.api.view import View

PATIENCE_S: Final = 10.0
"""How long `at-least` waits."""

BODY_BYTES_MAX: Final = 16_384
TEXT_MAX: Final = 2_048
REASON_MAX: Final = 512
AT_LEAST: Final = "at-least"
_KEPT: Final = ("etag", "cache-control", "as-of", "offset-token")
"""Headers that a 304 has too."""


NOT_JSON: Final = Problem(400, "body_invalid", "The body must be JSON.")

Choice = TypeVar("Choice", bound=StrEnum)
Body = TypeVar("Body", bound=msgspec.Struct)


class Freshness(Protocol):
    """How far a view has read."""

    @property
    def is_ready(self) -> bool:
        """Whether it has seen the log to its end once."""

    @property
    def behind_s(self) -> float | None:
        """Seconds behind the log; None where that is not known."""

    def looks(self) -> int:
        """How often the ends of the log were asked for and heard."""

    def is_beyond(self, wanted: Positions) -> bool:
        """Whether the log, when it was last looked at, did not hold what `wanted` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request comes to.

    Attributes:
        visible_at: What a view must have read to show it; None: all that this one has read.
    """

    body: Mapping[str, Any]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    visible_at: Positions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A request whose caller may ask it."""

    request: Request
    caller: Caller
    tenant: str

    @property
    def request_id(self) -> str:
        """Names the request in answers, logs and the audit."""
        return str(self.request.state.request_id)

    def path(self, name: str) -> str:
        """A parameter of the path."""
        return str(self.request.path_params[name])

    def text(self, name: str) -> str | None:
        """A text of the query.

        Raises:
            Problem: 400.
        """
        value = self.request.query_params.get(name)
        if value is not None and not 1 <= len(value) <= TEXT_MAX:
            raise invalid(name, f"must have 1 to {TEXT_MAX} characters")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the query.

        Raises:
            Problem: 400.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        is_number = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 10
        if not is_number or not least <= int(text) <= most:
            raise invalid(name, f"must be a whole number from {least} to {most}")
        return int(text)

    def choice(self, name: str, kind: type[Choice]) -> Choice | None:
        """One of some words of the query.

        Raises:
            Problem: 400.
        """
        text = self.request.query_params.get(name)
        try:
            return None if text is None else kind(text)
        except ValueError:
            raise invalid(name, f"must be one of {', '.join(kind)}") from None

    async def body(self, *names: str) -> dict[str, str]:
        """The fields of a JSON object, each a text, all of them and no others.

        Raises:
            Problem: 400, 413 or 422.
        """
        try:
            value = json.loads(await self._raw())
        except (ValueError, RecursionError):
            raise NOT_JSON from None
        if not isinstance(value, dict) or set(value) != set(names):
            raise Problem(
                422, "body_invalid", f"The body must be an object of exactly {', '.join(names)}."
            )
        if not all(isinstance(each, str) for each in value.values()):
            raise Problem(422, "body_invalid", f"Each of {', '.join(names)} must be a text.")
        return value

    async def struct(self, kind: type[Body]) -> Body:
        """A JSON object of exactly this shape.

        Raises:
            Problem: 400, 413 or 422.
        """
        try:
            value = json.loads(await self._raw(), parse_float=_number)
        except (ValueError, RecursionError):
            raise NOT_JSON from None
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            # Its message may repeat what was sent.
            raise Problem(
                422, "body_invalid", "The body must have the shape that the OpenAPI document gives."
            ) from None

    async def _raw(self) -> bytes:
        raw = b""
        async for chunk in self.request.stream():
            raw += chunk
            if len(raw) > BODY_BYTES_MAX:
                raise Problem(413, "body_too_large", f"At most {BODY_BYTES_MAX} bytes are read.")
        return raw


def _number(text: str) -> float:
    """A number with a point: 37.0 is a whole one (JSON Schema)."""
    number = float(text)
    return int(number) if number.is_integer() else number


def reason_of(fields: Mapping[str, str]) -> str:
    """Why an operator does something: 1 to 512 characters (D-062).

    Raises:
        Problem: 422.
    """
    reason = fields["reason"]
    if not 1 <= len(reason) <= REASON_MAX or not reason.strip():
        raise Problem(
            422, "reason_invalid", f"reason must have 1 to {REASON_MAX} characters, not all blank."
        )
    return reason


def invalid(name: str, rule: str) -> Problem:
    """400, a parameter that breaks a rule; its value is not repeated."""
    return Problem(400, "parameter_invalid", f"{name} {rule}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Turns work on an `Asking` into an endpoint: scope, tenant, freshness before; headers after."""

    view: View
    freshness: Freshness
    patience_s: float = PATIENCE_S

    def endpoint(
        self,
        work: Callable[[Asking], Awaitable[Answer]],
        scope: str,
        parameters: frozenset[str] = frozenset(),
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint.

        Args:
            parameters: Of the query, beside `at-least`; others are refused.
        """

        async def answer(request: Request) -> Response:
            caller: Caller = request.state.caller
            caller.require(scope)
            tenant = caller.tenant(request.headers.get("x-tenant-id"))
            _check_query(request, parameters | {AT_LEAST})
            await self._until_fresh(request.query_params.get(AT_LEAST))
            done = await work(Asking(request=request, caller=caller, tenant=tenant))
            headers = {**self._read_headers(done.visible_at), **done.headers}
            return tagged(request, JSONResponse(done.body, done.status, headers))

        return answer

    async def _until_fresh(self, token: str | None) -> None:
        if not self.freshness.is_ready:
            raise Problem(
                503,
                "view_rebuilding",
                "The read model is being built from Kafka.",
                {"retry-after": "2"},
            )
        if token is None:
            return
        wanted, first = read_token(token), self.freshness.looks()

        def is_known() -> bool:
            # A look that began before the request may miss what was just written elsewhere.
            is_looked_at = self.freshness.looks() > first + 1
            return self.view.covers(wanted) or (is_looked_at and self.freshness.is_beyond(wanted))

        await self.view.until(is_known, self.patience_s)
        if not self.view.covers(wanted):
            raise Problem(
                409,
                "view_behind",
                "The read model has not read as far as at-least says. Ask again.",
                {"retry-after": "1", **self._read_headers(None)},
            )

    def _read_headers(self, visible_at: Positions | None) -> dict[str, str]:
        behind_s = self.freshness.behind_s
        as_of = {} if behind_s is None else {"as-of": f"{behind_s:.3f}"}
        token = (visible_at or self.view.positions()).token()
        return as_of | ({"offset-token": token} if token else {})


def tagged(request: Request, response: Response) -> Response:
    """The answer of a GET with its ETag; 304 where the caller has it already (RFC 9110, 13.1.2)."""
    if request.method != "GET" or response.status_code != 200:
        return response
    tag = f'W/"{sha256(bytes(response.body)).hexdigest()[:24]}"'
    response.headers["etag"] = tag
    # Kept by whoever asked and by nobody between; asked for again each time.
    response.headers["cache-control"] = "private, no-cache"
    known = request.headers.get("if-none-match", "")
    opaque = tag.removeprefix("W/")
    if known.strip() != "*" and opaque not in {
        each.strip().removeprefix("W/") for each in known.split(",")
    }:
        return response
    kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
    return Response(status_code=304, headers=kept)


def _check_query(request: Request, known: frozenset[str]) -> None:
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) < len(names):
        raise Problem(400, "parameter_repeated", "Each parameter may be given once.")
    if not known.issuperset(names):
        raise Problem(
            400, "parameter_unknown", f"The query may hold {', '.join(sorted(known))} only."
        )
