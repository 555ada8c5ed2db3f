"""The simulated world: machines, a broker, producers, an operator, and an oracle that watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import cast

from streams.model.ledger import OWNER_KEY, Row
from streams.model.values import replace
from streams.rules.decide import EffectMode
from streams.wire.commands import Cancel, Redrive, encode_command
from streams.wire.records import read_ledger_headers, read_retry_headers
from tests.sim.bounds import ENDLESS, Bounds
from tests.sim.broker import BASE_MS, Broker
from tests.sim.loop import VirtualLoop
from tests.sim.machine import TOPICS, Machine
from tests.sim.memory import MemoryStore, Record, name
from tests.sim.oracle import Oracle
from tests.sim.target import POLICY, Call, Script, SimTargets

AGED_S = 60
"""A world with a longer dedupe window does not live to see its end."""

CALM_S = 3
"""A world is at rest when nothing was left to do for so long."""

DRAIN_S = 1_500
"""How long a world that nobody disturbs any more may take to come to rest."""


class FailedError(AssertionError):
    """A promise was broken; the message is the transcript."""


class World:
    """To be made inside a running `VirtualLoop`, within `quiet()`."""

    def __init__(
        self, seed: int, machines: str = "ABC", *, max_attempts: int = 3, bounds: Bounds = ENDLESS
    ) -> None:
        self.rng = Random(seed)
        self.loop = cast("VirtualLoop", asyncio.get_running_loop())
        self.broker = Broker(self.loop, self._stream("broker"), TOPICS)
        self.transcript: list[tuple[float, str, str]] = []
        self.answers: dict[str, str] = {}
        """Target to its answer, where the test says so; else drawn for each attempt."""
        self.lasts_s: float | None = None
        self._answers_seed = self.rng.randbytes(8)
        self.script = Script(self._draw, self._called)
        policy = replace(POLICY, max_attempts=max_attempts, max_age_ms=bounds.max_age_ms)
        self.targets = SimTargets(self._stream("targets"), policy)
        self.oracle = Oracle(self.broker, self.script, max_attempts, bounds)
        self.broker.on_land.append(self._landed)
        self.machines = {
            n: Machine(
                n,
                self.broker,
                self._stream(n),
                targets=self.targets,
                script=self.script,
                window_ms=bounds.window_ms,
            )
            for n in machines
        }
        for machine in self.machines.values():
            machine.start()
            self._watch(machine)

    def _stream(self, purpose: str) -> Random:
        return Random(f"{self.rng.random()}{purpose}")

    # -- what happens -------------------------------------------------------------------------

    def say(self, who: str, what: str) -> None:
        """Add a line to the transcript."""
        self.transcript.append((self.loop.time(), who, what))

    def produce(
        self, activity_id: str, *targets: str, content: str = "x", at_ms: int | None = None
    ) -> Record:
        """Produce an activity for named targets."""
        value = {
            "activity_id": activity_id,
            "recipients": [{"target": target} for target in targets],
            "activity": {"type": "Note", "content": content},
        }
        now_ms = BASE_MS + int(self.loop.time() * 1000)
        return self.broker.land(
            "outbox", activity_id.encode(), json.dumps(value).encode(), (), at_ms or now_ms
        )

    def redrive(self, key: bytes, *, copies: int = 1) -> str:
        """Ask for the present dead letter of a delivery to be reopened."""
        row = self.oracle.row(key)
        assert row is not None
        self.command(key, row.letter_id, copies=copies)
        return row.letter_id

    def command(self, key: bytes, letter_id: str, *, copies: int = 1) -> None:
        """Ask for a dead letter, whatever the ledger says of it, to be reopened."""
        command = Redrive(letter_id=letter_id, mode=EffectMode.NEW_EXTERNAL_SEND, audit_id="audit")
        for _ in range(copies):
            self.broker.land("outbox.commands", key.partition(b"\x00")[0], encode_command(command))

    def cancel(self, key: bytes, *, copies: int = 1) -> None:
        """Ask for a delivery, as it stands in its present budget, to be cancelled."""
        row = self.oracle.row(key)
        assert row is not None
        command = encode_command(Cancel(letter_id=row.letter_id, audit_id="audit"))
        for _ in range(copies):
            self.broker.land("outbox.commands", key.partition(b"\x00")[0], command)

    def replay(self, key: bytes) -> None:
        """Produce a redriven delivery's activity again, as its caller does (D-066)."""
        owed, row = self.oracle.owed[key], self.oracle.row(key)
        if row is not None:
            self.oracle.replayed.add((key, row.budget))
        body = json.loads(owed.activity.body)
        target = key.decode().split("\x00")[1]
        self.produce(owed.activity.activity_id, target, content=body["content"])

    def move(self, to: str, *, told: bool = True) -> None:
        """The group gives the partition to a machine; `told` is false where the old owner is cut off."""
        old = self.machines.get(self.broker.owner)
        if old is not None and told:
            old.lose(commit=True)
            self.broker.soon(0.01, self._give, to)
        else:
            self._give(to)

    def _give(self, to: str) -> None:
        machine = self.machines[to]
        self.broker.generation += 1
        self.broker.owner = to
        if machine.is_assigned:
            machine.lose(commit=False)
        if not machine.life.dead:
            self.say("group", f"generation {self.broker.generation}: {to} owns it")
            machine.gain()

    def tell(self, who: str) -> None:
        """A machine that was cut off hears that the partition is not its own any more."""
        if self.broker.owner != who:
            self.machines[who].lose(commit=False)

    def crash(self, who: str, *, store: str = "kept", landing: float = 0.5) -> None:
        """Kill a worker."""
        if not self.machines[who].life.dead:
            self.say(who, f"crashes, its store {store}")
        self.machines[who].crash(store=store, landing=landing)

    def start(self, who: str) -> None:
        """Start a worker that was killed."""
        machine = self.machines[who]
        if machine.life.dead:
            self.say(who, "starts")
            machine.start()
            self._watch(machine)
            if self.broker.owner == who:
                self._give(who)

    def compact(self, share: float = 1.0) -> None:
        """Compact the ledger, up to a share of what the lag permits."""
        taken = self.broker.topics["ledger"].compact(int(share * self.oracle.boundary()))
        self.say("broker", f"compaction takes {taken} ledger records")

    def skew(self, who: str, by_ms: int) -> None:
        """Set a machine's wall clock wrong."""
        self.say(who, f"its clock is wrong by {by_ms} ms")
        self.oracle.skew_ms = max(self.oracle.skew_ms, abs(by_ms))
        self.machines[who].time.skew_ms = by_ms

    def disable(self, target: str) -> None:
        """An operator disables a target: what is for it is parked."""
        self.say("operator", f"disables {target}")
        self.targets.disabled.add(target)

    def enable(self, target: str) -> None:
        """An operator enables a target, and every worker reads of it."""
        if target in self.targets.disabled:
            self.say("operator", f"enables {target}")
            self.targets.disabled.discard(target)
            for machine in self.machines.values():
                machine.release(target)

    def leads(self, who: str) -> bool:
        """Whether a machine believes to lead the partition."""
        machine = self.machines[who]
        partition = machine.worker.partitions.get(0)
        return not machine.life.dead and partition is not None and partition.leads

    async def until(self, what: Callable[[], object], limit_s: float = 60.0) -> None:
        """Let the world go on until something is so."""
        end = self.loop.time() + limit_s
        while not what():
            self.check()
            if self.loop.time() > end:
                raise FailedError(self.report(f"did not come to pass within {limit_s} s"))
            await asyncio.sleep(0.002)

    # -- the end ------------------------------------------------------------------------------

    def check(self) -> None:
        """Fail when a promise was broken.

        Raises:
            FailedError: with the transcript.
            AttributeError, NameError, TypeError: a test's own, or the engine's: a trace without its guard
                must not pass for a fault that its guard has no part in.
        """
        wrong = self.oracle.wrong + self.loop.faults
        for machine in self.machines.values():
            if machine.slip is not None:
                raise machine.slip
            wrong += machine.errors
        if wrong:
            raise FailedError(self.report("\n".join(wrong)))

    async def come_to_rest(self) -> None:
        """Disturb nothing any more, let everybody hear the truth, and check what is left.

        Raises:
            FailedError: with the transcript.
        """
        self.say("world", "nobody disturbs any more")
        for machine in self.machines.values():
            machine.slow_until, machine.time.skew_ms = 0.0, 0
            machine.thaw()
            self.tell(machine.name)
        for target in sorted(self.targets.disabled):
            self.enable(target)
        alive = [m.name for m in self.machines.values() if not m.life.dead]
        if self.broker.owner not in alive:
            if not alive:
                alive = [next(iter(self.machines))]
                self.start(alive[0])
            if self.broker.owner != alive[0]:
                self.move(alive[0], told=False)
        calm_s, left = 0, self.oracle.unsettled()
        for _ in range(DRAIN_S):
            await asyncio.sleep(1.0)
            self.check()
            left = self.oracle.unsettled()
            calm_s = 0 if left else calm_s + 1  # a late replay is yet to be taken
            if calm_s > CALM_S:
                break
        if left:
            raise FailedError(self.report("never came to rest:\n" + "\n".join(left)))
        self._check_rest()
        await self._grow_old()

    async def _grow_old(self) -> None:
        """Let time pass until all that may be forgotten is, where that comes to pass at all."""
        window_s = self.oracle.bounds.window_ms / 1000
        if window_s > AGED_S:
            return
        self.say("world", "time passes")
        for _ in range(8):
            await asyncio.sleep(window_s + 1)
            self.machines[self.broker.owner].sweep()
            await asyncio.sleep(1.0)
            self.check()
        left = self.oracle.remembered()
        if left:
            raise FailedError(self.report("was never forgotten:\n" + "\n".join(left)))
        self._check_rest()

    def _check_rest(self) -> None:
        self.oracle.check_readers(self._stream("readers"), self._stores())
        owner = self.machines[self.broker.owner]
        if owner.runner.in_flight:
            self.oracle.violated(f"{owner.name}: {owner.runner.in_flight} deliveries never ended")
        if locked := len(owner.worker.partitions[0].locks):
            self.oracle.violated(f"{owner.name}: {locked} locks were never released")
        self.check()

    def _stores(self) -> dict[str, MemoryStore]:
        return {m.name: m.store for m in self.machines.values() if m.is_assigned}

    def report(self, why: str) -> str:
        """What happened, line by line, and what was wrong with it."""
        lines = [f"{at:9.3f}  {who:6} {what}" for at, who, what in self.transcript]
        return "\n".join(["", *lines, "", why])

    # -- watching -----------------------------------------------------------------------------

    def _watch(self, machine: Machine) -> None:
        def after(topic: str) -> None:
            store, reader = machine.store, self.oracle.reader
            is_at_end = topic == "ledger" and store.next == reader.next
            if is_at_end and store.state.facts() != reader.state.facts():
                self.oracle.violated(f"{machine.name}'s rows are not what the log says")

        machine.tail.after = after

    def _landed(self, record: Record) -> None:
        match record.topic:
            case "ledger":
                head = read_ledger_headers(record.headers)
                key = record.key or b""
                row = self.oracle.row(key) if b"\x00" in key and key != OWNER_KEY else None
                void = head.epoch is not None and head.epoch < self.oracle.reader.epoch
                state = "void" if void else ("" if row is None else _short(row))
                self.say(
                    "ledger",
                    f"@{record.offset} {head.kind} {name(key)} e={head.epoch} "
                    f"t={head.token.hex()[:6]} {state}",
                )
            case topic if "retry" in topic:
                items = read_retry_headers(record.headers)[1]
                text = ", ".join(f"{i.target} fence {i.fence} attempt {i.attempt}" for i in items)
                self.say(topic[7:], f"@{record.offset} {name(record.key or b'')}: {text}")
            case topic:
                what = "tombstone" if record.value is None else ""
                self.say(topic.removeprefix("outbox."), f"@{record.offset} {record.key!r} {what}")

    def _called(self, call: Call) -> None:
        self.say(
            call.machine,
            f"calls {name(call.key)} attempt {call.row.attempts} of budget {call.row.budget}: "
            f"{call.answer}",
        )
        self.oracle.called(call)

    def _draw(self, target: str, row: Row) -> tuple[str, float]:
        chance = Random(f"{self._answers_seed!r}{row.delivery_id}{row.budget}{row.attempts}")
        lasts_s = chance.choice((0.01, 0.1, 0.3, 0.95)) if self.lasts_s is None else self.lasts_s
        if target in self.answers:
            return self.answers[target], lasts_s
        common = ("200", "200", "503", "500", "429", "refused", "reset", "hang", "400")
        return chance.choice(common), lasts_s


def _short(row: Row) -> str:
    return f"-> {row.phase} a{row.attempts} b{row.budget} f{row.fence} {row.code}"
