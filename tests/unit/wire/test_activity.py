"""What may be written to `outbox`, and what becomes of the rest."""

import base64
import json
from typing import Any

import pytest

from streams.errors import RecordError
from streams.model.activity import Activity, Recipient
from streams.wire.activity import read_activity
from streams.wire.avro import Codec
from streams.wire.schemas import schema_folder

LIMITS: dict[str, Any] = {"max_bytes": 262_144, "max_depth": 32}
ID = "https://a.example/activities/1"
NOTE = {"type": "Create", "object": {"type": "Note", "id": "https://a.example/notes/9"}}
RECORD = {"activity_id": ID, "recipients": [{"target": "crm"}], "activity": NOTE}
BODY = {
    "activity_id": ID,
    "recipients": [{"target": "crm"}],
    "body": base64.b64encode(b"a;b\r\n").decode(),
    "content_type": "text/csv; charset=utf-8",
}
ACTIVITY_SCHEMA = (schema_folder() / "activity.avsc").read_text()


def read(record, **limits):
    value = record if isinstance(record, bytes) else json.dumps(record).encode()
    return read_activity(value, **{**LIMITS, **limits})


def refusal(record, **limits):
    with pytest.raises(RecordError) as refused:
        read(record, **limits)
    return refused.value.code


def without(name):
    return {key: value for key, value in RECORD.items() if key != name}


def raw(activity):
    """A record around the very bytes of an activity."""
    head = json.dumps(without("activity")).encode()
    return head[:-1] + b', "activity": ' + activity + b"}"


# ── What is read ──


def test_every_field_is_read():
    """
    interface.md §3.
    """
    record = {
        "activity_id": ID,
        "actor": "https://a.example/users/al",
        "tenant": "acme",
        "recipients": [{"target": "crm"}, {"inbox": "https://b.example/inbox"}],
        "activity": {"type": "Create", "object": {"type": "CaseLedgerEntry", "id": "urn:9"}},
        "transaction": "t",
        "workflow": "w",
        "subscriber": "s",
        "channel": "c",
    }

    expected = Activity(
        activity_id=ID,
        tenant="acme",
        actor="https://a.example/users/al",
        recipients=(Recipient(target="crm"), Recipient(inbox="https://b.example/inbox")),
        body=json.dumps(record["activity"]).encode(),
        content_type="application/activity+json",
        ledger_entry_id="urn:9",
        transaction="t",
        workflow="w",
        subscriber="s",
        channel="c",
    )
    assert expected == read(record)


def test_what_is_left_out_has_its_default():
    """
    interface.md §3: `tenant` defaults to `default`; an empty part of the identity is none.
    """
    seen = read({**RECORD, "transaction": "", "channel": None})

    assert ("default", "", None, None) == (seen.tenant, seen.actor, seen.transaction, seen.channel)


@pytest.mark.parametrize(
    "activity",
    [
        b'{ "a" : 1 ,\n\t"b":[ ] }',
        b'{"id":9007199254740993}',
        b'{"id":18446744073709551616}',
        b'{"n":1E2,"m":1.0,"o":1e21,"p":-0.0,"q":1e400}',
        b'{"a":"\\u00e9\\/\\"","\\ud83d\\ude00":1}',
        '{"a":"é😀"}'.encode(),
        b'{"to":"x","to":"y"}',
        b'{"content":"\\ud83d"}',
        b'{"\\ude00\\ud83d":1}',
    ],
)
def test_the_body_is_the_slice_that_was_produced(activity):
    """
    G03, G04, G08, G09: what a target receives is never re-encoded, whatever JSON allows in it.
    """
    assert activity == read(raw(activity)).body


def test_a_body_of_another_type_is_decoded_and_keeps_its_content_type():
    """
    interface.md §3: one of `activity` or `body` (base64) with `content_type`.
    """
    seen = read(BODY)

    assert (b"a;b\r\n", "text/csv; charset=utf-8", False) == (
        seen.body,
        seen.content_type,
        seen.is_activity,
    )


def test_an_activity_has_its_own_content_type_whatever_is_given():
    assert "application/activity+json" == read({**RECORD, "content_type": "text/x"}).content_type


def test_unknown_fields_are_ignored_and_counted():
    """
    interface.md §3.
    """
    seen = read({**RECORD, "colour": "red", "size": {"of": ["all"]}})

    assert (ID, 2) == (seen.activity_id, seen.unknown_fields)


def test_a_field_that_is_null_is_not_given():
    seen = read({**RECORD, "body": None, "actor": None, "tenant": None})

    assert ("default", "", 0) == (seen.tenant, seen.actor, seen.unknown_fields)


def test_escapes_in_our_own_fields_are_read():
    value = json.dumps({**RECORD, "activity_id": "urn:ä"}).encode()

    assert b"\\u00e4" in value
    assert "urn:ä" == read(value).activity_id


