"""What is signed, and what a signer promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from streams.rules.addresses import ParsedUrl

Header: TypeAlias = tuple[bytes, bytes]


class Unsigned(msgspec.Struct, frozen=True, kw_only=True):
    """A POST as it will be sent, as far as signatures speak of it.

    Attributes:
        url: Where to; its parts are those that are dialled and written.
        content_type: As sent.
        body: As sent, byte for byte.
        message_id: The `webhook-id`.
        timestamp_s: The `webhook-timestamp`, epoch seconds; also when it was signed.
    """

    url: ParsedUrl
    content_type: bytes
    body: bytes
    message_id: bytes
    timestamp_s: int


class Signer(Protocol):
    """Signs requests to one target; made once per target, so that no key is parsed twice."""

    def sign(self, request: Unsigned) -> tuple[Header, ...]:
        """Give the headers to be added to `request`. Never fails."""
