"""Records that break a rule of interface.md §3, whoever wrote them: none stops a partition."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from streams.model.ledger import FailurePhase
from streams.model.receipt import DeadLetter, Outcome
from streams.wire.avro import Codec
from tests.integration.world import PATIENT, Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_AGE_MS = 4_000
INBOX = "http://127.0.0.1:8080/inbox"
GOOD: dict[str, Any] = {
    "activity_id": "urn:broken",
    "recipients": [{"inbox": INBOX}],
    "activity": {"type": "Note"},
}
AVRO = Codec("activity")


def changed(**fields: Any) -> bytes:
    """A record that breaks one rule; a None takes a field out."""
    return json.dumps({k: v for k, v in (GOOD | fields).items() if v is not None}).encode()


def with_body(**fields: Any) -> bytes:
    """The same for a record with `body` in place of `activity`."""
    return changed(**({"activity": None, "body": "aGk=", "content_type": "text/plain"} | fields))


def nested(levels: int) -> bytes:
    """A record of exactly so many levels, its own object being the first."""
    inner = b"[" * (levels - 2) + b"]" * (levels - 2)
    return changed(activity={"n": "@"}).replace(b'"@"', inner)


def avro(**fields: Any) -> bytes:
    """An activity in Avro's single-object encoding."""
    return AVRO.encode(
        {"activity_id": "urn:avro", "recipients": [{"inbox": INBOX}], "activity": b"{}"} | fields
    )


BROKEN: dict[str, tuple[bytes | None, str]] = {
    "no value": (None, "tombstone"),
    "an empty value": (b"", "tombstone"),
    "no JSON": (b"{", "not_json"),
    "not UTF-8": (changed(actor="@").replace(b"@", b"\xff"), "not_json"),
    "bytes of another kind": (bytes(range(1, 192)), "not_json"),
    "a list": (b"[1]", "not_an_object"),
    "a repeated field": (b'{"activity_id": "x", ' + changed()[1:], "duplicate_field"),
    "too large": (changed(pad="x" * MAX_BYTES), "too_large"),
    "too deep": (nested(MAX_DEPTH + 1), "too_deep"),
    "endlessly deep": (b"[" * 200_000, "too_deep"),
    "no id": (changed(activity_id=None), "activity_id_missing"),
    "an empty id": (changed(activity_id=""), "activity_id_empty"),
    "an id that is a number": (changed(activity_id=7), "activity_id_invalid"),
    "an id with a zero byte": (changed(activity_id="a\x00b"), "activity_id_invalid"),
    "an id with half a pair": (changed(activity_id="\ud83d"), "activity_id_invalid"),
    "an id over 1,024 bytes": (changed(activity_id="i" * 1_025), "activity_id_too_long"),
    "an id like another tenant's": (changed(activity_id="acme|1"), "activity_id_ambiguous"),
    "a tenant with a bar": (changed(tenant="a|b"), "tenant_invalid"),
    "an actor that is an object": (changed(actor={}), "actor_invalid"),
    "a transaction that is a list": (changed(transaction=[]), "transaction_invalid"),
    "a workflow that is a number": (changed(workflow=1), "workflow_invalid"),
    "a subscriber with a control": (changed(subscriber="\x07"), "subscriber_invalid"),
    "a channel that is a claim": (changed(channel=True), "channel_invalid"),
    "no recipients": (changed(recipients=None), "recipients_missing"),
    "empty recipients": (changed(recipients=[]), "recipients_empty"),
    "recipients that are an object": (changed(recipients={}), "recipient_invalid"),
    "a recipient without a place": (changed(recipients=[{}]), "recipient_invalid"),
    "a recipient with two places": (
        changed(recipients=[{"inbox": INBOX, "target": "crm"}]),
        "recipient_invalid",
    ),
    "a target that is no name": (changed(recipients=[{"target": "a/b"}]), "recipient_invalid"),
    "an inbox that is no URL": (changed(recipients=[{"inbox": "ftp://a"}]), "recipient_invalid"),
    "1,001 recipients": (
        changed(recipients=[{"inbox": f"{INBOX}/{n}"} for n in range(1_001)]),
        "too_many_recipients",
    ),
    "nothing to tell": (changed(activity=None), "activity_or_body_missing"),
    "two things to tell": (changed(body="aGk="), "both_activity_and_body"),
    "an activity that is a text": (changed(activity="x"), "activity_not_an_object"),
    "a body that is not base64": (with_body(body="a?="), "body_not_base64"),
    "a body without its type": (with_body(content_type=None), "content_type_missing"),
    "a type that forges a header": (
        with_body(content_type="text/plain\r\nx: y"),
        "content_type_invalid",
    ),
    "a frame that is not Avro's": (b"\xc3\x02" + avro()[2:], "frame_unknown"),
    "a frame cut short": (avro()[:9], "frame_short"),
    "a schema of somebody else": (b"\xc3\x01" + b"\x07" * 8 + avro()[10:], "schema_unknown"),
    "Avro cut short": (avro()[:-1], "record_corrupt"),
    "Avro with an activity that is no JSON": (avro(activity=b"{"), "not_json"),
    "a registry's frame and no registry": (b"\x00\x00\x00\x00\x07x", "schema_unknown"),
    "two million bytes": (b" " * 2_000_000, "too_large"),
}


