"""The quick ways to an identity give what the slow ones give."""

import json
import struct

import rfc8785
from aiokafka.partitioner import murmur2 as kafkas_murmur2
from hypothesis import given
from hypothesis import strategies as st

from streams.model.activity import Activity, Recipient
from streams.rules.identity import (
    activity_key_of,
    canonical_hash,
    canonical_json,
    delivery_id,
    delivery_key,
    murmur2,
)

TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
PARTS = st.none() | st.text(min_size=1, max_size=3)


@given(value=OBJECTS, escaped=st.booleans(), indent=st.sampled_from([None, 0, 2]))
def test_the_canonical_form_is_that_of_the_reference(value, escaped, indent):
    """
    D-006, RFC 8785: however the producer spells it.
    """
    text = json.dumps(value, ensure_ascii=escaped, indent=indent).encode()

    assert rfc8785.dumps(json.loads(text)) == canonical_json(text)


@given(
    big=st.integers(min_value=2**53) | st.integers(max_value=-(2**53)),
    value=OBJECTS,
    nested=st.booleans(),
)
def test_a_big_integer_anywhere_leaves_no_canonical_form(big, value, nested):
    """
    D-006, G08.
    """
    value["big"] = [0, {"x": big}] if nested else big

    assert canonical_json(json.dumps(value).encode()) is None


@given(value=OBJECTS, name=TEXT, one=VALUES, other=VALUES)
def test_a_repeated_name_anywhere_leaves_no_canonical_form(value, name, one, other):
    """
    D-006, G03: msgspec drops the first of two in silence.
    """
    pair = f"{json.dumps(name)}: {json.dumps(one)}, {json.dumps(name)}: {json.dumps(other)}"
    value["here"] = "@"
    text = json.dumps(value).replace('"here": "@"', f'"here": {{{pair}}}')

    assert canonical_json(text.encode()) is None


@given(text=st.binary(max_size=60))
def test_the_canonical_form_of_a_canonical_form_is_itself(text):
    """Whatever the bytes: there is a form, and it is final, or there is none."""
    form = canonical_json(text)

    assert form is None or form == canonical_json(form)


def activity(**fields):
    return Activity(
        **{
            "activity_id": "a",
            "tenant": "t",
            "actor": "",
            "recipients": (Recipient(target="crm"),),
            "body": b"{}",
            "content_type": "application/activity+json",
            **fields,
        }
    )


@given(st.lists(st.tuples(NAMES, PARTS, PARTS, PARTS, PARTS, NAMES), min_size=2, max_size=6))
def test_two_deliveries_share_a_name_only_if_they_share_all_of_it(identities):
    """
    D-002: ids and keys are framed, so that no two identities read the same.
    """
    named: dict[tuple[str, object], set[object]] = {}
    for identity in identities:
        activity_id, transaction, workflow, subscriber, channel, inbox = identity
        told = activity(
            activity_id=activity_id,
            transaction=transaction,
            workflow=workflow,
            subscriber=subscriber,
            channel=channel,
        )
        recipient = Recipient(inbox=inbox)
        # A transaction stands in for the activity ID (D-002), so it is not part of the id then.
        of_id = identity if transaction is None else identity[1:]
        named.setdefault(("id", delivery_id(told, recipient)), set()).add(of_id)
        named.setdefault(("key", delivery_key(told, recipient)), set()).add(identity)
        assert told.key == activity_key_of(delivery_key(told, recipient))

    assert all(len(sharing) == 1 for sharing in named.values())


@given(value=OBJECTS, actor=TEXT)
def test_the_hash_depends_on_the_content_and_not_on_its_spelling(value, actor):
    """D-006."""
    plain = activity(body=json.dumps(value).encode(), actor=actor)
    spaced = activity(body=json.dumps(value, indent=1, ensure_ascii=False).encode(), actor=actor)

    assert canonical_hash(plain) == canonical_hash(spaced)


@given(key=st.binary(max_size=80))
def test_murmur2_is_that_of_the_client_library(key):
    """
    I11: aiokafka's own default partitioner is the Java client's.
    """
    assert kafkas_murmur2(key) % 2**32 == murmur2(key)


@given(words=st.lists(st.sampled_from([0, 1, 2**31, 2**32 - 1]), max_size=6))
def test_murmur2_carries_nothing_from_lane_to_lane(words):
    """
    I11: all words are mixed at once in one large integer; extremes would spill first.
    """
    key = struct.pack(f"<{len(words)}I", *words)

    assert kafkas_murmur2(key) % 2**32 == murmur2(key)
