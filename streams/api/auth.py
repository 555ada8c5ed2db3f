"""Who asks: bearer tokens from a list, or JWTs of an issuer. What they may do stands in scopes."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol, TypeVar

from streams.api.problems import Problem, not_found

READ: Final = "notification:read"
ADMIN: Final = "notification:admin"
TOKEN_BYTES_MAX: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks.

    Attributes:
        subject: As audit records name it.
        key: Names the token for rate limits; holds nothing of it.
    """

    subject: str
    tenants: tuple[str, ...]
    scopes: frozenset[str]
    key: bytes

    def require(self, scope: str) -> None:
        """Go on only with this scope; `notification:admin` reads too.

        Raises:
            Problem: 403.
        """
        if scope not in self.scopes and ADMIN not in self.scopes:
            raise Problem(
                403,
                "scope_missing",
                f"The token lacks the scope {scope}.",
                {"www-authenticate": f'Bearer error="insufficient_scope", scope="{scope}"'},
            )

    def tenant(self, asked: str | None) -> str:
        """The tenant of a request; `asked` is its `X-Tenant-ID`.

        Raises:
            Problem: 400 where the header is needed and missing, 403 where the token is for others.
        """
        if asked is None and len(self.tenants) == 1:
            return self.tenants[0]
        if asked is None:
            raise Problem(
                400, "tenant_missing", "X-Tenant-ID must name one of the token's tenants."
            )
        if asked not in self.tenants:
            raise Problem(
                403, "tenant_forbidden", "The token is not for the tenant of X-Tenant-ID."
            )
        return asked


class Owned(Protocol):
    """What belongs to a tenant."""

    @property
    def tenant(self) -> str:
        """Whose it is."""


Thing = TypeVar("Thing", bound=Owned)


def owned(thing: Thing | None, tenant: str, what: str) -> Thing:
    """`thing`, where it is this tenant's.

    Raises:
        Problem: 404, the same for what does not exist and for what is another's (C-13).
    """
    if thing is None or thing.tenant != tenant:
        raise not_found(what)
    return thing


class Verifier(Protocol):
    """Knows callers by their tokens."""

    async def caller(self, token: str) -> Caller | None:
        """Who this is; None for nobody that we know."""


class StaticTokens:
    """A list of tokens, kept as hashes.

    Args:
        known: Token, subject, tenants and scopes of each.
    """

    def __init__(self, known: Iterable[tuple[str, str, tuple[str, ...], tuple[str, ...]]]) -> None:
        self._callers = tuple(
            Caller(
                subject=subject,
                tenants=tenants,
                scopes=frozenset(scopes),
                key=sha256(token.encode()).digest(),
            )
            for token, subject, tenants, scopes in known
        )

    async def caller(self, token: str) -> Caller | None:
        """See `Verifier`. Takes the same time whichever token matches, and where none does."""
        given = sha256(token.encode(errors="replace")).digest()
        found = None
        for each in self._callers:
            if hmac.compare_digest(each.key, given):
                found = each
        return found


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Asks each verifier in turn. With none, nobody is known, and every request is refused."""

    verifiers: tuple[Verifier, ...]

    async def caller(self, authorization: str | None) -> Caller:
        """Who asks, by the header `Authorization`.

        Raises:
            Problem: 401.
        """
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token and len(token) <= TOKEN_BYTES_MAX:
            for verifier in self.verifiers:
                found = await verifier.caller(token)
                if found is not None:
                    return found
        raise Problem(
            401,
            "unauthorized",
            "A valid bearer token is needed.",
            {"www-authenticate": 'Bearer realm="outbox"'},
        )