class Broken:
    """The world after each broken record was written to partition 0, and a good one after them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.positions: dict[str, str] = {}

    async def run(self) -> None:
        """Write them and wait until the good one behind them was delivered."""
        world = self.world
        records = [(b"k", 0, value) for value, _ in BROKEN.values()]
        offsets = await world.write(records)
        self.positions = {
            name: f"{world.topics.outbox}/0/{offset}"
            for name, offset in zip(BROKEN, offsets, strict=True)
        }
        self.after = [self._homed_at_0(f"/ok/after-{n}") for n in range(3)]
        await world.produce(*self.after)
        await world.until_settled(*self.after)
        await world.until(
            lambda: set(self.positions.values()) <= set(world.letters) & set(world.quarantined),
            "a dead letter and the bytes of each",
        )

    def _homed_at_0(self, path: str) -> Produced:
        found = (self.world.activity(f"urn:after:{path}:{n}", path) for n in range(1_000))
        return next(a for a in found if self.world.home(a) == 0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with World(kafka, tmp_path_factory.mktemp("input"), PATIENT) as world:
        await world.work()
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broken(world: World) -> Broken:
    broken = Broken(world)
    await broken.run()
    return broken


@pytest.mark.parametrize("name", BROKEN)
async def test_a_record_that_cannot_be_read_is_dead_lettered_under_its_position(
    broken: Broken, name: str
) -> None:
    """C-14: with the code of the rule that it breaks, its hash and its length."""
    value, code = BROKEN[name]
    letter = broken.world.letters[broken.positions[name]]
    assert isinstance(letter, DeadLetter)
    (only,) = letter.deliveries

    assert (code, FailurePhase.ADMISSION, 0) == (only.code, only.failure_phase, only.attempts)
    assert f"{len(value or b'')} bytes" in only.summary


@pytest.mark.parametrize("name", BROKEN)
async def test_the_bytes_of_a_record_that_cannot_be_read_are_in_quarantine(
    broken: Broken, name: str
) -> None:
    """C-14: whole, under its position."""
    kept = broken.world.quarantined[broken.positions[name]]

    assert (BROKEN[name][0] or b"") == b"".join(record.value or b"" for record in kept)


async def test_no_dead_letter_holds_the_bytes_of_its_record(broken: Broken) -> None:
    """C-14, D-043: they go to quarantine, never into the dead letter."""
    values = {bytes(r.key or b"").decode(): r.value or b"" for r in broken.world.letter_records}
    ours = [values[position] for position in broken.positions.values()]

    assert [] == [v for v in ours if b"urn:broken" in v or INBOX.encode() in v or len(v) > 1_000]


async def test_the_partition_goes_on_behind_them(broken: Broken) -> None:
    """C-14: what lies behind on the same partition is delivered, once."""
    counts = broken.world.calls_by_path()

    assert {a.paths[0]: 1 for a in broken.after} == {p: counts[p] for p in counts if "after" in p}


async def test_a_record_that_unpacks_beyond_what_a_topic_takes_stops_nothing(world: World) -> None:
    """
    C-14: compressed, 5 MB of blanks fit into a batch; as they are, no topic of ours takes them.
    """
    value = b" " * 5_000_000
    async with AIOKafkaProducer(
        bootstrap_servers=world.brokers,
        compression_type="gzip",
        max_request_size=8_000_000,
        max_batch_size=8_000_000,
    ) as producer:
        written = await producer.send_and_wait(world.topics.outbox, value, key=b"k", partition=0)
    position = f"{world.topics.outbox}/0/{written.offset}"

    await world.until(lambda: position in world.letters, "its dead letter")
    await world.until(
        lambda: sum(len(r.value or b"") for r in world.quarantined[position]) >= len(value),
        "all of its bytes",
    )

    assert value == b"".join(r.value or b"" for r in world.quarantined[position])


async def test_headers_beyond_measure_stop_nothing(world: World) -> None:
    """
    C-14: a record on the wrong partition is forwarded, and its headers need not fit twice.
    """
    activity = world.activity("urn:headers", "/ok/headers")
    astray = (world.home(activity) + 1) % world.partitions
    async with AIOKafkaProducer(
        bootstrap_servers=world.brokers,
        compression_type="gzip",
        max_request_size=8_000_000,
        max_batch_size=8_000_000,
    ) as producer:
        await producer.send_and_wait(
            world.topics.outbox,
            activity.value,
            partition=astray,
            key=b"k",
            headers=[("pad", b" " * 3_000_000), ("due", b"0"), ("none", None)],
        )
    await world.until_settled(activity)

    assert 1 == len(world.calls("/ok/headers"))


async def test_foreign_records_in_a_delay_topic_stop_nothing(world: World) -> None:
    """
    C-14: only workers may write retries; what others write there is dead-lettered, and not called.
    """
    topic = world.topics.outbox_retries["1s"]
    owed = world.activity("urn:foreign", "/ok/foreign")
    names = ("delivery", "target", "attempt", "fence")
    item = list(zip(names, (None, b"x", b"0", b"0"), strict=True))
    junk: list[tuple[str, bytes, list[tuple[str, bytes | None]]]] = [
        ("retry_headers_invalid", b"junk", []),
        ("retry_headers_invalid", owed.value, [("due", None)]),
        ("retry_foreign", owed.value, [("due", b"1"), *item]),
    ]
    expected = {}
    async with AIOKafkaProducer(bootstrap_servers=world.brokers) as producer:
        for code, value, headers in junk:
            done = await producer.send_and_wait(
                topic, value, key=b"k", partition=1, headers=headers
            )
            expected[f"{topic}/1/{done.offset}"] = code

    await world.until(lambda: expected.keys() <= world.letters.keys(), "their dead letters")

    letters = {position: world.letters[position] for position in expected}
    assert expected == {p: letter.deliveries[0].code for p, letter in letters.items() if letter}
    assert [] == world.calls("/ok/foreign")


async def test_a_command_that_cannot_be_read_is_told_and_stops_nothing(world: World) -> None:
    """
    C-14: nothing that a producer owns is lost with it, so a log line is enough.
    """
    (worker,) = world.workers
    (offset,) = await world.write([(b"k", 1, b"junk")], world.topics.commands)
    position = f"{world.topics.commands}/1/{offset}"

    await world.until(
        lambda: position in [line["position"] for line in worker.events("record.rejected")],
        "its log line",
    )

    assert not worker.died


async def test_what_meets_the_limits_exactly_is_delivered(world: World) -> None:
    """C-14: the limits are 256 KiB and 32 levels, both included."""
    whole = world.activity("urn:limit:bytes", "/ok/bytes", pad="@")
    pad = b"x" * (MAX_BYTES - len(whole.value) + 1)
    deep = nested(MAX_DEPTH).replace(INBOX.encode(), world.url("/ok/deep").encode())
    largest = Produced(
        activity_id=whole.activity_id,
        value=whole.value.replace(b"@", pad),
        body=whole.body.replace(b"@", pad),
        paths=whole.paths,
    )
    deepest = Produced(activity_id="urn:broken", value=deep, body=b"", paths=("/ok/deep",))
    assert MAX_BYTES == len(largest.value)

    await world.produce(largest, deepest)
    await world.until_settled(largest, deepest)

    assert [largest.body] == [call.body for call in world.calls("/ok/bytes")]
    assert 1 == len(world.calls("/ok/deep"))


async def test_an_activity_in_avro_is_delivered_with_its_own_bytes(world: World) -> None:
    """interface.md §3: single-object encoding by `schemas/activity.avsc`, the body never re-encoded."""
    body = '{ "type":"Note",\n"content": "\\u00fc 世界", "big": 123456789012345678901 }'.encode()
    value = avro(recipients=[{"inbox": world.url("/ok/avro")}], activity=body, actor="al")
    activity = Produced(activity_id="urn:avro", value=value, body=body, paths=("/ok/avro",))

    await world.produce(activity)
    await world.until_settled(activity)

    (call,) = world.calls("/ok/avro")
    assert body == call.body
    assert "application/activity+json" == dict(call.headers)["content-type"]


async def test_bytes_in_avro_are_delivered_with_their_type(world: World) -> None:
    """interface.md §3: `body` with `content_type`, any bytes."""
    body = bytes(range(256))
    value = avro(
        activity_id="urn:avro:bytes",
        recipients=[{"inbox": world.url("/ok/avro-bytes")}],
        activity=None,
        body=body,
        content_type="application/octet-stream",
    )
    activity = Produced(
        activity_id="urn:avro:bytes", value=value, body=body, paths=("/ok/avro-bytes",)
    )

    await world.produce(activity)
    await world.until_settled(activity)

    (call,) = world.calls("/ok/avro-bytes")
    assert (body, "application/octet-stream") == (call.body, dict(call.headers)["content-type"])


async def test_a_target_that_nobody_registered_is_dead_lettered_at_admission(world: World) -> None:
    """interface.md §3: it can be registered and redriven; the other recipients are told."""
    activity = world.to_target("urn:unknown", "nobody")

    await world.produce(activity)
    await world.until_settled(activity)

    letter = world.letter(activity)
    (receipt,) = world.receipts[activity.activity_id]
    assert ("unknown_target", FailurePhase.ADMISSION) == (letter.code, letter.failure_phase)
    assert (Outcome.REFUSED, "nobody", 0) == (receipt.verdict, receipt.target, receipt.attempts)


async def test_the_same_name_of_another_tenant_is_another_target(world: World) -> None:
    """interface.md §1: the registry is per tenant, and so is the activity's key."""
    await world.register("mine", "/ok/mine", tenant="acme")
    ours = world.to_target("urn:tenants", "mine", tenant="acme")
    theirs = world.to_target("urn:tenants", "mine")

    await world.produce(ours, theirs)
    await world.until(lambda: len(world.receipts["urn:tenants"]) == 2, "both receipts")

    by_tenant = {r.tenant: r.verdict for r in world.receipts["urn:tenants"]}
    assert {"acme": Outcome.SENT, "default": Outcome.REFUSED} == by_tenant
    assert 1 == len(world.calls("/ok/mine"))


