"""Which partition stands still, and which only waits (faust.md §8, a-e)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from streams.rules.vitals import (
    STEP_MAX_S,
    Finding,
    LaneSample,
    Sample,
    Standstill,
    Vital,
    findings,
    is_evicted_by_a_namesake,
    observe,
)

BOUND_S = 60.0
IDLE = LaneSample(topic="outbox", position=5, end=5, committed=5)
WELL = Sample(at_s=0.0, partition=3, folded=9, end=9, lanes=(IDLE,))


def seen(samples: Iterable[Sample], step_s: float = 5.0) -> Vital:
    """What is known after these samples, taken one after the other."""
    vital = None
    for number, sample in enumerate(samples):
        vital = observe(vital, replace(sample, at_s=number * step_s))
    assert vital is not None
    return vital


def found(samples: Iterable[Sample]) -> list[tuple[Standstill, bool]]:
    """What is said of them, and whether the worker must end."""
    return [(f.what, f.share >= 1.0) for f in findings(seen(samples), bound_s=BOUND_S)]


def lane(**changes: object) -> Sample:
    """A well partition but for one lane."""
    return replace(WELL, lanes=(replace(IDLE, **changes),))  # type: ignore[arg-type]


STANDING = {
    Standstill.NOT_LED: replace(WELL, leads=False),
    Standstill.TAIL: replace(WELL, folded=8),
    Standstill.FETCH: lane(position=4),
    Standstill.OLDEST: lane(oldest=4),
    Standstill.COMMIT: lane(is_due=True, committed=4),
}


@pytest.mark.parametrize("what", Standstill)
def test_what_stands_for_its_bound_ends_the_worker(what: Standstill) -> None:
    """Issue 4: each reason; twelve steps of five seconds are the bound."""
    assert [(what, True)] == found([STANDING[what]] * 13)


@pytest.mark.parametrize("what", Standstill)
def test_what_stands_for_half_its_bound_is_told_first(what: Standstill) -> None:
    """An operator sees it on /readyz before the worker ends."""
    assert [(what, False)] == found([STANDING[what]] * 7)
    assert [] == found([STANDING[what]] * 6)


@pytest.mark.parametrize(
    "moved",
    [
        replace(WELL, leads=False, restored=1),
        replace(WELL, folded=8, end=12),
        lane(position=4, end=9),
        lane(oldest=9),
        lane(is_due=True, committed=9),
    ],
    ids=[what.value for what in Standstill],
)
def test_what_moves_once_in_a_while_is_well(moved: Sample) -> None:
    """A restore, a backlog and a busy lane are behind for hours and go on all the time."""
    before = [
        replace(WELL, leads=False),
        replace(WELL, folded=7, end=12),
        lane(position=3, end=9),
        lane(oldest=8),
        lane(is_due=True, committed=8),
    ]
    (first,) = [b for b in before if type_of(b) == type_of(moved)]

    assert [] == found([first] * 12 + [moved] * 6)


def type_of(sample: Sample) -> tuple[bool, ...]:
    """In which way a sample is not well."""
    own = sample.lanes[0]
    return (
        sample.leads,
        sample.folded == sample.end,
        own.position == own.end,
        own.oldest is None,
        own.is_due,
    )


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(WELL, id="idle"),
        pytest.param(
            replace(WELL, leads=False, end=None), id="no broker answers: nobody could lead"
        ),
        pytest.param(replace(WELL, folded=0, end=None), id="no broker says where the ledger ends"),
        pytest.param(replace(WELL, lanes=()), id="nothing is open yet"),
        pytest.param(lane(position=4, has_room=False), id="a full lane asks for nothing"),
        pytest.param(lane(position=4, end=None), id="no broker says where the topic ends"),
        pytest.param(lane(oldest=4, end=None), id="no broker takes a report"),
        pytest.param(lane(is_due=True, committed=4, end=None), id="no broker takes a commit"),
        pytest.param(lane(position=None), id="nobody knows what is fetched next"),
        pytest.param(lane(oldest=4, may_wait=True), id="a retry waits for its time"),
        pytest.param(lane(position=6), id="past a transaction's marker"),
    ],
)
def test_what_waits_for_a_reason_is_no_standstill(sample: Sample) -> None:
    """A restart would change nothing of it, so it must never end a worker."""
    assert [] == found([sample] * 1_000)


def test_a_delivery_may_take_its_leases_beyond_the_bound() -> None:
    """
    Issue 4: a slow target and a foreign claim are waited for; the longest lease comes with the sample.
    """
    slow = lane(oldest=4, patience_s=180.0)

    assert [] == found([slow] * 24)
    assert [(Standstill.OLDEST, False)] == found([slow] * 48)
    assert [(Standstill.OLDEST, True)] == found([slow] * 49)


def test_a_partition_that_is_not_led_is_not_blamed_for_its_tail() -> None:
    """While a large ledger is restored, one partition waits for the others."""
    restoring = [
        replace(WELL, leads=False, folded=0, end=10**6, restored=n * 1_000) for n in range(100)
    ]

    assert [] == found(restoring)


def test_time_in_which_the_process_was_frozen_does_not_count() -> None:
    """It wakes up, looks, and finds nothing moved: of course not."""
    vital = observe(None, STANDING[Standstill.TAIL])
    vital = observe(vital, replace(STANDING[Standstill.TAIL], at_s=3_600.0))

    assert STEP_MAX_S == vital.tail_s


@pytest.mark.parametrize("what", Standstill)
def test_silence_of_the_brokers_neither_counts_nor_forgives(what: Standstill) -> None:
    """One answer in two is enough to see that nothing moves; it only takes twice as long."""
    own = STANDING[what]
    silent = replace(own, end=None, lanes=(replace(own.lanes[0], end=None),))

    assert [(what, False)] == found([own, silent] * 12)
    assert [(what, True)] == found([own, silent] * 13)


def test_another_assignment_starts_anew() -> None:
    """What stood still was another owner's partition meanwhile."""
    stood = [STANDING[Standstill.COMMIT]] * 12

    assert [] == found([*stood, replace(STANDING[Standstill.COMMIT], assignment=3)])


