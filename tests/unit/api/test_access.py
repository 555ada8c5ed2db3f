"""Who may ask: tokens, scopes, tenants, rates, JWTs."""

from __future__ import annotations

import time

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from streams.api.guard import Rate
from streams.api.jwks import IssuedTokens
from streams.api.server import Listen
from streams.cli.api_service import listening
from streams.errors import SettingsError
from tests.conftest import SettingsFor
from tests.unit.api.desk import BASE, World, auth

KEY = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE = "https://id.example", "outbox"


@pytest.mark.parametrize(
    "path",
    ["/openapi.json", "/readyz", "/metrics", "/nowhere", f"{BASE}/deliveries", f"{BASE}/targets"],
)
@pytest.mark.parametrize("header", [None, "Bearer ", "Bearer nobody", "Basic dC1hZG1pbjo="])
async def test_without_a_valid_token_nothing_is_answered(world, path, header):
    """Issue 7: not even whether a path exists."""
    async with world.client("") as client:
        answer = await client.get(path, headers={"authorization": header} if header else {})

    assert (401, "unauthorized") == (answer.status_code, answer.json()["code"])
    assert "Bearer" in answer.headers["www-authenticate"]


async def test_with_nothing_configured_nobody_is_known(tmp_path):
    """Issue 7: every endpoint but /healthz answers 401."""
    world = World(tmp_path, verifiers=())
    async with world.client() as client:
        codes = [
            (await client.get(path)).status_code
            for path in ("/healthz", f"{BASE}/deliveries", "/openapi.json")
        ]
    world.close()

    assert [200, 401, 401] == codes


@pytest.mark.parametrize(
    ("token", "tenant", "status"),
    [
        ("t-reader", None, 200),
        ("t-reader", "acme", 200),
        ("t-reader", "other", 403),
        ("t-both", None, 400),
        ("t-both", "other", 200),
    ],
)
async def test_the_tenant_header_agrees_with_the_token(world, token, tenant, status):
    """Issue 7: tenant from the token, `X-Tenant-ID` must agree."""
    async with world.client("") as client:
        answer = await client.get(f"{BASE}/deliveries", headers=auth(token, tenant))

    assert status == answer.status_code


async def test_a_token_may_ask_so_often_and_another_is_not_held_up(tmp_path):
    """Issue 7: a bucket for each token."""
    at = [0.0]
    world = World(tmp_path, rate=Rate(1.0, 2.0, now=lambda: at[0]))
    async with world.client("") as client:

        async def status(token):
            return (await client.get("/readyz", headers=auth(token))).status_code

        assert [200, 200, 429] == [await status("t-reader") for _ in range(3)]
        assert 200 == await status("t-admin")
        at[0] = 1.0
        assert 200 == await status("t-reader")
    world.close()


async def test_a_request_has_an_id_and_only_a_harmless_one_of_the_callers(world):
    """Issue 7."""
    async with world.client() as client:
        given = await client.get("/healthz", headers={"x-request-id": "r-1"})
        evil = await client.get("/healthz", headers={"x-request-id": "a b<c>"})

    assert "r-1" == given.headers["x-request-id"]
    assert "a b<c>" != evil.headers["x-request-id"]


def token(key=KEY, alg="ES256", kid="k1", **claims):
    given = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "al",
        "exp": int(time.time()) + 600,
        "scope": "notification:read",
        "tenants": ["acme"],
    }
    return jwt.encode(given | claims, key, algorithm=alg, headers={"kid": kid})


def issued(fetches=None):
    async def fetch():
        if fetches is not None:
            fetches.append(1)
        return {
            "keys": [
                {**jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "k1"}
            ]
        }

    return IssuedTokens(fetch, issuer=ISSUER, audience=AUDIENCE)


async def test_a_signed_token_says_who_asks():
    """Issue 7: JWTs by JWKS."""
    caller = await issued().caller(token())

    assert ("al", ("acme",), {"notification:read"}) == (
        caller.subject,
        caller.tenants,
        caller.scopes,
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"exp": int(time.time()) - 3_600},
        {"kid": "k2"},
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"key": rsa.generate_private_key(65537, 2048), "alg": "RS256"},
        {"key": "x" * 32, "alg": "HS256"},
    ],
)
async def test_a_token_that_breaks_any_rule_is_nobodys(claims):
    """Issue 7: issuer, audience, expiry, key and algorithm are each checked."""
    assert await issued().caller(token(**claims)) is None


async def test_an_unsigned_token_is_nobodys():
    """The oldest forgery."""
    assert await issued().caller(token(key=None, alg="none")) is None


async def test_unknown_keys_do_not_flood_the_issuer():
    """One fetch in ten seconds, whoever asks with whatever key id."""
    fetches: list[int] = []
    known = issued(fetches)
    for kid in ("a", "b", "k1", "c"):
        await known.caller(token(kid=kid))

    assert 1 == len(fetches)


def test_it_listens_beyond_this_machine_only_where_it_knows_who_may_ask(settings_for: SettingsFor):
    """Issue 7: exit 2, with a line that says what to set."""
    tokens = '[{"token": "t", "subject": "s", "tenants": [], "scopes": []}]'
    with pytest.raises(SettingsError, match="OUTBOX_API_TOKENS"):
        listening(settings_for(api_address="0.0.0.0:8080"))

    assert listening(settings_for(api_address="[::1]:0")).is_loopback
    assert not listening(settings_for(api_address="10.0.0.1:80", api_tokens=tokens)).is_loopback


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("10.0.0.1", False), ("api", False)],
)
def test_what_is_loopback(host, is_loopback):
    assert is_loopback is Listen(host=host, port=0).is_loopback


async def test_a_wrong_method_and_an_unknown_path_are_problems(world):
    """RFC 9457 throughout."""
    async with world.client() as client:
        method = await client.delete(f"{BASE}/deliveries")
        path = await client.get("/nowhere")

    assert [405, 404] == [method.status_code, path.status_code]
    assert {"application/problem+json"} == {a.headers["content-type"] for a in (method, path)}
    assert "GET" in method.headers["allow"]


async def test_what_fails_inside_tells_no_content(world, monkeypatch):
    """D-043: an exception's text may hold anything."""

    def fail(*_):
        raise KeyError("canary-7f3a")

    monkeypatch.setattr(world.database, "delivery", fail)
    async with world.client() as client:
        answer = await client.get(f"{BASE}/deliveries/x")

    assert (500, "internal") == (answer.status_code, answer.json()["code"])
    assert "canary" not in answer.text
    assert isinstance(answer, httpx.Response)
