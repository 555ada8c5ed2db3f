"""Standard Webhooks read: only the right key, the right bytes and the right time are proof."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime

import pytest
import standardwebhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from streams.errors import TargetError
from streams.wire.signatures.verifying import SIGNATURES_MAX, Proof, Verifier, Window

NOW = 1_767_225_600
SECRET = f"whsec_{b64encode(bytes(range(32))).decode()}"
OTHER = f"whsec_{b64encode(bytes(32)).decode()}"
BODY = b'{"event":"bounce"}'


def signed(secret=SECRET, body=BODY, at=NOW, family="webhook"):
    """Headers as the reference implementation makes them."""
    signature = standardwebhooks.Webhook(secret).sign(
        "msg_1", datetime.fromtimestamp(at, UTC), body.decode()
    )
    return {
        f"{family}-id": "msg_1",
        f"{family}-timestamp": str(at),
        f"{family}-signature": signature,
    }


def proof(headers, body=BODY, keys=(SECRET,)):
    return Verifier(keys).verify(headers, body, now_s=NOW, window=Window())


@pytest.mark.parametrize("family", ["webhook", "svix"])
def test_what_the_reference_signs_is_taken(family):
    """
    D-056: Standard Webhooks, and the headers of its reference implementation.
    """
    assert Proof.GOOD == proof(signed(family=family))


def test_while_keys_rotate_either_is_taken():
    """
    C-09: several keys at once on both sides.
    """
    both = signed()
    both["webhook-signature"] = f"{signed(OTHER)['webhook-signature']} {both['webhook-signature']}"

    assert Proof.GOOD == proof(both)
    assert Proof.GOOD == proof(signed(OTHER), keys=(SECRET, OTHER))


def test_a_public_key_takes_what_its_private_key_signed():
    """
    D-056: Ed25519, `v1a`.
    """
    key = Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = b64encode(key.sign(f"msg_1.{NOW}.".encode() + BODY)).decode()
    headers = signed() | {"webhook-signature": f"v1a,{signature}"}
    keys = (f"whpk_{b64encode(raw).decode()}",)

    assert Proof.GOOD == proof(headers, keys=keys)
    assert Proof.FORGED == proof(headers, body=BODY + b" ", keys=keys)
    assert Proof.FORGED == proof(signed(), keys=keys)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"webhook-signature": signed(OTHER)["webhook-signature"]}, Proof.FORGED),
        ({"webhook-id": "msg_2"}, Proof.FORGED),
        ({"webhook-timestamp": str(NOW + 1)}, Proof.FORGED),
        ({"webhook-signature": "v1,"}, Proof.FORGED),
        ({"webhook-signature": "v1,not base64"}, Proof.FORGED),
        ({"webhook-signature": signed()["webhook-signature"].replace("v1,", "v9,")}, Proof.FORGED),
        ({"webhook-signature": signed()["webhook-signature"].removeprefix("v1,")}, Proof.FORGED),
        ({"webhook-signature": "\xff,\xff"}, Proof.FORGED),
        ({"webhook-signature": ""}, Proof.UNSIGNED),
        ({"webhook-id": ""}, Proof.UNSIGNED),
        ({"webhook-id": "m" * 257}, Proof.UNSIGNED),
        ({"webhook-timestamp": "yesterday"}, Proof.UNSIGNED),
        ({"webhook-timestamp": "-1"}, Proof.UNSIGNED),
        ({"webhook-timestamp": "0017"}, Proof.UNSIGNED),
        ({"webhook-timestamp": "9" * 13}, Proof.UNSIGNED),
        ({"webhook-timestamp": "١٢"}, Proof.UNSIGNED),
    ],
)
def test_what_is_not_proved_is_refused(change, expected):
    """
    D-056: whatever is wrong with a signature, it changes nothing.
    """
    assert expected == proof(signed() | change)


def test_no_headers_are_no_signature():
    """
    D-056.
    """
    assert Proof.UNSIGNED == proof({})


def test_a_changed_body_is_forged():
    """
    D-056: byte for byte.
    """
    assert Proof.FORGED == proof(signed(), body=BODY + b" ")


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (0, Proof.GOOD),
        (300, Proof.GOOD),
        (301, Proof.STALE),
        (-300, Proof.GOOD),
        (-301, Proof.EARLY),
    ],
)
def test_a_signature_is_good_for_the_window(age, expected):
    """
    H08: five minutes back, and as much as clocks may differ ahead.
    """
    assert expected == proof(signed(at=NOW - age))


def test_of_a_hundred_signatures_few_are_looked_at():
    """
    D-056: nobody makes us compute for what he cannot sign.
    """
    good = signed()["webhook-signature"]
    bad = " ".join(["v1,AAAA"] * SIGNATURES_MAX)

    assert Proof.FORGED == proof(signed() | {"webhook-signature": f"{bad} {good}"})


@pytest.mark.parametrize("key", ["", "whsec_", "whsec_c2hvcnQ=", "whpk_AAAA", "whpk_?", "secret"])
def test_what_is_no_key_is_refused_without_its_text(key):
    """
    D-042: a message must not hold a key.
    """
    with pytest.raises(TargetError) as refused:
        Verifier([key])

    assert "c2hvcnQ" not in str(refused.value)


def test_no_keys_are_refused():
    """
    D-056: a provider without a key could never be believed.
    """
    with pytest.raises(TargetError):
        Verifier([])
