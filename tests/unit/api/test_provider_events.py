"""Provider events in: proved, bounded, matched, converging (D-048..056)."""

from __future__ import annotations

import json

import pytest

from streams.api.histories import RETENTION_MS
from streams.api.provider_events import (
    BODY_BYTES_MAX,
    EVENTS_OF_A_DELIVERY_MAX,
    LOOKS,
)
from streams.api.providers import Provider, read_providers
from streams.errors import SettingsError, TargetError
from streams.model.observed import Downstream, Engagement
from streams.rules.shapes import PLAIN
from streams.wire.observations import decode_observation
from streams.wire.signatures.verifying import Verifier, Window
from tests.unit.api.intake import NOW_MS, OTHER_SECRET, SECRET, Bench

OLD_S = NOW_MS / 1_000 - 3_600
BOUNCE = {"message_id": "m1", "state": "bounced", "code": "5.1.1", "at": OLD_S, "event_id": "e1"}


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "h")
    yield bench
    bench.histories.close()


async def test_a_signed_event_is_appended_to_its_deliverys_history(bench):
    """
    D-052..054: key and partition are the delivery's, and so are tenant and generation.
    """
    own = bench.sent()
    answer = await bench.post(BOUNCE)

    assert (202, 1) == (answer.status_code, answer.json()["accepted"])
    [(partition, key, value)] = bench.appended
    seen = decode_observation(value)
    assert (3, own.encode()) == (partition, key)
    assert ("provider", "mail", "api-1", "acme", 1, "urn:1") == (
        seen.source,
        seen.provider,
        seen.worker,
        seen.tenant,
        seen.generation,
        seen.activity_id,
    )
    assert (Downstream.BOUNCED, "5.1.1", NOW_MS) == (
        seen.state,
        seen.provider_code,
        seen.observed_ms,
    )


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"secret": OTHER_SECRET}, "forged"),
        ({"headers": {"webhook-signature": ""}}, "unsigned"),
        ({"headers": {"webhook-id": "msg_2"}}, "forged"),
        ({"age_s": 301}, "stale"),
        ({"age_s": -301}, "early"),
    ],
)
async def test_what_is_not_proved_changes_nothing_and_is_counted(bench, change, outcome):
    """
    D-056: one answer, whatever was wrong; a counter tells us apart.
    """
    own = bench.sent()
    answer = await bench.post(BOUNCE, **change)

    assert (401, "signature_invalid") == (answer.status_code, answer.json()["code"])
    assert ([], 1.0) == (bench.appended, bench.count(outcome))
    assert Downstream.UNKNOWN == bench.merged(own).standing.state


async def test_a_provider_that_nobody_configured_is_answered_like_a_forger(bench):
    """
    D-056: who asks does not learn which names exist; the label is not his to choose.
    """
    answer = await bench.post(BOUNCE, provider="a-name-of-his")

    assert (401, "signature_invalid") == (answer.status_code, answer.json()["code"])
    assert 1.0 == bench.count("unknown_provider", "unknown")
    assert [] == [
        sample
        for metric in bench.registry.collect()
        for sample in metric.samples
        if "a-name-of-his" in sample.labels.values()
    ]


@pytest.mark.parametrize("size", [BODY_BYTES_MAX, BODY_BYTES_MAX + 1])
@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_is_read_up_to_its_bound(bench, size, declared):
    """
    Issue 7: 64 KiB, whatever content-length says, and before any signature is computed.
    """
    body = b'{"state":"' + b"a" * (size - 12) + b'"}'
    headers = {} if declared else {"transfer-encoding": "chunked"}

    answer = await bench.post(body, headers=headers)

    assert (202 if size == BODY_BYTES_MAX else 413) == answer.status_code


async def test_an_event_is_matched_by_our_own_id_where_it_comes_back(bench):
    """
    D-071, C-12: `webhook-id` names delivery and generation, also before any answer was seen.
    """
    own = bench.sent(generation=2, provider_message_id=None)
    for generation in (1, 2, 3):
        event = {"webhook_id": f"{own}-{generation}", "state": "delivered", "at": OLD_S}
        await bench.post(event)

    assert [1, 1, 0] == [bench.merged(own, generation).events for generation in (1, 2, 3)]
    assert 1.0 == bench.count("unmatched")


async def test_a_provider_speaks_of_its_own_tenants_deliveries_only(bench):
    """
    C-13: by neither id can it reach another's.
    """
    own = bench.sent(tenant="globex")
    answers = [
        await bench.post(BOUNCE),
        await bench.post({"webhook_id": f"{own}-1", "state": "bounced", "at": OLD_S}),
    ]

    assert [1, 1] == [answer.json()["unmatched"] for answer in answers]
    assert [] == bench.appended


async def test_a_repeated_event_is_taken_and_changes_nothing(bench):
    """
    D-055: within one body, in another one, under another envelope; nothing more is written.
    """
    own = bench.sent()
    first = (await bench.post({"events": [BOUNCE, BOUNCE]})).json()
    again = (await bench.post(BOUNCE)).json()

    assert (1, 1, 0, 1) == (
        first["accepted"],
        first["repeated"],
        again["accepted"],
        again["repeated"],
    )
    assert 1 == len(bench.appended)
    assert Downstream.BOUNCED == bench.merged(own).standing.state


