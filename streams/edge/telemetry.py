"""Metrics and logs: bounded labels, no content."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.edge.tallies import Spread, Tally

LATENESS_S: Final = (0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
CALL_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Every metric of a worker. Labels are closed sets: verdicts, codes, reasons, never a target."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry}
        self.attempts = Tally(
            "outbox_attempts", "Attempts by verdict and code", ["verdict", "code"], **make
        )
        self.settled = Counter("outbox_settled", "Deliveries settled by phase", ["phase"], **make)
        self.aside = Counter(
            "outbox_put_aside",
            "Deliveries that stepped aside from their target",
            ["reason"],
            **make,
        )
        self.rejected = Counter(
            "outbox_rejected", "Records not readable, by code", ["code"], **make
        )
        self.not_taken = Counter(
            "outbox_not_taken", "Activities of which nothing was sent", ["outcome"], **make
        )
        self.forwarded = Counter(
            "outbox_forwarded", "Records sent on to the partition of their activity", **make
        )
        self.adopted = Counter("outbox_adopted", "Foreign claims settled", ["code"], **make)
        self.redriven = Counter("outbox_redriven", "Dead letters reopened", **make)
        self.lateness = Histogram(
            "outbox_retry_lateness_seconds",
            "How long after its due time a retry was started",
            buckets=LATENESS_S,
            **make,
        )
        self.call = Spread("outbox_call_seconds", "Duration of calls", buckets=CALL_S, **make)
        self.in_flight = Gauge("outbox_in_flight", "Deliveries under way, not reported yet", **make)
        self.held_bytes = Gauge("outbox_held_bytes", "Bytes of retries held in memory", **make)
        self.held = Gauge("outbox_held", "Retries held in memory", **make)
        self.led = Gauge("outbox_partitions_led", "Ledger partitions led", **make)
        self.assigned = Gauge("outbox_partitions_assigned", "Ledger partitions assigned", **make)
        self.debts = Gauge("outbox_debts", "Keys that owe a repair", **make)
        self.unsettled = Gauge("outbox_unsettled", "Records handed over and not settled", **make)
        self.restored = Counter("outbox_restored", "Ledger records folded while restoring", **make)
        self.restore_left = Gauge(
            "outbox_restore_left", "Ledger records that a restore still has to read", **make
        )
        self.restore_rate = Gauge(
            "outbox_restore_rows_per_second", "Ledger records per second, last restore", **make
        )
        self.ledger_lag = Gauge(
            "outbox_ledger_lag", "Ledger records not folded yet, of the partition with most", **make
        )
        self.oldest = Gauge(
            "outbox_oldest_unsettled_seconds",
            "Age in hand of the oldest record that waits for no time to come",
            **make,
        )
        self.standing = Gauge(
            "outbox_standing_still",
            "Partitions that have not moved for half their bound, by what",
            ["what"],
            **make,
        )
        self.gaps = Counter(
            "outbox_gaps", "Holes in what was handed over, read again once each", **make
        )


class _Lines:
    """A logger to whatever `sys.stderr` is when a line is written: it may be another than at set-up."""

    def __init__(self, *_: object) -> None:
        """Take what structlog gives its loggers, and need none of it."""

    def msg(self, line: str) -> None:
        """Write one, in one piece."""
        sys.stderr.write(f"{line}\n")

    debug = info = warning = error = critical = msg


def configure_logging(*, level: str, as_json: bool) -> None:
    """Set structlog and the standard library's logging up, once per process; lines go to stderr."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    console: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            # The default one prints local variables: bodies and credentials among them.
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]
    structlog.configure(
        processors=[_json_line] if as_json else console,
        wrapper_class=_bound_logger(numeric),
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # faust sets the root logger to DEBUG under some flags and discards 9 % of CPU's worth of records.
    root.setLevel(max(numeric, logging.WARNING))


def _bound_logger(level: int) -> type[Any]:
    """structlog's own class, which drops what is below `level`, with an `info` of ours.

    Each attempt writes such a line, and the three functions that it passes make four dicts of its
    facts: 60,000 instructions a line, 40,000 this way (13 facts; cachegrind).
    """
    plain: Any = structlog.make_filtering_bound_logger(level)
    if level > logging.INFO:
        return cast("type[Any]", plain)

    class Logger(plain):  # type: ignore[misc]
        def info(self, event: str, *args: object, **facts: Any) -> None:
            if args or self._context:
                super().info(event, *args, **facts)
                return
            line: Any = facts
            line["event"] = event
            try:
                for process in self._processors:
                    line = process(self._logger, "info", line)
            except structlog.DropEvent:
                return
            self._logger.info(line)

    return Logger


def _json_line(logger: object, level: str, line: Any) -> str:
    """A whole log line in JSON, by one processor: each attempt writes one.

    5 µs with the writing, where structlog's own processors and the standard library's JSON take 13
    (process time, 14 fields).
    """
    line["level"] = level
    line["timestamp"] = _now()
    if "exc_info" in line:
        line = structlog.processors.format_exc_info(cast("Any", logger), level, line)
    try:
        return _encode(line).decode()
    except ValueError:  # half a surrogate pair, as the name of a file may hold
        return json.dumps(line, default=repr)


_encode: Final = msgspec.json.Encoder(enc_hook=repr).encode


def _now() -> str:
    seconds, rest_ns = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{rest_ns // 1_000:06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