def test_a_recipient_named_twice_is_one_and_the_order_stays():
    """
    D-006, J02: `/inbox` and `/inbox/` stay two.
    """
    recipients = [
        {"inbox": "https://a.example/inbox"},
        {"target": "crm"},
        {"inbox": "HTTPS://A.EXAMPLE:443/inbox"},
        {"inbox": "https://a.example/inbox/"},
        {"inbox": "https://a.example./inbox"},
        {"target": "crm"},
    ]

    keys = [recipient.key for recipient in read({**RECORD, "recipients": recipients}).recipients]

    assert ["https://a.example/inbox", "crm", "https://a.example/inbox/"] == keys


@pytest.mark.parametrize("count", [1, 999, 1_000])
def test_as_many_recipients_as_allowed_are_read(count):
    """
    interface.md §3: at most 1,000.
    """
    recipients = [{"target": f"t{n}"} for n in range(count)]

    assert count == len(read({**RECORD, "recipients": recipients}).recipients)


@pytest.mark.parametrize(
    ("activity", "expected"),
    [
        ({"object": {"type": "CaseLedgerEntry", "id": "urn:9"}}, "urn:9"),
        ({"object": {"type": "Note", "id": "urn:9"}}, None),
        ({"object": {"type": "CaseLedgerEntry"}}, None),
        ({"object": {"type": "CaseLedgerEntry", "id": 9}}, None),
        ({"object": {"type": "CaseLedgerEntry", "id": ""}}, None),
        ({"object": {"type": ["CaseLedgerEntry"], "id": "urn:9"}}, None),
        ({"object": "https://a.example/ledger/9"}, None),
        ({"object": [{"type": "CaseLedgerEntry", "id": "urn:9"}]}, None),
        ({"object": None}, None),
        ({}, None),
    ],
)
def test_the_ledger_entry_is_named_or_there_is_none(activity, expected):
    """
    O-023..025: any error reading it gives null, and the activity is taken all the same.
    """
    assert expected == read({**RECORD, "activity": activity}).ledger_entry_id


# ── What is refused ──


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (without("activity_id"), "activity_id_missing"),
        ({**RECORD, "activity_id": None}, "activity_id_missing"),
        ({**RECORD, "activity_id": ""}, "activity_id_empty"),
        ({**RECORD, "activity_id": 7}, "activity_id_invalid"),
        ({**RECORD, "activity_id": "a\x00b"}, "activity_id_invalid"),
        ({**RECORD, "activity_id": "a\nb"}, "activity_id_invalid"),
        ({**RECORD, "activity_id": "é\x85"}, "activity_id_invalid"),
        ({**RECORD, "activity_id": "\ud83d"}, "activity_id_invalid"),
        ({**RECORD, "activity_id": "x" * 1_025}, "activity_id_too_long"),
        ({**RECORD, "activity_id": "é" * 513}, "activity_id_too_long"),
        ({**RECORD, "activity_id": "acme|1"}, "activity_id_ambiguous"),
        ({**RECORD, "activity_id": "outbox/0/12"}, "activity_id_ambiguous"),
        ({**RECORD, "activity_id": "prod.outbox.retry.30s/7/0"}, "activity_id_ambiguous"),
        ({**RECORD, "tenant": ""}, "tenant_invalid"),
        ({**RECORD, "tenant": "a|b"}, "tenant_invalid"),
        ({**RECORD, "tenant": "a\x00"}, "tenant_invalid"),
        ({**RECORD, "tenant": "a\n"}, "tenant_invalid"),
        ({**RECORD, "tenant": "a/b"}, "tenant_invalid"),
        ({**RECORD, "tenant": 7}, "tenant_invalid"),
        ({**RECORD, "actor": ["x"]}, "actor_invalid"),
        ({**RECORD, "actor": "x" * 1_025}, "actor_invalid"),
        ({**RECORD, "transaction": 7}, "transaction_invalid"),
        ({**RECORD, "workflow": "a\x00"}, "workflow_invalid"),
        ({**RECORD, "subscriber": "\ud83d"}, "subscriber_invalid"),
        ({**RECORD, "channel": "x" * 1_025}, "channel_invalid"),
        (without("recipients"), "recipients_missing"),
        ({**RECORD, "recipients": None}, "recipients_missing"),
        ({**RECORD, "recipients": []}, "recipients_empty"),
        ({**RECORD, "recipients": [{"target": "x"}] * 1_001}, "too_many_recipients"),
        ({**RECORD, "recipients": {"target": "x"}}, "recipient_invalid"),
        ({**RECORD, "recipients": ["crm"]}, "recipient_invalid"),
        ({**RECORD, "recipients": [{}]}, "recipient_invalid"),
        (
            {**RECORD, "recipients": [{"target": "x", "inbox": "https://b.example/"}]},
            "recipient_invalid",
        ),
        ({**RECORD, "recipients": [{"target": "a b"}]}, "recipient_invalid"),
        ({**RECORD, "recipients": [{"target": 7}]}, "recipient_invalid"),
        ({**RECORD, "recipients": [{"inbox": "ftp://b.example/"}]}, "recipient_invalid"),
        (without("activity"), "activity_or_body_missing"),
        ({**RECORD, "activity": None}, "activity_or_body_missing"),
        ({**BODY, "activity": NOTE}, "both_activity_and_body"),
        ({**RECORD, "activity": "text"}, "activity_not_an_object"),
        ({**RECORD, "activity": [NOTE]}, "activity_not_an_object"),
        ({**BODY, "body": "a"}, "body_not_base64"),
        ({**BODY, "body": "YQ"}, "body_not_base64"),
        ({**BODY, "body": "Y-_="}, "body_not_base64"),
        ({**BODY, "body": "YQ==YQ=="}, "body_not_base64"),
        ({**BODY, "body": "é"}, "body_not_base64"),
        ({**BODY, "body": 7}, "body_not_base64"),
        ({**BODY, "content_type": None}, "content_type_missing"),
        ({**BODY, "content_type": "text"}, "content_type_invalid"),
        ({**BODY, "content_type": "text/a\r\nx: y"}, "content_type_invalid"),
        ({**BODY, "content_type": 7}, "content_type_invalid"),
        ([RECORD], "not_an_object"),
        (7, "not_an_object"),
        (None, "not_an_object"),
    ],
)
def test_a_record_that_breaks_a_rule_names_it(record, code):
    """
    C-14, E02: what cannot be read is dead-lettered with a stable code.
    """
    assert code == refusal(record)


