"""A worker process, from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Final

import structlog
import uvloop
from aiokafka.errors import KafkaError

from streams.app.parts import Parts
from streams.edge.clients import tune_clients
from streams.edge.health import HealthServer
from streams.edge.watchdog import Watchdog, end_process
from streams.errors import FatalError, StreamsError, TopicsError
from streams.settings import Settings
from streams.topics import check

log = structlog.get_logger(__name__)

EXIT_FATAL: Final = 1

GC_THRESHOLD: Final = 10_000


@dataclass(slots=True)
class Ending:
    """Why a worker ends: asked to, or because it cannot go on."""

    asked: asyncio.Event
    failed: asyncio.Event
    reason: BaseException | None = None

    def fatal(self, reason: BaseException) -> None:
        """The worker can make no more progress safely (ledger.md, rule 12)."""
        if self.reason is None:
            self.reason = reason
            self.failed.set()


class Service:
    """One worker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.ending = Ending(asyncio.Event(), asyncio.Event())
        self._parts = Parts(settings, self.ending.fatal)
        self._health = HealthServer(
            settings.health_address,
            registry=self._parts.metrics.registry,
            measure=self._parts.worker.measure,
            unready=self._parts.watch.unready,
            unhealthy=self._unhealthy,
            partitions=self._parts.watch.partitions,
        )

    async def run(self) -> int:
        """Run until asked to stop or until it cannot go on; give the exit code.

        Raises:
            StreamsError: it could not start, and why; what was opened is closed again.
        """
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        self._watching = self._parts.tasks.spawn(self._parts.watch.run())
        starting = asyncio.ensure_future(self._parts.app.start())
        starting.add_done_callback(self._on_started)
        crashed = asyncio.ensure_future(self._parts.app.crashed_event.wait())
        asked = asyncio.ensure_future(self.ending.asked.wait())
        failed = asyncio.ensure_future(self.ending.failed.wait())
        await asyncio.wait({crashed, asked, failed}, return_when=asyncio.FIRST_COMPLETED)
        if crashed.done():
            self.ending.fatal(self._parts.app.crash_reason or FatalError("faust crashed"))
        if self.ending.reason is not None:
            return self._give_up(self.ending.reason)
        return await self._stop()

    async def _open(self) -> None:
        """Check the topics, then connect and listen: everything that can tell us that we may not run."""
        parts = self._parts
        try:
            await _check_topics(self._settings)
            await parts.appender.start()
            await parts.tail.start()
            await parts.side_tail.start()
            await parts.registry.load()
        except KafkaError as error:
            raise FatalError(f"no broker answers: {error!r}; check OUTBOX_BROKERS") from error
        await self._health.start()
        log.info("health.listening", port=self._health.port)
        parts.registry.follow(parts.side_tail)
        parts.tasks.spawn(parts.tail.run())
        parts.tasks.spawn(parts.side_tail.run())
        parts.tasks.spawn(parts.held.run(parts.retries.fire_held))
        parts.tasks.spawn(parts.end_of_life.run())

    async def _close(self) -> None:
        """Let go of what `_open` took; a client that was never connected wants to be closed as well."""
        parts = self._parts
        parts.tasks.cancel()
        await self._health.stop()
        await parts.tail.stop()
        await parts.side_tail.stop()
        await parts.appender.stop()
        parts.store.close()

    def _on_started(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ending.fatal(error)

    def _give_up(self, reason: BaseException) -> int:
        """End at once: nothing is flushed or committed, redelivery does the rest."""
        ours = isinstance(reason, StreamsError)
        log.error(
            "worker.ended",
            reason=f"{type(reason).__name__}: {reason}",
            exc_info=None if ours else reason,
        )
        sys.stderr.flush()
        return EXIT_FATAL

    async def _stop(self) -> int:
        """Stop claiming, let calls end, write what they were, commit, leave the group."""
        self._watching.cancel()  # what stops on purpose stands still for a reason
        log.info("worker.stopping", in_flight=self._parts.runner.in_flight)
        left = await self._parts.worker.drain(self._settings.drain_ms / 1000)
        await self._parts.appender.flush()
        await self._parts.app.consumer.commit()
        if self._settings.leave_on_stop:
            await self._parts.app.leave()
        await self._health.stop()
        log.info("worker.stopped", left=left)
        return 0

    def _unhealthy(self) -> list[str]:
        ended = [] if self.ending.reason is None else [str(self.ending.reason)]
        return ended or self._parts.watch.reasons()


async def _check_topics(settings: Settings) -> None:
    problems = await check(settings)
    if problems:
        lines = "\n".join(f"{p.topic} {p.what}: {p.remedy}" for p in problems)
        raise TopicsError(lines)


def run_worker(settings: Settings) -> int:
    """Run one worker in this process until it ends; give its exit code.

    SIGTERM or SIGINT stops it cleanly; a second one does not wait. A worker that cannot go on ends the
    process at once, so that no thread of Kafka's client keeps a zombie alive.

    Raises:
        StreamsError: it could not be started, and why.
    """
    tune_clients()
    # What is loaded by now stays for good: no collection need walk over it. With that and a threshold
    # above what deliveries in flight hold, collections take 1 µs of a delivery, which were 22 to 30
    # (timed by gc.callbacks, 20,000 deliveries in process).
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    code = uvloop.run(_main(settings))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _main(settings: Settings) -> int:
    service = Service(settings)
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if service.ending.asked.is_set():
            os._exit(0)
        service.ending.asked.set()

    def on_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A timer's or a future's callback failed: whoever it should have told waits for ever."""
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            service.ending.fatal(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(on_failure)
    Watchdog(math.ceil(settings.stall_ms / 1000), end_process).start(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    code = await service.run()
    sys.stderr.flush()
    os._exit(code)
