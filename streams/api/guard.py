"""What stands before every request: its id, its bearer token, its rate. No token, no answer."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.api.auth import Authenticator
from streams.api.problems import Problem

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ALWAYS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
CALLERS_MAX: Final = 10_000


class Rate:
    """A bucket of requests for each token.

    Args:
        per_s: Requests that come back each second.
        burst: Requests that may come at once.
        now: Seconds of a clock that never goes back.
    """

    def __init__(
        self, per_s: float, burst: float, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._now = now
        self._left: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def spend(self, key: bytes) -> None:
        """Take one request.

        Raises:
            Problem: 429 where there is none left.
        """
        at = self._now()
        left, since = self._left.pop(key, (self._burst, at))
        left = min(self._burst, left + (at - since) * self._per_s)
        self._left[key] = (max(left - 1, 0) if left >= 1 else left, at)
        if len(self._left) > CALLERS_MAX:
            self._left.popitem(last=False)
        if left < 1:
            wait_s = int((1 - left) / self._per_s) + 1
            raise Problem(
                429,
                "rate_limited",
                f"This token may ask {self._per_s:g} times a second.",
                {"retry-after": str(wait_s)},
            )


class Guard:
    """ASGI middleware; puts `caller` and `request_id` into the request's state.

    Args:
        is_open: Which paths are answered without a token.
        new_id: Gives a request id where the caller brought none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        rate: Rate,
        is_open: Callable[[str], bool],
        new_id: Callable[[], str],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._rate = rate
        self._is_open = is_open
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else self._new_id()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                out["x-request-id"] = request_id
                for name, value in _ALWAYS.items():
                    out.setdefault(name, value)
            await send(message)

        try:
            if not self._is_open(scope["path"]):
                caller = await self._authenticator.caller(headers.get("authorization"))
                self._rate.spend(caller.key)
                state["caller"] = caller
        except Problem as problem:
            await problem.answer(request_id)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)
