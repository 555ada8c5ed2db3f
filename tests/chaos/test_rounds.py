"""Rounds of faults against real brokers, real workers and a receiver that counts every call.

`make chaos ROUNDS=n SEED=s`. A round is built from its seed; one that fails prints the histories of
the activities concerned.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from aiokafka.errors import KafkaError

from streams.rules.decide import EffectMode
from streams.wire.commands import Cancel, Redrive, encode_command
from tests.chaos import summary
from tests.chaos.checker import check
from tests.chaos.cluster import ProxiedKafka
from tests.chaos.faults import Faults
from tests.chaos.folding import fold
from tests.chaos.plan import FAULTS_S, Asked, Plan, draw, workload
from tests.chaos.site import COMPACTED_S, PARTITIONS, Site
from tests.chaos.story import tell
from tests.chaos.violations import Violation

ACTIVITIES = 160
REST_S = 150.0
"""How long a round may take to settle once nobody disturbs any more; bounds a failure."""

READY_S = 240.0
ROUND_LIMIT_S = 900.0


async def test_rounds(tmp_path: Path) -> None:
    """Issue 4: nothing lost, nothing doubled where it may not be, nothing stuck, no bound broken."""
    first = int(os.environ.get("SEED") or 1)
    rounds = int(os.environ.get("ROUNDS") or 20)
    kafka = ProxiedKafka(tmp_path / "kafka")
    with _small_disk(tmp_path / "small") as tmpfs:
        try:
            await asyncio.to_thread(kafka.up)
            for seed in range(first, first + rounds):
                plan = draw(seed, can_fill=tmpfs is not None)
                async with asyncio.timeout(ROUND_LIMIT_S):
                    found = await _round(kafka, plan, tmp_path / f"round-{seed}", tmpfs)
                summary.wrong.update(v.wrong for v in found)
                if found:
                    summary.failed.append(seed)
        finally:
            await asyncio.to_thread(kafka.down)

    assert [] == summary.failed


async def _round(
    kafka: ProxiedKafka, plan: Plan, folder: Path, tmpfs: Path | None
) -> list[Violation]:
    began = time.monotonic()
    facts = f"workers={plan.workers} compacts={plan.compacts} redrives={plan.redrives}"
    print(f"\nround seed={plan.seed} {facts} skew_ms={plan.skew_ms or 0}")
    for fault in plan.faults:
        print(f"  {fault}")
    site = Site(kafka, plan, folder, tmpfs)
    async with site:
        await _disturb(site, Faults(site, tmpfs))
        found = await _come_to_rest(site)
        folded = fold(site.history.ledger)
        site.did["failovers"] += folded.owners - PARTITIONS
        _say_how_it_went(site, found, time.monotonic() - began)
    summary.did.update(site.did)
    return found


async def _disturb(site: Site, faults: Faults) -> None:
    """Produce, and let the faults come, each at its time."""

    async def at(when_s: float, deed) -> None:
        await asyncio.sleep(when_s)
        await deed

    loop = asyncio.get_running_loop()
    async with asyncio.timeout(READY_S):
        await site.recorder.until_owned(PARTITIONS)
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for asked in workload(site.plan.seed, ACTIVITIES):
            group.create_task(at(asked.at_s, site.produce(asked)))
        for fault in site.plan.faults:
            group.create_task(at(fault.at_s, faults.befall(fault)))
        if site.plan.redrives:
            group.create_task(_operate(site, until=began + FAULTS_S))
    await asyncio.sleep(max(0.0, began + FAULTS_S - loop.time()))


async def _operate(site: Site, until: float) -> None:
    """Reopen some dead letters as an operator does, sometimes twice by mistake."""
    rng = Random(f"operator {site.plan.seed}")
    asked: set[str] = set()
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(1.0)
        for record in list(site.history.letters):
            for letter in record.deliveries or ():
                letter_id = letter["dead_letter_id"]
                if letter_id in asked:
                    continue
                asked.add(letter_id)
                if rng.random() < 0.4:
                    mode = rng.choice(list(EffectMode))
                    command = Redrive(letter_id=letter_id, mode=mode, audit_id="chaos")
                    for _ in range(rng.choice((1, 1, 2))):
                        await site.write(
                            site.topics.commands, record.activity, encode_command(command)
                        )
                    site.did["redrives"] += 1
        await _cancel(site, rng, asked)
        await _replay(site)


async def _cancel(site: Site, rng: Random, asked: set[str]) -> None:
    """Cancel some of what waits, be it that it is claimed again by the time the owner reads of it."""
    for key, row in fold(site.history.ledger).rows.items():
        letter_id = f"{row.get('delivery_id')}.{row.get('budget')}"
        if row.get("phase") in ("waiting", "queued") and letter_id not in asked:
            asked.add(letter_id)
            if rng.random() < 0.2:
                command = encode_command(Cancel(letter_id=letter_id, audit_id="chaos"))
                await site.write(site.topics.commands, key.partition(b"\0")[0].decode(), command)
                site.did["cancels"] += 1


async def _replay(site: Site) -> None:
    """Produce again what a redrive has queued, once a budget (D-066)."""
    for key, row in fold(site.history.ledger).rows.items():
        if row.get("phase") == "queued":
            activity = key.partition(b"\0")[0].decode()
            mark = f"{row['delivery_id']}.{row['budget']}"
            if mark not in site.replayed:
                site.replayed.add(mark)
                await site.write(site.topics.outbox, activity, site.values[activity])


async def _come_to_rest(site: Site) -> list[Violation]:
    """Wait until all promises are kept, or a time has passed; say which are not."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + REST_S
    has_compacted = False
    while loop.time() < ends:
        await asyncio.sleep(1.0)
        try:
            await site.recorder.look()
            await _replay(site)
        except (KafkaError, TimeoutError):
            continue
        found = check(site.history, at_rest=False)
        if found:
            return found
        if not check(site.history, at_rest=True):
            if site.plan.compacts and not has_compacted:
                has_compacted = True
                await _let_compact(site)
                ends = loop.time() + REST_S
                continue  # what was produced for it must settle as well
            await site.recorder.read_compacted()
            break
    await site.recorder.look()
    return check(site.history, at_rest=True)


