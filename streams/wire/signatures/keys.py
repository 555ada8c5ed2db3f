"""Secrets in text as keys. No message says anything of what it was given."""

from __future__ import annotations

import binascii
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from streams.errors import TargetError

MessageKey: TypeAlias = Ed25519PrivateKey | RSAPrivateKey
"""A key of HTTP message signatures."""

HMAC_PREFIX: Final = "whsec_"
ED25519_PREFIX: Final = "whsk_"
HMAC_BYTES: Final = range(24, 65)
"""Standard Webhooks 1.0.0: a secret has 24 to 64 bytes."""

SEED_BYTES: Final = 32
RSA_BITS_MIN: Final = 2_048


def hmac_key(secret: str) -> bytes:
    """Read `whsec_…`, a symmetric secret of Standard Webhooks.

    Raises:
        TargetError: it is not one.
    """
    key = _base64(secret.removeprefix(HMAC_PREFIX)) if secret.startswith(HMAC_PREFIX) else b""
    if len(key) not in HMAC_BYTES:
        raise TargetError("a symmetric secret must be whsec_ and 24 to 64 bytes in base64")
    return key


def ed25519_key(secret: str) -> Ed25519PrivateKey:
    """Read `whsk_…`, a private Ed25519 key of Standard Webhooks.

    It holds the 32 bytes of the seed, or those and the 32 of the public key (NaCl's form).

    Raises:
        TargetError: it is not one, or its two halves do not belong together.
    """
    raw = _base64(secret.removeprefix(ED25519_PREFIX)) if secret.startswith(ED25519_PREFIX) else b""
    if len(raw) not in (SEED_BYTES, 2 * SEED_BYTES):
        raise TargetError("a private key must be whsk_ and 32 or 64 bytes in base64")
    key = Ed25519PrivateKey.from_private_bytes(raw[:SEED_BYTES])
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    if len(raw) > SEED_BYTES and raw[SEED_BYTES:] != public:
        raise TargetError("a private key of 64 bytes must end in its own public key")
    return key


def message_key(pem: str) -> MessageKey:
    """Read a private key in PEM: Ed25519, or RSA of 2,048 bits and more.

    Raises:
        TargetError: it is neither, or is locked by a password.
    """
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise TargetError("a message key must be a private key in PEM, without password") from None
    if isinstance(key, Ed25519PrivateKey):
        return key
    if isinstance(key, RSAPrivateKey) and key.key_size >= RSA_BITS_MIN:
        return key
    raise TargetError(f"a message key must be Ed25519, or RSA of at least {RSA_BITS_MIN} bits")


def _base64(text: str) -> bytes:
    """Decode strictly, padding optional; what is no base64 gives nothing."""
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        return b""
