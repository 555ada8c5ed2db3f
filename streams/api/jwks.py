"""Bearer tokens that an issuer signed: signature by its JWKS, issuer, audience, expiry (RFC 7519, 7517)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final

import jwt
import structlog

from streams.api.auth import Caller

log = structlog.get_logger(__name__)

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "EdDSA",
)
"""Signatures by key pairs only: `none`, and HMAC under a public key, are the known forgeries."""

KEYS_FRESH_S: Final = 300.0
REFETCH_S: Final = 10.0
"""The shortest time between two fetches: unknown key ids must not make us flood the issuer."""

LEEWAY_S: Final = 30

Fetch = Callable[[], Awaitable[dict[str, Any]]]


class IssuedTokens:
    """Knows callers by JWTs. Implements `auth.Verifier`.

    Claims: `sub` is the subject, `scope` (separated by spaces) or `scopes` the scopes, `tenants` (a
    list) or `tenant` the tenants.

    Args:
        fetch: Gets the issuer's JWKS; raises `OSError` or `ValueError` where it cannot.
    """

    def __init__(self, fetch: Fetch, *, issuer: str, audience: str) -> None:
        self._fetch = fetch
        self._issuer = issuer
        self._audience = audience
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = -KEYS_FRESH_S
        self._fetching = asyncio.Lock()

    async def caller(self, token: str) -> Caller | None:
        """See `Verifier`."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        if header.get("alg") not in ALGORITHMS:
            return None
        key = await self._key(str(header.get("kid", "")))
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError):
            return None
        return _caller(claims)

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        age_s = time.monotonic() - self._fetched_at
        if age_s > KEYS_FRESH_S or (kid not in self._keys and age_s > REFETCH_S):
            async with self._fetching:
                if time.monotonic() - self._fetched_at > REFETCH_S:
                    await self._refresh()
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        """Fetch the keys; those that are known stay where the issuer does not answer."""
        self._fetched_at = time.monotonic()
        try:
            document = await self._fetch()
            keys = jwt.PyJWKSet.from_dict(document).keys
        except (OSError, ValueError, jwt.PyJWTError) as error:
            log.error("jwks.unavailable", error=type(error).__name__)
            return
        self._keys = {str(key.key_id or ""): key for key in keys if key.public_key_use != "enc"}


def _caller(claims: dict[str, Any]) -> Caller:
    scope = claims.get("scope", claims.get("scopes", ()))
    scopes = scope.split() if isinstance(scope, str) else _texts(scope)
    tenants = claims.get("tenants", claims.get("tenant", ()))
    subject = str(claims["sub"])
    return Caller(
        subject=subject,
        tenants=(tenants,) if isinstance(tenants, str) else tuple(_texts(tenants)),
        scopes=frozenset(scopes),
        key=sha256(subject.encode()).digest(),
    )


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
