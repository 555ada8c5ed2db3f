"""The other side of Standard Webhooks 1.0.0: did who holds the key sign these bytes, and when?"""

from __future__ import annotations

import hmac
from binascii import a2b_base64
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from streams.errors import TargetError
from streams.wire.signatures.keys import SEED_BYTES, hmac_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PUBLIC_PREFIX: Final = "whpk_"
"""A public Ed25519 key of Standard Webhooks, 32 bytes in base64."""

FAMILIES: Final = ("webhook", "svix")
"""Prefixes of the three headers: Standard Webhooks' own, and those of its reference implementation,
which signs the same way and which several providers use (Resend, Clerk …)."""

SIGNATURES_MAX: Final = 16
"""Signatures of one request that are looked at: one for each key while keys are rotated."""

_ID_CHARS_MAX: Final = 256


class Proof(StrEnum):
    """What a request proves."""

    GOOD = "good"
    UNSIGNED = "unsigned"
    """A header is missing or unreadable."""
    FORGED = "forged"
    """No signature is of one of the keys over these very bytes."""
    STALE = "stale"
    """Signed longer ago than is taken."""
    EARLY = "early"
    """Signed further in the future than clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How old a signature may be.

    Attributes:
        past_s: Age that is taken. It may be long, since a repeated event changes nothing for as long as
            the history is kept; as long as the provider's own retries, where it does not sign anew (H08).
        future_s: How far a provider's clock may be ahead of ours.
    """

    past_s: int = 300
    future_s: int = 300


class Verifier:
    """Knows one provider's keys, read once."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Read the keys: `whsec_…` (HMAC-SHA256) and `whpk_…` (Ed25519), several while rotating.

        Raises:
            TargetError: there is none, or one cannot be read. Says nothing of its content.
        """
        if not keys:
            raise TargetError("a provider needs at least one key")
        self._secrets = [hmac_key(key) for key in keys if not key.startswith(PUBLIC_PREFIX)]
        self._public = [_public_key(key) for key in keys if key.startswith(PUBLIC_PREFIX)]

    def verify(
        self, headers: Mapping[str, str], body: bytes, *, now_s: int, window: Window
    ) -> Proof:
        """Say what a request proves. Never raises for what it holds.

        The signature is looked at before the time: who cannot sign learns nothing of our clock.

        Args:
            headers: Names in lower case.
            body: As received, byte for byte.
        """
        signed = _signed(headers)
        if signed is None:
            return Proof.UNSIGNED
        message_id, timestamp_s, signatures = signed
        content = f"{message_id}.{timestamp_s}.".encode() + body
        if not any(self._is_ours(signature, content) for signature in signatures):
            return Proof.FORGED
        if timestamp_s < now_s - window.past_s:
            return Proof.STALE
        return Proof.EARLY if timestamp_s > now_s + window.future_s else Proof.GOOD

    def _is_ours(self, signature: str, content: bytes) -> bool:
        version, _, text = signature.partition(",")
        try:
            raw = a2b_base64(text, strict_mode=True)
        except ValueError:
            return False
        if version == "v1":
            made = [hmac.digest(key, content, "sha256") for key in self._secrets]
            return any(hmac.compare_digest(each, raw) for each in made)
        if version == "v1a":
            return any(_is_signed_by(key, raw, content) for key in self._public)
        return False


def _signed(headers: Mapping[str, str]) -> tuple[str, int, list[str]] | None:
    """Id, timestamp and signatures; None where they cannot be had from one family of headers."""
    for family in FAMILIES:
        message_id = headers.get(f"{family}-id", "")
        timestamp = headers.get(f"{family}-timestamp", "")
        signatures = headers.get(f"{family}-signature", "").split(" ")[:SIGNATURES_MAX]
        is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12
        has_canonical_time = is_number and str(int(timestamp)) == timestamp
        if has_canonical_time and 0 < len(message_id) <= _ID_CHARS_MAX and any(signatures):
            return message_id, int(timestamp), signatures
    return None


def _is_signed_by(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _public_key(text: str) -> Ed25519PublicKey:
    try:
        raw = a2b_base64(text.removeprefix(PUBLIC_PREFIX), strict_mode=True)
    except ValueError:
        raw = b""
    if len(raw) != SEED_BYTES:
        raise TargetError("a public key must be whpk_ and 32 bytes in base64")
    return Ed25519PublicKey.from_public_bytes(raw)
