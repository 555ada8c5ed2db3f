"""How commands ask the operator API: its address, a token, and its problems as one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streams.errors import SettingsError, StreamsError
from streams.settings import Settings
from streams.settings.kinds import split_address

if TYPE_CHECKING:
    import httpx

TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="Holds the bearer token; else OUTBOX_API_TOKEN does."),
]
BASE: Final = "/api/v2/notifications"

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what is listened on, not asked
_PATIENCE_S: Final = 20.0
"""Longer than a redrive is waited for (interface.md §5)."""


class ApiError(StreamsError):
    """The API did not answer, or answered with a problem."""


def client_of(settings: Settings, tenant: str, token_file: Path | None) -> httpx.Client:
    """A client of the API at OUTBOX_API_ADDRESS, for one tenant.

    Raises:
        SettingsError: there is no token.
    """
    import httpx  # noqa: PLC0415 - 0.3 s, which a command that asks nobody should not pay for

    token = settings.api_token.get_secret_value()
    if token_file is not None:
        try:
            token = token_file.read_text().strip()
        except OSError as error:
            raise SettingsError(f"--token-file: {error.strerror}") from error
    if not token:
        raise SettingsError(
            "the API needs a bearer token: set OUTBOX_API_TOKEN, or give --token-file"
        )
    host, port = split_address(settings.api_address)
    host = _ANYWHERE.get(host, host)
    scheme = "https" if settings.api_tls_cert_file else "http"
    return httpx.Client(
        base_url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        headers={"authorization": f"Bearer {token}", "x-tenant-id": tenant},
        timeout=_PATIENCE_S,
        verify=str(settings.api_tls_cert_file) if settings.api_tls_cert_file else True,
    )


def ask(
    client: httpx.Client, method: str, path: str, *, body: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """One request; its status and JSON.

    Raises:
        ApiError: no answer, or a problem.
    """
    import httpx  # noqa: PLC0415 - see `client_of`

    try:
        answer = client.request(method, path, json=body)
        facts: dict[str, Any] = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ApiError(
            f"the API does not answer at {client.base_url} ({type(error).__name__}):"
            " set OUTBOX_API_ADDRESS, or start it with `outbox api`"
        ) from error
    if answer.status_code >= 400:
        raise ApiError(f"{answer.status_code} {facts.get('code')}: {facts.get('detail')}")
    return answer.status_code, facts
