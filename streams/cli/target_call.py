"""The one marked call of `outbox targets test`: made as a worker makes it, recorded nowhere."""

from __future__ import annotations

import secrets
from typing import Final

from streams.edge.addresses import Resolver
from streams.edge.clock import Clock
from streams.edge.http.call import Call
from streams.edge.http.transport import Transport
from streams.engine.outfit import Equipped, Outfitter
from streams.errors import TargetError
from streams.model.observation import Observation
from streams.model.target import Target
from streams.rules.addresses import IpNetwork
from streams.wire.signatures.signing import Unsigned

BODY: Final = b'{"type":"OutboxTest"}'
CONTENT_TYPE: Final = b"application/json"


async def call_once(target: Target, allowed: tuple[IpNetwork, ...]) -> Observation:
    """Call a target with its own headers, TLS and signature, and the header `outbox-test: 1`.

    Raises:
        TargetError: a secret that it needs is not to be had on this machine.
    """
    clock = Clock()
    resolver = Resolver(allowed_networks=allowed)
    transport = Transport(resolver=resolver)
    try:
        outfitter = Outfitter(transport, resolver, clock)
        equipped = await outfitter.equip(f"{target.tenant}/{target.key}", target)
        if not isinstance(equipped, Equipped):
            raise TargetError(
                "secret_refs: a secret cannot be read on this machine, see above; make the test"
                " where a worker runs"
            )
        poster = equipped.outfit.poster
        try:
            return await poster.post(_marked(equipped, clock.now_ms() // 1_000))
        finally:
            await poster.close()
    finally:
        await transport.close()
        await resolver.close()


def _marked(target: Equipped, timestamp_s: int) -> Call:
    outfit, message_id = target.outfit, f"test_{secrets.token_hex(16)}".encode()
    headers = (
        (b"content-type", CONTENT_TYPE),
        (b"webhook-id", message_id),
        (b"idempotency-key", message_id),
        (b"webhook-timestamp", b"%d" % timestamp_s),
        (b"outbox-test", b"1"),
        *outfit.headers,
    )
    if outfit.signer is not None:
        unsigned = Unsigned(
            url=outfit.url,
            content_type=CONTENT_TYPE,
            body=BODY,
            message_id=message_id,
            timestamp_s=timestamp_s,
        )
        headers += outfit.signer.sign(unsigned)
    return Call(
        target=outfit.pool_key,
        url=outfit.url,
        headers=headers,
        body=BODY,
        timeout_ms=target.policy.timeout_ms,
        limits=outfit.limits,
        message_id_from=target.message_id_from,
        ssl_context=outfit.ssl_context,
    )
