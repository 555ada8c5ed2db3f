"""How far a view has read, as a token that callers hand back: `?at-least=` waits until it is visible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streams.api.problems import Problem

TARGETS: Final = "t"
AUDIT: Final = "a"
TOKEN_CHARS_MAX: Final = 16_384
PATTERN: Final = r"^(t|a|[ld][0-9]{1,5})\.[0-9]{1,18}(_(t|a|[ld][0-9]{1,5})\.[0-9]{1,18})*$"
_TOKEN: Final = re.compile(PATTERN.strip("^$"))


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
        """Safe in URLs and headers, e.g. `a.3_l0.127_l1.96`; what was never read is left out."""
        read = sorted((name, offset) for name, offset in self.next.items() if offset > 0)
        return "_".join(f"{name}.{offset}" for name, offset in read)


def read_token(text: str) -> Positions:
    """Read a token.

    Raises:
        Problem: 400, where it is none of ours.
    """
    if len(text) > TOKEN_CHARS_MAX or not _TOKEN.fullmatch(text):
        raise Problem(
            400, "at_least_invalid", "at-least must be an offset-token of an earlier answer."
        )
    parts = (part.split(".") for part in text.split("_"))
    return Positions({name: int(offset) for name, offset in parts})
