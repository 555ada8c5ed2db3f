"""Provider events add up: by rank and not by arrival."""

from __future__ import annotations

import pytest

from streams.model.observed import About, Downstream, Engagement, Merged, ProviderEvent, Standing
from streams.rules.merge import RANK, merge


def event(state="unknown", engagement="none", *, at=0, name=None, **fields):
    return ProviderEvent(
        event_id=name or f"{state}/{engagement}/{at}",
        provider="mail",
        state=Downstream(state),
        engagement=Engagement(engagement),
        provider_ms=at,
        **fields,
    )


def test_nothing_told_is_nothing_known():
    """
    D-048/049: `sent` alone says nothing of what became of it.
    """
    assert Merged() == merge([])


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (("temporarily_failed", "delivered"), "delivered"),
        (("delivered", "temporarily_failed"), "delivered"),
        (("bounced", "delivered"), "bounced"),
        (("delivered", "complained"), "complained"),
        (("complained", "delivered", "bounced"), "complained"),
        (("temporarily_failed", "bounced"), "bounced"),
        (("unknown", "delivered"), "delivered"),
    ],
)
def test_a_state_only_rises(events, state):
    """
    D-050, H15: what is graver stays, whatever is told after it.
    """
    merged = merge([event(each, at=at) for at, each in enumerate(events, 1)])

    assert state == merged.standing.state


def test_the_order_of_states_is_that_of_the_spec():
    """
    D-049: six states; every one has its rank.
    """
    assert set(Downstream) == set(RANK)
    assert Downstream.COMPLAINED == max(RANK, key=RANK.__getitem__)


def test_engagement_stands_apart_from_state():
    """
    D-051: an opened mail can have bounced elsewhere; neither hides the other.
    """
    merged = merge([event("bounced"), event(engagement="opened"), event(engagement="clicked")])

    assert (Downstream.BOUNCED, Engagement.CLICKED) == (
        merged.standing.state,
        merged.standing.engagement,
    )


def test_engagement_alone_says_nothing_of_the_state():
    """
    D-051: an open can be a machine's.
    """
    assert Standing(engagement=Engagement.OPENED) == merge([event(engagement="opened")]).standing


def test_the_first_event_of_the_gravest_state_gives_its_facts():
    """
    D-053: code, summary and time belong to the event that decides.
    """
    late = event("bounced", at=20, provider_code="5.7.1", summary="late")
    early = event("bounced", at=10, provider_code="5.1.1", summary="early", about=About.RECIPIENT)
    timeless = event("bounced", name="none", provider_code="0", summary="timeless")

    assert merge([late, timeless, early]).standing == Standing(
        state=Downstream.BOUNCED,
        about=About.RECIPIENT,
        provider_code="5.1.1",
        summary="early",
        provider_ms=10,
    )


def test_a_repeated_event_is_counted_and_changes_nothing():
    """
    D-055: one identity, the version that was observed first.
    """
    first = event("bounced", name="e", observed_ms=1, provider_code="a")
    again = event("bounced", name="e", observed_ms=2, provider_code="b")

    merged = merge([again, first, again])

    assert (1, 2, "a") == (merged.events, merged.repeats, merged.standing.provider_code)


def test_recipients_of_one_message_stand_each_for_itself():
    """
    H02: the delivery shows the gravest, and each its own.
    """
    merged = merge([event("delivered", subject="m"), event("bounced", subject="j")])

    assert Downstream.BOUNCED == merged.standing.state
    assert {"j": "bounced", "m": "delivered"} == {
        name: each.state for name, each in merged.subjects.items()
    }


def test_a_new_generation_begins_unknown():
    """
    D-076, C-12: what became of the first effect says nothing of the second.
    """
    events = [event("bounced"), event("delivered", generation=2)]

    assert Downstream.BOUNCED == merge(events).standing.state
    assert Downstream.DELIVERED == merge(events, generation=2).standing.state
    assert Merged() == merge(events, generation=3)