@pytest.mark.parametrize(
    "value",
    [
        b"\xef\xbb\xbf{}",
        b'{"a":1}{"b":2}',
        b"[1,]",
        b"{}\x00",
        b"\xff\xfe{\x00}\x00",
        b"\xff\x00\xff",
        b"\x0aact-1",
        b"{",
        b'{"a"',
        b'{"a":1',
        b'{"activity_id":"a\xff","recipients":[{"target":"x"}],"activity":{}}',
        raw(b'{"a":NaN}'),
        raw(b'{"a":Infinity}'),
        raw(b'{"a":-Infinity}'),
        raw(b'{"a":01}'),
        raw(b'{"a":"\xff"}'),
        raw(b'{"a":"\xed\xa0\x80"}'),
        raw(b'{"a":"\x01"}'),
        raw(b'{"id":' + b"9" * 5_000 + b"}"),
    ],
)
def test_what_is_not_one_json_text_is_refused(value):
    """
    G01, G08, G13, G20: never the first of two texts, never NaN, never a BOM.
    """
    assert "not_json" == refusal(value)


@pytest.mark.parametrize(
    "value",
    [
        json.dumps(RECORD).encode()[:-1] + b',"tenant":"a","tenant":"b"}',
        json.dumps(RECORD).encode()[:-1] + b',"activity":{}}',
        json.dumps(RECORD).encode()[:-1] + b',"\\u0061ctivity_id":"x"}',
        json.dumps(RECORD).encode()[:-1] + b',"x":1,"x":2}',
        json.dumps(RECORD).replace('{"target"', '{"target":"x","target"').encode(),
    ],
)
def test_a_field_of_ours_that_is_given_twice_is_refused(value):
    """
    G03: a gateway might have checked the first tenant, and we would deliver for the last.
    """
    assert "duplicate_field" == refusal(value)


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_value_is_refused(value):
    """
    I05: its own code; an activity that was taken cannot be withdrawn this way.
    """
    with pytest.raises(RecordError) as refused:
        read_activity(value, **LIMITS)

    assert "tombstone" == refused.value.code


def test_the_size_of_the_whole_value_is_bounded():
    """
    C-14: over 256 KiB, and not at it.
    """
    value = json.dumps(RECORD).encode()

    assert ID == read(value, max_bytes=len(value)).activity_id
    assert "too_large" == refusal(value, max_bytes=len(value) - 1)


def test_the_depth_of_the_whole_value_is_bounded():
    """
    C-14, D-030: 32 levels, the record's own object being the first, and not 33.
    """
    deepest = b'{"a":' + b"[" * 30 + b"]" * 30 + b"}"
    deeper = b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"

    assert deepest == read(raw(deepest)).body
    assert "too_deep" == refusal(raw(deeper))


