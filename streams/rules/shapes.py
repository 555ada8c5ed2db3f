"""How providers write their events, as data: where a field lies, and what a word means.

A shape holds no code. What they have in common is done once, in `providers`; a new provider is a new
entry here and a test. Words and fields are those of the providers' documentation and of the field cases
H01–H15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from streams.model.observed import About, Downstream, Engagement

Path: TypeAlias = tuple[str, ...]
"""Names to follow from an object inwards; `*` stands for the items of a list."""

Places: TypeAlias = tuple[Path, ...]
"""Where a field may lie; the first place that holds something counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a provider's word says of a delivery."""

    state: Downstream = Downstream.UNKNOWN
    engagement: Engagement = Engagement.NONE
    about: About = About.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipients:
    """Where the recipients lie that an event is about, which are not all that the message had (H02).

    Attributes:
        at: Their list.
        name: The address within one of them; empty where the item is the address itself.
        code: The code within one of them.
    """

    at: Path
    name: Path = ()
    code: Path = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one kind of provider writes its events.

    Attributes:
        opened: A text within the body that is itself the JSON of the events, as SNS wraps them; where
            there is none, the body is taken as it is.
        each: Where the event, or the list of events, lies in the body.
        kind: Parts of the event's word, each with its places; joined by dots, in lower case.
        meanings: Word to meaning; `failed.temporary` is looked for before `failed`.
        recipients: Where the recipients lie; the first that is there counts.
        webhook_id: Where our own `webhook-id` comes back, if it was sent along as metadata.
        message_id: The provider's id of the message.
        message_id_ends: Where a message id is cut: SendGrid appends its filter's name.
        identity: Which fields make two events one; the first row whose fields are all there counts.
    """

    name: str
    kind: tuple[Places, ...]
    meanings: Mapping[str, Meaning]
    opened: Path = ()
    each: Path = ()
    recipients: tuple[Recipients, ...] = ()
    webhook_id: Places = ()
    message_id: Places = ()
    message_id_ends: str = ""
    event_id: Places = ()
    code: Places = ()
    at: Places = ()
    identity: tuple[tuple[str, ...], ...] = field(default=(("event_id", "subject"), ("event_id",)))


_BOUNCED: Final = Meaning(state=Downstream.BOUNCED, about=About.RECIPIENT)
_DELAYED: Final = Meaning(state=Downstream.TEMPORARILY_FAILED, about=About.PROVIDER)
_DELIVERED: Final = Meaning(state=Downstream.DELIVERED)
_COMPLAINED: Final = Meaning(state=Downstream.COMPLAINED, about=About.RECIPIENT)
_REFUSED: Final = Meaning(state=Downstream.REJECTED, about=About.CONTENT)
_MISCONFIGURED: Final = Meaning(state=Downstream.REJECTED, about=About.CONFIGURATION)
_REJECTED: Final = Meaning(state=Downstream.REJECTED)
_OPENED: Final = Meaning(engagement=Engagement.OPENED)
_CLICKED: Final = Meaning(engagement=Engagement.CLICKED)
_LEFT: Final = Meaning(about=About.RECIPIENT)
"""Unsubscribed: no fault of this message's, and no further one wanted."""

PLAIN: Final = Shape(
    name="plain",
    each=("events",),
    kind=((("state",), ("engagement",)),),
    meanings={
        "delivered": _DELIVERED,
        "temporarily_failed": _DELAYED,
        "bounced": _BOUNCED,
        "rejected": _REJECTED,
        "complained": _COMPLAINED,
        "opened": _OPENED,
        "clicked": _CLICKED,
    },
    recipients=(Recipients(at=("recipient",)),),
    webhook_id=(("webhook_id",),),
    message_id=(("message_id",),),
    event_id=(("event_id",),),
    code=(("code",),),
    at=(("at",),),
    identity=(
        ("event_id",),
        ("message_id", "subject", "at"),
        ("message_id", "at"),
        ("webhook_id", "subject", "at"),
        ("webhook_id", "at"),
    ),
)
"""For a relay of one's own, which speaks our words: one event, or `{"events": […]}`."""

SES: Final = Shape(
    name="ses",
    opened=("Message",),
    kind=((("notificationType",), ("eventType",)), (("bounce", "bounceType"),)),
    meanings={
        "bounce": _DELAYED,
        "bounce.permanent": _BOUNCED,
        "complaint": _COMPLAINED,
        "delivery": _DELIVERED,
        "deliverydelay": _DELAYED,
        "reject": _REFUSED,
        "rendering failure": _REFUSED,
        "open": _OPENED,
        "click": _CLICKED,
        "subscription": _LEFT,
    },
    recipients=(
        Recipients(at=("bounce", "bouncedRecipients"), name=("emailAddress",), code=("status",)),
        Recipients(at=("complaint", "complainedRecipients"), name=("emailAddress",)),
        Recipients(at=("delivery", "recipients")),
        Recipients(at=("deliveryDelay", "delayedRecipients"), name=("emailAddress",)),
    ),
    webhook_id=(("mail", "tags", "webhook_id", "*"),),
    message_id=(("mail", "messageId"),),
    event_id=(("bounce", "feedbackId"), ("complaint", "feedbackId")),
    code=(("bounce", "bounceSubType"), ("complaint", "complaintFeedbackType")),
    at=(
        ("bounce", "timestamp"),
        ("complaint", "timestamp"),
        ("delivery", "timestamp"),
        ("deliveryDelay", "timestamp"),
        ("open", "timestamp"),
        ("click", "timestamp"),
    ),
    identity=(
        ("event_id", "subject"),
        ("message_id", "subject", "at"),
        ("message_id", "at"),
        ("message_id", "subject"),
        ("message_id",),
    ),
)
"""Amazon SES through SNS, or as EventBridge gives it. SNS's own envelope is no proof to us (H12): it
comes through a relay that signs."""

