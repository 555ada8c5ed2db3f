"""One delivery told over raw sockets until nothing is open, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.ledger import FailurePhase, Phase, Row
from streams.model.target import Target
from streams.model.values import replace
from streams.wire.codec import encode_dead_letter
from tests.field.desk import OverSockets, activity_for, desk_of, target_of
from tests.unit.edge.http_peer import (
    Peer,
    Script,
    transport_of,
)

IMPATIENT = replace(target_of().policy, timeout_ms=150)


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a delivery came to."""

    row: Row
    requests: list[bytes]
    connections: int
    waits_ms: list[int]
    letter: bytes
    summary: str
    shown: str


def status(number: int, head: bytes = b"", body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s" % (number, head, len(body), body)


async def tell(monkeypatch, *scripts: Script, url: str = "", **changes) -> Told:
    """Deliver to a peer that follows the scripts, until nothing is open."""
    transport = transport_of()
    async with Peer(*scripts) as peer:
        target: Target = target_of(url or peer.url, **changes)
        async with desk_of(monkeypatch, OverSockets(transport), crm=target) as desk:
            activity = activity_for()
            [row] = await desk.deliver(activity)
            letter = desk.letter(activity)
            await transport.close()
            return Told(
                row=row,
                requests=peer.requests,
                connections=peer.connections,
                waits_ms=desk.paper.waits_ms,
                letter=b"" if letter is None else encode_dead_letter(letter),
                summary="" if letter is None else letter.deliveries[0].summary,
                shown=desk.shown(),
            )


def is_refused(told: Told, code: str) -> bool:
    row = told.row
    return (row.phase, row.failure_phase, row.code, row.attempts, row.effect_unknown) == (
        Phase.DEAD,
        FailurePhase.REJECTED_PERMANENT,
        code,
        1,
        False,
    )


def is_in_doubt(told: Told, code: str) -> bool:
    row = told.row
    return (row.phase, row.code, row.attempts, row.reconciliation_required) == (
        Phase.DEAD,
        code,
        1,
        True,
    )


def fields_of(request: bytes) -> dict[bytes, bytes]:
    head = request.partition(b"\r\n\r\n")[0]
    return dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
