"""`outbox produce`: JSON Lines of activities to the outbox topic."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from streams.cli.common import (
    AsJson,
    EnvFile,
    Exit,
    complain,
    hush_clients,
    read_settings,
    say,
    show,
)
from streams.edge.cluster import partitions_of
from streams.edge.lines import Line, read_lines
from streams.edge.producing import Sender
from streams.errors import RecordError, TopicsError
from streams.rules.identity import partition_of
from streams.settings import Settings
from streams.topics import names
from streams.wire.activity import read_activity

PROGRESS_S: Final = 1.0

_EXAMPLE = """Example: outbox produce activities.jsonl

tail -f new.jsonl | outbox produce -"""


class KeyBy(StrEnum):
    """What the records' key is."""

    ACTIVITY = "activity"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where one line's record goes."""

    key: bytes | None
    partition: int


@dataclass(slots=True)
class Tally:
    """How far it is."""

    refused: int = 0
    is_interrupted: bool = False


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("produce", epilog=_EXAMPLE)(produce)


def produce(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE|-", help="One activity a line; - reads standard input."),
    ] = Path("-"),
    key: Annotated[
        KeyBy, typer.Option(help="none: spread over the partitions; workers forward each.")
    ] = KeyBy.ACTIVITY,
    env_file: EnvFile = None,
    as_json: AsJson = False,
) -> None:
    """Send activities to the outbox topic, each line byte for byte, and wait until all are durable.

    A line that breaks a rule is refused with its number, and the rest goes on; exit 1 if any was.
    Blank lines are passed over. Produced twice, an activity is told once: its second record comes
    back as a receipt `duplicate`.
    """
    hush_clients()
    settings = read_settings(env_file)
    with _opened(file) as source:
        if source.isatty():
            say("one activity a line; Ctrl-D ends")
        is_whole = asyncio.run(_produce(settings, source.fileno(), key, as_json=as_json))
    if not is_whole:
        raise typer.Exit(Exit.FAILED)


def _opened(file: Path) -> BinaryIO:
    try:
        return os.fdopen(os.dup(0), "rb") if file == Path("-") else file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None


async def _produce(settings: Settings, source: int, key_by: KeyBy, *, as_json: bool) -> bool:
    """Say whether every line was produced."""
    options, topic = settings.kafka_options(), names(settings.prefix).outbox
    partitions = await partitions_of(options, topic)
    placer = Placer(
        max_bytes=settings.max_activity_bytes,
        max_depth=settings.max_activity_depth,
        partitions=partitions,
        key_by=key_by,
    )
    tally = Tally()
    async with Sender(options) as sender:
        feed = _Feed(sender, topic, placer, tally)
        progress = asyncio.ensure_future(_tell_progress(sender, tally))
        try:
            await _until_interrupted(feed.run(source), tally)
            await sender.flush()
        except TopicsError:
            complain(
                f"{sender.acknowledged} lines are durable; of {sender.unacknowledged} it is not"
                " known: produce all of them again, nothing is told twice"
            )
            raise
        finally:
            progress.cancel()
    facts = {"produced": sender.acknowledged, "refused": tally.refused}
    show(facts, [" ".join(f"{k}={v}" for k, v in facts.items())], as_json=as_json)
    return not tally.refused and not tally.is_interrupted


@dataclass(slots=True, kw_only=True)
class Placer:
    """Holds lines to the contract of an activity's record, and says where each goes.

    Attributes:
        max_bytes, max_depth: What a record may be: the worker's own bounds.
        partitions: Of the outbox topic.
    """

    max_bytes: int
    max_depth: int
    partitions: int
    key_by: KeyBy = KeyBy.ACTIVITY
    _turn: int = 0

    def place(self, text: bytes | None) -> Placed:
        """Say where a line's record goes.

        Raises:
            RecordError: with the rule that the line breaks; None stands for one that is too long.
        """
        if text is None:
            raise RecordError("too_large", f"the value must be at most {self.max_bytes} bytes")
        activity = read_activity(text, max_bytes=self.max_bytes, max_depth=self.max_depth)
        if self.key_by is KeyBy.NONE:
            self._turn += 1
            return Placed(key=None, partition=self._turn % self.partitions)
        return Placed(key=activity.key, partition=partition_of(activity.key, self.partitions))


@dataclass(frozen=True, slots=True)
class _Feed:
    """Takes lines to the topic."""

    sender: Sender
    topic: str
    placer: Placer
    tally: Tally

    async def run(self, source: int) -> None:
        async for lines in read_lines(source, self.placer.max_bytes):
            for line in lines:
                await self._take(line)

    async def _take(self, line: Line) -> None:
        if line.text is not None and not line.text.strip():
            return
        try:
            placed = self.placer.place(line.text)
        except RecordError as error:
            self.tally.refused += 1
            complain(f"line {line.number} refused: {error.code}: {error}")
            return
        await self.sender.send(self.topic, placed.partition, key=placed.key, value=line.text)


async def _until_interrupted(work: Coroutine[None, None, None], tally: Tally) -> None:
    """Do the work until its end, or until SIGINT or SIGTERM asks to read no further.

    A second signal does not wait for what is on its way.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        tally.is_interrupted = not task.done()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    with suppress(asyncio.CancelledError):
        await task
    if tally.is_interrupted:
        complain("interrupted: what was read so far is sent, the rest is not")


async def _tell_progress(sender: Sender, tally: Tally) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        say(
            f"produced={sender.acknowledged} refused={tally.refused}"
            f" on_their_way={sender.unacknowledged} ..."
        )
        sys.stderr.flush()
