"""Which parts make a worker, and which is built from which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.agents.commands import CommandAgent
from streams.agents.outbox import Limits, OutboxAgent
from streams.agents.retries import RetryAgent
from streams.app.faust_app import faust_app
from streams.edge.addresses import Resolver
from streams.edge.appender import Appender
from streams.edge.clock import Clock
from streams.edge.deathmark import Deathmark
from streams.edge.http.transport import Transport as HttpTransport
from streams.edge.log import Tail
from streams.edge.store import Store
from streams.edge.telemetry import Metrics
from streams.engine.caller import HttpCaller
from streams.engine.delivery import Deliverer
from streams.engine.end_of_life import EndOfLife
from streams.engine.feeding import Work
from streams.engine.gate import Gate
from streams.engine.held import Held
from streams.engine.letters import Letters
from streams.engine.observing import History, KafkaHistory, ObservingOutputs, ObservingTeller
from streams.engine.outfit import InboxSigning, Outfitter
from streams.engine.outputs import FollowUps, KafkaOutputs, OutputTopics
from streams.engine.registry import Registry
from streams.engine.retry_writer import RetryWriter
from streams.engine.telling import Teller
from streams.engine.watch import Watch
from streams.engine.work import Runner, Tasks
from streams.engine.worker import Worker, WorkerTopics
from streams.model.target import Signing
from streams.settings import Settings
from streams.topics import names

SIDE_LONG_POLL_MS: Final = 2_000
"""How long a fetch of targets and dead letters waits for records; any ends it. By 500 ms an idle worker used
0.90 % of a core, by this 0.85 (20 s each, twice in turn)."""


class Parts:
    """Everything one worker process consists of, built and not yet started."""

    def __init__(self, settings: Settings, fatal: Callable[[BaseException], None]) -> None:
        self._settings = settings
        self._options = settings.kafka_options()
        self._topics = names(settings.prefix)
        client_id = f"outbox-{settings.worker_id}"
        self.clock = Clock()
        self.metrics = Metrics()
        self.tasks = Tasks(fatal)
        self.store = Store(settings.data_dir)
        self.appender = Appender(
            self._options,
            fatal,
            client_id=client_id,
            gathered=(self._topics.receipts, self._topics.observations),
        )
        self.tail = Tail(self._options, client_id=f"{client_id}-tail")
        # What is not on the hot path is followed apart: a fetch of the ledger names no partition more
        # than it must, and a takeover need not wait for a long poll that is under way.
        self.side_tail = Tail(
            self._options, client_id=f"{client_id}-side", long_poll_ms=SIDE_LONG_POLL_MS
        )
        self.registry = self._build_registry()
        self.app = faust_app(settings, self._topics)
        self.worker = self._build_worker(fatal)
        self.held = Held(self.clock)
        self.end_of_life = EndOfLife(
            self.worker.partitions, self.clock, dedupe_window_ms=settings.dedupe_window_ms
        )
        self._kafka = self._build_outputs()
        self._teller = Teller(self.metrics, sent_every=settings.log_sent_every)
        self._letters = Letters(self._kafka, self.clock, on_dead=self._teller.exhausted)
        self._follow_ups = FollowUps(
            self._kafka, RetryWriter(self._kafka, self.clock), self._letters, self.clock
        )
        self.runner = Runner(self._build_deliverer(), self.tasks, settings.max_in_flight)
        self.retries = self._build_retries()
        self.watch = self._build_watch(fatal)
        self._join()

    def _build_registry(self) -> Registry:
        settings, topic = self._settings, self._topics.targets
        signing = None
        if settings.activitypub_key_id:
            signing = InboxSigning(
                key_id=settings.activitypub_key_id,
                reference=settings.activitypub_key,
                signing=Signing(settings.activitypub_signing),
            )
        resolver = Resolver(allowed_networks=settings.allow_networks)
        http = HttpTransport(resolver=resolver)
        return Registry(
            topic,
            self._options,
            settings.policies,
            settings.allow_networks,
            outfitter=Outfitter(http, resolver, self.clock, inbox_signing=signing),
            append=lambda key, value: self.appender.append(topic, 0, key=key, value=value),
            time=self.clock,
        )

    def _subscribed(self) -> tuple[str, ...]:
        """Every topic that will ever be consumed by group, in the first release already (design §1)."""
        t = self._topics
        return (
            t.outbox,
            t.inbox,
            t.commands,
            t.broadcasts,
            *t.outbox_retries.values(),
            *t.inbox_retries.values(),
        )

    def _build_worker(self, fatal: Callable[[BaseException], None]) -> Worker:
        return Worker(
            topics=WorkerTopics(
                ledger=self._topics.ledger,
                commands=self._topics.commands,
                dead_letters=self._topics.outbox_dead_letters,
                subscribed=frozenset(self._subscribed()),
            ),
            options=self._options,
            store=self.store,
            appender=self.appender,
            tail=self.tail,
            letters_tail=self.side_tail,
            time=self.clock,
            tasks=self.tasks,
            metrics=self.metrics,
            fatal=fatal,
        )

    def _build_outputs(self) -> KafkaOutputs:
        t = self._topics
        return KafkaOutputs(
            self.appender,
            OutputTopics(
                retries=t.outbox_retries,
                dead_letters=t.outbox_dead_letters,
                receipts=t.receipts,
                quarantine=t.quarantine,
            ),
        )

    def _build_deliverer(self) -> Deliverer:
        history = History(
            KafkaHistory(self.appender, self._topics.observations),
            worker=self._settings.worker_id,
            time=self.clock,
        )
        return Deliverer(
            targets=self.registry,
            gate=Gate(self.clock),
            caller=HttpCaller(self.clock, self.metrics, on_gone=self.registry.gone),
            outputs=ObservingOutputs(self._follow_ups, history),
            telling=ObservingTeller(self._teller, history),
            time=self.clock,
        )

    def _build_retries(self) -> RetryAgent:
        settings = self._settings
        return RetryAgent(
            buckets={name: bucket for bucket, name in self._topics.outbox_retries.items()},
            partitions=self.worker.partitions,
            held=self.held,
            max_held_bytes=settings.max_held_bytes,
            max_bytes=settings.max_activity_bytes,
            max_depth=settings.max_activity_depth,
            runner=self.runner,
            tasks=self.tasks,
            kafka=self._kafka,
            follow_ups=self._follow_ups,
            teller=self._teller,
            time=self.clock,
        )

    def _build_watch(self, fatal: Callable[[BaseException], None]) -> Watch:
        return Watch(
            worker=self.worker,
            consuming=self.app,
            tail=self.tail,
            ledger=self._topics.ledger,
            waits=self.retries.waits,
            longest_lease_ms=lambda: self.registry.longest_lease_ms,
            time=self.clock,
            metrics=self.metrics,
            fatal=fatal,
            bound_s=self._settings.stall_ms / 1000,
        )

    def _build_outbox(self) -> OutboxAgent:
        settings = self._settings
        return OutboxAgent(
            topic=self._topics.outbox,
            partitions=self.worker.partitions,
            limits=Limits(
                max_bytes=settings.max_activity_bytes,
                max_depth=settings.max_activity_depth,
                partitions=settings.partitions,
                dedupe_window_ms=settings.dedupe_window_ms,
            ),
            runner=self.runner,
            tasks=self.tasks,
            deathmark=Deathmark(settings.data_dir),
            appender=self.appender,
            follow_ups=self._follow_ups,
            teller=self._teller,
            time=self.clock,
        )

    def _build_commands(self) -> CommandAgent:
        return CommandAgent(
            partitions=self.worker.partitions,
            targets=self.registry,
            letters=self._letters,
            receipts=self._follow_ups,
            tasks=self.tasks,
            teller=self._teller,
            time=self.clock,
        )

    def _join(self) -> None:
        """Name to each other the parts that stand in a circle."""
        t = self._topics
        work: dict[str, Work] = {
            t.outbox: self._build_outbox().work,
            t.commands: self._build_commands().work,
            **dict.fromkeys(t.outbox_retries.values(), self.retries.work),
        }
        self.registry.on_release = self.retries.release
        self.worker.connect(
            flow=self.app,
            work=work,
            held=self.held,
            letters=self._letters,
            runner=self.runner,
            fair={t.outbox},
        )
        self.app.serve(self.worker, ledger=t.ledger, topics=self._subscribed())