async def test_an_address_that_may_not_be_called_is_refused_without_a_call(world: World) -> None:
    """C-10: only the loopback network is allowed here."""
    activity = Produced(
        activity_id="urn:private",
        value=changed(activity_id="urn:private", recipients=[{"inbox": "http://10.0.0.1/inbox"}]),
        body=b"",
    )

    await world.produce(activity)
    await world.until_settled(activity)

    letter = world.letter(activity)
    assert ("address_forbidden", FailurePhase.ADMISSION) == (letter.code, letter.failure_phase)


async def test_a_ledger_entry_can_be_seen_in_its_dead_letter(world: World) -> None:
    """O-023..025: `object.id` where `object.type` is `CaseLedgerEntry`, else null."""
    entry = {"type": "CaseLedgerEntry", "id": "https://a.example/ledger/9"}
    named = world.activity("urn:entry", "/status/400/entry", object=entry)
    plain = world.activity("urn:plain", "/status/400/plain", object={**entry, "type": "Note"})

    await world.produce(named, plain)
    await world.until_settled(named, plain)

    found = [world.letters[a.activity_id].ledger_entry_id for a in (named, plain)]
    assert ["https://a.example/ledger/9", None] == found


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port of ours at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


async def test_waiting_for_a_target_that_is_down_ends_at_the_maximum_age(
    world: World, dead_port: int
) -> None:
    """
    C-17, C-08, O-033: from the tenth fault on the target is left alone, which spends no attempt; at
    their maximum age all are dead-lettered, those that were never called too.
    """
    await world.register(
        "down",
        "",
        url=f"http://127.0.0.1:{dead_port}/",
        policy_overrides={
            "max_age_ms": MAX_AGE_MS,
            "max_attempts": 1_000,
            "timeout_ms": 500,
            "lease_ms": MAX_AGE_MS,
        },
    )
    activities = [world.to_target(f"urn:down:{n}", "down") for n in range(40)]
    called, spared = activities[:20], activities[20:]

    await world.produce(*called)
    keys = {activity.key for activity in called}
    await world.until(lambda: keys <= {retry.key for retry in world.retries}, "twenty faults")
    await world.produce(*spared)
    await world.until_settled(*activities)

    letters = [world.letter(activity) for activity in activities]
    assert {("expired", FailurePhase.CLAIM, False)} == {
        (each.code, each.failure_phase, each.reconciliation_required) for each in letters
    }
    assert {"connect_refused"} == {each.cause for each in letters if each.attempts}
    # While it is down a call is made now and then, to see whether it still is.
    assert sum(world.letter(activity).attempts for activity in spared) < len(spared) / 2
    assert {Outcome.EXPIRED} == {
        r.verdict for a in activities for r in world.receipts[a.activity_id]
    }

    # A duplicate's receipt tells when the activity was first seen.
    await world.produce(*activities)
    await world.until(
        lambda: all(len(world.receipts[a.activity_id]) == 2 for a in activities), "duplicates"
    )
    ends_ms = {a.key: world.receipts[a.activity_id][1].started_ms + MAX_AGE_MS for a in activities}
    # A target is left alone for a second at least; the clock goes on between two readings of it.
    late = [r for r in world.retries if r.key in ends_ms and r.due_ms > ends_ms[r.key] + 500]
    assert [] == late, "a wait that puts the end off"
