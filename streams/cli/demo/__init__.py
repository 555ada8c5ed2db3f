"""`outbox demo`: everything at once, live, with a crash in the middle, and a sum at the end."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from streams.cli.common import Exit, complain, hush_clients
from streams.cli.demo import desk, report
from streams.cli.demo.children import DemoError
from streams.cli.demo.interrupts import interruptible, run, undisturbed
from streams.cli.demo.plan import Place, Plan, plan_of
from streams.cli.demo.play import Play, read_everything
from streams.cli.demo.screen import Screen
from streams.cli.demo.stage import Stage
from streams.cli.demo.sums import add_up
from streams.cli.targets import write_registry
from streams.errors import StreamsError
from streams.model.activity import Recipient
from streams.rules.targets import registered_target
from streams.settings import Settings
from streams.wire.targets import TargetRecord, encode_target

_EXAMPLE = """Example: outbox demo --plain --keep

OUTBOX_BROKERS=127.0.0.1:9092 outbox demo"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("demo", epilog=_EXAMPLE)(demo)


def demo(
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines in place of a live table; so without a terminal.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the folder with logs, calls and records.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Other activities than examples/activities.jsonl, made of its lines.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
) -> None:
    """Deliver the example activities from Kafka over HTTP, kill the worker once, redrive one, add it all up.

    Starts a local Kafka in a temporary folder, or uses OUTBOX_BROKERS under a prefix of its own;
    a receiver, a worker and the operator API. Ends all of it, also on Ctrl-C. Exit 0 only if
    everything adds up.
    """
    hush_clients()
    _examples()
    screen = Screen(plain=plain)
    with interruptible():
        stage = Stage(keeps=keep, tell=screen.tell)
        is_right, shows_logs, left = False, True, ["the demo did not end"]
        try:
            is_right = _perform(stage, screen, file)
            shows_logs = not is_right
        except StreamsError as error:
            complain(str(error))
        except KeyboardInterrupt:
            shows_logs = False
            complain("interrupted")
        finally:
            with undisturbed():
                left = _end(stage, screen, keep=keep, shows_logs=shows_logs)
    if not is_right or left:
        raise typer.Exit(Exit.FAILED)


def _perform(stage: Stage, screen: Screen, file: Path | None) -> bool:
    """Play the whole demo; say whether it adds up."""
    settings, receiver_url = stage.set_up()
    plan = _prepare(settings, receiver_url, file)
    run(Play(stage, settings, plan, screen).run)
    screen.tell("everything is settled")
    seen = run(lambda: read_everything(settings, stage.calls))
    # After all is read that is added up: what is redriven is dead no more.
    shown = list(desk.turn(settings, seen))
    for child in (stage.api, stage.worker):
        code = child.stop()
        if code != 0:
            raise DemoError(f"the {child.name} ended with {code} when it was asked to stop")
    stage.receiver.stop()
    total = add_up(plan, seen)
    screen.print()
    for line in (*report.letters(seen), "", *shown, "", *report.summary(plan, seen, total), ""):
        screen.print(line)
    for line in report.problems(total):
        complain(line)
    if not total.problems:
        screen.print("it adds up")
    return not total.problems


def _end(stage: Stage, screen: Screen, *, keep: bool, shows_logs: bool) -> list[str]:
    """End what runs; tell how the logs ended where something failed."""
    tails = list(stage.tails()) if shows_logs else []
    left = stage.tear_down()
    for line in (*tails, *left):
        complain(line)
    if not left:
        screen.print("receiver, worker and what else was started have ended")
    if keep:
        screen.print(f"kept: {stage.folder}")
    return left


def _prepare(settings: Settings, receiver_url: str, file: Path | None) -> Plan:
    """Register the named targets, and say what must come of the activities.

    Raises:
        DemoError: the examples are not there, or are not what they say they are.
    """
    examples = _examples()
    named = {(each.tenant, each.name): each for each in examples.TARGETS}
    run(
        lambda: write_registry(
            settings,
            {
                f"{tenant}/{name}": _encoded(
                    TargetRecord(
                        name=name,
                        tenant=tenant,
                        url=receiver_url + each.path,
                        idempotent=each.idempotent,
                        policy=each.policy,
                    ),
                    settings,
                )
                for (tenant, name), each in named.items()
            },
        )
    )

    def place(tenant: str, recipient: Recipient) -> Place:
        if recipient.inbox is not None:
            return Place(path=examples.behaviour_of(recipient.inbox), idempotent=True)
        target = named[tenant, recipient.key]
        path = examples.behaviour_of(target.path)
        once = "" if target.idempotent or path == "/ok" else " once"
        return Place(path=path + once, idempotent=target.idempotent)

    expected = examples.expected(max_attempts=settings.policies["activity"].max_attempts)
    text = examples.rewritten((file or examples.FILE).read_text(encoding="utf-8"), receiver_url)
    plan = plan_of(
        text.encode().splitlines(),
        places=place,
        behaviours={each.path: each for each in expected.paths},
        partitions=settings.partitions,
        max_bytes=settings.max_activity_bytes,
        max_depth=settings.max_activity_depth,
    )
    if file is None and (len(plan.owed), len(plan.malformed)) != (
        expected.deliveries,
        expected.malformed,
    ):
        raise DemoError(f"{examples.FILE} is not what `make_activities` says of it")
    return plan


def _examples() -> ModuleType:
    """What the demo plays; no part of the package.

    Loaded before anything is started: a signal that meets Python while it builds a dataclass makes the
    process end as if killed by it, whatever exit code was asked for (CPython 3.11).

    Raises:
        DemoError: they are not there.
    """
    try:
        return import_module("examples.make_activities")
    except ImportError:
        raise DemoError(
            "the examples are not installed: run `make demo` in the repository"
        ) from None


def _encoded(record: TargetRecord, settings: Settings) -> bytes:
    registered_target(record, settings.policies, settings.allow_networks)
    return encode_target(record)
