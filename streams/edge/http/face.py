"""httpx at the seam: our transport under its clients, its transports under our engine.

Neither is on the hot path: the engine calls `Transport.post`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httpx

from streams.edge.http.answer import BODY_BYTES_MAX
from streams.edge.http.call import Call, Limits, encode, message_id, message_id_in_json, wanted
from streams.errors import TargetError
from streams.model.faults import fault_of
from streams.model.observation import Fault, Observation, Stage
from streams.rules.addresses import parse_url

if TYPE_CHECKING:
    from streams.edge.addresses import Resolver
    from streams.edge.http.call import Poster, Wanted

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Deadline of a request whose client set no time-out (O-039)."""

_WRITTEN_BY_US: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"accept-encoding"}
)

# Before `OSError`-like bases come their children: the first class that matches counts.
_FOREIGN: Final = (
    (httpx.PoolTimeout, "pool_timeout"),
    (httpx.ConnectTimeout, "connect_timeout"),
    (httpx.ConnectError, "connect_failed"),
    (httpx.WriteTimeout, "write_timeout"),
    (httpx.WriteError, "write_failed"),
    (httpx.ReadTimeout, "read_timeout"),
    (httpx.RemoteProtocolError, "protocol_malformed"),
)


class Face(httpx.AsyncBaseTransport):
    """Our transport under an `httpx.AsyncClient`: POST only, answers without bodies (C-11)."""

    def __init__(self, poster: Poster, *, limits: Limits | None = None) -> None:
        self._poster = poster
        self._limits = limits or Limits()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make one call.

        The smallest of the client's time-outs is the deadline of the whole call.

        Raises:
            httpx.UnsupportedProtocol: another method than POST, or a URL that may not be called.
            httpx.TransportError: the class for the stage; `extensions["fault"]` of its request
                holds the `Fault`.
        """
        if request.method != "POST":
            raise httpx.UnsupportedProtocol("only POST is sent", request=request)
        try:
            url = parse_url(str(request.url))
        except TargetError as error:
            raise httpx.UnsupportedProtocol(str(error), request=request) from None
        timeouts = request.extensions.get("timeout", {}).values()
        timeout_s = min((each for each in timeouts if each is not None), default=None)
        call = Call(
            target=f"{url.origin.scheme}://{url.authority.decode()}",
            url=url,
            headers=[each for each in request.headers.raw if each[0].lower() not in _WRITTEN_BY_US],
            body=await request.aread(),
            timeout_ms=DEFAULT_TIMEOUT_MS if timeout_s is None else int(timeout_s * 1_000),
            limits=self._limits,
        )
        seen = await self._poster.post(call)
        if seen.fault is not None:
            request.extensions = {**request.extensions, "fault": seen.fault}
            raise _error_class(seen.fault)(seen.fault.code, request=request)
        assert seen.status is not None
        headers = [(b"retry-after", value.encode("latin-1")) for value in seen.retry_after]
        return httpx.Response(seen.status, headers=headers, request=request)

    async def aclose(self) -> None:
        """Leave the transport open: others may share it."""


class Through:
    """One of httpx's transports under our engine: `httpx.MockTransport` in tests, HTTP/2, a proxy.

    What httpx cannot prove to be *before* the request is *after* it (C-05): of its errors only
    those of pool and connect are raised before a request is written.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, *, resolver: Resolver | None) -> None:
        """Take `transport`; `resolver` is None only where it reaches no network, or is a proxy's.

        With a resolver the vetted address is put into the URL, the name stays in `Host` and SNI, so
        httpx looks nothing up (C-10).
        """
        self._transport = transport
        self._resolver = resolver

    async def post(self, call: Call) -> Observation:
        """Make one call and say what was seen."""
        try:
            encode(call)  # the same rules for headers, whichever transport writes them
            keep = wanted(call.message_id_from)
        except TargetError:
            return Observation(fault=fault_of("request_invalid"))
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + call.timeout_ms / 1_000
        request = await self._request(call, deadline)
        found = request if isinstance(request, Fault) else await self._ask(request, deadline)
        duration_ms = int((loop.time() - started) * 1_000)
        if isinstance(found, Fault):
            return Observation(fault=found, duration_ms=duration_ms)
        response, body = found
        if not 200 <= response.status_code <= 599:
            return Observation(fault=fault_of("protocol_malformed"), duration_ms=duration_ms)
        return Observation(
            status=response.status_code,
            retry_after=tuple(response.headers.get_list("retry-after")),
            provider_message_id=_kept(response, body, keep),
            duration_ms=duration_ms,
        )

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def _request(self, call: Call, deadline: float) -> httpx.Request | Fault:
        origin = call.url.origin
        host = origin.host
        extensions: dict[str, object] = {}
        if self._resolver is not None:
            try:
                async with asyncio.timeout_at(deadline):
                    found = await self._resolver.resolve(host, origin.port, call.url.address)
            except TimeoutError:
                return fault_of("name_timeout")
            if isinstance(found, Fault):
                return found
            extensions["sni_hostname"] = host
            host = found[0].sockaddr[0]
        timeout_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
        extensions["timeout"] = dict.fromkeys(("pool", "connect", "write", "read"), timeout_s)
        return httpx.Request(
            "POST",
            httpx.URL(scheme=origin.scheme, host=host, port=origin.port, raw_path=call.url.target),
            headers=[
                (b"host", call.url.authority),
                *call.headers,
                (b"accept-encoding", b"identity"),
                (b"content-length", b"%d" % len(call.body)),
            ],
            stream=httpx.ByteStream(call.body),
            extensions=extensions,
        )

    async def _ask(
        self, request: httpx.Request, deadline: float
    ) -> tuple[httpx.Response, bytes | None] | Fault:
        """Exchange request and answer; the body is None when it broke off or is over the bound."""
        response: httpx.Response | None = None
        body = bytearray()
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._transport.handle_async_request(request)
                # Not `aiter_raw`: it refuses an answer that a mock has read beforehand.
                assert isinstance(response.stream, httpx.AsyncByteStream)
                async for chunk in response.stream:
                    body += chunk
                    if len(body) > BODY_BYTES_MAX:
                        break
            whole = len(body) <= BODY_BYTES_MAX
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            if response is None:
                return _foreign_fault(error)
            whole = False  # field case B17: the head came, its status stands
        finally:
            if response is not None:
                await response.aclose()
        return response, bytes(body) if whole else None


def _error_class(fault: Fault) -> type[httpx.TransportError]:
    late = fault.code.endswith("_timeout")
    match fault.stage:
        case Stage.POOL:
            return httpx.PoolTimeout
        case Stage.ADDRESS:
            return httpx.UnsupportedProtocol
        case Stage.NAME | Stage.CONNECT | Stage.TLS:
            return httpx.ConnectTimeout if late else httpx.ConnectError
        case Stage.WRITE:
            return httpx.WriteTimeout if late else httpx.WriteError
        case Stage.READ:
            return httpx.ReadTimeout if late else httpx.ReadError
        case Stage.PROTOCOL:
            return httpx.RemoteProtocolError


def _foreign_fault(error: Exception) -> Fault:
    codes = (code for kind, code in _FOREIGN if isinstance(error, kind))
    late = isinstance(error, TimeoutError | httpx.TimeoutException)
    return fault_of(next(codes, "read_timeout" if late else "read_reset"))


def _kept(response: httpx.Response, body: bytes | None, keep: Wanted) -> str | None:
    if keep.header:
        return message_id(response.headers.get(keep.header.decode("ascii"), ""))
    if keep.pointer is not None and body is not None:
        return message_id_in_json(body, keep.pointer)
    return None
