"""2,000 activities of every kind through the topics alone: who was called how often, and with what."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest
import pytest_asyncio

from streams.edge.receiver import Call
from streams.model.ledger import FailurePhase
from streams.model.receipt import Outcome
from tests.integration.world import PATIENT, Produced, World

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

MAX_ATTEMPTS = 3
KINDS = {
    "/ok": 1_400,
    "/flaky/2": 150,
    "/status/503": 100,
    "/status/400": 100,
    "/retry-after/2": 50,
    "/reset": 40,
    "/redirect": 20,
}
NAMED = 60
"""Deliveries to a registered target that is not idempotent and resets."""
STRAY = 80
"""Written with any key, to any partition."""


class Mix:
    """What was produced, by the kind of its receiver."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.of: dict[str, list[Produced]] = {
            kind: [self.make(kind, n) for n in range(count)] for kind, count in KINDS.items()
        }
        self.of["named"] = [world.to_target(f"urn:named:{n}", "resetting") for n in range(NAMED)]
        self.of["stray"] = [self.make("/ok/stray", n) for n in range(STRAY)]

    def make(self, kind: str, n: int) -> Produced:
        """An activity of one recipient; every ninth has a body that is no activity."""
        activity_id = f"https://a.example{kind}/{n}"
        if n % 9 == 0:
            body = bytes(range(256)) * (n % 5) + b"%d\r\n" % n
            return self.world.raw_body(activity_id, f"{kind}/{n}", body, 'text/x; q="ü"'[:6])
        text = 'grüße, 世界 \\ " \u2028' * (n % 7)
        actor = self.world.url("/actor/inbox")
        return self.world.activity(
            activity_id, f"{kind}/{n}", actor=actor, note=text, big=10**20 + n
        )

    @property
    def all(self) -> list[Produced]:
        """Every activity."""
        return [activity for kind in self.of.values() for activity in kind]

    def counts(self, kind: str) -> Counter[int]:
        """How many activities of a kind were called how often."""
        return Counter(len(self.calls_of(activity)) for activity in self.of[kind])

    def calls_of(self, activity: Produced) -> list[Call]:
        """Its calls, in order."""
        return self.by_path[activity.paths[0]]

    async def run(self) -> None:
        """Produce all in a random order and wait for a receipt of each."""
        world, chance = self.world, random.Random(3)
        await world.register("resetting", "/reset/named")
        strays = [
            (chance.randbytes(7), chance.randrange(world.partitions), a.value)
            for a in self.of["stray"]
        ]
        homed = [(a.key, world.home(a), a.value) for a in self.all if a not in self.of["stray"]]
        records = [*homed, *strays]
        chance.shuffle(records)
        await world.write(records)
        await world.until_settled(*self.all)
        self.by_path: defaultdict[str, list[Call]] = defaultdict(list)
        for call in world.receiver.calls:
            self.by_path[call.path].append(call)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mix(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mix]:
    async with World(kafka, tmp_path_factory.mktemp("mix"), PATIENT) as world:
        await world.work()
        mix = Mix(world)
        await mix.run()
        yield mix


async def test_there_are_2000_activities_and_a_receipt_for_each_delivery(mix: Mix) -> None:
    """Issue 3: one receipt each, no more: nothing crashed, so nothing was written twice."""
    counts = Counter(len(mix.world.receipts[a.activity_id]) for a in mix.all)

    assert {1: 2_000} == counts


async def test_what_is_accepted_is_called_once(mix: Mix) -> None:
    """Issue 3: every `/ok` exactly once (D-001)."""
    assert {1: KINDS["/ok"]} == mix.counts("/ok")


async def test_a_record_with_any_key_on_any_partition_is_delivered_once(mix: Mix) -> None:
    """C-14: it is forwarded to the partition of its activity."""
    assert {1: STRAY} == mix.counts("stray")


async def test_what_fails_twice_is_called_three_times_under_one_id(mix: Mix) -> None:
    """Issue 3; O-014, O-028: and each call says its number."""
    calls = [mix.calls_of(activity) for activity in mix.of["/flaky/2"]]

    assert {(1, 2, 3)} == {tuple(c.attempt or 0 for c in each) for each in calls}
    assert {1} == {len({c.id for c in each}) for each in calls}


async def test_what_always_fails_is_called_as_often_as_the_policy_says(mix: Mix) -> None:
    """O-001, O-016: `max_attempts` calls, then the dead letters (O-018)."""
    assert {MAX_ATTEMPTS: KINDS["/status/503"]} == mix.counts("/status/503")


async def test_nobody_is_called_but_recipients(mix: Mix) -> None:
    """O-011, O-012: no NACK goes to who sent what was given up, though its actor has an address."""
    wanted = {path for activity in mix.all for path in activity.paths} | {"/reset/named"}

    assert wanted == set(mix.by_path)


async def test_what_always_failed_is_dead_lettered_as_exhausted(mix: Mix) -> None:
    """O-018..021, D-009: under its activity ID, with the bound met and what its last call saw."""
    letters = [mix.world.letter(activity) for activity in mix.of["/status/503"]]

    assert {("attempts_exhausted", "http_503", MAX_ATTEMPTS, False)} == {
        (each.code, each.cause, each.attempts, each.reconciliation_required) for each in letters
    }
    assert {FailurePhase.AMBIGUOUS_POST_CALL} == {each.failure_phase for each in letters}


