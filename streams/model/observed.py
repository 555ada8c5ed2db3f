"""What became of a delivery after it was sent, as providers tell it (spec §8)."""

from __future__ import annotations

from dataclasses import dataclass, field

from streams.model.words import Word


class Downstream(Word):
    """Where a sent message got to. Apart from a delivery's status: `sent` means accepted (D-048..050)."""

    UNKNOWN = "unknown"
    TEMPORARILY_FAILED = "temporarily_failed"
    DELIVERED = "delivered"
    REJECTED = "rejected"
    BOUNCED = "bounced"
    COMPLAINED = "complained"


class Engagement(Word):
    """What somebody did with it. Apart from the downstream state (D-051)."""

    NONE = "none"
    OPENED = "opened"
    CLICKED = "clicked"


class About(Word):
    """What a failure is about: one status can speak of very different things (H13)."""

    NOTHING = ""
    RECIPIENT = "recipient"
    """The address is gone or objects: do not use it again."""
    CONTENT = "content"
    """This message: another one to the same address may pass."""
    CONFIGURATION = "configuration"
    """Our account, keys or sender."""
    PROVIDER = "provider"
    """The provider or the network, for now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEvent:
    """One thing that a provider told of one recipient of one message. Holds no content, no address.

    Attributes:
        event_id: Canonical identity: told again, under whatever envelope, it is the same (D-055).
        provider: Configured name of the provider.
        provider_event_id: The provider's own id of the event, empty where it has none.
        kind: The provider's word for it.
        subject: Stands for the recipient; empty where the event names none.
        provider_code: The provider's code, empty where it gives none.
        summary: One safe line made of known words and codes.
        provider_ms: When it happened by the provider's clock, epoch milliseconds; 0: it does not say.
        observed_ms: When we took it, epoch milliseconds.
        generation: Which intended effect it speaks of.
    """

    event_id: str
    provider: str
    provider_event_id: str = ""
    kind: str = ""
    subject: str = ""
    state: Downstream = Downstream.UNKNOWN
    engagement: Engagement = Engagement.NONE
    about: About = About.NOTHING
    provider_code: str = ""
    summary: str = ""
    provider_ms: int = 0
    observed_ms: int = 0
    generation: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one recipient stands, and the event that says so."""

    state: Downstream = Downstream.UNKNOWN
    engagement: Engagement = Engagement.NONE
    about: About = About.NOTHING
    provider_code: str = ""
    summary: str = ""
    provider_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What all events of one generation of a delivery add up to.

    Attributes:
        standing: Of the delivery as a whole: the gravest of its recipients'.
        subjects: Subject to its own standing; empty where no event names a recipient.
        events: How many different events there are.
        repeats: How many more were told again.
    """

    standing: Standing = field(default_factory=Standing)
    subjects: dict[str, Standing] = field(default_factory=dict)
    events: int = 0
    repeats: int = 0
