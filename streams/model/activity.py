"""The thing to be told, and to whom."""

from __future__ import annotations

import msgspec


class Recipient(msgspec.Struct, frozen=True, kw_only=True):
    """Where one delivery goes: a registered target's name or an inbox URL, never both.

    Raises:
        ValueError: when both or neither are given.
    """

    target: str | None = None
    inbox: str | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.inbox is None):
            raise ValueError("a recipient names a target or an inbox, never both and never neither")

    @property
    def key(self) -> str:
        """What names it in the ledger: the registered name, or the inbox URL."""
        return self.target if self.target is not None else self.inbox or ""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """One activity as read from its record.

    Attributes:
        activity_id: A URI or another string, never empty.
        tenant: `default` unless given.
        actor: Who does it, or empty.
        recipients: Who is told, duplicates removed, in the order produced.
        body: The bytes that targets receive: a slice of the record's own, never re-encoded.
        content_type: Of `body`.
        ledger_entry_id: O-023.
        transaction, workflow, subscriber, channel: Optional parts of a delivery's identity (D-002).
        is_activity: Whether `body` was given as `activity` (an object) and not as `body`.
        unknown_fields: How many fields of the record were ignored.
    """

    activity_id: str
    tenant: str
    actor: str
    recipients: tuple[Recipient, ...]
    body: bytes
    content_type: str
    ledger_entry_id: str | None = None
    transaction: str | None = None
    workflow: str | None = None
    subscriber: str | None = None
    channel: str | None = None
    is_activity: bool = True
    unknown_fields: int = 0

    @property
    def key(self) -> bytes:
        """The activity key: the activity ID, or `tenant|ID` (interface.md §3)."""
        if self.tenant == "default":
            return self.activity_id.encode()
        return f"{self.tenant}|{self.activity_id}".encode()
