"""What names an activity and a delivery, and what is the same."""

from hashlib import sha256

import pytest

from streams.model.activity import Activity, Recipient
from streams.model.values import replace
from streams.rules.identity import (
    activity_key_of,
    canonical_hash,
    canonical_json,
    delivery_id,
    delivery_key,
    murmur2,
    partition_of,
    target_hash,
)

CRM = Recipient(target="crm")
INBOX = Recipient(inbox="https://b.example/inbox")
ACTIVITY = Activity(
    activity_id="https://a.example/1",
    tenant="acme",
    actor="https://a.example/users/al",
    recipients=(CRM, INBOX),
    body=b'{"type":"Create","id":1}',
    content_type="application/activity+json",
)
BODY = replace(ACTIVITY, is_activity=False, content_type="text/csv")


def with_body(body):
    return replace(ACTIVITY, body=body)


# ── Content ──


def test_the_canonical_hash_is_that_of_tenant_actor_and_activity():
    """
    D-006/007, RFC 8785: a fixed form, so that another release finds the same activity the same.
    """
    form = b'{"activity":{"id":1,"type":"Create"},"actor":"https://a.example/users/al","tenant":"acme"}'

    assert sha256(form).digest() == canonical_hash(ACTIVITY)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1,"type":"Create"}',
        b' { "type" : "Create",\n"id" : 1 } ',
        b'{"id":1.0,"type":"Create"}',
        b'{"id":1e0,"type":"\\u0043reate"}',
    ],
)
def test_another_spelling_is_the_same_activity(body):
    """
    G09: a producer's serialiser may change between two tries.
    """
    assert canonical_hash(ACTIVITY) == canonical_hash(with_body(body))


@pytest.mark.parametrize(
    "other",
    [
        with_body(b'{"type":"Create","id":2}'),
        with_body(b'{"type":"Create","id":"1"}'),
        replace(ACTIVITY, tenant="other"),
        replace(ACTIVITY, actor="other"),
        BODY,
    ],
)
def test_other_content_is_another_activity(other):
    """
    D-007: a conflict, visible to the producer.
    """
    assert canonical_hash(ACTIVITY) != canonical_hash(other)


def test_recipients_and_optional_parts_are_not_content():
    """
    D-006: the same activity with further recipients delivers to the new ones only.
    """
    more = replace(ACTIVITY, recipients=(CRM,), channel="c", unknown_fields=2)

    assert canonical_hash(ACTIVITY) == canonical_hash(more)


@pytest.mark.parametrize(
    "other",
    [
        replace(BODY, body=BODY.body + b" "),
        replace(BODY, content_type="text/plain"),
        replace(BODY, tenant="other"),
        replace(BODY, actor="other"),
    ],
)
def test_a_bodys_content_is_its_bytes_and_its_type(other):
    assert canonical_hash(BODY) != canonical_hash(other)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":9007199254740993}',
        b'{"id":-9007199254740992}',
        b'{"id":123456789012345678901234567890}',
        b'{"id":' + b"9" * 5_000 + b"}",
        b'{"n":1e400}',
        b'{"to":"x","to":"y"}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":{"k":1,"k":1}}',
        b'{"k":"\\"","k":"\\\\"}',
        b'{"a":"\\ud83d"}',
        b'{"\\ude00\\ud83d":1}',
        b'{"a":NaN}',
    ],
)
def test_what_is_not_i_json_has_no_canonical_form_and_is_taken_as_it_is(body):
    """
    D-006, RFC 7493: two readers would see two contents, so only the same bytes are the same.
    """
    assert canonical_json(body) is None
    assert canonical_hash(with_body(body)) == canonical_hash(with_body(body))
    assert canonical_hash(with_body(body)) != canonical_hash(with_body(body + b" "))


def test_bytes_as_they_are_still_belong_to_a_tenant_and_an_actor():
    body = b'{"id":9007199254740993}'

    hashes = {
        canonical_hash(replace(ACTIVITY, body=body, tenant=tenant, actor=actor))
        for tenant, actor in [("a", "bc"), ("ab", "c"), ("a", "")]
    }

    assert 3 == len(hashes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"b":1,"a":"\\u00e9"}', '{"a":"é","b":1}'.encode()),
        (b'{"n":1E2}', b'{"n":100}'),
        (b'{"n":-0.0}', b'{"n":0}'),
        (b'{"n":1e21}', b'{"n":1e+21}'),
        (b'{"id":9007199254740991}', b'{"id":9007199254740991}'),
        (b'{"id":"9007199254740993"}', b'{"id":"9007199254740993"}'),
        (b'{"\\ud83d\\ude00":1,"\\ufb33":2}', '{"😀":1,"\ufb33":2}'.encode()),
        (b'{"a":"\\u001f\\u007f\\/"}', b'{"a":"\\u001f\x7f/"}'),
        (b"{}", b"{}"),
    ],
)
def test_the_canonical_form_is_that_of_rfc_8785(text, expected):
    """
    G09: names sort by UTF-16 units, U+1F600 before U+FB33.
    """
    assert expected == canonical_json(text)


