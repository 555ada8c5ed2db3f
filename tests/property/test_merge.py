"""Whatever order events come in, and however often, they add up to the same."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.model.observed import About, Downstream, Engagement, ProviderEvent
from streams.rules.merge import RANK, merge

EVENTS = st.builds(
    ProviderEvent,
    event_id=st.sampled_from("abcd"),
    provider=st.just("mail"),
    subject=st.sampled_from(["", "j", "m"]),
    state=st.sampled_from(Downstream),
    engagement=st.sampled_from(Engagement),
    about=st.sampled_from(About),
    provider_code=st.sampled_from(["", "5.1.1"]),
    provider_ms=st.integers(0, 2),
    observed_ms=st.integers(0, 2),
)
"""Few identities: most draws hold an event that is told again, with other facts too."""


@settings(max_examples=40)
@given(events=st.lists(EVENTS, min_size=6, max_size=6))
def test_all_permutations_of_six_events_with_duplicates_give_one_state(events):
    """
    D-055, issue 7: duplicates converge in any order, late ones too.
    """
    expected = merge(events)

    assert all(merge(order) == expected for order in permutations(events))


@given(events=st.lists(EVENTS, max_size=8), more=st.data())
def test_telling_what_is_known_again_changes_the_count_only(events, more):
    """
    D-055: a provider may repeat itself for as long as it likes.
    """
    repeats = more.draw(st.lists(st.sampled_from(events), max_size=5)) if events else []

    once, again = merge(events), merge(events + repeats)

    assert (once.standing, once.subjects, once.events) == (
        again.standing,
        again.subjects,
        again.events,
    )
    assert again.repeats == once.repeats + len(repeats)


@given(events=st.lists(EVENTS, max_size=6, unique_by=lambda e: e.event_id), late=EVENTS)
def test_a_late_event_never_lowers_a_state(events, late):
    """
    H15: whatever comes late, a complaint stays one.
    """
    before, after = merge(events).standing, merge([*events, late]).standing
    known = {event.event_id for event in events}

    if late.event_id not in known:
        assert RANK[after.state] >= RANK[before.state]
