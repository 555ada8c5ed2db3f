"""Which text is which key, and which signer a target's `signing` names."""

from __future__ import annotations

from base64 import b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from streams.errors import TargetError
from streams.model.target import MESSAGE_SCHEMES, Signing
from streams.rules.addresses import parse_url
from streams.wire.signatures.keys import message_key
from streams.wire.signatures.schemes import signer_of
from streams.wire.signatures.signing import Unsigned
from tests.unit.wire import signature_vectors as vectors

NEW = f"whsec_{b64encode(bytes([2]) * 32).decode()}"
PRIVATE = f"whsk_{b64encode(bytes(range(32))).decode()}"


def request():
    return Unsigned(
        url=parse_url("https://b.example/inbox"),
        content_type=b"application/activity+json",
        body=b"{}",
        message_id=b"dlv_1-1",
        timestamp_s=1,
    )


@pytest.mark.parametrize(
    ("signing", "secret", "header"),
    [
        (Signing.NONE, NEW, b"webhook-signature"),
        (Signing.WEBHOOKS_HMAC, NEW, b"webhook-signature"),
        (Signing.WEBHOOKS_ED25519, PRIVATE, b"webhook-signature"),
        (Signing.RFC9421, vectors.ED25519_KEY, b"signature-input"),
        (Signing.RFC9421, vectors.RSA_V1_5_KEY, b"signature-input"),
        (Signing.RFC9421_PSS, vectors.RSA_V1_5_KEY, b"signature-input"),
        (Signing.CAVAGE, vectors.RSA_V1_5_KEY, b"digest"),
    ],
)
def test_every_scheme_makes_a_signer(signing, secret, header):
    signer = signer_of(signing, [secret], "k")

    assert signer is not None
    assert header in dict(signer.sign(request()))


def test_no_scheme_and_no_secret_sign_nothing():
    assert signer_of(Signing.NONE, [], "") is None


@pytest.mark.parametrize(
    ("signing", "secrets"),
    [
        (Signing.WEBHOOKS_HMAC, [PRIVATE]),
        (Signing.WEBHOOKS_HMAC, []),
        (Signing.WEBHOOKS_ED25519, [NEW]),
        *((scheme, [NEW]) for scheme in sorted(MESSAGE_SCHEMES)),
        *((scheme, [vectors.ED25519_KEY] * 2) for scheme in sorted(MESSAGE_SCHEMES)),
    ],
)
def test_a_secret_of_another_kind_is_refused(signing, secrets):
    """
    C-09: never sign by another scheme than the target was told, never not at all.
    """
    with pytest.raises(TargetError):
        signer_of(signing, secrets, "k")


def test_a_short_rsa_key_is_refused():
    """
    1,024 bits were broken long ago; 2,048 are what ActivityPub servers use.
    """
    with pytest.raises(TargetError, match="2048"):
        message_key(vectors.CAVAGE_KEY)


def test_a_locked_key_is_refused_without_being_repeated():
    """
    D-042: nobody types a password at a worker; and no key stands in an error.
    """
    key = generate_private_key(65_537, 2_048)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"canary")
    ).decode()

    with pytest.raises(TargetError) as refused:
        message_key(locked)

    assert locked.splitlines()[1] not in str(refused.value)


def test_a_key_of_another_algorithm_is_refused():
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )

    with pytest.raises(TargetError, match="Ed25519"):
        message_key(pem.decode())
