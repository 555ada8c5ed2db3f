"""What happens in a soak: activities at a steady rate, an operator who redrives, a worker killed at times."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import islice
from random import Random
from typing import Final

from aiokafka.errors import KafkaError

from streams.rules.decide import EffectMode
from streams.wire.commands import Redrive, encode_command
from tests.chaos.checker import check
from tests.chaos.folding import fold
from tests.chaos.violations import Violation
from tests.soak.plan import activities
from tests.soak.site import KILLED, MAX_ATTEMPTS, STEADY, Site

BATCHES_PER_S: Final = 4
LOOK_S: Final = 5.0
REST_S: Final = 180.0
"""How long the last deliveries may take once nothing is produced any more; bounds a failure."""
AWAY_S: Final = (0.5, 15.0)
"""How long a killed worker is away: shorter or longer than its session (10 s)."""


class Traffic:
    """Everything that is done to a site, apart from looking at it."""

    def __init__(self, site: Site, *, seed: int, per_s: float, kill_every_s: float) -> None:
        self.did: Counter[str] = Counter()
        self._site = site
        self._rng = Random(f"traffic {seed}")
        self._activities = activities(seed, MAX_ATTEMPTS)
        self._per_s = per_s
        self._kill_every_s = kill_every_s
        self._redriven: set[str] = set()
        self._replayed: set[tuple[str, int]] = set()
        self._looked = 0

    async def run(self, for_s: float) -> None:
        """Do all of it until the time has passed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._produce(for_s))
            work = (self._operate(), self._kill(), self._supervise())
            others = [group.create_task(part) for part in work]
            await asyncio.sleep(for_s)
            for task in others:
                task.cancel()

    async def _produce(self, for_s: float) -> None:
        began, produced = time.monotonic(), 0
        while (passed_s := time.monotonic() - began) < for_s:
            due = int(passed_s * self._per_s) - produced
            await self._site.produce(list(islice(self._activities, due)))
            produced += due
            await asyncio.sleep(1 / BATCHES_PER_S)

    async def _operate(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._redrive()

    async def _redrive(self) -> None:
        """Reopen each dead letter once, and replay what a redrive has queued, once a budget (D-066)."""
        site = self._site
        for record in site.history.letters:
            for letter in record.deliveries or ():
                letter_id = str(letter["dead_letter_id"])
                if letter_id not in self._redriven:
                    self._redriven.add(letter_id)
                    mode = EffectMode.RECONCILE_REPLAY
                    command = encode_command(Redrive(letter_id=letter_id, mode=mode, audit_id="s"))
                    await site.write(site.topics.commands, record.activity, command)
                    self.did["redrives"] += 1
        come = site.history.ledger[self._looked :]
        self._looked += len(come)
        for entry in come:
            if entry.kind == "REDRIVE" and entry.row is not None:
                await self._replay(entry.key, entry.row["delivery_id"], entry.row["budget"])

    async def _replay(self, key: bytes, delivery_id: str, budget: int) -> None:
        if (delivery_id, budget) in self._replayed:
            return
        self._replayed.add((delivery_id, budget))
        activity = key.partition(b"\0")[0].decode()
        await self._site.write(self._site.topics.outbox, activity, self._site.values[activity])

    async def _kill(self) -> None:
        while self._kill_every_s:
            await asyncio.sleep(self._kill_every_s)
            self._site.workers[KILLED].kill()
            self.did["kills"] += 1
            await asyncio.sleep(self._rng.uniform(*AWAY_S))
            self._site.start(KILLED)

    async def _supervise(self) -> None:
        """Start again what ends by itself, as an orchestrator would; the report says how often."""
        while True:
            await asyncio.sleep(1.0)
            for name in STEADY:
                worker = self._site.workers[name]
                if not worker.runs:
                    self.did[f"ends of {name} by itself"] += 1
                    print(f"{name} ended by itself:\n{worker.tail(3)}", flush=True)
                    self._site.start(name)

    async def settle(self) -> list[Violation]:
        """Wait until every delivery has its verdict and everything is acknowledged.

        Returns:
            What the checker finds of the activities that it was shown, once nothing moves any more.
        """
        site, ends = self._site, time.monotonic() + REST_S
        for name, worker in list(site.workers.items()):
            if not worker.runs:
                site.start(name)
        while True:
            await asyncio.sleep(2.0)
            is_late = time.monotonic() > ends
            await self._redrive()
            if site.tally.open and not is_late:
                continue
            for key, row in fold(site.history.ledger).rows.items():
                if row.get("phase") == "queued":
                    await self._replay(key, row["delivery_id"], row["budget"])
            try:
                await site.recorder.look()
            except (KafkaError, TimeoutError):
                continue
            found = check(site.history, at_rest=True)
            if not found or is_late:
                return found
