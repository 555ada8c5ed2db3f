"""Whatever the bytes: a value, or one of our errors. And what was written comes back."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import RecordError
from streams.model.activity import Activity
from streams.model.ledger import ActivityRow, Row
from streams.model.receipt import DeadLetter, Receipt
from streams.rules.addresses import parse_url
from streams.wire.activity import read_activity
from streams.wire.avro import Codec
from streams.wire.codec import (
    decode_activity_row,
    decode_dead_letter,
    decode_receipt,
    decode_row,
    encode_activity_row,
    encode_dead_letter,
    encode_receipt,
    encode_row,
)
from streams.wire.commands import LateReport, Redrive, decode_command
from streams.wire.inbox import canonical_inbox
from streams.wire.observations import ObservationRecord, decode_observation, encode_observation
from streams.wire.records import RetryItem, read_retry_headers, retry_headers
from streams.wire.schemas import MARK, schema_folder, schema_set
from streams.wire.strict_json import is_too_deep, members
from streams.wire.targets import (
    TargetRecord,
    TargetState,
    decode_target,
    decode_target_state,
    encode_target,
)
from streams.wire.values import fields_of

LIMITS = {"max_bytes": 262_144, "max_depth": 32}
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
st.register_type_strategy(int, LONGS)
st.register_type_strategy(str, TEXT)
WIRES: dict[str, tuple[Any, Any, Any]] = {
    "row": (Row, encode_row, decode_row),
    "activity row": (ActivityRow, encode_activity_row, decode_activity_row),
    "dead letter": (DeadLetter, encode_dead_letter, decode_dead_letter),
    "receipt": (Receipt, encode_receipt, decode_receipt),
    "target": (TargetRecord, encode_target, decode_target),
    "observation": (ObservationRecord, encode_observation, decode_observation),
}
DECODERS = {
    "ledger-delivery": (decode_row, Row),
    "ledger-activity": (decode_activity_row, ActivityRow),
    "dead-letter": (decode_dead_letter, DeadLetter),
    "receipt": (decode_receipt, Receipt),
    "command": (decode_command, Redrive | LateReport),
    "target": (decode_target, TargetRecord),
    "target-state": (decode_target_state, TargetState),
    "observation": (decode_observation, ObservationRecord),
}
ACTIVITY_SCHEMA = (schema_folder() / "activity.avsc").read_text()
REGISTRY = {7: ACTIVITY_SCHEMA}.get


def read_or_refuse(read, value):
    """What was read, or the error of ours that refused it; anything else fails the test by itself."""
    try:
        return read(value)
    except RecordError as refused:
        return refused


def read(value):
    return read_activity(value, schema_by_id=REGISTRY, **LIMITS)


# ── Our own records ──


@pytest.mark.parametrize("name", WIRES)
@given(data=st.data())
def test_what_is_written_comes_back(name, data):
    type_, encode, decode = WIRES[name]
    value = data.draw(st.builds(type_))

    assert decode(encode(value)) == value


@given(row=st.builds(Row), receipt=st.builds(Receipt))
def test_the_quick_writer_writes_what_fastavro_writes(row, receipt):
    """
    `flat_encoder` is ours for its speed alone.
    """
    assert Codec("ledger-delivery").encode(fields_of(row)) == encode_row(row)
    assert Codec("receipt").encode(fields_of(receipt)) == encode_receipt(receipt)


@pytest.mark.parametrize("name", DECODERS)
@given(body=st.binary(max_size=120))
def test_any_bytes_behind_a_true_fingerprint_are_read_or_refused(name, body):
    """
    C-14: nothing but our own error ever leaves a decoder.
    """
    decode, type_ = DECODERS[name]

    found = read_or_refuse(decode, MARK + schema_set(name).fingerprint + body)

    assert isinstance(found, type_ | RecordError)


@given(row=st.builds(Row), at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_a_row_with_a_changed_byte_is_read_or_refused(row, at, byte, cut):
    """C-14."""
    value = bytearray(encode_row(row))
    value[at % len(value)] = byte

    found = read_or_refuse(decode_row, bytes(value[: at % len(value)] if cut else value))

    assert isinstance(found, Row | RecordError)


@given(
    due_ms=st.integers(0, 2**62),
    items=st.lists(
        st.builds(
            RetryItem,
            attempt=st.integers(0, 2**31),
            fence=st.integers(-1, 2**62),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_a_retrys_headers_come_back(due_ms, items):
    assert (due_ms, tuple(items)) == read_retry_headers(retry_headers(due_ms, items))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["due", "delivery", "target", "attempt", "fence", "x"]),
            st.binary(max_size=4) | st.sampled_from([b"1", b"-1", b"12"]),
        )
    )
)
def test_any_headers_are_a_retrys_or_refused(headers):
    """C-14."""
    found = read_or_refuse(read_retry_headers, headers)

    assert isinstance(found, tuple | RecordError)


# ── Activities ──

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
SPACE = st.text(" \t\r\n", max_size=3)


@st.composite
def produced(draw):
    """An activity's bytes, and a record around them, as some producer may have written both."""
    as_json = draw(st.sampled_from([True, False]))
    activity = json.dumps(
        draw(OBJECTS), ensure_ascii=as_json, indent=draw(st.sampled_from([None, 0, 3]))
    ).replace("Infinity", "1e999")
    gap = draw(SPACE)
    fields = [
        '"activity_id":"urn:1"',
        '"recipients":[{"target":"crm"}]',
        f'"activity":{gap}{activity}{gap}',
        *draw(st.lists(st.sampled_from(['"actor":"al"', '"x":1', '"tenant":null']), unique=True)),
    ]
    order = draw(st.permutations(fields))
    value = gap + "{" + gap + ("," + gap).join(order) + "}" + gap
    return activity.encode(errors="surrogatepass"), value.encode(errors="surrogatepass")


