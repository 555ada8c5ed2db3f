"""Thousands of seeded worlds over the real engine: no promise is broken, and all of it comes to rest.

`SIM_SEEDS=20000 make test ARGS=tests/sim` runs more. A seed that fails prints the shortest list of what
must befall the world for it, and the transcript: time, worker, event.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.sim.conftest import Tally
from tests.sim.plan import draw, explain, failure_of, run, shortened
from tests.sim.quiet import quiet
from tests.sim.test_traces import claim_without_fold

SEEDS = int(os.environ.get("SIM_SEEDS", "1000"))
CHUNK = 100
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_schedule_of_crashes_freezes_and_stray_owners_breaks_a_promise(first, sim_tally: Tally):
    """
    O-001, O-002, O-013, O-014, C-01, C-07, C-15, C-16, D-001, D-004, D-011, D-066; ledger.md, rules 1 to
    12: at most `max_attempts` claims a budget; no second possible effect where the target is not
    idempotent; no call without a valid claim; no acknowledgement past what is not settled; all readers
    agree; in the end each delivery is settled, with its receipt, and its dead letter where it is dead.
    """
    failed = None
    with quiet():
        for seed in range(first, first + CHUNK):
            try:
                sim_tally.add(run(seed, draw(seed)))
            except AssertionError:
                failed = seed
                break

    assert failed is None, explain(failed)


def test_a_run_can_be_repeated_exactly():
    """A seed that failed must fail again, or it is of no use to anybody."""
    with quiet():
        first, second = (run(7, draw(7)).transcript for _ in range(2))

    assert first == second


def test_another_process_repeats_a_run_as_well():
    """Whatever order its sets have; in these three the repairs that a worker owed came in theirs."""
    told = """
from tests.sim.plan import draw, run
from tests.sim.quiet import quiet
with quiet():
    for seed in (98, 191, 196):
        print(run(seed, draw(seed)).transcript)
"""
    first, second = (
        subprocess.run(
            [sys.executable, "-c", told],
            env=os.environ | {"PYTHONHASHSEED": order},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.splitlines()
        for order in ("1", "2")
    )

    assert 3 == len(first) == len(second)
    for of_one, of_other in zip(first, second, strict=True):
        assert of_one == of_other


@pytest.fixture
def impatient(monkeypatch):
    """A worker that does not wait for its claim to be read back."""
    claim_without_fold(monkeypatch)


def test_a_broken_engine_is_noticed_and_explained(impatient):
    """Some seed fails, and says when, who and what: time, worker, event, and the promise broken."""
    report = next(text for text in map(explain, range(100)) if not text.endswith("holds"))

    assert "fails with" in report
    assert "calls x" in report
    assert "called without a valid claim in the log" in report


def test_a_failing_seed_is_told_without_what_does_not_matter(impatient):
    """
    A plan of up to forty happenings is no explanation. What is left of it is what the failure needs:
    without any one of them it does not come to pass.
    """
    seed, plan = next((s, p) for s in range(100) if (p := shortened(s)) is not None)

    assert len(plan) < len(draw(seed)) / 2
    for at in range(len(plan)):
        with quiet():
            run(seed, plan[:at] + plan[at + 1 :])


@pytest.mark.parametrize(
    ("without", "says"),
    [
        (
            ("streams.engine.end_of_life.keep_until", lambda *_, **__: None),
            "forgotten while it was",
        ),
        (("streams.engine.partition.Partition.bury", lambda *_: False), "was never forgotten"),
    ],
    ids=["too early", "never"],
)
def test_a_worker_that_forgets_too_early_or_never_is_noticed(without, says):
    """D-006, C-16: tombstones are among what the schedules disturb, and are looked at in the end."""
    with quiet(), mock.patch(*without):
        failures = (failure_of(seed, draw(seed)) for seed in range(60))

        assert next(found for found in failures if found and says in found)