# ── Names ──


def test_a_deliverys_key_starts_with_its_activitys():
    """
    ledger.md, "Records": one scan shows all deliveries of an activity.
    """
    assert b"acme|https://a.example/1\x00crm" == delivery_key(ACTIVITY, CRM)
    assert b"acme|https://a.example/1\x00https://b.example/inbox" == delivery_key(ACTIVITY, INBOX)


def test_the_activity_is_read_off_a_deliverys_key():
    tagged = replace(ACTIVITY, channel="sms")

    assert ACTIVITY.key == activity_key_of(delivery_key(tagged, INBOX))
    assert ACTIVITY.key == activity_key_of(ACTIVITY.key)


def test_each_optional_part_of_the_identity_makes_another_delivery():
    """
    D-002: transaction, workflow, subscriber and channel are part of it, each in its own place.
    """
    activities = [
        ACTIVITY,
        replace(ACTIVITY, transaction="x"),
        replace(ACTIVITY, workflow="x"),
        replace(ACTIVITY, subscriber="x"),
        replace(ACTIVITY, channel="x"),
        replace(ACTIVITY, transaction="x", channel="x"),
    ]

    assert 6 == len({delivery_key(activity, CRM) for activity in activities})
    assert 6 == len({delivery_id(activity, CRM) for activity in activities})
    assert b"\x00" == delivery_key(activities[1], CRM)[-17:-16]


def test_a_deliverys_id_is_stable():
    """
    D-002: it stands in every receiver's records; a change would tell all of it again.
    """
    assert "dlv_d6d9be7c0a52f4c41ca95c2eb1cf4191" == delivery_id(ACTIVITY, CRM)


def test_two_activities_of_one_transaction_have_two_ids():
    """
    D-002, C-03: a target drops what comes under an id that it knows, so one id must be one activity.
    """
    told = replace(ACTIVITY, transaction="order-9")

    assert delivery_id(told, CRM) != delivery_id(
        replace(told, activity_id="https://a.example/2"), CRM
    )


def test_a_given_part_is_not_what_stands_in_for_a_missing_one():
    """
    A workflow named `outbox` is not the queue, a channel named `http` not the default one.
    """
    ids = {
        delivery_id(activity, CRM)
        for activity in (
            ACTIVITY,
            replace(ACTIVITY, workflow="outbox"),
            replace(ACTIVITY, channel="http"),
            replace(ACTIVITY, subscriber="crm"),
            replace(ACTIVITY, transaction="https://a.example/1"),
        )
    }

    assert 5 == len(ids)


def test_queues_and_tenants_keep_deliveries_apart():
    """
    O-044: (queue, activity ID) keeps the two queues apart.
    """
    ids = {
        delivery_id(ACTIVITY, CRM),
        delivery_id(ACTIVITY, CRM, "inbox"),
        delivery_id(replace(ACTIVITY, tenant="other"), CRM),
        delivery_id(ACTIVITY, INBOX),
    }

    assert 4 == len(ids)


def test_a_targets_hash_has_eight_bytes():
    one, other = (
        target_hash(delivery_key(ACTIVITY, CRM)),
        target_hash(delivery_key(ACTIVITY, INBOX)),
    )

    assert (8, 8) == (len(one), len(other))
    assert one != other


# ── Partitions ──


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ("abc", 479_470_107),
        ("", 275_646_681),
    ],
)
def test_murmur2_is_that_of_java(key, expected):
    """
    I11: the vectors of Kafka's own UtilsTest; Java's int is signed.
    """
    assert expected % 2**32 == murmur2(key.encode())


@pytest.mark.parametrize(
    ("key", "partitions", "expected"),
    [
        ("https://example.com/activities/1", 6, 5),
        ("https://example.com/activities/1", 12, 11),
        ("https://example.com/activities/2", 6, 2),
        ("https://example.com/activities/2", 12, 8),
        ("21", 6, 0),
        ("21", 10, 0),
        ("foobar", 6, 0),
        ("foobar", 10, 6),
        ("wu", 10, 0),
        ("", 6, 3),
        ("", 1_000, 681),
        ("café", 6, 0),
        ("café", 10, 4),
        ('"21"', 6, 1),
    ],
)
def test_a_key_goes_to_the_partition_that_java_chooses(key, partitions, expected):
    """I11."""
    assert expected == partition_of(key.encode(), partitions)
