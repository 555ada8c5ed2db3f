"""How late retries are: 10,000 of them due within one minute, on a machine that is otherwise idle.

    .venv/bin/python -m tests.bench.lateness [--retries 10000] [--seconds 60]

Every activity fails once and is due again after 30 s and a jitter of up to `--seconds`, so that the due
times spread evenly over that long. Lateness is the receiver's clock at the second call, less the `due`
header of the retry, which holds the jitter already: what is printed is beyond it. Broker, worker and
receiver share the machine. OUTBOX_BROKERS names another cluster than one started for the run.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from pathlib import Path
from typing import Final

import uvloop

from streams.edge.localkafka import LocalKafka
from tests.integration.world import World

FIRST_DELAY_MS: Final = 30_000


async def measure(brokers: str, folder: Path, retries: int, seconds: int) -> list[float]:
    """Milliseconds from due to called, of each retry."""
    overrides = {
        "policy_activity_first_delay_ms": FIRST_DELAY_MS,
        "policy_activity_max_delay_ms": FIRST_DELAY_MS,
        "policy_activity_jitter_ms": seconds * 1_000,
        "policy_activity_timeout_ms": 20_000,
        "policy_activity_lease_ms": 40_000,
    }
    async with World(brokers, folder, overrides) as world:
        await world.work()
        load = [world.activity(f"urn:late:{n}", f"/flaky/1/{n}") for n in range(retries)]
        await world.produce(*load)
        await world.until(
            lambda: len(world.receipts) == retries,
            "all to be delivered",
            within_s=seconds + FIRST_DELAY_MS / 1_000 + 120,
        )
        due_ms = {
            (item.delivery_id, item.attempt): retry.due_ms
            for retry in world.retries
            for item in retry.items
            if item.attempt
        }
        return sorted(
            call.t * 1_000 - due_ms[(call.id or "").rpartition("-")[0], call.attempt - 1]
            for call in world.receiver.calls
            if call.attempt is not None and call.attempt > 1
        )


def main() -> None:
    """Measure, and print `name=value` lines."""
    wanted = argparse.ArgumentParser(description=__doc__)
    wanted.add_argument("--retries", type=int, default=10_000)
    wanted.add_argument("--seconds", type=int, default=60)
    given = wanted.parse_args()
    # New topics have no leader for a moment; the client tells each time that it asks again.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = None if os.environ.get("OUTBOX_BROKERS") else LocalKafka(folder / "kafka")
        brokers = os.environ.get("OUTBOX_BROKERS") or (own.up() if own else "")
        try:
            late_ms = uvloop.run(measure(brokers, folder / "world", given.retries, given.seconds))
        finally:
            if own:
                own.down()
    print(f"retries={len(late_ms)}")
    print(f"lateness_ms_min={late_ms[0]:.0f}")
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        print(f"lateness_ms_{name}={late_ms[int(share * (len(late_ms) - 1))]:.0f}")
    print(f"lateness_ms_max={late_ms[-1]:.0f}")


if __name__ == "__main__":
    main()