SENDGRID: Final = Shape(
    name="sendgrid",
    kind=((("event",),), (("type",),)),
    meanings={
        "delivered": _DELIVERED,
        "deferred": _DELAYED,
        "bounce": _BOUNCED,
        "bounce.blocked": _DELAYED,
        "dropped": _REJECTED,
        "spamreport": _COMPLAINED,
        "open": _OPENED,
        "click": _CLICKED,
        "unsubscribe": _LEFT,
        "group_unsubscribe": _LEFT,
    },
    recipients=(Recipients(at=("email",)),),
    webhook_id=(("webhook_id",),),
    message_id=(("sg_message_id",),),
    message_id_ends=".",
    event_id=(("sg_event_id",),),
    code=(("status",),),
    at=(("timestamp",),),
    # Not by `sg_event_id` first: the same bounce comes again under a new one, or without (H04).
    identity=(("message_id", "subject", "at"), ("event_id",), ("subject", "at")),
)

MAILGUN: Final = Shape(
    name="mailgun",
    each=("event-data",),
    kind=((("event",),), (("severity",),)),
    meanings={
        "delivered": _DELIVERED,
        "failed": _DELAYED,
        "failed.temporary": _DELAYED,
        "failed.permanent": _BOUNCED,
        "rejected": _REFUSED,
        "complained": _COMPLAINED,
        "opened": _OPENED,
        "clicked": _CLICKED,
        "unsubscribed": _LEFT,
    },
    recipients=(Recipients(at=("recipient",)),),
    webhook_id=(("user-variables", "webhook_id"),),
    message_id=(("message", "headers", "message-id"),),
    event_id=(("id",),),
    code=(("delivery-status", "enhanced-code"), ("delivery-status", "code")),
    at=(("timestamp",),),
)

RESEND: Final = Shape(
    name="resend",
    kind=((("type",),), (("data", "bounce", "type"),)),
    meanings={
        "email.delivered": _DELIVERED,
        "email.delivery_delayed": _DELAYED,
        "email.bounced": _BOUNCED,
        "email.bounced.transient": _DELAYED,
        "email.failed": _REJECTED,
        "email.complained": _COMPLAINED,
        "email.opened": _OPENED,
        "email.clicked": _CLICKED,
    },
    webhook_id=(("data", "tags", "webhook_id"),),
    message_id=(("data", "email_id"),),
    code=(("data", "bounce", "subType"),),
    at=(("created_at",),),
    identity=(("message_id", "at"), ("message_id",)),
)
"""Signs by Standard Webhooks itself, under `svix-` headers."""

TWILIO: Final = Shape(
    name="twilio",
    kind=((("MessageStatus",), ("SmsStatus",)), (("ErrorCode",),)),
    meanings={
        "delivered": _DELIVERED,
        "read": Meaning(state=Downstream.DELIVERED, engagement=Engagement.OPENED),
        "undelivered": Meaning(state=Downstream.BOUNCED),
        "undelivered.30005": _BOUNCED,
        "undelivered.30006": _BOUNCED,
        "undelivered.30007": Meaning(state=Downstream.BOUNCED, about=About.CONTENT),
        "failed": _REJECTED,
        "canceled": _REJECTED,
    },
    webhook_id=(("webhook_id",),),
    message_id=(("MessageSid",), ("SmsSid",)),
    code=(("ErrorCode",),),
    # Its callbacks have neither an id nor a time (H10): each status comes once in a message's life.
    identity=(("message_id",),),
)

FCM: Final = Shape(
    name="fcm",
    kind=(
        (
            ("event",),
            ("body", "error", "details", "*", "errorCode"),
            ("body", "error", "details", "*", "@type"),
            ("body", "error", "status"),
            ("status",),
        ),
    ),
    meanings={
        "delivered": _DELIVERED,
        "opened": _OPENED,
        "unregistered": Meaning(state=Downstream.REJECTED, about=About.RECIPIENT),
        # FcmError's INVALID_ARGUMENT may mean the token or the payload: the token is only suspect.
        "invalid_argument": _REJECTED,
        "type.googleapis.com/google.rpc.badrequest": _REFUSED,
        "sender_id_mismatch": _MISCONFIGURED,
        "third_party_auth_error": _MISCONFIGURED,
        "permission_denied": _MISCONFIGURED,
        "quota_exceeded": _DELAYED,
        "resource_exhausted": _DELAYED,
        "unavailable": _DELAYED,
        "internal": _DELAYED,
        "400": _REJECTED,
        "403": _REJECTED,
        "404": _REJECTED,
        "429": _DELAYED,
        "500": _DELAYED,
        "503": _DELAYED,
    },
    webhook_id=(("webhook_id",),),
    message_id=(("message_id",),),
    event_id=(("receipt_id",),),
    code=(("body", "error", "details", "*", "errorCode"), ("body", "error", "status"), ("status",)),
    at=(("at",),),
    identity=(("event_id",), ("message_id", "at"), ("message_id",), ("webhook_id",)),
)
"""A push gateway's receipt: FCM's answer to one message under `status` and `body`, or a later `event`.
The error's own code decides: one HTTP status speaks of token, payload and account (H13)."""

SHAPES: Final[Mapping[str, Shape]] = MappingProxyType(
    {shape.name: shape for shape in (PLAIN, SES, SENDGRID, MAILGUN, RESEND, TWILIO, FCM)}
)
"""By the name that settings give."""
