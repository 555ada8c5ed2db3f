"""The committable offset under any order of settling."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.engine.acks import Acks


@given(
    offsets=st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=25).map(sorted),
    steps=st.lists(st.integers(0, 60), max_size=60),
)
def test_what_is_committable_never_passes_what_is_not_settled(offsets, steps):
    """Rule 9, C-15: the oldest unsettled record, or the end; and it never falls."""
    acks, open_, last = Acks(1), set(offsets), -1
    for offset in offsets:
        acks.take(offset)
    for offset in steps:
        acks.settle(offset)
        open_.discard(offset)

        expected = min(open_, default=offsets[-1] + 1)
        assert expected == acks.committable()
        assert expected >= last
        last = expected

    assert (min(open_, default=None), sum(o >= last for o in offsets)) == (acks.oldest, len(acks))


@given(
    batches=st.lists(
        st.tuples(st.integers(1, 5), st.lists(st.integers(0, 40), max_size=8)), max_size=12
    )
)
def test_records_may_come_while_others_are_settled(batches):
    """A lane takes and settles at the same time."""
    acks, taken, done = Acks(1), 0, set()
    for number, settled in batches:
        for _ in range(number):
            acks.take(taken)
            taken += 1
        for offset in settled:
            acks.settle(offset)
            if offset < taken:
                done.add(offset)
        expected = next((o for o in range(taken) if o not in done), taken)
        assert expected == acks.committable()