@given(produced())
def test_the_body_is_the_producers_own_bytes(made):
    """
    G08, G09: whatever JSON allows inside; a target sees what was produced.
    """
    activity, value = made

    seen = read_or_refuse(read, value)

    # Half a pair that is not escaped is no UTF-8, and the only thing here that may be refused.
    assert (activity if _is_utf8(value) else None) == getattr(seen, "body", None)


def _is_utf8(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(made=produced(), at=st.integers(0, 10_000), junk=st.binary(max_size=2), cut=st.booleans())
def test_a_damaged_record_is_read_or_refused(made, at, junk, cut):
    """
    C-14, I05: one bad record stops no partition.
    """
    _, value = made
    at %= len(value)

    found = read_or_refuse(read, value[:at] + junk + (b"" if cut else value[at + len(junk) :]))

    assert isinstance(found, Activity | RecordError)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_activity_or_refused(value):
    """C-14."""
    for head in (b"", b"\x00\x00\x00\x00\x07", MARK + schema_set("activity").fingerprint):
        assert isinstance(read_or_refuse(read, head + value), Activity | RecordError)


FIELDS = {
    "activity_id": st.sampled_from(["urn:1", "urn:2", 'a"b']),
    "tenant": st.sampled_from(["a", "b", None]),
    "actor": st.sampled_from(["al", "", 'b"o', None]),
    "recipients": st.just([{"target": "crm"}]) | st.just([{"target": "crm", "x": "y"}]),
    "activity": st.just({"a": "b"}) | st.just({"a": 'b"'}) | st.none(),
    "body": st.just("YQ==") | st.none(),
    "content_type": st.sampled_from(["text/a", None]),
    "channel": st.sampled_from(["c", None]),
    "unknown": st.sampled_from([1, "x", ["y"], {"activity_id": "urn:3"}]),
}


@given(st.data())
def test_the_quick_way_takes_no_record_that_the_exact_way_refuses(data):
    """
    G03: it counts quotation marks to know that no field is given twice, and must never be fooled.
    """
    names = data.draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=9))
    pairs = [(name, data.draw(FIELDS[name])) for name in names]
    value = "{" + ",".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in pairs) + "}"

    seen = read_or_refuse(read, value.encode())

    if len(set(names)) < len(names):
        assert isinstance(seen, RecordError)
    if not isinstance(seen, RecordError):
        found = {name: parsed for name, (parsed, _) in members(value.encode()).items()}
        expected = (
            found["activity_id"],
            found.get("tenant") or "default",
            found.get("actor") or "",
        )
        assert expected == (seen.activity_id, seen.tenant, seen.actor)
        assert ("unknown" in names) == seen.unknown_fields


NESTED = st.recursive(
    st.text('[]{}"\\a', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[}"\\', max_size=2), inner)
    ),
    max_leaves=12,
)


def _depth(value):
    inside = value.values() if isinstance(value, dict) else value
    return 0 if isinstance(value, str) else 1 + max(map(_depth, inside), default=0)


@given(value=NESTED, max_depth=st.integers(1, 6))
def test_depth_agrees_with_a_parser_that_counts(value, max_depth):
    """
    C-14: brackets in strings do not count, however they are escaped.
    """
    assert (_depth(value) > max_depth) == is_too_deep(json.dumps(value).encode(), max_depth)


@given(body=st.binary(max_size=50))
def test_a_body_of_any_bytes_is_decoded(body):
    """
    interface.md §3.
    """
    record = {
        "activity_id": "urn:1",
        "recipients": [{"target": "crm"}],
        "body": base64.b64encode(body).decode(),
        "content_type": "application/octet-stream",
    }

    assert body == read(json.dumps(record).encode()).body


HOSTS = st.from_regex(r"[a-z0-9.-]{1,20}", fullmatch=True)


@given(
    scheme=st.sampled_from(["http", "https"]), host=HOSTS, path=st.text("aA/%.?=&-_~7", max_size=9)
)
def test_a_canonical_inbox_is_canonical(scheme, host, path):
    """
    J02: what the quick way lets through is what the exact reading would have made of it.
    """
    seen = read_or_refuse(canonical_inbox, f"{scheme}://{host}/{path}")

    if not isinstance(seen, RecordError):
        assert seen == canonical_inbox(seen)
        exact = parse_url(seen)
        assert f"{scheme}://{exact.authority.decode()}{exact.target.decode()}" == seen
