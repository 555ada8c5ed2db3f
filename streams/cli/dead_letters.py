"""`outbox dead-letters`: the deliveries given up and not resolved, and new ones as they come."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

import typer
from aiokafka import ConsumerRecord

from streams.cli.common import AsJson, EnvFile, complain, hush_clients, read_settings, say
from streams.edge.cluster import explained, partitions_of
from streams.edge.log import Tail, read_all
from streams.errors import RecordError
from streams.model.receipt import DeadLetter, Letter
from streams.rules.redaction import mask
from streams.settings import Settings
from streams.topics import names
from streams.wire.codec import decode_dead_letter

Record: TypeAlias = ConsumerRecord[bytes, bytes]

_EXAMPLE = """Example: outbox dead-letters --tenant acme

outbox dead-letters --follow | xargs -d '\\n' -n 1 notify-send"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("dead-letters", epilog=_EXAMPLE)(dead_letters)


def dead_letters(
    follow: Annotated[
        bool, typer.Option("--follow", help="Only new ones, as they come, until SIGINT.")
    ] = False,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Print a line for each delivery that was given up and is not resolved.

    With --json an object for each activity, with all its deliveries given up. With --follow each is
    written out at once, so that a shell pipeline is an alert; an activity that loses a further
    delivery is printed with that one only.
    """
    hush_clients()
    settings = read_settings(env_file)
    asyncio.run(_run(settings, _Printer(tenant, as_json), follow=follow))


async def _run(settings: Settings, printer: _Printer, *, follow: bool) -> None:
    options, topic = settings.kafka_options(), names(settings.prefix).outbox_dead_letters
    count = await partitions_of(options, topic)
    board = Board()

    def take(_partition: int, records: Sequence[Record]) -> None:
        for record in records:
            board.take(record)

    with explained(options):
        ends = await read_all(options, topic, dict.fromkeys(range(count), 0), take)
    if not follow:
        for letter in board.standing():
            printer.print(letter)
        return
    tail = Tail(options, client_id="outbox-dead-letters")
    with explained(options):
        try:
            await tail.start()
            await _follow(tail, topic, ends, board, printer)
        finally:
            await tail.stop()


async def _follow(
    tail: Tail, topic: str, ends: dict[int, int], board: Board, printer: _Printer
) -> None:
    """Print what is new until SIGINT or SIGTERM."""

    def take(records: Sequence[Record]) -> None:
        for record in records:
            news = board.take(record)
            if news is not None:
                printer.print(news)

    for partition, end in ends.items():
        tail.follow(topic, partition, end, take)
    following = asyncio.ensure_future(tail.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, following.cancel)
    say("following; SIGINT ends")
    with suppress(asyncio.CancelledError):
        await following


@dataclass(slots=True)
class Board:
    """The dead letters as the topic's records leave them: the last one of each activity stands."""

    _standing: dict[bytes, DeadLetter] = field(default_factory=dict)

    def take(self, record: Record) -> DeadLetter | None:
        """Take the next record; give what it says that was not known, None where nothing is new.

        A record that cannot be read is complained of and passed over: the others count.
        """
        key = record.key or b""
        if record.value is None:
            self._standing.pop(key, None)
            return None
        try:
            letter = decode_dead_letter(record.value)
        except RecordError as error:
            complain(f"{record.topic}/{record.partition}/{record.offset}: {error.code}: {error}")
            return None
        before = self._standing.get(key)
        self._standing[key] = letter
        known = {each.dead_letter_id for each in before.deliveries} if before else set()
        news = tuple(each for each in letter.deliveries if each.dead_letter_id not in known)
        return replace(letter, deliveries=news) if news else None

    def standing(self) -> list[DeadLetter]:
        """Those not resolved, the oldest first."""
        return sorted(self._standing.values(), key=_since)


def _since(letter: DeadLetter) -> int:
    return min((each.created_ms for each in letter.deliveries), default=0)


@dataclass(frozen=True, slots=True)
class _Printer:
    """Prints what is asked for, each line flushed."""

    tenant: str | None
    as_json: bool

    def print(self, letter: DeadLetter) -> None:
        if self.tenant not in (None, letter.tenant):
            return
        if self.as_json:
            typer.echo(json.dumps(facts_of(letter), ensure_ascii=False))
            return
        for line in lines_of(letter):
            typer.echo(line)


def facts_of(letter: DeadLetter) -> dict[str, Any]:
    """The fields of interface.md §3; what looks like a secret in a destination is masked (D-043)."""
    facts = asdict(letter)
    for delivery in facts["deliveries"]:
        delivery["target"] = mask(delivery["target"])
        delivery["summary"] = mask(delivery["summary"])
    return facts


def lines_of(letter: DeadLetter) -> Iterator[str]:
    """A line of `name=value` for each delivery, so that one can grep them."""
    for delivery in letter.deliveries:
        yield _line(letter, delivery)


def _line(letter: DeadLetter, delivery: Letter) -> str:
    at = datetime.fromtimestamp(delivery.created_ms / 1000, UTC)
    shown = {
        "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "activity": letter.activity_id,
        "tenant": letter.tenant,
        "target": mask(delivery.target) or "-",
        "phase": delivery.failure_phase,
        "code": delivery.code,
        "cause": delivery.cause or "-",
        "attempts": delivery.attempts,
        "reconciliation_required": str(delivery.reconciliation_required).lower(),
        "id": delivery.dead_letter_id,
    }
    if letter.ledger_entry_id is not None:
        shown["ledger_entry"] = letter.ledger_entry_id
    return " ".join(f"{name}={value}" for name, value in shown.items())
