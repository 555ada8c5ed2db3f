"""httpx at the seam, in both directions."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from streams.edge.addresses import Resolver
from streams.edge.http.face import Face, Through
from streams.model.faults import FAULTS, fault_of
from streams.model.observation import Fault, Observation, Stage
from streams.model.values import replace
from tests.unit.edge.http_peer import Peer, call_to, serving, transport_of

URL = "https://crm.example/hook?x=1"


class Canned:
    """A poster that sees what it is told to, and keeps the call."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen

    async def post(self, call):
        self.call = call
        return self.seen

    async def close(self):
        raise AssertionError("others share it")


async def test_an_httpx_client_calls_through_our_transport():
    """Design.md §6: one `httpx.AsyncBaseTransport` of our own."""
    answer = b"HTTP/1.1 429 X\r\nRetry-After: 5\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno"
    async with Peer(serving(answer)) as peer:
        transport = transport_of()
        async with httpx.AsyncClient(transport=Face(transport)) as client:
            response = await client.post(peer.url, content=b"body", headers={"webhook-id": "d"})
        await transport.close()

    assert 429 == response.status_code
    assert ["5", "7"] == response.headers.get_list("retry-after")
    assert b"" == response.content
    assert peer.requests[0].endswith(b"\r\n\r\nbody")
    assert b"webhook-id: d\r\n" in peer.requests[0]
    assert 1 == peer.requests[0].lower().count(b"host:")
    assert 1 == peer.requests[0].lower().count(b"accept-encoding:")


@pytest.mark.parametrize("code", FAULTS)
async def test_each_fault_is_raised_as_httpx_would_with_its_stage_attached(code):
    """C-05: who catches httpx's classes sees no "connect" for a fault after the request."""
    fault = fault_of(code)
    face = Face(Canned(Observation(fault=fault)))

    async with httpx.AsyncClient(transport=face) as client:
        with pytest.raises(httpx.TransportError) as caught:
            await client.post(URL)

    before = (
        httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol
    )
    assert fault == caught.value.request.extensions["fault"]
    assert fault.is_before == isinstance(caught.value, before)


async def test_the_smallest_time_out_of_a_client_is_the_deadline():
    """O-039: the deadline covers the whole call; httpx's four are one."""
    poster = Canned(Observation(status=202))
    async with httpx.AsyncClient(transport=Face(poster)) as client:
        await client.post(URL, timeout=httpx.Timeout(9.0, connect=1.5))
        bounded = poster.call.timeout_ms
        await client.post(URL, timeout=None)

    assert (1_500, 30_000) == (bounded, poster.call.timeout_ms)


@pytest.mark.parametrize(("method", "url"), [("GET", URL), ("POST", "https://crm.example:22/")])
async def test_what_our_transport_does_not_send_is_refused(method, url):
    """C-10: the rules for URLs hold whoever asks."""
    async with httpx.AsyncClient(transport=Face(Canned(Observation(status=202)))) as client:
        with pytest.raises(httpx.UnsupportedProtocol):
            await client.request(method, url)