@pytest.mark.parametrize(
    "activity",
    [
        b"[" * 1_000 + b"]" * 1_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[" * 100_000,
        b'{"a":' * 40_000,
    ],
)
def test_brackets_without_end_are_refused_before_they_are_parsed(activity):
    """
    G05: no RecursionError, no dead worker.
    """
    assert "too_deep" == refusal(raw(activity))


def test_an_error_says_nothing_of_the_content():
    """
    D-043: the message goes into logs and dead letters.
    """
    for record in (
        {**RECORD, "activity_id": 7, "actor": "canary"},
        {**RECORD, "recipients": [{"inbox": "https://al:canary@b.example/"}]},
        {**BODY, "body": "canary!"},
        b'{"canary"',
    ):
        with pytest.raises(RecordError) as refused:
            read(record)
        assert "canary" not in str(refused.value)
        assert refused.value.__cause__ is None


# ── Avro ──


AVRO = {
    "activity_id": ID,
    "recipients": [{"target": None, "inbox": "https://b.example/inbox"}],
    "activity": b'{ "id": 9007199254740993 }',
}


def test_an_avro_record_is_told_by_its_first_bytes():
    """
    interface.md §3: single-object encoding by `schemas/activity.avsc`.
    """
    seen = read(Codec("activity").encode(AVRO))

    assert (ID, "default", (Recipient(inbox="https://b.example/inbox"),), AVRO["activity"]) == (
        seen.activity_id,
        seen.tenant,
        seen.recipients,
        seen.body,
    )


def test_an_avro_body_is_not_base64():
    value = Codec("activity").encode(
        {**AVRO, "activity": None, "body": b"\x00", "content_type": "text/x"}
    )

    assert b"\x00" == read(value).body


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"activity_id": ""}, "activity_id_empty"),
        ({"recipients": []}, "recipients_empty"),
        ({"activity": None}, "activity_or_body_missing"),
        ({"activity": b"[]"}, "not_an_object"),
        ({"activity": b"{"}, "not_json"),
        ({"activity": b"{}{}"}, "not_json"),
        ({"activity": b""}, "not_json"),
        ({"activity": b'{"a":' + b"9" * 5_000 + b"}"}, "not_json"),
        ({"activity": b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"}, "too_deep"),
        ({"body": b"x"}, "both_activity_and_body"),
    ],
)
def test_an_avro_record_keeps_the_same_rules(fields, code):
    """C-14."""
    assert code == refusal(Codec("activity").encode({**AVRO, **fields}))


def framed(schema_id=7, fields=AVRO):
    return b"\x00" + schema_id.to_bytes(4, "big") + Codec("activity").encode(fields)[10:]


def test_registry_framing_is_read_with_the_schema_of_its_id():
    """
    G13: a zero byte, four bytes of id, the payload.
    """
    assert ID == read(framed(), schema_by_id={7: ACTIVITY_SCHEMA}.get).activity_id


def test_a_producers_own_fields_in_a_registered_schema_are_counted():
    """
    interface.md §3, G11: read with the writer's schema, as ours.
    """
    schema = json.loads(ACTIVITY_SCHEMA)
    schema["fields"].insert(0, {"name": "colour", "type": "string"})
    value = b"\x00\x00\x00\x00\x07" + b"\x06red" + framed()[5:]

    seen = read(value, schema_by_id={7: json.dumps(schema)}.get)

    assert (ID, 1) == (seen.activity_id, seen.unknown_fields)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"\x00", "frame_short"),
        (b"\x00" * 4, "frame_short"),
        (b"\x00" * 5, "schema_unknown"),
        (b"\x00\xff\xff\xff\xff" + framed()[5:], "schema_unknown"),
        (framed(8), "schema_unknown"),
        (framed(9), "schema_unknown"),
        (b"\x00" * 8 + b"\x07" + framed()[5:], "schema_unknown"),
        (framed()[:-1], "record_corrupt"),
        (framed() + b"\x00", "record_corrupt"),
        (b"\xc3\x01", "frame_short"),
        (b"\xc3\x02", "frame_unknown"),
    ],
)
def test_a_frame_that_is_broken_or_foreign_has_a_code(value, code):
    """G13."""
    registry = {7: ACTIVITY_SCHEMA, 8: "{", 9: '"string"'}

    assert code == refusal(value, schema_by_id=registry.get)


def test_registry_framing_without_a_registry_is_refused():
    assert "schema_unknown" == refusal(framed())


def test_a_registry_that_is_away_is_no_fault_of_the_record():
    """
    G13: told apart from an unknown id, so that the record is tried again and not given up.
    """

    def unreachable(_schema_id):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        read(framed(), schema_by_id=unreachable)


@pytest.mark.parametrize(
    "activity_id",
    ["https://a.example/users/al/outbox/12/3", "outbox/0", "outbox/0/12/", "mailbox/0/12"],
)
def test_an_id_that_only_resembles_a_position_is_taken(activity_id):
    """C-14: no more is refused than what would share a key."""
    raw = json.dumps({**RECORD, "activity_id": activity_id}).encode()

    assert activity_id == read_activity(raw, max_bytes=1 << 20, max_depth=32).activity_id
