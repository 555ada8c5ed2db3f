"""Provider observations: what providers really send, posted signed to the real route.

Their own signatures (SNS's, Twilio's, Mailgun's) are their relay's matter; ours is Standard Webhooks.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streams.model.observed import About, Downstream, Engagement
from streams.rules.providers import read_events
from streams.rules.shapes import FCM, SENDGRID
from streams.wire.signatures.verifying import Window
from tests.unit.api.intake import Bench

BenchOf = Callable[..., Bench]

BOUNCE = {
    "notificationType": "Bounce",
    "bounce": {
        "bounceType": "Permanent",
        "bounceSubType": "General",
        "bouncedRecipients": [
            {
                "emailAddress": "jane@example.com",
                "status": "5.1.1",
                "action": "failed",
                "diagnosticCode": "smtp; 550 5.1.1 user unknown",
            },
            {"emailAddress": "richard@example.com"},
        ],
        "timestamp": "2026-01-27T14:59:44.101Z",
        "feedbackId": "fb-0001",
        "reportingMTA": "dns; mx.example.com",
    },
    "mail": {
        "timestamp": "2026-01-27T14:59:38.237Z",
        "source": "sender@example.com",
        "messageId": "ses-msg-0001",
        "destination": ["jane@example.com", "mary@example.com", "richard@example.com"],
        "headers": [{"name": "X-Activity", "value": "a1"}],
    },
}
SNS = {
    "Type": "Notification",
    "TopicArn": "arn:aws:sns:us-east-1:123456789012:ses",
    "Timestamp": "2026-01-27T15:00:00.000Z",
    "SignatureVersion": "1",
    "Signature": "EXAMPLE==",
    "SigningCertURL": "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem",
}


@pytest.fixture
def bench_of(tmp_path: Path) -> Iterator[BenchOf]:
    """A bench of one shape; a delivery whose message has the id given."""
    numbers = itertools.count()
    made: list[Bench] = []

    def build(shape: str, **fields: Any) -> Bench:
        bench = Bench(tmp_path / str(next(numbers)), shape=shape, **fields)
        made.append(bench)
        return bench

    yield build
    for bench in made:
        bench.histories.close()


def wrapped(message: object, message_id: str = "sns-1") -> dict[str, object]:
    return {**SNS, "MessageId": message_id, "Message": json.dumps(message)}


async def test_h01_a_bounce_that_comes_again_and_again_is_one_for_each_recipient(bench_of):
    """
    H01: by provider, kind, feedback id and recipient; SNS's own id is no event's.
    """
    bench = bench_of("ses")
    own = bench.sent(provider_message_id="ses-msg-0001")
    for sns_id in ("sns-1", "sns-1", "sns-2"):
        await bench.post(wrapped(BOUNCE, sns_id))

    merged = bench.merged(own)
    assert (2, Downstream.BOUNCED) == (merged.events, merged.standing.state)
    assert (2.0, 4.0) == (bench.count("accepted"), bench.count("repeated"))


async def test_h01_another_kind_for_the_same_message_is_still_taken(bench_of):
    """
    H01: one bounce must not swallow the open and the click that follow.
    """
    bench = bench_of("ses")
    own = bench.sent(provider_message_id="ses-msg-0001")
    await bench.post(wrapped(BOUNCE))
    for kind in ("Open", "Click"):
        body = {"eventType": kind, "mail": {"messageId": "ses-msg-0001"}}
        assert 1 == (await bench.post(wrapped(body))).json()["accepted"]

    standing = bench.merged(own).standing
    assert (Downstream.BOUNCED, Engagement.CLICKED) == (standing.state, standing.engagement)


async def test_h02_only_those_bounced_that_the_event_is_about(bench_of):
    """
    H02: `bouncedRecipients` is the subject, `destination` only context.
    """
    bench = bench_of("ses")
    own = bench.sent(provider_message_id="ses-msg-0001")
    await bench.post(wrapped(BOUNCE))

    codes = sorted(each.provider_code for each in bench.merged(own).subjects.values())
    assert ["5.1.1", "General"] == codes


async def test_h04_repeats_with_and_without_a_stable_id_are_one(bench_of):
    """
    H04: the bounce that comes under a new id is the same; what has no id spoils nothing.
    """
    bench = bench_of("sendgrid")
    own = bench.sent(provider_message_id="m1")
    bounce = {
        "email": "jane@example.com",
        "timestamp": 1767225600,
        "event": "bounce",
        "sg_event_id": "ev1",
        "sg_message_id": "m1.filter.0",
        "status": "5.1.1",
        "type": "bounce",
    }
    left = {
        "email": "jane@example.com",
        "timestamp": 1767225601,
        "event": "group_unsubscribe",
        "asm_group_id": 7,
    }
    posts = [[bounce | {"smtp-id": "<x@example.com>", "reason": "550"}, bounce]]
    posts += [[bounce | {"sg_event_id": "ev2"}], [left]]
    answers = [(await bench.post(post)).json() for post in posts]

    assert [1, 0, 0] == [answer["accepted"] for answer in answers]
    assert [0, 0, 1] == [answer["unmatched"] for answer in answers]
    assert (1, Downstream.BOUNCED) == (bench.merged(own).events, bench.merged(own).standing.state)
    [told] = read_events(SENDGRID, "p", [left]).told
    assert (Downstream.UNKNOWN, About.RECIPIENT) == (told.event.state, told.event.about)


async def test_h06_a_temporary_failure_is_no_bounce(bench_of):
    """
    H06, RFC 3463: both come as `failed`; `severity` tells them apart.
    """
    bench = bench_of("mailgun")
    own = bench.sent(provider_message_id="<m1@example.com>")
    message = {"headers": {"message-id": "m1@example.com"}}
    temporary = {
        "event": "failed",
        "severity": "temporary",
        "reason": "greylisted",
        "id": "ev-1",
        "timestamp": 1767225600.659519,
        "recipient": "jane@example.com",
        "message": message,
        "delivery-status": {"attempt-no": 1, "code": 450, "retry-seconds": 300},
    }
    permanent = temporary | {
        "severity": "permanent",
        "id": "ev-2",
        "timestamp": 1767229200.1,
        "delivery-status": {"code": 550, "message": "5.1.1 no such user"},
    }
    await bench.post({"signature": {"token": "tok1"}, "event-data": temporary})
    first = bench.merged(own).standing
    await bench.post({"event-data": permanent})
    second = bench.merged(own).standing

    assert (Downstream.TEMPORARILY_FAILED, About.PROVIDER, "450", 1767225600659) == (
        first.state,
        first.about,
        first.provider_code,
        first.provider_ms,
    )
    assert (Downstream.BOUNCED, About.RECIPIENT, "550") == (
        second.state,
        second.about,
        second.provider_code,
    )


@pytest.mark.parametrize(
    ("age_s", "window_s", "status"),
    [
        (30, 300, 202),
        (600, 300, 401),
        (600, 28_800, 202),
        (28_800, 28_800, 202),
        (28_801, 28_800, 401),
        (-120, 300, 202),
        (-3_600, 28_800, 401),
    ],
)
async def test_h08_a_signature_is_taken_for_as_long_as_its_provider_tries(
    bench_of, age_s, window_s, status
):
    """
    H08: five minutes where each try is signed anew; as long as the provider tries where it is not. What
    is too old is refused, never lost with a 2xx.
    """
    bench = bench_of("mailgun", window=Window(past_s=window_s))
    bench.sent(provider_message_id="m1")

    answer = await bench.post({"event-data": {"event": "delivered"}}, age_s=age_s)

    assert status == answer.status_code


async def test_h08_a_replay_within_the_window_changes_nothing(bench_of):
    """
    H08: repeats are known for as long as the history is kept, so the window may be wide.
    """
    bench = bench_of("mailgun", window=Window(past_s=28_800))
    bench.sent(provider_message_id="m1")
    event = {"event": "opened", "id": "e", "message": {"headers": {"message-id": "m1"}}}

    answers = [(await bench.post({"event-data": event}, age_s=28_000)).json() for _ in range(3)]

    assert [1, 0, 0] == [answer["accepted"] for answer in answers]


@pytest.mark.parametrize("order", list(itertools.permutations(["delivered", "sent", "queued"])))
async def test_h10_callbacks_without_a_time_count_by_rank(bench_of, order):
    """
    H10: `sent` after `delivered` changes nothing; every call is answered 2xx.
    """
    bench = bench_of("twilio")
    sid = "SM00000000000000000000000000000001"
    own = bench.sent(provider_message_id=sid)
    answers = [
        await bench.post({"MessageSid": sid, "MessageStatus": s, "To": "+15005550006"}, form=True)
        for s in order
    ]

    assert {202} == {answer.status_code for answer in answers}
    assert Downstream.DELIVERED == bench.merged(own).standing.state


async def test_h10_a_late_sent_does_not_unsay_undelivered(bench_of):
    """
    H10: with the code of the failure.
    """
    bench = bench_of("twilio")
    sid = "SM00000000000000000000000000000002"
    own = bench.sent(provider_message_id=sid)
    failed = {"MessageSid": sid, "MessageStatus": "undelivered", "ErrorCode": "30003"}
    await bench.post(failed, form=True)
    await bench.post({"MessageSid": sid, "MessageStatus": "sent"}, form=True)

    standing = bench.merged(own).standing
    assert (Downstream.BOUNCED, "30003") == (standing.state, standing.provider_code)


H12 = [
    {"SigningCertURL": "https://s3.amazonaws.com/bucket/SimpleNotificationService-0.pem"},
    {"SigningCertURL": "https://sns.us-east-1.amazonaws.com.evil.example/S-0.pem"},
    {"SigningCertURL": "http://sns.us-east-1.amazonaws.com/SimpleNotificationService-0.pem"},
    {"SigningCertURL": "https://sns.us-east-1.amazonaws.com@169.254.169.254/a.pem"},
    {"Type": "SubscriptionConfirmation", "SubscribeURL": "http://169.254.169.254/", "Token": "t"},
    {"SignatureVersion": "9"},
    {"Message": "not json"},
]


@pytest.mark.parametrize("change", H12)
async def test_h12_nothing_that_a_message_says_of_its_own_proof_is_believed(
    bench_of, monkeypatch, change
):
    """
    H12: SNS's own signature is none to us, so no address of the message is ever asked.
    """
    bench = bench_of("ses")
    own = bench.sent(provider_message_id="ses-msg-0001")

    def refuse(*_: object) -> None:
        raise AssertionError("nothing may be asked on a message's word")

    monkeypatch.setattr("socket.socket.connect", refuse)
    answer = await bench.post(
        wrapped(BOUNCE) | change, headers={"webhook-signature": "v1,EXAMPLE=="}
    )

    assert (401, []) == (answer.status_code, bench.appended)
    assert Downstream.UNKNOWN == bench.merged(own).standing.state


@pytest.mark.parametrize("change", H12[4:])
async def test_h12_through_a_relay_that_signs_a_subscription_is_confirmed_by_nobody(
    bench_of, monkeypatch, change
):
    """
    H12: what is no event is counted; its addresses stay unasked.
    """
    bench = bench_of("ses")

    def refuse(*_: object) -> None:
        raise AssertionError("nothing may be asked on a message's word")

    monkeypatch.setattr("socket.socket.connect", refuse)
    answer = await bench.post(wrapped({}) | change)

    assert (202, 0, 1) == (
        answer.status_code,
        answer.json()["accepted"],
        answer.json()["unread"],
    )


def error(code: int, status: str, *details: Mapping[str, object]) -> dict[str, object]:
    body = {"error": {"code": code, "status": status, "details": list(details)}}
    return {"message_id": "m1", "status": code, "body": body}


FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
BAD_REQUEST = {
    "@type": "type.googleapis.com/google.rpc.BadRequest",
    "fieldViolations": [{"field": "message.data[0].value"}],
}


@pytest.mark.parametrize(
    ("receipt", "state", "about"),
    [
        (
            error(404, "NOT_FOUND", {"@type": FCM_ERROR, "errorCode": "UNREGISTERED"}),
            "rejected",
            "recipient",
        ),
        (error(400, "INVALID_ARGUMENT", BAD_REQUEST), "rejected", "content"),
        (
            error(400, "INVALID_ARGUMENT", {"@type": FCM_ERROR, "errorCode": "INVALID_ARGUMENT"}),
            "rejected",
            "",
        ),
        (
            error(403, "PERMISSION_DENIED", {"errorCode": "SENDER_ID_MISMATCH"}),
            "rejected",
            "configuration",
        ),
        (
            error(429, "RESOURCE_EXHAUSTED", {"errorCode": "QUOTA_EXCEEDED"}),
            "temporarily_failed",
            "provider",
        ),
        (error(503, "UNAVAILABLE"), "temporarily_failed", "provider"),
        (
            {"message_id": "m1", "status": 404, "body": "<html>proxy</html>"},
            "rejected",
            "",
        ),
    ],
)
def test_h13_the_errors_own_code_decides_what_it_is_about(receipt, state, about):
    """
    H13: only UNREGISTERED speaks of the device; one status of token, payload and account.
    """
    [told] = read_events(FCM, "push", receipt).told

    assert (state, about) == (told.event.state, told.event.about)
    assert "html" not in repr(told)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_h15_a_late_delivered_does_not_erase_a_complaint(bench_of, order):
    """
    H15, RFC 5965: complained in any order; the open is kept beside it.
    """
    bench = bench_of("ses")
    own = bench.sent(provider_message_id="m3")
    mail = {"messageId": "m3"}
    posts = [
        {
            "notificationType": "Complaint",
            "mail": mail,
            "complaint": {
                "complainedRecipients": [{"emailAddress": "richard@example.com"}],
                "complaintFeedbackType": "abuse",
                "feedbackId": "fb-3",
            },
        },
        {
            "notificationType": "Delivery",
            "mail": mail,
            "delivery": {"recipients": ["richard@example.com"]},
        },
        {"eventType": "Open", "mail": mail | {"destination": ["richard@example.com"]}},
    ]
    for at in order:
        await bench.post(posts[at])

    standing = bench.merged(own).standing
    assert (Downstream.COMPLAINED, Engagement.OPENED, "abuse", About.RECIPIENT) == (
        standing.state,
        standing.engagement,
        standing.provider_code,
        standing.about,
    )
