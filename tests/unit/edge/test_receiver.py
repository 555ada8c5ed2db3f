"""The test receiver answers as interface.md §1 says; what other tests prove rests on it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket

import httpx
import pytest

from streams.edge.receiver import Receiver
from streams.edge.receiver_paths import read_path


@pytest.fixture
async def place():
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
async def client():
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        yield client


async def post(client, place, path, *, message_id="m1", attempt=1, body=b"{}"):
    headers = {"webhook-id": message_id, "outbox-attempt": str(attempt)}
    return await client.post(place.url(path), content=body, headers=headers)


async def raw_connection(place):
    return await asyncio.open_connection(place.host, place.port)


def raw_request(path, *, headers=""):
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: 2\r\n\r\n{{}}".encode()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ok", 200),
        ("/ok/users/al/inbox", 200),
        ("/ok?x=1", 200),
        ("/status/503", 503),
        ("/status/204", 204),
        ("/status/400/anything?x", 400),
        ("/410", 410),
        ("/redirect/b", 302),
        ("/slow/1", 200),
        ("/big/10", 200),
        ("/", 404),
        ("/okay", 404),
        ("/status", 404),
        ("/status/100", 404),
        ("/status/600", 404),
        ("/flaky/-1", 404),
        ("/slow/x", 404),
    ],
)
async def test_a_path_names_its_answer_and_anything_may_follow(place, client, path, status):
    """Suffixes make as many inbox URLs as a test wants; a slip of the pen is a 404, not a 200."""
    answer = await post(client, place, path)

    assert status == answer.status_code
    assert [status] == [call.status for call in place.calls]


async def test_flaky_fails_the_first_calls_of_each_id_and_then_lasts(place, client):
    """Interface §1: `/flaky/2` fails the first two calls of an id with 503, then 200."""
    seen = [(await post(client, place, "/flaky/2/a", message_id=i)).status_code for i in "ababaaab"]

    assert [503, 503, 503, 503, 200, 200, 200, 200] == seen


async def test_one_id_is_counted_apart_at_each_flaky_path(place, client):
    """One activity told to two flaky inboxes by one id must fail at both."""
    seen = [(await post(client, place, f"/flaky/1/{p}")).status_code for p in "abab"]

    assert [503, 503, 200, 200] == seen


async def test_retry_after_asks_to_wait_once_per_id(place, client):
    """Interface §1: 429 once per id, then 200."""
    first = await post(client, place, "/retry-after/20")
    second = await post(client, place, "/retry-after/20")

    assert (429, "20") == (first.status_code, first.headers["retry-after"])
    assert 200 == second.status_code
    assert "retry-after" not in second.headers


async def test_a_redirect_leads_to_a_path_that_would_be_noticed(place, client):
    """Spec §3: redirects are never followed; a call of the location would prove one that was."""
    answer = await post(client, place, "/redirect")

    assert place.url("/ok/redirected") == str(answer.next_request.url)


async def test_hang_never_answers_and_is_logged_before_it_hangs(place):
    """The line is written when the request was read: a crash of the caller loses nothing."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request("/hang"))
    await place.wait_for_calls(1)

    assert [("/hang", None)] == [(call.path, call.status) for call in place.calls]
    writer.write_eof()
    assert b"" == await reader.read()
    writer.close()


async def test_close_drops_those_who_hang(place):
    """A receiver that is told to end must not wait for callers that wait for it."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request("/hang"))
    await place.wait_for_calls(1)

    await place.close()

    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_reset_is_a_reset_and_not_a_close(place):
    """A caller must see ECONNRESET: an RST after its request was read."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request("/reset"))

    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert [("/reset", None)] == [(call.path, call.status) for call in place.calls]
    writer.close()


@pytest.mark.parametrize(("path", "start"), [("/close", b""), ("/garbage", b"\x00\x01")])
async def test_no_answer_comes_where_none_is_meant(place, path, start):
    """Both are faults after the request; neither is an answer with a status."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request(path))

    assert start == (await reader.read())[:2]
    assert [None] == [call.status for call in place.calls]
    writer.close()


async def test_drip_answers_at_once_and_never_in_a_sensible_time(place):
    """A body that trickles must meet the caller's deadline, not its idle timer."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request("/drip/1"))

    head = await reader.readuntil(b"\r\n\r\n")
    first = await reader.readexactly(2)

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 1000\r\n" in head
    assert b".." == first
    writer.close()