async def through(answer, resolver=None, **changes):
    """Call httpx's mock transport as the engine calls ours; give what was seen and asked."""
    asked: list[httpx.Request] = []

    async def answering(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        found = answer(request)
        if isinstance(found, Exception):
            raise found
        if asyncio.iscoroutine(found):
            found = await found
        return found

    poster = Through(httpx.MockTransport(answering), resolver=resolver)
    seen = await poster.post(call_to(URL, **changes))
    await poster.close()
    return replace(seen, duration_ms=0), asked


async def test_the_engine_calls_through_a_transport_of_httpx():
    """Issue 5: HTTP/2 and proxies are httpx's, and tests use its mock in our transport's place."""
    headers = [("retry-after", "5"), ("retry-after", "7"), ("x-id", "m-1")]

    seen, asked = await through(
        lambda _: httpx.Response(503, headers=headers), message_id_from="header:x-id"
    )

    expected = Observation(status=503, retry_after=("5", "7"), provider_message_id="m-1")
    assert expected == seen
    assert (URL, b'{"id":1}') == (str(asked[0].url), asked[0].content)


async def test_httpx_is_given_the_vetted_address_and_keeps_the_name():
    """C-10, field case C04: it looks nothing up; Host, SNI and certificate stay the name's."""
    resolver = Resolver(allowed_networks=(), lookup=lambda _: ["93.184.216.34"])

    _, asked = await through(lambda _: httpx.Response(202), resolver)

    assert "https://93.184.216.34/hook?x=1" == str(asked[0].url)
    assert "crm.example" == asked[0].headers["host"] == asked[0].extensions["sni_hostname"]


async def test_httpx_is_given_no_forbidden_address():
    """C-10: whichever transport makes the call."""
    resolver = Resolver(allowed_networks=(), lookup=lambda _: ["10.0.0.5"])

    seen, asked = await through(lambda _: httpx.Response(202), resolver)

    assert Observation(fault=fault_of("address_forbidden")) == seen
    assert [] == asked


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (httpx.ConnectError(""), fault_of("connect_failed")),
        (httpx.ConnectTimeout(""), fault_of("connect_timeout")),
        (httpx.PoolTimeout(""), fault_of("pool_timeout")),
        (httpx.WriteError(""), fault_of("write_failed")),
        (httpx.WriteTimeout(""), fault_of("write_timeout")),
        (httpx.ReadError(""), fault_of("read_reset")),
        (httpx.ReadTimeout(""), fault_of("read_timeout")),
        (httpx.RemoteProtocolError(""), fault_of("protocol_malformed")),
        (httpx.LocalProtocolError(""), fault_of("read_reset")),
        (httpx.ProxyError(""), fault_of("read_reset")),
        (httpx.CloseError(""), fault_of("read_reset")),
        (httpx.DecodingError(""), fault_of("read_reset")),
        (TimeoutError(), fault_of("read_timeout")),
    ],
)
async def test_what_httpx_does_not_prove_to_be_before_is_after(error, fault):
    """C-05: its errors are read by class; the classes that tell nothing are after."""
    seen, _ = await through(lambda _: error)

    assert Observation(fault=fault) == seen


async def test_a_call_through_httpx_ends_at_its_deadline():
    """O-039: httpx's own time-outs are per step."""
    seen, _ = await through(lambda _: asyncio.sleep(60), timeout_ms=50)

    assert Observation(fault=fault_of("read_timeout")) == seen


class Broken(httpx.AsyncByteStream):
    async def __aiter__(self):
        yield b'{"id":'
        raise httpx.ReadError("cut")


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self):
        while True:
            yield b"x" * 10_000


@pytest.mark.parametrize("stream", [Broken(), Endless()])
async def test_a_status_through_httpx_stands_whatever_the_body_does(stream):
    """C-11, field case B17."""
    seen, _ = await through(
        lambda _: httpx.Response(202, stream=stream), message_id_from="json:/id"
    )

    assert Observation(status=202) == seen


async def test_a_message_id_in_a_body_is_found_through_httpx():
    """D-070."""
    seen, _ = await through(
        lambda _: httpx.Response(202, json={"id": "m-1"}), message_id_from="json:/id"
    )

    assert Observation(status=202, provider_message_id="m-1") == seen


async def test_a_header_with_a_line_break_is_not_sent_through_httpx():
    """C-14: as by our own transport."""
    seen, asked = await through(lambda _: httpx.Response(202), headers=[(b"x", b"1\r\ny: 2")])

    assert (Observation(fault=fault_of("request_invalid")), []) == (seen, asked)


async def test_a_status_that_is_no_answer_is_a_fault():
    """As by our own transport: interim answers and invented numbers end nothing."""
    seen, _ = await through(lambda _: httpx.Response(999))

    assert Observation(fault=Fault(stage=Stage.PROTOCOL, code="protocol_malformed")) == seen