async def test_a_bad_item_spoils_no_other_one(bench):
    """
    H04: the batch is taken, and what could not be read is counted.
    """
    bench.sent()
    answer = await bench.post({"events": [None, 7, {}, BOUNCE, {"message_id": "m1"}]})

    assert (1, 4) == (answer.json()["accepted"], answer.json()["unread"])


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 60_000])
async def test_what_is_no_json_is_refused(bench, body):
    """
    Issue 7: signed nonsense is told to be nonsense; it does not become a 500.
    """
    answer = await bench.post(body)

    assert (400, "body_invalid") == (answer.status_code, answer.json()["code"])
    assert 1.0 == bench.count("malformed")


async def test_an_event_that_is_here_before_its_history_is_waited_for(bench):
    """
    D-054: a provider can be quicker than our own log.
    """
    bench.on_pause = bench.sent
    young = BOUNCE | {"at": NOW_MS / 1_000}

    answer = await bench.post(young)

    assert (1, 1) == (answer.json()["accepted"], len(bench.pauses))


async def test_an_event_of_somebody_elses_message_is_taken_and_let_go(bench):
    """
    Providers tell of all messages of an account: an error would make them repeat it, or give up on us.
    """
    young, old = BOUNCE | {"at": NOW_MS / 1_000}, BOUNCE

    first, second = await bench.post(young), await bench.post(old)

    assert [(202, 1)] * 2 == [(a.status_code, a.json()["unmatched"]) for a in (first, second)]
    assert LOOKS - 1 == len(bench.pauses)


async def test_without_a_log_nothing_is_taken(bench):
    """
    D-056, H08: never a silent loss: the provider is told to come again.
    """
    bench.sent()
    bench.down = True
    refused = await bench.post(BOUNCE)
    bench.down = False
    taken = await bench.post(BOUNCE)

    assert (503, 202, 1) == (refused.status_code, taken.status_code, taken.json()["accepted"])


async def test_while_histories_are_rebuilt_nothing_is_taken(bench):
    """
    D-055: what is a repetition could not be told.
    """
    bench.histories.is_ready = False

    assert 503 == (await bench.post(BOUNCE)).status_code


async def test_events_of_one_delivery_are_bounded(bench):
    """
    Issue 7: not even its own provider can make a history grow without end.
    """
    own = bench.sent()
    for start in range(0, EVENTS_OF_A_DELIVERY_MAX + 300, 300):
        events = [
            {"message_id": "m1", "engagement": "opened", "at": OLD_S, "event_id": str(n)}
            for n in range(start, start + 300)
        ]
        answer = await bench.post({"events": events})

    assert answer.json()["beyond_bound"] > 0
    assert EVENTS_OF_A_DELIVERY_MAX == bench.merged(own).events
    assert Engagement.OPENED == bench.merged(own).standing.engagement


async def test_nothing_of_a_providers_text_is_kept(bench):
    """
    D-043, D-053: reasons, subjects and addresses stay outside; codes and words come in.
    """
    own = bench.sent()
    secret = "canary-FAKEEX0001"
    event = BOUNCE | {
        "recipient": f"{secret}@example.com",
        "reason": secret,
        "code": f"550 {secret}",
        "state": "bounced",
        "subject": secret,
    }
    await bench.post(event)

    assert secret.encode() not in b"".join(value for _, _, value in bench.appended)
    assert 1 == len(bench.merged(own).subjects)


# ── Settings ──


def test_providers_are_read_from_settings(monkeypatch):
    """
    Issue 7: name, tenant, shape, keys by reference, window.
    """
    text = json.dumps(
        [
            {
                "name": "mail",
                "tenant": "acme",
                "shape": "mailgun",
                "secret_refs": ["env:K"],
                "window_s": 28_800,
            },
            {"name": "sms", "shape": "twilio", "secret_refs": ["env:K", "env:K"]},
        ]
    )
    found = read_providers(text, {"env:K": SECRET}.__getitem__)

    assert [("acme", "mailgun", 28_800), ("default", "twilio", 300)] == [
        (each.tenant, each.shape.name, each.window.past_s) for each in found.values()
    ]
    assert {} == read_providers("", lambda _: SECRET)


ENTRY = {"name": "mail", "shape": "plain", "secret_refs": ["env:K"]}


@pytest.mark.parametrize(
    "entries",
    [
        "not a list",
        [ENTRY | {"shape": "pigeon"}],
        [ENTRY, ENTRY],
        [ENTRY | {"name": "unknown"}],
        [ENTRY | {"secret_refs": []}],
        [ENTRY | {"secret_refs": ["env:BAD"]}],
        [ENTRY | {"secret_refs": ["env:NONE"]}],
        [ENTRY | {"window_s": 0}],
        [ENTRY | {"window_s": RETENTION_MS // 1_000 + 1}],
        [ENTRY | {"colour": "red"}],
        [{"name": "mail"}],
    ],
)
def test_what_describes_no_provider_is_refused_without_its_key(entries):
    """
    D-042, H08: one message for each rule; the window is never longer than repeats are known.
    """

    def read(reference):
        if reference == "env:NONE":
            raise TargetError("secret env:NONE: is not set, or empty")
        return SECRET if reference == "env:K" else "whsec_FAKEEX0001"

    with pytest.raises(SettingsError) as refused:
        read_providers(json.dumps(entries), read)

    assert "FAKEEX" not in str(refused.value)


def test_a_window_may_be_as_long_as_a_repetition_is_known_for_one():
    """
    H08: "retention >= window".
    """
    longest = Window(past_s=RETENTION_MS // 1_000)

    made = Provider(name="m", tenant="t", shape=PLAIN, verifier=Verifier([SECRET]), window=longest)

    assert longest == made.window
