"""The composition root: a worker built from settings, run to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Final

import structlog
import uvloop
from aiokafka.errors import KafkaError

from streams.agents.commands import CommandAgent
from streams.agents.outbox import Limits, OutboxAgent
from streams.agents.retries import RetryAgent
from streams.edge.addresses import Resolver
from streams.edge.clock import Clock
from streams.edge.deathmark import Deathmark
from streams.edge.health import HealthServer
from streams.edge.http.transport import Transport as HttpTransport
from streams.edge.log import Appender, Tail
from streams.edge.store import Store
from streams.edge.telemetry import Metrics
from streams.engine.app import App
from streams.engine.caller import HttpCaller
from streams.engine.delivery import Deliverer
from streams.engine.end_of_life import EndOfLife
from streams.engine.gate import Gate
from streams.engine.held import Held
from streams.engine.letters import Letters
from streams.engine.observing import History, KafkaHistory, ObservingOutputs, ObservingTeller
from streams.engine.outfit import InboxSigning, Outfitter
from streams.engine.outputs import FollowUps, KafkaOutputs, OutputTopics
from streams.engine.registry import Registry
from streams.engine.retry_writer import RetryWriter
from streams.engine.security import credentials
from streams.engine.telling import Teller
from streams.engine.work import Runner, Tasks
from streams.engine.worker import Worker, WorkerTopics
from streams.errors import FatalError, StreamsError, TopicsError
from streams.model.target import Signing
from streams.settings import Settings
from streams.topics import Topics, check, names

log = structlog.get_logger(__name__)

EXIT_FATAL: Final = 1


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
    """Everything one worker process consists of."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.ending = Ending(asyncio.Event(), asyncio.Event())
        self._names: Topics = names(settings.prefix)
        self._clock = Clock()
        self._metrics = Metrics()
        self._tasks = Tasks(self.ending.fatal)
        options = settings.kafka_options()
        client_id = f"outbox-{settings.worker_id}"
        self._store = Store(settings.data_dir)
        self._appender = Appender(options, self.ending.fatal, client_id=client_id)
        self._tail = Tail(options, client_id=f"{client_id}-tail")
        # What is not on the hot path is followed apart: a fetch of the ledger names no partition more
        # than it must, and a takeover need not wait for a long poll that is under way.
        self._side_tail = Tail(options, client_id=f"{client_id}-side")
        self._resolver = Resolver(allowed_networks=settings.allow_networks)
        self._http = HttpTransport(resolver=self._resolver)
        self._registry = self._build_registry(options)
        self._app = _faust_app(settings, self._names)
        self._worker = self._build(options)
        self._health = HealthServer(
            settings.health_address,
            registry=self._metrics.registry,
            measure=self._worker.measure,
            unready=self._unready,
            unhealthy=self._unhealthy,
        )

    def _build_registry(self, options: dict[str, Any]) -> Registry:
        settings, topic = self._settings, self._names.targets
        signing = None
        if settings.activitypub_key_id:
            signing = InboxSigning(
                key_id=settings.activitypub_key_id,
                reference=settings.activitypub_key,
                signing=Signing(settings.activitypub_signing),
            )
        return Registry(
            topic,
            options,
            settings.policies,
            settings.allow_networks,
            outfitter=Outfitter(self._http, self._resolver, self._clock, inbox_signing=signing),
            append=lambda key, value: self._appender.append(topic, 0, key=key, value=value),
            time=self._clock,
        )

    def _build(self, options: dict[str, Any]) -> Worker:
        settings, t = self._settings, self._names
        subscribed = (
            t.outbox,
            t.inbox,
            t.commands,
            t.broadcasts,
            *t.outbox_retries.values(),
            *t.inbox_retries.values(),
        )
        worker = Worker(
            topics=WorkerTopics(
                ledger=t.ledger,
                commands=t.commands,
                dead_letters=t.outbox_dead_letters,
                subscribed=frozenset(subscribed),
            ),
            options=options,
            store=self._store,
            appender=self._appender,
            tail=self._tail,
            letters_tail=self._side_tail,
            time=self._clock,
            tasks=self._tasks,
            metrics=self._metrics,
            fatal=self.ending.fatal,
        )
        kafka = KafkaOutputs(
            self._appender,
            OutputTopics(
                retries=t.outbox_retries,
                dead_letters=t.outbox_dead_letters,
                receipts=t.receipts,
                quarantine=t.quarantine,
            ),
        )
        teller = Teller(self._metrics)
        letters = Letters(kafka, self._clock, on_dead=teller.exhausted)
        follow_ups = FollowUps(kafka, RetryWriter(kafka, self._clock), letters, self._clock)
        history = History(
            KafkaHistory(self._appender, t.observations),
            worker=settings.worker_id,
            time=self._clock,
        )
        deliverer = Deliverer(
            targets=self._registry,
            gate=Gate(self._clock),
            caller=HttpCaller(self._clock, self._metrics, on_gone=self._registry.gone),
            outputs=ObservingOutputs(follow_ups, history),
            telling=ObservingTeller(teller, history),
            time=self._clock,
        )
        self._runner = Runner(deliverer, self._tasks, settings.max_in_flight)
        outbox = OutboxAgent(
            topic=t.outbox,
            partitions=worker.partitions,
            limits=Limits(
                max_bytes=settings.max_activity_bytes,
                max_depth=settings.max_activity_depth,
                partitions=settings.partitions,
                dedupe_window_ms=settings.dedupe_window_ms,
            ),
            runner=self._runner,
            tasks=self._tasks,
            deathmark=Deathmark(settings.data_dir),
            appender=self._appender,
            follow_ups=follow_ups,
            teller=teller,
            time=self._clock,
        )
        self._held = Held(self._clock)
        self._retries = RetryAgent(
            buckets={name: bucket for bucket, name in t.outbox_retries.items()},
            partitions=worker.partitions,
            held=self._held,
            max_held_bytes=settings.max_held_bytes,
            max_bytes=settings.max_activity_bytes,
            max_depth=settings.max_activity_depth,
            runner=self._runner,
            tasks=self._tasks,
            kafka=kafka,
            follow_ups=follow_ups,
            teller=teller,
            time=self._clock,
        )
        self._registry.on_release = self._retries.release
        commands = CommandAgent(
            partitions=worker.partitions,
            targets=self._registry,
            letters=letters,
            tasks=self._tasks,
            teller=teller,
            time=self._clock,
        )
        worker.connect(
            flow=self._app,
            work={
                t.outbox: outbox.work,
                t.commands: commands.work,
                **dict.fromkeys(t.outbox_retries.values(), self._retries.work),
            },
            held=self._held,
            letters=letters,
            runner=self._runner,
        )
        self._app.serve(worker, ledger=t.ledger, topics=subscribed)
        return worker

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
        starting = asyncio.ensure_future(self._app.start())
        starting.add_done_callback(self._on_started)
        crashed = asyncio.ensure_future(self._app.crashed_event.wait())
        asked = asyncio.ensure_future(self.ending.asked.wait())
        failed = asyncio.ensure_future(self.ending.failed.wait())
        await asyncio.wait({crashed, asked, failed}, return_when=asyncio.FIRST_COMPLETED)
        if crashed.done():
            self.ending.fatal(self._app.crash_reason or FatalError("faust crashed"))
        if self.ending.reason is not None:
            return self._give_up(self.ending.reason)
        return await self._stop()

    async def _open(self) -> None:
        """Check the topics, then connect and listen: everything that can tell us that we may not run."""
        try:
            await _check_topics(self._settings)
            await self._appender.start()
            await self._tail.start()
            await self._side_tail.start()
            await self._registry.load()
        except KafkaError as error:
            raise FatalError(f"no broker answers: {error!r}; check OUTBOX_BROKERS") from error
        await self._health.start()
        log.info("health.listening", port=self._health.port)
        self._registry.follow(self._side_tail)
        self._tasks.spawn(self._tail.run())
        self._tasks.spawn(self._side_tail.run())
        self._tasks.spawn(self._held.run(self._retries.fire_held))
        ends = EndOfLife(
            self._worker.partitions,
            self._clock,
            dedupe_window_ms=self._settings.dedupe_window_ms,
        )
        self._tasks.spawn(ends.run())

    async def _close(self) -> None:
        """Let go of what `_open` took; a client that was never connected wants to be closed as well."""
        self._tasks.cancel()
        await self._health.stop()
        await self._tail.stop()
        await self._side_tail.stop()
        await self._appender.stop()
        self._store.close()

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
        log.info("worker.stopping", in_flight=self._runner.in_flight)
        left = await self._worker.drain(self._settings.drain_ms / 1000)
        await self._appender.flush()
        if self._settings.leave_on_stop:
            await self._app.leave()
        await self._health.stop()
        log.info("worker.stopped", left=left)
        return 0

    def _unready(self) -> list[str]:
        return self._worker.unready()

    def _unhealthy(self) -> list[str]:
        return [] if self.ending.reason is None else [str(self.ending.reason)]