async def test_a_connection_serves_one_call_after_another(place):
    """Keep-alive: what is measured must be deliveries, not handshakes."""
    reader, writer = await raw_connection(place)
    for path in ("/ok/1", "/status/503", "/slow/1", "/ok/2"):
        writer.write(raw_request(path))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b".." == await reader.readexactly(2)
        assert b"connection: close" not in head

    assert ["/ok/1", "/status/503", "/slow/1", "/ok/2"] == [call.path for call in place.calls]
    writer.close()


async def test_a_caller_that_asks_to_close_is_closed(place):
    """RFC 9112 §9.6: after `connection: close` the answer is the last."""
    reader, writer = await raw_connection(place)
    writer.write(raw_request("/ok", headers="connection: close\r\n"))

    assert b"connection: close\r\n" in await reader.read()
    writer.close()


async def test_a_request_in_pieces_is_one_call(place):
    """The line is written when the request was read whole, and only then."""
    reader, writer = await raw_connection(place)
    for byte in raw_request("/ok/pieces", headers="webhook-id: m9\r\n"):
        writer.write(bytes([byte]))
        await writer.drain()
    await reader.readuntil(b"\r\n\r\n")

    assert [("/ok/pieces", "m9", b"{}")] == [(c.path, c.id, c.body) for c in place.calls]
    writer.close()


async def test_what_is_not_http_gets_400_and_is_no_call(place):
    """A bug in our transport shows as one, and not as a hang."""
    reader, writer = await raw_connection(place)
    writer.write(b"\x16\x03\x01 not http\r\n\r\n")

    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    assert [] == place.calls
    writer.close()


async def test_health_is_not_a_call(place, client):
    """Counts of calls must be exact; a health check of compose or CI is not one of them."""
    statuses = [
        (await client.get(place.url("/healthz"))).status_code,
        (await client.head(place.url("/healthz"))).status_code,
    ]

    assert [200, 200] == statuses
    assert [] == place.calls


async def test_the_log_has_one_line_a_call_and_is_there_before_the_answer(tmp_path, client):
    """Interface §1: `t` (s), `id`, `attempt`, `path`, `status`; what proves the body."""
    body = "höflich 🎉".encode() * 1000
    log = tmp_path / "calls.jsonl"
    async with Receiver(log=log, keeps_calls=False) as place:
        await post(client, place, "/flaky/1/x?y=z", message_id="d1-1", attempt=3, body=body)
        after_one = [json.loads(line) for line in log.read_text().splitlines()]
        await client.post(place.url("/ok"))

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [
        {
            "t": lines[0]["t"],
            "id": "d1-1",
            "attempt": 3,
            "path": "/flaky/1/x?y=z",
            "status": 503,
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
    ] == after_one
    assert (None, None, "/ok", 200, 0) == tuple(
        lines[1][k] for k in ("id", "attempt", "path", "status", "bytes")
    )
    assert [] == place.calls


async def test_a_second_receiver_adds_to_the_log(tmp_path, client):
    """A receiver that was restarted in a crash test must not forget the calls before."""
    log = tmp_path / "calls.jsonl"
    for _ in range(2):
        async with Receiver(log=log) as place:
            await post(client, place, "/ok")

    assert 2 == len(log.read_text().splitlines())


async def test_in_process_calls_keep_headers_and_body(place, client):
    """Tests of signatures and of byte-for-byte bodies read them here."""
    await post(client, place, "/ok", body=b"\x00\xff")

    call = place.calls[0]
    assert b"\x00\xff" == call.body
    assert "m1" == dict(call.headers)["webhook-id"]
    assert ("POST", 1) == (call.method, call.attempt)


async def test_port_zero_picks_a_free_one_and_a_taken_one_is_an_error(place):
    """No fixed ports in tests; and two receivers on one port must not look like one."""
    with pytest.raises(OSError, match="in use"):
        await Receiver(port=place.port).start()

    with socket.create_connection((place.host, place.port)):
        assert place.port > 0


def test_a_path_that_takes_no_number_ignores_one():
    """`/ok/123` is an inbox of `/ok`, not a mistake."""
    assert ("ok", 0) == read_path("/ok/123")
