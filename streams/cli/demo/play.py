"""The play: produce, watch, kill the worker in the middle, and wait until everything is settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streams.cli.demo.children import DemoError
from streams.cli.demo.evidence import Evidence
from streams.cli.demo.plan import Plan
from streams.cli.demo.screen import Screen
from streams.cli.demo.stage import PARTITIONS, Stage
from streams.cli.demo.sums import unsettled
from streams.edge.cluster import explained
from streams.edge.log import Tail, read_all
from streams.edge.producing import Sender
from streams.settings import Settings
from streams.topics import names

if TYPE_CHECKING:
    import httpx

TICK_S: Final = 0.1
PRODUCING_S: Final = 6.0
"""How long the lines are spread over: at full speed there would be nothing to watch."""

KILL_AT: Final = 0.4
KILL_BY: Final = 0.8
"""Shares of the deliveries that are settled when the worker is killed: in a call that hangs, from
the first on; from the second on in any case."""

DOWN_S: Final = 1.0
"""How long it stays dead."""

READY_S: Final = 60.0
DEADLINE_S: Final = 180.0
"""When all must be settled. Usual is half a minute; a busy machine is slower."""


class Play:
    """One performance."""

    def __init__(self, stage: Stage, settings: Settings, plan: Plan, screen: Screen) -> None:
        self._stage = stage
        self._settings = settings
        self._plan = plan
        self._screen = screen
        self._seen = Evidence()
        self._log = _GrowingLog(stage.calls)
        self._produced = 0
        self._killed_at = 0.0
        self._is_back = False

    async def run(self) -> None:
        """Play it; returns once everything is settled.

        Raises:
            DemoError: a process ended by itself, or not everything is settled in time.
            TopicsError: Kafka did not take the records.
        """
        options = self._settings.kafka_options()
        await self._until_ready()
        tail = Tail(options, client_id="outbox-demo")
        with explained(options):
            await tail.start()
        tasks: list[asyncio.Task[None]] = []
        try:
            self._follow(tail)
            async with Sender(options) as sender:
                parts: tuple[Coroutine[Any, Any, None], ...] = (tail.run(), self._produce(sender))
                tasks = [asyncio.ensure_future(part) for part in parts]
                with self._screen.live():
                    await self._watch(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await tail.stop()

    async def _until_ready(self) -> None:
        worker = self._stage.worker
        self._stage.start(worker)
        self._stage.start(self._stage.api)
        deadline = time.monotonic() + READY_S
        import httpx  # noqa: PLC0415 - 0.3 s, which no other command should pay for

        async with httpx.AsyncClient(trust_env=False) as client:
            while not await _is_ready(client, self._stage.health):
                worker.check()
                self._stage.api.check()
                if time.monotonic() > deadline:
                    raise DemoError(f"the worker is not ready after {READY_S:.0f} s")
                await asyncio.sleep(TICK_S)
        self._screen.tell(f"worker ready (pid {worker.pid}); {len(self._plan.records)} lines go in")

    def _follow(self, tail: Tail) -> None:
        topics = names(self._settings.prefix)
        for partition in range(PARTITIONS):
            tail.follow(topics.receipts, partition, 0, self._seen.take_receipts)
            tail.follow(topics.outbox_dead_letters, partition, 0, self._seen.take_letters)
            for retry in topics.outbox_retries.values():
                tail.follow(retry, partition, 0, self._seen.take_retries)

    async def _produce(self, sender: Sender) -> None:
        """Send every line, malformed ones raw: the worker, not `outbox produce`, is to refuse them."""
        topic = names(self._settings.prefix).outbox
        a_tick = max(1, round(len(self._plan.records) * TICK_S / PRODUCING_S))
        for number, record in enumerate(self._plan.records, start=1):
            await sender.send(topic, record.partition, key=record.key, value=record.text)
            self._produced = number
            if number % a_tick == 0:
                await asyncio.sleep(TICK_S)
        await sender.flush()

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self._seen.take_calls(self._log.read())
            self._screen.update(self._plan, self._seen, self._produced, self._worker_state())
            for task in tasks:
                if task.done():
                    task.result()
            self._stage.receiver.check()
            self._stage.api.check()
            self._crash()
            missing = unsettled(self._plan, self._seen)
            if not missing and self._is_back:
                return
            if time.monotonic() > deadline:
                told = "\n".join(missing[:10])
                raise DemoError(
                    f"not settled after {DEADLINE_S:.0f} s: {len(missing)} things, such as\n{told}"
                )
            await asyncio.sleep(TICK_S)

    def _crash(self) -> None:
        """Kill the worker once, in the middle, and start it again a moment later."""
        worker, now = self._stage.worker, time.monotonic()
        settled, owed = len(self._seen.receipts), len(self._plan.owed)
        if not self._killed_at:
            worker.check()
            is_good = settled >= KILL_AT * owed and self._seen.is_hanging(time.time())
            if is_good or settled >= KILL_BY * owed:
                pid = worker.pid
                worker.kill()
                self._killed_at = now
                self._screen.tell(
                    f"worker killed (SIGKILL, pid {pid}): {settled} of {owed} deliveries settled"
                )
        elif not self._is_back and now - self._killed_at >= DOWN_S:
            self._stage.start(worker)
            self._is_back = True
            self._screen.tell(f"worker started again (pid {worker.pid})")
        elif self._is_back:
            worker.check()

    def _worker_state(self) -> str:
        if self._killed_at and not self._is_back:
            return "killed"
        again = ", the second" if self._is_back else ""
        return f"up (pid {self._stage.worker.pid}{again})"


async def _is_ready(client: httpx.AsyncClient, address: str) -> bool:
    import httpx  # noqa: PLC0415 - as above

    with suppress(httpx.TransportError):
        return (await client.get(f"http://{address}/readyz")).is_success
    return False


class _GrowingLog:
    """A file that another process adds lines to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[bytes]:
        """The whole lines that were added since the last time."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole.splitlines()


async def read_everything(settings: Settings, calls: Path) -> Evidence:
    """Read all topics anew, to their ends, and the receiver's log: what is added up.

    Everything is settled, so there is no "not yet".
    """
    options, topics = settings.kafka_options(), names(settings.prefix)
    seen = Evidence()
    sinks: dict[str, Callable[[int, Any], None]] = {
        topics.receipts: lambda _, records: seen.take_receipts(records),
        topics.outbox_dead_letters: lambda _, records: seen.take_letters(records),
        topics.ledger: seen.take_ledger,
    }
    with explained(options):
        for topic, sink in sinks.items():
            await read_all(options, topic, dict.fromkeys(range(PARTITIONS), 0), sink)
    seen.take_calls(_GrowingLog(calls).read())
    return seen