async def _check_topics(settings: Settings) -> None:
    problems = await check(settings)
    if problems:
        lines = "\n".join(f"{p.topic} {p.what}: {p.remedy}" for p in problems)
        raise TopicsError(lines)


def _faust_app(settings: Settings, topics: Topics) -> App:
    """faust's settings, each set on purpose (faust.md §13)."""
    brokers = [f"kafka://{part.strip()}" for part in settings.brokers.split(",")]
    session_s = settings.session_timeout_ms / 1000
    return App(
        topics.group,
        broker=brokers,
        broker_credentials=credentials(settings.kafka_options()),
        store="memory://",
        TableManager="streams.engine.tables.LedgerTables",
        datadir=str(settings.data_dir / "faust"),
        agent_supervisor="mode.CrashingSupervisor",
        stream_wait_empty=False,
        stream_processing_timeout=86_400,
        broker_max_poll_records=1_000,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=min(3.0, session_s / 4),
        broker_rebalance_timeout=30,
        broker_request_timeout=max(30.0, session_s + 1),
        broker_commit_interval=1.0,
        consumer_max_fetch_size=256 * 1024,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.worker_id,
        # A static member that comes back under another URL fails faust's assert and hangs (measured).
        canonical_url=f"http://{settings.worker_id}:6066",
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        autodiscover=False,
        cython_optimizations=True,
    )


def run_worker(settings: Settings) -> int:
    """Run one worker in this process until it ends; give its exit code.

    SIGTERM or SIGINT stops it cleanly; a second one does not wait. A worker that cannot go on ends the
    process at once, so that no thread of Kafka's client keeps a zombie alive.

    Raises:
        StreamsError: it could not be started, and why.
    """
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
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    code = await service.run()
    sys.stderr.flush()
    os._exit(code)
