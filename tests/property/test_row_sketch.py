"""What is read of a ledger row without decoding it is what decoding it would tell."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import RecordError
from streams.model.ledger import ActivityRow, Phase, Row
from streams.wire.codec import decode_row, encode_activity_row, encode_row
from streams.wire.row_sketch import as_written, named_by, sketch

LONGS = st.integers(-(2**63), 2**63 - 1)
TARGETS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=90) | st.just(
    "https://b.example/" + "x" * 9_000
)
IDS = st.text(string.hexdigits.lower()[:16], min_size=32, max_size=32).map("dlv_{}".format)
ROWS = st.builds(
    Row,
    phase=st.sampled_from(Phase),
    delivery_id=IDS | st.text(max_size=40),
    target=TARGETS,
    attempts=LONGS,
    generation=LONGS,
    budget=LONGS,
    token=st.just(b"") | st.binary(min_size=16, max_size=16) | st.binary(max_size=20),
    fence=LONGS,
    admitted_ms=LONGS,
    code=st.text(max_size=12),
)


@given(ROWS)
def test_a_sketch_says_what_the_decoded_row_says(row):
    """Also for rows that are none of the usual ones; what is left of the row lacks its target only."""
    phase, delivery_id, admitted_ms, bare = sketch(encode_row(row), as_written(row.target.encode()))

    assert (row.phase, row.delivery_id, row.admitted_ms) == (
        phase.decode(),
        delivery_id.decode(),
        admitted_ms,
    )
    assert msgspec.structs.replace(row, target="") == decode_row(bare)


@given(ROWS, TARGETS)
def test_a_key_that_names_another_target_misleads_nobody(row, target):
    """The row is read as it is, and no part of its target stays in what is kept (F07)."""
    assert sketch(encode_row(row), as_written(row.target.encode())) == sketch(
        encode_row(row), as_written(target.encode())
    )


@given(ROWS, st.data())
def test_bytes_that_end_too_early_are_refused_or_end_after_what_was_read(row, data):
    """A sketch reads the front only: what it reads is whole, or the record is an error of ours."""
    value = encode_row(row)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    try:
        told = sketch(cut, as_written(row.target.encode()))
    except RecordError:
        return
    assert sketch(value, as_written(row.target.encode()))[:3] == told[:3]


def test_a_phase_of_a_newer_version_is_refused():
    """G16: guessing it would put a guess into the view."""
    known = encode_row(Row(phase=Phase.SENT, delivery_id="dlv_" + "0" * 32, target="crm"))

    with pytest.raises(RecordError):
        sketch(known.replace(b"sent", b"sunk"), as_written(b"crm"))


@given(st.text(max_size=90), st.sampled_from(["default", "acme", "urn"]), st.booleans())
def test_an_activitys_row_says_whose_it_is_whatever_its_key_looks_like(own, tenant, strange):
    """Interface §3: `urn|9` of the tenant `default` is not the tenant `urn`'s 9; nor is a key that lies."""
    row = encode_activity_row(
        ActivityRow(
            canonical_hash=bytes(31 if strange else 32),
            activity_id=own,
            tenant=tenant,
            queue="outbox",
        )
    )
    key = own if tenant == "default" else f"{tenant}|{own}"

    assert (tenant, own) == named_by(key.encode(), row)
    assert (tenant, own) == named_by(f"other|{own}".encode(), row)
    assert ("default", f"urn|{own}") == named_by(
        f"urn|{own}".encode(),
        encode_activity_row(
            ActivityRow(canonical_hash=bytes(32), activity_id=f"urn|{own}", tenant="default")
        ),
    )