async def _let_compact(site: Site) -> None:
    """Give compaction its turn: the lag passes, then each partition gets a record that rolls a segment."""
    await asyncio.sleep(COMPACTED_S)
    for number in range(4 * PARTITIONS):
        last = Asked(
            at_s=0, activity_id=f"last{number}", inboxes=(f"/ok/last{number}",), targets=(),
            copies=1, is_stray=False,
        )  # fmt: skip
        await site.produce(last)
    await asyncio.sleep(4.0)  # the cleaner looks every second


def _say_how_it_went(site: Site, found: list[Violation], took_s: float) -> None:
    h = site.history
    folded = fold(h.ledger)
    left = "" if h.compacted is None else f", {len(h.compacted)} left after compaction"
    print(
        f"  {took_s:.0f} s: {len(h.sources)} records, {len(h.calls)} calls, "
        f"{len(h.ledger)} ledger records ({len(folded.void)} void{left}), did {dict(site.did)}"
    )
    for worker in site.workers.values():
        for reason in worker.reasons:
            print(f"  {worker.name} ended itself: {reason}")
    for violation in found[:20]:
        print(f"  {violation}")
    if len(found) > 20:
        print(f"  … and {len(found) - 20} more: {dict(Counter(v.wrong.value for v in found))}")
    for activity in list(dict.fromkeys(v.activity.partition(" → ")[0] for v in found))[:4]:
        print(f"--- {activity}\n{tell(h, activity)}")
    if found:
        for worker in site.workers.values():
            if worker.starts:
                print(f"--- end of {worker.log}")
                lines = worker.log.read_text(errors="replace").splitlines()[-15:]
                print("\n".join(line[:300] for line in lines))


@contextmanager
def _small_disk(at: Path) -> Iterator[Path | None]:
    """A file system of 96 MB that may be filled, where this user may mount one; else None."""
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(at)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        print("no disk is filled: this user may not mount a small file system")
    try:
        yield at if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(at)], check=False)
