"""Whose events are taken: the providers of the settings, each with its shape and its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from streams.api.histories import RETENTION_MS
from streams.errors import SettingsError, TargetError
from streams.rules.shapes import SHAPES, Shape
from streams.wire.signatures.verifying import Verifier, Window

UNKNOWN: Final = "unknown"
"""Stands for whatever name no provider has; so none may have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider whose events are taken.

    Attributes:
        name: Stands in the path; one name belongs to one tenant.
        tenant: Whose deliveries it may speak of, and no others.
        window: How old a signature may be. Never longer than the history is kept: until then a
            repeated event is known for one (H08).
    """

    name: str
    tenant: str
    shape: Shape
    verifier: Verifier
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if not 1 <= self.window.past_s * 1_000 <= RETENTION_MS:
            raise SettingsError(
                f"provider {self.name}: window_s must lie between 1 and {RETENTION_MS // 1_000}, "
                "as long as a repeated event is known for one"
            )


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One provider as settings give it."""

    name: str
    shape: str
    secret_refs: list[str]
    tenant: str = "default"
    window_s: int = 300


def read_providers(text: str, read_secret: Callable[[str], str]) -> dict[str, Provider]:
    """Read the providers of the settings: a JSON list, by name.

    `[{"name": "mail", "tenant": "acme", "shape": "mailgun", "secret_refs": ["env:MAIL_KEY"],
    "window_s": 28800}]`. Several references while a key is rotated.

    Args:
        read_secret: Gives the key that a reference names (`edge.secrets.read_secret`).

    Raises:
        SettingsError: names the rule that is broken, and no key.
    """
    try:
        entries = msgspec.json.decode(text or "[]", type=list[_Entry])
    except msgspec.MsgspecError:
        raise SettingsError(
            "providers must be a JSON list of objects with name, shape and secret_refs, and where "
            "wanted tenant and window_s"
        ) from None
    found: dict[str, Provider] = {}
    for entry in entries:
        if entry.shape not in SHAPES:
            raise SettingsError(f"provider {entry.name}: shape must be one of {', '.join(SHAPES)}")
        if entry.name in found or entry.name == UNKNOWN:
            raise SettingsError(f"provider {entry.name}: the name must be its own")
        try:
            verifier = Verifier([read_secret(each) for each in entry.secret_refs])
        except TargetError as error:
            raise SettingsError(f"provider {entry.name}: {error}") from None
        found[entry.name] = Provider(
            name=entry.name,
            tenant=entry.tenant,
            shape=SHAPES[entry.shape],
            verifier=verifier,
            window=Window(past_s=entry.window_s),
        )
    return found
