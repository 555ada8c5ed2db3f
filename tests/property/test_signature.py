"""Signatures for any id, time, body and secret: a receiver takes them, and a changed byte is seen."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

from hypothesis import assume, given
from hypothesis import strategies as st

from streams.rules.addresses import parse_url
from streams.wire.signatures.signing import Unsigned
from streams.wire.signatures.standard_webhooks import StandardWebhooks

URL = parse_url("https://b.example/inbox")
KEYS = st.binary(min_size=24, max_size=64)
BODIES = st.binary(max_size=300)


def signed(keys, body, message_id=b"m", timestamp_s=1):
    signer = StandardWebhooks([f"whsec_{b64encode(key).decode().rstrip('=')}" for key in keys])
    request = Unsigned(
        url=URL, content_type=b"a/b", body=body, message_id=message_id, timestamp_s=timestamp_s
    )
    return dict(signer.sign(request))[b"webhook-signature"].split(b" ")


@given(
    st.lists(KEYS, min_size=1, max_size=3), BODIES, st.from_regex(rb"[a-z0-9_-]{1,20}", fullmatch=True),
    st.integers(0, 2**40),
)  # fmt: skip
def test_each_signature_is_the_hmac_of_its_secret(keys, body, message_id, timestamp_s):
    """
    C-09: whatever the bytes of the body; the states that are copied lose nothing.
    """
    text = message_id + b"." + str(timestamp_s).encode() + b"." + body
    expected = [b"v1," + b64encode(hmac.digest(key, text, hashlib.sha256)) for key in keys]

    assert expected == signed(keys, body, message_id, timestamp_s)


@given(KEYS, BODIES, BODIES)
def test_another_body_has_another_signature(key, body, other):
    """
    C-09: a request whose body was changed on its way is refused.
    """
    assume(body != other)

    assert signed([key], body) != signed([key], other)


@given(KEYS, BODIES, BODIES)
def test_requests_do_not_leak_into_each_other(key, body, other):
    """
    One signer signs all requests of a target, at the same time.
    """
    signer = StandardWebhooks([f"whsec_{b64encode(key).decode()}"])
    one, two = (
        Unsigned(url=URL, content_type=b"a/b", body=each, message_id=b"m", timestamp_s=1)
        for each in (body, other)
    )
    first = signer.sign(one)
    signer.sign(two)

    assert first == signer.sign(one)
    assert 32 == len(b64decode(first[0][1][3:]))
