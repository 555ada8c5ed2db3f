"""Who may ask, over real TLS and a real JWKS: keys that rotate, and tokens that break each rule."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.integration.api_process import BASE, ApiProcess, bearer
from tests.integration.world import World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

ISSUER, AUDIENCE = "https://id.example", "outbox"
OLD, NEW = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
RSA = rsa.generate_private_key(65537, 2048)


def jwk(key: Any, kid: str) -> dict[str, Any]:
    """A public key as an issuer shows it."""
    kind = jwt.algorithms.OKPAlgorithm if key is NEW else jwt.algorithms.ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


def token(key: Any = OLD, alg: str = "ES256", kid: str = "old", **claims: Any) -> str:
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "al",
        "exp": int(time.time()) + 600,
        "scope": "notification:read",
        "tenants": ["default"],
    }
    return jwt.encode(given | claims, key, algorithm=alg, headers={"kid": kid})


@dataclass
class Issuer:
    """Serves a JWKS over HTTP on loopback."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk(OLD, "old")])
    asked: int = 0
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()).strip():
            pass
        self.asked += 1
        body = json.dumps({"keys": self.keys}).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


@dataclass
class Place:
    """An API behind TLS that knows callers by JWTs of an issuer."""

    api: ApiProcess
    issuer: Issuer

    async def status(self, given: str, path: str = f"{BASE}/deliveries") -> int:
        return (await self.api.client.get(path, headers=bearer(given))).status_code


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("access")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    own.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    own.private_key_pem.write_to_path(str(folder / "key.pem"))
    trusts = ssl.create_default_context()
    authority.configure_trust(trusts)
    issuer = Issuer()
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    overrides: dict[str, object] = {
        "api_jwks_url": issuer.url,
        "api_jwks_issuer": ISSUER,
        "api_jwks_audience": AUDIENCE,
        "api_tls_cert_file": folder / "cert.pem",
        "api_tls_key_file": folder / "key.pem",
        "api_metrics_address": "127.0.0.1:0",
    }
    async with (
        server,
        World(kafka, folder / "world") as world,
        ApiProcess(world=world, overrides=overrides, trusts=trusts) as api,
    ):
        yield Place(api, issuer)


async def test_a_jwt_of_the_issuer_is_answered_over_tls(place: Place) -> None:
    """Issue 7: bearer tokens by JWKS, TLS settings."""
    assert 200 == await place.status(token())


async def test_what_speaks_no_tls_gets_no_answer(place: Place) -> None:
    """A token must not travel in clear."""
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://127.0.0.1:{place.api.port}/healthz")


async def test_who_does_not_know_its_authority_does_not_trust_it(place: Place) -> None:
    """The certificate is the one of the settings, and no other."""
    async with httpx.AsyncClient(verify=ssl.create_default_context()) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"https://127.0.0.1:{place.api.port}/healthz")


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"exp": int(time.time()) - 3_600},
        {"nbf": int(time.time()) + 3_600},
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"key": RSA, "alg": "RS256"},
        {"key": "x" * 32, "alg": "HS256"},
        {"key": None, "alg": "none"},
    ],
    ids=["issuer", "audience", "expired", "not-yet", "key", "other-kind", "hmac", "none"],
)
async def test_a_token_that_breaks_a_rule_is_answered_401(
    place: Place, claims: dict[str, Any]
) -> None:
    """Issue 7: issuer, audience, expiry, algorithm list."""
    assert 401 == await place.status(token(**claims))


async def test_scope_and_tenant_come_from_the_token(place: Place) -> None:
    """Interface §5: read is not admin, and another tenant is refused."""
    wish = {"reason": "x", "effect_mode": "reconcile_replay"}
    answer = await place.api.client.post(
        f"{BASE}/dead-letters/dlv_x.1:redrive", json=wish, headers=bearer(token())
    )

    assert 403 == answer.status_code
    headers = bearer(token()) | {"x-tenant-id": "acme"}
    assert 403 == (await place.api.client.get(f"{BASE}/deliveries", headers=headers)).status_code
    assert 400 == await place.status(token(tenants=["default", "acme"]))


async def test_a_new_key_is_taken_and_a_withdrawn_one_no_more(place: Place) -> None:
    """Issue 7: keys rotate; the issuer is asked anew when an unknown one is named."""
    new = token(NEW, "EdDSA", "new")
    assert 401 == await place.status(new)
    place.issuer.keys = [jwk(NEW, "new")]

    async def is_taken() -> bool:
        return await place.status(new) == 200

    await place.api.world.until_true(is_taken, "the new key to be fetched")
    assert 401 == await place.status(token())


async def test_its_metrics_are_on_an_address_of_their_own(place: Place) -> None:
    """OUTBOX_API_METRICS_ADDRESS: no token, and no delivery either."""
    port = place.api.lines("api.pages")[-1]["port"]
    await place.status(token(NEW, "EdDSA", "new"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        text = (await client.get("/metrics")).text
        hidden = await client.get(f"{BASE}/deliveries")

    assert "outbox_api_requests_total" in text
    assert 404 == hidden.status_code
