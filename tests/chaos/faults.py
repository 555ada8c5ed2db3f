"""What may befall a round, and how it is undone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

from tests.chaos.elections import elect_others
from tests.chaos.plan import WORKERS, Fault
from tests.chaos.site import Site
from tests.chaos.supervised import Supervised


class Faults:
    """Lets faults happen at a site.

    Args:
        tmpfs: A small file system for the data directory that is to be filled; None where none is.
    """

    def __init__(self, site: Site, tmpfs: Path | None) -> None:
        self._site = site
        self._tmpfs = tmpfs
        self._broker_faults = asyncio.Lock()

    async def befall(self, fault: Fault) -> None:
        """Let one fault happen, and be over."""
        deed = getattr(self, f"_{fault.kind}")
        await deed(fault.who, fault.lasts_s, fault.how)

    def _hold(self, worker: Supervised, lasts_s: float) -> None:
        worker.not_before = asyncio.get_running_loop().time() + lasts_s

    async def _kill(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self._site.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        self._site.did["kills"] += 1

    async def _stop(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self._site.workers[who]
        self._hold(worker, lasts_s)
        worker.expects_end = True
        worker.signal(signal.SIGTERM)
        self._site.did["stops"] += 1

    async def _freeze(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self._site.workers[who]
        if not worker.runs:  # another fault has ended it: freeze the one that comes
            worker.began.clear()
            await worker.began.wait()
        process = worker.process
        assert process is not None
        self._site.did["freezes"] += 1
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(lasts_s)
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    async def _cut(self, _who: str, lasts_s: float, how: str) -> None:
        self._site.did["cuts"] += 1
        self._site.network.cut(how)
        await asyncio.sleep(lasts_s)
        self._site.network.heal()

    async def _wipe(self, who: str, lasts_s: float, _how: str) -> None:
        worker = self._site.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        shutil.rmtree(worker.data_dir, ignore_errors=True)
        self._site.did["wiped disks"] += 1

    async def _truncate(self, who: str, lasts_s: float, _how: str) -> None:
        """Cut the last bytes off one of the store's files, as a lost write does."""
        worker = self._site.workers[who]
        self._hold(worker, lasts_s)
        worker.kill()
        files = sorted(
            f for f in worker.data_dir.rglob("*") if f.is_file() and f.name[-4:] in (".log", ".sst")
        )
        files += sorted(worker.data_dir.rglob("MANIFEST*"))
        files = [f for f in files if f.stat().st_size > 64]
        if files:
            chosen = files[int(lasts_s * 1000) % len(files)]
            os.truncate(chosen, int(chosen.stat().st_size * ((lasts_s * 7919) % 1)))
            self._site.did["truncated disks"] += 1

    async def _fill(self, who: str, lasts_s: float, _how: str) -> None:
        """Leave no byte free under the worker's data directory for a while."""
        assert self._tmpfs is not None, "the plan fills only where there is a small file system"
        self._site.did["filled disks"] += 1
        filler = self._tmpfs / "filler"
        ends = asyncio.get_running_loop().time() + lasts_s
        with filler.open("ab", buffering=0) as file:
            while asyncio.get_running_loop().time() < ends:
                try:
                    while True:
                        file.write(b"." * 4096)
                except OSError:
                    await asyncio.sleep(0.2)
        filler.unlink()

    async def _twin(self, who: str, lasts_s: float, _how: str) -> None:
        """A second worker under the same OUTBOX_WORKER_ID."""
        self._site.did["twins"] += 1
        first = self._site.workers[who]
        twin = Supervised(
            name=f"{who}-twin",
            data_dir=self._site.folder / f"{who}-twin",
            environment=first.environment,
            folder=self._site.folder,
        )
        twin.set_clock(self._site.plan.skew_ms.get(who, 0))
        twin.start()
        await asyncio.sleep(lasts_s)
        if not twin.runs:
            twin.reasons.append(twin.why_it_ended())
            first.reasons += [f"twin: {reason}" for reason in twin.reasons]
        twin.kill()

    async def _scale(self, _who: str, lasts_s: float, _how: str) -> None:
        """All workers join, then those that are too many leave."""
        self._site.did["scalings"] += 1
        for name in WORKERS:
            self._site.workers[name].is_wanted = True
        await asyncio.sleep(lasts_s)
        for name in WORKERS[1:]:
            worker = self._site.workers[name]
            worker.is_wanted, worker.expects_end = False, True
            worker.signal(signal.SIGTERM)
        await asyncio.sleep(lasts_s / 2)
        for name in WORKERS[: self._site.plan.workers]:
            self._site.workers[name].is_wanted = True

    async def _broker_kill(self, who: str, lasts_s: float, _how: str) -> None:
        async with self._broker_faults:  # two of three must have a record before it counts
            self._site.did["broker kills"] += 1
            await asyncio.to_thread(self._site.kafka.kill, int(who))
            await asyncio.sleep(lasts_s)
            await asyncio.to_thread(self._site.kafka.up)

    async def _broker_freeze(self, who: str, lasts_s: float, _how: str) -> None:
        async with self._broker_faults:
            self._site.did["broker freezes"] += 1
            await asyncio.to_thread(self._site.kafka.freeze, int(who))
            try:
                await asyncio.sleep(lasts_s)
            finally:
                await asyncio.to_thread(self._site.kafka.thaw, int(who))
            await asyncio.to_thread(self._site.kafka.up)

    async def _broker_restart(self, who: str, _lasts_s: float, _how: str) -> None:
        async with self._broker_faults:
            self._site.did["broker restarts"] += 1
            await asyncio.to_thread(self._site.kafka.restart, int(who))

    async def _elect(self, _who: str, lasts_s: float, _how: str) -> None:
        """Move the leaders of all partitions to other brokers, and later on once more."""
        for wait_s in (lasts_s, 0.0):
            async with self._broker_faults:
                moved = await elect_others(self._site.kafka.bootstrap or "", self._site.prefix)
            self._site.did["elections"] += 1
            self._site.did["moved leaders"] += moved
            await asyncio.sleep(wait_s)

    async def _clock(self, who: str, lasts_s: float, how: str) -> None:
        """Set a worker's wall clock, and set it right again."""
        for offset_ms in (int(how), 0):
            self._site.did["clock steps"] += 1
            self._site.workers[who].set_clock(offset_ms + self._site.plan.skew_ms.get(who, 0))
            await asyncio.sleep(lasts_s if offset_ms else 0.0)
