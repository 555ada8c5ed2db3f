"""Workers of release n and n+1 on one ledger: an upgrade, and the way back, in the middle of deliveries."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.model.receipt import Outcome
from streams.wire.schemas import fingerprint_of, parse
from tests.integration.worker_process import WorkerProcess
from tests.integration.world import PATIENT, Produced, World

pytestmark = pytest.mark.timeout(180)

ROOT = Path(__file__).parents[2]
GROWN = ("ledger-delivery", "ledger-activity")
LATER = {"name": "later", "type": "string", "default": "as before"}


def grown(name: str) -> str:
    """A schema of ours with a field more, among the others."""
    schema = json.loads((ROOT / "schemas" / f"{name}.avsc").read_text())
    schema["fields"].insert(1, LATER)
    return json.dumps(schema)


def fingerprint(text: str) -> bytes:
    """As it stands in a record."""
    return fingerprint_of(parse(text, "x"))


def install(folder: Path, *, is_next: bool) -> dict[str, str]:
    """Copy the product as it would be installed; give the variables with which it runs.

    Release n knows the schemas of n+1 from its history; n+1 writes them, and its values have the field.
    """
    package = folder / "streams"
    shutil.copytree(ROOT / "streams", package, ignore=shutil.ignore_patterns("__pycache__"))
    schemas = package / "wire" / "schemas"
    shutil.copytree(ROOT / "schemas", schemas)
    (schemas / "history").mkdir(exist_ok=True)
    for name in GROWN:
        own = (schemas / f"{name}.avsc").read_text()
        newer = grown(name)
        (schemas / f"{name}.avsc").write_text(newer if is_next else own)
        (schemas / "history" / f"{name}.other.avsc").write_text(own if is_next else newer)
    if is_next:
        model = package / "model" / "ledger.py"
        text = model.read_text()
        for last in ("effect_unknown: bool = False\n", "admissions: tuple[Admission, ...] = ()\n"):
            assert text.count(last) == 1, "the last field of a row is not where this test looks"
            text = text.replace(last, f'{last}    later: str = "as before"\n')
        model.write_text(text)
    return {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


async def written_by(world: World) -> Counter[bytes]:
    """How many ledger records there are of each schema."""
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        bootstrap_servers=world.brokers, enable_auto_commit=False
    )
    await consumer.start()
    try:
        places = [TopicPartition(world.topics.ledger, p) for p in range(world.partitions)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        found: Counter[bytes] = Counter()
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=300)).values():
                found.update(record.value[2:10] for record in records if record.value)
        return found
    finally:
        await consumer.stop()


async def test_deliveries_go_on_through_an_upgrade_and_back(kafka: str, tmp_path: Path) -> None:
    """
    Issue 4, G11: rows of n are taken over by n+1 and those of n+1 by n, each with a retry waiting and the
    store kept; then both are at work at once.
    """
    old = install(tmp_path / "n", is_next=False)
    new = install(tmp_path / "n+1", is_next=True)
    overrides: dict[str, Any] = {
        **PATIENT,
        "policy_activity_first_delay_ms": 3_000,
        "policy_activity_max_delay_ms": 3_000,
    }
    async with World(kafka, tmp_path / "world", overrides) as world:

        async def work(name: str, release: dict[str, str]) -> WorkerProcess:
            with patch.dict(os.environ, release):
                return await world.work(name)

        async def first_attempts(wave: str) -> list[Produced]:
            load = [world.activity(f"urn:up:{wave}:{n}", f"/flaky/1/{wave}{n}") for n in range(8)]
            await world.produce(*load)
            called = {path for activity in load for path in activity.paths}
            await world.until(lambda: called <= world.calls_by_path().keys(), "first attempts")
            return load

        first = await work("w1", old)
        by_old = await first_attempts("a")
        await stopped(first)
        second = await work("w2", new)
        await world.until_settled(*by_old)
        by_new = await first_attempts("b")
        await stopped(second)
        first = await work("w1", old)
        await world.until_settled(*by_new)
        second = await work("w2", new)
        await world.until_true(lambda: share([first, second]), "both to lead partitions")
        by_both = await first_attempts("c")
        await world.until_settled(*by_both)

        load = [*by_old, *by_new, *by_both]
        assert {2} == {world.calls_by_path()[path] for a in load for path in a.paths}
        told = {(r.verdict, r.attempts) for a in load for r in world.receipts[a.activity_id]}
        assert {(Outcome.SENT, 2)} == told
        rows = await written_by(world)
        for name in GROWN:
            own = (ROOT / "schemas" / f"{name}.avsc").read_text()
            assert rows[fingerprint(own)] > 0
            assert rows[fingerprint(grown(name))] > 0


async def stopped(worker: WorkerProcess) -> None:
    """Ask a worker to stop, and see it gone."""
    worker.terminate()
    await worker.ended()


async def share(workers: list[WorkerProcess]) -> bool:
    """Whether each leads some of the partitions."""
    return all([await worker.metric("outbox_partitions_led") > 0 for worker in workers])
