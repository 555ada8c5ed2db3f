"""Signatures against the specifications' own vectors, and against the package that receivers use."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from typing import Any

import pytest
import standardwebhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import (
    RSAPrivateKey,
    RSAPublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from streams.errors import TargetError
from streams.rules.addresses import parse_url
from streams.wire.signatures.cavage import Cavage, signing_string
from streams.wire.signatures.http_message import (
    HttpMessage,
    content_digest,
    sign_base,
    signature_base,
)
from streams.wire.signatures.keys import ed25519_key, message_key
from streams.wire.signatures.signing import Unsigned
from streams.wire.signatures.standard_webhooks import StandardWebhooks
from tests.unit.wire import signature_vectors as vectors

NOW_S = 1_674_087_231
BODY = '{"type": "Create", "note": "grüße"}'.encode()
OLD, NEW = (f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (1, 2))
SEED = bytes(range(32))
PRIVATE = f"whsk_{b64encode(SEED).decode()}"
PUBLIC = Ed25519PrivateKey.from_private_bytes(SEED).public_key()


def request(**changes):
    given: dict[str, Any] = {
        "url": parse_url("https://b.example:8443/users/bo/inbox?x=1"),
        "content_type": b"application/activity+json",
        "body": BODY,
        "message_id": b"dlv_1-1",
        "timestamp_s": NOW_S,
    }
    return Unsigned(**(given | changes))


# ── Standard Webhooks ──


def standard_headers(signer, timestamp_s):
    signed = dict(signer.sign(request(timestamp_s=timestamp_s)))
    return {
        "webhook-id": "dlv_1-1",
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signed[b"webhook-signature"].decode(),
    }


@pytest.mark.parametrize("known", [OLD, NEW])
def test_a_receiver_with_either_secret_takes_the_request(known):
    """
    C-09: rotation. The package `standardwebhooks` is the oracle, as a receiver runs it.
    """
    headers = standard_headers(StandardWebhooks([NEW, OLD]), int(time.time()))

    assert json.loads(BODY) == standardwebhooks.Webhook(known).verify(BODY, headers)


def test_a_receiver_with_another_secret_refuses_the_request():
    headers = standard_headers(StandardWebhooks([NEW]), int(time.time()))

    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(OLD).verify(BODY, headers, json_parse=False)


def test_the_newest_secret_signs_first():
    """
    C-09: space-separated, newest first.
    """
    both = dict(StandardWebhooks([NEW, OLD]).sign(request()))[b"webhook-signature"].split(b" ")
    alone = [dict(StandardWebhooks([s]).sign(request()))[b"webhook-signature"] for s in (NEW, OLD)]

    assert alone == both


def test_a_private_key_signs_as_v1a():
    """
    C-09: Standard Webhooks' asymmetric signature, Ed25519 over the same text.
    """
    made = dict(StandardWebhooks([PRIVATE]).sign(request()))[b"webhook-signature"]

    assert made.startswith(b"v1a,")
    PUBLIC.verify(b64decode(made[4:]), b"dlv_1-1.1674087231." + BODY)


def test_secrets_of_both_kinds_sign_at_once():
    """
    C-09: how a target moves from a shared secret to a public key.
    """
    made = dict(StandardWebhooks([PRIVATE, OLD]).sign(request()))[b"webhook-signature"]

    assert [b"v1a", b"v1"] == [each.split(b",")[0] for each in made.split(b" ")]


def test_a_private_key_of_64_bytes_ends_in_its_public_half():
    """
    NaCl's form, which other libraries write.
    """
    public = PUBLIC.public_bytes(Encoding.Raw, PublicFormat.Raw)
    whole = ed25519_key(f"whsk_{b64encode(SEED + public).decode()}")

    assert SEED == whole.private_bytes_raw()
    with pytest.raises(TargetError):
        ed25519_key(f"whsk_{b64encode(SEED + SEED).decode()}")


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "canary",
        "whsec_",
        "whsec_canary!",
        f"whsec_{b64encode(b'canary-short').decode()}",
        f"whsec_{b64encode(b'canary' * 20).decode()}",
        f"whsk_{b64encode(b'canary' * 4).decode()}",
        f"whpk_{b64encode(SEED).decode()}",
    ],
)
def test_what_is_no_secret_is_refused_without_being_repeated(secret):
    """
    D-042, D-043: a mistyped secret must not come out in an error.
    """
    with pytest.raises(TargetError) as refused:
        StandardWebhooks([secret])

    assert not secret.removeprefix("whsec_") or secret not in str(refused.value)


# ── RFC 9421 ──


def test_rfc9421_b26_is_signed_as_the_rfc_signs_it():
    """
    C-09: RFC 9421 appendix B.2.6, ed25519, base and signature.
    """
    base = signature_base(vectors.B26_COMPONENTS, vectors.B26_PARAMETERS)
    made = sign_base(message_key(vectors.ED25519_KEY), base)

    assert vectors.B26_BASE == base
    assert vectors.B26_SIGNATURE == b64encode(made).decode()


def test_rfc9421_43_is_signed_as_the_rfc_signs_it():
    """
    C-09: RFC 9421 §4.3, rsa-v1_5-sha256.
    """
    base = signature_base(vectors.PROXY_COMPONENTS, vectors.PROXY_PARAMETERS)
    made = sign_base(message_key(vectors.RSA_V1_5_KEY), base)

    assert vectors.PROXY_SIGNATURE == b64encode(made).decode()


def test_rfc9421_b23_verifies_over_our_base():
    """
    C-09: RFC 9421 appendix B.2.3, rsa-pss-sha512, which is random: its signature fits our base.
    """
    key = load_pem_public_key(vectors.RSA_PSS_PUBLIC_KEY.encode())
    assert isinstance(key, RSAPublicKey)
    base = signature_base(vectors.B23_COMPONENTS, vectors.B23_PARAMETERS)

    key.verify(
        b64decode(vectors.B23_SIGNATURE), base, PSS(mgf=MGF1(SHA512()), salt_length=64), SHA512()
    )


def test_a_pss_signature_of_ours_verifies_by_the_rfcs_parameters():
    """
    RFC 9421 §3.3.1: SHA-512 twice, a salt of 64 bytes.
    """
    key = message_key(vectors.RSA_V1_5_KEY)
    assert isinstance(key, RSAPrivateKey)
    made = dict(HttpMessage(key, "k", pss=True).sign(request()))
    base = base_of(made, request())

    key.public_key().verify(
        b64decode(made[b"signature"].removeprefix(b"sig1=:").removesuffix(b":")),
        base,
        PSS(mgf=MGF1(SHA512()), salt_length=64),
        SHA512(),
    )


def test_a_request_is_signed_over_what_decides_its_effect():
    """
    C-09: method, URL as written, content type, and the body by its digest (RFC 9530).
    """
    key = message_key(vectors.ED25519_KEY)
    made = dict(HttpMessage(key, "https://a.example/al#main-key").sign(request()))

    assert content_digest(BODY) == made[b"content-digest"]
    assert (
        b'sig1=("@method" "@target-uri" "content-digest" "content-type")'
        b';created=1674087231;keyid="https://a.example/al#main-key";alg="ed25519"'
    ) == made[b"signature-input"]
    expected = (
        b'"@method": POST\n'
        b'"@target-uri": https://b.example:8443/users/bo/inbox?x=1\n'
        b'"content-digest": ' + made[b"content-digest"] + b"\n"
        b'"content-type": application/activity+json\n'
        b'"@signature-params": ' + made[b"signature-input"].removeprefix(b"sig1=")
    )
    assert isinstance(key, Ed25519PrivateKey)
    key.public_key().verify(b64decode(made[b"signature"][6:-1]), expected)


def test_the_content_digest_is_that_of_rfc_9530():
    """
    RFC 9530 appendix B.1 writes it of `{"hello": "world"}` and a line feed.
    """
    assert b"sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:" == content_digest(
        b'{"hello": "world"}\n'
    )


def base_of(made, unsigned):
    """The base that a receiver builds from the headers of a request."""
    parameters = made[b"signature-input"].removeprefix(b"sig1=").decode()
    url = unsigned.url
    target = url.origin.scheme.encode() + b"://" + url.authority + url.target
    return signature_base(
        (
            ("@method", b"POST"),
            ("@target-uri", target),
            ("content-digest", made[b"content-digest"]),
            ("content-type", unsigned.content_type),
        ),
        parameters,
    )


# ── draft-cavage-12 ──


def test_cavage_c2_is_signed_as_the_draft_signs_it():
    """
    C-09: draft-cavage-http-signatures-12, appendix C.2.
    """
    key = load_pem_private_key(vectors.CAVAGE_KEY.encode(), password=None)
    made = sign_base(key, signing_string(vectors.CAVAGE_COMPONENTS))  # type: ignore[arg-type]

    assert vectors.CAVAGE_SIGNATURE == b64encode(made).decode()


def test_a_cavage_request_says_what_it_covers():
    """
    C-09: as ActivityPub servers of today ask for it, digest and date among its headers.
    """
    key = message_key(vectors.ED25519_KEY)
    unsigned = request(body=b'{"hello": "world"}')
    made = dict(Cavage(key, "https://a.example/al#main-key").sign(unsigned))
    head, _, signature = made[b"signature"].partition(b',signature="')
    expected = (
        b"(request-target): post /users/bo/inbox?x=1\n"
        b"host: b.example:8443\n"
        b"date: Thu, 19 Jan 2023 00:13:51 GMT\n"
        b"digest: " + vectors.CAVAGE_DIGEST + b"\n"
        b"content-type: application/activity+json"
    )

    assert vectors.CAVAGE_DIGEST == made[b"digest"]
    assert b"Thu, 19 Jan 2023 00:13:51 GMT" == made[b"date"]
    assert (
        b'keyId="https://a.example/al#main-key",algorithm="hs2019",'
        b'headers="(request-target) host date digest content-type"'
    ) == head
    assert isinstance(key, Ed25519PrivateKey)
    key.public_key().verify(b64decode(signature[:-1]), expected)