def test_a_lane_that_opens_later_starts_at_its_first_sample() -> None:
    """Lanes open one by one, as their partition comes to be led."""
    late = [replace(WELL, lanes=())] * 12 + [STANDING[Standstill.OLDEST]] * 6

    assert [] == found(late)


def test_the_worst_is_told_first() -> None:
    """The reason of an end is the first of the list."""
    both = replace(STANDING[Standstill.FETCH], folded=8)

    told = findings(seen([STANDING[Standstill.FETCH]] * 3 + [both] * 10), bound_s=BOUND_S)

    assert [Standstill.FETCH, Standstill.TAIL] == [finding.what for finding in told]


def test_a_finding_names_place_and_time_and_no_content() -> None:
    """It goes into logs and onto pages."""
    finding = Finding(partition=3, what=Standstill.COMMIT, seconds=61.4, share=1.02, topic="outbox")

    assert "outbox/3 had settled records that were not committed for 61 s" == str(finding)


@pytest.mark.parametrize(
    ("evictions", "expected"),
    [
        ([], False),
        ([100.0], False),
        ([91.0, 100.0], False),
        ([90.0, 95.0, 100.0], True),
        ([88.0, 95.0, 100.0], True),
        ([87.9, 95.0, 100.0], False),
        ([10.0, 20.0, 30.0, 95.0, 100.0], False),
    ],
)
def test_a_namesake_evicts_three_times_within_a_session(
    evictions: list[float], expected: bool
) -> None:
    """
    design.md §4: who is silent is given up once a session; only another of its name does it oftener.
    """
    assert expected is is_evicted_by_a_namesake(evictions, now_s=100.0, session_s=12.0)
