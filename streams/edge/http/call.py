"""What one call sends, and the one thing that is kept of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from streams.errors import TargetError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from streams.model.observation import Observation
    from streams.rules.addresses import ParsedUrl

MESSAGE_ID_CHARS_MAX: Final = 128
"""D-070: longest provider message id that is kept; a longer one is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections one target may have, per process (O-041, O-042)."""

    max_connections: int = 20
    max_idle: int = 5


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One POST to one target.

    Attributes:
        target: Key of the target's share of the pool, tenant included.
        url: Where to.
        headers: Names and values without `host`, `content-length`, `transfer-encoding`,
            `connection` and `accept-encoding`, which the transport writes.
        body: Sent as it is.
        timeout_ms: Deadline of the whole call: pool, name, connect, TLS, write, head, body.
        limits: Of this target.
        message_id_from: Where the provider's message id stands: `header:NAME` or `json:/pointer`
            (RFC 6901), or None.
        ssl_context: The target's own client certificate or CA, or None for the transport's.
    """

    target: str
    url: ParsedUrl
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    timeout_ms: int
    limits: Limits
    message_id_from: str | None = None
    ssl_context: ssl.SSLContext | None = None


class Poster(Protocol):
    """What the engine needs of a transport: ours, or one of httpx's behind `face.Through`."""

    async def post(self, call: Call) -> Observation:
        """Make one call and say what was seen. A failed exchange is a value, never raised."""

    async def close(self) -> None:
        """End every connection."""


class Wanted(msgspec.Struct, frozen=True):
    """What to keep of an answer: at most one of the two is set."""

    header: bytes = b""
    pointer: tuple[str, ...] | None = None


@lru_cache(maxsize=4_096)
def wanted(message_id_from: str | None) -> Wanted:
    """Read a target's `message_id_from`.

    Raises:
        TargetError: when it has neither form.
    """
    if message_id_from is None:
        return Wanted()
    kind, _, rest = message_id_from.partition(":")
    if kind == "header" and rest.isascii() and rest.strip():
        return Wanted(header=rest.strip().lower().encode("ascii"))
    if kind == "json" and rest.startswith("/"):
        steps = (step.replace("~1", "/").replace("~0", "~") for step in rest[1:].split("/"))
        return Wanted(pointer=tuple(steps))
    raise TargetError("message_id_from must be header:NAME or json:/pointer")


def message_id_in_json(body: bytes, pointer: tuple[str, ...]) -> str | None:
    """Give the string or integer that `pointer` names in a JSON answer, or None."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    for step in pointer:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 6:
            value = value[int(step)] if int(step) < len(value) else None
        else:
            return None
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return message_id(value) if isinstance(value, str) else None


def message_id(text: str) -> str | None:
    """Give `text` if it can be kept as a message id: 1 to 128 printable characters."""
    if 1 <= len(text) <= MESSAGE_ID_CHARS_MAX and text.isprintable():
        return text
    return None


def encode(call: Call) -> bytes:
    """Write the request, head and body in one piece, so that one system call sends it.

    `Accept-Encoding: identity` because nothing is ever decompressed: a gzip bomb stays inert.

    Raises:
        TargetError: when a header holds a line break, which would forge another header or request.
    """
    url, body = call.url, call.body
    lines = [*map(b": ".join, call.headers)]
    # Looked for in all of them as one: counting the line breaks of the head as it is sent took 6,000
    # instructions, this 800 (cachegrind, seven headers).
    text = b"".join((url.target, url.authority, *lines))
    if text.find(b"\n") >= 0 or text.find(b"\r") >= 0:
        raise TargetError("headers: names and values must not contain CR or LF")
    return b"\r\n".join(
        (
            b"POST %b HTTP/1.1\r\nHost: %b" % (url.target, url.authority),
            *lines,
            b"Accept-Encoding: identity\r\nContent-Length: %d" % len(body),
            b"",
            body,
        )
    )
