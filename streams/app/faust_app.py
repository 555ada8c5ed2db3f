"""faust's settings, each set on purpose."""

from __future__ import annotations

from streams.engine.app import App
from streams.engine.security import credentials
from streams.settings import Settings
from streams.topics import Topics


def faust_app(settings: Settings, topics: Topics) -> App:
    """The faust app of a worker (faust.md §13 has the trap behind each setting)."""
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
        # aiokafka asks a broker that does not lead a partition any more for its first offset again and
        # again, and never for who leads it (seen: a worker stood still until the default of 5 minutes).
        consumer_metadata_max_age_ms=5_000,
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
