"""What a delivery's provider events add up to: the same in any order, however often each was told.

A state only ever rises in rank: a late `delivered` does not unsay a complaint (H15), a late `sent`
does not unsay `delivered` (H10). So the result is a maximum over a set, and needs no order, no memory
of what came first and no lock (D-055).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streams.model.observed import (
    Downstream,
    Engagement,
    Merged,
    ProviderEvent,
    Standing,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

RANK: Final = {state: rank for rank, state in enumerate(Downstream)}
"""From least to most grave, as `Downstream` lists them: a mail that was delivered can still bounce (its
mailbox forwarded it), and who complains has it (RFC 5965)."""

ENGAGEMENT_RANK: Final = {engagement: rank for rank, engagement in enumerate(Engagement)}

_LAST: Final = 1 << 63


def merge(events: Iterable[ProviderEvent], *, generation: int = 1) -> Merged:
    """Add up the events that speak of one generation. Any order, any repetition: one result.

    Of a repeated event the version first observed counts. What decides a state is the first event, by
    the provider's clock, that speaks of it.
    """
    own = [event for event in events if event.generation == generation]
    known: dict[str, ProviderEvent] = {}
    for event in own:
        before = known.get(event.event_id)
        if before is None or _told(event) < _told(before):
            known[event.event_id] = event
    by_subject: dict[str, list[ProviderEvent]] = {}
    for event in known.values():
        by_subject.setdefault(event.subject, []).append(event)
    return Merged(
        standing=_standing(known.values()),
        subjects={name: _standing(by_subject[name]) for name in sorted(by_subject) if name},
        events=len(known),
        repeats=len(own) - len(known),
    )


def _standing(events: Iterable[ProviderEvent]) -> Standing:
    """The gravest state, and the furthest engagement: each by its own rank."""
    ordered = sorted(events, key=_happened)
    if not ordered:
        return Standing()
    decides = max(ordered, key=lambda event: RANK[event.state])  # the first of equals
    engagement = max((event.engagement for event in ordered), key=ENGAGEMENT_RANK.__getitem__)
    if decides.state is Downstream.UNKNOWN:
        return Standing(engagement=engagement)
    return Standing(
        state=decides.state,
        engagement=engagement,
        about=decides.about,
        provider_code=decides.provider_code,
        summary=decides.summary,
        provider_ms=decides.provider_ms,
    )


def _happened(event: ProviderEvent) -> tuple[object, ...]:
    """A total order of different events; those without a time come last."""
    return (event.provider_ms or _LAST, event.event_id)


def _told(event: ProviderEvent) -> tuple[object, ...]:
    """A total order of the versions of one event, so that it does not matter which came first here."""
    return (
        event.observed_ms,
        event.provider_ms,
        event.kind,
        event.subject,
        event.state,
        event.engagement,
        event.about,
        event.provider_code,
        event.summary,
        event.provider_event_id,
        event.provider,
    )