@pytest.mark.parametrize(("kind", "code"), [("/status/400", "http_400"), ("/redirect", "http_302")])
async def test_what_is_refused_is_called_once_and_dead_lettered(
    mix: Mix, kind: str, code: str
) -> None:
    """O-026, O-027, O-029: no further call; a redirect is refused too, and never followed."""
    letters = [mix.world.letter(activity) for activity in mix.of[kind]]

    assert {1: KINDS[kind]} == mix.counts(kind)
    assert {(code, FailurePhase.REJECTED_PERMANENT, 1)} == {
        (each.code, each.failure_phase, each.attempts) for each in letters
    }
    assert [] == mix.world.calls("/ok/redirected")


async def test_an_inbox_that_resets_is_tried_again(mix: Mix) -> None:
    """C-03, O-028: an inbox is idempotent by default, so an unknown effect is repeated."""
    assert {MAX_ATTEMPTS: KINDS["/reset"]} == mix.counts("/reset")


async def test_a_registered_target_that_resets_is_called_once_per_delivery(mix: Mix) -> None:
    """D-011..013: nobody knows whether it took effect, so it is never sent again by itself."""
    per_delivery = Counter(Counter(c.id for c in mix.by_path["/reset/named"]).values())

    assert {1: NAMED} == per_delivery


async def test_an_unknown_effect_is_dead_lettered_for_reconciliation(mix: Mix) -> None:
    """D-011..013, D-070."""
    letters = [mix.world.letter(activity) for activity in mix.of["named"]]

    assert {(FailurePhase.AMBIGUOUS_POST_CALL, 1, True)} == {
        (each.failure_phase, each.attempts, each.reconciliation_required) for each in letters
    }
    # A kept-alive connection that is reset may have been stale; that it was not cannot be proved.
    assert {each.code for each in letters} <= {"read_reset", "stale_connection"}


async def test_a_target_that_asks_to_wait_is_not_called_earlier(mix: Mix) -> None:
    """D-018: Retry-After lengthens the delay of 200 ms, and nothing shortens it."""
    calls = [mix.calls_of(activity) for activity in mix.of["/retry-after/2"]]
    waits = [second.t - first.t for first, second in calls]

    assert [] == [wait for wait in waits if wait < 2.0]


async def test_every_body_is_received_as_it_was_produced(mix: Mix) -> None:
    """interface.md §4: byte for byte, at every attempt, white space and big numbers included."""
    expected = {a.paths[0]: sha256(a.body).hexdigest() for a in mix.all if a.paths}
    expected_named = {sha256(a.body).hexdigest() for a in mix.of["named"]}
    received = {(c.path, sha256(c.body).hexdigest()) for c in mix.world.receiver.calls}

    assert expected_named == {digest for path, digest in received if path == "/reset/named"}
    assert set(expected.items()) == {pair for pair in received if pair[0] != "/reset/named"}


async def test_every_request_has_the_headers_of_the_contract(mix: Mix) -> None:
    """interface.md §4: `webhook-id` is also the idempotency key; one body, one media type."""
    types = {a.paths[0]: a.content_type for a in mix.all if a.paths}
    wrong = []
    for call in mix.world.receiver.calls:
        headers = dict(call.headers)
        holds = (
            call.method == "POST"
            and headers["webhook-id"] == headers["idempotency-key"]
            and headers["webhook-timestamp"].isdigit()
            and abs(int(headers["webhook-timestamp"]) - call.t) < 30
            and headers["content-type"] == types.get(call.path, "application/activity+json")
            and headers["content-length"] == str(len(call.body))
            and headers["user-agent"].startswith("outbox/")
            and call.attempt is not None
        )
        wrong += [] if holds else [call.headers]

    assert [] == wrong


async def test_every_receipt_says_what_came_of_its_delivery(mix: Mix) -> None:
    """interface.md §3, D-048: `sent` means accepted; attempts and status are those of the calls."""
    told = {
        kind: {
            (receipt.verdict, receipt.attempts, receipt.status)
            for activity in activities
            for receipt in mix.world.receipts[activity.activity_id]
        }
        for kind, activities in mix.of.items()
    }

    assert {
        "/ok": {(Outcome.SENT, 1, 200)},
        "stray": {(Outcome.SENT, 1, 200)},
        "/flaky/2": {(Outcome.SENT, 3, 200)},
        "/retry-after/2": {(Outcome.SENT, 2, 200)},
        "/status/503": {(Outcome.EXHAUSTED, 3, 503)},
        "/status/400": {(Outcome.REFUSED, 1, 400)},
        "/redirect": {(Outcome.REFUSED, 1, 302)},
        "/reset": {(Outcome.EXHAUSTED, 3, 0)},
        "named": {(Outcome.AMBIGUOUS, 1, 0)},
    } == told


async def test_nothing_else_is_dead_lettered(mix: Mix) -> None:
    """O-022: what was delivered leaves no dead letter."""
    given_up = ("/status/503", "/status/400", "/redirect", "/reset", "named")
    expected = {a.key.decode() for kind in given_up for a in mix.of[kind]}

    assert expected == set(mix.world.letters)


async def test_there_is_one_error_line_per_activity_given_up(mix: Mix) -> None:
    """O-020: it names the activity, and is the only line of its kind."""
    (worker,) = mix.world.workers
    lines = Counter(line["activity_id"] for line in worker.events("activity.dead_lettered"))

    assert dict.fromkeys(mix.world.letters, 1) == lines
