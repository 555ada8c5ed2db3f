"""How far a view has read, as a token that callers hand back: `?at-least=` waits until it is visible."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from streams.api.problems import Problem

TARGETS: Final = "t"
AUDIT: Final = "a"
_TOKEN_CHARS_MAX: Final = 16_384
_decode: Final = msgspec.msgpack.Decoder(dict[str, int]).decode


def ledger_name(partition: int) -> str:
    """Names a ledger partition in tokens and files."""
    return f"l{partition}"


def letters_name(partition: int) -> str:
    """Names a dead-letter partition."""
    return f"d{partition}"


@dataclass(frozen=True, slots=True)
class Positions:
    """Next offsets by topic partition."""

    next: Mapping[str, int]

    def of(self, name: str) -> int:
        """The next offset of one, 0 where nothing was read."""
        return self.next.get(name, 0)

    def only(self, *names: str) -> Positions:
        """Those of some topic partitions."""
        return Positions({name: self.of(name) for name in names})

    def covers(self, wanted: Positions) -> bool:
        """Whether all that `wanted` names was read."""
        return all(self.of(name) >= offset for name, offset in wanted.next.items())

    def token(self) -> str:
        """Opaque, safe in URLs and headers."""
        read = {name: offset for name, offset in self.next.items() if offset > 0}
        return urlsafe_b64encode(msgspec.msgpack.encode(read)).decode().rstrip("=")


def read_token(text: str) -> Positions:
    """Read a token.

    Raises:
        Problem: 400, where it is none of ours.
    """
    try:
        if len(text) > _TOKEN_CHARS_MAX:
            raise ValueError
        return Positions(_decode(urlsafe_b64decode(text + "=" * (-len(text) % 4))))
    except (ValueError, msgspec.DecodeError):
        raise Problem(
            400, "at_least_invalid", "at-least must be an offset-token of an earlier answer."
        ) from None
